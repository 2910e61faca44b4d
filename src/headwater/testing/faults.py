"""Which faults a scenario allows, and how many of each.

A budget bounds the search: "one crash, two ticks" means every run in which at most that much goes
wrong, at any moment. `Budgets` is what is left of it in one state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import NamedTuple

from headwater.testing.operation import Op


@unique
class Fate(StrEnum):
    """What becomes of the call a process was making when it died."""

    DROP = "drop"
    APPLY = "apply"
    LIMBO = "limbo"  # It lands later, or never. Costs one limbo as well.


def any_call(actor: str, op: Op) -> bool:
    """Let every storage call fail."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The budget of a scenario, by kind of fault (F2 to F8 of the model)."""

    crashes: int = 0
    fates: tuple[Fate, ...] = (Fate.DROP, Fate.APPLY)
    lost_replies: int = 0  # The write took effect, the caller gets an error.
    failures: int = 0  # It did not take effect, the caller gets an error.
    limbos: int = 0  # The caller gets an error; the write lands at any later moment, or never.
    ticks: int = 0  # Time passes while processes are in the middle of something: stalls.
    has_long_ticks: bool = True  # A tick may also go to the last deadline, not only the next one.
    lock_expiries: int = 0  # The lease ends under a live holder (A1 is dropped).
    clock_steps: int = 0
    clock_steps_ms: tuple[int, ...] = (-3_600_000, 3_600_000)
    ticker_failures: int = 0
    restarts: int = 0  # A dead process starts again, with its name and without its memory.
    may_fail: Callable[[str, Op], bool] = any_call

    def budgets(self) -> Budgets:
        return Budgets(
            crashes=self.crashes,
            lost_replies=self.lost_replies,
            failures=self.failures,
            limbos=self.limbos,
            ticks=self.ticks,
            lock_expiries=self.lock_expiries,
            clock_steps=self.clock_steps,
            ticker_failures=self.ticker_failures,
            restarts=self.restarts,
        )


class Budgets(NamedTuple):
    """Faults still allowed."""

    crashes: int
    lost_replies: int
    failures: int
    limbos: int
    ticks: int
    lock_expiries: int
    clock_steps: int
    ticker_failures: int
    restarts: int

    def without(self, **spent: int) -> Budgets:
        return self._replace(**{name: getattr(self, name) - by for name, by in spent.items()})
