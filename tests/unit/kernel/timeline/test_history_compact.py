"""Merging levels of the archived timeline, and what cleaning may delete."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.counting_storage import CountingStorage
from tests.support.memory_storage import MemoryStorage

from headwater.errors import CorruptTableError, InvalidInputError
from headwater.kernel.layout import TableLayout
from headwater.kernel.timeline.history.archived_files import (
    HistoryFile,
    Manifest,
    commit_manifest,
    load_newest_manifest,
    load_pointer,
)
from headwater.kernel.timeline.history.compact import (
    MERGE_BYTES_MAX,
    clean_history,
    compact_history,
    plan_merge,
)
from headwater.kernel.timeline.history.merge import merge_files
from headwater.kernel.timeline.history.read import HistoryTimeline
from headwater.kernel.timeline.history.rows import HistoryRow, encode_rows
from headwater.kernel.timeline.history.write import archive_instants
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.seams.storage import Storage

LAYOUT = TableLayout()
HISTORY = LAYOUT.history
PutInstants = Callable[[Storage, Iterable[Instant]], None]


def time(number: int) -> InstantTime:
    return InstantTime(f"202401010000{number:05d}")


def commit(number: int) -> Instant:
    return Instant(time(number), Action.COMMIT, State.COMPLETED, time(50_000 + number))


def row(number: int) -> HistoryRow:
    return HistoryRow(commit(number), f"metadata {number}".encode(), f"plan {number}".encode())


def put_file(storage: Storage, numbers: Iterable[int], level: int = 0) -> HistoryFile:
    """Put a data file and list it in the next manifest."""
    rows = [row(number) for number in sorted(numbers)]
    data = encode_rows(rows)
    ends = rows[0].instant.requested_time, rows[-1].instant.requested_time
    file = HistoryFile(*ends, level, len(data))
    storage.put(f"{HISTORY}/{file.name}", data)
    commit_manifest(storage, HISTORY, load_newest_manifest(storage, HISTORY), add=[file])
    return file


def data_files(storage: Storage) -> list[str]:
    return sorted(name for name in storage.list_names(HISTORY) if name.endswith(".parquet"))


def test_nothing_is_merged_below_the_batch_size() -> None:
    storage = MemoryStorage()
    for number in range(9):
        put_file(storage, [number])
    counting = CountingStorage(storage)
    assert compact_history(counting, HISTORY) == 0
    assert counting.count("put", "put_if_absent", "replace", "delete") == 0


def test_the_ten_oldest_files_become_one_of_the_next_level() -> None:
    storage = MemoryStorage()
    for number in reversed(range(12)):
        put_file(storage, [2 * number, 2 * number + 1])
    assert compact_history(storage, HISTORY) == 1
    manifest = load_newest_manifest(storage, HISTORY)
    assert sorted((f.min_time, f.max_time, f.level) for f in manifest.files) == [
        (time(0), time(19), 1),
        (time(20), time(21), 0),
        (time(22), time(23), 0),
    ]
    assert load_pointer(storage, HISTORY) == manifest.version == 13


def test_a_merged_file_is_ordered_distinct_and_complete() -> None:
    storage = MemoryStorage()
    for numbers in ([0, 5, 9], [1, 5, 6], [2, 3], [9, 10]):
        put_file(storage, numbers)
    compact_history(storage, HISTORY, batch_size=4)
    (file,) = load_newest_manifest(storage, HISTORY).files
    rows = pq.read_table(io.BytesIO(storage.read(f"{HISTORY}/{file.name}"))).to_pylist()
    assert [r["instantTime"] for r in rows] == [time(n) for n in (0, 1, 2, 3, 5, 6, 9, 10)]
    assert rows[4] == {
        "instantTime": time(5),
        "completionTime": time(50_005),
        "action": "commit",
        "metadata": b"metadata 5",
        "plan": b"plan 5",
        "version": 1,
    }


def test_full_levels_cascade() -> None:
    storage = MemoryStorage()
    for number in range(8):
        put_file(storage, [number])
    assert compact_history(storage, HISTORY, batch_size=2) == 7
    (file,) = load_newest_manifest(storage, HISTORY).files
    assert (file.min_time, file.max_time, file.level) == (time(0), time(7), 3)


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.sets(st.integers(0, 40), min_size=1), min_size=1, max_size=12),
    st.integers(2, 5),
)
def test_merging_changes_no_answer(files: list[set[int]], batch_size: int) -> None:
    storage = MemoryStorage()
    for index, numbers in enumerate(files):
        # Each file has an instant of its own, as no instant is the oldest of two files.
        put_file(storage, {number + 100 for number in numbers} | {index})
    before = HistoryTimeline(storage, HISTORY).instants()
    times = [instant.requested_time for instant in before]
    contents = HistoryTimeline(storage, HISTORY).contents(times)
    compact_history(storage, HISTORY, batch_size=batch_size)
    after = HistoryTimeline(storage, HISTORY)
    assert after.instants() == before
    assert {t: c[:2] for t, c in after.contents(times).items()} == {
        t: c[:2] for t, c in contents.items()
    }
    assert plan_merge(after.manifest, batch_size) == ()


def test_files_of_one_merge_are_read_one_after_the_other() -> None:
    storage = MemoryStorage()
    files = [put_file(storage, [3 * number, 3 * number + 1]) for number in range(4)]
    counting = CountingStorage(storage, keep_trace=True)
    portions = merge_files(counting, HISTORY, files)
    read = []
    for _ in files:
        next(portions)
        read.append(counting.count("read", "read_many"))
    assert read == [1, 2, 3, 4]


def test_a_merge_works_through_files_of_several_row_groups() -> None:
    storage = MemoryStorage()
    files = [put_file(storage, range(start, 2500, 2)) for start in range(2)]
    portions = list(merge_files(storage, HISTORY, files))
    times = [t for portion in portions for t in portion.column("instantTime").to_pylist()]
    assert times == [time(number) for number in range(2500)]
    assert max(portion.num_rows for portion in portions) <= 2000


def test_two_files_that_contradict_each_other_are_not_merged() -> None:
    storage = MemoryStorage()
    put_file(storage, [1, 2])
    other = row(2)._replace(instant=commit(2)._replace(completion_time=time(70_000)))
    data = encode_rows([other])
    file = HistoryFile(time(2), time(2), 0, len(data))
    storage.put(f"{HISTORY}/{file.name}", data)
    commit_manifest(storage, HISTORY, load_newest_manifest(storage, HISTORY), add=[file])
    before = storage.list_tree("")
    with pytest.raises(CorruptTableError, match=str(time(2))):
        compact_history(storage, HISTORY, batch_size=2)
    with pytest.raises(CorruptTableError, match=str(time(2))):
        HistoryTimeline(storage, HISTORY).instants()
    assert storage.list_tree("") == before


def test_a_damaged_file_is_not_merged() -> None:
    storage = MemoryStorage()
    damaged = [put_file(storage, [number]) for number in range(2)][1]
    storage.put(f"{HISTORY}/{damaged.name}", b"damaged")
    with pytest.raises(CorruptTableError) as raised:
        compact_history(storage, HISTORY, batch_size=2)
    assert raised.value.context["path"] == f"{HISTORY}/{damaged.name}"


def test_a_merged_file_of_a_dead_process_is_adopted_if_it_is_the_same() -> None:
    storage = MemoryStorage()
    for number in range(2):
        put_file(storage, [number])
    name = f"{time(0)}_{time(1)}_1.parquet"
    leftover = encode_rows([row(0), row(1)])
    storage.put(f"{HISTORY}/{name}", leftover)
    counting = CountingStorage(storage, keep_trace=True)
    compact_history(counting, HISTORY, batch_size=2)
    assert ("put", f"{HISTORY}/{name}") not in counting.trace
    assert HistoryTimeline(storage, HISTORY).instants() == (commit(0), commit(1))


@pytest.mark.parametrize("leftover", [b"torn", encode_rows([row(0)])])
def test_any_other_leftover_is_replaced(leftover: bytes) -> None:
    storage = MemoryStorage()
    for number in range(2):
        put_file(storage, [number])
    storage.put(f"{HISTORY}/{time(0)}_{time(1)}_1.parquet", leftover)
    compact_history(storage, HISTORY, batch_size=2)
    assert HistoryTimeline(storage, HISTORY).instants() == (commit(0), commit(1))


def test_a_merge_never_replaces_a_file_that_is_listed() -> None:
    storage = MemoryStorage()
    put_file(storage, [0, 1], level=1)
    put_file(storage, [0])
    put_file(storage, [1])
    with pytest.raises(CorruptTableError, match="archived twice") as raised:
        compact_history(storage, HISTORY, batch_size=2)
    assert raised.value.context["path"] == f"{HISTORY}/{time(0)}_{time(1)}_1.parquet"


def manifest_of(*files: HistoryFile) -> Manifest:
    return Manifest(1, files, 2)


def test_large_files_are_left_as_they_are() -> None:
    half = MERGE_BYTES_MAX // 2
    files = [HistoryFile(time(n), time(n), 0, half) for n in range(3)]
    assert plan_merge(manifest_of(*files), 3) == tuple(files[:2])
    larger = [HistoryFile(time(n), time(n), 0, half + 1) for n in range(3)]
    assert plan_merge(manifest_of(*larger), 3) == ()


def test_the_last_level_is_never_merged() -> None:
    files = [HistoryFile(time(n), time(n), 9, 1) for n in range(3)]
    assert plan_merge(manifest_of(*files), 2) == ()


def test_a_merge_needs_two_files() -> None:
    with pytest.raises(InvalidInputError, match="batch_size=1"):
        compact_history(MemoryStorage(), HISTORY, batch_size=1)


def test_cleaning_keeps_the_newest_manifests_and_the_files_they_list() -> None:
    storage = MemoryStorage()
    for number in range(10):
        put_file(storage, [number])
    compact_history(storage, HISTORY)  # Manifest 11; 3 + 1 are kept.
    manifests = sorted(name for name in storage.list_names(HISTORY) if "manifest" in name)
    assert manifests == ["manifest_10", "manifest_11", "manifest_8", "manifest_9"]
    assert len(data_files(storage)) == 11
    for number in range(10, 20):
        put_file(storage, [number])
    compact_history(storage, HISTORY)
    # Of the files merged first none is listed any more.
    assert data_files(storage) == sorted(
        [f"{time(0)}_{time(9)}_1.parquet", f"{time(10)}_{time(19)}_1.parquet"]
        + [f"{time(n)}_{time(n)}_0.parquet" for n in range(10, 20)]
    )


def test_cleaning_spares_instants_that_are_archived_nowhere_else_and_what_it_cannot_read() -> None:
    storage = MemoryStorage()
    put_file(storage, [1, 2])
    for name, data in {
        f"{time(1)}_{time(1)}_0.parquet": encode_rows([row(1)]),
        f"{time(2)}_{time(3)}_0.parquet": encode_rows([row(2), row(3)]),
        f"{time(2)}_{time(2)}_0.parquet": b"torn",
        "notes.txt": b"mine",
    }.items():
        storage.put(f"{HISTORY}/{name}", data)
    seen = [*storage.list_names(HISTORY), f"{time(5)}_{time(5)}_0.parquet"]
    clean_history(storage, HISTORY, seen, keep=3)
    assert sorted(storage.list_names(HISTORY)) == sorted(
        [
            f"{time(1)}_{time(2)}_0.parquet",
            f"{time(2)}_{time(3)}_0.parquet",
            f"{time(2)}_{time(2)}_0.parquet",
            "notes.txt",
            "manifest_1",
            "_version_",
        ]
    )


def test_cleaning_looks_only_at_files_it_was_told_of() -> None:
    storage = MemoryStorage()
    put_file(storage, [1, 2])
    storage.put(f"{HISTORY}/{time(1)}_{time(1)}_0.parquet", encode_rows([row(1)]))
    clean_history(storage, HISTORY, [], keep=3)
    assert len(data_files(storage)) == 2


def test_a_torn_manifest_is_passed_over_and_cleaned_away_in_time() -> None:
    storage = MemoryStorage()
    put_file(storage, [0])
    storage.put(f"{HISTORY}/_version_", b"1")
    storage.put(f"{HISTORY}/manifest_2", b"torn")
    put_file(storage, [1])
    assert load_newest_manifest(storage, HISTORY).version == 3
    compact_history(storage, HISTORY, batch_size=2)
    for number in range(2, 6):
        put_file(storage, [number])
    compact_history(storage, HISTORY, batch_size=2)
    assert "manifest_2" not in storage.list_names(HISTORY)
    assert len(HistoryTimeline(storage, HISTORY).instants()) == 6


def test_archival_goes_on_after_a_merge(put_instants: PutInstants) -> None:
    storage = MemoryStorage()
    commits = [commit(number) for number in range(6)]
    put_instants(storage, commits)
    for instant in commits[:5]:
        archive_instants(storage, LAYOUT, [instant])
        compact_history(storage, HISTORY, batch_size=2)
    assert HistoryTimeline(storage, HISTORY).instants() == tuple(commits[:5])
    assert {f.level for f in load_newest_manifest(storage, HISTORY).files} == {0, 2}
