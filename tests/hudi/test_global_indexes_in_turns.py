"""Apache Hudi and we write to one table by turns, with indexes that know where each key is."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.beside_hudi import YES, shows
from tests.support.hudi_peer import HudiPeer
from tests.support.tables import columns

import headwater as hw
from headwater.kernel.timeline.active import load_active
from headwater.metadata.partition_kinds import RECORD_INDEX
from headwater.metadata.table import load_metadata_table
from headwater.table import Table

SCHEMA = columns("id string not null, city string, fare long")
OPTIONS = {"headwater.storage.fsync": "false", "hoodie.write.lock.provider": "in_process"}
THEIRS = {
    "hoodie.embed.timeline.server": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.upsert.shuffle.parallelism": "2",
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.metadata.enable": "true",
    # Beside statistics of partitions the second write of Hudi 1.2.0 fails with a null pointer.
    "hoodie.metadata.index.column.stats.enable": "false",
    "hoodie.metadata.index.partition.stats.enable": "false",
}
OF_INDEX = {
    "global_simple": {"hoodie.index.type": "GLOBAL_SIMPLE"},
    "global_bloom": {"hoodie.index.type": "GLOBAL_BLOOM"},
    "record_level_index": {
        "hoodie.index.type": "RECORD_LEVEL_INDEX",
        "hoodie.metadata.record.level.index.enable": "true",
    },
}

Row = tuple[str, str, int]


def rows(*tuples: Row) -> pa.Table:
    return pa.table([list(column) for column in zip(*tuples, strict=True)], schema=SCHEMA)


def values(found: pa.Table) -> list[Row]:
    return sorted(
        (row["id"], row["city"], row["fare"])
        for row in found.select(["id", "city", "fare"]).to_pylist()
    )


def places(table: Table) -> set[tuple[str, str]]:
    timeline = load_active(table.storage, ".hoodie/timeline")
    index = load_metadata_table(table.storage, table.reload().config, timeline)
    return {
        (partition, key)
        for partition in index.data_partitions(RECORD_INDEX)
        for one in index.read(RECORD_INDEX, data_partition=partition)
        for key in one.keys.to_pylist()
    }


@pytest.mark.parametrize("index", OF_INDEX)
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@shows("global indexes", we_read=YES, we_write=YES, they_read=YES)
def test_both_find_the_records_of_the_other(
    hudi: HudiPeer, tmp_path: Path, index: str, table_type: str
) -> None:
    table = hw.create_table(
        tmp_path / "trips",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        table_type=table_type,
        index=index,
        options=OPTIONS,
    )
    theirs = {**THEIRS, **OF_INDEX[index], "hoodie.table.name": table.name}
    model: dict[tuple[str, str], Row] = {}

    def apply(*written: Row) -> list[Row]:
        for key, city, fare in written:
            apart = city if index == "record_level_index" else ""
            model[apart, key] = (key, city, fare)
        return sorted(model.values())

    def check(expected: list[Row], step: str) -> None:
        assert values(table.reload().read_arrow()) == expected, f"we read other rows {step}"
        by_hudi = hudi.read(table.uri, {"hoodie.metadata.enable": "true"})
        assert values(by_hudi) == expected, f"Hudi reads other rows {step}"

    first: list[Row] = [("a", "x", 1), ("b", "x", 2), ("c", "y", 3)]
    table.upsert(rows(*first))
    check(apply(*first), "after our first commit")
    for number in range(10, 40, 10):
        some: list[Row] = [("a", "yxz"[number % 3], number), ("b", "x", number), ("d", "new", 1)]
        hudi.write(rows(*some), table.uri, theirs)
        check(apply(*some), f"after Hudi's commit {number}")
        table = table.reload()
        more: list[Row] = [("a", "zyx"[number % 3], number + 1), ("c", "y", number)]
        table.upsert(rows(*more))
        check(apply(*more), f"after our commit {number}")
    problems = table.reload().inspect.validate_metadata().to_pylist()
    assert not [one for one in problems if one["problem"] != "stale"]
    if index == "record_level_index":
        assert places(table) >= {(f"city={city}", key) for city, key in model}
