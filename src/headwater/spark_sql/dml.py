"""Statements that write rows: each is one commit."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from sqlglot import exp

from headwater.config.sql import InsertOperation, OverwriteMode, SqlConfig
from headwater.errors import InvalidInputError, UnsupportedError
from headwater.model.commit import Commit
from headwater.spark.schemas import frame_schema_of
from headwater.spark.session import time_zone_of
from headwater.spark_sql.names import Names
from headwater.spark_sql.selects import resolved
from headwater.statements.merge_builder import MergeBuilder
from headwater.table import Table

Sides = Mapping[str, str | None]
"""What the tables of a statement are called where it is evaluated, by their names in it."""

_OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"


def insert(statement: exp.Insert, names: Names) -> Commit | None:
    """Insert or overwrite rows; None if the table is not one of ours.

    INSERT OVERWRITE replaces the whole table, or with PARTITION (...), or where Spark's
    `partitionOverwriteMode` is dynamic, the partitions that rows go to.
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
    fixed, dynamic = _partitions(statement)
    with resolved(statement.expression, names) as (text, _):
        rows = names.spark.sql(text)
    if statement.args.get("by_name"):
        named = rows.columns
    elif dynamic:
        # Values of partition columns that the statement leaves open come after all others.
        open_last = [name for name in table.schema.names if name not in {*fixed, *dynamic}]
        named = [*open_last, *dynamic]
    rows = _aligned(rows, table, named, fixed)
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
    if fixed or mode is OverwriteMode.DYNAMIC:
        return table.overwrite_partitions(rows)
    return table.overwrite(rows)


def _partitions(statement: exp.Insert) -> tuple[dict[str, exp.Expr], list[str]]:
    """Return the partition columns of PARTITION (...): those with values, and those without."""
    given = statement.this.find(exp.Partition)
    listed = [] if given is None else given.expressions
    fixed = {each.this.name: each.expression for each in listed if isinstance(each, exp.EQ)}
    return fixed, [each.name for each in listed if not isinstance(each, exp.EQ)]


def _aligned(
    rows: DataFrame, table: Table, named: list[str] | None, fixed: dict[str, exp.Expr]
) -> DataFrame:
    """Give rows the table's columns: by position, or by the names that the statement lists."""
    columns = frame_schema_of(table.schema)
    lowered = {field.name.lower(): field for field in columns}
    wanted = named or [field.name for field in columns if field.name not in fixed]
    unknown = [name for name in wanted if name.lower() not in lowered]
    if unknown:
        raise InvalidInputError(
            f"Table {table.name} has no column {', '.join(unknown)}; it has "
            f"{', '.join(field.name for field in columns)}"
        )
    if len(rows.columns) != len(wanted):
        raise InvalidInputError(
            f"{len(rows.columns)} values are given for the {len(wanted)} columns "
            f"{', '.join(wanted)} of table {table.name}"
        )
    renamed = rows.toDF(*wanted)
    for name, value in fixed.items():
        renamed = renamed.withColumn(name, F.expr(value.sql(dialect="spark")))
    present = {name.lower() for name in renamed.columns}
    return renamed.select(
        [
            (F.col(f"`{field.name}`") if field.name.lower() in present else F.lit(None))
            .cast(field.dataType)
            .alias(field.name)
            for field in columns
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
    own = {name.alias_or_name.lower(): None}
    assigned = {each.this.name: _text(each.expression, own) for each in statement.expressions}
    return table.update(assigned, _condition(statement, own), time_zone=time_zone_of(names.spark))


def delete(statement: exp.Delete, names: Names) -> Commit | None:
    """Delete the records that satisfy a condition; None if the table is not one of ours.

    Raises: see `headwater.statements.update.run_delete`.
    """
    name = statement.this
    table = names.find(name)
    if table is None:
        return None
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
    sides = {target.alias_or_name.lower(): "t", source.alias_or_name.lower(): "s"}
    with resolved(source, names) as (text, _):
        rows = names.spark.sql(text)
    merging = table.merge(
        rows, on=_text(statement.args["on"], sides), time_zone=time_zone_of(names.spark)
    )
    for clause in statement.args["whens"].expressions:
        merging = _with_clause(merging, clause, sides)
    return merging.execute()


def _with_clause(merging: MergeBuilder, clause: exp.When, sides: Sides) -> MergeBuilder:
    given, then = clause.args.get("condition"), clause.args["then"]
    where = None if given is None else _text(given, sides)
    if clause.args.get("source"):
        return _by_source(merging, then, sides, where)
    match then:
        case exp.Update(expressions=[exp.Star()]):
            return merging.when_matched_update(where=where)
        case exp.Update():
            values = {each.this.name: _text(each.expression, sides) for each in then.expressions}
            return merging.when_matched_update(values, where=where)
        case exp.Insert(this=exp.Star()):
            return merging.when_not_matched_insert(where=where)
        case exp.Insert():
            columns = [each.name for each in then.this.expressions]
            texts = [_text(each, sides) for each in then.expression.expressions]
            if len(columns) != len(texts):
                raise InvalidInputError(
                    f"INSERT names {len(columns)} columns and gives {len(texts)} values"
                )
            inserted = dict(zip(columns, texts, strict=True))
            return merging.when_not_matched_insert(inserted, where=where)
        case _:
            return merging.when_matched_delete(where=where)


def _by_source(
    merging: MergeBuilder, then: exp.Expr, sides: Sides, where: str | None
) -> MergeBuilder:
    """Add a clause on records that no row of the source matches."""
    if not isinstance(then, exp.Update):
        return merging.when_not_matched_by_source_delete(where=where)
    if isinstance(then.expressions[0], exp.Star):
        raise InvalidInputError(
            "WHEN NOT MATCHED BY SOURCE has no row of the source that * could mean. Name the "
            "columns to set"
        )
    values = {each.this.name: _text(each.expression, sides) for each in then.expressions}
    return merging.when_not_matched_by_source_update(values, where=where)


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
        known = column.table.lower()
        if known in sides:
            side = sides[known]
            column.set("table", None if side is None else exp.to_identifier(side))
            column.set("db", None)
    return renamed.sql(dialect="spark")
