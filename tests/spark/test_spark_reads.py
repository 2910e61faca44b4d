"""Reads into DataFrames: which part Spark scans, which part is merged, and what comes out."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import StatusTracker
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType
from tests.support.tables import columns

import headwater as hw
from headwater.errors import InvalidInputError, NotFoundError
from headwater.queries.snapshot import ReadRequest, plan_snapshot
from headwater.spark.read import read_snapshot

SCHEMA = "id long, city string, n int, note string"
DISCOVERY_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"


def rows(ids: range, n: int) -> pa.Table:
    return pa.table(
        {
            "id": list(ids),
            "city": [("ams", "ber")[number % 2] for number in ids],
            "n": pa.array([n] * len(ids), pa.int32()),
            "note": [f"note {number}" for number in ids],
        }
    )


def a_table(tmp_path: Path, table_type: str = "COPY_ON_WRITE", **arguments: Any) -> hw.Table:
    given = {"schema": SCHEMA, "record_key": "id", "partition_by": "city", **arguments}
    return hw.create_table(tmp_path / "t", table_type=table_type, **given)


def half_merged(tmp_path: Path) -> hw.Table:
    """A table in which `ams` has log files, and `ber` base files only."""
    table = a_table(tmp_path, "MERGE_ON_READ")
    table.bulk_insert(rows(range(20), n=1))
    table.upsert(rows(range(0, 20, 2), n=2))
    return table


def by_id(found: pa.Table) -> list[dict[str, Any]]:
    return sorted(found.to_pylist(), key=lambda row: str(row["id"]))


def plan_of(df: DataFrame) -> str:
    return str(df._jdf.queryExecution().toString())


def test_base_files_alone_are_scanned_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = a_table(tmp_path)
    table.upsert(rows(range(20), n=1))
    df = table.read()
    assert "FileScan parquet" in plan_of(df)
    assert "MapInArrow" not in plan_of(df)
    assert by_id(df.toArrow()) == by_id(table.read_arrow())


def test_slices_with_logs_are_merged_and_the_others_scanned(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = half_merged(tmp_path)
    df = table.read()
    assert "FileScan parquet" in plan_of(df)
    assert "MapInArrow" in plan_of(df)
    found = by_id(df.toArrow())
    assert found == by_id(table.read_arrow())
    assert [row["n"] for row in found] == [2 if row["id"] % 2 == 0 else 1 for row in found]


def test_a_read_optimized_query_scans_base_files_only(spark: SparkSession, tmp_path: Path) -> None:
    df = half_merged(tmp_path).read(read_optimized=True)
    assert "MapInArrow" not in plan_of(df)
    assert {row["n"] for row in df.toArrow().to_pylist()} == {1}


def test_only_named_columns_are_read(spark: SparkSession, tmp_path: Path) -> None:
    df = half_merged(tmp_path).read(["_hoodie_partition_path", "n"])
    assert df.columns == ["_hoodie_partition_path", "n"]
    assert "note" not in plan_of(df)
    assert {tuple(row.values()) for row in df.toArrow().to_pylist()} == {
        ("city=ams", 2),
        ("city=ber", 1),
    }


def test_spark_prunes_columns_of_a_scan(spark: SparkSession, tmp_path: Path) -> None:
    table = a_table(tmp_path)
    table.upsert(rows(range(4), n=1))
    plan = plan_of(table.read().select("n"))
    assert "ReadSchema: struct<n:int>" in plan


def test_a_bit_that_fell_over_fails_sparks_own_scan_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    uri = str(tmp_path / "table")
    table = hw.create_table(
        uri,
        schema="id string, city string",
        record_key="id",
        buckets=1,
        options={"hoodie.parquet.compression.codec": "uncompressed"},
    )
    table.insert(pa.table({"id": ["a", "b", "c"], "city": ["city-a", "city-b", "city-c"]}))
    (file,) = (tmp_path / "table").glob("*.parquet")
    content = bytearray(file.read_bytes())
    content[content.index(b"city-b")] ^= 1
    file.write_bytes(bytes(content))
    with pytest.raises(Exception, match="FAILED_READ_FILE"):
        hw.open_table(uri).read().collect()
    unverified = hw.open_table(uri, {"headwater.read.verify.checksums": "false"})
    assert "bity-b" in [row.city for row in unverified.read().collect()]


def test_an_unknown_column_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no column nope"):
        a_table(tmp_path).read(["nope"])


def test_a_filter_applies_after_the_merge(spark: SparkSession, tmp_path: Path) -> None:
    table = half_merged(tmp_path)
    assert table.read(where="n = 1 and city = 'ams'").count() == 0
    assert table.read(where="n = 2").count() == 10
    assert table.read(where=F.col("n") == 2).count() == 10


@pytest.mark.parametrize("make", [str, F.expr], ids=["text", "expression"])
def test_a_filter_on_columns_that_are_not_asked_for(
    spark: SparkSession, tmp_path: Path, make: Callable[[str], Any]
) -> None:
    df = half_merged(tmp_path).read(["id"], make("N = 1 AND length(note) > 6"))
    assert df.columns == ["id"]
    assert [row["id"] for row in by_id(df.toArrow())] == [11, 13, 15, 17, 19]


def test_a_filter_that_is_too_long_to_show_names_all_its_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    where = F.col("id").isin(*range(100)) & (F.col("n") == 1) & F.col("note").isin("note 11")
    found = half_merged(tmp_path).read(["city"], where).toArrow()
    assert found.to_pylist() == [{"city": "ber"}]


def test_partitions_that_a_filter_excludes_are_not_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    df = half_merged(tmp_path).read(where="city = 'ber'")
    assert "MapInArrow" not in plan_of(df)
    assert len(df.inputFiles()) <= 4
    assert all("city=ber" in path for path in df.inputFiles())
    assert df.count() == 10


def test_time_travel(spark: SparkSession, tmp_path: Path) -> None:
    table = a_table(tmp_path, "MERGE_ON_READ")
    first = table.upsert(rows(range(4), n=1))
    table.upsert(rows(range(4), n=2))
    df = table.read(as_of=first.completion_time)
    assert {row["n"] for row in df.toArrow().to_pylist()} == {1}
    with pytest.raises(NotFoundError):
        table.read(as_of="2001-01-01")


def test_a_table_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    df = a_table(tmp_path).read()
    assert df.count() == 0
    assert df.columns == ["id", "city", "n", "note"]


LOSSY = {"headwater.schema.allow.lossy.widening": "true"}

BEFORE = columns(
    "id string, int_long int, int_double int, float_double float, price decimal(9,2), "
    "s struct<a:int>, numbers array<int>"
)
AFTER = columns(
    "id string, int_long long, int_double double, float_double double, "
    "price decimal(25,2), s struct<a:long,b:string>, numbers array<long>, more string"
)
OLD_ROW = {
    "id": "old",
    "int_long": -7,
    "int_double": 3,
    "float_double": 0.5,
    "price": Decimal("1234567.89"),
    "s": {"a": 5},
    "numbers": [1, None],
}
NEW_ROW = {
    "id": "new",
    "int_long": 2**40,
    "int_double": 0.25,
    "float_double": 1e300,
    "price": Decimal("12345678901234567890.12"),
    "s": {"a": 2**40, "b": "x"},
    "numbers": [2**40],
    "more": "m",
}
WIDENED = {**OLD_ROW, "s": {"a": 5, "b": None}, "more": None}


@pytest.mark.parametrize("is_vectorized", ["true", "false"])
def test_base_files_of_an_older_schema(
    spark: SparkSession, tmp_path: Path, is_vectorized: str
) -> None:
    table = hw.create_table(
        tmp_path / "t", schema=BEFORE, record_key="id", buckets=64, options=LOSSY
    )
    table.upsert(pa.Table.from_pylist([OLD_ROW], BEFORE))
    table.upsert(pa.Table.from_pylist([NEW_ROW], AFTER))
    key = "spark.sql.parquet.enableVectorizedReader"
    spark.conf.set(key, is_vectorized)
    try:
        assert by_id(table.read().toArrow()) == [NEW_ROW, WIDENED]
        df = table.read(["id", "int_long", "price", "s", "numbers", "more"])
        assert "MapInArrow" not in plan_of(df)
        assert [row["s"] for row in by_id(df.toArrow())] == [NEW_ROW["s"], WIDENED["s"]]
    finally:
        spark.conf.unset(key)


def test_long_files_of_a_column_that_became_a_double(spark: SparkSession, tmp_path: Path) -> None:
    """Spark refuses to read such files, so tasks do."""
    table = hw.create_table(
        tmp_path / "t",
        schema="id string, x long, y int",
        record_key="id",
        buckets=64,
        options=LOSSY,
    )
    table.upsert(pa.table({"id": ["old"], "x": [2**40], "y": pa.array([1], pa.int32())}))
    table.upsert(pa.table({"id": ["new"], "x": [0.5], "y": pa.array([2], pa.int32())}))
    df = table.read(["id", "x"])
    assert "MapInArrow" in plan_of(df)
    assert "FileScan parquet" in plan_of(df)
    assert by_id(df.toArrow()) == [{"id": "new", "x": 0.5}, {"id": "old", "x": float(2**40)}]
    assert "MapInArrow" not in plan_of(table.read(["y"]))


def test_a_time_that_partition_paths_are_made_of_and_that_became_text(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Once Hudi has read such a table, its writes say that the column is text."""
    table = hw.create_table(
        tmp_path / "t",
        schema="id string, ts long",
        record_key="id",
        partition_by="ts",
        options={
            "hoodie.table.keygenerator.type": "TIMESTAMP",
            "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
            "hoodie.keygen.timebased.output.dateformat": "yyyy/MM",
            "hoodie.keygen.timebased.timezone": "UTC",
            "hoodie.datasource.write.hive_style_partitioning": "false",
        },
    )
    table.insert(pa.table({"id": ["a"], "ts": pa.array([1_700_000_000_000], pa.int64())}))
    plan = plan_snapshot(table.context, ReadRequest())
    said = pa.schema([("id", pa.string()), ("ts", pa.string())])
    plan = replace(plan, query=replace(plan.query, schema=said))
    (row,) = read_snapshot(spark, plan).toArrow().to_pylist()
    assert row == {"id": "a", "ts": "1700000000000"}


def test_partition_values_that_look_like_patterns(spark: SparkSession, tmp_path: Path) -> None:
    values = ["a b", "x%20y", "é", "[z]", "{q,r}", "c:d", "*", "?", "#", "+", "a=b", "__x", "o\\p"]
    for encoded in (True, False):
        table = hw.create_table(
            tmp_path / f"t-{encoded}",
            schema="id long, p string",
            record_key="id",
            partition_by="p",
            buckets=1,
            options={"hoodie.datasource.write.partitionpath.urlencode": encoded},
        )
        table.upsert(pa.table({"id": list(range(len(values))), "p": values}))
        df = table.read()
        assert "FileScan parquet" in plan_of(df)
        assert [row["p"] for row in sorted(df.toArrow().to_pylist(), key=lambda r: r["id"])] == (
            values
        )


def test_dates_before_the_calendar_changed(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema(
        [("id", pa.int64()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC"))]
    )
    row = {"id": 1, "day": dt.date(1200, 3, 1), "at": dt.datetime(1200, 3, 1, tzinfo=dt.UTC)}
    table = hw.create_table(tmp_path / "t", schema=schema, record_key="id")
    table.upsert(pa.Table.from_pylist([row], schema))
    df = table.read()
    assert "FileScan parquet" in plan_of(df)
    assert df.toArrow().to_pylist() == [row]


def test_a_missing_file_is_an_error_whatever_the_session_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = a_table(tmp_path)
    table.upsert(rows(range(20), n=1))
    df = table.read()
    next(Path(table.uri).rglob("*.parquet")).unlink()
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        with pytest.raises(Exception, match=r"(?i)not exist|FILE_NOT_EXIST"):
            df.toArrow()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


def test_many_files_are_planned_without_a_job_and_settings_come_back(
    spark: SparkSession, tmp_path: Path, job_status: Callable[[], StatusTracker]
) -> None:
    table = a_table(tmp_path, buckets=40)
    table.bulk_insert(rows(range(400), n=1))
    context = spark.sparkContext
    context.setJobGroup("planning", "")
    try:
        df = table.read()
    finally:
        context.setJobGroup("others", "")
    assert job_status().getJobIdsForGroup("planning") == []
    assert spark.conf.get(DISCOVERY_THRESHOLD, None) is None
    assert len(df.inputFiles()) > 32
    assert df.count() == 400


def test_spark_knows_about_how_large_merged_rows_are(spark: SparkSession, tmp_path: Path) -> None:
    """Otherwise it would send every table with logs to all executors of a join."""
    table = a_table(tmp_path, "MERGE_ON_READ")
    for n in (1, 2):
        table.upsert(rows(range(50_000), n=n))
    df = table.read()
    assert "FileScan" not in plan_of(df)
    data = Path(table.uri).glob("*/.*.log.*")
    size_bytes = sum(path.stat().st_size for path in data)
    assert size_bytes
    estimate = int(str(df._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
    assert size_bytes / 2 <= estimate
    assert df.count() == 50_000


@pytest.mark.parametrize(
    "schema",
    [
        "id long, name string",
        StructType([StructField("id", LongType()), StructField("name", StringType())]),
    ],
    ids=["ddl", "struct-type"],
)
def test_a_table_is_created_with_columns_as_spark_has_them(tmp_path: Path, schema: Any) -> None:
    table = hw.create_table(tmp_path / "t", schema=schema, record_key="id")
    assert table.read_arrow().schema == pa.schema([("id", pa.int64()), ("name", pa.string())])


def test_without_a_session_the_error_says_how_to_make_one(tmp_path: Path) -> None:
    program = (
        "import sys, headwater as hw\n"
        "t = hw.create_table(sys.argv[1], schema='id long', record_key='id')\n"
        "try:\n"
        "    t.read()\n"
        "except hw.InvalidInputError as error:\n"
        "    print(error)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "t")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "SparkSession.builder.getOrCreate()" in ran.stdout
