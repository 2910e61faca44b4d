"""Keys of a delete mean what those of an upsert do, whatever type they come in."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.tables import FAST

import headwater as hw
from headwater.config.files import FileConfig
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest, columns_of_rows
from headwater.table import Table

NOON = datetime(2020, 1, 1, 12)
MS, US = pa.timestamp("ms"), pa.timestamp("us")
MONEY = pa.decimal128(9, 2)

each_type = pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
each_index = pytest.mark.parametrize("index", ["bucket", "simple", "record_index"])
each_role = pytest.mark.parametrize("role", ["id", "part"])


def table_with(path: Path, role: str, kind: pa.DataType, value: Any, **changes: Any) -> Table:
    """Return a table of one record, of which a column has the type and value."""
    types = {"id": pa.int32(), "part": pa.int32(), "v": pa.int32(), role: kind}
    schema = pa.schema(list(types.items()))
    table = hw.create_table(
        path, schema=schema, record_key="id", partition_by="part", options=FAST, **changes
    )
    table.upsert(pa.Table.from_pylist([{"id": 1, "part": 1, "v": 1, role: value}], schema))
    return table


def keys_with(role: str, value: Any, kind: pa.DataType) -> pa.Table:
    return pa.table({"id": [1], "part": [1], role: pa.array([value], kind)})


@each_type
@each_index
@each_role
@pytest.mark.parametrize(
    ("stored", "value", "given", "key"),
    [
        (MS, NOON, MS, NOON),
        (MS, NOON, pa.timestamp("ns"), NOON),
        (MONEY, Decimal("1.50"), pa.decimal128(12, 2), Decimal("1.50")),
        (pa.int64(), 5, pa.float64(), 5.0),
        (pa.int32(), 5, pa.int64(), 5),
    ],
)
def test_a_delete_finds_what_an_upsert_would_update(
    tmp_path: Path,
    table_type: str,
    index: str,
    role: str,
    stored: pa.DataType,
    value: Any,
    given: pa.DataType,
    key: Any,
) -> None:
    table = table_with(tmp_path, role, stored, value, table_type=table_type, index=index)
    table.delete(keys_with(role, key, given))
    assert table.read_arrow().num_rows == 0


@each_role
@pytest.mark.parametrize(
    ("stored", "value", "given", "key"),
    [
        (MS, NOON, US, NOON.replace(microsecond=1)),
        (MONEY, Decimal("1.50"), pa.decimal128(3, 1), Decimal("1.5")),
        (MONEY, Decimal("1.00"), pa.int64(), 1),
        (pa.date32(), date(2020, 1, 1), US, datetime(2020, 1, 1)),
        (pa.int64(), 5, pa.float64(), 5.5),
        (pa.int64(), 5, pa.string(), "5"),
    ],
)
def test_a_delete_refuses_what_an_upsert_would(
    tmp_path: Path, role: str, stored: pa.DataType, value: Any, given: pa.DataType, key: Any
) -> None:
    table = table_with(tmp_path, role, stored, value)
    keys = keys_with(role, key, given)
    told = []
    for write in (table.delete, table.upsert):
        with pytest.raises(hw.InvalidInputError, match=f"Column {role}") as raised:
            write(keys)
        told.append(str(raised.value))
    assert told[0] == told[1]
    assert table.read_arrow().num_rows == 1


def test_other_columns_of_keys_to_delete_do_not_matter(tmp_path: Path) -> None:
    table = table_with(tmp_path, "id", MS, NOON)
    keys = keys_with("id", NOON, MS).append_column("V", [["other"]]).append_column("v", [["text"]])
    table.delete(keys)
    assert table.read_arrow().num_rows == 0
    with pytest.raises(hw.InvalidInputError, match="Column part is part of the key or partition"):
        table.delete(keys.drop_columns(["part"]))


def test_of_a_struct_with_a_key_no_other_field_is_needed(tmp_path: Path) -> None:
    stored = table_with(tmp_path, "id", MS, NOON).config
    config = replace(stored, record_key_fields=("place.x",), partition_fields=())
    place = pa.struct([("x", MS), pa.field("y", pa.int32(), nullable=False)])
    schema = pa.schema([("place", place), ("v", pa.int32())])
    given = pa.schema([("place", pa.struct([("x", US)]))])
    found = columns_of_rows(
        config,
        schema,
        WriteRequest(operation=Operation.DELETE, columns=given),
        FileConfig(),
    )
    assert found == pa.schema([("place", pa.struct([("x", MS)]))])
