"""PARTITION (city = 'sf', day): which partitions of a table a statement names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from sqlglot import exp

from headwater.arrow.key_text import column_text
from headwater.arrow.keys import KeyGenerator
from headwater.errors import InvalidInputError, UnsupportedError
from headwater.metadata.view import view_of
from headwater.spark_sql.names import Names
from headwater.table import Table

Values = Mapping[str, exp.Expr]
"""What a statement gives for partition columns, by their names in the table."""


def taken_apart(
    table: Table, given: exp.Partition | None, names: Names
) -> tuple[dict[str, exp.Expr], list[str]]:
    """Return the columns that a PARTITION (...) gives values for, and those that it leaves open.

    Raises:
        InvalidInputError: a column is none by which the table is partitioned, or comes twice.
    """
    fixed: dict[str, exp.Expr] = {}
    left_open: list[str] = []
    for each in () if given is None else given.expressions:
        name = each.this.name if isinstance(each, exp.EQ) else each.name
        column = names.column(name, table.config.partition_columns)
        if column is None or column in (*fixed, *left_open):
            raise _misfit(table, given, "must name columns")
        if isinstance(each, exp.EQ):
            fixed[column] = each.expression
        else:
            left_open.append(column)
    return fixed, left_open


def path_named(table: Table, given: exp.Partition, names: Names) -> str:
    """Return the path of the one partition that a statement names, there or not.

    Raises:
        InvalidInputError: a column has no value, or one that is no literal of its type.
    """
    fixed, _ = taken_apart(table, given, names)
    if not fixed or len(fixed) != len(table.config.partition_columns):
        raise _misfit(table, given, "must give a value for each column")
    return _path(table, fixed)


def paths_named(table: Table, fixed: Values) -> list[str]:
    """Return the paths of the partitions that some values name.

    Values of all columns name one partition, there or not; those of some name all that are there.

    Raises:
        InvalidInputError: a value is no literal of its column's type.
        UnsupportedError: the paths of the table do not tell the values of a column.
    """
    if len(fixed) == len(table.config.partition_columns):
        return [_path(table, fixed)]
    keys = KeyGenerator.from_config(table.config)
    wanted = {name: _text(table, name, value) for name, value in fixed.items()}
    found = []
    for path in view_of(table.context).partitions():
        told = keys.partition_values(path)
        if unknown := [name for name in wanted if name not in told]:
            raise UnsupportedError(
                f"Partition {path} of table {table.name} does not tell its value of "
                f"{', '.join(unknown)}. Give a value for each of "
                f"{', '.join(table.config.partition_columns)}"
            )
        if all((told[name] or None) == text for name, text in wanted.items()):
            found.append(path)
    return found


def _path(table: Table, fixed: Values) -> str:
    fields = [table.schema.field(name) for name in table.config.partition_columns]
    rows = pa.table(
        [_value(table, field, fixed[field.name]) for field in fields], schema=pa.schema(fields)
    )
    paths = KeyGenerator.from_config(table.config).partition_dictionary(rows)
    return str(paths.to_pylist()[0])


def _text(table: Table, name: str, given: exp.Expr) -> str | None:
    """Return a value as partition paths write it; None for what is null or empty there."""
    value = _value(table, table.schema.field(name), given)
    return column_text(value, name)[0].as_py() or None


def _value(table: Table, field: pa.Field, given: exp.Expr) -> pa.Array:
    literal = given.this if isinstance(given, exp.Cast) else given  # As in DATE '2024-01-31'.
    try:
        return pa.array([literal.to_py()]).cast(field.type)
    except (ValueError, pa.ArrowNotImplementedError) as error:  # Arrow's others are values, too.
        raise InvalidInputError(
            f"{given.sql(dialect='spark')} is no {field.type}, which column {field.name} of table "
            f"{table.name} is partitioned by. Give a literal of that type"
        ) from error


def _misfit(table: Table, given: exp.Partition | None, claim: str) -> InvalidInputError:
    shown = "PARTITION" if given is None else given.sql(dialect="spark")
    by: Sequence[str] = table.config.partition_columns
    return InvalidInputError(
        f"{shown} {claim} by which table {table.name} is partitioned: "
        f"{', '.join(by) or 'there is none'}"
    )
