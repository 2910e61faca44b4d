"""Judging that a holder is gone, without trusting anybody's wall clock (H-26)."""

from __future__ import annotations

from headwater.seams.clock import Clock
from headwater.seams.mutex import new_mutex


class Unchanged:
    """For how long this process has seen the same bytes, on its own monotonic clock.

    Right only for content that no two writes share, so that equal bytes mean "not written since".
    What was seen is kept between calls: a caller that gave up waiting need not start anew.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._mutex = new_mutex()
        self._first_seen: dict[str, tuple[bytes, int]] = {}

    def seen_ms(self, path: str, data: bytes) -> int:
        """Note that `path` holds `data` now; return for how long it has."""
        now_ms = self._clock.monotonic_ms()
        with self._mutex:
            known = self._first_seen.get(path)
            if known is None or known[0] != data:
                known = (data, now_ms)
                self._first_seen[path] = known
        return now_ms - known[1]

    def forget(self, path: str) -> None:
        """Note that `path` is absent or this process's own."""
        with self._mutex:
            self._first_seen.pop(path, None)
