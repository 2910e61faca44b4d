"""A write never changes the numbers that a table has, nor those it brings."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import InvalidInputError
from headwater.table import Table

FAST = {"headwater.storage.fsync": "false"}
LOSSY = {**FAST, "headwater.schema.allow.lossy.widening": "true"}
LARGE = 2**53 + 1

each_type = pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])


def accounts(path: Path, table_type: str, options: dict[str, str], column: str = "long") -> Table:
    return hw.create_table(
        path / "t",
        schema=f"id string, account {column}",
        record_key="id",
        table_type=table_type,
        options=options,
    )


def values_of(table: Table) -> list[object]:
    return list(table.read_arrow().sort_by("id")["account"].to_pylist())


@each_type
def test_integers_that_pandas_has_as_floats_stay_integers(tmp_path: Path, table_type: str) -> None:
    table = accounts(tmp_path, table_type, FAST)
    table.upsert(pa.table({"id": ["a"], "account": [LARGE]}))
    table.upsert(pd.DataFrame({"id": ["b", "c"], "account": [5, None]}))
    table.upsert(pd.DataFrame({"id": ["d"], "account": [7.0]}), partial=True)
    assert values_of(table) == [LARGE, 5, None, 7]
    assert table.read_arrow().schema.field("account").type == pa.int64()


@each_type
def test_a_number_that_would_change_is_refused(tmp_path: Path, table_type: str) -> None:
    table = accounts(tmp_path, table_type, FAST)
    table.upsert(pa.table({"id": ["a"], "account": [LARGE]}))
    with pytest.raises(
        InvalidInputError, match=r"Column account is int64 .* but double .* the value 1\.5"
    ):
        table.upsert(pa.table({"id": ["b"], "account": [1.5]}))
    assert values_of(table) == [LARGE]
    other = accounts(tmp_path / "other", table_type, FAST, "double")
    with pytest.raises(InvalidInputError, match=f"but int64 in the rows, .* the value {LARGE}"):
        other.upsert(pa.table({"id": ["b"], "account": [LARGE]}))
    other.upsert(pa.table({"id": ["b"], "account": pa.array([3], pa.int32())}))
    assert values_of(other) == [3.0]


@each_type
def test_who_asks_for_it_gets_a_column_of_doubles(tmp_path: Path, table_type: str) -> None:
    table = accounts(tmp_path, table_type, LOSSY)
    table.upsert(pa.table({"id": ["a"], "account": [LARGE]}))
    table.upsert(pa.table({"id": ["b"], "account": [1.5]}))
    table.upsert(pa.table({"id": ["c"], "account": [LARGE]}))
    assert values_of(table) == [float(LARGE), 1.5, float(LARGE)]
