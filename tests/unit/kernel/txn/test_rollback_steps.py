"""The steps of a rollback as pure functions of a prefix."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater.errors import (
    ConflictError,
    CorruptTableError,
    ErrorKind,
    FencedError,
    HeadwaterError,
    NotFoundError,
    UnsupportedError,
)
from headwater.format.timeline.records import encode_record
from headwater.kernel.layout import TableLayout
from headwater.kernel.timeline.active import parse_timeline
from headwater.kernel.txn.attempts import Attempt, Purpose
from headwater.kernel.txn.events import (
    AttemptStarted,
    Completed,
    Delete,
    Requested,
    RolledBack,
    writes_of,
)
from headwater.kernel.txn.markers import Marker, MarkerKind
from headwater.kernel.txn.prefix import Prefix, SeenAttempt
from headwater.kernel.txn.rollback_plan import (
    decode_rollback_plan,
    listed_paths,
    plan_deletions,
    rollback_metadata,
    rollback_plan,
    target_of,
)
from headwater.kernel.txn.rollback_steps import (
    AlreadyScheduled,
    CompleteRollback,
    DropRollback,
    ScheduleRollback,
)
from headwater.kernel.txn.steps import Claim, Ended, Started
from headwater.kernel.txn.transaction import Decision, Refusal, Step
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.seams.ids import Owner

T = InstantTime("20260101000000000")
R = InstantTime("20260101000000001")
NEXT = InstantTime("20260101000000100")
CLAIM = Claim(owner=Owner("host", 1, "w"), token="mine", interval_ms=10, tolerable_misses=2)
OTHER = replace(CLAIM, owner=Owner("host", 2, "other"), token="theirs")

FILE = f"city=sf/fg-0_0-1-0_{T}.parquet"
LOG = f"city=ny/.fg-0_{T}.log.1_0-1-0"
REQUESTS = plan_deletions(
    T, [Marker(FILE, MarkerKind.CREATE), Marker(LOG, MarkerKind.CREATE)], "s3://bucket/trips"
)
PLAN = encode_record(rollback_plan(Instant(T, Action.COMMIT, State.INFLIGHT), REQUESTS))
SCHEDULE = ScheduleRollback(T, REQUESTS, CLAIM)

WRITE = (f"{T}.commit.requested", f"{T}.inflight")
COMPLETED = (*WRITE, f"{T}_{R}.commit")
ROLLBACK = (f"{R}.rollback.requested", f"{R}.rollback.inflight")


def prefix(*names: str, newest: Attempt | None = None, is_active: bool = False) -> Prefix:
    numbers = {T: 0, R: 0}
    seen = {}
    if newest is not None:
        numbers[newest.instant] = newest.attempt
        seen[newest.instant] = SeenAttempt(attempt=newest, is_active=is_active)
    return Prefix(
        timeline=parse_timeline(names),
        next_time=NEXT,
        now_ms=5,
        monotonic_ms=7,
        newest_attempt_numbers=numbers,
        newest_attempts=seen,
        requests={R: PLAN},
    )


def attempt(number: int, time: InstantTime = T, purpose: Purpose = Purpose.WRITE) -> Attempt:
    return OTHER.attempt(time, number, purpose, now_ms=3)


def refusal(step: Step[object], at: Prefix) -> HeadwaterError:
    decided = step.decide(at)
    assert isinstance(decided, Refusal)
    return decided.error


# Scheduling ------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [WRITE, WRITE[:1]], ids=["inflight", "requested"])
def test_a_failed_write_is_fenced_before_its_rollback_is_requested(names: tuple[str, ...]) -> None:
    decided = SCHEDULE.decide(prefix(*names, newest=attempt(3)))
    assert isinstance(decided, Decision)
    fence, claim, requested = decided.events
    assert isinstance(fence, AttemptStarted)
    assert (fence.attempt.instant, fence.attempt.attempt) == (T, 4)
    assert fence.attempt.purpose is Purpose.ROLLBACK
    # Nobody has to wait for its heartbeat if this process dies right after.
    assert fence.attempt.is_released
    assert isinstance(claim, AttemptStarted)
    assert (claim.attempt.instant, claim.attempt.attempt) == (NEXT, 1)
    assert not claim.attempt.is_released
    assert requested == Requested(NEXT, Action.ROLLBACK, PLAN)
    started = decided.result
    assert isinstance(started, Started)
    assert started.instant == Instant(NEXT, Action.ROLLBACK, State.REQUESTED)
    assert started.attempt == claim.attempt


def test_5_2_d1_a_write_whose_heartbeat_is_active_is_left_alone() -> None:
    error = refusal(SCHEDULE, prefix(*WRITE, newest=attempt(1), is_active=True))
    assert isinstance(error, ConflictError)
    assert error.kind is ErrorKind.ALREADY_RUNNING
    assert str(OTHER.owner) in str(error)
    assert "started at 3 ms" in str(error)
    assert error.context["attempt"] == 1


def test_inv_28_a_completed_write_is_handed_back() -> None:
    decided = SCHEDULE.decide(prefix(*COMPLETED, newest=attempt(1)))
    assert decided == Decision((), Ended(Instant(T, Action.COMMIT, State.COMPLETED, R)))


def test_inv_29_a_pending_rollback_is_taken_up_and_not_doubled() -> None:
    for names in (WRITE, WRITE[1:], ()):  # Whatever is left of its target.
        decided = SCHEDULE.decide(prefix(*names, ROLLBACK[0], newest=attempt(2)))
        rollback = Instant(R, Action.ROLLBACK, State.REQUESTED)
        assert decided == Decision((), AlreadyScheduled(rollback))


def test_a_rollback_of_another_write_changes_nothing() -> None:
    later = InstantTime("20260101000000050")
    step = ScheduleRollback(later, (), CLAIM)
    at = prefix(f"{later}.commit.requested", *ROLLBACK, newest=attempt(1, later))
    assert isinstance(step.decide(at), Decision)
    assert step.needs(at.timeline).requests == (Instant(R, Action.ROLLBACK, State.INFLIGHT),)


def test_what_is_not_there_cannot_be_rolled_back() -> None:
    error = refusal(SCHEDULE, prefix())
    assert isinstance(error, NotFoundError)
    assert error.kind is ErrorKind.INSTANT_NOT_FOUND


@pytest.mark.parametrize("action", [Action.COMPACTION, Action.CLUSTERING, Action.LOG_COMPACTION])
def test_inv_28_plans_of_services_are_never_rolled_back(action: Action) -> None:
    error = refusal(SCHEDULE, prefix(f"{T}.{action}.requested", newest=attempt(1)))
    assert isinstance(error, UnsupportedError)
    assert "execute it instead" in str(error)


def test_h_21_a_write_without_attempts_is_another_engines() -> None:
    error = refusal(SCHEDULE, prefix(*WRITE))
    assert isinstance(error, UnsupportedError)
    assert "another engine" in str(error)


# Completing ------------------------------------------------------------------------------------


def test_the_write_leaves_the_timeline_before_its_rollback_completes() -> None:
    mine = attempt(1, R)
    step = CompleteRollback(mine, b"metadata", T)
    decided = step.decide(prefix(*WRITE, *ROLLBACK, newest=mine))
    assert isinstance(decided, Decision)
    assert decided.events == (
        RolledBack(T, Action.COMMIT),
        Completed(R, Action.ROLLBACK, NEXT, b"metadata"),
    )
    assert decided.result == Instant(R, Action.ROLLBACK, State.COMPLETED, NEXT)


def test_inv_01_the_request_of_a_write_goes_before_its_inflight_file() -> None:
    writes = list(writes_of([RolledBack(T, Action.COMMIT)], TableLayout()))
    folder = TableLayout().timeline
    assert writes == [Delete(f"{folder}/{WRITE[0]}"), Delete(f"{folder}/{WRITE[1]}")]


def test_a_rollback_whose_target_is_gone_still_completes() -> None:
    mine = attempt(2, R)
    decided = CompleteRollback(mine, b"metadata", T).decide(prefix(*ROLLBACK, newest=mine))
    assert isinstance(decided, Decision)
    assert decided.events == (Completed(R, Action.ROLLBACK, NEXT, b"metadata"),)


def test_inv_22_only_the_newest_attempt_completes_a_rollback() -> None:
    step = CompleteRollback(attempt(1, R), b"", T)
    assert isinstance(refusal(step, prefix(*WRITE, *ROLLBACK, newest=attempt(2, R))), FencedError)
    done = (*ROLLBACK, f"{R}_{NEXT}.rollback")
    assert isinstance(refusal(step, prefix(*done, newest=attempt(1, R))), FencedError)


@pytest.mark.parametrize(
    "names", [COMPLETED, (f"{T}.compaction.requested",)], ids=["completed", "plan"]
)
def test_a_plan_of_another_engine_that_we_do_not_execute(names: tuple[str, ...]) -> None:
    mine = attempt(1, R)
    error = refusal(CompleteRollback(mine, b"", T), prefix(*names, *ROLLBACK, newest=mine))
    assert isinstance(error, UnsupportedError)


# Dropping --------------------------------------------------------------------------------------


SAVED = (f"{T}.savepoint.inflight", f"{T}_{R[:-1]}2.savepoint")


@pytest.mark.parametrize(
    ("names", "newest", "is_dropped"),
    [
        ((*COMPLETED, *SAVED, *ROLLBACK), None, True),
        ((*COMPLETED, *SAVED, ROLLBACK[0]), None, True),
        ((*COMPLETED, *ROLLBACK), None, False),
        ((*COMPLETED, SAVED[0], *ROLLBACK), None, False),
        # Its completed file is the first that Hudi takes away: it executes it.
        ((*WRITE, *SAVED, *ROLLBACK), None, False),
        ((*SAVED, *ROLLBACK), None, False),
        ((*COMPLETED, *SAVED, *ROLLBACK), attempt(1, R), False),
        ((*COMPLETED, *SAVED, *ROLLBACK, f"{R}_{NEXT}.rollback"), None, False),
        ((*COMPLETED, *SAVED), None, False),
    ],
    ids=["saved", "requested", "not saved", "being saved", "begun", "gone", "ours", "done", "away"],
)
def test_n_195_what_nobody_may_execute_is_dropped(
    names: tuple[str, ...], newest: Attempt | None, is_dropped: bool
) -> None:
    decided = DropRollback(R).decide(prefix(*names, newest=newest))
    assert decided.result is is_dropped
    assert decided.events == ((RolledBack(R, Action.ROLLBACK),) if is_dropped else ())


# Records ---------------------------------------------------------------------------------------


def test_a_plan_names_every_announced_file_once_and_in_order() -> None:
    plan = decode_rollback_plan(PLAN, path="")
    assert target_of(plan) == T
    assert listed_paths(plan) == [LOG, FILE]
    twice = [Marker(FILE, MarkerKind.CREATE), Marker(FILE, MarkerKind.MERGE)]
    assert plan_deletions(T, twice, "s3://bucket/trips") == REQUESTS[1:]


def test_a_plan_is_executed_where_the_table_is_now() -> None:
    moved = plan_deletions(T, [Marker(FILE, MarkerKind.CREATE)], "file:/elsewhere/trips")
    plan = rollback_plan(Instant(T, Action.COMMIT, State.INFLIGHT), moved)
    assert listed_paths(plan) == [FILE]


@pytest.mark.parametrize(
    "path",
    [f"city=sf/fg-0_0-1-0_{R}.parquet", "city=sf/.hoodie_partition_metadata", "notes.txt"],
)
def test_inv_27_nothing_but_data_files_of_the_write_is_ever_listed(path: str) -> None:
    with pytest.raises(CorruptTableError) as raised:
        plan_deletions(T, [Marker(path, MarkerKind.CREATE)], "s3://bucket/trips")
    assert raised.value.kind is ErrorKind.CORRUPT_MARKERS
    request = replace(REQUESTS[0], partition_path="", files_to_be_deleted=(f"/trips/{path}",))
    plan = rollback_plan(Instant(T, Action.COMMIT, State.INFLIGHT), (request,))
    with pytest.raises(CorruptTableError):
        listed_paths(plan)


def test_a_plan_without_a_target_is_damaged() -> None:
    plan = replace(decode_rollback_plan(PLAN, path=""), instant_to_rollback=None)
    with pytest.raises(CorruptTableError, match="what to roll back"):
        decode_rollback_plan(encode_record(plan), path="the.plan")


def test_inv_30_metadata_depends_on_the_plan_alone() -> None:
    plan = decode_rollback_plan(PLAN, path="")
    metadata = rollback_metadata(plan, R, 12)
    assert metadata.total_files_deleted == 2
    assert metadata.commits_rollback == (T,)
    assert {
        partition: done.success_delete_files
        for partition, done in metadata.partition_metadata.items()
    } == {
        "city=ny": (f"s3://bucket/trips/{LOG}",),
        "city=sf": (f"s3://bucket/trips/{FILE}",),
    }
