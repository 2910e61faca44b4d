"""What metrics tell of a timeline: how many instants are pending, and how old the oldest is."""

from __future__ import annotations

from headwater.kernel.timeline.active import Timeline
from headwater.model.instant import Action, InstantTime, epoch_ms
from headwater.seams.meters import is_listening
from headwater.seams.metrics import PENDING, PENDING_AGE


def meter_timeline(table: str, timeline: Timeline, now: InstantTime) -> None:
    """Tell what was pending when a timeline was read."""
    if not is_listening():
        return
    now_ms = epoch_ms(now, is_utc=True)  # Both in one zone, whichever it is.
    for action in Action:
        times = [i.requested_time for i in timeline.pending if i.action is action]
        age_ms = now_ms - epoch_ms(min(times), is_utc=True) if times else 0
        PENDING.set(len(times), table, action)
        PENDING_AGE.set(max(0, age_ms) / 1000, table, action)
