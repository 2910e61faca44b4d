"""Indexes derived from the data files of tables that Hudi wrote, against those that Hudi wrote.

Where the rules are the same, every value is: bounds, counts and sizes of columns, places of
records, values of secondary indexes. Hudi's times of record locations are in the zone of the
machine that wrote the table, which the files do not tell, so they are compared up to whole hours.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.config.table import TableConfig
from headwater.format.metadata.column_stats import decode_column_stats
from headwater.format.metadata.records import decode_record_locations
from headwater.inspect.validate_metadata import validate_metadata
from headwater.kernel.table_config import load_table_config
from headwater.kernel.view.table_view import TableView, load_listed_view
from headwater.metadata.derive import Deriver
from headwater.metadata.records import MetadataRecords
from headwater.metadata.table import MetadataTable, load_metadata_table
from headwater.model.files import BaseFile, DataFile, FileSlice
from headwater.seams.clock import SystemClock
from headwater.seams.local import LocalStorage

Unpack = Callable[[str], Path]
Values = dict[str, Any]

NAMES = (
    "cow-v9_txns_nonpart_meta",
    "cow-v9_txns_simple_meta",
    "mor-avro-v9_txns_nonpart_meta",
    "mor-avro-v9_txns_simple_meta",
    "mor-avro-v9_nonpartitioned_rollback",
    "mor-avro-v8_trips_8i3u1d",
)
HOUR_MS = 3_600_000

each_table = pytest.mark.parametrize("name", NAMES)


@dataclass
class HudiTable:
    storage: LocalStorage
    config: TableConfig
    view: TableView
    metadata: MetadataTable
    deriver: Deriver

    @property
    def secondary(self) -> list[str]:
        return sorted(name for name in self.metadata.usable if name.startswith("secondary"))

    def files(self) -> list[DataFile]:
        """Return all committed files, also those of past moments."""
        files = [file for history in self.view.histories() for file in history.files]
        return [file for file in files if self.view.is_stored(file)]


def opened(path: Path) -> HudiTable:
    storage = LocalStorage(path)
    config = load_table_config(storage, SystemClock())
    view = load_listed_view(storage, config)
    metadata = load_metadata_table(storage, config, view.timeline)
    table = hw.open_table(path).context
    deriver = Deriver(
        table=table, storage=storage, schema=view.schema(), definitions=metadata.definitions
    )
    return HudiTable(storage, config, view, metadata, deriver)


def values(
    entries: Iterable[MetadataRecords], decode: Callable[[pa.BinaryArray], pa.Table]
) -> Values:
    found: Values = {}
    for some in entries:
        rows = decode(some.values).to_pylist()
        found |= dict(zip(some.keys.to_pylist(), rows, strict=True))
    return found


def as_slice(file: DataFile) -> FileSlice:
    base = file if isinstance(file, BaseFile) else None
    logs = () if isinstance(file, BaseFile) else (file,)
    return FileSlice(file.group, file.instant_time, base, logs)


def comparable(rows: Values, version: int) -> Values:
    """Version 8 has no types of values, and keeps some values under other types."""
    if version < 9:
        for row in rows.values():
            row["value_type"] = row["type_info"] = None
    return rows


@each_table
def test_column_stats_of_every_file_are_those_of_hudi(hudi_table: Unpack, name: str) -> None:
    table = opened(hudi_table(name))
    held = values(table.metadata.read("column_stats"), decode_column_stats)
    slices = [as_slice(file) for file in table.files()]
    ours = values(table.deriver.of_files("column_stats", slices), decode_column_stats)
    assert len(ours) > 20
    assert comparable(ours, table.config.version) == comparable(held, table.config.version)


@pytest.mark.parametrize("name", [name for name in NAMES if "nonpart" not in name])
def test_partition_stats_have_the_bounds_of_hudi(hudi_table: Unpack, name: str) -> None:
    table = opened(hudi_table(name))
    held = values(table.metadata.read("partition_stats"), decode_column_stats)
    found = table.deriver.of_files("partition_stats", table.view.slices())
    ours = comparable(values(found, decode_column_stats), table.config.version)
    assert ours.keys() == held.keys()
    same = {
        key: {part: row[part] for part in ("file_name", "column_name", "min", "max")}
        for key, row in ours.items()
    }
    assert same == {key: {part: held[key][part] for part in same[key]} for key in same}
    assert all(row["is_tight_bound"] for row in ours.values())
    # Hudi adds up what older slices and replaced file groups hold as well.
    assert all(row["value_count"] <= held[key]["value_count"] for key, row in ours.items())
    assert any(row["value_count"] == held[key]["value_count"] for key, row in ours.items())


@each_table
def test_the_record_index_is_that_of_hudi(hudi_table: Unpack, name: str) -> None:
    table = opened(hudi_table(name))
    held = values(table.metadata.read("record_index"), decode_record_locations)
    found = table.deriver.of_files("record_index", table.view.slices())
    ours = values(found, decode_record_locations)
    assert ours
    places = {key: (row["partition_path"], row["file_id"]) for key, row in ours.items()}
    assert places == {key: (row["partition_path"], row["file_id"]) for key, row in held.items()}
    # An update in place leaves the entry of the insert, which a build no longer knows.
    offsets = {ours[key]["instant_ms"] - held[key]["instant_ms"] for key in ours}
    if table.config.version == 9:
        assert all(offset % HOUR_MS == 0 for offset in offsets)


@each_table
def test_secondary_indexes_are_those_of_hudi(hudi_table: Unpack, name: str) -> None:
    table = opened(hudi_table(name))
    for index in table.secondary:
        ours = keys(table.deriver.of_files(index, table.view.slices()))
        assert ours
        assert ours == keys(table.metadata.read(index))


def keys(entries: Iterable[MetadataRecords]) -> list[str]:
    return sorted(key for some in entries for key in some.keys.to_pylist())


@each_table
def test_indexes_of_hudi_are_valid(hudi_table: Unpack, name: str) -> None:
    table = opened(hudi_table(name))
    assert validate_metadata(table.deriver.table).to_pylist() == []


def test_a_lost_log_of_an_index_is_noticed(hudi_table: Unpack, tmp_path: Path) -> None:
    folder = tmp_path / "table"
    shutil.copytree(hudi_table("cow-v9_txns_simple_meta"), folder)
    logs = sorted(indexed_files(folder, "record_index", ".log."))
    logs[-1].unlink()
    table = opened(folder)
    problems = validate_metadata(table.deriver.table).to_pylist()
    assert {row["partition"] for row in problems} == {"record_index"}
    assert {row["problem"] for row in problems} & {"missing", "wrong"}


def indexed_files(folder: Path, partition: str, part: str) -> Iterator[Path]:
    for path in (folder / ".hoodie" / "metadata" / partition).iterdir():
        if part in path.name and path.stat().st_size > 200:
            yield path
