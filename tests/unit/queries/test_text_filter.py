"""What a SQL condition tells about single columns, for skipping, and above all what it does not."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headwater.queries.predicate import Comparison, Condition, Predicate
from headwater.queries.text_filter import filter_of, known_part_of

SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.int64()),
        ("v", pa.float64()),
        ("City", pa.string()),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("is_on", pa.bool_()),
        ("odd `name", pa.int64()),
        ("part", pa.struct([("x", pa.int64())])),
    ]
)


def known(text: str, zone: str = "UTC") -> Predicate:
    return known_part_of(text, SCHEMA, zone)


def one(text: str) -> Condition:
    predicate = known(text)
    assert not predicate.alternatives
    (condition,) = predicate.conditions
    return condition


@pytest.mark.parametrize(
    ("text", "comparison"),
    [
        ("a = 1", Comparison.EQUAL),
        ("a == 1", Comparison.EQUAL),
        ("1 = a", Comparison.EQUAL),
        ("a <=> 1", Comparison.EQUAL),
        ("NOT a != 1", Comparison.EQUAL),
        ("a = 0 + 1", Comparison.EQUAL),
        ("a = '1'", Comparison.EQUAL),
        ("a = 1L", Comparison.EQUAL),
        ("a != 1", Comparison.NOT_EQUAL),
        ("a <> 1", Comparison.NOT_EQUAL),
        ("NOT a = 1", Comparison.NOT_EQUAL),
        ("a<1", Comparison.LESS),
        ("1 > a", Comparison.LESS),
        ("a <= 1", Comparison.LESS_EQUAL),
        ("a>1", Comparison.GREATER),
        ("NOT (a <= 1)", Comparison.GREATER),
        ("(((a >= 1)))", Comparison.GREATER_EQUAL),
    ],
)
def test_comparisons(text: str, comparison: Comparison) -> None:
    assert one(text) == Condition("a", comparison, (1,))


@pytest.mark.parametrize(
    ("text", "column", "literal"),
    [
        ("a = -17", "a", -17),
        ("a < 1.50", "a", Decimal("1.50")),
        ("v = -.5", "v", -0.5),
        ("v = 1e3", "v", 1000.0),
        ("city = 'it''s'", "City", "it's"),
        (r"city = 'it\'s'", "City", "it's"),
        ('city = "sf"', "City", "sf"),
        ("city = ' AND '", "City", " AND "),
        ("is_on = true", "is_on", True),
        ("is_on", "is_on", True),
        ("NOT is_on", "is_on", False),
        ("day = date '2024-01-31'", "day", date(2024, 1, 31)),
        ("day = '2024-01-31'", "day", date(2024, 1, 31)),
        ("ts = TIMESTAMP '2024-01-31 09:30:00.25'", "ts", datetime(2024, 1, 31, 9, 30, 0, 250000)),
        ("ts = timestamp'2024-01-31T10:30:00+01:00'", "ts", datetime(2024, 1, 31, 9, 30)),
        ("ts = '2024-01-31'", "ts", datetime(2024, 1, 31)),
    ],
)
def test_literals(text: str, column: str, literal: Any) -> None:
    condition = one(text)
    assert condition.column == column
    if column == "ts":
        literal = literal.replace(tzinfo=UTC)
    assert condition.literals == (literal,)


def test_times_without_a_zone_are_of_the_one_that_is_said() -> None:
    text = "ts = TIMESTAMP '2024-07-01 12:00:00'"
    (condition,) = known(text, "Europe/Berlin").conditions
    assert condition.literals == (datetime(2024, 7, 1, 10, tzinfo=UTC),)
    assert known(text, "no/where") == Predicate()
    assert one("local = TIMESTAMP_NTZ '2024-01-01 00:00:00'").literals == (datetime(2024, 1, 1),)
    assert known("local > TIMESTAMP '2024-01-01 00:00:00'") == Predicate()


def test_lists_ranges_and_nulls_in_any_case() -> None:
    predicate = known(
        "city in ('sf', 'la') AND A Between 1 aNd 5 and b IS null AND `odd ``name` is NOT NULL"
    )
    assert predicate.conditions == (
        Condition("City", Comparison.IN, ("sf", "la")),
        Condition("a", Comparison.GREATER_EQUAL, (1,)),
        Condition("a", Comparison.LESS_EQUAL, (5,)),
        Condition("b", Comparison.IS_NULL),
        Condition("odd `name", Comparison.IS_NOT_NULL),
    )


def test_a_prefix_is_a_range() -> None:
    assert known("city LIKE 's%f' AND city LIKE '%x'").conditions == (
        Condition("City", Comparison.GREATER_EQUAL, ("s",)),
        Condition("City", Comparison.LESS, ("t",)),
    )
    assert known("startswith(city, 'sf')").conditions[1].literals == ("sg",)
    assert known(r"city LIKE 's\_f%'").conditions[0].literals == ("s_f",)
    assert known("city ILIKE 's%' OR city NOT LIKE 's%'") == Predicate()


def test_equalities_of_one_column_are_a_list() -> None:
    assert one("a = 1 OR a IN (2, 3)") == Condition("a", Comparison.IN, (1, 2, 3))
    assert one("a IN (1, NULL)") == Condition("a", Comparison.IN, (1,))
    assert one("NOT (a != 1 AND a != 2)") == Condition("a", Comparison.IN, (1, 2))


def test_alternatives() -> None:
    predicate = known("(a = 1 AND b > 2) OR v < 0.5")
    assert predicate.conditions == ()
    ((first, second),) = predicate.alternatives
    assert [condition.column for condition in first.conditions] == ["a", "b"]
    assert second.conditions == (Condition("v", Comparison.LESS, (0.5,)),)
    assert known("a = 1 OR upper(city) = 'X'") == Predicate()
    of_a = predicate.restricted(lambda condition: condition.column == "a")
    assert of_a == Predicate()


@pytest.mark.parametrize(
    "text",
    [
        "upper(city) = 'X'",
        "b = a",
        "b = NULL",
        "b IN (SELECT x FROM y)",
        "b NOT IN (1)",
        "b - 1 = 1",
        "cast(b as int) = 1",
        "part.x = 1",
        "city = 1",
        "v = 1e999",
        "b = DATE '2024-02-30'",
        "b BETWEEN a AND a",
        "exists(b, x -> x = 1 AND x = 2)",
        "unknown_function(b)",
        "nope = 1",
        "true",
        "b",
        "b = 1e0",
    ],
)
def test_an_unknown_conjunct_leaves_the_others(text: str) -> None:
    predicate = known(f"a = 1 AND {text} AND is_on")
    assert predicate.conditions == (
        Condition("a", Comparison.EQUAL, (1,)),
        Condition("is_on", Comparison.EQUAL, (True,)),
    )
    assert not predicate.alternatives


@pytest.mark.parametrize(
    "text",
    ["", "  ", "a = 'x AND b = 2", "a = 1) AND (b = 2", "a = 1 AND", "AND a = 1", "(" * 5000],
)
def test_of_what_is_no_condition_nothing_is_known(text: str) -> None:
    assert known(text) == Predicate()


def test_a_filter_has_all_of_the_condition() -> None:
    predicate = filter_of("a = 1 AND upper(City) = 'X'", SCHEMA)
    assert predicate.conditions == (Condition("a", Comparison.EQUAL, (1,)),)
    assert predicate.columns == {"a", "City"}
