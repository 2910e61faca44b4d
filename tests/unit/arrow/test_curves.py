"""Orders of rows: linear, z-order and the Hilbert curve."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.arrow.curves import (
    CURVE_COLUMNS_MAX,
    check_sortable,
    hilbert_transpose,
    interleave,
    sorted_positions,
)
from headwater.config.clustering import RowOrder
from headwater.errors import InvalidInputError

ROWS = st.lists(
    st.tuples(st.none() | st.integers(-5, 5), st.none() | st.text("abc", max_size=2)), max_size=30
)


def table_of(rows: list[tuple[int | None, str | None]]) -> pa.Table:
    numbers, texts = zip(*rows, strict=True) if rows else ((), ())
    return pa.table({"a": pa.array(numbers, pa.int64()), "b": pa.array(texts, pa.string())})


def grid(dimensions: int, bits: int) -> list[np.ndarray]:
    axes = np.meshgrid(*[np.arange(1 << bits)] * dimensions)
    return [axis.reshape(-1).astype(np.uint64) for axis in axes]


@pytest.mark.parametrize(("dimensions", "bits"), [(2, 3), (2, 5), (3, 2), (3, 3), (4, 2)])
def test_the_hilbert_curve_visits_every_place_once_and_always_goes_to_a_neighbour(
    dimensions: int, bits: int
) -> None:
    axes = grid(dimensions, bits)
    keys = interleave(hilbert_transpose(axes, bits), bits)
    assert sorted(keys.tolist()) == list(range(1 << (bits * dimensions)))
    visited = np.stack([axis[np.argsort(keys)] for axis in axes]).astype(np.int64)
    assert set(np.abs(np.diff(visited, axis=1)).sum(axis=0).tolist()) == {1}


def test_the_z_order_takes_bits_in_turn() -> None:
    places = [np.array([0b10, 0b01], np.uint64), np.array([0b11, 0b00], np.uint64)]
    assert interleave(places, 2).tolist() == [0b1101, 0b0010]


@given(ROWS)
def test_the_linear_order_is_that_of_a_stable_sort_with_nulls_last(
    rows: list[tuple[int | None, str | None]],
) -> None:
    positions = sorted_positions(table_of(rows), ["a", "b"], RowOrder.LINEAR).to_pylist()

    def key(position: int) -> tuple[tuple[bool, int], tuple[bool, str]]:
        number, text = rows[position]
        return (number is None, number or 0), (text is None, text or "")

    assert positions == sorted(range(len(rows)), key=key)


@given(ROWS, st.sampled_from([RowOrder.ZORDER, RowOrder.HILBERT]))
def test_a_curve_gives_every_row_once_and_equal_rows_together(
    rows: list[tuple[int | None, str | None]], order: RowOrder
) -> None:
    positions = sorted_positions(table_of(rows), ["a", "b"], order).to_pylist()
    assert sorted(positions) == list(range(len(rows)))
    met = [rows[position] for position in positions]
    changes = sum(1 for before, after in pairwise(met) if before != after)
    assert changes == max(0, len(set(rows)) - 1)


@pytest.mark.parametrize("order", [RowOrder.ZORDER, RowOrder.HILBERT])
def test_a_curve_keeps_each_part_of_the_rows_narrow_in_all_columns(order: RowOrder) -> None:
    axes = [axis.astype(np.int64) for axis in grid(2, 4)]
    rows = pa.table({"a": axes[0] * 1_000_003, "b": [f"{value:04d}" for value in axes[1]]})
    positions = sorted_positions(rows, ["a", "b"], order).to_numpy()
    for part in np.split(positions, 16):
        assert [np.ptp(axis[part]) for axis in axes] == [3, 3]


def test_dictionaries_are_sorted_by_their_values() -> None:
    column = pa.chunked_array([pa.array(["b", "a", "c"]).dictionary_encode()])
    positions = sorted_positions(pa.table({"a": column}), ["a"], RowOrder.LINEAR)
    assert positions.to_pylist() == [1, 0, 2]


def test_columns_that_cannot_be_sorted_are_named() -> None:
    names = [f"c{number}" for number in range(CURVE_COLUMNS_MAX + 1)]
    schema = pa.schema([("l", pa.list_(pa.int64())), *((name, pa.int64()) for name in names)])
    check_sortable(schema, names, RowOrder.LINEAR)
    with pytest.raises(InvalidInputError, match="16 columns at most, got 17"):
        check_sortable(schema, names, RowOrder.HILBERT)
    with pytest.raises(InvalidInputError, match="sorted by l, whose values have no order"):
        check_sortable(schema, ["c1", "l"], RowOrder.LINEAR)
    with pytest.raises(InvalidInputError, match="sorted by x, y: the columns are l, c0"):
        check_sortable(schema, ["x", "y"], RowOrder.LINEAR)
