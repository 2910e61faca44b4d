"""Parsing SQL expressions as Spark writes them, with places in messages."""

from __future__ import annotations

import re
from typing import Any, ClassVar, TypeAlias

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.spark import SparkParser

from headwater.config.arguments import text_of
from headwater.config.limits import BRACKETS_MAX, CHARACTERS_MAX, DIGITS_MAX, LEVELS_MAX
from headwater.errors import InvalidInputError

Tree: TypeAlias = exp.Expr
"""A node of the syntax tree."""

SUPPORTED = (
    "Supported are comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, RLIKE, IS NULL, arithmetic, CASE, "
    "CAST, TRY_CAST, fields of structs, elements of arrays and maps, intervals, and the functions "
    "abs, array_contains, coalesce, concat, contains, current_date, current_timestamp, date_add, "
    "date_sub, datediff, day, dayofweek, dayofyear, element_at, endswith, get, hour, if, isnan, "
    "left, length, lower, map_contains_key, minute, month, now, nullif, quarter, second, size, "
    "startswith, substring, to_date, trim, upper and year"
)

_SHOWN_MAX = 200
_OPENING, _CLOSING = "([{", ")]}"
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`[^`]*`""", re.DOTALL)
_DIGITS = re.compile(r"[0-9]+", re.ASCII)


class HeadwaterSpark(Spark):
    """Spark 4: a doubled quote is a quote, and CAST fails where TRY_CAST gives null."""

    class Tokenizer(Spark.Tokenizer):
        STRING_ESCAPES: ClassVar[list[str]] = ["'", '"', "\\"]

    class Parser(SparkParser):
        STRICT_CAST = True


def parse_expression(text: str) -> Tree:
    """Return the syntax tree of a SQL expression.

    Raises:
        InvalidInputError: the text is no expression; the message has the place.
    """
    return _parse(text, exp.Condition)


def parse_select(text: str) -> Tree:
    """Return the syntax tree of a SQL query.

    Raises:
        InvalidInputError: the text is no query; the message has the place.
    """
    return _parse(text, exp.Select)


def _parse(text: str, kind: type[Tree]) -> Tree:
    text_of(text, "An expression in SQL")
    if not text.strip():
        raise InvalidInputError(f"The condition is empty. {SUPPORTED}")
    if len(text) > CHARACTERS_MAX.value:
        raise InvalidInputError(
            f"The condition has {len(text)} characters, more than {CHARACTERS_MAX}"
        )
    if max(_depths(text)) > BRACKETS_MAX.value:
        raise InvalidInputError(
            f"The condition has more open brackets than {BRACKETS_MAX}: {_shortened(text)}"
        )
    _check_digits(text)
    try:
        tree = sqlglot.parse_one(text, dialect=HeadwaterSpark, into=kind)
    except ParseError as error:
        first: dict[str, Any] = error.errors[0] if error.errors else {}
        what = str(first.get("description") or error).split(" for <class")[0].rstrip(".")
        found = first.get("highlight")
        at = len(str(first.get("start_context") or ""))
        near = f" near {found!r}" if found else ""
        raise InvalidInputError(f"{what}{near}\n{_marked(text, at)}\n{SUPPORTED}") from error
    except RecursionError as error:
        raise InvalidInputError(
            f"The condition is nested too deeply to be read: {_shortened(text)}"
        ) from error
    except TokenError as error:
        raise InvalidInputError(
            f"A text or a bracket has no end\n{_marked(text, len(text))}\n{SUPPORTED}"
        ) from error
    _check_levels(tree, text)
    return tree


def refused(text: str, node: Tree, what: str) -> InvalidInputError:
    """Return the error of a part of an expression that cannot be evaluated."""
    return InvalidInputError(f"{what}\n{_marked(text, _place(node))}\n{SUPPORTED}")


def flattened(tree: Tree, kind: type[Tree]) -> list[Tree]:
    """Return the operands of operators of one kind in a row; a chain of them may be long."""
    found: list[Tree] = []
    while isinstance(tree, kind):
        found.append(tree.expression)
        tree = tree.this
    return [tree, *reversed(found)]


def _place(node: Tree) -> int:
    """Return where a node begins in the text, as far as its tokens tell."""
    starts = [each.meta["start"] for each in node.walk() if "start" in each.meta]
    return min(starts, default=0)


def _marked(text: str, at: int) -> str:
    """Return the line of a place with a mark under it."""
    begin = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    line = text[begin:] if end < 0 else text[begin:end]
    return f"  {line}\n  {' ' * (at - begin)}^ position {at + 1}"


def _check_levels(tree: Tree, text: str) -> None:
    """Refuse what is nested so deeply that whoever walks down the tree would run out of stack."""
    left = [(tree, 1)]
    while left:
        node, level = left.pop()
        if level > LEVELS_MAX.value:
            raise InvalidInputError(
                f"The condition has more levels than {LEVELS_MAX}: {_shortened(text)}"
            )
        for child in node.iter_expressions():
            is_chain = isinstance(node, exp.And | exp.Or) and type(child) is type(node)
            left.append((child, level + (not is_chain)))


def _check_digits(text: str) -> None:
    """Refuse numbers that take long to read. Digits inside of a text do not count."""
    longest = max((found.end() - found.start() for found in _DIGITS.finditer(text)), default=0)
    if longest <= DIGITS_MAX.value:
        return
    outside = _QUOTED.sub("''", text)
    longest = max((found.end() - found.start() for found in _DIGITS.finditer(outside)), default=0)
    if longest > DIGITS_MAX.value:
        raise InvalidInputError(
            f"The condition has a number of {longest} digits, more than {DIGITS_MAX}: "
            f"{_shortened(text)}"
        )


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def _depths(text: str) -> list[int]:
    depth, depths = 0, [0]
    for sign in text:
        depth += (sign in _OPENING) - (sign in _CLOSING)
        depths.append(depth)
    return depths
