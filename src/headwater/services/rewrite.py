"""Rewrites: how compaction, log compaction and clustering come from a plan to a commit.

Each of them makes a plan under the table lock, so that it lists exactly what had completed before
its own time (INV-45), and executes it under RFC-79's guard: tasks write files, each announced by a
marker, and what no returned stat lists is deleted before the commit.

None of them changes a row: rows keep the instant that wrote them, and readers of any moment find
the same before and after (INV-48, INV-56).

What a crash leaves behind, by the last write that landed:

    after       who repairs
    plan        whoever executes it next
    inflight    the same; it deletes what the markers of dead attempts announce
    data files  the same
    completed   nothing to repair; clean sweeps markers and heartbeat

Who stalled, and publishes a file after another attempt has completed the plan, deletes it before it
answers (N-187): readers of other engines that go by names and times would show its rows twice.

A removable plan is not executed again: the next service of its kind, or clean, rolls it back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from headwater.config.table import TableConfig
from headwater.config.table_options import POPULATE_META_FIELDS
from headwater.context import TableContext
from headwater.engine.engine import Poll, never_stops
from headwater.errors import (
    ConflictError,
    CorruptTableError,
    ErrorKind,
    FencedError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from headwater.format.timeline.records import encode_record
from headwater.kernel.timeline.contents import TimelineContents
from headwater.kernel.txn.attempts import Attempt
from headwater.kernel.txn.cancel import AbortedPlan, undo_announced
from headwater.kernel.txn.compaction_steps import CompleteCompaction
from headwater.kernel.txn.guard import Returned
from headwater.kernel.txn.heartbeat import Heartbeat
from headwater.kernel.txn.metadata_commit import IndexUpdate, MetadataCommit, delete_metadata_logs
from headwater.kernel.txn.schedule import schedule_plan
from headwater.kernel.txn.steps import Started
from headwater.kernel.view.commits import CompletedCommit
from headwater.kernel.view.table_view import TableView
from headwater.markers.batches import load_every_marker, load_markers_and_files
from headwater.metadata.table_change import Inputs, LateInputs
from headwater.metadata.view import view_of
from headwater.metadata.writer import MetadataWriter, check_indexes_supported
from headwater.model.commit_metadata import CommitMetadata
from headwater.model.files import FileGroupId, attempt_of, parse_data_file
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.plans import CompactionPlan
from headwater.observed import meter_written
from headwater.seams.storage import Storage
from headwater.services.late_files import delete_late_files
from headwater.services.removable import give_up
from headwater.services.rewrite_files import RewriteJob
from headwater.services.taken_back import check_not_taken_back

log = logging.getLogger(__name__)

_LEFT_ALONE = (
    ErrorKind.ALREADY_RUNNING,
    ErrorKind.PLAN_CANCELLED,
    ErrorKind.PLAN_NOT_EXECUTABLE,
)
"""Why a pending plan is passed over: somebody is at work on it, or clean will take it away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """What became of a plan."""

    instant: InstantTime
    completion_time: InstantTime | None
    """None if the plan was aborted."""
    is_executed_here: bool
    """Whether this call did the work; otherwise the plan had ended before."""
    file_groups: tuple[FileGroupId, ...]
    """The groups that live on with new files."""
    row_count: int
    size_bytes: int
    lock_held_ms: int

    @property
    def is_cancelled(self) -> bool:
        """Whether the plan had been cancelled, and so was aborted: nothing was rewritten."""
        return self.completion_time is None

    def __str__(self) -> str:
        if self.is_cancelled:
            return f"{self.instant}: cancelled, so it was aborted and nothing was rewritten"
        where = "" if self.is_executed_here else ", before this call"
        return f"{self.instant}: {self.row_count} rows rewritten{where}"


MakePlan = Callable[[TableView], bytes | None]
"""Make a plan from the table as it is; None if there is nothing to do."""

Execute = Callable[[Attempt, Poll], CommitMetadata]
"""Run the tasks of a plan and say what they did. `Poll` is for the engine."""


class RewriteWork:
    """A rewrite between going inflight and its commit, as the guard sees it."""

    def __init__(self, storage: Storage, execute: Execute, poll: Poll = never_stops) -> None:
        """`poll` raises when the work should stop; whether the heartbeat stands is asked anyway."""
        self._storage = storage
        self._execute = execute
        self._poll = poll
        self.metadata: CommitMetadata | None = None
        """What the execution did, once it is done."""
        self.attempt: Attempt | None = None
        """Which execution this is, once it has begun."""
        self._marker_files: list[str] = []

    def undo_before(self, attempt: Attempt) -> None:
        """Delete the files that attempts with smaller numbers announced."""
        undo_announced(self._storage, load_every_marker, attempt)
        delete_metadata_logs(self._storage, attempt.instant, before_attempt=attempt.attempt)

    def execute(self, attempt: Attempt, heartbeat: Heartbeat) -> bytes:
        def poll() -> None:
            heartbeat.check()
            self._poll()

        self.attempt = attempt
        poll()
        self.metadata = self._execute(attempt, poll)
        self._delete_unlisted(attempt, {stat.path for stat in self.metadata.write_stats()})
        return encode_record(self.metadata)

    def _delete_unlisted(self, attempt: Attempt, listed: Collection[str | None]) -> None:
        """Delete what doubled tasks of this attempt wrote, so that no reader sees it by its name.

        Not what other attempts announced: this one may have been taken over without knowing it
        yet, and those before it are undone (H-19).
        """
        markers, self._marker_files = load_markers_and_files(self._storage, attempt.instant)
        written = (parse_data_file(marker.data_path) for marker in markers)
        self._storage.delete_many(
            file.path
            for file in written
            if file is not None
            and file.instant_time == attempt.instant
            and attempt_of(file.write_token) == attempt.attempt
            and file.path not in listed
        )

    def forget_markers(self) -> None:
        """Delete the markers of a plan that is completed."""
        try:
            self._storage.delete_many(self._marker_files)
        except StorageError as error:
            # The commit stands; clean sweeps markers of instants that have ended.
            log.warning("markers left behind files=%s error=%s", self._marker_files, error)


def load_compaction_plan(table: TableContext, time: InstantTime, action: Action) -> CompactionPlan:
    """Return the plan of a compaction or log compaction."""
    return table.commit_reader().load_plan(Instant(time, action, State.INFLIGHT))


def rewrite_job(table: TableContext, view: TableView, attempt: Attempt) -> RewriteJob:
    """Return what all tasks of an execution share."""
    return RewriteJob(
        storage_uri=table.storage.uri,
        storage_options=table.options,
        config=table.config,
        files=table.file_config,
        schema=view.schema(),
        instant_time=attempt.instant,
        attempt=attempt.attempt,
    )


def check_rewritable(config: TableConfig, uri: str) -> None:
    """Refuse a table with what a rewrite has to keep up to date and this release does not.

    Raises:
        UnsupportedError: the table has an index that is not known, or no meta columns.
    """
    config.check_writable(uri)
    check_indexes_supported(config)
    if not config.has_meta_fields:
        raise UnsupportedError(
            f"Table {config.name} has {POPULATE_META_FIELDS.key}=false, which this release reads "
            "but cannot write",
            kind=ErrorKind.UNSUPPORTED_OPTION,
        )


def closed_groups(view: TableView, only: Collection[FileGroupId] | None) -> Collection[FileGroupId]:
    """Return the file groups that a new plan leaves out: those that another pending plan names.

    If `only` is given, all that are not among these as well.
    """
    pending = view.pending_rewrites.keys()
    if only is None:
        return pending
    return {one.group for one in view.slices()}.difference(only).union(pending)


def schedule(
    table: TableContext, action: Action, make: MakePlan, *, is_executed_later: bool = True
) -> Started | None:
    """Make a plan and request it; None if there is nothing to do.

    Raises:
        ConflictError: the lock was not to be had in time.
        CorruptTableError, StorageError: the table cannot be read.
    """
    check_rewritable(table.config, table.storage.uri)
    contents = TimelineContents(table.storage, table.layout.timeline)
    if make(view_of(table, contents=contents)) is None:
        return None  # So the lock is taken only where there may be something to do.
    return schedule_plan(
        table.txn,
        action,
        lambda: make(view_of(table, contents=contents)),
        table.claim,
        is_executed_later=is_executed_later,
    )


def run(
    table: TableContext,
    action: Action,
    work: RewriteWork,
    plan: Started | InstantTime,
    load_inputs: Callable[[InstantTime], Inputs] = lambda _: {},
    times_read: Callable[[], frozenset[InstantTime]] = frozenset,
) -> Rewritten:
    """Execute a plan: one that was just scheduled, or one of the timeline.

    `load_inputs` gives the file groups that end, or get a new base file, with what they held;
    `times_read` the instants that wrote what a compaction has read.

    Raises: see `kernel.txn.cancel.Cancellations.execute`, and what tasks raise.
    """

    def update(attempt: Attempt) -> IndexUpdate:
        assert work.metadata is not None
        inputs = LateInputs(partial(load_inputs, attempt.instant))
        return MetadataWriter(table).of_commit(
            attempt, action, work.metadata, inputs, has_seen_all=False
        )

    def complete(
        attempt: Attempt, content: bytes, *, metadata: MetadataCommit | None = None
    ) -> CompleteCompaction:
        return CompleteCompaction(attempt, content, metadata, times_read())

    try:
        done = table.cancellations.execute(plan, work, update, work.forget_markers, complete)
    except FencedError:
        if work.attempt is not None:
            delete_late_files(table, work.attempt)
        raise
    except CorruptTableError as error:
        if work.attempt is not None:
            check_not_taken_back(table, work.attempt.instant, times_read(), error)
        raise
    if isinstance(done, AbortedPlan):
        return _aborted(done.time)
    if isinstance(done, Returned):
        return _returned(table, done.instant)
    assert work.metadata is not None
    rewritten = _rewritten(
        CompletedCommit(done.instant, work.metadata),
        is_executed_here=True,
        lock_held_ms=done.lock_held_ms,
    )
    meter_written(table, action, rewritten.row_count, rewritten.size_bytes)
    return rewritten


def find_plan(table: TableContext, action: Action, time: InstantTime) -> Instant:
    """Return the instant of a plan on the active timeline, pending or ended.

    Raises:
        NotFoundError: kind INSTANT_NOT_FOUND.
        InvalidInputError: kind INVALID_STATE; the instant is something else.
    """
    found = table.load_timeline().find(time)
    if found is None:
        raise NotFoundError(
            f"There is no instant {time} on the active timeline: it was rolled back or archived, "
            "or never existed",
            kind=ErrorKind.INSTANT_NOT_FOUND,
            instant=time,
        )
    if found.action is not action:
        raise InvalidInputError(
            f"{found} is a {found.action} and no {action}; nothing was done",
            kind=ErrorKind.INVALID_STATE,
            instant=time,
        )
    return found


def run_next(
    table: TableContext,
    action: Action,
    instant: InstantTime | None,
    plan_new: Callable[[], Started | None],
    execute: Callable[[Started | InstantTime], Rewritten],
) -> Rewritten | None:
    """Execute a given plan, else the oldest pending one that nobody works on, else a new one.

    A pending plan goes first: it closes its file groups for every other plan until it has ended.
    One that another engine has just requested is passed over unless it is given (N-153).
    One that failed and is removable is rolled back, be it an old one or the new one of this call.

    Raises:
        ConflictError: kind ALREADY_RUNNING; somebody works on the plan that was asked for.
        UnsupportedError: another engine has begun to execute it.
        Others: see `find_plan`, `schedule` and `run`.
    """
    check_rewritable(table.config, table.storage.uri)
    if instant is not None:
        plan = find_plan(table, action, instant)
        if _is_begun_elsewhere(table, plan):
            raise UnsupportedError(
                f"{plan} was begun by another engine, and only that engine can tell whether it is "
                "at work. Let it finish the plan, or roll its execution back",
                instant=instant,
            )
        return execute(instant)
    for pending in table.load_timeline().pending:
        if pending.action is not action:
            continue
        if _is_begun_elsewhere(table, pending):
            log.warning(
                "%s was begun by another engine and is left to it; its file groups stay as they "
                "are until that engine has finished it, or has rolled its execution back table=%s",
                pending,
                table.storage.uri,
            )
            continue
        left_ms = table.load_left_ms(pending)
        if left_ms:
            log.info(
                "%s was requested by another engine, which may be about to execute it; it is left "
                "to it until %s, unless it is named table=%s",
                pending,
                (table.moment() + timedelta(milliseconds=left_ms)).isoformat(timespec="seconds"),
                table.storage.uri,
            )
            continue
        try:
            return execute(pending.requested_time)
        except ConflictError as conflict:
            if conflict.kind not in _LEFT_ALONE:
                raise
            log.info("plan left alone instant=%s reason=%s", pending, conflict)
            if conflict.kind is ErrorKind.PLAN_NOT_EXECUTABLE:
                give_up(table.rollbacks, pending.requested_time)
        except NotFoundError as gone:
            if gone.kind is not ErrorKind.INSTANT_NOT_FOUND:
                raise
            # It was cancelled or rolled back since the timeline was listed (N-37).
            log.info("plan passed over instant=%s reason=%s", pending, gone)
    started = plan_new()
    if started is None:
        return None
    try:
        return execute(started)
    except Exception:
        give_up(table.rollbacks, started.attempt.instant)
        raise


def _is_begun_elsewhere(table: TableContext, plan: Instant) -> bool:
    """Whether another engine has begun to execute a plan; its scheduling it is no obstacle."""
    return plan.state is State.INFLIGHT and not table.is_ours(plan)


def _aborted(time: InstantTime) -> Rewritten:
    return Rewritten(
        instant=time,
        completion_time=None,
        is_executed_here=False,
        file_groups=(),
        row_count=0,
        size_bytes=0,
        lock_held_ms=0,
    )


def _returned(table: TableContext, instant: Instant) -> Rewritten:
    """Return what somebody else made of a plan."""
    if not instant.is_completed:
        return _aborted(instant.requested_time)
    (commit,) = table.commit_reader().load([instant])
    return _rewritten(commit, is_executed_here=False)


def _rewritten(
    commit: CompletedCommit, *, is_executed_here: bool, lock_held_ms: int = 0
) -> Rewritten:
    stats = list(commit.metadata.write_stats())
    groups = {FileGroupId(s.partition_path or "", s.file_id or "") for s in stats}
    return Rewritten(
        instant=commit.requested_time,
        completion_time=commit.instant.completion_time,
        is_executed_here=is_executed_here,
        file_groups=tuple(sorted(groups)),
        row_count=sum(stat.num_writes or 0 for stat in stats),
        size_bytes=sum(stat.file_size_in_bytes or 0 for stat in stats),
        lock_held_ms=lock_held_ms,
    )
