"""Restoring a table to a savepoint.

Everything that completed after the commit of the savepoint is taken back, the newest first, and so
are the plans that were made since, for they take in what goes. Writes that began before and touch
nothing of it go on; those that were planned on it cannot commit (`kernel.txn.conflicts`).

1. Request the restore S, whose plan names what will be taken back (`kernel.txn.restore_steps`).
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
from headwater.errors import ConflictError, ErrorKind
from headwater.format.timeline.records import decode_record, encode_record
from headwater.kernel.timeline.active import Timeline, instant_path
from headwater.kernel.timeline.contents import load_contents
from headwater.kernel.txn.attempts import Attempt
from headwater.kernel.txn.guard import Executed, Returned, claimed, run_guarded, run_started
from headwater.kernel.txn.heartbeat import Heartbeat
from headwater.kernel.txn.restore_steps import RequestRestore
from headwater.kernel.txn.schedule import run_claiming
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.plans import RestorePlan
from headwater.model.service_metadata import RestoreMetadata, RollbackMetadata
from headwater.services.undo import rollback_dead_elsewhere, take_back_for_restore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreResult:
    """A finished restore."""

    instant: InstantTime
    completion_time: InstantTime
    savepoint: InstantTime
    undone: tuple[InstantTime, ...]
    """What was taken back, in this order."""


def run_restore(table: TableContext, time: InstantTime) -> RestoreResult:
    """Restore the table to the savepoint of a commit, given its requested time.

    A restore to the same savepoint that another process left is finished instead.

    Raises:
        NotFoundError: kind INSTANT_NOT_FOUND; there is no such savepoint.
        InvalidInputError: kind INVALID_STATE; a commit to take back has a savepoint of its own.
        ConflictError: kind ALREADY_RUNNING; another restore is pending. Kind FOREIGN_WRITER;
            another engine is writing.
        UnsupportedError: something to take back is archived.
        Others: see `kernel.txn.rollback.Rollbacks.roll_back`.
    """
    pending = [i for i in table.load_timeline().pending if i.action is Action.RESTORE]
    for restore in pending:
        if _load_plan(table, restore).savepoint_to_restore_timestamp == time:
            return _resume(table, restore)
    rollback_dead_elsewhere(table)
    started = run_claiming(table.txn, lambda: RequestRestore(time, table.claim()))
    with claimed(table.components, started):
        work = _Undoing(table, started.instant)
    return work.result(run_started(table.components, table.txn, started, work))


def finish_restores(table: TableContext, timeline: Timeline | None = None) -> list[RestoreResult]:
    """Finish the restores that other processes left; leave those alone that somebody works on.

    `timeline` is the table's, if it was listed before.

    Raises: see `run_restore`.
    """
    done = []
    if timeline is None:
        timeline = table.load_timeline()
    for restore in timeline.pending:
        if restore.action is not Action.RESTORE or not table.is_ours(restore):
            continue
        try:
            done.append(_resume(table, restore))
        except ConflictError as conflict:
            if conflict.kind is not ErrorKind.ALREADY_RUNNING:
                raise
            log.info("restore left to another process instant=%s", restore.requested_time)
    return done


def _load_plan(table: TableContext, restore: Instant) -> RestorePlan:
    folder = table.layout.timeline
    (data,) = load_contents(table.storage, folder, [restore], State.REQUESTED)
    return decode_record(RestorePlan, data, path=instant_path(folder, restore, State.REQUESTED))


def _resume(table: TableContext, restore: Instant) -> RestoreResult:
    if not table.is_ours(restore):
        # Its attempts go when it ends, and others may have ended it since the timeline was listed.
        now = table.load_timeline().find(restore.requested_time)
        if now is None or not now.is_pending:
            raise ConflictError(
                f"{restore} has ended meanwhile. Call again, if more is to be taken back",
                kind=ErrorKind.ALREADY_RUNNING,
                instant=restore.requested_time,
            )
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
            take_back_for_restore(self._table, attempt, InstantTime(info.commit_time))
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
