"""Statements that write rows: each is one commit."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from sqlglot import exp

from headwater.errors import InvalidInputError
from headwater.model.commit import Commit
from headwater.spark.schemas import frame_schema_of
from headwater.spark_sql.names import Names
from headwater.spark_sql.selects import resolved
from headwater.table import Table

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
    fixed = _fixed_partitions(statement)
    with resolved(statement.expression, names) as (text, _):
        rows = _aligned(names.spark.sql(text), table, named, fixed)
    if not statement.args.get("overwrite"):
        return table.insert(rows)
    is_dynamic = str(names.spark.conf.get(_OVERWRITE_MODE, "static")).lower() == "dynamic"
    if fixed or is_dynamic:
        return table.overwrite_partitions(rows)
    return table.overwrite(rows)


def _fixed_partitions(statement: exp.Insert) -> dict[str, exp.Expr]:
    given = statement.args.get("partition")
    if given is None:
        return {}
    return {
        each.this.name: each.expression for each in given.expressions if isinstance(each, exp.EQ)
    }


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
