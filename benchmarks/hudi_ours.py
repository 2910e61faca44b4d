"""Headwater and the input of all engines, in a process and a Spark session of their own."""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hudi_jobs import BUCKETS, KEY, MERGE_ON_READ, ORDERING, Jobs, PlainParquet, sums_of
from pyspark.sql import DataFrame, SparkSession
from spark_bench import new_session, rows_of

import headwater as hw

SMALL_COMMITS = 20
SMALL_ROWS = 1_000
NEW_IN = 5  # One row of so many in a batch has a new key.
STOPPED_WITHIN_S = 30


class Headwater:
    """Ours, with its defaults."""

    def bulk_insert(self, rows: DataFrame, table: str, table_type: str) -> None:
        made = hw.create_table(
            table,
            schema=rows.schema,
            record_key=KEY,
            ordering=ORDERING,
            table_type=table_type,
            buckets=BUCKETS,
        )
        made.bulk_insert(rows)

    def upsert(self, rows: DataFrame, table: str, table_type: str) -> None:
        hw.open_table(table).upsert(rows)

    def commit(self, rows: DataFrame, table: str) -> None:
        self.upsert(rows, table, MERGE_ON_READ)

    def read(self, table: str, columns: Sequence[str]) -> DataFrame:
        return hw.open_table(table).read(columns=columns)


class OurJobs(Jobs):
    """The jobs of our session, and the input that it makes for all."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark, {"headwater": Headwater(), "parquet": PlainParquet(spark)})

    def prepare(self, folder: str, rows: int, batch: int) -> dict[str, list[float]]:
        """Write the input; return the sums of everything that a job may leave behind.

        The updates are spread over all keys. The results come from joins of plain Spark.
        """
        spark = self._spark
        updates = batch - batch // NEW_IN
        step = rows // updates
        new = rows_of(spark, rows, rows + batch - updates, ts=2)
        inputs = {
            "base": rows_of(spark, 0, rows),
            "batch": rows_of(spark, 0, updates * step, step=step, ts=2).unionByName(new),
        }
        small_updates = SMALL_ROWS - SMALL_ROWS // NEW_IN
        for number in range(SMALL_COMMITS):
            start = number * SMALL_ROWS
            updated = rows_of(spark, start, start + small_updates, ts=3)
            added = rows_of(spark, rows + start, rows + start + SMALL_ROWS // NEW_IN, ts=3)
            inputs[f"small/{number:02}"] = updated.unionByName(added).coalesce(1)
        for name, frame in inputs.items():
            frame.write.parquet(f"{folder}/{name}")
        base = spark.read.parquet(f"{folder}/base")
        changes = spark.read.parquet(f"{folder}/batch")
        small = spark.read.parquet(*(f"{folder}/{name}" for name in inputs if "/" in name))
        _upserted(base, changes).repartition(BUCKETS, KEY).write.parquet(f"{folder}/upserted")
        return {
            "base": sums_of(base),
            "batch": sums_of(changes),
            "small": sums_of(small),
            "upserted": sums_of(spark.read.parquet(f"{folder}/upserted")),
            "with small": sums_of(_upserted(base, small)),
        }


class OurSession:
    """A running process; calls block until it has answered. It logs to the file `log`."""

    def __init__(self, folder: Path, cores: int, settings: Mapping[str, str]) -> None:
        folder.mkdir(parents=True)
        self.log = folder / "log.txt"
        context = get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=serve, args=(theirs, str(folder), cores, dict(settings)), daemon=True
        )
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()
        self._process.join(STOPPED_WITHIN_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def ask(self, method: str, **arguments: Any) -> Any:
        """Call a method of `OurJobs`."""
        try:
            self._connection.send((method, arguments))
            is_done, answer = self._connection.recv()
        except (EOFError, OSError) as error:
            tail = self.log.read_text(errors="replace")[-4000:]
            raise RuntimeError(f"Headwater's process ended.\n{tail}") from error
        if not is_done:
            raise RuntimeError(f"Headwater's process failed.\n{answer}")
        return answer


def serve(connection: Connection, folder: str, cores: int, settings: Mapping[str, str]) -> None:
    """Answer calls until the other end closes."""
    log = os.open(f"{folder}/log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(folder)
    spark = new_session(cores, settings)
    spark.sparkContext.setLogLevel("OFF")
    jobs = OurJobs(spark)
    while True:
        try:
            method, arguments = connection.recv()
        except EOFError:
            break
        try:
            answer = (True, getattr(jobs, method)(**arguments))
        except Exception:  # noqa: BLE001 - whatever goes wrong is the answer
            answer = (False, traceback.format_exc())
        connection.send(answer)
    spark.stop()


def _upserted(base: DataFrame, changes: DataFrame) -> DataFrame:
    return base.join(changes, KEY, "left_anti").unionByName(changes)
