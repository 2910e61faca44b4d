"""Filters that Spark pushes down into a read.

Spark hands over the conjuncts of a query, one value each. What this reader promises to evaluate,
Spark does not evaluate again, so a filter is taken only if its answer is Spark's own:

    comparison, IN, IS NULL     become text for `queries.snapshot`, which also prunes by them
    others                      are evaluated on the rows, here; a prefix also prunes, as a range

Not taken: columns that the user's schema gives another type than the table has, and literals that
are not compared exactly (`queries.row_filter`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
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

from headwater.queries.predicate import Predicate, parse_predicate
from headwater.queries.row_filter import bind_predicate, matching_rows

_SIGNS: Mapping[type[Filter], str] = MappingProxyType(
    {
        EqualTo: "=",
        GreaterThan: ">",
        GreaterThanOrEqual: ">=",
        LessThan: "<",
        LessThanOrEqual: "<=",
    }
)
_TEXT_TESTS: Mapping[type[Filter], Any] = MappingProxyType(
    {
        StringStartsWith: pc.starts_with,
        StringEndsWith: pc.ends_with,
        StringContains: pc.match_substring,
    }
)
_VALUE = "value"
"""What a filter on rows calls its column, which may be inside of another one."""


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """The filters that a read has taken."""

    where: str | None = None
    """A condition for `ReadRequest`: no row that satisfies all filters fails it."""
    on_rows: tuple[Filter, ...] = ()
    """Those of which `where` says nothing, or too little."""

    def keep(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that satisfy `on_rows`."""
        for each in self.on_rows:
            mask = _holds(each, rows)
            assert mask is not None
            rows = rows.filter(mask)
        return rows


def take_filters(
    filters: Sequence[Filter], columns: pa.Schema
) -> tuple[PushedFilters, list[Filter]]:
    """Return what a read evaluates, and the filters that are left to Spark.

    Args:
        columns: those of the table that the DataFrame shows as they are, meta columns among them.
    """
    pruning: list[str] = []
    on_rows: list[Filter] = []
    left: list[Filter] = []
    empty = pa.RecordBatch.from_pylist([], schema=columns)
    for each in filters:
        text = _sql(each)
        if _path(each)[0] not in columns.names:
            left.append(each)
        elif text is not None and _bound(text, columns).is_understood:
            pruning.append(text)
        elif _holds(each, empty) is not None:
            on_rows.append(each)
            if isinstance(each, StringStartsWith):
                pruning += _prefix_range(each)
        else:
            left.append(each)
    return PushedFilters(" AND ".join(pruning) or None, tuple(on_rows)), left


def _path(given: Filter) -> tuple[str, ...]:
    inner = given.child if isinstance(given, Not) else given
    path: tuple[str, ...] = inner.attribute  # type: ignore[attr-defined]
    return path


def _sql(given: Filter) -> str | None:
    """Return a filter on a column as text; None if there is none for it."""
    path = _path(given)
    return None if len(path) > 1 else _sql_of(_quoted(path[0]), given)


def _sql_of(column: str, given: Filter) -> str | None:
    match given:
        case IsNull():
            return f"{column} IS NULL"
        case IsNotNull():
            return f"{column} IS NOT NULL"
        case Not(child=EqualTo(value=value)):
            return _joined(f"{column} !=", [value])
        case Not(child=IsNull()):
            return f"{column} IS NOT NULL"
        case Not(child=IsNotNull()):
            return f"{column} IS NULL"
        case EqualNullSafe(value=None):
            return f"{column} IS NULL"
        case EqualNullSafe(value=value):
            return _joined(f"{column} =", [value])
        case In(value=values):
            texts = _joined(f"{column} IN (", list(values))
            return None if texts is None else f"{texts})"
        case EqualTo() | GreaterThan() | GreaterThanOrEqual() | LessThan() | LessThanOrEqual():
            return _joined(f"{column} {_SIGNS[type(given)]}", [given.value])
        case _:
            return None


def _joined(head: str, values: Iterable[Any]) -> str | None:
    texts = [_literal(value) for value in values]
    known = [text for text in texts if text is not None]
    return f"{head} {', '.join(known)}" if known and len(known) == len(texts) else None


def _literal(value: Any) -> str | None:
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int() | Decimal():
            return f"{value:f}" if isinstance(value, Decimal) else str(value)
        case float():
            # As a double, and so never for a decimal.
            text = repr(value)
            return text if "e" in text or not text[-1].isdigit() else f"{text}e0"
        case str():
            # What a backslash means in text depends on who reads it.
            return None if "\\" in value else "'" + value.replace("'", "''") + "'"
        case datetime():
            return f"TIMESTAMP '{value.isoformat(sep=' ', timespec='microseconds')}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case _:
            return None


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _prefix_range(given: StringStartsWith) -> list[str]:
    """Return the range of texts with a prefix; they are compared by bytes."""
    column, first = _quoted(_path(given)[0]), given.value
    at_least = _joined(f"{column} >=", [first])
    if at_least is None or not first or not first.isascii() or first[-1] == "\x7f":
        return [] if at_least is None else [at_least]
    below = _joined(f"{column} <", [first[:-1] + chr(ord(first[-1]) + 1)])
    return [at_least] if below is None else [at_least, below]


def _holds(given: Filter, rows: pa.RecordBatch) -> pa.Array | None:
    """Return for each row whether a filter holds, null for unknown; None if that is not known."""
    if isinstance(given, Not):
        holds = _holds(given.child, rows)
        return None if holds is None else pc.invert(holds)
    values = _values(rows, _path(given))
    if values is None:
        return None
    test = _TEXT_TESTS.get(type(given))
    if test is not None:
        is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
        return test(values, given.value) if is_text else None  # type: ignore[attr-defined]
    text = _sql_of(_VALUE, given)
    column = pa.RecordBatch.from_arrays([values], names=[_VALUE])
    predicate = Predicate() if text is None else _bound(text, column.schema)
    if not predicate.conditions or not predicate.is_understood:
        return None
    holds = matching_rows(column, predicate.conditions)
    match given:
        case EqualNullSafe():
            return pc.fill_null(holds, False)
        case In():
            # A look-up finds that null is not there, where SQL does not know.
            return pc.if_else(pc.is_valid(values), holds, pa.scalar(None, pa.bool_()))
        case _:
            return holds


def _bound(text: str, schema: pa.Schema) -> Predicate:
    return bind_predicate(parse_predicate(text), schema)


def _values(rows: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array | None:
    """Return the values at a path of names, null below a null."""
    values = rows.column(path[0])
    for name in path[1:]:
        if not pa.types.is_struct(values.type) or values.type.get_field_index(name) < 0:
            return None
        values = pc.struct_field(values, name)
    return values
