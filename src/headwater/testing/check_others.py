"""What a fenced table makes of another engine: nothing is overlooked, and nobody refused in vain.

INV-137: a decision knows whatever another engine had completed before it looked: it takes that over
or is refused. Who puts two slots beside the same file has not looked before the second. What
another engine is still writing is not taken over before its heartbeat has stood still, and who is
alone on the table is never refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from headwater.kernel.journal.paths import time_of
from headwater.kernel.layout import heartbeat_path
from headwater.model.instant import InstantTime
from headwater.testing.check import FAILED
from headwater.testing.fenced_world import FencedWorld, says_end
from headwater.testing.history import Step
from headwater.testing.scenarios.plan import EXPIRY_MS
from headwater.testing.simulation import Invariant, Simulation
from headwater.testing.table import TIMELINE

_BESIDE = "beside"
"""The fact that an actor put a slot, its number, beside a file that the journal did not have."""


def others_invariants() -> tuple[Invariant, ...]:
    """INV-137."""
    return (
        Invariant(id="INV-137", check=_nothing_is_overlooked, under=f"{TIMELINE}/"),
        Invariant(id="INV-137", check=_nobody_alive_is_taken_over, under=f"{TIMELINE}/"),
        Invariant(id="INV-137", check=_who_is_alone_is_not_refused, under=None),
    )


def learn_others(step: Step, simulation: Simulation) -> None:
    """Remember who decided beside what."""
    world = _world(simulation)
    if step.path.startswith(f"{TIMELINE}/"):
        for path in _overlooked(world):
            simulation.facts.learn((_BESIDE, step.actor, path), world.state.number)


def _nothing_is_overlooked(step: Step, simulation: Simulation) -> Iterator[str]:
    world = _world(simulation)
    for path in _overlooked(world):
        slot = simulation.facts.get((_BESIDE, step.actor, path))
        if slot not in (None, world.state.number):
            yield f"{step.actor} decided twice beside {path}, which another engine had completed"


def _nobody_alive_is_taken_over(step: Step, simulation: Simulation) -> Iterator[str]:
    world = _world(simulation)
    if step.path not in world.adopted:
        return
    time = time_of(_name(step.path))
    has_ended = any(says_end(path) and time_of(_name(path)) == time for path in world.adopted)
    beat = world.disk.objects.get(heartbeat_path(InstantTime(time)))
    if not has_ended and beat is not None and world.now_ms - beat.modified_ms <= EXPIRY_MS:
        yield f"{step.actor} took over {step.path}, whose heartbeat is alive"


def _who_is_alone_is_not_refused(step: Step, simulation: Simulation) -> Iterator[str]:
    world = _world(simulation)
    if simulation.budgets != simulation.scenario.faults.budgets() or world.foreign:
        return
    if step.outcome is not None and FAILED in str(step.outcome.value).split():
        yield f"{step.actor} failed, and no other engine has been on the table"


def _overlooked(world: FencedWorld) -> list[str]:
    """Return what another engine completed and the journal does not have."""
    there = (path for path in world.foreign if path in world.disk.objects)
    return [path for path in there if says_end(path) and path not in world.state.paths]


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _world(simulation: Simulation) -> FencedWorld:
    world = simulation.world
    assert isinstance(world, FencedWorld)
    return world
