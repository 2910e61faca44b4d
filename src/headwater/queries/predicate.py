"""The part of a SQL condition that can be understood without an engine.

A text is cut into conjuncts at each AND of its outermost level. A conjunct is understood if it is

    column = literal          also != <> == < <= > >=
    column IN (literal, ...)
    column BETWEEN literal AND literal
    column IS NULL            also IS NOT NULL

or such conjuncts in parentheses. Literals are numbers, 'text', TRUE, FALSE, DATE '2024-01-31' and
TIMESTAMP '2024-01-31 09:30:00'. Whatever else there is becomes an unknown conjunct: it drops no
row and skips no file, so it is never wrong to understand too little. The rules of precedence are
Spark's: an OR on the outermost level makes the whole text one unknown conjunct.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum, unique
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

Literal: TypeAlias = bool | int | float | Decimal | str | date | datetime
"""A timestamp without a zone is a naive `datetime`."""


@unique
class Comparison(StrEnum):
    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    LESS_EQUAL = "<="
    GREATER = ">"
    GREATER_EQUAL = ">="
    IN = "IN"
    BETWEEN = "BETWEEN"
    IS_NULL = "IS NULL"
    IS_NOT_NULL = "IS NOT NULL"


@dataclass(frozen=True, slots=True)
class Condition:
    """One conjunct. IN has any number of literals, BETWEEN two, those about null none."""

    column: str
    comparison: Comparison
    literals: tuple[Literal, ...] = ()


@dataclass(frozen=True, slots=True)
class Predicate:
    """Conditions that a row has to satisfy all of, and conjuncts that nobody here understands.

    A comparison with a null is neither true nor false (SQL's third value), and only rows for which
    all conditions are true are kept.
    """

    conditions: tuple[Condition, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def is_understood(self) -> bool:
        return not self.unknown

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(condition.column for condition in self.conditions)


def parse_predicate(text: str) -> Predicate:
    """Return what can be understood of a SQL condition. Malformed text is unknown text."""
    tokens = _tokens(text)
    conditions: list[Condition] = []
    unknown: list[str] = []
    for conjunct in [None] if tokens is None else _conjuncts(tokens):
        condition = None if conjunct is None else _condition(conjunct)
        if condition is not None:
            conditions.append(condition)
        else:
            unknown.append(text.strip() if conjunct is None else _source(text, conjunct))
    return Predicate(tuple(conditions), tuple(unknown))


def parse_date(text: str) -> date | None:
    """Return the day that a text of the form yyyy-MM-dd means."""
    if not _DATE.fullmatch(text):
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


@unique
class _Kind(StrEnum):
    TEXT = "text"
    NAME = "name"
    NUMBER = "number"
    WORD = "word"
    OPAQUE = "opaque"
    SYMBOL = "symbol"


class _Token(NamedTuple):
    kind: _Kind
    text: str
    """The value of a text, the name inside backquotes, a word in capitals."""
    start: int
    end: int
    written: str


# Backslashes in text mean different things under different settings of Spark, so text with one
# is not taken for text. Text in double quotes may be a name.
_TOKEN = re.compile(
    r"""
      \s+
    | '(?P<text>(?:[^'\\]|'')*)'
    | `(?P<name>(?:[^`]|``)+)`
    | (?P<opaque>"(?:[^"\\]|"")*")
    | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w.]))
    | (?P<word>[A-Za-z_][A-Za-z_0-9]*)
    | (?P<symbol><=>|<=|>=|<>|!=|==|--|/\*|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_UNENDING = frozenset({"'", '"', "`", "--", "/*"})
"""Where a comment or a quoted text begins whose end cannot be told."""

_COMPARISONS: Mapping[str, Comparison] = MappingProxyType(
    {
        "=": Comparison.EQUAL,
        "==": Comparison.EQUAL,
        "!=": Comparison.NOT_EQUAL,
        "<>": Comparison.NOT_EQUAL,
        "<": Comparison.LESS,
        "<=": Comparison.LESS_EQUAL,
        ">": Comparison.GREATER,
        ">=": Comparison.GREATER_EQUAL,
    }
)
_NULL_TESTS: Mapping[str, Comparison] = MappingProxyType(
    {"IS NULL": Comparison.IS_NULL, "IS NOT NULL": Comparison.IS_NOT_NULL}
)
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_RESERVED = frozenset(
    ("AND", "OR", "NOT", "NULL", "TRUE", "FALSE", "IN", "IS", "BETWEEN", "LIKE", "CASE", "EXISTS")
)
_DEPTH_MAX = 100
"""More brackets than this nobody writes by hand, and they would exhaust the stack."""

_DIGITS_MAX = 38
"""Of a number in SQL."""
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_TIMESTAMP = re.compile(
    rf"{_DATE.pattern}(?:[ T][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:\.[0-9]{{1,6}})?"
    r"(?:Z|[+-][0-9]{2}:[0-9]{2})?)?",
    re.ASCII,
)


def _tokens(text: str) -> list[_Token] | None:
    """Return the tokens, or None if it cannot be told where one ends or brackets do not match."""
    tokens = []
    depth = 0
    for match in _TOKEN.finditer(text):
        if match.lastgroup is None:
            continue
        kind, written = _Kind(match.lastgroup), match[match.lastgroup]
        if kind is _Kind.SYMBOL:
            depth += (written in _OPENING) - (written in _CLOSING)
            if written in _UNENDING or not 0 <= depth <= _DEPTH_MAX:
                return None
        value = {
            _Kind.TEXT: written.replace("''", "'"),
            _Kind.NAME: written.replace("``", "`"),
            _Kind.WORD: written.upper(),
        }.get(kind, written)
        tokens.append(_Token(kind, value, match.start(), match.end(), written))
    return tokens if tokens and depth == 0 else None


def _conjuncts(tokens: Sequence[_Token]) -> Iterator[Sequence[_Token]]:
    """Cut at the ANDs of the outermost level, also inside parentheses around all of it."""
    inner = _unwrapped(tokens)
    ands = _outermost_ands(inner)
    if not ands:
        yield inner
        return
    start = 0
    for place in [*ands, len(inner)]:
        if place == start:  # Two ANDs in a row, or one at an end: no SQL.
            yield tokens
            return
        start = place + 1
    start = 0
    for place in [*ands, len(inner)]:
        yield from _conjuncts(inner[start:place])
        start = place + 1


def _unwrapped(tokens: Sequence[_Token]) -> Sequence[_Token]:
    while len(tokens) > 2 and tokens[0].text == "(" and _closing_place(tokens) == len(tokens) - 1:
        tokens = tokens[1:-1]
    return tokens


def _closing_place(tokens: Sequence[_Token]) -> int | None:
    """Return where the bracket that the tokens begin with is closed."""
    for place, depth in enumerate(_depths(tokens)):
        if depth == 0:
            return place
    return None


def _depths(tokens: Sequence[_Token]) -> Iterator[int]:
    """Give the number of brackets that are open after each token."""
    depth = 0
    for token in tokens:
        if token.kind is _Kind.SYMBOL:
            depth += (token.text in _OPENING) - (token.text in _CLOSING)
        yield depth


def _outermost_ands(tokens: Sequence[_Token]) -> list[int]:
    """Return where conjuncts end; nowhere if AND does not bind weakest, or CASE may contain it."""
    places = []
    open_betweens = 0
    for place, (token, depth) in enumerate(zip(tokens, _depths(tokens), strict=True)):
        if depth or token.kind is not _Kind.WORD:
            continue
        if token.text in ("OR", "CASE"):
            return []
        if token.text == "BETWEEN":
            open_betweens += 1
        elif token.text == "AND" and open_betweens:
            open_betweens -= 1
        elif token.text == "AND":
            places.append(place)
    return places


def _condition(tokens: Sequence[_Token]) -> Condition | None:
    column, rest = _column(tokens[0]), tokens[1:]
    if column is None or not rest:
        return None
    words = [token.text for token in rest if token.kind is _Kind.WORD]
    if len(words) == len(rest) and words[0] == "IS":
        comparison = _NULL_TESTS.get(" ".join(words))
        return None if comparison is None else Condition(column, comparison)
    operator, operands = rest[0], rest[1:]
    if operator.kind is _Kind.SYMBOL and operator.text in _COMPARISONS:
        return _with_literals(column, _COMPARISONS[operator.text], [operands])
    if _is_word(operator, "BETWEEN"):
        middle = next((at for at, token in enumerate(operands) if _is_word(token, "AND")), None)
        if middle is None:
            return None
        return _with_literals(
            column, Comparison.BETWEEN, [operands[:middle], operands[middle + 1 :]]
        )
    if _is_word(operator, "IN") and len(operands) > 2 and operands[0].text == "(":
        if _closing_place(operands) != len(operands) - 1:
            return None
        return _with_literals(column, Comparison.IN, list(_elements(operands[1:-1])))
    return None


def _column(token: _Token) -> str | None:
    if token.kind is _Kind.NAME:
        return token.text
    is_name = token.kind is _Kind.WORD and token.text not in _RESERVED
    return token.written if is_name else None


def _is_word(token: _Token, word: str) -> bool:
    return token.kind is _Kind.WORD and token.text == word


def _elements(tokens: Sequence[_Token]) -> Iterator[Sequence[_Token]]:
    start = 0
    for place, token in enumerate(tokens):
        if token.kind is _Kind.SYMBOL and token.text == ",":
            yield tokens[start:place]
            start = place + 1
    yield tokens[start:]


def _with_literals(
    column: str, comparison: Comparison, operands: Sequence[Sequence[_Token]]
) -> Condition | None:
    literals = [_literal(operand) for operand in operands]
    known = tuple(literal for literal in literals if literal is not None)
    return Condition(column, comparison, known) if len(known) == len(literals) else None


def _literal(tokens: Sequence[_Token]) -> Literal | None:
    kinds = [token.kind for token in tokens]
    texts = [token.text for token in tokens]
    match kinds, texts:
        case [_Kind.NUMBER], [number]:
            return _number(number)
        case [_Kind.SYMBOL, _Kind.NUMBER], [("+" | "-") as sign, number]:
            return _number(sign + number)
        case [_Kind.TEXT], [text]:
            return text
        case [_Kind.WORD], [("TRUE" | "FALSE") as word]:
            return word == "TRUE"
        case [_Kind.WORD, _Kind.TEXT], ["DATE", text]:
            return parse_date(text)
        case [_Kind.WORD, _Kind.TEXT], ["TIMESTAMP", text] if _TIMESTAMP.fullmatch(text):
            return _timestamp(text)
        case _:
            return None


def _number(text: str) -> int | float | Decimal | None:
    if len(text) > _DIGITS_MAX:
        return None
    if "e" in text or "E" in text:
        return float(text)
    return Decimal(text) if "." in text else int(text)


def _timestamp(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _source(text: str, tokens: Sequence[_Token]) -> str:
    return text[tokens[0].start : tokens[-1].end]
