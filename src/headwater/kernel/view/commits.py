"""Commits: completed instants that changed data files, with what their metadata says.

Metadata is read from the active timeline, many files at a time, and from the archived one where an
instant has moved there. Archival writes the archived timeline before it deletes from the active
one, so an instant that vanishes between listing and reading is found in the archive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from headwater.errors import CorruptTableError, ErrorKind, NotFoundError, raise_internal
from headwater.format.internal_schema import LATEST_SCHEMA
from headwater.format.timeline.records import decode_record
from headwater.kernel.layout import TableLayout
from headwater.kernel.timeline.active import instant_path
from headwater.kernel.timeline.contents import TimelineContents
from headwater.kernel.timeline.history.read import HistoryTimeline
from headwater.kernel.timeline.history.rows import ArchivedContents
from headwater.model.commit_metadata import CommitMetadata, ReplaceCommitMetadata, WriteStat
from headwater.model.files import DataFile, FileGroupId, LogFile, OldLog, parse_data_file
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.plans import CompactionPlan, RequestedReplace
from headwater.seams.collector import collector_paused
from headwater.seams.storage import Storage

COMMIT_ACTIONS = (Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT)
"""The completed actions whose files hold commit metadata."""

_COMPACT = "COMPACT"
_LOG_COMPACT = "LOG_COMPACT"
_SERVICE_OPERATIONS = (_COMPACT, _LOG_COMPACT, "CLUSTER", "INDEX")


@dataclass(frozen=True)
class CompletedCommit:
    """A completed commit, delta commit or replace commit."""

    instant: Instant
    metadata: CommitMetadata

    @property
    def requested_time(self) -> InstantTime:
        return self.instant.requested_time

    @property
    def completion_time(self) -> InstantTime:
        if self.instant.completion_time is None:
            raise_internal("A commit is completed", instant=self.requested_time)
        return self.instant.completion_time

    @property
    def is_log_compaction(self) -> bool:
        return (
            self.instant.action is Action.LOG_COMPACTION
            or self.metadata.operation_type == _LOG_COMPACT
        )

    @property
    def is_any_compaction(self) -> bool:
        """Whether it rewrote what lay in a file group when it was requested."""
        return (
            self.is_log_compaction
            or self.instant.action is Action.COMPACTION
            or self.metadata.operation_type == _COMPACT
            or self.metadata.compacted is True
        )

    @property
    def is_table_service(self) -> bool:
        """Whether it kept every row as it was (INV-56)."""
        return (
            self.is_any_compaction
            or self.instant.action is Action.CLUSTERING
            or self.metadata.operation_type in _SERVICE_OPERATIONS
        )

    @property
    def schema(self) -> str | None:
        """The Avro JSON of the table's columns that the writer left, without meta columns."""
        return (self.metadata.extra_metadata or {}).get("schema") or None

    @property
    def internal_schema(self) -> str | None:
        """What a commit of a table that evolves on read says of its columns and their ids."""
        return (self.metadata.extra_metadata or {}).get(LATEST_SCHEMA) or None

    @cached_property
    def files(self) -> tuple[DataFile, ...]:
        """The data files the commit wrote, with the sizes it noted, 0 where it noted none.

        A write stat of a log file may also name older log files of the slice; they belong to the
        commits that wrote them. What a stat is about is of this commit, whatever time its name has:
        before version 8 that of a log has another.
        """
        found: dict[str, DataFile] = {}
        for partition, stats in (self.metadata.partition_to_write_stats or {}).items():
            for stat in stats:
                for number, (name, size_bytes) in enumerate(_named_files(stat)):
                    path = f"{partition}/{name}" if partition else name
                    file = parse_data_file(path, size_bytes)
                    if file is None:
                        raise self._unknown_name(path)
                    is_own = file.instant_time == self.requested_time
                    if not is_own and not number and stat.path and isinstance(file, LogFile):
                        file, is_own = old_log(file, self.requested_time), True
                    if is_own:
                        found.setdefault(path, file)
        return tuple(found.values())

    def replaced_groups(self) -> Iterator[FileGroupId]:
        """Give the file groups that this commit hides."""
        if isinstance(self.metadata, ReplaceCommitMetadata):
            replaced = self.metadata.partition_to_replace_file_ids or {}
            for partition, file_ids in replaced.items():
                for file_id in file_ids:
                    yield FileGroupId(partition, file_id)

    def partitions(self) -> set[str]:
        """Return the partitions in which it wrote files, or replaced file groups."""
        written = self.metadata.partition_to_write_stats or {}
        return {*written, *(group.partition for group in self.replaced_groups())}

    def _unknown_name(self, path: str) -> CorruptTableError:
        return CorruptTableError(
            f"Commit {self.requested_time} lists {path}, whose name is no data file's. Roll the "
            "commit back, or restore the table to a savepoint",
            kind=ErrorKind.CORRUPT_TIMELINE,
            instant=self.requested_time,
            path=path,
        )


class CommitReader:
    """Read commits as of one listing of the active timeline. What was read is kept."""

    def __init__(
        self, storage: Storage, layout: TableLayout, contents: TimelineContents | None = None
    ) -> None:
        self.storage = storage
        self._layout = layout
        self._contents = contents or TimelineContents(storage, layout.timeline)
        self._commits: dict[InstantTime, CompletedCommit] = {}
        # Lazy, so that it is looked at after the active timeline was listed.
        self.history = HistoryTimeline(storage, layout.history, is_kept=True)

    def load(self, instants: Iterable[Instant]) -> list[CompletedCommit]:
        """Return the commits of completed instants that the active timeline listed."""
        wanted = list(instants)
        unread = [instant for instant in wanted if instant.requested_time not in self._commits]
        contents = self.load_contents(unread)
        with collector_paused():
            for instant, data in zip(unread, contents, strict=True):
                path = instant_path(self._layout.timeline, instant)
                self._commits[instant.requested_time] = decode_commit(instant, data, path)
        return [self._commits[instant.requested_time] for instant in wanted]

    def load_archived(self, times: Iterable[InstantTime]) -> list[CompletedCommit]:
        """Return those of the commits requested at `times` that are archived."""
        wanted = sorted(times)
        unread = [time for time in wanted if time not in self._commits]
        if unread:
            instants = {
                time: instant
                for time, instant in self.history.find_all(unread).items()
                if instant.action.completed_name in COMMIT_ACTIONS
            }
            with collector_paused():
                for time, found in self.history.iter_metadata(instants):
                    instant = instants[time]
                    self._commits[time] = CompletedCommit(
                        instant, found.decode(_record_of(instant))
                    )
        return [self._commits[time] for time in wanted if time in self._commits]

    def load_plan(self, instant: Instant) -> CompactionPlan:
        """Return the plan of a compaction or log compaction, whatever its state."""
        return self.load_plans([instant])[instant.requested_time]

    def load_plans(self, instants: Iterable[Instant]) -> dict[InstantTime, CompactionPlan]:
        """Return the plans of compactions and log compactions, all read at once."""
        planned = [_as_planned(instant) for instant in instants]
        contents = self.load_contents(planned, State.REQUESTED)
        plans = {}
        for instant, data in zip(planned, contents, strict=True):
            path = instant_path(self._layout.timeline, instant, State.REQUESTED)
            plans[instant.requested_time] = decode_record(CompactionPlan, data, path=path)
        return plans

    def load_clustering(self, instant: Instant) -> RequestedReplace:
        """Return the request of a clustering, plan and all, whatever its state."""
        asked = instant._replace(action=Action.CLUSTERING)
        (data,) = self.load_contents([asked], State.REQUESTED)
        path = instant_path(self._layout.timeline, asked, State.REQUESTED)
        return decode_record(RequestedReplace, data, path=path)

    def load_contents(self, instants: Sequence[Instant], state: State | None = None) -> list[bytes]:
        """Return what the files of completed instants say, wherever they are now.

        Raises:
            NotFoundError: kind INSTANT_NOT_FOUND; an instant is on neither timeline.
        """
        try:
            return self._contents.load(instants, state)
        except NotFoundError as vanished:
            if vanished.kind is not ErrorKind.INSTANT_NOT_FOUND:
                raise
        # `history` may have been looked at before archival moved the instants there.
        now = HistoryTimeline(self.storage, self._layout.history)
        # A savepoint has the time of a commit, whose row is not the savepoint's (N-135).
        wanted = [i.requested_time for i in instants if i.action is not Action.SAVEPOINT]
        archived = now.contents(wanted)

        def is_archived(instant: Instant) -> bool:
            is_savepoint = instant.action is Action.SAVEPOINT
            return instant.requested_time in archived and not is_savepoint

        active = iter(self._contents.load([i for i in instants if not is_archived(i)], state))
        return [
            _archived_part(archived[instant.requested_time], state)
            if is_archived(instant)
            else next(active)
            for instant in instants
        ]


def _as_planned(instant: Instant) -> Instant:
    """Return a compaction under the name of its plan; the completed file alone has another."""
    if instant.action in (Action.COMPACTION, Action.LOG_COMPACTION):
        return instant
    is_delta = instant.action is Action.DELTA_COMMIT
    return instant._replace(action=Action.LOG_COMPACTION if is_delta else Action.COMPACTION)


def _archived_part(archived: ArchivedContents, state: State | None) -> bytes:
    return archived.plan if state is State.REQUESTED else archived.metadata


def decode_commit(instant: Instant, data: bytes, path: str) -> CompletedCommit:
    """Return the commit that the completed file of an instant describes."""
    return CompletedCommit(instant, decode_record(_record_of(instant), data, path=path))


def _record_of(instant: Instant) -> type[CommitMetadata]:
    is_replace = instant.action.completed_name is Action.REPLACE_COMMIT
    return ReplaceCommitMetadata if is_replace else CommitMetadata


def old_log(
    log: LogFile, *times: InstantTime, counted_before: InstantTime | None = None
) -> LogFile:
    """Return a log of before version 8 with the commits that list it, in order.

    `log` is as its name says, or has some such commits already.
    """
    base_time = log.instant_time if log.old is None else log.old.base_time
    listed = sorted({*times, *(log.old.times if log.old else ())})
    old = OldLog(base_time, tuple(listed), counted_before or InstantTime(""))
    return log._replace(instant_time=listed[-1] if listed else base_time, old=old)


def _named_files(stat: WriteStat) -> Iterator[tuple[str, int]]:
    """Give the bare names of the files in a write stat, each with its size or 0."""
    if stat.path:
        yield _bare_name(stat.path), stat.file_size_in_bytes or 0
    for name in stat.log_files or ():
        yield _bare_name(name), 0
    for path, size_bytes in (stat.cdc_stats or {}).items():
        yield _bare_name(path), size_bytes


def _bare_name(path: str) -> str:
    return path.rpartition("/")[2]
