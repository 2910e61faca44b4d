"""occ_3: three optimistic writers of two file groups, and an archiver (INV-61, INV-62).

Writer A changes the first group, B the second, C both; each reads a group and writes it anew with a
row of its own. The archiver moves what was requested before the first pending instant to the
archived timeline, at any moment and without the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from headwater.errors import HeadwaterError
from headwater.kernel.layout import ATTEMPTS, HEARTBEATS
from headwater.kernel.timeline.active import Timeline, load_active
from headwater.kernel.timeline.history.write import archive_instants
from headwater.kernel.txn.writes import InflightWrite
from headwater.kernel.view.table_view import TableView
from headwater.model.commit_metadata import CommitMetadata
from headwater.model.files import FileGroupId
from headwater.model.instant import Action, Instant
from headwater.testing.actor import Body, Process
from headwater.testing.check import FAILED
from headwater.testing.check_rows import Done, RowChecks, is_straggler
from headwater.testing.faults import Faults
from headwater.testing.history import Step
from headwater.testing.operation import STORAGE_READS, Kind, Op
from headwater.testing.rows import (
    PARTITION,
    Row,
    base_file,
    config_of,
    metadata_of,
    put_rows,
    read_slice,
)
from headwater.testing.scenarios.guard import WORLD
from headwater.testing.scenarios.plan import heartbeat_deadlines_ms
from headwater.testing.scenarios.writes import (
    Fill,
    MakeSnapshot,
    Write,
    check_outcome,
    losses_in,
    planned_snapshot,
    writer,
)
from headwater.testing.simulation import Scenario, Simulation
from headwater.testing.table import LAYOUT, is_archived
from headwater.testing.world import World

CONFIG = config_of("COPY_ON_WRITE")
FIRST = FileGroupId(PARTITION, "fg-1")
SECOND = FileGroupId(PARTITION, "fg-2")

_GROUPS = {"A": (FIRST,), "B": (SECOND,), "C": (FIRST, SECOND)}

ARCHIVED = "archived"
IDLE = "idle"

Choose = Callable[[Timeline], Iterable[Instant]]


def choose_archivable(timeline: Timeline) -> list[Instant]:
    """Return what was requested before the first pending instant.

    The newest to complete stays: readers take its completion time for the present (N-13).
    """
    first = min((instant.requested_time for instant in timeline.pending), default=None)
    return [
        instant
        for instant in timeline.completed[:-1]
        if first is None or instant.requested_time < first
    ]


def occ_3(
    faults: Faults,
    *,
    marks: tuple[str, ...] = (),
    snapshot: MakeSnapshot = planned_snapshot,
    choose: Choose = choose_archivable,
    order: str = "ABC",
) -> Scenario:
    """Return the three writers, in the order in which a search tries them, and the archiver."""
    checks = RowChecks(config=CONFIG)
    writes = {
        name: Write(
            config=CONFIG, action=Action.COMMIT, fill=rewrite(*_GROUPS[name]), snapshot=snapshot
        )
        for name in order
    }
    return Scenario(
        name="occ_3",
        actors={**{name: writer(write) for name, write in writes.items()}, "R": archiver(choose)},
        set_up=_empty_table,
        invariants=checks.invariants(),
        learn=checks.learn,
        hear=checks.hear,
        faults=faults,
        world=WORLD,
        deadlines_ms=heartbeat_deadlines_ms,
        check_end=check_outcome,
        marks={mark: MARKS[mark] for mark in ("archived", "lost to one that it had seen", *marks)},
        is_private=_is_private,
        has_eager_clocks=True,
    )


def _is_private(actor: str, op: Op) -> bool:
    """Whether a call is about what nobody else looks at, or reads what nobody else changes."""
    path = op.target
    if path.startswith((f"{ATTEMPTS}/", f"{HEARTBEATS}/")):
        return True  # Nobody rolls back or executes what another one began.
    if op.kind is Kind.READ and path.startswith(f"{PARTITION}/"):
        return True
    # Nobody else archives, and nobody reads an archived file before a manifest lists it.
    is_of_history = path.startswith(LAYOUT.history)
    is_read = op.kind is Kind.READ or (op.kind in STORAGE_READS and is_of_history)
    return actor == "R" and (is_read or (is_of_history and path.endswith(".parquet")))


def _empty_table(world: World) -> None:
    """An empty table has no timeline files at all."""


def rewrite(*groups: FileGroupId) -> Fill:
    """Return how a writer reads groups and writes each anew with a row of its own."""

    def fill(process: Process, write: InflightWrite, view: TableView) -> CommitMetadata:
        time, attempt = write.instant_time, write.attempt.attempt
        slices = {one.group: one for one in view.slices([PARTITION])}
        stats = []
        for group in groups:
            rows = read_slice(process.storage, slices[group]) if group in slices else {}
            key = f"{process.name} in {group.file_id}"
            rows[key] = Row(key, 0, time)
            file = base_file(group, time, attempt)
            stats.append(put_rows(process.storage, file, rows.values()))
        return metadata_of("UPSERT", stats)

    return fill


def archiver(choose: Choose) -> Body:
    """Return an actor that archives once."""

    def body(process: Process) -> str:
        chosen = list(choose(load_active(process.storage, LAYOUT.timeline)))
        if not chosen:
            return IDLE
        try:
            archive_instants(process.storage, LAYOUT, chosen)
        except HeadwaterError:
            return FAILED
        return ARCHIVED

    return body


# Situations that the search must have met, or it proves nothing.


def _has_archived(step: Step, simulation: Simulation) -> bool:
    return step.outcome is not None and step.outcome.value == ARCHIVED


def _commits(simulation: Simulation) -> list[Done]:
    return [value for name, value in simulation.facts.items() if name[0] == "done"]


def _has_lost_to(
    is_it: Callable[[Done, str, Simulation], bool],
) -> Callable[[Step, Simulation], bool]:
    def is_reached(step: Step, simulation: Simulation) -> bool:
        return any(
            is_it(done, saw, simulation)
            for saw in losses_in(step, simulation)
            for done in _commits(simulation)
        )

    return is_reached


def _is_straggler(done: Done, saw: str, simulation: Simulation) -> bool:
    return is_straggler(done, saw, _commits(simulation))


def _is_archived_since(done: Done, saw: str, simulation: Simulation) -> bool:
    return done.completion_time > saw and is_archived(simulation.world, done.time)


def _had_seen_all(step: Step, simulation: Simulation) -> bool:
    commits, losses = _commits(simulation), losses_in(step, simulation)
    return any(all(done.completion_time <= saw for done in commits) for saw in losses)


MARKS: Mapping[str, Callable[[Step, Simulation], bool]] = {
    "archived": _has_archived,
    "lost to a straggler": _has_lost_to(_is_straggler),
    "lost to an archived instant": _has_lost_to(_is_archived_since),
    "lost to one that it had seen": _had_seen_all,
}
