"""Queries give the answers that Spark gives of the same rows in a table of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

import headwater as hw


@pytest.fixture
def spots(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """A table by two names: `spots` is ours, and `plain.spots` has the same rows in Parquet."""
    hw.sql(
        spark,
        f"""
        CREATE TABLE spots (id INT, v DOUBLE, n STRING, st STRUCT<a: INT, b: STRING>, city STRING)
        USING headwater PARTITIONED BY (city) LOCATION '{tmp_path}/spots'
        TBLPROPERTIES (primaryKey = 'id')
        """,
    )
    hw.sql(
        spark,
        """
        INSERT INTO spots SELECT CAST(id AS INT), id * 0.5 - 5, concat('n', id % 3),
          named_struct('a', CAST(id AS INT), 'b', 'x'), if(id % 2 = 0, 'sf', 'ny') FROM range(400)
        """,
    )
    spark.sql("CREATE DATABASE plain")
    rows = hw.sql(spark, "SELECT * FROM spots")
    rows.write.format("parquet").option("path", f"{tmp_path}/plain").saveAsTable("plain.spots")
    yield "spots"
    spark.sql("DROP DATABASE plain CASCADE")
    hw.sql(spark, "DROP TABLE spots")


def answers(frame: DataFrame) -> tuple[list[str], list[str]]:
    return frame.columns, sorted(map(repr, map(tuple, frame.collect())))


def check(spark: SparkSession, queries: tuple[str, ...]) -> None:
    """Ask the table of ours and that of Spark, which is called spots in its own database."""
    ours = {}
    for query in queries:
        ours[query] = answers(hw.sql(spark, query))
    spark.sql("USE plain")
    try:
        for query in queries:
            expected = answers(spark.sql(query.replace("default.", "plain.")))
            assert ours[query] == expected, query
    finally:
        spark.sql("USE default")


CONDITIONS = (
    "SELECT count(*) FROM spots TABLESAMPLE (10 ROWS) WHERE v < -1000 OR v > -1000",
    "SELECT count(*) FROM (SELECT * FROM spots TABLESAMPLE (1 ROWS) WHERE city IN ('sf', 'ny'))",
    "SELECT * FROM spots PIVOT (count(v) FOR city IN ('sf', 'ny')) WHERE sf > 0 AND id < 5",
    "SELECT x, y FROM spots UNPIVOT (x FOR y IN (id)) WHERE x > 397 AND y = 'id'",
    "SELECT id FROM spots t(id, w, x, s, c) WHERE w < 0 AND c = 'sf'",
    "SELECT id, a FROM spots LATERAL VIEW explode(array(1, 2)) e AS a WHERE id = 5 AND a = 2",
    "FROM spots |> WHERE id < 6 |> ORDER BY id |> LIMIT 2 |> WHERE id > 1",
    "SELECT id FROM spots a WHERE EXISTS (SELECT 1 FROM spots b WHERE b.id = a.id + 397)",
    "SELECT id, (SELECT max(b.v) FROM spots b WHERE b.city = a.city) FROM spots a WHERE a.id < 3",
    "SELECT t.st.b FROM spots t WHERE t.st.a = 1 AND t.id > 0",
    "SELECT id FROM spots WHERE spots.st.a = 2 AND default.spots.st.b = 'x'",
    "SELECT count(*) FROM spots WHERE id % 2 = 0 AND id < 10 AND n = 'n0' AND rand() < 2",
)


def test_conditions_are_evaluated_where_they_stand(spark: SparkSession, spots: str) -> None:
    check(spark, CONDITIONS)


def test_a_condition_is_evaluated_once(spark: SparkSession, spots: str) -> None:
    counts = [
        row[0]
        for _ in range(5)
        for row in hw.sql(spark, "SELECT count(*) FROM spots WHERE rand() < 0.5").collect()
    ]
    # 200 of 400 are expected of one evaluation and 100 of two, both within 10 or so.
    assert min(counts) > 150


@pytest.mark.parametrize(
    "condition",
    [
        "city = 'sf' AND rand() < 2",
        "spots.city = 'sf'",
        "default.spots.city = 'sf' AND id IN (SELECT 2)",
        "upper(n) = 'N0' AND (city = 'sf' AND to_char(date'2016-04-08', 'y') = '2016')",
    ],
)
def test_files_are_left_out_by_what_is_known_of_a_condition(
    spark: SparkSession, spots: str, condition: str
) -> None:
    read = hw.sql(spark, f"SELECT id FROM spots WHERE {condition}").inputFiles()
    assert read
    assert all("/city=sf/" in file for file in read)


AS_WRITTEN = (
    "SELECT to_char(date'2016-04-08', 'y') FROM spots WHERE id = 1",
    "SELECT length(listagg(n)), length(string_agg(n)) FROM spots WHERE id < 3",
    "SELECT percentile_cont(0.25) WITHIN GROUP (ORDER BY v) FROM spots",
    """SELECT to_json(parse_json('{"a": 1 }')) FROM spots WHERE id = 2""",
    "SELECT x FROM spots, VALUES 'a', 'b' AS tab(x) WHERE id = 1",
    "SELECT 'it''s' AS spots, \"from spots\" AS x /* FROM spots */ FROM spots -- from spots",
    "SELECT /*+ BROADCAST(spots) */ spots.id FROM spots JOIN (SELECT 3 AS id) q USING (id)",
    "SELECT current_catalog() FROM spots WHERE id = 2;",
)


def test_queries_go_to_spark_as_they_were_written(spark: SparkSession, spots: str) -> None:
    check(spark, AS_WRITTEN)


NAMES = (
    "SELECT default.spots.id FROM default.spots ORDER BY default.spots.id LIMIT 3",
    "SELECT default.spots.st.a, spots.id FROM spots WHERE default.spots.id = 4",
    "SELECT spark_catalog.default.spots.* FROM spark_catalog.default.spots WHERE id = 4",
    "SELECT `A b`.id FROM `spots` `A b` WHERE `A b`.`id` = 3",
    "SELECT a.id FROM spots a JOIN SPOTS ON a.id = spots.id + 398",
    "SELECT x.spots.a FROM (SELECT st AS spots FROM spots) x WHERE x.spots.a < 2",
    "WITH spots AS (SELECT 7 AS id) SELECT id FROM spots",
    "WITH a AS (SELECT count(*) c FROM spots), spots AS (SELECT 1 AS id) SELECT * FROM a, spots",
    "WITH a AS (WITH spots AS (SELECT 1 AS id) SELECT * FROM spots) "
    "SELECT a.id, count(*) FROM a, spots GROUP BY 1",
    "WITH RECURSIVE spots AS (SELECT 1 AS id UNION ALL SELECT id + 1 FROM spots WHERE id < 5) "
    "SELECT id FROM spots",
    "SELECT id FROM (spots) WHERE id = 5",
    "SELECT count(*) FROM spots GROUP BY ALL HAVING count(*) > (SELECT count(*) - 1 FROM spots)",
)


def test_names_mean_what_they_mean_to_spark(spark: SparkSession, spots: str) -> None:
    check(spark, NAMES)


def test_names_of_other_catalogs_are_for_spark(spark: SparkSession, spots: str) -> None:
    for name in ("other.default.spots", "spark_catalog.default.x.spots"):
        with pytest.raises(AnalysisException, match="single-part namespace"):
            hw.sql(spark, f"SELECT id FROM {name}")


def test_times_are_asked_for_among_comments_and_samples(
    spark: SparkSession, spots: str, tmp_path: Path
) -> None:
    first = hw.open_table(tmp_path / "spots").history()["completion_time"][-1].as_py()
    hw.sql(spark, "INSERT INTO spots VALUES (1000, 0.0, 'n', NULL, 'la')")
    for query, count in (
        (f"FROM spots TIMESTAMP /* FROM spots */ AS OF -- a time\n '{first}' WHERE id > 0", 399),
        (f"FROM spots FOR VERSION AS OF {first} TABLESAMPLE (3 ROWS) x WHERE x.id > -1", 3),
        (f"FROM spots VERSION AS OF '{first}' a RIGHT JOIN default.spots USING (id)", 401),
    ):
        assert hw.sql(spark, f"SELECT count(*) {query}").collect()[0][0] == count, query


def test_rows_are_written_of_queries_as_they_were_written(
    spark: SparkSession, spots: str, tmp_path: Path
) -> None:
    made = f"headwater.`{tmp_path}/made`"
    year = "to_char(date'2016-04-08', 'y')"
    hw.sql(
        spark,
        f"CREATE TABLE {made} USING headwater TBLPROPERTIES (primaryKey = 'id') "
        f"AS (SELECT id, {year} AS n FROM spots WHERE id = 0)",
    )
    hw.sql(spark, f"INSERT INTO {made} (n, id) SELECT {year}, id FROM spots WHERE id = 1")
    hw.sql(
        spark,
        f"MERGE INTO {made} AS t USING (SELECT a.id, {year} AS n FROM spots a JOIN spots b "
        "ON a.id = b.id WHERE a.id = 2) AS s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
    )
    hw.sql(
        spark,
        f"WITH few AS (SELECT * FROM spots WHERE id = 3) "
        f"INSERT INTO {made} SELECT id, {year} FROM few",
    )
    hw.sql(
        spark,
        f"WITH few AS (SELECT 4 AS id, {year} AS n) MERGE INTO {made} AS t USING few AS s "
        "ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
    )
    found = hw.sql(spark, f"SELECT id, n FROM {made} ORDER BY id").collect()
    assert [tuple(row) for row in found] == [(number, "2016") for number in range(5)]
