"""Tables of version 6 through the doors of Spark: read as on Arrow, and not written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.support.tables import MOR, a_table
from tests.support.version_six import make_version_six

import headwater as hw
from headwater.errors import ErrorKind, UnsupportedError


def rows(found: DataFrame, columns: list[str]) -> list[dict[str, Any]]:
    return sorted(found.select(*columns).toArrow().to_pylist(), key=str)


@pytest.mark.usefixtures("tables_with_a_lock")
def test_it_is_read_and_not_written(spark: SparkSession, tmp_path: Path) -> None:
    a_table(tmp_path, table_type=MOR).with_commits(3).create()
    make_version_six(tmp_path / "trips")
    table = hw.open_table(tmp_path / "trips")
    columns = table.schema.names
    expected = sorted(table.read_arrow().select(columns).to_pylist(), key=str)
    assert expected
    assert rows(table.read(spark=spark), columns) == expected
    hw.register(spark)
    loaded = spark.read.format("headwater").load(table.uri)
    assert rows(loaded, columns) == expected
    with pytest.raises(UnsupportedError, match="headwater table upgrade") as refused:
        table.upsert(loaded)
    assert refused.value.kind is ErrorKind.UNSUPPORTED_TABLE_VERSION
    assert sorted(table.read_arrow().select(columns).to_pylist(), key=str) == expected
