"""A table as of one completion time: its file slices, commits and schema.

A file is visible if all of this holds:

1. its instant completed by the time of the view, on the active or the archived timeline (H-44);
2. that instant's commit metadata lists it (M6). A file that only lies there is an orphan of a dead
   or speculative task, however old it is;
3. no commit replaced its file group since (`committed_files`). A replace commit is archived only
   after its replaced files are cleaned, so archived ones that wrote nothing are not looked for.

Which files there are is a matter of its source: `listed_files` lists storage and reads commits,
`indexed_files` asks the metadata table. Both give the same view. The active timeline is listed
first and data files after it: whatever is listed as committed was in storage before. When storage
was listed, a file that a commit of the active timeline lists stays in its slice even if storage
does not have it; `check_complete` tells.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa

from headwater.arrow.meta_columns import META_COLUMNS
from headwater.config.table import TableConfig
from headwater.errors import CorruptTableError, ErrorKind, NotFoundError, UnsupportedError
from headwater.format.avro.schema import parse_avro_schema
from headwater.format.internal_schema import parse_internal_schemas, renamed_columns
from headwater.kernel.layout import SCHEMAS
from headwater.kernel.table_config import table_layout
from headwater.kernel.timeline.active import Timeline, load_active
from headwater.kernel.timeline.contents import TimelineContents
from headwater.kernel.view.commits import COMMIT_ACTIONS, CommitReader, CompletedCommit
from headwater.kernel.view.committed_files import CommittedFiles
from headwater.kernel.view.file_index import ListingFileIndex
from headwater.kernel.view.file_source import FileSource
from headwater.kernel.view.group_history import GroupHistory
from headwater.kernel.view.listed_files import ListedFiles, beginning_of
from headwater.kernel.view.retention import check_readable
from headwater.kernel.view.slicing import merge_latest
from headwater.model.files import DataFile, FileGroupId, FileSlice
from headwater.model.instant import Action, Instant, InstantTime, instant_time_after
from headwater.model.plans import CompactionPlan
from headwater.seams.cached import cached_property
from headwater.seams.collector import collector_paused
from headwater.seams.storage import Storage

log = logging.getLogger(__name__)

_ARCHIVED_AT_ONCE = 20
"""How many archived commits are read at once in search of a schema; nearly all of them have one."""

_READ_AHEAD_MAX = 16
"""How many commits are read at once in search of one; nearly always the newest will do."""

_NAMED_MAX = 3
"""How many missing files an error names."""

_NO_COMPACTIONS: Mapping[FileGroupId, InstantTime] = MappingProxyType({})


def load_listed_view(
    storage: Storage,
    config: TableConfig,
    *,
    as_of: InstantTime | None = None,
    contents: TimelineContents | None = None,
) -> TableView:
    """Return what `headwater.metadata.view` does, but never ask an index.

    Raises: as `load_view`.
    """
    start = load_view_start(storage, config, as_of=as_of, contents=contents)
    return TableView(config, start, start.listed_files(storage, config))


@dataclass(frozen=True)
class ViewStart:
    """A listing of the active timeline, and the moment that a view of it stands for."""

    timeline: Timeline
    instant: InstantTime | None
    reader: CommitReader

    @cached_property
    def commit_instants(self) -> tuple[Instant, ...]:
        """The commits of the active timeline up to the moment, by completion time."""
        done = self.timeline.completed_within_open_closed(None, self.instant)
        return tuple(each for each in done if each.action.completed_name in COMMIT_ACTIONS)

    def listed_files(self, storage: Storage, config: TableConfig) -> ListedFiles:
        """Return the source of files that needs no index."""
        before = None if config.has_layout_two else beginning_of(self.timeline)
        index = ListingFileIndex(storage)
        return ListedFiles(index, self.reader, self.timeline, self.commit_instants, before)


def load_view_start(
    storage: Storage,
    config: TableConfig,
    *,
    as_of: InstantTime | None = None,
    contents: TimelineContents | None = None,
    timeline: Timeline | None = None,
) -> ViewStart:
    """List the active timeline unless it is given, and check that it can be read as of a time.

    Raises:
        NotFoundError: kind BEFORE_FIRST_INSTANT or OUTSIDE_RETENTION.
        CorruptTableError: the timeline breaks the format.
    """
    layout = table_layout(config)
    if timeline is None:
        timeline = load_active(storage, layout.timeline)
    commits = CommitReader(storage, layout, contents)
    if as_of is not None:
        check_readable(timeline, commits, as_of, table=config.name)
    newest = _newest_completion(timeline.completed)
    if newest is None:
        newest = _newest_completion(commits.history.instants())
    # A time to come would show more tomorrow than today.
    instant = newest if as_of is None or newest is None else min(as_of, newest)
    return ViewStart(timeline, instant, commits)


def load_pending_rewrites(timeline: Timeline, commits: CommitReader) -> dict[FileGroupId, Instant]:
    """Return the file groups that pending compactions, log compactions and clusterings read."""
    return {
        group: instant
        for instant in timeline.pending
        if instant.action in (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING)
        for group in _groups_of_plan(instant, commits)
    }


def _groups_of_plan(instant: Instant, commits: CommitReader) -> list[FileGroupId]:
    """Return the file groups that a rewrite reads; none of a plan that is gone (N-37)."""
    try:
        if instant.action is Action.CLUSTERING:
            clustering = commits.load_clustering(instant).clustering_plan
            inputs = (clustering.input_groups if clustering else ()) or ()
            slices = [one for group in inputs for one in group.slices or ()]
            named = [(one.partition_path, one.file_id) for one in slices]
        else:
            operations = commits.load_plan(instant).operations or ()
            named = [(one.partition_path, one.file_id) for one in operations]
    except NotFoundError as error:
        if error.kind is not ErrorKind.INSTANT_NOT_FOUND:
            raise
        # It was cancelled since the timeline was listed. Who plans under the lock has a timeline
        # of that moment.
        log.info("plan passed over, it is gone instant=%s", instant)
        return []
    return [FileGroupId(partition or "", file_id or "") for partition, file_id in named]


class TableView:
    """What a table held at one moment. Loaded piece by piece, each piece once.

    Methods that read storage may raise `NotFoundError` of kind INSTANT_NOT_FOUND when archival and
    its cleaning were faster, `CorruptTableError` for damaged files, and `StorageError`.
    """

    def __init__(self, config: TableConfig, start: ViewStart, source: FileSource) -> None:
        self.config = config
        self.timeline = start.timeline
        self.instant = start.instant
        """The completion time the view stands for; None for a table without completed instants."""
        self._start = start
        self._reader = start.reader
        self._source = source
        self._files = CommittedFiles()
        self._loaded: set[str] = set()
        self._is_whole = False

    def partitions(self) -> list[str]:
        """Return the partitions that hold visible file groups, in order."""
        return sorted({file_slice.group.partition for file_slice in self.slices()})

    def slices(self, partitions: Collection[str] | None = None) -> list[FileSlice]:
        """Return what to read of every file group: its newest slice, by partition and file id.

        Logs of a slice whose compaction is pending are merged onto the slice before it.
        """
        return self._latest(partitions, self.instant)

    def slices_of(self, groups: Collection[FileGroupId]) -> list[FileSlice]:
        """Return those of `slices` that are of some file groups."""
        self._load({group.partition for group in groups})
        return _newest(self._files.slices_of(groups, self.instant, _NO_COMPACTIONS))

    def slices_up_to(
        self, completion_time: InstantTime, partitions: Collection[str] | None = None
    ) -> list[FileSlice]:
        """Return the slices as they were when a commit completed, that commit included.

        The time must be within retention. Where files were listed `check_complete` finds out; an
        index has forgotten the files that were cleaned, so this does.

        Raises:
            NotFoundError: kind OUTSIDE_RETENTION.
        """
        bound = completion_time if self.instant is None else min(self.instant, completion_time)
        self._check_retained(bound)
        return self._latest(partitions, bound)

    def slices_before(
        self, completion_time: InstantTime, partitions: Collection[str] | None = None
    ) -> list[FileSlice]:
        """Return the slices as they were just before a commit completed."""
        self._load(partitions)
        times = self._files.completion_times
        position = bisect_left(times, completion_time)
        if not position:
            return []
        # Until the commit completed, the table stayed as the one before had left it.
        self._check_retained(instant_time_after(completion_time, -1))
        return self._latest(partitions, min(times[position - 1], self.instant or completion_time))

    def slices_changed_after(self, completion_time: InstantTime) -> list[FileSlice]:
        """Return those of `slices` that have a file which completed after a time.

        No other slice holds a row that was written after it.
        """
        return [
            file_slice
            for file_slice in self.slices()
            if any(
                self._files.completion_time_of(file.instant_time) > completion_time
                for file in file_slice.files()
            )
        ]

    def all_slices(
        self, partitions: Collection[str] | None = None
    ) -> dict[FileGroupId, tuple[FileSlice, ...]]:
        """Return every slice of every visible file group, newest first, for planners.

        A pending compaction opens a slice without base file.
        """
        chosen = self._load(partitions)
        groups = self._files.slices(chosen, self.instant, self.pending_compactions)
        return {slices[0].group: slices for slices in groups}

    def histories(self, partitions: Collection[str] | None = None) -> Iterator[GroupHistory]:
        """Give every file group with all its committed files, replaced ones too."""
        return self._files.histories(self._load(partitions))

    def completion_time_of(self, file: DataFile) -> InstantTime:
        """Return when the commit of a file of this view completed."""
        self._load([file.partition])
        return self._files.completion_time_of(file.instant_time)

    def partitions_changed_after(self, completion_time: InstantTime) -> set[str]:
        """Return the partitions that commits of after a time wrote to, or replaced groups of.

        All other partitions hold what they held then, unless a commit was taken back since.
        """
        commits = self._load_within(completion_time, self.instant)
        return {partition for commit in commits for partition in commit.partitions()}

    def partitions_logged_after(self, completion_time: InstantTime) -> set[str]:
        """Return those of them that got logs to compact: compactions append none."""
        return {
            partition
            for commit in self._load_within(completion_time, self.instant)
            if commit.is_log_compaction or not commit.is_any_compaction
            for partition in commit.partitions()
        }

    def is_stored(self, file: DataFile) -> bool:
        """Whether storage had a committed file of a loaded partition when it was listed."""
        return file.path not in self._source.missing

    def check_complete(self, slices: Iterable[FileSlice]) -> None:
        """Check that storage had every file of some slices of this view when it was listed.

        Raises:
            CorruptTableError: kind MISSING_DATA_FILE.
        """
        missing = [
            file.path
            for file_slice in slices
            for file in file_slice.files()
            if file.path in self._source.missing
        ]
        if missing:
            more = len(missing) - _NAMED_MAX
            raise CorruptTableError(
                f"Table {self.config.name} has lost files that completed commits list: "
                + ", ".join(missing[:_NAMED_MAX])
                + (f" and {more} more" if more > 0 else "")
                + f" (as of {self.instant}). If a clean ran meanwhile, load the view again; "
                "otherwise restore them from a copy, or the table to a savepoint",
                kind=ErrorKind.MISSING_DATA_FILE,
                path=missing[0],
            )

    @cached_property
    def commits(self) -> tuple[CompletedCommit, ...]:
        """The commits of the active timeline up to the time of the view, by completion time."""
        return tuple(self._reader.load(self._start.commit_instants))

    @cached_property
    def replaces(self) -> tuple[CompletedCommit, ...]:
        """Those of `commits` that replaced file groups. No other commit is read."""
        return tuple(
            self._reader.load(
                instant
                for instant in self._start.commit_instants
                if instant.action.completed_name is Action.REPLACE_COMMIT
            )
        )

    def newest_commits(self) -> Iterator[CompletedCommit]:
        """Give `commits`, newest first. They are read a few at a time, as they are asked for."""
        instants = self._start.commit_instants[::-1]
        start, count = 0, 1
        while start < len(instants):
            yield from self._reader.load(instants[start : start + count])
            start, count = start + count, min(2 * count, _READ_AHEAD_MAX)

    @cached_property
    def pending_compactions(self) -> Mapping[FileGroupId, InstantTime]:
        """The file groups of pending compactions, each with the instant of its compaction."""
        return {
            group: instant.requested_time
            for instant in self.timeline.pending
            if instant.action is Action.COMPACTION
            for group in _groups_of_plan(instant, self._reader)
        }

    @cached_property
    def pending_rewrites(self) -> Mapping[FileGroupId, Instant]:
        """The file groups of pending compactions, log compactions and clusterings.

        No second plan may name one of them: what the first one makes of it is not known yet.
        """
        return load_pending_rewrites(self.timeline, self._reader)

    def completed_of_both_timelines(self) -> list[Instant]:
        """Return every completed instant, archived or not, by completion time.

        The archived timeline has compactions under the name of what they complete as.
        """
        active = self.timeline.completed
        known = {instant.requested_time for instant in active}
        archived = (i for i in self._reader.history.instants() if i.requested_time not in known)
        return sorted((*archived, *active), key=_completion)

    def load_plan(self, compaction: Instant) -> CompactionPlan:
        """Return the plan of a compaction or log compaction, archived or not."""
        return self._reader.load_plan(compaction)

    def instants_within_open_closed(
        self, after: InstantTime | None, until: InstantTime | None = None
    ) -> list[CompletedCommit]:
        """Return the writes with `after` < completion time <= `until`, by completion time.

        None leaves an end open; no end lies beyond the time of the view. Table services bring no
        rows and are left out (INV-56). Archived writes are included: a slow one may have been
        archived although it completed within the last seconds.
        """
        bound = self.instant if until is None else min(until, self.instant or until)
        found = self._load_within(after, bound)
        found.sort(key=lambda commit: commit.completion_time)
        return [commit for commit in found if not commit.is_table_service]

    def _load_within(
        self, after: InstantTime | None, up_to: InstantTime | None
    ) -> list[CompletedCommit]:
        """Return the commits of both timelines with `after` < completion time <= `up_to`."""
        archived = [
            instant.requested_time
            for instant in self._reader.history.completed_within_open_closed(after, up_to)
            if _is_commit(instant) and self.timeline.find(instant.requested_time) is None
        ]
        active = self._reader.load(
            instant for instant in self._start.commit_instants if _is_within(instant, after, up_to)
        )
        return [*self._reader.load_archived(archived), *active]

    def schema(self) -> pa.Schema:
        """Return the columns of the table, without meta columns.

        Raises:
            NotFoundError: kind SCHEMA_NOT_FOUND.
        """
        text = self.avro_schema()
        if text is None:
            raise NotFoundError(
                f"Nothing tells the columns of table {self.config.name}: neither its config nor "
                f"any commit up to {self.instant} has a schema. Write rows to it first",
                kind=ErrorKind.SCHEMA_NOT_FOUND,
                table=self.config.name,
            )
        if self.internal_schema is not None:
            self._check_names_tell(self.internal_schema)
        schema = parse_avro_schema(text)
        # Those of tables that evolve on read have meta columns.
        return pa.schema([f for f in schema if f.name not in META_COLUMNS], schema.metadata)

    @cached_property
    def internal_schema(self) -> str | None:
        """The ids of columns, if the newest write says that the table evolves on read."""
        said = (c.internal_schema for c in self.newest_commits() if not c.is_table_service)
        return next(said, None)

    def _check_names_tell(self, latest: str) -> None:
        """Raise if a column had another name once: files are read by the names of columns."""
        storage = self._reader.storage
        paths = [f"{SCHEMAS}/{name}" for name in sorted(storage.list_names(SCHEMAS))]
        schemas = parse_internal_schemas(latest, path=f"the newest commit of {self.config.name}")
        for path, data in zip(paths, storage.read_many(paths), strict=True):
            if data and path.endswith(".schemacommit"):
                schemas += parse_internal_schemas(data, path=path)
        if renamed := renamed_columns(schemas):
            raise UnsupportedError(
                f"Table {self.config.name} evolves on read (hoodie.schema.on.read.enable), and "
                f"columns were renamed, or dropped and added again: {', '.join(renamed)}. This "
                "release reads files by the names of columns, and would find none or others in "
                "older files. Rewrite the table with Apache Hudi, by a clustering, say",
                kind=ErrorKind.UNSUPPORTED_OPTION,
                table=self.config.name,
            )

    def avro_schema(self) -> str | None:
        """Return the schema of the newest commit that has one, else that of the table's creation.

        Table services come after all writes: they may carry the schema of when they were planned.
        """
        of_service = None
        for commit in self.newest_commits():
            if commit.schema and not commit.is_table_service:
                return commit.schema
            of_service = of_service or commit.schema
        return of_service or self._archived_schema() or self.config.create_schema

    def _archived_schema(self) -> str | None:
        if self.instant is None:
            return None
        archived = [
            instant
            for instant in self._reader.history.instants()
            if _is_commit(instant) and _is_within(instant, None, self.instant)
        ]
        archived.sort(key=_completion, reverse=True)
        for start in range(0, len(archived), _ARCHIVED_AT_ONCE):
            some = archived[start : start + _ARCHIVED_AT_ONCE]
            commits = self._reader.load_archived(instant.requested_time for instant in some)
            commits.sort(key=lambda commit: commit.completion_time, reverse=True)
            found = next((commit.schema for commit in commits if commit.schema), None)
            if found is not None:
                return found
        return None

    def _latest(
        self, partitions: Collection[str] | None, bound: InstantTime | None
    ) -> list[FileSlice]:
        # A table may have a hundred thousand slices, of which none is garbage.
        with collector_paused():
            chosen = self._load(partitions)
            return _newest(self._files.slices(chosen, bound, _NO_COMPACTIONS))

    def _has_loaded(self, partitions: Collection[str]) -> bool:
        return self._is_whole or self._loaded.issuperset(partitions)

    def _load(self, partitions: Collection[str] | None) -> Collection[str]:
        """Load what is not loaded yet of some partitions, by default of all; return them."""
        if partitions is None:
            if not self._is_whole:
                self._source.gather(self._files, None, self._loaded)
                self._is_whole = True
            return self._files.partitions
        wanted = set(partitions) - self._loaded
        if wanted and not self._is_whole:
            self._source.gather(self._files, wanted, self._loaded)
            self._loaded.update(wanted)
        return partitions

    def _check_retained(self, bound: InstantTime) -> None:
        if self._source.forgets_cleaned and self.instant is not None and bound < self.instant:
            check_readable(self.timeline, self._reader, bound, table=self.config.name)


def _newest(groups: Iterable[tuple[FileSlice, ...]]) -> list[FileSlice]:
    return [latest for latest in map(merge_latest, groups) if latest is not None]


def _is_commit(instant: Instant) -> bool:
    return instant.action.completed_name in COMMIT_ACTIONS


def _completion(instant: Instant) -> InstantTime:
    return instant.completion_time or InstantTime("")


def _is_within(instant: Instant, after: InstantTime | None, up_to: InstantTime | None) -> bool:
    done = instant.completion_time
    return done is not None and (after is None or done > after) and (up_to is None or done <= up_to)


def _newest_completion(instants: Iterable[Instant]) -> InstantTime | None:
    return max((i.completion_time for i in instants if i.completion_time), default=None)
