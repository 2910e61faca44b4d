"""The steps of a cancellation, as pure decisions; `cancel` runs them.

    RequestCancel         steps 1 to 6 of `request_cancel`
    CancelOvertaken       cancel a clustering whose input others have taken back
    StartAbort            steps 1 to 5 of `execute_abort`
    FinishAbort           steps 8 to 11 of `execute_abort`
    CompleteClustering    the commit point of a clustering, cancellable or not

P is the plan. Whether it is cancelled is decided by one thing, that `.cancel/P` exists, and whether
it has ended by another, that `P.aborted` exists. Both are created under the lock, and so is the
completed file of P, by a decision that has seen that neither exists. So of cancel and commit
exactly one comes first, and the other is refused (INV-07, INV-12).

A plan that is not cancellable has an entry only if it has cancelled itself: another engine has
changed its file groups since (N-184) or taken back what it was planned on (N-189), so that it can
only be aborted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headwater.errors import ErrorKind, HeadwaterError, InvalidInputError
from headwater.format.timeline.records import decode_record
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.txn.attempts import Attempt, Purpose
from headwater.kernel.txn.cancel_records import (
    AbortRecord,
    CancelEntry,
    count_plan,
    encode_abort,
    encode_entry,
)
from headwater.kernel.txn.changes import Change, Touch, clustered_groups, concerns_groups
from headwater.kernel.txn.events import (
    Aborted,
    AbortTidied,
    CancelCounted,
    CancelDropped,
    CancelRequested,
)
from headwater.kernel.txn.guard import Overtaken
from headwater.kernel.txn.metadata_commit import MetadataCommit
from headwater.kernel.txn.plan_flags import decode_flags
from headwater.kernel.txn.prefix import Needs, Prefix
from headwater.kernel.txn.steps import (
    Claim,
    Ended,
    Started,
    StartExecution,
    completion_of,
    no_such_instant,
    not_executable,
    pending_ingestion,
    pending_instant_of,
    plan_cancelled,
)
from headwater.kernel.txn.transaction import Decision, Refusal
from headwater.model.files import FileGroupId, parse_data_file
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.plan_flags import PlanFlags
from headwater.model.plans import ClusteringPlan, RequestedReplace


@dataclass(frozen=True, slots=True)
class RequestCancel:
    """Cancel a pending plan for good (INV-10).

    Steps 1, 2 and 6, the lock and the reload, are the transaction's.
    """

    time: InstantTime
    owner: str
    reason: str

    def needs(self, timeline: Timeline) -> Needs:
        return Needs(requests=_pending_clustering(timeline, self.time), cancels=True)

    def decide(self, prefix: Prefix) -> Decision[Instant] | Refusal:
        instant = prefix.timeline.find(self.time)
        if instant is None:
            # Archived or never there: an entry for it would make somebody delete its data (H-02).
            return Refusal(no_such_instant(self.time))
        # 3. Completed: too late.
        if instant.is_completed:
            return Refusal(_has_completed(instant))
        # 4. Aborted: nothing to do.
        if not instant.is_pending:
            return Decision((), instant)
        error = _why_not_cancellable(instant, prefix)
        if error is not None:
            return Refusal(error)
        # 5. The entry, unless it is there.
        if self.time in prefix.cancelled:
            return Decision((), instant)
        entry = CancelEntry(owner=self.owner, requested_ms=prefix.now_ms, reason=self.reason)
        return Decision((CancelRequested(self.time, encode_entry(entry)),), instant)


@dataclass(frozen=True, slots=True)
class Dropped:
    """There is no such instant any more; its entry is gone too."""

    time: InstantTime


@dataclass(frozen=True, slots=True)
class StartAbort:
    """Claim the attempt that aborts a cancelled plan, unless somebody is at work on it.

    Steps 1, 2 and 5 are the transaction's. From the claim on every attempt before it is dead, and
    no executor, second aborter or rollback can begin (H-05).
    """

    time: InstantTime
    claim: Claim
    entry: CancelEntry | None = None
    """What the entry of the plan says, which nobody changes any more."""

    def needs(self, timeline: Timeline) -> Needs:
        requests = _pending_clustering(timeline, self.time)
        return Needs(attempts=(self.time,), requests=requests, cancels=True)

    def decide(self, prefix: Prefix) -> Decision[Started | Ended | Dropped] | Refusal:
        instant = prefix.timeline.find(self.time)
        is_cancelled = self.time in prefix.cancelled
        if instant is None:
            if not is_cancelled:
                return Refusal(no_such_instant(self.time))
            # An entry of an unknown instant says nothing, and nothing is deleted for it (H-06).
            return Decision((CancelDropped(self.time),), Dropped(self.time))
        if instant.is_completed:
            return Refusal(_has_completed(instant))
        # 3. Aborted: finish what a dead process may have left of it.
        if not instant.is_pending:
            return Decision((AbortTidied(self.time, instant.action),), Ended(instant))
        is_overtaken = self.entry is not None and self.entry.overtaken_by is not None
        error = None if is_overtaken else _why_not_cancellable(instant, prefix)
        if error is not None:
            return Refusal(error)
        if not is_cancelled:
            return Refusal(_not_cancelled(instant))
        # 4. Active heartbeat: refused. Otherwise the attempt is ours.
        return StartExecution(self.time, Purpose.ABORT, self.claim).decide(prefix)


@dataclass(frozen=True, slots=True)
class FinishAbort:
    """End a cancelled plan whose files are gone.

    The order is forced: step 10 before 9 would, after a crash in between, revive a plan that a
    write has overridden.
    """

    attempt: Attempt
    entry: CancelEntry | None

    def needs(self, timeline: Timeline) -> Needs:
        time = self.attempt.instant
        return Needs(
            attempt_numbers=(time,),
            requests=_pending_clustering(timeline, time),
            cancels=True,
            cancel_count=True,
        )

    def decide(self, prefix: Prefix) -> Decision[Instant] | Refusal:
        # The plan is still pending and this attempt the newest; a second look at everything.
        found = pending_instant_of(self.attempt, prefix)
        if isinstance(found, Refusal):
            return found
        time = found.requested_time
        if time not in prefix.cancelled:
            return Refusal(_not_cancelled(found))
        on_timeline = {instant.requested_time for instant in prefix.timeline.instants}
        record = AbortRecord(
            entry=self.entry,
            owner=str(self.attempt.owner),
            aborted_ms=prefix.now_ms,
            token=self.attempt.token,
            plan=prefix.requests[time],
        )
        events = (
            CancelCounted(count_plan(prefix.cancel_count, time, on_timeline)),
            # 9. Aborted.
            Aborted(time, found.action, encode_abort(record)),
            # 10. The entry goes, after the files that say the plan is pending.
            AbortTidied(time, found.action),
        )
        return Decision(events, found._replace(state=State.ABORTED))


@dataclass(frozen=True, slots=True)
class CompleteClustering:
    """The commit point of a clustering: nobody must have cancelled or overtaken it.

    A plan whose attempt was taken over, which was aborted or has left the timeline, is refused as
    every other (H-01). One that has an entry is refused and can only be aborted.

    A cancellable plan cancels itself if a write that has announced the same file groups is alive:
    that goes first (H-09). Such a write has looked for plans to cancel after it had announced all
    of its groups, so either it found this one, or its markers are seen here. What a write will
    replace is announced by no marker; one that replaces goes first wherever it does.

    Writes of ours keep off the groups of any other plan, or lose (INV-64). Those of another engine
    may not, and what they have changed since the plan was made would be lost with the groups. So
    every plan cancels itself then; a removable one can only be rolled back (N-184). The same goes
    for what another engine has taken back since: it would come back (N-189).
    """

    attempt: Attempt
    content: bytes
    metadata: MetadataCommit | None = None
    flags: PlanFlags = field(default_factory=PlanFlags)
    known: Mapping[InstantTime, Change] = field(default_factory=dict)
    """What those did that completed since the plan was made, as far as it was read before."""

    def needs(self, timeline: Timeline) -> Needs:
        time, writes = self.attempt.instant, tuple[InstantTime, ...]()
        if self.flags.is_cancellable:
            writes = tuple(instant.requested_time for instant in pending_ingestion(timeline))
        changes = completed_since(timeline, time)
        return Needs(
            indexes=self.metadata is not None,
            attempt_numbers=(time,),
            attempts=writes,
            requests=_pending_clustering(timeline, time),
            markers=writes,
            cancels=True,
            changes=tuple(one for one in changes if one.requested_time not in self.known),
        )

    def decide(self, prefix: Prefix) -> Decision[Instant | Overtaken] | Refusal:
        found = pending_instant_of(self.attempt, prefix)
        if isinstance(found, Refusal):
            return found
        time = found.requested_time
        if time in prefix.cancelled:
            return Refusal(plan_cancelled(found))
        request = decode_record(RequestedReplace, prefix.requests[time], path=str(found))
        if overtaken := _overtaken(
            found, request, {**self.known, **prefix.changes}, prefix.timeline
        ):
            if self.flags.is_removable:
                return Refusal(not_executable(found, overtaken.why))
            event = _overtaken_entry(time, overtaken, str(self.attempt.owner), prefix.now_ms)
            return Decision((event,), Overtaken(found, overtaken.by))
        groups = frozenset(clustered_groups(request.clustering_plan))
        if self.flags.is_cancellable and (write := self._write_ahead(prefix, groups)) is not None:
            reason = f"write {write} is at work on the same file groups"
            return self._cancel_itself(found, write, reason, prefix.now_ms)
        completion = completion_of(found, self.content, self.metadata, prefix)
        if isinstance(completion, Refusal):
            return completion
        done = found._replace(state=State.COMPLETED, completion_time=prefix.next_time)
        return Decision(completion, done)

    def _cancel_itself(
        self, plan: Instant, by: InstantTime, reason: str, now_ms: int
    ) -> Decision[Instant | Overtaken]:
        entry = CancelEntry(owner=str(self.attempt.owner), requested_ms=now_ms, reason=reason)
        event = CancelRequested(plan.requested_time, encode_entry(entry))
        return Decision((event,), Overtaken(plan, by))

    def _write_ahead(self, prefix: Prefix, groups: frozenset[FileGroupId]) -> InstantTime | None:
        """Return a write that this plan gives way to: alive, and at work on the same groups."""
        for write in pending_ingestion(prefix.timeline):
            time = write.requested_time
            seen = prefix.newest_attempts.get(time)
            # Of another engine's write nobody here can tell whether it is alive.
            is_alive = seen is None or seen.is_active
            is_replacing = write.action is Action.REPLACE_COMMIT
            if is_alive and (is_replacing or prefix.announced(time) & groups):
                return time
        return None


@dataclass(frozen=True, slots=True)
class CancelOvertaken:
    """Cancel a clustering that misses files, if another engine has overtaken it.

    Answers whether it is cancelled. A removable plan can be rolled back and is left as it is.
    """

    time: InstantTime
    owner: str

    def needs(self, timeline: Timeline) -> Needs:
        return Needs(
            requests=_pending_clustering(timeline, self.time),
            cancels=True,
            changes=tuple(completed_since(timeline, self.time)),
        )

    def decide(self, prefix: Prefix) -> Decision[bool]:
        time, plan = self.time, prefix.timeline.find(self.time)
        if time in prefix.cancelled:
            return Decision((), True)
        if plan is None or time not in prefix.requests:
            return Decision((), False)
        data = prefix.requests[time]
        request = decode_record(RequestedReplace, data, path=str(plan))
        overtaken = _overtaken(plan, request, prefix.changes, prefix.timeline)
        if overtaken is None or decode_flags(plan, data, path=str(plan)).is_removable:
            return Decision((), False)
        return Decision((_overtaken_entry(time, overtaken, self.owner, prefix.now_ms),), True)


class _Overtaking(NamedTuple):
    """Who has overtaken a plan, and how."""

    by: InstantTime
    why: str


def _overtaken(
    plan: Instant,
    request: RequestedReplace,
    changes: Mapping[InstantTime, Change],
    timeline: Timeline,
) -> _Overtaking | None:
    """Return who has changed rows of the groups since the plan was made, or taken its input back.

    What a compaction rewrote is what the plan has read.
    """
    groups = frozenset(clustered_groups(request.clustering_plan))
    read = frozenset(_times_read(request.clustering_plan))
    for instant in completed_since(timeline, plan.requested_time):
        change = changes[instant.requested_time]
        if change.undone & read:
            why = f"{instant} has taken back what it was planned on"
        elif any(change.touches.get(one, Touch.COMPACT) is not Touch.COMPACT for one in groups):
            why = f"{instant} has changed the same file groups since it was planned"
        else:
            continue
        return _Overtaking(instant.requested_time, why)
    return None


def _times_read(plan: ClusteringPlan | None) -> Iterator[InstantTime]:
    """Give the instants that wrote what a clustering reads."""
    for group in (plan.input_groups if plan is not None else None) or ():
        for one in group.slices or ():
            for path in (one.data_file_path, *(one.delta_file_paths or ())):
                file = parse_data_file(path) if path else None
                if file is not None:
                    yield file.instant_time


def _overtaken_entry(
    plan: InstantTime, overtaken: _Overtaking, owner: str, now_ms: int
) -> CancelRequested:
    entry = CancelEntry(
        owner=owner, requested_ms=now_ms, reason=overtaken.why, overtaken_by=overtaken.by
    )
    return CancelRequested(plan, encode_entry(entry))


def completed_since(timeline: Timeline, plan: InstantTime) -> list[Instant]:
    """Return the instants that a plan cannot have seen and that may have changed its groups."""
    return [
        instant
        for instant in timeline.completed
        if (instant.completion_time or "") > plan and concerns_groups(instant)
    ]


def _pending_clustering(timeline: Timeline, time: InstantTime) -> tuple[Instant, ...]:
    """Return the instant if its request says whether it is cancellable."""
    instant = timeline.find(time)
    if instant is None or not instant.is_pending or instant.action is not Action.CLUSTERING:
        return ()
    return (instant,)


def _why_not_cancellable(instant: Instant, prefix: Prefix) -> HeadwaterError | None:
    request = prefix.requests.get(instant.requested_time)
    if request is not None and decode_flags(instant, request, path=str(instant)).is_cancellable:
        return None
    what = "no plan of a clustering" if request is None else "a plan without the flag cancellable"
    return InvalidInputError(
        f"{instant} is {what}, so it cannot be cancelled; nothing was changed. A failed write is "
        "rolled back, and a plan is executed",
        kind=ErrorKind.NOT_CANCELLABLE,
        instant=instant.requested_time,
    )


def _has_completed(instant: Instant) -> HeadwaterError:
    return InvalidInputError(
        f"{instant} has completed and can be neither cancelled nor aborted; nothing was changed",
        kind=ErrorKind.INVALID_STATE,
        instant=instant.requested_time,
    )


def _not_cancelled(instant: Instant) -> HeadwaterError:
    return InvalidInputError(
        f"Nobody has cancelled {instant}, so it is not aborted; nothing was changed. Request its "
        "cancellation first",
        kind=ErrorKind.NOT_CANCELLED,
        instant=instant.requested_time,
    )
