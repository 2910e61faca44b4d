"""Expressions on rows: three-valued logic, casts, nested fields, and what only some rows need."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import InvalidInputError
from headwater.expressions.compile import compile_condition, compile_value
from headwater.expressions.evaluate import evaluate, satisfying_rows
from headwater.expressions.scope import Scope

MOMENT = pa.timestamp("us", "UTC")
ROWS = pa.table(
    {
        "i": pa.array([1, 2, None], pa.int32()),
        "l": [10, None, 30],
        "f": [1.5, float("nan"), None],
        "s": ["a", "B%", None],
        "number": ["7", " +8 ", "x"],
        "day": [date(2024, 1, 31), None, date(2024, 2, 1)],
        "ts": pa.array([datetime(2024, 1, 31, 23, 30), None, datetime(2024, 2, 1)], MOMENT),
        "text_ts": ["2024-01-31T23:30:00Z", "2024-01-31 12:00:00", "2024-2-1"],
        "b": [True, None, False],
        "price": pa.array([Decimal("1.25"), None, Decimal("-3.00")], pa.decimal128(8, 2)),
        "st": pa.array([{"x": 1, "y": {"Z": "q"}}, None, {"x": None, "y": None}]),
    }
)


def truth(text: str, zone: str = "UTC") -> list[bool | None]:
    found: list[bool | None] = evaluate(
        compile_condition(text, Scope(ROWS.schema), zone), ROWS
    ).to_pylist()
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i = 1 OR b", [True, None, None]),
        ("i = 2 AND b", [False, None, False]),
        ("NOT b", [False, None, True]),
        ("b IS NOT TRUE", [False, True, True]),
        ("i IN (1, NULL)", [True, None, None]),
        ("i NOT IN (1, NULL)", [False, None, None]),
        ("i IN (l, 1)", [True, None, None]),
        ("i <=> NULL", [False, False, True]),
        ("i IS DISTINCT FROM 1", [False, True, True]),
        ("NULL", [None, None, None]),
        ("f > 5", [False, True, None]),
        ("f = f", [True, True, None]),
        ("f < 5", [True, False, None]),
        ("st.x = 1", [True, None, None]),
        ("ST.Y.z = 'q'", [True, None, None]),
        ("s LIKE 'B%'", [False, True, None]),
        ("s LIKE '_'", [True, False, None]),
        ("s LIKE 'B!%' ESCAPE '!'", [False, True, None]),
        (r"s LIKE 'B\%'", [False, True, None]),
        ("s LIKE NULL", [None, None, None]),
        ("s ILIKE 'b%'", [False, True, None]),
        ("s NOT LIKE 'B%'", [True, False, None]),
        ("price BETWEEN -3 AND 1.2", [False, None, True]),
        ("price * 2 = 2.5", [True, None, False]),
        ("i / 2 = 0.5", [True, False, None]),
        ("-7 % 2 = -1", [True, True, True]),
        ("coalesce(i, 7) = 7", [False, False, True]),
        ("nullif(i, 1) IS NULL", [True, False, True]),
        ("if(b, i, l) = 30", [False, None, True]),
        ("CASE i WHEN 1 THEN 'one' WHEN 2 THEN 'two' END = 'two'", [False, True, None]),
        ("upper(s) || 'x' = 'Ax'", [True, False, None]),
        ("length(concat(s, 'yz')) = 3", [True, False, None]),
        ("year(day) = 2024 AND month(day) = 2", [False, None, True]),
        ("try_cast(number AS int) > 7", [False, True, None]),
        ("cast(i AS string) = '1'", [True, False, None]),
        ("cast(ts AS string) = '2024-01-31 23:30:00'", [True, None, False]),
        ("cast(price AS int) = 1", [True, None, False]),
        ("cast(2.345 AS decimal(3, 2)) = 2.35", [True, True, True]),
        ("cast('yes' AS boolean)", [True, True, True]),
        ("ts >= DATE '2024-02-01'", [False, None, True]),
    ],
)
def test_conditions(text: str, expected: list[bool | None]) -> None:
    assert truth(text) == expected


def test_days_and_moments_go_by_the_zone() -> None:
    assert truth("cast(ts AS date) = day") == [True, None, True]
    assert truth("cast(ts AS date) = day", "Europe/Berlin") == [False, None, True]
    assert truth("ts = TIMESTAMP '2024-02-01 00:30:00'", "Europe/Berlin")[0] is True
    assert truth("day(ts) = 31", "America/New_York") == [True, None, True]
    moments = evaluate(compile_value("text_ts", scope := Scope(ROWS.schema), pa.string()), ROWS)
    assert moments.to_pylist() == ROWS["text_ts"].to_pylist()
    cast = compile_condition("cast(text_ts AS timestamp) <= ts", scope, "Europe/Berlin")
    assert evaluate(cast, ROWS).to_pylist() == [True, None, True]


def test_what_fails_fails_for_rows_that_need_it() -> None:
    assert truth("i != 2 AND 10 / (i - 2) < 0") == [True, False, None]
    assert truth("i = 2 OR 10 / (i - 2) < 0") == [True, True, None]
    assert truth("CASE WHEN i = 2 THEN false ELSE 1 / (i - 2) < 0 END") == [True, False, None]
    assert truth("coalesce(i, cast(s AS int)) = 1") == [True, False, None]
    kept = satisfying_rows(
        ROWS, compile_condition("number != 'x' AND cast(number AS int) = 8", Scope(ROWS.schema))
    )
    assert kept["number"].to_pylist() == [" +8 "]
    with pytest.raises(InvalidInputError, match="Division by zero"):
        truth("1 / (i - 2) > 0")
    with pytest.raises(InvalidInputError, match="TRY_CAST"):
        truth("cast(number AS int) = 8")
    with pytest.raises(InvalidInputError, match="wider type"):
        truth("2147483647 + i > 0")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("i = ", "position 3"),
        ("i = 1 frm", "near 'frm'\n  i = 1 frm\n        \\^ position 7"),
        ("i = 'x", "no end"),
        ("b AND nope = 1", "nope does not exist; the columns are i, l, .*\n.*\n +\\^ position 7"),
        ("st.q = 1", "st has no field q; it has x, y"),
        ("i.q = 1", "i has no field q; it has no fields"),
        ("frobnicate(i) = 1", "function frobnicate is not known"),
        ("soundex(s) = 'a'", "soundex cannot be evaluated here"),
        ("i IN (SELECT 1)", "IN takes a list"),
        ("i", "This is a int32, not a condition"),
        ("i > true", "int32 and bool do not go together"),
        ("cast(f AS string) = '1'", "double is not cast to STRING here"),
        (r"s LIKE 'a\\q'", "in a pattern stands before"),
        ("", "The condition is empty"),
        ("(" * 300 + "b" + ")" * 300, "open brackets"),
    ],
)
def test_a_bad_condition_is_shown_with_its_place(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        truth(text)


def test_what_is_supported_is_said() -> None:
    with pytest.raises(InvalidInputError, match="Supported are comparisons, AND, OR, NOT"):
        truth("soundex(s) = 'A000'")


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("i * 2", pa.int64(), [2, 4, None]),
        ("f", pa.float32(), None),
        ("NULL", pa.string(), [None, None, None]),
        ("day", MOMENT, None),
    ],
)
def test_values_for_columns(text: str, kind: pa.DataType, expected: list[Any] | None) -> None:
    values = evaluate(compile_value(text, Scope(ROWS.schema), kind), ROWS)
    assert values.type == kind
    assert expected is None or values.to_pylist() == expected


def test_text_does_not_become_something_else_in_silence() -> None:
    with pytest.raises(InvalidInputError, match="does not go into one of int32"):
        compile_value("s", Scope(ROWS.schema), pa.int32())


def test_names_of_two_sides() -> None:
    rows = pa.table({"id": [1, 2], "v": [5, 6], "s.id": [1, 3]})
    scope = Scope(rows.schema, {"t": {"id": "id", "v": "v"}, "s": {"id": "s.id"}})
    holds = evaluate(compile_condition("T.id = s.ID AND v = 5", scope), rows)
    assert holds.to_pylist() == [True, False]
    with pytest.raises(InvalidInputError, match=r"ambiguous: id may be id or s\.id"):
        compile_condition("id = 1", scope)


def test_zone_of_moments_is_utc_inside() -> None:
    value = compile_value(
        "TIMESTAMP '2024-07-01 00:00:00'", Scope(ROWS.schema), MOMENT, "Asia/Tokyo"
    )
    found = evaluate(value, ROWS)[0].as_py()
    assert found == datetime(2024, 6, 30, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    "level",
    ["({}) BETWEEN false AND true", "nullif({}, true)"],
)
def test_what_doubles_with_each_level_is_refused(level: str) -> None:
    """Each level looks at the one inside of it twice: thirty would take a billion operations."""
    text = "flag"
    for _ in range(30):
        text = level.format(text)
    with pytest.raises(InvalidInputError, match="OPERATIONS_MAX, 100000"):
        compile_condition(text, Scope(pa.schema({"flag": pa.bool_()})))
