"""upkeep: restore, savepoints, rollback of a commit, clean with sweep, and archival.

A small table has three commits, C1 to C3, and on request a savepoint of one of them. Its services
are the product's own, whole: `run_restore`, `create_savepoint`, `rollback_commit`, `clean` as
`Services.clean` puts it together, `run_archive`. Beside them work writers, and the services that
rewrite file groups. `beside` has any two of them; the others have what needs more to go wrong.

    log     merge on read, one bucket: every commit appends a log to the same file group
    base    copy on write: every commit writes the file group anew
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from headwater.config.archive import ArchiveConfig
from headwater.config.clean import CleanConfig, CleanPolicy
from headwater.config.table import TableConfig
from headwater.context import TableContext
from headwater.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    ConflictError,
    CorruptTableError,
    FencedError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from headwater.format.properties import encode_properties
from headwater.format.timeline.records import encode_record
from headwater.kernel.journal.storage import JournaledStorage
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
from headwater.testing.check_rows import READ, Done, done_of
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
    read_slice,
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
from headwater.testing.table import LAYOUT, TIMELINE, Area, is_archived, place_of
from headwater.testing.world import World, WorldRules

OPTIONS = {
    "hoodie.client.heartbeat.interval_in_ms": str(INTERVAL_MS),
    "hoodie.client.heartbeat.tolerable.misses": str(TOLERABLE_MISSES),
}
CLEANING = CleanConfig(commits_retained=1)
BY_VERSIONS = CleanConfig(policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS, file_versions_retained=1)
"""Cleaning by commits leaves what the last one superseded; this leaves the newest view alone."""
ARCHIVING = ArchiveConfig(commits_min=1, commits_max=2)

DONE = "done"
IDLE = "idle"

_TIMES = ("20251231235950000", "20251231235952000", "20251231235954000")
COMMITS = tuple(InstantTime(time) for time in _TIMES)
FIRST, SAVED, LAST = COMMITS
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

    def set_up(self, world: World, *, saved: InstantTime | None) -> None:
        """Put the table there: its config, its three commits, perhaps a savepoint."""

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
        if saved is not None:
            self._put_savepoint(world, put, saved)

    def _put_savepoint(self, world: World, put: Callable[..., None], saved: InstantTime) -> None:
        storage = SimStorage(lambda op: world.apply("set-up", op))
        done = self.before()[COMMITS.index(saved)].completion_time
        slices = load_view(storage, self.config, as_of=done).slices([PARTITION])
        record = savepoint_metadata(slices, by="set-up", comment="", now_ms=0)
        put(f"{TIMELINE}/{file_name(saved, Action.SAVEPOINT, State.INFLIGHT)}")
        name = file_name(saved, Action.SAVEPOINT, State.COMPLETED, _SAVED_AT)
        put(f"{TIMELINE}/{name}", encode_record(record))

    def done_before(self) -> tuple[Done, ...]:
        world = World(WorldRules())
        self.set_up(world, saved=None)
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


def restorer(kept: Kept, saved: InstantTime = SAVED) -> Body:
    return _service(kept, lambda table: run_restore(table, saved))


def undoer(kept: Kept) -> Body:
    """Return an actor that rolls back the last commit of the set-up."""
    return _service(kept, lambda table: rollback_commit(table, LAST))


def protector(kept: Kept, time: InstantTime = SAVED) -> Body:
    return _service(kept, lambda table: create_savepoint(table, time))


def unprotector(kept: Kept, saved: InstantTime = SAVED) -> Body:
    return _service(kept, lambda table: delete_savepoint(table, saved))


def archiver(kept: Kept) -> Body:
    return _service(kept, lambda table: run_archive(table, ARCHIVING, CLEANING))


def clean(table: TableContext, config: CleanConfig = CLEANING) -> None:
    """Do what `Services.clean` does on a table without indexes and cancellable plans."""
    finish_restores(table)
    rollback_failed_writes(table.rollbacks, table.txn.watch)
    run_clean(table, config)
    sweep_leftovers(table, load_every_marker)


def cleaner(kept: Kept, config: CleanConfig = CLEANING) -> Body:
    return _service(kept, lambda table: clean(table, config))


def sweeper(kept: Kept) -> Body:
    return _service(kept, lambda table: sweep_leftovers(table, load_every_marker))


def writer(kept: Kept, *, is_optimistic: bool = False) -> Body:
    """Return an actor that writes once, announces its file, and tidies up after its commit."""
    write = Write(
        config=kept.config,
        action=kept.action,
        fill=kept.fill,
        is_bucketed=kept.is_non_blocking,
        is_non_blocking=kept.is_non_blocking and not is_optimistic,
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


def reader(kept: Kept) -> Body:
    """Return an actor that reads the table once; what it gets must be what some moment held."""

    def body(process: Process) -> str:
        view = load_view(process.storage, kept.config)
        try:
            slices = view.slices([PARTITION])
            rows = [row for one in slices for row in read_slice(process.storage, one).values()]
        except (NotFoundError, CorruptTableError):
            return FAILED  # What was taken back or cleaned under its eyes, it does not get.
        process.note(READ, view.instant or "", tuple(rows))
        return READ

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
        storage=_marking_storage(process.storage),
        clock=process.clock,
        ids=process.ids,
        lock=process.lock,
        note=process.note,
    )


def _marking_storage(storage: Storage) -> Storage:
    if not isinstance(storage, JournaledStorage):
        return _MarkingStorage(storage)
    # Below the journal: what is around it would hide from transactions that the table has one.
    journal = copy(storage.journal)
    journal.storage = _MarkingStorage(journal.storage)
    return type(storage)(journal)


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
            create_marker(self._storage, file.instant_time, Marker(path, MarkerKind.CREATE))
        self._storage.put(path, data)


# Scenarios.


def upkeep(
    name: str,
    kept: Kept,
    actors: Mapping[str, Body],
    faults: Faults,
    *,
    saved: InstantTime | None = None,
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
        set_up=partial(kept.set_up, saved=saved),
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
    is_timeline = place_of(op.target).area is Area.TIMELINE or op.target.startswith(LAYOUT.history)
    return not is_timeline and op.target != PROPERTIES


KEEPERS: Mapping[str, Callable[[Kept], Body]] = {
    "restore": restorer,
    "rollback of a commit": undoer,
    "savepoint": protector,
    "clean": cleaner,
    "archive": archiver,
}

_MARK_OF = {
    "restore": "restored",
    "rollback of a commit": "undone",
    "savepoint": "protected",
    "archive": "archived",
}


def actor_of(name: str, kept: Kept) -> Body:
    """Return who does something by that name: a keeper, a rewriting service, or `write`."""
    if name in REWRITERS:
        return REWRITERS[name]
    return writer(kept) if name == "write" else KEEPERS[name](kept)


def beside(first: str, second: str, faults: Faults, kept: Kept = LOGS) -> Scenario:
    """Two at work on one table; where one of them restores, the commit in the middle is saved."""
    names = {"X": first, "Y": second}
    is_restored = "restore" in names.values()
    possible = {_MARK_OF[name] for name in names.values() if name in _MARK_OF}
    if is_restored:
        possible -= {"protected", "archived"}  # The set-up did it, and so keeps archival off.
    return upkeep(
        f"{first} beside {second}",
        kept,
        {key: actor_of(name, kept) for key, name in names.items()},
        faults,
        saved=SAVED if is_restored else None,
        marks=sorted(possible),
    )


def pairs() -> Iterator[tuple[str, str]]:
    """Give every keeper with every writer, rewriting service and keeper."""
    keepers = list(KEEPERS)
    for number, first in enumerate(keepers):
        for second in ("write", *REWRITERS, *keepers[number:]):
            yield first, second


def restore_unprotected(faults: Faults) -> Scenario:
    """A restore, somebody who deletes its savepoint, and an archiver (N-65)."""
    return upkeep(
        "restore_unprotected",
        BASES,
        {"R": restorer(BASES, FIRST), "U": unprotector(BASES, FIRST), "A": archiver(BASES)},
        faults,
        saved=FIRST,
        marks=("restored", "unprotected"),
    )


def restore_clean(faults: Faults) -> Scenario:
    """A restore beside a clean."""
    return upkeep(
        "restore_clean",
        BASES,
        {"R": restorer(BASES), "C": cleaner(BASES, BY_VERSIONS)},
        faults,
        saved=SAVED,
        marks=("restored", "cleaned"),
    )


def undo_clean(faults: Faults) -> Scenario:
    """The rollback of the last commit, beside a clean that wants what it supersedes."""
    return upkeep(
        "undo_clean",
        BASES,
        {"U": undoer(BASES), "C": cleaner(BASES, BY_VERSIONS)},
        faults,
        marks=("undone", "cleaned"),
    )


def undo_sweep(faults: Faults) -> Scenario:
    """The rollback of a commit, and a sweep that finds its fence among the leftovers (N-66)."""
    return upkeep(
        "undo_sweep",
        LOGS,
        {"U": undoer(LOGS), "C": sweeper(LOGS)},
        faults,
        marks=("undone",),
    )


def sweep_claim(faults: Faults) -> Scenario:
    """Two writers, of which one may die between its claim and its request, and a sweep."""
    scenario = upkeep(
        "sweep_claim",
        LOGS,
        {"V": writer(LOGS), "W": writer(LOGS), "C": sweeper(LOGS)},
        faults,
    )
    return replace(scenario, twins=("V", "W"))


def savepoint_clean(faults: Faults) -> Scenario:
    """A savepoint of what a clean is about to delete."""
    return upkeep(
        "savepoint_clean",
        BASES,
        {"P": protector(BASES), "C": cleaner(BASES, BY_VERSIONS)},
        faults,
        marks=("cleaned", "protected"),
    )


def savepoint_undo(faults: Faults) -> Scenario:
    """A savepoint of the very commit that is being rolled back."""
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
        "clean_write",
        kept,
        {"C": cleaner(kept, BY_VERSIONS), "W": writer(kept)},
        faults,
        marks=("cleaned",),
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


def archive_writes(faults: Faults, kept: Kept = LOGS) -> Scenario:
    """An archival beside two writers, of which one may be left behind."""
    return upkeep(
        "archive_writes",
        kept,
        {"A": archiver(kept), "V": writer(kept), "W": writer(kept)},
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


MARKS: Mapping[str, Callable[[Step, Simulation], bool]] = {
    "restored": _completes(Action.RESTORE),
    "undone": _completes(Action.ROLLBACK),
    "cleaned": _completes(Action.CLEAN),
    "protected": _completes(Action.SAVEPOINT),
    "unprotected": _is_unprotected,
    "archived": _is_archived,
}
