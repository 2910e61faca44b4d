"""Building indexes again that were dropped because an instant in them was taken back.

`kernel.txn.withdrawal` leaves their names in table config before anything is taken back. Until
they are built again the table is read and written without them.
"""

from __future__ import annotations

import logging

from headwater.arrow.meta_columns import META_COLUMNS
from headwater.context import TableContext
from headwater.errors import HeadwaterError
from headwater.kernel.index_definitions import load_index_definitions
from headwater.kernel.txn.config_steps import IndexesRebuilt
from headwater.metadata.indexes import Indexes

log = logging.getLogger(__name__)


def rebuild_indexes(table: TableContext, indexes: Indexes) -> None:
    """Build the indexes that wait for it, if there are any. What fails waits for the next call."""
    names = table.load_config().indexes_to_rebuild
    if not names:
        return
    definitions = load_index_definitions(table.storage, table.config)
    columns = {
        name: [column for column in definitions[name].source_fields if column not in META_COLUMNS]
        for name in names
        if name in definitions and definitions[name].source_fields
    }
    try:
        indexes.run()
        indexes.create(names, columns=columns)
        table.txn.run(IndexesRebuilt())
    except HeadwaterError as error:
        # What was taken back stays so, and readers do without the indexes.
        log.warning(
            "indexes not rebuilt table=%s indexes=%s error=%s",
            table.config.name,
            ", ".join(names),
            error,
        )
