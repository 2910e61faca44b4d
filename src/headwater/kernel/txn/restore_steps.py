"""The first step of a restore, as a pure decision; `services.restore` runs it.

    RequestRestore    say which instants are taken back

The instants are then taken back one by one (`withdrawal.TakeBackForRestore`), and the restore
completes like any plan.

What a crash leaves behind, by the last write that landed:

    attempt    nobody needs to repair: the time is used up, no instant exists
    request    whoever calls `restore` or `clean` goes on, once the heartbeat has lapsed
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.errors import (
    ConflictError,
    ErrorKind,
    HeadwaterError,
    InvalidInputError,
    NotFoundError,
    UnsupportedError,
)
from headwater.format.timeline.records import encode_record
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.txn.prefix import Needs, Prefix
from headwater.kernel.txn.savepoint_steps import find_savepoint, no_such_savepoint
from headwater.kernel.txn.schedule import requested_plan
from headwater.kernel.txn.steps import Claim, Started
from headwater.kernel.txn.transaction import Decision, Refusal
from headwater.kernel.txn.withdrawal import times_of_pending, why_written_elsewhere
from headwater.kernel.view.commits import COMMIT_ACTIONS
from headwater.kernel.view.retention import completed_commits
from headwater.model.instant import Action, Instant, InstantTime
from headwater.model.plans import InstantInfo, RestorePlan

_PLANS = (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING)


@dataclass(frozen=True, slots=True)
class RequestRestore:
    """Request the restore to the savepoint of a commit, unless another one is pending."""

    saved: InstantTime
    claim: Claim

    def needs(self, timeline: Timeline) -> Needs:
        return Needs(history=True, attempt_numbers=times_of_pending(timeline))

    def decide(self, prefix: Prefix) -> Decision[Started] | Refusal:
        timeline = prefix.timeline
        savepoint = find_savepoint(timeline, self.saved)
        if savepoint is None:
            return Refusal(no_such_savepoint(self.saved))
        pending = next((i for i in timeline.pending if i.action is Action.RESTORE), None)
        if pending is not None:
            return Refusal(_is_pending(pending))
        saved = timeline.find(self.saved)
        if saved is None or saved.completion_time is None or not savepoint.is_completed:
            return Refusal(_cannot_be_restored(self.saved))
        plan = plan_restore(timeline, saved)
        error = (
            _why_not_archived(prefix.history, saved)
            or _why_not_saved(timeline, plan)
            or why_written_elsewhere(prefix)
        )
        if error is not None:
            return Refusal(error)
        return requested_plan(Action.RESTORE, encode_record(plan), self.claim, prefix)


def plan_restore(timeline: Timeline, saved: Instant) -> RestorePlan:
    """Return what to take back so that the table is as it was when `saved` completed."""
    assert saved.completion_time is not None
    plans = [
        instant
        for instant in timeline.pending
        if instant.action in _PLANS and instant.requested_time > saved.completion_time
    ]
    commits = [
        instant
        for instant in completed_commits(timeline)
        if instant.completion_time is not None and instant.completion_time > saved.completion_time
    ]
    return RestorePlan(
        instants_to_rollback=tuple(
            InstantInfo(
                commit_time=instant.requested_time,
                action=instant.action if instant.is_pending else instant.action.completed_name,
            )
            for instant in (*reversed(plans), *reversed(commits))
        ),
        savepoint_to_restore_timestamp=saved.requested_time,
    )


def _is_pending(restore: Instant) -> HeadwaterError:
    return ConflictError(
        f"{restore} is pending. Wait until it has ended; if its process died, `clean` finishes it",
        kind=ErrorKind.ALREADY_RUNNING,
        instant=restore.requested_time,
    )


def _cannot_be_restored(saved: InstantTime) -> HeadwaterError:
    return NotFoundError(
        f"The commit {saved} of this savepoint is not on the active timeline, or the savepoint was "
        "never finished. Choose another one",
        kind=ErrorKind.INSTANT_NOT_FOUND,
        instant=saved,
    )


def _why_not_saved(timeline: Timeline, plan: RestorePlan) -> HeadwaterError | None:
    undone = {info.commit_time for info in plan.instants_to_rollback}
    for point in timeline.savepoints:
        if point.requested_time in undone:
            return InvalidInputError(
                f"A restore to {plan.savepoint_to_restore_timestamp} would take back commit "
                f"{point.requested_time}, which has a savepoint of its own. Delete that first. "
                "Nothing was changed",
                kind=ErrorKind.INVALID_STATE,
                instant=point.requested_time,
            )
    return None


def _why_not_archived(history: tuple[Instant, ...], saved: Instant) -> HeadwaterError | None:
    """Our archival ends before what a restore may take back; that of others may not."""
    for instant in history:
        if (
            instant.action.completed_name in COMMIT_ACTIONS
            and (instant.completion_time or "") > (saved.completion_time or "")
            and instant.requested_time != saved.requested_time
        ):
            return UnsupportedError(
                f"{instant} completed after the savepoint {saved.requested_time} and is archived, "
                "so it cannot be taken back. Choose a later savepoint",
                instant=instant.requested_time,
            )
    return None
