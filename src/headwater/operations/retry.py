"""Writing a batch again after it lost against another writer.

A loser writes again what it lost in, under the instant that it has (`redo`), or all of it under a
new one where that is not possible. Either way it could lose for ever (H-67): so after a number of
losses it keeps the table lock while it writes again. Nobody commits meanwhile, so it cannot lose
(LIV-07). Tries that begin anew are spread by a random back-off that doubles. A write whose view is
gone has lost as well (`outdated`).
"""

from __future__ import annotations

from headwater.context import TableContext
from headwater.engine.engine import Rows
from headwater.errors import ConflictError, CorruptTableError, NotFoundError
from headwater.model.commit import Commit
from headwater.operations.losses import Losses
from headwater.operations.outdated import loss_of
from headwater.operations.request import RowsOfTable, WriteRequest
from headwater.operations.write import run_write

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
        except (NotFoundError, CorruptTableError) as error:
            loss = loss_of(table, error)
            if loss is None:
                raise
            losses.note(loss)
        bound = min(_BACK_OFF_MAX_MS, _BACK_OFF_MS << losses.count)
        components.clock.sleep_ms(bound // 2 + components.ids.jitter(bound))
