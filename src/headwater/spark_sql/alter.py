"""ALTER TABLE, SHOW PARTITIONS and DESCRIBE of tables of ours.

Columns are added and widened by a write without rows. What Spark's catalog keeps for itself, such
as the name of a table, is left to Spark.
"""

from __future__ import annotations

import pyarrow as pa
import sqlglot
from sqlglot import exp

from headwater.arrow.schema_evolution import evolve_schema
from headwater.errors import InvalidInputError, UnsupportedError
from headwater.metadata.view import view_of
from headwater.model.commit import Commit
from headwater.spark.schemas import arrow_schema_of, frame_schema_of, nullable_columns
from headwater.spark_sql.clauses import check_clauses, check_target
from headwater.spark_sql.columns import column_text, columns_of, type_of
from headwater.spark_sql.names import Names
from headwater.spark_sql.partitions import path_named
from headwater.table import Table

ALTER = (
    "ALTER TABLE table, and ADD COLUMNS (name type, ...), ALTER COLUMN name TYPE type, "
    "DROP PARTITION (column = value, ...) or RENAME TO"
)
SUPPORTED = (
    "ADD COLUMNS (...), ALTER COLUMN ... TYPE ..., DROP PARTITION (...) and RENAME TO are "
    "supported, each in a statement of its own"
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
    check_clauses(statement, {"this", "kind", "actions"}, ALTER)
    check_target(statement.this, (), ALTER)
    match actions:
        case [exp.DropPartition() as dropped]:
            check_clauses(dropped, {"expressions"}, ALTER)
            paths = [path_named(table, each, names) for each in dropped.expressions]
            return table.delete_partitions(paths)
        case [exp.Schema() as added]:
            return _write_columns(table, _added(table, added.expressions, names))
        case [exp.ColumnDef(), *_]:
            return _write_columns(table, _added(table, actions, names))
        case [exp.AlterColumn() as changed] if _is_only_type(changed):
            check_clauses(changed, {"this", "dtype", "rename_to"}, ALTER)
            return _write_columns(table, _retyped(table, changed, names))
    shown = ", ".join(each.sql(dialect="spark") for each in actions)
    raise UnsupportedError(f"ALTER TABLE cannot {shown} of table {table.name}; {SUPPORTED}")


def refuse_alter(text: str, names: Names) -> None:
    """Refuse an ALTER TABLE that sqlglot leaves as text, if it is about a table of ours.

    Spark would change what its catalog says of the table, and nothing of the table itself.

    Raises:
        UnsupportedError
    """
    name = _named_first(text)
    table = None if name is None else names.path_of(name)
    if table is not None:
        raise UnsupportedError(f"ALTER {' '.join(text.split())} is not supported; {SUPPORTED}")


def _named_first(text: str) -> exp.Table | None:
    """Return the table after TABLE [IF EXISTS]; None if the text says something else."""
    tokens = sqlglot.tokenize(text, read="spark")
    words = [token.text.upper() for token in tokens]
    if words[:1] != ["TABLE"]:
        return None
    start = 3 if words[1:3] == ["IF", "EXISTS"] else 1
    parts = tokens[start : start + 1]
    while words[start + 1 : start + 2] == ["."]:
        start += 2
        parts += tokens[start : start + 1]
    named = [exp.to_identifier(part.text, quoted=True) for part in reversed(parts)]
    return exp.Table(**dict(zip(("this", "db", "catalog"), named, strict=False)))


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


def _added(table: Table, columns: list[exp.Expr], names: Names) -> pa.Schema:
    for column in columns:
        if not isinstance(column, exp.ColumnDef):
            raise UnsupportedError(
                f"ALTER TABLE takes no {column.sql(dialect='spark')}; {SUPPORTED}"
            )
        if column.args.get("position") is not None:
            raise UnsupportedError(
                f"Columns are added at the end: leave the place of {column.name} out"
            )
        if isinstance(column.this, exp.Dot):
            shown = column.this.sql(dialect="spark")
            raise UnsupportedError(
                f"ADD COLUMNS takes no field of a struct, such as {shown}: a write that has the "
                "field adds it, and so does ALTER COLUMN with TYPE and all fields of the struct"
            )
        if names.column(column.name, table.schema.names) is not None:
            raise InvalidInputError(f"Table {table.name} has a column {column.name} already")
    new = columns_of(", ".join(column_text(column) for column in columns))
    if nullable_columns(new) != new:
        raise UnsupportedError(
            "The rows that there are have null in a new column: leave out NOT NULL"
        )
    return pa.schema([*table.schema, *arrow_schema_of(new)])


def _is_only_type(change: exp.AlterColumn) -> bool:
    renamed = change.args.get("rename_to")
    is_renamed = isinstance(renamed, exp.Expr) and renamed.name.lower() != change.name.lower()
    return change.args.get("dtype") is not None and not is_renamed


def _retyped(table: Table, change: exp.AlterColumn, names: Names) -> pa.Schema:
    found = names.column(change.this.name, table.schema.names)
    if found is None:
        raise InvalidInputError(f"Table {table.name} has no column {change.this.name}")
    declared = columns_of(f"`{found}` {type_of(change.args['dtype'], found)}")
    (new,) = arrow_schema_of(declared)
    (stored,) = frame_schema_of(pa.schema([new]))
    old = table.schema.field(found)
    wanted = table.schema.set(table.schema.get_field_index(found), new)
    # A SMALLINT is stored as INT, which is no reason to take INT for one.
    is_narrower = stored.dataType.simpleString() != declared[0].dataType.simpleString()
    if is_narrower or evolve_schema(table.schema, wanted).field(found).type != new.type:
        raise InvalidInputError(
            f"Column {found} of table {table.name} does not become "
            f"{declared[0].dataType.simpleString()}: it is {old.type}, and types become wider only"
        )
    return wanted


def _write_columns(table: Table, columns: pa.Schema) -> Commit:
    none = columns.empty_table()
    return table.upsert(none) if table.config.record_key_fields else table.insert(none)
