"""Rolling back removable plans, as clean does with failed writes (RFC-79).

A removable plan whose execution failed is not executed again, and one that nobody has begun to
execute for longer than `table_service_rollback_delay` never will be. Both leave the timeline by a
rollback, so that they stand in nobody's way. A plan that somebody executes is left alone, and so is
every plan without the flag.

It deletes data files of failed executions, nothing else. What a crash leaves behind is that of any
rollback: see `kernel.txn.rollback`.
"""

from __future__ import annotations

import logging

from headwater.errors import ErrorKind, HeadwaterError, NotFoundError
from headwater.kernel.timeline.active import Timeline, instant_path, load_active
from headwater.kernel.timeline.contents import load_contents
from headwater.kernel.txn.plan_flags import FLAGGED, decode_flags
from headwater.kernel.txn.rollback import Rollbacks, RolledBackWrite
from headwater.model.instant import Instant, InstantTime, State

log = logging.getLogger(__name__)

_LEFT_ALONE = (ErrorKind.ALREADY_RUNNING, ErrorKind.PLAN_TOO_YOUNG, ErrorKind.INSTANT_NOT_FOUND)
"""Somebody is at work on the plan or may still be, or has just ended it."""


def rollback_removable_plans(
    rollbacks: Rollbacks, timeline: Timeline | None = None
) -> list[RolledBackWrite]:
    """Roll back the removable plans that nobody executes and nobody will.

    `timeline` is the table's, if it was listed before.

    Raises: see `Rollbacks.roll_back`; the other plans are rolled back all the same.
    """
    done = []
    first_error: HeadwaterError | None = None
    for time in removable_plans(rollbacks, timeline):
        try:
            outcome = rollbacks.roll_back(time)
        except HeadwaterError as error:
            if error.kind not in _LEFT_ALONE:
                log.warning("removable plan not rolled back instant=%s error=%s", time, error)
                first_error = first_error or error
            continue
        if isinstance(outcome, RolledBackWrite):
            done.append(outcome)
    if first_error is not None:
        raise first_error
    return done


def give_up(rollbacks: Rollbacks, time: InstantTime) -> None:
    """Roll back a removable plan that failed, if storage lets us now; otherwise clean does later.

    Any other plan stays: whoever executes it next finishes it.
    """
    try:
        if time in removable_plans(rollbacks):
            rollbacks.roll_back(time)
    except HeadwaterError as error:
        log.warning("failed plan left for clean instant=%s error=%s", time, error)


def removable_plans(rollbacks: Rollbacks, timeline: Timeline | None = None) -> list[InstantTime]:
    """Return the pending removable plans by requested time."""
    storage, folder = rollbacks.components.storage, rollbacks.layout.timeline
    if timeline is None:
        timeline = load_active(storage, folder)
    pending = [plan for plan in timeline.pending if plan.action in FLAGGED]
    return [plan.requested_time for plan in pending if _is_removable(rollbacks, plan)]


def _is_removable(rollbacks: Rollbacks, plan: Instant) -> bool:
    storage, folder = rollbacks.components.storage, rollbacks.layout.timeline
    try:
        (request,) = load_contents(storage, folder, [plan], State.REQUESTED)
    except NotFoundError:
        # It has ended since, or its rollback has begun: whoever finishes rollbacks comes to it.
        return False
    path = instant_path(folder, plan, State.REQUESTED)
    return decode_flags(plan, request, path=path).is_removable
