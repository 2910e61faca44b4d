"""Reading the archived timeline: answers, and how few requests they take."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.counting_storage import CountingStorage
from tests.support.memory_storage import MemoryStorage

from headwater.errors import CorruptTableError, ErrorKind, NotFoundError, Retry
from headwater.kernel.timeline.history.archived_files import (
    HistoryFile,
    commit_manifest,
    load_newest_manifest,
)
from headwater.kernel.timeline.history.columns import WHOLE_READ_BYTES_MAX
from headwater.kernel.timeline.history.read import HistoryTimeline
from headwater.kernel.timeline.history.rows import HistoryRow, encode_rows
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.seams.local import LocalStorage
from headwater.seams.storage import Storage


def time(number: int) -> InstantTime:
    return InstantTime(f"202401010000{number:05d}")


def commit(number: int) -> Instant:
    return Instant(time(number), Action.COMMIT, State.COMPLETED, time(50_000 + number))


def put_file(
    storage: Storage, numbers: Iterable[int], metadata: dict[int, bytes] | None = None
) -> HistoryFile:
    rows = [
        HistoryRow(commit(n), (metadata or {}).get(n, b"m%d" % n), b"p%d" % n)
        for n in sorted(numbers)
    ]
    data = encode_rows(rows)
    file = HistoryFile(
        rows[0].instant.requested_time, rows[-1].instant.requested_time, 0, len(data)
    )
    storage.put(f"h/{file.name}", data)
    commit_manifest(storage, "h", load_newest_manifest(storage, "h"), add=[file])
    return file


def test_a_table_that_archived_nothing_has_no_history() -> None:
    history = HistoryTimeline(MemoryStorage(), "h")
    assert history.instants() == ()
    assert history.find(time(1)) is None
    assert history.completion_time_of(time(1)) is None
    assert history.contents([time(1)]) == {}


READS_ALL = """
import sys
from headwater.kernel.timeline.history.read import HistoryTimeline
from headwater.seams.local import LocalStorage

history = HistoryTimeline(LocalStorage(sys.argv[1]), "h")
times = [instant.requested_time for instant in history.instants()]
print(len(list(history.iter_metadata(times))), "pandas" in sys.modules)
"""


def test_a_new_process_reads_everything_without_pandas(tmp_path: Path) -> None:
    """Importing it takes longer than reading ten thousand instants."""
    put_file(LocalStorage(tmp_path), range(1, 50))
    found = subprocess.check_output([sys.executable, "-c", READS_ALL, str(tmp_path)], text=True)
    assert found.split() == ["49", "False"]


def test_nothing_is_read_before_it_is_asked_for() -> None:
    counting = CountingStorage(MemoryStorage())
    HistoryTimeline(counting, "h")
    assert counting.count() == 0


def test_instants_of_all_files_come_in_order_and_once() -> None:
    storage = MemoryStorage()
    put_file(storage, [3, 7])
    put_file(storage, [1, 5, 7])
    assert HistoryTimeline(storage, "h").instants() == tuple(map(commit, [1, 3, 5, 7]))


def test_only_files_that_reach_beyond_the_bound_are_read() -> None:
    storage = MemoryStorage()
    for start in range(0, 30, 10):
        put_file(storage, [start, start + 5])
    counting = CountingStorage(storage, keep_trace=True)
    assert HistoryTimeline(counting, "h").instants(after=time(15)) == tuple(map(commit, [20, 25]))
    parquet = [path for _, path in counting.trace if path.endswith(".parquet")]
    assert parquet == [f"h/{time(20)}_{time(25)}_0.parquet"]
    # The bound itself is left out.
    assert HistoryTimeline(storage, "h").instants(after=time(20)) == (commit(25),)


def test_a_look_up_reads_only_files_whose_range_holds_the_time_and_each_once() -> None:
    storage = MemoryStorage()
    put_file(storage, [0, 5])
    put_file(storage, [10, 15])
    counting = CountingStorage(storage, keep_trace=True)
    history = HistoryTimeline(counting, "h")
    assert history.completion_time_of(time(7)) is None  # Between two files.
    assert counting.count("list_names") == 1
    assert not any(path.endswith(".parquet") for _, path in counting.trace)
    assert history.completion_time_of(time(5)) == time(50_005)
    assert history.find(time(4)) is None  # In the range of a file, but not in it.
    assert history.find(time(0)) == commit(0)
    parquet = [path for _, path in counting.trace if path.endswith(".parquet")]
    assert parquet == [f"h/{time(0)}_{time(5)}_0.parquet"]
    assert counting.count("list_names") == 1


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.sets(st.integers(10, 60)), max_size=6),
    st.integers(-1, 61),
    st.sets(st.integers(0, 60)),
)
def test_answers_are_those_of_one_big_set(
    files: list[set[int]], after: int, wanted: set[int]
) -> None:
    storage = MemoryStorage()
    for index, numbers in enumerate(files):
        # An instant of its own is the oldest of each file, so that names differ.
        put_file(storage, numbers | {index})
    everything = set().union(range(len(files)), *files)
    history = HistoryTimeline(storage, "h")
    bound = time(after) if after >= 0 else None
    assert history.instants(bound) == tuple(commit(n) for n in sorted(everything) if n > after)
    found = {time(n): commit(n) for n in everything & wanted}
    assert history.find_all(map(time, wanted)) == found
    contents = history.contents(map(time, wanted))
    assert {t: (c.metadata, c.plan) for t, c in contents.items()} == {
        time(n): (b"m%d" % n, b"p%d" % n) for n in everything & wanted
    }


def large_file(storage: Storage) -> HistoryFile:
    """A file above the limit, whose contents do not compress."""
    random = Random(1)
    metadata = {number: random.randbytes(1200) for number in range(1500)}
    file = put_file(storage, metadata, metadata)
    assert file.size_bytes > 1.5 * WHOLE_READ_BYTES_MAX
    return file


class ByteCounter(MemoryStorage):
    """Counts the bytes that ranged reads return."""

    bytes_read = 0

    def read_range(self, path: str, start: int, length: int) -> bytes:
        data = super().read_range(path, start, length)
        self.bytes_read += len(data)
        return data


def test_of_a_large_file_only_the_columns_asked_for_are_fetched() -> None:
    storage = ByteCounter()
    large_file(storage)
    counting = CountingStorage(storage)
    history = HistoryTimeline(counting, "h")
    assert history.instants() == tuple(map(commit, range(1500)))
    # The footer, and the first three columns of two row groups, each in one piece.
    assert counting.count("read_range") == 3
    assert storage.bytes_read < 100_000
    contents = history.contents([time(1499)])
    assert len(contents[time(1499)].metadata) == 1200
    assert storage.bytes_read > WHOLE_READ_BYTES_MAX


def test_a_large_file_that_was_cut_short_is_corrupt() -> None:
    storage = MemoryStorage()
    file = large_file(storage)
    storage.put(f"h/{file.name}", storage.read(f"h/{file.name}")[:-100])
    with pytest.raises(CorruptTableError) as raised:
        HistoryTimeline(storage, "h").instants()
    assert raised.value.context["path"] == f"h/{file.name}"


@pytest.mark.parametrize("put", [large_file, lambda storage: put_file(storage, [1])])
def test_a_file_that_was_cleaned_away_calls_for_a_fresh_look(
    put: Callable[[Storage], HistoryFile],
) -> None:
    storage = MemoryStorage()
    file = put(storage)
    history = HistoryTimeline(storage, "h")
    assert history.manifest.files == (file,)
    storage.delete(f"h/{file.name}")
    for ask in (history.instants, lambda: history.contents([file.min_time])):
        with pytest.raises(NotFoundError) as raised:
            ask()
        assert raised.value.kind is ErrorKind.INSTANT_NOT_FOUND
        assert raised.value.retry is Retry.FRESH_VIEW
        assert raised.value.context["path"] == f"h/{file.name}"


def test_a_history_shows_the_manifest_of_its_first_look() -> None:
    storage = MemoryStorage()
    put_file(storage, [1])
    history = HistoryTimeline(storage, "h")
    assert history.find(time(2)) is None
    put_file(storage, [2])
    assert history.find(time(2)) is None
    assert HistoryTimeline(storage, "h").find(time(2)) == commit(2)


def test_damaged_files_are_corrupt_and_named() -> None:
    storage = MemoryStorage()
    file = put_file(storage, [1])
    storage.put(f"h/{file.name}", b"x" * 100)
    history = HistoryTimeline(storage, "h")
    for ask in (
        history.instants,
        lambda: history.contents([time(1)]),
        lambda: history.find(time(1)),
    ):
        with pytest.raises(CorruptTableError) as raised:
            ask()
        assert raised.value.context["path"] == f"h/{file.name}"


def test_files_that_are_kept_are_read_once_by_a_process() -> None:
    storage = CountingStorage(MemoryStorage(), keep_trace=True)

    def read(*, is_kept: bool) -> int:
        storage.reset()
        assert len(HistoryTimeline(storage, "h", is_kept=is_kept).instants()) == count
        return sum(path.endswith(".parquet") for _, path in storage.trace)

    for count in (1, 2, 3):
        put_file(storage, [count])
        # Of those that are kept the new one only. Who deletes what is archived asks storage.
        assert [read(is_kept=True), read(is_kept=True), read(is_kept=False)] == [1, 0, count]


def test_what_is_kept_is_no_more_than_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.kernel.timeline.history.read.INSTANTS_KEPT_MAX", 2)
    storage = CountingStorage(MemoryStorage(), keep_trace=True)
    for count in (1, 2, 3):
        put_file(storage, [count])
        storage.reset()
        assert len(HistoryTimeline(storage, "h", is_kept=True).instants()) == count
    assert sum(path.endswith(".parquet") for _, path in storage.trace) == 1
    storage.reset()
    HistoryTimeline(storage, "h", is_kept=True).instants()
    assert sum(path.endswith(".parquet") for _, path in storage.trace) == 3
