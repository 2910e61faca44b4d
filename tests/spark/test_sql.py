"""`hw.sql`: tables of the catalog and of paths, in Hudi's SQL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.support.tables import FENCED, a_table

import headwater as hw
from headwater.cli.main import main
from headwater.errors import InvalidInputError, NotFoundError, UnsupportedError

LOCK = {"hoodie.write.lock.provider": "in_process"}


@pytest.fixture
def trips(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """The name of a merge-on-read table in the catalog."""
    hw.sql(
        spark,
        f"""
        CREATE TABLE trips (id BIGINT, city STRING, fare DOUBLE, ts BIGINT) USING headwater
        PARTITIONED BY (city) LOCATION '{tmp_path}/trips'
        TBLPROPERTIES (type = 'mor', primaryKey = 'id', preCombineField = 'ts')
        """,
    )
    yield "trips"
    hw.sql(spark, "DROP TABLE IF EXISTS trips")


def rows(spark: SparkSession, query: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in hw.sql(spark, query).collect())


def test_a_table_is_created_filled_read_and_dropped(
    spark: SparkSession, trips: str, tmp_path: Path
) -> None:
    table = hw.open_table(tmp_path / "trips")
    assert table.config.record_key_fields == ("id",)
    assert table.config.table_type == "MERGE_ON_READ"
    assert table.config.ordering_fields == ("ts",)
    done = hw.sql(spark, "INSERT INTO trips VALUES (1, 1.0, 1, 'sf'), (2, 2.0, 1, 'ny')").collect()
    assert [row["inserted"] for row in done] == [2]
    hw.sql(spark, "INSERT INTO trips (id, city, ts) SELECT 3, 'la', 1")
    assert rows(spark, "SELECT id, fare FROM trips WHERE city <> 'ny'") == [(1, 1.0), (3, None)]
    path = f"headwater.`{tmp_path}/trips`"
    assert rows(spark, f"SELECT count(*) FROM {path}") == [(3,)]
    assert rows(spark, f"SELECT t.id FROM {path} AS t JOIN trips ON t.id = trips.id + 1") == [
        (2,),
        (3,),
    ]
    with pytest.raises(InvalidInputError, match="exists"):
        hw.sql(spark, f"CREATE TABLE trips (id INT) USING headwater LOCATION '{tmp_path}/other'")
    hw.sql(spark, "DROP TABLE trips PURGE")
    with pytest.raises(NotFoundError):
        hw.open_table(tmp_path / "trips")


def test_a_table_with_a_journal_is_dropped_with_its_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = a_table(tmp_path, options=FENCED).with_commits(1).create()
    inner = a_table(Path(table.uri) / "of-another").with_commits(1).create()
    hw.sql(spark, f"DROP TABLE headwater.`{table.uri}` PURGE")
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all(path.is_relative_to(inner.uri) for path in left), "nothing but the table within"
    assert hw.open_table(inner.uri).read_arrow().num_rows > 0


def test_rows_are_overwritten_as_spark_says(spark: SparkSession, trips: str) -> None:
    hw.sql(spark, "INSERT INTO trips VALUES (1, 1.0, 1, 'sf'), (2, 2.0, 1, 'ny')")
    hw.sql(spark, "INSERT OVERWRITE trips PARTITION (city = 'sf') SELECT 5, 5.0, 5")
    assert rows(spark, "SELECT id, city FROM trips") == [(2, "ny"), (5, "sf")]
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        hw.sql(spark, "INSERT OVERWRITE trips SELECT 6, 6.0, 6, 'ny'")
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert rows(spark, "SELECT id, city FROM trips") == [(5, "sf"), (6, "ny")]
    hw.sql(spark, "INSERT OVERWRITE trips SELECT 7, 7.0, 7, 'la'")
    assert rows(spark, "SELECT id, city FROM trips") == [(7, "la")]
    hw.sql(spark, "TRUNCATE TABLE trips")
    assert rows(spark, "SELECT id FROM trips") == []


def test_a_table_is_made_of_a_query(spark: SparkSession, tmp_path: Path) -> None:
    path = f"headwater.`{tmp_path}/made`"
    hw.sql(
        spark,
        f"CREATE TABLE {path} USING headwater TBLPROPERTIES (primaryKey = 'id') "
        "AS SELECT id, id * 2 AS twice FROM range(5)",
    )
    assert rows(spark, f"SELECT sum(twice) FROM {path}") == [(20,)]


def test_older_states_and_changes_are_read(spark: SparkSession, trips: str, tmp_path: Path) -> None:
    hw.sql(spark, "INSERT INTO trips VALUES (1, 1.0, 1, 'sf')")
    hw.sql(spark, "INSERT INTO trips VALUES (1, 2.0, 2, 'sf'), (2, 9.0, 1, 'sf')")
    first = hw.open_table(tmp_path / "trips").history()["completion_time"][-1].as_py()
    as_of = f"SELECT id, fare FROM trips TIMESTAMP AS OF '{first}'"
    assert rows(spark, as_of) == [(1, 1.0)]
    assert rows(spark, as_of.replace("TIMESTAMP", "VERSION") + " WHERE fare < 1") == []
    changed = f"SELECT id FROM hudi_table_changes('trips', 'latest_state', '{first}')"
    assert rows(spark, changed) == [(1,), (2,)]
    feed = "SELECT count(*) FROM hudi_table_changes('trips', 'latest_state', 'earliest')"
    assert rows(spark, feed) == [(2,)]
    with pytest.raises(InvalidInputError, match="latest_state"):
        hw.sql(spark, "SELECT * FROM hudi_table_changes('trips', 'all', '0')")


def test_indexes_come_and_go(spark: SparkSession, trips: str, tmp_path: Path) -> None:
    hw.sql(spark, "INSERT INTO trips VALUES (1, 1.0, 1, 'sf')")
    hw.sql(spark, "CREATE INDEX record_index ON trips (id)", options=LOCK)
    hw.sql(spark, "CREATE INDEX by_ts ON trips USING secondary_index(ts)", options=LOCK)
    hw.sql(spark, "CREATE INDEX IF NOT EXISTS by_ts ON trips (ts)", options=LOCK)
    with pytest.raises(InvalidInputError, match="by_ts"):
        hw.sql(spark, "CREATE INDEX by_ts ON trips (ts)", options=LOCK)
    shown = {row["index"] for row in hw.sql(spark, "SHOW INDEXES FROM trips").collect()}
    assert shown >= {"files", "record_index", "secondary_index_by_ts"}
    hw.sql(spark, "DROP INDEX by_ts ON trips", options=LOCK)
    hw.sql(spark, "DROP INDEX IF EXISTS by_ts ON trips", options=LOCK)
    assert (
        "secondary_index_by_ts" not in hw.open_table(tmp_path / "trips").config.metadata_partitions
    )


def test_services_are_called_by_hudis_names(
    spark: SparkSession, trips: str, tmp_path: Path
) -> None:
    hw.sql(spark, "INSERT INTO trips VALUES (1, 1.0, 1, 'sf')")
    hw.sql(spark, "INSERT INTO trips VALUES (1, 2.0, 2, 'sf')")
    (done,) = hw.sql(spark, "CALL run_compaction(op => 'run', table => 'trips')").collect()
    assert done["row_count"] == 1
    commits = hw.sql(spark, "CALL show_commits('trips', 10)").collect()
    assert [row["operation"] for row in commits][1:] == ["INSERT", "INSERT"]
    hw.sql(spark, "CALL create_savepoint('trips', comments => 'before')")
    (saved,) = hw.sql(spark, "CALL show_savepoints('trips')").collect()
    hw.sql(spark, "INSERT INTO trips VALUES (9, 9.0, 9, 'sf')")
    hw.sql(
        spark,
        f"CALL rollback_to_savepoint(path => '{tmp_path}/trips', "
        f"instant_time => '{saved['instant']}')",
    )
    assert rows(spark, "SELECT id, fare FROM trips") == [(1, 2.0)]
    hw.sql(spark, "CALL run_clustering(table => 'trips', order => 'fare')")
    for quiet in ("run_clean", "archive_commits", "show_clustering", "show_timeline", "help"):
        hw.sql(spark, f"CALL {quiet}('trips')").collect()
    with pytest.raises(NotFoundError, match="run_compaction"):
        hw.sql(spark, "CALL run_something('trips')")
    with pytest.raises(InvalidInputError, match="op"):
        hw.sql(spark, "CALL run_compaction('trips', wrong => 1)")


def test_what_is_not_ours_is_sparks(spark: SparkSession) -> None:
    assert rows(spark, "SELECT 1 + 1") == [(2,)]
    hw.sql(spark, "CREATE TEMPORARY VIEW two AS SELECT 2 AS n")
    assert rows(spark, "SELECT n FROM two") == [(2,)]
    hw.sql(spark, "DROP VIEW two")


def test_bad_sql_says_where(spark: SparkSession) -> None:
    with pytest.raises(InvalidInputError, match="line 1, column"):
        hw.sql(spark, "SELECT * FROM (SELECT 1")
    with pytest.raises(InvalidInputError, match="One statement"):
        hw.sql(spark, "SELECT 1; SELECT 2")
    with pytest.raises(NotFoundError, match="nowhere"):
        hw.sql(spark, "CALL run_clean('nowhere')")


def test_rows_are_updated_and_deleted(spark: SparkSession, trips: str) -> None:
    hw.sql(
        spark, "INSERT INTO trips VALUES (1, 1.0, 1, 'sf'), (2, 2.0, 1, 'sf'), (3, 3.0, 1, 'ny')"
    )
    (done,) = hw.sql(
        spark, "UPDATE trips AS t SET fare = t.fare * 10, ts = t.ts + 1 WHERE t.city = 'sf'"
    ).collect()
    assert done["updated"] == 2
    assert rows(spark, "SELECT id, fare FROM trips") == [(1, 10.0), (2, 20.0), (3, 3.0)]
    (done,) = hw.sql(spark, "DELETE FROM trips WHERE id IN (2, 3) AND fare > 2").collect()
    assert done["deleted"] == 2
    assert rows(spark, "SELECT id FROM trips") == [(1,)]
    with pytest.raises(UnsupportedError, match="MERGE"):
        hw.sql(spark, "DELETE FROM trips WHERE id IN (SELECT 1)")


def test_rows_are_merged(spark: SparkSession, trips: str) -> None:
    hw.sql(
        spark, "INSERT INTO trips VALUES (1, 1.0, 1, 'sf'), (2, 2.0, 1, 'sf'), (3, 3.0, 1, 'ny')"
    )
    hw.sql(
        spark,
        """
        MERGE INTO trips AS target
        USING (SELECT * FROM VALUES (1, 'sf', 100.0, 'u'), (2, 'sf', 0.0, 'd'), (9, 'la', 9.0, 'i'),
               (8, 'la', 8.0, 'skip') AS v(id, city, fare, op)) AS source
        ON target.id = source.id AND target.city = source.city
        WHEN MATCHED AND source.op = 'd' THEN DELETE
        WHEN MATCHED THEN UPDATE SET target.fare = source.fare + target.fare, ts = target.ts + 1
        WHEN NOT MATCHED AND source.op = 'i'
          THEN INSERT (id, city, fare, ts) VALUES (source.id, source.city, source.fare, 1)
        """,
    )
    assert rows(spark, "SELECT id, city, fare FROM trips") == [
        (1, "sf", 101.0),
        (3, "ny", 3.0),
        (9, "la", 9.0),
    ]
    hw.sql(
        spark,
        "MERGE INTO trips USING (SELECT 9 AS id) AS s ON trips.id = s.id "
        "WHEN NOT MATCHED BY SOURCE AND trips.city = 'ny' THEN DELETE "
        "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET fare = 0.0, ts = trips.ts + 1",
    )
    assert rows(spark, "SELECT id, fare FROM trips") == [(1, 0.0), (9, 9.0)]


def test_a_table_runs_statements_on_itself(spark: SparkSession, tmp_path: Path) -> None:
    table = hw.create_table(tmp_path / "t", schema="id long, n long", record_key="id")
    table.sql("INSERT INTO this VALUES (1, 1), (2, 2)", spark=spark)
    table.sql("UPDATE this SET n = n + 1 WHERE id = 2", spark=spark)
    found = table.sql("SELECT sum(n) FROM this WHERE id > 0", spark=spark).collect()
    assert [tuple(row) for row in found] == [(4,)]


def test_the_command_line_runs_statements(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t"
    hw.create_table(path, schema="id long", record_key="id")
    assert main(["sql", f"INSERT INTO headwater.`{path}` VALUES (1), (2)"]) == 0
    capsys.readouterr()
    query = f"SELECT count(*) AS n FROM headwater.`{path}`"
    assert main(["sql", query, "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"n": 2}]
    assert main(["sql", query]) == 0
    assert capsys.readouterr().out.split()[::2] == ["n", "2"]
    assert main(["sql", "SELECT * FROM ("]) == 2
    assert capsys.readouterr().err.startswith("error (invalid_input)")


def test_names_of_the_query_and_of_the_session_come_first(spark: SparkSession, trips: str) -> None:
    hw.sql(spark, "INSERT INTO trips VALUES (1, 1.0, 1, 'sf'), (2, 2.0, 1, 'ny')")
    shadowed = "WITH trips AS (SELECT 7 AS id) SELECT id FROM trips"
    assert rows(spark, shadowed) == [(7,)]
    assert rows(spark, "WITH trips AS (SELECT id FROM trips) SELECT sum(id) FROM trips") == [(3,)]
    spark.sql("CREATE TEMPORARY VIEW trips AS SELECT 9 AS id")
    try:
        assert rows(spark, "SELECT id FROM trips") == [(9,)]
    finally:
        spark.catalog.dropTempView("trips")
    with pytest.raises(NotFoundError, match="nowhere"):
        hw.sql(spark, "CALL run_clean('nowhere.trips')")
