"""A clock that moves only when told, for tests of leases, timeouts and timers.

Sleeping moves time at once, and timers fire, in the order they are due, while time passes them. A
test can stop the timers (a stalled ticker), step the wall clock, or see the same time through a
wall clock that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headwater.seams.clock import Clock, Timer

EPOCH_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z, a moment that reads well in messages.


class ManualClock:
    """Virtual time, shared by every process of a test."""

    def __init__(self, now_ms: int = EPOCH_MS) -> None:
        self._monotonic_ms = 0
        self._wall_offset_ms = now_ms
        self._timers: list[_ManualTimer] = []
        self._is_firing = False
        self._are_timers_stalled = False

    def now_ms(self) -> int:
        return self._wall_offset_ms + self._monotonic_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def sleep_ms(self, duration_ms: int) -> None:
        self.advance_ms(duration_ms)

    def every_ms(self, interval_ms: int, call: Callable[[], bool], name: str) -> Timer:
        timer = _ManualTimer(self, interval_ms, call, due_ms=self._monotonic_ms + interval_ms)
        self._timers.append(timer)
        return timer

    @property
    def timer_count(self) -> int:
        """How many timers are running; a test that ends with some has leaked them."""
        return len(self._timers)

    def advance_ms(self, duration_ms: int) -> None:
        """Let time pass and fire what falls due on the way."""
        end_ms = self._monotonic_ms + duration_ms
        # A timer's call may sleep; the time it takes passes without firing timers inside timers.
        while not self._is_firing and (timer := self._next_due(end_ms)) is not None:
            self._monotonic_ms = max(self._monotonic_ms, timer.due_ms)
            self._fire(timer)
        self._monotonic_ms = max(self._monotonic_ms, end_ms)

    def step_wall_ms(self, step_ms: int) -> None:
        """Set the wall clock forward or back; monotonic time does not notice."""
        self._wall_offset_ms += step_ms

    def with_wall_ahead_ms(self, ahead_ms: int) -> Clock:
        """The same time, seen by a machine whose wall clock is wrong."""
        return _SkewedClock(self, ahead_ms)

    @contextmanager
    def timers_stalled(self) -> Iterator[None]:
        """Hold back all timers; those that fell due fire when time next passes afterwards."""
        self._are_timers_stalled = True
        try:
            yield
        finally:
            self._are_timers_stalled = False

    def _next_due(self, end_ms: int) -> _ManualTimer | None:
        if self._are_timers_stalled:
            return None
        due = [timer for timer in self._timers if timer.due_ms <= end_ms]
        return min(due, key=lambda timer: timer.due_ms, default=None)

    def _fire(self, timer: _ManualTimer) -> None:
        self._is_firing = True
        try:
            goes_on = timer.call()
        finally:
            self._is_firing = False
        if goes_on:
            timer.due_ms = self._monotonic_ms + timer.interval_ms
        else:
            self.forget(timer)

    def forget(self, timer: _ManualTimer) -> None:
        if timer in self._timers:
            self._timers.remove(timer)


class _ManualTimer:
    def __init__(
        self, clock: ManualClock, interval_ms: int, call: Callable[[], bool], *, due_ms: int
    ) -> None:
        self._clock = clock
        self.interval_ms = interval_ms
        self.call = call
        self.due_ms = due_ms

    def cancel(self) -> None:
        self._clock.forget(self)


class _SkewedClock:
    def __init__(self, clock: ManualClock, ahead_ms: int) -> None:
        self._clock = clock
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return self._clock.now_ms() + self._ahead_ms

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()

    def sleep_ms(self, duration_ms: int) -> None:
        self._clock.sleep_ms(duration_ms)

    def every_ms(self, interval_ms: int, call: Callable[[], bool], name: str) -> Timer:
        return self._clock.every_ms(interval_ms, call, name)
