"""What a mutant is: the product with one decision broken, and the invariant that must notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from unittest.mock import patch

from headwater.testing.explore import Report, exhaust, hunt
from headwater.testing.schedule import Strategy
from headwater.testing.simulation import Scenario, Violation

STATES_MAX = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One planted bug.

    `scenario` builds the world in which it must show, with the broken part passed in where the
    product takes it as an argument. `patches` replace names in modules where it does not.
    """

    name: str
    scenario: Callable[[], Scenario]
    must_violate: tuple[str, ...]
    patches: tuple[tuple[str, object], ...] = ()
    states_max: int = STATES_MAX
    preemptions_max: int | None = None
    strategy: Callable[[int], Strategy] | None = None
    """Where a search cannot go: one run as this chooses it, instead of all."""

    def is_noticed_by(self, violation: Violation) -> bool:
        return violation.invariant in self.must_violate

    @contextmanager
    def planted(self) -> Iterator[Scenario]:
        """Plant the bug for as long as the context lasts."""
        with ExitStack() as stack:
            for target, broken in self.patches:
                stack.enter_context(patch(target, broken))
            yield self.scenario()

    def hunt(self) -> Report:
        """Search until one of the invariants that must notice does."""
        with self.planted() as scenario:
            if self.strategy is not None:
                return hunt(scenario, self.strategy, [0], stop_at=self.is_noticed_by)
            return exhaust(
                scenario,
                preemptions_max=self.preemptions_max,
                states_max=self.states_max,
                stop_at=self.is_noticed_by,
            )
