"""From one table to another: new and updated trips, with what they brought in."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
tables = os.environ["TABLES"]

dp.create_sink(
    "fares",
    format="headwater",
    options={
        "path": f"{tables}/fares",
        "hoodie.table.name": "fares",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    },
)


@dp.temporary_view
def trips() -> DataFrame:
    return spark.readStream.format("headwater").load(f"{tables}/trips")


@dp.append_flow(target="fares")
def fares_of_trips() -> DataFrame:
    return spark.readStream.table("trips").selectExpr("id", "ts", "fare * 0.8 AS earned")
