"""Records of column and partition statistics, many at once (format rule 8.4)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import InvalidInputError
from headwater.kernel.format.avro_vectors import (
    constant_column,
    join_pieces,
    piece_lengths,
    pieces_of,
    varint_matrix,
)
from headwater.kernel.format.metadata_records import open_records, record_start
from headwater.kernel.format.metadata_schema import RecordType
from headwater.kernel.format.wrapped_values import (
    WRAPPED,
    encode_wrapped,
    read_wrapped,
    unwrap_values,
    value_kind,
    wrap_values,
)

STATS_SCHEMA = pa.schema(
    [
        pa.field("file_name", pa.string()),
        pa.field("column_name", pa.string()),
        pa.field("min", WRAPPED),
        pa.field("max", WRAPPED),
        pa.field("value_count", pa.int64()),
        pa.field("null_count", pa.int64()),
        pa.field("total_size", pa.int64()),
        pa.field("total_uncompressed_size", pa.int64()),
        pa.field("is_deleted", pa.bool_(), nullable=False),
        pa.field("is_tight_bound", pa.bool_(), nullable=False),
        pa.field("value_type", pa.int32()),
        pa.field("type_info", pa.string()),
    ]
)
"""Statistics with bounds of any types, as they are decoded. `file_name` is the partition in
partition statistics."""

COUNTS = ("value_count", "null_count", "total_size", "total_uncompressed_size")


def encode_column_stats(
    rows: pa.Table, record_type: RecordType = RecordType.COLUMN_STATS
) -> pa.BinaryArray:
    """Encode statistics: of `STATS_SCHEMA`, or with `min` and `max` of one Arrow type.

    In the second case the value type follows from that type, so rows of different types take a call
    for each. An all-null column may have the type null.

    Raises:
        InvalidInputError: columns of this type have no statistics.
    """
    rows = _with_wrapped_bounds(rows)
    pieces: list[pa.Array | pa.Scalar] = [pa.scalar(record_start(record_type) + b"\0\0\x02")]
    for name in ("file_name", "column_name"):
        pieces += _optional_texts(stats_column(rows, name))
    for name in ("min", "max"):
        pieces += encode_wrapped(stats_column(rows, name))
    pieces += [_optional_longs(stats_column(rows, name)) for name in COUNTS]
    pieces += [_booleans(stats_column(rows, name)) for name in ("is_deleted", "is_tight_bound")]
    pieces += _value_type_pieces(rows)
    pieces.append(pa.scalar(b"\0\0"))
    if not len(rows):
        return pa.array([], pa.binary())
    return join_pieces(pieces).cast(pa.binary())


def decode_column_stats(values: pa.BinaryArray) -> pa.Table:
    """Decode column or partition statistics into `STATS_SCHEMA`.

    Raises:
        MalformedAvroError: a value is no such record.
    """
    types = (RecordType.COLUMN_STATS, RecordType.PARTITION_STATS)
    reader = open_records(values, types, nulls_before=2)
    columns: list[pa.Array] = [reader.optional_texts(), reader.optional_texts()]
    columns += [read_wrapped(reader), read_wrapped(reader)]
    columns += [reader.optional_longs() for _ in COUNTS]
    columns += [reader.booleans(), reader.booleans()]
    has_type = reader.has_value()
    ordinals = np.zeros(len(values), np.int32)
    typed = np.flatnonzero(has_type)
    ordinals[typed] = reader.longs(typed)
    columns.append(pa.array(ordinals, mask=~has_type))
    columns.append(reader.optional_texts_of(has_type))
    reader.check_null()
    reader.check_null()
    reader.check_end()
    return pa.table(columns, schema=STATS_SCHEMA)


def typed_bounds(stats: pa.Table, arrow: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """Return the bounds of one column in the type that it has now.

    Null means not known: the column is all null in that file, it has NaN, or it had a type that
    this one says nothing about. `null_count` and `value_count` tell the first case.

    Raises:
        MalformedAvroError: a decimal is malformed.
    """
    types, infos = stats_column(stats, "value_type"), stats_column(stats, "type_info")
    lower, upper = (
        unwrap_values(stats_column(stats, name), types, infos, arrow) for name in ("min", "max")
    )
    return lower, upper


def _with_wrapped_bounds(rows: pa.Table) -> pa.Table:
    bound_type = rows.schema.field("min").type
    if bound_type == WRAPPED:
        return rows
    if rows.schema.field("max").type != bound_type:
        raise InvalidInputError("The bounds of a column have one type")
    kind = value_kind(bound_type)
    count = len(rows)
    for name in ("min", "max"):
        wrapped = wrap_values(stats_column(rows, name))
        rows = rows.set_column(rows.column_names.index(name), name, wrapped)
    value_type = pa.repeat(pa.scalar(int(kind.value_type), pa.int32()), count)
    info = pa.repeat(pa.scalar(kind.info, pa.string()), count)
    return rows.append_column("value_type", value_type).append_column("type_info", info)


def stats_column(rows: pa.Table, name: str) -> pa.Array:
    """Return a column in one piece."""
    column = rows[name].combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    return column


def _optional_texts(texts: pa.Array) -> list[pa.Array]:
    if pa.types.is_dictionary(texts.type):
        texts = texts.dictionary_decode()
    valid = np.asarray(texts.is_valid())
    matrix, lengths = varint_matrix(piece_lengths(texts))
    branch = constant_column(2, len(texts))
    branch[~valid] = 0
    matrix = np.concatenate([branch, matrix], axis=1)
    return [pieces_of(matrix, np.where(valid, lengths, 0) + 1), texts]


def _optional_longs(numbers: pa.Array) -> pa.Array:
    valid = np.asarray(numbers.is_valid())
    matrix, lengths = varint_matrix(np.asarray(numbers.fill_null(0)).astype(np.int64))
    branch = constant_column(2, len(numbers))
    branch[~valid] = 0
    matrix = np.concatenate([branch, matrix], axis=1)
    return pieces_of(matrix, np.where(valid, lengths, 0) + 1)


def _booleans(flags: pa.Array) -> pa.Array:
    found = np.asarray(flags.fill_null(False).to_numpy(zero_copy_only=False))
    return pieces_of(found.astype(np.uint8).reshape(len(flags), 1))


def _value_type_pieces(rows: pa.Table) -> list[pa.Array]:
    types, infos = stats_column(rows, "value_type"), stats_column(rows, "type_info")
    has_type = types.is_valid()
    head = _optional_longs(types.cast(pa.int64()))
    info = [
        pc.if_else(has_type, each.cast(pa.large_binary()), None) for each in _optional_texts(infos)
    ]
    return [head, *info]
