"""Building indexes again that were dropped because an instant in them was taken back.

`kernel.txn.withdrawal` leaves their names in table config before anything is taken back. Until
they are built again the table is read and written without them.
"""

from __future__ import annotations

import logging

from headwater.context import TableContext
from headwater.errors import HeadwaterError
from headwater.kernel.index_definitions import load_index_definitions
from headwater.kernel.txn.config_steps import IndexesRebuilt
from headwater.metadata.definitions import columns_again
from headwater.metadata.indexes import Indexes

log = logging.getLogger(__name__)


def rebuild_indexes(table: TableContext, indexes: Indexes) -> None:
    """Build the indexes that wait for it, if there are any. What fails waits for the next call."""
    names = table.load_config().indexes_to_rebuild
    if not names:
        return
    try:
        definitions = load_index_definitions(table.storage, table.config)
        indexes.run()
        indexes.create(names, columns=columns_again(definitions, names))
        table.txn.run(IndexesRebuilt())
    except HeadwaterError as error:
        # What was taken back stays so, and readers do without the indexes.
        log.warning(
            "indexes not rebuilt table=%s indexes=%s error=%s",
            table.config.name,
            ", ".join(names),
            error,
        )
