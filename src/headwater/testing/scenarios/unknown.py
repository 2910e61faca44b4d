"""unknown: writers that do not get all their replies (INV-84, INV-59).

Success means visible from then on, definite failure means never visible, unknown means one of the
two, and reading back tells which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from headwater.model.instant import State
from headwater.testing.check import COMMITTED, FAILED, UNKNOWN
from headwater.testing.faults import Faults
from headwater.testing.history import Move, Step
from headwater.testing.operation import Kind, Op
from headwater.testing.scenarios.guard import WORLD
from headwater.testing.scenarios.ingest import writer
from headwater.testing.scenarios.plan import CHECKS, heartbeat_deadlines_ms
from headwater.testing.simulation import Scenario, Simulation, Violation
from headwater.testing.table import Area, place_of, timeline_files
from headwater.testing.world import World


def unknown(faults: Faults, *, name: str = "unknown") -> Scenario:
    """Return a writer and its rival; the calls of the writer fail, as `faults` allow."""
    marks = ["both committed"]
    if faults.lost_replies:
        marks += ["lost reply on the completed file"]
    if faults.limbos:
        marks += ["late landing of a write that was tried again"]
    return Scenario(
        name=name,
        actors={"W": writer(), "R": writer()},
        set_up=_empty_table,
        invariants=CHECKS.all(),
        learn=CHECKS.learn,
        hear=CHECKS.hear,
        faults=faults,
        world=WORLD,
        deadlines_ms=heartbeat_deadlines_ms,
        check_end=_check_outcome,
        marks={mark: _MARKS[mark] for mark in marks},
    )


def is_writers_own(actor: str, op: Op) -> bool:
    """Let the writer's calls fail, except on the plain heartbeat, which is touched at best."""
    return actor == "W" and place_of(op.target).area is not Area.HEARTBEAT


def is_writers_creation(actor: str, op: Op) -> bool:
    """Let fail only what the writer creates once: attempts, data and timeline files.

    These are all the calls whose outcome can be unknown and matter; without the others the whole
    budget of two lost replies and a late landing is searched in seconds.
    """
    return actor == "W" and op.kind is Kind.PUT_IF_ABSENT


def unknown_exhausted() -> Scenario:
    """Storage fails on the completed file until the writer gives up without knowing."""
    faults = Faults(lost_replies=1, failures=10, may_fail=_is_about_completed)
    scenario = unknown(faults, name="unknown_exhausted")
    marks = {"gave up without knowing": _MARKS["gave up without knowing"], **scenario.marks}
    return replace(scenario, marks=marks)


def _is_about_completed(actor: str, op: Op) -> bool:
    file = place_of(op.target).file
    return actor == "W" and file is not None and file.state is State.COMPLETED


def _empty_table(world: World) -> None:
    """An empty table has no timeline files at all."""


def _check_outcome(simulation: Simulation) -> Iterator[Violation]:
    for actor, result in simulation.results().items():
        if result not in (COMMITTED, FAILED, UNKNOWN, "crashed"):
            yield Violation("INV-84", f"{actor} ended {result}, with no rival for its instant")
    yield from check_visible(simulation)


def check_visible(simulation: Simulation) -> Iterator[Violation]:
    """Give a violation if fewer commits are visible than writers were told of."""
    files = timeline_files(simulation.world)
    completed = sum(file.state is State.COMPLETED for file in files)
    committed = list(simulation.results().values()).count(COMMITTED)
    if completed < committed:
        yield Violation("INV-84", f"{committed} writers committed, {completed} are visible")


def _have_both_committed(step: Step, simulation: Simulation) -> bool:
    return list(simulation.results().values()).count(COMMITTED) == 2


def _is_completed_lost(step: Step, simulation: Simulation) -> bool:
    file = place_of(step.path).file if step.path else None
    return (
        step.action.move is Move.LOST_REPLY and file is not None and file.state is State.COMPLETED
    )


def _has_landed_late(step: Step, simulation: Simulation) -> bool:
    return step.action.move is Move.LAND and step.has_failed


def _has_given_up(step: Step, simulation: Simulation) -> bool:
    return step.outcome is not None and step.outcome.value == UNKNOWN


_MARKS: Mapping[str, Callable[[Step, Simulation], bool]] = {
    "both committed": _have_both_committed,
    "lost reply on the completed file": _is_completed_lost,
    "late landing of a write that was tried again": _has_landed_late,
    "gave up without knowing": _has_given_up,
}
