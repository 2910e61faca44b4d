"""The newest slices of partitions as a process saw them last: the next look adds a few logs.

A write looks at the partitions that it touches, and finds what the write before it found and the
logs that came since. A group that waits for its compaction may have thousands of them, so those
that were in place are not placed again.

What is kept is followed only where the rules of `kernel.view.slicing` leave no choice: all commits
and files of before are there still, and all that came are logs of delta commits. They completed
after everything that was there, so they lie on top of it. Anything else, such as a new base file, a
replace, a rollback or an archived commit, is left to a view. Pure: whatever was kept, the slices
are those that a view makes of the same files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from headwater.format.metadata.records import FileInfo
from headwater.model.files import DataFile, FileGroupId, FileSlice, LogFile, parse_data_file
from headwater.model.instant import Action, Instant, InstantTime

FEW = 256
"""How many files may have come. With more of them a view is about as fast."""

_PARTITIONS_MAX = 8
_FILES_MAX = 20_000
"""Of how many partitions slices are kept, and of how many files all together."""


@dataclass(frozen=True, slots=True)
class SlicedPartition:
    """The newest slices of one partition, and all that they were made of."""

    partition: str
    listed: Mapping[str, FileInfo]
    """The committed files by name, all of them of completed commits."""
    commits: tuple[Instant, ...]
    """The commits of the active timeline, by completion time."""
    slices: tuple[FileSlice, ...]

    def followed(
        self, listed: Mapping[str, FileInfo], commits: tuple[Instant, ...]
    ) -> SlicedPartition | None:
        """Return what these files and commits make; None if more has changed than logs that came.

        `listed` may have files of commits that are not among `commits`.
        """
        known = len(self.commits)
        if commits[:known] != self.commits or not self.listed.items() <= listed.items():
            return None
        since = {each.requested_time: each.completion_time for each in commits[known:]}
        names = listed.keys() - self.listed.keys()
        is_more = any(each.action is not Action.DELTA_COMMIT for each in commits[known:])
        if is_more or len(names) > FEW:
            return None
        came: dict[FileGroupId, list[LogFile]] = {}
        for name in names:
            file = self._file(name, listed[name])
            if not isinstance(file, LogFile) or file.instant_time not in since:
                return None
            if not file.is_cdc:
                came.setdefault(file.group, []).append(file)
        slices = {one.group: one for one in self.slices}
        for group, logs in came.items():
            logs.sort(key=lambda log: (since[log.instant_time], log.version, log.write_token))
            slices[group] = _with_logs(slices.get(group), group, tuple(logs))
        ordered = tuple(slices[group] for group in sorted(slices))
        return SlicedPartition(self.partition, listed, commits, ordered)

    def _file(self, name: str, info: FileInfo) -> DataFile | None:
        path = f"{self.partition}/{name}" if self.partition else name
        return parse_data_file(path, info.size_bytes)


def _with_logs(
    before: FileSlice | None, group: FileGroupId, logs: tuple[LogFile, ...]
) -> FileSlice:
    if before is not None and before.base is not None:
        return replace(before, logs=before.logs + logs)
    # A group without a base file is called by the first time in it, and a slow write may be first.
    times: list[InstantTime] = [log.instant_time for log in logs]
    if before is None:
        return FileSlice(group, min(times), None, logs)
    first = min(before.base_instant, *times)
    return replace(before, base_instant=first, logs=before.logs + logs)


class KeptSlices:
    """Those of the partitions that were looked at last. Threads may share it."""

    def __init__(self) -> None:
        self._kept: tuple[SlicedPartition, ...] = ()

    def follow(
        self, listed: Mapping[str, Mapping[str, FileInfo]], commits: tuple[Instant, ...]
    ) -> list[FileSlice] | None:
        """Return the slices of some partitions, by partition; None if a view has to make them."""
        kept = {one.partition: one for one in self._kept}
        found: list[SlicedPartition] = []
        for partition in sorted(listed):
            before = kept.get(partition)
            now = None if before is None else before.followed(listed[partition], commits)
            if now is None:
                return None
            found.append(now)
        self._keep(found)
        return [each for one in found for each in one.slices]

    def keep(
        self,
        listed: Mapping[str, Mapping[str, FileInfo]],
        commits: tuple[Instant, ...],
        slices: Sequence[FileSlice],
    ) -> None:
        """Take note of what a view has made; all that is listed must be of completed commits."""
        if len(listed) > _PARTITIONS_MAX:
            return
        of_partition: dict[str, list[FileSlice]] = {partition: [] for partition in listed}
        for one in slices:
            of_partition[one.group.partition].append(one)
        self._keep(
            [
                SlicedPartition(partition, listed[partition], commits, tuple(some))
                for partition, some in of_partition.items()
            ]
        )

    def _keep(self, newest: Sequence[SlicedPartition]) -> None:
        fresh = {one.partition for one in newest}
        room = _FILES_MAX
        kept: list[SlicedPartition] = []
        for one in (*newest, *(old for old in self._kept if old.partition not in fresh)):
            room -= len(one.listed)
            if room < 0 or len(kept) == _PARTITIONS_MAX:
                break
            kept.append(one)
        self._kept = tuple(kept)
