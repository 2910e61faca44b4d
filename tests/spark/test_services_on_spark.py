"""Services that rewrite files, as jobs of Spark: the same results, and jobs that can be stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.support.answers import answers_of
from tests.support.tables import a_table, columns, rows_of

from headwater.config.files import FileConfig
from headwater.config.spark import SparkConfig
from headwater.engine.engine import TaskContext
from headwater.engine.inline import InlineEngine
from headwater.errors import ConflictError, CorruptTableError, FencedError
from headwater.metadata.view import load_view
from headwater.seams.clock import SystemClock
from headwater.seams.ids import SystemIds
from headwater.spark.tasks import SparkEngine, engine_for
from headwater.table import Table

SCHEMA = columns("id string not null, city string, ts long, value long")
OPTIONS = {
    "headwater.storage.fsync": "false",
    "headwater.write.inline.bytes": "0",  # Even the smallest plan goes to Spark.
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.log.compaction.blocks.threshold": "2",
}


rows = rows_of(SCHEMA)


def new_table(path: Path, **arguments: Any) -> Table:
    shape = a_table(path, SCHEMA, partition_by="city", ordering="ts", options=OPTIONS)
    return shape.having(**arguments).create()


def fill(table: Table) -> list[str]:
    return [
        table.upsert(
            rows(
                *((f"k{n}", "sf" if n % 2 else "ny", ts, n * ts) for n in range(3 * ts, 3 * ts + 9))
            )
        ).completion_time
        for ts in (1, 2, 3)
    ]


@pytest.fixture
def engine(spark: SparkSession) -> SparkEngine:
    return SparkEngine(spark, SystemClock(), SystemIds())


@pytest.mark.usefixtures("spark")
def test_compaction_and_log_compaction_run_as_tasks(tmp_path: Path) -> None:
    table = new_table(tmp_path, table_type="MERGE_ON_READ", buckets=2)
    times = fill(table)
    before = answers_of(table, times)
    folded = table.services.log_compact()
    assert folded is not None
    assert answers_of(table, times) == before
    done = table.services.compact()
    assert done is not None
    assert len(done.file_groups) == 4
    assert answers_of(table, times) == before
    tokens = {one.base.write_token for one in _slices(table) if one.base is not None}
    assert {token.split("-")[1] for token in tokens} == {"1"}
    # The last number is Spark's own id of the task's attempt, so it differs from task to task.
    assert len({token.split("-")[2] for token in tokens}) == 4


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("sort_by", [None, ["value", "ts"]])
def test_clustering_runs_as_tasks(tmp_path: Path, sort_by: list[str] | None) -> None:
    table = new_table(tmp_path, index="simple")
    times = fill(table)
    before = answers_of(table, times)
    plan = table.services.schedule_clustering(sort_by, order="hilbert")
    done = table.services.cluster(plan)
    assert done is not None
    assert len(done.file_groups) == 2
    assert answers_of(table, times) == before


def test_over_spark_connect(connect: SparkSession) -> None:
    engine = SparkEngine(connect, SystemClock(), SystemIds())
    assert engine.run(_times_ten, [3, 1, 2]) == [30, 10, 20]


def _times_ten(context: TaskContext, number: int) -> int:
    return number * 10


def test_results_come_in_the_order_of_tasks(engine: SparkEngine) -> None:
    assert engine.run(_times_ten, list(range(7, 0, -1))) == [70, 60, 50, 40, 30, 20, 10]
    assert engine.run(_times_ten, []) == []


def _fail(context: TaskContext, number: int) -> int:
    if number == 1:
        raise CorruptTableError("a file is damaged", path="some/path")
    return number


def test_the_error_of_a_task_is_raised_as_it_was(engine: SparkEngine) -> None:
    with pytest.raises(CorruptTableError, match="a file is damaged") as caught:
        engine.run(_fail, [0, 1, 2])
    assert caught.value.context == {"path": "some/path"}


def _work_until_stopped(context: TaskContext, note: str) -> None:
    """Go on for longer than it takes to stop it, and note that it has begun."""
    Path(note).touch()
    clock = SystemClock()
    for _ in range(6_000):
        clock.sleep_ms(100)
    Path(f"{note}.ended").touch()


def check_that_a_poll_stops_the_job(spark: SparkSession, folder: Path) -> None:
    engine = SparkEngine(spark, SystemClock(), SystemIds())
    note = folder / "begun"

    def poll() -> None:
        if note.exists():
            raise FencedError("this attempt was taken over")

    with pytest.raises(FencedError, match="taken over") as caught:
        engine.run(_work_until_stopped, [str(note)], poll=poll)
    # A job that was not stopped would have come to its end, after ten minutes.
    assert caught.value.__cause__ is not None
    assert not (folder / "begun.ended").exists()
    # The session is fit for the next job.
    assert engine.run(_times_ten, [1]) == [10]


def test_what_a_poll_raises_stops_the_job(spark: SparkSession, tmp_path: Path) -> None:
    setting = "spark.job.interruptOnCancel"
    before = spark.sparkContext.getLocalProperty(setting)
    check_that_a_poll_stops_the_job(spark, tmp_path)
    assert spark.sparkContext.getLocalProperty(setting) == before


@pytest.mark.long
def test_what_a_poll_raises_stops_the_job_over_spark_connect(
    connect: SparkSession, tmp_path: Path
) -> None:
    check_that_a_poll_stops_the_job(connect, tmp_path)


def test_a_poll_that_raises_at_once_starts_no_job(engine: SparkEngine, tmp_path: Path) -> None:
    def poll() -> None:
        raise ConflictError("the plan was cancelled")

    with pytest.raises(ConflictError, match="cancelled"):
        engine.run(_work_until_stopped, [str(tmp_path / "begun")], poll=poll)
    assert not (tmp_path / "begun").exists()


@pytest.mark.usefixtures("spark")
def test_small_work_needs_no_job() -> None:
    def chosen(size_bytes: int, inline_bytes: int) -> type:
        engine = engine_for(
            size_bytes,
            files=FileConfig(inline_bytes=inline_bytes),
            spark_config=SparkConfig(),
            clock=SystemClock(),
            ids=SystemIds(),
        )
        return type(engine)

    assert chosen(100, 100) is InlineEngine
    assert chosen(101, 100) is SparkEngine
    assert chosen(0, 0) is SparkEngine


def _slices(table: Table) -> Any:
    return load_view(table.storage, table.config).slices()
