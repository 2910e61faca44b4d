"""What Spark's own SQL does with tables of the data source, and exactly where it does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import headwater as hw

ROWS = pa.table({"id": ["a", "b"], "value": [1, 2]})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    table = hw.create_table(tmp_path / "t", schema=ROWS.schema, record_key="id")
    table.upsert(ROWS)
    return tmp_path / "t"


@pytest.fixture(autouse=True)
def _no_tables_stay(spark: SparkSession) -> Iterator[None]:
    yield
    for name in ("trips", "saved"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.catalog.dropTempView("view_of_trips")


def found(path: Path) -> list[tuple[str, int]]:
    rows = hw.open_table(path).read_arrow().sort_by("id").to_pylist()
    return [(row["id"], row["value"]) for row in rows]


@pytest.mark.long
def test_a_table_of_the_catalog_with_its_path_in_the_statement(
    spark: SparkSession, path: Path
) -> None:
    spark.sql(
        f"CREATE TABLE trips USING headwater LOCATION '{path}' "
        "TBLPROPERTIES (primaryKey = 'id', type = 'cow', team = 'ours') COMMENT 'all of them'"
    )
    assert spark.table("trips").columns == ["id", "value"]

    spark.sql(f"INSERT INTO trips WITH (path = '{path}') VALUES ('b', 3L), ('c', 4L)")
    assert found(path) == [("a", 1), ("b", 3), ("c", 4)]

    rows = spark.sql(f"SELECT id FROM trips WITH (path = '{path}') WHERE value > 2").collect()
    assert sorted(row.id for row in rows) == ["b", "c"]


def test_without_it_one_sentence_says_what_to_write(spark: SparkSession, path: Path) -> None:
    spark.sql(f"CREATE TABLE trips USING headwater LOCATION '{path}'")
    for statement in ("SELECT * FROM trips", "INSERT INTO trips VALUES ('c', 4L)"):
        with pytest.raises(PySparkException, match=r"add WITH \(path = '\.\.\.'\)"):
            spark.sql(statement).collect()
    assert found(path) == [("a", 1), ("b", 2)]


@pytest.mark.long
def test_a_temporary_view_reads_and_writes(spark: SparkSession, path: Path) -> None:
    spark.sql(f"CREATE TEMPORARY VIEW view_of_trips USING headwater OPTIONS (path '{path}')")
    spark.sql("INSERT INTO view_of_trips VALUES ('c', 4L)")
    assert found(path) == [("a", 1), ("b", 2), ("c", 4)]
    spark.catalog.dropTempView("view_of_trips")
    spark.sql(f"CREATE TEMPORARY VIEW view_of_trips USING headwater OPTIONS (path '{path}')")
    assert spark.sql("SELECT sum(value) FROM view_of_trips WHERE id <> 'a'").collect() == [(6,)]


def test_save_as_table(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.createDataFrame(ROWS)
    key = {"hoodie.datasource.write.recordkey.field": "id"}
    writer = df.write.format("headwater").options(**key).mode("append")
    writer.option("path", str(tmp_path / "new")).saveAsTable("saved")
    assert found(tmp_path / "new") == [("a", 1), ("b", 2)]
    statement = f"SELECT count(*) FROM saved WITH (path = '{tmp_path}/new')"
    assert spark.sql(statement).collect() == [(2,)]


def test_a_path_in_place_of_a_name_is_refused_by_spark_itself(
    spark: SparkSession, path: Path
) -> None:
    with pytest.raises(PySparkException, match="UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY"):
        spark.sql(f"SELECT * FROM headwater.`{path}`")
