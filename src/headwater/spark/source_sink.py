"""Writing a stream through the data source, each micro-batch exactly once.

Spark asks for a writer twice in every batch: in the planning process, which sends it to tasks, and
in the committing process, which has only what tasks sent back. Only the first may begin a write. It
is told apart by what it does: it alone pickles the writer. The batch's number is known to the
committing process only, which gives the write up if the table has that batch (`sink_progress`).

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
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headwater.config.source import SINK_IDENTIFIER, SourceConfig
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
        # The plan may be large, so one task alone brings it back.
        return replace(written, planned=self._planned) if written.task == 0 else written

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        written = written_by_tasks(messages)
        planned = next((task.planned for task in written if task.planned is not None), None)
        if planned is None:
            raise_internal("A batch has a first task", batch=batchId, sink=self._sink)
        table = open_source_table(self._config)
        newest = load_newest_batch(table.storage, table.config, self._sink)
        if newest is not None and batchId <= newest:
            log.info("batch is in the table already sink=%s batch=%s", self._sink, batchId)
            abandon(self._config, planned.attempt)
            return
        commit_tasks(self._config, planned, written, encode_progress(self._sink, batchId))

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


def sink_of(config: SourceConfig) -> str:
    """Return the name under which a streaming query notes its batches.

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
