"""The steps of a rollback, as pure decisions; `rollback` runs them.

    ScheduleRollback    declare a failed write dead for good, and say what will be deleted
    CompleteRollback    take the write off the timeline, and complete its rollback
    DropRollback        end one that another engine requested and may not execute

T is the failed write and R its rollback. A removable plan that failed, or that nobody has begun to
execute for long enough, is rolled back like a write and leaves the timeline with it (INV-28).

Scheduling writes three objects, in this order:

1. the next attempt of T, released at once: it is there to make all earlier ones dead (M2). From
   here on the writer of T fails its proof, however late it wakes up (INV-31). A write of another
   engine has no attempts, and gets none;
2. the first attempt of R, which claims the time R as it does for a write, and whose heartbeat
   guards the execution that follows;
3. the request of R: the plan, which names every file to delete (M6).

Nobody needs to hold an attempt of T any longer, since a pending R is found by its target and
everybody who comes takes it up (INV-29).

Completing takes T off the metadata table's timeline if it came that far, deletes the request and
the inflight file of T, then creates the completed file of R. So as long as anything of T is on a
timeline, R is pending and somebody comes back for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headwater.errors import ConflictError, ErrorKind, HeadwaterError, UnsupportedError
from headwater.format.timeline.records import encode_record
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.txn.attempts import Attempt, Purpose
from headwater.kernel.txn.events import AttemptStarted, Completed, Event, Requested, RolledBack
from headwater.kernel.txn.foreign import ForeignRule
from headwater.kernel.txn.metadata_commit import MetadataCommit
from headwater.kernel.txn.plan_flags import FLAGGED, decode_flags, flagged_plan
from headwater.kernel.txn.prefix import Needs, Prefix
from headwater.kernel.txn.rollback_plan import (
    decode_rollback_plan,
    pending_rollbacks,
    rollback_plan,
    target_of,
)
from headwater.kernel.txn.steps import (
    Claim,
    Ended,
    Started,
    StartExecution,
    metadata_withdrawn,
    pending_ingestion,
    pending_instant_of,
)
from headwater.kernel.txn.transaction import Decision, Refusal
from headwater.model.instant import Action, Instant, InstantTime, State, instant_time_after
from headwater.model.plans import RollbackRequest


@dataclass(frozen=True, slots=True)
class AlreadyScheduled:
    """A rollback of the same write is pending; there is never a second one."""

    rollback: Instant


@dataclass(frozen=True, slots=True)
class ScheduleRollback:
    """Fence a failed write and request its rollback, unless somebody is at work on it.

    Only ingestion and removable plans are rolled back this way, and never what has completed
    (INV-28). `delay_ms` is how old a removable plan must be that nobody has begun to execute.
    `foreign` says when a write of another engine is dead; without it none is rolled back. Such a
    write has no attempts that could be fenced: its engine goes by its own heartbeat (INV-112).
    """

    target: InstantTime
    requests: tuple[RollbackRequest, ...]
    claim: Claim
    delay_ms: int = 0
    foreign: ForeignRule | None = None

    def needs(self, timeline: Timeline) -> Needs:
        plans = flagged_plan(timeline, self.target)
        writes = (i for i in pending_ingestion(timeline) if i.requested_time == self.target)
        return Needs(
            attempts=(self.target,),
            requests=(*pending_rollbacks(timeline), *plans),
            silence=() if self.foreign is None else tuple(writes),
        )

    def decide(self, prefix: Prefix) -> Decision[Started | Ended | AlreadyScheduled] | Refusal:
        rollback = self._pending_rollback(prefix)
        if rollback is not None:
            return Decision((), AlreadyScheduled(rollback))
        target = prefix.timeline.find(self.target)
        if target is not None and target.is_pending:
            error = self._why_plan_stays(target, prefix)
            if error is not None:
                return Refusal(error)
            if not prefix.newest_attempt_numbers[self.target]:
                return self._decide_on_foreign(target, prefix)
        fence = StartExecution(self.target, Purpose.ROLLBACK, self.claim).decide(prefix)
        if isinstance(fence, Refusal):
            return fence
        if isinstance(fence.result, Ended):
            return Decision((), fence.result)
        fenced = AttemptStarted(replace(fence.result.attempt, is_released=True))
        return self._schedule(prefix, fence.result.instant, fenced)

    def _decide_on_foreign(self, target: Instant, prefix: Prefix) -> Decision[Started] | Refusal:
        if self.foreign is None or not target.action.is_ingestion:
            return Refusal(_is_foreign(target))
        error = self.foreign.why_alive(target, prefix.silence[self.target])
        return self._schedule(prefix, target) if error is None else Refusal(error)

    def _schedule(
        self, prefix: Prefix, target: Instant, *fences: AttemptStarted
    ) -> Decision[Started]:
        time = prefix.next_time
        attempt = self.claim.attempt(time, 1, Purpose.EXECUTE, prefix.now_ms)
        plan = encode_record(rollback_plan(target, self.requests))
        events: tuple[Event, ...] = (
            *fences,
            AttemptStarted(attempt),
            Requested(time, Action.ROLLBACK, plan),
        )
        requested = Instant(time, Action.ROLLBACK, State.REQUESTED)
        return Decision(events, Started(attempt, requested, prefix.monotonic_ms))

    def _why_plan_stays(self, target: Instant, prefix: Prefix) -> HeadwaterError | None:
        if target.action.is_ingestion:
            return None
        request = prefix.requests.get(self.target)
        if request is None or not decode_flags(target, request, path=str(target)).is_removable:
            return _is_a_plan(target)
        # The delay protects what was not begun; who began has a heartbeat (H-23), and may have
        # failed before the plan went inflight (N-131).
        seen = prefix.newest_attempts.get(self.target)
        is_begun = target.state is State.INFLIGHT or (seen is not None and seen.attempt.was_begun)
        is_due = instant_time_after(self.target, self.delay_ms) <= prefix.next_time
        if is_begun or is_due:
            return None
        return ConflictError(
            f"{target} is younger than {self.delay_ms} ms and may still be executed, so it is not "
            "rolled back. Nothing was changed; try again later",
            kind=ErrorKind.PLAN_TOO_YOUNG,
            instant=self.target,
        )

    def _pending_rollback(self, prefix: Prefix) -> Instant | None:
        for rollback in pending_rollbacks(prefix.timeline):
            data = prefix.requests[rollback.requested_time]
            if target_of(decode_rollback_plan(data, path=str(rollback))) == self.target:
                return rollback
        return None


@dataclass(frozen=True, slots=True)
class CompleteRollback:
    """Take the target off the timeline and complete the rollback, in this order."""

    attempt: Attempt
    content: bytes
    target: InstantTime
    metadata: MetadataCommit | None = None

    def needs(self, timeline: Timeline) -> Needs:
        return Needs(
            attempt_numbers=(self.attempt.instant,),
            metadata_names=(self.target,),
        )

    def decide(self, prefix: Prefix) -> Decision[Instant] | Refusal:
        found = pending_instant_of(self.attempt, prefix)
        if isinstance(found, Refusal):
            return found
        error = check_target(prefix.timeline, self.target, found)
        if error is not None:
            return Refusal(error)
        events: list[Event] = [*metadata_withdrawn(self.target, prefix)]
        target = prefix.timeline.find(self.target)
        if target is not None:
            events.append(RolledBack(target.requested_time, target.action))
        events.append(Completed(found.requested_time, found.action, prefix.next_time, self.content))
        done = found._replace(state=State.COMPLETED, completion_time=prefix.next_time)
        return Decision(tuple(events), done)


@dataclass(frozen=True, slots=True)
class DropRollback:
    """Take a rollback off the timeline that another engine requested and may not execute.

    Hudi requests the rollback of a commit, and only then looks whether the commit has a savepoint.
    It leaves what it requested, and every write waits for that to end (N-195). Nothing was taken
    back yet, for the completed file of a commit is the first that Hudi deletes; should it do so all
    the same, the commit is a write that failed.
    """

    rollback: InstantTime

    def needs(self, timeline: Timeline) -> Needs:
        return Needs(attempt_numbers=(self.rollback,), requests=self._found(timeline))

    def decide(self, prefix: Prefix) -> Decision[bool]:
        for found in self._found(prefix.timeline):
            plan = decode_rollback_plan(prefix.requests[self.rollback], path=str(found))
            is_ours = prefix.newest_attempt_numbers[self.rollback] > 0
            if not is_ours and is_protected(prefix.timeline, target_of(plan)):
                return Decision((RolledBack(found.requested_time, found.action),), True)
        return Decision((), False)

    def _found(self, timeline: Timeline) -> tuple[Instant, ...]:
        return tuple(i for i in pending_rollbacks(timeline) if i.requested_time == self.rollback)


def is_protected(timeline: Timeline, time: InstantTime) -> bool:
    """Whether an instant has completed and has a savepoint, so that nobody may roll it back."""
    found = timeline.find(time)
    return (
        found is not None
        and found.is_completed
        and any(p.requested_time == time and p.is_completed for p in timeline.savepoints)
    )


def check_target(timeline: Timeline, time: InstantTime, rollback: Instant) -> HeadwaterError | None:
    """Return why the target of a pending rollback must not be touched, or None.

    Ours are failed writes that can never complete. Another engine may have scheduled the rollback
    of something else.
    """
    target = timeline.find(time)
    if target is None:
        return None
    if not target.is_pending:
        return UnsupportedError(
            f"Rollback {rollback.requested_time} is to take back {target}, which has completed, "
            "and was not scheduled by Headwater. Finish it with the engine that scheduled it",
            instant=time,
        )
    # Whether a plan is removable was seen when its rollback was scheduled, which is ours.
    is_removed = target.action.is_ingestion or target.action in FLAGGED
    return None if is_removed else _is_a_plan(target)


def _is_a_plan(target: Instant) -> HeadwaterError:
    return UnsupportedError(
        f"{target} is a plan of a table service. A plan stays until it has been executed, and its "
        "next execution undoes the failed ones first; execute it instead",
        kind=ErrorKind.UNSUPPORTED,
        instant=target.requested_time,
    )


def _is_foreign(target: Instant) -> HeadwaterError:
    return UnsupportedError(
        f"No attempt of Headwater stands behind {target}, so another engine is writing it or did. "
        "hoodie.clean.failed.writes.policy=NEVER leaves it to that engine; let it roll the instant "
        "back, or set another policy",
        instant=target.requested_time,
    )
