"""Reading a table as a stream: offsets are completion times, and a batch is the window between two.

Completion times only grow, and none appears below one that was seen, so consecutive windows hold
every write exactly once.

Since 4.2 Spark says where a batch starts and how much it may hold, so a batch may end before the
newest write; and it says when a query is to end with what is there now. Spark 4.1 does neither: a
batch reads all there is, and such a query ends when it finds nothing new.

A stream may have come further than the newest write there is: writes that it has read were taken
back, or it was told to begin at a time to come. Then it waits where it is. Spark 4.1 does not say
where that is, so the reader remembers; of a query that was started again it learns it from the
first batch, which may lead back. That one is empty, and nothing is read twice: what was taken back
does not come again, and later writes complete after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from headwater.config.source import (
    AS_OF,
    BEGIN_INSTANT,
    EARLIEST,
    END_INSTANT,
    LATEST,
    QUERY_TYPE,
    START_OFFSET,
    QueryType,
    SourceConfig,
)
from headwater.context import TableContext
from headwater.errors import ErrorKind, InvalidInputError
from headwater.kernel.view.commits import COMMIT_ACTIONS
from headwater.metadata.view import view_of
from headwater.queries.incremental import parse_window
from headwater.spark.schemas import batch_schema_of
from headwater.spark.source_reader import plan_window, read_partition
from headwater.spark.source_table import open_source_table

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # Spark 4.1

    class ReadAllAvailable:  # type: ignore[no-redef]
        """The limit of a batch that reads all there is."""

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """What can be told that a query ends with what is there now."""


OFFSET = "completion_time"
BEGINNING = "0"

Offset = dict[str, str]


class TableStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """A streaming read."""

    def __init__(self, config: SourceConfig, schema: StructType) -> None:
        if config.as_of is not None or config.query_type is QueryType.READ_OPTIMIZED:
            raise InvalidInputError(
                f"A stream follows the writes of a table; remove {AS_OF.key} and "
                f"{QUERY_TYPE.key}=read_optimized",
                kind=ErrorKind.INVALID_OPTION,
            )
        if config.after is not None or config.until is not None:
            raise InvalidInputError(
                f"A stream of the table {config.path} has no end, and a new one begins where "
                f"{START_OFFSET.key} says; remove {BEGIN_INSTANT.key} and {END_INSTANT.key}, or "
                "read their window in a batch",
                kind=ErrorKind.INVALID_OPTION,
            )
        self._config = config
        self._target: str | None = None
        self._reached = BEGINNING
        """As far as this process knows that the stream has come."""
        self._newest_seen = BEGINNING
        self._schema = batch_schema_of(schema)

    def initialOffset(self) -> Offset:  # noqa: N802
        match self._config.start_offset:
            case start if start == LATEST:
                self._reached = self._newest()
            case _:
                self._reached = self._told_beginning
        return {OFFSET: self._reached}

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """Return how much a batch reads; of the limits that Spark knows, the nearest to writes."""
        most = self._config.commits_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._newest()

    def latestOffset(  # noqa: N802
        self, start: Offset | None = None, limit: Any | None = None
    ) -> Offset:
        if start is None:
            return {OFFSET: max(self._newest(), self._reached, self._told_beginning)}
        after, most = start[OFFSET], self._config.commits_per_trigger
        times = [time for time in self._write_times() if time > after]
        if self._target is not None:
            times = [time for time in times if time <= self._target]
        if most is not None and not isinstance(limit, ReadAllAvailable):
            times = times[:most]
        newest = times[-1] if times else after
        # Everything may be archived, and then only the view tells.
        return {OFFSET: self._newest() if newest == BEGINNING else newest}

    @cached_property
    def _told_beginning(self) -> str:
        """Return the completion time after which a new stream begins, if the options say one."""
        told = self._config.start_offset
        if told in (EARLIEST, LATEST):
            return BEGINNING
        is_utc = open_source_table(self._config).config.is_utc
        return parse_window(told, None, is_utc=is_utc).after or BEGINNING

    def _newest(self) -> str:
        times = self._write_times()
        return times[-1] if times else view_of(open_source_table(self._config)).instant or BEGINNING

    def _write_times(self) -> list[str]:
        """Return the completion times of writes on the active timeline, oldest first."""
        timeline = open_source_table(self._config).load_timeline()
        times: list[str] = sorted(
            instant.completion_time
            for instant in timeline.completed
            if instant.action in COMMIT_ACTIONS and instant.completion_time is not None
        )
        self._newest_seen = max([self._newest_seen, *times[-1:]])
        return times

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        after, until = start[OFFSET], end[OFFSET]
        self._reached = max(self._reached, after, until)
        if until <= after:
            return []
        table = open_source_table(self._config)
        self._check_is_past(table, after, until)
        window = parse_window(after, until)
        return plan_window(self._config, table, self._schema, window, is_of_stream=True)

    def _check_is_past(self, table: TableContext, after: str, until: str) -> None:
        """Refuse a batch that ends in time to come: writes may yet complete within it.

        Spark 4.1 asks for one if a stream that has begun is told another beginning.
        """
        if until > self._newest_seen and until > (table.load_timeline().largest_time or until):
            raise InvalidInputError(
                f"The stream of table {table.config.name} has come to {after}, and "
                f"{START_OFFSET.key} tells it to begin at {until}, which is to come. Only a new "
                "stream can be told where to begin: remove the option. This batch can be read once "
                "a later write has completed; to read it before, remove the newest file of "
                "offsets/ in the checkpoint",
                kind=ErrorKind.INVALID_OPTION,
            )

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return read_partition(self._config, partition, self._schema)
