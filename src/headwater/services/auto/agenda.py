"""Which piece of advice is followed next: a pure decision on advice, budget and what was before.

A round follows advice piece by piece, each kind of work once (each waiting plan once), until there
is none left or the budget is spent.

1. The best comes first, by gain over cost.
2. Nothing starves: what was ready in `TURN_AFTER` rounds one after the other, and had to stand back
   behind others, goes before everything else in the next round, longest wait first.
3. No piece begins after the seconds of the budget, but the first of a round does.
4. A piece begins if the bytes that are left pay for it. One that costs more than a whole budget
   begins when its turn has come by rule 2, as the first piece of bytes of a round; what it spends
   too much, the rounds after it have less.
5. What is backing off is not ready. It does not wait by rule 2 meanwhile: the pause is bounded, and
   then it does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headwater.model.instant import InstantTime
from headwater.services.advice.advice import Advice, Need
from headwater.services.advice.settings import Scope
from headwater.services.auto.back_off import BackOff

TURN_AFTER = 3

BY_HAND = frozenset({Need.EXPIRED_LOCK})
"""What nobody follows but people: the next one to take the lock ends this anyway."""

Key = tuple[Need, InstantTime | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a round may spend; None: as much as there is to do."""

    seconds: float | None = None
    bytes: int | None = None


class Agenda:
    """What one process has done and put off so far."""

    def __init__(self, budget: Budget, back_off: BackOff | None = None) -> None:
        self._budget = budget
        self.back_off = back_off or BackOff()
        self._waited: dict[Key, int] = {}
        self._begun: set[Key] = set()
        self._ready: set[Key] = set()
        self._round_began_ms = 0
        self._spent_bytes = 0

    def begin_round(self, now_ms: int) -> None:
        """Begin a round with a new budget, less what earlier rounds spent too much."""
        self._round_began_ms = now_ms
        self._begun.clear()
        self._ready.clear()
        self._spent_bytes = max(0, self._spent_bytes - (self._budget.bytes or 0))

    def scope(self, now_ms: int) -> Scope:
        """Return what advice for the next piece may be about."""
        return Scope(
            bytes_max=self._bytes_left(),
            avoided=self.back_off.avoided(now_ms),
            is_cold_first=True,
        )

    def next_piece(self, advice: Sequence[Advice], now_ms: int) -> Advice | None:
        """Return what to follow now, of advice by rank; None ends the round."""
        ready = [
            one
            for one in advice
            if one.need not in BY_HAND
            and _key(one) not in self._begun
            and not self.back_off.is_resting(one.need, one.instant, now_ms)
        ]
        self._ready.update(map(_key, ready))
        if self._begun and self._is_late(now_ms):
            return None
        for one in in_turn(ready, self._waited):
            if self._pays_for(one):
                self._begun.add(_key(one))
                return one
        return None

    def spend(self, size_bytes: int) -> None:
        """Take bytes from the budget."""
        self._spent_bytes += size_bytes

    def end_round(self) -> None:
        """Count for how many rounds each need was ready and had to stand back."""
        passed_over = self._ready - self._begun
        self._waited = {key: self._waited.get(key, 0) + 1 for key in passed_over}

    def _bytes_left(self) -> int | None:
        if self._budget.bytes is None:
            return None
        return max(0, self._budget.bytes - self._spent_bytes)

    def _pays_for(self, piece: Advice) -> bool:
        left = self._bytes_left()
        if left is None or piece.cost_bytes <= left:
            return True
        return not self._spent_bytes and self._waited.get(_key(piece), 0) >= TURN_AFTER

    def _is_late(self, now_ms: int) -> bool:
        seconds = self._budget.seconds
        return seconds is not None and now_ms - self._round_began_ms >= seconds * 1000


def in_turn(ready: Iterable[Advice], waited: dict[Key, int]) -> list[Advice]:
    """Return advice by rank, but first what has waited for its turn, the longest wait before."""

    def turn(one: Advice) -> int:
        rounds = waited.get(_key(one), 0)
        return rounds if rounds >= TURN_AFTER else 0

    return sorted(ready, key=turn, reverse=True)


def _key(one: Advice) -> Key:
    return one.need, one.instant
