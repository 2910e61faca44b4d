"""The jobs that Headwater, Apache Hudi and plain Spark are compared by, inside one Spark session.

Both Sparks import this module, and Hudi's may be another one in another environment: it needs
pyspark and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

BUCKETS = 8
KEY = "id"
ORDERING = "ts"
COPY_ON_WRITE = "COPY_ON_WRITE"
MERGE_ON_READ = "MERGE_ON_READ"
COLUMNS = [
    *("id", "city", "ts", "amount", "quantity", "is_open", "note", "state", "seen", "score"),
]
GROUPED, SUMMED = "city", "amount"

# What Hudi's documentation advises for these jobs, and off what Headwater does not do either:
# the metadata table, services within a write, and bloom filters, which a bucket index never reads.
# The row writer of Hudi 1.2.0, and so a bulk insert, makes them whatever the option says.
HUDI_OPTIONS: Mapping[str, str] = {
    "hoodie.table.name": "bench",
    "hoodie.datasource.write.recordkey.field": KEY,
    "hoodie.datasource.write.precombine.field": ORDERING,
    "hoodie.datasource.write.keygenerator.type": "NON_PARTITION",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": str(BUCKETS),
    "hoodie.datasource.write.row.writer.enable": "true",
    "hoodie.bulkinsert.sort.mode": "NONE",
    "hoodie.parquet.compression.codec": "zstd",
    "hoodie.parquet.bloom.filter.enabled": "false",
    "hoodie.metadata.enable": "false",
    "hoodie.compact.inline": "false",
    "hoodie.clustering.inline": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
}


class Engine(Protocol):
    """What is compared; a table is a folder."""

    def bulk_insert(self, rows: DataFrame, table: str, table_type: str) -> None:
        """Make a table of these rows."""

    def upsert(self, rows: DataFrame, table: str, table_type: str) -> None: ...

    def commit(self, rows: DataFrame, table: str) -> None:
        """Upsert few rows into a merge-on-read table."""

    def read(self, table: str, columns: Sequence[str]) -> DataFrame: ...


class PlainParquet:
    """The floor: the same rows through the same Spark, with no table around them."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def bulk_insert(self, rows: DataFrame, table: str, table_type: str) -> None:
        rows.repartition(BUCKETS, KEY).write.parquet(table)

    def upsert(self, rows: DataFrame, table: str, table_type: str) -> None:
        """Write the batch; for copy on write, write back the files that it touches."""
        if table_type == COPY_ON_WRITE:
            rows.write.parquet(table)
        else:
            self.bulk_insert(rows, table, table_type)

    def commit(self, rows: DataFrame, table: str) -> None:
        rows.write.mode("append").parquet(table)

    def read(self, table: str, columns: Sequence[str]) -> DataFrame:
        return self._spark.read.parquet(table).select(*columns)


class ApacheHudi:
    """Hudi's data source."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        self._spark = spark
        self._options = options

    def bulk_insert(self, rows: DataFrame, table: str, table_type: str) -> None:
        self._write(rows, table, table_type, "bulk_insert")

    def upsert(self, rows: DataFrame, table: str, table_type: str) -> None:
        self._write(rows, table, table_type, "upsert")

    def commit(self, rows: DataFrame, table: str) -> None:
        self._write(rows, table, MERGE_ON_READ, "upsert")

    def read(self, table: str, columns: Sequence[str]) -> DataFrame:
        reader = self._spark.read.format("hudi").options(**self._options)
        return reader.load(table).select(*columns)

    def _write(self, rows: DataFrame, table: str, table_type: str, operation: str) -> None:
        writer = rows.write.format("hudi").options(**self._options)
        writer = writer.option("hoodie.datasource.write.table.type", table_type)
        writer.option("hoodie.datasource.write.operation", operation).mode("append").save(table)


class Jobs:
    """The engines of one session; the driver program calls these methods from outside."""

    def __init__(self, spark: SparkSession, engines: Mapping[str, Engine]) -> None:
        assert spark._jvm is not None
        self._spark = spark
        self._java = spark._jvm.System
        self._engines = engines

    def versions(self) -> dict[str, str]:
        java = str(self._java.getProperty("java.version"))
        return {"spark": str(self._spark.version), "java": java}

    def measure(self, engine: str, job: str, sources: Sequence[str], table: str) -> float:
        """Return the seconds of a job whose input is the Parquet of these folders."""
        frames = [self._spark.read.parquet(source) for source in sources]
        run = self._steps(self._engines[engine], frames, table)[job]
        # What earlier jobs left behind shall be counted neither as time nor as memory of this one.
        self._java.gc()
        began = time.perf_counter()
        run()
        return time.perf_counter() - began

    def make(self, engine: str, source: str, table: str, table_type: str) -> None:
        """Make a table for later jobs."""
        self._engines[engine].bulk_insert(self._spark.read.parquet(source), table, table_type)

    def sums(self, engine: str, table: str) -> list[float]:
        """Read the table; return the number of its rows and the sums of two columns."""
        return sums_of(self._engines[engine].read(table, [ORDERING, SUMMED]))

    def _steps(
        self, engine: Engine, frames: Sequence[DataFrame], table: str
    ) -> Mapping[str, Callable[[], Any]]:
        def small_commits() -> None:
            for rows in frames:
                engine.commit(rows, table)

        def read_two() -> None:
            rows = engine.read(table, [GROUPED, SUMMED])
            rows.groupBy(GROUPED).agg(F.sum(SUMMED)).collect()

        def read_all() -> None:
            engine.read(table, COLUMNS).write.format("noop").mode("overwrite").save()

        return {
            "bulk-insert": lambda: engine.bulk_insert(frames[0], table, COPY_ON_WRITE),
            "mor-upsert": lambda: engine.upsert(frames[0], table, MERGE_ON_READ),
            "cow-upsert": lambda: engine.upsert(frames[0], table, COPY_ON_WRITE),
            "read-two": read_two,
            "read-all": read_all,
            "small-commits": small_commits,
        }


def sums_of(rows: DataFrame) -> list[float]:
    """Return the number of rows and the sums of two columns, of which an update changes one."""
    row = rows.agg(F.count(F.lit(1)), F.sum(ORDERING), F.sum(SUMMED)).first()
    assert row is not None
    return [float(value) for value in row]
