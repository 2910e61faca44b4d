"""Committed files by listing storage and reading commits.

A file counts if the commit metadata of its instant lists it (M6). The commits of the active
timeline are read once for all; an archived commit is read only if storage holds a file that bears
its time. A file that a commit of the active timeline lists counts even if storage does not have it.

Before version 8 the archived timeline is not asked: files of instants before the active one begins
are committed ones, because what failed was rolled back before others were archived (N-112). So are
the blocks of such instants in log files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from headwater.kernel.timeline.active import Timeline
from headwater.kernel.view.commits import COMMIT_ACTIONS, CommitReader, CompletedCommit, old_log
from headwater.kernel.view.committed_files import CommittedFiles, input_times
from headwater.kernel.view.file_index import FileIndex
from headwater.model.files import DataFile, LogFile
from headwater.model.instant import Instant, InstantTime
from headwater.model.plans import CompactionPlan
from headwater.seams.cached import cached_property


class ListedFiles:
    """A source of files that needs nothing but the table itself."""

    forgets_cleaned = False

    def __init__(
        self,
        index: FileIndex,
        reader: CommitReader,
        timeline: Timeline,
        instants: Iterable[Instant],
        counted_before: InstantTime | None = None,
    ) -> None:
        """Make a source.

        Args:
            index: which data files there are in storage.
            instants: the completed commits of the active timeline that are part of the view.
            counted_before: when the active timeline of a table before version 8 begins.
        """
        self._counted_before = counted_before
        self._index = index
        self._reader = reader
        self._timeline = timeline
        self._instants = tuple(instants)
        self.missing: set[str] = set()

    def gather(
        self, files: CommittedFiles, partitions: Collection[str] | None, loaded: Collection[str]
    ) -> None:
        listed = self._listed
        found = {
            file.path: file
            for file in self._index.list_data_files(partitions)
            if file.partition not in loaded
        }
        archived, plans = self._archived(found.values())
        older = self._older(found.values())
        active_plans = self._plans
        # Files are added after everything that may fail and be tried again.
        for commit in self._commits:
            files.add_commit(commit, active_plans.get(commit.requested_time))
        for commit in archived:
            files.add_commit(commit, plans[commit.requested_time])
        for file in older:
            if not files.knows(file.instant_time):
                files.add_instant(file.instant_time, file.instant_time, is_compaction=False)
        for name in listed.keys() - set(loaded) if partitions is None else partitions:
            for path, file in listed.get(name, {}).items():
                if path not in found:
                    self.missing.add(path)
                files.add_files([_stored_as(file, found.get(path))])
        for commit in archived:
            files.add_files(
                _stored_as(file, found[file.path]) for file in commit.files if file.path in found
            )
        files.add_files(older)

    def _archived(
        self, found: Iterable[DataFile]
    ) -> tuple[list[CompletedCommit], dict[InstantTime, CompactionPlan | None]]:
        """Return the archived commits that wrote some of the files, and their plans.

        With them come those whose logs a log compaction took in. Their files may be gone, but when
        they completed says where its output belongs.
        """
        if self._counted_before is not None:
            return [], {}
        archived: list[CompletedCommit] = []
        plans: dict[InstantTime, CompactionPlan | None] = {}
        wanted = {file.instant_time for file in found} | input_times(self._plans.values())
        asked: set[InstantTime] = set()
        while wanted:
            asked |= wanted
            some = self._reader.load_archived(
                time for time in wanted if self._timeline.find(time) is None
            )
            archived += some
            some_plans = {commit.requested_time: self._plan_of(commit) for commit in some}
            plans |= some_plans
            wanted = input_times(some_plans.values()) - asked
        return archived, plans

    def _older(self, found: Iterable[DataFile]) -> list[DataFile]:
        """Return the files of before version 8 whose commits are archived."""
        before = self._counted_before
        if before is None:
            return []
        older = [
            file
            for file in found
            if file.instant_time < before
            and self._may_be_older(file)
            and file.path not in self._listed.get(file.partition, {})
        ]
        return [
            old_log(file, counted_before=before) if isinstance(file, LogFile) else file
            for file in older
        ]

    def _may_be_older(self, file: DataFile) -> bool:
        """Whether an archived commit may have written a file, which no active one lists.

        Commits behind the beginning that are still on the active timeline have savepoints; logs
        were appended to their base files afterwards.
        """
        instant = self._timeline.find(file.instant_time)
        return instant is None or (isinstance(file, LogFile) and instant.is_completed)

    @cached_property
    def _commits(self) -> list[CompletedCommit]:
        return self._reader.load(self._instants)

    @cached_property
    def _plans(self) -> Mapping[InstantTime, CompactionPlan | None]:
        return {commit.requested_time: self._plan_of(commit) for commit in self._commits}

    @cached_property
    def _listed(self) -> Mapping[str, Mapping[str, DataFile]]:
        """The files that commits of the active timeline list, by partition and path."""
        listed: dict[str, dict[str, DataFile]] = {}
        for commit in self._commits:
            for file in commit.files:
                files = listed.setdefault(file.partition, {})
                files[file.path] = self._noted(commit, file, files.get(file.path))
        return listed

    def _noted(self, commit: CompletedCommit, file: DataFile, before: DataFile | None) -> DataFile:
        """Return a file as a commit lists it, and as other commits do."""
        if not isinstance(file, LogFile) or (file.old is None and self._counted_before is None):
            return file
        known = before if isinstance(before, LogFile) else file
        beginning = self._counted_before
        if beginning is not None and _base_time(known) >= beginning:
            beginning = None  # Nobody wrote to it before the timeline began.
        return old_log(known, commit.requested_time, counted_before=beginning)

    def _plan_of(self, commit: CompletedCommit) -> CompactionPlan | None:
        return self._reader.load_plan(commit.instant) if commit.is_log_compaction else None


def _base_time(log: LogFile) -> InstantTime:
    """Return the time in the name of a log of before version 8."""
    return log.instant_time if log.old is None else log.old.base_time


def _stored_as(file: DataFile, found: DataFile | None) -> DataFile:
    """Return a committed file with the size that it has in storage."""
    return file if found is None else file._replace(size_bytes=found.size_bytes)


def beginning_of(timeline: Timeline) -> InstantTime:
    """Return when the active timeline of a table before version 8 begins: with its first commit.

    One with a savepoint is kept when those around it are archived, so it is passed over. Nothing
    lies before a timeline without commits.
    """
    kept = {point.requested_time for point in timeline.savepoints}
    return min(
        (
            instant.requested_time
            for instant in timeline.completed
            if instant.action.completed_name in COMMIT_ACTIONS
            and instant.requested_time not in kept
        ),
        default=InstantTime(""),
    )
