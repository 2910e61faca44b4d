"""Statements of Hudi's pages on SQL: each runs here, or is refused with what is supported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import headwater as hw
from headwater.errors import HeadwaterError, InvalidInputError, NotFoundError, UnsupportedError


@pytest.fixture
def rides(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """The path of a copy-on-write table in the catalog, partitioned by a column in its middle."""
    hw.sql(
        spark,
        f"""
        CREATE TABLE rides (id INT, city STRING, fare DOUBLE) USING hudi
        PARTITIONED BY (city) LOCATION '{tmp_path}/rides'
        TBLPROPERTIES (type = 'cow', primaryKey = 'id')
        """,
    )
    # Partition columns come last, as in every table of Spark's catalog.
    hw.sql(spark, "INSERT INTO rides VALUES (1, 1.0, 'sf'), (2, 2.0, 'sf'), (3, 3.0, 'ny')")
    yield tmp_path / "rides"
    hw.sql(spark, "DROP TABLE IF EXISTS rides")


def rows(spark: SparkSession, query: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in hw.sql(spark, query).collect())


ALL = "SELECT id, city, fare FROM rides"


def test_merge_has_all_clauses(spark: SparkSession, rides: Path) -> None:
    hw.sql(
        spark,
        """
        MERGE INTO rides AS r USING (SELECT 1 AS id, 'sf' AS city, 10.0 AS fare UNION ALL
                                     SELECT 4, 'la', 4.0) AS n
        ON r.id = n.id AND r.city = n.city
        WHEN MATCHED THEN UPDATE SET fare = n.fare
        WHEN NOT MATCHED BY TARGET THEN INSERT *
        WHEN NOT MATCHED BY SOURCE AND r.city = 'ny' THEN DELETE
        WHEN NOT MATCHED BY SOURCE THEN UPDATE SET fare = r.fare + 0.5
        """,
    )
    assert rows(spark, ALL) == [(1, "sf", 10.0), (2, "sf", 2.5), (4, "la", 4.0)]
    with pytest.raises(InvalidInputError, match="no row of the source that \\* could mean"):
        hw.sql(
            spark,
            "MERGE INTO rides USING rides AS n ON rides.id = n.id "
            "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET *",
        )


def test_inserts_take_rows_by_name_and_partitions_last(spark: SparkSession, rides: Path) -> None:
    hw.sql(spark, "INSERT INTO rides BY NAME SELECT 5.0 AS fare, 'sf' AS city, 5 AS id")
    hw.sql(spark, "INSERT INTO rides PARTITION (city) SELECT 6, 6.0, 'la'")
    hw.sql(spark, "INSERT INTO rides PARTITION (city = 'la') VALUES (7, 7.0)")
    assert rows(spark, ALL)[3:] == [(5, "sf", 5.0), (6, "la", 6.0), (7, "la", 7.0)]


def test_options_of_the_session_count(spark: SparkSession, rides: Path) -> None:
    again = "INSERT INTO rides VALUES (1, 100.0, 'sf'), (8, 8.0, 'sf')"
    keys = ("hoodie.spark.sql.insert.into.operation", "hoodie.datasource.insert.dup.policy")
    try:
        hw.sql(spark, f"SET {keys[1]} = fail")
        with pytest.raises(InvalidInputError, match="refuses them"):
            hw.sql(spark, again)
        hw.sql(spark, f"SET {keys[1]} = drop")
        hw.sql(spark, again)
        assert rows(spark, ALL)[::3] == [(1, "sf", 1.0), (8, "sf", 8.0)]
        spark.conf.unset(keys[1])
        hw.sql(spark, f"SET {keys[0]} = upsert")
        hw.sql(spark, again)
        assert rows(spark, ALL)[::3] == [(1, "sf", 100.0), (8, "sf", 8.0)]
    finally:
        for key in keys:
            spark.conf.unset(key)
    hw.sql(
        spark,
        "INSERT OVERWRITE rides SELECT 9, 9.0, 'ny'",
        options={"hoodie.datasource.overwrite.mode": "dynamic"},
    )
    assert rows(spark, "SELECT id FROM rides") == [(1,), (2,), (8,), (9,)]


def test_tables_are_altered_and_described(spark: SparkSession, rides: Path) -> None:
    hw.sql(spark, "ALTER TABLE rides ADD COLUMNS (tip DOUBLE, note STRING)")
    hw.sql(spark, "ALTER TABLE rides ALTER COLUMN id TYPE BIGINT")
    hw.sql(spark, "INSERT INTO rides VALUES (5000000000, 5.0, 'la', 0.5, 'far')")
    assert rows(spark, "SELECT id, tip, note FROM rides")[-1] == (5000000000, 0.5, "far")
    described = hw.sql(spark, "DESCRIBE TABLE EXTENDED rides").collect()
    assert ("id", "bigint") in [(row["col_name"], row["data_type"]) for row in described]
    assert rows(spark, "SHOW PARTITIONS rides") == [("city=la",), ("city=ny",), ("city=sf",)]
    hw.sql(spark, "ALTER TABLE rides DROP PARTITION (city = 'la'), PARTITION (city = 'ny')")
    assert rows(spark, "SELECT id FROM rides") == [(1,), (2,)]
    hw.sql(spark, "ALTER TABLE rides RENAME TO journeys")
    assert rows(spark, "SELECT id FROM journeys") == [(1,), (2,)]
    hw.sql(spark, "ALTER TABLE journeys RENAME TO rides")


REFUSED = (
    ("ALTER TABLE rides DROP COLUMN fare", "ADD COLUMNS"),
    ("ALTER TABLE rides RENAME COLUMN fare TO price", "ADD COLUMNS"),
    ("ALTER TABLE rides SET TBLPROPERTIES (hoodie.keep.max.commits = '10')", "ADD COLUMNS"),
    ("ALTER TABLE rides ADD COLUMN tip DOUBLE FIRST", "added at the end"),
    ("ALTER TABLE rides ADD COLUMNS (fare DOUBLE)", "already"),
    ("ALTER TABLE rides ALTER COLUMN fare TYPE INT", "fare"),
    ("ALTER TABLE rides DROP PARTITION (id = 1)", "partitioned: city"),
    ("ALTER TABLE rides DROP PARTITION (city = upper('la'))", "Give a literal"),
    ("INSERT INTO rides REPLACE WHERE city = 'sf' SELECT 1, 2.0, 'sf'", "REPLACE WHERE"),
    ("CREATE OR REPLACE TABLE rides USING hudi AS SELECT 1 AS id", "OR REPLACE"),
    (
        "CREATE INDEX by_day ON rides USING column_stats(ts) "
        "OPTIONS (expr = 'from_unixtime', format = 'yyyy-MM-dd')",
        "no expressions",
    ),
    ("REFRESH INDEX by_day ON rides", "no expressions"),
    ("SELECT * FROM hudi_query_timeline('rides', 'true')", "show_timeline"),
    ("UPDATE rides SET fare = (SELECT 1)", "subquery"),
    ("CALL run_bootstrap(table => 'rides')", "there are archive_commits"),
    ("CALL show_commits(tabel => 'rides')", "no argument tabel"),
    ("MERGE INTO rides USING x", "line 1, column"),
)


def test_what_cannot_be_done_says_what_can(spark: SparkSession, rides: Path) -> None:
    before = hw.open_table(rides).history().num_rows
    for statement, says in REFUSED:
        with pytest.raises(HeadwaterError, match=says):
            hw.sql(spark, statement)
    assert hw.open_table(rides).history().num_rows == before


def test_the_data_source_drops_duplicates_and_partitions(spark: SparkSession, rides: Path) -> None:
    new = spark.createDataFrame(
        [(1, "sf", 50.0), (9, "sf", 9.0)], "id int, city string, fare double"
    )
    write = new.write.format("headwater").mode("append")
    write.option("hoodie.datasource.write.insert.drop.duplicates", "true").save(str(rides))
    assert rows(spark, ALL)[::3] == [(1, "sf", 1.0), (9, "sf", 9.0)]
    deleting = (
        new.write.format("headwater")
        .mode("append")
        .option("hoodie.datasource.write.operation", "delete_partition")
    )
    with pytest.raises(PySparkException, match="go together"):
        deleting.save(str(rides))
    deleting.option("hoodie.datasource.write.partitions.to.delete", "city=s*").save(str(rides))
    assert rows(spark, ALL) == [(3, "ny", 3.0)]


def test_tables_that_are_not_there_are_named(spark: SparkSession) -> None:
    with pytest.raises(NotFoundError, match="nowhere"):
        hw.sql(spark, "CALL show_commits('nowhere')")
    with pytest.raises(UnsupportedError, match="no expressions"):
        hw.sql(spark, "CREATE INDEX i ON nowhere USING bloom_filters(a) OPTIONS (expr = 'upper')")
