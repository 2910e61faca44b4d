"""The steps of an index plan, as pure decisions; `headwater.metadata.indexing` runs them.

    ClaimIndexing       take an instant time for a plan; its file groups are made under that time
    RequestIndexing     put the plan on the timeline
    AnnounceIndexing    table config names the indexes as being built: commits write to them
    ProveIndexing       the attempt is still the newest: what follows under the lock is its own
    CompleteIndexing    what was built counts, if nothing that completed since is missing
    AbortIndexing       the plan leaves the timeline, and with it every duty to it

P is the plan. The first two run under one hold of the table lock, with the making of the file
groups in between: no writer sees the plan without all of them (5.8, case 3c). The last two run
under one hold with what they do to table config and to the files of a partition: a partition is
wiped by name, and nobody may plan it anew in between.

What a crash leaves behind, by the last write that landed:

    ClaimIndexing       attempt         nobody needs to repair: the time is used up
    (file groups)       some of them    the next plan for the partition, which begins by wiping it
    RequestIndexing     request         whoever runs P
    AnnounceIndexing    table config    whoever runs P, which announces it again
    CompleteIndexing    metadata commit whoever runs P: it is withdrawn, and P starts again
                        completed file  whoever comes: table config is brought up to it (INV-77)
    AbortIndexing       some deleted    whoever runs or cancels P: it is still pending
                        all deleted     the next plan for the partition wipes what is left
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headwater.config.table_options import INDEX_DEFS_PATH, METADATA_PARTITIONS_INFLIGHT
from headwater.errors import AlreadyExistsError, ConflictError, ErrorKind, Retry
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.txn.attempts import Attempt, Purpose
from headwater.kernel.txn.events import (
    AttemptStarted,
    Completed,
    ConfigChanged,
    MetadataCommitted,
    Requested,
    RolledBack,
)
from headwater.kernel.txn.index_plan import (
    PlannedIndex,
    completed_since,
    decode_index_plan,
    encode_index_plan,
    encode_index_result,
    pending_indexings,
)
from headwater.kernel.txn.prefix import Needs, Prefix
from headwater.kernel.txn.steps import Claim, metadata_withdrawn, pending_instant_of
from headwater.kernel.txn.transaction import Decision, Refusal
from headwater.model.instant import Action, Instant, InstantTime, State


@dataclass(frozen=True, slots=True)
class ClaimIndexing:
    """Take the next instant time for a plan; the claim is its first attempt, over at once."""

    claim: Claim

    def needs(self, timeline: Timeline) -> Needs:
        return Needs()

    def decide(self, prefix: Prefix) -> Decision[InstantTime]:
        attempt = self.claim.attempt(prefix.next_time, 1, Purpose.EXECUTE, prefix.now_ms)
        return Decision((AttemptStarted(replace(attempt, is_released=True)),), prefix.next_time)


@dataclass(frozen=True, slots=True)
class RequestIndexing:
    """Request a plan under a time that was claimed for it.

    A partition has one pending plan at most, and none if it is in use (H-60).
    """

    time: InstantTime
    planned: tuple[PlannedIndex, ...]
    base: InstantTime

    def needs(self, timeline: Timeline) -> Needs:
        return Needs(indexes=True, requests=pending_indexings(timeline))

    def decide(self, prefix: Prefix) -> Decision[Instant] | Refusal:
        taken = set(prefix.index_partitions)
        for plan in pending_indexings(prefix.timeline):
            planned = decode_index_plan(prefix.requests[plan.requested_time], path=str(plan))
            taken |= {each.partition for each in planned}
        wanted = frozenset(each.partition for each in self.planned)
        if wanted & taken:
            return Refusal(index_exists(wanted & taken))
        content = encode_index_plan(self.planned, self.base)
        requested = Instant(self.time, Action.INDEXING, State.REQUESTED)
        return Decision((Requested(self.time, Action.INDEXING, content),), requested)


@dataclass(frozen=True, slots=True)
class AnnounceIndexing:
    """Name the partitions of a plan in table config as being built (ADR 9).

    Answers with the instants that are pending at this moment: they may have looked at table config
    before, and complete without a word to the indexes.
    """

    attempt: Attempt
    partitions: frozenset[str]
    definitions_path: str
    """Where table config says that definitions of indexes are, unless it does already."""

    def needs(self, timeline: Timeline) -> Needs:
        return Needs(attempt_numbers=(self.attempt.instant,), config=True)

    def decide(self, prefix: Prefix) -> Decision[frozenset[InstantTime]] | Refusal:
        found = pending_instant_of(self.attempt, prefix)
        if isinstance(found, Refusal):
            return found
        config = prefix.config
        assert config is not None
        names = {*config.metadata_partitions_inflight, *self.partitions}
        changes: dict[str, str | None] = {
            METADATA_PARTITIONS_INFLIGHT.key: METADATA_PARTITIONS_INFLIGHT.encode(
                tuple(sorted(names))
            )
        }
        if config.index_defs_path is None:
            changes[INDEX_DEFS_PATH.key] = self.definitions_path
        pending = frozenset(instant.requested_time for instant in prefix.timeline.pending)
        return Decision((ConfigChanged(changes),), pending)


@dataclass(frozen=True, slots=True)
class ProveIndexing:
    """Change nothing; refuse unless the attempt may still act for its plan."""

    attempt: Attempt

    def needs(self, timeline: Timeline) -> Needs:
        return Needs(attempt_numbers=(self.attempt.instant,))

    def decide(self, prefix: Prefix) -> Decision[None] | Refusal:
        found = pending_instant_of(self.attempt, prefix)
        return found if isinstance(found, Refusal) else Decision((), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteIndexing:
    """Complete a plan with the partitions that were built.

    `covered` are the completed instants that are known to have told every one of these partitions.
    An instant that completed since the plan and is not among them may have told none (H-49): the
    decision names it and refuses. Having a delta commit on the metadata table is no proof (H-48).
    """

    attempt: Attempt
    finished: tuple[PlannedIndex, ...]
    content: bytes
    """The commit metadata of the metadata table's delta commit, which lists the base files."""
    covered: frozenset[InstantTime]
    built_on: frozenset[InstantTime] = frozenset()
    """The completed instants of the active timeline that the base files take in, and those that the
    build caught up with. One that is gone after a rollback or restore was perhaps taken back, and
    the base files are wrong then, or the log of its run is gone with it (N-58); if it was archived
    they are built once more for nothing."""

    def needs(self, timeline: Timeline) -> Needs:
        return Needs(attempt_numbers=(self.attempt.instant,))

    def decide(self, prefix: Prefix) -> Decision[Instant] | Refusal:
        found = pending_instant_of(self.attempt, prefix)
        if isinstance(found, Refusal):
            return found
        since = completed_since(prefix.timeline, found.requested_time)
        uncovered = [i.requested_time for i in since if i.requested_time not in self.covered]
        if uncovered:
            return Refusal(index_uncovered(found, tuple(uncovered)))
        if self._may_be_taken_back(prefix.timeline):
            return Refusal(index_outdated(found))
        time, completion = found.requested_time, prefix.next_time
        result = encode_index_result(self.finished, max({time, *self.covered}))
        return Decision(
            (
                MetadataCommitted(time, completion, self.content),
                Completed(time, Action.INDEXING, completion, result),
            ),
            found._replace(state=State.COMPLETED, completion_time=completion),
        )

    def _may_be_taken_back(self, timeline: Timeline) -> bool:
        plan = self.attempt.instant
        is_undone = any(
            i.action in (Action.ROLLBACK, Action.RESTORE) and i.requested_time > plan
            for i in timeline.instants
        )
        return is_undone and any(timeline.find(time) is None for time in self.built_on)


@dataclass(frozen=True, slots=True)
class AbortIndexing:
    """Take a plan off the timeline, with what it may have said on the metadata table's."""

    attempt: Attempt

    def needs(self, timeline: Timeline) -> Needs:
        time = self.attempt.instant
        return Needs(attempt_numbers=(time,), metadata_names=(time,))

    def decide(self, prefix: Prefix) -> Decision[None] | Refusal:
        found = pending_instant_of(self.attempt, prefix)
        if isinstance(found, Refusal):
            return found
        time = found.requested_time
        withdrawn = metadata_withdrawn(time, prefix)
        return Decision((*withdrawn, RolledBack(time, found.action)), None)


def index_exists(partitions: frozenset[str]) -> AlreadyExistsError:
    names = ", ".join(sorted(partitions))
    return AlreadyExistsError(
        f"The table has the indexes {names} already, or they are being built. Nothing was changed; "
        "`t.indexes.list()` tells which. Run or cancel a pending plan, or drop the index first",
        kind=ErrorKind.INDEX_EXISTS,
        partitions=names,
    )


def index_uncovered(plan: Instant, instants: tuple[InstantTime, ...]) -> ConflictError:
    return ConflictError(
        f"{len(instants)} instants completed since {plan} was requested that are not known to have "
        "told its indexes. Nothing was completed; look at them and try again",
        kind=ErrorKind.INDEX_UNCOVERED,
        retry=Retry.FRESH_VIEW,
        instants=instants,
    )


def index_outdated(plan: Instant) -> ConflictError:
    return ConflictError(
        f"What {plan} was built on may have been taken back by a rollback or restore. Nothing was "
        "completed; build again",
        kind=ErrorKind.INDEX_OUTDATED,
        retry=Retry.FRESH_VIEW,
        instant=plan.requested_time,
    )
