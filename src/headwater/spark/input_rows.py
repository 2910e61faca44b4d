"""Rows as people have them: which engine writes a Spark DataFrame, an Arrow table, a pandas frame.

A DataFrame that Spark takes for small is collected, once, and written by this process: a commit
of a thousand rows is then several times faster than through tasks. Spark's estimate is asked for
through the JVM, so a DataFrame of Spark Connect is always written by tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
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

if TYPE_CHECKING:
    import pandas

AnyRows: TypeAlias = "DataFrame | pa.Table | pa.RecordBatch | pandas.DataFrame"

INLINE_ROWS_MAX = 100_000
"""More rows than these are written faster by several tasks."""

_ROW_OVERHEAD_BYTES = 8
"""What Spark adds to the sizes of a row's columns when it estimates."""


def rows_of(given: Any, files: FileConfig, spark_config: SparkConfig | None = None) -> Rows:
    """Return the rows in the form that a write takes.

    Raises:
        InvalidInputError: rows of another type, a column that comes twice or cannot be stored.
    """
    if isinstance(given, pa.RecordBatch):
        given = pa.Table.from_batches([given])
    if isinstance(given, pa.Table):
        return InlineRows(normalise_rows(given))
    if isinstance(given, DataFrame):
        return _rows_of_frame(given, files, spark_config)
    module = type(given).__module__.partition(".")[0]
    if module == "pandas":
        return InlineRows(normalise_rows(pa.Table.from_pandas(given, preserve_index=False)))
    raise InvalidInputError(
        f"Rows are a Spark DataFrame, a pyarrow Table or RecordBatch, or a pandas DataFrame; got "
        f"{type(given).__name__}"
    )


def _rows_of_frame(df: DataFrame, files: FileConfig, spark_config: SparkConfig | None) -> Rows:
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
