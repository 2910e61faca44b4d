"""Views of a table: from its metadata table where that can be trusted, else by listing.

1. list the active timeline;
2. when files are first asked for, read the table's config again, for the indexes it has now: one
   may have been dropped, or be in the making, since the table was opened (INV-73);
3. open the metadata table as of that timeline; it shows no entry of an instant that the timeline
   does not show as completed (INV-72).

The metadata table is not trusted, and storage is listed instead, if a file of it is missing or
damaged, if a completed instant is not in it, or if it is ahead of the timeline: a compaction of it
may have folded in what a clean removed after the timeline was listed, and files that this view
needs would be missing in silence. That is told in the log, once a view.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from headwater.config.table import TableConfig
from headwater.config.table_options import TableType
from headwater.context import TableContext
from headwater.errors import CorruptTableError, NotFoundError
from headwater.kernel.journal.storage import one_moment
from headwater.kernel.layout import PROPERTIES
from headwater.kernel.table_config import parse_table_config, table_layout
from headwater.kernel.timeline.active import Timeline, load_active
from headwater.kernel.timeline.contents import TimelineContents
from headwater.kernel.view.committed_files import CommittedFiles
from headwater.kernel.view.file_source import FileSource
from headwater.kernel.view.table_view import TableView, ViewStart, load_view_start
from headwater.metadata.partition_kinds import PartitionKind
from headwater.model.files import DataFile, FileSlice
from headwater.model.instant import InstantTime
from headwater.seams.cached import cached_property
from headwater.seams.kept_objects import KeptObjects
from headwater.seams.storage import Storage, both_at_once

if TYPE_CHECKING:
    from headwater.format.metadata.records import FileInfo
    from headwater.kernel.view.kept_slices import KeptSlices
    from headwater.metadata.files_partition import MetadataFiles
    from headwater.metadata.indexed_files import IndexedFiles
    from headwater.metadata.table import MetadataTable

# The metadata table is imported by what opens it: commits can be listed without reading an index.

log = logging.getLogger(__name__)


def view_of(
    table: TableContext,
    *,
    as_of: InstantTime | None = None,
    contents: TimelineContents | None = None,
    timeline: Timeline | None = None,
    is_for_decision: bool = False,
) -> IndexedView:
    """Return what a table holds now, or held as of a time, by its indexes unless they are off.

    Raises:
        HeadwaterError: as `load_view`, and `TableContext.check_there` if it holds nothing.
    """
    view = load_view(
        table.storage,
        table.config,
        as_of=as_of,
        contents=contents,
        timeline=timeline,
        uses_indexes=table.metadata_config.is_enabled,
        kept=table.kept_metadata,
        kept_slices=table.kept_slices,
        is_for_decision=is_for_decision,
    )
    if view.instant is None:
        table.check_there()
    return view


def load_view(
    storage: Storage,
    config: TableConfig,
    *,
    as_of: InstantTime | None = None,
    contents: TimelineContents | None = None,
    timeline: Timeline | None = None,
    uses_indexes: bool = True,
    kept: KeptObjects | None = None,
    kept_slices: KeptSlices | None = None,
    is_for_decision: bool = False,
) -> IndexedView:
    """List the active timeline and return the view of now, or as of a completion time, inclusive.

    Commits and data files are read when they are asked for. `contents` may be shared by the views
    of one table, so that no commit is read twice. `timeline` saves the listing to who has just made
    it. Without `uses_indexes` storage is listed. `kept` is what this process knows of the metadata
    table's files already, and `kept_slices` what it made of them. What is decided on by a slot
    (`is_for_decision`) is looked for less: see `one_moment`.

    Raises:
        NotFoundError: kind BEFORE_FIRST_INSTANT or OUTSIDE_RETENTION; the table cannot be read as
            of that time.
        CorruptTableError: the timeline breaks the format.
    """
    start = load_view_start(storage, config, as_of=as_of, contents=contents, timeline=timeline)
    listed = start.listed_files(storage, config)
    if not uses_indexes:
        return IndexedView(config, start, listed)
    indexes = _Indexes(storage, config, start, kept, is_for_decision=is_for_decision)
    return IndexedView(config, start, listed, indexes, kept_slices)


class IndexedView(TableView):
    """A view that may have indexes."""

    def __init__(
        self,
        config: TableConfig,
        start: ViewStart,
        listed: FileSource,
        indexes: _Indexes | None = None,
        kept_slices: KeptSlices | None = None,
    ) -> None:
        indexed = None if indexes is None else _IndexElseListing(indexes, start, config, listed)
        super().__init__(config, start, listed if indexed is None else indexed)
        self._indexes = indexes
        self._indexed = indexed
        self._kept_slices = kept_slices

    def slices(self, partitions: Collection[str] | None = None) -> list[FileSlice]:
        if self._kept_slices is None or self._indexed is None:
            return super().slices(partitions)
        if partitions is None or self._has_loaded(partitions):
            return super().slices(partitions)
        listed, commits = self._indexed.list_names(partitions), self._start.commit_instants
        kept = None if listed is None else self._kept_slices.follow(listed, commits)
        if kept is not None:
            return kept
        slices = super().slices(partitions)
        if listed is not None and self._indexed.has_all_listed:
            self._kept_slices.keep(listed, commits, slices)
        return slices

    def load_ahead(self) -> None:
        """Load what every use of the view begins with, all at once, if storage is far away."""
        if self._indexes is not None:
            self._indexes.load_beside(self.avro_schema)

    @property
    def config_of_now(self) -> TableConfig | None:
        """The table's config as it was when its indexes were opened; None if they were not."""
        return None if self._indexes is None else self._indexes.config_of_now

    @property
    def metadata_timeline(self) -> Timeline | None:
        """The timeline of the metadata table, if it was opened."""
        return None if self._indexes is None else self._indexes.own_timeline

    @property
    def metadata_table(self) -> MetadataTable | None:
        """The indexes of the table as of its newest completed instant; None: none to be trusted."""
        return None if self._indexes is None else self._indexes.table

    def distrust_indexes(self, reason: object) -> None:
        """Do without indexes from now on."""
        if self._indexes is not None:
            self._indexes.distrust(reason)

    def known_partitions(self) -> list[str] | None:
        """Return all partitions that an index knows of, in order; None if there is none to ask."""
        from headwater.metadata.files_partition import MetadataFiles

        table = self.metadata_table
        if table is None:
            return None
        try:
            return MetadataFiles(table).list_partitions()
        except CorruptTableError as error:
            self.distrust_indexes(error)
            return None

    def has_index(self, partition: str) -> bool:
        """Whether a partition of the metadata table may be asked about this view."""
        table = self.metadata_table
        if table is None:
            return False
        try:
            if partition not in table.usable:
                return False
            reason: object = table.uncovered(partition)
        except CorruptTableError as error:
            reason = error
        if reason is not None:
            log.warning(
                "index not used table=%s index=%s reason=%s", self.config.name, partition, reason
            )
        return reason is None


class _Indexes:
    """The metadata table, opened when it is first needed."""

    def __init__(
        self,
        storage: Storage,
        config: TableConfig,
        start: ViewStart,
        kept: KeptObjects | None,
        *,
        is_for_decision: bool,
    ) -> None:
        self._storage = storage
        self._config = config
        self._start = start
        self._kept = kept
        self._is_for_decision = is_for_decision
        self._is_trusted = True
        self.config_of_now: TableConfig | None = None
        self.own_timeline: Timeline | None = None

    @property
    def is_trusted(self) -> bool:
        return self._is_trusted

    @property
    def table(self) -> MetadataTable | None:
        opened = self._opened  # Which may find out that it is not to be trusted.
        return opened if self._is_trusted else None

    def distrust(self, reason: object) -> None:
        if self._is_trusted:
            log.warning(
                "metadata table not used, storage is listed table=%s reason=%s",
                self._config.name,
                reason,
            )
        self._is_trusted = False

    @cached_property
    def _opened(self) -> MetadataTable | None:
        if PartitionKind.FILES not in self._config.metadata_partitions:
            return None
        from headwater.metadata.table import MetadataTable, before_compactions_since

        try:
            config, own, files = self._load_all()
            self.config_of_now, self.own_timeline = config, own
            if PartitionKind.FILES not in config.metadata_partitions:
                return None
            timeline, history = self._start.timeline, self._start.reader.history
            table = MetadataTable(
                self._storage,
                config,
                timeline,
                before_compactions_since(own, self._newest_completion),
                history,
                {PartitionKind.FILES: files},
                self._kept,
            )
            reason = table.is_behind or self._what_is_ahead(table)
        except (NotFoundError, CorruptTableError) as error:
            self.distrust(error)
            return None
        if reason is not None:
            self.distrust(reason)
        return table

    def load_beside(self, load: Callable[[], object]) -> None:
        """Open the metadata table at the same time as something else is loaded."""
        if self._storage.is_distant:
            both_at_once(self._storage, load, lambda: self._opened)

    def _load_all(self) -> tuple[TableConfig, Timeline, list[DataFile]]:
        """Load the config of now, the timeline of the metadata table and its list of files.

        In any order: they come after the timeline of the data table, and what that shows as
        completed was told to the metadata table before.
        """
        from headwater.metadata.table import list_own_files, load_own_timeline

        storage = self._storage

        def load_journaled() -> tuple[TableConfig, Timeline]:
            with one_moment(storage, is_for_decision=self._is_for_decision):
                return both_at_once(storage, self._load_config, lambda: load_own_timeline(storage))

        (config, own), files = both_at_once(
            storage, load_journaled, lambda: list_own_files(storage, PartitionKind.FILES)
        )
        return config, own, files

    def _load_config(self) -> TableConfig:
        return parse_table_config(self._storage.read(PROPERTIES), PROPERTIES)

    @property
    def _newest_completion(self) -> InstantTime | None:
        completed = self._start.timeline.completed
        return completed[-1].completion_time if completed else None

    def _what_is_ahead(self, table: MetadataTable) -> str | None:
        seen, compaction = self._start.timeline, table.newest_compaction
        if compaction is None or compaction <= (self._newest_completion or ""):
            return None
        # It came after everything the timeline shows, which may still be everything there is.
        now = load_active(self._storage, table_layout(self._config).timeline)
        if now.completed == seen.completed:
            return None
        return f"its compaction {compaction} is later than the timeline that was listed"


class _IndexElseListing:
    """The files of the metadata table, or where it fails those that storage lists."""

    def __init__(
        self, indexes: _Indexes, start: ViewStart, config: TableConfig, listed: FileSource
    ) -> None:
        self._indexes = indexes
        self._start = start
        self._is_merge_on_read = config.table_type is TableType.MERGE_ON_READ
        self._listed = listed
        self._has_used_index = False

    @property
    def missing(self) -> Collection[str]:
        return self._listed.missing

    @property
    def forgets_cleaned(self) -> bool:
        return self._has_used_index

    def gather(
        self, files: CommittedFiles, partitions: Collection[str] | None, loaded: Collection[str]
    ) -> None:
        indexed = None if self._indexes.table is None else self._indexed
        if indexed is not None:
            try:
                indexed.gather(files, partitions, loaded)
            except CorruptTableError as error:
                self._indexes.distrust(error)
            else:
                self._has_used_index = True
                return
        self._listed.gather(files, partitions, loaded)

    @property
    def has_all_listed(self) -> bool:
        """Whether all files came from an index, and were of completed commits."""
        return self._has_used_index and self._indexes.is_trusted and self._indexed.has_all_listed

    def list_names(self, partitions: Collection[str]) -> dict[str, Mapping[str, FileInfo]] | None:
        """Return the files of partitions by name; None if there is no index to be trusted."""
        if self._indexes.table is None:
            return None
        try:
            return self._files.list_names(partitions)
        except CorruptTableError as error:
            self._indexes.distrust(error)
            return None

    @cached_property
    def _files(self) -> MetadataFiles:
        from headwater.metadata.files_partition import MetadataFiles

        table = self._indexes.table
        assert table is not None
        return MetadataFiles(table)

    @cached_property
    def _indexed(self) -> IndexedFiles:
        from headwater.metadata.indexed_files import IndexedFiles

        return IndexedFiles(
            self._files,
            self._start.reader,
            self._start.timeline,
            self._start.commit_instants,
            is_merge_on_read=self._is_merge_on_read,
        )
