"""What a listing of the timeline shows that the journal of a fenced table does not have.

Pure: a state and names in, findings out. What becomes of them `other_engines` says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from headwater.kernel.journal.state import ERASED_KEPT, JournalState
from headwater.kernel.layout import cancel_path
from headwater.kernel.timeline.active import parse_timeline
from headwater.kernel.timeline.names import TIME_LENGTH, parse_file_name
from headwater.model.instant import Action, Instant, InstantTime, State

PLANS = (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING)
"""What any engine may execute, whoever planned it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What a listing of the timeline shows that the journal does not."""

    pending: tuple[Instant, ...] = ()
    overlapping: tuple[Instant, ...] = ()
    completed: tuple[Instant, ...] = ()
    """Those of other engines that nothing of ours overlaps with, by their times."""
    names: Mapping[InstantTime, tuple[str, ...]] = field(default_factory=dict)
    """The files of all these, by requested time."""
    gone: frozenset[str] = frozenset()
    """Files of ended instants that the journal has, that were written, and that are not there."""
    missing: frozenset[str] = frozenset()
    """Other files of the journal that are not there: not written yet, or gone as well."""
    strays: tuple[str, ...] = ()
    """Files of ours that the journal is about to forget that it erased them."""

    @property
    def is_nothing(self) -> bool:
        found = (self.pending, self.overlapping, self.completed, self.gone, self.strays)
        return not any(found)


def find_others(state: JournalState, listed: Collection[str]) -> Findings:
    """Return what a listing that is not older than the state shows of other engines.

    Raises:
        CorruptTableError: a timeline file without an instant time.
    """
    start, there = f"{state.areas.timeline}/", frozenset(listed)
    known = state.paths.below(state.areas.timeline)
    unknown = [name for name in there if name not in known]
    others = [name for name in unknown if start + name not in state.erased and _is_file(name)]
    # Half of the time is left to refresh what the journal remembers.
    old = state.number - ERASED_KEPT // 2
    strays = [name for name in unknown if state.erased.get(start + name, old + 1) <= old]
    absent = frozenset(name for name in known if name not in there)
    # What was in a file for sure has left: then the state holds no content of it.
    gone = frozenset(name for name in absent if known[name].data is None and _is_end(name))
    found = Findings(gone=gone, missing=absent - gone, strays=tuple(strays))
    return _with_instants(found, state, others) if others else found


def shows_others(state: JournalState, listed: Iterable[str]) -> bool:
    """Whether a listing that may be older than the state shows files that it does not know.

    What such a listing lacks says nothing.
    """
    start, known = f"{state.areas.timeline}/", state.paths.below(state.areas.timeline)
    unknown = (name for name in listed if name not in known)
    return any(start + name not in state.erased and _is_file(name) for name in unknown)


def had_to_be_seen(state: JournalState) -> frozenset[str]:
    """Return the names on the timeline that whoever writes after us must have seen.

    Pending writes are not among them: they can never complete if others wrote meanwhile.
    """
    names = state.names(state.areas.timeline)
    pending = {i.requested_time for i in parse_timeline(names).pending if i.action.is_ingestion}
    return frozenset(name for name in names if name[:TIME_LENGTH] not in pending)


def barred_by_adoption(state: JournalState) -> tuple[InstantTime, ...]:
    """Return the pending writes of ours, which can never complete after an adoption.

    They may have read, and are about to replace, what the other engine has changed. Plans are not
    among them: a clustering asks at its commit point who has changed its file groups (N-184), and
    what completes after the request of a compaction is no part of what it rewrites.
    """
    pending = parse_timeline(state.names(state.areas.timeline)).pending
    return tuple(instant.requested_time for instant in pending if instant.action.is_ingestion)


def _with_instants(found: Findings, state: JournalState, others: list[str]) -> Findings:
    own = parse_timeline(state.names(state.areas.timeline))
    pending: list[Instant] = []
    overlapping: list[Instant] = []
    completed: list[Instant] = []
    timeline = parse_timeline(others, folder=state.areas.timeline)
    for instant in (*timeline.instants, *timeline.savepoints):
        known = own.find(instant.requested_time)
        if instant.is_pending:
            pending.append(instant)
        elif _is_executed(known, instant, state) or not _is_beside_ours(instant, known, state):
            completed.append(instant)
        else:
            overlapping.append(instant)
    names: dict[InstantTime, tuple[str, ...]] = {}
    for name in sorted(others):
        time = InstantTime(name[:TIME_LENGTH])
        names[time] = (*names.get(time, ()), name)
    return replace(
        found,
        pending=tuple(pending),
        overlapping=tuple(overlapping),
        completed=tuple(completed),
        names=names,
    )


def _is_executed(known: Instant | None, done: Instant, state: JournalState) -> bool:
    """Whether a plan of the journal was executed: that the plan is older than ours is no harm.

    One that a write has cancelled could only be aborted.
    """
    if known is None or not known.is_pending or known.action not in PLANS:
        return False
    is_cancelled = cancel_path(known.requested_time) in state.paths
    return not is_cancelled and done.action in (known.action, known.action.completed_name)


def _is_beside_ours(instant: Instant, known: Instant | None, state: JournalState) -> bool:
    """Whether something of ours was decided since a completed instant began."""
    is_savepoint = instant.action is Action.SAVEPOINT  # It has the time of what it protects.
    began = instant.completion_time if is_savepoint else instant.requested_time
    is_ours = known is not None and not is_savepoint
    return is_ours or began is None or (state.issued is not None and began <= state.issued)


def _is_file(name: str) -> bool:
    return parse_file_name(name) is not None


def _is_end(name: str) -> bool:
    file = parse_file_name(name)
    return file is not None and file.state is State.COMPLETED
