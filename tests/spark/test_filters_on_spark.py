"""Random filters have the truth values that Spark itself gives them, row by row."""

from __future__ import annotations

import random
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.support.random_filters import SCHEMA, Filters, rows_of

import headwater as hw
from headwater.expressions.compile import compile_condition
from headwater.expressions.evaluate import evaluate
from headwater.expressions.scope import Scope
from headwater.spark.schemas import frame_schema_of

AT_ONCE = 20
MORE = (
    "inner_part IS NULL",
    "i = '2'",
    "d < 100 AND d > -100 AND cast(d AS int) = 1",
    "try_cast(name AS int) IS NULL",
    "cast('  7 ' AS int) = i + 9",
    "cast(price AS int) = -1",
    "cast(price AS decimal(5, 1)) = 1.3",
    "price = '1.25'",
    "ts > '2024-01-31 23'",
    "cast(ts AS string) LIKE '2024-02-01 00:%'",
    "cast(day AS string) = '2024-01-31'",
    "cast(flag AS int) = 1",
    "cast(i AS boolean)",
    "day = ts",
    "day = '2024-1-31'",
    "name <=> NULL",
    "cast(ts AS date) = day",
    "month(ts) = 2 AND day(day) < 5",
    "startswith(name, 'a') OR endswith(name, 'c') OR contains(name, '%')",
    "if(flag, i, l) = 2",
    "l % 3 = -1",
    "concat(name, city) = 'absf'",
    "d = 'NaN'",
    "name RLIKE '^[ab]+$'",
    "name RLIKE 'b.c' OR regexp_like(name, '(z|ü){1,2}')",
    "concat(name, '\\n') RLIKE 'b$'",
    "concat(name, '\\r', name) RLIKE 'a.a'",
    "concat(name, '\\r\\n') RLIKE '^ab$'",
    "name NOT RLIKE '\\\\w'",
)


def truth_of(where: str, rows: pa.Table, zone: str) -> list[bool | None]:
    found: list[bool | None] = evaluate(
        compile_condition(where, Scope(SCHEMA), zone), rows
    ).to_pylist()
    return found


@pytest.mark.long
def test_two_thousand_filters_find_the_same_rows_through_every_door(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark's own filters, those pushed into the data source, and reads on Arrow."""
    numbers = random.Random(23)
    rows, filters = rows_of(numbers), Filters(numbers)
    table = hw.create_table(
        tmp_path / "t", schema=SCHEMA, record_key="id", partition_by="city", index="simple"
    )
    table.upsert(rows)
    hw.register(spark)
    before = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = spark.createDataFrame(rows, frame_schema_of(SCHEMA)).cache()
        for _ in range(2_000 // AT_ONCE):
            asked = [filters.condition() for _ in range(AT_ONCE)]
            answers = frame.selectExpr(
                "id", *(f"({where}) AS c{number}" for number, where in enumerate(asked))
            ).toArrow()
            # A DataFrame for each filter: see the guide on what Spark does with pushed ones.
            loads = [
                spark.read.format("headwater")
                .option("headwater.read.pushed.filters", "true")
                .load(table.uri)
                .where(where)
                .selectExpr("id", f"{number} AS number")
                for number, where in enumerate(asked)
            ]
            pushed = reduce(DataFrame.unionAll, loads).toArrow().to_pylist()
            for number, where in enumerate(asked):
                holds = answers[f"c{number}"].to_pylist()
                ids = answers["id"].to_pylist()
                wanted = sorted(key for key, is_so in zip(ids, holds, strict=True) if is_so)
                through = sorted(row["id"] for row in pushed if row["number"] == number)
                assert through == wanted, where
                read = table.read_arrow(columns=["id"], where=where)
                assert sorted(read["id"].to_pylist()) == wanted, where
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_filters_have_the_answers_of_spark(spark: SparkSession, zone: str) -> None:
    numbers = random.Random(19)
    rows = rows_of(numbers)
    filters = Filters(numbers)
    asked = [filters.condition(number % 4) for number in range(100)]
    asked += MORE
    before = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = spark.createDataFrame(rows, frame_schema_of(SCHEMA))
        answers = frame.selectExpr(
            "id", *(f"({where}) AS c{number}" for number, where in enumerate(asked))
        ).toArrow()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert answers["id"].to_pylist() == rows["id"].to_pylist()
    for number, where in enumerate(asked):
        assert truth_of(where, rows, zone) == answers[f"c{number}"].to_pylist(), where
