"""Types of SQL and those of Arrow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

import pyarrow as pa
from sqlglot import exp

from headwater.expressions.casts import can_cast
from headwater.expressions.coercion import DECIMAL_PRECISION_MAX, is_number
from headwater.expressions.parse import Tree

_SIZE = re.compile(r"\d{1,3}", re.ASCII)
_TYPES: Mapping[exp.DType, pa.DataType] = MappingProxyType(
    {
        exp.DType.BOOLEAN: pa.bool_(),
        exp.DType.TINYINT: pa.int8(),
        exp.DType.SMALLINT: pa.int16(),
        exp.DType.INT: pa.int32(),
        exp.DType.BIGINT: pa.int64(),
        exp.DType.FLOAT: pa.float32(),
        exp.DType.DOUBLE: pa.float64(),
        exp.DType.TEXT: pa.string(),
        exp.DType.BINARY: pa.binary(),
        exp.DType.DATE: pa.date32(),
        exp.DType.TIMESTAMP: pa.timestamp("us", "UTC"),
        exp.DType.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
        exp.DType.TIMESTAMPLTZ: pa.timestamp("us", "UTC"),
        exp.DType.TIMESTAMPNTZ: pa.timestamp("us"),
    }
)


def type_of(tree: Tree) -> pa.DataType | None:
    """Return the Arrow type of one that SQL names; None if there is none."""
    kind = tree.this
    if kind is exp.DType.DECIMAL:
        names = [each.name for each in tree.expressions] or ["10"]
        if not all(_SIZE.fullmatch(name) for name in names):
            return None
        numbers = [int(name) for name in names]
        precision, scale = (*numbers, 0)[:2]
        fits = 0 < precision <= DECIMAL_PRECISION_MAX and 0 <= scale <= precision
        return pa.decimal128(precision, scale) if fits else None
    return _TYPES.get(kind)


def evaluated_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which values of a column are evaluated."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    return kind


def is_assignable(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a column of a type takes values of another: never text for something else."""
    if source == target or pa.types.is_null(source):
        return True
    if is_number(source) and is_number(target):
        return can_cast(source, target)
    if pa.types.is_nested(source) and pa.types.is_nested(target):
        return bool(_of_one_width(source) == _of_one_width(target))
    if pa.types.is_binary(source):
        return bool(pa.types.is_fixed_size_binary(target))
    is_time = pa.types.is_date(source) or pa.types.is_timestamp(source)
    return bool(is_time and (pa.types.is_date(target) or pa.types.is_timestamp(target)))


def _of_one_width(kind: pa.DataType) -> pa.DataType:
    """Return a type with its times in microseconds and its bytes of any number."""

    def of(field: pa.Field) -> pa.Field:
        return field.with_type(_of_one_width(field.type))

    if pa.types.is_struct(kind):
        return pa.struct([of(field) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(of(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(of(kind.key_field), of(kind.item_field))
    return pa.binary() if pa.types.is_fixed_size_binary(kind) else evaluated_type(kind)
