"""Which Parquet columns to encode and decode through a dictionary, and how hard to compress.

Dictionaries pay for text and for numbers of eight bytes that repeat: an ordering column of few
values takes half the time to write and an eighth to read, because zstd works hard at bytes of which
most are zero. Narrower numbers are as good without. On unique values dictionaries cost 1.8 times
the writing, because Parquet gives them up only when they are full.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.config.files import Compression
from headwater.errors import InvalidInputError

SAMPLE_ROWS = 4096
"""Enough to tell unique from repeated, at a hundredth of the writing."""

_DISTINCT_SHARE_MAX = 0.25
# A file of 1M rows has 2.7 bytes per value for 50,000 distinct texts, 24 for unique ones.
_BYTES_PER_VALUE_MAX = 3
# Unique by what they are; a small sample might not show it.
_NEVER = frozenset({"_hoodie_record_key", "_hoodie_commit_seqno"})
# The default level of gzip takes 51 times the time of snappy, level 1 takes 3.5 times.
_LEVELS: Mapping[Compression, int] = {Compression.ZSTD: 1, Compression.GZIP: 1}


def codec_name(compression: Compression) -> str:
    """Return what Arrow calls a compression."""
    return "none" if compression is Compression.UNCOMPRESSED else compression.value


def compression_level(compression: Compression) -> int | None:
    """Return the level at which a compression is used, None where it has only one."""
    return _LEVELS.get(compression)


def low_cardinality_columns(rows: pa.Table | pa.RecordBatch) -> list[str]:
    """Return the columns, top level ones only, whose first rows repeat each other."""
    sample = rows.slice(0, SAMPLE_ROWS)
    return [
        name
        for name, column in zip(sample.schema.names, sample.columns, strict=True)
        if name not in _NEVER and _repeats(column)
    ]


def low_cardinality_in_footer(footer: pq.FileMetaData) -> list[str]:
    """Return the text columns of a file that are small enough to have come from a dictionary."""
    if footer.num_row_groups == 0:
        return []
    group = footer.row_group(0)
    chosen = []
    for at in range(group.num_columns):
        chunk = group.column(at)
        is_text = footer.schema.column(at).logical_type.type == "STRING"
        is_nested = "." in chunk.path_in_schema
        if is_nested or not is_text or chunk.path_in_schema in _NEVER or not chunk.num_values:
            continue
        if chunk.total_uncompressed_size / chunk.num_values < _BYTES_PER_VALUE_MAX:
            chosen.append(chunk.path_in_schema)
    return chosen


def with_dictionaries(schema: pa.Schema, rows: pa.Table) -> pa.Schema:
    """Return the schema with dictionaries where the rows have them.

    Raises:
        InvalidInputError: the rows lack a column.
    """
    missing = [name for name in schema.names if name not in rows.schema.names]
    if missing:
        raise InvalidInputError(f"The rows lack the columns {', '.join(missing)} of the schema")
    fields = []
    for field in schema:
        found = rows.schema.field(field.name).type
        is_encoded = pa.types.is_dictionary(found) and not pa.types.is_dictionary(field.type)
        arrow = pa.dictionary(pa.int32(), field.type) if is_encoded else field.type
        fields.append(field.with_type(arrow))
    return pa.schema(fields)


def encoded_as(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows with the columns of a schema that `with_dictionaries` returned.

    Raises:
        InvalidInputError: a column has values that do not fit its type, or nulls that the schema
            does not allow.
    """
    with_nulls = [
        field.name for field in schema if not field.nullable and rows[field.name].null_count
    ]
    if with_nulls:
        raise InvalidInputError(
            f"The columns {', '.join(with_nulls)} have nulls, which the schema does not allow"
        )
    if rows.schema.equals(schema):
        return rows
    columns = [_column_as(field, rows[field.name]) for field in schema]
    return pa.table(columns, schema=schema)


def _repeats(column: pa.Array | pa.ChunkedArray) -> bool:
    if pa.types.is_dictionary(column.type):
        return True
    if not (_is_text(column.type) or _is_wide_number(column.type)) or len(column) == 0:
        return False
    distinct: int = pc.count_distinct(column).as_py()
    return distinct <= max(1, len(column) * _DISTINCT_SHARE_MAX)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_wide_number(kind: pa.DataType) -> bool:
    """Whether each value takes eight bytes."""
    is_number = pa.types.is_int64(kind) or pa.types.is_float64(kind)
    return bool(is_number or pa.types.is_timestamp(kind))


def _column_as(field: pa.Field, column: pa.ChunkedArray) -> pa.ChunkedArray:
    if column.type == field.type:
        return column
    try:
        if pa.types.is_dictionary(field.type) and not pa.types.is_dictionary(column.type):
            return column.cast(field.type.value_type).dictionary_encode()
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(
            f"Column {field.name!r} holds {column.type}, which does not fit {field.type}: {error}"
        ) from error
