"""ALTER TABLE, SHOW PARTITIONS and DESCRIBE of tables of ours.

Columns are added and widened by a write without rows. What Spark's catalog keeps for itself, such
as the name of a table, is left to Spark.
"""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from headwater.arrow.schema_evolution import evolve_schema
from headwater.errors import InvalidInputError, UnsupportedError
from headwater.metadata.view import view_of
from headwater.model.commit import Commit
from headwater.spark.schemas import arrow_schema_of, frame_schema_of
from headwater.spark_sql.names import Names
from headwater.spark_sql.partitions import path_named
from headwater.table import Table

SUPPORTED = (
    "ADD COLUMNS (...), ALTER COLUMN ... TYPE ..., DROP PARTITION (...) and RENAME TO are supported"
)


def alter(statement: exp.Alter, names: Names) -> Commit | None:
    """Change a table; None if it is not one of ours, or if Spark's catalog does it.

    Raises:
        UnsupportedError: ALTER TABLE cannot do that.
        InvalidInputError: a column or partition does not fit.
    """
    table = names.find(statement.this)
    actions = statement.args["actions"]
    if table is None or isinstance(actions[0], exp.AlterRename):
        return None
    match actions[0]:
        case exp.DropPartition():
            paths = [path_named(table, each, names) for each in actions[0].expressions]
            return table.delete_partitions(paths)
        case exp.Schema():
            return _write_columns(table, _added(table, actions[0].expressions, names))
        case exp.ColumnDef():
            return _write_columns(table, _added(table, actions, names))
        case exp.AlterColumn() if _is_only_type(actions[0]):
            return _write_columns(table, _retyped(table, actions[0], names))
        case other:
            raise UnsupportedError(
                f"ALTER TABLE cannot {other.sql(dialect='spark')} of table {table.name}; "
                f"{SUPPORTED}"
            )


def show_partitions(text: str, names: Names) -> pa.Table | None:
    """Return the rows of SHOW PARTITIONS t; None if the table is not one of ours."""
    words = text.split()
    table = names.find(exp.to_table(words[1], dialect="spark"))
    if table is None:
        return None
    if len(words) > 2:
        raise UnsupportedError(
            f"SHOW PARTITIONS takes a table and nothing else, got {' '.join(words[2:])}"
        )
    return pa.table({"partition": pa.array(view_of(table.context).partitions(), pa.string())})


def describe(statement: exp.Describe, names: Names) -> pa.Table | None:
    """Return the columns of a table, as Spark shows them; None if it is not one of ours."""
    if not isinstance(statement.this, exp.Table):
        return None
    table = names.find(statement.this)
    if table is None:
        return None
    columns = frame_schema_of(table.schema)
    by = table.config.partition_columns
    shown = [(field.name, field.dataType.simpleString()) for field in columns]
    if by:
        shown += [("# Partition Information", ""), *(row for row in shown if row[0] in by)]
    if statement.args.get("style"):
        shown += [
            ("Location", table.uri),
            ("Type", table.config.table_type),
            ("Provider", "headwater"),
        ]
    return pa.table(
        {
            "col_name": [name for name, _ in shown],
            "data_type": [text for _, text in shown],
            "comment": pa.array([None] * len(shown), pa.string()),
        }
    )


def _added(table: Table, columns: list[exp.ColumnDef], names: Names) -> pa.Schema:
    for column in columns:
        if column.args.get("position") is not None:
            raise UnsupportedError(
                f"Columns are added at the end: leave the place of {column.name} out"
            )
        if column.name.lower() in (name.lower() for name in table.schema.names):
            raise InvalidInputError(f"Table {table.name} has a column {column.name} already")
    new = _typed(", ".join(f"`{c.name}` {c.args['kind'].sql('spark')}" for c in columns), names)
    return pa.schema([*table.schema, *new])


def _is_only_type(change: exp.AlterColumn) -> bool:
    renamed = change.args.get("rename_to")
    is_renamed = isinstance(renamed, exp.Expr) and renamed.name.lower() != change.name.lower()
    return change.args.get("dtype") is not None and not is_renamed


def _retyped(table: Table, change: exp.AlterColumn, names: Names) -> pa.Schema:
    found = [name for name in table.schema.names if name.lower() == change.this.name.lower()]
    if not found:
        raise InvalidInputError(f"Table {table.name} has no column {change.this.name}")
    (new,) = _typed(f"`{found[0]}` {change.args['dtype'].sql('spark')}", names)
    wanted = table.schema.set(table.schema.get_field_index(found[0]), new)
    if evolve_schema(table.schema, wanted).field(found[0]).type != new.type:
        raise InvalidInputError(
            f"Column {found[0]} of table {table.name} does not become {new.type}: it is "
            f"{table.schema.field(found[0]).type}, and types become wider only"
        )
    return wanted


def _typed(ddl: str, names: Names) -> pa.Schema:
    return arrow_schema_of(names.spark.createDataFrame([], ddl).schema)


def _write_columns(table: Table, columns: pa.Schema) -> Commit:
    none = columns.empty_table()
    return table.upsert(none) if table.config.record_key_fields else table.insert(none)
