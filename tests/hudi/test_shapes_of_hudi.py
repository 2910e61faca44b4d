"""Shapes of tables that Apache Hudi's users have: what we make of each, and Hudi after us."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.beside_hudi import YES, refused, shows, their_limit
from tests.support.hudi_peer import HudiError, HudiPeer
from tests.support.hudi_tables import HudiTable
from tests.support.tables import COW, MOR, columns, rows_of

import headwater as hw
from headwater.errors import InvalidInputError, UnsupportedError

rows = rows_of(columns("id string not null, city string, ts long, seq long, fare long"))
SIMPLE = {"hoodie.index.type": "SIMPLE"}
BUCKETS = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}
CONSISTENT = {**BUCKETS, "hoodie.index.bucket.engine": "CONSISTENT_HASHING"}


def made_by_hudi(
    hudi: HudiPeer,
    path: Path,
    table_type: str,
    options: dict[str, str],
    *,
    ordering: str = "ts",
    first: str = "insert",
) -> HudiTable:
    """Return a table after an insert and an upsert by Hudi."""
    described = {
        "hoodie.datasource.write.table.type": table_type,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "city",
        "hoodie.table.ordering.fields": ordering,
    }
    table = HudiTable(hudi, path / "trips", {**described, **options})
    table.write(rows(("a", "sf", 1, 1, 1), ("b", "ny", 1, 1, 2), ("c", "sf", 1, 1, 3)), first)
    table.write(rows(("a", "sf", 2, 1, 10), ("d", "ny", 2, 1, 4)))
    return table


def check_both_write_on(table: HudiTable, options: dict[str, str]) -> None:
    """Check that each finds the records of the other, and neither doubles one."""
    ours: Any = table.open(options)
    ours.upsert(rows(("a", "sf", 3, 1, 100), ("e", "ny", 3, 1, 5)))
    table.check_snapshot("our upsert")
    table.write(rows(("e", "ny", 4, 1, 50), ("f", "sf", 4, 1, 6)))
    found = table.check_snapshot("Hudi's update of our rows")
    assert {row["id"]: row["fare"] for row in found} == {
        "a": 100,
        "b": 2,
        "c": 3,
        "d": 4,
        "e": 50,
        "f": 6,
    }
    assert len(found) == 6


@shows(
    "consistent hashing",
    we_read=YES,
    we_write=refused("where a record belongs only Hudi's own files say"),
    both=refused("as writes after Hudi"),
    they_read=refused("we make no such table"),
)
def test_consistent_hashing(hudi: HudiPeer, tmp_path: Path) -> None:
    table = made_by_hudi(hudi, tmp_path, MOR, CONSISTENT)
    assert len(table.check_snapshot("Hudi's writes")) == 4
    for options in ({}, SIMPLE, BUCKETS):
        with pytest.raises(UnsupportedError, match="consistent hashing"):
            table.open(options).upsert(rows(("e", "ny", 3, 1, 5)))
    with pytest.raises(UnsupportedError, match=r"hoodie\.index\.bucket\.engine"):
        hw.create_table(
            tmp_path / "ours",
            schema="id string",
            record_key="id",
            index="bucket",
            buckets=2,
            options={"hoodie.index.bucket.engine": "CONSISTENT_HASHING"},
        )


@shows("bulk inserts by row writer", we_read=YES, we_write=YES, they_read=YES)
def test_bulk_inserts_by_row_writer(hudi: HudiPeer, tmp_path: Path) -> None:
    options = {**SIMPLE, "hoodie.datasource.write.row.writer.enable": "true"}
    table = made_by_hudi(hudi, tmp_path, COW, options, first="bulk_insert")
    assert len(table.check_snapshot("Hudi's writes")) == 4
    check_both_write_on(table, SIMPLE)
    table.open(SIMPLE).bulk_insert(rows(("g", "sf", 5, 1, 7), ("h", "ny", 5, 1, 8)))
    assert len(table.check_snapshot("our bulk insert")) == 8
    table.write(rows(("i", "sf", 6, 1, 9)), "bulk_insert")
    assert len(table.check_snapshot("another bulk insert of Hudi's")) == 9


@shows("several ordering fields", we_read=YES, we_write=YES, they_read=YES)
def test_several_ordering_fields(hudi: HudiPeer, tmp_path: Path) -> None:
    table = made_by_hudi(hudi, tmp_path, MOR, BUCKETS, ordering="ts,seq")
    assert len(table.check_snapshot("Hudi's writes")) == 4
    check_both_write_on(table, BUCKETS)


@shows(
    "change logs (CDC)",
    we_read=YES,
    we_write=refused("each write has to leave change logs, which this release only reads"),
    both=refused("as writes after Hudi"),
    they_read=refused("we make no such table"),
)
def test_change_logs_are_not_written(hudi: HudiPeer, tmp_path: Path) -> None:
    table = made_by_hudi(hudi, tmp_path, COW, {**SIMPLE, "hoodie.table.cdc.enabled": "true"})
    assert len(table.check_snapshot("Hudi's writes")) == 4
    with pytest.raises(UnsupportedError, match="change logs"):
        table.open(SIMPLE).upsert(rows(("e", "ny", 3, 1, 5)))


@shows(
    "base files in ORC",
    we_read=refused("by the name of the format"),
    we_write=refused("by the name of the format"),
    both=refused("by the name of the format"),
    they_read=refused("we make no such table"),
)
def test_base_files_in_orc(hudi: HudiPeer, tmp_path: Path) -> None:
    options = {**SIMPLE, "hoodie.table.base.file.format": "ORC", "hoodie.base.file.format": "ORC"}
    table = made_by_hudi(hudi, tmp_path, COW, options)
    with pytest.raises(UnsupportedError, match=r"hoodie\.table\.base\.file\.format=ORC"):
        table.open().read_arrow()


@shows(
    "base files in HFile",
    we_read=refused("by the name of the format"),
    we_write=refused("by the name of the format"),
    both=their_limit("it cannot update them"),
    they_read=refused("we make no such table"),
)
def test_base_files_in_hfile(hudi: HudiPeer, tmp_path: Path) -> None:
    options = {**SIMPLE, "hoodie.table.base.file.format": "HFILE"}
    with pytest.raises(HudiError, match="HFileUtils does not support"):
        made_by_hudi(hudi, tmp_path, MOR, options)
    # Its table config says PARQUET all the same.
    with pytest.raises(UnsupportedError, match=r"hfile"):
        hw.open_table(tmp_path / "trips").read_arrow()


@shows(
    "HFile log blocks",
    we_read=refused("by the name of the block"),
    we_write=their_limit("it writes them, and cannot read them itself"),
    both=their_limit("it writes them, and cannot read them itself"),
    they_read=refused("we make no such blocks"),
)
def test_log_blocks_in_hfile(hudi: HudiPeer, tmp_path: Path) -> None:
    options = {**BUCKETS, "hoodie.logfile.data.block.format": "hfile"}
    table = made_by_hudi(hudi, tmp_path, MOR, options)
    with pytest.raises(UnsupportedError, match="HFILE_DATA, which holds no rows"):
        table.open().read_arrow()
    with pytest.raises(HudiError, match=r"GenericData\$Record cannot be cast"):
        table.read_by_hudi()
    with pytest.raises(InvalidInputError, match=r"hoodie\.logfile\.data\.block\.format"):
        hw.create_table(
            tmp_path / "ours",
            schema="id string",
            record_key="id",
            table_type=MOR,
            options={"hoodie.logfile.data.block.format": "hfile"},
        )


@shows(
    "bootstrapped tables",
    we_read=refused("by name: their rows lie in files of another table"),
    we_write=refused("by name: their rows lie in files of another table"),
    both=refused("by name: their rows lie in files of another table"),
    they_read=refused("we make no such table"),
)
def test_bootstrapped_tables(hudi: HudiPeer, tmp_path: Path) -> None:
    (tmp_path / "old" / "city=sf").mkdir(parents=True)
    some: pa.Table = rows(("a", "sf", 1, 1, 1))
    pq.write_table(some.drop_columns(["city"]), tmp_path / "old" / "city=sf" / "x.parquet")
    table = HudiTable(
        hudi,
        tmp_path / "trips",
        {
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "city",
            "hoodie.datasource.write.hive_style_partitioning": "true",
            "hoodie.bootstrap.base.path": str(tmp_path / "old"),
            "hoodie.bootstrap.keygen.class": "org.apache.hudi.keygen.SimpleKeyGenerator",
            "hoodie.metadata.index.column.stats.enable": "false",
        },
    )
    table.write(some.slice(0, 0), "bootstrap", mode="overwrite")
    with pytest.raises(UnsupportedError, match="a bootstrapped table"):
        table.open()
