"""Our clean, savepoint, restore, rollback of commits and archive, as Apache Hudi sees them.

Hudi reads the same rows after each of them, and goes on from there. On a copy of the same table it
plans the same clean.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.hudi_peer import HudiPeer
from tests.support.tables import columns
from tests.support.two_readers import NO_METADATA_TABLE, TwoReaders

import headwater as hw
from headwater.config.table_options import TableType
from headwater.format.timeline.records import decode_record
from headwater.model.plans import CleanerPlan
from headwater.model.service_metadata import CleanMetadata
from headwater.table import Table

SCHEMA = columns("id string not null, city string, ts long, fare int")
OPTIONS = {
    "headwater.storage.fsync": "false",
    "hoodie.clean.commits.retained": "2",
    "hoodie.keep.min.commits": "3",
    "hoodie.keep.max.commits": "4",
}
HUDI_OPTIONS = {
    "hoodie.embed.timeline.server": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.upsert.shuffle.parallelism": "2",
    **NO_METADATA_TABLE,
}
CALL = """
settings = {"hoodie.metadata.enable": "false", "hoodie.embed.timeline.server": "false"}
for key, value in settings.items():
    spark.conf.set(key, value)
try:
    result = [row.asDict() for row in spark.sql(text).collect()]
finally:
    for key in settings:
        spark.conf.unset(key)
"""
TIMELINE = ".hoodie/timeline"

each_type = pytest.mark.parametrize("table_type", list(TableType), ids=["cow", "mor"])


class Trips:
    """A table of ours and the number of writes to it."""

    def __init__(self, path: Path, table_type: TableType) -> None:
        self.table: Table = hw.create_table(
            path,
            schema=SCHEMA,
            record_key="id",
            partition_by="city",
            ordering="ts",
            table_type=table_type,
            buckets=1,
            options=OPTIONS,
        )
        self._ts = 0

    def rows(self, fares: dict[str, int]) -> pa.Table:
        self._ts += 1
        rows = [
            {"id": key, "city": key[:2], "ts": self._ts, "fare": fare}
            for key, fare in fares.items()
        ]
        return pa.Table.from_pylist(rows, schema=SCHEMA)

    def last_write(self) -> str:
        rows = self.table.inspect.timeline().to_pylist()
        writes = [row for row in rows if row["action"] in ("commit", "deltacommit")]
        return str(writes[-1]["requested_time"])


@each_type
def test_hudi_reads_and_writes_on_after_each_service(
    hudi: HudiPeer, tmp_path: Path, table_type: TableType
) -> None:
    trips = Trips(tmp_path / "trips", table_type)
    table, services = trips.table, trips.table.services
    both = TwoReaders(hudi, table)
    table.bulk_insert(trips.rows({"sf-a": 1, "sf-b": 2, "ny-a": 3}))
    for fare in range(10, 14):
        table.upsert(trips.rows({"sf-a": fare, "ny-a": fare}))
        if table_type is TableType.MERGE_ON_READ:
            services.compact()
    assert services.clean()
    both.check_snapshot("after a clean")
    saved = services.savepoint(comment="hold")
    at_savepoint = both.check_snapshot("after a savepoint")
    table.upsert(trips.rows({"sf-a": 20, "la-a": 1}))
    table.overwrite(trips.rows({"sf-c": 1}))
    both.check_snapshot("before the restore")
    assert len(services.restore(saved.instant).undone) == 2
    assert both.check_snapshot("after a restore") == at_savepoint
    services.delete_savepoint(saved.instant)
    table.upsert(trips.rows({"sf-a": 30, "la-b": 1}))
    services.rollback(trips.last_write())
    assert both.check_snapshot("after the rollback of a commit") == at_savepoint
    for fare in range(40, 45):
        table.upsert(trips.rows({"sf-a": fare}))
    services.clean()
    assert services.archive().archived
    both.check_snapshot("after archival")
    hudi.write(
        trips.rows({"sf-a": 99, "zz-a": 1}),
        table.uri,
        {"hoodie.table.name": table.name, **HUDI_OPTIONS},
    )
    found = both.check_snapshot("after a write of Hudi")
    assert {row["id"]: row["fare"] for row in found}["sf-a"] == 99


@each_type
def test_hudi_plans_the_same_clean(hudi: HudiPeer, tmp_path: Path, table_type: TableType) -> None:
    trips = Trips(tmp_path / "ours", table_type)
    table = trips.table
    table.bulk_insert(trips.rows({"sf-a": 1, "sf-b": 2, "ny-a": 3}))
    for fare in range(10, 15):
        table.upsert(trips.rows({"sf-a": fare, f"ny-{fare}": fare}))
        if table_type is TableType.MERGE_ON_READ and fare % 2:
            table.services.compact()
    shutil.copytree(tmp_path / "ours", tmp_path / "theirs")
    (done,) = table.services.clean()
    name = f"cleaned_{table_type.lower()}"
    hudi.execute(f"CREATE TABLE {name} USING hudi LOCATION '{tmp_path / 'theirs'}'")
    hudi.run(CALL, text=f"CALL run_clean(table => '{name}', retain_commits => 2)")
    assert _data_files(tmp_path / "ours") == _data_files(tmp_path / "theirs")
    ours, theirs = _clean_of(tmp_path / "ours"), _clean_of(tmp_path / "theirs")
    assert ours[0].earliest_instant_to_retain == theirs[0].earliest_instant_to_retain
    for field in (
        "last_completed_commit_timestamp",
        "policy",
        "version",
        "files_to_be_deleted_per_partition",
        "partitions_to_be_deleted",
    ):
        assert getattr(ours[0], field) == getattr(theirs[0], field), field
    assert _hudis(ours[0].extra_metadata) == (theirs[0].extra_metadata or {})
    assert _names(ours[0]) == _names(theirs[0])
    for field in (
        "total_files_deleted",
        "earliest_commit_to_retain",
        "last_completed_commit_timestamp",
        "version",
        "bootstrap_partition_metadata",
    ):
        assert getattr(ours[1], field) == getattr(theirs[1], field), field
    assert _hudis(ours[1].extra_metadata) == (theirs[1].extra_metadata or {})
    parts = ours[1].partition_metadata.keys() | theirs[1].partition_metadata.keys()
    for partition in parts:
        mine, other = (record[1].partition_metadata[partition] for record in (ours, theirs))
        assert sorted(mine.success_delete_files) == sorted(other.success_delete_files)
        assert sorted(mine.delete_path_patterns) == sorted(other.delete_path_patterns)
        assert (mine.policy, mine.is_partition_deleted) == (
            other.policy,
            other.is_partition_deleted,
        )
    assert done.deleted_paths


def _hudis(extra: Mapping[str, str] | None) -> dict[str, str]:
    """Return extra metadata without what a clean of ours tells the next one."""
    return {key: value for key, value in (extra or {}).items() if not key.startswith("headwater.")}


def _clean_of(path: Path) -> tuple[CleanerPlan, CleanMetadata]:
    (request,) = (path / TIMELINE).glob("*.clean.requested")
    (completed,) = (path / TIMELINE).glob("*_*.clean")
    return (
        decode_record(CleanerPlan, request.read_bytes(), path=request.name),
        decode_record(CleanMetadata, completed.read_bytes(), path=completed.name),
    )


def _names(plan: CleanerPlan) -> dict[str, set[str]]:
    files = plan.file_paths_to_be_deleted_per_partition or {}
    return {
        partition: {(info.file_path or "").rpartition("/")[2] for info in infos}
        for partition, infos in files.items()
    }


def _data_files(path: Path) -> set[str]:
    found = [*path.rglob("*.parquet"), *path.rglob(".*.log.*")]
    return {
        str(file.relative_to(path))
        for file in found
        if file.suffix != ".crc" and ".hoodie" not in file.parts
    }
