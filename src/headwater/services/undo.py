"""Undoing what has completed: rolling back the latest commit, and the parts of a restore.

`kernel.txn.withdrawal` holds the protocol and what a crash leaves behind; any process finishes it
with `rollback_failed_writes` or `clean`. Readers and other engines then see the table as it was
before the commit. Only its files are deleted; what it superseded or replaced is visible again.

A commit can be rolled back if it was the last to complete, has no savepoint, was not taken in by a
pending plan, and if cleaning has left what the table needs without it. All that is looked at under
the lock. A write that was planned on its rows cannot commit afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from headwater.config.table_options import (
    INDEXES_TO_REBUILD,
    METADATA_PARTITIONS,
    METADATA_PARTITIONS_INFLIGHT,
)
from headwater.context import TableContext
from headwater.errors import ConflictError, ErrorKind, InvalidInputError, NotFoundError
from headwater.kernel.table_config import update_table_config_in_lock
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.txn.changes import load_changes
from headwater.kernel.txn.rollback import RolledBackWrite
from headwater.kernel.txn.rollback_plan import plan_deletions, requests_for
from headwater.kernel.txn.steps import Started
from headwater.kernel.txn.withdrawal import ScheduleWithdrawal
from headwater.kernel.view.commits import COMMIT_ACTIONS, CompletedCommit
from headwater.kernel.view.retention import check_readable, completed_commits
from headwater.markers.batches import load_every_marker
from headwater.metadata.partition_kinds import FILES
from headwater.metadata.rollback_metadata import load_partitions_holding
from headwater.metadata.view import view_of
from headwater.model.instant import Action, Instant, InstantTime, instant_time_after

log = logging.getLogger(__name__)

_SCHEDULES_MAX = 5
"""A time can be taken only when a lock failed or a clock repeats a time whose owner died right
after claiming it; each retry asks for a later one."""


def rollback_commit(table: TableContext, time: InstantTime) -> RolledBackWrite:
    """Take back a completed commit, which must be the last one to complete.

    Raises:
        NotFoundError: kind INSTANT_NOT_FOUND; kind OUTSIDE_RETENTION, cleaning deleted files that
            the table would need without the commit.
        InvalidInputError: kind INVALID_STATE; it is no commit, not the last one, has a savepoint,
            or is part of a pending plan. Nothing was changed.
        ConflictError: it is being taken back already, or the lock was not to be had in time.
        Others: see `kernel.txn.rollback.Rollbacks.roll_back`.
    """
    with table.txn.hold():
        timeline = table.load_timeline()
        instant = timeline.get(time)
        commit = _check_undoable(table, timeline, instant)
        started = schedule_undo(table, commit.instant, commit)
    return table.rollbacks.execute_scheduled(started)


def schedule_undo(table: TableContext, instant: Instant, commit: CompletedCommit | None) -> Started:
    """Request the rollback of an instant and withdraw it; the lock is held.

    `commit` is what a completed one wrote. Markers tell what a plan that did not complete has.
    """
    storage = table.storage
    drop_indexes_holding(table, instant.requested_time)
    markers = load_every_marker(storage, instant.requested_time)
    requests = plan_deletions(instant.requested_time, markers, storage.uri)
    if commit is not None:
        announced = {marker.data_path for marker in markers}
        paths = announced.union(file.path for file in commit.files)
        requests = requests_for(paths, storage.uri)
    tried = 0
    while True:
        try:
            return table.txn.run(ScheduleWithdrawal(instant, requests, table.claim())).result
        except ConflictError as conflict:
            tried += 1
            if conflict.context.get("path") is None or tried == _SCHEDULES_MAX:
                raise


def drop_indexes_holding(table: TableContext, time: InstantTime) -> None:
    """Take out of use the indexes that cannot forget an instant; the lock is held.

    Their names stay in table config, so that whoever comes builds them again (`rebuild_indexes`).
    """
    config = table.load_config()
    holding = load_partitions_holding(table.storage, config, table.load_timeline(), [time])
    if not holding:
        return
    if FILES in holding:
        # Without the list of files no other engine looks at the rest.
        holding = frozenset((*config.metadata_partitions, *config.metadata_partitions_inflight))
    log.warning(
        "indexes are dropped and built again, because an instant in them is taken back "
        "table=%s instant=%s indexes=%s",
        config.name,
        time,
        ", ".join(sorted(holding)),
    )
    rest = tuple(name for name in config.metadata_partitions if name not in holding)
    building = tuple(n for n in config.metadata_partitions_inflight if n not in holding)
    again = sorted({*config.indexes_to_rebuild, *holding})
    with table.txn.hold() as held:
        update_table_config_in_lock(
            table.storage,
            held,
            table.components.clock,
            {
                METADATA_PARTITIONS.key: METADATA_PARTITIONS.encode(rest),
                METADATA_PARTITIONS_INFLIGHT.key: METADATA_PARTITIONS_INFLIGHT.encode(building),
                INDEXES_TO_REBUILD.key: INDEXES_TO_REBUILD.encode(tuple(again)),
            },
        )


def check_not_undone(table: TableContext, timeline: Timeline, instant: Instant) -> None:
    """Check that no pending rollback or restore takes an instant back, or restores to it.

    Raises:
        ConflictError: kind ALREADY_RUNNING.
    """
    for undoing, undone in load_pending_undone(table, timeline):
        if instant.requested_time in undone:
            raise ConflictError(
                f"{undoing} is about to take {instant.requested_time} back. Wait until it has "
                "ended; if its process died, `clean` finishes it",
                kind=ErrorKind.ALREADY_RUNNING,
                instant=instant.requested_time,
                other=undoing.requested_time,
            )


def load_pending_undone(
    table: TableContext, timeline: Timeline
) -> Iterator[tuple[Instant, frozenset[InstantTime]]]:
    """Give each pending rollback and restore, with the instants that it takes back."""
    pending = [i for i in timeline.pending if i.action in (Action.ROLLBACK, Action.RESTORE)]
    for change in load_changes(table.storage, table.layout, pending).values():
        yield change.instant, change.undone


def _check_undoable(table: TableContext, timeline: Timeline, instant: Instant) -> CompletedCommit:
    """Return the commit if it may be rolled back; the lock is held."""
    if not instant.is_completed or instant.action.completed_name not in COMMIT_ACTIONS:
        raise _refusal(instant, "is no completed commit")
    check_not_undone(table, timeline, instant)
    if any(point.requested_time == instant.requested_time for point in timeline.savepoints):
        raise _refusal(instant, "has a savepoint. Delete the savepoint first")
    last = completed_commits(timeline)[-1]
    if last != instant:
        raise _refusal(
            instant,
            f"was not the last commit to complete, {last} was. Roll that back first, or restore "
            "the table to a savepoint",
        )
    assert instant.completion_time is not None
    commits = table.commit_reader()
    before = instant_time_after(instant.completion_time, -1)
    if len(completed_commits(timeline)) > 1 or commits.history.instants():
        check_readable(timeline, commits, before, table=table.config.name)
    (commit,) = commits.load([instant])
    _check_no_plan(table, commit)
    return commit


def _check_no_plan(table: TableContext, commit: CompletedCommit) -> None:
    """Check that no pending plan took in a file of the commit, or was made before it replaced."""
    touched = {file.group for file in commit.files}.union(commit.replaced_groups())
    view = view_of(table)
    for group, plan in view.pending_rewrites.items():
        if group in touched and plan.requested_time > commit.completion_time:
            raise _refusal(
                commit.instant,
                f"was taken in by the plan {plan}. Execute that first, and roll it back before",
            )


def _refusal(instant: Instant, reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"{instant} cannot be rolled back: it {reason}. Nothing was changed",
        kind=ErrorKind.INVALID_STATE,
        instant=instant.requested_time,
    )


def find_savepoint(timeline: Timeline, time: InstantTime) -> Instant:
    """Raises:
    NotFoundError: kind INSTANT_NOT_FOUND; there is none of that instant.
    """
    for point in timeline.savepoints:
        if point.requested_time == time:
            return point
    raise NotFoundError(
        f"Instant {time} has no savepoint. `savepoints()` lists those there are",
        kind=ErrorKind.INSTANT_NOT_FOUND,
        instant=time,
    )
