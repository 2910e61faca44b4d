"""Putting a plan on the timeline.

    RequestPlan     of a compaction, log compaction or clustering, made under the same lock
    RequestClean    of a clean, made before it

A plan of the first kind is made and requested under one lock, so that it lists exactly what had
completed before its own time (INV-45), and no second plan is made from the same state. What it
needs is best read before as well: `make` then finds nearly everything in its caches, and the lock
is held for a listing.

What a crash leaves behind, by the last write that landed:

    after      who repairs
    attempt    nobody needs to: the time is used up, no instant exists
    request    whoever executes the plan, once the heartbeat of the attempt has lapsed
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from headwater.errors import ConflictError, ErrorKind
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.txn.attempts import Purpose
from headwater.kernel.txn.events import AttemptStarted, Requested
from headwater.kernel.txn.prefix import Needs, Prefix
from headwater.kernel.txn.rollback_plan import decode_rollback_plan, pending_rollbacks, target_of
from headwater.kernel.txn.steps import Claim, Started
from headwater.kernel.txn.transaction import Decision, Refusal, Step, Transaction
from headwater.model.instant import Action, Instant, InstantTime, State

R = TypeVar("R")

_FENCES = (Action.CLEAN, Action.ROLLBACK, Action.RESTORE)
_REWRITING = (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING)

_TIMES_TRIED_MAX = 5
"""A time can be taken only when a lock failed or a clock repeats a time whose owner died right
after claiming it; each retry asks for a later one."""


@dataclass(frozen=True, slots=True)
class RequestPlan:
    """Request a plan under a time that is later than all it was made from.

    The time is claimed first, as it is for a write: a writer may have died over the same one. The
    claim is the first attempt; it is the caller's to execute, or else released at once.

    What a pending restore or rollback is about to take back is still in the view that a plan is
    made from, and the rewritten files would bring it back for good. So no file group is planned to
    be rewritten until that has ended (N-60).
    """

    action: Action
    content: bytes
    claim: Claim
    is_executed_later: bool = False

    def needs(self, timeline: Timeline) -> Needs:
        if self.action not in _REWRITING:
            return Needs()
        return Needs(requests=pending_rollbacks(timeline))

    def decide(self, prefix: Prefix) -> Decision[Started] | Refusal:
        if self.action in _REWRITING and (undoing := _undoing(prefix)) is not None:
            return Refusal(
                ConflictError(
                    f"{undoing} is taking back commits that a {self.action} would take in. Nothing "
                    "was planned; try again when it has ended. If its process died, `clean` "
                    "finishes it",
                    kind=ErrorKind.ALREADY_RUNNING,
                    instant=undoing.requested_time,
                )
            )
        return requested_plan(
            self.action, self.content, self.claim, prefix, is_released=self.is_executed_later
        )


@dataclass(frozen=True, slots=True)
class RequestClean:
    """Request a clean that was planned before the lock was taken; None if it is outdated.

    Nothing but another clean, a savepoint, a rollback or a restore can make a planned file needed.
    """

    content: bytes
    planned_on: Timeline
    claim: Claim

    def needs(self, timeline: Timeline) -> Needs:
        return Needs()

    def decide(self, prefix: Prefix) -> Decision[Started | None]:
        now, before = prefix.timeline, self.planned_on
        if now.savepoints != before.savepoints or not _fences(now) <= _fences(before):
            return Decision((), None)
        return requested_plan(Action.CLEAN, self.content, self.claim, prefix)


def _fences(timeline: Timeline) -> set[InstantTime]:
    """Return the instants after which a plan of a clean may delete too much, or twice."""
    return {i.requested_time for i in timeline.instants if i.action in _FENCES}


def requested_plan(
    action: Action, content: bytes, claim: Claim, prefix: Prefix, *, is_released: bool = False
) -> Decision[Started]:
    """Claim the next time and request a plan under it."""
    time = prefix.next_time
    attempt = claim.attempt(time, 1, Purpose.EXECUTE, prefix.now_ms)
    attempt = replace(attempt, is_released=is_released)
    return Decision(
        (AttemptStarted(attempt), Requested(time, action, content)),
        Started(attempt, Instant(time, action, State.REQUESTED), prefix.monotonic_ms),
    )


def _undoing(prefix: Prefix) -> Instant | None:
    """Return a pending restore, or a rollback of what is completed as long as it is pending."""
    timeline = prefix.timeline
    restore = next((i for i in timeline.pending if i.action is Action.RESTORE), None)
    if restore is not None:
        return restore
    for rollback in pending_rollbacks(timeline):
        plan = decode_rollback_plan(prefix.requests[rollback.requested_time], path=str(rollback))
        target = timeline.find(target_of(plan))
        if target is not None and target.is_completed:
            return rollback
    return None


def schedule_plan(
    txn: Transaction,
    action: Action,
    make: Callable[[], bytes | None],
    claim: Callable[[], Claim],
    *,
    is_executed_later: bool = False,
) -> Started | None:
    """Make a plan under the lock and request it; None if there is nothing to do.

    Args:
        make: reads the table as it is now, and returns the content of the requested file.
        claim: makes a new claim for each try.

    Raises:
        ConflictError: the lock was not to be had in time; kind ALREADY_RUNNING, commits are being
            taken back.
        HeadwaterError: whatever `make` raised; nothing was written.
    """

    def plan() -> Started | None:
        content = make()
        if content is None:
            return None
        return run_claiming(txn, lambda: RequestPlan(action, content, claim(), is_executed_later))

    # A plan is made of the whole view, which is more than a prefix: the planner reads what it asks
    # for as it goes. Made before the lock it would be outdated by every commit (INV-45), and a busy
    # table would never be compacted. What it may not overlook, the step asks.
    return txn.undisturbed(plan)


def run_claiming(txn: Transaction, step: Callable[[], Step[R]]) -> R:
    """Run a step that claims the next time, again with a new claim if that time is taken.

    Raises:
        ConflictError: the lock was not to be had in time, or all times that were tried are taken.
        HeadwaterError: whatever the step refused with; nothing was written.
    """
    tried = 0
    while True:
        try:
            return txn.run(step()).result
        except ConflictError as conflict:
            tried += 1
            if conflict.kind is not conflict.default_kind or tried == _TIMES_TRIED_MAX:
                raise
