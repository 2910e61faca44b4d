"""Reads and writes over Spark Connect, where no JVM is within reach."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headwater as hw
from headwater.errors import InvalidInputError
from headwater.spark.session import gateway_of

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.int32()), ("city", pa.string())])


def rows(ids: range, city: str) -> pa.Table:
    count = len(ids)
    return pa.table({"id": list(ids), "part": [1] * count, "city": [city] * count}, SCHEMA)


def by_id(found: pa.Table) -> list[dict[str, Any]]:
    return sorted(found.to_pylist(), key=lambda row: str(row["id"]))


@pytest.mark.parametrize("key", [["id"], ["id", "part"]], ids=["native-route", "python-route"])
@pytest.mark.some(1)
def test_a_table_is_written_and_read(connect: SparkSession, tmp_path: Path, key: list[str]) -> None:
    assert gateway_of(connect) is None
    table = hw.create_table(
        tmp_path / "t",
        schema=SCHEMA,
        record_key=key,
        partition_by="city",
        table_type="MERGE_ON_READ",
    )
    table.bulk_insert(connect.createDataFrame(rows(range(20), "ams")))
    table.upsert(connect.createDataFrame(rows(range(10, 30), "ams")))
    table.insert(connect.createDataFrame(rows(range(30, 40), "ber")))
    table.delete(connect.createDataFrame(rows(range(5), "ams")))
    expected = by_id(pa.concat_tables([rows(range(5, 30), "ams"), rows(range(30, 40), "ber")]))
    assert by_id(table.read_arrow()) == expected
    assert by_id(table.read(spark=connect).toArrow()) == expected
    found = table.read(["id"], "city = 'ber' and id % 2 = 0", spark=connect).toArrow()
    assert [row["id"] for row in by_id(found)] == [30, 32, 34, 36, 38]


def test_errors_keep_their_class(connect: SparkSession, tmp_path: Path) -> None:
    table = hw.create_table(tmp_path / "t", schema=SCHEMA, record_key="id")
    with pytest.raises(InvalidInputError, match="record key, but it is null"):
        table.upsert(connect.sql("select cast(null as bigint) as id, 1 as part, 'x' as city"))
