"""Committed files by listing storage and reading commits.

A file counts if the commit metadata of its instant lists it (M6). The commits of the active
timeline are read once for all; an archived commit is read only if storage holds a file that bears
its time. A file that a commit of the active timeline lists counts even if storage does not have it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from headwater.kernel.timeline.active import Timeline
from headwater.kernel.view.commits import CommitReader, CompletedCommit
from headwater.kernel.view.committed_files import CommittedFiles
from headwater.kernel.view.file_index import FileIndex
from headwater.model.files import DataFile
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
    ) -> None:
        """Make a source.

        Args:
            index: which data files there are in storage.
            instants: the completed commits of the active timeline that are part of the view.
        """
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
        times = {file.instant_time for file in found.values()}
        archived = self._reader.load_archived(
            time for time in times if self._timeline.find(time) is None
        )
        plans = {commit.requested_time: self._plan_of(commit) for commit in archived}
        active_plans = self._plans
        # Files are added after everything that may fail and be tried again.
        for commit in self._commits:
            files.add_commit(commit, active_plans.get(commit.requested_time))
        for commit in archived:
            files.add_commit(commit, plans[commit.requested_time])
        for name in listed.keys() - set(loaded) if partitions is None else partitions:
            for file in listed.get(name, ()):
                if file.path not in found:
                    self.missing.add(file.path)
                files.add_files([found.get(file.path, file)])
        for commit in archived:
            files.add_files(found[file.path] for file in commit.files if file.path in found)

    @cached_property
    def _commits(self) -> list[CompletedCommit]:
        return self._reader.load(self._instants)

    @cached_property
    def _plans(self) -> Mapping[InstantTime, CompactionPlan | None]:
        return {commit.requested_time: self._plan_of(commit) for commit in self._commits}

    @cached_property
    def _listed(self) -> Mapping[str, list[DataFile]]:
        """The files that commits of the active timeline list, by partition."""
        listed: dict[str, list[DataFile]] = {}
        for commit in self._commits:
            for file in commit.files:
                listed.setdefault(file.partition, []).append(file)
        return listed

    def _plan_of(self, commit: CompletedCommit) -> CompactionPlan | None:
        return self._reader.load_plan(commit.instant) if commit.is_log_compaction else None
