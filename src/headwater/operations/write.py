"""One write from its rows to its commit, the same for every operation and engine.

1. transaction: request the instant and go inflight; the heartbeat begins;
2. load the view: the snapshot that rows are routed and merged against;
3. plan: the columns after this write, and which slice each row may go to;
4. tasks: rows to data files, each announced by a marker;
5. delete files that tasks left behind but no stat lists, and cancel the plans in the way of the
   write that give way to writes, if there are any: one more transaction then;
6. transaction: the completed file, with all stats, makes the write visible as one;
7. forget markers and heartbeat.

`run_write` does all of it. `start_write` does 1 to 3 and gives a `RunningWrite`, whose `commit`
does 5 to 7, for an engine that runs the tasks by itself. Such a write may even go on in another
process: `hand_over` makes a value of it, and `resume_write` a running write of that.

A crash before 6 leaves a pending instant whose files nobody sees; others roll it back. A failure is
rolled back by the writer itself, at once. After an unknown outcome of 6 nothing is touched: the
timeline will tell.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import cast

import pyarrow as pa

from headwater.arrow.input_schema import stored_schema
from headwater.arrow.keys import KeyGenerator
from headwater.arrow.merge_rule import check_meaningful, merge_rule_of
from headwater.arrow.meta_columns import META_COLUMNS, schema_with_meta_columns
from headwater.arrow.schema_evolution import evolve_schema
from headwater.config.files import BULK_INSERT_SORT_COLUMNS, FileConfig
from headwater.config.table import TableConfig
from headwater.config.table_options import (
    BLOOM_INDEXES,
    CDC_ENABLED,
    GLOBAL_INDEXES,
    INDEX_TYPE,
    LOOKUP_INDEXES,
    POPULATE_META_FIELDS,
    RECORD_INDEXES,
    UNIQUE_KEY_INDEXES,
    IndexType,
    MergeMode,
    TableType,
)
from headwater.config.write import ConcurrencyMode
from headwater.context import TableContext
from headwater.engine.engine import Rows
from headwater.errors import (
    CommitUnknownError,
    CorruptTableError,
    ErrorKind,
    InvalidInputError,
    UnsupportedError,
    check,
)
from headwater.format.avro.schema import encode_avro_schema
from headwater.format.timeline.records import encode_record
from headwater.kernel.table_config import table_layout
from headwater.kernel.timeline.active import load_active
from headwater.kernel.txn.attempts import Attempt
from headwater.kernel.txn.cancel_overlapped import cancel_overlapped
from headwater.kernel.txn.changes import WRITER_KEY, change_of, load_changes
from headwater.kernel.txn.conflicts import ConflictCheck, Snapshot
from headwater.kernel.txn.metadata_commit import IndexUpdate
from headwater.kernel.txn.rollback import rollback_own_write
from headwater.kernel.txn.writes import (
    CommittedWrite,
    InflightWrite,
    resume_inflight_write,
    start_inflight_write,
)
from headwater.kernel.view.commits import CompletedCommit as Completed
from headwater.kernel.view.table_view import TableView
from headwater.markers.batches import load_every_marker
from headwater.markers.detection import Detection, plan_detection
from headwater.markers.early_conflict import EarlyCheck
from headwater.markers.running import RunningMarkerService
from headwater.metadata.partition_kinds import BLOOM_FILTERS, COLUMN_STATS, RECORD_INDEX
from headwater.metadata.record_lookup import find_locations, find_locations_by_partition
from headwater.metadata.table_change import Inputs, LateInputs
from headwater.metadata.view import IndexedView, load_view, view_of
from headwater.metadata.writer import MetadataWriter, check_indexes_supported
from headwater.model.commit import Commit
from headwater.model.commit_metadata import CommitMetadata, ReplaceCommitMetadata, WriteStat
from headwater.model.files import BaseFile, FileGroupId, FileSlice
from headwater.model.instant import Action, Instant, State
from headwater.operations.concurrency import check_partial_write
from headwater.operations.plan import (
    Operation,
    WritePlan,
    generations_of,
    has_room,
    slices_by_bucket,
    slices_by_number,
)
from headwater.operations.routing.route import (
    group_route,
    located_keys_of,
    record_keys_of,
    touched_partitions,
)
from headwater.operations.tasks.execute import execute_write
from headwater.operations.write_markers import WriteMarkers, start_service

log = logging.getLogger(__name__)

_SIZED_COMMITS_MAX = 7
"""How many commits are searched for the size of a record, newest first."""

_SHOWN_PARTITIONS_MAX = 20
"""A message that names what a table has ends somewhere."""

SCHEMA_KEY = "schema"
TOKEN_KEY = "headwater.token"
"""Commit metadata carries the token of its attempt, so that a writer recognises its own commit
after a lost reply (M4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRequest:
    """What to write."""

    operation: Operation
    columns: pa.Schema | None
    """The columns of the rows; None for an operation that brings none."""
    is_partial: bool = False
    partitions: tuple[str, ...] = ()
    """What DELETE_PARTITIONS removes."""
    extra_metadata: Mapping[str, str] = field(default_factory=dict)
    reads_table: bool = False
    """Whether the rows are made of rows that the table held: see `RowsOfTable`."""


@dataclass(frozen=True, slots=True)
class RowsOfTable:
    """Rows that are made of what the table holds as of the snapshot of their own write.

    So whoever changes their file groups after that is found by the conflict check, and the rows are
    made again of what the other left (INV-95).
    """

    make: Callable[[IndexedView], Rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWrite:
    """A write that has begun, as a value that another process can go on with."""

    request: WriteRequest
    plan: WritePlan
    attempt: Attempt
    replaceable: Mapping[str, tuple[str, ...]]
    """Partition -> file ids of the writer's snapshot that the operation may replace."""
    snapshot: Snapshot
    """What was completed when the write was planned."""


def run_write(
    table: TableContext,
    request: WriteRequest,
    rows: Rows | RowsOfTable | None,
    *,
    holds_lock: bool = False,
) -> Commit:
    """Write and commit, once; `holds_lock` keeps every other writer out for as long.

    Raises:
        InvalidInputError: rows, columns or keys do not fit the table; nothing was committed.
        UnsupportedError: the table or the operation needs what this release does not have.
        ConflictError: another writer is at work, or won.
        FencedError: this process stalled and was taken over; nothing was committed.
        CommitUnknownError: storage did not say whether the commit landed.
        CorruptTableError, StorageError: a file is damaged, or storage failed.
    """
    given = None if isinstance(rows, RowsOfTable) else rows
    with table.txn.hold() if holds_lock else nullcontext():
        # Who holds the table lock cannot lose, so it must not stop for others who wait for it.
        running = start_write(
            table,
            request,
            detects=not holds_lock,
            host=None if given is None else given.driver_host,
            held=None if given is None else given.held(),
        )
        try:
            if isinstance(rows, RowsOfTable):
                given = rows.make(running.view)
            stats = [] if given is None else running.run_tasks(given)
            return running.commit(stats)
        except CommitUnknownError:
            raise
        except (Exception, KeyboardInterrupt, SystemExit):
            running.abandon()
            raise


def start_write(
    table: TableContext,
    request: WriteRequest,
    *,
    detects: bool = True,
    host: str | None = None,
    held: Sequence[pa.RecordBatch] | None = None,
) -> RunningWrite:
    """Begin a write and plan it.

    Args:
        detects: whether it stops for another write that is ahead of it.
        host: where tasks reach this process for as long as they run; None if they may not.
        held: the rows, if this process has them; then only their partitions are looked at.

    Raises: see `run_write`.
    """
    config, components = table.config, table.components
    config.check_writable(components.storage.uri)
    _check_features(config)
    _check_request(config, request)
    rule = merge_rule_of(config, custom=table.merge_function)
    check_meaningful(rule)
    if request.is_partial:
        check_partial_write(config, rule, table.write_config)
    inflight = start_inflight_write(
        components,
        table.txn,
        _action_of(config, request.operation),
        table.claim(),
        encode_record(CommitMetadata(operation_type=request.operation)),
        is_single_writer=table.write_config.concurrency_mode is ConcurrencyMode.SINGLE_WRITER,
    )
    service: RunningMarkerService | None = None
    try:
        view = view_of(table)
        plan = _plan_write(table, request, inflight, view)
        plan, located = _look_up(plan, view, held)
        touched = _touched(plan, held, located)
        plan = _open_groups(plan, view, touched)
        if detects:
            plan = replace(plan, detection=_plan_detection(table, plan, inflight.attempt, view))
        replaceable = _replaceable_groups(request, view, touched)
        service = start_service(
            components,
            plan.instant_time,
            table.marker_config,
            plan.detection,
            table.detection_config,
            host=host,
        )
        if service is not None:
            plan = replace(plan, marker_service=service.address)
        elif plan.detection is not None:
            plan = replace(plan, detection=plan.detection.without_service())
        planned = PlannedWrite(
            request=request,
            plan=plan,
            attempt=inflight.attempt,
            replaceable=replaceable,
            snapshot=Snapshot.of(view.timeline),
        )
        markers = WriteMarkers(
            components.storage,
            inflight.instant_time,
            has_detection=plan.detection is not None,
            service=service,
        )
        return RunningWrite(table, planned, inflight, markers, located, view)
    except (Exception, KeyboardInterrupt, SystemExit):
        if service is not None:
            service.stop(waits=False)
        _give_up(table, inflight)
        raise


def resume_write(table: TableContext, planned: PlannedWrite) -> RunningWrite:
    """Go on with a write that another process handed over.

    Raises:
        FencedError: the write was taken over meanwhile; nothing was written.
    """
    inflight = resume_inflight_write(table.components, table.txn, planned.attempt)
    markers = WriteMarkers(
        table.components.storage,
        inflight.instant_time,
        has_detection=planned.plan.detection is not None,
    )
    return RunningWrite(table, planned, inflight, markers)


def abandon_write(table: TableContext, attempt: Attempt) -> None:
    """Give up a write that was handed over, of which nothing but its attempt is known.

    Raises:
        FencedError: the write has ended already, or was taken over.
    """
    _give_up(table, resume_inflight_write(table.components, table.txn, attempt))


class RunningWrite:
    """A write between its start and its end: commit it, abandon it or hand it over, once."""

    def __init__(
        self,
        table: TableContext,
        planned: PlannedWrite,
        inflight: InflightWrite,
        markers: WriteMarkers,
        located: pa.Table | None = None,
        view: IndexedView | None = None,
    ) -> None:
        self._table = table
        self._planned = planned
        self._inflight = inflight
        self._markers = markers
        self._located = located
        self._view = view

    @property
    def plan(self) -> WritePlan:
        return self._planned.plan

    @property
    def view(self) -> IndexedView:
        """The snapshot that the write was planned on, in the process that started it."""
        check(self._view is not None, "A write that was handed over has no view")
        return cast(IndexedView, self._view)

    def run_tasks(self, rows: Rows) -> list[WriteStat]:
        """Bring rows to tasks that write them; return what they wrote."""
        keys = KeyGenerator.from_config(self._table.config)
        route = group_route(self.plan, keys, self._located)
        return rows.run(route, partial(execute_write, self.plan))

    def commit(
        self, stats: list[WriteStat], extra_metadata: Mapping[str, str] | None = None
    ) -> Commit:
        """Make what `stats` list visible, as one; files of tasks that they lack are deleted.

        Raises: see `run_write`.
        """
        if self._planned.request.columns is not None:
            self._markers.settle({stat.path for stat in stats if stat.path is not None})
        metadata = _commit_metadata(self._planned, stats, extra_metadata or {})
        check = self._conflict_check(metadata)
        try:
            update = self._index_update(metadata)
            done = self._inflight.commit(encode_record(metadata), check, update)
        except CommitUnknownError:
            self._markers.close()
            raise
        self._markers.forget()
        self._markers.close()
        return _commit_of(done, stats)

    def _index_update(self, metadata: CommitMetadata) -> IndexUpdate:
        action = _action_of(self._table.config, self.plan.operation)
        written = Completed(Instant(self.plan.instant_time, action, State.INFLIGHT), metadata)
        return MetadataWriter(self._table).of_commit(
            self._planned.attempt, action, metadata, LateInputs(partial(self._inputs, written))
        )

    def _inputs(self, written: Completed) -> Inputs:
        """Return the file groups that the write rewrote or replaced, with what they held."""
        groups = {file.group for file in written.files if isinstance(file, BaseFile)}
        planned = (one for by_number in self.plan.slices.values() for one in by_number.values())
        found = {one.group: tuple(one.files()) for one in planned if one.group in groups}
        replaced = set(written.replaced_groups()) - found.keys()
        if replaced:
            # A replaced group has not changed since the write was planned: that is a conflict.
            view = load_view(self._table.components.storage, self._table.config)
            partitions = {group.partition for group in replaced}
            slices = (one for one in view.slices(partitions) if one.group in replaced)
            found |= {one.group: tuple(one.files()) for one in slices}
        return found

    def _conflict_check(self, metadata: CommitMetadata) -> ConflictCheck:
        """Say what the write did, and read what others did before the lock is taken.

        All markers of the write are there by now. So a plan that is in its way and gives way to
        writes either is found and cancelled here, or finds the markers before it completes (H-09).
        Where there should be no others, it is not worth a look.
        """
        storage, config = self._table.components.storage, self._table.config
        layout = table_layout(config)
        instant = Instant(
            self.plan.instant_time,
            _action_of(config, self.plan.operation),
            State.INFLIGHT,
        )
        mine = change_of(Completed(instant, metadata))
        check = ConflictCheck(
            mine=mine,
            snapshot=self._planned.snapshot,
            is_bucketed=self.plan.is_bucketed,
            # Rows that were made of older ones must not hide what came in between.
            is_non_blocking=self.plan.is_non_blocking and not self._planned.request.reads_table,
            starts_groups=not mine.touches.keys() <= self.plan.known_groups(),
        )
        if self._table.write_config.concurrency_mode is ConcurrencyMode.SINGLE_WRITER:
            return check
        others = check.unread(load_active(storage, layout.timeline))
        done = [instant for instant in others if instant.is_completed]
        check = replace(check, known=load_changes(storage, layout, done))
        plans = [instant for instant in others if instant.is_pending]
        return cancel_overlapped(self._inflight, storage, layout, check, plans)

    def abandon(self) -> None:
        """Give up: nothing becomes visible, and what was written is taken away again.

        What cannot be taken away now is left for others to roll back, at once if they like.
        """
        self._markers.close()
        _give_up(self._table, self._inflight)

    def hand_over(self) -> PlannedWrite:
        """Let another process go on with this write; see `InflightWrite.hand_over`."""
        self._inflight.hand_over()
        return replace(self._planned, plan=replace(self.plan, is_handed_over=True))


def _give_up(table: TableContext, inflight: InflightWrite) -> None:
    layout = table_layout(table.config)
    rollback_own_write(table.components, layout, load_every_marker, inflight, has_indexes=True)


def _check_features(config: TableConfig) -> None:
    """Refuse a table with what each write has to keep up to date and this release does not."""
    check_indexes_supported(config)
    if config.is_cdc_enabled:
        raise UnsupportedError(
            f"Table {config.name} has {CDC_ENABLED.key}=true, so each write has to leave change "
            "logs, which this release reads but does not write",
            kind=ErrorKind.UNSUPPORTED_OPTION,
        )
    if not config.has_meta_fields:
        raise UnsupportedError(
            f"Table {config.name} has {POPULATE_META_FIELDS.key}=false, which this release reads "
            "but cannot write",
            kind=ErrorKind.UNSUPPORTED_OPTION,
        )


def _check_request(config: TableConfig, request: WriteRequest) -> None:
    if config.index_type not in (IndexType.BUCKET, *LOOKUP_INDEXES, None):
        raise UnsupportedError(
            f"Table {config.name} has a {config.index_type} index, which this release reads but "
            "cannot write through"
        )
    if config.index_type is None and config.record_key_fields and request.columns is not None:
        raise InvalidInputError(
            f"Table {config.name} has a record key but does not say by which index its records "
            f"were written. Open it with the option {INDEX_TYPE.key} that its other writers use"
        )
    if (
        config.index_type in GLOBAL_INDEXES
        and config.partition_columns
        and request.operation is Operation.OVERWRITE_PARTITIONS
    ):
        raise UnsupportedError(
            f"Table {config.name} has an index in which a key is there once, and a row that "
            "replaces a partition may have the key of a record in another one. Delete the "
            "partitions and upsert the rows, or overwrite the whole table",
            kind=ErrorKind.UNSUPPORTED_OPTION,
        )
    needs_key = request.operation in (Operation.UPSERT, Operation.DELETE)
    if needs_key and not config.record_key_fields:
        raise InvalidInputError(
            f"Table {config.name} has no record key, so {request.operation.lower()} cannot tell "
            "records apart. Use insert or bulk_insert, or create the table with record_key"
        )


def _action_of(config: TableConfig, operation: Operation) -> Action:
    if operation.is_replacing:
        return Action.REPLACE_COMMIT
    if config.table_type is TableType.MERGE_ON_READ:
        return Action.DELTA_COMMIT
    return Action.COMMIT


def _schema_after(view: TableView, request: WriteRequest, files: FileConfig) -> pa.Schema:
    """Return the table's data columns after the write."""
    before = view.schema()
    if request.columns is None or request.operation is Operation.DELETE:
        return before
    data = pa.schema([column for column in request.columns if column.name not in META_COLUMNS])
    written = stored_schema(data, before)
    after = evolve_schema(before, written, allows_loss=files.allows_lossy_widening)
    _check_deciding_columns(view.config, data)
    if request.is_partial:
        for column in data:
            _check_whole(column.type, after.field(column.name).type, column.name)
    return after


def _check_whole(written: pa.DataType, stored: pa.DataType, path: str) -> None:
    """Refuse a part of a struct in a partial write: a column is written as a whole or not at all.

    Its other fields would become null, where those of the table's columns that are not given stay.
    """
    if not (pa.types.is_struct(written) and pa.types.is_struct(stored)):
        return
    given = {part.name: part.type for part in written}
    for part in stored:
        inner = f"{path}.{part.name}"
        if part.name not in given:
            raise InvalidInputError(
                f"The rows of a partial write have column {path} without its field {inner}, which "
                "would become null. Give all fields of the column, or leave the column out"
            )
        _check_whole(given[part.name], part.type, inner)


def _check_deciding_columns(config: TableConfig, columns: pa.Schema) -> None:
    """Refuse rows without a column that says where they belong or whether they win.

    Null would be a partition of its own, and an ordering value that loses to all others.
    """
    roles = [("key or partition path", (*config.record_key_fields, *config.partition_columns))]
    if config.merge_mode is MergeMode.EVENT_TIME_ORDERING:
        roles.append(("ordering", config.ordering_fields))
    for role, paths in roles:
        for path in paths:
            if path not in columns.names and path.split(".")[0] not in columns.names:
                raise InvalidInputError(
                    f"Column {path} is part of the {role} of table {config.name}, but the rows "
                    f"have the columns {', '.join(columns.names)}. Add the column"
                )


def _plan_write(
    table: TableContext,
    request: WriteRequest,
    write: InflightWrite,
    view: TableView,
) -> WritePlan:
    storage, config = table.components.storage, table.config
    schema = _schema_after(view, request, table.file_config)
    _check_sort_columns(table.file_config, request, schema)
    columns = schema
    if request.is_partial and request.columns is not None:
        present = set(request.columns.names)
        columns = pa.schema([column for column in schema if column.name in present])
    is_bucketed = config.index_type is IndexType.BUCKET
    return WritePlan(
        storage_uri=storage.uri,
        storage_options=table.options,
        config=config,
        schema=schema,
        avro_schema=_file_schema(schema, config),
        block_avro_schema=_file_schema(columns, config),
        instant_time=write.instant_time,
        attempt=write.attempt.attempt,
        operation=request.operation,
        files=table.file_config,
        is_partial=request.is_partial,
        record_size_bytes=None if is_bucketed else _record_size(view, table.file_config),
        is_non_blocking=table.write_config.concurrency_mode is ConcurrencyMode.NON_BLOCKING,
        generations=generations_of(view.replaces) if is_bucketed else {},
    )


def _look_up(
    plan: WritePlan, view: IndexedView, held: Sequence[pa.RecordBatch] | None
) -> tuple[WritePlan, pa.Table | None]:
    """Return the plan with the way that keys are looked up, and where those of held rows are.

    A table whose record index is being built, or cannot be trusted, is searched without it.
    """
    if plan.config.index_type in BLOOM_INDEXES and plan.files.bloom_uses_metadata:
        has_filters = plan.looks_up and view.has_index(BLOOM_FILTERS)
        has_ranges = has_filters and view.has_index(COLUMN_STATS)
        return replace(plan, has_bloom_index=has_filters, has_key_ranges=has_ranges), None
    is_partitioned = plan.config.index_type is IndexType.RECORD_LEVEL_INDEX
    is_asked = is_partitioned or plan.config.index_type in RECORD_INDEXES
    if not is_asked or plan.operation.is_replacing or not view.has_index(RECORD_INDEX):
        return plan, None
    table = view.metadata_table
    definition = None if table is None else table.definitions.get(RECORD_INDEX)
    if is_partitioned is not (definition is not None and definition.is_partitioned):
        return plan, None  # The index is of the other kind, and does not know all places.
    plan = replace(plan, uses_record_index=True)
    if held is None or table is None:
        return plan, None
    try:
        if is_partitioned:
            return plan, find_locations_by_partition(table, located_keys_of(plan, held))
        return plan, find_locations(table, record_keys_of(plan, held))
    except CorruptTableError as error:
        log.warning("record index not used table=%s reason=%s", plan.config.name, error)
        return replace(plan, uses_record_index=False), None


def _touched(
    plan: WritePlan, held: Sequence[pa.RecordBatch] | None, located: pa.Table | None
) -> frozenset[str] | None:
    """Return the partitions that the rows may go to; None: any."""
    if held is None or (plan.is_global and located is None):
        return None
    own = touched_partitions(plan, held)
    return own if located is None else own.union(located["partition_path"].unique().to_pylist())


def _open_groups(plan: WritePlan, view: TableView, touched: Collection[str] | None) -> WritePlan:
    """Return the plan with the slices of the partitions that rows may go to, None: of all.

    Of a table with many partitions a small write needs few, and only these are loaded.
    """
    slices = view.slices(touched)
    return replace(
        plan,
        slices=_open_slices(plan.config, plan.operation, slices, plan.files),
        known_partitions=frozenset(file_slice.group.partition for file_slice in slices),
    )


def _plan_detection(
    table: TableContext, plan: WritePlan, mine: Attempt, view: TableView
) -> Detection | None:
    is_optimistic = table.write_config.concurrency_mode is ConcurrencyMode.OPTIMISTIC
    if not is_optimistic or not table.detection_config.is_enabled:
        return None
    action = _action_of(table.config, plan.operation)
    check = EarlyCheck(
        instant=Instant(plan.instant_time, action, State.INFLIGHT),
        snapshot=Snapshot.of(view.timeline),
        is_bucketed=plan.is_bucketed,
    )
    return plan_detection(
        table.detection_config,
        table.components,
        mine,
        view.timeline,
        check,
        layout=table_layout(table.config),
        locks=table.lock_config,
    )


def _check_sort_columns(files: FileConfig, request: WriteRequest, schema: pa.Schema) -> None:
    unknown = [name for name in files.sort_columns if name not in schema.names]
    if unknown and request.operation is Operation.BULK_INSERT:
        raise InvalidInputError(
            f"{BULK_INSERT_SORT_COLUMNS.key} names {', '.join(unknown)}, but the columns are "
            f"{', '.join(schema.names)}"
        )


def _file_schema(columns: pa.Schema, config: TableConfig) -> str:
    return encode_avro_schema(schema_with_meta_columns(columns), table=config.name)


def _open_slices(
    config: TableConfig, operation: Operation, slices: list[FileSlice], files: FileConfig
) -> dict[str, dict[int, FileSlice]]:
    """Return the slices that rows may go to; a write that replaces starts from none."""
    if operation.is_replacing:
        return {}
    if config.index_type is IndexType.BUCKET:
        return slices_by_bucket(slices)
    if operation in (Operation.UPSERT, Operation.DELETE) or config.index_type in UNIQUE_KEY_INDEXES:
        return slices_by_number(slices)
    if operation is Operation.INSERT and config.table_type is TableType.COPY_ON_WRITE:
        limit = files.small_file_limit
        return slices_by_number(s for s in slices if has_room(s, small_file_limit=limit))
    return {}


def _record_size(view: TableView, files: FileConfig) -> int | None:
    """Return the bytes of a record by the newest commit that wrote base files, as Hudi does."""
    for commit in islice(view.newest_commits(), _SIZED_COMMITS_MAX):
        base_stats = [s for s in commit.metadata.write_stats() if s.log_version is None]
        rows = sum(stat.num_writes or 0 for stat in base_stats)
        size = sum(stat.file_size_in_bytes or 0 for stat in base_stats)
        if rows >= 1_000:  # Fewer rows are mostly footer.
            return max(1, size // rows)
    return files.record_size_estimate


def _replaceable_groups(
    request: WriteRequest, view: TableView, touched: Collection[str] | None
) -> dict[str, tuple[str, ...]]:
    """Return the file groups of the snapshot that the operation may replace, by partition.

    Those that appear later are another writer's, and are not replaced.
    """
    if not request.operation.is_replacing:
        return {}
    partitions: Collection[str] | None = None
    if request.operation is Operation.DELETE_PARTITIONS:
        partitions = request.partitions
    elif request.operation is Operation.OVERWRITE_PARTITIONS:
        partitions = touched
    found: dict[str, list[str]] = {}
    for file_slice in view.slices(partitions):
        found.setdefault(file_slice.group.partition, []).append(file_slice.group.file_id)
    if request.operation is Operation.DELETE_PARTITIONS:
        _check_partitions(request.partitions, found, view)
    return {partition: tuple(sorted(ids)) for partition, ids in found.items()}


def _check_partitions(asked: Sequence[str], found: Collection[str], view: TableView) -> None:
    """Refuse partitions that are not there: most likely their paths are written otherwise."""
    unknown = [repr(partition) for partition in asked if partition not in found]
    if not unknown:
        return
    known = view.partitions()
    shown = ", ".join(map(repr, known[:_SHOWN_PARTITIONS_MAX])) or "none"
    more = len(known) - _SHOWN_PARTITIONS_MAX
    raise InvalidInputError(
        f"Table {view.config.name} has no partition {', '.join(unknown)}. Its partitions are "
        f"{shown}{f' and {more} more' if more > 0 else ''}. Give their paths as they are there"
    )


def _replaced_groups(planned: PlannedWrite, written: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the file groups that the write replaces, given the partitions it wrote to."""
    if planned.request.operation is not Operation.OVERWRITE_PARTITIONS:
        return dict(planned.replaceable)
    return {
        partition: ids for partition, ids in planned.replaceable.items() if partition in written
    }


def _commit_metadata(
    planned: PlannedWrite, stats: Iterable[WriteStat], extra_metadata: Mapping[str, str]
) -> CommitMetadata:
    request, plan, attempt = planned.request, planned.plan, planned.attempt
    by_partition: dict[str, tuple[WriteStat, ...]] = {}
    for stat in stats:
        partition = stat.partition_path or ""
        by_partition[partition] = (*by_partition.get(partition, ()), stat)
    extra = {
        **request.extra_metadata,
        **extra_metadata,
        SCHEMA_KEY: encode_avro_schema(plan.schema, table=plan.config.name),
        WRITER_KEY: str(attempt.owner),
        TOKEN_KEY: attempt.token,
    }
    if not request.operation.is_replacing:
        return CommitMetadata(
            partition_to_write_stats=by_partition,
            extra_metadata=extra,
            operation_type=request.operation,
        )
    return ReplaceCommitMetadata(
        partition_to_write_stats=by_partition,
        extra_metadata=extra,
        operation_type=request.operation,
        partition_to_replace_file_ids=_replaced_groups(planned, by_partition),
    )


def _commit_of(done: CommittedWrite, stats: list[WriteStat]) -> Commit:
    assert done.instant.completion_time is not None
    return Commit(
        instant=done.instant.requested_time,
        completion_time=done.instant.completion_time,
        inserted=sum(stat.num_inserts or 0 for stat in stats),
        updated=sum(stat.num_update_writes or 0 for stat in stats),
        deleted=sum(stat.num_deletes or 0 for stat in stats),
        file_groups=tuple(
            FileGroupId(stat.partition_path or "", stat.file_id or "") for stat in stats
        ),
        lock_held_ms=done.lock_held_ms,
    )
