"""Plans of writes: frozen values that say where each row goes, run by any engine.

A write sends every row to a file group. How the group is found depends on the index:

    bucket         the hash of the record key names the group; no look-up
    simple, bloom  upserts and deletes look the record key up in the base files of its partition;
                   new keys, and inserts, which look nothing up, go to files with room or to new
                   ones; updates go to the group that holds the key
    global ones    the same, but every write looks its keys up, and in the whole table: in all
                   files (GLOBAL_SIMPLE, GLOBAL_BLOOM) or in the record index. A key is there once.
                   Whether a record stays in its partition or goes to the one that its row says, an
                   option of the index decides
    record level   the same, by a record index that is kept apart by partitions: a key is there once
                   in each of them
    none           rows have no key of their own and are inserts

A plan holds the file slices that exist as of the writer's snapshot, so that a task needs nothing
but the plan, its rows and storage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from headwater.config.files import DuplicatePolicy, FileConfig
from headwater.config.table import TableConfig
from headwater.config.table_options import (
    BUCKET_COUNT,
    GLOBAL_INDEXES,
    INDEX_TYPE,
    LOOKUP_INDEXES,
    UNIQUE_KEY_INDEXES,
    IndexType,
    TableType,
)
from headwater.engine.engine import TaskContext
from headwater.errors import InvalidInputError
from headwater.kernel.file_ids import generation_file_id, named_bucket, seeded_file_id
from headwater.kernel.txn.key_conflicts import KeyScope
from headwater.kernel.view.commits import CompletedCommit
from headwater.markers.client import MarkerServiceAddress
from headwater.markers.detection import Detection
from headwater.metadata.partition_kinds import PartitionKind, kind_of
from headwater.model.files import FileGroupId, FileSlice, write_token
from headwater.model.instant import Action, InstantTime
from headwater.model.operation import Operation as Operation
from headwater.operations.table_location import TableLocation
from headwater.seams.storage import Storage
from headwater.slice.reader import SliceReader

INSERTS = -1
"""The number, in place of that of a slice, of rows that go to files with room or to new ones."""

_TASK_ATTEMPTS_MAX = 1_000
"""No engine runs a task as often."""
_ROW_BITS = 40
"""No task has more rows than this many bits count."""

BUCKET_COUNT_DEFAULT = 4
"""Hudi's default, for a table whose config does not say."""


def action_of(config: TableConfig, operation: Operation) -> Action:
    """Return the action under which a write stands on the timeline."""
    if operation.is_replacing:
        return Action.REPLACE_COMMIT
    if config.table_type is TableType.MERGE_ON_READ:
        return Action.DELTA_COMMIT
    return Action.COMMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteColumns:
    """The columns of the rows of a write, and of the files that it makes."""

    schema: pa.Schema
    """The data columns after this write."""
    avro_schema: str
    """The columns of base files, as Avro JSON: meta columns first."""
    block_avro_schema: str
    """The columns of log blocks: in a partial write only those that the rows bring."""
    of_rows: pa.Schema
    """What rows are brought to: see `request.columns_of_rows`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySearch:
    """Which indexes are asked where keys are.

    Without the record index keys are looked up in all files of the table, if the index is one of
    the whole table, and in those of the row's partition if not.
    """

    uses_record_index: bool = False
    has_bloom_index: bool = False
    """Whether the metadata table has the bloom filters of the base files, and is to be asked."""
    has_key_ranges: bool = False
    """Whether it also has their smallest and largest keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenGroups:
    """The file groups that rows may go to, as of the writer's snapshot."""

    slices: Mapping[str, Mapping[int, FileSlice]] = field(default_factory=dict)
    """Partition -> bucket, or running number, -> the slice that rows are written to. Partitions
    that no row goes to may be left out."""
    known_partitions: frozenset[str] = frozenset()
    record_size_bytes: int | None = None
    """Bytes of a record in a base file, if anything tells."""
    generations: Mapping[str, Mapping[int, InstantTime]] = field(default_factory=dict)
    """Partition -> bucket -> the last instant that replaced the bucket's file group."""

    def slice_of(self, partition: str, number: int) -> FileSlice | None:
        """Return the slice that rows of a bucket, or of a running number, are written to."""
        return self.slices.get(partition, {}).get(number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcing:
    """How tasks announce their files, and find out who else did."""

    marker_service: MarkerServiceAddress | None = None
    """Where tasks create their markers; None: each makes files of its own."""
    detection: Detection | None = None
    """How tasks find out that another writer is ahead; None: the commit will tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedoPart:
    """The part of a batch that is written again after it lost, under the instant it has."""

    number: int
    """Which redo of the write it is, from 1."""
    partitions: frozenset[str] | None = None
    """Those whose rows are written again; None: all, or what `buckets` say."""
    buckets: frozenset[tuple[str, int]] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether all files stay, and only the commit says something else."""
        return self.partitions == frozenset()

    def has(self, partition: str, number: int) -> bool:
        """Whether the rows of a bucket, or of whatever group of a partition, are among it."""
        if self.buckets is not None:
            return (partition, number) in self.buckets
        return self.partitions is None or partition in self.partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """One write, as its tasks see it."""

    location: TableLocation
    config: TableConfig
    files: FileConfig
    columns: WriteColumns
    instant_time: InstantTime
    attempt: int
    operation: Operation
    is_partial: bool = False
    """Whether columns that the rows lack keep their older values."""
    is_non_blocking: bool = False
    """Whether other writers may append to the same file groups at the same time."""
    is_handed_over: bool = False
    """Whether rows come to tasks as they happen to be, so that several may have some of a group."""
    key_search: KeySearch = KeySearch()
    groups: OpenGroups = OpenGroups()
    announcing: Announcing = Announcing()
    redo: RedoPart | None = None
    """What is written, of a batch that lost; None: all of it, for the first time."""

    @property
    def is_bucketed(self) -> bool:
        return self.config.index_type is IndexType.BUCKET

    @property
    def looks_up(self) -> bool:
        """Whether rows find their file groups by looking up which files hold their keys.

        A write that replaces has nothing to look up, but equal keys still meet.
        """
        is_inserting = self.operation in (Operation.INSERT, Operation.BULK_INSERT)
        looks_all_up = not is_inserting or self.minds_duplicates
        index = self.config.index_type
        return index in UNIQUE_KEY_INDEXES or (index in LOOKUP_INDEXES and looks_all_up)

    @property
    def minds_duplicates(self) -> bool:
        """Whether an insert looks whether the keys of its rows are there; see `duplicates`."""
        is_asked = self.files.duplicates is not DuplicatePolicy.NONE
        has_keys = bool(self.config.record_key_fields)
        return is_asked and has_keys and self.operation is Operation.INSERT

    @property
    def is_global(self) -> bool:
        """Whether a key is there once in the whole table, not once in each partition."""
        return self.config.index_type in GLOBAL_INDEXES

    @property
    def key_scope(self) -> KeyScope | None:
        """Within what the write promises that a key is there once; None if it promises nothing."""
        if not self.looks_up or self.operation is Operation.DELETE:
            return None
        return KeyScope.TABLE if self.is_global else KeyScope.PARTITION

    @property
    def settles_partitions(self) -> bool:
        """Whether rows of one key may claim several partitions, of which one has to be chosen."""
        has_partitions = bool(self.config.partition_columns)
        return self.is_global and has_partitions and self.operation is not Operation.DELETE

    @property
    def moves_records(self) -> bool:
        """Whether a record goes to the partition that a row of its key claims."""
        return self.settles_partitions and self.files.moves_records(self.config.index_type)

    @property
    def appends_blindly(self) -> bool:
        """Whether logs for groups that exist are the same whatever is in the groups.

        Entries of a secondary index are not: they name the values that the write replaced.
        """
        indexes = (*self.config.metadata_partitions, *self.config.metadata_partitions_inflight)
        has_secondary = any(kind_of(one) is PartitionKind.SECONDARY_INDEX for one in indexes)
        is_append = self.is_merge_on_read and not self.operation.is_replacing
        reads_groups = self.is_partial or self.minds_duplicates
        return self.is_bucketed and is_append and not reads_groups and not has_secondary

    @property
    def bucket_count(self) -> int:
        return self.config.bucket_count or BUCKET_COUNT_DEFAULT

    @property
    def is_bulk(self) -> bool:
        """Whether rows that start a file group go to a base file in any type of table.

        Not if another writer may start the same group: of two base files readers take one.
        """
        is_bulk_insert = self.operation is Operation.BULK_INSERT and not self.is_non_blocking
        return is_bulk_insert or self.operation.is_replacing

    @property
    def is_merge_on_read(self) -> bool:
        return self.config.table_type is TableType.MERGE_ON_READ

    def write_token(self, context: TaskContext) -> str:
        """Return the token of the files that a task makes; those of a redo have others (N-70)."""
        redone = 0 if self.redo is None else self.redo.number
        tried = redone * _TASK_ATTEMPTS_MAX + context.task_attempt
        return write_token(context.task, self.attempt, tried)

    def first_row(self) -> int:
        """Return the number of a task's first row, which no row of an earlier try had."""
        return 0 if self.redo is None else self.redo.number << _ROW_BITS

    def is_written(self, partition: str, number: int) -> bool:
        """Whether rows of a bucket, or of whatever group of a partition, are written now."""
        return self.redo is None or self.redo.has(partition, number)

    def slice_reader(self, storage: Storage) -> SliceReader:
        """Return what reads the slices that rows are merged with."""
        return SliceReader.of_table(
            storage, self.config, self.columns.schema, merge_function=self.files.merge_function
        )

    def known_groups(self) -> set[FileGroupId]:
        """Return the file groups that rows may go to and that exist."""
        return {one.group for slices in self.groups.slices.values() for one in slices.values()}

    def new_group(self, partition: str, number: int, serial: int = 0) -> FileGroupId:
        """Name a new file group; a replaced one of a bucket never comes back (INV-63)."""
        if self.is_bucketed and self.is_non_blocking:
            replaced_by = self._generation(partition, number)
            return FileGroupId(partition, generation_file_id(number, replaced_by))
        seed = f"{self.instant_time}/{self.attempt}/{partition}/{number}/{serial}"
        bucket = number if self.is_bucketed else None
        return FileGroupId(partition, seeded_file_id(seed, bucket))

    def _generation(self, partition: str, bucket: int) -> InstantTime | None:
        """Return the instant after which the group of a bucket is named."""
        if self.operation.is_replacing:
            return self.instant_time
        return self.groups.generations.get(partition, {}).get(bucket)


def bucket_of(group: FileGroupId) -> int:
    """Return the bucket of a file group: the head of its file id.

    Raises:
        InvalidInputError: it has none.
    """
    bucket = named_bucket(group.file_id)
    if bucket is None:
        raise InvalidInputError(
            f"File group {group.file_id} of partition {group.partition!r} is not named as those of "
            f"a bucket index, so the table was written by another index. Open it with the "
            f"{INDEX_TYPE.key} that its other writers use"
        )
    return bucket


def generations_of(commits: Iterable[CompletedCommit]) -> dict[str, dict[int, InstantTime]]:
    """Return by partition and bucket the last instant that replaced a file group there.

    The commits are those of the active timeline of a bucketed table, by completion time. Archived
    ones are not needed: by then nothing is left of what they replaced.
    """
    found: dict[str, dict[int, InstantTime]] = {}
    for commit in commits:
        for group in commit.replaced_groups():
            found.setdefault(group.partition, {})[bucket_of(group)] = commit.requested_time
    return found


def slices_by_bucket(slices: list[FileSlice], bucket_count: int) -> dict[str, dict[int, FileSlice]]:
    """Return partition -> bucket -> slice.

    Raises:
        InvalidInputError: a file group belongs to none of so many buckets.
    """
    found: dict[str, dict[int, FileSlice]] = {}
    for file_slice in slices:
        bucket = bucket_of(file_slice.group)
        if bucket >= bucket_count:
            # Eight digits also begin one random id in 43, of a table with another index.
            raise InvalidInputError(
                f"File group {file_slice.group.file_id} of partition "
                f"{file_slice.group.partition!r} is in none of {bucket_count} buckets, so the "
                f"table was written by another index, or with more buckets. Open it with the "
                f"{INDEX_TYPE.key} and {BUCKET_COUNT.key} that its other writers use"
            )
        found.setdefault(file_slice.group.partition, {})[bucket] = file_slice
    return found


def slices_by_number(slices: Iterable[FileSlice]) -> dict[str, dict[int, FileSlice]]:
    """Return partition -> running number of the whole table -> slice."""
    found: dict[str, dict[int, FileSlice]] = {}
    for number, file_slice in enumerate(slices):
        found.setdefault(file_slice.group.partition, {})[number] = file_slice
    return found


def has_room(file_slice: FileSlice, *, small_file_limit: int) -> bool:
    """Whether inserts may fill up the base file of a slice."""
    base = file_slice.base
    return base is not None and not file_slice.logs and base.size_bytes < small_file_limit
