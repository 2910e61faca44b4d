"""Apache Hudi on our metadata tables, with every index on: it reads, skips, looks up and writes.

Whether Hudi really leaves files out is seen by taking away those that cannot hold what is asked
for: a query that reads one of them fails. Hudi's own validator, `HoodieMetadataTableValidator`, is
in `hudi-utilities` and not in the bundle for Spark; the procedure `validate_metadata_table_files`
is, and compares the partition `files` with storage.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.beside_hudi import YES, shows
from tests.support.hudi_peer import HudiError, HudiPeer
from tests.support.hudi_tables import HudiTable
from tests.support.tables import a_table, columns, rows_of
from tests.support.two_readers import META, Row, in_order

import headwater as hw
from headwater.config.table_options import TableType
from headwater.metadata.view import load_view
from headwater.table import Table

SCHEMA = columns("id string not null, city string, ts long, fare int, note string")
COW, MOR = TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ
OPTIONS = {
    "headwater.storage.fsync": "false",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
    "hoodie.metadata.compact.max.delta.commits": "6",
    "hoodie.log.compaction.blocks.threshold": "2",
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.clean.commits.retained": "2",
    "hoodie.keep.min.commits": "4",
    "hoodie.keep.max.commits": "6",
    "hoodie.write.lock.provider": "in_process",
}
THEIR_INDEXES = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
}
SKIPPING = {**THEIR_INDEXES, "hoodie.enable.data.skipping": "true"}
NOT_SKIPPING = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "false"}
THEIR_WRITES = {
    **THEIR_INDEXES,
    "hoodie.embed.timeline.server": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.upsert.shuffle.parallelism": "2",
    "hoodie.delete.shuffle.parallelism": "2",
}

each_type = pytest.mark.parametrize("table_type", [COW, MOR], ids=["cow", "mor"])


class Both:
    """One table, Hudi and us."""

    def __init__(self, hudi: HudiPeer, table: Table) -> None:
        self.hudi = hudi
        self.table = table
        self.name = f"both_{len(hudi.sql('SHOW TABLES'))}_{table.name}"
        hudi.execute(f"CREATE TABLE {self.name} USING hudi LOCATION '{table.uri}'")
        self._clock = 0

    def rows(self, fares: Mapping[str, int], *, has_notes: bool = True) -> pa.Table:
        """Return rows that are newer than all before."""
        self._clock += 1
        values = [
            {
                "id": key,
                "city": key.partition("-")[0],
                "ts": self._clock,
                "fare": fare,
                "note": f"note {fare}" if has_notes else None,
            }
            for key, fare in fares.items()
        ]
        return pa.Table.from_pylist(values, schema=SCHEMA)

    def check(self, step: str, *where: str) -> list[Row]:
        """Check that both read the same rows through the metadata table; return them."""
        self.table = self.table.reload()
        view = load_view(self.table.storage, self.table.config)
        for index in self.table.config.metadata_partitions:
            assert view.has_index(index), f"we do not trust {index} after {step}"
        ours = in_order(self.table.read_arrow([*META, *SCHEMA.names]))
        theirs = in_order(self.hudi.read(self.table.uri, SKIPPING))
        assert theirs == ours, f"Hudi reads other rows than we do after {step}"
        for condition in where:
            wanted = in_order(self.table.read_arrow([*META, *SCHEMA.names], where=condition))
            found = in_order(self.hudi.read(self.table.uri, SKIPPING, where=condition))
            assert found == wanted, f"Hudi finds other rows by {condition!r} after {step}"
        text = f"CALL validate_metadata_table_files(table => '{self.name}')"
        assert self.hudi.sql(text).to_pylist() == [], f"Hudi finds other files after {step}"
        wrong = [
            problem
            for problem in self.table.inspect.validate_metadata().to_pylist()
            if problem["problem"] != "stale"
        ]
        assert wrong == [], f"the indexes are wrong after {step}"
        return ours

    def write_by_hudi(self, rows: pa.Table, operation: str = "upsert", **options: str) -> None:
        chosen = {
            **THEIR_WRITES,
            "hoodie.table.name": self.table.name,
            "hoodie.datasource.write.operation": operation,
            **options,
        }
        self.hudi.write(rows, self.table.uri, chosen)


def fares(found: list[Row]) -> dict[str, int]:
    return {row["id"]: row["fare"] for row in found}


def new_table(path: Path, table_type: TableType, index: str, **more: Any) -> Table:
    return hw.create_table(
        path / f"trips_{table_type.lower()}_{index}",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type=table_type,
        index=index,
        options=OPTIONS,
        **more,
    )


# Reading ---------------------------------------------------------------------------------------


@each_type
def test_hudi_reads_through_our_indexes_after_operations_and_services(
    hudi: HudiPeer, tmp_path: Path, table_type: TableType
) -> None:
    table = new_table(tmp_path, table_type, "bucket", buckets=1)
    both, services = Both(hudi, table), table.services
    table.insert(both.rows({"sf-a": 1, "sf-b": 2, "ny-a": 3, "ny-b": 4}))
    table.upsert(both.rows({"sf-a": 10, "la-a": 5}, has_notes=False))
    table.delete(both.rows({"ny-b": 0}))
    both.check("writes and a delete", "fare >= 5", "id = 'sf-a'", "note = 'note 3'")
    if table_type is MOR:
        table.upsert(both.rows({"sf-a": 11}))
        services.log_compact()
        services.compact()
    services.schedule_clustering("fare")
    services.cluster()
    table.upsert(both.rows({"sf-b": 20, "zz-a": 6}))
    both.check("compaction and clustering", "fare >= 11", "id = 'sf-b'")
    saved = services.savepoint()
    table.overwrite_partitions(both.rows({"sf-n": 1}))
    table.delete_partitions(["city=ny"])
    both.check("replaced partitions", "fare < 6", "city = 'ny'", "id = 'sf-b'")
    services.restore(saved.instant)
    services.delete_savepoint(saved.instant)
    found = both.check("a restore", "id = 'sf-b'")
    assert fares(found)["sf-b"] == 20
    for fare in range(30, 36):
        table.upsert(both.rows({"sf-a": fare, f"ny-{fare}": fare}))
    services.clean()
    services.archive()
    both.check("a clean and archival", "fare = 33", "id = 'ny-34'")


TYPED = columns(
    "id string not null, flag boolean, small int, big long, single float, "
    "double double, price decimal(12,2), day date, at timestamp, text string"
)


def typed_rows(first: int) -> pa.Table:
    """Return rows of one file; files hold other values than each other in every column."""
    values = [
        {
            "id": f"k{number:03d}",
            "flag": first >= 100,
            "small": number,
            "big": number * 10_000_000_000,
            "single": number / 4,
            "double": number / 8,
            "price": Decimal(number).scaleb(-2),
            "day": date.fromordinal(730_000 + number),
            "at": datetime.fromtimestamp(1_700_000_000 + number, UTC),
            "text": f"é{number:03d}",
        }
        for number in range(first, first + 5)
    ]
    nothing: Row = dict.fromkeys(TYPED.names) | {"id": f"k{first}-null"}
    return pa.Table.from_pylist([*values, nothing], schema=TYPED)


CONDITIONS = (
    "small = 102",
    "big >= 1020000000000",
    "single > 25.25",
    "double > 12.6",
    "price >= 1.02",
    "day >= DATE '1999-12-14'",
    "at > TIMESTAMP '2023-11-14 22:14:59'",
    "text = 'é102'",
    "small IS NOT NULL AND small > 100",
)


@each_type
def test_hudi_skips_files_by_our_statistics(
    hudi: HudiPeer, tmp_path: Path, table_type: TableType
) -> None:
    table = hw.create_table(
        tmp_path / "typed",
        schema=TYPED,
        record_key="id",
        table_type=table_type,
        index="simple",
        options=OPTIONS,
    )
    for first in (0, 50, 100):
        table.bulk_insert(typed_rows(first))
    expected = {
        where: in_order(hudi.read(table.uri, NOT_SKIPPING, where=where)) for where in CONDITIONS
    }
    assert all(expected.values())
    kept = {row["_hoodie_file_name"] for found in expected.values() for row in found}
    assert len(kept) == 1, "the conditions ask for one of the files"
    # Spark hands `flag = true` over as the bare column, which Hudi makes nothing of.
    flagged = in_order(hudi.read(table.uri, SKIPPING, where="flag = true"))
    assert {row["id"] for row in flagged} == {f"k{number}" for number in range(100, 105)}
    for file in Path(table.uri).glob("*.parquet"):
        if file.name not in kept:
            file.unlink()
    for where in CONDITIONS:
        assert in_order(hudi.read(table.uri, SKIPPING, where=where)) == expected[where], where
    with pytest.raises(HudiError):
        hudi.read(table.uri, NOT_SKIPPING, where=CONDITIONS[1])


def test_hudi_looks_records_up_in_our_indexes(hudi: HudiPeer, tmp_path: Path) -> None:
    table = new_table(tmp_path, COW, "record_index")
    both = Both(hudi, table)
    table.insert(both.rows({f"{city}-{n}": n for city in ("la", "ny", "sf") for n in range(5)}))
    table.upsert(both.rows({"ny-3": 33, "qq-1": 1}))
    table.indexes.create("secondary_index_by_note", columns=["note"])
    table.upsert(both.rows({"ny-4": 44}))
    both.check("an index build", "id = 'ny-3'", "note = 'note 44'")
    asked = {"id = 'qq-1'": "qq", "note = 'note 44'": "ny"}
    options = {**SKIPPING, "hoodie.metadata.index.column.stats.enable": "false"}
    for where, city in asked.items():
        copy = tmp_path / f"only-{city}"
        shutil.copytree(table.uri, copy)
        for file in copy.glob("*/*.parquet"):
            if file.parent.name != f"city={city}":
                file.unlink()
        found = hudi.read(str(copy), options, where=where)
        assert found.num_rows == 1, where
        with pytest.raises(HudiError):
            hudi.read(str(copy), NOT_SKIPPING, where=where)


# Writing in turns ------------------------------------------------------------------------------

TURNS = {
    "cow-record-index": (COW, "record_index", {"hoodie.index.type": "RECORD_INDEX"}),
    "mor-record-index": (MOR, "record_index", {"hoodie.index.type": "RECORD_INDEX"}),
    "mor-bloom": (MOR, "bloom", {"hoodie.index.type": "BLOOM"}),
}


@pytest.mark.parametrize("turn", TURNS.values(), ids=TURNS.keys())
@shows("metadata table with every index", we_read=YES, we_write=YES, they_read=YES)
def test_both_write_with_every_index(
    hudi: HudiPeer, tmp_path: Path, turn: tuple[TableType, str, dict[str, str]]
) -> None:
    """Hudi finds records by the index that we keep, compacts, and we go on from there."""
    table_type, index, theirs = turn
    table = new_table(tmp_path, table_type, index)
    both = Both(hudi, table)
    expected: dict[str, int] = {}

    def update(changes: dict[str, int]) -> pa.Table:
        expected.update(changes)
        return both.rows(changes)

    table.insert(update({"sf-a": 1, "sf-b": 2, "ny-a": 3}))
    for number in range(1, 4):
        inline = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "2"}
        more = inline if table_type is MOR and number == 2 else {}
        changes = update({"sf-a": 10 * number, f"la-{number}": number, "ny-a": number})
        both.write_by_hudi(changes, **theirs, **more)
        found = both.check(f"Hudi's write {number}", "id = 'sf-a'", f"fare = {10 * number}")
        assert fares(found) == expected
        table = both.table
        table.upsert(update({"sf-a": 10 * number + 5, f"sf-{number}": 7, f"la-{number}": 70}))
        if number == 2:
            table.delete(both.rows({"sf-b": 0}))
            del expected["sf-b"]
            if table_type is MOR:
                table.services.compact()
        found = both.check(f"our write {number}", f"id = 'la-{number}'")
        assert fares(found) == expected
    both.write_by_hudi(both.rows({"la-1": 0}), "delete", **theirs)
    del expected["la-1"]
    assert fares(both.check("Hudi's delete", "id = 'la-1'")) == expected
    assert {"files", "column_stats", "bloom_filters", "record_index", "partition_stats"} <= set(
        both.table.config.metadata_partitions
    )


def test_hudi_takes_the_metadata_table_away_and_we_build_it_again(
    hudi: HudiPeer, tmp_path: Path
) -> None:
    """That is what Hudi does when it writes without one; our writers and readers go on."""
    table = new_table(tmp_path, COW, "simple")
    both = Both(hudi, table)
    table.insert(both.rows({"sf-a": 1, "ny-a": 2}))
    both.write_by_hudi(
        both.rows({"sf-a": 3}), **{"hoodie.metadata.enable": "false", "hoodie.index.type": "SIMPLE"}
    )
    assert table.reload().config.metadata_partitions == ()
    table.upsert(both.rows({"ny-a": 4, "la-a": 5}))
    assert fares(in_order(table.read_arrow())) == {"sf-a": 3, "ny-a": 4, "la-a": 5}
    fresh = table.reload()
    fresh.indexes.create(["files", "column_stats", "record_index"])
    fresh.upsert(both.rows({"sf-a": 6}))
    found = both.check("indexes were built again", "id = 'sf-a'", "fare = 5")
    assert fares(found) == {"sf-a": 6, "ny-a": 4, "la-a": 5}


def test_hudi_leaves_records_in_logs_of_buckets_out_of_the_record_index(
    hudi: HudiPeer, tmp_path: Path
) -> None:
    """With Hudi alone too; it does not find them by key afterwards, and we do (N-134)."""
    options = {
        **THEIR_WRITES,
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "1",
    }
    described = {
        "hoodie.datasource.write.table.type": MOR,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "",
        "hoodie.table.ordering.fields": "ts",
    }
    some = rows_of(SCHEMA)
    alone = HudiTable(hudi, tmp_path / "alone", {**described, **options})
    alone.write(some(("a", "sf", 1, 1)))
    alone.write(some(("b", "sf", 1, 2)))
    alone.write(some(("c", "sf", 1, 3)))
    assert hudi.read(alone.uri, NOT_SKIPPING).num_rows == 3
    found = {key: hudi.read(alone.uri, SKIPPING, where=f"id = '{key}'").num_rows for key in "abc"}
    assert found["c"] == 0

    ours = a_table(tmp_path, SCHEMA, ordering="ts", table_type=MOR, buckets=1, options=OPTIONS)
    table = ours.create()
    table.upsert(some(("a", "sf", 1, 1)))
    hudi.write(
        some(("b", "sf", 1, 2)),
        table.uri,
        {
            **options,
            "hoodie.table.name": table.name,
            "hoodie.datasource.write.operation": "upsert",
        },
    )
    table = table.reload()
    assert hudi.read(table.uri, SKIPPING, where="id = 'b'").num_rows == 0
    assert table.read_arrow(["fare"], where="id = 'b'").to_pylist() == [{"fare": 2}]
    problems = table.inspect.problems().to_pylist()
    assert [one["problem"] for one in problems] == ["missing: b"]
    table.indexes.drop("record_index")
    table.reload().indexes.create("record_index")
    assert hudi.read(table.uri, SKIPPING, where="id = 'b'").num_rows == 1
    assert table.reload().inspect.problems().num_rows == 0
