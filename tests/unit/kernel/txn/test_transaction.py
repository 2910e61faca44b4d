"""The lock-trusting transaction: times, refusals, lost locks, and how many calls it makes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

import pytest
from tests.support.counting_storage import CountingStorage
from tests.support.manual_clock import ManualClock
from tests.support.memory_storage import MemoryStorage

from headwater.errors import (
    CommitUnknownError,
    ConflictError,
    ErrorKind,
    FencedError,
    InvalidInputError,
    StorageError,
)
from headwater.kernel.layout import TableLayout, attempt_path
from headwater.kernel.timeline.active import load_active
from headwater.kernel.txn.attempts import Attempt
from headwater.kernel.txn.guard import Executed, Returned, run_guarded
from headwater.kernel.txn.heartbeat import Heartbeat
from headwater.kernel.txn.locks.file_system import FileSystemLockProvider
from headwater.kernel.txn.locks.storage_based import StorageBasedLockProvider
from headwater.kernel.txn.steps import Claim, Complete, StartWrite
from headwater.kernel.txn.transaction import LockTransaction
from headwater.kernel.txn.writes import CommittedWrite, request_write
from headwater.model.instant import Action, InstantTime, State
from headwater.seams.clock import Clock
from headwater.seams.components import Components
from headwater.seams.ids import Owner, SystemIds
from headwater.seams.local import LocalStorage
from headwater.seams.storage import Storage

LAYOUT = TableLayout()


@dataclass
class Site:
    """A table's storage and the clock its processes share."""

    storage: Storage = field(default_factory=MemoryStorage)
    clock: ManualClock = field(default_factory=ManualClock)

    def process(self, name: str, clock: Clock | None = None) -> tuple[Components, LockTransaction]:
        ids = SystemIds(Owner("host", 1, name))
        clock = clock or self.clock
        components = Components(
            self.storage, clock, ids, StorageBasedLockProvider(self.storage, clock, ids)
        )
        return components, LockTransaction(components, LAYOUT)

    def claim(self, components: Components) -> Claim:
        return Claim(
            owner=components.ids.owner,
            token=components.ids.new_uuid(),
            interval_ms=1_000,
            tolerable_misses=2,
        )

    def commit(self, name: str = "w", clock: Clock | None = None) -> CommittedWrite:
        components, txn = self.process(name, clock)
        started = request_write(components, txn, Action.DELTA_COMMIT, self.claim(components))
        return started.enter_inflight().commit(b"content of " + name.encode())

    def names(self) -> list[str]:
        return sorted(self.storage.list_names(LAYOUT.timeline))


def test_a_write_leaves_three_files_and_no_heartbeat() -> None:
    site = Site()
    done = site.commit()
    time, completion = done.instant.requested_time, done.instant.completion_time
    assert completion is not None
    assert time < completion
    assert site.names() == [
        f"{time}.deltacommit.inflight",
        f"{time}.deltacommit.requested",
        f"{time}_{completion}.deltacommit",
    ]
    left = {info.path.split("/")[1] for info in site.storage.list_tree("")}
    assert left == {"timeline", ".locks"}
    assert site.clock.timer_count == 0


def test_inv_40_times_increase_under_any_skew_without_sleeping() -> None:
    site = Site()
    began_ms = site.clock.monotonic_ms()
    times: list[str] = []
    for ahead_ms in (0, 3_600_000, -3_600_000, 5, -5, 0):
        done = site.commit(clock=site.clock.with_wall_ahead_ms(ahead_ms))
        assert done.instant.completion_time is not None
        times += [done.instant.requested_time, done.instant.completion_time]
    assert times == sorted(set(times))
    assert site.clock.monotonic_ms() == began_ms


def test_a_stepped_clock_never_repeats_a_time_a_dead_writer_claimed() -> None:
    """The writer died after claiming its time and before requesting the instant."""
    site = Site()
    components, txn = site.process("dead")
    step = StartWrite(Action.COMMIT, site.claim(components))
    died = txn.run(step).result.attempt
    site.storage.delete(f"{LAYOUT.timeline}/{died.instant}.commit.requested")
    done = site.commit("next")
    assert done.instant.requested_time > died.instant


def test_a_refused_write_leaves_storage_unchanged_and_the_lock_free() -> None:
    site = Site()
    components, txn = site.process("first")
    first = request_write(
        components, txn, Action.COMMIT, site.claim(components), is_single_writer=True
    )
    second, second_txn = site.process("second")

    def contents() -> dict[str, bytes]:
        # The lock is taken and given back, and the first writer's heartbeat goes on.
        found = [i.path for i in site.storage.list_tree("")]
        return {
            path: site.storage.read(path)
            for path in found
            if not path.startswith((".hoodie/.locks/", ".hoodie/.attempts/"))
        }

    before = contents()
    with pytest.raises(ConflictError, match="host/1/first") as raised:
        request_write(second, second_txn, Action.COMMIT, site.claim(second), is_single_writer=True)
    assert raised.value.kind is ErrorKind.LIVE_WRITER
    assert contents() == before
    assert second.locks.inspect() is None
    first.check()


def test_a_killed_writer_blocks_the_next_job_only_until_its_heartbeat_has_run_out() -> None:
    """The next job is a new process, which has never seen the heartbeat before."""
    site = Site()
    dead, dead_txn = site.process("dead")
    request_write(dead, dead_txn, Action.COMMIT, site.claim(dead), is_single_writer=True)
    with site.clock.timers_stalled():
        began_ms = site.clock.monotonic_ms()
        next_job, next_txn = site.process("next")
        claim = site.claim(next_job)
        request_write(next_job, next_txn, Action.COMMIT, claim, is_single_writer=True)
        assert site.clock.monotonic_ms() - began_ms >= claim.interval_ms * claim.tolerable_misses


def test_a_holder_that_lost_its_lock_writes_nothing() -> None:
    site = Site()
    components, txn = site.process("slow")
    claim = site.claim(components)

    class Stalled(StartWrite):
        def decide(self, prefix):  # type: ignore[no-untyped-def]
            with site.clock.timers_stalled():
                site.clock.advance_ms(10_000_000)
            return super().decide(prefix)

    with pytest.raises(FencedError) as raised:
        txn.run(Stalled(Action.COMMIT, claim))
    assert raised.value.kind is ErrorKind.LOCK_LOST
    assert site.names() == []


class FlakyStorage(MemoryStorage):
    """Loses the reply of puts whose path contains one of `lost`."""

    def __init__(self, *lost: str, is_applied: bool = True) -> None:
        super().__init__()
        self.lost = list(lost)
        self.is_applied = is_applied

    def put_if_absent(self, path: str, data: bytes) -> None:
        for part in self.lost:
            if part in path:
                self.lost.remove(part)
                if self.is_applied:
                    super().put_if_absent(path, data)
                raise StorageError("connection reset", path=path)
        super().put_if_absent(path, data)


@pytest.mark.parametrize("is_applied", [True, False])
@pytest.mark.parametrize("part", [".attempts", ".requested", ".inflight", "_2"])
def test_m4_a_lost_reply_anywhere_still_commits_once(part: str, is_applied: bool) -> None:
    site = Site(FlakyStorage(part, is_applied=is_applied))
    done = site.commit()
    timeline = load_active(site.storage, LAYOUT.timeline)
    assert [i.requested_time for i in timeline.completed] == [done.instant.requested_time]


def test_m4_an_unknown_commit_is_left_alone() -> None:
    site = Site(FlakyStorage(*["_2"] * 20, is_applied=False))
    components, txn = site.process("w")
    claim = site.claim(components)
    inflight = request_write(components, txn, Action.COMMIT, claim).enter_inflight()
    with pytest.raises(CommitUnknownError):
        inflight.commit(b"content")
    assert site.storage.read(attempt_path(inflight.instant_time, 1))
    assert site.clock.timer_count == 0


@pytest.fixture(params=["file system lock", "storage lock"])
def local_process(
    request: pytest.FixtureRequest, tmp_path: Path
) -> tuple[CountingStorage, Components]:
    storage = CountingStorage(LocalStorage(tmp_path / "table"), keep_trace=True)
    clock, ids = ManualClock(), SystemIds()
    locks = (
        FileSystemLockProvider(storage, clock, ids)
        if request.param == "file system lock"
        else StorageBasedLockProvider(storage, clock, ids)
    )
    return storage, Components(storage, clock, ids, locks)


def test_a_commit_on_thirty_instants_makes_at_most_12_calls(
    local_process: tuple[CountingStorage, Components],
) -> None:
    storage, components = local_process
    txn = LockTransaction(components, LAYOUT)
    site = Site(storage)
    for _ in range(30):
        started = request_write(components, txn, Action.COMMIT, site.claim(components))
        started.enter_inflight().commit(b"content")
    inflight = request_write(
        components, txn, Action.COMMIT, site.claim(components)
    ).enter_inflight()
    assert len(load_active(storage, LAYOUT.timeline)) == 31
    storage.reset()
    txn.run(Complete(inflight.attempt, b"content"))
    assert 0 < storage.count() <= 12, storage.trace


class Rows:
    """Work that writes one file per execution."""

    def __init__(self, storage: Storage, *, fails: bool = False) -> None:
        self.storage = storage
        self.fails = fails

    def undo_before(self, attempt: Attempt) -> None:
        for number in range(attempt.attempt):
            self.storage.delete(f"data/{attempt.instant}_{number}")

    def execute(self, attempt: Attempt, heartbeat: Heartbeat) -> bytes:
        path = f"data/{attempt.instant}_{attempt.attempt}"
        self.storage.put_if_absent(path, b"rows")
        if self.fails:
            raise InvalidInputError("bad rows")
        return path.encode()


def plan(site: Site) -> InstantTime:
    time = InstantTime("20260101000000000")
    site.storage.put(f"{LAYOUT.timeline}/{time}.compaction.requested", b"plan")
    return time


def test_guard_row_a_one_executes_and_the_next_is_handed_the_result() -> None:
    site = Site()
    time = plan(site)
    first, first_txn = site.process("x")
    done = run_guarded(first, first_txn, time, site.claim(first), Rows(site.storage))
    assert isinstance(done, Executed)
    second, second_txn = site.process("y")
    again = run_guarded(second, second_txn, time, site.claim(second), Rows(site.storage))
    assert again == Returned(done.instant)
    assert site.storage.list_names("data") == [f"{time}_1"]


def test_guard_a_failed_execution_is_retried_at_once_and_undone_first() -> None:
    site = Site()
    time = plan(site)
    first, first_txn = site.process("x")
    with pytest.raises(InvalidInputError, match="bad rows"):
        run_guarded(first, first_txn, time, site.claim(first), Rows(site.storage, fails=True))
    second, second_txn = site.process("y")
    done = run_guarded(second, second_txn, time, site.claim(second), Rows(site.storage))
    assert isinstance(done, Executed)
    assert site.storage.list_names("data") == [f"{time}_2"]


def test_guard_row_b_a_live_execution_refuses_and_a_lapsed_one_is_taken_over() -> None:
    site = Site()
    time = plan(site)
    first, first_txn = site.process("x")
    second, second_txn = site.process("y")
    refused: list[ConflictError] = []

    class Stalling(Rows):
        def execute(self, attempt: Attempt, heartbeat: Heartbeat) -> bytes:
            content = super().execute(attempt, heartbeat)
            with pytest.raises(ConflictError) as raised:
                run_guarded(second, second_txn, time, site.claim(second), Rows(site.storage))
            refused.append(raised.value)
            with site.clock.timers_stalled():
                site.clock.advance_ms(10_000)
                taken = run_guarded(
                    second, second_txn, time, site.claim(second), Rows(site.storage)
                )
            assert isinstance(taken, Executed)
            return content

    with pytest.raises(FencedError) as fenced:
        run_guarded(first, first_txn, time, site.claim(first), Stalling(site.storage))
    assert fenced.value.kind is ErrorKind.HEARTBEAT_LAPSED
    assert refused[0].kind is ErrorKind.ALREADY_RUNNING
    assert "attempt 1 by host/1/x" in str(refused[0])
    timeline = load_active(site.storage, LAYOUT.timeline)
    assert timeline.get(time).state is State.COMPLETED
    assert site.storage.list_names("data") == [f"{time}_2"]


def test_a_lock_that_one_thread_holds_is_not_held_by_the_others() -> None:
    """Threads share a table, and so its transactions; each takes the lock for itself."""
    site = Site()
    components, txn = site.process("A")
    waits_briefly = LockTransaction(components, LAYOUT, lock_timeout_ms=1)
    refused: list[ErrorKind] = []

    def write_beside() -> None:
        try:
            waits_briefly.run(StartWrite(Action.COMMIT, site.claim(components)))
        except ConflictError as conflict:
            refused.append(conflict.kind)

    with waits_briefly.hold():
        other = Thread(target=write_beside)
        other.start()
        other.join()
        waits_briefly.run(StartWrite(Action.COMMIT, site.claim(components)))
    assert refused == [ErrorKind.LOCK_TIMEOUT]
    assert len(load_active(site.storage, LAYOUT.timeline).pending) == 1
    txn.run(StartWrite(Action.COMMIT, site.claim(components)))
