"""Reading the flags of a plan from its request."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.errors import CorruptTableError, ErrorKind, InvalidInputError
from headwater.format.timeline.records import decode_record
from headwater.kernel.timeline.active import Timeline
from headwater.model.instant import Action, Instant, InstantTime
from headwater.model.plan_flags import PlanFlags
from headwater.model.plans import CompactionPlan, RequestedReplace

FLAGGED = (Action.CLUSTERING, Action.LOG_COMPACTION)
"""Plans that may be removable. Clustering alone may be cancellable; a compaction is neither."""


def flagged_plan(timeline: Timeline, time: InstantTime) -> tuple[Instant, ...]:
    """Return the instant requested at `time` if it is a pending plan that may have flags."""
    instant = timeline.find(time)
    if instant is None or not instant.is_pending or instant.action not in FLAGGED:
        return ()
    return (instant,)


def decode_flags(instant: Instant, request: bytes, *, path: str) -> PlanFlags:
    """Return what the requested file of a plan says about its own end.

    Raises:
        CorruptTableError: the plan is damaged, or its cancellation policy malformed.
    """
    try:
        flags = PlanFlags.from_extra_metadata(_extra_metadata(instant, request, path))
    except InvalidInputError as error:
        raise CorruptTableError(
            f"{path}: {error.message}. Cancel the plan by hand, or execute it",
            kind=ErrorKind.CORRUPT_TIMELINE,
            instant=instant.requested_time,
            path=path,
        ) from error
    if instant.action is Action.LOG_COMPACTION:
        return PlanFlags(is_removable=flags.is_removable)
    return flags


def _extra_metadata(instant: Instant, request: bytes, path: str) -> Mapping[str, str] | None:
    if instant.action is Action.CLUSTERING:
        plan = decode_record(RequestedReplace, request, path=path).clustering_plan
        return None if plan is None else plan.extra_metadata
    if instant.action is Action.LOG_COMPACTION:
        return decode_record(CompactionPlan, request, path=path).extra_metadata
    return None
