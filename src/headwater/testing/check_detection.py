"""The invariants of early detection, INV-66 to INV-70, over what writers announced and saw.

Who was alive when is decided by the world at the moment that a writer read the other's heartbeat,
and not by what the writer made of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from headwater.kernel.layout import MARKERS
from headwater.kernel.txn.markers import parse_marker
from headwater.markers.batches import is_batch_file, parse_readable_markers
from headwater.model.files import FileGroupId, parse_data_file
from headwater.model.instant import InstantTime, State
from headwater.testing.check import Checks
from headwater.testing.history import Move, Step
from headwater.testing.operation import Kind
from headwater.testing.rows import attempt_of, files_of
from headwater.testing.simulation import Invariant, Simulation
from headwater.testing.table import (
    TIMELINE,
    Area,
    attempt_in,
    attempt_numbers,
    attempts_in,
    current_state,
    place_of,
)
from headwater.testing.world import World

PLANNED = "planned"  # (instant, instants that its snapshot saw completed)
STOPPED = "stopped"  # (instant, the other one, file group); also the word of a writer's result

_BASIC = Checks(files_of=files_of, attempt_of=attempt_of)


class DetectionChecks:
    """The checks of scenarios with detection."""

    def invariants(self) -> tuple[Invariant, ...]:
        return (
            *_BASIC.timeline(),
            *_BASIC.guard(),
            *_BASIC.data(),
            Invariant(id="INV-66", check=_commit_missed_nobody, under=f"{TIMELINE}/"),
            Invariant(id="INV-67", check=_stopped_for_a_reason, under=None),
            Invariant(id="INV-70", check=_dead_stop_nobody, under=None),
        )

    def learn(self, step: Step, simulation: Simulation) -> None:
        _BASIC.learn(step, simulation)
        _learn_heartbeats(step, simulation)
        _learn_commit(step, simulation)

    def hear(self, step: Step, simulation: Simulation) -> None:
        _BASIC.hear(step, simulation)
        for note in step.notes:
            if note.name == PLANNED:
                time, seen = note.values
                simulation.facts.learn(("seen", time), seen)
        if step.outcome is not None or step.action.move is Move.CRASH:
            for name, _ in list(simulation.facts.items()):
                if name[0] in ("ahead", "lapsed_before") and name[1] == step.actor:
                    simulation.facts.forget(name)


def _learn_heartbeats(step: Step, simulation: Simulation) -> None:
    """Remember what was so when a writer read another's heartbeat, or made its own."""
    facts, world, op = simulation.facts, simulation.world, step.op
    if op is None or step.action.move is not Move.RUN:
        return
    place = place_of(op.target)
    if place.area is not Area.ATTEMPT:
        return
    if op.kind is Kind.PUT_IF_ABSENT and step.path:
        for path, modified_ms, attempt in attempts_in(world):
            if path != step.path and world.now_ms >= modified_ms + attempt.expiry_ms:
                facts.learn(("lapsed_before", step.actor, attempt.instant))
    # A claim whose file does not follow yet is read from the journal instead.
    shown = world.objects.get(op.target)
    if op.kind is Kind.READ and (isinstance(step.answer, bytes) or shown is not None):
        read = attempt_in(step.answer if shown is None else shown.data)
        newest = max(attempt_numbers(world, place.time), default=0)
        is_active = read is not None and not read.is_released and newest == place.attempt
        is_pending = current_state(world, place.time) in (State.REQUESTED, State.INFLIGHT)
        groups = announced_groups(world, place.time) if is_active and is_pending else ()
        facts.learn(("ahead", step.actor, place.time), tuple(sorted(map(str, groups))))


def _learn_commit(step: Step, simulation: Simulation) -> None:
    place = place_of(step.path) if step.path else None
    if place is None or place.file is None or step.after is None:
        return
    if place.file.state is State.COMPLETED:
        simulation.facts.learn(("wrote_groups", place.time), _groups_in(step.after))


def announced_groups(world: World, time: InstantTime) -> set[FileGroupId]:
    """Return the file groups that the markers of an instant name, of either kind."""
    prefix = f"{MARKERS}/{time}/"
    groups: set[FileGroupId] = set()
    for path in world.paths:
        if not path.startswith(prefix):
            continue
        name = path.removeprefix(prefix)
        if is_batch_file(name):
            groups |= {marker.group for marker in parse_readable_markers(world.objects[path].data)}
        elif (marker := parse_marker(name)) is not None:
            groups.add(marker.group)
    return groups


@lru_cache(maxsize=10_000)
def _groups_in(content: bytes) -> tuple[str, ...]:
    files = [parse_data_file(path) for path in files_of(content)]
    return tuple(sorted({str(file.group) for file in files if file is not None}))


def _commit_missed_nobody(step: Step, simulation: Simulation) -> Iterator[str]:
    place = place_of(step.path) if step.path else None
    if place is None or place.file is None or step.before is not None or step.after is None:
        return
    if place.file.state is not State.COMPLETED:
        return
    seen = simulation.facts.get(("seen", place.time)) or ()
    mine = set(_groups_in(step.after))
    for name, theirs in simulation.facts.items():
        if name[0] == "wrote_groups" and mine & set(theirs) and name[1] not in (*seen, place.time):
            yield f"{place.time} commits to groups that {name[1]} changed, which it had not seen"


def _stopped_for_a_reason(step: Step, simulation: Simulation) -> Iterator[str]:
    facts = simulation.facts
    for time, other, group in _stops(step):
        ahead = facts.get(("ahead", step.actor, other)) or ()
        is_rival = other < time and group in ahead
        seen = facts.get(("seen", time)) or ()
        has_committed = other not in seen and group in (facts.get(("wrote_groups", other)) or ())
        if not is_rival and not has_committed:
            yield f"{time} stopped for {other}, which was not ahead of it on {group}"


def _dead_stop_nobody(step: Step, simulation: Simulation) -> Iterator[str]:
    facts = simulation.facts
    for time, other, group in _stops(step):
        has_committed = group in (facts.get(("wrote_groups", other)) or ())
        is_dead = facts.get(("lapsed_before", step.actor, other)) or not facts.get(
            ("ahead", step.actor, other)
        )
        if is_dead and not has_committed:
            yield f"{time} stopped for {other}, which had no active heartbeat"


def _stops(step: Step) -> Iterator[tuple[str, str, str]]:
    for note in step.notes:
        if note.name == STOPPED:
            time, other, group = note.values
            yield time, other, group
