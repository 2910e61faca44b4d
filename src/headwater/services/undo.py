"""Undoing what has completed: rolling back the latest commit, and the parts of a restore.

`kernel.txn.withdrawal` holds the protocol and what a crash leaves behind; any process finishes it
with `rollback_failed_writes` or `clean`. Readers and other engines then see the table as it was
before the commit. Only its files are deleted; what it superseded or replaced is visible again.

A commit can be rolled back if it was the last to complete, has no savepoint, was not taken in by a
pending plan, and if cleaning has left what the table needs without it. All that is looked at in the
transaction that withdraws it. A write that was planned on its rows cannot commit afterwards.
"""

from __future__ import annotations

import logging

from headwater.context import TableContext
from headwater.errors import ConflictError, NotFoundError, UnsupportedError
from headwater.kernel.txn.attempts import Attempt, load_newest_number
from headwater.kernel.txn.rollback import RolledBackWrite
from headwater.kernel.txn.rollback_steps import AlreadyScheduled
from headwater.kernel.txn.schedule import run_claiming
from headwater.kernel.txn.steps import pending_ingestion
from headwater.kernel.txn.withdrawal import TakeBackCommit, TakeBackForRestore, Withdrawal
from headwater.metadata.rollback_metadata import load_indexes_holding
from headwater.model.instant import InstantTime

log = logging.getLogger(__name__)


def rollback_commit(table: TableContext, time: InstantTime) -> RolledBackWrite:
    """Take back a completed commit, which must be the last one to complete.

    Raises:
        NotFoundError: kind INSTANT_NOT_FOUND; kind OUTSIDE_RETENTION, cleaning deleted files that
            the table would need without the commit.
        InvalidInputError: kind INVALID_STATE; it is no commit, not the last one, has a savepoint,
            or is part of a pending plan. Nothing was changed.
        ConflictError: it is being taken back already, or the lock was not to be had in time; kind
            FOREIGN_WRITER, another engine is writing.
        Others: see `kernel.txn.rollback.Rollbacks.roll_back`.
    """
    rollback_dead_elsewhere(table)
    done = run_claiming(
        table.txn,
        lambda: TakeBackCommit(
            target=time,
            claim=table.claim(),
            base_uri=table.storage.uri,
            load_indexes_holding=load_indexes_holding,
        ),
    )
    _warn_of_dropped(table, time, done)
    return table.rollbacks.execute_scheduled(done.rollback)


def rollback_dead_elsewhere(table: TableContext) -> None:
    """Roll back what other engines have left, for beside a write of theirs nothing is taken back.

    What is still pending afterwards is refused where that is decided.
    """
    for write in pending_ingestion(table.load_timeline()):
        time = write.requested_time
        if not load_newest_number(table.storage, time) and table.rollbacks.is_left(write):
            try:
                table.rollbacks.roll_back(time)
            except (ConflictError, NotFoundError, UnsupportedError) as error:
                log.info("write of another engine not rolled back instant=%s: %s", time, error)


def take_back_for_restore(table: TableContext, restore: Attempt, time: InstantTime) -> None:
    """Roll back one instant that a restore names, or finish its rollback; nothing if it is gone.

    Raises: see `rollback_commit`; FencedError, another process took the restore over.
    """
    found = run_claiming(
        table.txn,
        lambda: TakeBackForRestore(
            target=time,
            restore=restore,
            claim=table.claim(),
            base_uri=table.storage.uri,
            load_indexes_holding=load_indexes_holding,
        ),
    )
    if isinstance(found, AlreadyScheduled):
        table.rollbacks.resume(found.rollback)
    elif found is not None:
        _warn_of_dropped(table, time, found)
        table.rollbacks.execute_scheduled(found.rollback)


def _warn_of_dropped(table: TableContext, time: InstantTime, done: Withdrawal) -> None:
    if done.dropped_indexes:
        log.warning(
            "indexes are dropped and built again, because an instant in them is taken back "
            "table=%s instant=%s indexes=%s",
            table.config.name,
            time,
            ", ".join(done.dropped_indexes),
        )
