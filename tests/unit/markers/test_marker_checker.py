"""The service's search: when it looks, what it reads, and what it does with a conflict."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.counting_storage import CountingStorage
from tests.support.manual_clock import ManualClock
from tests.support.memory_storage import MemoryStorage

from headwater.config.detection import DetectionConfig, DetectionStrategy
from headwater.errors import EarlyConflictError
from headwater.kernel.layout import TableLayout
from headwater.kernel.txn.attempts import Attempt, Purpose, encode_attempt
from headwater.kernel.txn.conflicts import Snapshot
from headwater.kernel.txn.markers import Marker, MarkerKind
from headwater.markers.abort_signal import abort_signal_path
from headwater.markers.batches import BatchFile
from headwater.markers.candidate_instants import Candidate
from headwater.markers.checker import MarkerChecker
from headwater.markers.detection import Detection
from headwater.markers.early_conflict import EarlyCheck
from headwater.model.files import BaseFile, FileGroupId
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.seams.ids import Owner, SystemIds

EARLIER = InstantTime("20260101000000001")
MINE = InstantTime("20260101000000005")
PERIOD_MS = 1_000
A, B, C = (FileGroupId("city=sf", f"{name}-0") for name in "abc")


def marker(time: InstantTime, group: FileGroupId) -> Marker:
    return Marker(BaseFile(*group, "0-1-0", time).path, MarkerKind.MERGE)


class Bench:
    """This write's checker, and one rival with a file of markers."""

    def __init__(self, delay_ms: int = 0) -> None:
        self.clock = ManualClock()
        self.inner = MemoryStorage(clock=self.clock)
        self.storage = CountingStorage(self.inner, keep_trace=True)
        attempt = Attempt(
            instant=EARLIER,
            attempt=1,
            token="theirs",
            owner=Owner("another-host", 1, "w"),
            purpose=Purpose.WRITE,
            started_ms=0,
            interval_ms=60_000,
            tolerable_misses=2,
        )
        self.inner.put(attempt.path, encode_attempt(attempt))
        self.attempt = attempt
        rival = Candidate(
            instant=Instant(EARLIER, Action.COMMIT, State.INFLIGHT),
            attempt=attempt,
            beaten_ms=self.clock.now_ms(),
            expiry_ms=attempt.expiry_ms,
            remaining_ms=attempt.expiry_ms,
        )
        self.inner.put(f".hoodie/timeline/{EARLIER}.commit.requested", b"")
        self.inner.put(f".hoodie/timeline/{EARLIER}.inflight", b"")
        self.theirs = BatchFile(self.inner, EARLIER, 0)
        detection = Detection(
            strategy=DetectionStrategy.ASYNC,
            check=EarlyCheck(
                instant=Instant(MINE, Action.COMMIT, State.INFLIGHT),
                snapshot=Snapshot(pending=frozenset({EARLIER})),
                is_bucketed=False,
            ),
            candidates=(rival,),
            layout=TableLayout(),
        )
        settings = DetectionConfig(period_ms=PERIOD_MS, delay_ms=delay_ms)
        self.checker = MarkerChecker(detection, settings, self.storage, self.clock, SystemIds())

    def ask(self, *groups: FileGroupId) -> EarlyConflictError | None:
        return asyncio.run(self.checker.admit([marker(MINE, group) for group in groups]))

    def announce(self, *groups: FileGroupId) -> None:
        self.theirs.add([marker(EARLIER, group) for group in groups])

    def has_note(self) -> bool:
        return abort_signal_path(MINE) in {info.path for info in self.inner.list_tree(".hoodie")}


def test_the_first_marker_waits_for_a_look() -> None:
    bench = Bench()
    bench.announce(A)
    conflict = bench.ask(A)
    assert conflict is not None
    assert conflict.context["other"] == EARLIER
    assert conflict.context["group"] == "city=sf/a-0"


def test_markers_that_meet_what_was_seen_before_wait_for_a_look() -> None:
    bench = Bench()
    bench.announce(A)
    assert bench.ask(B) is None
    assert bench.ask(A) is not None


def test_markers_that_meet_nothing_cost_no_call() -> None:
    bench = Bench()
    bench.announce(A)
    assert bench.ask(B) is None
    bench.storage.reset()
    assert bench.ask(C) is None
    assert bench.storage.count() == 0


def test_what_a_rival_announces_later_is_found_within_a_period() -> None:
    bench = Bench()
    bench.checker.start()
    assert bench.ask(A) is None
    bench.announce(A)
    assert bench.ask(B) is None, "nothing was read since"
    bench.clock.advance_ms(PERIOD_MS)
    assert bench.has_note(), "tasks that ask for nothing find it there"
    assert bench.ask(B) is not None, "the write as a whole has lost"
    bench.checker.stop()


def test_after_a_conflict_it_looks_no_more() -> None:
    bench = Bench()
    bench.checker.start()
    bench.announce(A)
    first = bench.ask(A)
    bench.clock.advance_ms(PERIOD_MS)
    assert bench.clock.timer_count == 0
    bench.storage.reset()
    assert bench.ask(B) is first
    assert bench.checker.check() is first
    assert bench.storage.count() == 0
    bench.checker.stop()
    bench.checker.stop()


def test_before_the_first_marker_there_is_nothing_to_look_for() -> None:
    bench = Bench()
    bench.checker.start()
    bench.clock.advance_ms(5 * PERIOD_MS)
    assert bench.storage.count() == 0
    bench.checker.stop()
    assert bench.clock.timer_count == 0


def test_the_first_look_can_be_put_off() -> None:
    bench = Bench(delay_ms=3 * PERIOD_MS)
    bench.checker.start()
    bench.announce(A)
    assert bench.ask(A) is None
    bench.clock.advance_ms(2 * PERIOD_MS)
    assert bench.storage.count() == 0
    bench.clock.advance_ms(PERIOD_MS)
    assert bench.ask(A) is not None
    bench.checker.stop()


def test_only_what_has_grown_is_read_again() -> None:
    bench = Bench()
    bench.announce(A)
    assert bench.ask(B) is None
    bench.storage.reset()
    assert bench.checker.check() is None
    assert bench.storage.count("read", "read_many") == 0
    bench.announce(C)
    assert bench.checker.check() is None
    assert bench.storage.count("read_many") == 1


def test_a_dead_rival_is_looked_at_once_a_period_and_not_for_each_marker() -> None:
    bench = Bench()
    bench.announce(A)
    bench.inner.put(bench.attempt.path, encode_attempt(bench.attempt.released()))
    assert bench.ask(A) is None
    bench.storage.reset()
    assert bench.ask(A) is None
    assert bench.storage.count() == 0


@pytest.mark.parametrize("count", [2_000])
def test_many_markers_on_both_sides(count: int) -> None:
    bench = Bench()
    mine = [FileGroupId(f"p_{n % 7}", f"{n:08d}-0") for n in range(count)]
    bench.announce(*(group._replace(file_id=f"x{group.file_id}") for group in mine))
    assert bench.ask(*mine) is None
    bench.announce(mine[-1])
    found = bench.checker.check()
    assert found is not None
    assert found.context["group"] == str(mine[-1])
