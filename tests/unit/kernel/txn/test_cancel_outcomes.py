"""Rows 5.3 to 5.5: what a cancellation, an abort and an execution leave, crash by crash."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest
from tests.support.dying import Killed
from tests.support.plan_site import (
    CANCELLABLE,
    CLUSTERED,
    GROUP,
    PLAN,
    PlanSite,
    clustering_request,
)

from headwater.errors import (
    ConflictError,
    ErrorKind,
    FencedError,
    HeadwaterError,
    InvalidInputError,
)
from headwater.kernel.layout import CANCEL_COUNT, attempt_path, cancel_path, marker_folder
from headwater.kernel.timeline.active import load_active
from headwater.kernel.txn.attempts import Attempt, decode_attempt
from headwater.kernel.txn.cancel import AbortedPlan, CancelWatch
from headwater.kernel.txn.cancel_records import (
    CancelCount,
    decode_abort,
    decode_count,
    decode_entry,
)
from headwater.kernel.txn.guard import Executed, Returned
from headwater.kernel.txn.heartbeat import Heartbeat
from headwater.kernel.txn.markers import Marker, load_markers
from headwater.model.instant import Action, InstantTime, State
from headwater.model.plan_flags import PlanFlags
from headwater.seams.storage import Storage
from headwater.testing.rows import base_file, files_of
from headwater.testing.table import TIMELINE

ABORTED_FILE = f"{TIMELINE}/{PLAN}.clustering.aborted"
REQUEST = f"{TIMELINE}/{PLAN}.clustering.requested"
INFLIGHT = f"{TIMELINE}/{PLAN}.clustering.inflight"
LATER = InstantTime("20251231235959500")


@pytest.fixture
def site() -> PlanSite:
    """A table with P REQUESTED and cancellable."""
    site = PlanSite()
    site.request()
    return site


def inflight_site() -> PlanSite:
    """A table with P INFLIGHT, cancelled, and a file of an execution that gave up."""
    site = PlanSite()
    site.request()

    def give_up(attempt: Attempt, heartbeat: Heartbeat) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        site.process("failed").execute(give_up)
    site.process("Q").cancellations.request(PLAN, "for the test")
    assert site.state() is State.INFLIGHT
    return site


def is_clean(site: PlanSite) -> bool:
    return site.paths_of() == {ABORTED_FILE}


# 5.3: request_cancel.


def test_5_3_after_1_to_4_nothing_is_there_and_the_call_is_tried_again(site: PlanSite) -> None:
    before = site.objects()
    with pytest.raises(Killed):
        site.process("Q", writes_left=0).cancellations.request(PLAN, "why")
    assert site.objects() == before
    site.process("Q").cancellations.request(PLAN, "why")
    assert cancel_path(PLAN) in site.objects()


def test_5_3_after_5_it_is_decided_and_the_call_succeeds_again(site: PlanSite) -> None:
    site.process("Q").cancellations.request(PLAN, "first")
    decided = site.objects()
    again = site.process("R").cancellations.request(PLAN, "second")
    assert again.state is State.REQUESTED
    assert site.objects() == decided, "one entry, whoever asks"
    entry = decode_entry(decided[cancel_path(PLAN)])
    assert entry is not None
    assert (entry.owner, entry.reason) == ("Q/1/Q", "first")
    aborted = site.process("E").execute()
    assert aborted == AbortedPlan(PLAN, load_active(site.storage, TIMELINE).find(PLAN))


def test_5_3_a_cancelled_plan_never_commits(site: PlanSite) -> None:
    def cancel(attempt: Attempt, heartbeat: Heartbeat) -> None:
        site.process("Q").cancellations.request(PLAN, "why")

    done = site.process("E").execute(cancel)
    assert isinstance(done, AbortedPlan)
    assert site.state() is State.ABORTED
    assert is_clean(site)


def test_5_3_who_comes_after_the_commit_is_refused(site: PlanSite) -> None:
    assert isinstance(site.process("E").execute(), Executed)
    before = site.objects()
    with pytest.raises(InvalidInputError) as caught:
        site.process("Q").cancellations.request(PLAN, "why")
    assert caught.value.kind is ErrorKind.INVALID_STATE
    assert site.objects() == before


def test_5_3_an_aborted_plan_is_left_as_it_is(site: PlanSite) -> None:
    cancellations = site.process("Q").cancellations
    cancellations.request(PLAN, "why")
    cancellations.abort(PLAN)
    before = site.objects()
    assert cancellations.request(PLAN, "again").state is State.ABORTED
    assert site.objects() == before


# 5.4: execute_abort.


def test_5_4_wherever_an_abort_dies_the_next_caller_ends_in_the_same_state() -> None:
    whole = inflight_site()
    whole.process("A").cancellations.abort(PLAN)
    assert is_clean(whole)
    for writes_left in count():
        site = inflight_site()
        try:
            site.process("A", writes_left=writes_left).cancellations.abort(PLAN)
        except Killed:
            pass
        else:
            break
        data = [path for path in site.objects() if path.startswith("city=")]
        is_ended = ABORTED_FILE in site.objects()
        assert is_ended or cancel_path(PLAN) in site.objects(), "step 10 never comes before 9"
        assert is_ended or REQUEST in site.objects(), "the plan is kept until it has ended"
        assert not is_ended or not data, "the files go before the plan ends"
        abort_when_free(site)
        assert is_clean(site), f"after {writes_left} writes"
        assert decode_count(site.objects()[CANCEL_COUNT]) == CancelCount(times=1, counted=(PLAN,))
    assert writes_left > 8


def abort_when_free(site: PlanSite) -> None:
    cancellations = site.process("B").cancellations
    try:
        cancellations.abort(PLAN)
    except ConflictError as refused:
        if refused.kind is not ErrorKind.ALREADY_RUNNING:
            raise
        site.lapse()
        cancellations.abort(PLAN)


def test_5_4_after_1_to_6_the_next_caller_waits_for_the_heartbeat() -> None:
    site = inflight_site()
    with pytest.raises(Killed):
        site.process("A", writes_left=1).cancellations.abort(PLAN)
    number = 3  # The scheduler's, the executor's, and this.
    attempt = decode_attempt(site.storage.read(attempt_path(PLAN, number)), path="")
    assert (attempt.purpose.value, attempt.owner.host) == ("abort", "A")
    before = site.objects()
    other = site.process("B").cancellations
    with pytest.raises(ConflictError) as caught:
        other.abort(PLAN)
    assert caught.value.kind is ErrorKind.ALREADY_RUNNING
    assert site.objects() == before
    site.lapse()
    other.abort(PLAN)
    assert is_clean(site)


def test_5_4_after_7_the_plan_is_requested_and_can_only_be_aborted() -> None:
    for writes_left in count():
        site = inflight_site()
        with pytest.raises(Killed):
            site.process("A", writes_left=writes_left).cancellations.abort(PLAN)
        if site.state() is State.REQUESTED:
            break
    assert not [path for path in site.objects() if path.startswith("city=")]
    assert cancel_path(PLAN) in site.objects()
    executor = site.process("E")
    with pytest.raises(ConflictError) as caught:
        executor.execute()
    assert caught.value.kind is ErrorKind.ALREADY_RUNNING
    site.lapse()
    assert isinstance(executor.execute(), AbortedPlan)
    assert is_clean(site)


def test_5_4_after_9_step_3_removes_the_entry_and_what_is_left(site: PlanSite) -> None:
    site.process("Q").cancellations.request(PLAN, "why")
    whole = site.objects()
    site.process("A").cancellations.abort(PLAN)
    for path in (REQUEST, cancel_path(PLAN)):
        site.storage.put(path, whole[path])
    site.storage.put(INFLIGHT, b"")
    done = site.process("B").cancellations.abort(PLAN)
    assert done.instant is not None
    assert done.instant.state is State.ABORTED
    assert is_clean(site)


def test_5_4_after_11_the_call_returns(site: PlanSite) -> None:
    cancellations = site.process("A").cancellations
    cancellations.request(PLAN, "why")
    cancellations.abort(PLAN)
    before = site.objects()
    done = cancellations.abort(PLAN)
    assert done.instant is not None
    assert done.instant.state is State.ABORTED
    assert site.objects() == before


def test_5_4_an_aborted_file_holds_the_plan_and_who_asked_when_and_why(site: PlanSite) -> None:
    plan = site.storage.read(REQUEST)
    site.process("Q").cancellations.request(PLAN, "too slow")
    site.process("A").cancellations.abort(PLAN)
    record = decode_abort(site.storage.read(ABORTED_FILE), path=ABORTED_FILE)
    assert record.plan == plan
    assert record.entry is not None
    assert (record.entry.owner, record.entry.reason) == ("Q/1/Q", "too slow")
    assert record.entry.requested_ms == site.clock.now_ms()
    assert (record.owner, record.aborted_ms) == ("A/1/A", site.clock.now_ms())


def test_an_entry_of_another_engine_says_nothing_and_is_honoured(site: PlanSite) -> None:
    site.storage.put(cancel_path(PLAN), b"")
    assert isinstance(site.process("E").execute(), AbortedPlan)
    record = decode_abort(site.storage.read(ABORTED_FILE), path=ABORTED_FILE)
    assert record.entry is None


def test_h_05_a_stalled_aborter_is_fenced_and_changes_nothing() -> None:
    site = inflight_site()
    quick = site.process("B").cancellations

    def stall(storage: Storage, time: InstantTime) -> list[Marker]:
        markers = load_markers(storage, time)
        with pytest.raises(ConflictError):
            quick.abort(PLAN)
        site.lapse()
        quick.abort(PLAN)
        return markers

    slow = replace(site.process("A").cancellations, load_markers=stall)
    with pytest.raises(FencedError):
        slow.abort(PLAN)
    assert is_clean(site)


def test_h_06_the_entry_of_an_unknown_instant_is_dropped_and_nothing_else(site: PlanSite) -> None:
    site.storage.put(cancel_path(LATER), b"")
    site.storage.put(base_file(GROUP, LATER, 1).path, b"rows of a committed and archived instant")
    before = site.objects()
    assert site.process("C").cancellations.abort(LATER) == AbortedPlan(LATER, None)
    del before[cancel_path(LATER)]
    assert site.objects() == before


def test_h_14_files_are_deleted_while_the_lock_is_free(site: PlanSite) -> None:
    free = []
    process = site.process("A")
    original = site.storage.delete

    def delete(path: str) -> None:
        if path.startswith("city="):
            held = process.components.locks.acquire(timeout_ms=0)
            held.release()
            free.append(path)
        original(path)

    def cancel(attempt: Attempt, heartbeat: Heartbeat) -> None:
        site.process("Q").cancellations.request(PLAN, "why")
        site.storage.delete = delete  # type: ignore[method-assign]

    process.execute(cancel)
    assert free, "the executor aborted its own plan"
    assert set(free) == {base_file(CLUSTERED, PLAN, 2).path}


# 5.5: executors.


def test_5_5_wherever_an_execution_dies_the_next_one_commits_its_own_file_alone() -> None:
    for writes_left in count():
        site = PlanSite()
        site.request()
        try:
            site.process("X", writes_left=writes_left).execute()
        except Killed:
            pass
        else:
            break
        done = execute_when_free(site)
        files = [path for path in site.objects() if path.startswith("city=")]
        content = site.storage.read(
            next(path for path in site.objects() if path.endswith(".replacecommit"))
        )
        assert files == files_of(content), f"after {writes_left} writes"
        is_returned = isinstance(done, Returned)
        assert is_returned or isinstance(done, Executed)
        assert site.state() is State.COMPLETED
    assert writes_left > 4


def execute_when_free(site: PlanSite) -> Executed | Returned | AbortedPlan:
    successor = site.process("Y")
    try:
        return successor.execute()
    except ConflictError as refused:
        if refused.kind is not ErrorKind.ALREADY_RUNNING:
            raise
        site.lapse()
        return successor.execute()


def test_5_5_wherever_an_execution_dies_a_cancelled_plan_is_aborted() -> None:
    for writes_left in count():
        site = PlanSite()
        site.request()
        try:
            site.process("X", writes_left=writes_left).execute()
        except Killed:
            pass
        else:
            break
        if site.state() is State.COMPLETED:
            continue
        site.process("Q").cancellations.request(PLAN, "why")
        assert isinstance(execute_when_free(site), AbortedPlan)
        assert is_clean(site), f"after {writes_left} writes"
    assert writes_left > 4


def test_5_5_an_executor_that_finds_its_plan_cancelled_stops_at_the_next_look(
    site: PlanSite,
) -> None:
    looks = []

    def work(attempt: Attempt, heartbeat: Heartbeat) -> None:
        watch = CancelWatch(site.storage, site.clock, PLAN, every_ms=100)
        watch.check()
        site.process("Q").cancellations.request(PLAN, "why")
        watch.check()  # It has looked a moment ago.
        looks.append(1)
        with site.clock.timers_stalled():
            site.clock.advance_ms(100)
        watch.check()
        looks.append(2)

    assert isinstance(site.process("E").execute(work), AbortedPlan)
    assert looks == [1]
    assert is_clean(site)


def test_h_01_a_stalled_executor_never_commits_a_plan_that_was_aborted(site: PlanSite) -> None:
    cleaner = site.process("C").cancellations

    def stall(attempt: Attempt, heartbeat: Heartbeat) -> None:
        cleaner.request(PLAN, "why")
        with pytest.raises(ConflictError):
            cleaner.abort(PLAN)
        site.lapse()
        cleaner.abort(PLAN)
        assert cancel_path(PLAN) not in site.objects()

    with pytest.raises(FencedError):
        site.process("E").execute(stall)
    assert site.state() is State.ABORTED
    assert not [path for path in site.objects() if path.startswith("city=")]


def test_h_15_a_cancelled_plan_is_never_begun(site: PlanSite) -> None:
    site.process("Q").cancellations.request(PLAN, "why")
    begun: list[object] = []
    done = site.process("E").execute(lambda *arguments: begun.append(arguments))
    assert isinstance(done, AbortedPlan)
    assert not begun


def test_an_executor_that_comes_after_the_abort_gets_the_aborted_instant(site: PlanSite) -> None:
    site.process("Q").cancellations.request(PLAN, "why")
    site.process("A").cancellations.abort(PLAN)
    before = site.objects()
    done = site.process("E").execute()
    assert isinstance(done, Returned)
    assert done.instant.state is State.ABORTED
    assert site.objects() == before


def test_inv_38_an_owner_that_wakes_up_after_the_abort_is_swept(site: PlanSite) -> None:
    process = site.process("C").cancellations
    process.request(PLAN, "why")
    process.abort(PLAN)
    late = f"{marker_folder(PLAN)}/{base_file(CLUSTERED, PLAN, 2).path}.marker.CREATE"
    site.storage.put(late, b"")
    site.storage.put(base_file(CLUSTERED, PLAN, 2).path, b"late rows")
    process.sweep_aborted()
    assert is_clean(site)


# Bad input.


def completed(site: PlanSite) -> InstantTime:
    site.process("E").execute()
    return PLAN


def written(site: PlanSite) -> InstantTime:
    return site.process("W").begin_write().announce().time


def not_cancellable(site: PlanSite) -> InstantTime:
    site.storage.put(REQUEST, clustering_request(PlanFlags(), GROUP))
    return PLAN


def a_compaction(site: PlanSite) -> InstantTime:
    site.request(PlanFlags(), action=Action.COMPACTION, time=LATER)
    return LATER


def unknown(site: PlanSite) -> InstantTime:
    return LATER


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (completed, ErrorKind.INVALID_STATE),
        (written, ErrorKind.NOT_CANCELLABLE),
        (not_cancellable, ErrorKind.NOT_CANCELLABLE),
        (a_compaction, ErrorKind.NOT_CANCELLABLE),
        (unknown, ErrorKind.INSTANT_NOT_FOUND),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_inv_10_what_cannot_be_cancelled_is_refused_and_storage_stays(
    site: PlanSite, make: object, kind: ErrorKind
) -> None:
    assert callable(make)
    time = make(site)
    before = site.objects()
    for call in (
        lambda: site.process("Q").cancellations.request(time, "why"),
        lambda: site.process("Q").cancellations.abort(time),
    ):
        with pytest.raises(HeadwaterError) as caught:
            call()
        assert caught.value.kind is kind
        assert time in str(caught.value)
        assert site.objects() == before


def test_h_04_what_nobody_cancelled_is_not_aborted(site: PlanSite) -> None:
    before = site.objects()
    with pytest.raises(InvalidInputError) as caught:
        site.process("A").cancellations.abort(PLAN)
    assert caught.value.kind is ErrorKind.NOT_CANCELLED
    assert site.objects() == before


def test_inv_16_a_forged_entry_of_a_plan_that_is_not_cancellable_aborts_nothing() -> None:
    site = PlanSite()
    site.request(PlanFlags())
    site.storage.put(cancel_path(PLAN), b"")
    before = site.objects()
    with pytest.raises(InvalidInputError) as caught:
        site.process("A").cancellations.abort(PLAN)
    assert caught.value.kind is ErrorKind.NOT_CANCELLABLE
    assert site.objects() == before


def test_times_cancelled_are_counted_once_each() -> None:
    site = PlanSite()
    for number in range(3):
        time = InstantTime(f"2025123123595900{number}")
        site.request(CANCELLABLE, time=time)
        cancellations = site.process("C").cancellations
        cancellations.request(time, "why")
        cancellations.abort(time)
        cancellations.abort(time)
    assert decode_count(site.objects()[CANCEL_COUNT]).times == 3
