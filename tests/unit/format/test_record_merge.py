"""Merging statistics of the metadata table (format rule 8.6), and finding what is deleted."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.statistics import encode_typed_stats

from headwater.format.metadata.column_stats import (
    decode_column_stats,
    encode_column_stats,
    typed_bounds,
)
from headwater.format.metadata.merge import standing_of, widen_column_stats, widen_stats
from headwater.format.metadata.records import (
    encode_bloom_filters,
    encode_files,
    encode_record_locations,
    encode_secondary,
)
from headwater.format.metadata.schema import RecordType, Wrapper, read_record_types
from headwater.format.metadata.wrapped_values import ValueType

# Arrow type, smaller value, larger value.
TYPES: list[tuple[pa.DataType, Any, Any]] = [
    (pa.bool_(), False, True),
    (pa.int32(), -5, 2**31 - 1),
    (pa.int64(), -(2**63), 7),
    (pa.float32(), -1.5, 0.25),
    (pa.float64(), -1e300, 0.1),
    (pa.string(), "Amazon", "Zürich"),
    (pa.binary(), b"", b"\xff\x00"),
    (pa.decimal128(10, 2), Decimal("-1.28"), Decimal("12.50")),
    (pa.date32(), date(1960, 1, 1), date(2024, 1, 15)),
    (pa.time64("us"), time(1, 2, 3), time(12, 30)),
    (pa.timestamp("us", "UTC"), datetime(1960, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC)),
    (pa.timestamp("ms"), datetime(1960, 1, 1), datetime(2024, 1, 1)),
]


def stats(lower: pa.Array, upper: pa.Array, **columns: Any) -> pa.Table:
    count = len(lower)
    rows: dict[str, Any] = {
        "file_name": pa.array([f"file-{row}" for row in range(count)], pa.string()),
        "column_name": pa.array(["fare"] * count, pa.string()),
        "min": lower,
        "max": upper,
        "value_count": pa.array([10] * count, pa.int64()),
        "null_count": pa.array([1] * count, pa.int64()),
        "total_size": pa.array([100] * count, pa.int64()),
        "total_uncompressed_size": pa.array([200] * count, pa.int64()),
        "is_deleted": pa.array([False] * count, pa.bool_()),
        "is_tight_bound": pa.array([False] * count, pa.bool_()),
    }
    for name, values in columns.items():
        rows[name] = pa.array(values, rows[name].type)
    return pa.table(rows)


def decoded(lower: Any, upper: Any, arrow: pa.DataType, **columns: Any) -> pa.Table:
    made = stats(pa.array([lower], arrow), pa.array([upper], arrow), **columns)
    return decode_column_stats(encode_typed_stats(made))


@pytest.mark.parametrize("row", TYPES, ids=lambda row: str(row[0]))
def test_bounds_are_widened_in_every_type(row: tuple[Any, ...]) -> None:
    now, smaller, larger = row
    small, large = decoded(smaller, smaller, now), decoded(larger, larger, now)
    for older, newer in ((small, large), (large, small)):
        merged = widen_stats(older, newer)
        lower, upper = typed_bounds(merged, now)
        expected = typed_bounds(small, now)[0], typed_bounds(large, now)[1]
        assert (lower.to_pylist(), upper.to_pylist()) == (
            expected[0].to_pylist(),
            expected[1].to_pylist(),
        )
        assert merged["value_count"].to_pylist() == [20]
        assert merged["null_count"].to_pylist() == [2]
        assert merged["total_size"].to_pylist() == [200]
        # What was merged can be written.
        assert decode_column_stats(encode_column_stats(merged)).equals(merged)


def test_tight_or_deleted_statistics_replace() -> None:
    older = decoded(1, 9, pa.int32())
    tight = decoded(3, 4, pa.int32(), is_tight_bound=[True])
    assert widen_stats(older, tight).equals(tight)
    deleted = decoded(None, None, pa.int32(), is_deleted=[True])
    assert widen_stats(older, deleted).equals(deleted)
    assert widen_stats(deleted, older).equals(older)


def test_a_side_without_values_says_nothing() -> None:
    values = decoded(1, 9, pa.int32())
    blank = decoded(None, None, pa.null(), value_count=[3], null_count=[3])
    for merged in (widen_stats(values, blank), widen_stats(blank, values)):
        lower, upper = typed_bounds(merged, pa.int32())
        assert (lower.to_pylist(), upper.to_pylist()) == ([1], [9])
        assert merged["value_type"].to_pylist() == [ValueType.INT]
        assert merged["value_count"].to_pylist() == [13]
    both = widen_stats(blank, blank)
    assert both["min"].to_pylist()[0]["branch"] == Wrapper.NULL


def test_bounds_are_unknown_if_one_of_them_is() -> None:
    for now in (pa.int32(), pa.float64()):
        values, unknown = decoded(1, 9, now), decoded(None, 20, now)
        for merged in (widen_stats(values, unknown), widen_stats(unknown, values)):
            lower, upper = typed_bounds(merged, now)
            assert (lower.to_pylist(), upper.to_pylist()) == ([None], [None])


def test_bounds_of_a_widened_column_have_the_wider_type() -> None:
    narrow, wide = decoded(1, 9, pa.int32()), decoded(-(2**40), 5, pa.int64())
    real = decoded(0.5, 5.5, pa.float64())
    for older, newer in ((narrow, wide), (wide, narrow)):
        merged = widen_stats(older, newer)
        assert merged["value_type"].to_pylist() == [ValueType.LONG]
        lower, upper = typed_bounds(merged, pa.int64())
        assert (lower.to_pylist(), upper.to_pylist()) == ([-(2**40)], [9])
        assert decode_column_stats(encode_column_stats(merged)).equals(merged)
    merged = widen_stats(narrow, real)
    lower, upper = typed_bounds(merged, pa.float64())
    assert (lower.to_pylist(), upper.to_pylist()) == ([0.5], [9.0])
    assert decode_column_stats(encode_column_stats(merged)).equals(merged)


def test_bounds_that_do_not_compare_are_unknown() -> None:
    merged = widen_stats(decoded(1, 9, pa.int32()), decoded("a", "b", pa.string()))
    assert merged["min"].to_pylist()[0]["branch"] == Wrapper.NULL
    scaled = decoded(Decimal("1.0"), Decimal("2.0"), pa.decimal128(5, 1))
    finer = decoded(Decimal("1.00"), Decimal("2.00"), pa.decimal128(5, 2))
    merged = widen_stats(scaled, finer)
    assert merged["max"].to_pylist()[0]["branch"] == Wrapper.NULL


def test_nan_is_the_largest_value() -> None:
    nan = float("nan")
    some, with_nan = decoded(1.0, 9.0, pa.float64()), decoded(0.5, nan, pa.float64())
    for merged in (widen_stats(some, with_nan), widen_stats(with_nan, some)):
        assert merged["min"].to_pylist()[0]["real"] == 0.5
        assert np.isnan(merged["max"].to_pylist()[0]["real"])


def test_negative_decimals_compare_as_numbers() -> None:
    arrow = pa.decimal128(5, 2)
    low, high = (
        decoded(Decimal("-9"), Decimal("-9"), arrow),
        decoded(Decimal("1"), Decimal(1), arrow),
    )
    merged = widen_stats(high, low)
    lower, upper = typed_bounds(merged, arrow)
    assert (lower.to_pylist(), upper.to_pylist()) == ([Decimal("-9.00")], [Decimal("1.00")])


# Records --------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(-9, 9), min_size=1, max_size=7), max_size=5))
def test_records_of_a_subject_are_widened_into_one(of_subjects: list[list[int]]) -> None:
    numbers = pa.array([number for some in of_subjects for number in some], pa.int32())
    subjects = np.repeat(np.arange(len(of_subjects)), [len(some) for some in of_subjects])
    values = encode_typed_stats(stats(numbers, numbers), RecordType.PARTITION_STATS)
    merged = widen_column_stats(values, subjects)
    assert set(read_record_types(merged).tolist()) <= {RecordType.PARTITION_STATS}
    found = decode_column_stats(merged)
    lower, upper = typed_bounds(found, pa.int32())
    assert lower.to_pylist() == [min(some) for some in of_subjects]
    assert upper.to_pylist() == [max(some) for some in of_subjects]
    assert found["value_count"].to_pylist() == [10 * len(some) for some in of_subjects]


def test_widened_records_have_the_type_of_the_newest() -> None:
    types = [pa.int32(), pa.int64(), pa.int32(), pa.string(), pa.string()]
    values = [encode_typed_stats(stats(*[pa.array(["7"]).cast(each)] * 2)) for each in types]
    merged = widen_column_stats(pa.concat_arrays(values[:3]), np.zeros(3, np.int64))
    assert decode_column_stats(merged)["value_type"].to_pylist() == [ValueType.LONG]
    merged = widen_column_stats(pa.concat_arrays(values), np.zeros(5, np.int64))
    found = decode_column_stats(merged)
    assert found["value_type"].to_pylist() == [ValueType.STRING]
    assert found["min"].to_pylist()[0]["branch"] == Wrapper.NULL


def test_records_of_any_type_say_how_they_stand_to_older_ones() -> None:
    one = pa.array([1, 2, 3], pa.int32())
    is_deleted, is_tight = [True, False, False], [False, False, True]
    values = pa.concat_arrays(
        [
            encode_typed_stats(stats(one, one, is_deleted=is_deleted, is_tight_bound=is_tight)),
            encode_bloom_filters(pa.array([b""]), "", "1", is_deleted=True),
            encode_bloom_filters(pa.array([b"x"]), "SIMPLE", "1"),
            encode_secondary(1),
            encode_secondary(1, is_deleted=True),
            encode_record_locations("p", pa.array(["file"]), 1),
            pa.array([encode_files({}, RecordType.FILE_LIST)]),
        ]
    )
    found = standing_of(values)
    assert found.is_gone.tolist() == [True, False, False, True, False, False, True, False, False]
    assert found.replaces.tolist() == [True, False, True, True, True, True, True, True, True]
    assert [len(mask) for mask in standing_of(pa.array([], pa.binary()))] == [0, 0]
