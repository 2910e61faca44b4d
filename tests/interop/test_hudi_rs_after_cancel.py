"""hudi-rs on tables with cancelled and aborted plans: the same rows as ours, at every step."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import headwater as hw
from headwater.table import Table

hudi = pytest.importorskip("hudi", reason="hudi-rs is not installed")

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("value", pa.int64())])


def rows(ids: str, value: int) -> pa.Table:
    return pa.table({"id": list(ids), "value": [value] * len(ids)}, schema=SCHEMA)


def theirs(table: Table) -> list[tuple[str, int]]:
    batches = hudi.HudiTableBuilder.from_base_uri(table.uri).build().read(None)
    found = pa.Table.from_batches(batches).select(["id", "value"]).to_pylist()
    return sorted((row["id"], row["value"]) for row in found)


def test_cancelled_and_aborted_plans_change_nothing_for_a_stock_reader(tmp_path: Path) -> None:
    table = hw.create_table(
        tmp_path / "trips",
        schema=SCHEMA,
        record_key="id",
        index="simple",
        options={
            "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
            "hoodie.write.lock.provider": "in_process",
        },
    )
    table.bulk_insert(rows("ab", 1))
    table.bulk_insert(rows("cd", 1))
    plan = table.services.schedule_clustering(cancellable=True)
    assert plan is not None
    table.upsert(rows("a", 2))
    expected = [("a", 2), ("b", 1), ("c", 1), ("d", 1)]
    assert table.inspect.cancels()["is_waiting"].to_pylist() == [True]
    assert theirs(table) == expected, "cancelled"
    table.services.execute_abort(plan)
    assert theirs(table) == expected, "aborted"
    table.upsert(rows("d", 3))
    assert theirs(table) == [("a", 2), ("b", 1), ("c", 1), ("d", 3)], "and written to since"
