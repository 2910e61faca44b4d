"""Our metadata table as hudi-rs reads it: what it lists through it equals what it lists without.

hudi-rs lists through the metadata table whenever table config names `files`, so the other answer is
that of a copy without one. It knows no file groups without base file there, so tables here have
base files in every group.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.tables import columns

import headwater as hw
from headwater.kernel.table_config import table_layout
from headwater.kernel.timeline.active import load_active
from headwater.kernel.txn.steps import Claim
from headwater.kernel.view.file_index import ListingFileIndex
from headwater.metadata.files_partition import MetadataFiles
from headwater.metadata.services import (
    MetadataServices,
    compact_metadata_table,
    run_metadata_services,
)
from headwater.metadata.table import load_metadata_table
from headwater.table import Table

hudi = pytest.importorskip("hudi", reason="hudi-rs is not installed")

SCHEMA = columns("id string not null, city string, value long")
FAST = {"headwater.storage.fsync": "false"}

Rows = list[tuple[Any, ...]]


def rows(*values: tuple[str, int]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": key, "city": "sf" if key < "d" else "ny", "value": value} for key, value in values],
        schema=SCHEMA,
    )


def read_by_hudi(path: Path | str) -> Rows:
    batches = hudi.HudiTableBuilder.from_base_uri(str(path)).build().read(None)
    found = (row for batch in batches for row in pa.record_batch(batch).to_pylist())
    return sorted((row["id"], row["city"], row["value"]) for row in found)


def upkeep_of(table: Table) -> MetadataServices:
    components = table.context.components
    return MetadataServices(
        components=components,
        config=table.config,
        commits=4,
        claim=lambda: Claim.new(components.ids, interval_ms=60_000, tolerable_misses=2),
    )


def check(table: Table, folder: Path) -> None:
    copy = folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(table.uri, copy)
    shutil.rmtree(copy / ".hoodie" / "metadata")
    through_index = read_by_hudi(table.uri)
    assert through_index == read_by_hudi(copy)
    ours = table.read_arrow().to_pylist()
    assert through_index == sorted((row["id"], row["city"], row["value"]) for row in ours)
    timeline = load_active(table.storage, table_layout(table.config).timeline)
    opened = load_metadata_table(table.storage, table.config, timeline)
    assert opened.is_behind is None
    told = sorted((f.path, f.size_bytes) for f in MetadataFiles(opened).list_data_files())
    listed = ListingFileIndex(table.storage).list_data_files()
    assert told == sorted((file.path, file.size_bytes) for file in listed)


@pytest.mark.parametrize("partition_by", ["city", None])
@pytest.mark.some(1)
def test_after_every_commit_and_compaction(tmp_path: Path, partition_by: str | None) -> None:
    table = hw.create_table(
        tmp_path / "trips",
        schema=SCHEMA,
        record_key="id",
        partition_by=partition_by,
        table_type="COPY_ON_WRITE",
        options={**FAST, "hoodie.clean.commits.retained": "1"},
    )
    compactions = 0
    for number in range(14):
        table.upsert(rows((f"a{number}", number), ("e", number)))
        if number % 5 == 4:
            table.services.clean()
        compactions += run_metadata_services(upkeep_of(table)) is not None
        check(table, tmp_path)
    compactions += compact_metadata_table(upkeep_of(table)) is not None
    check(table, tmp_path)
    assert compactions >= 3


def test_logs_on_base_files(tmp_path: Path) -> None:
    table = hw.create_table(
        tmp_path / "trips",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        table_type="MERGE_ON_READ",
        buckets=1,
        options=FAST,
    )
    table.upsert(rows(("a", 1), ("e", 1)))
    table.services.compact()
    check(table, tmp_path)
    for number in range(4):
        table.upsert(rows(("a", number), ("b", number), ("e", 2)))
        check(table, tmp_path)
    assert compact_metadata_table(upkeep_of(table)) is not None
    check(table, tmp_path)
    table.delete(rows(("a", 0)))
    table.services.compact()
    check(table, tmp_path)
