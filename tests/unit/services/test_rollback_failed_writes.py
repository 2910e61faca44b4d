"""Failed writes: which are rolled back, by whom, and what is left."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.support.manual_clock import ManualClock

from headwater.config.table_options import TableType
from headwater.errors import (
    ConflictError,
    ErrorKind,
    FencedError,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
)
from headwater.format.timeline.records import decode_record
from headwater.kernel.layout import attempt_path, heartbeat_path, marker_folder
from headwater.kernel.table_config import table_layout
from headwater.kernel.timeline.active import instant_path
from headwater.kernel.txn.attempts import encode_attempt, load_attempt
from headwater.kernel.txn.markers import Marker, MarkerKind, create_marker, load_markers
from headwater.kernel.txn.rollback import rollback_own_write
from headwater.kernel.txn.steps import Ended
from headwater.markers.batches import load_every_marker
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.plans import RollbackPlan
from headwater.model.service_metadata import RollbackMetadata
from headwater.operations.plan import Operation
from headwater.services.rollback import rollback_failed_writes, rollback_write

pytestmark = pytest.mark.usefixtures("tables_with_a_lock")

Bench = Any  # Both are in conftest.py, which cannot be imported.
CleanerOf = Callable[..., Any]
Dying = Callable[..., Any]

each_type = pytest.mark.parametrize("table_type", list(TableType))


def revive(bench: Bench, time: InstantTime, **changes: Any) -> None:
    """Make the attempt of a failed write look like one of a process that may be alive."""
    storage = bench.table.storage
    attempt = load_attempt(storage, time, 1)
    assert attempt is not None
    owner = replace(attempt.owner, host="elsewhere")
    alive = replace(attempt, is_released=False, owner=owner, token="theirs", **changes)
    storage.put(attempt.path, encode_attempt(alive))


# What is rolled back ---------------------------------------------------------------------------


@each_type
def test_a_write_that_gave_up_is_rolled_back_and_nothing_of_it_is_left(
    make_bench: Callable[..., Bench], table_type: TableType
) -> None:
    bench = make_bench(table_type)
    before = bench.files()
    time = bench.fail_write()
    written = {marker.data_path for marker in load_markers(bench.table.storage, time)}
    assert len(written) == 2

    (done,) = bench.table.services.rollback_failed_writes()

    assert done.instant == time
    assert set(done.deleted_paths) == written
    assert bench.paths_of(time) == set()
    after = bench.files()
    assert before.items() <= after.items()
    timeline = table_layout(bench.table.config).timeline
    assert {path for path in after.keys() - before.keys() if "partition_metadata" not in path} == {
        f"{timeline}/{done.rollback}.rollback.requested",
        f"{timeline}/{done.rollback}.rollback.inflight",
        f"{timeline}/{done.rollback}_{done.completion_time}.rollback",
    }
    assert bench.values() == {"a": 5, "b": 2}


def test_plan_and_metadata_are_records_as_hudi_writes_them(bench: Bench) -> None:
    time = bench.fail_write()
    (done,) = bench.table.services.rollback_failed_writes()
    files, uri = bench.files(), bench.table.uri
    timeline = table_layout(bench.table.config).timeline
    request = files[f"{timeline}/{done.rollback}.rollback.requested"]
    plan = decode_record(RollbackPlan, request, path="")
    assert plan.instant_to_rollback is not None
    assert (plan.instant_to_rollback.commit_time, plan.instant_to_rollback.action) == (
        time,
        "commit",
    )
    assert [request.files_to_be_deleted for request in plan.rollback_requests or ()] == [
        (f"{uri}/{path}",) for path in done.deleted_paths
    ]
    assert files[f"{timeline}/{done.rollback}.rollback.inflight"] == b""
    content = files[f"{timeline}/{done.rollback}_{done.completion_time}.rollback"]
    metadata = decode_record(RollbackMetadata, content, path="")
    assert metadata.start_rollback_time == done.rollback
    assert metadata.total_files_deleted == 2
    assert metadata.commits_rollback == (time,)
    assert sorted(metadata.partition_metadata) == ["city=la", "city=sf"]


def test_nothing_to_do_takes_no_lock_and_writes_nothing(bench: Bench) -> None:
    before = bench.files()
    assert bench.table.services.rollback_failed_writes() == []
    assert bench.files() == before


def test_several_failed_writes_go_and_the_next_write_works(bench: Bench) -> None:
    times = [bench.fail_write() for _ in range(3)]
    done = bench.table.services.rollback_failed_writes()
    assert [one.instant for one in done] == times
    assert len({one.rollback for one in done}) == 3
    assert bench.table.services.rollback_failed_writes() == []
    running = bench.begin_write(("d", "sf", 7))
    running.commit([])
    assert bench.values() == {"a": 5, "b": 2}


def test_a_requested_write_has_no_files_to_delete(bench: Bench) -> None:
    time = bench.fail_write()
    timeline = table_layout(bench.table.config).timeline
    bench.table.storage.delete(f"{timeline}/{time}.inflight")
    for marker in load_markers(bench.table.storage, time):
        bench.table.storage.delete(marker.data_path)
        bench.table.storage.delete(f"{marker_folder(time)}/{marker.data_path}.marker.{marker.kind}")
    (done,) = bench.table.services.rollback_failed_writes()
    assert done.deleted_paths == ()
    assert bench.paths_of(time) == set()


def test_failed_writes_that_replace_are_rolled_back(bench: Bench) -> None:
    time = bench.fail_write(Operation.OVERWRITE)
    assert ("replacecommit", "inflight") in bench.states()
    (done,) = bench.table.services.rollback_failed_writes()
    assert done.instant == time
    assert bench.values() == {"a": 5, "b": 2}


# Who is alive ----------------------------------------------------------------------------------


def test_5_2_d1_a_live_writer_is_left_alone_and_commits(bench: Bench) -> None:
    running = bench.begin_write()
    assert bench.table.services.rollback_failed_writes() == []
    with pytest.raises(ConflictError) as raised:
        bench.table.services.rollback(running.plan.instant_time)
    assert raised.value.kind is ErrorKind.ALREADY_RUNNING
    assert str(bench.table.context.ids.owner) in str(raised.value)
    running.commit([])
    assert bench.table.services.rollback_failed_writes() == []


def test_inv_23_a_refused_rollback_changes_nothing(bench: Bench) -> None:
    time = bench.fail_write()
    revive(bench, time)
    before = bench.files()
    with pytest.raises(ConflictError):
        bench.table.services.rollback(time)
    assert bench.files() == before


def test_a_heartbeat_that_stands_still_runs_out(
    bench: Bench, cleaner_of: CleanerOf, clock: ManualClock
) -> None:
    time = bench.fail_write()
    revive(bench, time, interval_ms=1_000)
    cleaner = cleaner_of("C", bench.table, clock)
    assert rollback_failed_writes(cleaner.rollbacks, cleaner.watch) == []
    clock.advance_ms(1_999)
    assert rollback_failed_writes(cleaner.rollbacks, cleaner.watch) == []
    clock.advance_ms(1)
    (done,) = rollback_failed_writes(cleaner.rollbacks, cleaner.watch)
    assert done.instant == time


def test_who_waits_sees_a_dead_writer_in_one_call(
    bench: Bench, cleaner_of: CleanerOf, clock: ManualClock
) -> None:
    for time in [bench.fail_write(), bench.fail_write()]:
        revive(bench, time, interval_ms=60_000)
    cleaner = cleaner_of("C", bench.table, clock)
    done = rollback_failed_writes(cleaner.rollbacks, cleaner.watch, wait=True)
    assert len(done) == 2
    assert 120_000 <= clock.monotonic_ms() < 130_000  # They ran out together.


def test_who_waits_leaves_a_writer_alone_whose_heartbeat_moves(
    bench: Bench, cleaner_of: CleanerOf, clock: ManualClock
) -> None:
    time = bench.fail_write()
    revive(bench, time, interval_ms=60_000)
    cleaner = cleaner_of("C", bench.table, clock)

    def beat() -> bool:
        attempt = load_attempt(bench.table.storage, time, 1)
        assert attempt is not None
        bench.table.storage.put(attempt.path, encode_attempt(attempt.next_beat()))
        return True

    timer = clock.every_ms(30_000, beat, "the writer")
    assert rollback_failed_writes(cleaner.rollbacks, cleaner.watch, wait=True) == []
    with pytest.raises(ConflictError):
        rollback_write(cleaner.rollbacks, cleaner.watch, time, wait=True)
    timer.cancel()
    assert clock.monotonic_ms() < 120_000


def test_h_25_a_writer_that_wakes_up_after_its_rollback_cannot_commit(
    bench: Bench, cleaner_of: CleanerOf, clock: ManualClock
) -> None:
    running = bench.begin_write()
    time = running.plan.instant_time
    revive(bench, time)
    cleaner = cleaner_of("C", bench.table, clock)
    rollback_failed_writes(cleaner.rollbacks, cleaner.watch, wait=True)
    late = Marker(f"city=sf/late_0-1-0_{time}.parquet", MarkerKind.CREATE)
    create_marker(bench.table.storage, time, late)
    bench.table.storage.put(late.data_path, b"rows of a zombie")

    with pytest.raises(FencedError, match="rolled back"):
        running.commit([])
    running.abandon()

    assert bench.values() == {"a": 5, "b": 2}
    assert rollback_failed_writes(cleaner.rollbacks, cleaner.watch) == []
    assert bench.paths_of(time) == set(), "what its markers show is swept"


SCHEDULED = 4
"""Writes after which a rollback is scheduled and nothing more: the fence, the attempt with its
heartbeat and the request."""


def clock_of_the_dead(clock: ManualClock) -> ManualClock:
    """Return a clock at the same time, for a process that dies, and whose timers die with it."""
    return ManualClock(clock.now_ms())


def test_inv_31_a_writer_whose_rollback_is_only_scheduled_cannot_commit(
    bench: Bench, cleaner_of: CleanerOf, clock: ManualClock, dying: Dying, killed: type
) -> None:
    running = bench.begin_write()
    time = running.plan.instant_time
    revive(bench, time)
    cleaner = cleaner_of(
        "C", bench.table, clock_of_the_dead(clock), dying(bench.table.storage, SCHEDULED)
    )
    with pytest.raises(killed):
        rollback_failed_writes(cleaner.rollbacks, cleaner.watch, wait=True)
    with pytest.raises(FencedError, match="taken over"):
        running.commit([])
    other = cleaner_of("D", bench.table, clock)
    (done,) = rollback_failed_writes(other.rollbacks, other.watch, wait=True)
    assert done.instant == time


def test_inv_29_who_comes_second_takes_up_the_rollback_of_the_first(
    bench: Bench, cleaner_of: CleanerOf, clock: ManualClock, dying: Dying, killed: type
) -> None:
    time = bench.fail_write()
    first = cleaner_of(
        "C", bench.table, clock_of_the_dead(clock), dying(bench.table.storage, SCHEDULED)
    )
    second = cleaner_of("D", bench.table, clock)
    with pytest.raises(killed):
        first.rollbacks.roll_back(time)
    with pytest.raises(ConflictError) as raised:
        second.rollbacks.roll_back(time)
    assert raised.value.kind is ErrorKind.ALREADY_RUNNING
    clock.advance_ms(2_000)
    done = second.rollbacks.roll_back(time)
    assert done.instant == time
    assert bench.states().count(("rollback", "completed")) == 1
    assert bench.paths_of(time) == set()


def test_what_another_engine_began_is_left_to_it(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    time = bench.fail_write()
    bench.table.storage.delete(attempt_path(time, 1))
    before = bench.files()
    with caplog.at_level(logging.INFO):
        assert bench.table.services.rollback_failed_writes() == []
    assert "another engine" in caplog.text
    with pytest.raises(ConflictError, match="another engine"):
        bench.table.services.rollback(time)
    assert bench.files() == before


def test_a_rollback_of_another_engine_is_left_to_it(
    bench: Bench, cleaner_of: CleanerOf, clock: ManualClock, dying: Dying, killed: type
) -> None:
    time = bench.fail_write()
    dead = cleaner_of(
        "C", bench.table, clock_of_the_dead(clock), dying(bench.table.storage, SCHEDULED)
    )
    with pytest.raises(killed):
        dead.rollbacks.roll_back(time)
    (rollback,) = [
        i for i in bench.table.inspect.timeline().to_pylist() if i["action"] == "rollback"
    ]
    bench.table.storage.delete(attempt_path(rollback["requested_time"], 1))
    before = bench.files()
    cleaner = cleaner_of("D", bench.table, clock)
    assert rollback_failed_writes(cleaner.rollbacks, cleaner.watch) == []
    with pytest.raises(UnsupportedError, match="another engine"):
        cleaner.rollbacks.roll_back(time)
    assert bench.files() == before


def test_a_rollback_deletes_nothing_of_a_target_that_has_completed_after_all(
    bench: Bench, cleaner_of: CleanerOf, clock: ManualClock, dying: Dying, killed: type
) -> None:
    """A completed file that landed late, say: beyond what the lock can prevent (A1)."""
    time, storage = bench.fail_write(), bench.table.storage
    dead = cleaner_of("C", bench.table, clock_of_the_dead(clock), dying(storage, SCHEDULED))
    with pytest.raises(killed):
        dead.rollbacks.roll_back(time)
    timeline = bench.table.context.load_timeline()
    (rollback,) = [i for i in timeline.pending if i.action is Action.ROLLBACK]
    landed = Instant(time, Action.COMMIT, State.COMPLETED, rollback.requested_time)
    folder = bench.table.context.layout.timeline
    storage.put(
        instant_path(folder, landed), storage.read(instant_path(folder, timeline.completed[0]))
    )
    announced = {path for path in bench.paths_of(time) if not path.startswith(".hoodie/")}
    assert announced
    heir = cleaner_of("D", bench.table, clock)
    assert rollback_failed_writes(heir.rollbacks, heir.watch, wait=True) == []
    with pytest.raises(UnsupportedError, match="has completed"):
        heir.rollbacks.resume(rollback)
    assert announced <= bench.paths_of(time)


# One instant -----------------------------------------------------------------------------------


def test_one_failed_write_is_rolled_back_by_name(bench: Bench) -> None:
    one, other = bench.fail_write(), bench.fail_write()
    assert bench.table.services.rollback(one).instant == one
    assert bench.paths_of(one) == set()
    assert bench.paths_of(other) != set()
    with pytest.raises(NotFoundError) as raised:
        bench.table.services.rollback(one)
    assert raised.value.kind is ErrorKind.INSTANT_NOT_FOUND


def test_only_the_last_completed_write_is_rolled_back(bench: Bench) -> None:
    before = bench.files()
    (first, _) = bench.table.inspect.timeline().column("requested_time").to_pylist()
    with pytest.raises(InvalidInputError, match="was not the last commit to complete"):
        bench.table.services.rollback(first)
    assert bench.files() == before


# The owner's own -------------------------------------------------------------------------------


def test_an_owner_rolls_its_own_write_back_at_once(bench: Bench) -> None:
    running = bench.begin_write()
    time = running.plan.instant_time
    layout = table_layout(bench.table.config)
    write = running._inflight
    done = rollback_own_write(bench.table.context.components, layout, load_every_marker, write)
    assert done is not None
    assert done.instant == time
    assert bench.paths_of(time) == set()
    assert bench.table.storage.list_tree(heartbeat_path(time).rpartition("/")[0]) == []
    assert bench.values() == {"a": 5, "b": 2}


def test_an_owner_that_was_taken_over_leaves_the_rollback_to_others(bench: Bench) -> None:
    running = bench.begin_write()
    time = running.plan.instant_time
    attempt = load_attempt(bench.table.storage, time, 1)
    assert attempt is not None
    successor = replace(attempt, attempt=2, token="another", beat=0)
    bench.table.storage.put(successor.path, encode_attempt(successor))
    layout = table_layout(bench.table.config)
    write = running._inflight
    assert (
        rollback_own_write(bench.table.context.components, layout, load_every_marker, write) is None
    )
    assert bench.paths_of(time) != set()


def test_a_write_that_completed_meanwhile_is_handed_back(
    bench: Bench, cleaner_of: CleanerOf, clock: ManualClock
) -> None:
    running = bench.begin_write()
    running.commit([])
    cleaner = cleaner_of("C", bench.table, clock)
    ended = cleaner.rollbacks.roll_back(running.plan.instant_time)
    assert isinstance(ended, Ended)
    assert ended.instant.is_completed
