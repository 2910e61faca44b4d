"""Two ways to suspend a piece of straight-line code at a seam call: greenlets and threads.

Exactly one side runs at a time: `resume` hands the baton to the code and returns when the code
parks or ends. Both give the same traces; greenlets are far faster, threads need no extension
module and show that nothing depends on greenlets.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from greenlet import getcurrent, greenlet


class Baton(Protocol):
    """One suspended piece of code."""

    @property
    def has_started(self) -> bool: ...

    def resume(self, value: Any) -> None:
        """From the scheduler: start or continue the code until it parks or ends."""
        ...

    def park(self) -> Any:
        """From the code: give the baton back; return the value of the next `resume`."""
        ...


BatonFactory = Callable[[Callable[[], None]], Baton]


class GreenletBaton:
    def __init__(self, body: Callable[[], None]) -> None:
        self.has_started = False
        self._greenlet = greenlet(lambda _: body())

    def resume(self, value: Any) -> None:
        self.has_started = True
        # A greenlet may be created inside another one; it must end in the scheduler all the same.
        self._greenlet.parent = getcurrent()
        self._greenlet.switch(value)

    def park(self) -> Any:
        return self._greenlet.parent.switch()


class ThreadBaton:
    def __init__(self, body: Callable[[], None]) -> None:
        self._body = body
        self._value: Any = None
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._thread: threading.Thread | None = None

    @property
    def has_started(self) -> bool:
        return self._thread is not None

    def resume(self, value: Any) -> None:
        self._value = value
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        else:
            self._go.release()
        self._back.acquire()

    def park(self) -> Any:
        self._back.release()
        self._go.acquire()
        return self._value

    def _run(self) -> None:
        self._body()
        self._back.release()
