"""Our compactions, log compactions and clusterings, as Apache Hudi reads their result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.hudi_peer import HudiPeer
from tests.support.two_readers import TwoReaders

import headwater as hw
from headwater.table import Table

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("city", pa.string()),
        pa.field("ts", pa.int64()),
        pa.field("value", pa.int64()),
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
                "_hoodie_is_deleted": bool(rest),
            }
            for key, ts, value, *rest in values
        ],
        schema=SCHEMA,
    )


def new_table(path: Path, options: dict[str, str] | None = None, **arguments: Any) -> Table:
    return hw.create_table(
        path / "trips",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering="ts",
        options={**OPTIONS, **(options or {})},
        **arguments,
    )


@pytest.mark.parametrize("block_format", ["parquet", "avro"])
def test_compactions_and_log_compactions(hudi: HudiPeer, tmp_path: Path, block_format: str) -> None:
    options = {
        "hoodie.logfile.data.block.format": block_format,
        "hoodie.write.concurrency.mode": "non_blocking_concurrency_control",
        "hoodie.write.lock.provider": "in_process",
    }
    table = new_table(tmp_path, options, table_type="MERGE_ON_READ", buckets=1)
    both = TwoReaders(hudi, table)
    first = table.upsert(rows(("a", 5, 1), ("b", 1, 1), ("d", 1, 1), ("e", 1, 2)))
    table.upsert(rows(("a", 6, 2), ("d", 2, 2)))
    assert table.services.log_compact() is not None
    both.check_snapshot("after a log compaction of logs alone")
    assert table.services.compact() is not None
    both.check_snapshot("after a compaction of a log compaction")
    table.upsert(rows(("b", 9, 0, True), ("c", 3, 4)))
    table.delete(rows(("e", 0, 0)))
    table.services.log_compact()
    both.check_snapshot("after a log compaction above a base file")
    last = table.upsert(rows(("c", 5, 6), ("e", 7, 7)))
    both.check_snapshot("with logs above a log compaction")
    table.services.compact()
    both.check_snapshot("after a compaction that kept a delete")
    both.check_changes(first.completion_time, last.completion_time)
    table.upsert(rows(("b", 3, 3), ("a", 7, 7)))
    both.check_snapshot("with a late record that the delete hides")


@pytest.mark.parametrize(
    ("table_type", "index"), [("COPY_ON_WRITE", "simple"), ("MERGE_ON_READ", "bucket")]
)
@pytest.mark.parametrize("sort_by", [None, ["value", "ts"]], ids=["unsorted", "sorted"])
def test_clusterings(
    hudi: HudiPeer, tmp_path: Path, table_type: str, index: str, sort_by: list[str] | None
) -> None:
    shape: dict[str, Any] = {"buckets": 2} if index == "bucket" else {}
    table = new_table(tmp_path, table_type=table_type, index=index, **shape)
    both = TwoReaders(hudi, table)
    table.insert(rows(("a", 1, 1), ("b", 1, 2), ("d", 1, 3)))
    table.insert(rows(("c", 1, 4), ("e", 1, 5)))
    table.upsert(rows(("a", 2, 9), ("d", 2, 8)))
    plan = table.services.schedule_clustering(sort_by, order="hilbert")
    both.check_snapshot("with a pending clustering")
    assert plan is not None
    table.services.cluster(plan)
    both.check_snapshot("after a clustering")
    table.upsert(rows(("a", 3, 10), ("f", 1, 1)))
    both.check_snapshot("after an upsert on top of a clustering")
