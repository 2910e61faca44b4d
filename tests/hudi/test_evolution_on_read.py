"""Tables that Apache Hudi evolves on read, with Avro logs: read as Hudi does, not written."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.beside_hudi import YES, refused, shows
from tests.support.hudi_peer import HudiPeer

import headwater as hw
from headwater.errors import UnsupportedError

SETTINGS = {
    "hoodie.schema.on.read.enable": "true",
    "hoodie.logfile.data.block.format": "avro",
    "hoodie.metadata.enable": "false",
}


def ours(path: Path) -> list[dict[str, object]]:
    return sorted(hw.open_table(path).read_arrow().to_pylist(), key=lambda row: str(row["id"]))


def theirs(hudi: HudiPeer) -> list[dict[str, object]]:
    found: pa.Table = hudi.sql("SELECT * FROM evolving ORDER BY id")
    kept = [name for name in found.column_names if not name.startswith("_hoodie_")]
    return list(found.select(kept).to_pylist())


@shows(
    "schema evolution on read",
    we_read=YES,
    we_write=refused("columns have ids there, which each write would have to keep"),
    both=refused("as writes after Hudi"),
    they_read=refused("we make no such table"),
)
def test_columns_come_and_widen(hudi: HudiPeer, tmp_path: Path) -> None:
    path = tmp_path / "evolving"
    for key, value in SETTINGS.items():
        hudi.execute(f"SET {key}={value}")
    try:
        hudi.execute(
            "CREATE TABLE evolving (id string, ts long, fare int) USING hudi TBLPROPERTIES "
            f"(type='mor', primaryKey='id', preCombineField='ts') LOCATION '{path}'"
        )
        hudi.execute("INSERT INTO evolving VALUES ('a', 1L, 1), ('b', 1L, 2)")
        hudi.execute("UPDATE evolving SET fare = 3, ts = 2 WHERE id = 'a'")
        hudi.execute("ALTER TABLE evolving ADD COLUMNS (note string)")
        hudi.execute("UPDATE evolving SET note = 'new', ts = 3 WHERE id = 'a'")
        assert ours(path) == theirs(hudi)
        hudi.execute("ALTER TABLE evolving ALTER COLUMN fare TYPE bigint")
        hudi.execute("UPDATE evolving SET fare = 4, ts = 4 WHERE id = 'b'")
        assert ours(path) == theirs(hudi)
        with pytest.raises(UnsupportedError, match="evolves on read"):
            hw.open_table(path, {"hoodie.index.type": "SIMPLE"}).upsert(
                pa.table({"id": ["a"], "ts": [9], "fare": [9], "note": ["x"]})
            )
        with pytest.raises(UnsupportedError, match=r"hoodie\.schema\.on\.read\.enable"):
            hw.create_table(
                tmp_path / "ours",
                schema="id string",
                record_key="id",
                options={"hoodie.schema.on.read.enable": "true"},
            )
    finally:
        hudi.execute("DROP TABLE IF EXISTS evolving")
        for key in SETTINGS:
            hudi.execute(f"RESET {key}")
