"""Ending a command from outside, by Ctrl-C and SIGTERM.

A loop ends after what is under way, or at once if a second signal comes. Any other command gives up
what it is at, so that nobody has to wait until its heartbeat has expired.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from signal import SIG_DFL
from typing import TYPE_CHECKING

from headwater.cli.output import say

if TYPE_CHECKING:
    from headwater.seams.clock import Clock

_STEP_MS = 200


class Stop:
    """Comes with a signal of the system, or after so many pauses."""

    def __init__(self, clock: Clock, pauses_max: int | None = None) -> None:
        self._clock = clock
        self._left = pauses_max
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float) -> bool:
        """Wait for so many seconds, in short steps: a signal does not end a sleep."""
        if self._left is not None:
            self._left -= 1
            self._is_set = self._is_set or self._left <= 0
        until_ms = self._clock.monotonic_ms() + timeout * 1000
        while not self._is_set and (left_ms := until_ms - self._clock.monotonic_ms()) > 0:
            self._clock.sleep_ms(math.ceil(min(left_ms, _STEP_MS)))
        return self._is_set


@contextmanager
def given_up_on_sigterm() -> Iterator[Callable[[], bool]]:
    """Let SIGTERM do in the block what Ctrl-C does; gives what tells whether it came.

    Schedulers end jobs by it, and kill those that are still there half a minute later.
    """
    has_come = False

    def give_up(*_: object) -> None:
        nonlocal has_come
        has_come = True
        raise KeyboardInterrupt

    is_ours = signal.getsignal(signal.SIGTERM) == SIG_DFL  # Or whoever calls has a way of its own.
    try:
        if is_ours:
            signal.signal(signal.SIGTERM, give_up)
    except ValueError:  # Only the main thread is told of signals.
        is_ours = False
    try:
        yield lambda: has_come
    finally:
        if is_ours:
            signal.signal(signal.SIGTERM, SIG_DFL)


@contextmanager
def stopped_by_signals(stop: Stop, saying: str) -> Iterator[None]:
    """Let signals end the block: the first asks for it and says so, the second does not wait."""

    def ask(*_: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        with suppress(RuntimeError):  # The signal came in the middle of writing something else.
            say(saying)

    before = {each: signal.signal(each, ask) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
