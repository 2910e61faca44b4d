"""Rows laid aside by tasks, to be written by one process.

Spark brings rows to the tasks of a data source as the user's DataFrame happens to be partitioned.
That suits writes whose tasks can each add files of their own. The others need all rows of a file
group in one place, because a new base file replaces the one before. There each task lays its rows
aside as an Arrow file in the marker folder of the instant, where nobody takes it for data and where
it goes with the markers, and whoever commits writes them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import pyarrow as pa

from headwater.engine.engine import Route, RowsTask, TaskContext
from headwater.kernel.layout import marker_folder
from headwater.model.files import write_token
from headwater.model.instant import InstantTime
from headwater.operations.plan import WritePlan
from headwater.seams.network import LOOPBACK
from headwater.seams.open_storage import open_storage
from headwater.seams.storage import Storage

R = TypeVar("R")


def needs_staging(plan: WritePlan) -> bool:
    """Whether all rows of a file group must come together before they are written."""
    if plan.is_bucketed:
        return plan.is_bulk or not plan.is_merge_on_read
    return plan.looks_up


def staging_folder(time: InstantTime) -> str:
    return f"{marker_folder(time)}/staging"


def stage_rows(
    plan: WritePlan, context: TaskContext, batches: Iterator[pa.RecordBatch]
) -> str | None:
    """Lay the rows of a task aside; return the file's path, or None if there were no rows."""
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return None
    token = write_token(context.task, plan.attempt, context.task_attempt)
    path = f"{staging_folder(plan.instant_time)}/{token}.arrow"
    storage = open_storage(plan.location.uri, plan.location.options)
    with storage.open_output(path) as sink, pa.ipc.new_stream(sink, first.schema) as writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)
    return path


class StagedRows:
    """The rows that tasks have laid aside."""

    def __init__(self, storage: Storage, paths: Sequence[str], schema: pa.Schema) -> None:
        self._storage = storage
        self._paths = tuple(paths)
        self._schema = schema

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def driver_host(self) -> str:
        return LOOPBACK

    def held(self) -> None:
        return None

    def run(self, route: Route, task: RowsTask[R]) -> list[R]:
        """Hand all rows to one task, in this process."""
        batches = self._batches()
        tagged = batches if route.tag is None else route.tag(batches)
        return task(TaskContext(task=0, task_attempt=0, task_count=1), tagged)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for path in self._paths:
            with self._storage.open_input(path) as source, pa.ipc.open_stream(source) as reader:
                yield from reader
