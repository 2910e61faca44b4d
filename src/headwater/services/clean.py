"""Cleaning: deleting the data files that no view within retention needs any more.

A clean deletes whole file slices, with all that goes with them, of which every file is needed by
none of these (INV-33):

- the newest view, and the views that the policy retains: as of the last commits, or of the last
  hours, or the last versions of every file group;
- the views that a pending write may have been planned on, or a pending index build starts from;
- the views of savepoints, and the files that savepoints list;
- the views that pending compactions, log compactions and clusterings take their inputs from.

File groups that were replaced go the same way: no view needs them once the replace commit itself
is below the retention. The record of a clean names the earliest instant that it retained; readers
compute from it how far back the table can be read (`kernel.view.retention`), and so does the plan.

1. Finish the cleans that other processes began and left.
2. Plan, without the lock, on one listing of the partitions that have changed since what earlier
   cleans have settled (`settled`); of the whole table where nobody can tell.
3. Take the lock and request the plan, unless another clean, a savepoint, a rollback or a restore
   has come in between: then plan again. Nothing else can make a planned file needed. Whoever comes
   later sees the request: a savepoint or a rollback that needs what is about to go is refused.
4. Execute under the guard: delete the listed files, complete.

Any number of processes may clean at once, beside writers, readers and all other services. A reader
that was slower than the retention gets a typed error, and never less than the table held.

What a crash leaves behind, by the last write that landed, and who repairs it:

    attempt          nobody needs to: the time is used up, no instant exists
    request          the next clean executes the plan once the heartbeat of its attempt has lapsed
    inflight         the same; it starts again from REQUESTED
    some deletions   the same; deleting what is gone is no harm
    completed file   nothing to repair
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Self

from headwater.config.clean import CleanConfig, CleanPolicy
from headwater.context import TableContext
from headwater.engine.engine import Engine, TaskContext
from headwater.engine.inline import InlineEngine
from headwater.errors import ConflictError, CorruptTableError, ErrorKind, NotFoundError
from headwater.format.timeline.records import decode_record, encode_record
from headwater.kernel.timeline.active import Timeline, instant_path
from headwater.kernel.timeline.contents import load_contents
from headwater.kernel.txn.attempts import Attempt
from headwater.kernel.txn.guard import Executed, Returned, run_guarded, run_started
from headwater.kernel.txn.heartbeat import Heartbeat
from headwater.kernel.txn.index_plan import decode_index_plan
from headwater.kernel.txn.metadata_commit import IndexUpdate, delete_metadata_logs
from headwater.kernel.txn.rollback_plan import pending_undoing
from headwater.kernel.txn.schedule import RequestClean, run_claiming
from headwater.kernel.txn.steps import Started
from headwater.kernel.view.commits import CommitReader
from headwater.kernel.view.group_history import GroupHistory, Segment
from headwater.kernel.view.retention import (
    completed_commits,
    earliest_to_retain,
    first_pending_write,
    load_floor,
    retained_from,
)
from headwater.kernel.view.table_view import TableView
from headwater.metadata.view import load_view
from headwater.metadata.writer import MetadataWriter
from headwater.model.files import DataFile, FileGroupId, parse_data_file
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.plans import ActionInstant, CleanerPlan, CleanFileInfo
from headwater.model.service_metadata import (
    CleanMetadata,
    CleanPartitionMetadata,
    SavepointMetadata,
)
from headwater.seams.storage import Storage
from headwater.services.settled import SAVEPOINTS_KEY, Settled, load_settled

log = logging.getLogger(__name__)

_PLANS_MAX = 5
"""How often a clean is planned again because savepoints or other cleans came in between. Neither is
frequent, so five times in a row is a fault."""

_FILES_AT_ONCE = 500
"""Files that one task deletes; the heartbeat is looked at between tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protected:
    """What a clean spares beside the views within its retention."""

    since: InstantTime
    """The completion time from which on every view stays whole."""
    times: frozenset[InstantTime]
    """Earlier completion times as of which the table stays readable: those of savepoints."""
    paths: frozenset[str]
    """Files that savepoints list."""
    rewrites: Mapping[FileGroupId, InstantTime]
    """The file groups of pending plans, with the time as of which each reads its inputs."""


@dataclass(frozen=True, slots=True)
class CleanTask:
    """Some files to delete, relative to the table's base."""

    paths: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        return cls(tuple(fields["paths"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanResult:
    """A finished clean."""

    instant: InstantTime
    completion_time: InstantTime
    earliest_retained: InstantTime | None
    """The first instant that was retained; None if a number of file versions was."""
    deleted_paths: tuple[str, ...]
    """The files of the plan, relative to the table's base."""


# Planning --------------------------------------------------------------------------------------


def plan_clean(
    view: TableView,
    protected: Protected,
    config: CleanConfig,
    earliest: Instant | None,
    base_uri: str,
    partitions: Collection[str] | None = None,
) -> CleanerPlan | None:
    """Return what to delete, or None if there is nothing.

    Args:
        earliest: the first instant to retain; None only if a number of file versions is retained.
        partitions: those in which there may be something; None: all.
    """
    files: dict[str, list[CleanFileInfo]] = {}
    newest = view.instant or InstantTime("")
    for history in view.histories(partitions):
        for segment in _obsolete_segments(history, newest, protected, config, earliest):
            for file in segment.files:
                if view.is_stored(file):
                    info = CleanFileInfo(file_path=f"{base_uri}/{file.path}")
                    files.setdefault(file.partition, []).append(info)
    if not files:
        return None
    settled = Settled(_settled_up_to(view.timeline, protected, earliest), config.versions_kept)
    savepoints = [point.requested_time for point in view.timeline.savepoints]
    named = {SAVEPOINTS_KEY: ",".join(savepoints)} if savepoints else {}
    return CleanerPlan(
        earliest_instant_to_retain=earliest and _named(earliest),
        last_completed_commit_timestamp=max(completed_commits(view.timeline)).requested_time,
        policy=config.policy,
        file_paths_to_be_deleted_per_partition={
            partition: tuple(infos) for partition, infos in files.items()
        },
        extra_metadata={**named, **settled.to_extra_metadata()},
    )


def _obsolete_segments(
    history: GroupHistory,
    newest: InstantTime,
    protected: Protected,
    config: CleanConfig,
    earliest: Instant | None,
) -> Iterator[Segment]:
    """Give the segments of a file group that go."""
    times = set(protected.times)
    if history.group in protected.rewrites:
        times.add(protected.rewrites[history.group])
    needed = history.paths_needed(protected.since, times) | protected.paths
    segments = history.segments()
    unneeded = [
        segment
        for segment in reversed(segments)
        if not any(file.path in needed for file in segment.files)
    ]
    if earliest is not None:
        yield from (one for one in unneeded if one.start < earliest.requested_time)
        return
    is_replaced = history.latest_as_of(newest) is None
    kept = len(segments) - len(unneeded)
    # Versions that are needed anyway count among those to keep: they are the newest ones.
    spared = 0 if is_replaced else max(0, config.file_versions_retained - kept)
    yield from unneeded[spared:]


def _settled_up_to(
    timeline: Timeline, protected: Protected, earliest: Instant | None
) -> InstantTime:
    """Return up to which completion time this clean leaves nothing for the next one.

    A file group that has not changed since is in every view that this clean spares as it is in the
    newest: those of retention, of pending writes and index builds, and of pending plans, whether
    these complete or not. Savepoints are older, so the next clean has to ask for them.
    """
    pending = (i.requested_time for i in timeline.pending if i.action is not Action.CLEAN)
    # What began later is not deleted, however soon it was replaced.
    retained = [] if earliest is None else [earliest.requested_time]
    return min([protected.since, *pending, *retained])


def _named(instant: Instant) -> ActionInstant:
    return ActionInstant(
        timestamp=instant.requested_time,
        action=instant.action.completed_name,
        state=instant.state.upper(),
    )


def load_protected(
    view: TableView, commits: CommitReader, floor: InstantTime, *, folder: str
) -> Protected:
    """Return what a clean with this floor must spare; `folder` is that of the timeline.

    Raises:
        CorruptTableError: a savepoint or a plan is damaged.
    """
    timeline = view.timeline
    bounds = [floor, *filter(None, [first_pending_write(timeline)])]
    for indexing in (i for i in timeline.pending if i.action is Action.INDEXING):
        bounds += _index_bounds(commits, indexing, folder)
    completed = [point for point in timeline.savepoints if point.is_completed]
    paths: set[str] = set()
    for point, data in zip(completed, commits.load_contents(completed), strict=True):
        record = decode_record(SavepointMetadata, data, path=instant_path(folder, point))
        for partition, files in record.partition_metadata.items():
            names = (name.rpartition("/")[2] for name in files.savepoint_data_file)
            paths.update(f"{partition}/{name}" if partition else name for name in names)
    return Protected(
        since=min(bounds),
        times=frozenset(_savepointed_times(timeline, commits)),
        paths=frozenset(paths),
        rewrites={group: plan.requested_time for group, plan in view.pending_rewrites.items()},
    )


def _index_bounds(commits: CommitReader, indexing: Instant, folder: str) -> list[InstantTime]:
    """Return the times as of which a pending index build reads the table."""
    try:
        (data,) = commits.load_contents([indexing], State.REQUESTED)
    except NotFoundError:
        return []  # It was cancelled since the timeline was listed (N-37).
    path = instant_path(folder, indexing, State.REQUESTED)
    return [each.up_to for each in decode_index_plan(data, path=path) if each.up_to]


def _savepointed_times(timeline: Timeline, commits: CommitReader) -> Iterator[InstantTime]:
    """Give the completion times of instants with a savepoint, an unfinished one too."""
    for point in timeline.savepoints:
        instant = timeline.find(point.requested_time) or commits.history.find(point.requested_time)
        if instant is not None and instant.completion_time is not None:
            yield instant.completion_time


def _floor_of(
    timeline: Timeline, commits: CommitReader, earliest: Instant | None
) -> InstantTime | None:
    """Return the floor that readers will compute from the record of this clean."""
    if earliest is not None:
        return retained_from(earliest.requested_time, timeline, commits)
    last = max(completed_commits(timeline), default=None)
    return None if last is None else last.completion_time


# Executing -------------------------------------------------------------------------------------


def execute_clean_task(context: TaskContext, task: CleanTask, storage: Storage) -> int:
    """Delete the files of a task. Safe to run twice, and at the same time on two machines."""
    storage.delete_many(task.paths)
    return len(task.paths)


def listed_files(plan: CleanerPlan, *, path: str) -> list[DataFile]:
    """Return the files that a plan deletes.

    We go by partition and file name alone: a base location may be spelled in several ways.

    Raises:
        CorruptTableError: kind CORRUPT_TIMELINE; the plan names what is no data file.
    """
    files = []
    for partition, infos in (plan.file_paths_to_be_deleted_per_partition or {}).items():
        for info in infos:
            name = (info.file_path or "").rpartition("/")[2]
            file = parse_data_file(f"{partition}/{name}" if partition else name)
            if file is None:
                raise CorruptTableError(
                    f"The plan of a clean wants to delete {info.file_path!r}, which is no data "
                    "file. Find out who wrote that before anything is deleted",
                    kind=ErrorKind.CORRUPT_TIMELINE,
                    path=path,
                )
            files.append(file)
    return files


@dataclass(frozen=True, slots=True, kw_only=True)
class _Deletions:
    """The work of a clean, between going inflight and completing."""

    table: TableContext
    engine: Engine
    plan: CleanerPlan
    path: str

    def undo_before(self, attempt: Attempt) -> None:
        """Undo no deletion: what an earlier attempt deleted is what this one deletes."""
        delete_metadata_logs(self.table.storage, attempt.instant, before_attempt=attempt.attempt)

    def execute(self, attempt: Attempt, heartbeat: Heartbeat) -> bytes:
        clock = self.table.components.clock
        began_ms = clock.monotonic_ms()
        paths = [file.path for file in listed_files(self.plan, path=self.path)]
        starts = range(0, len(paths), _FILES_AT_ONCE)
        tasks = [CleanTask(tuple(paths[start : start + _FILES_AT_ONCE])) for start in starts]
        delete = partial(execute_clean_task, storage=self.table.storage)
        self.engine.run(delete, tasks, poll=heartbeat.check)
        taken_ms = clock.monotonic_ms() - began_ms
        return encode_record(clean_metadata(self.plan, attempt.instant, taken_ms, path=self.path))

    def index_update(self, attempt: Attempt) -> IndexUpdate:
        """Return what the indexes have to forget."""
        return MetadataWriter(self.table).of_clean(attempt, listed_files(self.plan, path=self.path))


def clean_metadata(
    plan: CleanerPlan, clean: InstantTime, time_taken_ms: int, *, path: str
) -> CleanMetadata:
    """Return the record of an executed plan; a file that was gone before counts as deleted."""
    deleted: dict[str, list[str]] = {}
    for file in listed_files(plan, path=path):
        deleted.setdefault(file.partition, []).append(file.name)
    earliest = plan.earliest_instant_to_retain
    return CleanMetadata(
        start_clean_time=clean,
        time_taken_in_millis=time_taken_ms,
        total_files_deleted=sum(map(len, deleted.values())),
        earliest_commit_to_retain=earliest.timestamp if earliest else "",
        last_completed_commit_timestamp=plan.last_completed_commit_timestamp,
        partition_metadata={
            partition: CleanPartitionMetadata(
                partition_path=partition,
                policy=plan.policy,
                delete_path_patterns=tuple(names),
                success_delete_files=tuple(names),
                failed_delete_files=(),
            )
            for partition, names in deleted.items()
        },
        extra_metadata=plan.extra_metadata,
    )


# Running ---------------------------------------------------------------------------------------


def run_clean(
    table: TableContext, config: CleanConfig, engine: Engine | None = None
) -> list[CleanResult]:
    """Finish the cleans that others left, then plan and execute one; return those that were done.

    While a clean of another process is at work no second one is planned.

    Raises:
        ConflictError: kind LOCK_TIMEOUT, or savepoints and other cleans kept coming in between.
        FencedError: this process stalled and another one took the clean over.
        CommitUnknownError: storage did not say what landed; the next clean finds out.
        CorruptTableError: the timeline, a plan or a savepoint breaks the format.
    """
    engine = engine or InlineEngine()
    done = []
    timeline = table.load_timeline()
    for pending in _pending_cleans(timeline):
        if not table.is_ours(pending):
            log.info("clean of another engine left alone instant=%s", pending.requested_time)
            continue
        try:
            done.append(_resume(table, engine, pending))
        except ConflictError as conflict:
            if conflict.kind is not ErrorKind.ALREADY_RUNNING:
                raise
            log.info("clean left to another process instant=%s", pending.requested_time)
            return done
    scheduled = _schedule(table, config, None if done else timeline)
    if scheduled is not None:
        done.append(_execute(table, engine, *scheduled))
    return done


def _schedule(
    table: TableContext, config: CleanConfig, timeline: Timeline | None
) -> tuple[Started, CleanerPlan] | None:
    """Plan a clean, at first on a timeline that was listed before, and request it."""
    for _ in range(_PLANS_MAX):
        view = load_view(table.storage, table.config, timeline=timeline)
        timeline = None
        try:
            plan = plan_next_clean(table, config, view)
        except NotFoundError as gone:
            if gone.kind is not ErrorKind.INSTANT_NOT_FOUND:
                raise
            # A savepoint was deleted since the timeline was listed (N-135).
            log.info("clean is planned again, for something is gone error=%s", gone)
            continue
        if plan is None:
            return None
        started = _request(table, view.timeline, plan)
        if started is not None:
            return started, plan
        log.info("clean is planned again, for something came in between")
    raise ConflictError(
        f"Savepoints, rollbacks or other cleans came in between each of {_PLANS_MAX} plans of a "
        "clean. Nothing was deleted; try again",
        table=table.config.name,
    )


def _request(table: TableContext, planned_on: Timeline, plan: CleanerPlan) -> Started | None:
    content = encode_record(plan)
    return run_claiming(table.txn, lambda: RequestClean(content, planned_on, table.claim()))


def plan_next_clean(
    table: TableContext, config: CleanConfig, view: TableView
) -> CleanerPlan | None:
    """Return what a clean would delete now, by the newest view; None if there is nothing.

    Raises:
        CorruptTableError: the timeline, a plan or a savepoint breaks the format.
    """
    undoing = pending_undoing(view.timeline)
    if undoing:
        # What is undone brings older file slices back, which must not be taken for obsolete.
        log.info("no clean is planned while something is undone instant=%s", undoing[0])
        return None
    by_versions = config.policy is CleanPolicy.KEEP_LATEST_FILE_VERSIONS
    earliest = None if by_versions else earliest_to_retain(view.timeline, config, table.now())
    if earliest is None and not by_versions:
        return None
    commits = table.commit_reader()
    floor = _floor_of(view.timeline, commits, earliest)
    if floor is None:
        return None
    # What only views below an earlier floor need is needed by nobody. It must not be looked at: of
    # such a view an index has forgotten the files that were cleaned, and others seem to be current.
    floor = max(floor, load_floor(view.timeline, commits) or floor)
    protected = load_protected(view, commits, floor, folder=table.layout.timeline)
    settled = load_settled(view.timeline, commits, config.versions_kept)
    changed = None if settled is None else view.partitions_changed_after(settled)
    return plan_clean(view, protected, config, earliest, table.storage.uri, changed)


def _pending_cleans(timeline: Timeline) -> Iterable[Instant]:
    return [instant for instant in timeline.pending if instant.action is Action.CLEAN]


def _resume(table: TableContext, engine: Engine, clean: Instant) -> CleanResult:
    work = _work(table, engine, clean)
    done = run_guarded(
        table.components,
        table.txn,
        clean.requested_time,
        table.claim(),
        work,
        update=work.index_update,
    )
    return _result(done, work)


def _execute(
    table: TableContext, engine: Engine, started: Started, plan: CleanerPlan
) -> CleanResult:
    path = instant_path(table.layout.timeline, started.instant, State.REQUESTED)
    work = _Deletions(table=table, engine=engine, plan=plan, path=path)
    done = run_started(table.components, table.txn, started, work, update=work.index_update)
    return _result(done, work)


def _work(table: TableContext, engine: Engine, clean: Instant) -> _Deletions:
    folder = table.layout.timeline
    (data,) = load_contents(table.storage, folder, [clean], State.REQUESTED)
    path = instant_path(folder, clean, State.REQUESTED)
    plan = decode_record(CleanerPlan, data, path=path)
    return _Deletions(table=table, engine=engine, plan=plan, path=path)


def _result(done: Executed | Returned, work: _Deletions) -> CleanResult:
    assert done.instant.completion_time is not None
    earliest = work.plan.earliest_instant_to_retain
    return CleanResult(
        instant=done.instant.requested_time,
        completion_time=done.instant.completion_time,
        earliest_retained=InstantTime(earliest.timestamp) if earliest else None,
        deleted_paths=tuple(file.path for file in listed_files(work.plan, path=work.path)),
    )
