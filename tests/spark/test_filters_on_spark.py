"""Random filters have the truth values that Spark itself gives them, row by row."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.support.random_filters import SCHEMA, Filters, rows_of

from headwater.expressions.compile import compile_condition
from headwater.expressions.evaluate import evaluate
from headwater.expressions.scope import Scope
from headwater.spark.schemas import frame_schema_of

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
)


def truth_of(where: str, rows: pa.Table, zone: str) -> list[bool | None]:
    found: list[bool | None] = evaluate(
        compile_condition(where, Scope(SCHEMA), zone), rows
    ).to_pylist()
    return found


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
