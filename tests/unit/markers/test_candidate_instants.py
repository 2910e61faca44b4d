"""Who is ahead of a write, and when it stops to count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.support.counting_storage import CountingStorage
from tests.support.manual_clock import ManualClock
from tests.support.memory_storage import MemoryStorage

from headwater.errors import StorageError
from headwater.kernel.layout import attempt_path, heartbeat_path
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.txn.attempts import Attempt, Purpose, encode_attempt
from headwater.markers.candidate_instants import Candidate, CandidateWatch, load_candidates
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.seams.ids import Owner, SystemIds
from headwater.seams.storage import ObjectInfo

EARLIER = InstantTime("20260101000000001")
MINE = InstantTime("20260101000000005")
LATER = InstantTime("20260101000000009")
EXPIRY_MS = 2_000
ELSEWHERE = Owner("another-host", 1, "w")


def attempt_of(time: InstantTime, number: int = 1, owner: Owner = ELSEWHERE) -> Attempt:
    return Attempt(
        instant=time,
        attempt=number,
        token=f"{time}/{number}",
        owner=owner,
        purpose=Purpose.WRITE,
        started_ms=0,
        interval_ms=EXPIRY_MS // 2,
        tolerable_misses=2,
    )


class Bench:
    """A store whose clock is the test's, and this write's own heartbeat in it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.inner = MemoryStorage(clock=self.clock)
        self.storage = CountingStorage(self.inner)
        self.ids = SystemIds()
        self.mine = attempt_of(MINE)

    def put(self, attempt: Attempt) -> None:
        self.inner.put(attempt.path, encode_attempt(attempt))

    def candidates(
        self, *times: InstantTime, action: Action = Action.COMMIT
    ) -> tuple[Candidate, ...]:
        self.put(self.mine)
        instants = [Instant(time, action, State.INFLIGHT) for time in sorted({*times, MINE})]
        self.storage.reset()
        return load_candidates(self.storage, self.ids, self.mine, Timeline(instants))

    def watch(self) -> CandidateWatch:
        return CandidateWatch(self.storage, self.clock, self.ids)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_lone_writer_asks_nothing(bench: Bench) -> None:
    assert bench.candidates() == ()
    assert bench.candidates(LATER) == ()
    assert bench.storage.count() == 0


def test_a_clustering_is_no_rival_for_its_plan_says_what_it_replaces(bench: Bench) -> None:
    bench.put(attempt_of(EARLIER))
    assert bench.candidates(EARLIER, action=Action.CLUSTERING) == ()
    assert bench.storage.count() == 0


def test_a_writer_that_began_first_and_beats_is_a_rival(bench: Bench) -> None:
    bench.put(attempt_of(EARLIER))
    [candidate] = bench.candidates(EARLIER)
    assert candidate.time == EARLIER
    assert candidate.owner == str(ELSEWHERE)
    assert candidate.remaining_ms == EXPIRY_MS
    assert bench.watch().is_active(candidate)


def test_many_rivals_cost_two_listings_and_a_read_each(bench: Bench) -> None:
    times = [InstantTime(f"202601010000000{n:02d}") for n in range(5)]
    for time in times[:4]:
        bench.put(attempt_of(time))
    assert len(bench.candidates(*times)) == 4
    assert bench.storage.counts == {"list_tree": 2, "read_many": 4}


def test_time_that_passed_before_the_write_began_counts(bench: Bench) -> None:
    """By the store's clock alone: this process has seen nothing of the candidate yet."""
    bench.put(attempt_of(EARLIER))
    bench.clock.advance_ms(1_500)
    [candidate] = bench.candidates(EARLIER)
    assert candidate.remaining_ms == 500
    bench.clock.advance_ms(500)
    assert bench.candidates(EARLIER) == ()


def test_wall_clocks_of_writers_do_not_matter(bench: Bench) -> None:
    bench.put(replace(attempt_of(EARLIER), started_ms=-(10**12)))
    bench.mine = replace(bench.mine, started_ms=10**12)
    assert len(bench.candidates(EARLIER)) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda found: replace(found, is_released=True),
        lambda found: replace(found, owner=replace(SystemIds().owner, pid=2**22 + 7)),
    ],
    ids=["released", "its process is gone"],
)
def test_who_is_known_to_have_ended_is_none(
    bench: Bench, change: Callable[[Attempt], Attempt]
) -> None:
    bench.put(change(attempt_of(EARLIER)))
    assert bench.candidates(EARLIER) == ()


@pytest.mark.parametrize("action", [Action.CLEAN, Action.ROLLBACK, Action.INDEXING])
def test_what_writes_no_data_files_is_none(bench: Bench, action: Action) -> None:
    bench.put(attempt_of(EARLIER))
    assert bench.candidates(EARLIER, action=action) == ()


def test_the_newest_attempt_counts(bench: Bench) -> None:
    bench.put(replace(attempt_of(EARLIER), is_released=True))
    bench.put(attempt_of(EARLIER, 2))
    [candidate] = bench.candidates(EARLIER)
    assert candidate.attempt == attempt_of(EARLIER, 2)


def test_a_pending_plan_that_nobody_executes_is_none(bench: Bench) -> None:
    assert bench.candidates(EARLIER, action=Action.COMPACTION) == ()


def test_storage_that_fails_shows_no_rivals(bench: Bench) -> None:
    class Broken(MemoryStorage):
        def list_tree(self, folder: str) -> list[ObjectInfo]:
            raise StorageError("no")

    timeline = Timeline([Instant(EARLIER, Action.COMMIT, State.INFLIGHT)])
    assert load_candidates(Broken(), bench.ids, bench.mine, timeline) == ()
    bench.inner.put(attempt_path(EARLIER, 1), b"no attempt")
    assert bench.candidates(EARLIER) == ()


# Watching --------------------------------------------------------------------------------------


def test_a_heartbeat_that_stands_still_runs_out(bench: Bench) -> None:
    bench.put(attempt_of(EARLIER))
    [candidate] = bench.candidates(EARLIER)
    watch = bench.watch()
    bench.clock.advance_ms(EXPIRY_MS - 1)
    assert watch.is_active(candidate)
    bench.clock.advance_ms(1)
    assert not watch.is_active(candidate)


def test_each_beat_gives_it_the_whole_time_again(bench: Bench) -> None:
    bench.put(attempt_of(EARLIER))
    [candidate] = bench.candidates(EARLIER)
    watch = bench.watch()
    beaten = attempt_of(EARLIER)
    for _ in range(3):
        bench.clock.advance_ms(5 * EXPIRY_MS)
        beaten = beaten.next_beat()
        bench.put(beaten)
        assert watch.is_active(candidate)
    bench.clock.advance_ms(EXPIRY_MS)
    assert not watch.is_active(candidate)


def test_who_is_gone_taken_over_or_released_is_dead_at_once(bench: Bench) -> None:
    bench.put(attempt_of(EARLIER))
    [candidate] = bench.candidates(EARLIER)
    watch = bench.watch()
    bench.put(attempt_of(EARLIER).released())
    assert not watch.is_active(candidate)
    bench.put(attempt_of(EARLIER))
    assert watch.is_active(candidate)
    bench.put(replace(attempt_of(EARLIER), token="somebody else's"))
    assert not watch.is_active(candidate)
    bench.put(attempt_of(EARLIER))
    bench.put(attempt_of(EARLIER, 2))
    assert not watch.is_active(candidate)
    bench.inner.delete(attempt_path(EARLIER, 2))
    bench.inner.delete(attempt_path(EARLIER, 1))
    assert not watch.is_active(candidate)


def test_another_engine_is_judged_by_its_plain_file(bench: Bench) -> None:
    path = heartbeat_path(EARLIER)
    bench.inner.put(path, b"")
    bench.clock.advance_ms(500)
    [candidate] = bench.candidates(EARLIER)
    assert candidate.attempt is None
    assert candidate.owner is None
    assert candidate.remaining_ms == EXPIRY_MS - 500
    watch = bench.watch()
    bench.clock.advance_ms(EXPIRY_MS)
    assert not watch.is_active(candidate)
    bench.inner.put(path, b"")
    assert watch.is_active(candidate)
    bench.inner.delete(path)
    assert not watch.is_active(candidate)
