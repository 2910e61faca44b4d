"""Filters that Spark pushes down into `format("headwater")`, on a real session.

That a file is not opened is shown by damaging it: whoever opens it fails.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import headwater as hw

FORMAT = "headwater"
TAKES_FILTERS = {"headwater.read.pushed.filters": "true"}
PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(autouse=True)
def push_down(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(PUSH_DOWN, "true")
    yield
    spark.conf.unset(PUSH_DOWN)


def load(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return spark.read.format(FORMAT).options(**options).load(str(path))


def trips(path: Path, *, index: str) -> hw.Table:
    """Create a table of three base files, each with a range of fares of its own."""
    table = hw.create_table(
        path,
        schema="id string, fare long",
        record_key="id",
        index=index,
        options={
            "hoodie.parquet.small.file.limit": "0",
            "hoodie.metadata.index.column.stats.enable": "true",
        },
    )
    for number, city in enumerate(("sf", "la", "ny")):
        ids = [f"{city}-{n}" for n in range(10)]
        table.bulk_insert(pa.table({"id": ids, "fare": [100 * number + n for n in range(10)]}))
    return table


def damage_all_but(path: Path, opened: list[str]) -> int:
    """Damage the base files that a read does not open; return how many those are."""
    names = {Path(unquote(urlparse(uri).path)).name for uri in opened}
    others = [file for file in path.rglob("*.parquet") if ".hoodie" not in file.parts]
    others = [file for file in others if file.name not in names]
    for file in others:
        file.write_bytes(b"whoever opens this fails")
    return len(others)


def test_a_filtered_read_opens_what_the_table_itself_would(
    spark: SparkSession, tmp_path: Path
) -> None:
    """By statistics; `tests/unit/spark` has the other ways to leave files out."""
    table, where = trips(tmp_path, index="simple"), "fare BETWEEN 105 AND 107"
    read = table.read(["id"], where, spark=spark)
    loaded = load(spark, tmp_path, **TAKES_FILTERS)
    assert damage_all_but(tmp_path, read.inputFiles()) == 2

    assert sorted(row.id for row in loaded.where(where).collect()) == ["la-5", "la-6", "la-7"]
    with pytest.raises(PySparkException):
        load(spark, tmp_path).where(where).collect()


KINDS = pa.table(
    {
        "id": [f"row-{n}" for n in range(6)],
        "flag": [True, False, None, True, False, None],
        "small": pa.array([1, 2, None, -3, 4, 5], pa.int16()),
        "big": [2**40, 0, None, -1, 7, 7],
        "rate": [1.5, math.nan, None, -0.0, 0.0, math.inf],
        "price": pa.array(
            [Decimal("1.50"), Decimal("-2.25"), None, Decimal(0), Decimal("9.99"), None],
            pa.decimal128(10, 2),
        ),
        "word": ["apple", "apricot", None, "it's", "back\\slash", "zoo%"],
        "day": [date(2026, 1, n) if n != 3 else None for n in range(1, 7)],
        "at": [datetime(2026, 1, n, 12, tzinfo=UTC) if n != 3 else None for n in range(1, 7)],
        "raw": [b"a", b"b", None, b"", b"a", b"c"],
        "box": [{"n": n, "tag": f"t{n}"} if n != 2 else None for n in range(6)],
    }
)

CONDITIONS = (
    "flag",
    "NOT flag",
    "flag <=> null",
    "small = 2",
    "small <> 2",
    "small IN (1, 4, 9)",
    "small NOT IN (1, 4, 9)",
    "small <=> 5",
    "NOT (small <=> 5)",
    "big > 6",
    "big >= -1 AND big < 2",
    "big <= 0 OR small = 5",
    "rate > 0.5D",
    "rate = 0.0D",
    "rate IN (0.0D, 1.5D)",
    "NOT (rate < 1.0D)",
    "rate = double('NaN')",
    "price >= 1.50",
    "price < 0",
    "word = 'it''s'",
    r"word = 'back\\slash'",
    "word LIKE 'ap%'",
    "word LIKE '%ot'",
    "word LIKE '%pp%'",
    "NOT (word LIKE 'ap%')",
    "word IS NULL",
    "word IS NOT NULL AND small > 1",
    "day > DATE'2026-01-02'",
    "day <> DATE'2026-01-02'",
    "at <= TIMESTAMP'2026-01-02 12:00:00Z'",
    "at = TIMESTAMP'2026-01-04 07:00:00'",
    "raw = X'61'",
    "box.n > 3",
    "box.tag LIKE 't1%'",
    "box.tag IS NULL",
    "id = 'row-4' AND upper(word) = 'BACK\\\\SLASH'",
    "_hoodie_record_key = 'row-1'",
)


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kinds") / "t"
    table = hw.create_table(
        path, schema=KINDS.schema, record_key="id", table_type="MERGE_ON_READ", buckets=1
    )
    table.upsert(KINDS.slice(0, 4))
    table.upsert(KINDS.slice(3))
    return path


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)])
def test_answers_are_those_of_spark(spark: SparkSession, kinds: Path, every: int) -> None:
    meta = {"headwater.read.meta.columns": "true"}
    plain = spark.createDataFrame(load(spark, kinds, **meta).toArrow())
    for condition in CONDITIONS[::every]:
        # Loaded anew for each: see the option.
        pushed = load(spark, kinds, **meta, **TAKES_FILTERS).where(condition)
        expected = sorted(row.id for row in plain.where(condition).collect())
        assert sorted(row.id for row in pushed.collect()) == expected, condition


def test_what_is_pushed_is_not_evaluated_again(spark: SparkSession, kinds: Path) -> None:
    pushed = load(spark, kinds, **TAKES_FILTERS).where("small > 1 AND word LIKE 'ap%'")
    plan = pushed._jdf.queryExecution().optimizedPlan().toString()
    assert "Filter" not in plan
    left = load(spark, kinds, **TAKES_FILTERS).where("small > 1 AND length(word) = 7")
    plan = left._jdf.queryExecution().optimizedPlan().toString()
    assert "length(word" in plan
    assert "> 1" not in plan


def test_a_data_frame_that_takes_no_filters_may_be_used_as_often_as_one_likes(
    spark: SparkSession, kinds: Path
) -> None:
    loaded = load(spark, kinds)
    assert loaded.where("small = 1").count() == 1
    assert loaded.count() == 6
    both = loaded.where("small = 1").union(loaded.where("small = 2"))
    assert sorted(row.small for row in both.collect()) == [1, 2]


def test_other_types_and_other_moments(spark: SparkSession, kinds: Path, tmp_path: Path) -> None:
    """A filter on a column that the user gave another type is left to Spark."""
    reader = spark.read.format(FORMAT).options(**TAKES_FILTERS).schema("small string, id string")
    assert [row.id for row in reader.load(str(kinds)).where("small = '2'").collect()] == ["row-1"]

    table = trips(tmp_path, index="record_index")
    loaded = load(spark, tmp_path, **TAKES_FILTERS)
    table.delete(pa.table({"id": ["la-7"]}))
    assert [row.fare for row in loaded.where("id = 'la-7'").collect()] == [107]
    assert load(spark, tmp_path, **TAKES_FILTERS).where("id = 'la-7'").count() == 0


def test_a_session_that_pushes_nothing_says_so(spark: SparkSession, kinds: Path) -> None:
    spark.conf.set(PUSH_DOWN, "false")
    with pytest.raises(PySparkException, match=PUSH_DOWN):
        load(spark, kinds, **TAKES_FILTERS).collect()
    assert load(spark, kinds).count() == 6
