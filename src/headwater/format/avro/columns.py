"""Avro records of a log block as Arrow columns: each record behind its length, a 4-byte int.

Flat columns are encoded and decoded for all rows at once, with the bytes that fastavro writes, some
ten times as fast. A schema with an array, a map, a struct or an enum goes through fastavro row by
row.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from struct import Struct
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import InvalidInputError
from headwater.format.avro.binary import DECODING_ERRORS, MalformedAvroError
from headwater.format.avro.schema import parse_avro_schema
from headwater.format.avro.vectors import (
    Bytes,
    Longs,
    Mask,
    bitmap_of,
    bytes_of,
    constant_column,
    data_of,
    decimal_matrix,
    decimals_of,
    join_pieces,
    piece_lengths,
    pieces_of,
    read_bytes,
    read_fixed,
    read_lengths,
    read_longs,
    right_aligned,
    take_spans,
    twos_complement_lengths,
    varint_matrix,
)

SCHEMAS_CACHED_MAX = 64
"""A table has one schema for each of its evolutions, and a process reads few tables at a time."""

_RECORD_LENGTH = Struct(">i")
_FLAT = frozenset({"boolean", "int", "long", "float", "double", "string", "bytes", "fixed"})
_FLOAT_BYTES = {"float": 4, "double": 8}
_INT32 = np.iinfo(np.int32)


@dataclass(frozen=True, slots=True)
class _Column:
    """How one flat field is encoded. A branch is None where the field is no union."""

    name: str
    kind: str
    arrow: pa.DataType
    size: int
    value_branch: int | None
    null_branch: int | None


def encode_records(table: pa.Table, avro_schema_json: str) -> memoryview:
    """Encode the rows of a table that has the columns of the schema, in any order.

    Raises:
        InvalidInputError: a column is missing, has values its type in the schema cannot hold, or
            nulls where the schema has none.
    """
    rows = conform(table, parse_avro_schema(avro_schema_json))
    columns = _flat_columns(avro_schema_json)
    if columns is None:
        return _encode_row_by_row(rows, avro_schema_json)
    pieces: list[pa.Array] = []
    lengths = np.zeros(len(rows), np.int64)
    for column in columns:
        for piece in _encode_column(column, _single_chunk(rows[column.name])):
            pieces.append(piece)
            lengths += piece_lengths(piece)
    prefix = lengths.astype(">i4").view(np.uint8).reshape(len(rows), _RECORD_LENGTH.size)
    return data_of(join_pieces([pieces_of(prefix), *pieces]))


def decode_records(
    data: bytes | memoryview,
    row_count: int,
    avro_schema_json: str,
    columns: Collection[str] | None = None,
) -> pa.Table:
    """Decode records into the columns that are asked for and in the schema, in its order.

    Raises:
        MalformedAvroError: the bytes are not `row_count` records of the schema.
        InvalidInputError: the schema has a type that tables cannot store.
    """
    schema = parse_avro_schema(avro_schema_json)
    wanted = [name for name in schema.names if columns is None or name in columns]
    flat = _flat_columns(avro_schema_json)
    starts, ends = _find_records(data, row_count)
    if flat is None:
        return _decode_row_by_row(data, starts, ends, avro_schema_json).select(wanted)
    arrays: dict[str, pa.Array] = {}
    view = bytes_of(data)
    at = starts
    for column in flat:
        decoded, at = _decode_column(column, data, view, at, is_wanted=column.name in wanted)
        if decoded is not None:
            arrays[column.name] = decoded
    if not np.array_equal(at, ends):
        raise MalformedAvroError("records that end elsewhere than their lengths say")
    kept = pa.schema([schema.field(name) for name in wanted])
    if not wanted:
        return pa.table({"": pa.nulls(row_count)}).select([])
    return pa.table([arrays[name] for name in wanted], schema=kept)


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with exactly the columns and types of a schema.

    Raises:
        InvalidInputError: a column is missing or its values do not fit.
    """
    missing = [name for name in schema.names if name not in table.column_names]
    if missing:
        raise InvalidInputError(
            f"The rows lack the columns {', '.join(missing)} of the schema. Add them, or write a "
            "partial block with a schema of the columns that are there"
        )
    rows = table.select(schema.names)
    if rows.schema.equals(schema):
        return rows
    try:
        return rows.cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise InvalidInputError(f"The rows do not fit the schema: {error}") from error


@lru_cache(maxsize=SCHEMAS_CACHED_MAX)
def _flat_columns(avro_schema_json: str) -> tuple[_Column, ...] | None:
    """Return how the fields are encoded, or None if one of them is not flat."""
    schema = parse_avro_schema(avro_schema_json)
    columns = []
    for field in json.loads(avro_schema_json)["fields"]:
        column = _flat_column(field, schema.field(field["name"]).type)
        if column is None:
            return None
        columns.append(column)
    return tuple(columns)


def _flat_column(field: Mapping[str, Any], arrow: pa.DataType) -> _Column | None:
    value_branch, null_branch = None, None
    avro = field["type"]
    if isinstance(avro, list):
        if len(avro) > 2:
            return None
        null_branch = avro.index("null") if "null" in avro else None
        value_branch = 1 if null_branch == 0 else 0
        avro = avro[value_branch]
    size = 0
    while isinstance(avro, Mapping):
        size = avro.get("size", 0)
        avro = avro["type"]
    if not isinstance(avro, str) or avro not in _FLAT:
        return None
    return _Column(field["name"], avro, arrow, size, value_branch, null_branch)


def _single_chunk(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    if isinstance(combined, pa.ChunkedArray):
        if combined.num_chunks > 1:
            raise InvalidInputError(
                "A column of more than 2 GiB does not fit one log block. Write several blocks"
            )
        return combined.chunk(0) if combined.num_chunks else pa.array([], combined.type)
    return combined


def _encode_column(column: _Column, values: pa.Array) -> list[pa.Array]:
    """Return the pieces of one field for all rows."""
    count = len(values)
    valid = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    if column.null_branch is None and values.null_count:
        raise InvalidInputError(
            f"Column {column.name!r} has nulls, which its schema does not allow"
        )
    tail: list[pa.Array] = []
    lengths: Longs | None
    match column.kind:
        case "string" | "bytes" if not pa.types.is_decimal(column.arrow):
            matrix, lengths = varint_matrix(piece_lengths(values))
            tail = [values]
        case "bytes":
            matrix, lengths = _decimal_as_bytes(values)
        case _:
            matrix, lengths = _fixed_or_number(column, values)
    if column.value_branch is None:
        return [pieces_of(matrix, lengths), *tail]
    branch = constant_column(2 * column.value_branch, count)
    if column.null_branch is not None:
        branch[~valid] = 2 * column.null_branch
    matrix = np.concatenate([branch, matrix], axis=1)
    if lengths is None:
        lengths = np.full(count, matrix.shape[1] - 1, np.int64)
    lengths = np.where(valid, lengths, 0) + 1
    return [pieces_of(matrix, lengths), *tail]


def _fixed_or_number(column: _Column, values: pa.Array) -> tuple[Bytes, Longs | None]:
    count = len(values)
    match column.kind:
        case "int" | "long":
            storage = pa.int32() if column.kind == "int" else pa.int64()
            return varint_matrix(_numbers(values.view(storage)).astype(np.int64))
        case "boolean":
            return _numbers(values).astype(np.uint8).reshape(count, 1), None
        case "float" | "double":
            width = _FLOAT_BYTES[column.kind]
            return _numbers(values).astype(f"<f{width}").view(np.uint8).reshape(count, width), None
        case _ if pa.types.is_decimal(column.arrow):
            return _decimal_as_fixed(column, values), None
        case _:
            blank = pa.scalar(bytes(column.size), column.arrow)
            data = data_of(pc.fill_null(values, blank).cast(pa.large_binary()))
            return bytes_of(data).reshape(count, column.size), None


def _numbers(values: pa.Array) -> np.ndarray[Any, Any]:
    filled = pc.fill_null(values, False if pa.types.is_boolean(values.type) else 0)
    return np.asarray(filled.to_numpy(zero_copy_only=False))


def _decimal_as_fixed(column: _Column, values: pa.Array) -> Bytes:
    matrix = decimal_matrix(values)
    too_long = twos_complement_lengths(matrix) > column.size
    if (too_long & np.asarray(values.is_valid())).any():
        raise InvalidInputError(
            f"Column {column.name!r} has decimals that do not fit the {column.size} bytes of its "
            "schema. Widen the schema"
        )
    return np.ascontiguousarray(matrix[:, : column.size][:, ::-1])


def _decimal_as_bytes(values: pa.Array) -> tuple[Bytes, Longs]:
    # Bytes have a length before them; as a decimal has at most 16, the length is a single byte.
    little = decimal_matrix(values)
    lengths = twos_complement_lengths(little)
    at = lengths[:, None] - 1 - np.arange(little.shape[1])
    big = np.take_along_axis(little, np.maximum(at, 0), axis=1)
    prefix = (2 * lengths).astype(np.uint8).reshape(len(values), 1)
    return np.concatenate([prefix, big], axis=1), lengths + 1


def _find_records(data: bytes | memoryview, row_count: int) -> tuple[Longs, Longs]:
    """Return where each record begins and ends.

    The only loop over rows: a record's place is known when the one before it was measured. It takes
    a tenth of the decoding.
    """
    unpack, width, size = _RECORD_LENGTH.unpack_from, _RECORD_LENGTH.size, len(data)
    if not 0 <= row_count * width <= size:
        raise MalformedAvroError(f"{row_count} records in {size} bytes")
    starts = []
    at = 0
    for _ in range(row_count):
        if at > size - width:
            raise MalformedAvroError(f"records that end at offset {at} of {size}")
        (length,) = unpack(data, at)
        if length < 0:
            raise MalformedAvroError(f"a record of {length} bytes at offset {at}")
        starts.append(at + width)
        at += width + length
    if at != size:
        raise MalformedAvroError(f"records that end at offset {at} of {size}")
    begins = np.array(starts, np.int64)
    return begins, np.append(begins[1:] - width, size)[:row_count]


def _decode_column(
    column: _Column, data: bytes | memoryview, view: Bytes, at: Longs, *, is_wanted: bool
) -> tuple[pa.Array | None, Longs]:
    valid, at = _read_branches(column, view, at)
    rows = slice(None) if valid.all() else np.flatnonzero(valid)
    decoded, after = _decode_values(column, data, view, at[rows], valid, is_wanted=is_wanted)
    at[rows] = after
    return decoded, at


def _read_branches(column: _Column, view: Bytes, at: Longs) -> tuple[Mask, Longs]:
    if column.value_branch is None:
        return np.ones(len(at), np.bool_), at.copy()
    branches, at = read_bytes(view, at)
    valid = branches == 2 * column.value_branch
    is_null = branches == (255 if column.null_branch is None else 2 * column.null_branch)
    if not (valid | is_null).all():
        raise MalformedAvroError(f"a value of column {column.name} that is no branch of its union")
    return valid, at


def _decode_values(
    column: _Column,
    data: bytes | memoryview,
    view: Bytes,
    at: Longs,
    valid: Mask,
    *,
    is_wanted: bool,
) -> tuple[pa.Array | None, Longs]:
    arrow = column.arrow
    match column.kind:
        case "int" | "long":
            longs, at = read_longs(view, at)
            return (_numbers_of(column, longs, valid) if is_wanted else None), at
        case "boolean":
            found, at = read_bytes(view, at)
            if (found > 1).any():
                raise MalformedAvroError(f"a boolean of column {column.name} that is not 0 or 1")
            return _spread(found == 1, valid, arrow), at
        case "float" | "double":
            width = _FLOAT_BYTES[column.kind]
            matrix, at = read_fixed(view, at, width)
            return _spread(np.ascontiguousarray(matrix).view(f"<f{width}")[:, 0], valid, arrow), at
        case "fixed":
            matrix, at = read_fixed(view, at, column.size)
            if pa.types.is_decimal(arrow):
                return decimals_of(matrix, valid, arrow), at
            wide = np.zeros((len(valid), column.size), np.uint8)
            wide[valid] = matrix
            buffers = [bitmap_of(valid), pa.py_buffer(wide)]
            return pa.Array.from_buffers(arrow, len(valid), buffers), at
        case _:
            lengths, starts = read_lengths(view, at)
            if not is_wanted:
                return None, starts + lengths
            if pa.types.is_decimal(arrow):
                decimals = decimals_of(right_aligned(view, starts, lengths), valid, arrow)
                return decimals, starts + lengths
            spans = take_spans(data, starts, lengths, valid)
            return _cast_spans(column, spans), starts + lengths


def _numbers_of(column: _Column, longs: Longs, valid: Mask) -> pa.Array:
    if column.kind == "long":
        return _spread(longs, valid, pa.int64()).view(column.arrow)
    if ((longs < _INT32.min) | (longs > _INT32.max)).any():
        raise MalformedAvroError(f"an int of column {column.name} that has more than 32 bits")
    return _spread(longs.astype(np.int32), valid, pa.int32()).view(column.arrow)


def _spread(values: np.ndarray[Any, Any], valid: Mask, arrow: pa.DataType) -> pa.Array:
    """Put the values of the valid rows in their places among the nulls."""
    if len(values) == len(valid):
        return pa.array(values, arrow)
    wide = np.zeros(len(valid), values.dtype)
    wide[valid] = values
    return pa.array(wide, arrow, mask=~valid)


def _cast_spans(column: _Column, spans: pa.Array) -> pa.Array:
    try:
        return spans.cast(column.arrow)
    except pa.ArrowInvalid as error:
        raise MalformedAvroError(f"text of column {column.name} that is no UTF-8") from error


def _encode_row_by_row(rows: pa.Table, avro_schema_json: str) -> memoryview:
    schema = _fastavro_schema(avro_schema_json)
    plain = rows.cast(_with_times_as_numbers(rows.schema))
    try:
        values = plain.to_pylist(maps_as_pydicts="strict")
    except KeyError as error:
        raise InvalidInputError(
            f"A map has a key twice, which Avro cannot store: {error.args[0]}. Correct the value"
        ) from error
    out = bytearray()
    for row in values:
        record = BytesIO()
        fastavro.schemaless_writer(record, schema, row)
        encoded = record.getvalue()
        out += _RECORD_LENGTH.pack(len(encoded))
        out += encoded
    return memoryview(out)


def _decode_row_by_row(
    data: bytes | memoryview, starts: Longs, ends: Longs, avro_schema_json: str
) -> pa.Table:
    schema = _fastavro_schema(avro_schema_json)
    rows = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        record = BytesIO(data[start:end])
        try:
            rows.append(fastavro.schemaless_reader(record, schema, None))
        except DECODING_ERRORS as error:
            raise MalformedAvroError(f"a record at offset {start} that is cut short") from error
        if record.tell() != end - start:
            raise MalformedAvroError(f"a record at offset {start} that ends before its length")
    parsed = parse_avro_schema(avro_schema_json)
    try:
        plain = pa.Table.from_pylist(rows, schema=_with_times_as_numbers(parsed))
    except (pa.ArrowInvalid, OverflowError) as error:
        raise MalformedAvroError(f"a value that its type does not have: {error}") from error
    return plain.cast(parsed)


def _with_times_as_numbers(schema: pa.Schema) -> pa.Schema:
    """Return a schema with numbers in place of days and times, as Avro stores them.

    Python's own days and times, and so those of fastavro, end with the year 9999.
    """
    return pa.schema([_number_field(field) for field in schema])


def _number_field(field: pa.Field) -> pa.Field:
    return field.with_type(_number_type(field.type))


def _number_type(arrow: pa.DataType) -> pa.DataType:
    if pa.types.is_date32(arrow):
        return pa.int32()
    if pa.types.is_timestamp(arrow):
        return pa.int64()
    if pa.types.is_struct(arrow):
        return pa.struct([_number_field(field) for field in arrow])
    if pa.types.is_list(arrow):
        return pa.list_(_number_field(arrow.value_field))
    if pa.types.is_map(arrow):
        return pa.map_(arrow.key_field, _number_field(arrow.item_field))
    return arrow


@lru_cache(maxsize=SCHEMAS_CACHED_MAX)
def _fastavro_schema(avro_schema_json: str) -> Any:
    try:
        return fastavro.parse_schema(_with_plain_types(json.loads(avro_schema_json)))
    except (
        fastavro.schema.SchemaParseException,
        fastavro.schema.UnknownType,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        raise MalformedAvroError(f"a schema that is none of Avro's ({error!r})") from error


def _with_plain_types(avro: Any) -> Any:
    """Drop the logical types that fastavro turns into objects, for texts and numbers as stored."""
    if isinstance(avro, list):
        return [_with_plain_types(part) for part in avro]
    if isinstance(avro, Mapping):
        is_kept = avro.get("logicalType") == "decimal"
        return {
            key: _with_plain_types(part)
            for key, part in avro.items()
            if is_kept or key != "logicalType"
        }
    return avro
