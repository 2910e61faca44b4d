"""Rows laid aside by tasks, so that those of a file group come together.

Spark brings rows to the tasks of a data source as the user's DataFrame happens to be partitioned.
That suits writes whose tasks can each add files of their own. The others need all rows of a file
group in one place, because a new base file replaces the one before. There the writing has two
steps:

1. Each task finds the groups of its rows, by hash or by looking keys up, and lays them aside in the
   order of their shares: rows of one file group are of one share. It is an Arrow file in the marker
   folder of the instant, where nobody takes it for data and where it goes with the markers.
2. Whoever commits runs one task for each core of its machine. A task reads its own shares of all
   the files, and writes them.

A data source cannot start a job of Spark from where it commits, so the second step does not leave
that machine; but what scales worst, the look-up, is in the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import numpy as np
import pyarrow as pa

from headwater.arrow.keys import CARRIED_PATH, KeyGenerator, put_down
from headwater.engine.engine import GROUP_NUMBER, Route, RowsTask, TaskContext
from headwater.kernel.layout import marker_folder
from headwater.model.files import write_token
from headwater.model.instant import InstantTime
from headwater.operations.plan import WritePlan
from headwater.operations.routing.route import group_route
from headwater.operations.routing.tagging import gathered
from headwater.seams.network import LOOPBACK
from headwater.seams.parallel_map import parallel_map
from headwater.seams.storage import Storage

R = TypeVar("R")

SHARES = 32
"""More than most machines have cores; a task takes several."""

TASK_BYTES = 4 * 1024 * 1024
"""Rows of fewer bytes are written by one task: more of them would make more files of new keys."""


@dataclass(frozen=True, slots=True)
class StagedFile:
    """The rows that one task laid aside."""

    path: str
    shares: tuple[int, ...]
    """The share of each batch, in their order."""
    size_bytes: int


def needs_staging(plan: WritePlan) -> bool:
    """Whether all rows of a file group must come together before they are written."""
    if plan.is_bucketed:
        return plan.is_bulk or not plan.is_merge_on_read
    return plan.looks_up


def staging_folder(time: InstantTime) -> str:
    return f"{marker_folder(time)}/staging"


def stage_rows(
    plan: WritePlan, context: TaskContext, batches: Iterator[pa.RecordBatch]
) -> StagedFile | None:
    """Lay the rows of a task aside; return the file, or None if there were no rows.

    Raises:
        InvalidInputError: a key is null or empty, or a column is missing or does not fit.
    """
    token = write_token(context.task, plan.attempt, context.task_attempt)
    path = f"{staging_folder(plan.instant_time)}/{token}.arrow"
    divided = _divided(group_route(plan, KeyGenerator.from_config(plan.config)), batches)
    first = next(divided, None)
    if first is None:
        return None
    storage = plan.location.open()
    shares: list[int] = []
    size_bytes = 0
    with storage.open_output(path) as sink, pa.ipc.new_file(sink, first[1].schema) as writer:
        for share, rows in chain([first], divided):
            writer.write_batch(rows)
            shares.append(share)
            size_bytes += rows.nbytes
    return StagedFile(path, tuple(shares), size_bytes)


class StagedRows:
    """The rows that tasks have laid aside."""

    def __init__(self, storage: Storage, files: Sequence[StagedFile], schema: pa.Schema) -> None:
        self._storage = storage
        self._files = tuple(files)
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
        """Hand the rows to tasks in this process, which mostly run Arrow's code, side by side.

        The route is that by which the rows were laid aside.
        """
        size_bytes = sum(file.size_bytes for file in self._files)
        count = max(1, min(pa.cpu_count(), SHARES, size_bytes // TASK_BYTES))

        def run_one(number: int) -> list[R]:
            here = TaskContext(task=number, task_attempt=0, task_count=count)
            return task(here, self._batches(number, count))

        outcomes = parallel_map(run_one, range(count), width=count)
        return [result for results in outcomes for result in results]

    def _batches(self, number: int, count: int) -> Iterator[pa.RecordBatch]:
        for file in self._files:
            wanted = [at for at, share in enumerate(file.shares) if share % count == number]
            if wanted:
                with (
                    self._storage.open_input(file.path) as source,
                    pa.ipc.open_file(source) as reader,
                ):
                    yield from map(reader.get_batch, wanted)


def _divided(
    route: Route, batches: Iterator[pa.RecordBatch]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Give rows by share, each time of as many rows as are looked up at once."""
    for lot in route.tag(batches) if route.tag is not None else gathered(batches):
        if route.tag is not None:
            numbers = lot.column(GROUP_NUMBER).to_numpy()
            lot = put_down(lot, [CARRIED_PATH])  # A file has one dictionary for all its batches.
        else:
            assert route.group_numbers is not None
            numbers = route.group_numbers(lot).to_numpy()
        shares = numbers % SHARES
        rows = lot.take(pa.array(np.argsort(shares, kind="stable")))
        counts = np.bincount(shares, minlength=SHARES)
        ends = np.cumsum(counts)
        for share in np.flatnonzero(counts).tolist():
            yield share, rows.slice(int(ends[share] - counts[share]), int(counts[share]))
