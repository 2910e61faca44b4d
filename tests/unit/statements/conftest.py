"""Tables that statements change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.table import Table

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("fare", pa.float64()),
        ("note", pa.string()),
        ("ts", pa.int64()),
    ]
)
Create = Callable[..., Table]


@pytest.fixture
def create(tmp_path: Path) -> Create:
    """Return a function that creates a table with five rows."""

    def create(**arguments: Any) -> Table:
        given = {
            "schema": SCHEMA,
            "record_key": "id",
            "partition_by": "city",
            "index": "bucket",
            **arguments,
        }
        table = hw.create_table(tmp_path / "t", **given)
        table.upsert(rows_of("a sf 1", "b sf 2", "c la 3", "d la 4", "e ny 5"))
        return table

    return create


def rows_of(*texts: str, ts: int = 1, note: str | None = "first") -> pa.Table:
    """Return rows of texts such as `a sf 1`: key, city and fare."""
    parts = [text.split() for text in texts]
    return pa.table(
        {
            "id": [part[0] for part in parts],
            "city": [part[1] for part in parts],
            "fare": [float(part[2]) for part in parts],
            "note": pa.array([note] * len(parts), pa.string()),
            "ts": [ts] * len(parts),
        }
    )


def fares_of(table: Table) -> dict[str, Any]:
    rows = table.read_arrow(["id", "fare"]).to_pylist()
    assert len(rows) == len({row["id"] for row in rows})
    return {row["id"]: row["fare"] for row in sorted(rows, key=lambda row: row["id"])}
