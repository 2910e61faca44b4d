"""Instants: what happens to a table, when it was requested, and how far it has come."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from enum import StrEnum, unique
from functools import cached_property
from typing import NamedTuple, NewType

from headwater.errors import ErrorKind, InvalidInputError

InstantTime = NewType("InstantTime", str)
"""17 digits, `yyyyMMddHHmmssSSS`, in the zone of the table's timeline. Compares as text."""

INSTANT_TIME_FORMAT = "%Y%m%d%H%M%S"
_SEVENTEEN_DIGITS = re.compile(r"[0-9]{17}", re.ASCII)


@unique
class State(StrEnum):
    REQUESTED = "requested"
    INFLIGHT = "inflight"
    COMPLETED = "completed"
    ABORTED = "aborted"

    @property
    def is_pending(self) -> bool:
        return self in (State.REQUESTED, State.INFLIGHT)


@unique
class Action(StrEnum):
    """An action under the name its pending files carry."""

    COMMIT = "commit"
    DELTA_COMMIT = "deltacommit"
    REPLACE_COMMIT = "replacecommit"
    COMPACTION = "compaction"
    LOG_COMPACTION = "logcompaction"
    CLUSTERING = "clustering"
    CLEAN = "clean"
    ROLLBACK = "rollback"
    RESTORE = "restore"
    SAVEPOINT = "savepoint"
    INDEXING = "indexing"

    @cached_property  # It is asked for each of ten thousand instants.
    def completed_name(self) -> Action:
        """The action in the name of the completed file: a compaction completes as a commit."""
        return _COMPLETES_AS.get(self, self)

    @property
    def is_ingestion(self) -> bool:
        """Whether the action brings rows, as opposed to maintaining those that are there."""
        return self in (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)


_COMPLETES_AS = {
    Action.COMPACTION: Action.COMMIT,
    Action.LOG_COMPACTION: Action.DELTA_COMMIT,
    Action.CLUSTERING: Action.REPLACE_COMMIT,
}


class Instant(NamedTuple):
    """One instant of a timeline. A tuple, because a timeline holds ten thousands of them.

    `action` is the pending action (`COMPACTION`, `CLUSTERING`) while any pending file is there to
    tell it; an instant known from its completed file alone has the completed action.
    """

    requested_time: InstantTime
    action: Action
    state: State
    completion_time: InstantTime | None = None

    @property
    def is_pending(self) -> bool:
        return self.state.is_pending

    @property
    def is_completed(self) -> bool:
        return self.state is State.COMPLETED

    def __str__(self) -> str:
        return f"{self.requested_time}.{self.action}.{self.state}"


def parse_instant_time(text: str) -> InstantTime:
    """Return `text` as an instant time.

    Raises:
        InvalidInputError: it is not 17 digits.
    """
    if not _SEVENTEEN_DIGITS.fullmatch(text):
        raise InvalidInputError(
            f"An instant time is 17 digits (yyyyMMddHHmmssSSS), got {text!r}",
            kind=ErrorKind.INVALID_INSTANT_TIME,
        )
    return InstantTime(text)


def instant_time_at(epoch_ms: int, *, is_utc: bool = True) -> InstantTime:
    """Return the digits of a wall-clock moment, in UTC or in the zone of this process."""
    moment = datetime.fromtimestamp(epoch_ms // 1000, UTC if is_utc else None)
    return InstantTime(f"{moment.strftime(INSTANT_TIME_FORMAT)}{epoch_ms % 1000:03d}")


def epoch_ms(time: InstantTime, *, is_utc: bool) -> int:
    """Return the moment of an instant time; 0 for digits that are no date."""
    try:
        moment = datetime.strptime(time[:14], INSTANT_TIME_FORMAT)
        seconds = (moment.replace(tzinfo=UTC) if is_utc else moment).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0
    return int(seconds) * 1000 + int(time[14:17] or "0")


def instant_time_after(time: InstantTime, milliseconds: int = 1) -> InstantTime:
    """Return the instant time a number of milliseconds later.

    Digits that are no date, such as the metadata table's bootstrap instants `0...0` and `0...1`,
    count up as plain numbers.
    """
    seconds, millis = time[:14], int(time[14:17] or "0")
    whole, rest = divmod(millis + milliseconds, 1000)
    if whole == 0:
        return InstantTime(f"{seconds}{rest:03d}")
    try:
        later = datetime.strptime(seconds, INSTANT_TIME_FORMAT) + timedelta(seconds=whole)
    except (ValueError, OverflowError):
        return InstantTime(f"{int(time) + milliseconds:017d}")
    # strftime drops leading zeros of years below 1000 on some platforms; such years do not occur.
    return InstantTime(f"{later.strftime(INSTANT_TIME_FORMAT)}{rest:03d}")
