"""Evaluating expressions on Arrow rows, with the answers of Spark.

- Logic has three values; rows for which a condition is unknown do not satisfy it.
- NaN equals itself and is larger than every number; 0.0 equals -0.0.
- What fails, such as a division by zero, fails only for rows that need it: the right side of AND
  is evaluated where the left one is not false, a branch of CASE where its condition holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import InvalidInputError, check
from headwater.expressions.casts import cast_values, may_fail, try_cast_values
from headwater.expressions.container_values import (
    CONTAINER_CALLS,
    ELEMENTS,
    call_on_containers,
)
from headwater.expressions.nodes import Call, Cast, Column, Function, Literal, Node, conjuncts_of

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)
AnyRows: TypeAlias = pa.RecordBatch | pa.Table

_SUNDAY = 7

_COMPARE: Mapping[Function, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        Function.EQUAL: pc.equal,
        Function.NOT_EQUAL: pc.not_equal,
        Function.LESS: pc.less,
        Function.LESS_EQUAL: pc.less_equal,
        Function.GREATER: pc.greater,
        Function.GREATER_EQUAL: pc.greater_equal,
    }
)
_ARITHMETIC: Mapping[Function, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        Function.ADD: pc.add_checked,
        Function.SUBTRACT: pc.subtract_checked,
        Function.MULTIPLY: pc.multiply_checked,
        Function.DIVIDE: pc.divide,
    }
)
_OF_ONE: Mapping[Function, Callable[[Any], Any]] = MappingProxyType(
    {
        Function.NOT: pc.invert,
        Function.IS_NULL: pc.is_null,
        Function.NEGATE: pc.negate_checked,
        Function.ABSOLUTE: pc.abs_checked,
        Function.UPPER: pc.utf8_upper,
        Function.LOWER: pc.utf8_lower,
        Function.LENGTH: pc.utf8_length,
        Function.IS_NAN: lambda values: pc.fill_null(pc.is_nan(values), False),
        Function.YEAR: pc.year,
        Function.QUARTER: pc.quarter,
        Function.MONTH: pc.month,
        Function.DAY: pc.day,
        Function.DAY_OF_WEEK: lambda days: pc.day_of_week(
            days, count_from_zero=False, week_start=_SUNDAY
        ),
        Function.DAY_OF_YEAR: pc.day_of_year,
        Function.HOUR: pc.hour,
        Function.MINUTE: pc.minute,
        Function.SECOND: pc.second,
    }
)
_OF_TEXT: Mapping[Function, Callable[..., Any]] = MappingProxyType(
    {
        Function.STARTS_WITH: pc.starts_with,
        Function.ENDS_WITH: pc.ends_with,
        Function.CONTAINS: pc.match_substring,
    }
)
_FAILING = frozenset(
    {
        Function.ADD,
        Function.SUBTRACT,
        Function.MULTIPLY,
        Function.DIVIDE,
        Function.REMAINDER,
        Function.NEGATE,
        Function.ABSOLUTE,
        Function.ADD_DAYS,
    }
)


def satisfying_rows(rows: Rows, condition: Node) -> Rows:
    """Return the rows for which a condition is true.

    Raises:
        InvalidInputError: a value cannot be cast, or a number is out of range.
    """
    # One conjunct after the other: what comes later sees fewer rows.
    for conjunct in conjuncts_of(condition):
        if rows.num_rows == 0:
            break
        rows = rows.filter(evaluate(conjunct, rows))
    return rows


def evaluate(node: Node, rows: AnyRows) -> pa.Array:
    """Return the value of an expression for each row, of the expression's type.

    Raises: as `satisfying_rows`.
    """
    match node:
        case Column():
            return _column(node, rows)
        case Literal():
            return pa.repeat(pa.scalar(node.value, node.type), rows.num_rows)
        case Cast():
            convert = try_cast_values if node.is_try else cast_values
            return convert(evaluate(node.operand, rows), node.type, node.zone)
        case Call():
            return _call(node, rows)
        case _:
            assert_never(node)


def may_raise(node: Node) -> bool:
    """Whether an expression fails on some rows."""
    if isinstance(node, Cast) and not node.is_try and may_fail(node.operand.type, node.type):
        return True
    if isinstance(node, Call):
        if node.function in (Function.DIVIDE, Function.REMAINDER, *ELEMENTS):
            return True
        if node.function in _FAILING and not pa.types.is_floating(node.type):
            return True
    return any(may_raise(operand) for operand in node.operands)


def _column(node: Column, rows: AnyRows) -> pa.Array:
    values = _whole(rows.column(node.path[0]))
    if len(node.path) > 1:
        for name in node.path[1:]:
            values = pc.struct_field(values, name)
    return values if values.type == node.type else values.cast(node.type)


def _call(node: Call, rows: AnyRows) -> pa.Array:
    function = node.function
    if function in (Function.AND, Function.OR):
        return _logic(node, rows)
    if function is Function.CASE:
        return _case(node, rows)
    if function is Function.COALESCE:
        return _coalesce(node, rows)
    first = evaluate(node.operands[0], rows)
    if function in CONTAINER_CALLS:
        return call_on_containers(node, first)
    if function is Function.SUBSTRING:
        start, stop = (each.value for each in node.operands[1:])  # type: ignore[union-attr]
        return pc.utf8_slice_codeunits(first, start=start, stop=stop)
    if function is Function.IN:
        return _in_list(first, node.operands[1:])
    if function is Function.LIKE:
        pattern = node.operands[1]
        check(isinstance(pattern, Literal), "A pattern is a literal")
        return pc.match_substring_regex(first, pattern.value)  # type: ignore[union-attr]
    if function in _OF_TEXT:
        pattern = node.operands[1]
        check(isinstance(pattern, Literal), "A part to look for is a literal")
        return _OF_TEXT[function](first, pattern=pattern.value)  # type: ignore[union-attr]
    if function in _OF_ONE:
        return _number_of(lambda: _OF_ONE[function](first), node).cast(node.type)
    if function is Function.TRIM:
        return pc.utf8_trim(first, " ")
    if function in (Function.IS_TRUE, Function.IS_FALSE):
        wanted = first if function is Function.IS_TRUE else pc.invert(first)
        return pc.fill_null(wanted, False)
    if function is Function.CONCAT:
        others = [evaluate(operand, rows) for operand in node.operands[1:]]
        return pc.binary_join_element_wise(first, *others, "")
    second = evaluate(node.operands[1], rows)
    if function in _COMPARE:
        return compare_values(function, first, second)
    if function is Function.SAME:
        is_same = pc.fill_null(compare_values(Function.EQUAL, first, second), False)
        return pc.or_(is_same, pc.and_(pc.is_null(first), pc.is_null(second)))
    return _number_of(lambda: _calculated(node, first, second), node)


def compare_values(function: Function, left: pa.Array, right: pa.Array) -> pa.Array:
    """Return for each pair of values of one type how they compare."""
    if pa.types.is_floating(left.type):
        return _compare_floats(function, left, right)
    return _COMPARE[function](left, right)


def _compare_floats(function: Function, left: pa.Array, right: pa.Array) -> pa.Array:
    holds = _COMPARE[function](left, right)
    mine, theirs = pc.is_nan(left), pc.is_nan(right)
    either = pc.or_(mine, theirs)
    if not pc.any(either, min_count=0).as_py():
        return holds
    as_numbers = (mine.cast(pa.int8()), theirs.cast(pa.int8()))
    return pc.if_else(either, _COMPARE[function](*as_numbers), holds)


def _logic(node: Call, rows: AnyRows) -> pa.Array:
    is_and = node.function is Function.AND
    join = pc.and_kleene if is_and else pc.or_kleene

    def joined(left: pa.Array, operand: Node) -> pa.Array:
        if not may_raise(operand):
            return join(left, evaluate(operand, rows))
        is_open = pc.fill_null(left if is_and else pc.invert(left), True)
        return join(left, _evaluate_where(is_open, operand, rows))

    return reduce(joined, node.operands[1:], evaluate(node.operands[0], rows))


def _case(node: Call, rows: AnyRows) -> pa.Array:
    *branches, default = node.operands
    is_open = pa.repeat(True, rows.num_rows)
    result = pa.nulls(rows.num_rows, node.type)
    for condition, value in zip(branches[::2], branches[1::2], strict=True):
        holds = pc.and_(is_open, pc.fill_null(_evaluate_where(is_open, condition, rows), False))
        result = pc.if_else(holds, _evaluate_where(holds, value, rows), result)
        is_open = pc.and_not(is_open, holds)
    return pc.if_else(is_open, _evaluate_where(is_open, default, rows), result)


def _coalesce(node: Call, rows: AnyRows) -> pa.Array:
    result = evaluate(node.operands[0], rows)
    for operand in node.operands[1:]:
        is_open = pc.is_null(result)
        result = pc.if_else(is_open, _evaluate_where(is_open, operand, rows), result)
    return result


def _evaluate_where(mask: pa.Array, node: Node, rows: AnyRows) -> pa.Array:
    """Evaluate on some rows, null for the others."""
    if not may_raise(node):
        return evaluate(node, rows)
    found = evaluate(node, rows.filter(mask))
    return pc.replace_with_mask(pa.nulls(rows.num_rows, node.type), mask, found)


def _in_list(values: pa.Array, literals: tuple[Node, ...]) -> pa.Array:
    texts = [each.value for each in literals if isinstance(each, Literal)]
    known = pa.array([text for text in texts if text is not None], values.type)
    if pa.types.is_floating(values.type):
        # The look-up goes by bits, and so finds 0.0 and -0.0 to be different.
        values, known = pc.add(values, 0.0), pc.add(known, 0.0)
    found = pc.is_in(values, value_set=known)
    unknown = pc.is_null(values)
    if len(known) < len(texts):
        unknown = pc.or_(unknown, pc.invert(found))
    return pc.if_else(unknown, pa.scalar(None, pa.bool_()), found)


def _calculated(node: Call, left: pa.Array, right: pa.Array) -> pa.Array:
    if node.function is Function.ADD_DAYS:
        return pc.add_checked(left.cast(pa.int32()), right).cast(pa.date32())
    if node.function is Function.DAYS_BETWEEN:
        return pc.subtract(left.cast(pa.int32()), right.cast(pa.int32()))
    if node.function is Function.REMAINDER:
        return _remainder(left, right)
    if node.function is Function.DIVIDE:
        _check_divisor(left, right)
    return _ARITHMETIC[node.function](left, right).cast(node.type)


def _remainder(left: pa.Array, right: pa.Array) -> pa.Array:
    """Return what a division leaves, with the sign of the dividend."""
    _check_divisor(left, right)
    quotient = pc.divide(left, right)
    if pa.types.is_floating(left.type):
        quotient = pc.trunc(quotient)
    return pc.subtract(left, pc.multiply(quotient, right))


def _check_divisor(left: pa.Array, right: pa.Array) -> None:
    is_zero = pc.and_(pc.equal(right, pa.scalar(0).cast(right.type)), pc.is_valid(left))
    if pc.any(is_zero, min_count=0).as_py():
        raise InvalidInputError("Division by zero. Use NULLIF(divisor, 0) for null in its place")


def _number_of(calculate: Callable[[], pa.Array], node: Call) -> pa.Array:
    try:
        return calculate()
    except pa.ArrowInvalid as error:
        raise InvalidInputError(
            f"A result of {node.function.value} does not fit into {node.type}: {error}. Cast an "
            "operand to a wider type"
        ) from error


def _whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
