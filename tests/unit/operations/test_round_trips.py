"""How many answers of a store operations wait for, one after the other: no more than these."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.round_trips import RoundTrips, counted_round_trips

import headwater as hw


@pytest.fixture
def trips() -> Iterator[RoundTrips]:
    with counted_round_trips() as counted:
        yield counted


def rows(value: int, *, partitions: int, per_partition: int) -> pa.Table:
    ids = [f"{p}-{n}" for p in range(partitions) for n in range(per_partition)]
    return pa.table(
        {
            "id": ids,
            "city": [one.partition("-")[0] for one in ids],
            "v": pa.array([value] * len(ids), pa.int64()),
            "ts": pa.array([value] * len(ids), pa.int64()),
        }
    )


def create(
    path: Path, *, buckets: int, table_type: str = "MERGE_ON_READ", **options: str
) -> hw.Table:
    return hw.create_table(
        path / "t",
        schema="id string, city string, v long, ts long",
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type=table_type,
        buckets=buckets,
        options={"hoodie.write.lock.provider": "storage", **options},
    )


def serial(trips: RoundTrips, call: Callable[[], object]) -> int:
    trips.reset()
    call()
    return trips.serial


FENCED = {"headwater.timeline.fenced": "true"}


@pytest.mark.parametrize(("options", "most"), [({}, 13), (FENCED, 9)], ids=["lock", "fenced"])
def test_one_row(options: dict[str, str], most: int, tmp_path: Path, trips: RoundTrips) -> None:
    table = create(tmp_path, buckets=1, **options)
    for value in range(3):
        table.upsert(rows(value, partitions=1, per_partition=1))
    one_row = rows(3, partitions=1, per_partition=1)
    assert serial(trips, lambda: table.upsert(one_row)) <= most, str(trips)
    assert trips.under_lock <= 3, str(trips)
    assert serial(trips, table.read_arrow) <= 3, str(trips)


def test_many_groups(tmp_path: Path, trips: RoundTrips) -> None:
    table = create(tmp_path, buckets=4)
    table.upsert(rows(0, partitions=16, per_partition=40))
    many = rows(1, partitions=16, per_partition=40)
    assert serial(trips, lambda: table.upsert(many)) <= 20, str(trips)
    assert serial(trips, table.read_arrow) <= 11, str(trips)
    assert serial(trips, table.services.compact) <= 39, str(trips)
    assert serial(trips, table.read_arrow) <= 8, str(trips)
    found = table.read_arrow(["id", "v"])
    assert set(found["v"].to_pylist()) == {1}
    assert found.num_rows == 640


def test_a_look_up_by_the_record_index(tmp_path: Path, trips: RoundTrips) -> None:
    table = create(tmp_path, buckets=1)
    for value in range(2):
        table.upsert(rows(value, partitions=4, per_partition=40))
    table.indexes.create(["record_index"])
    scan = table.scan(where="id = '1-3'")
    assert serial(trips, scan.to_arrow) <= 7, str(trips)
    assert scan.to_arrow()["v"].to_pylist() == [1]


def test_clean_deletes_in_bulk(tmp_path: Path, trips: RoundTrips) -> None:
    options = {"hoodie.clean.commits.retained": "1"}
    table = create(tmp_path, buckets=4, table_type="COPY_ON_WRITE", **options)
    for value in range(15):  # After which the metadata table was just compacted.
        table.upsert(rows(value, partitions=2, per_partition=40))
    assert serial(trips, table.services.clean) <= 28, str(trips)
    deleted = [one for one in trips.requests if one.method == "delete_many"]
    assert sum(one.path.endswith(".parquet") for one in deleted) >= 90
