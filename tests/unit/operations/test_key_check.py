"""Rows without keys are refused before a write begins."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

import headwater as hw


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("index", ["bucket", "simple"])
@pytest.mark.parametrize("key", [None, ""])
def test_a_row_without_a_key_leaves_nothing_on_the_timeline(
    tmp_path: Path, table_type: str, index: str, key: str | None
) -> None:
    table = hw.create_table(
        tmp_path, schema="id string, n long", record_key="id", table_type=table_type, index=index
    )
    table.upsert(pa.table({"id": ["a"], "n": [1]}))
    before = table.inspect.timeline()
    broken = pa.table({"id": ["b", key], "n": [2, 3]})
    for write in (table.upsert, table.insert, table.bulk_insert, table.delete):
        with pytest.raises(hw.InvalidInputError, match="null or empty"):
            write(broken)
    assert table.inspect.timeline() == before
    assert table.read_arrow()["id"].to_pylist() == ["a"]


def test_a_part_of_a_key_may_be_null(tmp_path: Path) -> None:
    table = hw.create_table(tmp_path, schema="id string, n long", record_key=["id", "n"])
    table.upsert(pa.table({"id": ["a", None], "n": [None, 1]}))
    with pytest.raises(hw.InvalidInputError, match="all null or empty"):
        table.upsert(pa.table({"id": ["a", None], "n": pa.array([1, None], pa.int64())}))
    assert table.read_arrow().num_rows == 2


def test_a_part_of_a_key_may_be_missing_in_pandas(tmp_path: Path) -> None:
    table = hw.create_table(tmp_path, schema="id string, n long", record_key=["id", "n"])
    frame = pd.DataFrame({"id": ["a", "b"], "n": [1, None]})
    table.upsert(frame)
    table.upsert(frame)
    assert table.read_arrow()["n"].to_pylist() == [1, None]
    table.delete(frame)
    assert table.read_arrow().num_rows == 0


def test_a_table_that_makes_its_keys_takes_any_row(tmp_path: Path) -> None:
    table = hw.create_table(tmp_path, schema="id string, n long")
    table.insert(pa.table({"id": ["a", None], "n": [1, 2]}))
    assert table.read_arrow().num_rows == 2
