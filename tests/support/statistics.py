"""Records of column statistics, made of bounds in the types of their columns."""

from __future__ import annotations

import pyarrow as pa

from headwater.format.metadata.column_stats import COUNTS, encode_statistic
from headwater.format.metadata.schema import RecordType
from headwater.format.metadata.wrapped_values import value_kind
from headwater.metadata.column_ranges import raw_of


def encode_typed_stats(
    rows: pa.Table, record_type: RecordType = RecordType.COLUMN_STATS
) -> pa.BinaryArray:
    """Encode rows of `STATS_SCHEMA`, but with `min` and `max` of one Arrow type."""
    kind = rows.schema.field("min").type
    lower, upper = (rows[name].combine_chunks() for name in ("min", "max"))
    values = [
        encode_statistic(
            record_type,
            row["file_name"],
            row["column_name"],
            value_kind(kind),
            (raw_of(low, kind), raw_of(high, kind)),
            tuple(row[name] for name in COUNTS),
            is_deleted=row["is_deleted"],
            is_tight=row["is_tight_bound"],
        )
        for row, low, high in zip(
            rows.drop_columns(["min", "max"]).to_pylist(), lower, upper, strict=True
        )
    ]
    return pa.array(values, pa.binary())
