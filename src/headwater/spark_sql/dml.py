"""Statements that write rows: each is one commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import sqlglot
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from sqlglot import exp

from headwater.config.sql import InsertOperation, OverwriteMode, SqlConfig
from headwater.errors import InvalidInputError, UnsupportedError
from headwater.model.commit import Commit
from headwater.spark.schemas import frame_schema_of
from headwater.spark.session import time_zone_of
from headwater.spark_sql.casts import stored_as
from headwater.spark_sql.clauses import check_clauses, check_target
from headwater.spark_sql.names import Names, text_of
from headwater.spark_sql.partitions import Values, paths_named, taken_apart
from headwater.spark_sql.selects import resolved
from headwater.statements.merge_builder import MergeBuilder
from headwater.table import Table

Sides = Mapping[str, str | None]
"""What the tables of a statement are called where it is evaluated, by their names in it."""

INSERT = "INSERT INTO | OVERWRITE table [PARTITION (...)] [(columns) | BY NAME] query"
UPDATE = "UPDATE table [AS name] SET column = value, ... [WHERE condition]"
DELETE = "DELETE FROM table [AS name] [WHERE condition]"
MERGE = (
    "MERGE INTO table [AS name] USING source ON condition, and WHEN MATCHED THEN UPDATE SET or "
    "DELETE, WHEN NOT MATCHED THEN INSERT, WHEN NOT MATCHED BY SOURCE THEN UPDATE SET or DELETE, "
    "each with AND condition after WHEN"
)
"""What statements may say, for who said more."""

_INSERT_ARGS = frozenset({"this", "expression", "source", "with_", "overwrite", "by_name"})
_LEVELS = ("this", "table", "db", "catalog")
"""What sqlglot calls the parts of a column's name, from the last one on."""
_OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"


def insert(statement: exp.Insert, names: Names) -> Commit | None:
    """Insert or overwrite rows; None if the table is not one of ours.

    INSERT OVERWRITE replaces the whole table, or all partitions that have the values of PARTITION
    (...); where Spark's `partitionOverwriteMode` is dynamic, and the statement does not say all of
    the partition, only those that rows go to.
    """
    target = statement.this
    named = [each.name for each in target.expressions] if isinstance(target, exp.Schema) else None
    name = target.this if isinstance(target, exp.Schema) else target
    table = names.find(name)
    if table is None:
        return None
    if statement.args.get("where") is not None:
        raise UnsupportedError(
            "INSERT INTO ... REPLACE WHERE is not supported: DELETE the rows, or use INSERT "
            "OVERWRITE with PARTITION (...)"
        )
    check_clauses(statement, _INSERT_ARGS, INSERT)
    check_target(name, {"partition"}, INSERT)
    fixed, dynamic = taken_apart(table, statement.this.find(exp.Partition), names)
    rows = _rows_of(statement, names)
    if statement.args.get("by_name"):
        named = rows.columns
    elif dynamic and named is None:
        # Values of partition columns that the statement leaves open come after all others.
        open_last = [name for name in table.schema.names if name not in {*fixed, *dynamic}]
        named = [*open_last, *dynamic]
    rows = _aligned(rows, table, _wanted(table, named, fixed, names), fixed)
    config = SqlConfig.from_options(table.context.options)
    if not statement.args.get("overwrite"):
        match config.insert_operation:
            case InsertOperation.UPSERT:
                return table.upsert(rows)
            case InsertOperation.BULK_INSERT:
                return table.bulk_insert(rows)
            case InsertOperation.INSERT:
                return table.insert(rows)
    mode = config.overwrite_mode or OverwriteMode(
        str(names.spark.conf.get(_OVERWRITE_MODE, "static")).upper()
    )
    is_open = len(fixed) < len(table.config.partition_columns)
    if mode is OverwriteMode.DYNAMIC and is_open:
        return table.overwrite_partitions(rows)
    if fixed:
        # What the statement names is replaced, also where no row comes in its place.
        return table.overwrite_partitions(rows, paths_named(table, fixed))
    return table.overwrite(rows)


def _rows_of(statement: exp.Insert, names: Names) -> DataFrame:
    """Return what is inserted: the rows of a query, or as in INSERT INTO a TABLE b, of a table."""
    query: exp.Expr | None = statement.expression
    source = statement.args.get("source")
    if isinstance(source, exp.Table):
        text = f"SELECT * FROM {text_of(source)}"
        query, names = sqlglot.parse_one(text, read="spark"), replace(names, statement=text)
    if query is None:
        raise InvalidInputError(f"INSERT needs rows: VALUES (...) or a query; {INSERT}")
    with resolved(query, names) as (text, _):
        return names.spark.sql(text)


def _wanted(table: Table, named: list[str] | None, fixed: Values, names: Names) -> list[str]:
    """Return the columns that rows bring, as the table spells them.

    Raises:
        InvalidInputError: a column is none of the table's, or comes twice.
    """
    own = [field.name for field in frame_schema_of(table.schema)]
    if named is None:
        return [name for name in own if name not in fixed]
    wanted: list[str] = []
    for given in named:
        name = names.column(given, own)
        if name is None:
            raise InvalidInputError(
                f"Table {table.name} has no column {given}; it has {', '.join(own)}"
            )
        if name in (*wanted, *fixed):
            raise InvalidInputError(f"Column {name} of table {table.name} is given twice")
        wanted.append(name)
    return wanted


def _aligned(rows: DataFrame, table: Table, wanted: Sequence[str], fixed: Values) -> DataFrame:
    """Give rows the table's columns and types.

    Args:
        wanted: the columns that the rows have, by position.
        fixed: what other columns are, the same for all rows.
    """
    if len(rows.columns) != len(wanted):
        raise InvalidInputError(
            f"{len(rows.columns)} values are given for the {len(wanted)} columns "
            f"{', '.join(wanted)} of table {table.name}"
        )
    renamed = rows.toDF(*wanted)
    for name, value in fixed.items():
        renamed = renamed.withColumn(name, F.expr(value.sql(dialect="spark")))
    given = {field.name: field.dataType for field in renamed.schema}
    return renamed.select(
        [
            (
                stored_as(F.col(f"`{name}`"), given[name], field.dataType, name)
                if (name := field.name) in given
                else F.lit(None).cast(field.dataType)
            ).alias(name)
            for field in frame_schema_of(table.schema)
        ]
    )


# Statements that read what they change ---------------------------------------------------------


def update(statement: exp.Update, names: Names) -> Commit | None:
    """Set columns of the records that satisfy a condition; None if the table is not ours.

    Raises: see `headwater.statements.update.run_update`.
    """
    name = statement.this
    table = names.find(name)
    if table is None:
        return None
    check_clauses(statement, {"this", "expressions", "where"}, UPDATE)
    check_target(name, {"alias"}, UPDATE)
    own = {name.alias_or_name.lower(): None}
    assigned = _assigned(statement, own)
    return table.update(assigned, _condition(statement, own), time_zone=time_zone_of(names.spark))


def delete(statement: exp.Delete, names: Names) -> Commit | None:
    """Delete the records that satisfy a condition; None if the table is not one of ours.

    Raises: see `headwater.statements.update.run_delete`.
    """
    name = statement.this
    table = names.find(name)
    if table is None:
        return None
    check_clauses(statement, {"this", "where"}, DELETE)
    check_target(name, {"alias"}, DELETE)
    where = _condition(statement, {name.alias_or_name.lower(): None})
    return table.delete(where=where or "TRUE", time_zone=time_zone_of(names.spark))


def merge(statement: exp.Merge, names: Names) -> Commit | None:
    """Merge rows into a table, clause by clause; None if the table is not one of ours.

    Raises: see `headwater.statements.merge.run_merge`; UnsupportedError for clauses that it lacks.
    """
    target, source = statement.this, statement.args["using"]
    table = names.find(target)
    if table is None:
        return None
    check_clauses(statement, {"this", "using", "on", "whens", "with_"}, MERGE)
    check_target(target, {"alias"}, MERGE)
    sides = {target.alias_or_name.lower(): "t", source.alias_or_name.lower(): "s"}
    with resolved(source, names) as (text, _):
        rows = names.spark.sql(text)
    # Clauses with * go by names, which the source may write in another case.
    own = table.schema.names
    rows = rows.toDF(*[names.column(name, own) or name for name in rows.columns])
    merging = table.merge(
        rows, on=_text(statement.args["on"], sides), time_zone=time_zone_of(names.spark)
    )
    for clause in statement.args["whens"].expressions:
        merging = _with_clause(merging, clause, sides)
    return merging.execute()


def _with_clause(merging: MergeBuilder, clause: exp.When, sides: Sides) -> MergeBuilder:
    """Add a clause.

    Raises:
        UnsupportedError: it does what no clause of its kind does.
    """
    check_clauses(clause, {"matched", "source", "condition", "then"}, MERGE)
    given, then = clause.args.get("condition"), clause.args["then"]
    where = None if given is None else _text(given, sides)
    if isinstance(then, exp.Update | exp.Insert):
        check_clauses(then, {"this", "expression", "expressions"}, MERGE)
    match (bool(clause.args.get("matched")), bool(clause.args.get("source")), then):
        case (True, False, exp.Update(expressions=[exp.Star()])):
            return merging.when_matched_update(where=where)
        case (True, False, exp.Update()):
            return merging.when_matched_update(_assigned(then, sides), where=where)
        case (True, False, exp.Var(this="DELETE")):
            return merging.when_matched_delete(where=where)
        case (False, False, exp.Insert()):
            return merging.when_not_matched_insert(_inserted(then, sides), where=where)
        case (False, True, exp.Update(expressions=[exp.Star()])):
            raise InvalidInputError(
                "WHEN NOT MATCHED BY SOURCE has no row of the source that * could mean. Name the "
                "columns to set"
            )
        case (False, True, exp.Update()):
            values = _assigned(then, sides)
            return merging.when_not_matched_by_source_update(values, where=where)
        case (False, True, exp.Var(this="DELETE")):
            return merging.when_not_matched_by_source_delete(where=where)
    shown = " ".join(clause.sql(dialect="spark").split())
    raise UnsupportedError(f"{shown} is not supported, only {MERGE}")


def _inserted(then: exp.Insert, sides: Sides) -> dict[str, str] | None:
    """Return what the columns of a new row are set to; None: all to what the source has."""
    if isinstance(then.this, exp.Star):
        return None
    if then.this is None:
        raise InvalidInputError(
            "WHEN NOT MATCHED THEN INSERT needs the columns that it sets: INSERT (id, ...) VALUES "
            "(s.id, ...), or INSERT * for all that the source has"
        )
    columns = [each.name for each in then.this.expressions]
    texts = [_text(each, sides) for each in then.expression.expressions]
    if len(columns) != len(texts):
        raise InvalidInputError(
            f"INSERT names {len(columns)} columns and gives {len(texts)} values"
        )
    return dict(zip(columns, texts, strict=True))


def _assigned(statement: exp.Update, sides: Sides) -> dict[str, str]:
    """Return by column the text of what SET gives it.

    Raises:
        UnsupportedError: it sets a field of a struct, or is no assignment.
    """
    assigned: dict[str, str] = {}
    for each in statement.expressions:
        column = each.this
        if not isinstance(each, exp.EQ) or not isinstance(column, exp.Column):
            raise UnsupportedError(f"SET takes column = value, got {each.sql(dialect='spark')}")
        if column.table and column.table.lower() not in sides:
            raise UnsupportedError(
                f"SET {column.sql(dialect='spark')} is not supported: columns are set as a whole"
            )
        assigned[column.name] = _text(each.expression, sides)
    return assigned


def _condition(statement: exp.Update | exp.Delete, sides: Sides) -> str | None:
    where = statement.args.get("where")
    return None if where is None else _text(where.this, sides)


def _text(expression: exp.Expr, sides: Sides) -> str:
    """Return an expression with the names of tables that `headwater.statements` knows."""
    if expression.find(exp.Query):
        raise UnsupportedError(
            f"A subquery in {expression.sql(dialect='spark')} is not supported: use MERGE with the "
            "query as its source"
        )
    renamed = expression.copy()
    for column in renamed.find_all(exp.Column):
        _name_side(column, sides)
    return renamed.sql(dialect="spark")


def _name_side(column: exp.Column, sides: Sides) -> None:
    """Let a column name its side by what it is called where the expression is evaluated.

    sqlglot takes `rides.route.from` for a column of a database; a known name before any dot but the
    last is the table's, and what follows is a field of a struct.
    """
    parts = column.parts
    known = next((at for at, part in enumerate(parts[:-1]) if part.name.lower() in sides), None)
    if known is None:
        return
    side = sides[parts[known].name.lower()]
    left = [*([] if side is None else [exp.to_identifier(side)]), *parts[known + 1 :]]
    for level in _LEVELS:
        column.set(level, left.pop() if left else None)
