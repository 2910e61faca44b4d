"""Filters that Spark pushes down into a read.

Spark hands over the conjuncts of a query, one value each. What this reader promises to evaluate,
Spark does not evaluate again. Each filter becomes a condition in SQL, which is evaluated with
Spark's answers and prunes by all that is known of the table's files. Those that cannot be said or
compared so are left to Spark, and so are columns that the user's schema gives another type.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from sqlglot import exp

from headwater.errors import InvalidInputError
from headwater.queries.text_filter import filter_of

_SIGNS: Mapping[type[Filter], str] = MappingProxyType(
    {
        EqualTo: "=",
        EqualNullSafe: "<=>",
        GreaterThan: ">",
        GreaterThanOrEqual: ">=",
        LessThan: "<",
        LessThanOrEqual: "<=",
    }
)
_TEXT_TESTS: Mapping[type[Filter], str] = MappingProxyType(
    {StringStartsWith: "startswith", StringEndsWith: "endswith", StringContains: "contains"}
)


def take_filters(filters: Sequence[Filter], columns: pa.Schema) -> tuple[str | None, list[Filter]]:
    """Return what a read evaluates, as one condition, and the filters that are left to Spark.

    Args:
        columns: those of the table that the DataFrame shows as they are, meta columns among them.
    """
    taken: list[str] = []
    left: list[Filter] = []
    for each in filters:
        text = _sql(each)
        if text is None or not _is_condition(text, columns):
            left.append(each)
            continue
        taken.append(text)
    return " AND ".join(taken) or None, left


def _is_condition(text: str, columns: pa.Schema) -> bool:
    try:
        filter_of(text, columns)
    except InvalidInputError:
        return False
    return True


def _sql(given: Filter) -> str | None:
    """Return a filter as text; None if there is none for it."""
    match given:
        case Not():
            inner = _sql(given.child)
            return None if inner is None else f"NOT ({inner})"
        case IsNull():
            return f"{_column(given)} IS NULL"
        case IsNotNull():
            return f"{_column(given)} IS NOT NULL"
        case In(value=values):
            texts = _literals(values)
            return None if texts is None else f"{_column(given)} IN ({texts})"
        case StringStartsWith() | StringEndsWith() | StringContains():
            return f"{_TEXT_TESTS[type(given)]}({_column(given)}, {_literal(given.value)})"
        case _ if type(given) in _SIGNS:
            value = _literal(given.value)  # type: ignore[attr-defined]
            return None if value is None else f"{_column(given)} {_SIGNS[type(given)]} {value}"
        case _:
            return None


def _column(given: Filter) -> str:
    path: tuple[str, ...] = given.attribute  # type: ignore[attr-defined]
    return ".".join(exp.to_identifier(name, quoted=True).sql("spark") for name in path)


def _literals(values: Iterable[Any]) -> str | None:
    texts = [_literal(value) for value in values]
    known = [text for text in texts if text is not None]
    return ", ".join(known) if known and len(known) == len(texts) else None


def _literal(value: Any) -> str | None:
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value)
        case Decimal():
            return f"{value:f}BD"
        case float():
            # As a double, and so never for a decimal.
            return f"{value!r}D" if math.isfinite(value) else None
        case str():
            return exp.Literal.string(value).sql("spark")
        case bytes():
            return f"X'{value.hex()}'"
        case datetime():
            kind = "TIMESTAMP_NTZ" if value.tzinfo is None else "TIMESTAMP"
            return f"{kind} '{value.isoformat(sep=' ', timespec='microseconds')}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case _:
            return None
