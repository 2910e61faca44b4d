"""Looking keys up reads no more of a file than it must."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.support.counting_storage import CountingStorage

import headwater as hw
from headwater.arrow.meta_columns import RECORD_KEY
from headwater.errors import CorruptTableError
from headwater.files.base_files import open_base_file
from headwater.metadata.view import load_view
from headwater.model.files import FileSlice
from headwater.operations.routing.key_lookup import KeyLookup, Search
from headwater.table import Table

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("value", pa.int64())])
CACHE_BYTES = 1 << 24


def table_of_files(path: Path, index: str, *files: list[str]) -> Table:
    """Return a table with one base file for each list of keys."""
    options = {"headwater.storage.fsync": "false", "hoodie.parquet.small.file.limit": 0}
    table = hw.create_table(path, schema=SCHEMA, record_key="id", index=index, options=options)
    for keys in files:
        table.insert(pa.table({"id": keys, "value": range(len(keys))}, schema=SCHEMA))
    return table


def numbered_slices(table: Table, files: list[list[str]]) -> dict[int, FileSlice]:
    """Return the slices under the number of the list whose keys they hold."""
    found = {}
    for file_slice in load_view(table.storage, table.config).slices():
        assert file_slice.base is not None
        with open_base_file(table.storage, file_slice.base) as reader:
            keys = reader.read([RECORD_KEY])[RECORD_KEY].to_pylist()
        found[files.index(keys)] = file_slice
    return dict(sorted(found.items()))


def found(lookup: KeyLookup, keys: list[str], slices: dict[int, FileSlice]) -> dict[int, list[str]]:
    return {
        number: [keys[at] for at in positions.tolist()]
        for number, positions in lookup.find([Search(pa.array(keys), slices)])[0]
    }


def spoil_pages(folder: Path, file_slice: FileSlice) -> None:
    """Make a base file fail whoever reads more of it than its footer."""
    assert file_slice.base is not None
    path = folder / file_slice.base.path
    data = path.read_bytes()
    footer_bytes = int.from_bytes(data[-8:-4], "little") + 8
    path.write_bytes(data[:4] + bytes(len(data) - 4 - footer_bytes) + data[-footer_bytes:])


def test_a_file_whose_range_lies_elsewhere_is_not_read(tmp_path: Path) -> None:
    files = [["a1", "a2"], ["b1", "b2"], ["c1", "c2"]]
    table = table_of_files(tmp_path / "t", "simple", *files)
    slices = numbered_slices(table, files)
    for number in (0, 2):
        spoil_pages(tmp_path / "t", slices[number])
    lookup = KeyLookup(table.storage, uses_bloom_filters=False, cache_bytes=CACHE_BYTES)
    assert found(lookup, ["b2", "b15", "d"], slices) == {1: ["b2"]}
    with pytest.raises(CorruptTableError):
        found(lookup, ["a2"], slices)


def test_a_bloom_filter_spares_files_that_the_range_does_not(tmp_path: Path) -> None:
    files = [["a", "m1", "z"], ["a0", "m2", "z0"]]
    table = table_of_files(tmp_path / "t", "bloom", *files)
    slices = numbered_slices(table, files)
    spoil_pages(tmp_path / "t", slices[0])
    with_filters = KeyLookup(table.storage, uses_bloom_filters=True, cache_bytes=CACHE_BYTES)
    assert found(with_filters, ["m2", "nobody"], slices) == {1: ["m2"]}
    without = KeyLookup(table.storage, uses_bloom_filters=False, cache_bytes=CACHE_BYTES)
    with pytest.raises(CorruptTableError):
        found(without, ["m2", "nobody"], slices)


def test_each_file_is_opened_once_for_many_lots(tmp_path: Path) -> None:
    files = [["a", "c"], ["b", "d"]]
    table = table_of_files(tmp_path / "t", "simple", *files)
    slices = numbered_slices(table, files)
    storage = CountingStorage(table.storage)
    lookup = KeyLookup(storage, uses_bloom_filters=False, cache_bytes=CACHE_BYTES)
    for _ in range(3):
        assert found(lookup, ["c", "b"], slices) == {0: ["c"], 1: ["b"]}
    assert storage.count("open_input") == 2


def test_a_cache_that_holds_nothing_gives_the_same_answers(tmp_path: Path) -> None:
    files = [["a", "c"], ["b", "d"]]
    table = table_of_files(tmp_path / "t", "bloom", *files)
    slices = numbered_slices(table, files)
    storage = CountingStorage(table.storage)
    lookup = KeyLookup(storage, uses_bloom_filters=True, cache_bytes=0)
    for _ in range(2):
        assert found(lookup, ["c", "b", "x"], slices) == {0: ["c"], 1: ["b"]}
    assert storage.count("open_input") == 4


def test_a_key_in_two_files_is_found_in_both(tmp_path: Path) -> None:
    files = [["a", "b"], ["b", "c"]]
    table = table_of_files(tmp_path / "t", "simple", *files)
    lookup = KeyLookup(table.storage, uses_bloom_filters=False, cache_bytes=CACHE_BYTES)
    slices = numbered_slices(table, files)
    assert found(lookup, ["c", "b"], slices) == {0: ["b"], 1: ["c", "b"]}


def test_a_slice_that_started_as_a_log_is_asked_for_its_logs_keys(tmp_path: Path) -> None:
    table = hw.create_table(
        tmp_path / "t",
        schema=SCHEMA,
        record_key="id",
        table_type="MERGE_ON_READ",
        buckets=1,
        options={
            "headwater.storage.fsync": "false",
            "hoodie.write.concurrency.mode": "non_blocking_concurrency_control",
            "hoodie.write.lock.provider": "in_process",
        },
    )
    table.upsert(pa.table({"id": ["a", "b"], "value": [1, 2]}, schema=SCHEMA))
    table.upsert(pa.table({"id": ["c"], "value": [3]}, schema=SCHEMA))
    (file_slice,) = load_view(table.storage, table.config).slices()
    assert file_slice.base is None
    storage = CountingStorage(table.storage)
    lookup = KeyLookup(storage, uses_bloom_filters=False, cache_bytes=CACHE_BYTES)
    for _ in range(2):
        assert found(lookup, ["c", "x", "a"], {7: file_slice}) == {7: ["c", "a"]}
    assert storage.count("read_many") == 2


def test_a_file_without_rows_holds_nothing(tmp_path: Path) -> None:
    table = table_of_files(tmp_path / "t", "simple", ["a"])
    table.delete(pa.table({"id": ["a"]}))
    (file_slice,) = load_view(table.storage, table.config).slices()
    lookup = KeyLookup(table.storage, uses_bloom_filters=False, cache_bytes=CACHE_BYTES)
    assert found(lookup, ["a"], {0: file_slice}) == {}
    table.upsert(pa.table({"id": ["a"], "value": [2]}, schema=SCHEMA))
    assert table.read_arrow().to_pylist() == [{"id": "a", "value": 2}]


def test_a_base_file_that_is_gone_is_named(tmp_path: Path) -> None:
    table = table_of_files(tmp_path / "t", "simple", ["a"])
    (file_slice,) = load_view(table.storage, table.config).slices()
    assert file_slice.base is not None
    table.storage.delete(file_slice.base.path)
    lookup = KeyLookup(table.storage, uses_bloom_filters=False, cache_bytes=CACHE_BYTES)
    with pytest.raises(CorruptTableError, match=file_slice.base.file_id):
        found(lookup, ["a"], {0: file_slice})


def test_lookups_agree_with_a_naive_search(tmp_path: Path) -> None:
    draw = np.random.default_rng(7)
    files = [[f"k{n}" for n in draw.choice(400, 60, replace=False)] for _ in range(4)]
    table = table_of_files(tmp_path / "t", "bloom", *files)
    slices = numbered_slices(table, files)
    lookup = KeyLookup(table.storage, uses_bloom_filters=True, cache_bytes=CACHE_BYTES)
    for _ in range(5):
        keys = [f"k{n}" for n in draw.choice(600, 50, replace=False)]
        expected = {n: [k for k in keys if k in held] for n, held in enumerate(files)}
        assert found(lookup, keys, slices) == {n: hits for n, hits in expected.items() if hits}
