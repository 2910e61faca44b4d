"""Scenarios of lock-trusting tables, run on fenced ones: the same steps, and no lock at all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypedDict

from headwater.testing.check_journal import journal_invariants, learn_files
from headwater.testing.fenced_world import AREAS, FencedWorld
from headwater.testing.history import Step
from headwater.testing.operation import Kind, Op
from headwater.testing.simulation import Scenario, Simulation, Violation

NO_CHECKPOINT = 1000


class FencedWays(TypedDict, total=False):
    """How `fenced` runs a scenario."""

    checkpoint_every: int
    has_private_files: bool
    is_distant: bool


def fenced(
    scenario: Scenario,
    *,
    checkpoint_every: int = NO_CHECKPOINT,
    has_private_files: bool = True,
    is_distant: bool = False,
) -> Scenario:
    """Return the scenario on a fenced table.

    With `has_private_files` files of slots are written at once: no process of ours looks at them,
    so it does not matter when, and a crash among them is one right after the slot. To other engines
    it does matter, so some searches go without.

    With `is_distant` processes read ahead what may come, as from an object store.
    """

    def is_private(actor: str, op: Op) -> bool:
        is_file = AREAS.has(op.target) and not AREAS.is_claim(op.target)
        is_at_once = has_private_files and is_file and op.kind is not Kind.LIST_NAMES
        return is_at_once or scenario.is_private(actor, op)

    def learn(step: Step, simulation: Simulation) -> None:
        scenario.learn(step, simulation)
        learn_files(step, simulation)

    def check_end(simulation: Simulation) -> Iterable[Violation]:
        world = simulation.world
        assert isinstance(world, FencedWorld)
        # Which outcomes there are is said of processes that learn what became of their slots.
        return () if world.has_stood_still else scenario.check_end(simulation)

    return replace(
        scenario,
        name=f"{scenario.name}, fenced",
        invariants=(*scenario.invariants, *journal_invariants()),
        learn=learn,
        world=replace(scenario.world, make=FencedWorld.over),
        processes=replace(
            scenario.processes, checkpoint_every=checkpoint_every, is_distant=is_distant
        ),
        check_end=check_end,
        is_private=is_private,
    )
