"""Tables of ours in which records move between partitions, as hudi-rs reads them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import headwater as hw
from headwater.table import Table

hudi = pytest.importorskip("hudi", reason="hudi-rs is not installed")

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("fare", pa.int64())])
OPTIONS = {
    "headwater.storage.fsync": "false",
    "hoodie.write.lock.provider": "in_process",
    "hoodie.record.index.update.partition.path": "true",
}

Row = tuple[str, str, int]


def rows(*tuples: Row) -> pa.Table:
    return pa.table([list(column) for column in zip(*tuples, strict=True)], schema=SCHEMA)


def by_us(table: Table) -> list[Row]:
    return _sorted(table.read_arrow(list(SCHEMA.names)))


def by_hudi_rs(table: Table) -> list[Row]:
    batches = hudi.HudiTableBuilder.from_base_uri(table.uri).build().read(None)
    return _sorted(pa.Table.from_batches(pa.record_batch(batch) for batch in batches))


def _sorted(found: pa.Table) -> list[Row]:
    return sorted((row["id"], row["city"], row["fare"]) for row in found.to_pylist())


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize(
    "index", ["global_simple", "global_bloom", "record_index", "record_level_index"]
)
def test_records_are_where_their_rows_say(tmp_path: Path, index: str, table_type: str) -> None:
    table = hw.create_table(
        tmp_path / "trips",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        table_type=table_type,
        index=index,
        options=OPTIONS,
    )
    moves = index != "record_level_index"
    table.upsert(rows(("a", "x", 1), ("b", "x", 2), ("c", "y", 3)))
    table.upsert(rows(("a", "y", 10), ("b", "x", 20), ("d", "z", 4)))
    others = [("b", "x", 20), ("c", "y", 3), ("d", "z", 4)]
    expected = sorted([("a", "y", 10), *([] if moves else [("a", "x", 1)]), *others])
    assert by_us(table) == by_hudi_rs(table) == expected
    table.upsert(rows(("a", "x", 11)))
    table.delete(rows(("c", "y", 0)))
    expected = sorted([("a", "x", 11), *([] if moves else [("a", "y", 10)]), *others])
    expected.remove(("c", "y", 3))
    assert by_us(table) == by_hudi_rs(table) == expected
    if table_type == "MERGE_ON_READ":
        assert table.services.compact() is not None
        assert table.services.cluster() is not None
    assert by_us(table) == by_hudi_rs(table) == expected
