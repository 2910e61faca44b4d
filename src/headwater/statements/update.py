"""UPDATE and DELETE of the rows that satisfy a condition, each one write with one commit.

The rows are found as a read finds them, by partitions, statistics and indexes. A delete takes
nothing but their keys. An update writes whole rows; to a merge-on-read table, where its merge mode
allows, only the columns that it sets and those that say where a row belongs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.arrow.convert import convert_array
from headwater.config.arguments import text_of
from headwater.context import TableContext
from headwater.errors import InvalidInputError
from headwater.expressions.compile import compile_value
from headwater.expressions.evaluate import evaluate
from headwater.expressions.nodes import Literal, Node, columns_of
from headwater.expressions.scope import Scope
from headwater.metadata.view import IndexedView
from headwater.model.commit import Commit
from headwater.operations.plan import Operation
from headwater.queries.text_filter import filter_of, with_now
from headwater.statements.target import Target, replaced, run_statement

_CONSTANTS = (bool, int, float, Decimal, date, datetime, bytes, np.generic)


def run_delete(table: TableContext, where: str, zone: str = "UTC") -> Commit:
    """Delete the rows that satisfy a condition.

    Raises:
        InvalidInputError: the condition cannot be evaluated, or the table has no record key.
        Otherwise see `operations.write.run_write`.
    """
    return run_statement(table, zone, lambda target: _delete(target, where))


def _delete(target: Target, where: str) -> Commit:
    check_condition(target, where)
    columns = target.fields({*target.key_columns, *target.partition_columns})

    def keys_of(view: IndexedView) -> Iterator[pa.RecordBatch]:
        return target.read(view, columns.names, where)

    return target.write(Operation.DELETE, columns, keys_of)


def run_update(
    table: TableContext, values: Mapping[str, Any], where: str | None, zone: str = "UTC"
) -> Commit:
    """Set columns of the rows that satisfy a condition, of all rows if there is none.

    Args:
        values: by column a SQL expression on the row as it was, or a value that is no text.

    Raises:
        InvalidInputError: the statement cannot be evaluated, or sets what must not change.
        UnsupportedError: the table merges by a function of the user's.
        Otherwise see `operations.write.run_write`.
    """
    return run_statement(table, zone, lambda target: _update(target, values, where))


def _update(target: Target, values: Mapping[str, Any], where: str | None) -> Commit:
    target.check_updates()
    if where is not None:
        check_condition(target, where)
    assigned = compile_assignments(target, values, Scope(target.schema))
    is_partial = target.writes_partially()
    written = target.schema
    if is_partial:
        written = target.fields({*target.deciding_columns, *assigned})
    used = {column.path[0] for node in assigned.values() for column in columns_of(node)}

    def new_rows(view: IndexedView) -> Iterator[pa.RecordBatch]:
        for old in target.read(view, {*written.names, *used}, where):
            new = assign(old, old, assigned)
            target.check_new_rows(old, new, assigned)
            yield new.select(written.names)

    return target.write(Operation.UPSERT, written, new_rows, is_partial=is_partial)


def compile_assignments(target: Target, values: Mapping[str, Any], scope: Scope) -> dict[str, Node]:
    """Return by column what it is set to.

    Raises:
        InvalidInputError: a column does not exist or comes twice, or a value does not fit.
    """
    if not isinstance(values, Mapping):
        raise InvalidInputError(
            "What columns are set to is a mapping by column, such as {'fare': 'fare * 2'}, got "
            f"{type(values).__name__}"
        )
    if not values:
        raise InvalidInputError("An update sets at least one column")
    assigned: dict[str, Node] = {}
    for name, given in values.items():
        field = target.column(text_of(name, "A column to set"))
        if field.name in assigned:
            raise InvalidInputError(f"Column {field.name} is set twice")
        assigned[field.name] = _value(given, field, scope, target)
    return assigned


def assign(
    rows: pa.RecordBatch, context: pa.RecordBatch, assigned: Mapping[str, Node]
) -> pa.RecordBatch:
    """Return rows with the values of assignments.

    Args:
        context: the rows that the values are made of, as many.

    Raises:
        InvalidInputError: a value does not fit into its column.
    """
    for name, node in assigned.items():
        # Expressions know microseconds only, columns also milliseconds.
        values = convert_array(evaluate(node, context), rows.schema.field(name), (name,))
        rows = replaced(rows, name, values)
    return rows


def check_condition(target: Target, where: str) -> None:
    """Refuse a condition that cannot be evaluated, before a write begins."""
    filter_of(with_now(where, target.schema, target.zone, target.now), target.schema, target.zone)


def _value(given: Any, field: pa.Field, scope: Scope, target: Target) -> Node:
    if isinstance(given, str):
        if not given.strip():
            raise InvalidInputError(
                f"Column {field.name} is set to an empty expression. The empty text is \"''\" in "
                "SQL, and None is null"
            )
        return compile_value(given, scope, field.type, target.zone, target.now)
    if isinstance(given, Decimal) and not given.is_finite():
        raise InvalidInputError(
            f"{given!r} does not fit into column {field.name} of type {field.type}: decimals are "
            "finite. A floating point column takes float('inf') and float('nan')"
        )
    if given is None or isinstance(given, _CONSTANTS):
        try:
            return Literal(pa.array([given]).cast(field.type)[0].as_py(), field.type)
        except (pa.ArrowException, OverflowError) as error:
            raise InvalidInputError(
                f"{given!r} does not fit into column {field.name} of type {field.type}: {error}"
            ) from error
    raise InvalidInputError(
        f"Column {field.name} is set to a SQL expression as text, or to a number, boolean, date, "
        f"datetime, bytes or None; got {type(given).__name__}"
    )
