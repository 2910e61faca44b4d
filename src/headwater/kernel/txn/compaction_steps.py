"""The commit point of compactions and log compactions, as a pure decision."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.errors import ConflictError, ErrorKind, Retry
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.txn.attempts import Attempt
from headwater.kernel.txn.changes import UNDOING
from headwater.kernel.txn.metadata_commit import MetadataCommit
from headwater.kernel.txn.prefix import Needs, Prefix
from headwater.kernel.txn.steps import completion_of, pending_instant_of
from headwater.kernel.txn.transaction import Decision, Refusal
from headwater.model.instant import Instant, InstantTime, State


@dataclass(frozen=True, slots=True)
class CompleteCompaction:
    """Complete a compaction if all that it has read still counts.

    Rollbacks and restores of ours take nothing back that a pending plan has taken in. Those of
    another engine may, and what was taken back would come back with the new file (N-189).
    """

    attempt: Attempt
    content: bytes
    metadata: MetadataCommit | None = None
    read: frozenset[InstantTime] = frozenset()
    """The instants that wrote what it has read."""

    def needs(self, timeline: Timeline) -> Needs:
        return Needs(
            indexes=self.metadata is not None,
            attempt_numbers=(self.attempt.instant,),
            changes=undone_since(timeline, self.attempt.instant),
        )

    def decide(self, prefix: Prefix) -> Decision[Instant] | Refusal:
        found = pending_instant_of(self.attempt, prefix)
        if isinstance(found, Refusal):
            return found
        for undoing in undone_since(prefix.timeline, self.attempt.instant):
            if prefix.changes[undoing.requested_time].undone & self.read:
                return Refusal(read_too_early(found.requested_time, undoing.requested_time))
        completion = completion_of(found, self.content, self.metadata, prefix)
        if isinstance(completion, Refusal):
            return completion
        done = found._replace(state=State.COMPLETED, completion_time=prefix.next_time)
        return Decision(completion, done)


def undone_since(timeline: Timeline, plan: InstantTime) -> tuple[Instant, ...]:
    """Return the rollbacks and restores that completed since a plan was made."""
    return tuple(
        instant
        for instant in timeline.completed
        if instant.action in UNDOING and (instant.completion_time or "") > plan
    )


def read_too_early(plan: InstantTime, undoing: InstantTime) -> ConflictError:
    """Return why a plan has to be executed again."""
    return ConflictError(
        f"{undoing} has taken back what the compaction {plan} has read. Nothing was committed; "
        "execute the plan again, which leaves that out",
        kind=ErrorKind.WRITE_CONFLICT,
        retry=Retry.SAME_CALL,
        instant=plan,
        other=undoing,
    )
