"""The data source `format("headwater")` in batches, on a real session."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hudi import HudiTableBuilder
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.support.hudi_rs import location_for_hudi_rs

import headwater as hw

FORMAT = "headwater"
COLUMNS = ["id", "city", "ts", "amount"]
META_COLUMNS = [
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
]
KEYED = {
    "hoodie.table.name": "trips",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.bucket.index.num.buckets": "2",
}
KEYLESS = {"hoodie.table.name": "events"}
WITH_META = {"headwater.read.meta.columns": "true"}
TABLE_TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")


def of_type(table_type: str) -> dict[str, str]:
    return {**KEYED, "hoodie.datasource.write.table.type": table_type}


def trips(spark: SparkSession, *rows: tuple[str, str, int, float], tasks: int = 2) -> DataFrame:
    arrays = [pa.array(column) for column in zip(*rows, strict=True)]
    return spark.createDataFrame(pa.table(arrays, names=COLUMNS)).repartition(tasks)


def many_trips(spark: SparkSession, count: int, *, ts: int = 1) -> DataFrame:
    cities = ("sf", "ny")
    rows = [(f"trip-{n}", cities[n % 2], ts, n * ts / 2) for n in range(count)]
    return trips(spark, *rows, tasks=3)


def save(
    df: DataFrame,
    path: Path,
    options: dict[str, str],
    *,
    mode: str = "append",
    operation: str | None = None,
) -> None:
    if operation is not None:
        options = {**options, "hoodie.datasource.write.operation": operation}
    df.write.format(FORMAT).options(**options).mode(mode).save(str(path))


def load(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return spark.read.format(FORMAT).options(**options).load(str(path))


def by_id(rows: pa.Table, columns: list[str] | None = None) -> list[dict[str, Any]]:
    """Return the data columns as rows in the order of their key."""
    names = columns or [name for name in rows.column_names if not name.startswith("_hoodie")]
    found: list[dict[str, Any]] = rows.select(names).sort_by(names[0]).to_pylist()
    return found


def read_here(path: Path) -> list[dict[str, Any]]:
    return by_id(hw.open_table(path).read_arrow())


def pending(path: Path) -> list[str]:
    timeline = hw.open_table(path).inspect.timeline()
    return [row["requested_time"] for row in timeline.to_pylist() if row["state"] != "completed"]


@pytest.mark.parametrize("table_type", TABLE_TYPES)
@pytest.mark.some(1)
def test_rows_come_back_as_they_were_written(
    spark: SparkSession, tmp_path: Path, table_type: str
) -> None:
    options = of_type(table_type)
    save(many_trips(spark, 40), tmp_path, options)
    save(many_trips(spark, 10, ts=2), tmp_path, options)

    assert load(spark, tmp_path).columns == COLUMNS
    found = load(spark, tmp_path, **WITH_META).toArrow()

    assert found.column_names == [*META_COLUMNS, *COLUMNS]
    expected = [
        {"id": f"trip-{n}", "city": ("sf", "ny")[n % 2], "ts": ts, "amount": n * ts / 2}
        for n in range(40)
        for ts in [2 if n < 10 else 1]
    ]
    assert by_id(found) == sorted(expected, key=lambda row: str(row["id"])) == read_here(tmp_path)
    assert pc.all(pc.equal(found["_hoodie_record_key"], found["id"])).as_py()
    location = location_for_hudi_rs(hw.open_table(tmp_path))
    reader = HudiTableBuilder.from_base_uri(location).build()
    assert by_id(pa.Table.from_batches(reader.read()), COLUMNS) == read_here(tmp_path)


def test_tasks_append_log_files_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    save(many_trips(spark, 40), tmp_path, of_type("MERGE_ON_READ"))

    logs = [path.name for path in tmp_path.glob("city=*/.*.log.1_*")]
    tasks_of: dict[str, set[str]] = {}
    for name in logs:
        tasks_of.setdefault(name.partition("_")[0], set()).add(name.rpartition("_")[2])

    assert len(tasks_of) == 4, "two partitions with two buckets each"
    assert max(map(len, tasks_of.values())) > 1, "tasks share groups without a shuffle"
    assert not list((tmp_path / ".hoodie/.temp").rglob("*.arrow"))


@pytest.mark.parametrize("table_type", TABLE_TYPES)
@pytest.mark.some(1)
def test_operations(spark: SparkSession, tmp_path: Path, table_type: str) -> None:
    options = of_type(table_type)
    save(
        trips(spark, ("a", "sf", 1, 1.0), ("b", "sf", 1, 2.0), ("c", "ny", 1, 3.0)),
        tmp_path,
        options,
        operation="bulk_insert",
    )
    save(trips(spark, ("a", "sf", 0, 0.0)), tmp_path, options, operation="delete")
    assert [row["id"] for row in read_here(tmp_path)] == ["b", "c"]

    save(trips(spark, ("d", "sf", 1, 4.0)), tmp_path, options, operation="insert_overwrite")
    assert [row["id"] for row in read_here(tmp_path)] == ["c", "d"]

    save(trips(spark, ("e", "sf", 1, 5.0)), tmp_path, options, mode="overwrite")
    assert [row["id"] for row in read_here(tmp_path)] == ["e"]

    save(trips(spark, ("f", "ny", 1, 6.0)), tmp_path, options, operation="insert_overwrite_table")
    assert [row["id"] for row in read_here(tmp_path)] == ["f"]


def test_a_table_without_keys_takes_every_row(spark: SparkSession, tmp_path: Path) -> None:
    df = trips(spark, ("a", "sf", 1, 1.0), ("a", "sf", 1, 1.0), ("b", "ny", 1, 2.0))
    save(df, tmp_path, KEYLESS)
    save(df, tmp_path, KEYLESS, operation="bulk_insert")

    assert [row["id"] for row in read_here(tmp_path)] == ["a", "a", "a", "a", "b", "b"]
    keys = load(spark, tmp_path, **WITH_META).toArrow()["_hoodie_record_key"]
    assert len(pc.unique(keys)) == 6, "two tasks never generate the same key"


def test_all_types_survive_in_a_session_of_another_zone(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = pa.table(
        {
            "id": ["a", "b"],
            "small": pa.array([1, None], pa.int16()),
            "long": [2**40, None],
            "price": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
            "day": [date(2026, 1, 2), None],
            "at": pa.array([datetime(2026, 1, 2, 3, 4, 5, 6, UTC), None]),
            "local": pa.array([datetime(2026, 1, 2, 3, 4, 5, 6), None], pa.timestamp("us")),
            "raw": [b"\x00\xff", None],
            "tags": [["x", None], None],
            "box": [{"n": 1, "names": ["y"]}, None],
            "counts": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        }
    )
    options = {
        "hoodie.table.name": "kinds",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    }
    df = spark.createDataFrame(rows)
    save(df.withColumn("local", df.local.cast("timestamp_ntz")), tmp_path, options)

    here = hw.open_table(tmp_path).read_arrow().sort_by("id")
    there = load(spark, tmp_path).toArrow().select(here.column_names).sort_by("id")

    assert here.to_pylist() == rows.to_pylist()
    assert there.drop_columns("at").to_pylist() == here.drop_columns("at").to_pylist()
    assert there["at"].cast(pa.timestamp("us", "UTC")).to_pylist() == here["at"].to_pylist()


def test_a_schema_of_the_user_chooses_columns_and_types(
    spark: SparkSession, tmp_path: Path
) -> None:
    save(trips(spark, ("a", "sf", 7, 1.5)), tmp_path, KEYED)

    chosen = spark.read.format(FORMAT).schema("amount double, id string, ts string")
    assert chosen.load(str(tmp_path)).toArrow().to_pylist() == [
        {"amount": 1.5, "id": "a", "ts": "7"}
    ]
    with pytest.raises(PySparkException, match="no column speed"):
        spark.read.format(FORMAT).schema("speed double").load(str(tmp_path)).collect()


def test_a_data_frame_keeps_to_the_moment_it_was_loaded_at(
    spark: SparkSession, tmp_path: Path
) -> None:
    save(trips(spark, ("a", "sf", 1, 1.0)), tmp_path, KEYED)
    loaded = load(spark, tmp_path)
    save(trips(spark, ("b", "sf", 1, 1.0)), tmp_path, KEYED)

    assert loaded.count() == 1
    assert load(spark, tmp_path).count() == 2


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A merge-on-read table of three commits, with their completion times."""
    path = tmp_path_factory.mktemp("history") / "trips"
    table = hw.create_table(
        path,
        schema=pa.schema([("id", pa.string()), ("amount", pa.int64())]),
        record_key="id",
        table_type="MERGE_ON_READ",
        buckets=1,
    )
    times = [
        table.bulk_insert(pa.table({"id": ["a", "b"], "amount": [1, 1]})).completion_time,
        table.upsert(pa.table({"id": ["b", "c"], "amount": [2, 2]})).completion_time,
        table.delete(pa.table({"id": ["a"]})).completion_time,
    ]
    return path, [str(time) for time in times]


def test_time_travel(spark: SparkSession, history: tuple[Path, list[str]]) -> None:
    path, times = history
    found = load(spark, path, **{"as.of.instant": times[0]}).select("id", "amount").toArrow()
    assert by_id(found) == [{"id": "a", "amount": 1}, {"id": "b", "amount": 1}]


def test_read_optimized_query(spark: SparkSession, history: tuple[Path, list[str]]) -> None:
    path, _ = history
    found = load(spark, path, **{"hoodie.datasource.query.type": "read_optimized"})
    assert by_id(found.toArrow()) == [{"id": "a", "amount": 1}, {"id": "b", "amount": 1}]


def test_incremental_query(spark: SparkSession, history: tuple[Path, list[str]]) -> None:
    path, times = history
    options = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": times[0],
        "hoodie.datasource.read.end.instanttime": times[1],
    }
    found = load(spark, path, **options)
    assert by_id(found.toArrow()) == [{"id": "b", "amount": 2}, {"id": "c", "amount": 2}]
    assert found.columns == ["id", "amount"]


def test_change_feed(spark: SparkSession, history: tuple[Path, list[str]]) -> None:
    path, times = history
    options = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.query.incremental.format": "cdc",
        "hoodie.datasource.read.begin.instanttime": times[0],
    }
    found = load(spark, path, **options).toArrow()
    expected = hw.open_table(path).changes_arrow(times[0], cdc=True)
    order = [("ts", "ascending"), ("op", "ascending")]
    assert found.sort_by(order).to_pylist() == expected.sort_by(order).to_pylist()
    assert set(found["op"].to_pylist()) == {"i", "u", "d"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hoodie.datasource.query.type": "fast"}, "must be one of snapshot"),
        ({"hoodie.datasource.query.incremental.format": "cdc"}, "query.type=incremental"),
        ({"as.of.instant": "20260101", "hoodie.datasource.query.type": "incremental"}, "use one"),
        ({"hoodie.datasource.read.begin.instanttime": "0"}, "need hoodie.datasource.query.type"),
    ],
)
def test_options_of_a_read_that_make_no_sense(
    spark: SparkSession,
    history: tuple[Path, list[str]],
    options: dict[str, str],
    message: str,
) -> None:
    path, _ = history
    with pytest.raises(PySparkException, match=message):
        load(spark, path, **options).collect()


def test_a_path_without_a_table(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="There is no table at"):
        load(spark, tmp_path)


def test_options_of_a_write_must_agree_with_the_table(spark: SparkSession, tmp_path: Path) -> None:
    df = trips(spark, ("a", "sf", 1, 1.0))
    save(df, tmp_path, KEYED)

    with pytest.raises(PySparkException, match=r"hoodie\.table\.recordkey\.fields is 'city'"):
        save(df, tmp_path, {**KEYED, "hoodie.datasource.write.recordkey.field": "city"})
    with pytest.raises(PySparkException, match="Use mode append"):
        save(df, tmp_path, KEYED, mode="overwrite", operation="delete")
    with pytest.raises(PySparkException, match="in-process lock"):
        save(df, tmp_path, {**KEYED, "hoodie.write.lock.provider": "in_process"})
    assert pending(tmp_path) == []
    assert [row["id"] for row in read_here(tmp_path)] == ["a"]


@pytest.mark.parametrize("table_type", TABLE_TYPES)
@pytest.mark.some(1)
def test_a_failed_write_shows_nothing_and_lets_the_next_one_in(
    spark: SparkSession, tmp_path: Path, table_type: str
) -> None:
    # Merge on read fails in a task, copy on write in the commit.
    options = of_type(table_type)
    save(trips(spark, ("a", "sf", 1, 1.0)), tmp_path, options)
    nothing = trips(spark, ("b", "sf", 1, 1.0), ("c", "ny", 1, 1.0)).selectExpr(
        "nullif(id, 'c') AS id", "city", "ts", "amount"
    )

    with pytest.raises(PySparkException, match=r"headwater\.errors\.InvalidInputError"):
        save(nothing, tmp_path, options)

    # It was rolled back at once.
    assert not pending(tmp_path)
    assert [row["id"] for row in read_here(tmp_path)] == ["a"]
    assert hw.open_table(tmp_path).inspect.heartbeats().num_rows == 0
    save(trips(spark, ("d", "sf", 1, 1.0)), tmp_path, options)
    assert [row["id"] for row in read_here(tmp_path)] == ["a", "d"]


def test_nothing_is_left_of_a_write_but_its_commit(spark: SparkSession, tmp_path: Path) -> None:
    save(trips(spark, ("a", "sf", 1, 1.0)), tmp_path, of_type("COPY_ON_WRITE"))

    hoodie = tmp_path / ".hoodie"
    for folder in (".temp", ".attempts", ".heartbeat"):
        assert [path for path in (hoodie / folder).rglob("*") if path.is_file()] == []


@pytest.mark.long
def test_registered_under_another_name(spark: SparkSession, tmp_path: Path) -> None:
    hw.register(spark, name="hudi")
    df = trips(spark, ("a", "sf", 1, 1.0))
    df.write.format("hudi").options(**KEYED).mode("append").save(str(tmp_path))

    found = spark.read.format("hudi").load(str(tmp_path))
    assert found.columns == [*META_COLUMNS, *COLUMNS], "as Hudi's own source shows them"
    assert found.select("id").collect()[0].id == "a"


def test_columns_are_checked_before_anything_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    wrong = spark.sql("SELECT 'a' AS id, INTERVAL '1' DAY AS wait")
    with pytest.raises(PySparkException, match="Column wait"):
        save(wrong, tmp_path / "t", {"hoodie.datasource.write.recordkey.field": "id"})
    with pytest.raises(hw.NotFoundError):
        hw.open_table(tmp_path / "t")


def test_schema_evolves(spark: SparkSession, tmp_path: Path) -> None:
    save(trips(spark, ("a", "sf", 1, 1.0)), tmp_path, KEYED)
    wider = trips(spark, ("b", "sf", 1, 1.0)).selectExpr("*", "'new' AS driver")
    save(wider, tmp_path, KEYED)

    assert [(r.id, r.driver) for r in load(spark, tmp_path).orderBy("id").collect()] == [
        ("a", None),
        ("b", "new"),
    ]
    # Columns that exist cannot change their meaning.
    with pytest.raises(PySparkException, match="ts"):
        save(wider.selectExpr("id", "city", "'x' AS ts", "amount"), tmp_path, KEYED)


@pytest.mark.parametrize("table_type", TABLE_TYPES)
@pytest.mark.long
def test_a_column_of_integers_stays_one(
    spark: SparkSession, tmp_path: Path, table_type: str
) -> None:
    large = 2**53 + 1
    options = {
        "hoodie.table.name": "accounts",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.table.type": table_type,
    }
    save(spark.createDataFrame([("a", large)], "id string, n long"), tmp_path, options)
    whole = spark.createDataFrame([("b", 5.0), ("c", None)], "id string, n double")
    save(whole, tmp_path, options)
    table = hw.open_table(tmp_path)
    assert table.read_arrow().sort_by("id")["n"].to_pylist() == [large, 5, None]
    broken = spark.createDataFrame([("d", 1.5)], "id string, n double")
    with pytest.raises(PySparkException, match=r"Column n is int64 .* the value 1\.5"):
        save(broken, tmp_path, options)
    unbounded = hw.open_table(tmp_path, {"headwater.write.inline.bytes": "0"})
    unbounded.upsert(whole)
    with pytest.raises(hw.errors.InvalidInputError, match=r"Column n is int64 .* the value 1\.5"):
        unbounded.upsert(broken)
    assert table.read_arrow().sort_by("id")["n"].to_pylist() == [large, 5, None]
