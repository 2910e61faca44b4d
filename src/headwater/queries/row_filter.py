"""Conditions on the columns of a table: which are exact, and which rows satisfy them.

Answers are those of Spark, or there are none. A literal of another type than its column makes a
condition only where the two are compared exactly:

| column | literals |
|---|---|
| integer | integers and decimals within 64 bits, compared as exact numbers |
| decimal | integers and decimals, compared as exact numbers |
| float, double | all numbers, compared as doubles; NaN is larger than any number |
| string | text, compared by bytes |
| boolean | TRUE, FALSE |
| date | dates |
| timestamp | moments; the expression of a filter has given zone-less ones their zone |
| timestamp without zone | timestamps without a zone |
| any | IS NULL, IS NOT NULL |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headwater.expressions.evaluate import satisfying_rows
from headwater.queries.predicate import Comparison, Condition, Literal, Predicate

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)

_FLOAT_INTEGER_MAX = 2**24
"""Up to here a float holds every integer; beyond, engines round differently."""

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_EXACT_DIGITS = 76

_COMPARE: Mapping[Comparison, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        Comparison.EQUAL: pc.equal,
        Comparison.NOT_EQUAL: pc.not_equal,
        Comparison.LESS: pc.less,
        Comparison.LESS_EQUAL: pc.less_equal,
        Comparison.GREATER: pc.greater,
        Comparison.GREATER_EQUAL: pc.greater_equal,
    }
)


def bind_predicate(predicate: Predicate, schema: pa.Schema) -> Predicate:
    """Return a predicate with the names of the columns and literals that fit their types.

    Names are found whatever their case, as Spark does. What does not fit is left out.
    """
    bound = (bind_condition(condition, schema) for condition in predicate.conditions)
    branches = (
        tuple(bind_predicate(branch, schema) for branch in each) for each in predicate.alternatives
    )
    return Predicate(
        tuple(condition for condition in bound if condition is not None),
        tuple(each for each in branches if all(branch.is_known for branch in each)),
        predicate.expression,
    )


def bind_condition(condition: Condition, schema: pa.Schema) -> Condition | None:
    """Return a condition bound to its column; None if values are not compared exactly."""
    field = find_column(condition.column, schema)
    if field is None:
        return None
    literals = [_fitting(literal, field.type) for literal in condition.literals]
    known = tuple(literal for literal in literals if literal is not None)
    if len(known) != len(literals):
        return None
    return replace(condition, column=field.name, literals=known)


def filter_rows(rows: Rows, where: Predicate | pc.Expression | None) -> Rows:
    """Return the rows that satisfy a predicate which is bound to their columns."""
    if where is None:
        return rows
    if isinstance(where, pc.Expression):
        return rows.filter(where)
    if where.expression is not None:
        return satisfying_rows(rows, where.expression)
    mask = matching_rows(rows, where.conditions)
    return rows if mask is None else rows.filter(mask)


def matching_rows(rows: Rows, conditions: Iterable[Condition]) -> pa.Array | None:
    """Return for each row whether all conditions hold, null for unknown; None without any."""
    mask = None
    for condition in conditions:
        holds = matching_values(rows.column(condition.column), condition)
        mask = holds if mask is None else pc.and_kleene(mask, holds)
    return mask


def matching_values(column: pa.Array | pa.ChunkedArray, condition: Condition) -> pa.Array:
    """Return for each value of a column whether a condition on it holds."""
    comparison = condition.comparison
    if comparison is Comparison.IS_NULL:
        return pc.is_null(column)
    if comparison is Comparison.IS_NOT_NULL:
        return pc.is_valid(column)
    kind = _common_type(column.type, condition.literals)
    values = column if column.type == kind else pc.cast(column, kind)
    literals = [pa.scalar(literal, kind) for literal in condition.literals]
    if comparison is Comparison.IN:
        if pa.types.is_floating(kind):
            # The look-up goes by bits, and so finds 0.0 and -0.0 to be different.
            values = pc.add(values, 0.0)
            literals = [pc.add(literal, 0.0) for literal in literals]
        return pc.is_in(values, value_set=pa.array(literals, kind))
    if comparison is Comparison.BETWEEN:
        low, high = literals
        return pc.and_kleene(pc.greater_equal(values, low), pc.less_equal(values, high))
    holds = _COMPARE[comparison](values, literals[0])
    if comparison in (Comparison.GREATER, Comparison.GREATER_EQUAL) and pa.types.is_floating(kind):
        return pc.or_(holds, pc.is_nan(values))
    return holds


def find_column(name: str, schema: pa.Schema) -> pa.Field | None:
    """Return the column that SQL means by a name, None if there is none or there are several."""
    if schema.names.count(name) == 1:
        return schema.field(name)
    folded = [field for field in schema if field.name.casefold() == name.casefold()]
    return folded[0] if len(folded) == 1 else None


def _fitting(literal: Literal, kind: pa.DataType) -> Literal | None:
    """Return a literal as values of the type are compared with it; None if that is not exact."""
    if isinstance(literal, bool):
        return literal if pa.types.is_boolean(kind) else None
    if isinstance(literal, datetime):
        return _fitting_timestamp(literal, kind)
    if isinstance(literal, date):
        return literal if pa.types.is_date32(kind) else None
    if isinstance(literal, str):
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        return literal if is_text else None
    if pa.types.is_floating(kind):
        return _fitting_double(literal, kind)
    if isinstance(literal, float):
        return None
    # Spark finds nulls of an integer column to be less than numbers that no integer can be.
    is_integer = pa.types.is_integer(kind) and _INT64_MIN <= literal <= _INT64_MAX
    return literal if is_integer or pa.types.is_decimal(kind) else None


def _fitting_timestamp(literal: datetime, kind: pa.DataType) -> datetime | None:
    if not pa.types.is_timestamp(kind):
        return None
    if kind.tz is None:
        return literal if literal.tzinfo is None else None
    return None if literal.tzinfo is None else literal


def _fitting_double(literal: int | float | Decimal, kind: pa.DataType) -> float | None:
    is_rounded = isinstance(literal, int) and abs(literal) > _FLOAT_INTEGER_MAX
    if is_rounded and not pa.types.is_float64(kind):
        return None
    number = float(literal)
    return number if math.isfinite(number) else None


def _common_type(kind: pa.DataType, literals: tuple[Literal, ...]) -> pa.DataType:
    """Return the type in which a column and its literals are compared."""
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_integer(kind) and all(isinstance(literal, int) for literal in literals):
        return pa.int64()
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        scales = [_scale(literal) for literal in literals]
        own = kind.scale if pa.types.is_decimal(kind) else 0
        return pa.decimal256(_EXACT_DIGITS, max([own, *scales]))
    return kind


def _scale(literal: Literal) -> int:
    if not isinstance(literal, Decimal):
        return 0
    exponent = literal.as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0
