"""Ordering values compared and ranked, against Python's comparison of tuples."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.arrow.ordering import is_not_less, ordering_ranks
from headwater.errors import InvalidInputError

VALUES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int32(), st.integers(-2, 2)),
    (pa.int64(), st.sampled_from([-(2**63), -1, 0, 2**53, 2**53 + 1, 2**63 - 1])),
    (pa.float64(), st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 0.0, 1.5, -1.5])),
    (pa.float32(), st.sampled_from([math.nan, -math.inf, 0.0, 0.5])),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.sampled_from(["", "a", "b", "aa", "ä"])),
    (pa.binary(), st.sampled_from([b"", b"a", b"\xff"])),
    (pa.decimal128(10, 2), st.sampled_from([Decimal("-1.00"), Decimal("0.10"), Decimal("10.00")])),
    (pa.timestamp("us", tz="UTC"), st.integers(-2, 2)),
    (pa.date32(), st.integers(0, 2)),
    (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["x", "y"])),
]


def java_key(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    if isinstance(value, float):
        if math.isnan(value):
            return (2,)
        return (1, value, struct.pack(">d", value) != struct.pack(">d", -0.0))
    return (1, value)


@st.composite
def columns(draw: st.DrawFn) -> tuple[list[pa.Array], list[tuple[Any, ...]]]:
    count = draw(st.integers(0, 6))
    kinds = draw(st.lists(st.sampled_from(VALUES), max_size=3))
    drawn = [
        draw(st.lists(st.none() | values, min_size=count, max_size=count)) for _, values in kinds
    ]
    arrays = [pa.array(values, kind) for values, (kind, _) in zip(drawn, kinds, strict=True)]
    keys = [tuple(java_key(values[row]) for values in drawn) for row in range(count)]
    return arrays, keys


@settings(deadline=None)
@given(columns())
def test_ranks_and_comparisons_are_those_of_the_values(
    case: tuple[list[pa.Array], list[tuple[Any, ...]]],
) -> None:
    arrays, keys = case
    count = len(keys)
    ranks = ordering_ranks(arrays, count).tolist()
    for i in range(count):
        for j in range(count):
            assert (ranks[i] >= ranks[j]) == (keys[i] >= keys[j])
    reversed_arrays = [array[::-1] for array in arrays]
    expected = [key >= other for key, other in zip(keys, reversed(keys), strict=True)]
    assert is_not_less(arrays, reversed_arrays, count).tolist() == expected


def test_values_without_order_are_refused_by_type() -> None:
    with pytest.raises(InvalidInputError, match="list"):
        ordering_ranks([pa.array([[1]])], 1)
