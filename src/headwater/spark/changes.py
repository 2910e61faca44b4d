"""Incremental queries and the change feed as Spark DataFrames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headwater.arrow.input_schema import normalise_rows
from headwater.arrow.meta_columns import COMMIT_TIME
from headwater.config.spark import SparkConfig
from headwater.model.files import FileGroupId
from headwater.queries.cdc import ChangeFeedPlan, ChangeTask
from headwater.queries.change_images import read_changes
from headwater.queries.incremental import IncrementalPlan
from headwater.queries.slice_query import SliceQuery
from headwater.queries.snapshot import SnapshotPlan
from headwater.spark.read import BATCH_ROWS, TASKS_PER_CORE, read_snapshot
from headwater.spark.schemas import frame_schema_of
from headwater.spark.session import core_count
from headwater.spark.shares import balanced_shares
from headwater.spark.worker import warm


def read_incremental(
    spark: SparkSession, plan: IncrementalPlan, spark_config: SparkConfig | None = None
) -> DataFrame:
    """Return a DataFrame of the rows that the writes of a plan wrote.

    Raises: as `read_snapshot`.
    """
    # Spark's own scan does not know the query's filter, so it is said in SQL once more.
    instants = ", ".join(f"'{instant}'" for instant in plan.instants) or "NULL"
    where = f"{COMMIT_TIME} IN ({instants})"
    return read_snapshot(spark, SnapshotPlan(plan.query, plan.slices), where, spark_config)


def read_change_feed(
    spark: SparkSession, plan: ChangeFeedPlan, spark_config: SparkConfig | None = None
) -> DataFrame:
    """Return a DataFrame of the changes of a plan, in no order; `ts` and then `op` tell theirs."""
    schema = frame_schema_of(plan.result_schema)
    groups = _by_file_group(plan.tasks)
    if not groups:
        return spark.createDataFrame([], schema)
    shares = balanced_shares(groups, TASKS_PER_CORE * core_count(spark), _size_bytes)
    numbers = spark.range(0, len(shares), 1, len(shares))
    warms = (spark_config or SparkConfig()).warms_workers
    return numbers.mapInArrow(partial(_read_shares, plan.query, shares, warms), schema)


def _by_file_group(tasks: Sequence[ChangeTask]) -> list[list[ChangeTask]]:
    groups: dict[FileGroupId, list[ChangeTask]] = {}
    for task in tasks:
        groups.setdefault(task.group, []).append(task)
    return list(groups.values())


def _size_bytes(tasks: Sequence[ChangeTask]) -> int:
    sides = (side for task in tasks for side in (task.before, task.after))
    return sum(side.size_bytes for side in sides if side is not None)


def _read_shares(
    query: SliceQuery,
    shares: Sequence[Sequence[Sequence[ChangeTask]]],
    warms: bool,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    if warms:
        warm()
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for tasks in shares[number]:
                for changes in read_changes(query, tasks):
                    for start in range(0, changes.num_rows, BATCH_ROWS):
                        yield normalise_rows(changes.slice(start, BATCH_ROWS))
