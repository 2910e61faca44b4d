"""Cleaning: what goes, what stays, what readers find afterwards, and who finishes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.manual_clock import ManualClock
from tests.support.retained_answers import ask_all, check_unchanged, completion_times
from tests.support.tables import FAST, TRIPS, a_table
from tests.support.tables import trips as rows

import headwater as hw
from headwater.config.clean import CleanConfig
from headwater.config.table_options import TableType
from headwater.context import TableContext
from headwater.engine.inline import InlineRows
from headwater.errors import ErrorKind, NotFoundError
from headwater.format.timeline.records import decode_record
from headwater.kernel.journal.storage import find_journal
from headwater.kernel.layout import attempt_folder, heartbeat_path
from headwater.kernel.table_config import table_layout
from headwater.kernel.timeline.active import load_active
from headwater.kernel.timeline.history.write import archive_instants
from headwater.kernel.txn.locks.in_process import InProcessLockProvider, InProcessLocks
from headwater.kernel.txn.markers import Marker, MarkerKind, create_marker, load_markers
from headwater.kernel.txn.transaction import LockTransaction
from headwater.metadata.view import load_view
from headwater.model.instant import Action, instant_time_after
from headwater.model.plans import CleanerPlan
from headwater.model.service_metadata import CleanMetadata
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.write import RunningWrite, start_write
from headwater.seams.clock import Clock
from headwater.seams.components import Components
from headwater.seams.ids import Owner, SystemIds
from headwater.seams.lock import TABLE, HeldLock, LockProvider
from headwater.seams.storage import Storage
from headwater.services import clean
from headwater.services.clean import CleanTask, plan_next_clean, run_clean
from headwater.services.savepoint import create_savepoint
from headwater.services.settled import Settled
from headwater.table import Table

Bench = Any  # In conftest.py, which cannot be imported.

QUICK_TO_DIE = {
    "hoodie.client.heartbeat.interval_in_ms": "1000",
    "hoodie.client.heartbeat.tolerable.misses": "2",
}
MANY_WRITERS = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "in_process",
}
RETAIN_TWO = {"hoodie.clean.commits.retained": "2"}
ONE_VERSION = {
    "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS",
    "hoodie.clean.fileversions.retained": "1",
}
ONE_HOUR = {"hoodie.clean.policy": "KEEP_LATEST_BY_HOURS", "hoodie.clean.hours.retained": "1"}

each_type = pytest.mark.parametrize("table_type", list(TableType))
each_policy = pytest.mark.parametrize(
    "options", [RETAIN_TWO, ONE_VERSION], ids=["commits", "versions"]
)


@pytest.fixture
def make_table(tmp_path: Path) -> Callable[..., Table]:
    """Return a function that makes a table with so many commits."""

    def make(
        table_type: TableType = TableType.COPY_ON_WRITE, *, commits: int = 5, **options: str
    ) -> Table:
        shape = a_table(tmp_path, partition_by="city", buckets=1, table_type=table_type)
        table = shape.with_options(options).create()
        write = table.bulk_insert if table_type is TableType.MERGE_ON_READ else table.upsert
        write(rows(("a", "sf", 0), ("b", "ny", 0)))
        for number in range(1, commits):
            if number % 3 == 0 and table_type is TableType.MERGE_ON_READ:
                table.services.compact()
            table.upsert(rows(("a", "sf", number), (f"n{number}", "ny", number)))
        return table

    return make


def begin_write(table: Table, *values: tuple[str, str, int]) -> tuple[RunningWrite, list[Any]]:
    """Start a write and run its tasks: everything but the commit."""
    target = table.context
    running = start_write(target, WriteRequest(operation=Operation.UPSERT, columns=TRIPS))
    return running, running.run_tasks(InlineRows(rows(*values)))


def reopened(table: Table, **options: str) -> Table:
    return hw.open_table(table.uri, {**FAST, **options})


def data_files(table: Table) -> set[str]:
    return {
        info.path
        for info in table.storage.list_tree("")
        if not info.path.startswith(".hoodie") and "partition_metadata" not in info.path
    }


def objects(table: Table) -> dict[str, bytes]:
    storage = table.storage
    return {
        info.path: storage.read(info.path)
        for info in storage.list_tree("")
        if not info.path.startswith(".hoodie/.locks/")
    }


# What readers find -----------------------------------------------------------------------------


@each_type
@pytest.mark.parametrize("retained", [1, 3])
@pytest.mark.some(2)
def test_inv_52_answers_within_retention_stay_and_older_ones_are_refused(
    make_table: Callable[..., Table], table_type: TableType, retained: int
) -> None:
    table = reopened(make_table(table_type), **{"hoodie.clean.commits.retained": str(retained)})
    times = completion_times(table)
    before = ask_all(table, times)
    files = data_files(table)

    done = table.services.clean()

    deleted = {path for one in done for path in one.deleted_paths}
    assert deleted == files - data_files(table)
    refused = check_unchanged(before, ask_all(table, times))
    readable = [time for time in times if f"as of {time}" not in refused]
    assert readable[-retained:] == times[-retained:]
    assert len(readable) < len(times) or not deleted
    assert table.services.clean() == []


@each_type
@each_policy
@pytest.mark.some(2)
def test_what_is_written_after_a_clean_is_cleaned_by_the_next(
    make_table: Callable[..., Table], table_type: TableType, options: dict[str, str]
) -> None:
    table = reopened(make_table(table_type), **options)
    for number in range(10, 13):
        table.services.clean()
        table.upsert(rows(("a", "sf", number)))
        if table_type is TableType.MERGE_ON_READ:
            table.services.compact()
    times = completion_times(table)
    before = ask_all(table, times)
    table.services.clean()
    check_unchanged(before, ask_all(table, times))
    assert len(data_files(table)) <= 12


@each_type
def test_hudi_rs_reads_the_same_rows_after_a_clean(
    make_table: Callable[..., Table], table_type: TableType
) -> None:
    hudi = pytest.importorskip("hudi", reason="hudi-rs is not installed")
    table = reopened(make_table(table_type), **RETAIN_TWO)
    table.services.clean()
    batches = hudi.HudiTableBuilder.from_base_uri(table.uri).build().read(None)
    theirs = pa.Table.from_batches(batches).select(["id", "value"]).to_pylist()
    ours = table.read_arrow(["id", "value"]).to_pylist()
    assert sorted(theirs, key=str) == sorted(ours, key=str)


def test_versions_are_kept_by_file_group(make_table: Callable[..., Table]) -> None:
    table = make_table()
    table = reopened(table, **{**ONE_VERSION, "hoodie.clean.fileversions.retained": "2"})
    table.services.clean()
    by_group: dict[str, int] = {}
    for path in data_files(table):
        group = path.split("_")[0]
        by_group[group] = by_group.get(group, 0) + 1
    assert set(by_group.values()) == {2}


def test_hours_are_counted_from_now(make_table: Callable[..., Table]) -> None:
    table = make_table()
    files = data_files(table)
    reopened(table, **ONE_HOUR).services.clean()
    assert data_files(table) == files
    clock = ManualClock(table.context.clock.now_ms() + 3 * 3_600_000)
    late = _as_process(reopened(table, **ONE_HOUR), "later", clock)
    config = CleanConfig.from_options(ONE_HOUR)
    assert run_clean(late, config) == []  # No commit of the last hour, so nothing is decided.
    table.upsert(rows(("a", "sf", 99)))
    assert run_clean(late, config) == []  # By its own clock, which is ahead, that was long ago.
    assert data_files(table) > files


# What is protected (INV-33) --------------------------------------------------------------------


@each_policy
def test_inv_33_a_savepoint_is_kept_readable_until_it_is_deleted(
    make_table: Callable[..., Table], options: dict[str, str]
) -> None:
    table = reopened(make_table(), **options)
    times = completion_times(table)
    before = ask_all(table, times)
    instants = [row["requested_time"] for row in table.inspect.timeline().to_pylist()]
    table.services.savepoint(instants[1], comment="before the move")
    table.services.clean()
    refused = check_unchanged(before, ask_all(table, times))
    assert f"as of {times[1]}" not in refused
    assert f"as of {times[0]}" in refused
    held = data_files(table)
    table.services.delete_savepoint(instants[1])
    table.services.clean()
    assert data_files(table) < held
    refused = check_unchanged(before, ask_all(table, times))
    assert f"as of {times[1]}" in refused


@each_policy
def test_inv_33_the_view_of_a_pending_write_is_kept(
    make_table: Callable[..., Table], options: dict[str, str]
) -> None:
    original = make_table(commits=2, **MANY_WRITERS)
    running, stats = begin_write(original, ("z", "la", 1))
    began = running.plan.instant_time
    for number in range(20, 23):
        original.upsert(rows(("a", "sf", number), ("b", "ny", number)))
    times = completion_times(original)
    before = ask_all(original, times)
    table = reopened(original, **options)
    table.services.clean()
    check_unchanged(before, ask_all(table, times))
    # What it merged with is there, whatever its commit will say.
    seen = [time for time in times if time < began]
    assert seen
    view_files = {
        file.path
        for file_slice in load_view(table.storage, table.config).slices_up_to(seen[-1])
        for file in file_slice.files()
    }
    assert view_files <= data_files(table)
    running.commit(stats)


@each_type
@each_policy
@pytest.mark.some(2)
def test_a_commit_that_was_requested_early_and_completed_late_changes_no_answer(
    make_table: Callable[..., Table], table_type: TableType, options: dict[str, str]
) -> None:
    original = make_table(table_type, commits=2, **MANY_WRITERS)
    slow, stats = begin_write(original, ("z", "la", 1), ("y", "la", 2))
    for number in range(20, 23):
        original.upsert(rows(("a", "sf", number), ("b", "ny", number)))
    slow.commit(stats)
    for number in range(30, 32):
        original.upsert(rows(("a", "sf", number), ("z", "la", number)))
    times = completion_times(original)
    before = ask_all(original, times)
    table = reopened(original, **options)
    table.services.clean()
    check_unchanged(before, ask_all(table, times))


@pytest.mark.parametrize("service", ["compaction", "log_compaction"])
def test_inv_33_inputs_of_a_pending_plan_stay(
    make_table: Callable[..., Table], service: str
) -> None:
    options = {"hoodie.log.compaction.blocks.threshold": "2", **ONE_VERSION}
    table = reopened(make_table(TableType.MERGE_ON_READ, commits=3), **options)
    planned = data_files(table)
    assert getattr(table.services, f"schedule_{service}")() is not None
    table.overwrite(rows(("c", "sf", 1)))  # Nobody but the plan needs what was there.
    before = table.read_arrow().num_rows
    table.services.clean()
    assert planned <= data_files(table)
    run = {"compaction": table.services.compact, "log_compaction": table.services.log_compact}
    assert run[service]() is not None
    assert table.read_arrow().num_rows == before


def test_a_compaction_that_completes_after_a_clean_takes_no_view_away(
    make_table: Callable[..., Table],
) -> None:
    table = reopened(make_table(TableType.MERGE_ON_READ, commits=5), **RETAIN_TWO)
    assert table.services.schedule_compaction() is not None
    for number in range(10, 13):
        table.upsert(rows(("a", "sf", number)))
    assert table.services.clean()
    times = completion_times(table)[-2:]
    before = ask_all(table, times)
    assert table.services.compact() is not None
    assert check_unchanged(before, ask_all(table, times)) == set()
    table.services.clean()
    times = completion_times(table)[-2:]
    assert table.read_arrow(as_of=times[0]).num_rows


def test_replaced_file_groups_go_when_the_replace_is_below_retention(
    make_table: Callable[..., Table],
) -> None:
    table = reopened(make_table(commits=2), **RETAIN_TWO)
    replaced = data_files(table)
    table.overwrite(rows(("c", "sf", 1)))
    table.services.clean()
    assert replaced & data_files(table), "they were visible within retention"
    for number in range(3):
        table.upsert(rows(("c", "sf", number)))
    times = completion_times(table)
    before = ask_all(table, times)
    table.services.clean()
    assert not replaced & data_files(table)
    check_unchanged(before, ask_all(table, times))


# Records ---------------------------------------------------------------------------------------


def test_plan_and_metadata_are_records_as_hudi_writes_them(
    make_table: Callable[..., Table],
) -> None:
    table = reopened(make_table(), **RETAIN_TWO)
    commits = [i.requested_time for i in load_active(table.storage, _folder(table)).completed]
    table.services.savepoint(commits[-1])
    (done,) = table.services.clean()
    files = objects(table)
    request = files[f"{_folder(table)}/{done.instant}.clean.requested"]
    plan = decode_record(CleanerPlan, request, path="")
    assert plan.policy == "KEEP_LATEST_COMMITS"
    assert plan.version == 2
    assert plan.earliest_instant_to_retain is not None
    assert plan.earliest_instant_to_retain.timestamp == commits[-2] == done.earliest_retained
    assert plan.earliest_instant_to_retain.action == "commit"
    assert plan.earliest_instant_to_retain.state == "COMPLETED"
    assert plan.last_completed_commit_timestamp == commits[-1]
    assert plan.files_to_be_deleted_per_partition == {}
    assert plan.partitions_to_be_deleted == ()
    extra = plan.extra_metadata or {}
    assert extra["savepointed_timestamps"] == commits[-1]
    assert extra.keys() == {"savepointed_timestamps", *Settled(commits[-2], 1).to_extra_metadata()}
    infos = plan.file_paths_to_be_deleted_per_partition or {}
    assert sorted(infos) == ["city=ny", "city=sf"]
    assert {info.file_path for some in infos.values() for info in some} == {
        f"{table.uri}/{path}" for path in done.deleted_paths
    }
    assert files[f"{_folder(table)}/{done.instant}.clean.inflight"] == b""
    content = files[f"{_folder(table)}/{done.instant}_{done.completion_time}.clean"]
    record = decode_record(CleanMetadata, content, path="")
    assert record.start_clean_time == done.instant
    assert record.earliest_commit_to_retain == commits[-2]
    assert record.last_completed_commit_timestamp == commits[-1]
    assert record.total_files_deleted == len(done.deleted_paths)
    for partition, part in record.partition_metadata.items():
        assert part.policy == "KEEP_LATEST_COMMITS"
        assert part.success_delete_files == part.delete_path_patterns
        assert {f"{partition}/{name}" for name in part.success_delete_files} <= set(
            done.deleted_paths
        )
        assert part.failed_delete_files == ()


def test_a_task_survives_a_journey() -> None:
    task = CleanTask(("city=sf/a_0-0-0_1.parquet",))
    assert CleanTask.from_dict(task.to_dict()) == task


# Many processes, and dead ones -----------------------------------------------------------------


def _folder(table: Table) -> str:
    return table_layout(table.config).timeline


LOCKS = InProcessLocks()


def _as_process(
    table: Table, name: str, clock: Clock, storage: Storage | None = None
) -> TableContext:
    """Return a table as another process on a host of its own reaches it."""
    ids = SystemIds(Owner(name, 1, name))
    provider = InProcessLockProvider(LOCKS, clock, ids, table=table.uri)
    components = Components(storage or table.storage, clock, ids, provider)
    LockTransaction(components, table_layout(table.config))
    return TableContext.through(components, table.config, QUICK_TO_DIE)


def test_another_process_finishes_what_a_dead_one_began(
    make_table: Callable[..., Table],
    dying: Callable[..., Any],
    killed: type[BaseException],
    copies: Callable[[Table], Iterator[Table]],
) -> None:
    original = make_table(commits=4)
    config = CleanConfig(commits_retained=1)
    times = completion_times(original)
    before = ask_all(original, times)
    final: set[str] = set()
    for writes, table in zip(count(), copies(original), strict=False):
        clock = ManualClock(original.context.clock.now_ms())
        victim = _as_process(table, "C", clock, dying(table.storage, writes))
        has_died = False
        try:
            run_clean(victim, config)
        except killed:
            has_died = True
        check_unchanged(before, ask_all(table, times))
        if has_died:
            later = ManualClock(clock.now_ms())
            heir = _as_process(table, "D", later)
            run_clean(heir, config)
            later.advance_ms(10_000)
            run_clean(heir, config)
        check_unchanged(before, ask_all(table, times))
        timeline = load_active(table.storage, _folder(table))
        assert timeline.pending == ()
        assert [i.action for i in timeline.completed if i.action is Action.CLEAN] == ["clean"]
        final = final or data_files(table)
        assert data_files(table) == final
        if not has_died:
            assert writes > 10
            return


def test_many_cleans_at_once_do_the_work_of_one(make_table: Callable[..., Table]) -> None:
    table = make_table()
    files = data_files(table)
    cleaners = [reopened(table, **RETAIN_TWO) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        done = [one for some in pool.map(lambda t: t.services.clean(), cleaners) for one in some]
    assert {path for one in done for path in one.deleted_paths} == files - data_files(table)
    timeline = load_active(table.storage, _folder(table))
    assert timeline.pending == ()
    times = completion_times(table)
    assert reopened(table).read_arrow(as_of=times[-2]).num_rows
    with pytest.raises(NotFoundError) as error:
        reopened(table).read_arrow(as_of=times[0])
    assert error.value.kind is ErrorKind.OUTSIDE_RETENTION


class BeforeTheLock:
    """Locks of a process that is overtaken by somebody right before it gets one, once."""

    def __init__(self, locks: LockProvider, act: Callable[[], Any]) -> None:
        self._locks = locks
        self._act: Callable[[], Any] | None = act

    def acquire(self, key: str = TABLE, *, timeout_ms: int) -> HeldLock:
        act, self._act = self._act, None
        if act is not None:
            act()
        return self._locks.acquire(key, timeout_ms=timeout_ms)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._locks, name)


def _overtaken(table: Table, act: Callable[[], Any]) -> TableContext:
    """Return the table of a process that is overtaken right before it decides, once."""
    journaled, _ = find_journal(table.storage)
    if journaled is None:
        locks = BeforeTheLock(table.context.components.locks, act)
        components = replace(table.context.components, locks=locks)
        return TableContext.through(components, table.config)
    journal = journaled.journal

    def append(*given: Any) -> Any:
        del vars(journal)["append"]
        act()
        return journal.append(*given)

    vars(journal)["append"] = append
    return table.context


def test_a_savepoint_that_comes_between_plan_and_request_is_respected(
    make_table: Callable[..., Table],
) -> None:
    table = make_table()
    times = completion_times(table)
    before = ask_all(table, times)
    second = load_active(table.storage, _folder(table)).completed[1].requested_time
    target = _overtaken(table, lambda: reopened(table).services.savepoint(second))
    (done,) = run_clean(target, CleanConfig(commits_retained=1))
    refused = check_unchanged(before, ask_all(table, times))
    assert f"as of {times[1]}" not in refused
    assert f"as of {times[0]}" in refused
    assert not [path for path in done.deleted_paths if second in path]


def test_n_135_a_savepoint_that_is_deleted_and_its_commit_archived_is_not_read_for_it(
    make_table: Callable[..., Table],
) -> None:
    table = make_table(commits=5)
    first = load_active(table.storage, _folder(table)).completed[0]
    table.services.savepoint(first.requested_time)
    listed = load_active(table.storage, _folder(table))
    table.services.delete_savepoint(first.requested_time)
    archive_instants(table.storage, table.context.layout, [first])
    view = load_view(table.storage, table.config, timeline=listed)
    with pytest.raises(NotFoundError) as raised:
        plan_next_clean(table.context, CleanConfig(commits_retained=1), view)
    assert raised.value.kind is ErrorKind.INSTANT_NOT_FOUND


def test_n_135_a_clean_whose_savepoint_is_gone_is_planned_again(
    make_table: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(commits=5)
    first = load_active(table.storage, _folder(table)).completed[0].requested_time
    table.services.savepoint(first)
    load = clean.load_protected

    def delete_and_load(*given: Any, **named: Any) -> Any:
        monkeypatch.undo()
        table.services.delete_savepoint(first)
        return load(*given, **named)

    monkeypatch.setattr(clean, "load_protected", delete_and_load)
    (done,) = run_clean(table.context, CleanConfig(commits_retained=1))
    assert any(first in path for path in done.deleted_paths)


def test_a_rollback_of_a_commit_that_comes_between_is_respected(
    make_table: Callable[..., Table],
) -> None:
    table = make_table()
    times = completion_times(table)
    before = ask_all(table, times[:-1])
    last = load_active(table.storage, _folder(table)).completed[-1].requested_time
    target = _overtaken(table, lambda: reopened(table).services.rollback(last))
    run_clean(target, CleanConfig.from_options(ONE_VERSION))
    newest = f"as of {times[-2]}"
    assert ask_all(table, times[:-1])["snapshot"] == before[newest]


def test_another_clean_that_comes_between_leaves_nothing_to_do(
    make_table: Callable[..., Table],
) -> None:
    table = make_table()
    target = _overtaken(table, lambda: reopened(table, **RETAIN_TWO).services.clean())
    assert run_clean(target, CleanConfig(commits_retained=2)) == []
    timeline = load_active(table.storage, _folder(table))
    assert [i.action for i in timeline.completed].count(Action.CLEAN) == 1


def test_a_savepoint_of_what_a_pending_clean_is_about_to_delete_is_refused(
    make_table: Callable[..., Table],
    dying: Callable[..., Any],
    killed: type[BaseException],
) -> None:
    table = make_table()
    first = load_active(table.storage, _folder(table)).completed[0].requested_time
    clock = ManualClock(table.context.clock.now_ms())
    with pytest.raises(killed):
        run_clean(
            _as_process(table, "C", clock, dying(table.storage, 3)), CleanConfig(commits_retained=1)
        )
    (pending,) = load_active(table.storage, _folder(table)).pending
    assert pending.action is Action.CLEAN
    with pytest.raises(NotFoundError) as error:
        table.services.savepoint(first)
    assert error.value.kind is ErrorKind.OUTSIDE_RETENTION


def test_n_126_the_last_commit_is_protected_however_fast_others_clean(
    make_table: Callable[..., Table],
) -> None:
    table = make_table()
    chosen = load_active(table.storage, _folder(table)).completed[-1].requested_time

    def outrun() -> None:
        others = reopened(table, **RETAIN_TWO)
        for number in range(5):
            others.upsert(rows(("a", "sf", 100 + number)))
        others.services.clean()

    made = create_savepoint(_overtaken(table, outrun), None)
    assert made.instant > chosen
    with pytest.raises(NotFoundError) as error:
        create_savepoint(table.context, chosen)
    assert error.value.kind is ErrorKind.OUTSIDE_RETENTION


# Leftovers -------------------------------------------------------------------------------------


def test_liv_06_leftovers_of_completed_instants_are_swept(bench: Bench) -> None:
    storage = bench.table.storage
    before = bench.files()
    time = load_active(storage, _folder(bench.table)).completed[0].requested_time
    orphan = f"city=sf/00000000-0000-0000-0000-000000000000-0_9-9-9_{time}.parquet"
    listed = next(path for path in before if time in path and path.endswith(".parquet"))
    storage.put(orphan, b"written by a task that the driver had given up")
    for path in (orphan, listed):
        create_marker(storage, time, Marker(path, MarkerKind.CREATE))
    storage.put(heartbeat_path(time), b"")
    storage.put(f"{attempt_folder(time)}/00001.json", b"of a process that died")
    bench.table.services.clean()
    assert bench.files() == before


@pytest.mark.usefixtures("tables_with_a_lock")
def test_a_claim_of_a_process_that_died_before_its_instant_is_swept(bench: Bench) -> None:
    time = bench.fail_write()
    storage = bench.table.storage
    folder = _folder(bench.table)
    for name in storage.list_names(folder):
        if name.startswith(time):
            storage.delete(f"{folder}/{name}")
    orphans = {marker.data_path for marker in load_markers(storage, time)}
    bench.table.upsert(rows(("a", "sf", 6)))
    assert orphans <= set(bench.files())
    bench.table.services.clean()
    assert bench.paths_of(time) == set()


def test_n_101_a_heartbeat_whose_instant_never_came_to_be_is_swept(bench: Bench) -> None:
    storage = bench.table.storage
    first = load_active(storage, _folder(bench.table)).completed[0].requested_time
    lonely = heartbeat_path(instant_time_after(first, -1))
    storage.put(lonely, b"")
    bench.table.services.clean()
    with pytest.raises(NotFoundError):
        storage.info(lonely)


def test_nothing_of_pending_instants_is_swept(bench: Bench) -> None:
    running = bench.begin_write()
    held = bench.paths_of(running.plan.instant_time)
    assert len(held) > 4
    bench.table.services.clean()
    assert bench.paths_of(running.plan.instant_time) == held


def test_a_clean_rolls_failed_writes_back_first(bench: Bench) -> None:
    time = bench.fail_write()
    bench.table.services.clean()
    assert bench.paths_of(time) == set()
    assert bench.values() == {"a": 5, "b": 2}
