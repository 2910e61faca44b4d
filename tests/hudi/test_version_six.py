"""Tables of version 6 that Hudi 1.2 writes: read by us, upgraded by us, and written by both."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.beside_hudi import YES, refused, shows
from tests.support.hudi_peer import HudiPeer
from tests.support.hudi_tables import HudiTable

import headwater as hw
from headwater.services.upgrade import Upgrade

SCHEMA = pa.schema(
    [("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("fare", pa.int32())]
)
COW, MOR = "COPY_ON_WRITE", "MERGE_ON_READ"
OLD = {
    "hoodie.write.table.version": "6",
    "hoodie.write.auto.upgrade": "false",
    "hoodie.index.type": "SIMPLE",
}
COMPACTION = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
CLUSTERING = {"hoodie.clustering.inline": "true", "hoodie.clustering.inline.max.commits": "1"}
ARCHIVAL = {
    "hoodie.archive.automatic": "true",
    "hoodie.clean.automatic": "true",
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
}
SIMPLE = {"hoodie.index.type": "SIMPLE"}


def rows(*values: tuple[Any, ...]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in values], schema=SCHEMA
    )


def an_old_table(
    hudi: HudiPeer, path: Path, table_type: str, more: Mapping[str, str] | None = None
) -> HudiTable:
    options = {
        "hoodie.datasource.write.table.type": table_type,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "city",
        "hoodie.table.ordering.fields": "ts",
        **OLD,
        **(more or {}),
    }
    return HudiTable(hudi, path, options)


def write_every_operation(table: HudiTable) -> None:
    """Let Hudi do all that it does to tables; both read the same after each of them."""
    steps: list[tuple[str, pa.Table, str, dict[str, str]]] = [
        ("insert", rows(("a", "sf", 1, 1), ("b", "sf", 1, 2), ("c", "ny", 1, 3)), "insert", {}),
        ("upsert", rows(("a", "sf", 2, 10), ("d", "ny", 2, 4)), "upsert", {}),
        ("an older record", rows(("a", "sf", 1, 99)), "upsert", {}),
        ("delete", rows(("b", "sf", 3, 0)), "delete", {}),
        ("bulk insert", rows(("e", "la", 1, 5)), "bulk_insert", {}),
        ("clustering", rows(("f", "la", 1, 6)), "insert", CLUSTERING),
        ("overwrite", rows(("g", "la", 1, 7)), "insert_overwrite", {}),
        ("update", rows(("g", "la", 2, 8), ("c", "ny", 4, 30)), "upsert", {}),
    ]
    if table.options["hoodie.datasource.write.table.type"] == MOR:
        steps.insert(5, ("compaction", rows(("a", "sf", 6, 11)), "upsert", COMPACTION))
    for step, batch, operation, options in steps:
        table.write(batch, operation, options)
        assert table.open().config.version == 6
        table.check_snapshot(step)


@pytest.mark.parametrize("log_format", ["avro", "parquet"])
@pytest.mark.parametrize("table_type", [COW, MOR])
@shows(
    "tables of version 6",
    we_read=YES,
    we_write=refused("`headwater table upgrade` makes them tables of version 9"),
    both=refused("as writes after Hudi"),
    they_read=refused("we make no such table"),
)
def test_every_operation_and_the_upgrade(
    hudi: HudiPeer, tmp_path: Path, table_type: str, log_format: str
) -> None:
    if table_type == COW and log_format == "parquet":
        pytest.skip("a copy-on-write table has no logs")
    more = {"hoodie.logfile.data.block.format": log_format}
    table = an_old_table(hudi, tmp_path / "t", table_type, more)
    write_every_operation(table)
    check_upgrade(table)


def test_a_table_with_an_archive_and_a_metadata_table(hudi: HudiPeer, tmp_path: Path) -> None:
    more = {"hoodie.metadata.enable": "true", **ARCHIVAL}
    # A table of Hudi 0.14 has its archive under another name, which its properties tell.
    table = an_old_table(hudi, tmp_path / "t", COW, more)
    for number in range(8):
        table.write(rows(("a", "sf", number, number), (f"k{number}", f"c{number}", number, 1)))
    assert list((table.path / ".hoodie").rglob(".commits_.archive*"))
    assert (table.path / ".hoodie" / "metadata").is_dir()
    table.check_snapshot("archival")
    done = check_upgrade(table)
    assert done.archived > 0
    assert done.drops_metadata_table
    shown = table.open().history()["instant"].to_pylist()
    assert len(shown) >= 8


def test_the_upgrade_leaves_what_that_of_hudi_leaves(hudi: HudiPeer, tmp_path: Path) -> None:
    """Both upgrades of one table: the same rows, and the same about how records are merged."""
    for table_type in (COW, MOR):
        table = an_old_table(hudi, tmp_path / table_type, table_type)
        table.write(rows(("a", "sf", 5, 1), ("b", "ny", 5, 2)))
        table.write(rows(("a", "sf", 6, 3)))
        theirs = HudiTable(hudi, tmp_path / f"{table_type}_theirs", table.options)
        shutil.copytree(table.path, theirs.path)
        upgrading = {"hoodie.write.table.version": "9", "hoodie.write.auto.upgrade": "true"}
        theirs.write(rows(("b", "ny", 7, 4)), options=upgrading)
        hw.upgrade_table(table.path)
        table.write(rows(("b", "ny", 7, 4)), options=upgrading)
        ours, their = table.open().config, theirs.open().config
        assert ours.version == their.version == 9
        for name in (
            "initial_version",
            "timeline_layout_version",
            "merge_mode",
            "payload_class",
            "legacy_payload_class",
            "partial_update_mode",
            "key_generator_type",
            "ordering_fields",
            "record_key_fields",
            "partition_fields",
        ):
            assert getattr(ours, name) == getattr(their, name), name
        fares = [
            {row["id"]: row["fare"] for row in one.check_snapshot("an upgrade")}
            for one in (table, theirs)
        ]
        assert fares[0] == fares[1] == {"a": 3, "b": 4}


def check_upgrade(table: HudiTable) -> Upgrade:
    """Upgrade a table: its rows stay, and then both write to it in turns."""
    before = table.check_snapshot("all of it")
    done = hw.upgrade_table(table.path)
    assert done.is_done
    assert table.open().config.version == 9
    assert table.check_snapshot("the upgrade") == before
    assert table.open().inspect.problems().num_rows == 0
    table.options = {
        **table.options,
        "hoodie.write.table.version": "9",
        "hoodie.write.auto.upgrade": "true",
    }
    table.write(rows(("a", "sf", 100, 100), ("x", "sf", 100, 1)))
    table.check_snapshot("Hudi's upsert")
    table.open(SIMPLE).upsert(rows(("x", "sf", 101, 2), ("y", "la", 101, 3)))
    table.check_snapshot("our upsert")
    table.write(rows(("y", "la", 102, 4)))
    table.write(rows(("x", "sf", 103, 0)), "delete")
    after = {row["id"]: row["fare"] for row in table.check_snapshot("Hudi's delete")}
    assert after["a"] == 100
    assert after["y"] == 4
    assert "x" not in after
    return done
