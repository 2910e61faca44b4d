"""Random filters have the truth values that Spark itself gives them, row by row."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
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
from headwater.queries.snapshot import ReadRequest, plan_snapshot
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


ELEMENTS = pa.table(
    {
        "id": ["a", "b", "c"],
        "tags": [["x", None], ["y"], None],
        "nums": [[1.5, float("nan")], [0.0], [None, 3.0, -0.0]],
        "m": pa.array([[("k", 1), ("j", None)], [], None], pa.map_(pa.string(), pa.int64())),
        "parts": pa.array(
            [[{"x": 1}], [{"x": None}], []], pa.list_(pa.struct([("x", pa.int64())]))
        ),
    }
)
OF_ELEMENTS = (
    "get(tags, 0) = 'x'",
    "get(tags, 1) IS NULL",
    "nums[0] > 1",
    "element_at(nums, -1) = 0",
    "array_contains(tags, 'x')",
    "array_contains(tags, 'y')",
    "array_contains(nums, cast('NaN' AS double))",
    "array_contains(nums, 0)",
    "size(tags) = 1",
    "cardinality(m) = 2",
    "m['k'] = 1",
    "m['j'] IS NULL",
    "element_at(m, 'k') = 1",
    "map_contains_key(m, 'j')",
    "get(parts, 0).x = 1",
    "isnan(get(nums, 1))",
)
OF_TIMES = (
    "ts > TIMESTAMP '2024-03-09 23:30:00' + INTERVAL 1 DAY - INTERVAL 39 DAYS",
    "TIMESTAMP '2024-03-09 02:30:00' + INTERVAL 1 DAY = TIMESTAMP '2024-03-10 02:30:00'",
    "TIMESTAMP '2024-03-09 02:30:00' + INTERVAL 1 DAY = TIMESTAMP '2024-03-10 03:30:00'",
    "TIMESTAMP '2024-11-02 01:30:00' + INTERVAL 1 DAY + INTERVAL 30 MINUTES"
    " = TIMESTAMP '2024-11-03 02:00:00'",
    "TIMESTAMP '2024-11-03 06:30:00+00:00' - INTERVAL 1 MONTH < TIMESTAMP '2024-10-03 02:00:00'",
    "TIMESTAMP '2024-01-31 10:00:00' + INTERVAL 1 MONTH = TIMESTAMP '2024-02-29 10:00:00'",
    "day + INTERVAL 1 WEEK > DATE '2024-02-09'",
    "day - INTERVAL 3 DAYS = DATE '2024-01-28'",
    "DATE '2024-03-31' - INTERVAL 1 MONTH = DATE '2024-02-29'",
    "DATE '2024-02-29' + INTERVAL 1 YEAR = DATE '2025-02-28'",
    "DATE '2024-02-01' + INTERVAL 2 HOURS > ts",
    "ts - INTERVAL 1 HOUR 30 MINUTES < TIMESTAMP '2024-01-31 22:00:00'",
    "ts + INTERVAL '0.5' SECOND > ts",
    "day + 1 = DATE '2024-02-01'",
    "date_sub(day, i) = DATE '2024-01-31'",
    "date_add(ts, 1) = DATE '2024-02-01'",
    "datediff(day, DATE '2024-01-31') = 2",
    "datediff(ts, day) = 1",
    "to_date(ts) = DATE '2024-01-31'",
    "hour(ts) = 23 OR minute(ts) = 7 OR second(ts) > 0",
    "hour(day) = 0",
    "dayofweek(day) = 4 OR dayofyear(ts) = 31 OR quarter(day) = 2",
    "substring(name, 2) = 'b' OR substring(name, -2, 1) = 'b' OR substr(name, 0, 1) = 'a'",
    "substring(name, -5, 4) = 'a' OR substring(name, 1, -1) = ''",
    "left(name, 2) = 'ab'",
    "isnan(d)",
)


def truth_of(where: str, rows: pa.Table, zone: str) -> list[bool | None]:
    found: list[bool | None] = evaluate(
        compile_condition(where, Scope(rows.schema), zone), rows
    ).to_pylist()
    return found


def answers_of(
    spark: SparkSession, rows: pa.Table, asked: Sequence[str], zone: str
) -> list[list[bool | None]]:
    """Return what Spark finds to hold, by condition, for rows in the order of their ids."""
    before = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = spark.createDataFrame(rows, frame_schema_of(rows.schema))
        answers = frame.selectExpr(
            "id", *(f"({where}) AS c{number}" for number, where in enumerate(asked))
        ).toArrow()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert answers["id"].to_pylist() == rows["id"].to_pylist()
    return [answers[f"c{number}"].to_pylist() for number in range(len(asked))]


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
@pytest.mark.long
def test_filters_have_the_answers_of_spark(spark: SparkSession, zone: str) -> None:
    numbers = random.Random(19)
    rows = rows_of(numbers)
    filters = Filters(numbers)
    asked = [filters.condition(number % 4) for number in range(100)]
    asked += MORE + OF_TIMES
    answers = answers_of(spark, rows, asked, zone)
    for where, expected in zip(asked, answers, strict=True):
        assert truth_of(where, rows, zone) == expected, where


def test_elements_have_the_answers_of_spark(spark: SparkSession) -> None:
    answers = answers_of(spark, ELEMENTS, OF_ELEMENTS, "UTC")
    for where, expected in zip(OF_ELEMENTS, answers, strict=True):
        assert truth_of(where, ELEMENTS, "UTC") == expected, where


def test_a_read_on_spark_knows_the_day(spark: SparkSession, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    days = [(now + timedelta(days=shift)).date() for shift in (-30, -3, 3)]
    table = hw.create_table(
        tmp_path / "t",
        schema="id string, day date, p string",
        record_key="id",
        partition_by="p",
        index="simple",
    )
    rows = [{"id": f"k{day}", "day": day, "p": f"{day}"} for day in days]
    table.upsert(
        pa.Table.from_pylist(
            rows, pa.schema([("id", "string"), ("day", pa.date32()), ("p", "string")])
        )
    )
    where = "day BETWEEN current_date - INTERVAL 7 DAYS AND current_date()"
    assert [row["day"] for row in table.read(where=where, spark=spark).collect()] == [days[1]]
    assert table.read_arrow(where=where)["day"].to_pylist() == [days[1]]
    # What skips files and what filters rows, which is Spark, are told of one moment.
    plan = plan_snapshot(table.context, ReadRequest(where=where, now=now))
    assert plan.where is not None
    assert plan.where.count(f"DATE '{now.date()}'") == 2


def test_zeros_and_nan_are_found_in_files_that_spark_reads(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = pa.schema([("id", pa.string()), ("file", pa.string()), ("d", pa.float64())])
    table = hw.create_table(
        tmp_path / "t", schema=schema, record_key="id", partition_by="file", buckets=1
    )
    values = {"zero": 0.0, "minus": -0.0, "one": 1.0, "nan": float("nan")}
    files = ["a", "b", "c", "c"]
    table.insert(pa.table([list(values), files, list(values.values())], schema=schema))
    for where, ids in {
        "d = 0": ["minus", "zero"],
        "d IN (-0.0D, 7D)": ["minus", "zero"],
        "d >= 0": ["minus", "nan", "one", "zero"],
        "d > 5": ["nan"],
        "d = double('NaN')": ["nan"],
    }.items():
        found = table.read(["id", "d"], where=where, spark=spark).toArrow()
        assert sorted(found["id"].to_pylist()) == ids, where
