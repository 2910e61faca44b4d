"""Rows in a Spark DataFrame: routed with one shuffle, consumed as Arrow batches.

    route      df.repartitionById(tasks, group number): all rows of a file group in one task
    consume    mapInArrow: the task's function sees an iterator of Arrow batches
    results    come back as one binary column, a pickled value per task

The group number is computed by Spark itself where keys and partitions are plain columns; otherwise
a first pass in Python adds it. Both give equal numbers to rows of one file group, which is all that
routing needs: the task computes the groups again from the rows. Only where the number had to be
looked up does it travel with the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext as SparkTaskContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DateType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from headwater.arrow.input_schema import normalise_rows
from headwater.arrow.keys import put_down
from headwater.arrow.partition_paths import DEFAULT_PARTITION
from headwater.config.spark import SparkConfig
from headwater.engine.engine import GROUP_NUMBER, Route, RouteKind, RowsTask, TaskContext
from headwater.errors import HeadwaterError, Retry
from headwater.spark.java_hash import java_hash
from headwater.spark.schemas import arrow_schema_of, frame_schema_of
from headwater.spark.session import (
    batches_bound_by_rows,
    core_count,
    driver_host,
    functions_of,
    with_our_interpreter,
)
from headwater.spark.task_results import decode_outcomes, encode_outcome, error_in_text
from headwater.spark.worker import warm

R = TypeVar("R")

TASKS_PER_CORE = 3
"""Several file groups share a task: each task costs tens of milliseconds, whatever it does."""

_OUTCOME = "outcome"
_NO_GROUP = 0
_PATH_HASH_BITS = 20
_NATIVE_TYPES = (
    StringType,
    BooleanType,
    ByteType,
    ShortType,
    IntegerType,
    LongType,
    DateType,
)
"""Types whose text is the same for Spark's cast and for the key generator."""


class SparkRows:
    """The rows of a DataFrame, classic or of Spark Connect.

    Raises:
        InvalidInputError: a column comes twice, or has a type that cannot be stored.
    """

    def __init__(
        self,
        df: DataFrame,
        *,
        task_count: int | None = None,
        spark_config: SparkConfig | None = None,
    ) -> None:
        self._df = df
        self._task_count = task_count
        self._warms = (spark_config or SparkConfig()).warms_workers
        self._schema = arrow_schema_of(df.schema)
        with_our_interpreter(df.sparkSession)

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def driver_host(self) -> str | None:
        return driver_host(self._df.sparkSession)

    def held(self) -> None:
        return None

    def run(self, route: Route, task: RowsTask[R]) -> list[R]:
        """Run the tasks as one job of Spark.

        Raises:
            HeadwaterError: what a task raised. Others may have run to their end.
            PySparkException: the DataFrame itself failed, or Spark did.
        """
        count = self._task_count or TASKS_PER_CORE * core_count(self._df.sparkSession)
        consume = partial(_consume, task, count, self._warms)
        outcomes = self._routed(route, count).mapInArrow(consume, f"{_OUTCOME} binary")
        try:
            with batches_bound_by_rows(self._df.sparkSession):
                collected = outcomes.toArrow()
        except PySparkException as failure:
            ours = error_in_text(failure)
            if ours is None:
                raise
            raise ours from failure
        return decode_outcomes(collected.column(0).to_pylist())

    def _routed(self, route: Route, task_count: int) -> DataFrame:
        if route.kind is RouteKind.ANYWHERE:
            return self._df.repartition(task_count)
        native = _native_group(self._df, route)
        if native is not None:
            return self._df.repartitionById(task_count, native)
        if route.tag is not None:
            tag = partial(_tag, route.tag, self._warms)
            columns = frame_schema_of(self._schema).add(GROUP_NUMBER, IntegerType())
            return self._df.mapInArrow(tag, columns).repartitionById(task_count, GROUP_NUMBER)
        assert route.group_numbers is not None
        number = partial(_number, route.group_numbers, self._warms)
        columns = StructType([*self._df.schema.fields]).add(GROUP_NUMBER, IntegerType())
        numbered = self._df.mapInArrow(number, columns)
        return numbered.repartitionById(task_count, GROUP_NUMBER).drop(GROUP_NUMBER)


def _native_group(df: DataFrame, route: Route) -> Column | None:
    """Return Spark's own expression of a group number, if the columns allow one."""
    types = {field.name: field.dataType for field in df.schema.fields}
    if route.bucket_count is None or route.simple_key is None:
        return None
    for name in (route.simple_key, *route.simple_partition):
        if not isinstance(types.get(name), _NATIVE_TYPES):
            return None
    fn = functions_of(df.sparkSession)
    hashed = java_hash(df.sparkSession, fn.col(route.simple_key).cast("string"))
    # As a long: Spark raises where an int overflows.
    bucket = fn.pmod((hashed.cast("long") + 31).bitwiseAND(0x7FFFFFFF), fn.lit(route.bucket_count))
    if route.simple_partition:
        path = fn.concat_ws("/", *(_path_part(fn, route, name) for name in route.simple_partition))
        bucket = bucket + fn.pmod(fn.hash(path), fn.lit(1 << _PATH_HASH_BITS))
    native: Column = bucket.cast("int")
    return native


def _path_part(fn: Any, route: Route, name: str) -> Column:
    """Return a part of the partition path as it is before escaping, which changes no equality."""
    text = fn.col(name).cast("string")
    part: Column = fn.when(text.isNull() | (text == ""), fn.lit(DEFAULT_PARTITION)).otherwise(text)
    return fn.concat(fn.lit(f"{name}="), part) if route.is_hive_style else part


def _number(
    group_numbers: Callable[[pa.RecordBatch], pa.Array],
    warms: bool,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    if warms:
        warm()
    for batch in batches:
        try:
            numbers = group_numbers(normalise_rows(batch))
        except HeadwaterError as error:
            if error.retry is not Retry.NEVER:
                raise
            # The task that gets these rows meets the same error and reports it.
            numbers = pa.repeat(pa.scalar(_NO_GROUP, pa.int32()), batch.num_rows)
        yield batch.append_column(GROUP_NUMBER, pc.cast(numbers, pa.int32()))


def _tag(
    tag: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    warms: bool,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    if warms:
        warm()
    for batch in tag(normalise_rows(batch) for batch in batches):
        yield put_down(batch)  # To make keys again costs less than to send them.


def _consume(
    task: RowsTask[R], task_count: int, warms: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    if warms:
        warm()
    context = SparkTaskContext.get()
    assert context is not None
    here = TaskContext(
        task=context.partitionId(),
        # Not the number of the attempt but its id: unique over stages, retries, speculation.
        task_attempt=context.taskAttemptId(),
        task_count=task_count,
    )
    rows = (normalise_rows(batch) for batch in batches)
    outcome = encode_outcome(lambda: task(here, rows))
    yield pa.RecordBatch.from_pydict({_OUTCOME: pa.array([outcome], pa.binary())})
