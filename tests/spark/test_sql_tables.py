"""Tables that statements create, register, change and drop, as a whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import headwater as hw
from headwater.errors import HeadwaterError, InvalidInputError, NotFoundError, UnsupportedError


@pytest.fixture
def made(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """Where the table `made` may be; the catalog forgets it afterwards."""
    yield tmp_path / "made"
    spark.sql("DROP TABLE IF EXISTS made")


def rows(spark: SparkSession, query: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in hw.sql(spark, query).collect())


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


NOT_KEPT = (
    ("CREATE TEMPORARY TABLE made (id INT) USING headwater", "TEMPORARY"),
    ("CREATE TABLE made (id INT DEFAULT 3) USING headwater", "DEFAULT 3 of column id"),
    ("CREATE TABLE made (id INT, b INT GENERATED ALWAYS AS (id + 1)) USING headwater", "GENERATED"),
    ("CREATE TABLE made (id VARCHAR(3)) USING headwater", "STRING"),
    ("CREATE TABLE made (s STRUCT<x: CHAR(2)>) USING headwater", "STRING"),
    ("CREATE TABLE made (id INT) USING headwater CLUSTERED BY (id) INTO 4 BUCKETS", "CLUSTERED"),
    ("CREATE TABLE made LIKE other USING headwater", "LIKE other"),
    ("CREATE TABLE made (id INT) USING headwater PARTITIONED BY (bucket(4, id))", "takes columns"),
    ("CREATE TABLE made (id INT) USING headwater AS SELECT 1 AS id", "from the query"),
)


def test_what_would_not_be_kept_is_refused(spark: SparkSession, made: Path) -> None:
    for statement, says in NOT_KEPT:
        with pytest.raises(UnsupportedError, match=says):
            hw.sql(spark, statement)
    assert not spark.catalog.tableExists("made")


def test_a_table_whose_first_rows_fail_is_none(spark: SparkSession, made: Path) -> None:
    made.mkdir()
    (made / "mine.txt").write_text("not the table's")
    with pytest.raises(PySparkException, match="boom"):
        hw.sql(
            spark,
            f"CREATE TABLE made USING headwater LOCATION '{made}' TBLPROPERTIES (primaryKey = 'id')"
            " AS SELECT id, IF(id = 2, raise_error('boom'), id) AS x FROM range(3)",
        )
    assert not spark.catalog.tableExists("made")
    assert files(made) == ["mine.txt"]


def test_a_name_that_is_taken_is_left_alone(
    spark: SparkSession, made: Path, tmp_path: Path
) -> None:
    spark.sql(f"CREATE TABLE made (a INT) USING parquet LOCATION '{tmp_path}/parquet'")
    create = f"CREATE TABLE {{}} made (id INT) USING headwater LOCATION '{made}'"
    hw.sql(spark, create.format("IF NOT EXISTS"))
    with pytest.raises(InvalidInputError, match="exists already"):
        hw.sql(spark, create.format(""))
    assert not made.exists()


@pytest.mark.parametrize("is_query", [True, False])
def test_literals_of_the_first_rows_promise_nothing(
    spark: SparkSession, made: Path, is_query: bool
) -> None:
    query = "SELECT 1 AS id, 'new' AS state, named_struct('n', array(1)) AS inside"
    if is_query:
        hw.sql(spark, f"CREATE TABLE made USING headwater LOCATION '{made}' AS {query}")
    else:
        spark.sql(query).write.format("headwater").mode("append").save(str(made))
    table = hw.open_table(made)
    nulls = [{"id": 2, "state": None, "inside": {"n": [None]}}]
    inside = pa.struct([("n", pa.list_(pa.int32()))])
    columns = pa.schema([("id", pa.int32()), ("state", pa.string()), ("inside", inside)])
    table.insert(pa.Table.from_pylist(nulls, columns))
    assert table.read_arrow(where="id = 2").to_pylist() == nulls


def test_a_table_that_is_there_is_registered(spark: SparkSession, made: Path) -> None:
    create = f"CREATE TABLE made (id INT, city STRING) USING headwater LOCATION '{made}'"
    hw.sql(spark, f"{create} TBLPROPERTIES (primaryKey = 'id')")
    hw.sql(spark, "INSERT INTO made VALUES (1, 'sf')")
    hw.sql(spark, "DROP TABLE made")
    again = f"CREATE TABLE made USING headwater LOCATION '{made}'"
    with pytest.raises(InvalidInputError, match="TBLPROPERTIES"):
        hw.sql(spark, f"{again} TBLPROPERTIES (primaryKey = 'city')")
    hw.sql(spark, again)
    assert rows(spark, "SELECT * FROM made") == [(1, "sf")]
    with pytest.raises(InvalidInputError, match="there is none at"):
        hw.sql(spark, f"CREATE TABLE nowhere USING headwater LOCATION '{made}/nowhere'")


def test_a_relative_location_is_in_the_database(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"CREATE DATABASE trades LOCATION '{tmp_path}/trades'")
    try:
        create = "CREATE TABLE trades.made (id INT) USING headwater LOCATION 'sub/here'"
        hw.sql(spark, f"{create} TBLPROPERTIES (primaryKey = 'id')")
        hw.sql(spark, "INSERT INTO trades.made VALUES (1)")
        assert rows(spark, "SELECT id FROM trades.made") == [(1,)]
        assert hw.open_table(tmp_path / "trades/sub/here").history().num_rows == 1
        hw.sql(spark, "CREATE TABLE trades.Plain (id INT) USING headwater")
        assert hw.open_table(tmp_path / "trades/plain").schema.names == ["id"]
    finally:
        spark.sql("DROP DATABASE trades CASCADE")


def test_a_table_whose_files_are_gone_is_dropped(spark: SparkSession, made: Path) -> None:
    for drop in ("DROP TABLE made", "DROP TABLE IF EXISTS made PURGE"):
        hw.sql(spark, f"CREATE TABLE made (id INT) USING headwater LOCATION '{made}'")
        shutil.rmtree(made)
        made.mkdir()
        (made / "of somebody else").touch()
        hw.sql(spark, drop)
        assert not spark.catalog.tableExists("made")
        assert [path.name for path in made.iterdir()] == ["of somebody else"]
        shutil.rmtree(made)
    with pytest.raises(NotFoundError):
        hw.sql(spark, f"DROP TABLE headwater.`{made}`")
    hw.sql(spark, f"DROP TABLE IF EXISTS headwater.`{made}` PURGE")
    hw.sql(spark, f"CREATE TABLE made (id INT) USING headwater LOCATION '{made}'")
    for several in ("DROP TABLE made, made", "DROP TABLE made CASCADE"):
        with pytest.raises(UnsupportedError):
            hw.sql(spark, several)
    assert spark.catalog.tableExists("made")


def test_columns_are_named_in_any_case(spark: SparkSession, made: Path) -> None:
    hw.sql(
        spark,
        f"CREATE TABLE made (Id INT, fare DOUBLE, City STRING) USING headwater "
        f"PARTITIONED BY (city) LOCATION '{made}' TBLPROPERTIES (primaryKey = 'id', "
        "hoodie.index.type = 'BUCKET', hoodie.bucket.index.num.buckets = '2')",
    )
    config = hw.open_table(made).config
    assert (config.record_key_fields, config.partition_columns) == (("Id",), ("City",))
    assert config.bucket_count == 2
    hw.sql(spark, "INSERT INTO made PARTITION (CITY = 'sf') (ID, FARE) VALUES (1, 1.0)")
    merge = "MERGE INTO made USING (SELECT {} AS ID, 'sf' AS CITY, {} AS FARE) AS s "
    on = "ON made.id = s.id AND made.city = s.city WHEN "
    hw.sql(spark, merge.format(1, 9.5) + on + "MATCHED THEN UPDATE SET *")
    hw.sql(spark, merge.format(2, 2.5) + on + "NOT MATCHED THEN INSERT *")
    assert rows(spark, "SELECT * FROM made") == [(1, 9.5, "sf"), (2, 2.5, "sf")]
    for given in ("PARTITION (city = 'sf') (id, city) VALUES (1, 'a')", "(id, ID) VALUES (1, 2)"):
        with pytest.raises(InvalidInputError, match="given twice"):
            hw.sql(spark, f"INSERT INTO made {given}")
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(InvalidInputError, match="no column id"):
            hw.sql(spark, "INSERT INTO made (id, fare, City) VALUES (1, 1.0, 'sf')")
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


UNCHANGED = (
    "ALTER TABLE made ALTER COLUMN id TYPE BIGINT, n TYPE BIGINT",
    "ALTER TABLE headwater.`{}` ALTER COLUMN id TYPE BIGINT, n TYPE BIGINT",
    "ALTER TABLE IF EXISTS made UNSET TBLPROPERTIES ('a')",
    "ALTER TABLE made ALTER COLUMN id TYPE SMALLINT",
    "ALTER TABLE made ALTER COLUMN n COMMENT 'x'",
    "ALTER TABLE made CHANGE COLUMN n n BIGINT COMMENT 'x'",
    "ALTER TABLE made ADD COLUMNS (x INT DEFAULT 3)",
    "ALTER TABLE made ADD COLUMNS (x INT NOT NULL)",
    "ALTER TABLE made ADD COLUMNS (s STRUCT<x: INT NOT NULL>)",
    "ALTER TABLE made ADD COLUMNS (s.x INT)",
    "ALTER TABLE made ADD COLUMNS (x VARCHAR(3))",
    "ALTER TABLE made ADD COLUMNS (ID INT)",
)


def test_changes_that_would_be_the_catalogs_alone_are_refused(
    spark: SparkSession, made: Path
) -> None:
    hw.sql(spark, f"CREATE TABLE made (id INT, n INT) USING headwater LOCATION '{made}'")
    for statement in UNCHANGED:
        with pytest.raises(HeadwaterError) as error:
            hw.sql(spark, statement.format(made))
        assert isinstance(error.value, UnsupportedError | InvalidInputError)
    assert hw.open_table(made).history().num_rows == 0
    hw.sql(spark, "ALTER TABLE made CHANGE COLUMN N N BIGINT")
    described = rows(spark, "DESCRIBE TABLE made")
    assert [(name, kind) for name, kind, _ in described] == [("id", "int"), ("n", "bigint")]


def test_fields_are_added_to_a_struct_by_its_type(spark: SparkSession, made: Path) -> None:
    columns = "id INT, s STRUCT<x: INT>"
    hw.sql(spark, f"CREATE TABLE made ({columns}) USING headwater LOCATION '{made}'")
    hw.sql(spark, "ALTER TABLE made ALTER COLUMN s TYPE STRUCT<x: BIGINT, y: ARRAY<INT>>")
    described = rows(spark, "DESCRIBE TABLE made")
    assert ("s", "struct<x:bigint,y:array<int>>") in {(name, kind) for name, kind, _ in described}
