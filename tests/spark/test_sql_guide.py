"""Every statement of the SQL guide runs, in its order."""

from __future__ import annotations

import re
from pathlib import Path

from pyspark.sql import SparkSession

import headwater as hw

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "sql.md"
BLOCK = re.compile(r"^```sql\n(.*?)^```", re.MULTILINE | re.DOTALL)
LOCK = {"hoodie.write.lock.provider": "in_process"}


def test_the_statements_of_the_guide_run(spark: SparkSession, tmp_path: Path) -> None:
    text = "\n".join(BLOCK.findall(GUIDE.read_text())).replace("/tables/", f"{tmp_path}/")
    try:
        for statement in filter(None, (part.strip() for part in text.split(";"))):
            hw.sql(spark, statement, options=LOCK).collect()
        found = hw.sql(spark, "SELECT id, fare FROM trips ORDER BY id").collect()
    finally:
        for name in ("trips", "cheap"):
            hw.sql(spark, f"DROP TABLE IF EXISTS {name}")
    assert [tuple(row) for row in found] == [(1, 20.0), (4, 99.0)]
