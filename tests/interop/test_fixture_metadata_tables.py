"""The metadata tables that Hudi itself wrote: every partition reads, and `files` equals listing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.kernel.table_config import load_table_config, table_layout
from headwater.kernel.timeline.active import load_active
from headwater.kernel.txn.index_plan import changes_data_files
from headwater.kernel.view.file_index import ListingFileIndex
from headwater.metadata.files_partition import MetadataFiles
from headwater.metadata.table import MetadataTable, load_metadata_table
from headwater.seams.clock import SystemClock
from headwater.seams.local import LocalStorage

HudiTable = Callable[[str], Path]

TABLES = {
    "cow-v9_txns_nonpart_meta": {
        "column_stats": 165,
        "files": 2,
        "record_index": 14,
        "secondary_index_merchant_idx": 14,
        "secondary_index_txn_date_idx": 14,
    },
    "cow-v9_txns_simple_meta": {
        "column_stats": 272,
        "files": 4,
        "partition_stats": 48,
        "record_index": 12,
        "secondary_index_merchant_idx": 12,
        "secondary_index_txn_date_idx": 12,
    },
    "mor-avro-v8_trips_8i3u1d": {
        "column_stats": 99,
        "files": 4,
        "partition_stats": 27,
        "record_index": 6,
        "secondary_index_rider_idx": 6,
    },
    "mor-avro-v9_nonpartitioned_rollback": {"column_stats": 30, "files": 2, "record_index": 3},
    "mor-avro-v9_txns_nonpart_meta": {
        "column_stats": 180,
        "files": 2,
        "record_index": 14,
        "secondary_index_merchant_idx": 14,
        "secondary_index_txn_date_idx": 14,
    },
    "mor-avro-v9_txns_simple_meta": {
        "column_stats": 304,
        "files": 4,
        "partition_stats": 48,
        "record_index": 12,
        "secondary_index_merchant_idx": 12,
        "secondary_index_txn_date_idx": 12,
    },
}
"""How many entries each partition has, after merging."""

each_table = pytest.mark.parametrize("name", TABLES)


def opened(path: Path) -> tuple[LocalStorage, MetadataTable]:
    storage = LocalStorage(path)
    config = load_table_config(storage, SystemClock())
    timeline = load_active(storage, table_layout(config).timeline)
    return storage, load_metadata_table(storage, config, timeline)


@each_table
def test_files_equals_listing(hudi_table: HudiTable, name: str) -> None:
    storage, table = opened(hudi_table(name))
    assert table.is_behind is None
    told, listed = MetadataFiles(table), ListingFileIndex(storage)
    assert told.list_partitions() == listed.list_partitions()
    names = sorted(file.path for file in told.list_data_files())
    assert names == sorted(file.path for file in listed.list_data_files())
    for partition in told.list_partitions():
        of_one = sorted(file.path for file in told.list_data_files([partition]))
        assert of_one == [path for path in names if path.rpartition("/")[0] == partition]


@each_table
def test_every_partition_reads_and_every_key_is_found(hudi_table: HudiTable, name: str) -> None:
    _, table = opened(hudi_table(name))
    assert table.usable == TABLES[name].keys()
    for partition, count in TABLES[name].items():
        assert table.uncovered(partition) is None
        groups = list(table.read(partition))
        values = {
            key: value
            for group in groups
            for key, value in zip(group.keys.to_pylist(), group.values.to_pylist(), strict=True)
        }
        assert len(values) == sum(len(group.keys) for group in groups) == count
        found = table.look_up(partition, [*values, "nowhere$at all"])
        assert dict(zip(found.keys.to_pylist(), found.values.to_pylist(), strict=True)) == values
        prefix = min(values)[:1]
        scanned = table.scan(partition, prefix)
        assert sorted(scanned.keys.to_pylist()) == sorted(k for k in values if k.startswith(prefix))


@each_table
def test_every_instant_of_the_table_is_covered(hudi_table: HudiTable, name: str) -> None:
    storage, table = opened(hudi_table(name))
    timeline = load_active(storage, ".hoodie/timeline")
    told = [instant for instant in timeline.completed if changes_data_files(instant)]
    assert told
    assert all("files" in table.covered(instant.requested_time) for instant in told)
