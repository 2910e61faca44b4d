"""What a statement says beside what is understood is refused, and never left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import headwater as hw
from headwater.errors import HeadwaterError, InvalidInputError, UnsupportedError


@pytest.fixture
def rides(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """The path of a copy-on-write table in the catalog, with three rows in two cities."""
    hw.sql(
        spark,
        f"""
        CREATE TABLE rides (id INT, fare DOUBLE, city STRING) USING headwater
        PARTITIONED BY (city) LOCATION '{tmp_path}/rides'
        TBLPROPERTIES (type = 'cow', primaryKey = 'id')
        """,
    )
    hw.sql(spark, "INSERT INTO rides VALUES (1, 1.0, 'sf'), (2, 2.0, 'sf'), (3, 3.0, 'ny')")
    yield tmp_path / "rides"
    hw.sql(spark, "DROP TABLE IF EXISTS rides")


def rows(spark: SparkSession, query: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in hw.sql(spark, query).collect())


MATCHED = "MERGE INTO rides USING rides AS n ON rides.id = n.id AND rides.city = n.city WHEN"
REFUSED = (
    ("DELETE FROM rides LIMIT 1", "LIMIT 1"),
    ("DELETE FROM rides ORDER BY id LIMIT 1", "ORDER BY id"),
    ("DELETE FROM rides TABLESAMPLE (1 ROWS)", "SAMPLE"),
    ("DELETE FROM rides VERSION AS OF '0' WHERE id = 1", "VERSION AS OF"),
    ("DELETE FROM rides AS r USING other WHERE r.id = 1", "USING other"),
    ("DELETE FROM rides AS r (a, b, c)", "a, b, c"),
    ("DELETE FROM rides RETURNING id", "RETURNING id"),
    ("UPDATE rides SET fare = 9 LIMIT 1", "LIMIT 1"),
    ("UPDATE rides SET fare = 9 FROM rides AS o WHERE o.id = rides.id", "FROM rides AS o"),
    ("UPDATE rides SET other.fare = 9", "as a whole"),
    ("INSERT INTO rides VALUES (1, 9.0, 'sf') ON CONFLICT DO NOTHING", "ON CONFLICT"),
    ("INSERT INTO rides SELECT 1, 9.0, 'sf' RETURNING id", "RETURNING id"),
    ("INSERT OR REPLACE INTO rides SELECT 1, 9.0, 'sf'", "REPLACE"),
    (f"{MATCHED} MATCHED THEN DO NOTHING", "DO NOTHING"),
    (f"{MATCHED} MATCHED THEN INSERT *", "INSERT"),
    (f"{MATCHED} NOT MATCHED THEN DELETE", "DELETE"),
    (f"{MATCHED} NOT MATCHED THEN UPDATE SET fare = 9", "UPDATE"),
    (f"{MATCHED} MATCHED THEN UPDATE SET fare = 9 WHERE rides.id = 1", "WHERE"),
    (f"{MATCHED} MATCHED THEN DELETE RETURNING id", "RETURNING id"),
    ("TRUNCATE TABLE rides, rides", "one table"),
    ("TRUNCATE TABLE rides PARTITION (city)", "gives no value for city"),
    ("TRUNCATE TABLE rides PARTITION (id = 1)", "partitioned: city"),
    ("TRUNCATE TABLE rides PARTITION (city = 'la')", "no partition"),
)


def test_clauses_that_are_not_understood_are_refused(spark: SparkSession, rides: Path) -> None:
    before = hw.open_table(rides).history().num_rows
    for statement, says in REFUSED:
        with pytest.raises(HeadwaterError, match=says) as error:
            hw.sql(spark, statement)
        assert isinstance(error.value, UnsupportedError | InvalidInputError)
    assert hw.open_table(rides).history().num_rows == before


def test_partitions_are_truncated(spark: SparkSession, rides: Path) -> None:
    hw.sql(spark, "TRUNCATE TABLE rides PARTITION (city = 'ny')")
    assert rows(spark, "SELECT id FROM rides") == [(1,), (2,)]


def test_all_partitions_that_have_a_value_are_truncated(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = f"headwater.`{tmp_path}/days`"
    hw.sql(
        spark,
        f"CREATE TABLE {path} (id INT, a INT, b DATE) USING headwater PARTITIONED BY (a, b) "
        "TBLPROPERTIES (primaryKey = 'id')",
    )
    hw.sql(
        spark,
        f"INSERT INTO {path} VALUES (1, 1, DATE '2024-01-01'), (2, 1, DATE '2024-01-02'), "
        "(3, 2, DATE '2024-01-01'), (4, 11, DATE '2024-01-02')",
    )
    hw.sql(spark, f"TRUNCATE TABLE {path} PARTITION (a = 1)")
    assert rows(spark, f"SELECT id FROM {path}") == [(3,), (4,)]
    hw.sql(spark, f"TRUNCATE TABLE {path} PARTITION (a = 7)")
    hw.sql(spark, f"TRUNCATE TABLE {path} PARTITION (B = DATE '2024-01-02')")
    assert rows(spark, f"SELECT id FROM {path}") == [(3,)]


def test_an_overwrite_replaces_what_it_names(spark: SparkSession, rides: Path) -> None:
    before = hw.open_table(rides).history().num_rows
    hw.sql(spark, "INSERT OVERWRITE rides PARTITION (CITY = 'ny') SELECT 9, 9.0 WHERE 1 > 2")
    assert rows(spark, "SELECT id FROM rides") == [(1,), (2,)]
    assert hw.open_table(rides).history().num_rows == before + 1
    hw.sql(spark, "INSERT OVERWRITE rides PARTITION (city = 'la') VALUES (4, 4.0)")
    assert rows(spark, "SELECT id FROM rides") == [(1,), (2,), (4,)]
    dynamic = {"hoodie.datasource.overwrite.mode": "dynamic"}
    none = "INSERT OVERWRITE rides PARTITION (city{}) SELECT * FROM rides WHERE id > 100"
    hw.sql(spark, none.format(""), options=dynamic)
    assert rows(spark, "SELECT id FROM rides") == [(1,), (2,), (4,)]
    with pytest.raises(InvalidInputError, match="partitioned: city"):
        hw.sql(spark, "INSERT INTO rides PARTITION (fare = 1) SELECT 1, 'sf'")


def test_an_overwrite_of_a_part_of_the_partition_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = f"headwater.`{tmp_path}/pairs`"
    hw.sql(
        spark,
        f"CREATE TABLE {path} (id INT, a INT, b INT) USING headwater PARTITIONED BY (a, b) "
        "TBLPROPERTIES (primaryKey = 'id')",
    )
    hw.sql(spark, f"INSERT INTO {path} VALUES (1, 1, 1), (2, 1, 2), (3, 2, 2)")
    dynamic = {"hoodie.datasource.overwrite.mode": "dynamic"}
    hw.sql(spark, f"INSERT OVERWRITE {path} PARTITION (a = 1, b) SELECT 8, 1", options=dynamic)
    assert rows(spark, f"SELECT * FROM {path}") == [(2, 1, 2), (3, 2, 2), (8, 1, 1)]
    hw.sql(spark, f"INSERT OVERWRITE {path} PARTITION (a = 1, b) SELECT 9, 1")
    assert rows(spark, f"SELECT * FROM {path}") == [(3, 2, 2), (9, 1, 1)]


@pytest.mark.parametrize("ansi", ["false", "true"])
def test_an_insert_refuses_values_that_do_not_fit(
    spark: SparkSession, rides: Path, ansi: str
) -> None:
    misfits = (
        ("VALUES (3000000000, 1.0, 'sf')", "3000000000 does not fit int of column id"),
        ("VALUES (5, 'abc', 'sf')", "abc does not fit double of column fare"),
    )
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        for given, says in misfits:
            with pytest.raises(PySparkException, match=says):
                hw.sql(spark, f"INSERT INTO rides {given}")
        hw.sql(spark, "INSERT INTO rides VALUES (CAST(6 AS BIGINT), '6.5', NULL), (7, NULL, 'la')")
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert rows(spark, "SELECT * FROM rides WHERE id > 3") == [(6, 6.5, None), (7, None, "la")]


def test_values_within_values_fit_too(spark: SparkSession, tmp_path: Path) -> None:
    path = f"headwater.`{tmp_path}/nested`"
    hw.sql(
        spark,
        f"CREATE TABLE {path} (id INT, a ARRAY<STRUCT<x: INT>>, m MAP<STRING, INT>) "
        "USING headwater TBLPROPERTIES (primaryKey = 'id')",
    )
    given = "INSERT INTO {} SELECT 1, array(named_struct('x', {})), map('k', {})"
    hw.sql(spark, given.format(path, "5L", "'6'"))
    assert rows(spark, f"SELECT a[0].x, m['k'] FROM {path}") == [(5, 6)]
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        for values in (("3000000000", "1"), ("1", "'many'")):
            with pytest.raises(PySparkException, match="does not fit int"):
                hw.sql(spark, given.format(path, *values))
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_a_with_before_the_statement_is_known_to_its_query(
    spark: SparkSession, rides: Path
) -> None:
    hw.sql(spark, "WITH c AS (SELECT 4 AS a) INSERT INTO rides SELECT a, 4.0, 'la' FROM c")
    merge = "MERGE INTO rides USING s ON rides.id = s.id AND rides.city = s.city WHEN MATCHED THEN"
    hw.sql(spark, f"WITH s AS (SELECT 1 AS id, 'sf' AS city) {merge} DELETE")
    assert rows(spark, "SELECT id FROM rides") == [(2,), (3,), (4,)]
    within = "WITH d AS (SELECT * FROM c) SELECT a, 5.0, 'la' FROM d"
    hw.sql(spark, f"WITH c AS (SELECT 5 AS a) INSERT INTO rides {within}")
    assert rows(spark, "SELECT id FROM rides") == [(2,), (3,), (4,), (5,)]


def test_what_is_written_unusually_is_understood_or_refused(
    spark: SparkSession, rides: Path
) -> None:
    hw.sql(spark, "INSERT OVERWRITE rides TABLE rides")
    assert rows(spark, "SELECT id FROM rides") == [(1,), (2,), (3,)]
    with pytest.raises(InvalidInputError, match="needs the columns"):
        hw.sql(spark, f"{MATCHED} NOT MATCHED THEN INSERT VALUES (1, 2.0, 'sf')")
    for call in ("show_commits('rides', 'x')", "show_timeline(table => 'rides', limit => -1)"):
        with pytest.raises(InvalidInputError, match="whole number"):
            hw.sql(spark, f"CALL {call}")
    assert len(rows(spark, "CALL show_commits('rides', '1')")) == 1


def test_fields_of_structs_are_named_by_table_column_and_field(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = f"headwater.`{tmp_path}/nested`"
    hw.sql(
        spark,
        f"CREATE TABLE {path} (id INT, v INT, st STRUCT<a: INT, b: STRUCT<c: INT>>) "
        "USING headwater TBLPROPERTIES (primaryKey = 'id')",
    )
    values = "id, 0, named_struct('a', id, 'b', named_struct('c', id))"
    hw.sql(spark, f"INSERT INTO {path} SELECT {values} FROM range(4)")
    hw.sql(spark, f"DELETE FROM {path} AS n WHERE n.st.a = 3 OR n.st.b.c = 2")
    hw.sql(
        spark,
        f"MERGE INTO {path} AS n USING (SELECT 1 AS id, named_struct('x', 50) AS s) AS s "
        "ON n.id = s.id WHEN MATCHED AND n.st.a = 1 THEN UPDATE SET v = s.s.x",
    )
    assert rows(spark, f"SELECT id, v FROM {path}") == [(0, 0), (1, 50)]


def test_a_table_keeps_the_options_it_was_opened_with(spark: SparkSession, rides: Path) -> None:
    operation, duplicates = (
        "hoodie.spark.sql.insert.into.operation",
        "hoodie.datasource.insert.dup.policy",
    )
    table = hw.open_table(rides, {operation: "upsert"})
    spark.conf.set(operation, "bulk_insert")
    try:
        table.sql("INSERT INTO this VALUES (1, 9.0, 'sf')")
        assert rows(spark, "SELECT fare FROM rides WHERE id = 1") == [(9.0,)]
        # What it was not opened with is the session's to say.
        spark.conf.set(duplicates, "fail")
        with pytest.raises(InvalidInputError, match="refuses them"):
            hw.open_table(rides, {operation: "insert"}).sql(
                "INSERT INTO this VALUES (1, 8.0, 'sf')"
            )
    finally:
        spark.conf.unset(operation)
        spark.conf.unset(duplicates)
