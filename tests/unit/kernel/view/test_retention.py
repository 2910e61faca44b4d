"""How far back a table can be read, however many cleans its timeline holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.bare_table import LAYOUT, BareTable, at

from headwater.format.timeline.records import encode_record
from headwater.kernel.timeline.active import Timeline, instant_path, load_active
from headwater.kernel.view.commits import CommitReader
from headwater.kernel.view.retention import load_floor, load_floors
from headwater.model.files import BaseFile, DataFile
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.service_metadata import CleanMetadata

CLEANS = 300
RETAINED = 5


class Looked(tuple[Instant, ...]):
    """Instants that count how many of them are looked at."""

    looked_at = 0

    def __getitem__(self, where: Any) -> Any:
        found = super().__getitem__(where)
        self.looked_at += len(found) if isinstance(where, slice) else 1
        return found

    def __iter__(self) -> Any:
        self.looked_at += len(self)
        return super().__iter__()


def clean(table: BareTable, minute: int, *, earliest: int) -> None:
    record = CleanMetadata(
        start_clean_time=at(minute),
        time_taken_in_millis=0,
        total_files_deleted=1,
        earliest_commit_to_retain=at(earliest),
        partition_metadata={},
    )
    done = Instant(at(minute), Action.CLEAN, State.COMPLETED, at(minute + 1))
    table.storage.put(instant_path(LAYOUT.timeline, done), encode_record(record))


@pytest.fixture
def table() -> BareTable:
    """A commit, then a clean, each at minutes of its own, again and again."""
    made = BareTable()
    for number in range(CLEANS):
        minute = number * 4
        files: list[DataFile] = [BaseFile("a", "x-0", "0-0-0", at(minute))]
        made.commit(minute, minute + 1, files, action=Action.COMMIT)
        clean(made, minute + 2, earliest=max(number - RETAINED, 0) * 4)
    return made


def floors_of(table: BareTable, timeline: Timeline) -> dict[InstantTime, InstantTime]:
    return load_floors(timeline, CommitReader(table.storage, LAYOUT))


def test_the_floor_is_what_the_newest_clean_retained(table: BareTable) -> None:
    timeline = load_active(table.storage, LAYOUT.timeline)
    floor = load_floor(timeline, CommitReader(table.storage, LAYOUT))
    assert floor == at((CLEANS - 1 - RETAINED) * 4)


def test_what_completes_late_lifts_the_floor_of_cleans_that_knew_of_it(table: BareTable) -> None:
    # Requested before what clean 100 retains first, and completed after that.
    first = (100 - RETAINED) * 4
    late: list[DataFile] = [BaseFile("a", "y-0", "0-0-0", at(first - 1))]
    table.commit(first - 1, first + 3, late, action=Action.COMMIT)
    floors = floors_of(table, load_active(table.storage, LAYOUT.timeline))
    assert floors[at(100 * 4 + 2)] == at(first + 3)
    assert floors[at(101 * 4 + 2)] == at(first + 4)
    # One that was planned before it completed takes nothing for superseded by it.
    assert floors[at(95 * 4 + 2)] == at(90 * 4)


def test_each_clean_looks_at_few_instants(table: BareTable) -> None:
    timeline = load_active(table.storage, LAYOUT.timeline)
    timeline.completed = looked = Looked(timeline.completed)
    floors_of(table, timeline)
    searches = 2 * CLEANS * len(looked).bit_length()
    assert looked.looked_at <= searches + CLEANS * 4 * (RETAINED + 1)


def test_cleans_are_read_together(table: BareTable, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    read_many = table.storage.read_many

    def counting(paths: Sequence[str]) -> Any:
        asked.append(len(paths))
        return read_many(paths)

    timeline = load_active(table.storage, LAYOUT.timeline)
    monkeypatch.setattr(table.storage, "read_many", counting)
    floors_of(table, timeline)
    assert asked == [CLEANS]
