"""RLIKE finds what Java's regular expressions find, or is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headwater.errors import InvalidInputError
from headwater.expressions.compile import compile_condition
from headwater.expressions.evaluate import evaluate
from headwater.expressions.scope import Scope

TEXTS = ["abc", "a\nb", "a\rb", "ab\n", "ab\r\n", "x1 y", "a.b", "", None, "a\u2028b", "\x0b"]
ROWS = pa.table({"s": TEXTS})


def found(condition: str) -> list[str | None]:
    holds = evaluate(compile_condition(condition, Scope(ROWS.schema)), ROWS).to_pylist()
    assert holds[TEXTS.index(None)] is None
    return [text for text, is_found in zip(TEXTS, holds, strict=True) if is_found]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("s RLIKE 'b'", ["abc", "a\nb", "a\rb", "ab\n", "ab\r\n", "a.b", "a\u2028b"]),
        ("s RLIKE '^a.b$'", ["a.b"]),
        ("s RLIKE 'ab$'", ["ab\n", "ab\r\n"]),
        ("regexp_like(s, '^(abc|x[0-9] y)$')", ["abc", "x1 y"]),
        (r"s REGEXP '^\\w{2}\\s'", ["ab\n", "ab\r\n", "x1 y"]),
        (r"s RLIKE 'a\\.b'", ["a.b"]),
        (r"s RLIKE '^[^\\s]+$'", ["abc", "ab\n", "ab\r\n", "a.b", "a\u2028b"]),
        (r"s RLIKE '^\\s$'", ["\x0b"]),
        ("s NOT RLIKE 'a|x'", ["", "\x0b"]),
    ],
)
def test_what_a_regular_expression_finds(condition: str, expected: list[str]) -> None:
    assert found(condition) == expected


@pytest.mark.parametrize(
    "pattern",
    [
        r"\\bword",
        "(?i)a",
        "(?=a)",
        r"(a)\\1",
        "a++",
        "[a&&b]",
        "[[a]]",
        r"\\p{L}",
        "a$b",
        "(",
        "[]",
        r"\\x41",
    ],
)
def test_what_the_two_do_not_share_is_refused_with_its_place(pattern: str) -> None:
    with pytest.raises(InvalidInputError, match="The regular expression cannot be evaluated"):
        compile_condition(f"s RLIKE '{pattern}'", Scope(ROWS.schema))


def test_a_pattern_is_a_text() -> None:
    with pytest.raises(InvalidInputError, match="The pattern is a text"):
        compile_condition("s RLIKE s", Scope(ROWS.schema))
