"""Times in queries: the forms that Hudi's time travel understands and others, as instant times.

    20240131093000123         itself: a moment, or the instant that was requested then
    20240131093000            the last millisecond of that second
    2024-01-31 09:30:00.123   that millisecond
    2024-01-31 09:30:00       the last millisecond of that second
    2024-01-31                midnight, when that day begins
    2024-01-31T09:30:00Z      likewise, with or without a fraction or an offset
    a `datetime`              that millisecond

The digits are those of the table's timeline, in its zone; only a time with an offset of its own is
converted to it.

Of the 17 digits that rows carry as `_hoodie_commit_time` and that `Commit` has, some are the time
at which an instant was requested, others that at which one completed. No two are equal, as both
come from one clock that only goes forward (H-45), so `completion_of` can tell which they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType

from headwater.errors import ErrorKind, InvalidInputError
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.timeline.history.read import HistoryTimeline
from headwater.model.instant import INSTANT_TIME_FORMAT, InstantTime

_LAST_MILLISECOND = "999"

# By length, because strptime alone would also take digits that are missing.
_FORMATS: Mapping[int, tuple[str, str]] = MappingProxyType(
    {
        14: (INSTANT_TIME_FORMAT, _LAST_MILLISECOND),
        10: ("%Y-%m-%d", "000"),
    }
)


# What `fromisoformat` takes differs between releases of Python.
_ISO = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:?\d\d)?", re.ASCII
)


def parse_as_of(given: str | datetime, *, is_utc: bool = True) -> InstantTime:
    """Return the instant time that a query means.

    Args:
        is_utc: whether the zone of the table's timeline is UTC, and not that of this process.

    Raises:
        InvalidInputError: kind INVALID_INSTANT_TIME, if what is given has none of the forms, or is
            outside of the years that they can tell.
    """
    try:
        if isinstance(given, datetime):
            return _digits(given, f"{given.microsecond // 1000:03d}", is_utc=is_utc)
        return _parse_text(given, is_utc=is_utc)
    except (ValueError, OverflowError, OSError):  # Of pandas' NaT, and near the years 1 and 9999.
        raise _malformed(given) from None


def _parse_text(given: str, *, is_utc: bool) -> InstantTime:
    if not isinstance(given, str):
        raise _malformed(given)
    if len(given) == 17 and given.isascii() and given.isdigit():
        return InstantTime(given)
    iso = _ISO.fullmatch(given)
    if iso is None:
        return _parse_plain(given)
    day, clock, fraction, offset = iso.groups()
    moment = datetime.fromisoformat(f"{day}T{clock}{(offset or '').replace('Z', '+00:00')}")
    ending = _LAST_MILLISECOND if fraction is None else fraction.ljust(3, "0")[:3]
    return _digits(moment, ending, is_utc=is_utc)


def completion_of(time: InstantTime, timeline: Timeline, history: HistoryTimeline) -> InstantTime:
    """Return when the instant that was requested at a time completed; the time itself if none was.

    So a view as of the time that rows carry holds these rows.
    """
    if any(instant.completion_time == time for instant in timeline.completed):
        return time
    instant = timeline.find(time)
    completed = history.completion_time_of(time) if instant is None else instant.completion_time
    return completed or time


def _parse_plain(text: str) -> InstantTime:
    if not text.isascii() or len(text) not in _FORMATS:
        raise ValueError(text)
    form, ending = _FORMATS[len(text)]
    moment = datetime.strptime(text, form)
    if moment.strftime(form) != text:
        raise ValueError(text)
    return InstantTime(moment.strftime(INSTANT_TIME_FORMAT) + ending)


def _digits(moment: datetime, millisecond: str, *, is_utc: bool) -> InstantTime:
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC if is_utc else None)
    # `strftime` does not fill years up to four digits everywhere.
    text = moment.replace(tzinfo=None, microsecond=0).isoformat()
    return InstantTime(re.sub(r"\D", "", text) + millisecond)


def _malformed(given: object) -> InvalidInputError:
    return InvalidInputError(
        "A time to query as of is a datetime, yyyy-MM-dd, yyyy-MM-dd HH:mm:ss[.SSS], "
        "yyyy-MM-ddTHH:mm:ss[.SSS][offset], or the yyyyMMddHHmmss[SSS] of an instant or moment, "
        f"got {given!r}",
        kind=ErrorKind.INVALID_INSTANT_TIME,
    )
