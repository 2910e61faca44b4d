"""The files that writes make: how many, how large, sorted how, and with which bloom filters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.support.tables import columns, table_at

from headwater.arrow.meta_columns import RECORD_KEY
from headwater.errors import InvalidInputError
from headwater.files.base_files import open_base_file
from headwater.format.parquet.base_file import BaseFileReader
from headwater.metadata.view import load_view
from headwater.model.files import BaseFile
from headwater.operations.tasks.inserts import InsertPiece, plan_inserts
from headwater.table import Table

SCHEMA = columns("id long not null, group long, noise string")

each_index = pytest.mark.parametrize("index", ["simple", "bloom"])


def make_table(path: Path, *, options: dict[str, Any] | None = None, **arguments: Any) -> Table:
    return table_at(path, SCHEMA).having(**arguments).with_options(options or {}).create()


def some_rows(first: int, count: int) -> pa.Table:
    """Return rows whose text does not compress."""
    draw = np.random.default_rng(first)
    noise = [draw.bytes(24).hex() for _ in range(count)]
    ids = np.arange(first, first + count)
    return pa.table([ids, ids[::-1] % 7, noise], schema=SCHEMA)


def base_files(table: Table) -> list[BaseFile]:
    slices = load_view(table.storage, table.config).slices()
    return [file_slice.base for file_slice in slices if file_slice.base is not None]


def open_only_file(table: Table) -> BaseFileReader:
    (base,) = base_files(table)
    return open_base_file(table.storage, base)


def ids_in(table: Table) -> list[int]:
    ids: list[int] = sorted(table.read_arrow(["id"])["id"].to_pylist())
    return ids


@pytest.mark.parametrize(
    ("row_count", "free_bytes", "pieces"),
    [
        (0, {0: 100}, []),
        (3, {}, [(0, 3, None)]),
        (25, {}, [(0, 10, None), (10, 10, None), (20, 5, None)]),
        (8, {4: 50, 9: 100}, [(0, 5, 4), (5, 3, 9)]),
        (18, {4: 50, 9: 9, 11: -40}, [(0, 5, 4), (5, 10, None), (15, 3, None)]),
    ],
)
def test_rows_fill_files_before_they_make_new_ones(
    row_count: int, free_bytes: dict[int, int], pieces: list[tuple[int, int, int | None]]
) -> None:
    planned = plan_inserts(row_count, free_bytes, record_size_bytes=10, file_size_max=100)
    assert planned == [InsertPiece(*piece) for piece in pieces]


def test_a_record_larger_than_a_file_gets_a_file_of_its_own() -> None:
    planned = plan_inserts(2, {0: 30}, record_size_bytes=99, file_size_max=50)
    assert planned == [InsertPiece(0, 1, None), InsertPiece(1, 1, None)]


@each_index
def test_small_upserts_fill_up_one_file(tmp_path: Path, index: str) -> None:
    table = make_table(tmp_path / "t", index=index)
    for first in range(0, 250, 50):
        table.upsert(some_rows(first, 60))  # Ten of them are updates of the time before.
        assert len(base_files(table)) == 1
    assert ids_in(table) == list(range(260))


@pytest.mark.parametrize("arguments", [{"index": "simple"}, {"record_key": None}])
def test_small_inserts_keep_the_number_of_files_bounded(
    tmp_path: Path, arguments: dict[str, Any]
) -> None:
    size_max = 60_000
    limits = {
        "hoodie.parquet.max.file.size": size_max,
        "hoodie.parquet.small.file.limit": size_max * 8 // 10,
    }
    table = make_table(tmp_path / "t", options=limits, **arguments)
    for first in range(0, 6_000, 500):
        table.insert(some_rows(first, 500))
    files = base_files(table)
    total = sum(file.size_bytes for file in files)
    assert total > 2 * size_max
    assert len(files) <= total / (0.8 * size_max) + 1
    assert max(file.size_bytes for file in files) <= 1.1 * size_max
    assert ids_in(table) == list(range(6_000))


def test_files_that_are_large_enough_are_left_alone(tmp_path: Path) -> None:
    table = make_table(
        tmp_path / "t", index="simple", options={"hoodie.parquet.small.file.limit": 1_000}
    )
    table.upsert(some_rows(0, 200))
    (first,) = base_files(table)
    assert first.size_bytes > 1_000
    table.upsert(some_rows(200, 200))
    assert len(base_files(table)) == 2
    assert first in base_files(table)


@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert", "overwrite"])
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_new_files_stay_below_the_maximum_from_the_first_write_on(
    tmp_path: Path, operation: str, table_type: str
) -> None:
    size_max = 60_000
    table = make_table(
        tmp_path / "t",
        index="simple",
        table_type=table_type,
        options={"hoodie.parquet.max.file.size": size_max},
    )
    getattr(table, operation)(some_rows(0, 4_000))
    files = base_files(table)
    assert 3 <= len(files) <= 10
    assert max(file.size_bytes for file in files) <= size_max
    assert ids_in(table) == list(range(4_000))


def test_earlier_commits_tell_the_size_of_a_record(tmp_path: Path) -> None:
    """Rows of numbers take far less in a file than in memory, which the second write knows."""
    limits = {"hoodie.parquet.max.file.size": 20_000, "hoodie.parquet.small.file.limit": 0}
    schema = SCHEMA.remove(2)
    table = make_table(tmp_path / "t", index="simple", schema=schema, options=limits)

    def write(first: int) -> int:
        before = len(base_files(table))
        ids = np.arange(first, first + 8_000)
        table.insert(pa.table([ids, ids * 0], schema=schema))
        return len(base_files(table)) - before

    first_files, later_files = write(0), write(8_000)
    assert first_files > later_files


def test_the_size_of_a_record_may_be_given(tmp_path: Path) -> None:
    sizes = {
        "hoodie.parquet.max.file.size": 1_000,
        "hoodie.copyonwrite.record.size.estimate": 100,
    }
    table = make_table(tmp_path / "t", index="simple", options=sizes)
    table.insert(some_rows(0, 35))
    rows = [open_base_file(table.storage, file).row_count for file in base_files(table)]
    assert sorted(rows) == [5, 10, 10, 10]


def test_merge_on_read_inserts_never_touch_files_that_are_there(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", index="simple", table_type="MERGE_ON_READ")
    table.upsert(some_rows(0, 10))
    before = base_files(table)
    table.upsert(some_rows(10, 10))
    assert len(base_files(table)) == 2
    assert set(before) < set(base_files(table))


def test_bloom_filters_hold_all_keys_and_are_as_large_as_the_file_needs(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", index="bloom")
    table.upsert(some_rows(0, 100))
    table.upsert(some_rows(50, 100))
    with open_only_file(table) as file:
        keys = file.read([RECORD_KEY])[RECORD_KEY].combine_chunks()
        bloom = file.bloom_filter()
    assert bloom is not None
    assert len(keys) == 150
    assert bloom.might_contain(keys).all()
    assert not bloom.might_contain(pa.array([str(n) for n in range(150, 1_000)])).any()
    # 43 bits for each key that there may be, at one false positive in 10^9.
    assert 43 * 150 <= bloom.bit_count <= 44 * 200
    assert len(bloom.rows) == 1


def test_bloom_filters_follow_their_options(tmp_path: Path) -> None:
    options = {
        "hoodie.index.bloom.num_entries": 100,
        "hoodie.index.bloom.fpp": "0.01",
        "hoodie.bloom.index.filter.dynamic.max.entries": 300,
    }
    table = make_table(tmp_path / "t", index="bloom", options=options)
    table.upsert(some_rows(0, 250))
    with open_only_file(table) as file:
        bloom = file.bloom_filter()
    assert bloom is not None
    assert (bloom.keys_per_row, len(bloom.rows), bloom.hash_count) == (100, 3, 7)


@pytest.mark.parametrize("rate", ["0", "1", "-0.5", "often"])
def test_a_rate_of_false_positives_lies_between_0_and_1(tmp_path: Path, rate: str) -> None:
    with pytest.raises(InvalidInputError, match=r"hoodie\.index\.bloom\.fpp must be a number"):
        make_table(tmp_path / "t", index="bloom", options={"hoodie.index.bloom.fpp": rate})


def test_only_a_bloom_index_pays_for_bloom_filters(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", index="simple")
    table.upsert(some_rows(0, 10))
    with open_only_file(table) as file:
        assert file.bloom_filter() is None
        assert file.key_range == ("0", "9")


@pytest.mark.parametrize(
    "arguments",
    [{"index": "bucket", "buckets": 2}, {"index": "simple"}, {"record_key": None}],
    ids=["bucket", "simple", "without key"],
)
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_bulk_insert_sorts_the_rows_of_each_file(
    tmp_path: Path, arguments: dict[str, Any], table_type: str
) -> None:
    options = {
        "hoodie.bulkinsert.user.defined.partitioner.sort.columns": "group,id",
        "hoodie.parquet.max.file.size": 10_000,
    }
    table = make_table(tmp_path / "t", options=options, table_type=table_type, **arguments)
    table.bulk_insert(some_rows(0, 300))
    files = base_files(table)
    assert len(files) >= 2
    for base in files:
        with open_base_file(table.storage, base) as file:
            rows = file.read(["group", "id"]).select(["group", "id"])
        assert rows.equals(rows.sort_by([("group", "ascending"), ("id", "ascending")]))
    assert ids_in(table) == list(range(300))


def test_a_column_to_sort_by_must_exist(tmp_path: Path) -> None:
    options = {"hoodie.bulkinsert.user.defined.partitioner.sort.columns": "group,nobody"}
    table = make_table(tmp_path / "t", options=options)
    with pytest.raises(InvalidInputError, match="nobody"):
        table.bulk_insert(some_rows(0, 3))
    table.insert(some_rows(0, 3))
