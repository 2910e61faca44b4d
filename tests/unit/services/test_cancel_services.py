"""`request_cancel`, `execute_abort`, cancellation by policy, and what people see of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.support.plan_site import PLAN, PlanSite, clustering_request

from headwater.errors import ConflictError, CorruptTableError, ErrorKind, HeadwaterError
from headwater.kernel.layout import attempt_path, cancel_path
from headwater.kernel.timeline.names import file_name
from headwater.kernel.txn.attempts import Attempt, Purpose, encode_attempt
from headwater.kernel.txn.heartbeat import Heartbeat
from headwater.kernel.txn.transaction import LockTransaction
from headwater.metadata.view import load_view
from headwater.model.instant import Action, InstantTime, State, instant_time_after
from headwater.model.plan_flags import CancellationPolicy, PlanFlags
from headwater.services.cancel_by_policy import cancel_and_abort_by_policy
from headwater.table import Table
from headwater.testing.table import LAYOUT, TIMELINE

HOUR_MS = 3_600_000
SECOND = InstantTime("20251231235959500")


def due_after(**policy: int) -> PlanFlags:
    return PlanFlags(is_cancellable=True, policy=CancellationPolicy(**policy))


@pytest.fixture
def site() -> PlanSite:
    return PlanSite()


# By policy (INV-34).


def test_a_plan_is_cancelled_and_aborted_when_its_hours_are_over(site: PlanSite) -> None:
    site.request(due_after(hours=1))
    before = site.objects()
    process = site.process("C").cancellations
    done = cancel_and_abort_by_policy(process)
    assert (done.cancelled, done.aborted) == ((), ())
    assert site.objects() == before
    site.lapse(HOUR_MS)
    done = cancel_and_abort_by_policy(process)
    assert done.cancelled == (PLAN,)
    assert [plan.time for plan in done.aborted] == [PLAN]
    assert site.state() is State.ABORTED
    assert cancel_path(PLAN) not in site.objects()


def test_a_plan_is_cancelled_when_enough_instants_came_after_it(site: PlanSite) -> None:
    site.request(due_after(instants=2))
    process = site.process("C").cancellations
    for is_due in (False, False, True):
        assert (cancel_and_abort_by_policy(process).cancelled == (PLAN,)) is is_due
        site.process("W").begin_write()


def test_liv_03_a_plan_that_failed_is_cancelled_too(site: PlanSite) -> None:
    site.request(due_after(hours=1))

    def give_up(attempt: Attempt, heartbeat: Heartbeat) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        site.process("X").execute(give_up)
    site.lapse(HOUR_MS)
    assert cancel_and_abort_by_policy(site.process("C").cancellations).cancelled == (PLAN,)
    assert site.paths_of() == {f"{TIMELINE}/{PLAN}.clustering.aborted"}


@pytest.mark.parametrize("flags", [PlanFlags(), PlanFlags(is_cancellable=True)], ids=str)
def test_inv_16_without_a_policy_no_plan_is_cancelled(site: PlanSite, flags: PlanFlags) -> None:
    site.request(flags)
    site.lapse(1_000 * HOUR_MS)
    before = site.objects()
    assert cancel_and_abort_by_policy(site.process("C").cancellations).cancelled == ()
    assert site.objects() == before


def test_a_cancelled_plan_that_somebody_executes_is_left_for_the_next_run(site: PlanSite) -> None:
    site.request(due_after(hours=1))
    site.lapse(HOUR_MS)

    def clean(attempt: Attempt, heartbeat: Heartbeat) -> None:
        done = cancel_and_abort_by_policy(site.process("C").cancellations)
        assert (done.cancelled, done.aborted, done.left) == ((PLAN,), (), (PLAN,))
        assert cancel_path(PLAN) in site.objects()

    site.process("E").execute(clean)
    assert site.state() is State.ABORTED


def test_a_plan_that_is_cancelled_already_is_not_asked_for_again(site: PlanSite) -> None:
    site.request(due_after(hours=1))
    site.lapse(HOUR_MS)
    site.process("Q").cancellations.request(PLAN, "by hand")
    done = cancel_and_abort_by_policy(site.process("C").cancellations)
    assert done.cancelled == ()
    assert [plan.time for plan in done.aborted] == [PLAN]


def test_a_plan_that_completes_while_clean_looks_at_it_is_left_alone(site: PlanSite) -> None:
    site.request(due_after(hours=1))
    site.lapse(HOUR_MS)
    process = site.process("C")

    class Late(LockTransaction):
        def run(self, step: Any, beside: Any = None) -> Any:
            site.process("E").execute()
            return super().run(step, beside)

    late = replace(process.cancellations, txn=Late(process.components, LAYOUT))
    done = cancel_and_abort_by_policy(late)
    assert (done.cancelled, done.aborted) == ((), ())
    assert site.state() is State.COMPLETED


def test_one_plan_that_fails_does_not_stop_the_rest(site: PlanSite) -> None:
    site.request(due_after(hours=1), time=SECOND)
    name = file_name(PLAN, Action.CLUSTERING, State.REQUESTED)
    site.storage.put(f"{TIMELINE}/{name}", b"no plan at all")
    site.storage.put(cancel_path(PLAN), b"")
    site.lapse(HOUR_MS)
    with pytest.raises(CorruptTableError):
        cancel_and_abort_by_policy(site.process("C").cancellations)
    assert site.state(SECOND) is State.ABORTED
    assert cancel_path(PLAN) in site.objects()


def test_inv_17_stale_entries_go_and_change_nothing(site: PlanSite) -> None:
    site.request()
    process = site.process("C").cancellations
    process.request(PLAN, "why")
    process.abort(PLAN)
    before = site.objects()
    unknown = InstantTime("20250101000000000")
    for time in (PLAN, unknown):
        site.storage.put(cancel_path(time), b"landed late")
    cancel_and_abort_by_policy(process)
    assert site.objects() == before


def test_an_entry_that_landed_after_the_plan_had_completed_stops_nobody(site: PlanSite) -> None:
    site.request()
    site.process("E").execute()
    site.storage.put(cancel_path(PLAN), b"landed late")
    before = site.objects()
    cancel_and_abort_by_policy(site.process("C").cancellations)
    assert site.objects() == before


# The table's own face.


def request_clustering(table: Table, flags: PlanFlags) -> InstantTime:
    """Put a clustering of everything on the timeline, younger than all that is there."""
    view = load_view(table.storage, table.config)
    groups = [one.group for one in view.slices()]
    assert view.instant is not None
    time = instant_time_after(view.instant)
    name = file_name(time, Action.CLUSTERING, State.REQUESTED)
    table.storage.put(f"{TIMELINE}/{name}", clustering_request(flags, *groups))
    return time


@pytest.mark.usefixtures("tables_with_a_lock")
def test_a_plan_is_cancelled_and_aborted_by_hand(make_bench: Callable[..., Any]) -> None:
    bench = make_bench()
    table, rows = bench.table, bench.values()
    time = request_clustering(table, PlanFlags(is_cancellable=True))
    table.services.request_cancel(time, reason="tired of waiting")
    (row,) = table.inspect.cancels().to_pylist()
    assert (row["instant"], row["state"], row["is_waiting"]) == (time, "requested", True)
    assert row["reason"] == "tired of waiting"
    assert table.inspect.cancel_count().to_pylist() == [{"times_cancelled": 1, "waiting": 1}]
    done = table.services.execute_abort(time)
    assert done.instant is not None
    result = table.services.cluster(time)
    assert result.is_cancelled
    assert "cancelled" in str(result)
    (row,) = table.inspect.cancels().to_pylist()
    assert (row["state"], row["is_waiting"]) == ("aborted", False)
    assert row["reason"] == "tired of waiting"
    assert row["aborted_by"] == row["cancelled_by"] == str(table.context.ids.owner)
    assert table.inspect.cancel_count().to_pylist() == [{"times_cancelled": 1, "waiting": 0}]
    assert bench.values() == rows


@pytest.mark.usefixtures("tables_with_a_lock")
def test_h_11_a_stock_reader_sees_no_pending_clustering_after_an_abort(
    make_bench: Callable[..., Any],
) -> None:
    bench = make_bench()
    time = request_clustering(bench.table, PlanFlags(is_cancellable=True))
    bench.table.services.request_cancel(time)
    bench.table.services.execute_abort(time)
    names = bench.table.storage.list_names(TIMELINE)
    assert [name for name in names if time in name] == [f"{time}.clustering.aborted"]


def test_a_table_without_cancellations_shows_none(make_bench: Callable[..., Any]) -> None:
    table = make_bench().table
    assert table.inspect.cancels().num_rows == 0
    assert table.inspect.cancel_count().to_pylist() == [{"times_cancelled": 0, "waiting": 0}]


@pytest.mark.usefixtures("tables_with_a_lock")
def test_bad_input_is_refused_and_storage_stays(make_bench: Callable[..., Any]) -> None:
    bench = make_bench()
    table = bench.table
    written = table.inspect.timeline().to_pylist()[0]["requested_time"]
    plan = request_clustering(table, PlanFlags())
    before = bench.files()
    cases = {
        "yesterday": ErrorKind.INVALID_INSTANT_TIME,
        "20200101000000000": ErrorKind.INSTANT_NOT_FOUND,
        written: ErrorKind.INVALID_STATE,
        plan: ErrorKind.NOT_CANCELLABLE,
    }
    for time, kind in cases.items():
        for call in (table.services.request_cancel, table.services.execute_abort):
            with pytest.raises(HeadwaterError) as caught:
                call(time)
            assert caught.value.kind is kind, time
            assert bench.files() == before


@pytest.mark.usefixtures("tables_with_a_lock")
def test_aborting_what_nobody_cancelled_or_somebody_executes_is_refused(
    make_bench: Callable[..., Any],
) -> None:
    bench = make_bench()
    table = bench.table
    time = request_clustering(table, PlanFlags(is_cancellable=True))
    before = bench.files()
    with pytest.raises(HeadwaterError) as caught:
        table.services.execute_abort(time)
    assert caught.value.kind is ErrorKind.NOT_CANCELLED
    assert bench.files() == before
    table.services.request_cancel(time)
    site = PlanSite(storage=table.storage)
    alive = site.process("elsewhere").cancellations.claim()
    attempt = alive.attempt(time, 1, Purpose.EXECUTE, 0)
    table.storage.put(attempt_path(time, 1), encode_attempt(attempt))
    before = bench.files()
    with pytest.raises(ConflictError) as refused:
        table.services.execute_abort(time)
    assert refused.value.kind is ErrorKind.ALREADY_RUNNING
    assert bench.files() == before
