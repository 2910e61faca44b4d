"""Records of column and partition statistics (format rule 8.4).

Whoever has ranges of columns encodes them one by one: it is as fast as all at once for many, and
for the few of a small commit ten times as fast. Records that were decoded are Arrow tables, and
those are encoded as they are.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.format.avro.binary import append_long
from headwater.format.avro.vectors import (
    constant_column,
    join_pieces,
    piece_lengths,
    pieces_of,
    varint_matrix,
    without_nulls,
)
from headwater.format.metadata.records import open_records, record_start
from headwater.format.metadata.schema import RecordType
from headwater.format.metadata.wrapped_values import (
    WRAPPED,
    RawBound,
    ValueKind,
    append_bound,
    encode_wrapped,
    read_wrapped,
    unwrap_values,
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

_NULL = b"\0"
_VALUE = b"\x02"
_BEFORE_STATS = _NULL * 2 + _VALUE
_BEHIND_STATS = _NULL * 2
"""The branches of the other fields of a record that may be null."""

COUNTS = ("value_count", "null_count", "total_size", "total_uncompressed_size")


def encode_statistic(
    record_type: RecordType,
    file_name: str,
    column_name: str,
    kind: ValueKind,
    bounds: tuple[RawBound | None, RawBound | None],
    counts: tuple[int, int, int, int],
    *,
    is_deleted: bool,
    is_tight: bool,
) -> bytes:
    """Encode the record of one column.

    Args:
        kind: that of the column's type.
        bounds: the smallest and the largest value.
        counts: those of `COUNTS`.
    """
    out = bytearray(record_start(record_type) + _BEFORE_STATS)
    _append_text(file_name, out)
    _append_text(column_name, out)
    for bound in bounds:
        append_bound(kind, bound, out)
    for count in counts:
        out += _VALUE
        append_long(count, out)
    out += bytes((is_deleted, is_tight))
    out += _VALUE
    append_long(kind.value_type, out)
    if kind.info is None:
        out += _NULL
    else:
        _append_text(kind.info, out)
    return bytes(out + _BEHIND_STATS)


def _append_text(text: str, out: bytearray) -> None:
    data = text.encode()
    out += _VALUE
    append_long(len(data), out)
    out += data


def encode_column_stats(
    rows: pa.Table, record_type: RecordType = RecordType.COLUMN_STATS
) -> pa.BinaryArray:
    """Encode statistics of `STATS_SCHEMA`."""
    pieces: list[pa.Array | pa.Scalar] = [pa.scalar(record_start(record_type) + _BEFORE_STATS)]
    for name in ("file_name", "column_name"):
        pieces += _optional_texts(stats_column(rows, name))
    for name in ("min", "max"):
        pieces += encode_wrapped(stats_column(rows, name))
    pieces += [_optional_longs(stats_column(rows, name)) for name in COUNTS]
    pieces += [_booleans(stats_column(rows, name)) for name in ("is_deleted", "is_tight_bound")]
    pieces += _value_type_pieces(rows)
    pieces.append(pa.scalar(_BEHIND_STATS))
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
    matrix, lengths = varint_matrix(np.asarray(without_nulls(numbers, 0)).astype(np.int64))
    branch = constant_column(2, len(numbers))
    branch[~valid] = 0
    matrix = np.concatenate([branch, matrix], axis=1)
    return pieces_of(matrix, np.where(valid, lengths, 0) + 1)


def _booleans(flags: pa.Array) -> pa.Array:
    found = np.asarray(without_nulls(flags, False)).astype(np.uint8)
    return pieces_of(found.reshape(len(flags), 1))


def _value_type_pieces(rows: pa.Table) -> list[pa.Array]:
    types, infos = stats_column(rows, "value_type"), stats_column(rows, "type_info")
    has_type = types.is_valid()
    head = _optional_longs(types.cast(pa.int64()))
    info = [
        pc.if_else(has_type, each.cast(pa.large_binary()), None) for each in _optional_texts(infos)
    ]
    return [head, *info]
