"""How many answers of a store operations wait for, one after the other: no more than these."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from tests.support.round_trips import RoundTrips, counted_round_trips
from tests.support.tables import FENCED, LOCKED

import headwater as hw
from headwater.kernel.journal import journal
from headwater.kernel.txn import fenced


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> Iterator[RoundTrips]:
    for module in (journal, fenced):  # However slow this machine is.
        monkeypatch.setattr(module, "LISTED_LATELY_MS", 10**9)
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


class Most(NamedTuple):
    """How many answers each of them waits for, at most."""

    one_row: int
    many_groups: int
    read_with_logs: int
    compaction: int
    read: int
    look_up: int
    clean: int


MODES = {
    "lock": (LOCKED, Most(13, 19, 10, 39, 7, 6, 27)),
    "journal": (FENCED, Most(9, 15, 10, 37, 6, 5, 26)),
}


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> tuple[dict[str, str], Most]:
    return MODES[request.param]


def test_one_row(mode: tuple[dict[str, str], Most], tmp_path: Path, trips: RoundTrips) -> None:
    options, most = mode
    table = create(tmp_path, buckets=1, **options)
    for value in range(3):
        table.upsert(rows(value, partitions=1, per_partition=1))
    one_row = rows(3, partitions=1, per_partition=1)
    assert serial(trips, lambda: table.upsert(one_row)) <= most.one_row, str(trips)
    assert trips.under_lock <= 3, str(trips)
    assert serial(trips, table.read_arrow) <= 3, str(trips)


def test_many_groups(mode: tuple[dict[str, str], Most], tmp_path: Path, trips: RoundTrips) -> None:
    options, most = mode
    table = create(tmp_path, buckets=4, **options)
    table.upsert(rows(0, partitions=16, per_partition=40))
    many = rows(1, partitions=16, per_partition=40)
    assert serial(trips, lambda: table.upsert(many)) <= most.many_groups, str(trips)
    assert serial(trips, table.read_arrow) <= most.read_with_logs, str(trips)
    assert serial(trips, table.services.compact) <= most.compaction, str(trips)
    assert serial(trips, table.read_arrow) <= most.read, str(trips)
    found = table.read_arrow(["id", "v"])
    assert set(found["v"].to_pylist()) == {1}
    assert found.num_rows == 640


def test_a_look_up_by_the_record_index(
    mode: tuple[dict[str, str], Most], tmp_path: Path, trips: RoundTrips
) -> None:
    options, most = mode
    table = create(tmp_path, buckets=1, **options)
    for value in range(2):
        table.upsert(rows(value, partitions=4, per_partition=40))
    table.indexes.create(["record_index"])
    scan = table.scan(where="id = '1-3'")
    assert serial(trips, scan.to_arrow) <= most.look_up, str(trips)
    assert scan.to_arrow()["v"].to_pylist() == [1]


def test_clean_deletes_in_bulk(
    mode: tuple[dict[str, str], Most], tmp_path: Path, trips: RoundTrips
) -> None:
    options, most = mode
    retained = {"hoodie.clean.commits.retained": "1"}
    table = create(tmp_path, buckets=4, table_type="COPY_ON_WRITE", **retained, **options)
    for value in range(15):  # After which the metadata table was just compacted.
        table.upsert(rows(value, partitions=2, per_partition=40))
    assert serial(trips, table.services.clean) <= most.clean, str(trips)
    deleted = [one for one in trips.requests if one.method == "delete_many"]
    assert sum(one.path.endswith(".parquet") for one in deleted) >= 90
