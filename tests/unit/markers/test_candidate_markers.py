"""Reading other writers' markers: how little of them is read, and what damage does."""

from __future__ import annotations

import pytest
from tests.support.counting_storage import CountingStorage
from tests.support.memory_storage import MemoryStorage

from headwater.errors import StorageError
from headwater.kernel.layout import marker_folder
from headwater.kernel.txn.markers import Marker, MarkerKind, create_marker
from headwater.markers.batches import BatchFile, batch_path, put_marker_type
from headwater.markers.bloom_markers import AskedKeys, FilterFile, RivalFilters, filter_folder
from headwater.markers.candidate_markers import (
    CandidateIndex,
    FilteredMarkerReader,
    GroupMarkerReader,
)
from headwater.markers.conflict_keys import conflict_key
from headwater.model.files import BaseFile, FileGroupId
from headwater.model.instant import InstantTime

T = InstantTime("20260101000000000")
G = FileGroupId("city=sf", "a-0")
H = FileGroupId("city=sf", "b-0")
ELSEWHERE = FileGroupId("city=la", "a-0")


def marker(group: FileGroupId) -> Marker:
    return Marker(BaseFile(*group, "0-1-0", T).path, MarkerKind.MERGE)


def key(group: FileGroupId) -> bytes:
    return conflict_key(group, is_bucketed=False)


def new_filter(storage: MemoryStorage, name: str) -> FilterFile:
    return FilterFile(storage, T, name, is_bucketed=False)


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()


def test_direct_markers_are_listed_in_the_partition_alone(storage: MemoryStorage) -> None:
    create_marker(storage, T, marker(G))
    create_marker(storage, T, marker(ELSEWHERE))
    counting = CountingStorage(storage, keep_trace=True)
    sight = GroupMarkerReader(counting, is_bucketed=False)
    assert sight.markers_on(T, G) == [marker(G)]
    assert sight.markers_on(T, H) == []
    folder = marker_folder(T)
    assert counting.trace == [
        ("list_names", folder),  # Of which kind they are; once.
        ("list_names", f"{folder}/city=sf"),
        ("list_names", f"{folder}/city=sf"),
    ]


def test_a_table_without_partitions_needs_one_listing(storage: MemoryStorage) -> None:
    here = FileGroupId("", "a-0")
    create_marker(storage, T, marker(here))
    counting = CountingStorage(storage)
    sight = GroupMarkerReader(counting, is_bucketed=False)
    assert sight.markers_on(T, here) == [marker(here)]
    assert sight.markers_on(T, FileGroupId("", "a-00")) == []
    assert counting.counts == {"list_names": 2}


def test_files_of_markers_are_read_when_they_have_grown(storage: MemoryStorage) -> None:
    put_marker_type(storage, T)
    first, second = BatchFile(storage, T, 0), BatchFile(storage, T, 1)
    first.add([marker(ELSEWHERE)])
    second.add([marker(ELSEWHERE)])
    counting = CountingStorage(storage, keep_trace=True)
    sight = GroupMarkerReader(counting, is_bucketed=False)
    assert sight.markers_on(T, G) == []
    counting.reset()
    second.add([marker(G)])
    assert sight.markers_on(T, H) == []
    assert [path for name, path in counting.trace if name == "read_many"] == [batch_path(T, 1)]
    assert sight.markers_on(T, G) == [marker(G)]


def test_an_index_knows_both_kinds(storage: MemoryStorage) -> None:
    create_marker(storage, T, marker(G))
    BatchFile(storage, T, 0).add([marker(H)])
    index = CandidateIndex(storage, T, is_bucketed=False)
    wanted = frozenset({key(G), key(H), key(ELSEWHERE)})
    index.refresh(wanted)
    assert index.meeting(wanted) == {key(G), key(H)}
    assert set(index.markers(wanted)) == {marker(G), marker(H)}


class OneUnreadable(MemoryStorage):
    bad = batch_path(T, 0)

    def read(self, path: str) -> bytes:
        if path == self.bad:
            raise StorageError("A bad sector", path=path)
        return super().read(path)

    def read_many(self, paths: object) -> list[bytes | None]:
        raise StorageError("A bad sector")


def test_one_unreadable_file_does_not_hide_the_others() -> None:
    storage = OneUnreadable()
    BatchFile(storage, T, 0).add([marker(H)])
    BatchFile(storage, T, 1).add([marker(G)])
    index = CandidateIndex(storage, T, is_bucketed=False)
    index.refresh(frozenset())
    assert index.meeting({key(G), key(H)}) == {key(G)}
    assert index.markers({key(G), key(H)}) == [marker(G)]


def test_lines_that_only_look_alike_are_no_markers(storage: MemoryStorage) -> None:
    lines = f"city=sf/a-0_no marker\n{marker(G).data_path}\ncity=sf/a-0_x.marker.WRITE\n"
    storage.put(batch_path(T, 0), lines.encode())
    index = CandidateIndex(storage, T, is_bucketed=False)
    index.refresh(frozenset({key(G)}))
    assert index.meeting({key(G)}) == {key(G)}
    assert index.markers({key(G)}) == []


# Filters ---------------------------------------------------------------------------------------


def test_a_filter_holds_what_was_added_and_little_else(storage: MemoryStorage) -> None:
    file = new_filter(storage, "0-1-0")
    groups = [FileGroupId("city=sf", f"{n}-0") for n in range(2_500)]
    file.add([marker(group) for group in groups[:10]])
    file.add([marker(group) for group in groups[10:]])
    found = RivalFilters(storage, T).load()
    assert found is not None
    [only] = found.values()
    assert all(AskedKeys([key(group)]).may_be_in(only) for group in groups[::100])
    strangers = [key(FileGroupId("city=sf", f"{n}-1")) for n in range(1_000)]
    assert sum(AskedKeys([stranger]).may_be_in(only) for stranger in strangers) < 20


def test_a_filter_says_which_writers_need_no_look(storage: MemoryStorage) -> None:
    new_filter(storage, "0-1-0").add([marker(G)])
    create_marker(storage, T, marker(G))
    counting = CountingStorage(storage)
    sight = FilteredMarkerReader(
        GroupMarkerReader(counting, is_bucketed=False), counting, is_bucketed=False
    )
    assert sight.markers_on(T, H) == []
    assert counting.counts == {"list_tree": 1, "read_many": 1}
    assert sight.markers_on(T, G) == [marker(G)]
    assert counting.count("read_many") == 1, "it has not changed"


def test_an_update_is_noticed_although_the_filter_keeps_its_size(storage: MemoryStorage) -> None:
    file, filters = new_filter(storage, "0-1-0"), RivalFilters(storage, T)
    file.add([marker(H)])
    assert not filters.may_hold(key(G))
    file.add([marker(G)])
    assert filters.may_hold(key(G))


def test_without_filters_or_with_a_damaged_one_markers_are_looked_at(
    storage: MemoryStorage,
) -> None:
    create_marker(storage, T, marker(G))
    assert RivalFilters(storage, T).load() is None
    sight = FilteredMarkerReader(
        GroupMarkerReader(storage, is_bucketed=False), storage, is_bucketed=False
    )
    assert sight.markers_on(T, G) == [marker(G)]
    new_filter(storage, "0-1-0").add([marker(H)])
    storage.put(f"{filter_folder(T)}/1-1-0", b"no filter")
    assert sight.markers_on(T, G) == [marker(G)]


def test_filters_spare_the_reading_of_files(storage: MemoryStorage) -> None:
    files = [BatchFile(storage, T, n, lambda name: new_filter(storage, name)) for n in range(2)]
    files[0].add([marker(H)])
    files[1].add([marker(ELSEWHERE)])
    counting = CountingStorage(storage, keep_trace=True)
    index = CandidateIndex(counting, T, is_bucketed=False, has_filters=True)
    index.refresh(frozenset({key(G)}))
    reads = [path for name, path in counting.trace if name == "read_many"]
    assert reads == [f"{filter_folder(T)}/MARKERS0", f"{filter_folder(T)}/MARKERS1"]
    counting.reset()
    index.refresh(frozenset({key(G), key(H)}))
    reads = [path for name, path in counting.trace if name == "read_many"]
    assert reads == [batch_path(T, 0)]
    assert index.meeting({key(G), key(H)}) == {key(H)}


def test_a_filter_is_written_before_the_markers_it_holds(storage: MemoryStorage) -> None:
    counting = CountingStorage(storage, keep_trace=True)
    file = BatchFile(counting, T, 0, lambda name: FilterFile(counting, T, name, is_bucketed=False))
    file.add([marker(G)])
    assert [path for _, path in counting.trace] == [
        f"{filter_folder(T)}/MARKERS0",
        batch_path(T, 0),
    ]
