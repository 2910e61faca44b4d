"""What does a write cost, next to plain Spark Parquet on the same rows?

    bulk insert        floor: df.repartition(n, key).write.parquet
    MOR bucket upsert  floor: the same for the rows of the batch
    COW upsert         floor: plain Spark reads the touched files and writes them back
    by df.write        the same upsert by `df.write`; floor: `t.upsert`; budget 1.3
    small commit       1,000 rows end to end, timeline included; milliseconds and storage calls

Run: python benchmarks/write.py [--rows 2000000] [--batch 400000] [--turns 3] [--json PATH]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import Any

from pyspark.sql import DataFrame
from spark_bench import Figure, best_of, bytes_below, new_session, rows_of, show
from tests.support.counting_storage import CountingStorage, open_counting

import headwater as hw
from headwater.metadata.view import load_view

BUCKETS = 8
SMALL_ROWS = 1_000
NEVER_INLINE = {"headwater.write.inline.bytes": "0"}


class Bench:
    """One session, one scratch folder, and the figures so far."""

    def __init__(self, turns: int) -> None:
        self.spark = new_session()
        hw.register(self.spark)
        self.turns = turns
        self.figures: list[Figure] = []
        self._folder = tempfile.mkdtemp(prefix="headwater-bench-")
        self._numbers = count()
        self._last = ""

    def place(self) -> str:
        self._last = f"{self._folder}/{next(self._numbers)}"
        return self._last

    def new_table(self, schema: Any, table_type: str) -> hw.Table:
        return hw.create_table(
            self.place(),
            schema=schema,
            record_key="id",
            ordering="ts",
            table_type=table_type,
            buckets=BUCKETS,
            options=NEVER_INLINE,
        )

    def write_plain(self, df: DataFrame) -> None:
        df.repartition(BUCKETS, "id").write.parquet(self.place())

    def compare(self, what: str, variants: Mapping[str, Callable[[], object]], rows: int) -> None:
        """Measure the variants, the floor first."""
        sizes: dict[str, int] = {}

        def sized(name: str, run: Callable[[], object]) -> Callable[[], None]:
            def run_and_size() -> None:
                run()
                sizes[name] = bytes_below(self._last)

            return run_and_size

        best = best_of(self.turns, {name: sized(name, run) for name, run in variants.items()})
        floor = next(iter(best.values()))
        for name, seconds in best.items():
            self.figures.append(Figure(what, name, seconds, seconds / floor, rows, sizes[name]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--batch", type=int, default=400_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json")
    given = parser.parse_args()
    bench = Bench(given.turns)

    rows = rows_of(bench.spark, 0, given.rows).cache()
    new_keys = given.batch // 5
    first = given.rows - given.batch + new_keys
    batch = rows_of(bench.spark, first, given.rows + new_keys, ts=2).cache()
    rows.count()
    batch.count()
    # Warm the session and its Python workers before anything is timed.
    bench.write_plain(batch)
    bench.new_table(rows.schema, "MERGE_ON_READ").upsert(batch)

    bench.compare(
        "bulk insert",
        {
            "spark parquet": lambda: bench.write_plain(rows),
            "copy on write": lambda: bench.new_table(rows.schema, "COPY_ON_WRITE").bulk_insert(
                rows
            ),
            "merge on read": lambda: bench.new_table(rows.schema, "MERGE_ON_READ").bulk_insert(
                rows
            ),
        },
        given.rows,
    )
    merge_on_read = bench.new_table(rows.schema, "MERGE_ON_READ")
    merge_on_read.bulk_insert(rows)
    bench.compare(
        "MOR bucket upsert",
        {
            "spark parquet": lambda: bench.write_plain(batch),
            "upsert": lambda: merge_on_read.upsert(batch),
        },
        given.batch,
    )
    copy_on_write = bench.new_table(rows.schema, "COPY_ON_WRITE")
    copy_on_write.bulk_insert(rows)
    bench.compare(
        "COW upsert",
        {
            "spark rewrite": lambda: rewrite(bench, copy_on_write),
            "upsert": lambda: copy_on_write.upsert(batch),
        },
        given.batch,
    )
    bench.compare(
        "COW upsert by df.write",
        {
            "t.upsert": lambda: copy_on_write.upsert(batch),
            "df.write": lambda: (
                batch.write.format("headwater")
                .options(**NEVER_INLINE)
                .mode("append")
                .save(copy_on_write.uri)
            ),
        },
        given.batch,
    )
    measure_small_commits(bench, merge_on_read)
    show(bench.figures, given.json)


def rewrite(bench: Bench, table: hw.Table) -> None:
    """Read and write back, with plain Spark, the base files that an upsert touches: all of them."""
    slices = load_view(table.storage, table.config).slices()
    files = [f"{table.uri}/{s.base.path}" for s in slices if s.base is not None]
    bench.spark.read.parquet(*files).write.parquet(bench.place())


def measure_small_commits(bench: Bench, table: hw.Table) -> None:
    frame = rows_of(bench.spark, 0, SMALL_ROWS, ts=3).coalesce(1).cache()
    arrow = frame.toArrow()
    inline = hw.open_table(table.uri)
    for name, rows in {"Arrow": arrow, "DataFrame": frame}.items():
        inline.upsert(rows)
        seconds = best_of(10, {name: partial(inline.upsert, rows)})[name]
        what = f"commit of {SMALL_ROWS:,} rows, ms"
        bench.figures.append(Figure(what, name, seconds * 1_000, 1.0, SMALL_ROWS, 0))
    counted, storage = open_counting(CountingStorage, table.uri)
    counted.upsert(arrow)
    before = storage.count()
    counted.upsert(arrow)
    calls = storage.count() - before
    what = f"commit of {SMALL_ROWS:,} rows, calls"
    bench.figures.append(Figure(what, "storage calls", calls, 1.0, SMALL_ROWS, 0))


if __name__ == "__main__":
    main()
