"""Smallest and largest values of columns, as column statistics hold them (format rule 8.4).

A value is one branch of a union, whatever the type of its column, so a column of them is a struct
of the branch and of three places, one of which has the value: `number` for everything that counts,
`real` for floating-point numbers, `content` for texts and byte sequences. What the number or the
bytes mean, the value type beside them says; table version 8 has more branches and no value types.

NaN is the largest value, as in Spark. A bound that is NaN, or that cannot be told in the type asked
for, comes back as null: unknown, never wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum, unique
from struct import Struct
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import InvalidInputError
from headwater.format.avro.binary import MalformedAvroError, append_long
from headwater.format.avro.rows import RowReader
from headwater.format.avro.vectors import (
    Mask,
    bytes_of,
    data_of,
    decimals_of,
    piece_lengths,
    pieces_of,
    right_aligned,
    varint_matrix,
    without_nulls,
)
from headwater.format.metadata.schema import Wrapper

WRAPPED = pa.struct(
    [
        pa.field("branch", pa.int8(), nullable=False),
        pa.field("number", pa.int64()),
        pa.field("real", pa.float64()),
        pa.field("content", pa.binary()),
    ]
)

_COUNTED = (
    Wrapper.INT,
    Wrapper.LONG,
    Wrapper.DATE,
    Wrapper.TIME_MICROS,
    Wrapper.TIMESTAMP_MICROS,
    Wrapper.LOCAL_DATE,
)
NUMBER_BRANCHES = (Wrapper.BOOLEAN, *_COUNTED)
REAL_BRANCHES = (Wrapper.FLOAT, Wrapper.DOUBLE)
CONTENT_BRANCHES = (Wrapper.BYTES, Wrapper.STRING, Wrapper.DECIMAL)

RawBound: TypeAlias = bool | int | float | bytes
"""A bound as Parquet stores it: a number for dates and times, the unscaled one for decimals, the
bytes of texts."""

_FLOAT = Struct("<f")
_DOUBLE = Struct("<d")
_BRANCH_BITS = 6
_V8_DECIMAL = pa.decimal128(30, 15)
_DECIMAL_PRECISION_MAX = 38
_WIDE_DECIMAL = pa.decimal128(_DECIMAL_PRECISION_MAX, 0)
"""Holds any whole number, whereas a narrower type would be refused for what it might not hold."""


@unique
class ValueType(IntEnum):
    """What the values of a column are, since table version 9."""

    V1 = 0
    NULL = 1
    BOOLEAN = 2
    INT = 3
    LONG = 4
    FLOAT = 5
    DOUBLE = 6
    STRING = 7
    BYTES = 8
    FIXED = 9
    DECIMAL = 10
    UUID = 11
    DATE = 12
    TIME_MILLIS = 13
    TIME_MICROS = 14
    TIMESTAMP_MILLIS = 15
    TIMESTAMP_MICROS = 16
    TIMESTAMP_NANOS = 17
    LOCAL_TIMESTAMP_MILLIS = 18
    LOCAL_TIMESTAMP_MICROS = 19
    LOCAL_TIMESTAMP_NANOS = 20


class ValueKind(NamedTuple):
    """How values of an Arrow type are kept: branch, value type, and what the type alone omits."""

    wrapper: Wrapper
    value_type: ValueType
    info: str | None = None


_TIMESTAMPS: Mapping[str, tuple[ValueType, ValueType]] = MappingProxyType(
    {
        "ms": (ValueType.TIMESTAMP_MILLIS, ValueType.LOCAL_TIMESTAMP_MILLIS),
        "us": (ValueType.TIMESTAMP_MICROS, ValueType.LOCAL_TIMESTAMP_MICROS),
        "ns": (ValueType.TIMESTAMP_NANOS, ValueType.LOCAL_TIMESTAMP_NANOS),
    }
)
_ARROW_TYPES: Mapping[ValueType, pa.DataType] = MappingProxyType(
    {
        ValueType.BOOLEAN: pa.bool_(),
        ValueType.INT: pa.int32(),
        ValueType.LONG: pa.int64(),
        ValueType.FLOAT: pa.float32(),
        ValueType.DOUBLE: pa.float64(),
        ValueType.STRING: pa.string(),
        ValueType.BYTES: pa.binary(),
        ValueType.FIXED: pa.binary(),
        ValueType.UUID: pa.string(),
        ValueType.DATE: pa.date32(),
        ValueType.TIME_MILLIS: pa.time32("ms"),
        ValueType.TIME_MICROS: pa.time64("us"),
        ValueType.TIMESTAMP_MILLIS: pa.timestamp("ms", "UTC"),
        ValueType.TIMESTAMP_MICROS: pa.timestamp("us", "UTC"),
        ValueType.TIMESTAMP_NANOS: pa.timestamp("ns", "UTC"),
        ValueType.LOCAL_TIMESTAMP_MILLIS: pa.timestamp("ms"),
        ValueType.LOCAL_TIMESTAMP_MICROS: pa.timestamp("us"),
        ValueType.LOCAL_TIMESTAMP_NANOS: pa.timestamp("ns"),
    }
)
# Without a value type the branch is all there is. A long may be a number or a time, so it is
# neither told nor compared as a time.
_V8_ARROW_TYPES: Mapping[Wrapper, pa.DataType] = MappingProxyType(
    {
        Wrapper.BOOLEAN: pa.bool_(),
        Wrapper.INT: pa.int32(),
        Wrapper.LONG: pa.int64(),
        Wrapper.FLOAT: pa.float32(),
        Wrapper.DOUBLE: pa.float64(),
        Wrapper.BYTES: pa.binary(),
        Wrapper.STRING: pa.string(),
        Wrapper.DATE: pa.date32(),
        Wrapper.DECIMAL: _V8_DECIMAL,
        Wrapper.TIME_MICROS: pa.time64("us"),
        Wrapper.TIMESTAMP_MICROS: pa.timestamp("us", "UTC"),
        Wrapper.LOCAL_DATE: pa.date32(),
    }
)


def value_kind(arrow: pa.DataType) -> ValueKind:
    """Return how values of a type are kept.

    Raises:
        InvalidInputError: such columns have no statistics.
    """
    types = pa.types
    if types.is_dictionary(arrow):
        return value_kind(arrow.value_type)
    if types.is_decimal(arrow) and arrow.precision <= _DECIMAL_PRECISION_MAX:
        return ValueKind(Wrapper.BYTES, ValueType.DECIMAL, f"{arrow.precision},{arrow.scale}")
    if types.is_timestamp(arrow) and arrow.unit in _TIMESTAMPS:
        in_utc, local = _TIMESTAMPS[arrow.unit]
        return ValueKind(Wrapper.LONG, local if arrow.tz is None else in_utc)
    for claim, kind in _VALUE_KINDS:
        if claim(arrow):
            return kind
    raise InvalidInputError(f"Columns of type {arrow} have no statistics. Leave them out")


def unwrap_values(
    wrapped: pa.StructArray, value_types: pa.Int32Array, infos: pa.StringArray, arrow: pa.DataType
) -> pa.Array:
    """Return bounds in the type that their column has now; null where they are not known.

    A column may have been widened since: the numbers of a narrower type are told as they are.
    """
    branches = np.asarray(wrapped.field("branch")).astype(np.int64)
    kinds = np.asarray(value_types.fill_null(ValueType.V1)).astype(np.int64)
    out = pa.nulls(len(wrapped), arrow)
    codes = kinds << _BRANCH_BITS | branches
    for code in np.unique(codes).tolist():
        kind, branch = divmod(code, 1 << _BRANCH_BITS)
        is_alike = codes == code
        if kind == ValueType.DECIMAL and branch == Wrapper.BYTES:
            for info in pc.unique(infos.filter(pa.array(is_alike))).to_pylist():
                is_scaled = is_alike & np.asarray(pc.equal(infos, info).fill_null(False))
                out = _put(out, is_scaled, _decimals(wrapped, is_scaled, info), arrow)
            continue
        own = _own_type(Wrapper(branch), kind)
        if own is not None:
            out = _put(out, is_alike, _typed(wrapped, is_alike, Wrapper(branch), own), arrow)
    return out


def append_bound(kind: ValueKind, bound: RawBound | None, out: bytearray) -> None:
    """Append one bound as a branch of the union."""
    if bound is None:
        out.append(Wrapper.NULL)
        return
    out.append(kind.wrapper << 1)
    if isinstance(bound, bytes):
        append_long(len(bound), out)
        out += bound
        return
    if kind.wrapper in REAL_BRANCHES:
        out += (_FLOAT if kind.wrapper is Wrapper.FLOAT else _DOUBLE).pack(bound)
        return
    number = int(bound)
    if kind.wrapper is Wrapper.BYTES:
        # A decimal: the fewest bytes of a two's complement that has room for the sign.
        size = (number if number >= 0 else ~number).bit_length() // 8 + 1
        append_long(size, out)
        out += number.to_bytes(size, signed=True)
    elif kind.wrapper is Wrapper.BOOLEAN:
        out.append(number)
    else:
        append_long(number, out)


def encode_wrapped(wrapped: pa.StructArray) -> list[pa.Array]:
    """Return the pieces of a union for all rows."""
    branches = np.asarray(wrapped.field("branch")).astype(np.int64)
    pieces = [pieces_of((branches << 1).astype(np.uint8).reshape(len(branches), 1))]
    present = set(np.unique(branches).tolist())
    numbers = np.asarray(without_nulls(wrapped.field("number"), 0))
    reals = np.asarray(without_nulls(wrapped.field("real"), 0))
    if Wrapper.BOOLEAN in present:
        matrix = numbers.astype(np.uint8).reshape(len(numbers), 1)
        pieces.append(pieces_of(matrix, (branches == Wrapper.BOOLEAN).astype(np.int64)))
    if present & set(_COUNTED):
        is_counted = np.isin(branches, _COUNTED)
        matrix, lengths = varint_matrix(np.where(is_counted, numbers, 0))
        pieces.append(pieces_of(matrix, np.where(is_counted, lengths, 0)))
    for branch, dtype in ((Wrapper.FLOAT, "<f4"), (Wrapper.DOUBLE, "<f8")):
        if branch in present:
            pieces.append(_real_pieces(reals, branches == branch, dtype))
    if present & set(CONTENT_BRANCHES):
        has_content = np.isin(branches, CONTENT_BRANCHES)
        content = pc.if_else(pa.array(has_content), wrapped.field("content"), None)
        matrix, lengths = varint_matrix(piece_lengths(content))
        pieces += [pieces_of(matrix, np.where(has_content, lengths, 0)), content]
    return pieces


def read_wrapped(reader: RowReader) -> pa.StructArray:
    """Read a union from all rows.

    Raises:
        MalformedAvroError: a branch is unknown, or an array, which no column has.
    """
    branches = reader.branches()
    count = len(branches)
    number, real = np.zeros(count, np.int64), np.zeros(count, np.float64)
    if (branches >= Wrapper.ARRAY).any():
        raise MalformedAvroError("a bound of a type that columns do not have")
    # Whatever the order of branches, each row is read once.
    rows = np.flatnonzero(branches == Wrapper.BOOLEAN)
    number[rows] = reader.bytes(rows)
    rows = np.flatnonzero(np.isin(branches, _COUNTED))
    number[rows] = reader.longs(rows)
    for branch, size in ((Wrapper.FLOAT, 4), (Wrapper.DOUBLE, 8)):
        rows = np.flatnonzero(branches == branch)
        if len(rows):
            matrix = np.ascontiguousarray(reader.fixed(size, rows))
            real[rows] = matrix.view(f"<f{size}")[:, 0]
    content = reader.spans(np.isin(branches, CONTENT_BRANCHES))
    return wrapped_of(
        pa.array(branches.astype(np.int8)),
        pa.array(number, mask=~np.isin(branches, NUMBER_BRANCHES)),
        pa.array(real, mask=~np.isin(branches, REAL_BRANCHES), from_pandas=False),
        content,
    )


def wrapped_of(
    branch: pa.Array, number: pa.Array, real: pa.Array, content: pa.Array
) -> pa.StructArray:
    return pa.StructArray.from_arrays([branch, number, real, content], fields=list(WRAPPED))


def decimals_of_content(content: pa.BinaryArray, scale: int) -> pa.Array:
    """Return the decimals of two's complements; null stays null.

    Raises:
        MalformedAvroError: a number is empty or has more than 16 bytes.
    """
    valid = np.asarray(content.is_valid())
    present = content.drop_null().cast(pa.large_binary())
    lengths = piece_lengths(present)
    matrix = right_aligned(bytes_of(data_of(present)), np.cumsum(lengths) - lengths, lengths)
    return decimals_of(matrix, valid, pa.decimal128(_DECIMAL_PRECISION_MAX, scale))


def scale_of(info: str | None) -> int:
    """Return the scale in the text `precision,scale`.

    Raises:
        MalformedAvroError: it is no such text.
    """
    try:
        _, scale = (info or "").split(",")
        return int(scale)
    except ValueError as error:
        raise MalformedAvroError(f"a decimal of precision and scale {info!r}") from error


def _real_pieces(reals: npt.NDArray[np.float64], mask: Mask, dtype: str) -> pa.Array:
    size = np.dtype(dtype).itemsize
    matrix = np.where(mask, reals, 0).astype(dtype).view(np.uint8).reshape(len(reals), size)
    return pieces_of(matrix, np.where(mask, size, 0))


def _own_type(branch: Wrapper, value_type: int) -> pa.DataType | None:
    """Return the type that a bound was written with, None if it is unknown."""
    if value_type == ValueType.V1:
        return _V8_ARROW_TYPES.get(branch)
    if value_type not in tuple(ValueType):
        return None
    own = _ARROW_TYPES.get(ValueType(value_type))
    # A branch that does not go with the value type is a bound that we do not understand.
    return own if own is not None and value_kind(own).wrapper is branch else None


def _typed(wrapped: pa.StructArray, mask: Mask, branch: Wrapper, own: pa.DataType) -> pa.Array:
    rows = wrapped.filter(pa.array(mask))
    if own == _V8_DECIMAL:
        return decimals_of_content(rows.field("content"), _V8_DECIMAL.scale)
    if branch in REAL_BRANCHES:
        real = rows.field("real")
        return pc.if_else(pc.is_nan(real), None, real)
    if branch in CONTENT_BRANCHES:
        return rows.field("content").cast(own)
    number = rows.field("number")
    if pa.types.is_date32(own) or pa.types.is_time32(own):
        return number.cast(pa.int32()).view(own)
    if pa.types.is_boolean(own) or pa.types.is_integer(own):
        return number.cast(own)
    return number.view(own)


def _decimals(wrapped: pa.StructArray, mask: Mask, info: str | None) -> pa.Array:
    return decimals_of_content(wrapped.field("content").filter(pa.array(mask)), scale_of(info))


def _put(out: pa.Array, mask: Mask, found: pa.Array, arrow: pa.DataType) -> pa.Array:
    """Put what was found into its rows, in the type that was asked for if it can be told in it."""
    if not _tells(found.type, arrow):
        return out
    try:
        if pa.types.is_integer(found.type) and pa.types.is_decimal(arrow):
            found = found.cast(_WIDE_DECIMAL)
        typed = found.cast(arrow)
    except pa.ArrowInvalid:
        # Some value does not fit. Then none is told, which is rare enough.
        return out
    return typed if mask.all() else pc.replace_with_mask(out, pa.array(mask), typed)


def _tells(own: pa.DataType, arrow: pa.DataType) -> bool:
    """Whether values of a type keep their order, and their meaning, in another one."""
    family = _family(own)
    if family != _family(arrow):
        # Whole numbers may become any numbers.
        return family == "whole" and _family(arrow) in ("real", "decimal")
    return family is not None or own == arrow


def _family(arrow: pa.DataType) -> str | None:
    """Return a name for types among which columns are widened."""
    types = pa.types
    families: Mapping[str, Callable[[pa.DataType], bool]] = {
        "whole": types.is_integer,
        "real": types.is_floating,
        "decimal": types.is_decimal,
        "time": types.is_time,
        "text": _is_text,
        "bytes": _is_bytes,
        "local timestamp": lambda each: types.is_timestamp(each) and each.tz is None,
        "timestamp": types.is_timestamp,
    }
    return next((name for name, claim in families.items() if claim(arrow)), None)


def _is_text(arrow: pa.DataType) -> bool:
    types = pa.types
    claims = (types.is_string, types.is_large_string, types.is_string_view)
    return any(claim(arrow) for claim in claims)


def _is_bytes(arrow: pa.DataType) -> bool:
    types = pa.types
    claims = (
        types.is_binary,
        types.is_large_binary,
        types.is_fixed_size_binary,
        types.is_binary_view,
    )
    return any(claim(arrow) for claim in claims)


_VALUE_KINDS: Sequence[tuple[Callable[[pa.DataType], bool], ValueKind]] = (
    (pa.types.is_null, ValueKind(Wrapper.NULL, ValueType.NULL)),
    (pa.types.is_boolean, ValueKind(Wrapper.BOOLEAN, ValueType.BOOLEAN)),
    (pa.types.is_int8, ValueKind(Wrapper.INT, ValueType.INT)),
    (pa.types.is_int16, ValueKind(Wrapper.INT, ValueType.INT)),
    (pa.types.is_int32, ValueKind(Wrapper.INT, ValueType.INT)),
    (pa.types.is_int64, ValueKind(Wrapper.LONG, ValueType.LONG)),
    (pa.types.is_float32, ValueKind(Wrapper.FLOAT, ValueType.FLOAT)),
    (pa.types.is_float64, ValueKind(Wrapper.DOUBLE, ValueType.DOUBLE)),
    (_is_text, ValueKind(Wrapper.STRING, ValueType.STRING)),
    (pa.types.is_fixed_size_binary, ValueKind(Wrapper.BYTES, ValueType.FIXED)),
    (_is_bytes, ValueKind(Wrapper.BYTES, ValueType.BYTES)),
    (pa.types.is_date32, ValueKind(Wrapper.INT, ValueType.DATE)),
    (pa.types.is_time32, ValueKind(Wrapper.INT, ValueType.TIME_MILLIS)),
    (pa.types.is_time64, ValueKind(Wrapper.LONG, ValueType.TIME_MICROS)),
)
"""Types that tables store, as `parse_avro_schema` gives them; decimals and timestamps apart."""
