"""Cancelling plans by their policy and aborting what is cancelled, as clean does it (INV-34).

1. Every pending cancellable plan that has waited longer than its policy allows is cancelled,
   whether it was begun or not.
2. Every entry in `.cancel` is aborted, unless somebody is at work on the plan: that one is left for
   the next run, and its executor will find the entry.

One plan that fails does not stop the rest. `kernel.txn.cancel` holds the protocol, what it may
delete and what a crash leaves behind.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from headwater.errors import ErrorKind, HeadwaterError
from headwater.kernel.timeline.active import Timeline, load_active
from headwater.kernel.txn.cancel import AbortedPlan, Cancellations
from headwater.kernel.txn.prefix import load_cancelled
from headwater.model.instant import Action, Instant, InstantTime, instant_time_at

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelledByPolicy:
    """What a run came to, by requested time."""

    cancelled: tuple[InstantTime, ...]
    """Plans that their policy has cancelled just now."""
    aborted: tuple[AbortedPlan, ...]
    left: tuple[InstantTime, ...]
    """Cancelled plans that somebody is at work on."""


def cancel_and_abort_by_policy(
    cancellations: Cancellations, timeline: Timeline | None = None
) -> CancelledByPolicy:
    """Cancel plans that are due, and abort all that are cancelled.

    `timeline` is the table's, if it was listed before.

    Raises: see `Cancellations.request` and `Cancellations.abort`; the other plans are cancelled and
        aborted all the same.
    """
    storage, layout = cancellations.components.storage, cancellations.layout
    if timeline is None:
        timeline = load_active(storage, layout.timeline)
    plans = [plan for plan in timeline.pending if plan.action is Action.CLUSTERING]
    waiting = load_cancelled(storage) if plans else frozenset()
    errors: list[HeadwaterError] = []
    cancelled = [
        plan.requested_time
        for plan in plans
        if plan.requested_time not in waiting
        and _cancel_if_due(cancellations, timeline, plan, errors)
    ]
    aborted, left = [], []
    for time in sorted(load_cancelled(storage)):
        try:
            aborted.append(cancellations.abort(time))
        except HeadwaterError as error:
            if error.kind is ErrorKind.ALREADY_RUNNING:
                log.info("cancelled plan left to its executor instant=%s reason=%s", time, error)
                left.append(time)
            elif error.kind is ErrorKind.INVALID_STATE:
                # A request of a dead process that landed after the plan had completed. It changes
                # nothing, and goes when the plan has left the timeline.
                log.warning("entry of a completed plan passed over instant=%s", time)
            elif error.kind is not ErrorKind.INSTANT_NOT_FOUND:
                log.warning("cancelled plan not aborted instant=%s error=%s", time, error)
                errors.append(error)
    if aborted:
        timeline = load_active(storage, layout.timeline)
    cancellations.sweep_aborted(timeline)
    if errors:
        raise errors[0]
    return CancelledByPolicy(cancelled=tuple(cancelled), aborted=tuple(aborted), left=tuple(left))


def is_due(plan: Instant, timeline: Timeline, cancellations: Cancellations) -> bool:
    """Whether a pending plan has waited longer than its policy allows, by this process's clock.

    Raises:
        NotFoundError: kind INSTANT_NOT_FOUND; it left the active timeline.
        CorruptTableError: the plan is damaged.
    """
    (flags,) = cancellations.load_flags([plan])
    if flags.policy is None:
        return False
    now_ms = cancellations.components.clock.now_ms()
    now = instant_time_at(now_ms, is_utc=cancellations.layout.is_utc)
    since = sum(other.requested_time > plan.requested_time for other in timeline.instants)
    return flags.policy.is_met(plan.requested_time, now, since)


def _cancel_if_due(
    cancellations: Cancellations, timeline: Timeline, plan: Instant, errors: list[HeadwaterError]
) -> bool:
    try:
        if not is_due(plan, timeline, cancellations):
            return False
        cancellations.request(plan.requested_time, "its cancellation policy is met")
    except HeadwaterError as error:
        if error.kind in (ErrorKind.INSTANT_NOT_FOUND, ErrorKind.INVALID_STATE):
            return False  # It has ended since.
        log.warning("plan not cancelled instant=%s error=%s", plan.requested_time, error)
        errors.append(error)
        return False
    return True
