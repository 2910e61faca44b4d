"""What does a snapshot read cost, next to a native Parquet scan of the same rows?

A merge-on-read table whose rows are in base files, with 2 % of them updated in log files. The
floor is Spark's own scan of the base files alone.

    all columns        to a sink that drops them; budget 1.4
    2 of 10 columns    aggregated; budget 2.5
    no logs            all columns of a table without log files: the same scan

Run: python benchmarks/read.py [--rows 2000000] [--turns 3] [--json PATH]
"""

from __future__ import annotations

import argparse
import tempfile

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from spark_bench import Figure, best_of, bytes_below, new_session, rows_of, show

import headwater as hw
from headwater.metadata.view import load_view

BUCKETS = 8
COLUMNS = ["city", "amount"]


def drop(df: DataFrame) -> None:
    df.write.format("noop").mode("overwrite").save()


def aggregate(df: DataFrame) -> None:
    df.groupBy("city").agg(F.sum("amount")).collect()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json")
    given = parser.parse_args()
    spark = new_session()
    rows = rows_of(spark, 0, given.rows)
    table = hw.create_table(
        f"{tempfile.mkdtemp(prefix='headwater-bench-')}/table",
        schema=rows.schema,
        record_key="id",
        ordering="ts",
        table_type="MERGE_ON_READ",
        buckets=BUCKETS,
    )
    table.bulk_insert(rows)
    slices = load_view(table.storage, table.config).slices()
    files = [f"{table.uri}/{s.base.path}" for s in slices if s.base is not None]
    names = rows.columns

    def native(columns: list[str]) -> DataFrame:
        return spark.read.parquet(*files).select(*columns)

    figures: list[Figure] = []
    size = bytes_below(table.uri)
    drop(table.read())
    plain = best_of(
        given.turns,
        {"spark parquet": lambda: drop(native(names)), "read": lambda: drop(table.read())},
    )
    table.upsert(rows_of(spark, 0, given.rows // 50, ts=2))
    drop(table.read())
    whole = best_of(
        given.turns,
        {"spark parquet": lambda: drop(native(names)), "read": lambda: drop(table.read())},
    )
    some = best_of(
        given.turns,
        {
            "spark parquet": lambda: aggregate(native(COLUMNS)),
            "read": lambda: aggregate(table.read(columns=COLUMNS)),
        },
    )
    for what, best in {
        "no logs, all columns": plain,
        "2 % updated, all columns": whole,
        "2 % updated, 2 of 10 columns": some,
    }.items():
        floor = best["spark parquet"]
        for name, seconds in best.items():
            figures.append(Figure(what, name, seconds, seconds / floor, given.rows, size))
    show(figures, given.json)


if __name__ == "__main__":
    main()
