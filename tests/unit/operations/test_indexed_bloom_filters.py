"""Bloom index look-ups by the metadata table: only files that may hold a key are opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.counting_storage import CountingStorage

import headwater as hw
from headwater.context import TableContext
from headwater.operations.plan import Operation, WritePlan
from headwater.operations.request import WriteRequest
from headwater.operations.routing.indexed_summaries import IndexedSummaries
from headwater.operations.routing.key_lookup import KeyLookup, Search
from headwater.operations.write import start_write
from headwater.table import Table

SCHEMA = pa.schema([("id", pa.string()), ("fare", pa.int64())])
OPTIONS = {
    "headwater.storage.fsync": "false",
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.bloom.index.use.metadata": "true",
}
WITH_RANGES = {**OPTIONS, "hoodie.metadata.index.column.stats.enable": "true"}

TargetOf = Callable[[Table], TableContext]


def rows(*keys: str) -> pa.Table:
    return pa.table({"id": list(keys), "fare": [1] * len(keys)}, SCHEMA)


def table_of_three_files(folder: Path, options: dict[str, str]) -> Table:
    table = hw.create_table(folder, schema=SCHEMA, record_key="id", index="bloom", options=options)
    for keys in (("a", "m"), ("b", "n"), ("x", "z")):
        table.insert(rows(*keys))
    return table


def plan_of(table: Table, target_of: TargetOf) -> WritePlan:
    running = start_write(
        target_of(table), WriteRequest(operation=Operation.UPSERT, columns=SCHEMA)
    )
    running.abandon()
    return running.plan


@pytest.mark.parametrize("options", [OPTIONS, WITH_RANGES])
def test_files_that_cannot_hold_a_key_are_not_opened(
    tmp_path: Path, target_of: TargetOf, options: dict[str, str]
) -> None:
    table = table_of_three_files(tmp_path / "t", options)
    plan = plan_of(table, target_of)
    assert (plan.key_search.has_bloom_index, plan.key_search.has_key_ranges) == (
        True,
        options is WITH_RANGES,
    )
    storage = CountingStorage(table.storage)
    lookup = KeyLookup(
        storage,
        uses_bloom_filters=True,
        cache_bytes=1 << 20,
        indexed=IndexedSummaries(table.storage, plan),
    )
    ((number, positions),) = lookup.find([Search(pa.array(["c", "n"]), plan.groups.slices[""])])[0]
    assert list(positions) == [1]
    assert plan.groups.slices[""][number].base is not None
    assert storage.counts == {"open_input": 1}


def test_upserts_go_where_the_keys_are(tmp_path: Path) -> None:
    table = table_of_three_files(tmp_path / "t", WITH_RANGES)
    done = table.upsert(rows("n", "new"))
    assert (done.inserted, done.updated) == (1, 1)
    assert sorted(table.read_arrow()["id"].to_pylist()) == ["a", "b", "m", "n", "new", "x", "z"]
    table.delete(rows("n", "z"))
    assert sorted(table.read_arrow()["id"].to_pylist()) == ["a", "b", "m", "new", "x"]


def test_without_the_option_footers_are_read(tmp_path: Path, target_of: TargetOf) -> None:
    table = table_of_three_files(
        tmp_path / "t", {**OPTIONS, "hoodie.bloom.index.use.metadata": "false"}
    )
    assert not plan_of(table, target_of).key_search.has_bloom_index


def test_a_damaged_index_is_told_and_footers_are_read(
    tmp_path: Path, target_of: TargetOf, caplog: pytest.LogCaptureFixture
) -> None:
    table = table_of_three_files(tmp_path / "t", OPTIONS)
    plan = plan_of(table, target_of)
    for info in table.storage.list_tree(".hoodie/metadata/bloom_filters"):
        if ".log." in info.path and info.size_bytes:
            table.storage.put(info.path, table.storage.read(info.path)[:-20])
    lookup = KeyLookup(
        table.storage,
        uses_bloom_filters=True,
        cache_bytes=1 << 20,
        indexed=IndexedSummaries(table.storage, plan),
    )
    assert len(lookup.find([Search(pa.array(["n"]), plan.groups.slices[""])])[0]) == 1
    assert "bloom filters not used" in caplog.text
