"""Records of Kafka, a batch at a time, by the package for Kafka that the user's Spark has.

Spark's own checkpoint of a query is thrown away with the query, which ends with its first batch:
where to begin is said by whoever calls, and kept by them with what they make of the records.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from headwater.errors import ErrorKind, UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = ("partition", "offset", "value")
_TYPED = (
    "CAST(partition AS int) AS partition",
    "CAST(offset AS bigint) AS offset",
    "CAST(value AS binary) AS value",
)
_LOOKED_EVERY_S = 1


def kafka_session() -> SparkSession:
    """Return the active session, or a local one; its packages are those of Spark's own settings."""
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    return (
        SparkSession.builder.appName("headwater ingest")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


def open_stream(
    spark: SparkSession, options: Mapping[str, str], records_max: int, starting: str
) -> DataFrame:
    """Return the records of a topic as a stream with `COLUMNS`.

    Args:
        options: Kafka's, as Spark takes them; `subscribe` and `kafka.bootstrap.servers` among them.
        records_max: how many there are in a batch, at most.
        starting: `earliest`, or Spark's JSON of offsets.

    Raises:
        UnsupportedError: Spark has no package for Kafka.
    """
    reader = (
        spark.readStream.format("kafka")
        .option("startingOffsets", starting)
        .option("maxOffsetsPerTrigger", records_max)
        .options(**options)
    )
    try:
        found = reader.load()
    except AnalysisException as error:
        if "kafka" not in str(error).lower():
            raise
        raise UnsupportedError(
            "Spark has no package for Kafka here. Add spark-sql-kafka-0-10 of Spark's own version, "
            "for example with PYSPARK_SUBMIT_ARGS='--packages "
            f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark.version} pyspark-shell'",
            kind=ErrorKind.UNSUPPORTED_OPTION,
        ) from error
    return found.select(*COLUMNS)


def first_batch(stream: DataFrame) -> pa.Table | None:
    """Return the first batch of what is there now; None if nothing is.

    Raises: what Spark says if the topic cannot be read.
    """
    found: list[pa.Table] = []

    def take(batch: Any, _: int) -> None:
        if not found:
            found.append(batch.selectExpr(*_TYPED).toArrow())

    with tempfile.TemporaryDirectory(prefix="headwater-kafka-") as folder:
        query = (
            stream.writeStream.foreachBatch(take)
            .trigger(availableNow=True)
            .option("checkpointLocation", folder)
            .start()
        )
        try:
            while not found and not query.awaitTermination(_LOOKED_EVERY_S):
                pass
        finally:
            query.stop()
    return found[0] if found else None
