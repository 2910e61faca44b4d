"""What sqlglot cannot parse is for Spark, unless it is about tables of ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import headwater as hw
from headwater.errors import InvalidInputError

FOR_SPARK = (
    ("DESCRIBE QUERY SELECT 1 a", ("a", "int", None)),
    ("SELECT 4 >>> 1", (2,)),
    ("SELECT bitmap_count(X '1010')", (2,)),
    ("SELECT 'plots' || (4 >>> n) FROM numbers", ("plots2",)),
)
REFUSED = (
    "SELECT id >>> 1 FROM plots",
    "SELECT id >>> 1 FROM spark_catalog.default.`Plots`",
    "DESCRIBE plots id",
    "SELECT id >>> 1 FROM headwater.`{path}`",
    "SELECT id >>> 1 FROM hudi_table_changes('plots', 'latest_state', '0')",
    "CREATE TABLE other USING hudi LOCATION '{path}' AS SELECT 4 >>> 1",
    "SELECT 4 >>> FROM (",
    "SELECT 4 >>> 1; SELECT 2",
)


def test_statements_that_spark_alone_can_parse(spark: SparkSession, tmp_path: Path) -> None:
    hw.sql(spark, f"CREATE TABLE plots (id INT) USING headwater LOCATION '{tmp_path}/plots'")
    spark.sql("CREATE TEMPORARY VIEW numbers AS SELECT 1 AS n")
    try:
        for statement, row in FOR_SPARK:
            assert tuple(hw.sql(spark, statement).collect()[0]) == row
        with pytest.raises(AnalysisException, match="nowhere"):
            hw.sql(spark, "SELECT 4 >>> 1 FROM nowhere")
        for statement in REFUSED:
            with pytest.raises(InvalidInputError, match="cannot be parsed"):
                hw.sql(spark, statement.format(path=tmp_path / "plots"))
    finally:
        spark.catalog.dropTempView("numbers")
        hw.sql(spark, "DROP TABLE plots")
