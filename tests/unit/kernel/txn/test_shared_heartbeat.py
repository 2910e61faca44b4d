"""Heartbeats of an attempt that several processes work on."""

from __future__ import annotations

import pytest
from tests.support.manual_clock import ManualClock
from tests.support.memory_storage import MemoryStorage

from headwater.kernel.layout import heartbeat_path
from headwater.kernel.txn.attempts import Attempt, Purpose, encode_attempt, load_attempt
from headwater.kernel.txn.heartbeat import (
    Heartbeat,
    HeartbeatWatch,
    beat_together,
    shared_heartbeat,
)
from headwater.model.instant import parse_instant_time
from headwater.seams.ids import Owner
from headwater.seams.storage import Storage

TIME = parse_instant_time("20260101000000000")
ATTEMPT = Attempt(
    instant=TIME,
    attempt=1,
    token="ours",
    owner=Owner("host", 1, "writer"),
    purpose=Purpose.WRITE,
    started_ms=0,
    interval_ms=1_000,
    tolerable_misses=2,
)


@pytest.fixture
def storage() -> Storage:
    storage = MemoryStorage("memory://")
    storage.put(ATTEMPT.path, encode_attempt(ATTEMPT))
    return storage


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def stored(storage: Storage) -> Attempt:
    found = load_attempt(storage, TIME, 1)
    assert found is not None
    return found


def test_every_process_counts_on_from_what_it_finds(storage: Storage) -> None:
    assert beat_together(storage, ATTEMPT)
    assert beat_together(storage, ATTEMPT)
    assert stored(storage).beat == 2
    assert storage.read(heartbeat_path(TIME)) == b""


def test_nobody_beats_for_an_attempt_that_has_ended(storage: Storage) -> None:
    released = ATTEMPT.released()
    storage.put(ATTEMPT.path, encode_attempt(released))
    assert not beat_together(storage, ATTEMPT)
    assert stored(storage) == released

    storage.delete(ATTEMPT.path)
    assert not beat_together(storage, ATTEMPT)
    assert load_attempt(storage, TIME, 1) is None


def test_a_process_that_handed_over_beats_until_the_end(
    storage: Storage, clock: ManualClock
) -> None:
    watch = HeartbeatWatch(clock)
    heartbeat = Heartbeat(storage, clock, ATTEMPT, claimed_ms=clock.monotonic_ms())
    heartbeat.share()
    for _ in range(6):
        assert watch.is_active(stored(storage))
        clock.advance_ms(1_000)

    storage.delete(ATTEMPT.path)
    clock.advance_ms(10_000)
    assert load_attempt(storage, TIME, 1) is None, "it does not come back to life"


def test_a_task_beats_while_it_runs(storage: Storage, clock: ManualClock) -> None:
    with shared_heartbeat(storage, clock, ATTEMPT):
        clock.advance_ms(3_000)
        beats = stored(storage).beat
        assert beats >= 3
    clock.advance_ms(3_000)
    assert stored(storage).beat == beats
