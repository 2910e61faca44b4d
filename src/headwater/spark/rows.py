"""Rows in a Spark DataFrame: routed with one shuffle, consumed as Arrow batches.

    route      df.repartitionById(tasks, group number): all rows of a file group in one task
    consume    mapInArrow: the task's function sees an iterator of Arrow batches
    results    come back as one binary column, a pickled value per row

The group number is computed by Spark itself where the key is one plain column; otherwise a first
pass in Python adds it. Both give equal numbers to rows of one file group, which is all that routing
needs: the task computes the groups again from the rows.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import TypeVar

import pyarrow as pa
from pyspark import TaskContext as SparkTaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ByteType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from headwater.engine.engine import Route, RouteKind, RowsTask, TaskContext
from headwater.spark.worker import warm

R = TypeVar("R")

TASKS_PER_CORE = 3
"""Several file groups share a task: each task costs tens of milliseconds, whatever it does."""

_GROUP = "__headwater_group"
_RESULT = "result binary"
_NATIVE_TYPES = (StringType, ByteType, ShortType, IntegerType, LongType)
"""Types whose text is the same for Spark's cast and for the key generator."""


class SparkRows:
    """The rows of a DataFrame."""

    def __init__(self, df: DataFrame, *, task_count: int | None = None) -> None:
        self._df = df
        self._task_count = task_count

    @property
    def schema(self) -> pa.Schema:
        return to_arrow_schema(self._df.schema)

    def run(self, route: Route, task: RowsTask[R]) -> list[R]:
        count = self._task_count or self._default_task_count()
        results = self._routed(route, count).mapInArrow(_consume(task), _RESULT).toArrow()
        return [result for row in results.column(0) for result in pickle.loads(row.as_py())]

    def _default_task_count(self) -> int:
        cores = self._df.sparkSession.conf.get("spark.default.parallelism", None)
        if cores is None and hasattr(self._df.sparkSession, "sparkContext"):
            cores = str(self._df.sparkSession.sparkContext.defaultParallelism)
        return TASKS_PER_CORE * int(cores or 2)

    def _routed(self, route: Route, task_count: int) -> DataFrame:
        if route.kind is RouteKind.ANYWHERE:
            return self._df
        native = _native_group(self._df.schema, route)
        if native is not None:
            return self._df.repartitionById(task_count, native)
        assert route.group_numbers is not None
        numbered = self._df.mapInArrow(
            _number(route.group_numbers), StructType([*self._df.schema.fields]).add(_GROUP, "int")
        )
        routed = numbered.repartitionById(task_count, F.pmod(F.col(_GROUP), F.lit(task_count)))
        return routed.drop(_GROUP)


def _native_group(schema: StructType, route: Route) -> Column | None:
    """Return Spark's own expression of a group number, if the columns allow one."""
    names = [route.simple_key, *route.simple_partition]
    fields = {field.name: field.dataType for field in schema.fields}
    if route.bucket_count is None or not all(
        name in fields and isinstance(fields[name], _NATIVE_TYPES) for name in names if name
    ):
        return None
    if route.simple_key is None:
        return None
    key = F.col(f"`{route.simple_key}`").cast("string")
    # `reflect` is plain SQL, so it works over Spark Connect too, and it is Java's own hash.
    hashed = (
        F.expr("0")
        if key is None
        else F.reflect(F.lit("java.util.Objects"), F.lit("hashCode"), key)
    )
    bucket = F.pmod((hashed.cast("long") + 31).bitwiseAND(0x7FFFFFFF), F.lit(route.bucket_count))
    if route.simple_partition:
        # Null and empty text share a partition path, so they must share a number.
        values = [
            F.coalesce(F.col(f"`{name}`").cast("string"), F.lit(""))
            for name in route.simple_partition
        ]
        bucket = bucket + F.pmod(F.hash(*values), F.lit(1 << 20))
    return bucket.cast("int")


def _number(
    group_numbers: Callable[[pa.RecordBatch], pa.Array],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def number(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        warm()
        for batch in batches:
            yield batch.append_column(_GROUP, group_numbers(batch).cast(pa.int32()))

    return number


def _consume(
    task: RowsTask[R],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def consume(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        warm()
        context = SparkTaskContext.get()
        assert context is not None
        # Not the number of the attempt but the id of it: unique over stages, retries, speculation.
        here = TaskContext(context.partitionId(), context.taskAttemptId())
        results = task(here, batches)
        if results:
            yield pa.RecordBatch.from_pydict({"result": pa.array([pickle.dumps(results)])})

    return consume
