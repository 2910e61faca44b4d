"""What the Spark benchmarks share: one session, one data set, turns, and a table of figures.

Every comparison runs in one process and session, its variants in turns, and the best turn counts.
Absolute times vary from machine to machine; the ratio to the floor is what to look at.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

CITIES = 16
SAMPLED_EVERY_S = 0.2  # Reading /proc takes milliseconds of the cores that are measured.


@dataclass(frozen=True, slots=True)
class Figure:
    what: str
    variant: str
    seconds: float
    ratio: float  # To the floor of its comparison.
    rows: int
    bytes_on_disk: int


def session_settings(cores: int = 2, memory: str = "6g") -> dict[str, str]:
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": memory,
        "spark.sql.shuffle.partitions": str(3 * cores),
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
        "spark.sql.parquet.compression.codec": "zstd",
    }


def new_session(cores: int = 2, settings: Mapping[str, str] | None = None) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{cores}]")
    for key, value in (settings or session_settings(cores)).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def rows_of(spark: SparkSession, start: int, end: int, *, step: int = 1, ts: int = 1) -> DataFrame:
    """Return rows of ten columns: a unique key, few and many values, numbers, text, a time."""
    id_ = F.col("id")
    return spark.range(start, end, step, 8).select(
        F.concat(F.lit("key-"), id_.cast("string")).alias("id"),
        F.concat(F.lit("city-"), (id_ % CITIES).cast("string")).alias("city"),
        F.lit(ts).cast("long").alias("ts"),
        (id_ * 7 % 1_000_003).cast("double").alias("amount"),
        (id_ % 100).cast("int").alias("quantity"),
        (id_ % 2 == 0).alias("is_open"),
        F.concat(F.lit("note "), F.sha1(id_.cast("string")).substr(1, 16)).alias("note"),
        F.concat(F.lit("state-"), (id_ % 50).cast("string")).alias("state"),
        F.timestamp_seconds(F.lit(1_700_000_000) + id_).alias("seen"),
        (id_ * 31 % 10_007).alias("score"),
    )


def best_of(turns: int, variants: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Run all variants in turns; return the best seconds of each."""
    best = dict.fromkeys(variants, float("inf"))
    for _ in range(turns):
        for name, run in variants.items():
            began = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - began)
    return best


def bytes_below(folder: str) -> int:
    return sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())


def peak_memory_mb() -> int:
    """Return the peaks of this process and of all below it, added up: driver, JVM and workers."""
    return memory_mb(os.getpid(), "VmHWM")


def memory_mb(root: int, field: str) -> int:
    """Add up a field of `/proc/PID/status`, such as VmRSS, over a process and all below it."""
    parents: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        except OSError:
            continue  # It has ended since it was listed.
        process = int(fields["Pid"])
        parents[process] = int(fields["PPid"])
        sizes[process] = int(fields.get(field, "0 kB").split()[0])
    tree = {root}
    while more := {process for process, parent in parents.items() if parent in tree} - tree:
        tree |= more
    return sum(sizes.get(process, 0) for process in tree) // 1024


class PeakMemory:
    """Watch a process and all below it; `mb` is the most they held together."""

    def __init__(self, root: int) -> None:
        self.mb = 0
        self._root = root
        self._is_over = threading.Event()
        self._watch = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._watch.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._watch.join()

    def _sample(self) -> None:
        while True:
            self.mb = max(self.mb, memory_mb(self._root, "VmRSS"))
            if self._is_over.wait(SAMPLED_EVERY_S):
                return


def show(figures: list[Figure], json_path: str | None) -> None:
    print(f"{'what':34} {'variant':26} {'seconds':>8} {'ratio':>6} {'rows':>10} {'MB':>8}")
    for figure in figures:
        print(
            f"{figure.what:34} {figure.variant:26} {figure.seconds:8.2f} {figure.ratio:6.2f} "
            f"{figure.rows:10,} {figure.bytes_on_disk / 1e6:8.1f}"
        )
    print(f"peak memory: {peak_memory_mb()} MB")
    if json_path is not None:
        Path(json_path).write_text(json.dumps([asdict(figure) for figure in figures], indent=2))
