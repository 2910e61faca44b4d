"""Listing storage for data files."""

from __future__ import annotations

import pytest
from tests.support.counting_storage import CountingStorage
from tests.support.memory_storage import MemoryStorage

from headwater.kernel.view.file_index import FileIndex, ListingFileIndex
from headwater.model.files import BaseFile, LogFile
from headwater.model.instant import InstantTime

TIME = InstantTime("20260307162548096")
BASE = BaseFile("p", "f", "0-0-0", TIME, size_bytes=3)
LOG = LogFile("p", "f", TIME, 1, "0-0-0", size_bytes=2)
NESTED = BaseFile("p/q", "g", "0-0-0", TIME, size_bytes=1)
PREFIX = BaseFile("pp", "h", "0-0-0", TIME, size_bytes=1)
ROOT = BaseFile("", "r", "0-0-0", TIME, size_bytes=1)


@pytest.fixture
def storage() -> CountingStorage:
    storage = MemoryStorage()
    for file in (BASE, LOG, NESTED, PREFIX, ROOT):
        storage.put(file.path, b"x" * file.size_bytes)
        partition = f"{file.partition}/" if file.partition else ""
        storage.put(f"{partition}.hoodie_partition_metadata", b"")
    storage.put("p/_SUCCESS", b"")
    storage.put(f".hoodie/metadata/files/f_0-0-0_{TIME}.hfile", b"")
    storage.put(".hoodie/metadata/files/.hoodie_partition_metadata", b"")
    return CountingStorage(storage)


@pytest.fixture
def index(storage: CountingStorage) -> FileIndex:
    return ListingFileIndex(storage)


def test_partitions_are_folders_with_partition_metadata(index: FileIndex) -> None:
    assert index.list_partitions() == ["", "p", "p/q", "pp"]


def test_all_data_files_take_one_listing(index: FileIndex, storage: CountingStorage) -> None:
    assert sorted(index.list_data_files()) == sorted([BASE, LOG, NESTED, PREFIX, ROOT])
    assert storage.counts == {"list_tree": 1}


def test_some_partitions_take_one_listing_each(index: FileIndex, storage: CountingStorage) -> None:
    found = index.list_data_files(["pp", "p", "p", "absent"])
    assert sorted(found) == sorted([BASE, LOG, PREFIX])
    assert storage.counts == {"list_tree": 3}


def test_the_base_of_a_table_without_partitions(index: FileIndex) -> None:
    assert index.list_data_files([""]) == [ROOT]
    assert index.list_data_files([]) == []
