"""Completion times across the active and the archived timeline: H-44."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from tests.support.completion_times import load_completion_times
from tests.support.counting_storage import CountingStorage
from tests.support.memory_storage import MemoryStorage

from headwater.kernel.layout import TableLayout
from headwater.kernel.timeline.history.write import archive_instants
from headwater.model.instant import Instant, InstantTime
from headwater.seams.storage import Storage

LAYOUT = TableLayout()
PutInstants = Callable[[Storage, Iterable[Instant]], None]


@pytest.fixture
def storage(
    put_instants: PutInstants, terminal: list[Instant], staying: list[Instant]
) -> CountingStorage:
    storage = CountingStorage(MemoryStorage())
    put_instants(storage, terminal + staying)
    storage.reset()
    return storage


@pytest.mark.parametrize("archived", [0, 3, 9])
def test_an_instant_completed_when_its_file_says_wherever_that_is(
    storage: CountingStorage, terminal: list[Instant], staying: list[Instant], archived: int
) -> None:
    archive_instants(storage, LAYOUT, terminal[:archived])
    times = load_completion_times(storage, LAYOUT)
    for instant in terminal + staying:
        # Aborted and pending instants have none.
        assert times.find(instant.requested_time) == instant.completion_time


def test_what_is_on_neither_timeline_is_not_committed_however_old(
    storage: CountingStorage, terminal: list[Instant]
) -> None:
    archive_instants(storage, LAYOUT, terminal)
    times = load_completion_times(storage, LAYOUT)
    assert times.find(InstantTime("20230101000000000")) is None
    assert times.find(InstantTime("20240101000000009")) is None


def test_the_archived_timeline_is_read_only_for_what_is_not_active(
    storage: CountingStorage, terminal: list[Instant], staying: list[Instant]
) -> None:
    archive_instants(storage, LAYOUT, terminal[:3])
    storage.reset()
    times = load_completion_times(storage, LAYOUT)
    for instant in terminal[3:] + staying:
        times.find(instant.requested_time)
    assert storage.counts == {"list_names": 1}
    for instant in terminal[:3] * 2:
        times.find(instant.requested_time)
    # One listing, then pointer, manifest and data file.
    assert storage.counts == {"list_names": 2, "read_many": 3}


def test_an_instant_that_is_archived_after_the_listing_is_still_found(
    storage: CountingStorage, terminal: list[Instant]
) -> None:
    times = load_completion_times(storage, LAYOUT)
    archive_instants(storage, LAYOUT, terminal)
    for instant in terminal:
        assert times.find(instant.requested_time) == instant.completion_time
