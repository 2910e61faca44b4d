"""Writes to tables whose records a function of the user's merges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headwater as hw
from headwater.table import Table

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("fare", pa.int64())])
OPTIONS = {
    "headwater.storage.fsync": "false",
    "hoodie.write.lock.provider": "in_process",
    "hoodie.record.merge.mode": "CUSTOM",
    "headwater.merge.function": f"{__name__}:add_fares",
    **{
        f"hoodie.{kind}.index.update.partition.path": "true"
        for kind in ("simple", "bloom", "record")
    },
}
TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")
LOOKUP_INDEXES = ("simple", "bloom", "global_simple", "global_bloom", "record_index")
GLOBAL_INDEXES = LOOKUP_INDEXES[2:]


def add_fares(old: pa.Table, new: pa.Table) -> pa.Table:
    """Read a data column, as any such function does."""
    total = pc.add(old["fare"], new["fare"])
    return new.set_column(new.schema.get_field_index("fare"), new.schema.field("fare"), total)


def new_table(folder: Path, table_type: str, index: str = "bucket", **options: str) -> Table:
    return hw.create_table(
        folder,
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        table_type=table_type,
        index=index,
        options={**OPTIONS, **options},
    )


def rows(*values: tuple[str, str, int]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in values], schema=SCHEMA
    )


def content(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.read_arrow().to_pylist())


@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("index", GLOBAL_INDEXES)
def test_a_record_that_moved_is_found_where_it_is(
    tmp_path: Path, index: str, table_type: str
) -> None:
    table = new_table(tmp_path / "t", table_type, index)
    table.upsert(rows(("a", "sf", 1), ("b", "sf", 1)))
    table.upsert(rows(("a", "sf", 2), ("b", "sf", 2)))
    table.upsert(rows(("b", "sf", 3)))
    table.upsert(rows(("a", "la", 4)))
    assert content(table) == [("a", "la", 7), ("b", "sf", 6)]
    table.upsert(rows(("a", "la", 5)))
    assert content(table) == [("a", "la", 12), ("b", "sf", 6)]
