"""How fast others put slots: so many are read before it is known that they are there."""

from __future__ import annotations

from headwater.seams.clock import Clock

_HALF_LIFE_MS = 1_000


class Pace:
    """What looks at the journal showed lately: the newer, the more it counts."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._noted_ms: int | None = None
        self._count = 0.0
        self._took_ms = 0.0

    def note(self, count: int) -> None:
        """Take into account how many slots of others came since this was called last."""
        now_ms = self._clock.monotonic_ms()
        if self._noted_ms is not None:
            passed_ms = now_ms - self._noted_ms
            fading = 0.5 ** (passed_ms / _HALF_LIFE_MS)
            self._count = self._count * fading + count
            self._took_ms = self._took_ms * fading + passed_ms
        self._noted_ms = now_ms

    @property
    def expected(self) -> int:
        """How many came since then, most likely."""
        if self._noted_ms is None or not self._took_ms:
            return 0
        passed_ms = self._clock.monotonic_ms() - self._noted_ms
        return round(self._count / self._took_ms * passed_ms)
