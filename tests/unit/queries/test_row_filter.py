"""Which rows satisfy a condition, type by type, as Spark has it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import InvalidInputError
from headwater.queries.predicate import Comparison, Condition, Predicate
from headwater.queries.row_filter import bind_predicate, filter_rows, matching_rows
from headwater.queries.text_filter import filter_of

NAN = float("nan")
UTC_TIME = pa.timestamp("us", "UTC")


def kept(kind: pa.DataType, values: list[Any], where: str) -> list[Any]:
    rows = pa.table({"x": pa.array(values, kind)})
    predicate = filter_of(where, rows.schema)
    found: list[Any] = filter_rows(rows, predicate)["x"].to_pylist()
    # What is known for skipping keeps at least these.
    mask = matching_rows(rows, predicate.conditions)
    least = rows["x"] if mask is None else rows.filter(mask)["x"]
    assert {str(value) for value in found} <= {str(value) for value in least.to_pylist()}
    return found


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("x = 2", [2]),
        ("x != 2", [-1, 7]),
        ("x < 2", [-1]),
        ("x <= 2", [-1, 2]),
        ("x > 2", [7]),
        ("x >= 2", [2, 7]),
        ("x IN (7, 8, -1)", [-1, 7]),
        ("x BETWEEN -1 AND 2", [-1, 2]),
        ("x BETWEEN 2 AND -1", []),
        ("x IS NULL", [None]),
        ("x IS NOT NULL", [-1, 2, 7]),
        ("x > 1.5 AND x < 6.5", [2]),
        ("x = 2.0", [2]),
        ("x IN (2.5, 7.0)", [7]),
        ("x < 9223372036854775807", [-1, 2, 7]),
        ("X = 2", [2]),
    ],
)
@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.decimal128(10, 0)])
def test_exact_numbers(kind: pa.DataType, where: str, expected: list[Any]) -> None:
    assert kept(kind, [-1, 2, None, 7], where) == expected


def test_decimals_are_compared_beyond_their_scale() -> None:
    prices = [Decimal("1.99"), Decimal("2.00"), None]
    assert kept(pa.decimal128(10, 2), prices, "x > 1.994") == [Decimal("2.00")]
    assert kept(pa.decimal128(10, 2), prices, "x = 2") == [Decimal("2.00")]
    assert kept(pa.decimal128(10, 2), prices, "x < 99999999999999999999") == prices[:2]


def test_nan_is_larger_than_every_number() -> None:
    values = [1.5, NAN, None]
    for where in ("x > 1.5", "x >= 2", "x != 1.5"):
        assert [str(value) for value in kept(pa.float64(), values, where)] == ["nan"]
    for where in ("x < 9", "x <= 1.5", "x = 1.5", "x BETWEEN 1 AND 9", "x IN (1.5)"):
        assert kept(pa.float64(), values, where) == [1.5]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
@pytest.mark.parametrize(
    "where",
    ["x = 0.0", "x IN (0.0)", "x IN (-0.0)", "x IN (0, 5)", "x BETWEEN 0 AND 0", "x <= -0.0"],
)
def test_zero_equals_negative_zero(kind: pa.DataType, where: str) -> None:
    assert [str(value) for value in kept(kind, [-0.0, 0.0, None, NAN, 1.5], where)] == [
        "-0.0",
        "0.0",
    ]


def test_a_float_is_compared_as_a_double() -> None:
    assert kept(pa.float32(), [0.1, 0.5], "x = 0.1") == []
    assert kept(pa.float32(), [0.1, 0.5], "x = 0.5") == [0.5]


def test_text_booleans_dates_and_times() -> None:
    assert kept(pa.string(), ["a", "", None, "ä"], "x >= 'b'") == ["ä"]
    assert kept(pa.string(), ["a", "", None], "x = ''") == [""]
    assert kept(pa.bool_(), [True, False, None], "x = false") == [False]
    days = [date(2024, 1, 1), date(2024, 2, 1)]
    assert kept(pa.date32(), days, "x > DATE '2024-01-01'") == days[1:]
    assert kept(pa.date32(), days, "x = '2024-01-01'") == days[:1]
    moments = [datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 1, tzinfo=UTC)]
    assert kept(UTC_TIME, moments, "x > TIMESTAMP '2024-01-01 00:00:00'") == moments[1:]
    assert kept(UTC_TIME, moments, "x = TIMESTAMP '2024-01-01T02:00:00+02:00'") == moments[:1]
    millis = pa.timestamp("ms", "UTC")
    assert kept(millis, moments, "x > TIMESTAMP '2024-01-01 00:59:59.999999'") == moments[1:]
    local = [datetime(2024, 1, 1), datetime(2024, 1, 2)]
    assert kept(pa.timestamp("us"), local, "x < TIMESTAMP '2024-01-02'") == local[:1]


@pytest.mark.parametrize(
    ("kind", "value", "where"),
    [
        (pa.string(), "1", "x = 1"),
        (pa.string(), "1.5", "x < 1.6"),
        (pa.int64(), 1, "x = '1'"),
        (pa.int64(), 1, "x = 1e0"),
        (pa.int64(), 1, "x > -99999999999999999999.5"),
        (pa.int32(), 1, "x < 9223372036854775808"),
        (pa.decimal128(10, 2), Decimal("1.50"), "x > 1e0"),
        (pa.float32(), 16777216.0, "x != 16777217"),
        (pa.date32(), date(2024, 1, 1), "x = '2024-1-1'"),
        (pa.date32(), date(2024, 1, 1), "x = TIMESTAMP '2024-01-01 00:00:00'"),
        (UTC_TIME, datetime(2024, 1, 1, tzinfo=UTC), "x = DATE '2024-01-01'"),
        (UTC_TIME, datetime(2024, 1, 1, tzinfo=UTC), "x = '2024-01-01'"),
        (pa.timestamp("us"), datetime(2024, 1, 1), "x = TIMESTAMP '2024-01-01 00:00:00Z'"),
        (pa.binary(), b"a", "x = 'a'"),
        (pa.int64(), 1, "x = 1 OR x = 2"),
    ],
)
def test_other_types_meet_as_in_spark(kind: pa.DataType, value: Any, where: str) -> None:
    assert kept(kind, [value, None], where) == [value]


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        (pa.int64(), "x = true"),
        (pa.bool_(), "x = 1"),
        (pa.float64(), "x = 1e999"),
        (pa.list_(pa.int64()), "x = 1"),
        (pa.int64(), ""),
    ],
)
def test_what_does_not_go_together_is_refused(kind: pa.DataType, where: str) -> None:
    with pytest.raises(InvalidInputError, match="Supported are"):
        filter_of(where, pa.schema([("x", kind)]))


def test_conditions_are_bound_to_columns_or_left_out() -> None:
    schema = pa.schema([("id", pa.int64()), ("ID", pa.int64()), ("ts", UTC_TIME)])

    def bound(*conditions: Condition) -> Predicate:
        return bind_predicate(Predicate(conditions), schema)

    assert bound(Condition("id", Comparison.EQUAL, (1,))).columns == {"id"}
    assert not bound(Condition("Id", Comparison.EQUAL, (1,))).is_known
    naive = Condition("ts", Comparison.LESS, (datetime(2024, 1, 1),))
    assert not bound(naive).is_known


def test_without_conditions_all_rows_stay() -> None:
    rows = pa.table({"x": [1, 2]})
    assert filter_rows(rows, Predicate()) == rows
    assert filter_rows(rows, None) == rows


def test_a_column_that_does_not_exist_is_named() -> None:
    with pytest.raises(InvalidInputError, match="The column nope does not exist"):
        kept(pa.int32(), [1], "X = 1 AND nope = 1")
