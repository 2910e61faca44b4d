"""The steps of savepoints, as pure decisions; `services.savepoint` runs them.

    CreateSavepoint    protect a commit: the inflight file, then the completed one
    DeleteSavepoint    protect it no longer
    DropUnfinished     the same, if it was begun and never made

Whoever cleans, archives or takes back looks for savepoints in the transaction that decides it, and
these steps look for them. So a commit is protected, or it is refused because one of them was first.

What a crash leaves behind, by the last write that landed:

    CreateSavepoint    inflight file      cleaning and archival respect it already; the same call
                                          finishes it, its deletion ends it, or the next clean
                       completed file     nothing to repair
    DeleteSavepoint    inflight deleted   the savepoint stands; the same call finishes
                       completed deleted  nothing to repair
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.errors import (
    AlreadyExistsError,
    ConflictError,
    ErrorKind,
    HeadwaterError,
    InvalidInputError,
    NotFoundError,
)
from headwater.format.timeline.records import decode_record
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.txn.events import Completed, SavepointDeleted, WentInflight
from headwater.kernel.txn.prefix import Needs, Prefix
from headwater.kernel.txn.rollback_plan import pending_undoing
from headwater.kernel.txn.steps import no_such_instant
from headwater.kernel.txn.transaction import Decision, Refusal
from headwater.kernel.txn.withdrawal import why_being_undone
from headwater.kernel.view.commits import COMMIT_ACTIONS
from headwater.model.instant import Action, Instant, InstantTime
from headwater.model.plans import RestorePlan


@dataclass(frozen=True, slots=True)
class CreateSavepoint:
    """Protect a commit whose view is whole, is not archived, and that nobody takes back."""

    time: InstantTime
    content: bytes

    def needs(self, timeline: Timeline) -> Needs:
        found = timeline.find(self.time)
        if found is None or found.completion_time is None:
            return Needs()
        return Needs(
            readable=(found.completion_time,),
            in_history=(self.time,),
            changes=pending_undoing(timeline),
        )

    def decide(self, prefix: Prefix) -> Decision[InstantTime] | Refusal:
        commit = prefix.timeline.find(self.time)
        if commit is None:
            return Refusal(no_such_instant(self.time))
        error = (
            why_not_protectable(prefix.timeline, commit)
            or prefix.unreadable.get(commit.completion_time or self.time)
            or why_being_undone(commit, prefix)
        )
        if error is None and self.time in prefix.in_history:
            error = _is_archived(commit)
        if error is not None:
            return Refusal(error)
        events = (
            WentInflight(self.time, Action.SAVEPOINT),
            Completed(self.time, Action.SAVEPOINT, prefix.next_time, self.content),
        )
        return Decision(events, prefix.next_time)


@dataclass(frozen=True, slots=True)
class DeleteSavepoint:
    """Protect a commit no longer, unless a restore is on its way to it.

    Cleaning and archival spare what a restore needs for the sake of the savepoint alone (N-65).
    """

    time: InstantTime

    def needs(self, timeline: Timeline) -> Needs:
        return Needs(requests=_pending_restores(timeline))

    def decide(self, prefix: Prefix) -> Decision[None] | Refusal:
        savepoint = find_savepoint(prefix.timeline, self.time)
        if savepoint is None:
            return Refusal(no_such_savepoint(self.time))
        for restore in _pending_restores(prefix.timeline):
            data = prefix.requests[restore.requested_time]
            plan = decode_record(RestorePlan, data, path=str(restore))
            if plan.savepoint_to_restore_timestamp == self.time:
                return Refusal(_is_restored_to(savepoint, restore))
        return Decision((SavepointDeleted(savepoint),), None)


@dataclass(frozen=True, slots=True)
class DropUnfinished:
    """End a savepoint that was begun and never made, and that nobody is making any more.

    Cleaning and archival spare what it protects, and nobody can go back to it (N-196).
    """

    time: InstantTime

    def needs(self, timeline: Timeline) -> Needs:
        return Needs()

    def decide(self, prefix: Prefix) -> Decision[bool]:
        savepoint = find_savepoint(prefix.timeline, self.time)
        if savepoint is None or savepoint.is_completed:
            return Decision((), False)
        return Decision((SavepointDeleted(savepoint),), True)


def find_savepoint(timeline: Timeline, time: InstantTime) -> Instant | None:
    """Return the savepoint of a commit, an unfinished one too."""
    return next((point for point in timeline.savepoints if point.requested_time == time), None)


def why_not_protectable(timeline: Timeline, chosen: Instant) -> HeadwaterError | None:
    """Return why an instant of the timeline can have no savepoint, or None."""
    if not chosen.is_completed or chosen.action.completed_name not in COMMIT_ACTIONS:
        return InvalidInputError(
            f"{chosen} is no completed commit, so there is nothing to protect",
            kind=ErrorKind.INVALID_STATE,
            instant=chosen.requested_time,
        )
    point = find_savepoint(timeline, chosen.requested_time)
    if point is not None and point.is_completed:
        return AlreadyExistsError(
            f"Commit {chosen.requested_time} has a savepoint already",
            instant=chosen.requested_time,
        )
    return None


def no_such_savepoint(time: InstantTime) -> HeadwaterError:
    return NotFoundError(
        f"Instant {time} has no savepoint. `savepoints()` lists those there are",
        kind=ErrorKind.INSTANT_NOT_FOUND,
        instant=time,
    )


def _pending_restores(timeline: Timeline) -> tuple[Instant, ...]:
    return tuple(instant for instant in timeline.pending if instant.action is Action.RESTORE)


def _is_archived(commit: Instant) -> HeadwaterError:
    return NotFoundError(
        f"{commit} is being archived, so it can have no savepoint any more. Choose a later commit",
        kind=ErrorKind.INSTANT_NOT_FOUND,
        instant=commit.requested_time,
    )


def _is_restored_to(savepoint: Instant, restore: Instant) -> HeadwaterError:
    return ConflictError(
        f"{restore} takes the table back to the savepoint {savepoint.requested_time}. Nothing was "
        "changed; try again when it has ended. If its process died, `clean` finishes it",
        kind=ErrorKind.ALREADY_RUNNING,
        instant=savepoint.requested_time,
        other=restore.requested_time,
    )
