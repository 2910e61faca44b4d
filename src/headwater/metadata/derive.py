"""What indexes hold, derived from the files of the table.

    of_changes  what instants say to an index, from the files that they added and removed
    of_files    everything an index holds of some file slices, for a build

Both read the same files by the same functions, so an index that was kept through all changes equals
one that is built, up to one rule: it may name too much, never too little.

- A log adds all its rows, and removes none: whoever appends does not see the whole file group.
- A base file that replaces another adds the rows that the other had not, and removes those that it
  has not. So do overwrites and dropped partitions.
- Compaction and clustering keep every row that a reader finds. They add rows only where these come
  to another file group, and remove what no reader found any more.
- Nothing is removed that the record index has elsewhere by now, or knows from an instant that
  whoever removes it has not seen. An instant that completes after this look makes the commit look
  again (`MetadataCommit.seen_until`).
- Several instants say together what they say one after the other: of each key the last word, and
  nothing of files that one of them brought and a later one deleted.

Few or small files are read here, many or large ones by tasks of the engine. A build is given piece
by piece, so that memory holds a bounded number of rows at a time.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.merge_rule import merge_rule_of
from headwater.context import TableContext
from headwater.engine.engine import TaskContext
from headwater.errors import CorruptTableError, InvalidInputError, NotFoundError, UnsupportedError
from headwater.files.ahead import windows
from headwater.format.avro.binary import MalformedAvroError
from headwater.format.metadata.index_definitions import IndexDefinition
from headwater.kernel.table_config import table_layout
from headwater.kernel.timeline.active import Timeline, load_active
from headwater.kernel.txn.index_births import IndexBirth, births_of
from headwater.metadata.bloom_filters import (
    FileFilter,
    bloom_filter_records,
    load_filter,
    removed_blooms,
)
from headwater.metadata.column_ranges import (
    ColumnRange,
    indexed_columns,
    join_ranges,
    load_ranges,
)
from headwater.metadata.column_stats import (
    FileRanges,
    column_stats_records,
    partition_stats_records,
    ranges_by_partition,
    removed_column_stats,
)
from headwater.metadata.index_keys import split_secondary_keys
from headwater.metadata.partition_kinds import (
    COLUMN_STATS,
    RECORD_INDEX,
    PartitionKind,
    kind_of,
)
from headwater.metadata.record_locations import (
    LocatedKeys,
    built_record_index_records,
    built_secondary_index_records,
    gone_for_good,
    record_index_records,
    secondary_index_records,
)
from headwater.metadata.records import MetadataRecords, PartitionedRecords
from headwater.metadata.row_keys import (
    IndexKeyRule,
    index_key_rule,
    index_keys_of_base_file,
    index_keys_of_logs,
    keys_of_deletes,
    live_index_keys,
    unique_keys,
    vanished_index_keys,
    without_keys,
)
from headwater.metadata.table import MetadataTable, load_metadata_table
from headwater.metadata.table_change import TableChange
from headwater.model.files import BaseFile, DataFile, FileGroupId, FileSlice, LogFile
from headwater.model.instant import InstantTime
from headwater.seams.cached import cached_property
from headwater.seams.open_storage import open_storage
from headwater.seams.prefetched_storage import PrefetchedStorage
from headwater.seams.storage import Storage

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

Progress = Callable[[int, int], None]
"""Told how many files were read since the last call, and how many rows they gave to the index."""

_FOOTER_BYTES = 64 * 1024
"""What reading a footer counts for when the engine is chosen."""

_KEY_SHARE = 4
"""A fourth of a file, about, is read for its keys."""

_ROWS_AT_ONCE = 1 << 18
"""How many rows a piece of a build has, about: some ten megabytes, of which some are under way."""

_FILES_AT_ONCE = 1_000
_FILTER_BYTES_AT_ONCE = 8 * 1024 * 1024
_TASK_BYTES = 128 * 1024 * 1024
_TASK_ITEMS = 100
_TASKS_AT_ONCE = 32
"""Results of so many tasks are in memory at a time."""

_KEY_TASK_BYTES = 2 * 1024 * 1024
_KEY_TASKS_AT_ONCE = 8
"""The same for tasks whose results are keys: 2 MB read are some 300,000 of them, ten megabytes that
are copied from a worker to the JVM, to this process and out of a pickle. Reading keys takes a tenth
of what is done with them here, so more tasks at a time would wait for this process."""


_FETCHED_BYTES_MAX = 16 * 1024 * 1024


def no_progress(files: int, rows: int) -> None:
    """Tell nobody."""


def with_files_prefetched(storage: Storage, changes: Iterable[TableChange]) -> Storage:
    """Return a storage that reads new files of changes together and once, unless they are large.

    Statistics, records and secondary values all come from them. On a disk those are the logs:
    there a base file is mapped faster than read.
    """
    kinds = DataFile if storage.is_distant else LogFile
    files = [file for one in changes for file in one.added if isinstance(file, kinds)]
    if not files or sum(file.size_bytes for file in files) > _FETCHED_BYTES_MAX:
        return storage
    return PrefetchedStorage(storage, [file.path for file in files])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """What all tasks of one derivation share; picklable."""

    storage_uri: str
    storage_options: Mapping[str, str] = field(repr=False)
    schema: pa.Schema
    columns: tuple[str, ...] = ()
    rule: IndexKeyRule | None = None
    finds_vanished: bool = False
    """Whether anything can be done with the index keys that a service leaves behind: finding them
    takes reading all that it read."""

    @property
    def index_keys(self) -> IndexKeyRule:
        if self.rule is None:
            raise InvalidInputError("This index is not one over rows")
        return self.rule


@dataclass(frozen=True, slots=True)
class _GroupChange:
    """What an instant did to one file group."""

    instant_time: InstantTime
    group: FileGroupId
    base: BaseFile | None
    logs: tuple[LogFile, ...]
    inputs: FileSlice | None
    keeps_rows: bool
    """Compaction and clustering only bring rows to other files."""

    @property
    def read_bytes(self) -> int:
        files: list[DataFile] = [*self.logs, *(self.inputs.files() if self.inputs else ())]
        if self.base is not None:
            files.append(self.base)
        return sum(file.size_bytes for file in files)


@dataclass(frozen=True, slots=True)
class _GroupKeys:
    """What that means to an index over rows. Keys are there once each."""

    instant_time: InstantTime
    group: FileGroupId
    added: pa.StringArray
    vanished: pa.StringArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Deriver:
    """Derives the content of the indexes of one table."""

    table: TableContext
    storage: Storage
    """The table's, or one that has some of its files at hand."""
    schema: pa.Schema
    """The table's data columns, those included that the change brings."""
    definitions: Mapping[str, IndexDefinition]
    _ranges_of: dict[tuple[InstantTime, ...], tuple[FileRanges, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """What was found out about the files of changes: two indexes ask for it."""

    @property
    def births(self) -> Mapping[str, IndexBirth]:
        """The plans that indexes are of, as far as table config says so."""
        return births_of(self.table.config)

    def is_partitioned(self, partition: str) -> bool:
        """Whether a partition is a record index that is kept apart by partitions of the table."""
        definition = self.definitions.get(partition)
        is_record_index = kind_of(partition) is PartitionKind.RECORD_INDEX
        return is_record_index and definition is not None and definition.is_partitioned

    def of_changes(
        self, partition: str, changes: Sequence[TableChange]
    ) -> MetadataRecords | PartitionedRecords:
        """Return what instants say to one partition of the metadata table but `files`.

        Args:
            changes: what the instants did, in the order of their completion.

        Raises:
            CorruptTableError: a file is missing or damaged.
            UnsupportedError: the table cannot have this index.
            InvalidInputError: there is no such index, or it is defined on a column that cannot be.
        """
        added, removed = _added_and_removed(changes)
        match kind_of(partition):
            case PartitionKind.COLUMN_STATS:
                columns = self.stats_columns()
                return _joined(
                    column_stats_records(self._added_ranges(changes, added)),
                    removed_column_stats(removed, columns),
                )
            case PartitionKind.PARTITION_STATS:
                ranges = ranges_by_partition(self._added_ranges(changes, added), self.schema)
                return partition_stats_records(ranges, is_tight=False)
            case PartitionKind.BLOOM_FILTERS:
                return _joined(
                    bloom_filter_records(list(self._filters(added))),
                    removed_blooms([file for file in removed if isinstance(file, BaseFile)]),
                )
            case PartitionKind.RECORD_INDEX | PartitionKind.SECONDARY_INDEX:
                return self._records_of_keys(partition, changes)
            case _:
                raise _unknown(partition)

    def of_files(
        self, partition: str, slices: Sequence[FileSlice], progress: Progress = no_progress
    ) -> Iterator[MetadataRecords]:
        """Give what one partition of the metadata table but `files` holds of some file slices.

        No key comes twice, but for indexes over rows of a table that holds a record key twice; the
        one that comes last counts.

        Raises:
            CorruptTableError: a file is missing or damaged.
            UnsupportedError: the table cannot have this index.
            InvalidInputError: there is no such index, or it is defined on a column that cannot be.
        """
        in_order = sorted(slices, key=lambda one: one.group)
        files = [file for one in in_order for file in one.files() if _is_indexed(file)]
        match kind_of(partition):
            case PartitionKind.COLUMN_STATS:
                found = self._ranges(files, self.stats_columns())
                return _stats_pieces(found, progress)
            case PartitionKind.PARTITION_STATS:
                return iter([self._tight_partition_stats(files, progress)])
            case PartitionKind.BLOOM_FILTERS:
                return _bloom_pieces(self._filters(files), progress)
            case PartitionKind.RECORD_INDEX | PartitionKind.SECONDARY_INDEX:
                return self._key_pieces(partition, in_order, progress)
            case _:
                raise _unknown(partition)

    def live_index_keys(
        self, partition: str, slices: Sequence[FileSlice], progress: Progress = no_progress
    ) -> Iterator[LocatedKeys]:
        """Give the index keys of all rows that readers of some slices find, with their places.

        A record that the table holds twice comes twice.

        Args:
            partition: the record index or a secondary one.

        Raises: as `of_files`.
        """
        job = self._job(rule=self.index_key_rule(partition))
        sizes = [one.size_bytes // _KEY_SHARE for one in slices]
        for placed in self._each(
            _keys_of_slice, job, slices, sizes, _KEY_TASK_BYTES, _KEY_TASKS_AT_ONCE
        ):
            yield from placed
            progress(1, sum(len(one.index_keys) for one in placed))

    def stats_columns(self) -> tuple[str, ...]:
        """Return the columns that have statistics."""
        definition = self.definitions.get(COLUMN_STATS)
        named = () if definition is None else definition.source_fields
        has_meta_fields = self.table.config.has_meta_fields
        return indexed_columns(self.schema, named=named, has_meta_fields=has_meta_fields)

    def index_key_rule(self, partition: str) -> IndexKeyRule:
        """Return how rows become index keys of the record index or a secondary one.

        Raises:
            UnsupportedError: the table cannot have this index.
            InvalidInputError: it is not defined, or on a column that cannot be.
        """
        column = None
        if kind_of(partition) is PartitionKind.SECONDARY_INDEX:
            definition = self.definitions.get(partition)
            if definition is None or len(definition.source_fields) != 1:
                raise InvalidInputError(
                    f"The index {partition} of table {self.table.config.name} is not defined on "
                    "one column. Drop it and create it again"
                )
            (column,) = definition.source_fields
        return index_key_rule(
            merge_rule_of(self.table.config, custom=self.table.merge_function),
            self.schema,
            column=column,
            has_meta_fields=self.table.config.has_meta_fields,
        )

    def _added_ranges(
        self, changes: Sequence[TableChange], added: Sequence[DataFile]
    ) -> tuple[FileRanges, ...]:
        times = tuple(change.instant_time for change in changes)
        known = self._ranges_of.get(times)
        if known is None:
            known = tuple(self._ranges(added, self.stats_columns()))
            self._ranges_of.clear()  # Only those asked for last: a build derives many.
            self._ranges_of[times] = known
        return known

    def _ranges(self, files: Sequence[DataFile], columns: tuple[str, ...]) -> Iterator[FileRanges]:
        # Many files at a time: what they have in common is looked at once.
        some = [files[at : at + _TASK_ITEMS] for at in range(0, len(files), _TASK_ITEMS)]
        sizes = [sum(map(_stats_bytes, part)) for part in some]
        found = self._each(_ranges_of_files, self._job(columns=columns), some, sizes)
        return (one for part in found for one in part)

    def _filters(self, files: Sequence[DataFile]) -> Iterator[FileFilter]:
        bases = [file for file in files if isinstance(file, BaseFile)]
        sizes = [_FOOTER_BYTES] * len(bases)
        found = self._each(_filter_of_file, self._job(), bases, sizes)
        return (one for one in found if one is not None)

    def _tight_partition_stats(
        self, files: Sequence[DataFile], progress: Progress
    ) -> MetadataRecords:
        gathered: dict[str, list[ColumnRange]] = {}
        for file, ranges in self._ranges(files, self.stats_columns()):
            known = gathered.setdefault(file.partition, [])
            gathered[file.partition] = join_ranges([*known, *ranges], self.schema)
            progress(1, 0)
        return partition_stats_records(gathered, is_tight=True)

    def _key_pieces(
        self, partition: str, slices: Sequence[FileSlice], progress: Progress
    ) -> Iterator[MetadataRecords]:
        is_secondary = kind_of(partition) is PartitionKind.SECONDARY_INDEX
        rule = self.index_key_rule(partition)
        gathered: list[LocatedKeys] = []
        rows = 0
        # Where a table has the record of a key that was deleted elsewhere, that is where it is.
        with_logs = [one for one in slices if one.logs]
        if rule.column is None and rule.merge.merges_by_ordering and with_logs:
            sizes = [sum(log.size_bytes for log in one.logs) for one in with_logs]
            gathered += self._each(_deleted_keys_of_slice, self._job(rule=rule), with_logs, sizes)
        for placed in self.live_index_keys(partition, slices, progress):
            gathered.append(placed)
            rows += len(placed.index_keys)
            if rows >= _ROWS_AT_ONCE:
                yield self._built(gathered, is_secondary=is_secondary)
                gathered, rows = [], 0
        if gathered:
            yield self._built(gathered, is_secondary=is_secondary)

    def _built(self, placed: Sequence[LocatedKeys], *, is_secondary: bool) -> MetadataRecords:
        if is_secondary:
            return built_secondary_index_records(placed)
        return built_record_index_records(placed, is_utc=self.table.config.is_utc)

    def _records_of_keys(
        self, partition: str, changes: Sequence[TableChange]
    ) -> MetadataRecords | PartitionedRecords:
        """Return what instants say to an index over rows."""
        others = _Others(self, {change.instant_time: change for change in changes})
        found = self._changed_keys(partition, changes, others)
        if not self.is_partitioned(partition):
            is_secondary = kind_of(partition) is PartitionKind.SECONDARY_INDEX
            return self._last_word(found, others, is_secondary=is_secondary)
        by_partition: dict[str, list[_GroupKeys]] = {}
        for one in found:
            by_partition.setdefault(one.group.partition, []).append(one)
        return PartitionedRecords(
            {
                apart: self._last_word(some, others, data_partition=apart)
                for apart, some in by_partition.items()
            }
        )

    def _changed_keys(
        self, partition: str, changes: Sequence[TableChange], others: _Others
    ) -> list[_GroupKeys]:
        job = replace(
            self._job(rule=self.index_key_rule(partition)),
            finds_vanished=any(not one.has_seen_all for one in changes) and others.can_tell,
        )
        groups = [
            one
            for change in changes
            for one in sorted(_group_changes(change), key=lambda one: one.group)
        ]
        sizes = [one.read_bytes // _KEY_SHARE for one in groups]
        return list(self._each(_keys_of_group, job, groups, sizes))

    def _last_word(
        self,
        found: Sequence[_GroupKeys],
        others: _Others,
        *,
        is_secondary: bool = False,
        data_partition: str | None = None,
    ) -> MetadataRecords:
        """Return the entries of file groups, given in the order in which their instants completed.

        Those of one partition of the table if the index is apart.
        """
        placed: list[LocatedKeys] = []
        removed = pa.array([], pa.string())
        for time, changed in groupby(found, lambda one: one.instant_time):
            groups = list(changed)
            added = [one.added for one in groups if len(one.added)]
            gone = without_keys(unique_keys([one.vanished for one in groups]), added)
            if len(gone):
                gone = self._gone_for_good(
                    gone,
                    [one.group for one in groups if len(one.vanished)],
                    others,
                    time,
                    is_secondary=is_secondary,
                    data_partition=data_partition,
                )
                placed = [
                    replace(one, index_keys=without_keys(one.index_keys, [gone])) for one in placed
                ]
                removed = unique_keys([removed, gone])
            removed = without_keys(removed, added)
            placed += [LocatedKeys(one.group, one.added, time) for one in groups if len(one.added)]
        if is_secondary:
            keys = unique_keys([one.index_keys for one in placed])
            return secondary_index_records(keys, removed)
        return record_index_records(placed, removed, is_utc=self.table.config.is_utc)

    def _gone_for_good(
        self,
        index_keys: pa.StringArray,
        groups: Sequence[FileGroupId],
        others: _Others,
        time: InstantTime,
        *,
        is_secondary: bool,
        data_partition: str | None,
    ) -> pa.StringArray:
        """Return the index keys that no other file group and no other instant has.

        What cannot be found out is not removed: no writer fails because of an index.
        """
        record_keys = pc.unique(split_secondary_keys(index_keys)[1]) if is_secondary else index_keys
        if not others.can_tell:
            return pa.array([], pa.string())
        try:
            return gone_for_good(
                index_keys,
                others.table.look_up(RECORD_INDEX, record_keys, data_partition=data_partition),
                groups=groups,
                unseen=others.unseen_by(time),
                is_secondary=is_secondary,
                is_utc=self.table.config.is_utc,
            )
        except (CorruptTableError, NotFoundError, MalformedAvroError) as error:
            self.warn_unreadable(error)
            return pa.array([], pa.string())

    def warn_unreadable(self, error: Exception) -> None:
        log.warning(
            "record index cannot be read, so no index entry is removed table=%s reason=%s",
            self.table.config.name,
            error,
        )

    def _job(self, *, columns: tuple[str, ...] = (), rule: IndexKeyRule | None = None) -> _Job:
        return _Job(
            storage_uri=self.storage.uri,
            storage_options=self.table.options,
            schema=self.schema,
            columns=columns,
            rule=rule,
        )

    def _each(
        self,
        function: Callable[[Storage, _Job, T], R],
        job: _Job,
        items: Sequence[T],
        sizes: Sequence[int],
        task_bytes: int = _TASK_BYTES,
        tasks_at_once: int = _TASKS_AT_ONCE,
    ) -> Iterator[R]:
        """Give the results of a function on each of some items, in their order."""
        engine = self.table.engine_for(sum(sizes))
        if engine.is_in_process:
            # Together, where an answer is waited for; what is large by itself, for its memory.
            find = partial(_result, function, self.storage, job)
            for window in windows(items, sizes, min(task_bytes, _FETCHED_BYTES_MAX)):
                yield from self.storage.at_once(find, window)
            return
        tasks = list(windows(items, sizes, task_bytes, items_max=_TASK_ITEMS))
        for start in range(0, len(tasks), tasks_at_once):
            some = tasks[start : start + tasks_at_once]
            for results in engine.run(partial(_run_task, function, job), some):
                yield from results


@dataclass(frozen=True)
class _Others:
    """What other instants have told, looked up once for all that changes say to an index."""

    deriver: Deriver
    changes: Mapping[InstantTime, TableChange]

    @cached_property
    def timeline(self) -> Timeline:
        return load_active(self.deriver.storage, table_layout(self.deriver.table.config).timeline)

    @cached_property
    def table(self) -> MetadataTable:
        return load_metadata_table(self.deriver.storage, self.deriver.table.config, self.timeline)

    @cached_property
    def can_tell(self) -> bool:
        """Whether the record index tells where a record is by now."""
        if RECORD_INDEX not in self.deriver.table.config.metadata_partitions:
            return False
        try:
            return RECORD_INDEX in self.table.usable
        except (CorruptTableError, NotFoundError) as error:
            self.deriver.warn_unreadable(error)
            return False

    def unseen_by(self, time: InstantTime) -> list[InstantTime]:
        """Return the instants that whoever made the change of an instant may not have seen."""
        if self.changes[time].has_seen_all:
            return []
        return [
            instant.requested_time
            for instant in (*self.timeline.pending, *self.timeline.completed)
            if instant.requested_time != time and (instant.completion_time or time) >= time
        ]


def _run_task(
    function: Callable[[Storage, _Job, T], R], job: _Job, context: TaskContext, items: Sequence[T]
) -> list[R]:
    storage = open_storage(job.storage_uri, job.storage_options)
    return [_result(function, storage, job, item) for item in items]


def _result(function: Callable[[Storage, _Job, T], R], storage: Storage, job: _Job, item: T) -> R:
    found = function(storage, job, item)
    # Arrow's footers refer to themselves, 0.7 MB each with a bloom filter, and a loop that works on
    # columns makes too few objects for the collector to come by itself.
    gc.collect(0)
    return found


def _ranges_of_files(storage: Storage, job: _Job, files: Sequence[DataFile]) -> list[FileRanges]:
    return load_ranges(storage, files, job.columns, job.schema)


def _stats_bytes(file: DataFile) -> int:
    return _FOOTER_BYTES if isinstance(file, BaseFile) else file.size_bytes


def _filter_of_file(storage: Storage, job: _Job, file: BaseFile) -> FileFilter | None:
    return load_filter(storage, file)


def _keys_of_slice(storage: Storage, job: _Job, one: FileSlice) -> list[LocatedKeys]:
    """Return the live keys of a slice. Rows of a log came with it, all others with the slice."""
    placed = []
    log_times = pa.array([file.instant_time for file in one.logs], pa.string())
    for piece in live_index_keys(storage, one, job.index_keys):
        times: pa.StringArray | InstantTime = one.base_instant
        if piece.commit_times is not None:
            is_from_log = pc.is_in(piece.commit_times, value_set=log_times)
            times = pc.if_else(is_from_log, piece.commit_times, one.base_instant)
        placed.append(LocatedKeys(one.group, piece.index_keys, times))
    return placed


def _deleted_keys_of_slice(storage: Storage, job: _Job, one: FileSlice) -> LocatedKeys:
    """Return the keys of the deletes of a slice that records may still meet."""
    keys = unique_keys(keys_of_deletes(storage, one.logs, job.index_keys))
    return LocatedKeys(one.group, keys, one.base_instant)


def _keys_of_group(storage: Storage, job: _Job, change: _GroupChange) -> _GroupKeys:
    rule = job.index_keys
    inputs = change.inputs
    none = pa.array([], pa.string())
    time = change.instant_time
    # Deletes on top of a file group are where the index has their keys already.
    kept = [] if change.base is None else keys_of_deletes(storage, change.logs, rule)
    if change.keeps_rows:
        # A compacted group has its rows in the index already, from where they came from.
        is_new = inputs is None
        added = [*_of_base(storage, change.base, rule), *kept] if is_new else []
        is_asked = inputs is not None and job.finds_vanished
        vanished = vanished_index_keys(storage, inputs, rule) if inputs and is_asked else none
        return _GroupKeys(time, change.group, unique_keys(added), without_keys(vanished, kept))
    new = _of_base(storage, change.base, rule)
    of_logs = [*index_keys_of_logs(storage, change.logs, rule), *kept]
    if inputs is None:
        return _GroupKeys(time, change.group, unique_keys([*new, *of_logs]), none)
    old = unique_keys(
        [
            *_of_base(storage, inputs.base, rule),
            *index_keys_of_logs(storage, inputs.logs, rule),
            *keys_of_deletes(storage, inputs.logs, rule),
        ]
    )
    # Below logs an index key may be in the index for another place by now, so it is told again.
    known = [] if inputs.logs else [old]
    added_terms = without_keys(unique_keys([*new, *of_logs]), known)
    return _GroupKeys(time, change.group, added_terms, without_keys(old, [*new, *of_logs]))


def _of_base(storage: Storage, base: BaseFile | None, rule: IndexKeyRule) -> list[pa.StringArray]:
    return [] if base is None else list(index_keys_of_base_file(storage, base, rule))


def _group_changes(change: TableChange) -> Iterator[_GroupChange]:
    keeps_rows = not change.has_seen_all
    by_group: dict[FileGroupId, list[DataFile]] = {group: [] for group in change.replaced}
    for file in change.added:
        if _is_indexed(file):
            by_group.setdefault(file.group, []).append(file)
    for group, files in by_group.items():
        bases = [file for file in files if isinstance(file, BaseFile)]
        logs = tuple(file for file in files if isinstance(file, LogFile))
        # Below new logs the slice lives on.
        is_ended = bool(bases) or not files
        inputs = _slice_of(group, change.inputs.get(group, ())) if is_ended else None
        if files or inputs is not None:
            base = bases[0] if bases else None
            yield _GroupChange(change.instant_time, group, base, logs, inputs, keeps_rows)


def _slice_of(group: FileGroupId, files: Iterable[DataFile]) -> FileSlice | None:
    """Return the slice of some files of a group, given in merge order."""
    indexed = [file for file in files if _is_indexed(file)]
    if not indexed:
        return None
    base = next((file for file in indexed if isinstance(file, BaseFile)), None)
    logs = tuple(file for file in indexed if isinstance(file, LogFile))
    return FileSlice(group, (base or indexed[0]).instant_time, base, logs)


def _added_and_removed(
    changes: Iterable[TableChange],
) -> tuple[list[DataFile], list[DataFile]]:
    """Return the files with rows that changes leave added, and all that they removed."""
    done = list(changes)
    removed = [file for change in done for file in change.removed if _is_indexed(file)]
    gone = {file.path for file in removed}
    added = [
        file
        for change in done
        for file in change.added
        if _is_indexed(file) and file.path not in gone
    ]
    return added, removed


def _is_indexed(file: DataFile) -> bool:
    """Whether a file holds rows of the table, in a format that is read here."""
    if isinstance(file, LogFile):
        return not file.is_cdc
    return file.extension == "parquet"


def _stats_pieces(files: Iterable[FileRanges], progress: Progress) -> Iterator[MetadataRecords]:
    gathered: list[FileRanges] = []
    for one in files:
        gathered.append(one)
        progress(1, 0)
        if len(gathered) == _FILES_AT_ONCE:
            yield column_stats_records(gathered)
            gathered = []
    if gathered:
        yield column_stats_records(gathered)


def _bloom_pieces(filters: Iterable[FileFilter], progress: Progress) -> Iterator[MetadataRecords]:
    gathered: list[FileFilter] = []
    gathered_bytes = 0
    for one in filters:
        gathered.append(one)
        gathered_bytes += len(one.text)
        progress(1, 0)
        if gathered_bytes >= _FILTER_BYTES_AT_ONCE:
            yield bloom_filter_records(gathered)
            gathered, gathered_bytes = [], 0
    if gathered:
        yield bloom_filter_records(gathered)


def _joined(one: MetadataRecords, other: MetadataRecords) -> MetadataRecords:
    return MetadataRecords(
        pa.concat_arrays([one.keys, other.keys]),
        pa.concat_arrays([one.values, other.values]),
        pa.concat_arrays([one.removed, other.removed]),
    )


def _unknown(partition: str) -> UnsupportedError:
    return UnsupportedError(f"What the index {partition} holds is not derived from data files here")
