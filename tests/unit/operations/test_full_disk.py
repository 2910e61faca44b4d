"""A disk that takes nothing more: an error at once, and the next write at once when it does again.

Every write of this process is refused by the system itself, as a file that grows too large.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from tests.support.tables import COW, MOR, NUMBERS, a_table, numbers

import headwater as hw
from headwater.engine.engine import Route, RowsTask
from headwater.engine.inline import InlineRows
from headwater.errors import StorageError
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.write import run_write
from headwater.seams.clock import SystemClock
from headwater.table import Table

R = TypeVar("R")
UPSERT = WriteRequest(operation=Operation.UPSERT, columns=NUMBERS)
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
