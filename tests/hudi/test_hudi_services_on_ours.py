"""Apache Hudi's table services on tables of ours: rows stay, both readers agree, we write on."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.hudi_peer import HudiPeer
from tests.support.hudi_procedures import call, register
from tests.support.tables import columns
from tests.support.two_readers import NO_METADATA_TABLE, TwoReaders

import headwater as hw
from headwater.config.table_options import TableType
from headwater.errors import ConflictError, ErrorKind
from headwater.table import Table

SCHEMA = columns("id string not null, city string, ts long, fare int")

COW, MOR = TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ
DEADLINE_S = 600
SMALL = {
    "hoodie.embed.timeline.server": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.upsert.shuffle.parallelism": "2",
    **NO_METADATA_TABLE,
}


class Served:
    """A table of ours, the fares that must be in it, and Hudi to run its services."""

    def __init__(self, hudi: HudiPeer, table: Table) -> None:
        self.table = table
        self.hudi = hudi
        self._both = TwoReaders(hudi, table)
        self.fares: dict[str, int] = {}
        self._clock = 0

    def rows(self, fares: dict[str, int]) -> pa.Table:
        """Return rows that are newer than all before, and expect them from now on."""
        self._clock += 1
        self.fares |= fares
        rows = [
            {"id": key, "city": key[:2], "ts": self._clock, "fare": fare}
            for key, fare in fares.items()
        ]
        return pa.Table.from_pylist(rows, schema=SCHEMA)

    def delete(self, key: str) -> None:
        del self.fares[key]
        self.table.delete(pa.table({"id": [key], "city": [key[:2]]}))

    def check(self, step: str) -> None:
        found = self._both.check_snapshot(f"after {step}")
        assert {row["id"]: row["fare"] for row in found} == self.fares, f"wrong rows after {step}"

    def check_and_write_on(self, step: str) -> None:
        """Check, then write to old and new records, and check again."""
        self.check(step)
        some = next(iter(self.fares))
        self.upsert(self.rows({some: self._clock, f"{some[:2]}-{self._clock}": 1}))
        self.check(f"{step} and a write of ours")

    def upsert(self, rows: pa.Table) -> None:
        """Write, as soon as what Hudi planned is left to us: a journal takes it over then."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                self.table.upsert(rows)
            except ConflictError as error:
                is_live = error.kind is ErrorKind.FOREIGN_WRITER and "not completed" in str(error)
                if not is_live or time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
            else:
                return

    def call(self, procedure: str, arguments: str = "") -> None:
        call(self.hudi, procedure, f"path => '{self.table.uri}'{arguments}")

    def write_by_hudi(self, fares: dict[str, int], **options: str) -> None:
        chosen = {"hoodie.table.name": self.table.name, **SMALL, **options}
        self.hudi.write(self.rows(fares), self.table.uri, chosen)

    def actions(self) -> list[str]:
        timeline = self.table.inspect.timeline()
        assert set(timeline["state"].to_pylist()) == {"completed"}
        return [str(action) for action in timeline["action"].to_pylist()]

    def last_write(self) -> str:
        timeline = self.table.inspect.timeline().to_pylist()
        writes = [row for row in timeline if row["action"] in ("commit", "deltacommit")]
        return str(writes[-1]["requested_time"])


def served(
    hudi: HudiPeer, path: Path, table_type: TableType, index: str, decided: dict[str, str]
) -> Served:
    table = hw.create_table(
        path / "trips",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type=table_type,
        index=index,
        options={
            **decided,
            "headwater.storage.fsync": "false",
            # Hudi writes without one here, and would take ours away; test_one_metadata_table has
            # both.
            "hoodie.metadata.enable": "false",
            "hoodie.client.heartbeat.interval_in_ms": "1000",
        },
    )
    return Served(hudi, table)


@pytest.mark.parametrize("index", ["bucket", "simple"])
def test_compaction(hudi: HudiPeer, tmp_path: Path, index: str, decided: dict[str, str]) -> None:
    trips = served(hudi, tmp_path, MOR, index, decided)
    trips.table.bulk_insert(trips.rows({"sf-a": 1, "sf-b": 2, "ny-a": 3}))
    trips.table.upsert(trips.rows({"sf-a": 10, "la-a": 4}))
    trips.delete("ny-a")
    trips.call(
        "run_compaction",
        ", op => 'scheduleAndExecute', options => 'hoodie.compact.inline.max.delta.commits=1'",
    )
    assert trips.actions()[-1] == "compaction"
    trips.check_and_write_on("a compaction that was called")
    trips.write_by_hudi(
        {"sf-b": 20, "la-b": 5},
        **{"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"},
    )
    assert trips.actions()[-1] == "compaction"
    trips.check_and_write_on("an inline compaction")
    assert trips.actions().count("rollback") == 0


def test_a_compaction_that_is_only_scheduled(
    hudi: HudiPeer, tmp_path: Path, decided: dict[str, str]
) -> None:
    trips = served(hudi, tmp_path, MOR, "bucket", decided)
    trips.table.bulk_insert(trips.rows({"sf-a": 1, "sf-b": 2}))
    trips.table.upsert(trips.rows({"sf-a": 10}))
    trips.call(
        "run_compaction",
        ", op => 'schedule', options => 'hoodie.compact.inline.max.delta.commits=1'",
    )
    trips.check_and_write_on("a compaction that was scheduled")
    timeline = trips.table.inspect.timeline().to_pylist()
    assert ("compaction", "requested") in {(row["action"], row["state"]) for row in timeline}
    trips.call("run_compaction", ", op => 'run'")
    assert "compaction" in trips.actions()
    trips.check_and_write_on("the compaction of what we wrote around")


def test_plans_of_ours_that_hudi_executes(
    hudi: HudiPeer, tmp_path: Path, decided: dict[str, str]
) -> None:
    trips = served(hudi, tmp_path, MOR, "bucket", decided)
    trips.table.bulk_insert(trips.rows({"sf-a": 1, "sf-b": 2}))
    for turn in range(2):
        trips.table.upsert(trips.rows({"sf-a": turn, "ny-a": turn}))
        assert trips.table.services.schedule_compaction() is not None
        trips.check_and_write_on("a plan of ours")
        if turn == 0:
            trips.call("run_compaction", ", op => 'run'")
        else:
            trips.write_by_hudi({"sf-b": 9}, **{"hoodie.compact.inline": "true"})
        assert "compaction" in trips.actions()
        trips.check_and_write_on("its execution by Hudi")
    assert trips.actions().count("compaction") >= 2


@pytest.mark.parametrize("table_type", [COW, MOR], ids=["cow", "mor"])
def test_clustering(
    hudi: HudiPeer, tmp_path: Path, table_type: TableType, decided: dict[str, str]
) -> None:
    trips = served(hudi, tmp_path, table_type, "simple", decided)
    for number in range(3):
        trips.table.insert(trips.rows({f"sf-{number}a": 3 - number, f"ny-{number}a": number}))
    trips.table.upsert(trips.rows({"sf-0a": 10}))
    trips.call("run_clustering", ", order => 'fare'")
    assert trips.actions()[-1] == "clustering"
    trips.check_and_write_on("clustering")


@pytest.mark.parametrize("table_type", [COW, MOR], ids=["cow", "mor"])
def test_clean_savepoint_restore_rollback_and_archive(
    hudi: HudiPeer, tmp_path: Path, table_type: TableType, decided: dict[str, str]
) -> None:
    trips = served(hudi, tmp_path, table_type, "bucket", decided)
    trips.table.bulk_insert(trips.rows({"sf-a": 1, "sf-b": 2, "ny-a": 3}))
    for fare in (10, 11, 12):
        trips.table.upsert(trips.rows({"sf-a": fare, "ny-a": fare}))
    if table_type is MOR:
        trips.call(
            "run_compaction",
            ", op => 'scheduleAndExecute', options => 'hoodie.compact.inline.max.delta.commits=1'",
        )

    held = len(data_files(tmp_path))
    trips.table.upsert(trips.rows({"sf-a": 13}))
    trips.write_by_hudi(
        {"sf-b": 20},
        **{"hoodie.clean.automatic": "true", "hoodie.clean.commits.retained": "1"},
    )
    assert trips.actions()[-1] == "clean"
    assert len(data_files(tmp_path)) < held, "Hudi cleaned no file of ours"
    trips.check_and_write_on("cleaning")

    saved = trips.last_write()
    trips.call("create_savepoint", f", commit_time => '{saved}'")
    before = dict(trips.fares)
    trips.check_and_write_on("a savepoint")
    trips.call("rollback_to_savepoint", f", instant_time => '{saved}'")
    assert trips.actions()[-1] == "restore"
    trips.fares = before
    trips.check_and_write_on("restoring to the savepoint")
    trips.call("delete_savepoint", f", instant_time => '{saved}'")

    before = dict(trips.fares)
    trips.table.upsert(trips.rows({"sf-a": 99, "la-z": 1}))
    name = f"rolled_back_{table_type.lower()}"
    register(hudi, name, trips.table.uri)
    which = f"table => '{name}', instant_time => '{trips.last_write()}'"
    call(hudi, "rollback_to_instant", which)
    assert trips.actions()[-1] == "rollback"
    trips.fares = before
    trips.check_and_write_on("rolling back a commit of ours")

    for fare in range(6):
        trips.table.upsert(trips.rows({"sf-a": fare}))
    first, count = trips.table.inspect.timeline()["requested_time"][0], len(trips.actions())
    trips.call("archive_commits", ", min_commits => 3, max_commits => 5, retain_commits => 2")
    assert len(trips.actions()) < count, "Hudi archived nothing"
    assert first not in trips.table.inspect.timeline()["requested_time"]
    trips.check_and_write_on("archiving")
    trips.write_by_hudi({"sf-b": 30, "la-y": 7})
    trips.check_and_write_on("a write of Hudi behind the archive")
    assert trips.table.reload().config == trips.table.config


def data_files(path: Path) -> list[Path]:
    found = [*path.rglob("*.parquet"), *path.rglob(".*.log.*")]
    return [file for file in found if file.suffix != ".crc"]
