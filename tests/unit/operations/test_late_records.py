"""Records that come late: what they meet, whatever the index, the table type and the services."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.metadata.view import load_view
from headwater.table import Table

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("city", pa.string()),
        pa.field("ts", pa.int64()),
        pa.field("a", pa.string()),
        pa.field("b", pa.string()),
        pa.field("_hoodie_is_deleted", pa.bool_()),
    ]
)
INDEXES = [
    "bucket",
    "simple",
    "bloom",
    "global_simple",
    "global_bloom",
    "record_index",
    "record_level_index",
]
SERVICES: dict[str, Callable[[Table], object]] = {
    "nothing": lambda table: None,
    "compact": lambda table: table.services.compact(),
    "compact twice": lambda table: compacted_again(table),
    "log_compact": lambda table: table.services.log_compact(),
    "cluster": lambda table: table.services.cluster(),
}
TYPES = ["COPY_ON_WRITE", "MERGE_ON_READ"]


def new_table(path: Path, table_type: str = "MERGE_ON_READ", **arguments: Any) -> Table:
    options = {
        "headwater.storage.fsync": "false",
        "hoodie.log.compaction.blocks.threshold": "2",
        "hoodie.parquet.small.file.limit": "0",
    }
    return hw.create_table(
        path / "trips",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type=table_type,
        **{**arguments, "options": {**options, **arguments.get("options", {})}},
    )


def rows(*given: tuple[Any, ...]) -> pa.Table:
    names = SCHEMA.names
    filled = [dict(zip(names, (*row, *[None] * len(names)), strict=False)) for row in given]
    return pa.Table.from_pylist(filled, schema=SCHEMA)


def deletes(*given: tuple[str, str, int]) -> pa.Table:
    return rows(*((*one, None, None, True) for one in given))


def answer(table: Table) -> list[tuple[Any, ...]]:
    found = table.read_arrow(["id", "city", "ts", "a", "b"]).to_pylist()
    return sorted(tuple(row.values()) for row in found)


def compacted_again(table: Table) -> None:
    table.services.compact()
    table.upsert(rows(("other", "sf", 9, "again")))
    table.services.compact()


@pytest.mark.parametrize("service", ["compact twice", "log_compact", "cluster"])
@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.some(7)
def test_n_65_an_ordered_delete_hides_what_comes_late_whatever_ran(
    tmp_path: Path, index: str, service: str
) -> None:
    table = new_table(tmp_path, index=index)
    table.upsert(rows(("k", "sf", 10, "old"), ("other", "sf", 1, "other")))
    table.upsert(rows(("other", "sf", 2, "other")))
    table.upsert(deletes(("k", "sf", 20)))
    SERVICES[service](table)
    table.upsert(rows(("k", "sf", 15, "late")))
    assert [row[0] for row in answer(table)] == ["other"]
    SERVICES[service](table)
    table.upsert(rows(("k", "sf", 20, "new")))
    assert [row[0] for row in answer(table)] == ["k", "other"]
    found = table.inspect.validate_metadata().to_pylist()
    assert [one for one in found if one["problem"] != "stale"] == []


@pytest.mark.parametrize("service", ["compact", "cluster"])
@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.some(5)
def test_n_65_a_delete_that_comes_before_its_record_hides_it(
    tmp_path: Path, index: str, service: str
) -> None:
    table = new_table(tmp_path, index=index)
    table.upsert(rows(("other", "sf", 1, "other")))
    table.upsert(deletes(("k", "sf", 20)))
    SERVICES[service](table)
    table.upsert(rows(("k", "sf", 15, "late"), ("new", "sf", 15, "late")))
    assert [row[0] for row in answer(table)] == ["new", "other"]


@pytest.mark.parametrize("service", ["nothing", "compact"])
@pytest.mark.parametrize("index", ["global_simple", "record_index"])
@pytest.mark.parametrize("moves", ["true", "false"])
@pytest.mark.some(3)
def test_n_65_a_delete_hides_late_records_of_every_partition_and_is_forgotten_where_it_lost(
    tmp_path: Path, index: str, service: str, moves: str
) -> None:
    kinds = ("simple", "record")
    options = {f"hoodie.{kind}.index.update.partition.path": moves for kind in kinds}
    table = new_table(tmp_path, index=index, options=options)
    table.upsert(rows(("k", "sf", 10, "old"), ("other", "sf", 1)))
    table.upsert(deletes(("k", "ny", 20)))
    SERVICES[service](table)
    table.upsert(rows(("k", "ny", 15, "late")))
    assert [row[0] for row in answer(table)] == ["other"]
    table.upsert(rows(("k", "ny", 25, "new")))
    assert [row[:3] for row in answer(table)] == [("k", "ny", 25), ("other", "sf", 1)]
    SERVICES[service](table)
    table.delete(pa.table({"id": ["k"], "city": ["ny"]}))
    # Nothing is remembered of the delete of before.
    table.upsert(rows(("k", "la", 5, "first")))
    assert [row[:3] for row in answer(table)] == [("k", "la", 5), ("other", "sf", 1)]


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.some(4)
def test_inv_49_nothing_comes_back_that_delete_removed(
    tmp_path: Path, table_type: str, service: str
) -> None:
    table = new_table(tmp_path, table_type, index="bucket", buckets=1)
    table.upsert(rows(("k", "sf", 100, "old"), ("other", "sf", 1)))
    table.delete(pa.table({"id": ["k"], "city": ["sf"]}))
    SERVICES[service](table)
    table.upsert(rows(("k", "sf", 50, "new")))
    expected = ("k", "sf", 50, "new", None)
    assert answer(table)[0] == expected
    SERVICES[service](table)
    assert answer(table)[0] == expected


@pytest.mark.parametrize("service", ["nothing", "compact", "cluster"])
@pytest.mark.parametrize("table_type", TYPES)
def test_inv_49_a_late_row_after_a_partial_update_changes_nothing(
    tmp_path: Path, table_type: str, service: str
) -> None:
    table = new_table(tmp_path, table_type, index="bucket", buckets=1)
    table.upsert(rows(("k", "sf", 25, "a25", "b25"), ("other", "sf", 1)))
    some = rows(("k", "sf", 30, None, "b30")).select(["id", "city", "ts", "b"])
    table.upsert(some, partial=True)
    SERVICES[service](table)
    table.upsert(rows(("k", "sf", 29, "a29", "b29")))
    assert answer(table)[0] == ("k", "sf", 30, "a25", "b30")


@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("index", [one for one in INDEXES if one != "bucket"])
@pytest.mark.some(4)
def test_deleted_counts_the_records_that_were_there(
    tmp_path: Path, index: str, table_type: str
) -> None:
    table = new_table(
        tmp_path,
        table_type,
        index=index,
        options={"hoodie.simple.index.update.partition.path": "true"},
    )
    table.upsert(rows(("k", "sf", 1), ("other", "sf", 1)))
    table.upsert(rows(("k", "sf", 2)))
    table.upsert(rows(("k", "ny", 3)))
    here = "ny" if index == "global_simple" else "sf"
    key = pa.table({"id": ["k", "nobody"], "city": [here, here]})
    assert table.delete(key).deleted == 1
    assert table.delete(key).deleted == 0


@pytest.mark.parametrize("index", ["simple", "record_index"])
def test_h_39_a_log_compaction_leaves_kept_deletes_where_they_are(
    tmp_path: Path, index: str
) -> None:
    table = new_table(tmp_path, index=index)
    table.upsert(rows(("k", "sf", 10), ("other", "sf", 1)))
    table.upsert(deletes(("k", "sf", 20)))
    table.services.compact()
    for ts in (2, 3, 4):
        table.upsert(rows(("other", "sf", ts)))
    assert table.services.log_compact() is not None
    (one,) = load_view(table.storage, table.config).slices()
    assert len(one.kept_deletes) == 1
    assert len(one.appended_logs) == 1
    table.upsert(rows(("k", "sf", 15)))
    assert [row[0] for row in answer(table)] == ["other"]
