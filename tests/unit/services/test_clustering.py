"""Clustering: what is put together, in which order, and that no reader notices."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.answers import answers_of
from tests.support.tables import a_table, columns, rows_of

import headwater as hw
from headwater.config.clustering import ClusteringConfig, RowOrder
from headwater.errors import ConflictError, ErrorKind, InvalidInputError
from headwater.metadata.view import load_view
from headwater.model.commit_metadata import ReplaceCommitMetadata
from headwater.model.files import BaseFile, FileGroupId, FileSlice, LogFile
from headwater.model.instant import InstantTime
from headwater.model.plan_flags import PlanFlags
from headwater.operations.write import RunningWrite
from headwater.services.clustering.plan import order_text, plan_clustering
from headwater.table import Table

SCHEMA = columns("id string not null, city string, ts long, value long, _hoodie_is_deleted boolean")
COPIED = {"headwater.clustering.copy.row.group.rows": "1"}
DECODED = {"headwater.clustering.copy.row.group.rows": "1000000"}


rows = rows_of(SCHEMA, _hoodie_is_deleted=False)


@pytest.fixture
def new_table(tmp_path: Path) -> Callable[..., Table]:
    def make(index: str = "simple", **arguments: Any) -> Table:
        if index == "bucket":
            arguments["buckets"] = 2
        options = {
            "hoodie.parquet.small.file.limit": "0",  # Each insert makes a file of its own.
            **arguments.pop("options", {}),
        }
        shape = a_table(tmp_path, SCHEMA, ordering="ts", index=index, partition_by="city")
        return shape.having(**arguments).with_options(options).create()

    return make


def fill(table: Table) -> list[str]:
    """Make six files of 60 rows, and update some of them; return the completion times."""
    source = random.Random(7)
    commits = [
        table.insert(
            rows(
                *(
                    (f"k{number}-{n}", "sf" if n % 2 else "ny", n, source.randrange(100))
                    for n in range(20)
                )
            )
        )
        for number in range(3)
    ]
    commits.append(
        table.upsert(rows(*((f"k1-{n}", "sf" if n % 2 else "ny", 50 + n, n) for n in range(6))))
    )
    return [commit.completion_time for commit in commits]


def slices_of(table: Table) -> list[FileSlice]:
    return load_view(table.storage, table.config).slices()


# The plan.


def at(number: int) -> InstantTime:
    return InstantTime(f"{number:017d}")


def a_slice(
    name: str, size: int, *, time: int = 1, logs: int = 0, partition: str = "p"
) -> FileSlice:
    group = FileGroupId(partition, name)
    base = BaseFile(*group, "0-1-0", at(time), "parquet", size)
    files = tuple(LogFile(*group, at(time + n + 1), 1, "0-1-0") for n in range(logs))
    return FileSlice(group, at(time), base, files)


def planned(
    *slices: FileSlice,
    closed: set[FileGroupId] | None = None,
    sorted_by: dict[InstantTime, str] | None = None,
    is_bucketed: bool = False,
    **config: Any,
) -> list[tuple[list[str], int]]:
    """Return the file ids of each group of a plan, and how many files they become."""
    sizes = {"file_bytes": 100, "small_file_limit": 90, "group_bytes_max": 200}
    request = plan_clustering(
        slices,
        closed=closed or set(),
        config=ClusteringConfig(**{**sizes, **config}),
        sorted_by=sorted_by or {},
        is_bucketed=is_bucketed,
        base_uri="file:/trips",
        flags=PlanFlags(),
    )
    if request is None:
        return []
    assert request.clustering_plan is not None
    return [
        ([one.file_id or "" for one in group.slices or ()], group.num_output_file_groups or 0)
        for group in request.clustering_plan.input_groups or ()
    ]


def test_small_files_of_a_partition_are_put_together_up_to_a_size() -> None:
    slices = [a_slice(name, 60, time=n) for n, name in enumerate("abcde", 1)]
    assert planned(*slices) == [(["a", "b", "c"], 2)]  # The other two would become two again.
    assert planned(*slices, group_bytes_max=1_000) == [(["a", "b", "c", "d", "e"], 3)]
    apart = [a_slice("a", 10), a_slice("b", 10, partition="q")]
    assert planned(*apart) == []


def test_files_that_would_not_change_are_left_alone() -> None:
    assert planned(a_slice("a", 60)) == []
    assert planned(a_slice("a", 60), a_slice("b", 95)) == []
    assert planned(a_slice("a", 89), a_slice("b", 89)) == []
    assert planned(a_slice("a", 60, logs=1)) == [(["a"], 1)]
    assert planned(a_slice("a", 60), sort_columns=("value",)) == [(["a"], 1)]


def test_what_is_sorted_already_is_sorted_again_only_with_something_new() -> None:
    config = ClusteringConfig(sort_columns=("value",))
    order = {at(1): order_text(config)}
    old, large = a_slice("a", 20), a_slice("b", 80)
    assert planned(old, large, sorted_by=order, sort_columns=("value",)) == []
    new = a_slice("c", 20, time=5)
    again = planned(old, large, new, sorted_by=order, sort_columns=("value",))
    assert again == [(["a", "c"], 1)]
    other = planned(old, large, sorted_by=order, sort_columns=("value", "ts"))
    assert other == [(["a", "b"], 1)]
    curve = planned(old, sorted_by=order, sort_columns=("value",), order=RowOrder.HILBERT)
    assert curve == [(["a"], 1)]


def test_closed_groups_and_other_partitions_are_left_out() -> None:
    slices = [a_slice("a", 10), a_slice("b", 10), a_slice("c", 10)]
    assert planned(*slices, closed={slices[1].group}) == [(["a", "c"], 1)]
    elsewhere = [a_slice("d", 10, partition="q"), a_slice("e", 10, partition="q")]
    assert planned(*slices, *elsewhere, partitions=("q",)) == [(["d", "e"], 1)]
    assert planned(*slices, *elsewhere, partition_pattern="[a-p]") == [(["a", "b", "c"], 1)]
    assert planned(*slices, *elsewhere, groups_max=1) == [(["a", "b", "c"], 1)]


def test_buckets_are_clustered_one_by_one() -> None:
    slices = [a_slice("a", 500, logs=2), a_slice("b", 10)]
    assert planned(*slices, is_bucketed=True) == [(["a"], 1)]
    assert planned(*slices, is_bucketed=True, sort_columns=("ts",)) == [(["a"], 1), (["b"], 1)]


@pytest.mark.usefixtures("tables_with_a_lock")
def test_n_125_an_overwrite_looks_again_before_it_commits(
    new_table: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    control = {
        "hoodie.write.concurrency.mode": "non_blocking_concurrency_control",
        "hoodie.write.lock.provider": "filesystem",
    }
    table = new_table("bucket", table_type="MERGE_ON_READ", options=control)
    times = fill(table)
    before = answers_of(table, times)
    run_tasks, later = RunningWrite.run_tasks, "29990101000000000"

    def run_and_be_joined(self: RunningWrite, given: Any) -> Any:
        table.storage.put(f".hoodie/.heartbeat/{later}", b"")
        table.storage.put(f".hoodie/timeline/{later}.deltacommit.requested", b"")
        return run_tasks(self, given)

    monkeypatch.setattr(RunningWrite, "run_tasks", run_and_be_joined)
    with pytest.raises(ConflictError, match="does not notice that file groups are replaced"):
        table.overwrite(rows(("a", "sf", 1, 1)))
    table.storage.delete(f".hoodie/timeline/{later}.deltacommit.requested")
    assert answers_of(table.reload(), times) == before


# The whole way.


def test_n_125_a_bucket_of_two_file_groups_is_left_alone() -> None:
    twins = [a_slice("00000000-0000", 10, logs=1), a_slice("00000000-2026", 10, logs=1)]
    other = a_slice("00000001-0000", 10, logs=1)
    assert planned(*twins, other, is_bucketed=True) == [(["00000001-0000"], 1)]


@pytest.mark.usefixtures("tables_with_a_lock")
def test_n_125_nothing_is_replaced_while_another_engine_writes(
    new_table: Callable[..., Table],
) -> None:
    control = {
        "hoodie.write.concurrency.mode": "non_blocking_concurrency_control",
        "hoodie.write.lock.provider": "filesystem",
    }
    table = new_table("bucket", table_type="MERGE_ON_READ", options=control)
    fill(table)
    later = "29990101000000000"
    table.storage.put(f".hoodie/.heartbeat/{later}", b"")
    table.storage.put(f".hoodie/timeline/{later}.deltacommit.requested", b"")
    replacing: list[Callable[[], object]] = [
        table.services.cluster,
        lambda: table.delete_partitions(["city=sf"]),
        lambda: table.overwrite(rows(("a", "sf", 1, 1))),
    ]
    for replace in replacing:
        with pytest.raises(ConflictError, match="does not notice that file groups are replaced"):
            replace()
    table.upsert(rows(("a", "sf", 1, 1)))
    table.storage.delete(f".hoodie/timeline/{later}.deltacommit.requested")
    for replace in replacing:
        assert replace() is not None


@pytest.mark.parametrize("options", [COPIED, DECODED], ids=["copied", "decoded"])
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("index", ["simple", "bloom"])
@pytest.mark.some(3)
def test_inv_48_files_are_put_together_and_no_reader_notices(
    new_table: Callable[..., Table], table_type: str, index: str, options: dict[str, str]
) -> None:
    table = new_table(index, table_type=table_type, options=options)
    times = fill(table)
    before = answers_of(table, times)
    assert len(slices_of(table)) == 6
    done = table.services.cluster()
    assert done is not None
    assert (len(slices_of(table)), done.row_count) == (2, 60)
    assert answers_of(table, times) == before
    assert table.services.cluster() is None
    table.upsert(rows(*((f"k2-{n}", "sf" if n % 2 else "ny", 99, n) for n in range(20))))
    assert len(slices_of(table)) == 2
    found = table.read_arrow().to_pylist()
    assert len({row["id"] for row in found}) == len(found) == 60


@pytest.mark.parametrize("order", list(RowOrder))
@pytest.mark.parametrize("index", ["simple", "bucket"])
@pytest.mark.some(2)
def test_inv_48_rows_are_sorted_and_no_reader_notices(
    new_table: Callable[..., Table], index: str, order: RowOrder
) -> None:
    table = new_table(index, table_type="MERGE_ON_READ")
    times = fill(table)
    before = answers_of(table, times)
    plan = table.services.schedule_clustering(sort_by=["value", "ts"], order=order)
    table.services.cluster(plan)
    assert answers_of(table, times) == before
    for one in slices_of(table):
        assert one.base is not None
        assert not one.logs
        stored = pq.read_table(f"{table.uri}/{one.base.path}")
        assert set(stored["_hoodie_file_name"].to_pylist()) == {one.base.name}
        pairs = list(zip(*(stored[name].to_pylist() for name in ("value", "ts")), strict=True))
        assert (pairs == sorted(pairs)) == (order is RowOrder.LINEAR)
    assert table.services.schedule_clustering(sort_by=["value", "ts"], order=order) is None


def test_copied_row_groups_are_the_very_bytes(new_table: Callable[..., Table]) -> None:
    table = new_table(options=COPIED)
    table.insert(rows(("a", "sf", 1, 1), ("b", "sf", 1, 2)))
    table.insert(rows(("c", "sf", 1, 3)))
    old = [pq.ParquetFile(f"{table.uri}/{one.base.path}") for one in slices_of(table) if one.base]
    table.services.cluster()
    (one,) = slices_of(table)
    assert one.base is not None
    new = pq.ParquetFile(f"{table.uri}/{one.base.path}")
    assert new.num_row_groups == 2
    sizes = sorted(file.metadata.row_group(0).column(8).total_compressed_size for file in old)
    assert sizes == sorted(
        new.metadata.row_group(number).column(8).total_compressed_size for number in range(2)
    )
    entries = new.metadata.metadata
    assert entries[b"hoodie_min_record_key"] == b"a"
    assert entries[b"hoodie_max_record_key"] == b"c"
    assert entries[b"parquet.avro.schema"] == old[0].metadata.metadata[b"parquet.avro.schema"]


@pytest.mark.parametrize("options", [COPIED, DECODED], ids=["copied", "decoded"])
@pytest.mark.parametrize("sort_by", [None, ["n"]], ids=["unsorted", "sorted"])
def test_tables_without_keys_and_partitions(
    tmp_path: Path, options: dict[str, str], sort_by: list[str] | None
) -> None:
    schema = pa.schema([("n", pa.int64()), ("list", pa.list_(pa.string()))])
    table = hw.create_table(
        tmp_path / "plain",
        schema=schema,
        options={
            "headwater.storage.fsync": "false",
            "hoodie.parquet.small.file.limit": "0",
            **options,
        },
    )
    times = [
        table.insert(pa.table({"n": [n, n + 1], "list": [["x"] * n, None]}, schema)).completion_time
        for n in (3, 1, 2)
    ]
    before = answers_of(table, times)
    table.services.cluster(table.services.schedule_clustering(sort_by))
    (one,) = slices_of(table)
    assert answers_of(table, times) == before
    assert one.base is not None
    stored = pq.read_table(f"{table.uri}/{one.base.path}")["n"].to_pylist()
    assert stored == sorted([3, 4, 1, 2, 2, 3]) if sort_by else stored == [3, 4, 1, 2, 2, 3]


def test_files_of_different_columns_are_decoded(new_table: Callable[..., Table]) -> None:
    table = new_table(options=COPIED)
    table.insert(rows(("a", "sf", 1, 1)))
    table.insert(rows(("b", "sf", 1, 1)).append_column("note", pa.array(["new"])))
    assert table.services.cluster() is not None
    (one,) = slices_of(table)
    assert one.base is not None
    assert pq.ParquetFile(f"{table.uri}/{one.base.path}").num_row_groups == 1
    found = {row["id"]: row["note"] for row in table.read_arrow().to_pylist()}
    assert found == {"a": None, "b": "new"}


def test_files_are_split_at_the_target_size(new_table: Callable[..., Table]) -> None:
    table = new_table(options=DECODED)
    fill(table)
    size = sum(one.size_bytes for one in slices_of(table))
    plan = table.services.schedule_clustering(target_file_bytes=size // 3, partitions=["city=sf"])
    table.services.cluster(plan)
    by_partition = [one.group.partition for one in slices_of(table)]
    assert by_partition.count("city=ny") == 3
    assert by_partition.count("city=sf") == 2
    assert table.read_arrow().num_rows == 60


def test_the_commit_says_what_hudi_says_of_a_clustering(new_table: Callable[..., Table]) -> None:
    table = new_table()
    fill(table)
    before = {one.group for one in slices_of(table)}
    done = table.services.cluster()
    assert done is not None
    commit = load_view(table.storage, table.config).commits[-1]
    assert isinstance(commit.metadata, ReplaceCommitMetadata)
    assert commit.metadata.operation_type == "CLUSTER"
    assert set(commit.replaced_groups()) == before
    stats = list(commit.metadata.write_stats())
    assert {stat.prev_commit for stat in stats} == {"null"}
    assert [stat.num_writes for stat in stats] == [stat.num_inserts for stat in stats]
    assert not {FileGroupId(s.partition_path or "", s.file_id or "") for s in stats} & before


def test_inv_63_a_bucket_goes_on_under_the_name_of_its_next_generation(
    new_table: Callable[..., Table],
) -> None:
    table = new_table("bucket", table_type="MERGE_ON_READ")
    fill(table)
    before = {(one.group.partition, one.group.file_id[:8]) for one in slices_of(table)}
    done = table.services.cluster()
    assert done is not None
    after = [one.group for one in slices_of(table)]
    assert {(group.partition, group.file_id[:8]) for group in after} == before
    digits = done.instant
    assert all(digits[:4] == group.file_id[9:13] for group in after)
    table.upsert(rows(("k1-1", "sf", 99, 99), ("new", "sf", 1, 1)))
    assert {one.group for one in slices_of(table)} == set(after)


def test_h_39_a_bucket_keeps_the_deletes_that_still_count(
    new_table: Callable[..., Table],
) -> None:
    table = new_table("bucket", table_type="MERGE_ON_READ")
    table.upsert(rows(("a", "sf", 1, 1)))
    table.upsert(rows(("a", "sf", 5, 0, True)))
    table.services.cluster()
    table.upsert(rows(("a", "sf", 3, 3)))
    assert table.read_arrow().num_rows == 0
    table.upsert(rows(("a", "sf", 6, 6)))
    assert table.read_arrow()["value"].to_pylist() == [6]


# Beside writers.


def optimistic(table: Table) -> Table:
    options = {
        "headwater.storage.fsync": "false",
        "hoodie.parquet.small.file.limit": "0",
        "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
        "hoodie.write.lock.provider": "in_process",
        "hoodie.write.num.retries.on.conflict.failures": "0",
    }
    return hw.open_table(table.uri, options)


def test_inv_64_a_plan_that_is_not_cancellable_closes_its_groups_for_writes(
    new_table: Callable[..., Table],
) -> None:
    table = new_table(table_type="MERGE_ON_READ")
    fill(table)
    plan = table.services.schedule_clustering()
    writer = optimistic(table)
    with pytest.raises(ConflictError) as caught:
        writer.upsert(rows(("k1-1", "sf", 99, 99)))
    assert caught.value.kind in (ErrorKind.WRITE_CONFLICT, ErrorKind.EARLY_CONFLICT)
    writer.insert(rows(("new", "sf", 1, 1)))
    table.services.cluster(plan)
    writer.upsert(rows(("k1-1", "sf", 99, 99)))
    assert table.read_arrow().num_rows == 61


def test_inv_14_a_write_cancels_a_cancellable_plan_and_its_executor_aborts_it(
    new_table: Callable[..., Table],
) -> None:
    table = new_table(table_type="MERGE_ON_READ")
    times = fill(table)
    plan = table.services.schedule_clustering(cancellable=True, cancellation_policy="24 hours")
    times.append(optimistic(table).upsert(rows(("k1-1", "sf", 99, 99))).completion_time)
    before = answers_of(table, times)
    done = table.services.cluster(plan)
    assert done is not None
    assert (done.instant, done.completion_time) == (plan, None)
    assert answers_of(table, times) == before
    states = {row["requested_time"]: row["state"] for row in table.inspect.timeline().to_pylist()}
    assert states[plan] == "aborted"
    again = table.services.cluster(plan)
    assert again is not None
    assert (again.completion_time, again.is_executed_here) == (None, False)
    assert table.services.cluster() is not None


# Bad input.


def test_bad_arguments_are_refused_and_change_nothing(new_table: Callable[..., Table]) -> None:
    table = new_table()
    table.insert(rows(("a", "sf", 1, 1)))
    files = {info.path: table.storage.read(info.path) for info in table.storage.list_tree("")}
    with pytest.raises(InvalidInputError, match="cannot be sorted by nothing: the columns are id"):
        table.services.schedule_clustering(sort_by="nothing")
    with pytest.raises(InvalidInputError, match="comes twice"):
        table.services.schedule_clustering(sort_by=["ts", "ts"])
    with pytest.raises(InvalidInputError, match="one of linear, zorder, hilbert, got 'spiral'"):
        table.services.schedule_clustering(sort_by="ts", order="spiral")
    with pytest.raises(InvalidInputError, match="'24 hours' or '10 instants'"):
        table.services.schedule_clustering(cancellable=True, cancellation_policy="soon")
    with pytest.raises(InvalidInputError, match="cancellable or removable, not both"):
        table.services.schedule_clustering(cancellable=True, removable=True)
    after = {info.path: table.storage.read(info.path) for info in table.storage.list_tree("")}
    assert after == files
