"""The facade users hold: it wires components together, delegates and decides nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from headwater.config.detection import DetectionConfig
from headwater.config.files import FileConfig
from headwater.config.lock import LockConfig
from headwater.config.lock_options import lock_config_from_options
from headwater.config.markers import MarkerConfig
from headwater.config.metadata import MetadataConfig
from headwater.config.registry import CheckedOptions, check_options
from headwater.config.spark import SparkConfig
from headwater.config.table import TableConfig
from headwater.config.write import WriteConfig
from headwater.engine.engine import Engine
from headwater.indexes.first import create_first_indexes, with_first_indexes
from headwater.indexes.table_indexes import Indexes
from headwater.inspect import Inspect
from headwater.kernel.new_table import NewTable, plan_table_config
from headwater.kernel.table_config import (
    check_no_table,
    check_options_agree,
    create_table_config,
    load_table_config,
    with_chosen_index,
)
from headwater.kernel.txn.locks.in_process import InProcessLocks
from headwater.kernel.txn.locks.select import chosen_provider, lock_provider_for
from headwater.model.commit import Commit
from headwater.operations.concurrency import check_concurrency
from headwater.operations.plan import Operation
from headwater.operations.retry import write_with_retries
from headwater.operations.write import WriteRequest, WriteTarget
from headwater.queries.cdc import ChangeFeedPlan, plan_change_feed
from headwater.queries.change_images import read_changes
from headwater.queries.incremental import (
    IncrementalPlan,
    Window,
    parse_window,
    plan_incremental,
)
from headwater.queries.slice_reader import Batches, read_slices
from headwater.queries.snapshot import ReadRequest, plan_snapshot
from headwater.seams.clock import Clock, SystemClock
from headwater.seams.components import Components
from headwater.seams.ids import Ids, SystemIds
from headwater.seams.open_storage import open_storage
from headwater.seams.storage import Storage
from headwater.services import Services
from headwater.spark.changes import read_change_feed, read_incremental
from headwater.spark.input_rows import AnyRows, rows_of
from headwater.spark.read import read_snapshot
from headwater.spark.schemas import declared_schema
from headwater.spark.session import session_of
from headwater.spark.tasks import engine_for

# The locks that threads of this process take from each other. They are the process's own by nature,
# so every table of the process shares them.
_LOCKS_OF_THIS_PROCESS = InProcessLocks()


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table, as this process reaches it; in a `with` block, for as long as the block runs."""

    storage: Storage
    clock: Clock
    ids: Ids
    config: TableConfig
    write_config: WriteConfig
    lock_config: LockConfig
    file_config: FileConfig
    spark_config: SparkConfig
    options: CheckedOptions

    @classmethod
    def create(
        cls, *, storage: Storage, clock: Clock, ids: Ids, new: NewTable, options: CheckedOptions
    ) -> Self:
        """Create a table through the given components; see `create_table`."""
        metadata = MetadataConfig.from_options(options.known)
        config = with_first_indexes(plan_table_config(new, options.known), metadata)
        table = cls._of(storage, clock, ids, config, options)  # Refuses before anything is written.
        check_no_table(storage)
        create_first_indexes(storage, config, metadata)
        create_table_config(storage, clock, ids, config)
        return table

    @classmethod
    def load(cls, *, storage: Storage, clock: Clock, ids: Ids, options: CheckedOptions) -> Self:
        """Open a table through the given components; see `open_table`."""
        config = load_table_config(storage, clock)
        check_options_agree(config, options.known)
        return cls._of(storage, clock, ids, config, options)

    @classmethod
    def _of(
        cls, storage: Storage, clock: Clock, ids: Ids, config: TableConfig, options: CheckedOptions
    ) -> Self:
        lock_config = lock_config_from_options(options.known)
        write_config = WriteConfig.from_options(options.known)
        # Both say now what would otherwise fail the first write.
        chosen_provider(lock_config)
        check_concurrency(with_chosen_index(config, options.known), write_config)
        return cls(
            storage=storage,
            clock=clock,
            ids=ids,
            config=config,
            write_config=write_config,
            lock_config=lock_config,
            file_config=FileConfig.from_options(options.known),
            spark_config=SparkConfig.from_options(options.known),
            options=options,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the session with the server that keeps the locks, if there is one (ZooKeeper).

        The table can be read afterwards, but not written. It may be called twice.
        """
        if "components" in self.__dict__:  # Or there is no session to end.
            self.components.locks.close()

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def uri(self) -> str:
        """Where the table is."""
        return self.storage.uri

    @cached_property
    def components(self) -> Components:
        """Everything through which this table reaches the world.

        Made when first needed: a reader never connects to a lock server.
        """
        locks = lock_provider_for(
            self.lock_config,
            self.storage,
            self.clock,
            self.ids,
            in_process=_LOCKS_OF_THIS_PROCESS,
        )
        return Components(self.storage, self.clock, self.ids, locks)

    @cached_property
    def inspect(self) -> Inspect:
        """Questions about the table: `timeline()`, `files()`, `slices()`, `heartbeats()`, ...

        `draw_timeline()` makes a picture of the first.
        """
        return Inspect(
            self.components,
            self.config,
            engine_for=self._engine_for,
            storage_options=self.options.known,
            merge_function=self.file_config.merge_function,
        )

    @cached_property
    def indexes(self) -> Indexes:
        """The table's indexes: `create()`, `schedule()`, `run()`, `cancel()`, `drop()`, `list()`.

        They are built while others read and write.
        """
        return Indexes(
            self.components,
            self.config,
            self.write_config,
            lock_timeout_ms=self.lock_config.acquire_timeout_ms,
            has_lock_provider=chosen_provider(self.lock_config) is not None,
            options=self.options.known,
            engine_for=self._engine_for,
        )

    @cached_property
    def services(self) -> Services:
        """What keeps the table in order: one method per table service."""
        return Services(
            self.components,
            self.config,
            self.write_config,
            lock_timeout_ms=self.lock_config.acquire_timeout_ms,
            options=self.options.known,
            engine_for=self._engine_for,
        )

    def _engine_for(self, size_bytes: int) -> Engine:
        return engine_for(
            size_bytes,
            files=self.file_config,
            spark_config=self.spark_config,
            clock=self.clock,
            ids=self.ids,
        )

    def upsert(self, rows: AnyRows, *, partial: bool = False) -> Commit:
        """Insert rows whose keys are new, and update the records of those that are not.

        Args:
            rows: a Spark DataFrame, a pyarrow Table or RecordBatch, or a pandas DataFrame.
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

    def delete(self, keys: AnyRows) -> Commit:
        """Delete the records of these keys; only key and partition columns are looked at."""
        return self._write(Operation.DELETE, keys)

    def overwrite(self, rows: AnyRows) -> Commit:
        """Replace all rows of the table."""
        return self._write(Operation.OVERWRITE, rows)

    def overwrite_partitions(self, rows: AnyRows) -> Commit:
        """Replace all rows of the partitions that `rows` has rows for."""
        return self._write(Operation.OVERWRITE_PARTITIONS, rows)

    def delete_partitions(self, partitions: Sequence[str]) -> Commit:
        """Delete all rows of partitions, given as partition paths such as `city=sf`."""
        return self._write(Operation.DELETE_PARTITIONS, None, partitions=tuple(partitions))

    def read(
        self,
        columns: Sequence[str] | None = None,
        where: str | Column | None = None,
        *,
        as_of: str | None = None,
        read_optimized: bool = False,
        spark: SparkSession | None = None,
    ) -> DataFrame:
        """Return the table's rows as a Spark DataFrame.

        Args:
            columns: the columns to read, meta columns too; by default all but meta columns. Naming
                them here is faster than selecting them later where log files are to be merged.
            where: a condition in SQL, or a column expression. Text lets partitions, file groups
                and row groups that cannot satisfy it be left out, by the table's indexes too.
            as_of: a time to read the table as of, inclusive.
            read_optimized: whether to read base files only, without what is in log files.
            spark: the session to use; the active one unless given.

        Raises: see `queries.snapshot.plan_snapshot` and `spark.read.read_snapshot`.
        """
        session = session_of(spark)
        plan = plan_snapshot(
            self.storage,
            self.config,
            ReadRequest(
                columns=None if columns is None else tuple(columns),
                as_of=as_of,
                is_read_optimized=read_optimized,
                where=where if isinstance(where, str) else None,
            ),
            storage_options=self.options.known,
            merge_function=self.file_config.merge_function,
        )
        return read_snapshot(session, plan, where, self.spark_config)

    def read_arrow(
        self,
        columns: Sequence[str] | None = None,
        *,
        where: str | pc.Expression | None = None,
        as_of: str | None = None,
        read_optimized: bool = False,
    ) -> pa.Table:
        """Read into this process, without Spark; for small tables and tests.

        Args:
            where: comparisons of columns with literals in SQL, joined by AND (a timestamp without
                a zone is UTC), or any expression of pyarrow.

        Raises: see `queries.snapshot.plan_snapshot` and `queries.slice_reader.read_slices`.
        """
        plan = plan_snapshot(
            self.storage,
            self.config,
            ReadRequest(
                columns=None if columns is None else tuple(columns),
                as_of=as_of,
                is_read_optimized=read_optimized,
                where=where,
                is_filtered=True,
            ),
            storage_options=self.options.known,
            merge_function=self.file_config.merge_function,
        )
        return _read_all(read_slices(plan.query, list(plan.slices)), plan.query.result_schema)

    def changes(
        self,
        after: str | None,
        until: str | None = None,
        *,
        cdc: bool = False,
        spark: SparkSession | None = None,
    ) -> DataFrame:
        """Return what was written in a window of time as a Spark DataFrame.

        Args:
            after, until: completion times, as `Commit.completion_time` has them, or dates; the
                window is open at `after` and closed at `until`. None and `0` mean the beginning;
                without `until` the window ends now.
            cdc: whether to read every change, deletes included, with the record before and after
                it; the columns are `op` (i, u, d), `ts`, `before` and `after`. Otherwise the last
                version of every record that was written and is still there.
            spark: the session to use; the active one unless given.

        Raises: see `queries.incremental.plan_incremental` and `queries.cdc.plan_change_feed`.
        """
        session = session_of(spark)
        window = parse_window(after, until)
        if cdc:
            return read_change_feed(session, self._plan_feed(window), self.spark_config)
        return read_incremental(session, self._plan_incremental(window), self.spark_config)

    def changes_arrow(
        self, after: str | None, until: str | None = None, *, cdc: bool = False
    ) -> pa.Table:
        """Read the same as `changes` into this process, without Spark; changes are in order.

        Raises: see `queries.incremental.plan_incremental` and `queries.cdc.plan_change_feed`.
        """
        window = parse_window(after, until)
        if cdc:
            feed = self._plan_feed(window)
            return _read_all(read_changes(feed.query, feed.tasks), feed.result_schema)
        plan = self._plan_incremental(window)
        return _read_all(read_slices(plan.query, list(plan.slices)), plan.query.result_schema)

    def _plan_incremental(self, window: Window) -> IncrementalPlan:
        return plan_incremental(
            self.storage,
            self.config,
            window,
            storage_options=self.options.known,
            merge_function=self.file_config.merge_function,
        )

    def _plan_feed(self, window: Window) -> ChangeFeedPlan:
        return plan_change_feed(
            self.storage,
            self.config,
            window,
            storage_options=self.options.known,
            merge_function=self.file_config.merge_function,
        )

    def _write(
        self,
        operation: Operation,
        rows: AnyRows | None,
        *,
        is_partial: bool = False,
        partitions: tuple[str, ...] = (),
        extra_metadata: Mapping[str, str] | None = None,
    ) -> Commit:
        target = WriteTarget(
            components=self.components,
            config=with_chosen_index(self.config, self.options.known),
            write_config=self.write_config,
            files=self.file_config,
            storage_options=self.options.known,
            lock_timeout_ms=self.lock_config.acquire_timeout_ms,
            detection=DetectionConfig.from_options(self.options.known),
            markers=MarkerConfig.from_options(self.options.known),
            lock_config=self.lock_config,
            engine_for=self._engine_for,
        )
        given = None if rows is None else rows_of(rows, self.file_config, self.spark_config)
        request = WriteRequest(
            operation=operation,
            columns=None if given is None else given.schema,
            is_partial=is_partial,
            partitions=partitions,
            extra_metadata=extra_metadata or {},
        )
        commit = write_with_retries(target, request, given)
        self.services.run_after_write()
        return commit

    def reload(self) -> Self:
        """Return the table with the config that storage holds now."""
        return replace(self, config=load_table_config(self.storage, self.clock))


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
    checked = check_options(options)
    new = NewTable(
        location=os.fspath(path),
        schema=declared_schema(schema),
        record_key=_columns(record_key),
        partition_by=_columns(partition_by),
        ordering=_columns(ordering),
        table_type=table_type,
        index=index,
        bucket_count=buckets,
        name=name,
        database=database,
    )
    return Table.create(
        storage=open_storage(os.fspath(path), checked.known),
        clock=SystemClock(),
        ids=_ids(checked),
        new=new,
        options=checked,
    )


def open_table(path: str | os.PathLike[str], options: Mapping[str, Any] | None = None) -> Table:
    """Open an existing table of version 8 or 9.

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
    checked = check_options(options)
    return Table.load(
        storage=open_storage(os.fspath(path), checked.known),
        clock=SystemClock(),
        ids=_ids(checked),
        options=checked,
    )


def _columns(given: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    return (given,) if isinstance(given, str) else tuple(given)


def _read_all(batches: Batches, schema: pa.Schema) -> pa.Table:
    with closing(batches):
        return pa.Table.from_batches(batches, schema)


def _ids(options: CheckedOptions) -> Ids:
    ids = SystemIds()
    writer_id = WriteConfig.from_options(options.known).writer_id
    return SystemIds(replace(ids.owner, writer_id=writer_id)) if writer_id is not None else ids
