"""Writing a stream through the data source, each micro-batch exactly once.

Spark asks for a writer twice in every batch: in the planning process, which sends it to tasks, and
in the committing process, which has only what tasks sent back. Only the first may begin a write. It
is told apart by what it does: it alone pickles the writer. The batch's number is known to the
committing process only, which gives the write up if the table has that batch (`sink_progress`).

Batches are noted under the id of the query, which Spark keeps in the checkpoint and tells to tasks
alone. A checkpoint that was deleted and begun anew has another one: its batches, which count from 0
again, are not those that the table has.

When every task of a batch fails, nothing comes back from them. So the planning process also notes
in the table which attempt the sink has begun; `abort` gives that one up, and so does the next
beginning, after a crash that left no time for `abort`.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headwater.config.source import SINK_IDENTIFIER, SourceConfig
from headwater.context import TableContext
from headwater.errors import ErrorKind, InvalidInputError, NotFoundError, raise_internal
from headwater.operations.committing import PlannedWrite
from headwater.operations.sink_progress import (
    encode_progress,
    load_newest_batch,
    load_saved_attempt,
)
from headwater.spark.source_table import open_source_table
from headwater.spark.source_writer import (
    Written,
    abandon,
    begin_write,
    commit_tasks,
    write_task,
    written_by_tasks,
)

log = logging.getLogger(__name__)

_QUERY_ID = "sql.streaming.queryId"
"""Under which Spark tells tasks the id of their query."""


class TableStreamWriter(DataSourceStreamArrowWriter):
    """One micro-batch of a streaming write."""

    def __init__(self, config: SourceConfig, schema: StructType, *, is_overwrite: bool) -> None:
        self._config = config
        self._sink = sink_of(config)
        self._schema = schema
        self._is_overwrite = is_overwrite
        self._planned: PlannedWrite | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Begin the write, on the way to its tasks."""
        if self._planned is None:
            self._planned = self._begin()
        return dict(self.__dict__)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        if self._planned is None:
            raise_internal("A task of a stream has a write that began")
        written = write_task(self._config, self._planned, iterator)
        if written.task != 0:
            return written
        # The plan may be large, so one task alone brings it back.
        return replace(written, planned=self._planned, query=_query_of_task())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        written = written_by_tasks(messages)
        first = next((task for task in written if task.planned is not None), None)
        if first is None or first.planned is None:
            raise_internal("A batch has a first task", batch=batchId, sink=self._sink)
        planned, name = first.planned, self._name_of_batches(first)
        table = open_source_table(self._config)
        newest = load_newest_batch(table.storage, table.config, name)
        if newest is not None and batchId < newest:
            raise _led_back(table, name, batchId, newest)
        if batchId == newest:
            log.info("batch is in the table already sink=%s batch=%s", name, batchId)
            abandon(self._config, planned.attempt)
            return
        commit_tasks(self._config, planned, written, encode_progress(name, batchId))

    def _name_of_batches(self, first: Written) -> str:
        given = self._config.sink_identifier
        return given or (f"query-{first.query}" if first.query else self._sink)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._abandon_saved()

    def _begin(self) -> PlannedWrite:
        self._abandon_saved()
        return begin_write(
            self._config, self._schema, is_overwrite=self._is_overwrite, sink=self._sink
        )

    def _abandon_saved(self) -> None:
        try:
            table = open_source_table(self._config)
        except NotFoundError as error:
            if error.kind is not ErrorKind.NOT_A_TABLE:
                raise
            return
        attempt = load_saved_attempt(table.storage, self._sink)
        if attempt is not None:
            abandon(self._config, attempt)


def _query_of_task() -> str | None:
    """Return the id of the streaming query that this task of Spark is part of."""
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(_QUERY_ID)


def _led_back(table: TableContext, name: str, batch: int, newest: int) -> InvalidInputError:
    """Return the error of a batch before the last one: Spark runs none but the last again."""
    return InvalidInputError(
        f"Table {table.config.name} has batch {newest} of the streaming query {name}, and is given "
        f"batch {batch}: the checkpoint is another one, or an older copy of it. Nothing was "
        f"written. To write what comes from this checkpoint on, set {SINK_IDENTIFIER.key} to a "
        "name that the table does not have yet",
        kind=ErrorKind.INVALID_OPTION,
    )


def sink_of(config: SourceConfig) -> str:
    """Return the name under which a streaming query notes the attempt that it has begun.

    Raises:
        InvalidInputError: kind INVALID_OPTION; nothing names the query.
    """
    if config.sink_identifier is not None:
        return config.sink_identifier
    if config.checkpoint_location is None:
        raise InvalidInputError(
            "A streaming write must recognise its own batches after a restart. Set the option "
            f"checkpointLocation of the query itself, or {SINK_IDENTIFIER.key}",
            kind=ErrorKind.INVALID_OPTION,
        )
    location = config.checkpoint_location.rstrip("/")
    return "checkpoint-" + hashlib.blake2b(location.encode(), digest_size=12).hexdigest()
