"""Writing a batch again after it lost against another writer.

A loser writes again what it lost in, under the instant that it has (`redo`), or all of it under a
new one where that is not possible. Either way it could lose for ever (H-67): so after a number of
losses it keeps the table lock while it writes again. Nobody commits meanwhile, so it cannot lose
(LIV-07). Tries that begin anew are spread by a random back-off that doubles. A write whose view is
gone has lost as well (`outdated`).

A write that lost to a pending rollback of a commit would lose to it again and again if nobody is
left to execute it. So it withdraws the commit, as anybody may, and finishes the rollback unless
somebody is at work on it (N-133).
"""

from __future__ import annotations

import logging

from headwater.context import TableContext
from headwater.engine.engine import Rows
from headwater.errors import (
    ConflictError,
    CorruptTableError,
    ErrorKind,
    HeadwaterError,
    NotFoundError,
)
from headwater.kernel.txn.rollback_plan import target_of
from headwater.metadata.outdated import is_outdated
from headwater.model.commit import Commit
from headwater.model.instant import Action
from headwater.operations.losses import Losses
from headwater.operations.request import RowsOfTable, WriteRequest
from headwater.operations.write import run_write

log = logging.getLogger(__name__)

_BACK_OFF_MS = 100
_BACK_OFF_MAX_MS = 10_000


def write_with_retries(
    table: TableContext, request: WriteRequest, rows: Rows | RowsOfTable | None
) -> Commit:
    """Write and commit, again after each conflict for as often as the writer's config allows.

    Raises: see `operations.write.run_write`.
    """
    components, losses = table.components, Losses(table.write_config)
    while True:
        try:
            return run_write(table, request, rows, losses)
        except ConflictError as conflict:
            losses.note(conflict)
            _finish_rollback(table, conflict)
        except (NotFoundError, CorruptTableError) as error:
            loss = loss_of(table, error)
            if loss is None:
                raise
            losses.note(loss)
        bound = min(_BACK_OFF_MAX_MS, _BACK_OFF_MS << losses.count)
        components.clock.sleep_ms(bound // 2 + components.ids.jitter(bound))


def loss_of(table: TableContext, error: NotFoundError | CorruptTableError) -> ConflictError | None:
    """Return the loss that an error of a write stands for; None if it is what it says."""
    if not is_outdated(table, error):
        return None
    return ConflictError(
        "What this write was planned on is gone: a restore or rollback took it back, or a clean "
        f"deleted it, or it was archived. Nothing was committed; write the batch again ({error})",
        kind=ErrorKind.WRITE_CONFLICT,
    )


def _finish_rollback(table: TableContext, conflict: ConflictError) -> None:
    """Finish the pending rollback that a write lost to, or as much of it as is not somebody's."""
    undone_by = conflict.context.get("undone_by")
    rollback = None if undone_by is None else table.load_timeline().find(undone_by)
    if rollback is None or not rollback.is_pending or rollback.action is not Action.ROLLBACK:
        return
    try:
        if table.rollbacks.is_ours(rollback):
            table.rollbacks.roll_back(target_of(table.rollbacks.load_plan(rollback)))
    except HeadwaterError as error:
        # The write is tried anyway, and tells what it loses to; this must not take its place.
        level = logging.INFO if error.kind is ErrorKind.ALREADY_RUNNING else logging.WARNING
        log.log(level, "rollback not finished instant=%s error=%s", rollback, error)
