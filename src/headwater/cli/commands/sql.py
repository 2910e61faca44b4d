"""`headwater sql`: one statement, on local Spark."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli.arguments import OutputFormat, TableOptions, parse_options
from headwater.cli.output import Format, output_of
from headwater.cli.progress import shown_while


def sql(
    statement: Annotated[
        str, typer.Argument(help="For example: SELECT * FROM headwater.`/tables/trips` LIMIT 5")
    ],
    options: TableOptions = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Run one SQL statement on local Spark; tables are named by their paths."""
    given = parse_options(options)
    from pyspark.sql import SparkSession

    from headwater.spark_sql.run import sql as run_sql

    with shown_while("running"):
        spark = (
            SparkSession.builder.appName("headwater sql")
            .config("spark.ui.enabled", "false")
            .config("spark.log.level", "ERROR")
            .getOrCreate()
        )
        rows = run_sql(spark, statement, options=given).toArrow()
    output_of(output).show_rows(rows, nothing="Done.")
