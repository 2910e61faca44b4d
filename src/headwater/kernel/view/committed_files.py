"""The committed files of a table, and which of them are visible at a completion time.

A replace hides what was in a file group, not what comes after: a file id may be used again (H-43).
A write that completed after the replace knew of it, or its conflict check would have failed
(INV-61). A compaction knows only what completed before it was requested: one that was planned
before the replace writes the replaced rows again, however late it completes.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import TypeVar

from headwater.kernel.view.commits import CompletedCommit
from headwater.kernel.view.group_history import GroupHistory
from headwater.kernel.view.slicing import NO_LOG_COMPACTIONS, build_slices, merge_latest
from headwater.model.files import (
    BaseFile,
    DataFile,
    FileGroupId,
    FileSlice,
    LogFile,
    parse_data_file,
)
from headwater.model.instant import InstantTime
from headwater.model.plans import CompactionPlan

FileT = TypeVar("FileT", BaseFile, LogFile)


class _FileGroup:
    __slots__ = ("bases", "logs")

    def __init__(self) -> None:
        self.bases: list[BaseFile] = []
        self.logs: list[LogFile] = []


class CommittedFiles:
    """Commits and the files they wrote, gathered by file group."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[FileGroupId, _FileGroup]] = {}  # By partition.
        self._completions: dict[InstantTime, InstantTime] = {}
        self._knowledge: dict[InstantTime, InstantTime] = {}
        self._replaced: dict[FileGroupId, list[InstantTime]] = {}
        self._log_compactions: dict[FileGroupId, dict[InstantTime, tuple[str, ...]]] = {}

    @property
    def partitions(self) -> list[str]:
        """The partitions of the files gathered so far."""
        return sorted(self._groups)

    @property
    def completion_times(self) -> list[InstantTime]:
        """The completion times of the commits gathered so far, in order."""
        return sorted(self._completions.values())

    def completion_time_of(self, requested_time: InstantTime) -> InstantTime:
        """Return when the commit of a file that was gathered completed."""
        return self._completions[requested_time]

    def add_commit(self, commit: CompletedCommit, plan: CompactionPlan | None = None) -> None:
        """Take note of a commit; `plan` is that of a log compaction. Its files are added apart."""
        if commit.requested_time in self._completions:
            return
        self.add_instant(
            commit.requested_time, commit.completion_time, is_compaction=commit.is_any_compaction
        )
        self.add_replaced(commit)
        if plan is not None:
            self.add_log_compaction(commit.requested_time, plan)

    def add_instant(
        self, requested_time: InstantTime, completion_time: InstantTime, *, is_compaction: bool
    ) -> None:
        """Take note of when an instant completed, whose files may be added from then on."""
        self._completions[requested_time] = completion_time
        # Which replaces the content of its files takes into account.
        self._knowledge[requested_time] = requested_time if is_compaction else completion_time

    def add_replaced(self, commit: CompletedCommit) -> None:
        """Take note of the file groups that a commit replaced, once for each commit."""
        for group in commit.replaced_groups():
            insort(self._replaced.setdefault(group, []), commit.completion_time)

    def add_log_compaction(self, requested_time: InstantTime, plan: CompactionPlan) -> None:
        """Take note of which logs a log compaction took in."""
        for operation in plan.operations or ():
            group = FileGroupId(operation.partition_path or "", operation.file_id or "")
            # Plans of before version 2 hold whole paths.
            names = tuple(path.rpartition("/")[2] for path in operation.delta_file_paths or ())
            self._log_compactions.setdefault(group, {})[requested_time] = names

    def knows(self, requested_time: InstantTime) -> bool:
        """Whether an instant was noted."""
        return requested_time in self._completions

    def add_files(self, files: Iterable[DataFile]) -> None:
        """Take note of files that noted commits wrote, each of them once."""
        found: dict[tuple[str, str], _FileGroup] = {}
        for file in files:
            # Most files are of a group that was met before, so its id is not made for each.
            place = file.partition, file.file_id
            group = found.get(place)
            if group is None:
                group_id = file.group
                groups = self._groups.setdefault(group_id.partition, {})
                group = found[place] = groups.setdefault(group_id, _FileGroup())
            if isinstance(file, BaseFile):
                group.bases.append(file)
            else:
                group.logs.append(file)

    def slices(
        self,
        partitions: Iterable[str],
        as_of: InstantTime | None,
        pending_compactions: Mapping[FileGroupId, InstantTime],
    ) -> Iterator[tuple[FileSlice, ...]]:
        """Give the slices of each visible group, newest first, in the order of group ids."""
        for partition in sorted(set(partitions)):
            groups = self._groups.get(partition, {})
            yield from self.slices_of(groups, as_of, pending_compactions)

    def slices_of(
        self,
        groups: Iterable[FileGroupId],
        as_of: InstantTime | None,
        pending_compactions: Mapping[FileGroupId, InstantTime],
    ) -> Iterator[tuple[FileSlice, ...]]:
        """Give the same of some groups only, of those that there are."""
        for group in sorted(groups):
            if group in self._groups.get(group.partition, {}):
                pending = pending_compactions.get(group)
                slices = self._slices_of(group, as_of, () if pending is None else (pending,))
                if slices:
                    yield slices

    def histories(self, partitions: Iterable[str]) -> Iterator[GroupHistory]:
        """Give every group with all its files, those that a replace hides too, in order."""
        for partition in sorted(set(partitions)):
            groups = self._groups.get(partition, {})
            for group in sorted(groups):
                files: tuple[DataFile, ...] = (*groups[group].bases, *groups[group].logs)
                times = {self._completions[file.instant_time] for file in files}
                switches = {self._completions[base.instant_time] for base in groups[group].bases}
                switches.update(self._replaced.get(group, ()))
                merged = self._log_compactions.get(group, NO_LOG_COMPACTIONS)
                switches.update(self._completions[time] for time in merged)
                yield GroupHistory(
                    group=group,
                    files=files,
                    change_times=tuple(sorted(times | switches)),
                    switch_times=tuple(sorted(switches)),
                    completion_time_of=self.completion_time_of,
                    latest_as_of=partial(self._latest_of, group),
                )

    def _latest_of(self, group: FileGroupId, as_of: InstantTime) -> FileSlice | None:
        return merge_latest(self._slices_of(group, as_of, ()))

    def _slices_of(
        self, group: FileGroupId, as_of: InstantTime | None, pending: Collection[InstantTime]
    ) -> tuple[FileSlice, ...]:
        files = self._groups[group.partition][group]
        if len(files.bases) == 1 and not files.logs and not pending and group not in self._replaced:
            # Most groups of most tables are no more than this.
            (base,) = files.bases
            done = self._completions[base.instant_time]
            is_visible = as_of is None or done <= as_of
            return (FileSlice(group, base.instant_time, base, (), done),) if is_visible else ()
        return build_slices(
            self._visible(group, files.bases, as_of),
            self._visible(group, files.logs, as_of),
            self._completions.get,
            as_of=as_of,
            pending_compactions=pending,
            log_compactions=self._log_compactions.get(group, NO_LOG_COMPACTIONS),
        )

    def _visible(
        self, group: FileGroupId, files: list[FileT], as_of: InstantTime | None
    ) -> list[FileT]:
        """Return the files of a group that no replace hides at a completion time."""
        times = self._replaced.get(group, [])
        done = len(times) if as_of is None else bisect_right(times, as_of)
        if not done:
            return files
        replaced = times[done - 1]
        # What the replace itself wrote to the group knows of it to the millisecond.
        return [file for file in files if self._knowledge[file.instant_time] >= replaced]


def input_times(plans: Iterable[CompactionPlan | None]) -> set[InstantTime]:
    """Return the instants of the logs that log compactions took in, by their plans."""
    paths = (
        path
        for plan in plans
        if plan is not None
        for operation in plan.operations or ()
        for path in operation.delta_file_paths or ()
    )
    logs = (parse_data_file(path) for path in paths)
    return {log.instant_time for log in logs if log is not None}
