"""Locks of file groups: they order looks and markers, and nothing depends on them."""

from __future__ import annotations

import logging

import pytest
from tests.support.manual_clock import ManualClock
from tests.support.memory_storage import MemoryStorage

from headwater.errors import EarlyConflictError, StorageError
from headwater.kernel.txn.locks.file_system import FileSystemLockProvider
from headwater.kernel.txn.markers import Marker, MarkerKind
from headwater.markers.locked_markers import WAIT_MS_MAX, LockedMarkers
from headwater.seams.ids import SystemIds
from headwater.seams.lock import LockInfo

M = Marker("city=sf/a-0_0-1-0_20260101000000000.parquet", MarkerKind.MERGE)
KEY = "city=sf/a-0"


class Recorded:
    """Markers that note who held the lock of the file group when one was created."""

    def __init__(self, locks: FileSystemLockProvider) -> None:
        self.locks = locks
        self.holders: list[LockInfo | None] = []
        self.error: Exception | None = None

    def create(self, marker: Marker) -> None:
        self.holders.append(self.locks.inspect(KEY))
        if self.error is not None:
            raise self.error


class Bench:
    def __init__(self, expire_ms: int = 0) -> None:
        self.clock = ManualClock()
        self.storage = MemoryStorage(clock=self.clock)
        self.mine = self.locks(expire_ms)
        self.markers = Recorded(self.mine)
        self.locked = LockedMarkers(self.markers, self.mine, wait_ms=60_000)

    def locks(self, expire_ms: int) -> FileSystemLockProvider:
        return FileSystemLockProvider(self.storage, self.clock, SystemIds(), expire_ms=expire_ms)


def test_a_marker_is_created_under_the_lock_of_its_group() -> None:
    bench = Bench()
    bench.locked.create(M)
    [holder] = bench.markers.holders
    assert holder is not None
    assert holder.key == KEY
    assert holder.owner == str(bench.mine.ids.owner)
    assert bench.mine.inspect(KEY) is None
    assert bench.mine.inspect() is None, "the table lock is another one"


def test_a_conflict_gives_the_lock_back() -> None:
    bench = Bench()
    bench.markers.error = EarlyConflictError("no")
    with pytest.raises(EarlyConflictError):
        bench.locked.create(M)
    assert bench.mine.inspect(KEY) is None


def test_a_lock_that_expires_under_its_holder_costs_a_detection_only() -> None:
    bench = Bench(expire_ms=2_000)
    with bench.clock.timers_stalled():
        bench.locks(2_000).acquire(KEY, timeout_ms=0)
        bench.locked.create(M)
    [holder] = bench.markers.holders
    assert holder is not None
    assert holder.owner == str(bench.mine.ids.owner)
    assert 2_000 <= bench.clock.monotonic_ms() < WAIT_MS_MAX


def test_a_lock_that_nobody_gives_back_is_not_waited_for_long(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    held = bench.locks(0).acquire(KEY, timeout_ms=0)
    with caplog.at_level(logging.WARNING):
        bench.locked.create(M)
    assert "file group not locked" in caplog.text
    assert len(bench.markers.holders) == 1
    assert WAIT_MS_MAX <= bench.clock.monotonic_ms() < 2 * WAIT_MS_MAX
    held.release()


def test_a_lock_that_cannot_be_given_back_does_not_fail_the_task(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench()

    def fail(path: str) -> None:
        raise StorageError("no")

    with caplog.at_level(logging.WARNING), monkeypatch.context() as patch:
        patch.setattr(bench.storage, "delete", fail)
        bench.locked.create(M)
    assert len(bench.markers.holders) == 1
