"""Rows of a write that are there for their keys alone: their records are deleted.

Such deletes hold whatever the ordering values are. A record that moves to another partition leaves
its old one so, and a statement deletes so beside its updates.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.column_names import OWN_PREFIX

IS_LEAVING = f"{OWN_PREFIX}leaving"
"""The column that says which rows these are. If rows have it, then all rows of the write do."""


def split_leaving(rows: pa.Table) -> tuple[pa.Table, pa.Table | None]:
    """Return the rows to write and those whose keys leave their slice; see `IS_LEAVING`."""
    if IS_LEAVING not in rows.column_names:
        return rows, None
    is_leaving = rows[IS_LEAVING]
    rows = rows.drop_columns([IS_LEAVING])
    return rows.filter(pc.invert(is_leaving)), rows.filter(is_leaving)


def mark_leaving(rows: pa.Table, *, is_leaving: bool) -> pa.Table:
    """Return rows with the column."""
    return rows.append_column(IS_LEAVING, pa.repeat(pa.scalar(is_leaving), rows.num_rows))
