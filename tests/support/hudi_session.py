"""A Spark session with Apache Hudi, driven line by line through a pipe.

Run as a script, by the interpreter that has the Spark of Hudi's bundle, which need not be ours:

    python hudi_session.py BUNDLE.jar WAREHOUSE MASTER [KEY=VALUE ...]

Every line in is a JSON object `{"do": name, ...}`, every line out its answer: `{"ok": ...}` or
`{"error": text}`. Rows come and go as Parquet files. Imports nothing of Headwater.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

TIMESTAMPS = "spark.sql.parquet.outputTimestampType"


def open_session(
    bundle: str, warehouse: str, master: str, settings: Mapping[str, str]
) -> SparkSession:
    """Start Spark as Hudi's documentation says."""
    builder = (
        SparkSession.builder.master(master)
        .appName("hudi")
        .config("spark.jars", bundle)
        .config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
        .config("spark.kryo.registrator", "org.apache.spark.HoodieSparkKryoRegistrar")
        .config("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.hudi.catalog.HoodieCatalog"
        )
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.warehouse.dir", warehouse)
        .config("spark.local.dir", f"{warehouse}/local")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config(TIMESTAMPS, "TIMESTAMP_MICROS")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


class HudiSession:
    """The commands; each method takes the fields of its line."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def version(self) -> str:
        return str(self.spark.version)

    def write(self, rows: str, path: str, options: dict[str, str], mode: str = "append") -> float:
        """Write the rows of a Parquet file with Hudi's data source; return the seconds taken."""
        frame = self.spark.read.parquet(rows)
        began = time.perf_counter()
        frame.write.format("hudi").options(**options).mode(mode).save(path)
        return time.perf_counter() - began

    def read(
        self,
        path: str,
        into: str,
        options: dict[str, str],
        columns: list[str] | None = None,
        where: str | None = None,
    ) -> float:
        """Read a table into a Parquet folder."""
        frame = self.spark.read.format("hudi").options(**options).load(path)
        return self._save(frame, into, columns, where)

    def sql(self, text: str, into: str | None = None) -> float:
        """Run a statement, and keep its rows if a folder for them is named."""
        began = time.perf_counter()
        frame = self.spark.sql(text)
        if into is not None:
            return self._save(frame, into, None, None)
        frame.collect()
        return time.perf_counter() - began

    def run(self, source: str, arguments: dict[str, Any]) -> Any:
        """Run Python with `spark`, `self` and the arguments; answer what it leaves in `result`."""
        names: dict[str, Any] = {"spark": self.spark, "self": self, "result": None, **arguments}
        exec(compile(source, "<hudi session>", "exec"), names)
        return names["result"]

    def _save(
        self, frame: DataFrame, into: str, columns: list[str] | None, where: str | None
    ) -> float:
        if where is not None:
            frame = frame.where(where)
        if columns is not None:
            frame = frame.select(*columns)
        began = time.perf_counter()
        frame.coalesce(1).write.mode("overwrite").parquet(into)
        return time.perf_counter() - began


def main() -> None:
    bundle, warehouse, master, *settings = sys.argv[1:]
    # Spark and Hudi print to standard output; answers keep a way of their own.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    Path(warehouse).mkdir(parents=True, exist_ok=True)
    spark = open_session(bundle, warehouse, master, dict(item.split("=", 1) for item in settings))
    session = HudiSession(spark)
    answers.write(json.dumps({"ok": session.version()}) + "\n")
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = {"ok": getattr(session, command.pop("do"))(**command)}
        except Exception:  # noqa: BLE001 - whatever goes wrong is the answer
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
    spark.stop()


if __name__ == "__main__":
    main()
