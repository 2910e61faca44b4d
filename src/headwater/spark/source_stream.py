"""Reading a table as a stream: offsets are completion times, and a batch is the window between two.

Completion times only grow, and none appears below one that was seen, so consecutive windows hold
every write exactly once.

Since 4.2 Spark says where a batch starts and how much it may hold, so a batch may end before the
newest write; and it says when a query is to end with what is there now. Spark 4.1 does neither: a
batch reads all there is, and such a query ends when it finds nothing new.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from headwater.config.source import AS_OF, EARLIEST, LATEST, QUERY_TYPE, QueryType, SourceConfig
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
        self._config = config
        self._target: str | None = None
        self._schema = batch_schema_of(schema)

    def initialOffset(self) -> Offset:  # noqa: N802
        match self._config.start_offset:
            case start if start == EARLIEST:
                return {OFFSET: BEGINNING}
            case start if start == LATEST:
                return {OFFSET: self._newest()}
            case start:
                is_utc = open_source_table(self._config).config.is_utc
                return {OFFSET: parse_window(start, None, is_utc=is_utc).after or BEGINNING}

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
            return {OFFSET: self._newest()}
        after, most = start[OFFSET], self._config.commits_per_trigger
        times = [time for time in self._write_times() if time > after]
        if self._target is not None:
            times = [time for time in times if time <= self._target]
        if most is not None and not isinstance(limit, ReadAllAvailable):
            times = times[:most]
        newest = times[-1] if times else after
        # Everything may be archived, and then only the view tells.
        return {OFFSET: self._newest() if newest == BEGINNING else newest}

    def _newest(self) -> str:
        times = self._write_times()
        return times[-1] if times else view_of(open_source_table(self._config)).instant or BEGINNING

    def _write_times(self) -> list[str]:
        """Return the completion times of writes on the active timeline, oldest first."""
        timeline = open_source_table(self._config).load_timeline()
        return sorted(
            instant.completion_time
            for instant in timeline.completed
            if instant.action in COMMIT_ACTIONS and instant.completion_time is not None
        )

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        if end[OFFSET] in (BEGINNING, start[OFFSET]):
            return []
        window = parse_window(start[OFFSET], end[OFFSET])
        return plan_window(self._config, open_source_table(self._config), self._schema, window)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return read_partition(self._config, partition, self._schema)
