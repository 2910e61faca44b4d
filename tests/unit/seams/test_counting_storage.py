from __future__ import annotations

import pytest
from tests.support.counting_storage import CountingStorage
from tests.support.memory_storage import MemoryStorage

from headwater.errors import NotFoundError


@pytest.fixture
def storage() -> CountingStorage:
    return CountingStorage(MemoryStorage(), keep_trace=True)


def test_every_method_counts_under_its_own_name(storage: CountingStorage) -> None:
    storage.put("a", b"1")
    storage.put_if_absent("b", b"2")
    version = storage.read_versioned("a").version
    storage.replace("a", b"3", version=version)
    storage.read("a")
    storage.read_range("a", 0, 1)
    storage.info("a")
    storage.list_names("")
    storage.list_tree("folder")
    storage.delete("a")
    called = [
        ("put", "a"),
        ("put_if_absent", "b"),
        ("read_versioned", "a"),
        ("replace", "a"),
        ("read", "a"),
        ("read_range", "a"),
        ("info", "a"),
        ("list_names", ""),
        ("list_tree", "folder"),
        ("delete", "a"),
    ]
    assert storage.trace == called
    assert storage.counts == {method: 1 for method, _ in called}
    assert storage.count() == 10
    assert storage.count("put", "put_if_absent", "never_called") == 2


def test_read_many_counts_once_for_each_path(storage: CountingStorage) -> None:
    storage.put("a", b"1")
    storage.reset()
    assert storage.read_many(path for path in ("a", "b", "a")) == [b"1", None, b"1"]
    assert storage.counts == {"read_many": 3}
    assert storage.trace == [("read_many", "a"), ("read_many", "b"), ("read_many", "a")]


def test_put_many_counts_once_for_each_path(storage: CountingStorage) -> None:
    storage.put_many({"a": b"1", "b": b"2"})
    assert storage.counts == {"put_many": 2}
    assert storage.read_many("ab") == [b"1", b"2"]


def test_a_call_that_fails_counts(storage: CountingStorage) -> None:
    with pytest.raises(NotFoundError):
        storage.read("absent")
    assert storage.count("read") == 1


def test_reset_starts_from_zero(storage: CountingStorage) -> None:
    storage.put("a", b"1")
    storage.reset()
    assert storage.count() == 0
    assert storage.counts == {}
    assert storage.trace == []
    assert storage.read("a") == b"1"


def test_no_trace_is_kept_unless_asked_for() -> None:
    storage = CountingStorage(MemoryStorage())
    storage.put("a", b"1")
    assert storage.count("put") == 1
    assert storage.trace == []


def test_it_says_of_itself_what_the_inner_storage_says() -> None:
    inner = MemoryStorage("memory://inner")
    storage = CountingStorage(inner)
    assert (storage.uri, storage.page_size, storage.can_replace) == (
        inner.uri,
        inner.page_size,
        inner.can_replace,
    )
