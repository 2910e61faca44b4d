"""Tables with a write that failed in the middle, and processes that come upon it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.manual_clock import ManualClock
from tests.support.tables import FAST, a_table
from tests.support.tables import TRIPS as SCHEMA
from tests.support.tables import trips as rows

import headwater as hw
from headwater.config.table_options import TableType
from headwater.engine.inline import InlineRows
from headwater.kernel.layout import CLOCK, JOURNAL
from headwater.kernel.table_config import table_layout
from headwater.kernel.txn.heartbeat import HeartbeatWatch
from headwater.kernel.txn.locks.in_process import InProcessLockProvider, InProcessLocks
from headwater.kernel.txn.rollback import Rollbacks
from headwater.kernel.txn.transaction import LockTransaction
from headwater.kernel.txn.writes import resume_inflight_write
from headwater.markers.batches import load_every_marker
from headwater.model.instant import InstantTime
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.write import RunningWrite, start_write
from headwater.seams.clock import Clock
from headwater.seams.components import Components
from headwater.seams.ids import Owner, SystemIds
from headwater.seams.storage import Storage
from headwater.table import Table


@dataclass(frozen=True)
class Bench:
    """A table with two commits, and everything a test does to it."""

    table: Table

    def begin_write(
        self, *values: tuple[str, str, int], operation: Operation = Operation.UPSERT
    ) -> RunningWrite:
        """Start a write and run its tasks: everything but the commit."""
        table = self.table
        target = table.context
        running = start_write(target, WriteRequest(operation=operation, columns=SCHEMA))
        running.run_tasks(InlineRows(rows(*(values or (("a", "sf", 10), ("c", "la", 3))))))
        return running

    def fail_write(self, operation: Operation = Operation.UPSERT) -> InstantTime:
        """Leave a write that gave up after its tasks had written their files.

        Its heartbeat is released, but its process ended before it could roll the write back.
        """
        planned = self.begin_write(operation=operation).hand_over()
        components = self.table.context.components
        txn = LockTransaction(components, table_layout(self.table.config))
        resume_inflight_write(components, txn, planned.attempt).abandon()
        return planned.plan.instant_time

    def files(self) -> dict[str, bytes]:
        """Return every object but those of lock and journal, and the one that tells the time."""
        storage = self.table.storage
        return {
            info.path: storage.read(info.path)
            for info in storage.list_tree("")
            if not info.path.startswith((".hoodie/.locks/", f"{JOURNAL}/", CLOCK))
        }

    def paths_of(self, time: InstantTime) -> set[str]:
        """Return every path with an instant in it."""
        return {path for path in self.files() if time in path}

    def values(self) -> dict[str, int]:
        return {row["id"]: row["value"] for row in self.table.read_arrow().to_pylist()}

    def states(self) -> list[tuple[str, str]]:
        return [(row["action"], row["state"]) for row in self.table.inspect.timeline().to_pylist()]


@pytest.fixture
def make_bench(tmp_path: Path) -> Callable[..., Bench]:
    """Return a function that makes a table with the rows a, b and then a second a."""

    def make(table_type: TableType = TableType.COPY_ON_WRITE, **options: Any) -> Bench:
        first, second = rows(("a", "sf", 1), ("b", "ny", 2)), rows(("a", "sf", 5))
        shape = a_table(tmp_path, partition_by="city", buckets=1, table_type=table_type)
        return Bench(shape.with_options(options).with_upserts(first, second).create())

    return make


@pytest.fixture
def make_table(tmp_path: Path) -> Callable[..., Table]:
    """Return a function that makes a table with so many commits."""

    def make(
        table_type: TableType = TableType.COPY_ON_WRITE, *, commits: int = 3, **options: str
    ) -> Table:
        shape = a_table(tmp_path, partition_by="city", buckets=1, table_type=table_type)
        return shape.with_options(options).with_commits(commits).create()

    return make


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench()


@dataclass(frozen=True)
class Cleaner:
    """One process that rolls back failed writes, on a host of its own."""

    rollbacks: Rollbacks
    watch: HeartbeatWatch


@pytest.fixture
def cleaner_of() -> Callable[..., Cleaner]:
    """Return a function that makes a cleaner of a table, with seams of its own where given."""
    locks = InProcessLocks()

    def make(name: str, table: Table, clock: Clock, storage: Storage | None = None) -> Cleaner:
        ids = SystemIds(Owner(name, 1, name))
        provider = InProcessLockProvider(locks, clock, ids, table=table.uri)
        components = Components(storage or table.storage, clock, ids, provider)
        layout = table_layout(table.config)
        txn = LockTransaction(components, layout)
        rollbacks = Rollbacks(
            components=components,
            txn=txn,
            layout=layout,
            load_markers=load_every_marker,
            interval_ms=1_000,
            tolerable_misses=2,
        )
        return Cleaner(rollbacks, txn.watch)

    return make


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def copies(tmp_path: Path) -> Callable[[Table], Iterator[Table]]:
    """Return a function that gives as many copies of a table as wanted, one at a time."""

    def copy(table: Table) -> Iterator[Table]:
        while True:
            folder = tmp_path / "copy"
            shutil.rmtree(folder, ignore_errors=True)
            # Storage never changes a file in its place, so that links are as good as copies.
            shutil.copytree(table.uri, folder, copy_function=os.link)
            yield hw.open_table(folder, FAST)

    return copy
