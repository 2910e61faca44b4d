"""Committed files from an index that knows them: the `files` partition of the metadata table.

Such an index holds exactly the files that completed instants list and no clean has removed, so of
the commits themselves little is read:

    when an instant completed    the listing of the active timeline, else the archived one, in one
                                 look for all
    replaced file groups         the replace commits of the active timeline; one is archived only
                                 after its replaced files are cleaned
    what log compactions took    their plans

An entry of an instant that neither timeline shows as completed is no committed file (INV-72): the
index may have been read a moment after the timeline.

The action tells a compaction: on a merge-on-read table nothing else completes as a commit, and the
active timeline names log compactions. An archived delta commit is read if its logs are still there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from headwater.kernel.timeline.active import Timeline
from headwater.kernel.view.commits import COMMIT_ACTIONS, CommitReader, CompletedCommit
from headwater.kernel.view.committed_files import CommittedFiles, input_times
from headwater.kernel.view.file_index import FileIndex
from headwater.model.files import DataFile, LogFile
from headwater.model.instant import Action, Instant, InstantTime
from headwater.model.plans import CompactionPlan


class IndexedFiles:
    """A source of files that lists no storage and reads few commits."""

    forgets_cleaned = True
    missing: Collection[str] = ()

    def __init__(
        self,
        index: FileIndex,
        reader: CommitReader,
        timeline: Timeline,
        instants: Iterable[Instant],
        *,
        is_merge_on_read: bool,
    ) -> None:
        """Make a source.

        Args:
            index: which files are committed and not cleaned.
            instants: the completed commits of the active timeline that are part of the view.
        """
        self._index = index
        self._reader = reader
        self._timeline = timeline
        self._instants = tuple(instants)
        self._is_merge_on_read = is_merge_on_read
        self._has_noted_active = False
        self.has_all_listed = True
        """Whether all files that the index has were of completed commits so far."""

    def gather(
        self, files: CommittedFiles, partitions: Collection[str] | None, loaded: Collection[str]
    ) -> None:
        replaces: list[CompletedCommit] = []
        plans: dict[InstantTime, CompactionPlan] = {}
        known = {} if self._has_noted_active else {i.requested_time: i for i in self._instants}
        if not self._has_noted_active:
            replaces = self._reader.load(
                i for i in self._instants if i.action.completed_name is Action.REPLACE_COMMIT
            )
            plans = self._reader.load_plans(
                i for i in self._instants if i.action is Action.LOG_COMPACTION
            )
        found = [
            file for file in self._index.list_data_files(partitions) if file.partition not in loaded
        ]
        unknown = {
            time
            for time in {file.instant_time for file in found} | input_times(plans.values())
            if time not in known and not files.knows(time) and self._timeline.find(time) is None
        }
        archived = self._load_archived(unknown)
        archived_plans = self._load_archived_plans(archived, found)
        deeper = {
            time
            for time in input_times(archived_plans.values())
            if time not in archived and not files.knows(time) and self._timeline.find(time) is None
        }
        archived |= self._load_archived(deeper)
        # From here on nothing fails that could be tried again.
        for instant in (*known.values(), *archived.values()):
            self._note(files, instant, is_log_compaction=instant.requested_time in archived_plans)
        for commit in replaces:
            files.add_replaced(commit)
        for time, plan in (plans | archived_plans).items():
            files.add_log_compaction(time, plan)
        self._has_noted_active = True
        committed = [file for file in found if files.knows(file.instant_time)]
        self.has_all_listed &= len(committed) == len(found)
        files.add_files(committed)

    def _load_archived(self, times: Collection[InstantTime]) -> dict[InstantTime, Instant]:
        if not times:
            return {}
        found = self._reader.history.find_all(times)
        return {
            time: instant
            for time, instant in found.items()
            if instant.action.completed_name in COMMIT_ACTIONS
        }

    def _load_archived_plans(
        self, archived: dict[InstantTime, Instant], found: Iterable[DataFile]
    ) -> dict[InstantTime, CompactionPlan]:
        """Return the plans of the log compactions among archived instants."""
        if not archived:
            return {}
        wrote_logs = {file.instant_time for file in found if isinstance(file, LogFile)}
        deltas = {
            time
            for time, instant in archived.items()
            if time in wrote_logs and instant.action is Action.DELTA_COMMIT
        }
        commits = self._reader.load_archived(deltas) if deltas else ()
        return self._reader.load_plans(
            commit.instant for commit in commits if commit.is_log_compaction
        )

    def _note(self, files: CommittedFiles, instant: Instant, *, is_log_compaction: bool) -> None:
        done = instant.completion_time
        if done is None or files.knows(instant.requested_time):
            return
        is_compaction = (
            is_log_compaction
            or instant.action in (Action.COMPACTION, Action.LOG_COMPACTION)
            or (instant.action is Action.COMMIT and self._is_merge_on_read)
        )
        files.add_instant(instant.requested_time, done, is_compaction=is_compaction)
