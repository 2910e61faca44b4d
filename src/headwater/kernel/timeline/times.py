"""Issuing instant times: unique and strictly increasing under any clock skew, without sleeping.

Requested and completion times come from this one rule, applied inside a transaction to the
timeline just reloaded there (H-45). Stock Hudi sleeps through the expected skew instead; that
fails when the skew is larger than expected.
"""

from __future__ import annotations

from headwater.model.instant import InstantTime, instant_time_after, instant_time_at


def issue_time(now_ms: int, largest_known: InstantTime | None, *, is_utc: bool) -> InstantTime:
    """Return max(clock, largest time known + 1 ms)."""
    clock = instant_time_at(now_ms, is_utc=is_utc)
    if largest_known is None:
        return clock
    return max(clock, instant_time_after(largest_known))
