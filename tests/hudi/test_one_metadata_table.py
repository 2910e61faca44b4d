"""Apache Hudi and we keep one metadata table in turns, compactions of it included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.support.hudi_peer import HudiPeer
from tests.support.tables import columns

import headwater as hw
from headwater.kernel.timeline.active import load_active
from headwater.kernel.view.file_index import ListingFileIndex
from headwater.metadata.files_partition import MetadataFiles
from headwater.metadata.table import load_metadata_table
from headwater.table import Table

SCHEMA = columns("id string not null, city string, ts long")
OPTIONS = {
    "headwater.storage.fsync": "false",
    "hoodie.metadata.compact.max.delta.commits": "4",
}
THEIRS = {
    "hoodie.embed.timeline.server": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.upsert.shuffle.parallelism": "2",
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.index.type": "SIMPLE",
    "hoodie.metadata.enable": "true",
}


def rows(*values: tuple[str, int]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": key, "city": "sf" if key < "d" else "ny", "ts": ts} for key, ts in values],
        schema=SCHEMA,
    )


def check(hudi: HudiPeer, table: Table, expected: dict[str, int], step: str) -> None:
    by_index = hudi.read(table.uri, {"hoodie.metadata.enable": "true"})
    assert _values(by_index) == expected, f"Hudi reads other rows {step}"
    assert _values(table.read_arrow()) == expected, f"we read other rows {step}"
    timeline = load_active(table.storage, ".hoodie/timeline")
    index = load_metadata_table(table.storage, table.reload().config, timeline)
    assert index.is_behind is None, step
    told = sorted((f.path, f.size_bytes) for f in MetadataFiles(index).list_data_files())
    listed = ListingFileIndex(table.storage).list_data_files()
    assert told == sorted((file.path, file.size_bytes) for file in listed), step


def _values(found: pa.Table) -> dict[str, Any]:
    return {row["id"]: row["ts"] for row in found.select(["id", "ts"]).to_pylist()}


def test_both_keep_one_metadata_table(
    hudi: HudiPeer, tmp_path: Path, decided: dict[str, str]
) -> None:
    table = hw.create_table(
        tmp_path / "trips",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering="ts",
        index="simple",
        options={**OPTIONS, **decided},
    )
    expected: dict[str, int] = {}
    for number in range(9):
        table.upsert(rows((f"b{number}", number), ("e", number)))
        expected |= {f"b{number}": number, "e": number}
    check(hudi, table, expected, "after our commits and compactions")
    for number in range(100, 103):
        written = rows((f"c{number}", number), ("e", 2 * number))
        hudi.write(written, table.uri, {**THEIRS, "hoodie.table.name": table.name})
        expected |= {f"c{number}": number, "e": 2 * number}
        check(hudi, table, expected, f"after Hudi's commit {number}")
        table = table.reload()
        table.upsert(rows((f"f{number}", number), ("e", 2 * number + 1)))
        expected |= {f"f{number}": number, "e": 2 * number + 1}
        check(hudi, table, expected, f"after our commit {number}")
    own = load_active(table.storage, ".hoodie/metadata/.hoodie/timeline")
    assert sum(instant.action.value == "compaction" for instant in own.completed) >= 2
    # Hudi has added indexes of its own, which we have kept.
    assert set(table.reload().config.metadata_partitions) > {"files"}
    assert table.inspect.validate_metadata().num_rows == 0
