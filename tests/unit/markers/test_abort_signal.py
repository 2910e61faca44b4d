"""A conflict that one task finds ends the others."""

from __future__ import annotations

import pytest
from tests.support.counting_storage import CountingStorage
from tests.support.manual_clock import ManualClock
from tests.support.memory_storage import MemoryStorage

from headwater.errors import EarlyConflictError, StorageError
from headwater.kernel.txn.markers import delete_markers, load_markers
from headwater.markers.abort_signal import (
    LOOK_EVERY_MS,
    AbortSignal,
    abort_signal_path,
    leave_abort_signal,
)
from headwater.model.instant import InstantTime

T = InstantTime("20260101000000000")
CONFLICT = EarlyConflictError("Stop", instant=T, other="1", owner="host/1/w", group="a/b")


def test_the_note_says_what_the_conflict_said() -> None:
    storage, clock = MemoryStorage(), ManualClock()
    stop = AbortSignal(storage, clock, T)
    stop.check()
    leave_abort_signal(storage, T, CONFLICT)
    clock.advance_ms(LOOK_EVERY_MS)
    with pytest.raises(EarlyConflictError) as caught:
        stop.check()
    assert caught.value.message == CONFLICT.message
    assert caught.value.context == CONFLICT.context


def test_items_come_until_there_is_a_note() -> None:
    storage, clock = MemoryStorage(), ManualClock()
    seen = []
    with pytest.raises(EarlyConflictError):  # noqa: PT012
        for item in AbortSignal(storage, clock, T).watched(range(10)):
            seen.append(item)
            clock.advance_ms(LOOK_EVERY_MS)
            if item == 4:
                leave_abort_signal(storage, T, CONFLICT)
    assert seen == [0, 1, 2, 3, 4]


def test_it_is_looked_for_once_a_second() -> None:
    storage, clock = CountingStorage(MemoryStorage()), ManualClock()
    list(AbortSignal(storage, clock, T).watched(range(1_000)))
    assert storage.counts == {"read": 1}


@pytest.mark.parametrize("content", [b"", b"no note"])
def test_a_damaged_note_stops_nobody(content: bytes) -> None:
    storage = MemoryStorage()
    storage.put(abort_signal_path(T), content)
    AbortSignal(storage, ManualClock(), T).check()


def test_storage_that_fails_stops_nobody() -> None:
    class Broken(MemoryStorage):
        def read(self, path: str) -> bytes:
            raise StorageError("no")

        def put(self, path: str, data: bytes) -> None:
            raise StorageError("no")

    leave_abort_signal(Broken(), T, CONFLICT)
    AbortSignal(Broken(), ManualClock(), T).check()


def test_the_note_is_no_marker_and_goes_with_them() -> None:
    storage = MemoryStorage()
    leave_abort_signal(storage, T, CONFLICT)
    assert load_markers(storage, T) == []
    delete_markers(storage, T)
    assert storage.list_tree("") == []
