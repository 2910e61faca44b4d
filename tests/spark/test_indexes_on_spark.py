"""Indexes on Spark: tasks look keys up in the record index, and reads skip what it rules out."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater.table import Table

OPTIONS = {
    "headwater.write.inline.bytes": 0,
    "headwater.write.tasks": 2,
    "hoodie.metadata.index.column.stats.enable": "true",
}


@pytest.fixture(params=["COPY_ON_WRITE", "MERGE_ON_READ"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    return hw.create_table(
        tmp_path / "t",
        schema="id string, city string, fare long",
        record_key="id",
        partition_by="city",
        table_type=request.param,
        index="record_index",
        options=OPTIONS,
    )


def frame(spark: SparkSession, ids: range, *, city: str, fare: int) -> DataFrame:
    rows = [(f"k{number:03}", city, fare + number) for number in ids]
    return spark.createDataFrame(rows, "id string, city string, fare long")


@pytest.mark.some(1)
def test_records_are_found_and_stay_where_they_are(spark: SparkSession, table: Table) -> None:
    table.upsert(frame(spark, range(20), city="x", fare=0))
    done = table.upsert(frame(spark, range(15, 30), city="y", fare=100))
    assert (done.inserted, done.updated) == (10, 5)
    counts = {row["city"]: row["count"] for row in table.read().groupBy("city").count().collect()}
    assert counts == {"x": 20, "y": 10}
    (moved,) = table.read(where="id = 'k017'").collect()
    assert (moved["city"], moved["fare"]) == ("x", 117)
    (plain,) = table.read(where="fare = 5").collect()
    assert plain["id"] == "k005"
    assert table.read(where="fare > 1000").count() == 0
