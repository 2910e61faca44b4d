"""Delete records: the payload of a delete block of version 3 (format rule 5.3).

One Avro datum, `{ deleteRecordList [{ recordKey ?string, partitionPath ?string, orderingVal }] }`,
where the ordering value is a union of one-field records, a wrapper for each type. A delete without
ordering value is IntWrapper(0), whatever the type of the ordering column.

A block belongs to one file group, so its records have one partition, and normally one wrapper. The
bytes from the partition to the branch of the union are then the same in all records, and splitting
the payload at them finds all records at once. If every part turns out to be exactly one value, one
key and nothing else, the parts are the only way to read the payload; if not, or if the wrappers are
mixed, fastavro reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from io import BytesIO
from typing import Any, NamedTuple

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import InvalidInputError
from headwater.format.avro.binary import (
    DECODING_ERRORS,
    MalformedAvroError,
    append_long,
    read_long,
    read_span,
)
from headwater.format.avro.vectors import (
    Bytes,
    Longs,
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

_STRING_BRANCH = b"\x02"
_COMMIT_TIME = b"\x04\x00"
"""IntWrapper(0)."""
_NULL_ITEM = b"\x00"
_ARRAY_BRANCH = 12
_DECIMAL = pa.decimal128(30, 15)


class DeleteRecords(NamedTuple):
    """Keys to delete. A row is null in all arrays of `ordering` if it has no ordering value."""

    record_keys: pa.Array
    partition_paths: pa.Array
    ordering: tuple[pa.Array, ...] | None


class _Wrapper(NamedTuple):
    """A branch of the union: the Avro type of its value, and the Arrow type we read it as."""

    name: str
    avro: str
    arrow: pa.DataType


# By branch. Branch 0 is null.
_WRAPPERS: Mapping[int, _Wrapper] = {
    1: _Wrapper("BooleanWrapper", "boolean", pa.bool_()),
    2: _Wrapper("IntWrapper", "int", pa.int32()),
    3: _Wrapper("LongWrapper", "long", pa.int64()),
    4: _Wrapper("FloatWrapper", "float", pa.float32()),
    5: _Wrapper("DoubleWrapper", "double", pa.float64()),
    6: _Wrapper("BytesWrapper", "bytes", pa.binary()),
    7: _Wrapper("StringWrapper", "string", pa.string()),
    8: _Wrapper("DateWrapper", "int", pa.date32()),
    9: _Wrapper("DecimalWrapper", "bytes", _DECIMAL),
    10: _Wrapper("TimeMicrosWrapper", "long", pa.time64("us")),
    11: _Wrapper("TimestampMicrosWrapper", "long", pa.timestamp("us", tz="UTC")),
}
_LOCAL_DATE = _Wrapper("LocalDateWrapper", "int", pa.date32())
_BY_NAME: Mapping[str, _Wrapper] = {
    wrapper.name: wrapper for wrapper in (*_WRAPPERS.values(), _LOCAL_DATE)
}


def encode_delete_records(
    record_keys: pa.Array, partition_paths: pa.Array, ordering: Sequence[pa.Array] | None
) -> bytes:
    """Encode deletes; a row whose ordering values are all null is a commit-time delete.

    A timestamp is written as the number its column stores, as Hudi's writers do by default.

    Raises:
        InvalidInputError: a key or partition is null, lengths differ, or an ordering column has a
            type that no wrapper holds.
    """
    arrays = [record_keys, partition_paths, *(ordering or ())]
    if len({len(array) for array in arrays}) > 1:
        raise InvalidInputError("Keys, partitions and ordering values of deletes differ in number")
    if record_keys.null_count or partition_paths.null_count:
        raise InvalidInputError(
            "A delete needs a record key and a partition path, which is '' in a table without "
            "partitions; got null"
        )
    count = len(record_keys)
    if count == 0:
        return b"\x00"
    pieces = [*_text_pieces(record_keys), *_text_pieces(partition_paths)]
    pieces.append(_ordering_pieces(ordering) if ordering else _scalar(_COMMIT_TIME))
    head = bytearray()
    append_long(count, head)
    return b"".join((head, data_of(join_pieces(pieces)), b"\x00"))


def decode_delete_records(payload: memoryview) -> DeleteRecords:
    """Decode the payload of a delete block.

    Raises:
        MalformedAvroError: the bytes are no list of delete records.
    """
    records = _decode_alike(bytes(payload))
    return _decode_any(payload) if records is None else records


def _scalar(data: bytes) -> pa.Scalar:
    return pa.scalar(data, pa.large_binary())


def _text_pieces(texts: pa.Array) -> list[pa.Array]:
    matrix, lengths = varint_matrix(piece_lengths(texts))
    branch = constant_column(_STRING_BRANCH[0], len(texts))
    return [pieces_of(np.concatenate([branch, matrix], axis=1), lengths + 1), texts]


def _ordering_pieces(ordering: Sequence[pa.Array]) -> pa.Array:
    wrapped = [_wrapped(values) for values in ordering]
    if len(wrapped) == 1:
        return pc.fill_null(wrapped[0], _scalar(_COMMIT_TIME))
    head = bytearray([2 * _ARRAY_BRANCH, *_STRING_BRANCH])
    append_long(len(wrapped), head)
    items = [pc.fill_null(piece, _scalar(_NULL_ITEM)) for piece in wrapped]
    listed = join_pieces([_scalar(bytes(head)), *items, _scalar(b"\x00")])
    has_value = pc.is_valid(wrapped[0])
    for piece in wrapped[1:]:
        has_value = pc.or_(has_value, pc.is_valid(piece))
    return pc.if_else(has_value, listed, _scalar(_COMMIT_TIME))


def _wrapped(values: pa.Array) -> pa.Array:
    """Return each value behind its branch; null stays null."""
    branch, stored = _stored(values)
    filled = pc.fill_null(stored, _blank(stored.type))
    avro = _WRAPPERS[branch].avro
    tail: list[pa.Array] = []
    lengths: Longs | None = None
    if pa.types.is_decimal(stored.type):
        little = decimal_matrix(filled)
        lengths = twos_complement_lengths(little)
        at = np.maximum(lengths[:, None] - 1 - np.arange(little.shape[1]), 0)
        big = np.take_along_axis(little, at, axis=1)
        matrix = np.concatenate([(2 * lengths).astype(np.uint8)[:, None], big], axis=1)
        lengths = lengths + 1
    elif avro in ("int", "long"):
        numbers = filled.to_numpy(zero_copy_only=False)
        matrix, lengths = varint_matrix(numbers.astype(np.int64))
    elif avro in ("string", "bytes"):
        matrix, lengths = varint_matrix(piece_lengths(filled))
        tail = [filled]
    else:
        numbers = np.ascontiguousarray(filled.to_numpy(zero_copy_only=False))
        matrix = numbers.view(np.uint8).reshape(len(values), -1)
    matrix = np.concatenate([constant_column(2 * branch, len(values)), matrix], axis=1)
    piece = pieces_of(matrix, None if lengths is None else lengths + 1)
    joined = join_pieces([piece, *tail])
    return pc.if_else(pc.is_valid(values), joined, pa.scalar(None, pa.large_binary()))


def _stored(values: pa.Array) -> tuple[int, pa.Array]:
    """Return the branch for an ordering column, and the values as that wrapper stores them."""
    arrow = values.type
    if pa.types.is_dictionary(arrow):
        values = values.dictionary_decode()
        arrow = values.type
    if pa.types.is_timestamp(arrow):
        return 3, values.view(pa.int64())
    if pa.types.is_date32(arrow):
        return 8, values.view(pa.int32())
    if pa.types.is_time64(arrow):
        return 10, values.cast(pa.time64("us")).view(pa.int64())
    kinds: list[tuple[Callable[[pa.DataType], bool], int]] = [
        (pa.types.is_boolean, 1),
        (pa.types.is_float32, 4),
        (pa.types.is_float64, 5),
        (pa.types.is_decimal, 9),
        (lambda kind: kind in (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()), 2),
        (lambda kind: kind in (pa.int64(), pa.uint32()), 3),
        (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), 7),
        (lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind), 6),
    ]
    for is_kind, branch in kinds:
        if is_kind(arrow):
            try:
                return branch, values.cast(_WRAPPERS[branch].arrow)
            except pa.ArrowInvalid as error:
                raise InvalidInputError(
                    f"An ordering value does not fit {_WRAPPERS[branch].arrow}, the widest that a "
                    f"delete block holds: {error}"
                ) from error
    raise InvalidInputError(
        f"A column of type {arrow} cannot order deletes. Choose a number, a text, a date or a time"
    )


def _blank(arrow: pa.DataType) -> pa.Scalar:
    if pa.types.is_string(arrow):
        return pa.scalar("", arrow)
    if pa.types.is_binary(arrow):
        return pa.scalar(b"", arrow)
    return pa.scalar(0, pa.int32()).cast(arrow)


def _decode_alike(payload: bytes) -> DeleteRecords | None:
    """Decode records that have one partition and one wrapper; None if these have not."""
    try:
        count, first = read_long(payload, 0)
        if count == 0 and first == len(payload):
            empty = pa.array([], pa.string())
            return DeleteRecords(empty, empty, None)
        separator, partition, branch = _between_key_and_value(payload, first)
    except (IndexError, MalformedAvroError, UnicodeDecodeError):
        return None
    if branch != 0 and branch not in _WRAPPERS:
        return None
    parts = payload[first:].split(separator)
    if len(parts) != count + 1:
        return None
    try:
        return _decode_parts(parts, partition, branch)
    except MalformedAvroError:
        return None


def _between_key_and_value(payload: bytes, at: int) -> tuple[bytes, str, int]:
    """Return the bytes from the partition to the branch in the first record, and what they say."""
    _, start = _read_text(payload, at)
    partition, end = _read_text(payload, start)
    branch, end = read_long(payload, end)
    return payload[start:end], partition, branch


def _read_text(payload: bytes, at: int) -> tuple[str, int]:
    if payload[at : at + 1] != _STRING_BRANCH:
        raise MalformedAvroError("a text that is null")
    start, end = read_span(payload, at + 1)
    return payload[start:end].decode(), end


def _decode_parts(parts: list[bytes], partition: str, branch: int) -> DeleteRecords:
    """Decode parts that hold a value each, except the first, and a key each, except the last."""
    count = len(parts) - 1
    data = b"".join(parts)
    view = bytes_of(data)
    sizes = np.fromiter(map(len, parts), np.int64, len(parts))
    ends = np.cumsum(sizes)
    values, at = _read_values(view, data, ends[:-1].copy(), branch)
    last = int(at[-1])
    if last + 1 != len(data) or data[last] != 0:
        raise MalformedAvroError("bytes behind the last record")
    keys_at = np.concatenate([np.zeros(1, np.int64), at[:-1]])
    branches, keys_at = read_bytes(view, keys_at)
    lengths, starts = read_lengths(view, keys_at)
    if (branches != _STRING_BRANCH[0]).any() or (starts + lengths != ends[:-1]).any():
        raise MalformedAvroError("parts that are no records")
    keys = _as_text(take_spans(data, starts, lengths, np.ones(count, np.bool_)))
    return DeleteRecords(keys, _repeated(partition, count), values)


def _repeated(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)


def _as_text(spans: pa.Array) -> pa.Array:
    try:
        return spans.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise MalformedAvroError("text that is no UTF-8") from error


def _read_values(
    view: Bytes, data: bytes, at: Longs, branch: int
) -> tuple[tuple[pa.Array, ...] | None, Longs]:
    if branch == 0:
        return None, at
    wrapper = _WRAPPERS[branch]
    valid = np.ones(len(at), np.bool_)
    match wrapper.avro:
        case "int" | "long":
            longs, at = read_longs(view, at)
            return _wrapped_numbers(wrapper, longs), at
        case "boolean":
            found, at = read_bytes(view, at)
            return (pa.array(found == 1),), at
        case "float" | "double":
            width = wrapper.arrow.bit_width // 8
            matrix, at = read_fixed(view, at, width)
            return (pa.array(np.ascontiguousarray(matrix).view(f"<f{width}")[:, 0]),), at
        case _:
            lengths, starts = read_lengths(view, at)
            after = starts + lengths
            if wrapper.arrow == _DECIMAL:
                return (decimals_of(right_aligned(view, starts, lengths), valid, _DECIMAL),), after
            spans = take_spans(data, starts, lengths, valid)
            return (_as_text(spans) if wrapper.avro == "string" else spans,), after


def _wrapped_numbers(wrapper: _Wrapper, longs: Longs) -> tuple[pa.Array, ...] | None:
    if wrapper.avro == "long":
        return (pa.array(longs).view(wrapper.arrow),)
    ints = longs.astype(np.int32)
    if (ints != longs).any():
        raise MalformedAvroError("an int of more than 32 bits")
    if wrapper.name != "IntWrapper":
        return (pa.array(ints).view(wrapper.arrow),)
    is_default = ints == 0
    return None if is_default.all() else (pa.array(ints, mask=is_default),)


@cache
def _fastavro_schema() -> Any:
    def record(name: str, value: Any) -> dict[str, Any]:
        return {"type": "record", "name": name, "fields": [{"name": "value", "type": value}]}

    wrappers = [record(wrapper.name, wrapper.avro) for wrapper in _WRAPPERS.values()]
    items: list[Any] = ["null", *(wrapper.name for wrapper in _WRAPPERS.values())]
    items.append(record(_LOCAL_DATE.name, _LOCAL_DATE.avro))
    wrapped_values = {
        "name": "wrappedValues",
        "type": ["null", {"type": "array", "items": items}],
    }
    array = {"type": "record", "name": "ArrayWrapper", "fields": [wrapped_values]}
    fields = [
        {"name": "recordKey", "type": ["null", "string"]},
        {"name": "partitionPath", "type": ["null", "string"]},
        {"name": "orderingVal", "type": ["null", *wrappers, array]},
    ]
    deleted = {"type": "record", "name": "HoodieDeleteRecord", "fields": fields}
    listed = {"name": "deleteRecordList", "type": {"type": "array", "items": deleted}}
    whole = {"type": "record", "name": "HoodieDeleteRecordList", "fields": [listed]}
    return fastavro.parse_schema(whole)


def _decode_any(payload: memoryview) -> DeleteRecords:
    stream = BytesIO(payload)
    try:
        datum: Any = fastavro.schemaless_reader(
            stream, _fastavro_schema(), None, return_record_name=True
        )
    except DECODING_ERRORS as error:
        raise MalformedAvroError(f"delete records that do not decode: {error}") from error
    if stream.tell() != len(payload):
        raise MalformedAvroError("bytes behind the last delete record")
    records = datum["deleteRecordList"]
    keys = [record["recordKey"] for record in records]
    if None in keys:
        raise MalformedAvroError("a delete record without key")
    partitions = [record["partitionPath"] or "" for record in records]
    values = [_unwrapped(record["orderingVal"]) for record in records]
    return DeleteRecords(
        pa.array(keys, pa.string()), pa.array(partitions, pa.string()), _columns_of(values)
    )


class _Value(NamedTuple):
    wrapper: _Wrapper
    value: Any


def _unwrapped(found: Any) -> tuple[_Value | None, ...] | None:
    """Return the values of one record, or None for a commit-time delete."""
    if found is None:
        return None
    name, fields = found
    if name == "ArrayWrapper":
        items = fields["wrappedValues"]
        return None if items is None else tuple(map(_item, items))
    if name == "IntWrapper" and fields["value"] == 0:
        return None
    return (_item(found),)


def _item(found: Any) -> _Value | None:
    return None if found is None else _Value(_BY_NAME[found[0]], found[1]["value"])


def _columns_of(values: list[tuple[_Value | None, ...] | None]) -> tuple[pa.Array, ...] | None:
    widths = {len(row) for row in values if row is not None}
    if not widths:
        return None
    if len(widths) > 1:
        raise MalformedAvroError("delete records with different numbers of ordering values")
    columns = ([None if row is None else row[at] for row in values] for at in range(widths.pop()))
    return tuple(map(_column_of, columns))


def _column_of(values: list[_Value | None]) -> pa.Array:
    arrow = _common_type({value.wrapper.arrow for value in values if value is not None})
    if arrow == _DECIMAL:
        return _decimals([b"" if value is None else value.value for value in values])
    try:
        return pa.array([None if value is None else value.value for value in values], arrow)
    except (pa.ArrowInvalid, OverflowError) as error:
        raise MalformedAvroError(
            f"an ordering value that its type does not have: {error}"
        ) from error


def _decimals(values: list[bytes]) -> pa.Array:
    """Return decimals from their bytes; no bytes are null."""
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    valid = lengths > 0
    starts = np.cumsum(lengths) - lengths
    matrix = right_aligned(bytes_of(b"".join(values)), starts[valid], lengths[valid])
    return decimals_of(matrix, valid, _DECIMAL)


def _common_type(types: set[pa.DataType]) -> pa.DataType:
    if len(types) <= 1:
        return next(iter(types), pa.null())
    # A column that widened while its deletes waited.
    if types <= {pa.int32(), pa.int64()}:
        return pa.int64()
    if types <= {pa.int32(), pa.int64(), pa.float32(), pa.float64()}:
        return pa.float64()
    raise MalformedAvroError("ordering values of types that do not compare")
