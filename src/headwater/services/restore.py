"""Restoring a table to a savepoint.

Everything that completed after the commit of the savepoint is taken back, the newest first, and so
are the plans that were made since, for they take in what goes. Writes that began before and touch
nothing of it go on; those that were planned on it cannot commit (`kernel.txn.conflicts`).

1. Under the lock: request the restore S, whose plan names what will be taken back.
2. Under the guard, one after the other: withdraw an instant and roll it back, each with a rollback
   of its own (`kernel.txn.withdrawal`). Completed rollbacks since S say how far one has come.
3. Complete S, with what the rollbacks recorded.

What a crash leaves behind, by the last write that landed, and who repairs it:

    request of S         whoever calls `restore` or `clean` goes on
    some rollbacks       the same; what is rolled back stays so
    a pending rollback   the same, or whoever rolls back failed writes
    completed file       nothing to repair

Between 1 and 3 readers see the table as of some moment between savepoint and restore.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from headwater.context import TableContext
from headwater.errors import (
    ConflictError,
    ErrorKind,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
)
from headwater.format.timeline.records import decode_record, encode_record
from headwater.kernel.timeline.active import Timeline, instant_path
from headwater.kernel.timeline.contents import load_contents
from headwater.kernel.txn.attempts import Attempt
from headwater.kernel.txn.guard import Executed, Returned, run_guarded, run_started
from headwater.kernel.txn.heartbeat import Heartbeat
from headwater.kernel.txn.rollback_plan import decode_rollback_plan, pending_rollbacks, target_of
from headwater.kernel.txn.schedule import schedule_plan
from headwater.kernel.view.commits import COMMIT_ACTIONS, CommitReader
from headwater.kernel.view.retention import completed_commits
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.plans import InstantInfo, RestorePlan
from headwater.model.service_metadata import RestoreMetadata, RollbackMetadata
from headwater.services.undo import find_savepoint, schedule_undo

log = logging.getLogger(__name__)

_PLANS = (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreResult:
    """A finished restore."""

    instant: InstantTime
    completion_time: InstantTime
    savepoint: InstantTime
    undone: tuple[InstantTime, ...]
    """What was taken back, in this order."""


def plan_restore(timeline: Timeline, saved: Instant) -> RestorePlan:
    """Return what to take back so that the table is as it was when `saved` completed."""
    assert saved.completion_time is not None
    plans = [
        instant
        for instant in timeline.pending
        if instant.action in _PLANS and instant.requested_time > saved.completion_time
    ]
    commits = [
        instant
        for instant in completed_commits(timeline)
        if instant.completion_time is not None and instant.completion_time > saved.completion_time
    ]
    return RestorePlan(
        instants_to_rollback=tuple(
            InstantInfo(
                commit_time=instant.requested_time,
                action=instant.action if instant.is_pending else instant.action.completed_name,
            )
            for instant in (*reversed(plans), *reversed(commits))
        ),
        savepoint_to_restore_timestamp=saved.requested_time,
    )


def run_restore(table: TableContext, time: InstantTime) -> RestoreResult:
    """Restore the table to the savepoint of a commit, given its requested time.

    A restore to the same savepoint that another process left is finished instead.

    Raises:
        NotFoundError: kind INSTANT_NOT_FOUND; there is no such savepoint.
        InvalidInputError: kind INVALID_STATE; a commit to take back has a savepoint of its own.
        ConflictError: kind ALREADY_RUNNING; another restore is pending.
        UnsupportedError: something to take back is archived.
        Others: see `kernel.txn.rollback.Rollbacks.roll_back`.
    """
    pending = [i for i in table.load_timeline().pending if i.action is Action.RESTORE]
    for restore in pending:
        if _load_plan(table, restore).savepoint_to_restore_timestamp == time:
            return _resume(table, restore)
    started = schedule_plan(table.txn, Action.RESTORE, lambda: _make_plan(table, time), table.claim)
    assert started is not None
    work = _Undoing(table, started.instant)
    return work.result(run_started(table.components, table.txn, started, work))


def finish_restores(table: TableContext) -> list[RestoreResult]:
    """Finish the restores that other processes left; leave those alone that somebody works on.

    Raises: see `run_restore`.
    """
    done = []
    for restore in table.load_timeline().pending:
        if restore.action is not Action.RESTORE or not table.is_ours(restore):
            continue
        try:
            done.append(_resume(table, restore))
        except ConflictError as conflict:
            if conflict.kind is not ErrorKind.ALREADY_RUNNING:
                raise
            log.info("restore left to another process instant=%s", restore.requested_time)
    return done


def _make_plan(table: TableContext, time: InstantTime) -> bytes:
    """Return the content of a restore's request; the lock is held."""
    timeline = table.load_timeline()
    savepoint = find_savepoint(timeline, time)
    undoing = next((i for i in timeline.pending if i.action is Action.RESTORE), None)
    if undoing is not None:
        raise ConflictError(
            f"{undoing} is pending. Wait until it has ended; if its process died, `clean` finishes "
            "it",
            kind=ErrorKind.ALREADY_RUNNING,
            instant=undoing.requested_time,
        )
    saved = timeline.find(time)
    if saved is None or saved.completion_time is None or not savepoint.is_completed:
        raise NotFoundError(
            f"The commit {time} of this savepoint is not on the active timeline, or the savepoint "
            "was never finished. Choose another one",
            kind=ErrorKind.INSTANT_NOT_FOUND,
            instant=time,
        )
    _check_none_archived(table.commit_reader(), saved)
    plan = plan_restore(timeline, saved)
    _check_none_saved(timeline, plan)
    return encode_record(plan)


def _check_none_saved(timeline: Timeline, plan: RestorePlan) -> None:
    undone = {info.commit_time for info in plan.instants_to_rollback}
    for point in timeline.savepoints:
        if point.requested_time in undone:
            raise InvalidInputError(
                f"A restore to {plan.savepoint_to_restore_timestamp} would take back commit "
                f"{point.requested_time}, which has a savepoint of its own. Delete that first. "
                "Nothing was changed",
                kind=ErrorKind.INVALID_STATE,
                instant=point.requested_time,
            )


def _check_none_archived(commits: CommitReader, saved: Instant) -> None:
    """Our archival ends before what a restore may take back; that of others may not."""
    for instant in commits.history.instants():
        if (
            instant.action.completed_name in COMMIT_ACTIONS
            and (instant.completion_time or "") > (saved.completion_time or "")
            and instant.requested_time != saved.requested_time
        ):
            raise UnsupportedError(
                f"{instant} completed after the savepoint {saved.requested_time} and is archived, "
                "so it cannot be taken back. Choose a later savepoint",
                instant=instant.requested_time,
            )


def _load_plan(table: TableContext, restore: Instant) -> RestorePlan:
    folder = table.layout.timeline
    (data,) = load_contents(table.storage, folder, [restore], State.REQUESTED)
    return decode_record(RestorePlan, data, path=instant_path(folder, restore, State.REQUESTED))


def _resume(table: TableContext, restore: Instant) -> RestoreResult:
    if not table.is_ours(restore):
        raise ConflictError(
            f"No attempt of Headwater stands behind {restore}, so another engine is executing it "
            "or was. Let that engine finish it",
            kind=ErrorKind.ALREADY_RUNNING,
            instant=restore.requested_time,
        )
    work = _Undoing(table, restore)
    return work.result(
        run_guarded(table.components, table.txn, restore.requested_time, table.claim(), work)
    )


class _Undoing:
    """The work of a restore, between going inflight and completing."""

    def __init__(self, table: TableContext, restore: Instant) -> None:
        self._table = table
        self._plan = _load_plan(table, restore)

    def undo_before(self, attempt: Attempt) -> None:
        """Undo nothing: what an earlier attempt took back is what this one takes back."""

    def execute(self, attempt: Attempt, heartbeat: Heartbeat) -> bytes:
        clock = self._table.components.clock
        began_ms = clock.monotonic_ms()
        for info in self._plan.instants_to_rollback:
            heartbeat.check()
            self._undo(InstantTime(info.commit_time))
        records = self._load_rollbacks(attempt.instant)
        times = tuple(info.commit_time for info in self._plan.instants_to_rollback)
        return encode_record(
            RestoreMetadata(
                start_restore_time=attempt.instant,
                time_taken_in_millis=clock.monotonic_ms() - began_ms,
                instants_to_rollback=times,
                hoodie_restore_metadata={
                    time: (records[time],) for time in times if time in records
                },
                restore_instant_info=self._plan.instants_to_rollback,
            )
        )

    def result(self, done: Executed | Returned) -> RestoreResult:
        assert done.instant.completion_time is not None
        return RestoreResult(
            instant=done.instant.requested_time,
            completion_time=done.instant.completion_time,
            savepoint=InstantTime(self._plan.savepoint_to_restore_timestamp or ""),
            undone=tuple(InstantTime(i.commit_time) for i in self._plan.instants_to_rollback),
        )

    def _undo(self, time: InstantTime) -> None:
        """Roll back one instant, or finish its rollback; return at once if it is gone."""
        table = self._table
        with table.txn.hold():
            timeline = table.load_timeline()
            pending = self._pending_rollback_of(timeline, time)
            instant = timeline.find(time)
            started = None
            if pending is None and instant is not None:
                commit = None
                if instant.is_completed:
                    (commit,) = table.commit_reader().load([instant])
                started = schedule_undo(table, instant, commit)
        if pending is not None:
            table.rollbacks.resume(pending)
        elif started is not None:
            table.rollbacks.execute_scheduled(started)

    def _pending_rollback_of(self, timeline: Timeline, time: InstantTime) -> Instant | None:
        folder = self._table.layout.timeline
        rollbacks = pending_rollbacks(timeline)
        contents = load_contents(self._table.storage, folder, rollbacks, State.REQUESTED)
        for rollback, data in zip(rollbacks, contents, strict=True):
            if target_of(decode_rollback_plan(data, path=str(rollback))) == time:
                return rollback
        return None

    def _load_rollbacks(self, since: InstantTime) -> dict[str, RollbackMetadata]:
        """Return what the rollbacks since the restore was requested did, by what they undid."""
        folder = self._table.layout.timeline
        rollbacks = [
            instant
            for instant in self._table.load_timeline().completed
            if instant.action is Action.ROLLBACK and instant.requested_time > since
        ]
        records: dict[str, RollbackMetadata] = {}
        contents = load_contents(self._table.storage, folder, rollbacks)
        for rollback, data in zip(rollbacks, contents, strict=True):
            path = instant_path(folder, rollback)
            record = decode_record(RollbackMetadata, data, path=path)
            records |= dict.fromkeys(record.commits_rollback, record)
        return records
