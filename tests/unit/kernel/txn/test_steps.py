"""The protocol steps as pure functions of a prefix."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater.errors import ConflictError, ErrorKind, FencedError, HeadwaterError, NotFoundError
from headwater.kernel.layout import TableLayout, attempt_path, heartbeat_path
from headwater.kernel.timeline.active import parse_timeline
from headwater.kernel.txn.attempts import Attempt, Purpose
from headwater.kernel.txn.events import (
    AttemptStarted,
    Completed,
    PutOnce,
    Requested,
    RevertedToRequested,
    Together,
    WentInflight,
    writes_of,
)
from headwater.kernel.txn.prefix import Prefix, SeenAttempt
from headwater.kernel.txn.steps import (
    Claim,
    Complete,
    Ended,
    EnterInflight,
    RevertToRequested,
    Started,
    StartExecution,
    StartWrite,
)
from headwater.kernel.txn.transaction import Decision, Refusal, Step
from headwater.model.instant import Action, InstantTime, State
from headwater.seams.ids import Owner

PLAN = InstantTime("20260101000000000")
WRITE = InstantTime("20260101000000001")
NEXT = InstantTime("20260101000000100")
CLAIM = Claim(owner=Owner("host", 1, "w"), token="mine", interval_ms=10, tolerable_misses=2)
OTHER = replace(CLAIM, owner=Owner("host", 2, "other"), token="theirs")


def attempt(number: int, time: InstantTime = PLAN, claim: Claim = CLAIM) -> Attempt:
    return claim.attempt(time, number, Purpose.EXECUTE, now_ms=5)


def prefix(*names: str, newest: Attempt | None = None, is_active: bool = False) -> Prefix:
    numbers = {PLAN: 0, WRITE: 0}
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
    )


REQUESTED = (f"{PLAN}.compaction.requested",)
INFLIGHT = (*REQUESTED, f"{PLAN}.compaction.inflight")
COMPLETED = (*INFLIGHT, f"{PLAN}_{WRITE}.commit")
ABORTED = (f"{PLAN}.clustering.requested", f"{PLAN}.clustering.aborted")


def refusal(step: Step[object], at: Prefix) -> HeadwaterError:
    decided = step.decide(at)
    assert isinstance(decided, Refusal)
    return decided.error


def test_start_write_claims_the_time_before_it_requests_the_instant() -> None:
    decided = StartWrite(Action.DELTA_COMMIT, CLAIM).decide(prefix())
    assert isinstance(decided, Decision)
    claimed, requested = decided.events
    assert isinstance(claimed, AttemptStarted)
    assert (claimed.attempt.instant, claimed.attempt.attempt) == (NEXT, 1)
    assert requested == Requested(NEXT, Action.DELTA_COMMIT)


def test_start_write_may_go_inflight_at_once() -> None:
    step = StartWrite(Action.COMMIT, CLAIM, inflight_content=b"profile")
    decided = step.decide(prefix())
    assert isinstance(decided, Decision)
    assert decided.events[1:] == (
        Requested(NEXT, Action.COMMIT),
        WentInflight(NEXT, Action.COMMIT, b"profile"),
    )
    assert decided.result.instant.state is State.INFLIGHT


@pytest.mark.parametrize(
    ("claim", "is_active", "is_single_writer", "is_refused"),
    [
        (OTHER, True, True, True),
        (OTHER, False, True, False),
        (CLAIM, True, True, False),
        (OTHER, True, False, False),
    ],
    ids=["another live writer", "a dead one", "this very writer", "multi-writer mode"],
)
def test_single_writer_mode_refuses_a_second_live_writer(
    claim: Claim, is_active: bool, is_single_writer: bool, is_refused: bool
) -> None:
    step = StartWrite(Action.COMMIT, CLAIM, is_single_writer)
    at = prefix(f"{WRITE}.commit.requested", newest=attempt(1, WRITE, claim), is_active=is_active)
    assert step.needs(at.timeline).attempts == ((WRITE,) if is_single_writer else ())
    if not is_refused:
        assert isinstance(step.decide(at), Decision)
        return
    error = refusal(step, at)
    assert isinstance(error, ConflictError)
    assert error.kind is ErrorKind.LIVE_WRITER
    assert "host/2/other" in str(error)
    assert WRITE in str(error)


@pytest.mark.parametrize("names", [COMPLETED, ABORTED])
def test_inv_24_an_ended_plan_is_handed_back(names: tuple[str, ...]) -> None:
    at = prefix(*names, newest=attempt(1))
    decided = StartExecution(PLAN, Purpose.EXECUTE, CLAIM).decide(at)
    assert isinstance(decided, Decision)
    assert decided.events == ()
    assert isinstance(decided.result, Ended)


def test_inv_20_a_live_attempt_refuses_executor_aborter_and_rollback_alike() -> None:
    at = prefix(*INFLIGHT, newest=attempt(3, claim=OTHER), is_active=True)
    for purpose in (Purpose.EXECUTE, Purpose.ABORT, Purpose.ROLLBACK):
        error = refusal(StartExecution(PLAN, purpose, CLAIM), at)
        assert error.kind is ErrorKind.ALREADY_RUNNING
        assert "host/2/other" in str(error)
        assert "attempt 3" in str(error)


@pytest.mark.parametrize("names", [REQUESTED, INFLIGHT])
@pytest.mark.parametrize("newest", [None, 1, 41])
def test_inv_19_the_next_attempt_is_one_above_the_newest(
    names: tuple[str, ...], newest: int | None
) -> None:
    at = prefix(*names, newest=None if newest is None else attempt(newest, claim=OTHER))
    decided = StartExecution(PLAN, Purpose.EXECUTE, CLAIM).decide(at)
    assert isinstance(decided, Decision)
    assert isinstance(decided.result, Started)
    assert decided.result.attempt.attempt == (newest or 0) + 1
    assert decided.result.claimed_ms == 7
    assert decided.result.attempt.token == "mine"


def test_an_attempt_whose_owner_just_deleted_it_still_counts() -> None:
    at = replace(prefix(*REQUESTED), newest_attempt_numbers={PLAN: 2})
    decided = StartExecution(PLAN, Purpose.EXECUTE, CLAIM).decide(at)
    assert isinstance(decided, Decision)
    assert isinstance(decided.result, Started)
    assert decided.result.attempt.attempt == 3


def test_executing_an_unknown_instant_is_refused() -> None:
    error = refusal(StartExecution(PLAN, Purpose.EXECUTE, CLAIM), prefix())
    assert isinstance(error, NotFoundError)
    assert error.kind is ErrorKind.INSTANT_NOT_FOUND


LATER_STEPS: list[Step[object]] = [
    RevertToRequested(attempt(2)),
    EnterInflight(attempt(2)),
    Complete(attempt(2), b"content"),
]


@pytest.mark.parametrize("step", LATER_STEPS, ids=lambda step: type(step).__name__)
def test_inv_22_a_superseded_attempt_writes_nothing(step: Step[object]) -> None:
    error = refusal(step, prefix(*INFLIGHT, newest=attempt(3, claim=OTHER)))
    assert isinstance(error, FencedError)
    assert error.kind is ErrorKind.ATTEMPT_SUPERSEDED


@pytest.mark.parametrize("step", LATER_STEPS, ids=lambda step: type(step).__name__)
@pytest.mark.parametrize("names", [COMPLETED, ABORTED])
def test_inv_02_nothing_follows_a_terminal_state(
    step: Step[object], names: tuple[str, ...]
) -> None:
    assert isinstance(refusal(step, prefix(*names, newest=attempt(2))), FencedError)


@pytest.mark.parametrize("step", LATER_STEPS, ids=lambda step: type(step).__name__)
def test_inv_04_nothing_is_created_for_an_instant_that_is_gone(step: Step[object]) -> None:
    assert isinstance(refusal(step, prefix(newest=attempt(2))), FencedError)


def test_the_newest_attempt_reverts_enters_and_completes() -> None:
    mine = attempt(2)
    reverted = RevertToRequested(mine).decide(prefix(*INFLIGHT, newest=mine))
    assert reverted == Decision((RevertedToRequested(PLAN, Action.COMPACTION),), None)
    assert RevertToRequested(mine).decide(prefix(*REQUESTED, newest=mine)) == Decision((), None)
    entered = EnterInflight(mine, b"profile").decide(prefix(*REQUESTED, newest=mine))
    assert entered == Decision((WentInflight(PLAN, Action.COMPACTION, b"profile"),), None)
    done = Complete(mine, b"content").decide(prefix(*INFLIGHT, newest=mine))
    assert isinstance(done, Decision)
    assert done.events == (Completed(PLAN, Action.COMPACTION, NEXT, b"content"),)
    assert done.result.state is State.COMPLETED
    assert done.result.completion_time == NEXT


@pytest.mark.parametrize("content", [None, b"profile"], ids=["requested", "inflight at once"])
def test_inv_111_the_plain_heartbeat_is_written_before_the_instant(content: bytes | None) -> None:
    decided = StartWrite(Action.COMMIT, CLAIM, inflight_content=content).decide(prefix())
    assert isinstance(decided, Decision)
    claim, *begun = writes_of(decided.events, TableLayout())
    assert isinstance(claim, Together)
    assert [put.path for put in claim.puts] == [attempt_path(NEXT, 1), heartbeat_path(NEXT)]
    assert len(begun) == 1


def test_a_fence_has_no_heartbeat() -> None:
    fence = AttemptStarted(replace(attempt(2), is_released=True))
    (write,) = writes_of((fence,), TableLayout())
    assert isinstance(write, PutOnce)


@pytest.mark.parametrize(
    ("newest", "said"),
    [(attempt(1, WRITE), "a restore or by another engine"), (None, "after its heartbeat lapsed")],
    ids=["by another engine", "by Headwater"],
)
def test_n_101_a_writer_whose_instant_is_gone_says_who_took_it(
    newest: Attempt | None, said: str
) -> None:
    error = refusal(Complete(attempt(1, WRITE), b""), prefix(newest=newest))
    assert isinstance(error, FencedError)
    assert error.kind is ErrorKind.ATTEMPT_SUPERSEDED
    assert said in str(error)
