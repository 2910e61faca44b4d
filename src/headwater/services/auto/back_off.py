"""Leaving alone for a while what writers keep cancelling, and what failed or came to nothing.

Every time doubles the pause, up to `LONGEST_MS`; success forgets it. It is remembered for each file
group where the work was on file groups, so that hot ones do not hold up cold ones.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from headwater.model.files import FileGroupId
from headwater.model.instant import InstantTime
from headwater.services.advice.advice import Need

FIRST_MS = 10_000
LONGEST_MS = 3_600_000


class _Rest(NamedTuple):
    times: int
    until_ms: int


Subject = FileGroupId | InstantTime | None
"""What is left alone: a file group, a plan, or None for all work of its kind that names neither."""

_Key = tuple[Need, Subject]

_CLUSTERING = Need.SMALL_FILES
"""Both needs that a clustering meets are left alone together."""


class BackOff:
    """What this process leaves alone, and until when by its own clock."""

    def __init__(self, first_ms: int = FIRST_MS, longest_ms: int = LONGEST_MS) -> None:
        self._first_ms = first_ms
        self._longest_ms = longest_ms
        self._rests: dict[_Key, _Rest] = {}

    def note(self, need: Need, subjects: Collection[Subject], now_ms: int) -> None:
        """Leave work alone."""
        self._forget_old(now_ms)
        for key in _keys(need, subjects):
            times = self._rests[key].times + 1 if key in self._rests else 1
            pause_ms = min(self._longest_ms, self._first_ms * 2 ** min(times - 1, 40))
            self._rests[key] = _Rest(times, now_ms + pause_ms)

    def forget(self, need: Need, subjects: Collection[Subject]) -> None:
        """Forget what was noted: it got through."""
        for key in _keys(need, subjects):
            self._rests.pop(key, None)

    def is_resting(self, need: Need, subject: Subject, now_ms: int) -> bool:
        """Whether work is left alone."""
        (key,) = _keys(need, [subject])
        rest = self._rests.get(key)
        return rest is not None and now_ms < rest.until_ms

    def avoided(self, now_ms: int) -> dict[Need, frozenset[FileGroupId]]:
        """Return the file groups that are left alone, by kind of work."""
        found: dict[Need, set[FileGroupId]] = {}
        for (need, subject), rest in self._rests.items():
            if isinstance(subject, FileGroupId) and now_ms < rest.until_ms:
                found.setdefault(need, set()).add(subject)
        return {need: frozenset(groups) for need, groups in found.items()}

    def _forget_old(self, now_ms: int) -> None:
        """Forget what was last noted long ago: clustering makes new file groups all the time."""
        kept = {
            key: rest
            for key, rest in self._rests.items()
            if now_ms < rest.until_ms + self._longest_ms
        }
        self._rests = kept


def _keys(need: Need, subjects: Collection[Subject]) -> list[_Key]:
    kind = _CLUSTERING if need is Need.UNSORTED else need
    return [(kind, subject) for subject in subjects]
