"""Rolling back completed commits, savepoints, and restoring to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from tests.support.manual_clock import ManualClock
from tests.support.retained_answers import completion_times
from tests.support.tables import TRIPS
from tests.support.tables import trips as rows

from headwater.config.table_options import TableType
from headwater.context import TableContext
from headwater.engine.inline import InlineRows
from headwater.errors import (
    AlreadyExistsError,
    ConflictError,
    ErrorKind,
    HeadwaterError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from headwater.format.timeline.records import decode_record
from headwater.kernel.layout import ATTEMPTS
from headwater.kernel.table_config import table_layout
from headwater.kernel.timeline.active import Timeline, load_active
from headwater.kernel.timeline.history.write import archive_instants
from headwater.kernel.txn.locks.in_process import InProcessLockProvider, InProcessLocks
from headwater.kernel.txn.rollback import Rollbacks
from headwater.model.instant import Action, InstantTime
from headwater.model.plans import RestorePlan, RollbackPlan
from headwater.model.service_metadata import RestoreMetadata, RollbackMetadata, SavepointMetadata
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.retry import write_with_retries
from headwater.operations.write import RunningWrite, start_write
from headwater.seams.clock import Clock
from headwater.seams.components import Components
from headwater.seams.ids import Owner, SystemIds
from headwater.seams.storage import Storage
from headwater.services import restore
from headwater.services.restore import finish_restores, run_restore
from headwater.services.rollback import rollback_failed_writes
from headwater.services.undo import rollback_commit
from headwater.table import Table

QUICK_TO_DIE = {
    "hoodie.client.heartbeat.interval_in_ms": "1000",
    "hoodie.client.heartbeat.tolerable.misses": "2",
}
MANY_WRITERS = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "in_process",
}

each_type = pytest.mark.parametrize("table_type", list(TableType))


def folder(table: Table) -> str:
    return table_layout(table.config).timeline


def active(table: Table) -> Timeline:
    return load_active(table.storage, folder(table))


def commits(table: Table) -> list[InstantTime]:
    return [
        instant.requested_time
        for instant in active(table).completed
        if "commit" in instant.action.completed_name
    ]


def objects(table: Table) -> dict[str, bytes]:
    storage = table.storage
    return {
        info.path: storage.read(info.path)
        for info in storage.list_tree("")
        if not info.path.startswith(".hoodie/.locks/")
    }


def data(table: Table) -> dict[str, bytes]:
    return {path: each for path, each in objects(table).items() if not path.startswith(".hoodie")}


def values(table: Table, **asked: Any) -> dict[str, int]:
    return {row["id"]: row["value"] for row in table.read_arrow(**asked).to_pylist()}


def read_by_hudi_rs(table: Table) -> dict[str, int]:
    hudi = pytest.importorskip("hudi", reason="hudi-rs is not installed")
    batches = hudi.HudiTableBuilder.from_base_uri(table.uri).build().read(None)
    return {row["id"]: row["value"] for row in pa.Table.from_batches(batches).to_pylist()}


def begin_write(table: Table, *given: tuple[str, str, int]) -> tuple[RunningWrite, list[Any]]:
    """Start a write and run its tasks: everything but the commit."""
    target = table.context
    running = start_write(target, WriteRequest(operation=Operation.UPSERT, columns=TRIPS))
    return running, running.run_tasks(InlineRows(rows(*given)))


def refused(table: Table, call: Callable[[], Any]) -> HeadwaterError:
    """Check that a call raises and leaves storage as it is, byte for byte; return the error."""
    before = objects(table)
    with pytest.raises(HeadwaterError) as error:
        call()
    assert objects(table) == before
    return error.value


# Rollback of a commit --------------------------------------------------------------------------


@each_type
def test_the_table_is_as_it_was_before_the_commit(
    make_table: Callable[..., Table], table_type: TableType
) -> None:
    table = make_table(table_type)
    before_rows, before_data = values(table), data(table)
    done = table.upsert(rows(("a", "sf", 99), ("z", "la", 1)))
    timeline_before = active(table)

    rolled_back = table.services.rollback(done.instant)

    assert rolled_back.instant == done.instant
    assert values(table) == before_rows == read_by_hudi_rs(table)
    left = {path for path in data(table) if "partition_metadata" not in path}
    assert left == {path for path in before_data if "partition_metadata" not in path}
    assert active(table).find(InstantTime(done.instant)) is None
    assert len(active(table).completed) == len(timeline_before.completed)
    assert active(table).pending == ()
    assert not [path for path in objects(table) if path.startswith(ATTEMPTS)]
    table.upsert(rows(("a", "sf", 100)))
    assert values(table) == {**before_rows, "a": 100}


def test_plan_and_metadata_name_every_file(make_table: Callable[..., Table]) -> None:
    table = make_table()
    before = data(table)
    done = table.upsert(rows(("a", "sf", 99), ("z", "la", 1)))
    written = {path for path in data(table).keys() - before.keys() if path.endswith("parquet")}
    rolled_back = table.services.rollback(done.instant)
    assert set(rolled_back.deleted_paths) == written
    files = objects(table)
    plan = decode_record(
        RollbackPlan, files[f"{folder(table)}/{rolled_back.rollback}.rollback.requested"], path=""
    )
    assert plan.instant_to_rollback is not None
    assert plan.instant_to_rollback.commit_time == done.instant
    assert plan.instant_to_rollback.action == "commit"
    name = f"{rolled_back.rollback}_{rolled_back.completion_time}.rollback"
    record = decode_record(RollbackMetadata, files[f"{folder(table)}/{name}"], path="")
    assert record.commits_rollback == (done.instant,)
    assert record.total_files_deleted == len(written)


def test_what_a_replace_replaced_is_visible_again(make_table: Callable[..., Table]) -> None:
    table = make_table()
    before = values(table)
    done = table.overwrite(rows(("c", "sf", 1)))
    assert values(table) == {"c": 1}
    table.services.rollback(done.instant)
    assert values(table) == before == read_by_hudi_rs(table)


def test_a_compaction_is_rolled_back_without_a_trace(make_table: Callable[..., Table]) -> None:
    table = make_table(TableType.MERGE_ON_READ)
    before, files = values(table), data(table)
    done = table.services.compact()
    assert done is not None
    assert data(table) != files
    table.services.rollback(commits(table)[-1])
    assert values(table) == before
    assert {p for p in data(table) if "metadata" not in p} == {
        p for p in files if "metadata" not in p
    }
    assert active(table).pending == ()


def test_commits_go_one_after_the_other_newest_first(make_table: Callable[..., Table]) -> None:
    table = make_table()
    times = completion_times(table)
    at_first = values(table, as_of=times[0])
    for _ in range(2):
        table.services.rollback(commits(table)[-1])
    assert values(table) == at_first
    table.services.rollback(commits(table)[-1])
    assert values(table) == {}
    assert data(table).keys() == {path for path in data(table) if "partition_metadata" in path}


def test_a_write_that_was_planned_on_it_cannot_commit(make_table: Callable[..., Table]) -> None:
    table = make_table(**MANY_WRITERS)
    last = commits(table)[-1]
    running, stats = begin_write(table, ("q", "la", 7))
    table.services.rollback(last)
    before = values(table)
    with pytest.raises(ConflictError, match="has undone since") as error:
        running.commit(stats)
    running.abandon()
    assert error.value.kind is ErrorKind.WRITE_CONFLICT
    assert values(table) == before


def test_a_write_of_before_is_not_disturbed(make_table: Callable[..., Table]) -> None:
    table = make_table(**MANY_WRITERS)
    before = values(table)
    running, stats = begin_write(table, ("q", "la", 7))
    done = table.upsert(rows(("a", "sf", 50)))
    table.services.rollback(done.instant)
    running.commit(stats)
    assert values(table) == {**before, "q": 7}


# Bad input -------------------------------------------------------------------------------------


def test_what_cannot_be_rolled_back_is_refused_and_nothing_changes(
    make_table: Callable[..., Table],
) -> None:
    table = make_table()
    first, _, last = commits(table)
    services = table.services
    error = refused(table, lambda: services.rollback("20200101000000000"))
    assert isinstance(error, NotFoundError)
    assert error.kind is ErrorKind.INSTANT_NOT_FOUND
    error = refused(table, lambda: services.rollback("yesterday"))
    assert error.kind is ErrorKind.INVALID_INSTANT_TIME
    error = refused(table, lambda: services.rollback(first))
    assert isinstance(error, InvalidInputError)
    assert error.kind is ErrorKind.INVALID_STATE
    assert last in error.message
    services.savepoint(last)
    error = refused(table, lambda: services.rollback(last))
    assert error.kind is ErrorKind.INVALID_STATE
    assert "savepoint" in error.message


def test_an_archived_or_cleaned_commit_cannot_be_rolled_back(
    make_table: Callable[..., Table],
) -> None:
    table = make_table(
        **{
            "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS",
            "hoodie.clean.fileversions.retained": "1",
        }
    )
    first, _, last = commits(table)
    (cleaned,) = table.services.clean()
    error = refused(table, lambda: table.services.rollback(last))
    assert error.kind is ErrorKind.OUTSIDE_RETENTION
    error = refused(table, lambda: table.services.rollback(cleaned.instant))
    assert error.kind is ErrorKind.INVALID_STATE
    archive_instants(table.storage, table_layout(table.config), [active(table).get(first)])
    error = refused(table, lambda: table.services.rollback(first))
    assert error.kind is ErrorKind.INSTANT_NOT_FOUND


def test_a_commit_that_a_pending_plan_took_in_is_refused(
    make_table: Callable[..., Table],
) -> None:
    table = make_table(TableType.MERGE_ON_READ)
    assert table.services.schedule_compaction() is not None
    error = refused(table, lambda: table.services.rollback(commits(table)[-1]))
    assert error.kind is ErrorKind.INVALID_STATE
    assert "compaction" in error.message


def test_bad_savepoints_are_refused_and_nothing_changes(make_table: Callable[..., Table]) -> None:
    table = make_table(commits=4, **{"hoodie.clean.commits.retained": "1"})
    times = commits(table)
    services = table.services
    error = refused(table, lambda: services.savepoint("20200101000000000"))
    assert error.kind is ErrorKind.INSTANT_NOT_FOUND
    error = refused(table, lambda: services.delete_savepoint(times[0]))
    assert error.kind is ErrorKind.INSTANT_NOT_FOUND
    error = refused(table, lambda: services.restore(times[0]))
    assert error.kind is ErrorKind.INSTANT_NOT_FOUND
    services.savepoint(times[-1], comment="kept")
    assert isinstance(refused(table, lambda: services.savepoint(times[-1])), AlreadyExistsError)
    (cleaned,) = services.clean()
    error = refused(table, lambda: services.savepoint(times[0]))
    assert error.kind is ErrorKind.OUTSIDE_RETENTION
    error = refused(table, lambda: services.savepoint(cleaned.instant))
    assert error.kind is ErrorKind.INVALID_STATE
    archive_instants(table.storage, table_layout(table.config), [active(table).get(times[0])])
    error = refused(table, lambda: services.savepoint(times[0]))
    assert error.kind is ErrorKind.INSTANT_NOT_FOUND


def test_an_empty_table_has_nothing_to_protect(make_table: Callable[..., Table]) -> None:
    table = make_table(commits=0)
    error = refused(table, table.services.savepoint)
    assert error.kind is ErrorKind.INSTANT_NOT_FOUND


# Savepoints ------------------------------------------------------------------------------------


@each_type
def test_a_savepoint_lists_the_files_of_its_view(
    make_table: Callable[..., Table], table_type: TableType
) -> None:
    table = make_table(table_type)
    files = {path for path in data(table) if "partition_metadata" not in path}
    saved = table.services.savepoint(comment="before the move", user="me")
    assert saved.instant == commits(table)[-1]
    name = f"{saved.instant}_{saved.completion_time}.savepoint"
    record = decode_record(SavepointMetadata, objects(table)[f"{folder(table)}/{name}"], path="")
    assert (record.savepointed_by, record.comments) == ("me", "before the move")
    listed = {
        f"{partition}/{name}"
        for partition, part in record.partition_metadata.items()
        for name in part.savepoint_data_file
    }
    newest = {f for f in files if table_type is TableType.MERGE_ON_READ or saved.instant in f}
    assert listed == newest
    assert objects(table)[f"{folder(table)}/{saved.instant}.savepoint.inflight"] == b""
    assert table.services.savepoints() == [saved]
    assert values(table) == read_by_hudi_rs(table)
    table.services.delete_savepoint(saved.instant)
    assert table.services.savepoints() == []
    assert not [path for path in objects(table) if "savepoint" in path]


# Restore ---------------------------------------------------------------------------------------


@each_type
def test_a_restore_takes_back_all_since_the_savepoint(
    make_table: Callable[..., Table], table_type: TableType
) -> None:
    table = make_table(table_type)
    saved = table.services.savepoint()
    before_rows, before_data = values(table), data(table)
    table.upsert(rows(("a", "sf", 50), ("m", "la", 1)))
    if table_type is TableType.MERGE_ON_READ:
        table.services.compact()
    table.overwrite(rows(("c", "sf", 1)))
    table.upsert(rows(("c", "sf", 2)))
    later = commits(table)[3:]

    done = table.services.restore(saved.instant)

    assert done.savepoint == saved.instant
    assert done.undone == tuple(reversed(later))
    assert values(table) == before_rows == read_by_hudi_rs(table)
    assert {p for p in data(table) if "metadata" not in p} == {
        p for p in before_data if "metadata" not in p
    }
    assert active(table).pending == ()
    files = objects(table)
    plan = decode_record(
        RestorePlan, files[f"{folder(table)}/{done.instant}.restore.requested"], path=""
    )
    assert plan.savepoint_to_restore_timestamp == saved.instant
    assert [info.commit_time for info in plan.instants_to_rollback] == list(done.undone)
    name = f"{done.instant}_{done.completion_time}.restore"
    record = decode_record(RestoreMetadata, files[f"{folder(table)}/{name}"], path="")
    assert record.instants_to_rollback == done.undone
    assert set(record.hoodie_restore_metadata) == set(done.undone)
    table.upsert(rows(("a", "sf", 100)))
    assert values(table) == {**before_rows, "a": 100}
    table.services.clean()
    assert values(table) == {**before_rows, "a": 100}


def test_pending_plans_of_since_then_go_too(make_table: Callable[..., Table]) -> None:
    table = make_table(TableType.MERGE_ON_READ)
    saved = table.services.savepoint()
    before = values(table)
    table.upsert(rows(("a", "sf", 50)))
    plan = table.services.schedule_compaction()
    assert plan is not None
    done = table.services.restore(saved.instant)
    assert done.undone[0] == plan
    assert active(table).find(InstantTime(plan)) is None
    assert values(table) == before


def test_a_later_savepoint_is_not_restored_away(make_table: Callable[..., Table]) -> None:
    table = make_table()
    saved = table.services.savepoint()
    table.upsert(rows(("a", "sf", 50)))
    later = table.services.savepoint()
    error = refused(table, lambda: table.services.restore(saved.instant))
    assert error.kind is ErrorKind.INVALID_STATE
    table.services.delete_savepoint(later.instant)
    table.services.restore(saved.instant)


def test_a_write_that_was_planned_on_what_is_restored_away_cannot_commit(
    make_table: Callable[..., Table],
) -> None:
    table = make_table(**MANY_WRITERS)
    saved = table.services.savepoint()
    unaware, unaware_stats = begin_write(table, ("q", "la", 7))
    table.upsert(rows(("a", "sf", 50)))
    aware, aware_stats = begin_write(table, ("r", "nw", 8))
    before = values(table, as_of=completion_times(table)[2])
    table.services.restore(saved.instant)
    with pytest.raises(ConflictError, match="has undone since"):
        aware.commit(aware_stats)
    aware.abandon()
    unaware.commit(unaware_stats)
    assert values(table) == {**before, "q": 7}


# Dead processes --------------------------------------------------------------------------------


LOCKS = InProcessLocks()


def as_process(
    table: Table, name: str, clock: Clock, storage: Storage | None = None
) -> TableContext:
    """Return a table as another process on a host of its own reaches it."""
    ids = SystemIds(Owner(name, 1, name))
    provider = InProcessLockProvider(LOCKS, clock, ids, table=table.uri)
    components = Components(storage or table.storage, clock, ids, provider)
    return TableContext.through(components, table.config, QUICK_TO_DIE)


Copies = Callable[[Table], Iterator[Table]]


@each_type
@pytest.mark.some(1)
@pytest.mark.usefixtures("tables_with_a_lock")
def test_another_process_finishes_a_rollback(
    make_table: Callable[..., Table],
    dying: Callable[..., Any],
    killed: type[BaseException],
    copies: Copies,
    table_type: TableType,
) -> None:
    original = make_table(table_type)
    before = values(original)
    done = original.upsert(rows(("a", "sf", 99), ("z", "la", 1)))
    after = values(original)
    time = InstantTime(done.instant)
    for writes, table in zip(count(), copies(original), strict=False):
        clock = ManualClock(original.context.clock.now_ms())
        victim = as_process(table, "C", clock, dying(table.storage, writes))
        has_died = False
        try:
            rollback_commit(victim, time)
        except killed:
            has_died = True
        if has_died:
            assert values(table) in (before, after), "readers see the commit, or none of it"
            later = ManualClock(clock.now_ms())
            target = as_process(table, "D", later)
            rollback_failed_writes(target.rollbacks, target.txn.watch, wait=True)
            if active(table).find(time) is not None:
                rollback_commit(target, time)
        assert values(table) == before
        assert active(table).pending == ()
        assert not [path for path in objects(table) if time in path and ATTEMPTS not in path]
        if not has_died:
            assert writes > 12
            return


def test_another_process_finishes_a_restore(
    make_table: Callable[..., Table],
    dying: Callable[..., Any],
    killed: type[BaseException],
    copies: Copies,
) -> None:
    original = make_table(commits=1)
    saved = original.services.savepoint()
    before = values(original)
    original.upsert(rows(("a", "sf", 50)))
    original.overwrite(rows(("c", "sf", 1)))
    undone = commits(original)[1:]
    for writes, table in zip(count(), copies(original), strict=False):
        clock = ManualClock(original.context.clock.now_ms())
        victim = as_process(table, "C", clock, dying(table.storage, writes))
        has_died = False
        try:
            run_restore(victim, saved.instant)
        except killed:
            has_died = True
        if has_died:
            later = ManualClock(clock.now_ms())
            target = as_process(table, "D", later)
            rollback_failed_writes(target.rollbacks, target.txn.watch, wait=True)
            _wait_for_restores(table, target, later)
            if active(table).find(undone[0]) is not None:
                run_restore(target, saved.instant)
        assert values(table) == before
        assert active(table).pending == ()
        restores = [i for i in active(table).completed if i.action is Action.RESTORE]
        assert len(restores) == 1
        if not has_died:
            assert writes > 25
            return


def _wait_for_restores(table: Table, target: TableContext, clock: ManualClock) -> None:
    """Finish pending restores, once the heartbeat of the dead process has lapsed."""
    finish_restores(target)
    clock.advance_ms(10_000)
    finish_restores(target)
    assert not [i for i in active(table).pending if i.action is Action.RESTORE]


def test_n_133_a_write_finishes_the_rollback_that_it_would_lose_to_for_ever(
    make_table: Callable[..., Table],
    dying: Callable[..., Any],
    killed: type[BaseException],
) -> None:
    table = make_table(**MANY_WRITERS)
    last = commits(table)[-1]
    clock = ManualClock(table.context.clock.now_ms())
    dead = as_process(table, "C", clock, dying(table.storage, 4))
    with pytest.raises(killed):
        rollback_commit(dead, last)
    next_one = as_process(table, "D", ManualClock(clock.now_ms()))
    request = WriteRequest(operation=Operation.UPSERT, columns=TRIPS)
    # The commit is withdrawn at once; the files go when the heartbeat of the dead has run out.
    write_with_retries(next_one, request, InlineRows(rows(("q", "la", 7))))
    assert active(table).find(last) is None
    assert values(table)["q"] == 7
    rollback_failed_writes(next_one.rollbacks, next_one.txn.watch, wait=True)
    assert active(table).pending == ()


@pytest.mark.parametrize("place", ["restore", "rollback"])
def test_n_133_who_fails_before_the_first_beat_does_not_wait_for_itself(
    make_table: Callable[..., Table], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(**MANY_WRITERS)
    savepoint = table.services.savepoint(commits(table)[0]).instant

    def fail(*_: object) -> None:
        raise StorageError("too many open files", path="plan")

    with monkeypatch.context() as failing:
        if place == "restore":
            failing.setattr(restore, "_load_plan", fail)
        else:
            failing.setattr(Rollbacks, "load_plan", fail)
        with pytest.raises(StorageError):
            table.services.restore(savepoint)
    table.services.restore(savepoint)
    assert active(table).pending == ()


@pytest.mark.usefixtures("tables_with_a_lock")
def test_a_pending_rollback_of_a_commit_voids_what_was_planned_on_it(
    make_table: Callable[..., Table],
    dying: Callable[..., Any],
    killed: type[BaseException],
) -> None:
    table = make_table(**MANY_WRITERS)
    last = commits(table)[-1]
    running, stats = begin_write(table, ("q", "la", 7))
    clock = ManualClock(table.context.clock.now_ms())
    with pytest.raises(killed):  # After fence, claim, heartbeat and request.
        rollback_commit(as_process(table, "C", clock, dying(table.storage, 4)), last)
    assert active(table).get(last).is_completed
    (pending,) = [i for i in active(table).pending if i.action is Action.ROLLBACK]
    with pytest.raises(ConflictError, match="is undoing") as error:
        running.commit(stats)
    assert error.value.context["other"] == pending.requested_time
    error_of_savepoint = refused(table, lambda: table.services.savepoint(last))
    assert error_of_savepoint.kind is ErrorKind.ALREADY_RUNNING
    # A clean that takes the process for alive leaves all that its heir will need.
    table.services.clean()
    target = as_process(table, "D", ManualClock(clock.now_ms()))
    rollback_failed_writes(target.rollbacks, target.txn.watch, wait=True)
    assert active(table).find(last) is None
    assert active(table).pending == ()


@pytest.mark.usefixtures("tables_with_a_lock")
def test_a_plan_that_is_being_taken_back_is_not_executed(
    make_table: Callable[..., Table],
    dying: Callable[..., Any],
    killed: type[BaseException],
    copies: Copies,
) -> None:
    original = make_table(TableType.MERGE_ON_READ)
    saved = original.services.savepoint()
    before = values(original)
    original.upsert(rows(("a", "sf", 50)))
    plan = InstantTime(str(original.services.schedule_compaction()))
    refusals = 0
    for writes, table in zip(count(), copies(original), strict=False):
        clock = ManualClock(original.context.clock.now_ms())
        victim = as_process(table, "C", clock, dying(table.storage, writes))
        try:
            run_restore(victim, saved.instant)
            break
        except killed:
            pass
        withdrawn = [p for p in objects(table) if f"{ATTEMPTS}/{plan}/" in p]
        if len(withdrawn) > 1 and active(table).find(plan) is not None:
            with pytest.raises(ConflictError) as error:
                table.services.compact(plan)
            assert error.value.kind is ErrorKind.PLAN_NOT_EXECUTABLE
            refusals += 1
        target = as_process(table, "D", later := ManualClock(clock.now_ms()))
        rollback_failed_writes(target.rollbacks, target.txn.watch, wait=True)
        _wait_for_restores(table, target, later)
        if Action.RESTORE in [i.action for i in active(table).completed]:
            assert values(table) == before
            assert active(table).pending == ()
    assert refusals >= 2


@pytest.mark.parametrize("service", ["compact", "log_compact", "cluster"])
@pytest.mark.some(1)
@pytest.mark.usefixtures("tables_with_a_lock")
def test_rewrites_are_rolled_back_without_readers_noticing(
    make_table: Callable[..., Table],
    dying: Callable[..., Any],
    killed: type[BaseException],
    copies: Copies,
    service: str,
) -> None:
    original = make_table(
        TableType.MERGE_ON_READ, **{"hoodie.log.compaction.blocks.threshold": "2"}
    )
    before = values(original)
    files = {path for path in data(original) if "metadata" not in path}
    assert getattr(original.services, service)() is not None
    time = commits(original)[-1]
    for writes, table in zip(count(), copies(original), strict=False):
        clock = ManualClock(original.context.clock.now_ms())
        victim = as_process(table, "C", clock, dying(table.storage, writes))
        has_died = False
        try:
            rollback_commit(victim, time)
        except killed:
            has_died = True
        assert values(table) == before
        if has_died:
            target = as_process(table, "D", ManualClock(clock.now_ms()))
            rollback_failed_writes(target.rollbacks, target.txn.watch, wait=True)
            if active(table).find(time) is not None:
                rollback_commit(target, time)
        assert values(table) == before
        assert {path for path in data(table) if "metadata" not in path} == files
        assert active(table).pending == ()
        if not has_died:
            return


@pytest.mark.parametrize("service", ["compact", "log_compact", "cluster"])
@pytest.mark.parametrize("undoing", [Action.RESTORE, Action.ROLLBACK])
@pytest.mark.some(2)
@pytest.mark.usefixtures("tables_with_a_lock")
def test_n_60_nothing_is_rewritten_that_is_about_to_be_taken_back(
    make_table: Callable[..., Table],
    dying: Callable[..., Any],
    killed: type[BaseException],
    undoing: Action,
    service: str,
) -> None:
    """A process dies after it has requested a restore, or the rollback of the last commit."""
    table = make_table(
        TableType.MERGE_ON_READ, commits=3, **{"hoodie.log.compaction.blocks.threshold": "2"}
    )
    saved = table.services.savepoint() if undoing is Action.RESTORE else None
    before = values(table)
    last = table.upsert(rows(("a", "sf", 50), ("z", "sf", 1)))
    clock = ManualClock(table.context.clock.now_ms())
    victim = as_process(table, "C", clock, dying(table.storage, 4))
    undo = (
        partial(rollback_commit, victim, InstantTime(last.instant))
        if saved is None
        else partial(run_restore, victim, saved.instant)
    )
    with pytest.raises(killed):
        undo()
    (pending,) = [i for i in active(table).pending if i.action is undoing]
    with pytest.raises(ConflictError, match="is taking back commits") as error:
        getattr(table.services, service)()
    assert error.value.kind is ErrorKind.ALREADY_RUNNING
    assert error.value.context["instant"] == pending.requested_time
    heir = as_process(table, "D", later := ManualClock(clock.now_ms()))
    rollback_failed_writes(heir.rollbacks, heir.txn.watch, wait=True)
    _wait_for_restores(table, heir, later)
    assert active(table).pending == ()
    assert values(table) == before
    getattr(table.services, service)()
    assert values(table) == before


def test_what_a_restore_left_can_be_protected_again(make_table: Callable[..., Table]) -> None:
    """The clean retained nothing as old as what the restore made the last commit (N-152)."""
    retained = {"hoodie.clean.commits.retained": "1"}
    table = make_table(commits=1, **retained)
    before = values(table)
    saved = table.services.savepoint().instant
    for number in range(1, 5):
        table.upsert(rows(("a", "sf", number)))
        table.services.clean()
    table.services.restore(saved)
    table.services.delete_savepoint(saved)
    assert table.services.savepoint().instant == saved
    assert values(table) == before
