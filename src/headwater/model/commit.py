"""What a write tells the one who asked for it."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.model.files import FileGroupId
from headwater.model.instant import InstantTime


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
