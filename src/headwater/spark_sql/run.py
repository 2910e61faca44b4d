"""One statement in, a DataFrame out. What is not about tables of ours goes to Spark unchanged."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import sqlglot
from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp

from headwater.errors import InvalidInputError
from headwater.model.commit import Commit
from headwater.spark.schemas import frame_schema_of
from headwater.spark_sql import alter, ddl, dml
from headwater.spark_sql.names import Names
from headwater.spark_sql.procedures import call_procedure
from headwater.spark_sql.selects import run_select
from headwater.spark_sql.unparsed import left_to_spark
from headwater.table import Table

# sqlglot warns of every statement that it leaves as text; we do read those that are ours.
logging.getLogger("sqlglot").setLevel(logging.ERROR)

_COMMIT = pa.schema(
    [
        pa.field("instant", pa.string(), nullable=False),
        pa.field("completion_time", pa.string(), nullable=False),
        pa.field("inserted", pa.int64(), nullable=False),
        pa.field("updated", pa.int64(), nullable=False),
        pa.field("deleted", pa.int64(), nullable=False),
    ]
)


def sql(
    spark: SparkSession,
    statement: str,
    *,
    options: Mapping[str, Any] | None = None,
    this: Table | None = None,
) -> DataFrame:
    """Run one SQL statement on tables of the catalog, or of paths as in headwater.`/path`.

    Args:
        options: Hudi's options, for all tables that the statement names; those of the session
            (SET hoodie.some.option = value) count where these say nothing.

    Returns:
        The rows of a query or CALL; one row about the commit of a write; no rows for the others.

    Raises:
        InvalidInputError: the statement cannot be parsed; the message has the position.
        Others: see the operation that runs, and Spark's own for what is Spark's.
    """
    given = {key: str(value) for key, value in (options or {}).items()}
    names = Names(spark, {**_session_options(spark), **given}, this, statement)
    try:
        parsed = _parsed(statement)
    except InvalidInputError as error:
        return left_to_spark(error, names)
    done = _run(parsed, names)
    if isinstance(done, DataFrame):
        return done
    match done:
        case None:
            return spark.sql(statement)
        case Commit():
            return _frame(spark, _row_of(done))
        case pa.Table():
            return _frame(spark, done)
        case _:
            return spark.createDataFrame([], "result string")


def _session_options(spark: SparkSession) -> dict[str, str]:
    """Return Hudi's options that the session has, as SET hoodie.some.option = value gives them."""
    return {
        key: value
        for key, value in spark.conf.getAll.items()
        if key.startswith(("hoodie.", "headwater."))
    }


def _parsed(statement: str) -> exp.Expr:
    try:
        parsed = [each for each in sqlglot.parse(statement, read="spark") if each is not None]
    except sqlglot.ParseError as error:
        (first, *_) = error.errors or [{}]
        place = f" at line {first['line']}, column {first['col']}" if "line" in first else ""
        near = f" near {first['highlight']!r}" if first.get("highlight") else ""
        raise InvalidInputError(
            f"The statement cannot be parsed{place}{near}: {first.get('description', error)}"
        ) from error
    except (sqlglot.TokenError, RecursionError) as error:
        raise InvalidInputError(
            "The statement cannot be parsed: a text or a bracket has no end, or it is nested too "
            f"deeply ({str(error)[:200]})"
        ) from error
    if len(parsed) != 1:
        raise InvalidInputError(f"One statement at a time, got {len(parsed)}")
    return parsed[0]


def _run(statement: exp.Expr, names: Names) -> Any:
    """Run a statement that is ours; None if it is for Spark."""
    match statement:
        case exp.Create(kind="TABLE") if ddl.is_ours(statement):
            ddl.create(statement, names)
            return True
        case exp.Create() if str(statement.args.get("kind")).upper() == "INDEX":
            ddl.create_index(statement, names)
            return True
        case exp.Drop() if str(statement.args.get("kind")).upper() == "INDEX":
            ddl.drop_index(statement, names)
            return True
        case exp.Drop() if str(statement.args.get("kind")).upper() == "TABLE":
            return ddl.drop(statement, names) or None
        case exp.TruncateTable():
            return ddl.truncate(statement, names) or None
        case exp.Insert():
            return dml.insert(statement, names)
        case exp.Update():
            return dml.update(statement, names)
        case exp.Delete():
            return dml.delete(statement, names)
        case exp.Merge():
            return dml.merge(statement, names)
        case exp.Command() if statement.name.upper() == "CALL":
            return call_procedure(statement.expression.name, names)
        case exp.Command() if statement.name.upper() == "SHOW":
            text = statement.expression.name
            if text.upper().startswith("PARTITIONS "):
                return alter.show_partitions(text, names)
            return ddl.show_indexes(text, names)
        case exp.Command() if statement.name.upper() == "ALTER":
            return alter.refuse_alter(str(statement.args["expression"]), names)
        case exp.Command() if statement.name.upper() in ("CREATE", "REFRESH"):
            return ddl.refuse_index(str(statement.args["expression"]))
        case exp.Alter(kind="TABLE"):
            return alter.alter(statement, names)
        case exp.Describe():
            return alter.describe(statement, names)
        case exp.Query():
            return run_select(statement, names)
        case _:
            return None


def _row_of(commit: Commit) -> pa.Table:
    row = {
        "instant": str(commit.instant),
        "completion_time": str(commit.completion_time),
        "inserted": commit.inserted,
        "updated": commit.updated,
        "deleted": commit.deleted,
    }
    return pa.Table.from_pylist([row], schema=_COMMIT)


def _frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    return spark.createDataFrame(rows.to_pylist(), frame_schema_of(rows.schema))
