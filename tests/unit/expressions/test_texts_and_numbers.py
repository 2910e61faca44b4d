"""Texts, numbers and casts in conditions: what they say, and what is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import InvalidInputError
from headwater.expressions.compile import compile_condition
from headwater.expressions.evaluate import evaluate
from headwater.expressions.scope import Scope

NOW = datetime(2024, 2, 1, 0, 30, tzinfo=UTC)
ROWS = pa.table(
    {
        "s": ["headwater", "Ärger", "", None],
        "i": pa.array([1, -2, 0, None], pa.int32()),
        "n": pa.array([2**40, 5, 0, None], pa.int64()),
        "f": [1.5, float("nan"), -0.0, None],
        "d": pa.array([Decimal("1.25"), Decimal("-3.00"), Decimal("0.00"), None]),
        "wide": pa.array([Decimal(1)] * 4, pa.decimal128(38, 10)),
        "b": [True, False, True, None],
        "day": [date(2024, 1, 31), date(2024, 2, 29), date(1970, 1, 1), None],
        "ts": pa.array([NOW, NOW, NOW, None], pa.timestamp("us", "UTC")),
        "raw": pa.array([b"a", b"", b"\xff", None], pa.binary()),
        "tags": [["a"], [], ["b", None], None],
        "m": pa.array([[("k", 1)], [], [("j", 2)], None], pa.map_(pa.string(), pa.int64())),
        "st": pa.array([{"x": 1}, {"x": 2}, {"x": None}, None], pa.struct([("x", pa.int64())])),
    }
)


def truth(text: str, rows: pa.Table = ROWS) -> list[bool | None]:
    condition = compile_condition(text, Scope(rows.schema), "UTC", NOW)
    found: list[bool | None] = evaluate(condition, rows).to_pylist()
    return found


def letters(text: str, start: int, length: int | None = None) -> str:
    """Return what SQL's substring gives, by counting places."""
    first = start if start > 0 else max(1, start + len(text) + 1) if start < 0 else 1
    if start < 0 and -start > len(text) and length is not None:
        length = max(0, length + start + len(text))
    places = range(first, len(text) + 1) if length is None else range(first, first + length)
    return "".join(text[place - 1] for place in places if 1 <= place <= len(text))


@pytest.mark.parametrize("start", [-3, -1, 0, 1, 2, 20])
@pytest.mark.parametrize("length", [None, -1, 0, 1, 2, 30])
def test_substrings_count_letters_from_either_end(start: int, length: int | None) -> None:
    rows = pa.table({"s": ["headwater", "Ärger", "", None]})
    said = f"substring(s, {start})" if length is None else f"substring(s, {start}, {length})"
    for place, text in enumerate(rows["s"].to_pylist()[:2]):
        expected = letters(text, start, length)
        assert truth(f"{said} = '{expected}'", rows)[place], (said, text, expected)
    assert truth(f"{said} = ''", rows)[2:] == [True, None]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("left(s, 4) = 'head'", [True, False, False, None]),
        ("left(s, 0) = ''", [True, True, True, None]),
        ("s || i = 'headwater1'", [True, False, False, None]),
        ("concat(s, '-', b) = 'Ärger-false'", [False, True, False, None]),
        ("length(s) = 5", [False, True, False, None]),
        ("upper(s) = 'ÄRGER'", [False, True, False, None]),
        ("s LIKE 'h%r'", [True, False, False, None]),
        ("s LIKE 'h!%%' ESCAPE '!'", [False, False, False, None]),
        ("s NOT LIKE '_____'", [True, False, True, None]),
        ("s LIKE NULL", [None, None, None, None]),
        ("s RLIKE '^h.*r$'", [True, False, False, None]),
        ("s RLIKE NULL", [None, None, None, None]),
        ("contains(s, 'wat')", [True, False, False, None]),
        ("startswith(s, 'head')", [True, False, False, None]),
        ("isnull(s)", [False, False, False, True]),
        ("isnotnull(s)", [True, True, True, False]),
        ("i = -2147483648", [False, False, False, None]),
        ("n > -9223372036854775808", [True, True, True, None]),
        ("abs(i) = 2", [False, True, False, None]),
        ("-i = 2", [False, True, False, None]),
        ("isnan(f)", [False, True, False, False]),
        ("i / 2 = 0.5D", [True, False, False, None]),
        ("d * 2 = 2.5", [True, False, False, None]),
        ("d + i = 2.25", [True, False, False, None]),
        ("cast(i AS boolean)", [True, True, False, None]),
        ("cast(b AS int) = 1", [True, False, True, None]),
        ("cast(i AS string) = '-2'", [False, True, False, None]),
        ("cast(NULL AS int) = i", [None, None, None, None]),
        ("cast(cast(d AS string) AS decimal(5, 2)) = d", [True, True, True, None]),
        ("cast('+7' AS int) = i + 6", [True, False, False, None]),
        ("cast(s AS binary) = X''", [False, False, True, None]),
        ("b IS TRUE", [True, False, True, False]),
        ("b IS NOT FALSE", [True, False, True, True]),
        ("array_contains(tags, NULL)", [None, None, None, None]),
        ("array_contains(tags, 'a')", [True, False, None, None]),
        ("map_contains_key(m, 'k')", [True, False, False, None]),
        ("m[NULL] = 1", [None, None, None, None]),
        ("cardinality(tags) = 2", [False, False, True, None]),
        ("size(m) = 0", [False, True, False, None]),
        ("get(tags, 1) IS NULL", [True, True, True, True]),
        ("date_add(day, -1) = DATE '2024-01-30'", [True, False, False, None]),
        ("DATE '2024-01-31' + INTERVAL 1 MONTH = day", [False, True, False, None]),
        ("DATE '2024-02-02' - (INTERVAL 1 DAY + INTERVAL 1 DAY) = day", [True, False, False, None]),
        ("day + INTERVAL 24 HOURS > TIMESTAMP '2024-02-29 00:00:00'", [False, True, False, None]),
        ("day > DATE '2024-02-01' + -INTERVAL 1 DAY", [False, True, False, None]),
        ("year(day) = 2024 AND hour(ts) = 0", [True, True, False, None]),
    ],
)
def test_conditions(text: str, expected: list[bool | None]) -> None:
    assert truth(text) == expected
    assert truth(text, ROWS.slice(1)) == expected[1:]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("abs(day) = 1", "date32.* not a number"),
        ("-b = 1", "bool, not a number"),
        ("d / 2 = 1", "is not calculated here; cast to double"),
        ("wide * wide > 0", "is not calculated here; cast to double"),
        (f"d > 0.{'1' * 40}", "at most 38 digits"),
        ("st = st", "are not compared here"),
        ("b IS 1", "IS takes NULL, TRUE or FALSE|position"),
        ("i IN ()", "list of values|position"),
        ("i IN (SELECT 1)", "list of values"),
        ("frobnicate(i) = 1", "function frobnicate is not known"),
        ("s RLIKE '('", "regular expression cannot be evaluated"),
        ("s RLIKE s", "pattern|constant|text"),
        ("s LIKE 'a!b' ESCAPE '!'", "stands before %, _ or !"),
        ("s LIKE 'a' ESCAPE '!!'", "ESCAPE takes one character"),
        ("contains(s, s)", "The part to look for is a text"),
        ("substring(s, i) = ''", "Places and lengths are whole numbers"),
        ("size(s) = 1", "neither an array nor a map"),
        ("array_contains(s, 'a')", "not an array"),
        ("array_contains(tags, s)", "What is looked for is a constant"),
        ("map_contains_key(tags, 'a')", "not a map"),
        ("tags[i] = 'a'", "The index is a whole number"),
        ("st.y = 1", "y"),
        ("cast(f AS string) = '1'", "is not cast to STRING"),
        ("cast(day AS boolean)", "is not cast to BOOLEAN"),
        ("cast(i AS decimal(10.)) = 1", "DECIMAL"),
        ("i > 1e", "1e is no number"),
        (". 1.5 > i", "is no number"),
        ("cast(tags AS string) = ''", "is not cast to STRING"),
        ("day + n > day", "not a number of days"),
        ("date_add(day, 1.5) = day", "not a number of days"),
        ("ts > INTERVAL 'x' DAY + ts", "number and a unit"),
        ("ts > ts + INTERVAL 1.5 DAYS", "whole number and a unit"),
    ],
)
def test_what_is_refused_says_why(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        truth(text)


@pytest.mark.parametrize(
    ("text", "kind"), [("maybe", "boolean"), ("12x", "int"), ("1.2.3", "decimal(5, 2)")]
)
def test_a_text_that_is_no_such_value(text: str, kind: str) -> None:
    rows: Any = pa.table({"s": [text, None]})
    with pytest.raises(InvalidInputError, match=r"s|cast"):
        truth(f"cast(s AS {kind}) IS NOT NULL", rows)
    assert truth(f"try_cast(s AS {kind}) IS NULL", rows) == [True, True]
