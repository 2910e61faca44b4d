"""A write on Spark that is behind another one ends, whatever its tasks are at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import StatusTracker
from pyspark.sql import SparkSession

import headwater as hw
from headwater.engine.inline import InlineRows
from headwater.errors import EarlyConflictError, ErrorKind
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.write import RunningWrite, start_write

OPTIONS = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "filesystem",
    "hoodie.write.num.retries.on.conflict.failures": "0",
    "headwater.write.inline.bytes": "0",
    "headwater.write.tasks": "3",
}
JOBS = "early conflict"


def rows(value: int) -> pa.Table:
    ids = [f"key-{number}" for number in range(100)]
    return pa.table({"id": ids, "value": [value] * len(ids)})


@pytest.fixture
def table(tmp_path: Path) -> hw.Table:
    return hw.create_table(
        tmp_path / "t", schema=rows(0).schema, record_key="id", buckets=6, options=OPTIONS
    )


@pytest.fixture
def first(table: hw.Table) -> Iterator[RunningWrite]:
    """A writer of all file groups that began first and is still at work."""
    target = table.context
    given = InlineRows(rows(1))
    request = WriteRequest(operation=Operation.UPSERT, columns=given.schema)
    running = start_write(target, request)
    running.run_tasks(given)
    yield running
    running.abandon()


def failed_task_count(tracker: StatusTracker) -> int:
    stages = [
        stage
        for job in tracker.getJobIdsForGroup(JOBS)
        for stage in tracker.getJobInfo(job).stageIds  # type: ignore[union-attr]
    ]
    assert stages, "nothing ran on Spark"
    infos = [tracker.getStageInfo(stage) for stage in stages]
    return sum(info.numFailedTasks for info in infos if info is not None)


def data_files(table: hw.Table) -> set[str]:
    return {info.path for info in table.storage.list_tree("") if ".hoodie" not in info.path}


@pytest.mark.parametrize("markers", ["DIRECT", "TIMELINE_SERVER_BASED"])
@pytest.mark.some(1)
def test_the_job_ends_with_the_conflict_and_without_another_try(
    spark: SparkSession,
    job_status: Callable[[], StatusTracker],
    table: hw.Table,
    first: RunningWrite,
    markers: str,
) -> None:
    before = data_files(table)
    second = hw.open_table(table.uri, {**OPTIONS, "hoodie.write.markers.type": markers})
    spark.sparkContext.setJobGroup(JOBS, JOBS)
    try:
        with pytest.raises(EarlyConflictError) as caught:
            second.upsert(spark.createDataFrame(rows(2)))
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert caught.value.kind is ErrorKind.EARLY_CONFLICT
    assert caught.value.context["other"] == first.plan.instant_time
    assert caught.value.context["owner"] == str(table.context.ids.owner)
    assert "group" in caught.value.context
    assert failed_task_count(job_status()) == 0
    assert data_files(table) == before, "no task has written a file"
