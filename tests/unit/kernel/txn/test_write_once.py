"""Lost replies, late landings and rivals at one name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.manual_clock import ManualClock
from tests.support.memory_storage import MemoryStorage

from headwater.errors import (
    CommitUnknownError,
    ConflictError,
    ErrorKind,
    Retry,
    StorageError,
)
from headwater.kernel.write_once import put_if_missing, put_once


class FaultyStorage(MemoryStorage):
    """Answers each put-if-absent as told: what happens before the error, if any."""

    def __init__(self, *faults: Callable[[FaultyStorage, str, bytes], None]) -> None:
        super().__init__()
        self.faults = list(faults)
        self.put_count = 0

    def put_if_absent(self, path: str, data: bytes) -> None:
        self.put_count += 1
        if self.faults:
            self.faults.pop(0)(self, path, data)
            raise StorageError("no answer")
        super().put_if_absent(path, data)


def dropped(storage: FaultyStorage, path: str, data: bytes) -> None:
    pass


def landed(storage: FaultyStorage, path: str, data: bytes) -> None:
    MemoryStorage.put_if_absent(storage, path, data)


def rival_landed(storage: FaultyStorage, path: str, data: bytes) -> None:
    MemoryStorage.put_if_absent(storage, path, b"rival")


def denied(storage: FaultyStorage, path: str, data: bytes) -> None:
    raise StorageError("read-only", kind=ErrorKind.STORAGE_DENIED, retry=Retry.NEVER)


def test_a_lost_reply_is_success() -> None:
    storage = FaultyStorage(landed)
    put_once(storage, ManualClock(), "a", b"mine")
    assert (storage.put_count, storage.read("a")) == (1, b"mine")


def test_a_write_that_did_not_land_is_repeated() -> None:
    storage = FaultyStorage(dropped, dropped)
    put_once(storage, ManualClock(), "a", b"mine")
    assert (storage.put_count, storage.read("a")) == (3, b"mine")


def test_a_rival_wins_the_name() -> None:
    storage = FaultyStorage(rival_landed)
    with pytest.raises(ConflictError):
        put_once(storage, ManualClock(), "a", b"mine")
    assert storage.read("a") == b"rival"


def test_an_existing_name_with_other_bytes_is_a_conflict_with_mine_a_success() -> None:
    storage = MemoryStorage()
    storage.put("a", b"mine")
    put_once(storage, ManualClock(), "a", b"mine")
    with pytest.raises(ConflictError):
        put_once(storage, ManualClock(), "a", b"other")


def test_an_outcome_that_stays_unknown_says_so_and_deletes_nothing() -> None:
    storage = FaultyStorage(*[dropped] * 10)
    with pytest.raises(CommitUnknownError, match="not known whether"):
        put_once(storage, ManualClock(), "a", b"mine")
    assert storage.put_count == 5


def test_a_store_that_refuses_for_good_is_not_unknown() -> None:
    storage = FaultyStorage(denied)
    with pytest.raises(StorageError, match="read-only"):
        put_once(storage, ManualClock(), "a", b"mine")
    assert storage.put_count == 1


def test_a_refusal_after_an_unknown_try_stays_unknown() -> None:
    storage = FaultyStorage(dropped, *[denied] * 9)
    with pytest.raises(CommitUnknownError):
        put_once(storage, ManualClock(), "a", b"mine")


@pytest.mark.parametrize("faults", [(), (landed,), (dropped, landed), (dropped, dropped)])
def test_an_object_that_anybody_may_make_is_there_afterwards(
    faults: tuple[Callable[[FaultyStorage, str, bytes], None], ...],
) -> None:
    storage = FaultyStorage(*faults)
    put_if_missing(storage, ManualClock(), "a", b"mine")
    assert storage.read("a") == b"mine"


def test_n_19_an_object_of_somebody_else_is_as_good() -> None:
    storage = FaultyStorage(rival_landed)
    put_if_missing(storage, ManualClock(), "a", b"mine")
    assert storage.read("a") == b"rival"
    put_if_missing(storage, ManualClock(), "a", b"mine")
    assert storage.put_count == 3


def test_an_object_that_storage_does_not_answer_for_is_unknown() -> None:
    storage = FaultyStorage(*[dropped] * 5)
    with pytest.raises(CommitUnknownError):
        put_if_missing(storage, ManualClock(), "a", b"mine")
    assert storage.put_count == 5


def test_an_object_that_storage_refuses_for_good_is_not_tried_again() -> None:
    storage = FaultyStorage(denied)
    with pytest.raises(StorageError) as caught:
        put_if_missing(storage, ManualClock(), "a", b"mine")
    assert caught.value.kind is ErrorKind.STORAGE_DENIED
    assert storage.put_count == 1


def full(storage: FaultyStorage, path: str, data: bytes) -> None:
    raise StorageError("the disk is full", kind=ErrorKind.STORAGE_FULL)


def broken_but_landed(storage: FaultyStorage, path: str, data: bytes) -> None:
    landed(storage, path, data)
    raise StorageError("written, but not synced", kind=ErrorKind.STORAGE_BROKEN)


class UnreadableStorage(FaultyStorage):
    def read(self, path: str) -> bytes:
        raise StorageError("input/output error", kind=ErrorKind.STORAGE_BROKEN)


@pytest.mark.parametrize("write", [put_once, put_if_missing])
def test_n_121_a_write_that_ended_without_landing_is_not_unknown(
    write: Callable[..., None],
) -> None:
    storage, clock = FaultyStorage(full, full, full, full, full), ManualClock()
    with pytest.raises(StorageError) as caught:
        write(storage, clock, "a", b"mine")
    assert caught.value.kind is ErrorKind.STORAGE_FULL
    assert clock.monotonic_ms() == 0


@pytest.mark.parametrize("write", [put_once, put_if_missing])
def test_n_121_a_write_that_ended_after_it_landed_is_a_success(write: Callable[..., None]) -> None:
    storage, clock = FaultyStorage(broken_but_landed), ManualClock()
    write(storage, clock, "a", b"mine")
    assert (storage.read("a"), clock.monotonic_ms()) == (b"mine", 0)


@pytest.mark.parametrize(("faults", "is_over"), [((full,), True), ((dropped, full), False)])
def test_n_121_an_unknown_outcome_says_whether_anything_may_land_yet(
    faults: tuple[Callable[[FaultyStorage, str, bytes], None], ...], is_over: bool
) -> None:
    storage = UnreadableStorage(*faults, full, full, full, full)
    with pytest.raises(CommitUnknownError) as caught:
        put_once(storage, ManualClock(), "a", b"mine")
    assert caught.value.is_over == is_over
