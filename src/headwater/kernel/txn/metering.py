"""What metrics tell of a transaction: every change of the timeline is an event, and passes here.

Counted is what was written. A transaction whose outcome is unknown counts for nothing, though it
may have landed: sums are at most what the timeline shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.errors import FencedError, HeadwaterError
from headwater.kernel.layout import CANCELS
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.timeline.metering import meter_timeline
from headwater.kernel.txn.events import (
    Aborted,
    AttemptStarted,
    Completed,
    Event,
    Requested,
    RolledBack,
)
from headwater.model.instant import Action
from headwater.seams.meters import is_listening
from headwater.seams.metrics import FENCED, PLANS, TAKEN_OVER

if TYPE_CHECKING:
    from headwater.kernel.txn.attempts import Attempt
    from headwater.kernel.txn.prefix import Prefix


def meter_decision(table: str, prefix: Prefix, events: Sequence[Event], seen: Timeline) -> None:
    """Count what a step decided and its transaction wrote; `seen` is the timeline after it."""
    if not is_listening():
        return
    meter_timeline(table, seen, prefix.next_time)
    for event in events:
        match event:
            case Requested(_, action):
                _count(table, action, "scheduled")
            case Completed(_, action):
                _count(table, action, "completed")
            case Aborted(_, action):
                _count(table, action, "aborted")
            case RolledBack(_, action):
                _count(table, action, "rolled_back")
            case AttemptStarted(attempt) if _is_taken_over(attempt, prefix):
                TAKEN_OVER.add(1, table)
            case _:
                pass


def _is_taken_over(attempt: Attempt, prefix: Prefix) -> bool:
    """Whether an attempt goes on where another one stopped without a word."""
    before = prefix.newest_attempts.get(attempt.instant)
    return before is not None and not before.attempt.is_released and not attempt.is_released


def meter_ensured(table: str, path: str) -> None:
    """Count a plan as cancelled where its entry was made; writes that meet it later find that."""
    if path.startswith(f"{CANCELS}/"):
        _count(table, Action.CLUSTERING, "cancelled")


def meter_refusal(table: str, error: HeadwaterError) -> None:
    """Count a step that refused because another process has taken over."""
    if isinstance(error, FencedError):
        FENCED.add(1, table, str(error.kind))


def _count(table: str, action: Action, event: str) -> None:
    """Count an event of a plan; writes have metrics of their own."""
    if not action.is_ingestion:
        PLANS.add(1, table, action, event)
