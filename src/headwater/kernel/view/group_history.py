"""All committed files of one file group, and which of them readers may still ask for.

A segment is a base file with every log file that completed after it was requested and before the
next base file was; logs below the first base file are a segment of their own. It is the slice that
readers see, plus what goes with it: logs that a log compaction took in, and CDC logs. A segment is
kept or deleted as a whole.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection
from dataclasses import dataclass

from headwater.model.files import BaseFile, DataFile, FileGroupId, FileSlice, LogFile
from headwater.model.instant import InstantTime


@dataclass(frozen=True, slots=True)
class Segment:
    """Files that are kept or deleted together.

    `start` is the requested time of the base file, or of the first log where there is none.
    """

    start: InstantTime
    files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHistory:
    """Every committed file of a group, replaced ones too."""

    group: FileGroupId
    files: tuple[DataFile, ...]
    change_times: tuple[InstantTime, ...]
    """When what readers see of the group changed: completion times of its files and replaces."""
    switch_times: tuple[InstantTime, ...]
    """Those of them at which files went out of sight. At all others logs were added, no more."""
    completion_time_of: Callable[[InstantTime], InstantTime]
    latest_as_of: Callable[[InstantTime], FileSlice | None]
    """What readers see as of a completion time, inclusive."""

    def segments(self) -> list[Segment]:
        """Return the segments, oldest first."""
        bases = sorted(
            (file for file in self.files if isinstance(file, BaseFile)),
            key=lambda base: base.instant_time,
        )
        cuts = [base.instant_time for base in bases]
        files: list[list[DataFile]] = [[] for _ in range(len(cuts) + 1)]
        for number, base in enumerate(bases, start=1):
            files[number].append(base)
        for file in self.files:
            if not isinstance(file, BaseFile):
                files[self._cuts_below(file, cuts)].append(file)
        starts = [min((file.instant_time for file in files[0]), default=InstantTime("")), *cuts]
        return [
            Segment(start, tuple(some)) for start, some in zip(starts, files, strict=True) if some
        ]

    def _cuts_below(self, log: LogFile, cuts: list[InstantTime]) -> int:
        if log.old is not None:
            return bisect_right(cuts, log.old.base_time)
        own = bisect_left(cuts, log.instant_time)
        if own < len(cuts) and cuts[own] == log.instant_time:
            return own + 1  # An instant wrote it beside its own base file.
        return bisect_left(cuts, self.completion_time_of(log.instant_time))

    def paths_needed(self, since: InstantTime, at: Collection[InstantTime] = ()) -> set[str]:
        """Return the files that some view needs: as of `since` or later, or as of one of `at`."""
        times = {since, *at, *(self.change_times[-1:])}
        for switch in self.switch_times:
            # Between two switches a view only grows, so the last one before each has all of them.
            before = bisect_left(self.change_times, switch) - 1
            if before >= 0:
                times.add(self.change_times[before])
        slices = (self.latest_as_of(time) for time in times if time >= since or time in at)
        return {file.path for found in slices if found is not None for file in found.files()}
