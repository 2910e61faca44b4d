"""A disk that takes nothing more: an error at once, and the next write at once when it does again.

Every write of this process is refused by the system itself, as a file that grows too large.
"""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pytest
from tests.support.tables import COW, MOR, NUMBERS, a_table, numbers

import headwater as hw
from headwater.engine.engine import Route, RowsTask
from headwater.engine.group_buffer import GroupBuffer
from headwater.engine.inline import InlineRows
from headwater.errors import StorageError
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.write import run_write
from headwater.seams.clock import SystemClock
from headwater.table import Table

R = TypeVar("R")
UPSERT = WriteRequest(operation=Operation.UPSERT, columns=NUMBERS)
NO_MEMORY = {"headwater.write.inline.bytes": "1"}
WAITED_MS_MAX = 3_000
"""Pauses before another try are allowed; leases and heartbeats last a minute and more."""


@contextmanager
def full_disk() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def waited_ms(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How long this process has paused, each time; more than allowed is a failure."""
    paused: list[int] = []
    sleep = SystemClock.sleep_ms

    def pause(self: SystemClock, duration_ms: int) -> None:
        paused.append(duration_ms)
        assert sum(paused) < WAITED_MS_MAX, f"it waits for itself: {paused}"
        sleep(self, duration_ms)

    monkeypatch.setattr(SystemClock, "sleep_ms", pause)
    return paused


class FillingRows(InlineRows):
    """Rows whose tasks end with the disk full."""

    def __init__(self, table: object, fill: Callable[[], None]) -> None:
        super().__init__(table)
        self._fill = fill

    def run(self, route: Route, task: RowsTask[R]) -> list[R]:
        done = super().run(route, task)
        self._fill()
        return done


def values(table: Table) -> dict[str, int]:
    return {row["id"]: row["value"] for row in table.read_arrow().to_pylist()}


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_n_96_the_disk_is_full_before_the_write(
    tmp_path: Path, waited_ms: list[int], table_type: str
) -> None:
    table = a_table(tmp_path, NUMBERS, table_type=table_type, ordering="ts", buckets=2).create()
    table.upsert(numbers("ab", 1))
    with full_disk(), pytest.raises(StorageError):
        table.upsert(numbers("bc", 2))
    assert values(table) == {"a": 1, "b": 1}
    hw.open_table(table.uri).upsert(numbers("c", 3))
    assert values(table) == {"a": 1, "b": 1, "c": 3}


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_n_96_the_disk_fills_before_the_commit(
    tmp_path: Path, waited_ms: list[int], table_type: str
) -> None:
    table = a_table(tmp_path, NUMBERS, table_type=table_type, ordering="ts", buckets=2).create()
    table.upsert(numbers("ab", 1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    rows = FillingRows(
        numbers("bc", 2), lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    )
    try:
        with pytest.raises(StorageError):
            run_write(table.context, UPSERT, rows)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert values(table) == {"a": 1, "b": 1}
    hw.open_table(table.uri).upsert(numbers("c", 3))
    assert values(table) == {"a": 1, "b": 1, "c": 3}
    table.services.clean()
    assert table.inspect.problems().num_rows == 0


def test_the_disk_for_temporary_files_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = a_table(tmp_path, NUMBERS, ordering="ts", buckets=2, options=NO_MEMORY).create()
    rows = numbers("ab", 1)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(StorageError, match="TMPDIR"):
        table.upsert(rows.to_reader())
    assert values(table) == {}
    with GroupBuffer[tuple[str, int]](1) as buffer, pytest.raises(StorageError, match="TMPDIR"):
        buffer.add(rows.to_batches()[0], np.zeros(2, np.int64), [("", 0)])


def test_errors_of_where_rows_come_from_are_not_ours(tmp_path: Path) -> None:
    table = a_table(tmp_path, NUMBERS, ordering="ts", buckets=2, options=NO_MEMORY).create()

    def batches() -> Iterator[pa.RecordBatch]:
        yield numbers("ab", 1).to_batches()[0]
        raise FileNotFoundError(2, "their file")

    rows = pa.RecordBatchReader.from_batches(numbers("a", 1).schema, batches())
    with pytest.raises(FileNotFoundError, match="their file"):
        table.upsert(rows)
