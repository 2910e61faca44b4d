"""Tables after compaction, log compaction and clustering, as hudi-rs reads them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.hudi_rs import location_for_hudi_rs
from tests.support.two_readers import read_with_meta_columns

import headwater as hw
from headwater.table import Table

hudi = pytest.importorskip("hudi", reason="hudi-rs is not installed")

Row = dict[str, Any]

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("city", pa.string()),
        pa.field("ts", pa.int64()),
        pa.field("value", pa.int64()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("_hoodie_is_deleted", pa.bool_()),
    ]
)
OPTIONS = {
    "headwater.storage.fsync": "false",
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.log.compaction.blocks.threshold": "2",
    "headwater.clustering.copy.row.group.rows": "1",
}


def rows(*values: tuple[Any, ...]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "id": key,
                "city": "sf" if key < "d" else "ny",
                "ts": ts,
                "value": value,
                "tags": [key] * (value % 3),
                "_hoodie_is_deleted": bool(rest),
            }
            for key, ts, value, *rest in values
        ],
        schema=SCHEMA,
    )


def in_order(found: Iterable[Row]) -> list[Row]:
    return sorted(found, key=lambda row: repr(sorted(row.items())))


def check_both_read_the_same(table: Table, step: str) -> None:
    location = location_for_hudi_rs(table)
    batches = hudi.HudiTableBuilder.from_base_uri(location).build().read(None)
    theirs = in_order(row for batch in batches for row in pa.record_batch(batch).to_pylist())
    ours = in_order(read_with_meta_columns(table).to_pylist())
    assert ours, f"the step {step!r} left nothing to compare"
    assert theirs == ours, f"the readers differ after the step {step!r}"


def new_table(path: Path, options: dict[str, str] | None = None, **arguments: Any) -> Table:
    return hw.create_table(
        path / "trips",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        options={**OPTIONS, **(options or {})},
        **arguments,
    )


@pytest.mark.parametrize("ordering", ["ts", None])
@pytest.mark.parametrize("block_format", ["parquet", "avro"])
def test_compactions_and_log_compactions(
    tmp_path: Path, block_format: str, ordering: str | None
) -> None:
    table = new_table(
        tmp_path,
        {
            "hoodie.logfile.data.block.format": block_format,
            "hoodie.write.concurrency.mode": "non_blocking_concurrency_control",
            "hoodie.write.lock.provider": "in_process",
        },
        table_type="MERGE_ON_READ",
        ordering=ordering,
        buckets=1,
    )
    table.upsert(rows(("a", 5, 1), ("b", 1, 1), ("d", 1, 1), ("e", 1, 2)))
    table.upsert(rows(("a", 6, 2), ("d", 2, 2)))
    assert table.services.log_compact() is not None
    check_both_read_the_same(table, "log compaction of logs alone")
    assert table.services.compact() is not None
    check_both_read_the_same(table, "compaction of a log compaction")
    table.upsert(rows(("b", 9, 0, True), ("c", 3, 4)))
    table.delete(rows(("e", 0, 0)))
    table.upsert(rows(("c", 4, 5), ("f", 1, 1)))
    table.services.log_compact()
    check_both_read_the_same(table, "log compaction above a base file")
    table.upsert(rows(("c", 5, 6), ("e", 7, 7)))
    check_both_read_the_same(table, "logs above a log compaction")
    table.services.compact()
    check_both_read_the_same(table, "compaction of both")
    table.upsert(rows(("b", 10, 3)))
    check_both_read_the_same(table, "a record that is newer than a delete that was kept")


def test_deletes_with_and_without_ordering_values_in_one_log(tmp_path: Path) -> None:
    """hudi-rs does not read a block that has both, so they come in two."""
    table = new_table(tmp_path, table_type="MERGE_ON_READ", ordering="ts", buckets=1)
    table.upsert(rows(("a", 1, 1), ("b", 1, 1), ("c", 1, 1)))
    table.upsert(rows(("a", 2, 0, True)))
    table.delete(rows(("b", 0, 0)))
    assert table.services.log_compact() is not None
    check_both_read_the_same(table, "log compaction")
    table.upsert(rows(("d", 1, 1), ("e", None, 0, True), ("f", 3, 0, True)))
    check_both_read_the_same(table, "deletes of which one has no ordering value")


def test_a_delete_that_a_compaction_kept_hides_what_comes_late(tmp_path: Path) -> None:
    table = new_table(tmp_path, table_type="MERGE_ON_READ", ordering="ts", buckets=1)
    table.upsert(rows(("a", 1, 1), ("b", 1, 1)))
    table.upsert(rows(("b", 5, 0, True)))
    table.services.compact()
    check_both_read_the_same(table, "compaction")
    table.upsert(rows(("b", 3, 3), ("a", 2, 2)))
    check_both_read_the_same(table, "a late record")


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("index", ["simple", "bloom", "bucket"])
@pytest.mark.parametrize("sort_by", [None, ["value", "ts"]], ids=["unsorted", "sorted"])
def test_clusterings(
    tmp_path: Path, table_type: str, index: str, sort_by: list[str] | None
) -> None:
    shape: dict[str, Any] = {"buckets": 2} if index == "bucket" else {}
    table = new_table(tmp_path, table_type=table_type, ordering="ts", index=index, **shape)
    table.insert(rows(("a", 1, 1), ("b", 1, 2), ("d", 1, 3)))
    table.insert(rows(("c", 1, 4), ("e", 1, 5)))
    table.upsert(rows(("a", 2, 9), ("d", 2, 8)))
    plan = table.services.schedule_clustering(sort_by, order="zorder")
    is_idle = sort_by is None and index == "bucket" and table_type == "COPY_ON_WRITE"
    assert (plan is None) == is_idle
    table.services.cluster(plan)
    check_both_read_the_same(table, "clustering")
    table.upsert(rows(("a", 3, 10), ("f", 1, 1)))
    check_both_read_the_same(table, "an upsert after clustering")


def test_copied_row_groups_of_tables_with_many_types(tmp_path: Path) -> None:
    table = new_table(tmp_path, index="simple", ordering="ts")
    for number in range(3):
        table.insert(rows(*((f"{letter}{number}", 1, number) for letter in "abcdef")))
    done = table.services.cluster()
    assert done is not None
    assert len(done.file_groups) == 2
    check_both_read_the_same(table, "copying")
