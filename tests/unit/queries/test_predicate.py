"""What is understood of SQL conditions, and above all what is not."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from headwater.queries.predicate import Comparison, Condition, Literal, parse_predicate


def one(text: str) -> Condition:
    predicate = parse_predicate(text)
    assert predicate.is_understood
    (condition,) = predicate.conditions
    return condition


@pytest.mark.parametrize(
    ("text", "comparison"),
    [
        ("a = 1", Comparison.EQUAL),
        ("a == 1", Comparison.EQUAL),
        ("a != 1", Comparison.NOT_EQUAL),
        ("a <> 1", Comparison.NOT_EQUAL),
        ("a<1", Comparison.LESS),
        ("a <= 1", Comparison.LESS_EQUAL),
        ("a>1", Comparison.GREATER),
        ("(((a >= 1)))", Comparison.GREATER_EQUAL),
    ],
)
def test_comparisons(text: str, comparison: Comparison) -> None:
    assert one(text) == Condition("a", comparison, (1,))


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("17", 17),
        ("-17", -17),
        ("+ 17", 17),
        ("1.50", Decimal("1.50")),
        ("-.5", Decimal("-0.5")),
        ("1e3", 1000.0),
        ("'it''s'", "it's"),
        ("' AND '", " AND "),
        ("true", True),
        ("FALSE", False),
        ("date '2024-01-31'", date(2024, 1, 31)),
        ("TIMESTAMP '2024-01-31 09:30:00.25'", datetime(2024, 1, 31, 9, 30, 0, 250_000)),
        ("timestamp'2024-01-31T09:30:00Z'", datetime(2024, 1, 31, 9, 30, tzinfo=UTC)),
    ],
)
def test_literals(text: str, literal: Literal) -> None:
    found = one(f"a = {text}").literals
    assert found == (literal,)
    assert type(found[0]) is type(literal)


def test_lists_ranges_and_nulls_in_any_case() -> None:
    predicate = parse_predicate(
        "City in ('sf', 'la') AND v Between 1 aNd 5 and w IS null AND `odd ``name` is NOT NULL"
    )
    assert predicate.is_understood
    assert predicate.conditions == (
        Condition("City", Comparison.IN, ("sf", "la")),
        Condition("v", Comparison.BETWEEN, (1, 5)),
        Condition("w", Comparison.IS_NULL),
        Condition("odd `name", Comparison.IS_NOT_NULL),
    )


def test_parentheses_around_conjunctions_open_up() -> None:
    predicate = parse_predicate("((a = 1) AND (b = 2 AND (c = 3)))")
    assert [condition.column for condition in predicate.conditions] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "text",
    [
        "upper(b) = 'X'",
        "b = c",
        "1 = b",
        "b = NULL",
        "b IN (1, NULL)",
        "b IN ()",
        "b IN (1,)",
        "b IN (SELECT x FROM y)",
        "b NOT IN (1)",
        "NOT b = 1",
        "b <=> 1",
        "b LIKE 'x%'",
        "b = 1L",
        "b = 1 + 1",
        "b - 1 = 1",
        "t.b = 1",
        "b.c = 1",
        'b = "x AND y"',
        "b = X'1F'",
        "b = DATE '2024-02-30'",
        "b = TIMESTAMP 'yesterday'",
        "b BETWEEN c AND 3",
        "b NOT BETWEEN 1 AND 2",
        "(b = 1 OR c = 2)",
        "exists(b, x -> x = 1 AND x = 2)",
        "true",
        "null = 1",
        "b",
        "b = 1234567890123456789012345678901234567890",
    ],
)
def test_an_unknown_conjunct_leaves_the_others(text: str) -> None:
    predicate = parse_predicate(f"a = 1 AND {text} AND z = 2")
    assert predicate.conditions == (
        Condition("a", Comparison.EQUAL, (1,)),
        Condition("z", Comparison.EQUAL, (2,)),
    )
    (unknown,) = predicate.unknown
    assert unknown in text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "a = 1 OR b = 2 AND c = 3",
        "a = 1 AND b = 2 or c = 3",
        "a = 1 -- AND b = 2",
        "a = 1 /* AND b = 2 */",
        r"a = 'x\' AND b = ' AND c = 3",
        "a = 'x AND b = 2",
        "a = 1) AND (b = 2",
        "a = 1 AND (b = 2",
        "a = 1 AND",
        "AND a = 1",
        "a = 1 AND AND b = 2",
        "CASE WHEN a = 1 AND b = 2 THEN true END AND c = 3",
        "(" * 500 + "a = 1" + ")" * 500,
    ],
)
def test_text_without_certain_conjuncts_is_unknown_as_a_whole(text: str) -> None:
    predicate = parse_predicate(text)
    assert predicate.conditions == ()
    assert predicate.unknown == (text.strip(),)
