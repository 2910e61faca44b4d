"""Both sides of a heartbeat, on a clock that moves only when told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.support.forks import in_a_child
from tests.support.manual_clock import ManualClock
from tests.support.memory_storage import MemoryStorage

from headwater.errors import CorruptTableError, ErrorKind, FencedError, StorageError
from headwater.kernel.layout import heartbeat_path
from headwater.kernel.txn.attempts import (
    Attempt,
    Purpose,
    decode_attempt,
    encode_attempt,
    load_attempt,
    load_newest_number,
    newest_number,
)
from headwater.kernel.txn.heartbeat import Heartbeat, HeartbeatWatch
from headwater.model.instant import InstantTime
from headwater.seams.clock import Timer
from headwater.seams.given_up import GivenUp
from headwater.seams.ids import Owner

TIME = InstantTime("20260101000000000")
CLAIMED = Attempt(
    instant=TIME,
    attempt=1,
    token="token",
    owner=Owner("host", 7, "writer"),
    purpose=Purpose.EXECUTE,
    started_ms=0,
    interval_ms=100,
    tolerable_misses=2,
)


def claimed_heartbeat() -> tuple[MemoryStorage, ManualClock, Heartbeat]:
    storage, clock = MemoryStorage(), ManualClock()
    storage.put_if_absent(CLAIMED.path, encode_attempt(CLAIMED))
    return storage, clock, Heartbeat(storage, clock, CLAIMED, claimed_ms=0)


def test_attempts_round_trip_and_garbage_is_named() -> None:
    assert decode_attempt(encode_attempt(CLAIMED), path="p") == CLAIMED
    for garbage in (b"", b"{}", b"[1]", b'{"owner": 3}', encode_attempt(CLAIMED)[:-5]):
        with pytest.raises(CorruptTableError, match="path=p"):
            decode_attempt(garbage, path="p")


def test_newest_number_ignores_foreign_names() -> None:
    assert newest_number([]) == 0
    assert newest_number(["00002.json", "00010.json", "x.json", "00099.tmp"]) == 10


def test_a_beating_owner_stays_alive_and_keeps_the_plain_file_fresh() -> None:
    storage, clock, heartbeat = claimed_heartbeat()
    clock.advance_ms(1_000)
    heartbeat.check()
    found = load_attempt(storage, TIME, 1)
    assert found is not None
    assert found.beat == 20
    assert storage.read(heartbeat_path(TIME)) == b""


def test_inv_21_a_lapsed_owner_is_fenced_and_never_beats_again() -> None:
    storage, clock, heartbeat = claimed_heartbeat()
    with clock.timers_stalled():
        clock.advance_ms(200)
    with pytest.raises(FencedError) as raised:
        heartbeat.check()
    assert raised.value.kind is ErrorKind.HEARTBEAT_LAPSED
    before = storage.read(CLAIMED.path)
    clock.advance_ms(1_000)
    assert not heartbeat.beat()
    heartbeat.release()
    assert storage.read(CLAIMED.path) == before


def test_n_194_a_heartbeat_that_nobody_has_any_more_beats_no_more() -> None:
    """An interrupt may come between its start and the first line that would stop it."""
    storage, clock, given_up = MemoryStorage(), ManualClock(), GivenUp()
    storage.put_if_absent(CLAIMED.path, encode_attempt(CLAIMED))
    heartbeat = Heartbeat(storage, clock, CLAIMED, claimed_ms=0, given_up=given_up)
    clock.advance_ms(CLAIMED.interval_ms)
    assert CLAIMED.token not in given_up
    del heartbeat
    last = storage.read(CLAIMED.path)
    clock.advance_ms(CLAIMED.interval_ms)
    assert storage.read(CLAIMED.path) == last
    assert clock.timer_count == 0
    assert CLAIMED.token in given_up  # This process need not wait for itself.


def test_n_194_a_heartbeat_whose_start_is_interrupted_is_given_up() -> None:
    class Interrupted(ManualClock):
        def every_ms(self, interval_ms: int, call: Callable[[], bool], name: str) -> Timer:
            raise KeyboardInterrupt

    given_up = GivenUp()
    with pytest.raises(KeyboardInterrupt):
        Heartbeat(MemoryStorage(), Interrupted(), CLAIMED, claimed_ms=0, given_up=given_up)
    assert CLAIMED.token in given_up


def test_n_194_a_shared_heartbeat_goes_on_without_its_handle() -> None:
    storage, clock, heartbeat = claimed_heartbeat()
    heartbeat.share()
    del heartbeat
    before = storage.read(CLAIMED.path)
    clock.advance_ms(CLAIMED.interval_ms)
    assert storage.read(CLAIMED.path) != before


def test_a_failed_beat_is_tried_again_and_lapses_when_none_gets_through() -> None:
    class BrokenStorage(MemoryStorage):
        is_broken = False

        def put(self, path: str, data: bytes) -> None:
            if self.is_broken:
                raise StorageError("down")
            super().put(path, data)

    storage, clock = BrokenStorage(), ManualClock()
    heartbeat = Heartbeat(storage, clock, CLAIMED, claimed_ms=0)
    storage.is_broken = True
    clock.advance_ms(100)
    heartbeat.check()
    storage.is_broken = False
    clock.advance_ms(100)
    heartbeat.check()
    storage.is_broken = True
    clock.advance_ms(400)
    with pytest.raises(FencedError):
        heartbeat.check()
    assert clock.timer_count == 0


def test_n_168_a_beat_after_one_that_failed_and_landed_is_a_change() -> None:
    class LostReplies(MemoryStorage):
        def put(self, path: str, data: bytes) -> None:
            super().put(path, data)
            if path == CLAIMED.path:
                raise StorageError("no answer")

    storage, clock = LostReplies(), ManualClock()
    heartbeat = Heartbeat(storage, clock, CLAIMED, claimed_ms=0)
    seen = []
    for _ in range(3):
        clock.advance_ms(CLAIMED.interval_ms // 2)
        seen.append(storage.read(CLAIMED.path))
    assert len(set(seen)) == 3
    heartbeat.stop()


def test_finishing_removes_the_attempt_and_releasing_keeps_its_number() -> None:
    storage, clock, heartbeat = claimed_heartbeat()
    heartbeat.finish()
    assert load_newest_number(storage, TIME) == 0
    assert storage.list_tree("") == []
    assert clock.timer_count == 0

    storage, clock, heartbeat = claimed_heartbeat()
    heartbeat.release()
    assert load_newest_number(storage, TIME) == 1
    left = load_attempt(storage, TIME, 1)
    assert left is not None
    assert left.is_released
    assert not HeartbeatWatch(clock).is_active(left)
    assert clock.timer_count == 0


def test_h_26_an_observer_judges_by_its_own_clock_only() -> None:
    clock = ManualClock()
    watch = HeartbeatWatch(clock)
    assert watch.is_active(CLAIMED)
    clock.step_wall_ms(10_000_000)
    assert watch.is_active(CLAIMED)
    clock.advance_ms(199)
    assert watch.is_active(CLAIMED)
    assert watch.remaining_ms(CLAIMED) == 1
    clock.advance_ms(1)
    assert not watch.is_active(CLAIMED)


def test_h_26_a_change_starts_the_observation_anew() -> None:
    clock = ManualClock()
    watch = HeartbeatWatch(clock)
    watch.is_active(CLAIMED)
    clock.advance_ms(199)
    assert watch.is_active(CLAIMED.next_beat())
    clock.advance_ms(199)
    assert watch.is_active(CLAIMED.next_beat())
    clock.advance_ms(1)
    assert not watch.is_active(CLAIMED.next_beat())


def test_n_62_a_forked_child_has_not_the_heartbeat_of_its_parent() -> None:
    storage, clock, heartbeat = claimed_heartbeat()

    def use_it() -> tuple[bool, str, bytes]:
        is_beating = heartbeat.beat()
        with pytest.raises(FencedError) as raised:
            heartbeat.check()
        heartbeat.release()
        heartbeat.finish()
        return is_beating, raised.value.message, storage.read(CLAIMED.path)

    is_beating, message, left = in_a_child(use_it)
    assert not is_beating
    assert "forked" in message
    assert left == encode_attempt(CLAIMED)
    clock.advance_ms(1_000)
    heartbeat.check()


def test_n_61_the_system_of_the_owner_travels_in_the_attempt() -> None:
    owner = Owner("host", 7, "writer", "boot pid:[1]", 5)
    attempt = replace(CLAIMED, owner=owner)
    assert decode_attempt(encode_attempt(attempt), path="p").owner == owner
