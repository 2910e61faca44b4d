"""upkeep: restore, savepoints, rollback of a commit, clean with sweep, and archival.

A small table has three commits, C1 to C3, and on request a savepoint of C2. Its services are the
product's own, whole: `run_restore`, `create_savepoint`, `rollback_commit`, `clean` as
`Services.clean` puts it together, `run_archive`. Beside them work writers, and the services that
rewrite file groups.

    log     merge on read, one bucket: every commit appends a log to the same file group
    base    copy on write: every commit writes the file group anew
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from headwater.config.archive import ArchiveConfig
from headwater.config.clean import CleanConfig
from headwater.config.table import TableConfig
from headwater.context import TableContext
from headwater.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    ConflictError,
    FencedError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from headwater.format.properties import encode_properties
from headwater.format.timeline.records import encode_record
from headwater.kernel.layout import HEARTBEATS, PROPERTIES
from headwater.kernel.timeline.names import file_name
from headwater.kernel.txn.markers import Marker, MarkerKind, create_marker, delete_markers
from headwater.kernel.txn.writes import InflightWrite
from headwater.kernel.view.table_view import TableView
from headwater.markers.batches import load_every_marker
from headwater.metadata.view import load_view
from headwater.model.commit_metadata import CommitMetadata
from headwater.model.files import DataFile, FileGroupId, parse_data_file
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.seams.storage import Storage
from headwater.services.archive import run_archive
from headwater.services.clean import run_clean
from headwater.services.restore import finish_restores, run_restore
from headwater.services.rollback import rollback_failed_writes
from headwater.services.savepoint import create_savepoint, delete_savepoint, savepoint_metadata
from headwater.services.sweep import sweep_leftovers
from headwater.services.undo import rollback_commit
from headwater.testing.actor import Body, Process
from headwater.testing.check import BEGUN, COMMITTED, ENDED, FAILED, FENCED, REFUSED, UNKNOWN
from headwater.testing.check_rows import Done, done_of
from headwater.testing.check_upkeep import UpkeepChecks
from headwater.testing.faults import Faults
from headwater.testing.history import Step
from headwater.testing.operation import Kind, Op
from headwater.testing.rows import (
    PARTITION,
    Row,
    base_file,
    encode_rows,
    log_file,
    metadata_of,
    stat_of,
)
from headwater.testing.scenarios import logcompact, nbcc, occ
from headwater.testing.scenarios.guard import WORLD
from headwater.testing.scenarios.plan import (
    EXPIRY_MS,
    INTERVAL_MS,
    TOLERABLE_MISSES,
    components_of,
    heartbeat_deadlines_ms,
)
from headwater.testing.scenarios.writes import LOST, Fill, Write
from headwater.testing.seams import SimStorage
from headwater.testing.simulation import Scenario, Simulation
from headwater.testing.table import TIMELINE, Area, is_archived, place_of, timeline_files
from headwater.testing.world import World, WorldRules

OPTIONS = {
    "hoodie.client.heartbeat.interval_in_ms": str(INTERVAL_MS),
    "hoodie.client.heartbeat.tolerable.misses": str(TOLERABLE_MISSES),
}
CLEANING = CleanConfig(commits_retained=1)
ARCHIVING = ArchiveConfig(commits_min=1, commits_max=2)

DONE = "done"
IDLE = "idle"

_TIMES = ("20251231235950000", "20251231235952000", "20251231235954000")
COMMITS = tuple(InstantTime(time) for time in _TIMES)
SAVED, LAST = COMMITS[1], COMMITS[2]
_SAVED_AT = InstantTime("20251231235957000")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A kind of table whose history is kept."""

    config: TableConfig
    action: Action
    group: FileGroupId
    file: Callable[[FileGroupId, InstantTime, int], DataFile]
    fill: Fill
    is_non_blocking: bool

    def before(self) -> tuple[Instant, ...]:
        return tuple(
            Instant(time, self.action, State.COMPLETED, InstantTime(f"{time[:14]}900"))
            for time in COMMITS
        )

    def file_of(self, time: InstantTime) -> DataFile:
        return self.file(self.group, time, 1)

    def content_of(self, time: InstantTime) -> bytes:
        return encode_record(metadata_of("UPSERT", [stat_of(self.file_of(time), b"")]))

    def set_up(self, world: World, *, has_savepoint: bool) -> None:
        """Put the table there: its config, its three commits, perhaps the savepoint."""

        def put(path: str, data: bytes = b"") -> None:
            world.apply("set-up", Op(Kind.PUT, path, data))

        put(PROPERTIES, encode_properties(self.config.to_properties(), comment="set up"))
        rows: list[Row] = []
        for instant in self.before():
            time = instant.requested_time
            mine = [Row(nbcc.SHARED_KEY, 0, time), Row(f"of {time[12:14]}", 0, time)]
            keeps = () if self.is_non_blocking else (r for r in rows if r.key != nbcc.SHARED_KEY)
            rows = [*keeps, *mine]
            put(self.file_of(time).path, encode_rows(rows))
            for state in (State.REQUESTED, State.INFLIGHT):
                put(f"{TIMELINE}/{file_name(time, self.action, state)}")
            put(f"{TIMELINE}/{file_name(*instant)}", self.content_of(time))
        if has_savepoint:
            self._put_savepoint(world, put)

    def _put_savepoint(self, world: World, put: Callable[..., None]) -> None:
        storage = SimStorage(lambda op: world.apply("set-up", op))
        done = self.before()[1].completion_time
        slices = load_view(storage, self.config, as_of=done).slices([PARTITION])
        record = savepoint_metadata(slices, by="set-up", comment="", now_ms=0)
        put(f"{TIMELINE}/{file_name(SAVED, Action.SAVEPOINT, State.INFLIGHT)}")
        name = file_name(SAVED, Action.SAVEPOINT, State.COMPLETED, _SAVED_AT)
        put(f"{TIMELINE}/{name}", encode_record(record))

    def done_before(self) -> tuple[Done, ...]:
        world = World(WorldRules())
        self.set_up(world, has_savepoint=False)
        return tuple(
            done_of(instant, self.content_of(instant.requested_time), "", world)
            for instant in self.before()
        )


def _rewrite_first(process: Process, write: InflightWrite, view: TableView) -> CommitMetadata:
    return occ.rewrite(occ.FIRST)(process, write, view)


LOGS = Kept(
    config=nbcc.CONFIG,
    action=Action.DELTA_COMMIT,
    group=nbcc.GROUP,
    file=log_file,
    fill=nbcc.append,
    is_non_blocking=True,
)
BASES = Kept(
    config=occ.CONFIG,
    action=Action.COMMIT,
    group=occ.FIRST,
    file=base_file,
    fill=_rewrite_first,
    is_non_blocking=False,
)


# Actors.


def _context(process: Process, kept: Kept) -> TableContext:
    return TableContext.through(components_of(process), kept.config, OPTIONS)


def _service(kept: Kept, run: Callable[[TableContext], object], rounds: int = 1) -> Body:
    """Return an actor that runs a service; when refused it waits for heartbeats and tries again."""

    def body(process: Process) -> str:
        table = _context(process, kept)
        word = REFUSED
        for tried in range(rounds):
            if tried:
                process.clock.sleep_ms(EXPIRY_MS)
            word = _word_of(partial(run, table))
            if word != REFUSED:
                break
        return word

    return body


def _word_of(run: Callable[[], object]) -> str:
    """Return how a service ended. What is damaged is no way to end."""
    try:
        run()
    except CommitUnknownError:
        return UNKNOWN
    except FencedError:
        return FENCED
    except ConflictError:
        return REFUSED
    except (NotFoundError, InvalidInputError, AlreadyExistsError, StorageError):
        return FAILED
    return DONE


def restorer(kept: Kept) -> Body:
    return _service(kept, lambda table: run_restore(table, SAVED))


def undoer(kept: Kept) -> Body:
    """Return an actor that rolls back the last commit of the set-up."""
    return _service(kept, lambda table: rollback_commit(table, LAST))


def protector(kept: Kept, time: InstantTime = SAVED) -> Body:
    return _service(kept, lambda table: create_savepoint(table, time))


def unprotector(kept: Kept) -> Body:
    return _service(kept, lambda table: delete_savepoint(table, SAVED))


def archiver(kept: Kept) -> Body:
    return _service(kept, lambda table: run_archive(table, ARCHIVING, CLEANING))


def clean(table: TableContext) -> None:
    """Do what `Services.clean` does on a table without indexes and cancellable plans."""
    finish_restores(table)
    rollback_failed_writes(table.rollbacks, table.txn.watch)
    run_clean(table, CLEANING)
    sweep_leftovers(table, load_every_marker)


def cleaner(kept: Kept) -> Body:
    return _service(kept, clean)


def sweeper(kept: Kept) -> Body:
    return _service(kept, lambda table: sweep_leftovers(table, load_every_marker))


def writer(kept: Kept) -> Body:
    """Return an actor that writes once, announces its file, and tidies up after its commit."""
    write = Write(
        config=kept.config,
        action=kept.action,
        fill=kept.fill,
        is_bucketed=kept.is_non_blocking,
        is_non_blocking=kept.is_non_blocking,
    )

    def body(process: Process) -> str:
        process.note(BEGUN)
        word, time = write.run(_marking(process))
        process.note(ENDED, FAILED if word == LOST else word, time)
        if word == COMMITTED:
            try:
                delete_markers(process.storage, time)
            except StorageError:
                return word  # Clean sweeps them.
        return word

    return body


def _rewriter(body: Body) -> Body:
    return lambda process: body(_marking(process))


REWRITERS: Mapping[str, Body] = {
    "compaction": _rewriter(logcompact.compactor),
    "log compaction": _rewriter(logcompact.log_compactor),
    "clustering": _rewriter(nbcc.clusterer),
}


def _marking(process: Process) -> Process:
    """Return the process with a storage that announces data files, as tasks of the product do."""
    return Process(
        name=process.name,
        storage=_MarkingStorage(process.storage),
        clock=process.clock,
        ids=process.ids,
        lock=process.lock,
        note=process.note,
    )


class _MarkingStorage:
    """A storage that creates the marker of a data file before the file."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def put(self, path: str, data: bytes) -> None:
        if path.startswith(f"{PARTITION}/"):
            file = parse_data_file(path)
            assert file is not None
            create_marker(self._storage, file.instant_time, Marker(path, MarkerKind.APPEND))
        self._storage.put(path, data)


# Scenarios.


def upkeep(
    name: str,
    kept: Kept,
    actors: Mapping[str, Body],
    faults: Faults,
    *,
    has_savepoint: bool = False,
    marks: Iterable[str] = (),
) -> Scenario:
    """Return a scenario of some actors on one kind of table."""
    checks = UpkeepChecks(
        config=kept.config,
        before=kept.done_before(),
        expiry_ms=EXPIRY_MS,
        make_clean=lambda process: partial(clean, _context(process, kept)),
    )
    return Scenario(
        name=name,
        actors=actors,
        set_up=partial(kept.set_up, has_savepoint=has_savepoint),
        invariants=checks.invariants(),
        learn=checks.learn,
        hear=checks.hear,
        faults=faults,
        world=WORLD,
        deadlines_ms=heartbeat_deadlines_ms,
        check_end=checks.check_end,
        marks={mark: MARKS[mark] for mark in marks},
        is_private=is_private,
        has_eager_clocks=True,
    )


def is_private(actor: str, op: Op) -> bool:
    """Whether nobody else looks at a call's object, or the call reads what is written once.

    A read may still find that its object is gone; the swarm has those.
    """
    is_read = op.kind is Kind.READ and op.target != PROPERTIES
    return is_read or op.target.startswith(f"{HEARTBEATS}/")


def may_land_late(actor: str, op: Op) -> bool:
    """Whether mode L survives that a call lands long after its caller gave it up.

    A file of the timeline that comes back after it was taken back is beyond it, as A1 is: nothing
    asks for the lock at the moment in which it lands.
    """
    return place_of(op.target).area is not Area.TIMELINE and op.target != PROPERTIES


def restore_beside(by: str, faults: Faults) -> Scenario:
    """A restore, and a service that rewrites what it takes back."""
    return upkeep(
        f"restore beside {by}",
        LOGS,
        {"R": restorer(LOGS), "S": REWRITERS[by]},
        faults,
        has_savepoint=True,
        marks=("restored",),
    )


def restore_write(faults: Faults, kept: Kept = LOGS) -> Scenario:
    """A restore and a writer."""
    return upkeep(
        "restore_write",
        kept,
        {"R": restorer(kept), "W": writer(kept)},
        faults,
        has_savepoint=True,
        marks=("restored", "written during a restore"),
    )


def restore_two(faults: Faults) -> Scenario:
    """Two who restore to the same savepoint."""
    return upkeep(
        "restore_two",
        LOGS,
        {"R": restorer(LOGS), "T": restorer(LOGS)},
        faults,
        has_savepoint=True,
        marks=("restored",),
    )


def restore_unprotected(faults: Faults) -> Scenario:
    """A restore, somebody who deletes its savepoint, and an archiver (N-65)."""
    return upkeep(
        "restore_unprotected",
        BASES,
        {"R": restorer(BASES), "U": unprotector(BASES), "A": archiver(BASES)},
        faults,
        has_savepoint=True,
        marks=("restored", "unprotected"),
    )


def restore_clean(faults: Faults) -> Scenario:
    """A restore beside a clean."""
    return upkeep(
        "restore_clean",
        BASES,
        {"R": restorer(BASES), "C": cleaner(BASES)},
        faults,
        has_savepoint=True,
        marks=("restored", "cleaned"),
    )


def undo_write(faults: Faults, kept: Kept = LOGS) -> Scenario:
    """The rollback of the last commit, beside a writer."""
    return upkeep(
        "undo_write",
        kept,
        {"U": undoer(kept), "W": writer(kept)},
        faults,
        marks=("undone",),
    )


def undo_beside(by: str, faults: Faults) -> Scenario:
    """The rollback of the last commit, beside a service that rewrites it."""
    return upkeep(
        f"undo beside {by}",
        LOGS,
        {"U": undoer(LOGS), "S": REWRITERS[by]},
        faults,
        marks=("undone",),
    )


def undo_clean(faults: Faults) -> Scenario:
    """The rollback of the last commit, beside a clean that wants what it supersedes."""
    return upkeep(
        "undo_clean",
        BASES,
        {"U": undoer(BASES), "C": cleaner(BASES)},
        faults,
        marks=("undone", "cleaned"),
    )


def undo_sweep(faults: Faults) -> Scenario:
    """The rollback of a commit whose writer left its attempt, and two sweeps (N-66)."""
    return upkeep(
        "undo_sweep",
        LOGS,
        {"U": undoer(LOGS), "C": sweeper(LOGS), "D": sweeper(LOGS)},
        faults,
        marks=("undone",),
    )


def savepoint_archive(faults: Faults) -> Scenario:
    """A savepoint of what an archival has chosen (N-27)."""
    return upkeep(
        "savepoint_archive",
        LOGS,
        {"P": protector(LOGS), "A": archiver(LOGS)},
        faults,
        marks=("archived", "protected"),
    )


def savepoint_clean(faults: Faults) -> Scenario:
    """A savepoint of what a clean is about to delete."""
    return upkeep(
        "savepoint_clean",
        BASES,
        {"P": protector(BASES), "C": cleaner(BASES)},
        faults,
        marks=("cleaned", "protected"),
    )


def savepoint_undo(faults: Faults) -> Scenario:
    """A savepoint of a commit that is being rolled back."""
    return upkeep(
        "savepoint_undo",
        LOGS,
        {"P": protector(LOGS, LAST), "U": undoer(LOGS)},
        faults,
        marks=("undone", "protected"),
    )


def clean_write(faults: Faults, kept: Kept = BASES) -> Scenario:
    """A clean with its sweep beside a writer."""
    return upkeep(
        "clean_write", kept, {"C": cleaner(kept), "W": writer(kept)}, faults, marks=("cleaned",)
    )


def archive_write(faults: Faults, kept: Kept = LOGS) -> Scenario:
    """Two archivals beside a writer."""
    return upkeep(
        "archive_write",
        kept,
        {"A": archiver(kept), "B": archiver(kept), "W": writer(kept)},
        faults,
        marks=("archived",),
    )


# Situations that the search must have met, or it proves nothing.


def _completes(action: Action) -> Callable[[Step, Simulation], bool]:
    def is_reached(step: Step, simulation: Simulation) -> bool:
        file = place_of(step.path).file if step.path and step.after is not None else None
        is_end = file is not None and file.state is State.COMPLETED
        return is_end and file is not None and file.action is action

    return is_reached


def _is_unprotected(step: Step, simulation: Simulation) -> bool:
    file = place_of(step.path).file if step.path and step.after is None else None
    return file is not None and file.action is Action.SAVEPOINT and file.state is State.COMPLETED


def _is_archived(step: Step, simulation: Simulation) -> bool:
    return is_archived(simulation.world, COMMITS[0])


def _is_written_during_a_restore(step: Step, simulation: Simulation) -> bool:
    file = place_of(step.path).file if step.path and step.after is not None else None
    if file is None or not file.action.is_ingestion or file.state is not State.COMPLETED:
        return False
    files = timeline_files(simulation.world)
    restores = {one.requested_time for one in files if one.action is Action.RESTORE}
    done = {one.requested_time for one in files if one.state is State.COMPLETED}
    return bool(restores - done)


MARKS: Mapping[str, Callable[[Step, Simulation], bool]] = {
    "restored": _completes(Action.RESTORE),
    "undone": _completes(Action.ROLLBACK),
    "cleaned": _completes(Action.CLEAN),
    "protected": _completes(Action.SAVEPOINT),
    "unprotected": _is_unprotected,
    "archived": _is_archived,
    "written during a restore": _is_written_during_a_restore,
}
