"""One table through its first changes: write, update, delete, look back, and see what changed."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa

import headwater as hw


def show(title: str, rows: pa.Table) -> None:
    print(f"\n{title}")
    for row in rows.to_pylist():
        print("  " + "  ".join(f"{name}={value}" for name, value in row.items()))


def main() -> None:
    path = Path(tempfile.mkdtemp(prefix="headwater-demo-")) / "trips"
    table = hw.create_table(
        path,
        schema="id string, city string, fare double, ts long",
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type="MERGE_ON_READ",
    )
    print(f"table {table.name} at {table.uri}")
    first = table.upsert(
        pa.table(
            {
                "id": ["a", "b", "c"],
                "city": ["sf", "sf", "la"],
                "fare": [7.5, 9.0, 12.0],
                "ts": [1, 1, 1],
            }
        )
    )
    table.upsert(pa.table({"id": ["a"], "city": ["sf"], "fare": [8.0], "ts": [2]}))
    late = pa.table({"id": ["a"], "city": ["sf"], "fare": [1.0], "ts": [0]})
    table.upsert(late)
    table.delete(pa.table({"id": ["b"], "city": ["sf"]}))

    show("now: a has its newest fare by ts, b is deleted", table.read_arrow().sort_by("id"))
    show(
        f"as of {first.completion_time}: the first commit",
        table.read_arrow(as_of=first.completion_time).sort_by("id"),
    )
    show(
        "changes since, with what was there before",
        table.changes_arrow(after=first.completion_time, cdc=True),
    )
    show("the timeline", table.inspect.timeline())
    left = {row["id"]: row["fare"] for row in table.read_arrow().to_pylist()}
    if left != {"a": 8.0, "c": 12.0}:
        raise SystemExit(f"the table holds {left}")


if __name__ == "__main__":
    main()
