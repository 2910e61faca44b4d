"""Rows and log parts by record key: choosing those of some keys, and making keys for a merge."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.keys import KeyGenerator
from headwater.arrow.log_parts import DataPart, LogPart
from headwater.arrow.meta_columns import RECORD_KEY

Keys: TypeAlias = pa.Array | pa.ChunkedArray
Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


def rows_of_keys(rows: pa.RecordBatch, keys: Keys | None) -> pa.RecordBatch:
    """Return the rows whose record keys are among some; all if None are asked for."""
    if keys is None:
        return rows
    return rows.filter(pc.is_in(rows.column(RECORD_KEY), value_set=keys))


def with_made_keys(rows: Rows, maker: KeyGenerator) -> Rows:
    """Return rows with the keys that a table without meta fields does not store."""
    record_keys = maker.record_keys(rows)
    if RECORD_KEY not in rows.schema.names:
        return rows.append_column(RECORD_KEY, record_keys)
    return rows.set_column(rows.schema.get_field_index(RECORD_KEY), RECORD_KEY, record_keys)


def part_with_made_keys(part: LogPart, maker: KeyGenerator) -> LogPart:
    """Return a log part with such keys; deletes have theirs."""
    if not isinstance(part, DataPart):
        return part
    return replace(part, rows=with_made_keys(part.rows, maker))


def without_record_keys(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows whose record key, if they have the column, is null as it is in the files."""
    if RECORD_KEY not in rows.schema.names:
        return rows
    nothing = pa.nulls(rows.num_rows, pa.string())
    return rows.set_column(rows.schema.get_field_index(RECORD_KEY), RECORD_KEY, nothing)
