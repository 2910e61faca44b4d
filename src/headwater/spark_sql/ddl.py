"""Statements about tables as a whole, and about their indexes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from sqlglot import exp

from headwater.errors import ErrorKind, InvalidInputError, NotFoundError, UnsupportedError
from headwater.opening import delete_table
from headwater.spark.data_source import register
from headwater.spark_sql.clauses import check_clauses, check_target
from headwater.spark_sql.names import PROVIDERS, Names, text_of
from headwater.spark_sql.partitions import paths_named, taken_apart
from headwater.spark_sql.selects import resolved
from headwater.table import create_table


class _Named(Protocol):
    @property
    def name(self) -> str: ...


C = TypeVar("C", bound=_Named)

SQL_OPTIONS: Mapping[str, str] = {
    "type": "table_type",
    "primarykey": "record_key",
    "precombinefield": "ordering",
    "orderingfields": "ordering",
}
"""What Hudi's SQL calls the arguments of `create_table`, in lower case."""
TYPES = {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}
NAMED_INDEXES = frozenset(
    {"files", "column_stats", "partition_stats", "bloom_filters", "record_index"}
)
"""Indexes that a table has once; every other name is that of a secondary index."""

TRUNCATE = "TRUNCATE TABLE table [PARTITION (column = value, ...)]"


def is_ours(statement: exp.Create) -> bool:
    """Whether a CREATE TABLE is for us: its provider says so."""
    provider = statement.find(exp.FileFormatProperty)
    return provider is not None and provider.name.lower() in PROVIDERS


def create(statement: exp.Create, names: Names) -> None:
    """Create a table, and let the session's catalog know it by its name.

    Raises: see `headwater.create_table`; InvalidInputError for what Hudi's SQL does not take.
    """
    target = statement.this
    declared = isinstance(target, exp.Schema)
    name = target.this if declared else target
    if statement.args.get("replace"):
        raise UnsupportedError(
            f"CREATE OR REPLACE TABLE {text_of(name)} is not supported: use DROP TABLE ... PURGE "
            "and CREATE TABLE, or INSERT OVERWRITE"
        )
    if _exists(name, names):
        if statement.args.get("exists"):
            return
        raise InvalidInputError(
            f"The table {text_of(name)} exists already", kind=ErrorKind.TABLE_EXISTS
        )
    arguments, options = _properties(statement)
    location = statement.find(exp.LocationProperty)
    path = _warehouse_path(names.spark, name) if location is None else location.this.name
    query = statement.expression
    rows = None
    if query is not None:
        with resolved(query, names) as (text, _):
            rows = names.spark.sql(text)
    partition_by = _partition_columns(statement)
    if declared:
        columns = _partitions_last(target.expressions, partition_by)
        schema: Any = ", ".join(_column(each) for each in columns)
    elif rows is not None:
        schema = StructType(_partitions_last(rows.schema.fields, partition_by))
    else:
        raise InvalidInputError(f"CREATE TABLE {text_of(name)} needs columns, or AS SELECT")
    table = create_table(
        path,
        schema=schema,
        partition_by=partition_by,
        name=name.name,
        options={**names.options, **options},
        **arguments,
    )
    _register(names.spark, name, path)
    if rows is not None:
        table.bulk_insert(rows)


def drop(statement: exp.Drop, names: Names) -> bool:
    """Forget a table, and delete its files if PURGE is given; False if it is not one of ours."""
    name = statement.this if statement.this is not None else statement.args["tables"][0]
    table = names.find(name)
    if table is None:
        return False
    if not _is_path(name):
        names.spark.sql(f"DROP TABLE {text_of(name)}")
    if statement.args.get("purge"):
        delete_table(table.storage)
    return True


def truncate(statement: exp.TruncateTable, names: Names) -> bool:
    """Delete all rows of a table, or of its partitions; False if it is not one of ours.

    Raises:
        UnsupportedError: several tables, which would be several commits, or another clause.
        InvalidInputError: PARTITION (...) does not fit, or names one that is not there.
    """
    found = [names.find(each) for each in statement.expressions]
    tables = [table for table in found if table is not None]
    if not tables:
        return False
    check_clauses(statement, {"expressions", "partition"}, TRUNCATE)
    check_target(statement.expressions[0], (), TRUNCATE)
    if len(found) > 1:
        raise UnsupportedError("TRUNCATE TABLE takes one table: each is a commit of its own")
    (table,) = tables
    given = statement.args.get("partition")
    if given is None:
        table.overwrite(table.schema.empty_table())
        return True
    fixed, left_open = taken_apart(table, given, names)
    if left_open:
        raise InvalidInputError(
            f"{given.sql(dialect='spark')} gives no value for {', '.join(left_open)}. Give one, or "
            "leave the column out for all of its values"
        )
    if paths := paths_named(table, fixed):
        table.delete_partitions(paths)
    return True


# Indexes ---------------------------------------------------------------------------------------


def create_index(statement: exp.Create, names: Names) -> None:
    """Build an index while others write.

    `CREATE INDEX record_index ON t (id)` and those of other kinds that a table has once are found
    by their name or by USING; any other name is that of a secondary index.

    Raises: see `headwater.metadata.indexes.Indexes.create`.
    """
    index = statement.this
    table = names.get(index.args["table"])
    parameters = index.args.get("params")
    columns = [] if parameters is None else [each.name for each in parameters.args["columns"] or ()]
    using = parameters.args.get("using") if parameters is not None else None
    kind = None if using is None else using.name.lower()
    name = _index_name(index.name, kind)
    is_there = name in table.config.metadata_partitions
    if is_there and not statement.args.get("exists"):
        raise InvalidInputError(
            f"The index {name} of {table.name} exists already", kind=ErrorKind.INDEX_EXISTS
        )
    if not is_there:
        takes_columns = name == "column_stats" or name.startswith("secondary_index_")
        table.indexes.create(name, columns=columns if takes_columns and columns else None)


def refuse_index(text: str) -> None:
    """Refuse what sqlglot does not take for a statement about an index, if it is one.

    Raises:
        UnsupportedError: indexes of expressions, and their options.
    """
    if text.split()[:1] and text.split()[0].upper() == "INDEX":
        raise UnsupportedError(
            f"Indexes have columns and no expressions or options, got {' '.join(text.split())}. "
            f"CREATE INDEX name ON table (column) makes a secondary index; a table has once "
            f"{', '.join(sorted(NAMED_INDEXES))}"
        )


def drop_index(statement: exp.Drop, names: Names) -> None:
    """Take an index away."""
    on = statement.args.get("cluster")
    if on is None:
        raise InvalidInputError("DROP INDEX needs the table: DROP INDEX name ON table")
    table = names.get(on.this)
    index = statement.this if statement.this is not None else statement.args["tables"][0]
    name = _index_name(index.name, None)
    if statement.args.get("exists") and name not in table.config.metadata_partitions:
        return
    table.indexes.drop(name)


def show_indexes(text: str, names: Names) -> pa.Table | None:
    """Return the rows of SHOW INDEXES FROM t; None if it says something else."""
    words = text.split()
    if len(words) < 2 or words[0].upper() not in ("INDEX", "INDEXES"):
        return None
    name = words[2] if words[1].upper() in ("FROM", "IN", "ON") and len(words) > 2 else words[1]
    return names.get(exp.to_table(name, dialect="spark")).indexes.list()


def _index_name(name: str, kind: str | None) -> str:
    lowered = name.lower()
    if kind in NAMED_INDEXES:
        return kind
    if lowered in NAMED_INDEXES or lowered.startswith("secondary_index_"):
        return lowered
    return f"secondary_index_{lowered}"


def _exists(name: exp.Table, names: Names) -> bool:
    try:
        return names.find(name) is not None
    except NotFoundError:
        return False  # A path where no table is yet.


# What a CREATE TABLE says ----------------------------------------------------------------------


def _properties(statement: exp.Create) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the arguments of `create_table` and the options that a statement gives."""
    arguments: dict[str, Any] = {}
    options: dict[str, str] = {}
    for each in statement.find_all(exp.Property):
        if type(each) is not exp.Property:
            continue
        key, value = each.name, str(each.args["value"].this)
        argument = SQL_OPTIONS.get(key.lower())
        if argument is None:
            options[key] = value
        elif argument == "table_type":
            arguments[argument] = TYPES.get(value.lower(), value.upper())
        else:
            arguments[argument] = [column.strip() for column in value.split(",")]
    return arguments, options


def _partitions_last(columns: Sequence[C], partition_by: Sequence[str] | None) -> list[C]:
    """Return columns in the order that Spark gives every table of its catalog.

    Rows that are inserted by position go by it, in jobs that were written for Hudi too.
    """
    last = {name.lower(): place for place, name in enumerate(partition_by or (), start=1)}
    return sorted(columns, key=lambda column: last.get(column.name.lower(), 0))


def _partition_columns(statement: exp.Create) -> list[str] | None:
    by = statement.find(exp.PartitionedByProperty)
    if by is None:
        return None
    listed = by.this.expressions if isinstance(by.this, exp.Schema | exp.Tuple) else [by.this]
    for each in listed:
        if isinstance(each, exp.ColumnDef) and each.args.get("kind") is not None:
            raise InvalidInputError(
                f"PARTITIONED BY names columns of the table; declare {each.name} among them"
            )
    return [each.name for each in listed]


def _column(column: exp.Expr) -> str:
    if not isinstance(column, exp.ColumnDef):
        raise InvalidInputError(
            f"CREATE TABLE takes columns, not {column.sql(dialect='spark')}; a record key is given "
            "by TBLPROPERTIES (primaryKey = '...')"
        )
    constraints = {type(each.kind) for each in column.args.get("constraints") or ()}
    suffix = " NOT NULL" if exp.NotNullColumnConstraint in constraints else ""
    return f"`{column.name}` {column.args['kind'].sql(dialect='spark')}{suffix}"


def _warehouse_path(spark: SparkSession, name: exp.Table) -> str:
    if _is_path(name):
        return name.name
    folder = spark.conf.get("spark.sql.warehouse.dir", "spark-warehouse")
    database = name.db or spark.catalog.currentDatabase()
    within = "" if database == "default" else f"/{database}.db"
    return f"{str(folder).removeprefix('file:')}{within}/{name.name.lower()}"


def _register(spark: SparkSession, name: exp.Table, path: str) -> None:
    if _is_path(name):
        return
    register(spark)
    escaped = path.replace("'", "\\'")
    spark.sql(f"CREATE TABLE {text_of(name)} USING headwater LOCATION '{escaped}'")


def _is_path(name: exp.Table) -> bool:
    return "/" in name.name
