"""What a write tells the one who asked for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.model.files import FileGroupId
from headwater.model.instant import InstantTime

_REDONE_KEY = "headwater.redone"
_REDONE = re.compile(r"times=(\d{1,18}) files=(\d{1,18}) rows=(\d{1,18}) by=(\d*)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Redone:
    """What a write had to write again because others came first."""

    times: int = 0
    """How often it lost, or did not get the table lock in time."""
    files: int = 0
    """Files that it had written and that were written again."""
    rows: int = 0
    by: str = field(default="", compare=False)
    """The instant that it lost to last, if one is known."""

    def to_metadata(self) -> dict[str, str]:
        """Return what the commit says of it: nothing if it never lost."""
        if not self.times:
            return {}
        said = f"times={self.times} files={self.files} rows={self.rows} by={self.by}"
        return {_REDONE_KEY: said}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str] | None) -> Redone:
        """Return what a commit says; one of another release may say it in words that mean nothing
        here, and then counts as one that never lost."""
        found = _REDONE.fullmatch((metadata or {}).get(_REDONE_KEY, ""))
        if found is None:
            return cls()
        times, files, rows, by = found.groups()
        return cls(times=int(times), files=int(files), rows=int(rows), by=by)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A completed write.

    Counts are of rows. A merge-on-read table appends to a file group without looking at what is in
    it, so rows sent to an existing group count as updated there, as in Hudi, and rows that are
    marked as deletes as deleted; with a bucket index also the keys that `delete` is given.
    """

    instant: InstantTime
    completion_time: InstantTime
    inserted: int
    updated: int
    deleted: int
    file_groups: tuple[FileGroupId, ...]
    lock_held_ms: int
    redone: Redone = Redone()
