"""The clock seam: the only source of time, pauses and timers.

No safety property depends on it (INV-43): clocks choose when to try, what to display and how long
to retain. `now_ms` may jump in either direction; `monotonic_ms` never goes back and is meaningful
only inside one process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from typing import Protocol
from weakref import WeakMethod

log = logging.getLogger(__name__)


class Timer(Protocol):
    """A running periodic call."""

    def cancel(self) -> None:
        """Stop; returns once no call is under way, unless called from within the call itself."""
        ...


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the epoch, by the wall clock."""
        ...

    def monotonic_ms(self) -> int: ...

    def sleep_ms(self, duration_ms: int) -> None: ...

    def every_ms(self, interval_ms: int, call: Callable[[], bool], name: str) -> Timer:
        """Run `call` every `interval_ms` in the background until it returns False or is cancelled.

        The first call comes one interval from now. An exception ends the timer and is logged:
        whoever depends on the timer notices by its own deadline, never by the timer's silence.
        """
        ...


def while_kept(call: Callable[[], bool], otherwise: Callable[[], object]) -> Callable[[], bool]:
    """Return a call of a method for a timer that does not keep the method's object.

    An interrupt (Ctrl-C, a time-out, a task that is killed) may come at any place, also between the
    start of a timer and whatever would cancel it. Then nobody has the object any more. Once that is
    gone `otherwise` is called instead, and the timer ends (N-194).
    """
    method = WeakMethod(call)

    def call_if_kept() -> bool:
        kept = method()
        if kept is None:
            otherwise()
            return False
        return kept()

    return call_if_kept


class SystemClock:
    """The machine's clocks, with a daemon thread per timer."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def sleep_ms(self, duration_ms: int) -> None:
        time.sleep(duration_ms / 1000)

    def every_ms(self, interval_ms: int, call: Callable[[], bool], name: str) -> Timer:
        return _ThreadTimer(interval_ms, call, name)


class _ThreadTimer:
    def __init__(self, interval_ms: int, call: Callable[[], bool], name: str) -> None:
        self._interval_s = interval_ms / 1000
        self._call = call
        self._stopped = threading.Event()
        # In a context of its own, in which the lines that it logs say what they are about.
        self._thread = threading.Thread(
            target=copy_context().run, args=(self._run,), name=name, daemon=True
        )
        try:
            self._thread.start()
        except BaseException:
            self._stopped.set()  # Interrupted while it waited for the thread to begin (N-194).
            raise

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_s):
            try:
                if not self._call():
                    return
            except Exception:
                log.exception("timer ended by an error name=%s", self._thread.name)
                return

    def cancel(self) -> None:
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
