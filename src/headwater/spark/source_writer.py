"""Writing through the data source.

Spark runs one write in three kinds of Python processes, all of which end without notice:

1. the planning process begins the write: the instant is requested and the rows' way is planned;
2. tasks write data files of their own, each announced by a marker, or lay their rows aside where
   all rows of a file group must come together (`operations.tasks.staging`);
3. the committing process writes what was laid aside, and commits.

The planning process cannot wait for the end: it lives on for a minute or so after planning, in case
Spark has more to plan. So it hands the write over, as a value, and whichever process is there beats
for it. In between nobody may, for instance while Spark runs the stages before the write; the
attempt claims a long time of expiry for that (`source_table`). A write that was
taken over all the same fails at its commit, whatever its tasks have done.

`abort` comes after a failed task, but also after a failed commit, in a process that does not know
which of them it was. A commit leaves a mark before it tries, and ends the attempt by itself when it
knows that it failed; so abort ends the attempt only where there is no mark. That leaves an unknown
outcome alone.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext as SparkTaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headwater.arrow.input_schema import normalise_rows
from headwater.arrow.meta_columns import META_COLUMNS
from headwater.config.files import DuplicatePolicy
from headwater.config.source import OPERATION, SourceConfig, SourceOperation
from headwater.context import TableContext
from headwater.engine.engine import TaskContext
from headwater.errors import (
    CommitUnknownError,
    ErrorKind,
    FencedError,
    InvalidInputError,
    raise_internal,
)
from headwater.kernel.txn.attempts import Attempt
from headwater.kernel.txn.heartbeat import shared_heartbeat
from headwater.metadata.view import view_of
from headwater.model.commit_metadata import WriteStat
from headwater.operations.committing import PlannedWrite
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.sink_progress import save_attempt
from headwater.operations.tasks.execute import execute_write
from headwater.operations.tasks.staging import (
    StagedFile,
    StagedRows,
    needs_staging,
    stage_rows,
    staging_folder,
)
from headwater.operations.write import abandon_write, resume_write, start_write
from headwater.seams.clock import SystemClock
from headwater.services import Services
from headwater.spark.schemas import arrow_schema_of, nullable_columns
from headwater.spark.source_table import (
    open_or_create_source_table,
    open_source_table,
    warm_for,
    writing,
)

log = logging.getLogger(__name__)

TASK_COUNT_UNKNOWN = 1 << 31
"""Spark does not tell a task how many there are. With a number above all of theirs, the small file
number n is filled up by task n, if there is one, and by no other."""

_OPERATIONS = {
    SourceOperation.UPSERT: Operation.UPSERT,
    SourceOperation.INSERT: Operation.INSERT,
    SourceOperation.BULK_INSERT: Operation.BULK_INSERT,
    SourceOperation.DELETE: Operation.DELETE,
    SourceOperation.DELETE_PARTITION: Operation.DELETE_PARTITIONS,
    SourceOperation.INSERT_OVERWRITE: Operation.OVERWRITE_PARTITIONS,
    SourceOperation.INSERT_OVERWRITE_TABLE: Operation.OVERWRITE,
}


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task has done."""

    task: int
    stats: tuple[WriteStat, ...] = ()
    staged: StagedFile | None = None
    planned: PlannedWrite | None = None
    """The write itself, where the committing process has no other way to know it."""
    query: str | None = None
    """The id of the streaming query, likewise."""


class TableWriter(DataSourceArrowWriter):
    """A batch write, from its beginning on."""

    def __init__(self, config: SourceConfig, planned: PlannedWrite) -> None:
        self._config = config
        self._planned = planned

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_task(self._config, self._planned, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        commit_tasks(self._config, self._planned, written_by_tasks(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        abandon(self._config, self._planned.attempt)


def begin_write(
    config: SourceConfig, schema: StructType, *, is_overwrite: bool, sink: str | None = None
) -> PlannedWrite:
    """Begin a write and hand it over.

    Args:
        sink: where the table notes the attempt, if a stream makes the write; see `source_sink`.

    Raises: see `operations.write.run_write` and `open_or_create_source_table`.
    """
    # Rows of another table may come with its meta columns; this one writes its own.
    given = StructType([f for f in schema if f.name not in META_COLUMNS])
    columns = arrow_schema_of(given)
    table = open_or_create_source_table(config, arrow_schema_of(nullable_columns(given)))
    operation = _operation(config, table, is_overwrite=is_overwrite)
    request = WriteRequest(operation=operation, columns=columns)
    if operation is Operation.DELETE_PARTITIONS:
        partitions = _partitions(config, table)
        request = WriteRequest(operation=operation, columns=None, partitions=partitions)
    with writing(table):
        running = start_write(table, request)
        try:
            planned = running.hand_over()
            if sink is not None:
                save_attempt(table.storage, sink, planned.attempt)
            return planned
        except (Exception, KeyboardInterrupt, SystemExit):
            # Nobody got to know of the write, and this process would beat for it all its life.
            running.abandon()
            raise


def write_task(
    config: SourceConfig, planned: PlannedWrite, batches: Iterator[pa.RecordBatch]
) -> Written:
    """Write, or lay aside, the rows of one task."""
    warm_for(config)
    plan = planned.plan
    context = SparkTaskContext.get()
    if context is None:
        raise_internal("A task of Spark has a context")
    if planned.request.columns is None:
        return Written(context.partitionId())  # Partitions go as wholes, whatever the rows are.
    # Not the number of the attempt but the id of it: unique over stages, retries, speculation.
    here = TaskContext(context.partitionId(), context.taskAttemptId(), TASK_COUNT_UNKNOWN)
    rows = (normalise_rows(_data_columns(batch), plan.columns.schema) for batch in batches)
    storage = plan.location.open()
    with shared_heartbeat(storage, SystemClock(), planned.attempt):
        if needs_staging(plan):
            return Written(here.task, staged=stage_rows(plan, here, rows))
        return Written(here.task, tuple(execute_write(plan, here, rows)))


def commit_tasks(
    config: SourceConfig,
    planned: PlannedWrite,
    written: Sequence[Written],
    extra_metadata: Mapping[str, str] | None = None,
) -> None:
    """Make what tasks have written or laid aside visible, as one.

    Raises: see `operations.write.run_write`.
    """
    with writing(open_source_table(config)) as table:
        storage = table.storage
        storage.put(_commit_mark(planned.attempt), b"")
        running = resume_write(table, planned)
        try:
            stats = [stat for message in written for stat in message.stats]
            staged = [message.staged for message in written if message.staged is not None]
            if staged:
                stats += running.run_tasks(StagedRows(storage, staged, planned.plan.columns.schema))
            running.commit(stats, extra_metadata)
        except CommitUnknownError:
            raise
        except (Exception, KeyboardInterrupt, SystemExit):
            running.abandon()
            raise
        Services(table).run_after_write()


def abandon(config: SourceConfig, attempt: Attempt) -> None:
    """Give a write up, unless its commit was tried; then the commit has seen to it."""
    table = open_source_table(config)
    mark = _commit_mark(attempt).rpartition("/")[2]
    if mark in table.storage.list_names(staging_folder(attempt.instant)):
        return
    try:
        with writing(table):
            abandon_write(table, attempt)
    except FencedError:
        log.info("write had ended before it was given up instant=%s", attempt.instant)


def written_by_tasks(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    """Return what the tasks that succeeded have sent back."""
    return [message for message in messages if isinstance(message, Written)]


def _operation(config: SourceConfig, table: TableContext, *, is_overwrite: bool) -> Operation:
    """Return what to do; mode overwrite replaces all rows, or those of the partitions it meets."""
    default = SourceOperation.UPSERT if table.config.record_key_fields else SourceOperation.INSERT
    operation = _OPERATIONS[config.operation or default]
    minds_duplicates = table.file_config.duplicates is not DuplicatePolicy.NONE
    if operation is Operation.UPSERT and minds_duplicates:
        # Hudi's data source does so too: rows of keys that exist are to change nothing.
        operation = Operation.INSERT
    if not is_overwrite or operation is Operation.OVERWRITE_PARTITIONS:
        return operation
    if operation in (Operation.DELETE, Operation.DELETE_PARTITIONS):
        raise InvalidInputError(
            f"{OPERATION.key}={config.operation} deletes records of the table, which mode "
            "overwrite would replace altogether. Use mode append",
            kind=ErrorKind.INVALID_OPTION,
        )
    return Operation.OVERWRITE


def _partitions(config: SourceConfig, table: TableContext) -> tuple[str, ...]:
    """Return the partitions to delete; a pattern that matches none is left for its error."""
    known = view_of(table).partitions()
    found: dict[str, None] = {}
    for given in config.partitions_to_delete:
        pattern = ".*".join(map(re.escape, given.split("*")))
        matching = [path for path in known if re.fullmatch(pattern, path)]
        found |= dict.fromkeys(matching or [given])
    return tuple(found)


def _data_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select([name for name in batch.schema.names if name not in META_COLUMNS])


def _commit_mark(attempt: Attempt) -> str:
    return f"{staging_folder(attempt.instant)}/commit_tried_{attempt.attempt}"
