"""Bounds never rule out what is there, and do rule out what clearly is not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.queries.predicate import Comparison, Condition
from headwater.queries.row_filter import matching_values
from headwater.queries.value_bounds import LITERALS_MAX, ValueBounds, may_match

DAY = date(2024, 1, 31)
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int32(): st.integers(-5, 5),
    pa.string(): st.text("abé", max_size=2),
    pa.float64(): st.sampled_from([-1.5, -0.0, 0.0, 2.25, math.inf, math.nan]),
    pa.date32(): st.integers(-3, 3).map(lambda days: DAY + timedelta(days)),
    pa.decimal128(5, 2): st.integers(-300, 300).map(lambda cents: Decimal(cents).scaleb(-2)),
    pa.bool_(): st.booleans(),
}
ORDERED = [
    Comparison.EQUAL,
    Comparison.NOT_EQUAL,
    Comparison.LESS,
    Comparison.LESS_EQUAL,
    Comparison.GREATER,
    Comparison.GREATER_EQUAL,
]


def bounds_of(values: Sequence[Any], kind: pa.DataType) -> ValueBounds:
    """Return the bounds as a footer has them: without nulls and NaN."""
    told = [value for value in values if value is not None and value == value]
    low, high = (min(told), max(told)) if told else (None, None)
    return ValueBounds(
        pa.array([low], kind),
        pa.array([high], kind),
        pa.array([len(values)], pa.int64()),
        pa.array([sum(value is None for value in values)], pa.int64()),
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[pa.DataType, list[Any], Condition]:
    kind = draw(st.sampled_from(list(VALUES)))
    value = VALUES[kind]
    literal = value.filter(lambda each: not isinstance(each, float) or math.isfinite(each))
    comparison = draw(st.sampled_from(list(Comparison)))
    match comparison:
        case Comparison.IS_NULL | Comparison.IS_NOT_NULL:
            literals: tuple[Any, ...] = ()
        case Comparison.IN:
            literals = tuple(draw(st.lists(literal, min_size=1, max_size=3)))
        case Comparison.BETWEEN:
            literals = (draw(literal), draw(literal))
        case _:
            literals = (draw(literal),)
    values = draw(st.lists(st.none() | value, max_size=4))
    return kind, values, Condition("c", comparison, literals)


@settings(deadline=None)
@given(cases())
def test_what_matches_is_never_ruled_out(case: tuple[pa.DataType, list[Any], Condition]) -> None:
    kind, values, condition = case
    matches = any(matching_values(pa.array(values, kind), condition).to_pylist())
    (may,) = may_match(bounds_of(values, kind), condition)
    assert may or not matches


@settings(deadline=None)
@given(cases())
def test_unknown_bounds_rule_nothing_out(case: tuple[pa.DataType, list[Any], Condition]) -> None:
    kind, _, condition = case
    unknown = pa.nulls(1, pa.int64())
    bounds = ValueBounds(pa.nulls(1, kind), pa.nulls(1, kind), unknown, unknown)
    assert may_match(bounds, condition).tolist() == [True]


@pytest.mark.parametrize(
    ("comparison", "literals", "may"),
    [
        (Comparison.EQUAL, (9,), False),
        (Comparison.EQUAL, (2,), True),
        (Comparison.IN, (0, 9), False),
        (Comparison.IN, (0, 3), True),
        (Comparison.IN, tuple(range(9, LITERALS_MAX + 10)), True),
        (Comparison.BETWEEN, (4, 9), False),
        (Comparison.BETWEEN, (-9, 0), False),
        (Comparison.BETWEEN, (0, 1), True),
        (Comparison.LESS, (1,), False),
        (Comparison.LESS_EQUAL, (1,), True),
        (Comparison.GREATER, (3,), False),
        (Comparison.GREATER_EQUAL, (3,), True),
        (Comparison.NOT_EQUAL, (2,), True),
        (Comparison.IS_NULL, (), False),
        (Comparison.IS_NOT_NULL, (), True),
    ],
)
def test_of_numbers_from_one_to_three(
    comparison: Comparison, literals: tuple[int, ...], may: bool
) -> None:
    bounds = bounds_of([1, 3], pa.int64())
    assert may_match(bounds, Condition("c", comparison, literals)).tolist() == [may]


@pytest.mark.parametrize("values", [[], [None, None]])
def test_without_values_no_comparison_matches(values: list[None]) -> None:
    bounds = bounds_of(values, pa.int64())
    for comparison in ORDERED:
        assert may_match(bounds, Condition("c", comparison, (1,))).tolist() == [False]
    assert may_match(bounds, Condition("c", Comparison.IS_NOT_NULL)).tolist() == [False]
    assert may_match(bounds, Condition("c", Comparison.IS_NULL)).tolist() == [bool(values)]
