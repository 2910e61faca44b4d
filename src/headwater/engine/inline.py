"""The inline engine: everything in this process, for small commits, the simulator and tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any, Self, TypeVar

import pyarrow as pa

from headwater.engine.engine import Engine, Poll, Route, RowsTask, TaskContext, never_stops
from headwater.seams.network import LOOPBACK

A = TypeVar("A")
R = TypeVar("R")


AtOnce = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
"""How calls are made that do not depend on each other: `Storage.at_once`."""


def one_by_one(call: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Make calls in their order."""
    return [call(item) for item in items]


class InlineEngine:
    """Runs tasks one after the other, or several at a time where they mostly wait for a store."""

    is_in_process = True

    def __init__(self, at_once: AtOnce = one_by_one) -> None:
        self._at_once = at_once

    def run(
        self,
        function: Callable[[TaskContext, A], R],
        tasks: Sequence[A],
        *,
        poll: Poll = never_stops,
    ) -> list[R]:
        """Run the tasks; `poll` is asked before each of them."""

        def run_one(numbered: tuple[int, A]) -> R:
            poll()
            number, task = numbered
            here = TaskContext(task=number, task_attempt=0, task_count=len(tasks))
            return function(here, task)

        results: list[R] = self._at_once(run_one, [*enumerate(tasks)])
        return results


EngineFor = Callable[[int], Engine]
"""Gives the engine for work on so many bytes."""


def inline_engine(size_bytes: int) -> Engine:
    """Return the inline engine, however much there is to do."""
    return InlineEngine()


def run_as_one_task(batches: Iterator[pa.RecordBatch], route: Route, task: RowsTask[R]) -> list[R]:
    """Hand all rows to one task in this process, which trivially holds every file group whole."""
    tagged = batches if route.tag is None else route.tag(batches)
    return task(TaskContext(task=0, task_attempt=0, task_count=1), tagged)


class InlineRows:
    """Rows that are here already, as one Arrow table."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    @property
    def schema(self) -> pa.Schema:
        return self._table.schema

    @property
    def driver_host(self) -> str:
        return LOOPBACK

    def held(self) -> list[pa.RecordBatch]:
        batches: list[pa.RecordBatch] = self._table.to_batches()
        return batches

    def holding(self, batches: Sequence[pa.RecordBatch]) -> Self:
        """Return the same rows with what was found out about them, as further columns."""
        again = copy(self)
        again._table = pa.Table.from_batches(batches) if batches else self._table
        return again

    def run(self, route: Route, task: RowsTask[R]) -> list[R]:
        return run_as_one_task(iter(self._table.to_batches()), route, task)
