"""The steps of an index plan, as pure decisions; `headwater.metadata.indexing` runs them.

    ClaimIndexing       take an instant time for a plan; its file groups are made under that time
    RequestIndexing     put the plan on the timeline, and its definitions beside it
    AnnounceIndexing    table config names the indexes as being built: commits write to them
    CompleteIndexing    what was built counts, if nothing that completed since is missing
    PublishIndexes      table config says of what completed plans have built that it can be used
    AbortIndexing       the plan leaves the timeline, and with it every duty to it
    DropIndex           an index in use leaves table config, and its definition goes

Where the definitions are damaged or lost nobody can plan or publish an index. The indexes they were
of go with the first one that is dropped, or whose plan is aborted, and there are definitions again.

P is the plan. The first two run with nobody deciding in between, and the file groups are made
there: no writer sees the plan without all of them (5.8, case 3c). What each of the others changes
depends on the moment at which it is decided and on nothing that was read before, so whoever stood
still changes nothing that others have decided since (ADR 14).

What a crash leaves behind, by the last write that landed. On a fenced table each step is one slot,
so there only the last of its writes is to be seen:

    ClaimIndexing       attempt         nobody needs to repair: the time is used up
    (file groups)       some of them    the next plan for the partition, which begins by wiping it
    RequestIndexing     definitions     the next plan for the partition overwrites them
                        request         whoever runs P
    AnnounceIndexing    table config    whoever runs P, which announces it again
    CompleteIndexing    metadata commit whoever runs P: it is withdrawn, and P starts again
                        completed file  whoever comes: PublishIndexes (INV-77)
    PublishIndexes      table config    nothing; definitions of what was left out mean nothing
    AbortIndexing       table config    whoever runs or cancels P: it is still pending
                        some deleted    the same
                        all deleted     the next plan for the partition wipes what is left
    DropIndex           table config    the next plan for the partition, or another drop
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from headwater.config.table import TableConfig
from headwater.config.table_options import (
    INDEX_DEFS_PATH,
    METADATA_PARTITIONS,
    METADATA_PARTITIONS_INFLIGHT,
)
from headwater.errors import (
    AlreadyExistsError,
    ConflictError,
    ErrorKind,
    InvalidInputError,
    NotFoundError,
    Retry,
)
from headwater.format.metadata.index_definitions import IndexDefinition, encode_index_definitions
from headwater.kernel.index_definitions import defined_indexes, definitions_path
from headwater.kernel.layout import INDEX_DEFINITIONS
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.txn.attempts import Attempt, Purpose
from headwater.kernel.txn.events import (
    AttemptStarted,
    Completed,
    ConfigChanged,
    DefinitionsChanged,
    Event,
    MetadataCommitted,
    Requested,
    RolledBack,
)
from headwater.kernel.txn.index_births import IndexBirth, births_changed
from headwater.kernel.txn.index_plan import (
    PlannedIndex,
    all_indexings,
    completed_since,
    decode_index_plan,
    decode_index_result,
    definition_of,
    encode_index_plan,
    encode_index_result,
    pending_indexings,
    pending_restores,
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
        requests = pending_indexings(timeline)
        return Needs(indexes=True, requests=requests, config=True, definitions=True)

    def decide(self, prefix: Prefix) -> Decision[Instant] | Refusal:
        if prefix.definitions_lost is not None:
            return Refusal(prefix.definitions_lost)
        taken = {*prefix.index_partitions, *_planned_by(prefix)}
        wanted = frozenset(each.partition for each in self.planned)
        if wanted & taken:
            return Refusal(index_exists(wanted & taken))
        content = encode_index_plan(self.planned, self.base)
        requested = Instant(self.time, Action.INDEXING, State.REQUESTED)
        events = (*self._said_of_them(prefix), Requested(self.time, Action.INDEXING, content))
        return Decision(events, requested)

    def _said_of_them(self, prefix: Prefix) -> tuple[Event, ...]:
        """Return what is said of the indexes beside the plan; nobody looks at it without one."""
        defined = {each.partition: definition_of(each) for each in self.planned}
        new = {name: each for name, each in defined.items() if each is not None}
        births = {
            each.partition: IndexBirth(self.time, each.group_count)
            for each in self.planned
            if prefix.is_fenced
        }
        config = _config_of(prefix)
        changes = {**births_changed(config, births), **_definitions_moved(prefix, bool(new))}
        told: tuple[Event, ...] = (ConfigChanged(changes),) if changes else ()
        return (*told, *_defined(prefix, {**prefix.definitions, **new} if new else None))


@dataclass(frozen=True, slots=True)
class AnnounceIndexing:
    """Name the partitions of a plan in table config as being built (ADR 9).

    Answers with the instants that are pending at this moment: they may have looked at table config
    before, and complete without a word to the indexes.
    """

    attempt: Attempt
    partitions: frozenset[str]

    def needs(self, timeline: Timeline) -> Needs:
        return Needs(attempt_numbers=(self.attempt.instant,), config=True, definitions=True)

    def decide(self, prefix: Prefix) -> Decision[frozenset[InstantTime]] | Refusal:
        found = pending_instant_of(self.attempt, prefix)
        if isinstance(found, Refusal):
            return found
        config = _config_of(prefix)
        names = {*config.metadata_partitions_inflight, *self.partitions}
        changes: dict[str, str | None] = {
            METADATA_PARTITIONS_INFLIGHT.key: METADATA_PARTITIONS_INFLIGHT.encode(
                tuple(sorted(names))
            )
        }
        if config.index_defs_path is None and prefix.definitions:
            changes[INDEX_DEFS_PATH.key] = INDEX_DEFINITIONS
        pending = frozenset(instant.requested_time for instant in prefix.timeline.pending)
        return Decision((ConfigChanged(changes),), pending)


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
        restores = (restore.requested_time for restore in pending_restores(timeline))
        return Needs(attempt_numbers=(self.attempt.instant, *restores))

    def decide(self, prefix: Prefix) -> Decision[Instant] | Refusal:
        found = pending_instant_of(self.attempt, prefix)
        if isinstance(found, Refusal):
            return found
        for restore in pending_restores(prefix.timeline):
            if not prefix.newest_attempt_numbers[restore.requested_time]:
                # It restores the metadata table as well, without what is new there (N-192).
                return Refusal(index_outdated(found.requested_time))
        since = completed_since(prefix.timeline, found.requested_time)
        uncovered = [i.requested_time for i in since if i.requested_time not in self.covered]
        if uncovered:
            return Refusal(index_uncovered(found, tuple(uncovered)))
        if self._may_be_taken_back(prefix.timeline):
            return Refusal(index_outdated(found.requested_time))
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


class Published(NamedTuple):
    """What became of the indexes of completed plans."""

    finished: frozenset[str]
    left_out: frozenset[str]
    """These could not be built, and are gone."""


@dataclass(frozen=True, slots=True)
class PublishIndexes:
    """Bring table config up to the plans that have completed (INV-77).

    An index that was dropped since, or that is planned anew, is not among those being built that no
    pending plan builds. So nothing happens if it comes late or twice.
    """

    def needs(self, timeline: Timeline) -> Needs:
        plans = all_indexings(timeline)
        results = tuple(plan for plan in plans if plan.is_completed)
        return Needs(requests=plans, results=results, config=True, definitions=True)

    def decide(self, prefix: Prefix) -> Decision[Published] | Refusal:
        config = _config_of(prefix)
        open_names = set(config.metadata_partitions_inflight) - _planned_by(prefix).keys()
        finished: set[str] = set()
        left_out: set[str] = set()
        for plan in reversed([p for p in prefix.timeline.completed if p in _plans(prefix)]):
            time = plan.requested_time
            planned = decode_index_plan(prefix.requests[time], path=str(plan))
            named = {each.partition for each in planned} & open_names
            built = named & decode_index_result(prefix.results[time], path=str(plan))
            finished |= built
            left_out |= named - built
            open_names -= named  # The latest plan for a partition is the one that counts.
        published = Published(frozenset(finished), frozenset(left_out))
        if not finished and not left_out:
            return Decision((), published)
        if prefix.definitions_lost is not None:
            return Refusal(prefix.definitions_lost)
        return Decision(_indexes_changed(prefix, usable=finished, gone=left_out), published)


@dataclass(frozen=True, slots=True)
class AbortIndexing:
    """Take a plan off the timeline, with what was said of its indexes anywhere."""

    attempt: Attempt

    def needs(self, timeline: Timeline) -> Needs:
        time = self.attempt.instant
        return Needs(
            attempt_numbers=(time,),
            metadata_names=(time,),
            requests=pending_indexings(timeline),
            config=True,
            definitions=True,
        )

    def decide(self, prefix: Prefix) -> Decision[frozenset[str]] | Refusal:
        found = pending_instant_of(self.attempt, prefix)
        if isinstance(found, Refusal):
            return found
        time = found.requested_time
        planned = decode_index_plan(prefix.requests[time], path=str(found))
        names = frozenset(each.partition for each in planned)
        # Table config first: it names nothing that no plan builds (INV-76).
        config, *definitions = _indexes_changed(prefix, gone=names)
        withdrawn = metadata_withdrawn(time, prefix)
        rolled_back = RolledBack(time, found.action)
        return Decision((config, *withdrawn, rolled_back, *definitions), names)


@dataclass(frozen=True, slots=True)
class DropIndex:
    """Take an index out of table config, and its definition after that."""

    partition: str
    is_left_over: bool
    """Whether there are files of it, though table config may not name it."""
    needing: Callable[[frozenset[str]], frozenset[str]]
    """Tells which of the other indexes need it; the room that knows indexes is above this."""

    def needs(self, timeline: Timeline) -> Needs:
        return Needs(requests=pending_indexings(timeline), config=True, definitions=True)

    def decide(self, prefix: Prefix) -> Decision[None] | Refusal:
        config, planned = _config_of(prefix), _planned_by(prefix)
        if self.partition in planned:
            plan = planned[self.partition]
            return Refusal(
                ConflictError(
                    f"The index {self.partition} is being built by plan {plan}. Cancel that one: "
                    f"t.indexes.cancel({str(plan)!r})",
                    instant=plan,
                )
            )
        known = {*config.metadata_partitions, *config.metadata_partitions_inflight}
        if self.partition not in known and not self.is_left_over:
            has = ", ".join(sorted(known)) or "none"
            return Refusal(
                NotFoundError(
                    f"The table has no index {self.partition}; it has {has}",
                    kind=ErrorKind.INDEX_NOT_FOUND,
                )
            )
        needing = self.needing(frozenset({*known, *planned} - {self.partition}))
        if needing:
            return Refusal(
                InvalidInputError(
                    f"{', '.join(sorted(needing))} need the index {self.partition}; drop them "
                    "first, or cancel the plan that builds them",
                    kind=ErrorKind.INVALID_INDEX,
                )
            )
        return Decision(_indexes_changed(prefix, gone={self.partition}), None)


def _config_of(prefix: Prefix) -> TableConfig:
    assert prefix.config is not None, "The step has asked for it"
    return prefix.config


def _plans(prefix: Prefix) -> frozenset[Instant]:
    return frozenset(all_indexings(prefix.timeline))


def _planned_by(prefix: Prefix) -> dict[str, InstantTime]:
    """Return the pending plans, by the partitions that they build."""
    return {each.partition: plan for plan, each in _planned(prefix)}


def _planned(prefix: Prefix) -> list[tuple[InstantTime, PlannedIndex]]:
    return [
        (plan.requested_time, each)
        for plan in pending_indexings(prefix.timeline)
        for each in decode_index_plan(prefix.requests[plan.requested_time], path=str(plan))
    ]


def _indexes_changed(
    prefix: Prefix, *, usable: Iterable[str] = (), gone: Iterable[str] = ()
) -> tuple[Event, ...]:
    """Say of indexes that they can be used, or that they are neither used nor built; once each."""
    config, removed = _config_of(prefix), set(gone)
    definitions, is_lost = prefix.definitions, prefix.definitions_lost is not None
    if is_lost:
        planned = {each.partition: definition_of(each) for _, each in _planned(prefix)}
        definitions = {name: each for name, each in planned.items() if each is not None}
        removed |= defined_indexes(config) - planned.keys()
    ended = {*usable, *removed}
    in_use = (set(config.metadata_partitions) | set(usable)) - removed
    building = set(config.metadata_partitions_inflight) - ended
    left = {name: each for name, each in definitions.items() if name not in removed}
    has_fewer = is_lost or len(left) < len(definitions)
    changes = {
        METADATA_PARTITIONS.key: METADATA_PARTITIONS.encode(tuple(sorted(in_use))),
        METADATA_PARTITIONS_INFLIGHT.key: METADATA_PARTITIONS_INFLIGHT.encode(
            tuple(sorted(building))
        ),
        **births_changed(config, {}, removed),
        **_definitions_moved(prefix, has_fewer),
    }
    return (ConfigChanged(changes), *_defined(prefix, left if has_fewer else None))


def _defined(
    prefix: Prefix, definitions: Mapping[str, IndexDefinition] | None
) -> tuple[DefinitionsChanged, ...]:
    if definitions is None:
        return ()
    path = definitions_path(_config_of(prefix))
    content = encode_index_definitions(definitions)
    return (DefinitionsChanged(INDEX_DEFINITIONS if prefix.is_fenced else path, content),)


def _definitions_moved(prefix: Prefix, is_written: bool) -> dict[str, str | None]:
    """Return the change of table config if definitions are written to another place than before.

    One place is journaled; what lies elsewhere another engine has put there.
    """
    path = _config_of(prefix).index_defs_path
    is_elsewhere = path is not None and path != INDEX_DEFINITIONS
    has_moved = is_written and prefix.is_fenced and is_elsewhere
    return {INDEX_DEFS_PATH.key: INDEX_DEFINITIONS} if has_moved else {}


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


def index_outdated(plan: InstantTime) -> ConflictError:
    return ConflictError(
        f"What index plan {plan} was built on is gone, or perhaps so: a rollback or restore took "
        "it back, or a clean deleted it. Nothing was completed; build again",
        kind=ErrorKind.INDEX_OUTDATED,
        retry=Retry.FRESH_VIEW,
        instant=plan,
    )
