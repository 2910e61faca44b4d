"""Rows in DataFrames: which engine writes them.

A DataFrame that Spark takes for small is collected, once, and written by this process: a commit
of a thousand rows is then several times faster than through tasks. Spark's estimate is asked for
through the JVM, so a DataFrame of Spark Connect is always written by tasks.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from headwater.arrow.input_schema import normalise_rows
from headwater.config.files import FileConfig
from headwater.config.spark import SparkConfig
from headwater.engine.engine import Rows
from headwater.engine.inline import InlineRows
from headwater.errors import InvalidInputError
from headwater.spark.rows import SparkRows
from headwater.spark.schemas import arrow_schema_of
from headwater.spark.session import gateway_of

INLINE_ROWS_MAX = 100_000
"""More rows than these are written faster by several tasks."""

_ROW_OVERHEAD_BYTES = 8
"""What Spark adds to the sizes of a row's columns when it estimates."""


def rows_of(df: DataFrame, files: FileConfig, spark_config: SparkConfig | None = None) -> Rows:
    """Return the rows in the form that a write takes.

    Raises:
        InvalidInputError: the DataFrame is a stream, or has a column that comes twice or cannot be
            stored.
    """
    if df.isStreaming:
        raise InvalidInputError(
            "The DataFrame is a stream. Write each of its batches: "
            "df.writeStream.foreachBatch(lambda batch, _: table.upsert(batch))"
        )
    if _is_small(df, files.inline_bytes):
        arrow_schema_of(df.schema)  # Refuses what Arrow would show as something else.
        return InlineRows(normalise_rows(df.toArrow()))
    return SparkRows(df, task_count=files.task_count, spark_config=spark_config)


def _is_small(df: DataFrame, inline_bytes: int) -> bool:
    """Whether Spark's own estimate, which runs nothing, is within the bounds."""
    if inline_bytes == 0 or gateway_of(df.sparkSession) is None:
        return False
    estimate = df._jdf.queryExecution().optimizedPlan().stats()
    size_bytes = int(str(estimate.sizeInBytes()))
    counted = estimate.rowCount()
    if counted.isDefined():
        row_count = int(str(counted.get()))
    else:
        row_bytes = _ROW_OVERHEAD_BYTES + df._jdf.schema().defaultSize()
        row_count = size_bytes // row_bytes
    return size_bytes <= inline_bytes and row_count <= INLINE_ROWS_MAX
