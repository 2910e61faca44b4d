"""Tables on real servers: every operation and service, read back each time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.stores.conftest import Store

import headwater as hw

ODD = ["a b", "50%", "a=b", "ü", "a+b", "q?x#y"]


def rows(ids: list[str], value: int, ts: int) -> pa.Table:
    return pa.table(
        {
            "id": ids,
            "city": [ODD[int(one[1:]) % len(ODD)] for one in ids],
            "v": pa.array([value] * len(ids), pa.int64()),
            "ts": pa.array([ts] * len(ids), pa.int64()),
        }
    )


def create(uri: str, store: Store, table_type: str, **options: str) -> hw.Table:
    return hw.create_table(
        uri,
        schema="id string, city string, v long, ts long",
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type=table_type,
        buckets=2,
        options={
            **store.options,
            "hoodie.datasource.write.partitionpath.urlencode": "true",
            "hoodie.clean.commits.retained": "1",
            "hoodie.keep.min.commits": "4",
            "hoodie.keep.max.commits": "5",
            **options,
        },
    )


def stored(table: hw.Table, **how: Any) -> dict[str, int]:
    found = table.read_arrow(**how)
    return dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_operations_and_services(table_uri: str, store: Store, table_type: str) -> None:
    table = create(table_uri, store, table_type)
    ids = [f"k{n}" for n in range(24)]
    table.upsert(rows(ids, 1, 1))
    expected = dict.fromkeys(ids, 1)
    table.upsert(rows(ids[:12], 2, 2))
    expected |= dict.fromkeys(ids[:12], 2)
    table.delete(rows(ids[20:], 0, 3).select(["id", "city"]))
    for gone in ids[20:]:
        del expected[gone]
    assert stored(table) == expected
    if table_type == "MERGE_ON_READ":
        table.services.compact()
        assert stored(table) == expected
    table.services.schedule_clustering()
    table.services.cluster()
    assert stored(table) == expected
    last = max(row["requested_time"] for row in table.inspect.timeline().to_pylist())
    table.services.savepoint(last)
    for ts in range(4, 9):
        table.upsert(rows(ids[:3], ts, ts))
    assert stored(table) == expected | dict.fromkeys(ids[:3], 8)
    table.services.restore(last)
    assert stored(hw.open_table(table_uri, store.options)) == expected
    table.services.clean()
    table.services.archive()
    assert stored(table) == expected


def test_indexes_and_look_ups(table_uri: str, store: Store) -> None:
    table = create(table_uri, store, "MERGE_ON_READ")
    ids = [f"k{n}" for n in range(12)]
    table.upsert(rows(ids, 1, 1))
    table.indexes.create(["column_stats", "record_index"])
    table.upsert(rows(ids[:2], 5, 2))
    assert stored(table, where="id = 'k1'") == {"k1": 5}
    assert stored(table, where="v > 4") == {"k0": 5, "k1": 5}
    assert table.inspect.validate_metadata().num_rows == 0


def test_two_writers_at_once(table_uri: str, store: Store) -> None:
    # On an object store the lock need not be named.
    options = {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}
    create(table_uri, store, "MERGE_ON_READ", **options)
    writers = [hw.open_table(table_uri, {**store.options, **options}) for _ in range(2)]
    for ts, writer in enumerate(writers * 2, start=1):
        writer.upsert(rows([f"k{ts}"], ts, ts))
    assert stored(writers[0]) == {"k1": 1, "k2": 2, "k3": 3, "k4": 4}
