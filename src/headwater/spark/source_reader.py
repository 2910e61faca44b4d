"""Reading through the data source: plan once, then read in tasks.

Planning happens in a process of Spark's own, which does not know how many cores there are, so tasks
are made by size. Spark does not tell the columns of a query; the schema that a user gives with
`.schema(...)` is the only way to read fewer. It tells filters if it may (`PUSHED_FILTERS`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from headwater.arrow.meta_columns import schema_with_meta_columns
from headwater.config.source import (
    INCREMENTAL_FORMAT,
    QUERY_TYPE,
    QueryType,
    SourceConfig,
)
from headwater.context import TableContext
from headwater.errors import ErrorKind, InvalidInputError
from headwater.kernel.view.as_of import parse_as_of
from headwater.kernel.view.table_view import TableView
from headwater.metadata.view import view_of
from headwater.model.files import FileSlice
from headwater.model.instant import parse_instant_time
from headwater.queries.cdc import ChangeTask, change_schema, plan_change_feed
from headwater.queries.change_images import read_changes
from headwater.queries.incremental import Window, parse_window, plan_incremental
from headwater.queries.slice_query import SliceQuery, read_slices
from headwater.queries.snapshot import ReadRequest, find_as_of, plan_snapshot
from headwater.spark.schemas import batch_schema_of, frame_schema_of
from headwater.spark.shares import balanced_shares
from headwater.spark.source_filters import take_filters
from headwater.spark.source_table import open_source_table, warm_for

T = TypeVar("T")

TASK_BYTES = 32 * 1024 * 1024
"""Bytes of files that one task reads, unless a single file slice has more."""
TASKS_MAX = 10_000
BATCH_ROWS = 65_536
"""Rows that a task hands to Spark at a time, which holds them outside of its heap."""


class SlicesPartition(InputPartition):
    """File slices for one task."""

    def __init__(self, query: SliceQuery, slices: Sequence[FileSlice]) -> None:
        self.query = query
        self.slices = tuple(slices)

    def read(self) -> Iterator[pa.RecordBatch]:
        return read_slices(self.query, list(self.slices))


class ChangesPartition(InputPartition):
    """Changes of file groups for one task."""

    def __init__(self, query: SliceQuery, tasks: Sequence[ChangeTask]) -> None:
        self.query = query
        self.tasks = tuple(tasks)

    def read(self) -> Iterator[pa.RecordBatch]:
        return read_changes(self.query, self.tasks)


def load_source_view(config: SourceConfig) -> TableView:
    """Load the view that a read is about to see, to tell its columns.

    Raises: see `load_view`.
    """
    table = open_source_table(config)
    if config.as_of is not None:
        return view_of(table, as_of=find_as_of(table, config.as_of))
    until = None if config.until is None else parse_as_of(config.until, is_utc=table.config.is_utc)
    return view_of(table, as_of=until)


def source_schema(config: SourceConfig, columns: pa.Schema, *, has_meta: bool) -> pa.Schema:
    """Return the columns of a read: meta columns first, where they are asked for."""
    if config.is_change_feed:
        return change_schema(columns)
    return schema_with_meta_columns(columns) if has_meta else columns


class TableReader(DataSourceReader):
    """A batch read. What crosses to tasks holds no plan; each partition brings its own."""

    def __init__(self, config: SourceConfig, schema: StructType, pinned: str | None) -> None:
        self._config = config
        self._shown = schema
        self._schema = batch_schema_of(schema)
        self._pinned = pinned
        self._where: str | None = None
        """What Spark has left to this reader to evaluate."""

    def partitions(self) -> Sequence[InputPartition]:
        config, table = self._config, open_source_table(self._config)
        if config.query_type is QueryType.INCREMENTAL:
            return plan_window(config, table, self._schema, self._window(table))
        if config.is_change_feed:
            raise InvalidInputError(
                f"{INCREMENTAL_FORMAT.key}=cdc needs {QUERY_TYPE.key}=incremental",
                kind=ErrorKind.INVALID_OPTION,
            )
        plan = plan_snapshot(
            table,
            ReadRequest(
                columns=tuple(self._schema.names),
                as_of=config.as_of,
                pinned=None if self._pinned is None else parse_instant_time(self._pinned),
                where=self._where,
                is_filtered=True,
                is_read_optimized=config.query_type is QueryType.READ_OPTIMIZED,
            ),
        )
        return slice_partitions(plan.query, plan.slices)

    def _window(self, table: TableContext) -> Window:
        """Return the window of the options; one without an end ends when the table was loaded."""
        config, is_utc = self._config, table.config.is_utc
        window = parse_window(config.after, config.until, is_utc=is_utc)
        if window.until is not None or self._pinned is None:
            return window
        pinned = parse_instant_time(self._pinned)
        return replace(window, until=max(pinned, window.after or pinned))

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return read_partition(self._config, partition, self._schema)


class FilteredTableReader(TableReader):
    """A batch read that takes filters. Spark refuses it in a session that pushes none down."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Take the filters whose answers are Spark's own; return the others."""
        if self._config.query_type is QueryType.INCREMENTAL or self._config.is_change_feed:
            return filters
        view = load_source_view(self._config)
        stored = schema_with_meta_columns(view.schema())
        kinds = {field.name: field.dataType for field in frame_schema_of(stored)}
        alike = {each.name for each in self._shown if kinds.get(each.name) == each.dataType}
        columns = pa.schema([field for field in stored if field.name in alike])
        self._where, left = take_filters(filters, columns)
        return left


def plan_window(
    config: SourceConfig,
    table: TableContext,
    schema: pa.Schema,
    window: Window,
    *,
    is_of_stream: bool = False,
) -> list[InputPartition]:
    """Plan to read the rows, or the changes, of a window of time."""
    if config.is_change_feed:
        feed = plan_change_feed(table, window)
        shares = _shares(feed.tasks, _change_size)
        return [ChangesPartition(feed.query, share) for share in shares]
    plan = plan_incremental(table, window, is_of_stream=is_of_stream)
    query = plan.query
    if is_of_stream and not _has_columns(query, schema):
        # A stream has one schema for all of its windows, those before a column came included.
        query = replace(query, schema=view_of(table).schema())
    query = replace(query, columns=_known_columns(query, schema))
    return slice_partitions(query, plan.slices)


def slice_partitions(query: SliceQuery, slices: Sequence[FileSlice]) -> list[InputPartition]:
    """Divide file slices among tasks of about equal size."""
    shares = _shares(slices, lambda file_slice: file_slice.size_bytes)
    return [SlicesPartition(query, share) for share in shares]


def read_partition(
    config: SourceConfig, partition: Any, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Give the rows of one task with exactly the columns that Spark expects."""
    if not isinstance(partition, SlicesPartition | ChangesPartition):
        return  # Spark's way to say that there are no partitions.
    warm_for(config)
    for batch in partition.read():
        # Spark takes columns by their position and does not convert.
        fitting = batch.select(schema.names).cast(schema)
        for start in range(0, fitting.num_rows, BATCH_ROWS):
            yield fitting.slice(start, BATCH_ROWS)


def _shares(items: Sequence[T], size: Callable[[T], int]) -> list[list[T]]:
    count = sum(size(item) for item in items) // TASK_BYTES + 1
    return balanced_shares(items, min(count, TASKS_MAX), size)


def _change_size(task: ChangeTask) -> int:
    return sum(side.size_bytes for side in (task.before, task.after) if side is not None)


def _has_columns(query: SliceQuery, schema: pa.Schema) -> bool:
    return set(schema.names) <= set(schema_with_meta_columns(query.schema).names)


def _known_columns(query: SliceQuery, schema: pa.Schema) -> tuple[str, ...]:
    known = schema_with_meta_columns(query.schema).names
    unknown = [name for name in schema.names if name not in known]
    if unknown:
        raise InvalidInputError(
            f"Table {query.config.name} has no column {', '.join(unknown)}; it has "
            f"{', '.join(known)}"
        )
    return tuple(schema.names)
