"""Three streams make one wide table, without a join and without state.

Orders, payments and shipments arrive on their own, each with the key of the order and its own
columns. Each stream writes what it has into one non-blocking table, all three at the same time;
none of them waits for, reads or locks out another, and readers find the columns merged by key.

    python examples/streaming_join.py [--orders 2000]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import headwater as hw

OPTIONS = {
    "hoodie.write.concurrency.mode": "non_blocking_concurrency_control",
    # A null means "not from this stream", so rows merge column by column.
    "hoodie.table.partial.update.mode": "IGNORE_DEFAULTS",
}
BATCHES = 4


def streams(spark: SparkSession, orders: int) -> dict[str, DataFrame]:
    """What each source knows of an order."""
    numbers = spark.range(orders).selectExpr("cast(id as string) as order_id", "id")
    return {
        "orders": numbers.selectExpr("order_id", "id % 97 as customer"),
        "payments": numbers.selectExpr("order_id", "id * 1.5 as amount"),
        "shipments": numbers.selectExpr("order_id", "concat('carrier-', id % 3) as carrier"),
    }


def run_stream(table: hw.Table, source: DataFrame, folder: Path) -> int:
    """Read a source in micro-batches and write each of them; return how many there were."""
    source.repartition(BATCHES).write.parquet(str(folder / "input"))
    stream = (
        source.sparkSession.readStream.schema(source.schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / "input"))
    )
    written: list[int] = []

    def write_batch(batch: DataFrame, number: int) -> None:
        table.upsert(batch, partial=True)
        written.append(number)

    query = (
        stream.writeStream.foreachBatch(write_batch)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return len(written)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--orders", type=int, default=2_000)
    orders = parser.parse_args().orders
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Workers need Headwater too.
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    with tempfile.TemporaryDirectory(prefix="headwater-join-") as folder:
        base = Path(folder)
        table = hw.create_table(
            base / "wide_orders",
            schema="order_id string, customer long, amount decimal(22,1), carrier string",
            record_key="order_id",
            table_type="MERGE_ON_READ",
            buckets=2,
            options=OPTIONS,
        )
        sources = streams(spark, orders)
        with ThreadPoolExecutor(len(sources)) as pool:
            runs = {
                name: pool.submit(run_stream, table, source, base / name)
                for name, source in sources.items()
            }
            for name, run in runs.items():
                print(f"{name}: {run.result()} batches, none refused")
        wide = table.read()
        wide.orderBy("order_id").show(3)
        whole = wide.where("customer is not null and amount is not null and carrier is not null")
        found, complete = wide.count(), whole.count()
        print(f"{found} orders in the table, {complete} with the columns of all three streams")
    spark.stop()
    if (found, complete) != (orders, orders):
        sys.exit("rows or columns were lost")


if __name__ == "__main__":
    main()
