"""Statements about tables as a whole, and about their indexes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from sqlglot import exp

from headwater.config.registry import check_options
from headwater.errors import ErrorKind, InvalidInputError, NotFoundError, UnsupportedError
from headwater.kernel.layout import PROPERTIES
from headwater.opening import delete_table
from headwater.seams.open_storage import open_storage
from headwater.spark.data_source import register
from headwater.spark.schemas import nullable_columns
from headwater.spark_sql.clauses import check_clauses, check_target
from headwater.spark_sql.columns import column_text, columns_of
from headwater.spark_sql.names import PROVIDERS, Names, plain_path, text_of
from headwater.spark_sql.partitions import paths_named, taken_apart
from headwater.spark_sql.selects import resolved
from headwater.table import create_table, open_table


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

CREATE = (
    "CREATE TABLE [IF NOT EXISTS] table [(columns)] USING headwater [PARTITIONED BY (columns)] "
    "[LOCATION path] [COMMENT text] [TBLPROPERTIES (key = value, ...)] [AS query]"
)
DROP = "DROP TABLE [IF EXISTS] table [PURGE]"
TRUNCATE = "TRUNCATE TABLE table [PARTITION (column = value, ...)]"

_CREATE_ARGS = frozenset({"this", "kind", "expression", "properties", "exists"})
_KEPT_PROPERTIES = (
    exp.FileFormatProperty,
    exp.PartitionedByProperty,
    exp.LocationProperty,
    exp.SchemaCommentProperty,
    exp.ExternalProperty,
    exp.OptionsProperty,
    exp.Property,
)


def is_ours(statement: exp.Create) -> bool:
    """Whether a CREATE TABLE is for us: its provider says so."""
    provider = statement.find(exp.FileFormatProperty)
    return provider is not None and provider.name.lower() in PROVIDERS


def create(statement: exp.Create, names: Names) -> None:
    """Create a table, and let the session's catalog know it by its name.

    If it fails there is no table, and no file of it. CREATE TABLE ... LOCATION of a table that is
    there, without columns, lets the catalog know that one.

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
    _check_properties(statement)
    if declared and statement.expression is not None:
        raise UnsupportedError(
            f"CREATE TABLE {text_of(name)} AS SELECT takes its columns from the query: leave them "
            "out, and give values their names and types there"
        )
    new = _NewTable.of(statement, names)
    if declared:
        columns = _partitions_last(target.expressions, new.partition_by)
        _create_new(new, ", ".join(column_text(each) for each in columns), None, names)
    elif statement.expression is not None:
        with resolved(statement.expression, names) as (text, _):
            rows = names.spark.sql(text)
        columns_of_rows = nullable_columns(rows.schema).fields
        schema = StructType(_partitions_last(columns_of_rows, new.partition_by))
        _create_new(new, schema, rows, names)
    else:
        _register_existing(new, names)


@dataclass(frozen=True, slots=True, kw_only=True)
class _NewTable:
    """What a CREATE TABLE says beside columns and rows."""

    name: exp.Table
    path: str
    comment: str | None
    arguments: Mapping[str, Any]
    """Those of `create_table`."""
    options: Mapping[str, str]
    partition_by: Sequence[str] | None

    @classmethod
    def of(cls, statement: exp.Create, names: Names) -> Self:
        target = statement.this
        name = target.this if isinstance(target, exp.Schema) else target
        arguments, options = _properties(statement)
        comment = statement.find(exp.SchemaCommentProperty)
        return cls(
            name=name,
            path=_path_of_new(names.spark, name, statement.find(exp.LocationProperty)),
            comment=None if comment is None else comment.this.name,
            arguments=arguments,
            options=options,
            partition_by=_partition_columns(statement),
        )

    def spelled(self, columns: Sequence[str], names: Names) -> dict[str, Any]:
        """Return the arguments of `create_table` with columns as the table spells them."""
        given = {**self.arguments, "partition_by": self.partition_by}
        return {
            key: [names.column(each, columns) or each for each in value]
            if isinstance(value, list)
            else value
            for key, value in given.items()
        }


def _create_new(
    new: _NewTable, schema: str | StructType, rows: DataFrame | None, names: Names
) -> None:
    """Create a table with its first rows, and take it back if that or the catalog fails."""
    columns = (columns_of(schema) if isinstance(schema, str) else schema).names
    options = {**names.options, **new.options}
    storage = open_storage(new.path, check_options(options).known)
    kept = frozenset(info.path for info in storage.list_tree(""))
    table = create_table(
        new.path,
        schema=schema,
        name=new.name.name,
        options=options,
        **new.spelled(columns, names),
    )
    try:
        if rows is not None:
            table.bulk_insert(rows)
        _register(names.spark, new)
    except (Exception, KeyboardInterrupt, SystemExit):
        delete_table(storage, kept)
        raise


def _register_existing(new: _NewTable, names: Names) -> None:
    """Let the catalog know a table that is there.

    Raises:
        InvalidInputError: there is none, or the statement says what the table says itself.
    """
    try:
        table = open_table(new.path, names.options)
    except NotFoundError:
        raise InvalidInputError(
            f"CREATE TABLE {text_of(new.name)} needs columns, AS SELECT, or the LOCATION of a "
            f"table that is there; there is none at {new.path}"
        ) from None
    if new.arguments or new.options or new.partition_by:
        raise InvalidInputError(
            f"There is a table at {table.uri}, which says itself what its type, key and partition "
            "columns are. Leave PARTITIONED BY and TBLPROPERTIES out to give it a name, or choose "
            "another LOCATION"
        )
    _register(names.spark, new)


def drop(statement: exp.Drop, names: Names) -> bool:
    """Forget a table, and delete its files if PURGE is given; False if it is not one of ours.

    A table that the catalog knows is forgotten also if its files are gone.

    Raises:
        NotFoundError: there is no table at a path, and no IF EXISTS.
        UnsupportedError: several tables, or another clause.
    """
    listed = statement.args.get("tables") or [statement.this]
    paths = [names.path_of(each) for each in listed]
    if all(path is None for path in paths):
        return False
    check_clauses(statement, {"this", "tables", "kind", "exists", "purge"}, DROP)
    if len(listed) > 1:
        raise UnsupportedError("DROP TABLE takes one table at a time")
    (name,), (path,) = listed, paths
    if not _is_path(name):
        names.spark.sql(f"DROP TABLE {text_of(name)}")
    elif not _exists(name, names):
        if statement.args.get("exists"):
            return True
        names.get(name)  # Says that there is none.
    if statement.args.get("purge") and path is not None:
        storage = open_storage(path, check_options(names.options).known)
        # Where its files are gone others may lie by now, which are none of the table's.
        if storage.read_many([PROPERTIES]) != [None]:
            delete_table(storage)
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
    """Whether a name is taken, by a table of whatever format."""
    if not _is_path(name):
        database = name.db or names.spark.catalog.currentDatabase()
        # With its database, so that a temporary view of its name does not count.
        return names.spark.catalog.tableExists(f"`{database}`.`{name.name}`")
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
        key, value = _key(each.this), str(each.args["value"].this)
        argument = SQL_OPTIONS.get(key.lower())
        if argument is None:
            options[key] = value
        elif argument == "table_type":
            arguments[argument] = TYPES.get(value.lower(), value.upper())
        else:
            arguments[argument] = [column.strip() for column in value.split(",")]
    return arguments, options


def _key(given: exp.Expr) -> str:
    """Return the key of a property; sqlglot takes dots without quotes for parts of a column."""
    if isinstance(given, exp.Dot):
        return f"{_key(given.this)}.{_key(given.expression)}"
    parts = given.parts if isinstance(given, exp.Column) else [given]
    return ".".join(part.name for part in parts)


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
        if not isinstance(each, exp.Identifier | exp.Column | exp.ColumnDef):
            raise UnsupportedError(
                f"PARTITIONED BY takes columns, not {each.sql(dialect='spark')}. Add a column that "
                "has it"
            )
        if isinstance(each, exp.ColumnDef) and each.args.get("kind") is not None:
            raise InvalidInputError(
                f"PARTITIONED BY names columns of the table; declare {each.name} among them"
            )
    return [each.name for each in listed]


def _check_properties(statement: exp.Create) -> None:
    """Refuse what is declared and would not be kept.

    Raises:
        UnsupportedError
    """
    check_clauses(statement, _CREATE_ARGS, CREATE)
    given = statement.args.get("properties")
    for each in () if given is None else given.expressions:
        if type(each) not in _KEPT_PROPERTIES:  # All of them are a Property.
            raise UnsupportedError(
                f"{each.sql(dialect='spark')} is not supported here, only {CREATE}"
            )


def _path_of_new(spark: SparkSession, name: exp.Table, given: exp.Expr | None) -> str:
    """Return where a table is to be: a relative location is within its database, as to Spark."""
    location = name.name if given is None else given.this.name
    if _is_path(name) and given is None:
        return str(location)
    if location.startswith("/") or ":" in location:
        return str(location)
    database = name.db or spark.catalog.currentDatabase()
    folder = plain_path(spark.catalog.getDatabase(database).locationUri)
    return f"{folder}/{location.lower() if given is None else location}"


def _register(spark: SparkSession, new: _NewTable) -> None:
    if _is_path(new.name):
        return
    register(spark)
    location = exp.Literal.string(new.path).sql(dialect="spark")
    text = f"CREATE TABLE {text_of(new.name)} USING headwater LOCATION {location}"
    if new.comment is not None:
        text += f" COMMENT {exp.Literal.string(new.comment).sql(dialect='spark')}"
    spark.sql(text)


def _is_path(name: exp.Table) -> bool:
    return "/" in name.name
