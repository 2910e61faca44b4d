"""Compaction: what it plans, what it writes, and that no reader notices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.answers import answers_of
from tests.support.tables import FAST, columns, rows_of, table_at

import headwater as hw
from headwater.config.compaction import CompactionConfig, CompactionTrigger
from headwater.errors import (
    ConflictError,
    ErrorKind,
    InvalidInputError,
    NotFoundError,
)
from headwater.kernel.layout import CLOCK
from headwater.kernel.table_config import table_layout
from headwater.kernel.txn.attempts import Purpose
from headwater.kernel.txn.steps import Claim, StartExecution
from headwater.kernel.txn.transaction import LockTransaction
from headwater.kernel.view.commits import CommitReader, CompletedCommit
from headwater.metadata.view import load_view
from headwater.model.commit_metadata import CommitMetadata
from headwater.model.files import BaseFile, FileGroupId, FileSlice, LogFile
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.seams.ids import Owner
from headwater.services.compaction import is_compaction_due, plan_compaction
from headwater.table import Table

SCHEMA = columns("id string not null, city string, ts long, value long, _hoodie_is_deleted boolean")

NON_BLOCKING = {
    "hoodie.write.concurrency.mode": "non_blocking_concurrency_control",
    "hoodie.write.lock.provider": "in_process",
}


rows = rows_of(SCHEMA, _hoodie_is_deleted=False)


@pytest.fixture
def new_table(tmp_path: Path) -> Callable[..., Table]:
    def make(name: str = "trips", **arguments: Any) -> Table:
        shape = table_at(tmp_path / name, SCHEMA, ordering="ts", partition_by="city", buckets=1)
        return shape.having(table_type="MERGE_ON_READ", **arguments).create()

    return make


def values(table: Table, **asked: Any) -> dict[str, int]:
    return {row["id"]: row["value"] for row in table.read_arrow(**asked).to_pylist()}


def commit_of(table: Table, time: str | None) -> CompletedCommit:
    view = load_view(table.storage, table.config)
    return next(one for one in view.commits if one.requested_time == time)


# The plan.


def at(number: int) -> InstantTime:
    return InstantTime(f"{number:017d}")


def a_slice(
    name: str, *log_bytes: int, base_bytes: int | None = 1_000_000, partition: str = "p"
) -> FileSlice:
    group = FileGroupId(partition, name)
    base = None if base_bytes is None else BaseFile(*group, "0-1-0", at(1), "parquet", base_bytes)
    logs = tuple(
        LogFile(*group, at(2 + number), 1, "0-1-0", size_bytes=size)
        for number, size in enumerate(log_bytes)
    )
    return FileSlice(group, at(1 if base else 2), base, logs)


def planned(*slices: FileSlice, closed: set[FileGroupId] | None = None, **config: Any) -> list[str]:
    plan = plan_compaction(
        slices,
        closed=closed or set(),
        config=CompactionConfig(**config),
    )
    return [] if plan is None else [one.file_id or "" for one in plan.operations or ()]


def test_groups_without_logs_are_left_alone() -> None:
    assert planned(a_slice("a"), a_slice("b", 10)) == ["b"]
    assert planned(a_slice("a")) == []


def test_groups_with_the_most_bytes_in_logs_come_first() -> None:
    assert planned(a_slice("a", 10), a_slice("b", 20, 5), a_slice("c", 15)) == ["b", "c", "a"]


def test_groups_of_other_pending_plans_are_left_out() -> None:
    slices = a_slice("a", 10), a_slice("b", 10)
    assert planned(*slices, closed={slices[0].group}) == ["b"]


def test_thresholds_and_partitions_leave_groups_out() -> None:
    few, small, elsewhere = (
        a_slice("a", 90),
        a_slice("b", 10, 10),
        a_slice("c", 9, 99, partition="q"),
    )
    assert planned(few, small, elsewhere, log_files_min=2) == ["c", "b"]
    assert planned(few, small, elsewhere, log_bytes_min=50) == ["c", "a"]
    assert planned(few, small, elsewhere, partitions="p|r") == ["a", "b"]


def test_a_plan_stops_at_its_bound_of_io_but_never_before_the_first_group() -> None:
    slices = [a_slice(name, 1 << 20, base_bytes=50 << 20) for name in "abc"]
    assert planned(*slices, io_mb_max=1) == ["a"]
    assert planned(*slices, io_mb_max=202) == ["a", "b"]


def test_deletes_that_the_last_compaction_kept_are_no_reason_for_another() -> None:
    one = a_slice("a")
    kept = LogFile(*one.group, one.base_instant, 1, "0-1-0", size_bytes=10)
    late = LogFile(*one.group, at(5), 1, "0-1-0", size_bytes=10)
    assert planned(FileSlice(one.group, one.base_instant, one.base, (kept,))) == []
    assert planned(FileSlice(one.group, one.base_instant, one.base, (kept, late))) == ["a"]


# When one is due.


def delta(completed: int) -> CompletedCommit:
    instant = Instant(at(completed - 1), Action.DELTA_COMMIT, State.COMPLETED, at(completed))
    return CompletedCommit(instant, CommitMetadata(operation_type="UPSERT"))


def compaction(requested: int, completed: int) -> CompletedCommit:
    instant = Instant(at(requested), Action.COMPACTION, State.COMPLETED, at(completed))
    return CompletedCommit(instant, CommitMetadata(operation_type="COMPACT"))


def is_due(
    commits: list[CompletedCommit], now: int = 0, pending: int | None = None, **config: Any
) -> bool:
    plans = [] if pending is None else [Instant(at(pending), Action.COMPACTION, State.REQUESTED)]
    return is_compaction_due(commits, plans, CompactionConfig(**config), at(now))


def test_a_compaction_is_due_after_so_many_delta_commits() -> None:
    writes = [delta(number) for number in (2, 4, 6)]
    assert is_due(writes, delta_commits=3)
    assert not is_due(writes, delta_commits=4)
    assert not is_due([*writes, compaction(7, 9)], delta_commits=1)
    assert is_due([*writes, compaction(7, 9), delta(11)], delta_commits=1)


def test_a_pending_plan_counts_as_the_last_one_if_the_trigger_says_so() -> None:
    writes = [delta(number) for number in (2, 4, 6)]
    trigger = CompactionTrigger.NUM_COMMITS_AFTER_LAST_REQUEST
    assert is_due(writes, delta_commits=3, trigger=trigger)
    assert not is_due(writes, pending=5, delta_commits=3, trigger=trigger)
    assert is_due(writes, pending=5, delta_commits=1, trigger=trigger)


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        (CompactionTrigger.TIME_ELAPSED, [False, True, True]),
        (CompactionTrigger.NUM_AND_TIME, [False, False, True]),
        (CompactionTrigger.NUM_OR_TIME, [False, True, True]),
    ],
)
def test_triggers_by_time(trigger: CompactionTrigger, expected: list[bool]) -> None:
    config: dict[str, Any] = {"trigger": trigger, "delta_time_ms": 10, "delta_commits": 2}
    found = [
        is_due([delta(2)], 11, **config),
        is_due([delta(2)], 12, **config),
        is_due([delta(2), delta(4)], 12, **config),
    ]
    assert found == expected
    assert not is_due([], 1_000, **config)


# The whole way.


def test_inv_45_a_plan_lists_the_completed_logs_and_later_ones_stay_on_top(
    new_table: Callable[..., Table],
) -> None:
    table = new_table(options=NON_BLOCKING)
    table.upsert(rows(("a", "sf", 1, 1), ("b", "sf", 1, 1)))
    table.upsert(rows(("a", "sf", 2, 2)))
    plan = table.services.schedule_compaction()
    table.upsert(rows(("b", "sf", 2, 3)))
    done = table.services.compact(plan)
    assert done is not None
    assert done.instant == plan
    assert done.is_executed_here
    (one,) = load_view(table.storage, table.config).slices()
    assert one.base is not None
    assert one.base_instant == plan
    assert len(one.logs) == 1
    assert values(table) == {"a": 2, "b": 3}


def test_nothing_to_compact_is_no_plan(new_table: Callable[..., Table]) -> None:
    table = new_table()
    assert table.services.schedule_compaction() is None
    assert table.services.compact() is None
    table.upsert(rows(("a", "sf", 1, 1)))
    assert table.services.compact() is None
    table.upsert(rows(("a", "sf", 2, 2)))
    assert table.services.schedule_compaction(only_if_due=True) is None
    assert table.services.compact(only_if_due=True) is None
    assert table.services.compact() is not None
    assert table.services.compact() is None


def test_a_copy_on_write_table_has_nothing_to_compact(tmp_path: Path) -> None:
    table = hw.create_table(
        tmp_path / "cow", schema=SCHEMA, record_key="id", buckets=1, options=FAST
    )
    table.upsert(rows(("a", "sf", 1, 1)))
    assert table.services.schedule_compaction() is None


def test_rows_keep_the_instants_that_wrote_them_and_name_their_new_file(
    new_table: Callable[..., Table],
) -> None:
    table = new_table()
    first = table.upsert(rows(("a", "sf", 1, 1), ("b", "sf", 1, 1)))
    second = table.upsert(rows(("b", "sf", 2, 2)))
    table.services.compact()
    meta = ["_hoodie_commit_time", "_hoodie_file_name", "id"]
    found = {row["id"]: row for row in table.read_arrow(meta).to_pylist()}
    assert found["a"]["_hoodie_commit_time"] == first.instant
    assert found["b"]["_hoodie_commit_time"] == second.instant
    (one,) = load_view(table.storage, table.config).slices()
    assert one.base is not None
    assert {row["_hoodie_file_name"] for row in found.values()} == {one.base.name}


def test_the_commit_says_what_hudi_says_of_a_compaction(new_table: Callable[..., Table]) -> None:
    table = new_table()
    table.upsert(rows(("a", "sf", 1, 1), ("b", "sf", 1, 1)))
    table.upsert(rows(("b", "sf", 2, 2), ("c", "sf", 1, 1)))
    table.delete(rows(("a", "sf", 0, 0)))
    before = load_view(table.storage, table.config).slices()[0]
    done = table.services.compact()
    assert done is not None
    commit = commit_of(table, done.instant)
    assert commit.metadata.operation_type == "COMPACT"
    assert commit.metadata.compacted is True
    assert commit.instant.action.completed_name is Action.COMMIT
    (stat,) = commit.metadata.write_stats()
    assert before.base is not None
    assert stat.prev_commit == before.base_instant
    assert stat.prev_base_file == before.base.name
    assert (stat.num_writes, stat.num_update_writes, stat.num_deletes) == (2, 1, 1)
    assert (stat.num_inserts, stat.total_log_records) == (1, 3)
    assert (stat.total_log_files_compacted, stat.total_log_blocks) == (2, 2)
    assert stat.total_log_size_compacted == sum(log.size_bytes for log in before.logs)


@pytest.mark.parametrize("starts_as_log", [False, True])
def test_the_plan_is_as_hudis_are(new_table: Callable[..., Table], starts_as_log: bool) -> None:
    table = new_table(options=NON_BLOCKING if starts_as_log else {})
    first = table.upsert(rows(("a", "sf", 1, 1)))
    if not starts_as_log:
        table.upsert(rows(("a", "sf", 2, 2)))
    time = table.services.schedule_compaction()
    assert time is not None
    reader = CommitReader(table.storage, table_layout(table.config))
    plan = reader.load_plan(Instant(InstantTime(time), Action.COMPACTION, State.REQUESTED))
    (operation,) = plan.operations or ()
    (one,) = load_view(table.storage, table.config).slices()
    (log,) = one.logs
    assert plan.version == 2
    assert operation.delta_file_paths == (log.name,)
    assert (one.base is None) is starts_as_log
    assert operation.data_file_path == (None if one.base is None else one.base.name)
    assert operation.base_instant_time == first.instant
    assert operation.metrics is not None
    assert operation.metrics["TOTAL_LOG_FILES"] == 1.0
    assert operation.metrics["TOTAL_LOG_FILES_SIZE"] == float(log.size_bytes)


def test_markers_and_files_of_tasks_that_nobody_lists_are_gone(
    new_table: Callable[..., Table],
) -> None:
    table = new_table()
    first = table.upsert(rows(("a", "sf", 1, 1), ("b", "ny", 1, 1)))
    table.upsert(rows(("a", "sf", 2, 2), ("b", "ny", 2, 2)))
    done = table.services.compact()
    assert done is not None
    assert table.storage.list_tree(".hoodie/.temp") == []
    written = [info.path for info in table.storage.list_tree("") if info.path.endswith(".parquet")]
    commits = commit_of(table, first.instant), commit_of(table, done.instant)
    stats = [stat for commit in commits for stat in commit.metadata.write_stats()]
    assert len(stats) == 4
    assert sorted(written) == sorted(stat.path or "" for stat in stats)


def test_a_table_whose_rows_are_all_deleted_stays_readable(new_table: Callable[..., Table]) -> None:
    table = new_table()
    table.upsert(rows(("a", "sf", 1, 1)))
    table.delete(rows(("a", "sf", 0, 0)))
    table.services.compact()
    assert values(table) == {}
    table.upsert(rows(("a", "sf", 2, 2)))
    assert values(table) == {"a": 2}


def test_columns_that_came_later_are_null_in_older_rows(new_table: Callable[..., Table]) -> None:
    table = new_table()
    table.upsert(rows(("a", "sf", 1, 1)))
    wider = rows(("b", "sf", 1, 1)).append_column("note", pa.array(["new"]))
    table.upsert(wider)
    assert table.services.compact() is not None
    found = {row["id"]: row["note"] for row in table.read_arrow().to_pylist()}
    assert found == {"a": None, "b": "new"}


def test_a_bloom_index_gets_its_filter(new_table: Callable[..., Table]) -> None:
    table = new_table(index="bloom", buckets=None)
    table.insert(rows(("a", "sf", 1, 1)))
    table.upsert(rows(("a", "sf", 2, 2)))
    table.services.compact()
    (one,) = load_view(table.storage, table.config).slices()
    assert one.base is not None
    footer = pq.read_metadata(f"{table.uri}/{one.base.path}").metadata
    assert b"org.apache.hudi.bloomfilter" in footer
    table.upsert(rows(("a", "sf", 3, 3)))
    assert values(table) == {"a": 3}


# Deletes (H-39).


def test_h_39_a_delete_hides_what_comes_late_also_after_compactions(
    new_table: Callable[..., Table],
) -> None:
    table = new_table()
    table.upsert(rows(("a", "sf", 1, 1), ("b", "sf", 1, 1)))
    table.upsert(rows(("a", "sf", 5, 0, True)))
    table.services.compact()
    table.upsert(rows(("a", "sf", 3, 3)))
    assert values(table) == {"b": 1}
    table.services.compact()
    table.upsert(rows(("a", "sf", 4, 4)))
    assert values(table) == {"b": 1}
    table.upsert(rows(("a", "sf", 6, 6)))
    assert values(table) == {"a": 6, "b": 1}


def kept_deletes(table: Table) -> int:
    """Return how many deletes lie beside the base files of the newest slices."""
    view = load_view(table.storage, table.config)
    beside = {log.path for one in view.slices() for log in one.kept_deletes}
    stats = (stat for commit in view.commits for stat in commit.metadata.write_stats())
    return sum(stat.num_deletes or 0 for stat in stats if stat.path in beside)


@pytest.mark.parametrize("forget", ["delete", "record", "overwrite"])
def test_inv_101_a_key_is_remembered_once_and_can_be_forgotten(
    new_table: Callable[..., Table], forget: str
) -> None:
    table = new_table()
    table.upsert(rows(("a", "sf", 1, 1), ("b", "sf", 1, 1), ("c", "sf", 1, 1)))
    for ts in (2, 3, 4):
        table.upsert(rows(("a", "sf", ts, 0, True), ("b", "sf", ts, 0, True)))
        table.services.compact()
        assert kept_deletes(table) == 2
    match forget:
        case "delete":
            table.delete(rows(("a", "sf", 0, 0), ("b", "sf", 0, 0)).select(["id", "city"]))
        case "record":
            table.upsert(rows(("a", "sf", 5, 5), ("b", "sf", 5, 5)))
        case _:
            table.overwrite(rows(("c", "sf", 1, 1)))
    table.services.compact()
    assert kept_deletes(table) == 0


def test_h_39_a_record_as_new_as_the_delete_is_not_hidden_if_it_came_later(
    new_table: Callable[..., Table],
) -> None:
    table = new_table(options=NON_BLOCKING)
    table.upsert(rows(("a", "sf", 1, 1)))
    table.upsert(rows(("a", "sf", 5, 0, True)))
    plan = table.services.schedule_compaction()
    table.upsert(rows(("a", "sf", 5, 7)))
    before = values(table)
    assert before == {"a": 7}
    table.services.compact(plan)
    assert values(table) == before


def test_h_39_deletes_are_kept_until_something_wins_over_them(
    new_table: Callable[..., Table],
) -> None:
    table = new_table()
    table.upsert(rows(("a", "sf", 1, 1), ("b", "sf", 1, 1)))
    table.upsert(rows(("a", "sf", 5, 0, True)))
    for ts in (2, 3):
        table.services.compact()
        assert [len(one.logs) for one in load_view(table.storage, table.config).slices()] == [1]
        table.upsert(rows(("b", "sf", ts, ts)))
    table.upsert(rows(("a", "sf", 5, 5)))
    table.services.compact()
    assert [len(one.logs) for one in load_view(table.storage, table.config).slices()] == [0]
    assert values(table) == {"a": 5, "b": 3}


def test_h_39_deletes_of_the_write_that_began_a_group_are_kept_like_any_other(
    new_table: Callable[..., Table],
) -> None:
    table = new_table()
    table.upsert(rows(("a", "sf", 2, 0, True)))
    table.upsert(rows(("b", "sf", 1, 1)))
    plan = table.services.schedule_compaction()
    table.upsert(rows(("a", "sf", 1, 1)))
    assert values(table) == {"b": 1}
    table.services.compact(plan)
    assert values(table) == {"b": 1}


def test_deletes_by_key_alone_leave_nothing_behind(new_table: Callable[..., Table]) -> None:
    table = new_table()
    table.upsert(rows(("a", "sf", 9, 1)))
    table.delete(rows(("a", "sf", 0, 0)))
    table.services.compact()
    assert [len(one.logs) for one in load_view(table.storage, table.config).slices()] == [0]
    table.upsert(rows(("a", "sf", 1, 2)))
    assert values(table) == {"a": 2}


# Who may execute what.


def test_a_pending_plan_goes_before_a_new_one(new_table: Callable[..., Table]) -> None:
    table = new_table()
    table.upsert(rows(("a", "sf", 1, 1), ("b", "ny", 1, 1)))
    table.upsert(rows(("a", "sf", 2, 2)))
    plan = table.services.schedule_compaction()
    assert table.services.schedule_compaction() is None
    table.upsert(rows(("b", "ny", 2, 2)))
    done = table.services.compact()
    assert done is not None
    assert done.instant == plan
    rest = table.services.compact()
    assert rest is not None
    assert [group.partition for group in rest.file_groups] == ["city=ny"]


def test_a_completed_plan_is_returned_as_it_is(new_table: Callable[..., Table]) -> None:
    table = new_table()
    table.upsert(rows(("a", "sf", 1, 1)))
    table.upsert(rows(("a", "sf", 2, 2)))
    first = table.services.compact()
    assert first is not None
    again = table.services.compact(first.instant)
    assert again is not None
    assert not again.is_executed_here
    assert again.completion_time == first.completion_time
    assert again.file_groups == first.file_groups
    assert again.row_count == 1


@pytest.mark.usefixtures("tables_with_a_lock")
def test_a_plan_that_somebody_executes_is_refused_or_passed_over(
    new_table: Callable[..., Table],
) -> None:
    table = new_table()
    table.upsert(rows(("a", "sf", 1, 1)))
    table.upsert(rows(("a", "sf", 2, 2)))
    plan = table.services.schedule_compaction()
    assert plan is not None
    claim = Claim(
        owner=Owner("other", 1, "other"), token="t", interval_ms=60_000, tolerable_misses=2
    )
    txn = LockTransaction(table.context.components, table_layout(table.config))
    txn.run(StartExecution(InstantTime(plan), Purpose.EXECUTE, claim))
    files = {info.path for info in table.storage.list_tree("")} | {CLOCK}
    with pytest.raises(ConflictError, match="already running: attempt 2 by other") as caught:
        table.services.compact(plan)
    assert caught.value.kind is ErrorKind.ALREADY_RUNNING
    assert table.services.compact() is None
    assert {info.path for info in table.storage.list_tree("")} | {CLOCK} == files


def test_a_compaction_of_what_was_replaced_meanwhile_brings_nothing_back(
    new_table: Callable[..., Table],
) -> None:
    table = new_table()
    first = table.upsert(rows(("a", "sf", 1, 1)))
    second = table.upsert(rows(("a", "sf", 2, 2)))
    plan = table.services.schedule_compaction()
    assert plan is not None
    last = table.overwrite(rows(("b", "sf", 1, 2)))
    times = [one.completion_time for one in (first, second, last)]
    before = answers_of(table, times)
    assert table.services.compact(plan) is not None
    assert answers_of(table, times) == before
    assert values(table) == {"b": 2}


def test_bad_instants_are_refused_and_change_nothing(new_table: Callable[..., Table]) -> None:
    table = new_table()
    commit = table.upsert(rows(("a", "sf", 1, 1)))
    files = {info.path: table.storage.read(info.path) for info in table.storage.list_tree("")}
    with pytest.raises(NotFoundError, match="no instant 20200101000000000") as missing:
        table.services.compact("20200101000000000")
    assert missing.value.kind is ErrorKind.INSTANT_NOT_FOUND
    with pytest.raises(InvalidInputError, match="is a deltacommit and no compaction") as wrong:
        table.services.compact(commit.instant)
    assert wrong.value.kind is ErrorKind.INVALID_STATE
    with pytest.raises(InvalidInputError, match="17 digits"):
        table.services.compact("tomorrow")
    after = {info.path: table.storage.read(info.path) for info in table.storage.list_tree("")}
    assert after == files


@pytest.mark.parametrize("ordering", ["ts", None])
@pytest.mark.parametrize("block_format", ["parquet", "avro"])
@pytest.mark.some(2)
def test_inv_48_no_reader_notices(
    new_table: Callable[..., Table], ordering: str | None, block_format: str
) -> None:
    table = new_table(ordering=ordering, options={"hoodie.logfile.data.block.format": block_format})
    commits = [
        table.upsert(rows(("a", "sf", 5, 1), ("b", "sf", 1, 1), ("c", "ny", 1, 1))),
        table.upsert(rows(("a", "sf", 3, 2), ("b", "sf", 2, 2))),
    ]
    table.services.compact()
    commits += [
        table.upsert(rows(("b", "sf", 9, 0, True), ("d", "sf", 1, 4))),
        table.delete(rows(("c", "ny", 0, 0))),
        table.upsert(rows(("b", "sf", 4, 4), ("c", "ny", 1, 5))),
    ]
    times = [commit.completion_time for commit in commits]
    before = answers_of(table, times)
    assert table.services.compact() is not None
    assert answers_of(table, times) == before
