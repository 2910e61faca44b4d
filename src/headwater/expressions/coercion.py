"""Which types go together, by the rules of Spark 4: those of the SQL standard (ANSI mode).

integers                  the wider one
integer, decimal          a decimal that holds both
float or double, number   double; two floats stay floats
text, integer             a 64-bit integer
text, other number        double
text, anything else       that
date, timestamp           timestamp, at the beginning of the day
null, anything            that
"""

from __future__ import annotations

import pyarrow as pa

from headwater.expressions.nodes import Literal, Node

DECIMAL_PRECISION_MAX = 38

_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_INTEGER_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def common_type(left: Node, right: Node) -> pa.DataType | None:
    """Return the type in which two values meet; None if there is none."""
    one, other = left.type, right.type
    if one == other:
        return one
    if pa.types.is_null(one) or pa.types.is_null(other):
        return other if pa.types.is_null(one) else one
    if is_number(one) and is_number(other):
        return _common_number(left, right)
    if is_text(one) or is_text(other):
        return _common_with_text(other if is_text(one) else one)
    return _common_time(one, other)


def decimal_for(node: Node) -> pa.DataType:
    """Return the decimal type that an integer or a decimal is taken for."""
    if pa.types.is_decimal(node.type):
        return node.type
    if isinstance(node, Literal) and isinstance(node.value, int):
        return pa.decimal128(max(1, len(str(abs(node.value)))), 0)
    return pa.decimal128(_INTEGER_DIGITS[node.type], 0)


def _common_number(left: Node, right: Node) -> pa.DataType:
    one, other = left.type, right.type
    if pa.types.is_floating(one) or pa.types.is_floating(other):
        return pa.float64()
    if one in _INTEGERS and other in _INTEGERS:
        return _INTEGERS[max(_INTEGERS.index(one), _INTEGERS.index(other))]
    one, other = decimal_for(left), decimal_for(right)
    scale = max(one.scale, other.scale)
    whole = max(one.precision - one.scale, other.precision - other.scale)
    if whole + scale <= DECIMAL_PRECISION_MAX:
        return pa.decimal128(whole + scale, scale)
    return pa.decimal256(whole + scale, scale)


def _common_with_text(other: pa.DataType) -> pa.DataType | None:
    if pa.types.is_integer(other):
        return pa.int64()
    if is_number(other):
        return pa.float64()
    if is_text(other):
        return pa.string()
    is_atomic = (
        pa.types.is_boolean(other)
        or pa.types.is_date(other)
        or pa.types.is_timestamp(other)
        or pa.types.is_binary(other)
    )
    return other if is_atomic else None


def _common_time(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    times = [kind for kind in (one, other) if pa.types.is_timestamp(kind)]
    if not times or not all(
        pa.types.is_timestamp(kind) or pa.types.is_date(kind) for kind in (one, other)
    ):
        return None
    zoned = [kind for kind in times if kind.tz is not None]
    return pa.timestamp("us", "UTC" if zoned else None)
