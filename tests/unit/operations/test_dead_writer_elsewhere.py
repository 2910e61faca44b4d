"""A writer of another host that died in the middle: who comes next waits for it once, or not."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import headwater as hw
from headwater.kernel.txn.heartbeat import age_by_store
from headwater.kernel.txn.steps import Claim
from headwater.kernel.txn.writes import start_inflight_write
from headwater.model.instant import Action, InstantTime
from headwater.seams.clock import SystemClock
from headwater.seams.ids import Owner, SystemIds
from headwater.seams.local import LocalStorage

pytestmark = pytest.mark.usefixtures("tables_with_a_lock")

ROWS = pa.table({"id": ["a"], "v": pa.array([1], pa.int64())})


def die_elsewhere(table: hw.Table, *, age_s: float, expiry_ms: int = 120_000) -> InstantTime:
    """Leave behind what a process of another host leaves that was killed so long ago."""
    context = replace(table.context, ids=SystemIds(Owner("elsewhere", 1, "w", "other-boot")))
    claim = Claim.new(context.ids, interval_ms=expiry_ms // 2, tolerable_misses=2)
    write = start_inflight_write(context.components, context.txn, Action.DELTA_COMMIT, claim, b"{}")
    write._heartbeat.stop()
    attempt = Path(table.uri) / write.attempt.path
    os.utime(attempt, (time.time() - age_s,) * 2)
    return write.instant_time


def pending(table: hw.Table) -> list[str]:
    return [instant.requested_time for instant in table.context.load_timeline().pending]


@pytest.fixture
def table(tmp_path: Path) -> hw.Table:
    return hw.create_table(tmp_path / "t", schema="id string, v long", record_key="id")


def test_n_75_who_died_long_ago_is_not_waited_for(
    table: hw.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = die_elsewhere(table, age_s=300)

    def refuse(_: object, duration_ms: int) -> None:
        raise AssertionError(f"slept {duration_ms} ms")

    monkeypatch.setattr(SystemClock, "sleep_ms", refuse)
    newcomer = hw.open_table(table.uri)
    newcomer.upsert(ROWS)
    (done,) = hw.open_table(table.uri).services.rollback_failed_writes()
    assert done.instant == dead
    assert pending(table) == []


def test_n_75_whoever_waited_takes_it_back(
    table: hw.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By the store's clock it was alive a moment ago, however slow this machine is.
    dead = die_elsewhere(table, age_s=-3_600, expiry_ms=2_000)
    assert pending(table) == [dead]
    slept: list[int] = []
    sleep_ms = SystemClock.sleep_ms

    def note(clock: SystemClock, duration_ms: int) -> None:
        slept.append(duration_ms)
        sleep_ms(clock, duration_ms)

    monkeypatch.setattr(SystemClock, "sleep_ms", note)
    hw.open_table(table.uri).upsert(ROWS)
    assert slept
    assert pending(table) == []
    slept.clear()
    hw.open_table(table.uri).upsert(ROWS)
    assert slept == []


def test_n_75_age_is_what_the_store_says(table: hw.Table) -> None:
    storage = table.context.storage
    assert isinstance(storage, LocalStorage)
    context = replace(table.context, ids=SystemIds(Owner("elsewhere", 1, "w", "other-boot")))
    claim = Claim.new(context.ids, interval_ms=60_000, tolerable_misses=2)
    began_s = time.monotonic()
    write = start_inflight_write(context.components, context.txn, Action.DELTA_COMMIT, claim, b"{}")
    attempt = write.attempt
    assert age_by_store(storage)(attempt) <= (time.monotonic() - began_s) * 1000
    os.utime(Path(table.uri) / attempt.path, (time.time() - 60,) * 2)
    assert 58_000 <= age_by_store(storage)(attempt) <= 400_000
    write.abandon()
    storage.delete(attempt.path)
    assert age_by_store(storage)(attempt) == 0
