"""Rows whose keys or partitions are put down as the same text never become one record."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import InvalidInputError

FAST = {"headwater.storage.fsync": "false"}


@pytest.mark.parametrize("index", ["bucket", "simple", "record_index"])
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_keys_that_would_be_one_are_refused(tmp_path: Path, index: str, table_type: str) -> None:
    table = hw.create_table(
        tmp_path / "t",
        schema="a string, b string",
        record_key=["a", "b"],
        index=index,
        table_type=table_type,
        options=FAST,
    )
    table.upsert(pa.table({"a": ["1"], "b": ["2,b:3"]}))
    twin = pa.table({"a": ["1,b:2"], "b": ["3"]})
    for write in (table.upsert, table.insert, table.delete):
        with pytest.raises(InvalidInputError, match=r"row 0 \(a='1,b:2', b='3'\)"):
            write(twin)
    assert table.read_arrow().to_pylist() == [{"a": "1", "b": "2,b:3"}]


def test_the_placeholder_of_a_partition_is_refused(tmp_path: Path) -> None:
    table = hw.create_table(
        tmp_path / "t",
        schema="id string, p string",
        record_key="id",
        partition_by="p",
        options=FAST,
    )
    with pytest.raises(InvalidInputError, match=r"Column p .*stands for null"):
        table.upsert(pa.table({"id": ["1"], "p": ["__HIVE_DEFAULT_PARTITION__"]}))
    assert table.read_arrow().num_rows == 0
