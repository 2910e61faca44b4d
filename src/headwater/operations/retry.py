"""Writing a batch again after it lost against another writer.

A loser has a larger instant than the winner, and its next try one larger still, so it could lose
for ever (H-67). Tries are spread by a random back-off that doubles, and after a number of losses
the batch is written with the table lock held from beginning to end: nobody commits meanwhile, so
it cannot lose (LIV-07).
"""

from __future__ import annotations

import logging

from headwater.context import TableContext
from headwater.engine.engine import Rows
from headwater.errors import ConflictError, ErrorKind
from headwater.model.commit import Commit
from headwater.operations.request import WriteRequest
from headwater.operations.write import run_write

log = logging.getLogger(__name__)

RETRIED = (ErrorKind.WRITE_CONFLICT, ErrorKind.EARLY_CONFLICT, ErrorKind.LOCK_TIMEOUT)
"""A holder that lives may be such a batch, so not to get the lock in time is a loss like another
(LIV-17)."""

_BACK_OFF_MS = 100
_BACK_OFF_MAX_MS = 10_000


def write_with_retries(table: TableContext, request: WriteRequest, rows: Rows | None) -> Commit:
    """Write and commit, again after each conflict for as often as the writer's config allows.

    Raises: see `operations.write.run_write`.
    """
    config, components = table.write_config, table.components
    losses = 0
    while True:
        holds_lock = losses >= config.conflicts_before_lock
        try:
            return run_write(table, request, rows, holds_lock=holds_lock)
        except ConflictError as conflict:
            if conflict.kind not in RETRIED or losses >= config.conflict_retries:
                raise
            losses += 1
            log.info("write lost and is tried again loss=%d conflict=%s", losses, conflict)
        bound = min(_BACK_OFF_MAX_MS, _BACK_OFF_MS << losses)
        components.clock.sleep_ms(bound // 2 + components.ids.jitter(bound))
