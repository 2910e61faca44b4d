"""How many answers of a store operations wait for, one after the other, and how many they ask for.

No more than these, which the guide of object stores tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from weakref import WeakSet

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.round_trips import RoundTrips, counted_round_trips
from tests.support.tables import FENCED, LOCKED

import headwater as hw
from headwater.files import ahead
from headwater.kernel.journal import journal
from headwater.kernel.journal.pace import Pace
from headwater.kernel.txn import fenced
from headwater.seams.prefetched_storage import PrefetchedStorage


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
    path: Path, *, buckets: int | None, table_type: str = "MERGE_ON_READ", **options: str
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


INDEXES = ("column_stats", "bloom_filters", "record_index")


class Most(NamedTuple):
    """How many answers an operation waits for, and how many requests it makes, at most."""

    serial: int
    in_all: int


class Costs(NamedTuple):
    one_row: Most
    where_others_came: Most
    many_groups: Most
    read_with_logs: Most
    compaction: Most
    read: Most
    look_up: Most
    clean: Most
    rollback: Most


MODES = {
    "lock": (
        LOCKED,
        Costs(
            one_row=Most(13, 29),
            where_others_came=Most(18, 34),
            many_groups=Most(19, 218),
            read_with_logs=Most(10, 133),
            compaction=Most(39, 364),
            read=Most(7, 71),
            look_up=Most(6, 16),
            clean=Most(27, 149),
            rollback=Most(46, 120),
        ),
    ),
    "journal": (
        FENCED,
        Costs(
            one_row=Most(9, 22),
            where_others_came=Most(14, 31),
            many_groups=Most(15, 211),
            read_with_logs=Most(10, 133),
            compaction=Most(37, 359),
            read=Most(6, 69),
            look_up=Most(5, 16),
            clean=Most(26, 149),
            rollback=Most(41, 110),
        ),
    ),
}


def check(trips: RoundTrips, most: Most, call: Callable[[], object]) -> None:
    trips.reset()
    call()
    assert trips.serial <= most.serial, str(trips)
    assert len(trips.requests) <= most.in_all, str(trips)


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> tuple[dict[str, str], Costs]:
    return MODES[request.param]


def test_one_row(mode: tuple[dict[str, str], Costs], tmp_path: Path, trips: RoundTrips) -> None:
    options, most = mode
    table = create(tmp_path, buckets=1, **options)
    for value in range(3):
        table.upsert(rows(value, partitions=1, per_partition=1))
    one_row = rows(3, partitions=1, per_partition=1)
    check(trips, most.one_row, lambda: table.upsert(one_row))
    assert trips.under_lock <= 3, str(trips)
    check(trips, Most(3, 9), table.read_arrow)


def test_one_row_where_others_came(
    mode: tuple[dict[str, str], Costs],
    tmp_path: Path,
    trips: RoundTrips,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options, most = mode
    create(tmp_path, buckets=1, **options)
    opened = {
        "hoodie.write.lock.provider": "storage",
        "hoodie.write.concurrency.mode": "non_blocking_concurrency_control",
    }
    mine, other = (hw.open_table(tmp_path / "t", opened | options) for _ in range(2))
    for value in range(2):
        mine.upsert(rows(value, partitions=1, per_partition=1))
        other.upsert(rows(value, partitions=1, per_partition=1))
    one_row = rows(3, partitions=1, per_partition=1)
    # However fast this machine is: nothing is expected, and nothing was read just now.
    monkeypatch.setattr(Pace, "expected", 0)
    monkeypatch.setattr(journal.Journal, "_is_just_read", False)
    check(trips, most.where_others_came, lambda: mine.upsert(one_row))


def test_many_groups(mode: tuple[dict[str, str], Costs], tmp_path: Path, trips: RoundTrips) -> None:
    options, most = mode
    table = create(tmp_path, buckets=4, **options)
    table.upsert(rows(0, partitions=16, per_partition=40))
    many = rows(1, partitions=16, per_partition=40)
    check(trips, most.many_groups, lambda: table.upsert(many))
    check(trips, most.read_with_logs, table.read_arrow)
    check(trips, most.compaction, table.services.compact)
    check(trips, most.read, table.read_arrow)
    found = table.read_arrow(["id", "v"])
    assert set(found["v"].to_pylist()) == {1}
    assert found.num_rows == 640


REWRITTEN = {
    "buckets": (4, "BUCKET", [], Most(19, 275)),
    "buckets, three indexes": (4, "BUCKET", [*INDEXES], Most(30, 413)),
    "simple": (None, "SIMPLE", [], Most(11, 99)),
    "bloom of the whole table": (None, "GLOBAL_BLOOM", [], Most(11, 99)),
    "record index": (None, "RECORD_INDEX", [], Most(20, 143)),
}


@pytest.mark.parametrize(("buckets", "index", "indexes", "most"), REWRITTEN.values(), ids=REWRITTEN)
def test_many_base_files_are_written_anew_in_the_time_of_a_few(
    tmp_path: Path,
    trips: RoundTrips,
    buckets: int | None,
    index: str,
    indexes: list[str],
    most: Most,
) -> None:
    options = {"hoodie.index.type": index, **FENCED}
    table = create(tmp_path, buckets=buckets, table_type="COPY_ON_WRITE", **options)
    table.upsert(rows(0, partitions=16, per_partition=40))
    if indexes:
        table.indexes.create(indexes)
    table.upsert(rows(1, partitions=16, per_partition=40))
    check(trips, most, lambda: table.upsert(rows(2, partitions=16, per_partition=40)))
    assert set(table.read_arrow(["v"])["v"].to_pylist()) == {2}


def test_small_files_of_many_partitions_are_filled_up_in_the_time_of_one(
    tmp_path: Path, trips: RoundTrips
) -> None:
    options = {"hoodie.index.type": "SIMPLE", **FENCED}
    table = create(tmp_path, buckets=None, table_type="COPY_ON_WRITE", **options)
    for value in range(2):
        table.upsert(rows(value, partitions=16, per_partition=40))
    new = rows(2, partitions=16, per_partition=80)
    new = new.filter(pc.invert(pc.is_in(new["id"], value_set=table.read_arrow(["id"])["id"])))
    check(trips, Most(10, 83), lambda: table.insert(new))
    assert table.read_arrow(["id"]).num_rows == 16 * 80


@pytest.mark.parametrize(("buckets", "index"), [(2, "BUCKET"), (None, "SIMPLE")])
def test_what_was_fetched_for_a_file_is_not_held_when_it_is_written(
    tmp_path: Path,
    trips: RoundTrips,
    monkeypatch: pytest.MonkeyPatch,
    buckets: int | None,
    index: str,
) -> None:
    held: WeakSet[PrefetchedStorage] = WeakSet()
    most = 0

    class Watched(PrefetchedStorage):
        def _at_hand(self, path: str) -> bytes | None:
            nonlocal most
            held.add(self)
            most = max(most, len(held))
            return super()._at_hand(path)

    options = {"hoodie.index.type": index, **FENCED}
    table = create(tmp_path, buckets=buckets, table_type="COPY_ON_WRITE", **options)
    table.insert(rows(0, partitions=8, per_partition=40))
    monkeypatch.setattr(ahead, "PrefetchedStorage", Watched)
    monkeypatch.setattr(ahead, "AHEAD_BYTES_MAX", 1)  # Every file is a window of its own.
    table.upsert(rows(1, partitions=8, per_partition=80))
    assert table.read_arrow(["v"])["v"].to_pylist() == [1] * 640
    assert 1 <= most <= 2


def test_a_look_up_by_the_record_index(
    mode: tuple[dict[str, str], Costs], tmp_path: Path, trips: RoundTrips
) -> None:
    options, most = mode
    table = create(tmp_path, buckets=1, **options)
    for value in range(2):
        table.upsert(rows(value, partitions=4, per_partition=40))
    table.indexes.create(["record_index"])
    scan = table.scan(where="id = '1-3'")
    check(trips, most.look_up, scan.to_arrow)
    assert scan.to_arrow()["v"].to_pylist() == [1]


def test_clean_deletes_in_bulk(
    mode: tuple[dict[str, str], Costs], tmp_path: Path, trips: RoundTrips
) -> None:
    options, most = mode
    retained = {"hoodie.clean.commits.retained": "1"}
    table = create(tmp_path, buckets=4, table_type="COPY_ON_WRITE", **retained, **options)
    for value in range(15):  # After which the metadata table was just compacted.
        table.upsert(rows(value, partitions=2, per_partition=40))
    check(trips, most.clean, table.services.clean)
    deleted = [one for one in trips.requests if one.method == "delete_many"]
    assert sum(one.path.endswith(".parquet") for one in deleted) >= 90


def test_a_rollback_deletes_in_bulk(
    mode: tuple[dict[str, str], Costs], tmp_path: Path, trips: RoundTrips
) -> None:
    options, most = mode
    table = create(tmp_path, buckets=4, **options)
    table.upsert(rows(0, partitions=16, per_partition=40))
    last = table.upsert(rows(1, partitions=16, per_partition=40))
    check(trips, most.rollback, lambda: table.services.rollback(last.instant))
    assert set(table.read_arrow(["v"])["v"].to_pylist()) == {0}


@pytest.mark.parametrize(("is_deep", "most"), [(False, Most(34, 187)), (True, Most(46, 351))])
def test_a_check_looks_at_many_files_in_the_time_of_a_few(
    mode: tuple[dict[str, str], Costs], is_deep: bool, most: Most, tmp_path: Path, trips: RoundTrips
) -> None:
    options, _ = mode
    table = create(tmp_path, buckets=1, **options)
    for value in range(3):
        table.upsert(rows(value, partitions=32, per_partition=2))

    def check_table() -> None:
        assert table.inspect.problems(deep=is_deep).num_rows == 0

    check(trips, most, check_table)
