"""Rows of DataFrames find their records wherever in the table these are, in many tasks."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headwater as hw

OPTIONS = {
    "headwater.storage.fsync": "false",
    "headwater.write.inline.bytes": "0",
    "headwater.write.tasks": "3",
    "hoodie.write.lock.provider": "in_process",
    "hoodie.record.index.update.partition.path": "true",
}
SCHEMA = "id string, city string, fare long"


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("index", ["global_simple", "record_index", "record_level_index"])
@pytest.mark.some(2)
def test_records_are_found_and_moved_by_tasks(
    spark: SparkSession, tmp_path: Path, index: str, table_type: str
) -> None:
    table = hw.create_table(
        tmp_path / "trips",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        table_type=table_type,
        index=index,
        options=OPTIONS,
    )
    first = [(f"k{n}", "xyz"[n % 3], n) for n in range(30)]
    second = [(f"k{n}", "xyz"[(n + n % 2) % 3], -n) for n in range(0, 40, 3)]
    for some in (first, second):
        table.upsert(spark.createDataFrame(some, SCHEMA).repartition(4))
    is_partitioned = index == "record_level_index"
    model = {(key, city if is_partitioned else ""): (key, city, fare) for key, city, fare in first}
    model |= {
        (key, city if is_partitioned else ""): (key, city, fare) for key, city, fare in second
    }
    found = table.read_arrow(["id", "city", "fare"]).to_pylist()
    assert sorted(tuple(row.values()) for row in found) == sorted(model.values())
    problems = table.inspect.validate_metadata().to_pylist()
    assert not [one for one in problems if one["problem"] != "stale"]
