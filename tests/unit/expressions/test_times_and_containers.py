"""Days, moments, intervals, and elements of arrays and maps, in conditions."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pyarrow as pa
import pytest

from headwater.errors import InvalidInputError
from headwater.expressions.compile import Compiler, compile_condition
from headwater.expressions.evaluate import evaluate
from headwater.expressions.nodes import Node
from headwater.expressions.now import with_now_said
from headwater.expressions.parse import Tree
from headwater.expressions.scope import Scope

NOW = datetime(2024, 2, 1, 0, 30, tzinfo=UTC)
ROWS = pa.table(
    {
        "day": [date(2024, 1, 31), None, date(2024, 2, 1)],
        "ts": pa.array(
            [datetime(2024, 1, 31, 23, 30), None, datetime(2024, 2, 1)], pa.timestamp("us", "UTC")
        ),
        "i": pa.array([1, 2, None], pa.int32()),
        "s": ["7", "x", None],
        "f": [1.0, float("nan"), None],
        "tags": [["a", "b"], None, []],
        "m": pa.array([[("k", 1)], None, [("j", None)]], pa.map_(pa.string(), pa.int64())),
    }
)


def truth(text: str, zone: str = "UTC", rows: pa.Table = ROWS) -> list[bool | None]:
    condition = compile_condition(text, Scope(rows.schema), zone, NOW)
    found: list[bool | None] = evaluate(condition, rows).to_pylist()
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("day >= current_date - INTERVAL 1 DAY", [True, None, True]),
        ("ts >= now() - INTERVAL 30 MINUTES", [False, None, True]),
        ("ts < current_timestamp", [True, None, True]),
        ("date_add(day, i) = curdate()", [True, None, None]),
        ("to_date(ts) = DATE '2024-01-31'", [True, None, False]),
        ("datediff(current_date(), day) = 1", [True, None, False]),
        ("get(tags, 0) = 'a'", [True, None, None]),
        ("array_contains(tags, 'b')", [True, None, False]),
        ("size(tags) = 0", [False, None, True]),
        ("m['k'] = 1", [True, None, None]),
    ],
)
def test_conditions(text: str, expected: list[bool | None]) -> None:
    assert truth(text) == expected
    assert truth(text, rows=ROWS.slice(1)) == expected[1:]


def test_the_day_is_that_of_the_zone() -> None:
    assert truth("day = current_date") == [False, None, True]
    assert truth("day = current_date", "America/New_York") == [True, None, False]
    assert truth("ts <= now()", "America/New_York") == truth("ts <= now()")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("d > CURRENT_DATE", "d > DATE '2024-02-01'"),
        ("d > current_date ( ) - 1", "d > DATE '2024-02-01' - 1"),
        ("now() > x", "TIMESTAMP '2024-02-01 00:30:00.000000+00:00' > x"),
        ("localtimestamp() > x", "TIMESTAMP_NTZ '2024-02-01 00:30:00.000000' > x"),
        ("now > s.current_date", "now > s.current_date"),
        ("`current_date` = 'now()'", "`current_date` = 'now()'"),
        ("'unended", "'unended"),
    ],
)
def test_the_time_is_said_where_it_is_asked_for(text: str, said: str) -> None:
    assert with_now_said(text, ["x", "now"], "UTC", NOW) == said


def test_a_column_goes_before_a_function_without_brackets() -> None:
    rows = pa.table({"current_date": [1, 2]})
    assert truth("current_date = 1", rows=rows) == [True, False]
    assert truth("current_date() = DATE '2024-02-01'", rows=rows) == [True, True]


def test_an_element_that_is_not_there_fails_for_rows_that_need_it() -> None:
    with pytest.raises(InvalidInputError, match=r"index 0 is outside of an array of 0\. Use get"):
        truth("tags[0] = 'a'")
    assert truth("size(tags) > 0 AND tags[0] = 'a'") == [True, None, False]


def test_a_cast_inside_of_a_sum_of_floats_fails_only_for_rows_that_need_it() -> None:
    assert truth("s = 'x' OR cast(s AS double) + 1.0e0 > 0") == [True, True, None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("day + INTERVAL 1 MONTH > day", "add it to the constant on the other side"),
        ("ts > TIMESTAMP '2024-01-01 00:00:00' + INTERVAL '1 2' DAY TO HOUR", "number and a unit"),
        ("day > DATE '9999-12-31' + INTERVAL 1 DAY", "leads too far"),
        (f"ts > now() - INTERVAL '{'9' * 5000}' SECOND", "leads too far"),
        ("day + INTERVAL 999999999999 DAYS > day", "leads too far"),
        ("ts + INTERVAL 9999999999 HOURS > ts", "leads too far"),
        ("DATE '2024-01-01' + (INTERVAL 1 MONTH + INTERVAL 1 DAY) > day", "Months and days"),
        ("i + INTERVAL 1 DAY > day", "not added to a int32"),
        ("to_date(s, 'yyyy') = day", "takes no format"),
        ("day + 1.5 > day", "not a number of days"),
        ("array_contains(tags, 1)", "is not looked for among values of string"),
        ("element_at(tags, 0) = 'a'", "begins at 1"),
        ("s[0] = 'a'", "neither an array nor a map"),
        ("get(tags, 0).x = 1", "no fields"),
        ("ts + INTERVAL 1 DAY > ts", "its length depends on the day"),
    ],
)
def test_what_is_refused_says_why(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        truth(text, "Europe/Berlin")


def test_a_time_that_clocks_leave_out_is_that_much_later() -> None:
    zone = "America/New_York"
    for text, moment in [
        ("2024-03-10 01:59:59", "2024-03-10 06:59:59"),
        ("2024-03-10 02:30:00", "2024-03-10 07:30:00"),
        ("2024-03-10 03:00:00", "2024-03-10 07:00:00"),
        ("2024-11-03 01:30:00", "2024-11-03 05:30:00"),
    ]:
        assert all(truth(f"TIMESTAMP '{text}' = TIMESTAMP '{moment}+00:00'", zone)), text


@pytest.mark.parametrize(
    "text",
    [
        " + ".join(["i"] * 60) + " > 0",
        "array_contains(" + "get(" * 30 + "deep" + ", 0)" * 30 + ", 1)",
        "(" * 12 + "(i > 0)" + " BETWEEN false AND true)" * 12,
        "nullif(" * 12 + "i" + ", 7)" * 12 + " > 0",
    ],
    ids=["sum", "elements", "between", "nullif"],
)
def test_a_part_is_compiled_once_however_deep(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = pa.int64()
    for _ in range(31):
        kind = pa.list_(kind)
    scope = Scope(pa.schema([("i", pa.int32()), ("deep", kind)]))
    asked = 0
    compile_one = Compiler._compile

    def counted(self: Compiler, tree: Tree) -> Node:
        nonlocal asked
        asked += 1
        assert asked < 1_000, "parts are compiled again and again"
        return compile_one(self, tree)

    monkeypatch.setattr(Compiler, "_compile", counted)
    compile_condition(text, scope)
