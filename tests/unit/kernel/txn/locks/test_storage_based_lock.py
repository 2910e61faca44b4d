"""What only the storage-based lock does: Hudi's `table_lock.json`."""

from __future__ import annotations

import json
from typing import Any

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
from headwater.kernel.txn.locks.storage_based import StorageBasedLockProvider
from headwater.seams.clock import Clock
from headwater.seams.ids import SystemIds
from headwater.testing.seams import SimIds

LOCK = ".hoodie/.locks/table_lock.json"
VALIDITY_MS = 300_000


class MemoryWithoutReplace(MemoryStorage):
    @property
    def can_replace(self) -> bool:
        return False


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def storage(clock: ManualClock) -> MemoryStorage:
    return MemoryStorage(clock=clock)


@pytest.fixture
def provider(storage: MemoryStorage, clock: ManualClock) -> StorageBasedLockProvider:
    return StorageBasedLockProvider(storage, clock, SystemIds())


def content_of(storage: MemoryStorage) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(storage.read(LOCK))
    return content


def put_as_hudi(storage: MemoryStorage, *, expired: bool, valid_until_ms: int) -> None:
    content = {"expired": expired, "validUntil": valid_until_ms, "owner": "of-another-engine"}
    storage.put(LOCK, json.dumps(content).encode())


def test_the_object_has_what_hudi_requires(
    storage: MemoryStorage, clock: ManualClock, provider: StorageBasedLockProvider
) -> None:
    held = provider.acquire(timeout_ms=0)
    content = content_of(storage)
    assert content["expired"] is False
    assert content["validUntil"] == clock.now_ms() + VALIDITY_MS
    assert len(content["owner"]) == 36
    assert content["holder"] == str(provider.ids.owner)
    assert content["token"] == held.token == 1
    # Hudi refuses null for the fields it knows, so none is written for any.
    assert None not in content.values()


def test_release_marks_the_object_and_keeps_it(
    storage: MemoryStorage, provider: StorageBasedLockProvider
) -> None:
    held = provider.acquire(timeout_ms=0)
    before = content_of(storage)
    held.release()
    after = content_of(storage)
    assert after == {**before, "expired": True, "checksum": after["checksum"]}


def test_a_renewal_is_valid_for_longer(
    storage: MemoryStorage, clock: ManualClock, provider: StorageBasedLockProvider
) -> None:
    held = provider.acquire(timeout_ms=0)
    clock.advance_ms(30_000)
    assert content_of(storage)["validUntil"] == clock.now_ms() + VALIDITY_MS
    held.check()


def test_a_wall_clock_set_back_does_not_shorten_the_lease(
    storage: MemoryStorage, clock: ManualClock, provider: StorageBasedLockProvider
) -> None:
    held = provider.acquire(timeout_ms=0)
    before = content_of(storage)
    clock.step_wall_ms(-2 * VALIDITY_MS)
    clock.advance_ms(30_000)
    after = content_of(storage)
    assert after["write"] == before["write"] + 1
    assert after["validUntil"] == before["validUntil"]
    held.check()


class TestAnotherEngine:
    def test_its_lock_is_respected_until_the_drift_is_over(
        self, storage: MemoryStorage, clock: ManualClock, provider: StorageBasedLockProvider
    ) -> None:
        put_as_hudi(storage, expired=False, valid_until_ms=clock.now_ms())
        clock.advance_ms(500)
        with pytest.raises(ConflictError, match="another engine"):
            provider.acquire(timeout_ms=0)
        clock.advance_ms(1)
        provider.acquire(timeout_ms=0).check()

    def test_its_released_lock_is_free(
        self, storage: MemoryStorage, clock: ManualClock, provider: StorageBasedLockProvider
    ) -> None:
        put_as_hudi(storage, expired=True, valid_until_ms=clock.now_ms() + VALIDITY_MS)
        assert provider.inspect() is None
        provider.acquire(timeout_ms=0).check()

    def test_tokens_grow_although_it_drops_them(
        self, storage: MemoryStorage, clock: ManualClock, provider: StorageBasedLockProvider
    ) -> None:
        tokens = []
        for _ in range(3):
            for _ in range(5):
                held = provider.acquire(timeout_ms=0)
                tokens.append(held.token)
                held.release()
                clock.advance_ms(10)
            put_as_hudi(storage, expired=True, valid_until_ms=clock.now_ms() + VALIDITY_MS)
        assert tokens == sorted(set(tokens))

    def test_its_expired_lock_can_be_broken(
        self, storage: MemoryStorage, clock: ManualClock, provider: StorageBasedLockProvider
    ) -> None:
        put_as_hudi(storage, expired=False, valid_until_ms=clock.now_ms() - 1_000)
        broken = provider.break_expired()
        assert broken is not None
        assert broken.owner == "another engine (owner of-another-engine)"
        assert broken.token is None
        assert content_of(storage)["expired"] is True

    def test_a_lock_renewed_while_it_is_broken_stays(
        self, clock: ManualClock, storage: MemoryStorage
    ) -> None:
        class RenewedMeanwhile(MemoryStorage):
            def replace(self, path: str, data: bytes, *, version: str) -> str:
                put_as_hudi(self, expired=False, valid_until_ms=clock.now_ms() + VALIDITY_MS)
                return super().replace(path, data, version=version)

        renewed = RenewedMeanwhile(clock=clock)
        put_as_hudi(renewed, expired=False, valid_until_ms=clock.now_ms() - 1_000)
        with pytest.raises(ConflictError, match="cannot be broken"):
            StorageBasedLockProvider(renewed, clock, SystemIds()).break_expired()
        assert content_of(renewed)["expired"] is False


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"expired":false,"owner":"x"}'])
def test_an_unreadable_object_is_reported(
    storage: MemoryStorage, provider: StorageBasedLockProvider, content: bytes
) -> None:
    storage.put(LOCK, content)
    with pytest.raises(CorruptTableError, match=r"table_lock\.json"):
        provider.acquire(timeout_ms=0)


def test_a_lease_that_ran_out_while_it_was_taken_is_not_handed_out(clock: ManualClock) -> None:
    class SlowOnce(MemoryStorage):
        is_slow = True

        def put_if_absent(self, path: str, data: bytes) -> None:
            super().put_if_absent(path, data)
            if self.is_slow:
                self.is_slow = False
                clock.advance_ms(VALIDITY_MS)

    storage = SlowOnce(clock=clock)
    provider = StorageBasedLockProvider(storage, clock, SystemIds())
    with pytest.raises(ConflictError):
        provider.acquire(timeout_ms=0)
    assert not storage.is_slow
    clock.advance_ms(1_000)
    provider.acquire(timeout_ms=0).check()


def test_a_store_without_conditional_overwrite_is_refused(clock: ManualClock) -> None:
    with pytest.raises(InvalidInputError, match=r"hoodie\.write\.lock\.provider") as refused:
        StorageBasedLockProvider(MemoryWithoutReplace(), clock, SystemIds())
    assert refused.value.kind is ErrorKind.INVALID_OPTION


@pytest.mark.parametrize(("validity_ms", "renew_ms"), [(9_999, 100), (20_000, 2_001), (20_000, 0)])
def test_intervals_that_do_not_fit_are_refused(
    storage: MemoryStorage, clock: ManualClock, validity_ms: int, renew_ms: int
) -> None:
    with pytest.raises(InvalidInputError, match=r"validity\.timeout\.secs"):
        StorageBasedLockProvider(
            storage, clock, SystemIds(), validity_ms=validity_ms, renew_ms=renew_ms
        )


class TestTheStoresClock:
    """N-91: on a distant store the writers' clocks alone do not end a lease."""

    def asking(self, storage: MemoryStorage, clock: Clock) -> StorageBasedLockProvider:
        return StorageBasedLockProvider(storage, clock, SystemIds(), asks_store=True)

    def test_n_91_a_clock_that_is_ahead_does_not_end_a_lease(
        self, storage: MemoryStorage, clock: ManualClock
    ) -> None:
        held = self.asking(storage, clock).acquire(timeout_ms=0)
        ahead = self.asking(storage, clock.with_wall_ahead_ms(2 * VALIDITY_MS))
        with pytest.raises(ConflictError):
            ahead.acquire(timeout_ms=0)
        with pytest.raises(ConflictError, match="cannot be broken"):
            ahead.break_expired()
        held.check()
        with clock.timers_stalled():
            clock.advance_ms(VALIDITY_MS + 2_000)
            ahead.acquire(timeout_ms=0).check()

    def test_a_clock_that_is_behind_waits_for_one_lease_at_most(
        self, storage: MemoryStorage, clock: ManualClock
    ) -> None:
        self.asking(storage, clock).acquire(timeout_ms=0)
        behind = self.asking(storage, clock.with_wall_ahead_ms(-10 * VALIDITY_MS))
        with clock.timers_stalled():
            began_ms = clock.monotonic_ms()
            behind.acquire(timeout_ms=2 * VALIDITY_MS).check()
            assert clock.monotonic_ms() - began_ms >= VALIDITY_MS

    def test_a_renewal_goes_by_the_stores_clock(
        self, storage: MemoryStorage, clock: ManualClock
    ) -> None:
        behind = self.asking(storage, clock.with_wall_ahead_ms(-10 * VALIDITY_MS))
        held = behind.acquire(timeout_ms=0)
        assert content_of(storage)["validUntil"] < clock.now_ms()
        clock.advance_ms(30_000)
        assert content_of(storage)["validUntil"] == clock.now_ms() + VALIDITY_MS
        held.check()


def test_n_92_a_machine_that_slept_asks_the_store_again(clock: ManualClock) -> None:
    class Distant(MemoryStorage):
        @property
        def is_distant(self) -> bool:
            return True

    storage = Distant(clock=clock)
    held = StorageBasedLockProvider(storage, clock, SystemIds()).acquire(timeout_ms=0)
    held.check()
    # The monotonic clock stood still meanwhile.
    clock.step_wall_ms(VALIDITY_MS + 1_000)
    StorageBasedLockProvider(storage, clock, SystemIds()).acquire(timeout_ms=0)
    with pytest.raises(FencedError):
        held.check()


class FullMemory(MemoryStorage):
    """Takes nothing more once it is full."""

    is_full = False

    def replace(self, path: str, data: bytes, *, version: str) -> str:
        if self.is_full:
            raise StorageError("no space left", kind=ErrorKind.STORAGE_FULL)
        return super().replace(path, data, version=version)


def test_n_96_a_process_does_not_wait_for_a_lock_that_it_could_not_release(
    clock: ManualClock,
) -> None:
    storage = FullMemory(clock=clock)
    held = StorageBasedLockProvider(storage, clock, SystemIds()).acquire(timeout_ms=0)
    storage.is_full = True
    with pytest.raises(StorageError, match="no space left"):
        held.release()
    with pytest.raises(FencedError, match="this holder released it"):
        held.check()
    storage.is_full = False
    with pytest.raises(ConflictError):  # To another process it is held until its lease is over.
        StorageBasedLockProvider(storage, clock, SimIds("other", 1)).acquire(timeout_ms=0)
    again = StorageBasedLockProvider(storage, clock, SystemIds()).acquire(timeout_ms=0)
    assert again.token == held.token + 1
