"""The jobs of the guide for people who come from Hudi: Hudi's rows, and ours after one word.

And MERGE, UPDATE and DELETE on the same input, with indexes and without.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.support.from_hudi import answers_of, hudi_script, job_blocks
from tests.support.hudi_peer import HudiPeer

import headwater as hw

# PySpark leaves the sockets it collects results through to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    yield session
    session.stop()


def test_every_job_gives_the_rows_that_hudi_gives(
    hudi: HudiPeer, spark: SparkSession, tmp_path: Path
) -> None:
    blocks = job_blocks()
    theirs = hudi.run(hudi_script(blocks), path=str(tmp_path / "theirs"))
    ours = answers_of(blocks, spark, str(tmp_path / "ours"))
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=True), start=1):
        assert mine == other, f"job {number} of docs/guide/from-hudi.md"


# Of clauses that match the same row the first one counts for us, as SQL has it; for Hudi an update
# goes before a delete. So here no two match.
STATEMENTS = (
    "INSERT INTO {t} SELECT id, id * 1.5D, 1L, concat('c', id % 3) FROM range(40)",
    "UPDATE {t} SET fare = fare + 100, ts = ts + 1 WHERE id % 5 = 0 AND city <> 'c1'",
    "DELETE FROM {t} WHERE id BETWEEN 7 AND 12 OR fare > 140",
    """
    MERGE INTO {t} AS t USING (
        SELECT id, concat('c', id % 3) AS city, id * 10.0D AS fare, 5L AS ts
        FROM range(30, 50)
    ) AS s ON t.id = s.id AND t.city = s.city
    WHEN MATCHED AND s.id % 4 = 0 THEN DELETE
    WHEN MATCHED AND s.id % 4 <> 0 THEN UPDATE SET fare = s.fare, ts = s.ts
    WHEN NOT MATCHED AND s.id < 48 THEN INSERT *
    """,
    "DELETE FROM {t} WHERE id = 31",
)
INDEXES = {"none": "", "record_index": "CREATE INDEX record_index ON {t} (id)"}


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_statements_change_the_rows_that_hudi_changes(
    hudi: HudiPeer, spark: SparkSession, tmp_path: Path, table_type: str, index: str
) -> None:
    create = """
    CREATE TABLE {t} (id BIGINT, city STRING, fare DOUBLE, ts BIGINT) USING hudi
    PARTITIONED BY (city) LOCATION '{at}'
    TBLPROPERTIES (type = '{kind}', primaryKey = 'id', preCombineField = 'ts')
    """
    name = f"rides_{table_type}_{index}"
    options = {"hoodie.write.lock.provider": "in_process"}
    insert, *changes = STATEMENTS
    script = [insert, *filter(None, [INDEXES[index]]), *changes]
    theirs: list[Any] = []
    ours: list[Any] = []
    shown = f"SELECT id, city, fare, ts FROM {name}"
    # Hudi builds no index without a lock.
    lock = "org.apache.hudi.client.transaction.lock.InProcessLockProvider"
    hudi.execute(f"SET hoodie.write.lock.provider={lock}")
    hudi.execute(create.format(t=name, at=tmp_path / "theirs", kind=table_type))
    hw.sql(spark, create.format(t=name, at=tmp_path / "ours", kind=table_type))
    for statement in script:
        hudi.execute(statement.format(t=name))
        theirs.append(sorted(tuple(row.values()) for row in hudi.sql(shown).to_pylist()))
        hw.sql(spark, statement.format(t=name), options=options)
        ours.append(sorted(tuple(row) for row in hw.sql(spark, shown).collect()))
        assert ours[-1] == theirs[-1], statement
    hw.sql(spark, f"DROP TABLE {name}")
    hudi.execute(f"DROP TABLE {name}")
