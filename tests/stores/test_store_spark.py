"""Spark on an S3 server: tasks, the data source, and streams into and out of a table."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.stores.conftest import Store

import headwater as hw


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.python.unix.domain.socket.enabled", "true")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
            .config("spark.local.dir", str(folder / "local"))
            .config("spark.ui.enabled", "false")
            .config("spark.log.level", "OFF")
            .getOrCreate()
        )
        yield session
        session.stop()


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_tasks_and_the_data_source(spark: SparkSession, s3_store: Store) -> None:
    uri, options = s3_store.uri("spark"), s3_store.options
    table = hw.create_table(
        uri,
        schema="id string, city string, v long",
        record_key="id",
        partition_by="city",
        ordering="v",
        table_type="MERGE_ON_READ",
        buckets=2,
        # So few rows would be written by this process.
        options={**options, "headwater.write.inline.bytes": "0"},
    )
    keys = ("concat('k', id) AS id", "if(id % 2 = 0, 'sf', 'la') AS city")
    table.upsert(spark.range(40).selectExpr(*keys, "1L AS v"))
    table.upsert(spark.range(10).selectExpr(*keys, "2L AS v"))
    read = spark.read.format("headwater").options(**options).load(uri)
    assert read.groupBy("v").count().sort("v").collect() == [(1, 30), (2, 10)]
    assert table.scan(where="v = 2").to_spark(spark).count() == 10


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_streams_into_and_out_of_a_table(
    spark: SparkSession, s3_store: Store, tmp_path: Path
) -> None:
    options = s3_store.options
    source, sunk, out = tmp_path / "in", s3_store.uri("sunk"), tmp_path / "out"
    source.mkdir()
    for first in (0, 10):
        numbers = range(first, first + 10)
        batch = pa.table({"n": list(numbers), "name": [f"event-{n}" for n in numbers]})
        pq.write_table(batch, source / f"{first}.parquet")
    files = spark.readStream.schema("n long, name string").option("maxFilesPerTrigger", 1)
    into = files.parquet(str(source)).writeStream.format("headwater")
    into = into.options(**options, **{"hoodie.table.name": "events"})
    into = into.option("checkpointLocation", str(tmp_path / "into")).trigger(availableNow=True)
    into.start(sunk).awaitTermination()
    assert sorted(hw.open_table(sunk, options).read_arrow()["n"].to_pylist()) == list(range(20))
    stream = spark.readStream.format("headwater").options(**options).load(sunk)
    onward = stream.writeStream.format("parquet").trigger(availableNow=True)
    onward.option("checkpointLocation", str(tmp_path / "onward")).start(str(out)).awaitTermination()
    assert sorted(row.n for row in spark.read.parquet(str(out)).collect()) == list(range(20))
