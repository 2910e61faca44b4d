"""What earlier cleans have settled, so that the next one looks at what has changed since.

Hudi's incremental cleaning takes the partitions of the commits since the earliest one that the last
clean retained. That forgets what the clean spared for something else: a plan that is cancelled
later, say, leaves no commit behind. So a clean of ours says itself up to which completion time it
has settled the table: a file group without a change after that has nothing to delete, and gets
nothing to delete but by another commit. For a file that a view once showed is needed by none only
after a commit has put something else in its place. Either that commit completed later, and names
the partition; or it had completed before, and then the clean has deleted the file. Taking commits
back only makes files needed.

The whole table is looked at where no clean tells, or what it says does not hold any more:

- there is no clean of ours on the active timeline: the first one, and the first after an upgrade;
- a savepoint that it spared files for is gone;
- it kept more versions of each file group than are to be kept now;
- the table was restored since.

A clean of another engine in between changes nothing: it deletes more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from headwater.format.timeline.records import decode_record
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.timeline.names import is_instant_time
from headwater.kernel.view.commits import CommitReader
from headwater.model.instant import Action, InstantTime
from headwater.model.service_metadata import CleanMetadata

SAVEPOINTS_KEY = "savepointed_timestamps"
"""Hudi's incremental cleaning finds here which savepoints a clean has seen, and so does ours."""

SETTLED_KEY = "headwater.clean.settled.up.to"
VERSIONS_KEY = "headwater.clean.versions.kept"


@dataclass(frozen=True, slots=True)
class Settled:
    """What a clean says about the file groups that it did not have to look at."""

    up_to: InstantTime
    """A file group without a change after this completion time has nothing to delete."""
    versions: int
    """How many slices of such a group stay."""

    def to_extra_metadata(self) -> dict[str, str]:
        return {SETTLED_KEY: self.up_to, VERSIONS_KEY: str(self.versions)}

    @classmethod
    def from_extra_metadata(cls, extra: Mapping[str, str]) -> Self | None:
        """Return what the record of a clean says; None if it does not say it."""
        up_to, versions = extra.get(SETTLED_KEY, ""), extra.get(VERSIONS_KEY, "")
        if not is_instant_time(up_to) or not (versions.isascii() and versions.isdigit()):
            return None
        return cls(InstantTime(up_to), int(versions))


def load_settled(
    timeline: Timeline, commits: CommitReader, versions_kept: int
) -> InstantTime | None:
    """Return the completion time since which a clean has to look; None: at the whole table.

    Raises:
        CorruptTableError: the record of a clean is damaged.
    """
    restored = max(
        (i.requested_time for i in timeline.completed if i.action is Action.RESTORE), default=""
    )
    savepoints = {point.requested_time for point in timeline.savepoints}
    cleans = [i for i in timeline.completed if i.action is Action.CLEAN]
    for clean in reversed(cleans):
        if clean.requested_time < restored:
            return None
        (data,) = commits.load_contents([clean])
        extra = decode_record(CleanMetadata, data, path=str(clean)).extra_metadata or {}
        settled = Settled.from_extra_metadata(extra)
        if settled is None:
            continue
        seen = set(filter(None, extra.get(SAVEPOINTS_KEY, "").split(",")))
        is_valid = seen <= savepoints and settled.versions <= versions_kept
        return settled.up_to if is_valid else None
    return None
