"""Many objects, large objects and odd names on real servers."""

from __future__ import annotations

import hashlib
import tracemalloc

import pytest

from headwater.errors import AlreadyExistsError
from headwater.seams.new_object import PART_BYTES, PARTS_AT_ONCE
from headwater.seams.storage import Storage

MEGABYTE = 1024 * 1024
CHUNK = bytes(range(256)) * (MEGABYTE // 256)


def test_a_listing_has_as_many_pages_as_it_needs(storage: Storage) -> None:
    names = {f"{number:05d}" for number in range(2500)}
    storage.put_many({f"folder/{name}": b"" for name in names})
    assert set(storage.list_names("folder")) == names
    assert len(storage.list_tree("")) == 2500
    storage.delete_many([f"folder/{name}" for name in names])
    assert storage.list_names("folder") == []


@pytest.mark.parametrize(
    "name",
    ["a b", "a+b", "a=b", "50%", "%41", "ü", "日本", "q?x", "a#b", "a&b", "'\"", "a:b", "~", "$"],
)
def test_an_odd_name_is_the_name_of_its_object_only(storage: Storage, name: str) -> None:
    path = f"{name}/{name}"
    storage.put_if_absent(path, b"1")
    with pytest.raises(AlreadyExistsError):
        storage.put_if_absent(path, b"2")
    assert storage.read(path) == b"1"
    assert storage.list_names(name) == [name]
    assert [info.path for info in storage.list_tree("")] == [path]
    with storage.open_output(f"{path}-2") as sink:
        sink.write(b"22")
    storage.delete_many([path, f"{path}-2"])
    assert storage.list_tree("") == []


def write(storage: Storage, megabytes: int) -> None:
    with storage.open_output("folder/large") as sink:
        for _ in range(megabytes):
            sink.write(CHUNK)


@pytest.mark.parametrize("megabytes", [70, pytest.param(1024, marks=pytest.mark.long)])
def test_a_large_file_is_sent_in_parts_within_bounded_memory(
    storage: Storage, megabytes: int
) -> None:
    tracemalloc.start()
    try:
        write(storage, megabytes)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < (PARTS_AT_ONCE + 2) * PART_BYTES
    assert [info.path for info in storage.list_tree("")] == ["folder/large"]
    assert storage.info("folder/large").size_bytes == megabytes * MEGABYTE
    found = hashlib.sha256()
    with storage.open_input("folder/large") as source:
        while data := source.read(40 * MEGABYTE):
            found.update(data)
    expected = hashlib.sha256()
    for _ in range(megabytes):
        expected.update(CHUNK)
    assert found.digest() == expected.digest()


def test_a_large_file_does_not_take_a_name_from_another(storage: Storage) -> None:
    storage.put("folder/large", b"small")
    with pytest.raises(AlreadyExistsError):
        write(storage, 40)
    assert storage.read("folder/large") == b"small"
    assert [info.path for info in storage.list_tree("")] == ["folder/large"]
