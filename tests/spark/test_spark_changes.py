"""Changes and filters through Spark give what they give without it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.support.tables import columns

import headwater as hw
from headwater.spark.schemas import frame_schema_of
from headwater.table import Table

COLUMNS = columns(
    "id string, city string, n int, big long, price decimal(10,2), f float, "
    "d double, flag boolean, day date, at timestamp, local timestamp_ntz"
)
BOTH = pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
NAN = float("nan")


def rows_of(numbers: range, shift: int = 0) -> pa.Table:
    """Rows with nulls, NaN, signs and fractions in every column but the key."""
    rows = []
    for n in numbers:
        v = n + shift
        rows.append(
            {
                "id": f"k{n}",
                "city": (None, "", "sf", "la", "Ä")[n % 5],
                "n": None if n % 7 == 0 else v - 5,
                "big": None if n % 7 == 1 else v * 2**40,
                "price": None if n % 7 == 2 else Decimal(v * 25) / 100,
                "f": (None, NAN, v / 10)[min(n % 7, 2)],
                "d": (NAN, None, v / 10)[min(n % 7, 2)],
                "flag": (None, True, False)[n % 3],
                "day": None if n % 7 == 3 else dt.date(2024, 1, 1) + dt.timedelta(v),
                "at": None
                if n % 7 == 4
                else dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=v),
                "local": None if n % 7 == 5 else dt.datetime(2024, 1, 1) + dt.timedelta(hours=v),
            }
        )
    return pa.Table.from_pylist(rows, COLUMNS)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Table]:
    made = {}
    for kind in ("COPY_ON_WRITE", "MERGE_ON_READ"):
        table = hw.create_table(
            tmp_path_factory.mktemp("changed") / kind,
            schema=COLUMNS,
            record_key="id",
            partition_by="city",
            table_type=kind,
            buckets=2,
        )
        table.bulk_insert(rows_of(range(20)))
        table.upsert(rows_of(range(5, 25, 4), shift=3))
        table.delete(rows_of(range(0, 20, 6)))
        made[kind] = table
    return made


def texts(rows: list[Any]) -> list[str]:
    """Return rows in an order of their own, as texts, since NaN is not equal to itself."""
    return sorted(str(row.asDict(recursive=True)) for row in rows)


CONDITIONS = [
    "id = 'k5'",
    "ID IN ('k5', 'k6', 'k9', 'nobody')",
    "city = 'sf'",
    "city = ''",
    "city > 'm'",
    "city IS NULL",
    "city IS NOT NULL AND city != 'la'",
    "n < 3",
    "n >= 2.5 AND n <= 11",
    "n != 4",
    "big > 9007199254740993",
    "big = 5497558138880",
    "n < 5000000000",
    "price < 99999999999999999999",
    "price > 1.994",
    "price = 2.5",
    "price BETWEEN 1 AND 3.005",
    "f > 1",
    "f = 1.1",
    "f <= 0.5",
    "d > 1.5",
    "d >= 100",
    "d != 1.2",
    "d < 1e0",
    "d IN (1.2, 1.3)",
    "flag = true",
    "flag != true",
    "flag IS NULL",
    "day > DATE '2024-01-10'",
    "day = '2024-01-10'",
    "at >= TIMESTAMP '2024-01-01 10:00:00Z'",
    "at < TIMESTAMP '2024-01-01T05:00:00-05:00'",
    "local > TIMESTAMP '2024-01-01 05:00:00'",
]

ONLY_SPARK = [
    "at >= TIMESTAMP '2024-01-01 03:00:00'",
    "at > '2024-01-01 03:00:00'",
    "n = '3' AND NOT id = 'k1'",
    "upper(id) = 'K5' AND n > 0",
    "n = 3 OR n = 4 AND city = 'sf'",
    "local < TIMESTAMP '2024-01-01 10:00:00Z'",
]


@BOTH
@pytest.mark.some(1)
def test_conditions_mean_the_same_without_spark(
    spark: SparkSession, tables: dict[str, Table], kind: str
) -> None:
    table = tables[kind]
    # All in one job, and not as filters: those Spark hands to its Parquet reader, which forgets
    # that NaN is larger than every number.
    asked = [F.expr(condition).alias(f"c{at}") for at, condition in enumerate(CONDITIONS)]
    answers = table.read(spark=spark).select("id", *asked).collect()
    differing = {}
    for at, condition in enumerate(CONDITIONS):
        expected = {row["id"] for row in answers if row[f"c{at}"]}
        found = set(table.read_arrow(["id"], where=condition)["id"].to_pylist())
        if found != expected:
            differing[condition] = expected ^ found
    assert differing == {}


@BOTH
@pytest.mark.some(1)
def test_a_condition_never_hides_rows_from_spark(
    spark: SparkSession, tables: dict[str, Table], kind: str
) -> None:
    table = tables[kind]
    for condition in ["id = 'k5' AND n > 0", "city = '' AND n IS NOT NULL", *ONLY_SPARK]:
        expected = table.read(["id", "city", "n", "at", "local"], spark=spark).where(condition)
        found = table.read(["id", "city", "n", "at", "local"], where=condition, spark=spark)
        assert texts(found.collect()) == texts(expected.collect()), condition


@BOTH
@pytest.mark.some(1)
def test_changes_are_those_that_are_read_without_spark(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    table = hw.create_table(
        tmp_path / "t",
        schema=COLUMNS,
        record_key="id",
        partition_by="city",
        table_type=kind,
        buckets=2,
    )
    first = table.upsert(rows_of(range(6))).completion_time
    second = table.upsert(rows_of(range(3, 9), shift=1)).completion_time
    table.delete(rows_of(range(2, 5)))
    last = table.overwrite_partitions(rows_of(range(2, 12, 5))).completion_time
    for after, until in [
        (None, None),
        (None, first),
        (first, second),
        (second, None),
        (last, None),
    ]:
        expected = table.changes_arrow(after, until)
        assert same(table.changes(after, until, spark=spark), expected)
        feed = table.changes_arrow(after, until, cdc=True)
        assert same(table.changes(after, until, cdc=True, spark=spark), feed)
    assert table.changes(None, cdc=True, spark=spark).columns == ["op", "ts", "before", "after"]


def same(found: DataFrame, expected: pa.Table) -> bool:
    frame = found.sparkSession.createDataFrame(
        expected.to_pylist(), frame_schema_of(expected.schema)
    )
    return found.schema == frame.schema and texts(found.collect()) == texts(frame.collect())
