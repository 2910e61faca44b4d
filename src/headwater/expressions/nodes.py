"""Expressions on the columns of rows: frozen values with types, which travel to tasks.

A node knows the Arrow type of its values. What SQL converts without being told, such as an integer
that is compared with a decimal, is a `Cast` like any other, marked as implicit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum, unique
from typing import TypeAlias

import pyarrow as pa

Value: TypeAlias = bool | int | float | Decimal | str | bytes | date | datetime | timedelta | None


@unique
class Function(StrEnum):
    AND = "AND"
    OR = "OR"
    NOT = "NOT"
    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    LESS_EQUAL = "<="
    GREATER = ">"
    GREATER_EQUAL = ">="
    SAME = "<=>"
    IN = "IN"
    LIKE = "LIKE"
    IS_NULL = "IS NULL"
    IS_TRUE = "IS TRUE"
    IS_FALSE = "IS FALSE"
    ADD = "+"
    SUBTRACT = "-"
    MULTIPLY = "*"
    DIVIDE = "/"
    REMAINDER = "%"
    NEGATE = "negative"
    ABSOLUTE = "abs"
    CASE = "CASE"
    COALESCE = "coalesce"
    UPPER = "upper"
    LOWER = "lower"
    TRIM = "trim"
    LENGTH = "length"
    CONCAT = "concat"
    STARTS_WITH = "startswith"
    ENDS_WITH = "endswith"
    CONTAINS = "contains"
    SUBSTRING = "substring"
    IS_NAN = "isnan"
    YEAR = "year"
    QUARTER = "quarter"
    MONTH = "month"
    DAY = "day"
    DAY_OF_WEEK = "dayofweek"
    DAY_OF_YEAR = "dayofyear"
    HOUR = "hour"
    MINUTE = "minute"
    SECOND = "second"
    ADD_DAYS = "date_add"
    DAYS_BETWEEN = "datediff"
    FIELD = "."
    ELEMENT = "[]"
    ELEMENT_FROM_ONE = "element_at"
    ELEMENT_OR_NULL = "get"
    VALUE = "[key]"
    SIZE = "size"
    ARRAY_CONTAINS = "array_contains"
    MAP_CONTAINS_KEY = "map_contains_key"


COMPARISONS = (
    Function.EQUAL,
    Function.NOT_EQUAL,
    Function.LESS,
    Function.LESS_EQUAL,
    Function.GREATER,
    Function.GREATER_EQUAL,
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the rows, or a field inside of one."""

    path: tuple[str, ...]
    type: pa.DataType

    @property
    def operands(self) -> tuple[Node, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Literal:
    value: Value
    type: pa.DataType

    @property
    def operands(self) -> tuple[Node, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Cast:
    """A conversion. One of a text that says no value of the type fails, or gives null (TRY_CAST).

    The zone is that of times that do not say theirs.
    """

    operand: Node
    type: pa.DataType
    zone: str
    is_implicit: bool = False
    is_try: bool = False

    @property
    def operands(self) -> tuple[Node, ...]:
        return (self.operand,)


@dataclass(frozen=True, slots=True)
class Call:
    """A function or an operator.

    CASE has a condition and a value in turns, and a last value for all other rows. IN has the value
    and then literals. LIKE has a pattern in the syntax of RE2, and the text it begins with.
    """

    function: Function
    operands: tuple[Node, ...]
    type: pa.DataType


Node: TypeAlias = Column | Literal | Cast | Call


def columns_of(node: Node) -> Iterator[Column]:
    """Give the columns that an expression looks at."""
    if isinstance(node, Column):
        yield node
    for operand in node.operands:
        yield from columns_of(operand)


def conjuncts_of(node: Node) -> Iterator[Node]:
    """Give what all has to hold for a condition to hold."""
    if isinstance(node, Call) and node.function is Function.AND:
        for operand in node.operands:
            yield from conjuncts_of(operand)
    else:
        yield node
