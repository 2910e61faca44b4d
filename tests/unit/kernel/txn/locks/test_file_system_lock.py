"""What only the file-system lock does: Hudi's `lock` file, its expiry, and its take-over."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from tests.support.manual_clock import ManualClock
from tests.support.memory_storage import MemoryStorage

from headwater.errors import (
    ConflictError,
    CorruptTableError,
    ErrorKind,
    FencedError,
    InvalidInputError,
    StorageError,
)
from headwater.kernel.txn.locks.file_system import (
    HOLDER_ENDED_MS,
    TAKEOVER_MS,
    FileSystemLockProvider,
)
from headwater.kernel.txn.locks.lease import Lease
from headwater.kernel.txn.locks.lock_file import LockFile, parse_lock_file
from headwater.seams.clock import Clock
from headwater.seams.ids import SystemIds

LOCK = ".hoodie/lock"
EXPIRE_MS = 60_000
HUDI_CONTENT = json.dumps(
    {
        "lockCreateTime": "2026-01-01 00:00:00.000",
        "lockThreadName": "main",
        "lockStacksInfo": ["\t java.lang.Thread.getStackTrace (Thread.java:1619)"],
    }
).encode()


class MemoryWithoutReplace(MemoryStorage):
    @property
    def can_replace(self) -> bool:
        return False


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=[MemoryStorage, MemoryWithoutReplace])
def storage(request: pytest.FixtureRequest, clock: ManualClock) -> MemoryStorage:
    built: MemoryStorage = request.param(clock=clock)
    return built


def a_provider(
    storage: MemoryStorage, clock: Clock, *, expire_ms: int = EXPIRE_MS
) -> FileSystemLockProvider:
    return FileSystemLockProvider(storage, clock, SystemIds(), expire_ms=expire_ms)


class TestHudiFiles:
    @pytest.mark.parametrize("content", [HUDI_CONTENT, b"", b"[]", b"\xff not json"])
    def test_another_engines_lock_is_respected(
        self, storage: MemoryStorage, clock: ManualClock, content: bytes
    ) -> None:
        storage.put(LOCK, content)
        with pytest.raises(ConflictError, match="another engine"):
            a_provider(storage, clock).acquire(timeout_ms=EXPIRE_MS)
        assert storage.read(LOCK) == content

    def test_it_expires_by_its_modification_time(
        self, storage: MemoryStorage, clock: ManualClock
    ) -> None:
        storage.put(LOCK, HUDI_CONTENT)
        clock.advance_ms(EXPIRE_MS + 1)
        a_provider(storage, clock).acquire(timeout_ms=0).check()

    def test_it_never_expires_without_the_option(
        self, storage: MemoryStorage, clock: ManualClock
    ) -> None:
        storage.put(LOCK, HUDI_CONTENT)
        provider = a_provider(storage, clock, expire_ms=0)
        with pytest.raises(ConflictError, match=r"delete memory:///\.hoodie/lock"):
            provider.acquire(timeout_ms=100 * EXPIRE_MS)
        with pytest.raises(ConflictError):
            provider.break_expired()

    def test_it_is_shown(self, storage: MemoryStorage, clock: ManualClock) -> None:
        created_ms = clock.now_ms()
        storage.put(LOCK, HUDI_CONTENT)
        clock.advance_ms(1_000)
        info = a_provider(storage, clock).inspect()
        assert info is not None
        assert info.owner == "another engine (thread main)"
        assert info.token is None
        assert info.acquired_ms == created_ms
        assert info.expires_ms == created_ms + EXPIRE_MS
        assert not info.is_expired

    def test_it_can_be_broken_once_expired(
        self, storage: MemoryStorage, clock: ManualClock
    ) -> None:
        storage.put(LOCK, HUDI_CONTENT)
        clock.advance_ms(EXPIRE_MS + 1)
        broken = a_provider(storage, clock).break_expired()
        assert broken is not None
        assert broken.is_expired
        assert LOCK not in [found.path for found in storage.list_tree("")]

    def test_tokens_go_on_after_another_engine_had_the_lock(
        self, storage: MemoryStorage, clock: ManualClock
    ) -> None:
        provider = a_provider(storage, clock)
        first = provider.acquire(timeout_ms=0)
        first.release()
        storage.put(LOCK, HUDI_CONTENT)
        storage.delete(LOCK)
        assert provider.acquire(timeout_ms=0).token == first.token + 1

    def test_a_client_of_hudi_that_deletes_the_file_is_noticed(
        self, storage: MemoryStorage, clock: ManualClock
    ) -> None:
        held = a_provider(storage, clock).acquire(timeout_ms=0)
        storage.delete(LOCK)
        with pytest.raises(FencedError, match="Nobody has it now"):
            held.check()


class TestOurFile:
    def test_it_is_json_with_the_fields_that_hudi_writes(
        self, storage: MemoryStorage, clock: ManualClock
    ) -> None:
        provider = a_provider(storage, clock)
        provider.acquire(timeout_ms=0)
        content = json.loads(storage.read(LOCK))
        assert content["lockCreateTime"] == "2026-01-01 00:00:00.000"
        assert content["lockThreadName"] == content["owner"] == str(provider.ids.owner)
        assert content["lockStacksInfo"] == []
        assert (content["acquiredMs"], content["leaseMs"]) == (clock.now_ms(), EXPIRE_MS)

    def test_a_renewal_changes_it_and_carries_the_token(
        self, storage: MemoryStorage, clock: ManualClock
    ) -> None:
        held = a_provider(storage, clock).acquire(timeout_ms=0)
        before = storage.read(LOCK)
        clock.advance_ms(EXPIRE_MS)
        after = storage.read(LOCK)
        assert after != before
        assert storage.info(LOCK).modified_ms > clock.now_ms() - EXPIRE_MS // 2
        lock = parse_lock_file(after, "lock")
        assert lock is not None
        assert lock.token == held.token

    def test_release_leaves_only_the_epoch(
        self, storage: MemoryStorage, clock: ManualClock
    ) -> None:
        a_provider(storage, clock).acquire(timeout_ms=0).release()
        assert [found.path for found in storage.list_tree("")] == [f"{LOCK}.epoch"]

    def test_a_take_over_leaves_only_the_lock_and_the_epoch(
        self, storage: MemoryStorage, clock: ManualClock
    ) -> None:
        a_provider(storage, clock).acquire(timeout_ms=0)
        with clock.timers_stalled():
            a_provider(storage, clock).acquire(timeout_ms=2 * EXPIRE_MS)
        assert [found.path for found in storage.list_tree("")] == [LOCK, f"{LOCK}.epoch"]

    def test_it_round_trips(self) -> None:
        lock = LockFile(
            owner="h/1/w",
            acquisition="a",
            token=None,
            acquired_ms=1_767_225_600_007,
            written_ms=2,
            lease_ms=3,
            write=4,
        )
        assert parse_lock_file(lock.encode(), "lock") == lock
        assert b'"2026-01-01 00:00:00.007"' in lock.encode()


class TestExpiry:
    """H-26: no wall clock decides whether a lock of ours may be taken."""

    def test_an_observer_whose_wall_clock_is_ahead_does_not_take_a_live_lock(
        self, storage: MemoryStorage, clock: ManualClock
    ) -> None:
        held = a_provider(storage, clock).acquire(timeout_ms=0)
        fast = a_provider(storage, clock.with_wall_ahead_ms(10 * EXPIRE_MS))
        with pytest.raises(ConflictError):
            fast.acquire(timeout_ms=3 * EXPIRE_MS)
        held.check()

    def test_nor_does_it_break_one(self, storage: MemoryStorage, clock: ManualClock) -> None:
        held = a_provider(storage, clock).acquire(timeout_ms=0)
        fast = a_provider(storage, clock.with_wall_ahead_ms(10 * EXPIRE_MS))
        shown = fast.inspect()
        assert shown is not None
        assert shown.is_expired
        with pytest.raises(ConflictError, match="cannot be broken"):
            fast.break_expired()
        held.check()

    def test_an_observer_whose_wall_clock_is_behind_takes_a_dead_lock(
        self, storage: MemoryStorage, clock: ManualClock
    ) -> None:
        a_provider(storage, clock).acquire(timeout_ms=0)
        slow = a_provider(storage, clock.with_wall_ahead_ms(-10 * EXPIRE_MS))
        with clock.timers_stalled():
            slow.acquire(timeout_ms=2 * EXPIRE_MS).check()

    def test_breaking_a_lock_that_is_released_meanwhile_finds_it_free(
        self, storage: MemoryStorage, clock: ManualClock
    ) -> None:
        held = a_provider(storage, clock).acquire(timeout_ms=0)
        fast = a_provider(storage, clock.with_wall_ahead_ms(10 * EXPIRE_MS))

        def release() -> bool:
            held.release()
            return False

        clock.every_ms(1_500, release, "the holder's own work")
        assert fast.break_expired() is None

    def test_what_was_seen_counts_across_waits_that_timed_out(
        self, storage: MemoryStorage, clock: ManualClock
    ) -> None:
        a_provider(storage, clock).acquire(timeout_ms=0)
        waiter = a_provider(storage, clock)
        with clock.timers_stalled():
            for _ in range(2):
                with pytest.raises(ConflictError):
                    waiter.acquire(timeout_ms=EXPIRE_MS // 2)
            waiter.acquire(timeout_ms=EXPIRE_MS // 2).check()

    def test_a_lock_without_expiry_is_kept_fresh_and_never_taken(
        self, storage: MemoryStorage, clock: ManualClock
    ) -> None:
        held = a_provider(storage, clock, expire_ms=0).acquire(timeout_ms=0)
        with pytest.raises(ConflictError, match="does not expire"):
            a_provider(storage, clock).acquire(timeout_ms=10 * EXPIRE_MS)
        assert clock.now_ms() - storage.info(LOCK).modified_ms < EXPIRE_MS
        with clock.timers_stalled(), pytest.raises(ConflictError):
            a_provider(storage, clock).acquire(timeout_ms=10 * EXPIRE_MS)
        held.check()

    def test_a_lock_whose_lease_ran_out_while_it_was_taken_is_not_handed_out(
        self, clock: ManualClock
    ) -> None:
        class SlowOnce(MemoryStorage):
            is_slow = True

            def put_if_absent(self, path: str, data: bytes) -> None:
                super().put_if_absent(path, data)
                if self.is_slow and path == LOCK:
                    self.is_slow = False
                    clock.advance_ms(EXPIRE_MS)

        storage = SlowOnce(clock=clock)
        with pytest.raises(ConflictError):
            a_provider(storage, clock).acquire(timeout_ms=EXPIRE_MS // 2)
        assert not storage.is_slow
        a_provider(storage, clock).acquire(timeout_ms=2 * EXPIRE_MS).check()

    def test_a_renewal_that_reads_for_too_long_does_not_write(self, clock: ManualClock) -> None:
        class SlowRead(MemoryWithoutReplace):
            is_slow = False

            def read(self, path: str) -> bytes:
                if self.is_slow:
                    self.is_slow = False
                    clock.sleep_ms(EXPIRE_MS)
                return super().read(path)

        storage = SlowRead(clock=clock)
        held = a_provider(storage, clock).acquire(timeout_ms=0)
        before = storage.read(LOCK)
        storage.is_slow = True
        clock.advance_ms(EXPIRE_MS // 3)
        assert not storage.is_slow
        assert held.is_lost
        assert storage.read(LOCK) == before


def test_an_unreadable_epoch_is_reported_and_the_lock_not_kept(
    storage: MemoryStorage, clock: ManualClock
) -> None:
    storage.put(f"{LOCK}.epoch", b"?")
    with pytest.raises(CorruptTableError, match=r"lock\.epoch"):
        a_provider(storage, clock).acquire(timeout_ms=0)
    assert [found.path for found in storage.list_tree("")] == [f"{LOCK}.epoch"]


def test_locks_live_in_the_chosen_folder(storage: MemoryStorage, clock: ManualClock) -> None:
    def paths(folder: str) -> tuple[str, str]:
        provider = FileSystemLockProvider(storage, clock, SystemIds(), folder=folder)
        return provider.path_of("table"), provider.path_of("p/f")

    assert paths(".hoodie") == (".hoodie/lock", ".hoodie/.locks/p%2Ff.lock")
    assert paths("/a/b/") == ("a/b/lock", "a/b/.locks/p%2Ff.lock")
    assert paths("") == ("lock", ".locks/p%2Ff.lock")


@pytest.mark.parametrize(
    ("expire_ms", "renew_ms"), [(-1, None), (1_000, 600), (1_000, 0), (2, None)]
)
def test_intervals_that_do_not_fit_are_refused(
    storage: MemoryStorage, clock: ManualClock, expire_ms: int, renew_ms: int | None
) -> None:
    with pytest.raises(InvalidInputError, match=r"filesystem\.expire") as refused:
        FileSystemLockProvider(storage, clock, SystemIds(), expire_ms=expire_ms, renew_ms=renew_ms)
    assert refused.value.kind is ErrorKind.INVALID_OPTION


def test_a_process_that_stalls_with_the_guard_removes_nothing(clock: ManualClock) -> None:
    class SlowGuard(MemoryWithoutReplace):
        is_slow = True

        def put_if_absent(self, path: str, data: bytes) -> None:
            super().put_if_absent(path, data)
            if self.is_slow and path.endswith(".takeover"):
                self.is_slow = False
                clock.advance_ms(TAKEOVER_MS)

    storage = SlowGuard(clock=clock)
    storage.put(LOCK, HUDI_CONTENT)
    clock.advance_ms(EXPIRE_MS + 1)
    provider = a_provider(storage, clock)
    with pytest.raises(ConflictError):
        provider.acquire(timeout_ms=0)
    assert not storage.is_slow
    assert storage.read(LOCK) == HUDI_CONTENT
    provider.acquire(timeout_ms=2 * TAKEOVER_MS).check()


def test_the_guard_of_a_dead_process_delays_a_take_over_but_does_not_stop_it(
    clock: ManualClock,
) -> None:
    class DiesInTakeOver(MemoryWithoutReplace):
        is_deadly = True

        def delete(self, path: str) -> None:
            if self.is_deadly:
                raise StorageError("the process died here")
            super().delete(path)

    storage = DiesInTakeOver(clock=clock)
    a_provider(storage, clock).acquire(timeout_ms=0)
    with clock.timers_stalled():
        with pytest.raises(StorageError):
            a_provider(storage, clock).acquire(timeout_ms=EXPIRE_MS + 10_000)
        storage.is_deadly = False
        assert f"{LOCK}.takeover" in [found.path for found in storage.list_tree("")]
        a_provider(storage, clock).acquire(timeout_ms=3 * EXPIRE_MS).check()
    assert f"{LOCK}.takeover" not in [found.path for found in storage.list_tree("")]


class TestHolderThatEnded:
    """A lock without expiry, and the system's word that its holder is no more."""

    @staticmethod
    def held_by(storage: MemoryStorage, clock: ManualClock, ids: SystemIds) -> Lease:
        held = FileSystemLockProvider(storage, clock, ids).acquire(timeout_ms=0)
        assert isinstance(held, Lease)
        return held

    @staticmethod
    def ended_process() -> int:
        child = subprocess.Popen([sys.executable, "-c", ""])
        child.wait()
        return child.pid

    def test_its_lock_is_taken_over_after_seconds(
        self, storage: MemoryStorage, clock: ManualClock
    ) -> None:
        dead = replace(SystemIds().owner, pid=self.ended_process())
        self.held_by(storage, clock, SystemIds(dead))
        provider = a_provider(storage, clock, expire_ms=0)
        with pytest.raises(ConflictError):
            provider.acquire(timeout_ms=HOLDER_ENDED_MS // 2)
        provider.acquire(timeout_ms=HOLDER_ENDED_MS).check()

    @pytest.mark.parametrize("process_space", ["", "another boot pid:[1]"])
    def test_a_number_of_another_system_says_nothing(
        self, storage: MemoryStorage, clock: ManualClock, process_space: str
    ) -> None:
        dead = replace(SystemIds().owner, pid=self.ended_process(), process_space=process_space)
        held = self.held_by(storage, clock, SystemIds(dead))
        with pytest.raises(ConflictError):
            a_provider(storage, clock, expire_ms=0).acquire(timeout_ms=100 * HOLDER_ENDED_MS)
        held.check()

    def test_a_live_holder_keeps_it(self, storage: MemoryStorage, clock: ManualClock) -> None:
        held = self.held_by(storage, clock, SystemIds())
        with pytest.raises(ConflictError):
            a_provider(storage, clock, expire_ms=0).acquire(timeout_ms=100 * HOLDER_ENDED_MS)
        held.check()
