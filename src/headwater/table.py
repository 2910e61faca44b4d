"""The facade users hold: it wires components together, delegates and decides nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self, cast

import pyarrow as pa

from headwater.config.arguments import location_of, text_of, texts_of
from headwater.config.files import FileConfig
from headwater.config.registry import CheckedOptions, check_options
from headwater.config.spark import SparkConfig
from headwater.config.table import TableConfig
from headwater.config.table_options import FENCED
from headwater.context import TableContext
from headwater.engine.inline import InlineEngine
from headwater.errors import ErrorKind, InvalidInputError, NotFoundError
from headwater.inspect import Inspect
from headwater.model.operation import Operation
from headwater.opening import Place, create_context, open_context, reload_context
from headwater.table_text import describe, describe_html

if TYPE_CHECKING:
    import pyarrow.compute as pc
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from headwater.engine.arrow_input import AnyArrow
    from headwater.engine.engine import Engine, Rows
    from headwater.engine.inline import AtOnce
    from headwater.kernel.new_table import NewTable
    from headwater.metadata.indexes import Indexes
    from headwater.model.commit import Commit
    from headwater.scan import Scan
    from headwater.seams.clock import Clock
    from headwater.seams.ids import Ids
    from headwater.seams.storage import Storage
    from headwater.services import Services
    from headwater.services.upgrade import Upgrade
    from headwater.slice.reader import Batches
    from headwater.statements.merge_builder import MergeBuilder

    AnyRows = DataFrame | AnyArrow

# Each room is imported by the methods that lead into it. Whoever looks at a table does not wait for
# what writes it, reading waits for no service, and work on Arrow starts without Spark, also where
# no Java is.


@dataclass(frozen=True, repr=False)
class Table:
    """One table, as this process reaches it; in a `with` block, for as long as the block runs."""

    context: TableContext

    @classmethod
    def create(cls, place: Place, new: NewTable) -> Self:
        """Create a table at a place; see `create_table`."""
        return cls(create_context(place, new))

    @classmethod
    def load(cls, place: Place) -> Self:
        """Open the table of a place; see `open_table`."""
        return cls(open_context(place))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Let a table go to another process, which opens it there with the same options."""
        return open_table, (self.uri, {**self.context.options, **self.context.unknown_options})

    def close(self) -> None:
        """End the session with the server that keeps the locks, if there is one (ZooKeeper).

        The table can be read afterwards, but not written. It may be called twice.
        """
        self.context.close()

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def uri(self) -> str:
        """Where the table is."""
        return self.storage.uri

    @property
    def config(self) -> TableConfig:
        """What the table says of itself, as of when it was opened or reloaded."""
        return self.context.stored_config

    @property
    def schema(self) -> pa.Schema:
        """The data columns of now, without meta columns.

        Raises:
            NotFoundError: kind SCHEMA_NOT_FOUND; nothing was written, and the table does not say.
        """
        from headwater.metadata.view import view_of

        return view_of(self.context).schema()

    def history(self, limit: int | None = None) -> pa.Table:
        """Return what was written to the table, newest first: one row a commit, archived ones too.

        Args:
            limit: how many commits to look at; all unless given.
        """
        from headwater.inspect.history import list_history

        return list_history(self.context, limit)

    def __repr__(self) -> str:
        return describe(self.config, self.uri)

    def _repr_html_(self) -> str:
        return describe_html(self.config, self.uri)

    @property
    def storage(self) -> Storage:
        return self.context.storage

    @cached_property
    def inspect(self) -> Inspect:
        """Questions about the table: `timeline()`, `files()`, `slices()`, `heartbeats()`, ...

        `draw_timeline()` makes a picture of the first.
        """
        return Inspect(self.context)

    @cached_property
    def indexes(self) -> Indexes:
        """The table's indexes: `create()`, `schedule()`, `run()`, `cancel()`, `drop()`, `list()`.

        They are built while others read and write.
        """
        from headwater.metadata.indexes import Indexes

        return Indexes(self.context)

    @cached_property
    def services(self) -> Services:
        """What keeps the table in order: one method per table service."""
        from headwater.services import Services

        return Services(self.context)

    @cached_property
    def _spark_config(self) -> SparkConfig:
        return SparkConfig.from_options(self.context.options)

    def upsert(self, rows: AnyRows, *, partial: bool = False) -> Commit:
        """Insert rows whose keys are new, and update the records of those that are not.

        Args:
            rows: a Spark DataFrame, or whatever speaks Arrow's C interface: a pyarrow Table,
                RecordBatch, RecordBatchReader, Dataset or Scanner, a pandas or Polars frame, a
                DuckDB relation. Streams are read in bounded memory.
            partial: whether columns that the rows lack keep their older values; otherwise they
                become null.

        Raises: see `operations.write.run_write`.
        """
        return self._write(Operation.UPSERT, rows, is_partial=partial)

    def insert(self, rows: AnyRows) -> Commit:
        """Insert rows.

        In a table with a bucket or record index a row whose key exists updates the record. With a
        simple or bloom index no key is looked up, so a key that exists is there twice from then on;
        a later upsert or delete applies to all of its records.
        """
        return self._write(Operation.INSERT, rows)

    def bulk_insert(self, rows: AnyRows) -> Commit:
        """Insert many rows into base files, optionally sorted; keys are treated as by `insert`."""
        return self._write(Operation.BULK_INSERT, rows)

    def delete(
        self, keys: AnyRows | None = None, *, where: str | None = None, time_zone: str = "UTC"
    ) -> Commit:
        """Delete the records of some keys, or those that satisfy a condition.

        Args:
            keys: rows, of which only key and partition columns are looked at.
            where: a condition in SQL; the rows are found as `scan` finds them.
            time_zone: that of times in the condition which do not say theirs.

        Raises: see `operations.write.run_write` and `statements.update.run_delete`.
        """
        if (keys is None) is (where is None):
            raise InvalidInputError("delete() takes either keys or where=")
        if where is None:
            return self._write(Operation.DELETE, keys)
        from headwater.statements.update import run_delete

        return self._done(run_delete(self.context, where, time_zone))

    def update(
        self, set: Mapping[str, Any], where: str | None = None, *, time_zone: str = "UTC"
    ) -> Commit:
        """Set columns of the records that satisfy a condition, of all records without one.

        Args:
            set: by column a SQL expression on the record as it was, such as
                `{"fare": "fare * 2"}`, or a value that is no text.
            where, time_zone: as for `delete`.

        Raises: see `statements.update.run_update`.
        """
        from headwater.statements.update import run_update

        return self._done(run_update(self.context, set, where, time_zone))

    def merge(
        self, source: AnyRows, on: str | Sequence[str], *, time_zone: str = "UTC"
    ) -> MergeBuilder:
        """Begin a merge of a source into the table; `.execute()` does it, as one write.

        Args:
            source: rows of any kind, which are loaded into this process.
            on: which rows go together, in SQL, with `t` for the table and `s` for the source:
                `t.id = s.id`. Names of columns that both have mean that they are equal.
            time_zone: that of times in conditions which do not say theirs.

        Raises:
            InvalidInputError: rows of another type, a column that comes twice or cannot be stored.
        """
        from headwater.engine.arrow_input import arrow_table_of
        from headwater.statements.merge import MergeRequest
        from headwater.statements.merge_builder import MergeBuilder

        if _is_of_spark(source):
            source = cast("DataFrame", source).toArrow()
        names = () if isinstance(on, str) else texts_of(on, "A column to merge on")
        parts = [on] if isinstance(on, str) else [f"t.`{name}` = s.`{name}`" for name in names]
        request = MergeRequest(" AND ".join(parts), zone=time_zone)
        return MergeBuilder(
            self.context, arrow_table_of(source, self._columns), request, self._done
        )

    def overwrite(self, rows: AnyRows) -> Commit:
        """Replace all rows of the table."""
        return self._write(Operation.OVERWRITE, rows)

    def overwrite_partitions(self, rows: AnyRows, partitions: Sequence[str] = ()) -> Commit:
        """Replace all rows of the partitions that `rows` has rows for.

        Args:
            partitions: paths of more partitions to empty in the same commit, there or not.
        """
        return self._write(Operation.OVERWRITE_PARTITIONS, rows, partitions=tuple(partitions))

    def delete_partitions(self, partitions: Sequence[str]) -> Commit:
        """Delete all rows of partitions, given as partition paths such as `city=sf`.

        Raises:
            InvalidInputError: the table has no such partition, or none is named.
        """
        paths = texts_of(partitions, "A partition")
        return self._write(Operation.DELETE_PARTITIONS, None, partitions=paths)

    def read(
        self,
        columns: Sequence[str] | None = None,
        where: str | Column | None = None,
        *,
        as_of: str | datetime | None = None,
        read_optimized: bool = False,
        spark: SparkSession | None = None,
    ) -> DataFrame:
        """Return the table's rows as a Spark DataFrame.

        Args:
            columns: the columns to read, meta columns too; by default all but meta columns. Naming
                them here is faster than selecting them later where log files are to be merged.
            where: a condition in SQL, or a column expression. Text lets partitions, file groups
                and row groups that cannot satisfy it be left out, by the table's indexes too.
            as_of: what to read the table as of, inclusive: a completion time, an instant such as
                rows carry as `_hoodie_commit_time` (the table right after it completed), a
                `datetime`, or text such as `2024-01-31 09:30:00` or `2024-01-31T09:30:00Z`.
            read_optimized: whether to read base files only, without what is in log files.
            spark: the session to use; the active one unless given.

        Raises: see `queries.snapshot.plan_snapshot` and `spark.read.read_snapshot`.
        """
        from headwater.queries.snapshot import ReadRequest, plan_snapshot
        from headwater.spark.read import read_snapshot
        from headwater.spark.session import session_of, time_zone_of

        session = session_of(spark)
        plan = plan_snapshot(
            self.context,
            ReadRequest(
                columns=_chosen(columns),
                as_of=as_of,
                is_read_optimized=read_optimized,
                where=where if isinstance(where, str) else None,
                zone=time_zone_of(session),
            ),
        )
        return read_snapshot(session, plan, plan.where or where, self._spark_config)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: str | pc.Expression | None = None,
        *,
        as_of: str | datetime | None = None,
        read_optimized: bool = False,
        time_zone: str = "UTC",
    ) -> Scan:
        """Return rows that are about to be read, without Spark, in the form that you then choose.

        `.to_reader()` is a stream of Arrow batches, `.to_arrow()` a table, `.to_pandas()`,
        `.to_polars()` a lazy frame, `.to_duckdb()` a relation, `.to_spark()`, `.count()`; and
        whatever takes `__arrow_c_stream__` takes the scan as it is.

        Args:
            columns, as_of, read_optimized: as for `read`.
            where: a condition in SQL with the answers of Spark, or any expression of pyarrow. SQL
                lets partitions, file groups and row groups that cannot satisfy it be left out, by
                the table's indexes too.
            time_zone: that of times in the condition which do not say theirs.
        """
        from headwater.queries.snapshot import ReadRequest
        from headwater.scan import Scan

        request = ReadRequest(
            columns=_chosen(columns),
            as_of=as_of,
            is_read_optimized=read_optimized,
            where=where,
            zone=time_zone,
            is_filtered=True,
        )
        return Scan(self.context, request)

    def read_arrow(
        self,
        columns: Sequence[str] | None = None,
        *,
        where: str | pc.Expression | None = None,
        as_of: str | datetime | None = None,
        read_optimized: bool = False,
    ) -> pa.Table:
        """Read into this process, without Spark: `scan(...).to_arrow()`.

        What a restore, a rollback or a clean takes away meanwhile is read again.

        Raises: see `queries.snapshot.plan_snapshot` and `Scan.to_reader`.
        """
        from headwater.scan import read_until_whole

        return read_until_whole(
            lambda: self.scan(columns, where, as_of=as_of, read_optimized=read_optimized)
        )

    def changes(
        self,
        after: str | datetime | None,
        until: str | datetime | None = None,
        *,
        cdc: bool = False,
        spark: SparkSession | None = None,
    ) -> DataFrame:
        """Return what was written in a window of time as a Spark DataFrame.

        Args:
            after, until: completion times, as `Commit.completion_time` has them, dates, or any
                other form of `as_of`; the window is open at `after` and closed at `until`. None
                and `0` as `after` mean the beginning; without `until` the window ends now.
            cdc: whether to read every change, deletes included, with the record before and after
                it; the columns are `op` (i, u, d), `ts`, `before` and `after`. Sorted by `ts` and
                `op` they can be applied one by one: a record that a write moved is deleted, then
                inserted. Otherwise the last version of every record that was written and is still
                there.
            spark: the session to use; the active one unless given.

        Raises: see `queries.incremental.plan_incremental` and `queries.cdc.plan_change_feed`.
        """
        from headwater.queries.cdc import plan_change_feed
        from headwater.queries.incremental import parse_window, plan_incremental
        from headwater.spark.changes import read_change_feed, read_incremental
        from headwater.spark.session import session_of

        session = session_of(spark)
        window = parse_window(after, until, is_utc=self.config.is_utc)
        if cdc:
            return read_change_feed(
                session, plan_change_feed(self.context, window), self._spark_config
            )
        return read_incremental(session, plan_incremental(self.context, window), self._spark_config)

    def changes_arrow(
        self,
        after: str | datetime | None,
        until: str | datetime | None = None,
        *,
        cdc: bool = False,
    ) -> pa.Table:
        """Read the same as `changes` into this process, without Spark; changes are in order.

        Raises: see `queries.incremental.plan_incremental` and `queries.cdc.plan_change_feed`.
        """
        from headwater.queries.cdc import plan_change_feed
        from headwater.queries.change_images import read_changes
        from headwater.queries.incremental import parse_window, plan_incremental
        from headwater.queries.slice_query import read_slices

        window = parse_window(after, until, is_utc=self.config.is_utc)
        if cdc:
            feed = plan_change_feed(self.context, window)
            return _read_all(read_changes(feed.query, feed.tasks), feed.result_schema)
        plan = plan_incremental(self.context, window)
        return _read_all(read_slices(plan.query, list(plan.slices)), plan.query.result_schema)

    def sql(self, statement: str, *, spark: SparkSession | None = None) -> DataFrame:
        """Run a SQL statement in which `this` names the table; see `headwater.sql`."""
        from headwater.spark.session import session_of
        from headwater.spark_sql.run import sql

        return sql(session_of(spark), statement, this=self)

    def _write(
        self,
        operation: Operation,
        rows: AnyRows | None,
        *,
        is_partial: bool = False,
        partitions: tuple[str, ...] = (),
        extra_metadata: Mapping[str, str] | None = None,
    ) -> Commit:
        from headwater.operations.key_check import check_held_keys
        from headwater.operations.request import WriteRequest
        from headwater.operations.retry import write_with_retries

        without_rows = operation is Operation.DELETE_PARTITIONS
        with nullcontext() if without_rows else self._opened(rows) as given:
            if given is not None:
                check_held_keys(self.config, given.held())
            request = WriteRequest(
                operation=operation,
                columns=None if given is None else given.schema,
                is_partial=is_partial,
                partitions=partitions,
                extra_metadata=extra_metadata or {},
            )
            commit = write_with_retries(self.context, request, given)
        return self._done(commit)

    def _done(self, commit: Commit) -> Commit:
        """Do what is due after a write."""
        self.services.run_after_write()
        return commit

    @contextmanager
    def _opened(self, rows: Any) -> Iterator[Rows]:
        """Give rows in the form that a write takes."""
        files = self.context.file_config
        if _is_of_spark(rows):
            from headwater.spark.input_rows import rows_of

            yield rows_of(cast("DataFrame", rows), files, self._spark_config)
        else:
            from headwater.engine.arrow_input import opened_arrow_rows

            with opened_arrow_rows(rows, files.inline_bytes, self._columns) as given:
                yield given

    def _columns(self) -> pa.Schema:
        """Return the columns of now, none where nothing tells them."""
        try:
            return self.schema
        except NotFoundError as error:
            if error.kind is not ErrorKind.SCHEMA_NOT_FOUND:
                raise
            return pa.schema([])

    def reload(self) -> Self:
        """Return the table with the config that storage holds now, also after an upgrade."""
        return type(self)(reload_context(self.context))


def create_table(
    path: str | os.PathLike[str],
    *,
    schema: pa.Schema | StructType | str | Mapping[str, Any],
    record_key: str | Sequence[str] | None = None,
    partition_by: str | Sequence[str] | None = None,
    ordering: str | Sequence[str] | None = None,
    table_type: str | None = None,
    index: str | None = None,
    buckets: int | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
    database: str | None = None,
) -> Table:
    """Create a table of version 9 and open it.

    Args:
        path: a local path, or an address such as `s3://bucket/table`.
        schema: the data columns, as a `pyarrow.Schema`, a Spark `StructType`, Spark's DDL such as
            `id long, name string`, or an Avro record in JSON.
        record_key: columns that identify a record. Without, keys are generated.
        partition_by: columns that make the partition path.
        ordering: columns whose larger value wins when two records share a key. Without, the later
            write wins.
        table_type: COPY_ON_WRITE (the default) or MERGE_ON_READ.
        index: how records find their file groups: `bucket`, the default if there is a record key,
            `simple` or `bloom`, which look keys up in the files of a partition, `global_simple` or
            `global_bloom`, which do in all files, or `record_index`, which does in an index of the
            whole table. With the last three a key is there once in the whole table.
        buckets: file groups per partition of a bucket index; 4 unless given.
        options: Hudi's options. Those about tables are stored, the others are this process's own.
        name: the table's name; the last part of the path unless given.

    Raises:
        AlreadyExistsError: kind TABLE_EXISTS.
        InvalidInputError: arguments, options or columns are wrong; all problems in one message.
        UnsupportedError: the table would use what this release does not implement.
        CommitUnknownError: storage did not say whether the table was created.
        StorageError: the location cannot be written to.
    """
    from headwater.kernel.new_table import NewTable

    checked = check_options(options)
    new = NewTable(
        location=location_of(path),
        schema=_declared(schema),
        record_key=_columns(record_key, "A column of record_key"),
        partition_by=_columns(partition_by, "A column of partition_by"),
        ordering=_columns(ordering, "A column of ordering"),
        table_type=_text(table_type, "A table_type"),
        index=_text(index, "An index"),
        bucket_count=buckets,
        name=_text(name, "The name of a table"),
        database=_text(database, "The database of a table"),
    )
    return Table.create(_place(path, checked), new)


def open_table(path: str | os.PathLike[str], options: Mapping[str, Any] | None = None) -> Table:
    """Open an existing table of version 6, 8 or 9; only one of version 9 can be written to.

    Args:
        path: a local path, or an address such as `s3://bucket/table`.
        options: Hudi's options. They are this process's own and never change the table.

    Raises:
        NotFoundError: kind NOT_A_TABLE.
        InvalidInputError: kind INVALID_OPTION; all problems in one message.
        UnsupportedError: a table version, feature or option that this release does not implement.
        CorruptTableError: `hoodie.properties` is damaged.
        StorageError: storage failed.
    """
    return Table.load(_place(path, check_options(options)))


def upgrade_table(
    path: str | os.PathLike[str],
    options: Mapping[str, Any] | None = None,
    *,
    dry_run: bool = False,
    fenced: bool | None = None,
) -> Upgrade:
    """Make a table of version 6 or 8 one of version 9, as Hudi's own upgrade leaves it.

    Stop its writers before; readers may go on. An upgrade that died is finished, or begun anew, by
    the next one. A table that has version 9 is left alone.

    Args:
        path, options: as for `open_table`.
        dry_run: whether to say what would be done, and do nothing.
        fenced: whether the table is to have a journal for its decisions, so that its writers need
            no lock; None leaves it as it is. Writers of a table of version 9 may go on: they are
            told to open it again. A switch that died is finished by the next one.

    Raises: see `services.upgrade.run_upgrade`, `services.switch.run_switch` and `open_table`.
    """
    from headwater.services.switch import run_switch
    from headwater.services.upgrade import run_upgrade

    place = _place(path, check_options(options))
    with Table.load(place) as table:
        done = run_upgrade(table.context, is_dry_run=dry_run)
        is_switched = fenced is not None and fenced != table.config.is_fenced
    if fenced is None:
        return done
    if not dry_run:
        with Table.load(place) as table:  # Which may have another version by now.
            is_switched = run_switch(table.context, to_fenced=fenced)
    properties = {FENCED.key: FENCED.encode(fenced)} if is_switched else {}
    is_done = done.is_done and not (dry_run and is_switched)
    return replace(done, is_done=is_done, properties={**done.properties, **properties})


def _chosen(columns: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if columns is None else texts_of(columns, "A column to read")


def _columns(given: str | Sequence[str] | None, what: str) -> tuple[str, ...] | None:
    if given is None:
        return None
    return (given,) if isinstance(given, str) else texts_of(given, what)


def _text(given: str | None, what: str) -> str | None:
    return None if given is None else text_of(given, what)


def _place(path: str | os.PathLike[str], options: CheckedOptions) -> Place:
    place = Place.at(path, options)
    engine = partial(
        _engine_for,
        files=FileConfig.from_options(options.known),
        spark_config=SparkConfig.from_options(options.known),
        clock=place.clock,
        ids=place.ids,
        at_once=place.storage.at_once,
    )
    return replace(place, engine_for=engine)


def _read_all(batches: Batches, schema: pa.Schema) -> pa.Table:
    with closing(batches):
        return pa.Table.from_batches(batches, schema)


def _engine_for(
    size_bytes: int,
    *,
    files: FileConfig,
    spark_config: SparkConfig,
    clock: Clock,
    ids: Ids,
    at_once: AtOnce,
) -> Engine:
    """Return the engine for work on so many bytes: Spark only where a session may be active."""
    if "pyspark" not in sys.modules:
        return InlineEngine(at_once)
    from headwater.spark.tasks import engine_for

    return engine_for(
        size_bytes, files=files, spark_config=spark_config, clock=clock, ids=ids, at_once=at_once
    )


def _declared(schema: Any) -> Any:
    if not _is_of_spark(schema):
        return schema
    from headwater.spark.schemas import declared_schema

    return declared_schema(schema)


def _is_of_spark(given: Any) -> bool:
    """Whether a value is one of Spark's, which is not loaded to find out."""
    return any(kind.__module__.partition(".")[0] == "pyspark" for kind in type(given).__mro__)
