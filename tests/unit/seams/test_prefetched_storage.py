"""Objects that are fetched together: how often they are read, and what is read elsewhere."""

from __future__ import annotations

import pytest
from tests.support.counting_storage import CountingStorage
from tests.support.memory_storage import MemoryStorage

from headwater.errors import NotFoundError
from headwater.seams.prefetched_storage import PrefetchedStorage


@pytest.fixture
def counting() -> CountingStorage:
    storage = MemoryStorage()
    storage.put_many({"a": b"1", "b": b"2", "other": b"3"})
    return CountingStorage(storage, keep_trace=True)


def test_the_first_read_fetches_all_and_no_other_reads_again(counting: CountingStorage) -> None:
    storage = PrefetchedStorage(counting, ["a", "b"])
    assert counting.trace == []
    assert storage.read("b") == b"2"
    assert counting.trace == [("read_many", "a"), ("read_many", "b")]
    assert storage.read_many(["b", "a", "b"]) == [b"2", b"1", b"2"]
    with storage.open_input("a") as source:
        assert source.read() == b"1"
    assert counting.count() == 2


def test_other_objects_fetch_nothing(counting: CountingStorage) -> None:
    storage = PrefetchedStorage(counting, ["a", "b"])
    assert storage.read("other") == b"3"
    assert storage.read_many(["other", "absent"]) == [b"3", None]
    with storage.open_input("other") as source:
        assert source.read() == b"3"
    assert counting.counts == {"read": 1, "read_many": 2, "open_input": 1}
    assert storage.read_many(["other", "a"]) == [b"3", b"1"]


def test_an_absent_object_is_absent(counting: CountingStorage) -> None:
    storage = PrefetchedStorage(counting, ["a", "gone"])
    assert storage.read_many(["gone", "a"]) == [None, b"1"]
    with pytest.raises(NotFoundError):
        storage.read("gone")
    with pytest.raises(NotFoundError):
        storage.open_input("gone")
