"""The protocol steps every instant goes through, as pure decisions.

    StartWrite          claim a new instant time, request the instant             (ingestion)
    StartExecution      claim the next attempt of a plan, unless one is alive     (RFC-79's guard)
    RevertToRequested   put a plan back after a dead attempt was undone
    EnterInflight       say that work has begun
    Complete            the commit point
    CancelOverlapped    cancel the plans in the way of a write; see `cancel_steps` for the rest

Three of them act for an attempt that started earlier, and all three begin with the same proof: the
instant is still pending and the attempt is still the newest (`pending_instant_of`). A process that
was taken over while it stalled fails that proof for ever, however late it wakes up.

What a crash leaves behind, by the last write that landed:

    step               after                who repairs
    StartWrite         attempt, heartbeat   nobody needs to: the time is used up, no instant exists;
                                            either may be there alone, and clean sweeps them
                       requested, inflight  clean: rollback once the heartbeat has lapsed; any one
                                            of them may be there alone (N-90)
    StartExecution     attempt, heartbeat   the next execution, once the heartbeat has lapsed; a
                                            plain heartbeat alone says nothing to anybody
    RevertToRequested  inflight deleted     the next execution starts from REQUESTED
    EnterInflight      inflight             ingestion: clean; plan: the next execution
    Complete           cancel entry         clean: rollback of the write; the plan is aborted
                       metadata commit      its rollback, or the next execution of the plan; any of
                                            its three files may be there alone (N-90)
                       completed file       nothing to repair; clean sweeps heartbeat and markers
    CancelOverlapped   cancel entry         whoever aborts the plan: its executor, or clean
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from headwater.errors import ConflictError, ErrorKind, FencedError, HeadwaterError, NotFoundError
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.txn.attempts import Attempt, Purpose
from headwater.kernel.txn.cancel_records import CancelEntry, encode_entry
from headwater.kernel.txn.changes import Change
from headwater.kernel.txn.conflicts import ConflictCheck
from headwater.kernel.txn.events import (
    AttemptStarted,
    CancelRequested,
    Completed,
    Event,
    MetadataCommitted,
    MetadataWithdrawn,
    Requested,
    RevertedToRequested,
    WentInflight,
)
from headwater.kernel.txn.foreign import foreign_expiry_ms, why_executed_elsewhere
from headwater.kernel.txn.metadata_commit import MetadataCommit, indexes_changed
from headwater.kernel.txn.plan_flags import decode_flags, flagged_plan
from headwater.kernel.txn.prefix import Needs, Prefix
from headwater.kernel.txn.rollback_plan import decode_rollback_plan, pending_rollbacks, target_of
from headwater.kernel.txn.transaction import Decision, Refusal
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.seams.ids import Ids, Owner


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Who asks for an attempt, and how it will beat."""

    owner: Owner
    token: str
    interval_ms: int
    tolerable_misses: int

    @classmethod
    def new(cls, ids: Ids, *, interval_ms: int, tolerable_misses: int) -> Self:
        """Return a claim of this process, for one attempt."""
        return cls(
            owner=ids.owner,
            token=ids.new_uuid(),
            interval_ms=interval_ms,
            tolerable_misses=tolerable_misses,
        )

    def attempt(self, time: InstantTime, number: int, purpose: Purpose, now_ms: int) -> Attempt:
        return Attempt(
            instant=time,
            attempt=number,
            token=self.token,
            owner=self.owner,
            purpose=purpose,
            started_ms=now_ms,
            interval_ms=self.interval_ms,
            tolerable_misses=self.tolerable_misses,
        )


@dataclass(frozen=True, slots=True)
class Ended:
    """The instant had reached its end before the caller came: completed or aborted."""

    instant: Instant


@dataclass(frozen=True, slots=True)
class Started:
    """The caller owns `attempt`, claimed not before `claimed_ms`; `instant` is what it found."""

    attempt: Attempt
    instant: Instant
    claimed_ms: int


@dataclass(frozen=True, slots=True)
class StartWrite:
    """Request a new ingestion instant and claim its first attempt.

    The claim comes first: it is put-if-absent on the time itself, so that a time is never given
    out twice even if the lock failed, and the requested file is empty and could not tell its owner.
    """

    action: Action
    claim: Claim
    is_single_writer: bool = False
    inflight_content: bytes | None = None
    """Go inflight in the same transaction, if given: a write without a workload profile to publish
    need not take the lock a second time for it."""

    def needs(self, timeline: Timeline) -> Needs:
        if not self.is_single_writer:
            return Needs()
        return Needs(attempts=tuple(i.requested_time for i in pending_ingestion(timeline)))

    def decide(self, prefix: Prefix) -> Decision[Started] | Refusal:
        if self.is_single_writer and (other := self._live_writer(prefix)) is not None:
            return Refusal(
                ConflictError(
                    f"Another writer is at work on this table: {other} of instant "
                    f"{other.instant}, started at {other.started_ms} ms. Wait for it, or let both "
                    "write: set hoodie.write.concurrency.mode to optimistic_concurrency_control "
                    "or non_blocking_concurrency_control for all writers",
                    kind=ErrorKind.LIVE_WRITER,
                    instant=other.instant,
                    attempt=other.attempt,
                    beat=other.beat,
                )
            )
        time = prefix.next_time
        attempt = self.claim.attempt(time, 1, Purpose.WRITE, prefix.now_ms)
        begun = (AttemptStarted(attempt), Requested(time, self.action))
        if self.inflight_content is None:
            requested = Instant(time, self.action, State.REQUESTED)
            return Decision(begun, Started(attempt, requested, prefix.monotonic_ms))
        inflight = Instant(time, self.action, State.INFLIGHT)
        return Decision(
            (*begun, WentInflight(time, self.action, self.inflight_content)),
            Started(attempt, inflight, prefix.monotonic_ms),
        )

    def _live_writer(self, prefix: Prefix) -> Attempt | None:
        for instant in pending_ingestion(prefix.timeline):
            seen = prefix.newest_attempts.get(instant.requested_time)
            if seen is not None and seen.is_active and seen.attempt.owner != self.claim.owner:
                return seen.attempt
        return None


@dataclass(frozen=True, slots=True)
class StartExecution:
    """RFC-79's guard: at most one live attempt per plan, for executing and undoing it alike.

    Decided on the timeline reloaded inside the transaction (INV-24), so an instant that completed
    meanwhile is handed back and never rolled back. A refusal changes nothing (INV-23).

    Two kinds of plans are not executed at all, only undone: one that is cancelled (H-15), and a
    removable one whose execution has failed or whose rollback is scheduled (INV-26).

    Without `is_guarded` an execution takes over from one that seems alive. That one is fenced like
    any other that was taken over. One of another engine cannot be fenced, and is never taken over
    while it beats (N-153).
    """

    time: InstantTime
    purpose: Purpose
    claim: Claim
    is_guarded: bool = True

    def needs(self, timeline: Timeline) -> Needs:
        if self.purpose is not Purpose.EXECUTE:
            return Needs(attempts=(self.time,))
        plans = flagged_plan(timeline, self.time)
        if not plans:
            return Needs(attempts=(self.time,), beats=(self.time,))
        return Needs(
            attempts=(self.time,),
            beats=(self.time,),
            requests=(*plans, *pending_rollbacks(timeline)),
            cancels=plans[0].action is Action.CLUSTERING,
        )

    def decide(self, prefix: Prefix) -> Decision[Started | Ended] | Refusal:
        instant = prefix.timeline.find(self.time)
        if instant is None:
            return Refusal(no_such_instant(self.time))
        if not instant.is_pending:
            return Decision((), Ended(instant))
        seen = prefix.newest_attempts.get(self.time)
        if seen is not None and seen.is_active and self.is_guarded:
            other = seen.attempt
            return Refusal(
                ConflictError(
                    f"Instant {self.time} is already running: {other}, started at "
                    f"{other.started_ms} ms. Wait for it to finish; if its process died, try again "
                    f"after {other.expiry_ms} ms without a heartbeat",
                    kind=ErrorKind.ALREADY_RUNNING,
                    instant=self.time,
                    owner=str(other.owner),
                    attempt=other.attempt,
                )
            )
        if seen is not None and seen.attempt.purpose is Purpose.WITHDRAW:
            return Refusal(_is_withdrawn(instant))
        if self.purpose is Purpose.EXECUTE:
            error = self._why_not_executed(instant, prefix)
            if error is not None:
                return Refusal(error)
        number = prefix.newest_attempt_numbers[self.time] + 1
        attempt = self.claim.attempt(self.time, number, self.purpose, prefix.now_ms)
        started = Started(attempt, instant, prefix.monotonic_ms)
        return Decision((AttemptStarted(attempt),), started)

    def _why_not_executed(self, instant: Instant, prefix: Prefix) -> HeadwaterError | None:
        beat_ms = prefix.beats.get(self.time)
        if beat_ms is not None:
            expiry_ms = foreign_expiry_ms(
                interval_ms=self.claim.interval_ms, tolerable_misses=self.claim.tolerable_misses
            )
            error = why_executed_elsewhere(instant, beat_ms, expiry_ms)
            if error is not None:
                return error
        if self.time in prefix.cancelled:
            return plan_cancelled(instant)
        request = prefix.requests.get(self.time)
        if request is None or not decode_flags(instant, request, path=str(instant)).is_removable:
            return None
        if instant.state is State.INFLIGHT:
            return not_executable(instant, "was executed before and failed")
        for rollback in pending_rollbacks(prefix.timeline):
            plan = prefix.requests[rollback.requested_time]
            if target_of(decode_rollback_plan(plan, path=str(rollback))) == self.time:
                return not_executable(instant, f"is being rolled back by {rollback}")
        return None


@dataclass(frozen=True, slots=True)
class RevertToRequested:
    """Take back the inflight file of a dead attempt and what it may have said to indexes.

    The plan stays (INV-25).
    """

    attempt: Attempt

    def needs(self, timeline: Timeline) -> Needs:
        time = self.attempt.instant
        return Needs(attempt_numbers=(time,), metadata_names=(time,))

    def decide(self, prefix: Prefix) -> Decision[None] | Refusal:
        found = pending_instant_of(self.attempt, prefix)
        if isinstance(found, Refusal):
            return found
        if found.state is State.REQUESTED:
            return Decision((), None)
        reverted = RevertedToRequested(found.requested_time, found.action)
        return Decision((*metadata_withdrawn(self.attempt.instant, prefix), reverted), None)


@dataclass(frozen=True, slots=True)
class EnterInflight:
    """Say that work on the instant has begun; `content` publishes what it will touch."""

    attempt: Attempt
    content: bytes = b""

    def needs(self, timeline: Timeline) -> Needs:
        return Needs(attempt_numbers=(self.attempt.instant,))

    def decide(self, prefix: Prefix) -> Decision[None] | Refusal:
        found = pending_instant_of(self.attempt, prefix)
        if isinstance(found, Refusal):
            return found
        return Decision((WentInflight(found.requested_time, found.action, self.content),), None)


@dataclass(frozen=True, slots=True)
class StillOurs:
    """Change nothing, and say so if the attempt may not go on."""

    attempt: Attempt

    def needs(self, timeline: Timeline) -> Needs:
        return Needs(attempt_numbers=(self.attempt.instant,))

    def decide(self, prefix: Prefix) -> Decision[None] | Refusal:
        found = pending_instant_of(self.attempt, prefix)
        return found if isinstance(found, Refusal) else Decision((), None)


@dataclass(frozen=True, slots=True)
class Complete:
    """The commit point: the completion time is issued and published in one transaction (INV-41).

    The conflict check, if there is one, sees the very prefix that the commit is appended to (M9).
    So does the choice of the plans that give way to a write: they are cancelled in the same
    decision. Their entries come before the completed file, so that no crash leaves a commit whose
    rival may still complete (INV-15); a write that is left without its completed file has cancelled
    them for nothing (H-10).

    What the instant says to indexes comes right before its own completed file. A crash in between
    leaves entries of an instant that is not completed, which count for nothing (INV-72).
    """

    attempt: Attempt
    content: bytes
    check: ConflictCheck | None = None
    metadata: MetadataCommit | None = None

    def needs(self, timeline: Timeline) -> Needs:
        return Needs(
            indexes=self.metadata is not None,
            attempt_numbers=(self.attempt.instant,),
            changes=() if self.check is None else tuple(self.check.unread(timeline)),
            archived=() if self.check is None else tuple(self.check.snapshot.vanished(timeline)),
            key_files=None if self.check is None else self.check.key_files,
        )

    def decide(self, prefix: Prefix) -> Decision[Instant] | Refusal:
        found = pending_instant_of(self.attempt, prefix)
        if isinstance(found, Refusal):
            return found
        events: tuple[Event, ...] = ()
        if self.check is not None:
            others = self.check.others(prefix.timeline, prefix.changes)
            conflict = self.check.find(others) or self.check.find_key(others, prefix.keys)
            if conflict is not None:
                return Refusal(conflict)
            plans = self.check.plans_to_cancel(others)
            events = cancel_events(self.attempt, plans, prefix.now_ms)
        completion = completion_of(found, self.content, self.metadata, prefix)
        if isinstance(completion, Refusal):
            return completion
        done = found._replace(state=State.COMPLETED, completion_time=prefix.next_time)
        return Decision((*events, *completion), done)


@dataclass(frozen=True, slots=True)
class CancelOverlapped:
    """Cancel the plans that a write has met, long before it commits.

    `plans` are those that were pending when they were read; what has ended since is left alone.
    Answers with the plans that can never complete any more.
    """

    attempt: Attempt
    plans: tuple[Change, ...]

    def needs(self, timeline: Timeline) -> Needs:
        return Needs()

    def decide(self, prefix: Prefix) -> Decision[frozenset[InstantTime]]:
        pending = {instant.requested_time for instant in prefix.timeline.pending}
        plans = [plan for plan in self.plans if plan.instant.requested_time in pending]
        events = cancel_events(self.attempt, plans, prefix.now_ms)
        return Decision(events, frozenset(event.time for event in events))


def cancel_events(
    attempt: Attempt, plans: Iterable[Change], now_ms: int
) -> tuple[CancelRequested, ...]:
    """Return the cancellations of plans that stand in the way of a write."""
    entry = CancelEntry(
        owner=str(attempt.owner),
        requested_ms=now_ms,
        reason=f"write {attempt.instant} changes the same file groups",
    )
    return tuple(CancelRequested(p.instant.requested_time, encode_entry(entry)) for p in plans)


def completion_of(
    instant: Instant, content: bytes, metadata: MetadataCommit | None, prefix: Prefix
) -> tuple[Event, ...] | Refusal:
    """Return what completes an instant, or why its entries for indexes are the wrong ones (M9)."""
    completed = Completed(instant.requested_time, instant.action, prefix.next_time, content)
    if metadata is None:
        return (completed,)
    if metadata.partitions != prefix.index_partitions or metadata.is_stale(prefix.timeline):
        return Refusal(indexes_changed(metadata.partitions, prefix.index_partitions))
    if not metadata.partitions:
        return (completed,)
    told = MetadataCommitted(instant.requested_time, prefix.next_time, metadata.content)
    return (told, completed)


def metadata_withdrawn(time: InstantTime, prefix: Prefix) -> tuple[MetadataWithdrawn, ...]:
    """Return the event that takes an instant off the metadata table's timeline, if it is there."""
    names = prefix.metadata_names.get(time, ())
    return (MetadataWithdrawn(names),) if names else ()


def pending_instant_of(attempt: Attempt, prefix: Prefix) -> Instant | Refusal:
    """Return the instant that `attempt` may still change, or why it may not (INV-18, INV-22)."""
    newest = prefix.newest_attempt_numbers[attempt.instant]
    instant = prefix.timeline.find(attempt.instant)
    if instant is None:
        return Refusal(
            FencedError(
                _why_gone(attempt, newest),
                kind=ErrorKind.ATTEMPT_SUPERSEDED,
                instant=attempt.instant,
            )
        )
    if newest != attempt.attempt:
        return Refusal(
            FencedError(
                f"{attempt} of instant {attempt.instant} was taken over by attempt {newest} after "
                "its heartbeat lapsed; nothing was written",
                kind=ErrorKind.ATTEMPT_SUPERSEDED,
                instant=attempt.instant,
            )
        )
    if not instant.is_pending:
        return Refusal(
            FencedError(
                f"{attempt} came too late: instant {attempt.instant} is already {instant.state}",
                kind=ErrorKind.ATTEMPT_SUPERSEDED,
                instant=attempt.instant,
            )
        )
    return instant


def _why_gone(attempt: Attempt, newest: int) -> str:
    """Say who took an instant off the timeline: ours claim an attempt of it first."""
    if newest != attempt.attempt:
        return (
            f"{attempt} came too late: instant {attempt.instant} was rolled back after its "
            "heartbeat lapsed; nothing was written. Start the operation again"
        )
    return (
        f"{attempt} cannot go on: instant {attempt.instant} was taken back while it was at work, "
        "by a restore or by another engine, for no attempt of Headwater took it over; nothing was "
        "committed. Start the operation again. If nobody restored the table, it was Apache Hudi. "
        "It does this with hoodie.clean.failed.writes.policy=EAGER, "
        "which is its default for a single writer: set LAZY, and a concurrency mode for several "
        "writers, in its jobs. With LAZY it goes by the heartbeat and the time of expiry that its "
        "own options say (hoodie.client.heartbeat.interval_in_ms)"
    )


def pending_ingestion(timeline: Timeline) -> tuple[Instant, ...]:
    """Return the writes that have not ended."""
    return tuple(instant for instant in timeline.pending if instant.action.is_ingestion)


def plan_cancelled(plan: Instant) -> ConflictError:
    return ConflictError(
        f"{plan} is cancelled and can only be aborted; nothing was committed. Schedule a new plan",
        kind=ErrorKind.PLAN_CANCELLED,
        instant=plan.requested_time,
    )


def not_executable(plan: Instant, reason: str) -> HeadwaterError:
    return ConflictError(
        f"{plan} is removable and {reason}, so it is not executed again. Nothing was changed; roll "
        "it back, or let clean do so, and schedule a new plan",
        kind=ErrorKind.PLAN_NOT_EXECUTABLE,
        instant=plan.requested_time,
    )


def _is_withdrawn(instant: Instant) -> HeadwaterError:
    return ConflictError(
        f"{instant} is being taken back by a rollback or restore whose process may have died. "
        "Nothing was changed; `clean` finishes it",
        kind=ErrorKind.PLAN_NOT_EXECUTABLE,
        instant=instant.requested_time,
    )


def no_such_instant(time: InstantTime) -> HeadwaterError:
    return NotFoundError(
        f"There is no instant {time} on the active timeline: it was rolled back or archived, or "
        "never existed",
        kind=ErrorKind.INSTANT_NOT_FOUND,
        instant=time,
    )
