"""Streams into and out of tables, on a real session."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater.kernel.table_config import table_layout
from headwater.kernel.timeline.active import load_active
from headwater.kernel.view.commits import CommitReader
from headwater.model.instant import Action

SINK_KEY = "_hudi_streaming_sink_checkpoint"
ROWS = "n long, name string"
EVENTS = {"hoodie.table.name": "events"}


def add_file(folder: Path, *numbers: int) -> None:
    folder.mkdir(exist_ok=True)
    rows = pa.table({"n": list(numbers), "name": [f"event-{n}" for n in numbers]})
    pq.write_table(rows, folder / f"{numbers[0]}.parquet")


def files_as_stream(spark: SparkSession, folder: Path) -> DataFrame:
    """Give one micro-batch per file."""
    reader = spark.readStream.schema(ROWS).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(folder))


def run_into_table(df: DataFrame, table: Path, checkpoint: Path, **options: str) -> None:
    # A query with a name hands it to the sink, as an option.
    writer = df.writeStream.format("headwater").queryName("into").options(**EVENTS, **options)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    writer.start(str(table)).awaitTermination()


def run_out_of_table(spark: SparkSession, table: Path, out: Path, **options: str) -> None:
    df = spark.readStream.format("headwater").options(**options).load(str(table))
    writer = df.writeStream.format("parquet").option("checkpointLocation", f"{out}-checkpoint")
    writer.trigger(availableNow=True).start(str(out)).awaitTermination()


def numbers_in(table: Path) -> list[int]:
    return sorted(hw.open_table(table).read_arrow()["n"].to_pylist())


def sink_notes(table: Path) -> list[dict[str, str]]:
    """Return what the commits say about the batches they hold, oldest first."""
    opened = hw.open_table(table)
    layout = table_layout(opened.config)
    timeline = load_active(opened.storage, layout.timeline)
    done = [instant for instant in timeline.completed if instant.action is not Action.ROLLBACK]
    commits = CommitReader(opened.storage, layout).load(done)
    return [json.loads((commit.metadata.extra_metadata or {})[SINK_KEY]) for commit in commits]


def test_each_batch_is_committed_once_also_when_it_is_replayed(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, table, checkpoint = tmp_path / "in", tmp_path / "events", tmp_path / "checkpoint"
    add_file(source, 1, 2)
    run_into_table(files_as_stream(spark, source), table, checkpoint)
    add_file(source, 3)
    run_into_table(files_as_stream(spark, source), table, checkpoint)
    assert numbers_in(table) == [1, 2, 3]
    notes = sink_notes(table)
    assert len(notes) == 2
    assert [list(note.values()) for note in notes] == [["0"], ["1"]]

    # Stopped between the commit to the table and Spark's own note of it.
    (checkpoint / "commits/1").unlink()
    (checkpoint / "commits/.1.crc").unlink(missing_ok=True)
    add_file(source, 4)
    run_into_table(files_as_stream(spark, source), table, checkpoint)

    assert numbers_in(table) == [1, 2, 3, 4]
    assert [list(note.values()) for note in sink_notes(table)] == [["0"], ["1"], ["2"]]


def test_a_sink_may_have_a_name_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    source, table = tmp_path / "in", tmp_path / "events"
    add_file(source, 1)
    name = {"hoodie.datasource.write.streaming.checkpoint.identifier": "orders/eu"}
    run_into_table(files_as_stream(spark, source), table, tmp_path / "one", **name)
    # Another checkpoint, the same name: Spark starts again from the first batch.
    run_into_table(files_as_stream(spark, source), table, tmp_path / "two", **name)

    assert numbers_in(table) == [1]
    assert sink_notes(table) == [{"orders/eu": "0"}]


def test_a_query_that_begins_anew_loses_no_batch(spark: SparkSession, tmp_path: Path) -> None:
    source, table, checkpoint = tmp_path / "in", tmp_path / "events", tmp_path / "checkpoint"
    key = {"hoodie.datasource.write.recordkey.field": "n"}
    add_file(source, 1)
    run_into_table(files_as_stream(spark, source), table, checkpoint, **key)
    shutil.rmtree(checkpoint)
    (source / "1.parquet").unlink()
    add_file(source, 2)
    run_into_table(files_as_stream(spark, source), table, checkpoint, **key)

    assert numbers_in(table) == [1, 2]
    (first,), (second,) = sink_notes(table)
    assert first != second


@pytest.mark.long
def test_a_batch_before_the_last_one_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    source, table = tmp_path / "in", tmp_path / "events"
    add_file(source, 1)
    add_file(source, 2)
    name = {"hoodie.datasource.write.streaming.checkpoint.identifier": "orders"}
    run_into_table(files_as_stream(spark, source), table, tmp_path / "one", **name)
    with pytest.raises(PySparkException, match=r"has batch 1 .* orders, and is given batch 0"):
        run_into_table(files_as_stream(spark, source), table, tmp_path / "two", **name)
    assert hw.open_table(table).inspect.heartbeats().num_rows == 0
    assert numbers_in(table) == [1, 2]


@pytest.mark.long
def test_a_batch_whose_tasks_all_failed_does_not_block_the_next_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, table, checkpoint = tmp_path / "in", tmp_path / "events", tmp_path / "checkpoint"
    add_file(source, 1)
    stream = files_as_stream(spark, source)
    failing = stream.selectExpr("CAST(raise_error('broken source') AS bigint) AS n", "name")
    with pytest.raises(PySparkException, match="broken source"):
        run_into_table(failing, table, checkpoint)
    assert hw.open_table(table).inspect.heartbeats().num_rows == 0

    run_into_table(stream, table, checkpoint)
    assert numbers_in(table) == [1]


def test_a_stream_out_of_a_table_gives_every_write_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, out = tmp_path / "trips", tmp_path / "out"
    table = hw.create_table(
        path,
        schema=pa.schema([("id", pa.string()), ("amount", pa.int64())]),
        record_key="id",
        table_type="MERGE_ON_READ",
    )
    table.upsert(pa.table({"id": ["a", "b"], "amount": [1, 1]}))
    run_out_of_table(spark, path, out)
    table.upsert(pa.table({"id": ["b", "c"], "amount": [2, 2]}))
    run_out_of_table(spark, path, out)
    run_out_of_table(spark, path, out)

    assert rows_of(out, "id", "amount") == [("a", 1), ("b", 1), ("b", 2), ("c", 2)]


@pytest.mark.long
def test_a_stream_goes_on_after_a_restore(spark: SparkSession, tmp_path: Path) -> None:
    path, out = tmp_path / "trips", tmp_path / "out"
    schema = pa.schema([("id", pa.string()), ("amount", pa.int64())])
    table = hw.create_table(path, schema=schema, record_key="id")
    table.upsert(pa.table({"id": ["a"], "amount": [1]}))
    savepoint = table.services.savepoint()
    table.upsert(pa.table({"id": ["b"], "amount": [2]}))
    run_out_of_table(spark, path, out)
    table.services.restore(savepoint.instant)
    run_out_of_table(spark, path, out)
    table.upsert(pa.table({"id": ["c"], "amount": [3]}))
    run_out_of_table(spark, path, out)

    assert rows_of(out, "id", "amount") == [("a", 1), ("b", 2), ("c", 3)]


@pytest.mark.long
def test_a_stream_may_start_later_and_show_every_change(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "trips"
    table = hw.create_table(
        path, schema=pa.schema([("id", pa.string()), ("amount", pa.int64())]), record_key="id"
    )
    first = table.upsert(pa.table({"id": ["a"], "amount": [1]}))
    table.delete(pa.table({"id": ["a"]}))

    options = {
        "hoodie.datasource.streaming.startOffset": str(first.completion_time),
        "hoodie.datasource.query.incremental.format": "cdc",
    }
    run_out_of_table(spark, path, tmp_path / "changes", **options)
    assert rows_of(tmp_path / "changes", "op", "before", "after") == [
        ("d", {"id": "a", "amount": 1}, None)
    ]

    latest = {"hoodie.datasource.streaming.startOffset": "latest"}
    run_out_of_table(spark, path, tmp_path / "latest", **latest)
    assert rows_of(tmp_path / "latest", "id") == []


@pytest.mark.parametrize("shows_meta", ["false", "true"])
@pytest.mark.long
def test_a_stream_out_of_one_table_into_another(
    spark: SparkSession, tmp_path: Path, shows_meta: str
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    schema = pa.schema([("n", pa.int64()), ("name", pa.string())])
    table = hw.create_table(one, schema=schema, record_key="n")
    table.upsert(pa.table({"n": [1, 2], "name": ["x", "y"]}))
    reader = spark.readStream.format("headwater").option("headwater.read.meta.columns", shows_meta)
    run_into_table(reader.load(str(one)), other, tmp_path / "checkpoint")
    table.upsert(pa.table({"n": [3], "name": ["z"]}))
    run_into_table(reader.load(str(one)), other, tmp_path / "checkpoint")

    copied = hw.open_table(other)
    assert (
        copied.read_arrow().sort_by("n").to_pylist() == table.read_arrow().sort_by("n").to_pylist()
    )
    assert numbers_in(other) == [1, 2, 3]


@pytest.mark.skipif(pyspark.__version__ < "4.2", reason="Spark 4.2 tells streams a limit")
def test_batches_are_no_larger_than_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    schema = pa.schema([("n", pa.int64()), ("name", pa.string())])
    table = hw.create_table(one, schema=schema)
    for n in range(3):
        table.insert(pa.table({"n": [n], "name": ["x"]}))
    reader = spark.readStream.format("headwater")
    limited = reader.option("headwater.stream.commits.per.trigger", "1")
    run_into_table(limited.load(str(one)), other, tmp_path / "checkpoint")

    assert numbers_in(other) == [0, 1, 2]
    assert [list(note.values()) for note in sink_notes(other)] == [["0"], ["1"], ["2"]]


def rows_of(folder: Path, *columns: str) -> list[tuple[Any, ...]]:
    files = sorted(folder.glob("*.parquet"))
    found = [row for file in files for row in pq.read_table(file).to_pylist()]
    return sorted(tuple(row[name] for name in columns) for row in found)
