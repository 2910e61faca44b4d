"""Issuing instant times: unique and strictly increasing under any clock skew, without sleeping.

Requested and completion times come from this one rule, applied inside a transaction to the
timeline just reloaded there (H-45). Stock Hudi sleeps through the expected skew instead; that
fails when the skew is larger than expected.

One wrong clock moves the table to its time for good, since all later times are larger (N-64). So a
clock that is further ahead of the largest time known than a bound is compared with the store's, and
refused if it is ahead of that as well. A table without instants has nothing to lose, and a table
that is ahead already goes on from where it is.
"""

from __future__ import annotations

import logging

from headwater.errors import ErrorKind, InvalidInputError
from headwater.model.instant import InstantTime, instant_time_after, instant_time_at

log = logging.getLogger(__name__)

WARN_AT = 10
"""A clock that is ahead by this part of the bound is wrong already, and warned of."""


def issue_time(now_ms: int, largest_known: InstantTime | None, *, is_utc: bool) -> InstantTime:
    """Return max(clock, largest time known + 1 ms)."""
    clock = instant_time_at(now_ms, is_utc=is_utc)
    if largest_known is None:
        return clock
    return max(clock, instant_time_after(largest_known))


def is_doubtful(
    now_ms: int, largest_known: InstantTime | None, ahead_ms_max: int, *, is_utc: bool
) -> bool:
    """Whether the store has to be asked before a time of this clock is given out."""
    if not ahead_ms_max or largest_known is None:
        return False
    clock = instant_time_at(now_ms, is_utc=is_utc)
    return clock > instant_time_after(largest_known, ahead_ms_max // WARN_AT)


def check_clock(now_ms: int, store_ms: int, ahead_ms_max: int) -> None:
    """Refuse a clock that is too far ahead of the store's.

    Raises:
        InvalidInputError: kind CLOCK_AHEAD.
    """
    ahead_ms = now_ms - store_ms
    if ahead_ms > ahead_ms_max:
        raise InvalidInputError(
            f"The clock of this process is {ahead_ms} ms ahead of the store's, more than "
            f"headwater.clock.ahead.max.ms = {ahead_ms_max} allows. An instant of that time would "
            "move the table there for good; nothing was written. Set the clock right. A table that "
            "has such an instant already works on, but its times stay there: to mend it, copy its "
            "rows to a new table",
            kind=ErrorKind.CLOCK_AHEAD,
            now_ms=now_ms,
            store_ms=store_ms,
        )
    if ahead_ms > ahead_ms_max // WARN_AT:
        log.warning(
            "clock ahead of the store's ahead_ms=%d refused_at_ms=%d", ahead_ms, ahead_ms_max
        )
