"""One write from its rows to its commit, the same for every operation and engine.

1. transaction: request the instant and go inflight; the heartbeat begins;
2. load the view: the snapshot that rows are routed and merged against;
3. plan: the columns after this write, and which slice each row may go to;
4. tasks: rows to data files, each announced by a marker;
5. delete files that tasks left behind but no stat lists;
6. transaction: the completed file, with all stats, makes the write visible as one;
7. forget markers and heartbeat.

A crash before 6 leaves a pending instant whose files nobody sees; clean rolls it back. A failure
releases the heartbeat, so that the next writer need not wait. After an unknown outcome of 6 nothing
is touched: the timeline will tell.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from headwater.config.files import FileConfig
from headwater.config.table import TableConfig
from headwater.config.table_options import IndexType, TableType
from headwater.config.write import ConcurrencyMode, WriteConfig
from headwater.engine.engine import Rows
from headwater.errors import CommitUnknownError, InvalidInputError, UnsupportedError
from headwater.kernel.arrow.input_schema import stored_schema
from headwater.kernel.arrow.keys import KeyGenerator
from headwater.kernel.arrow.meta_columns import META_COLUMNS, schema_with_meta_columns
from headwater.kernel.arrow.schema_evolution import evolve_schema
from headwater.kernel.format.avro_records import encode_record
from headwater.kernel.format.avro_schema import encode_avro_schema
from headwater.kernel.table_config import table_layout
from headwater.kernel.txn.markers import delete_markers, delete_unlisted_files
from headwater.kernel.txn.steps import Claim
from headwater.kernel.txn.transaction import LockTransaction
from headwater.kernel.txn.writes import CommittedWrite, InflightWrite, start_inflight_write
from headwater.kernel.view.table_view import TableView, load_view
from headwater.model.commit import Commit
from headwater.model.commit_metadata import CommitMetadata, ReplaceCommitMetadata, WriteStat
from headwater.model.files import FileGroupId, FileSlice
from headwater.model.instant import Action
from headwater.operations.execute import execute_write
from headwater.operations.plan import Operation, WritePlan, slices_by_bucket, slices_with_room
from headwater.operations.route import group_route
from headwater.seams.components import Components

SCHEMA_KEY = "schema"
WRITER_KEY = "headwater.writer"
TOKEN_KEY = "headwater.token"
"""Commit metadata carries who wrote it and the token of its attempt, so that a writer recognises
its own commit after a lost reply (M4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTarget:
    """The table a write goes to, as this process reaches it."""

    components: Components
    config: TableConfig
    write_config: WriteConfig
    files: FileConfig
    storage_options: Mapping[str, str]
    lock_timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRequest:
    """What to write. `rows` is None for an operation that brings none."""

    operation: Operation
    rows: Rows | None
    is_partial: bool = False
    partitions: tuple[str, ...] = ()
    """What DELETE_PARTITIONS removes."""
    extra_metadata: Mapping[str, str] = field(default_factory=dict)


def run_write(target: WriteTarget, request: WriteRequest) -> Commit:
    """Write and commit.

    Raises:
        InvalidInputError: rows, columns or keys do not fit the table; nothing was committed.
        UnsupportedError: the table or the operation needs what this release does not have.
        ConflictError: another writer is at work, or won.
        FencedError: this process stalled and was taken over; nothing was committed.
        CommitUnknownError: storage did not say whether the commit landed.
        CorruptTableError, StorageError: a file is damaged, or storage failed.
    """
    config, components = target.config, target.components
    config.check_writable(components.storage.uri)
    _check_request(config, request)
    claim = Claim(
        owner=components.ids.owner,
        token=components.ids.new_uuid(),
        interval_ms=target.write_config.heartbeat_interval_ms,
        tolerable_misses=target.write_config.heartbeat_tolerable_misses,
    )
    txn = LockTransaction(components, table_layout(config), lock_timeout_ms=target.lock_timeout_ms)
    write = start_inflight_write(
        components,
        txn,
        _action_of(config, request.operation),
        claim,
        encode_record(CommitMetadata(operation_type=request.operation)),
        is_single_writer=target.write_config.concurrency_mode is ConcurrencyMode.SINGLE_WRITER,
    )
    try:
        committed = _write_and_commit(target, request, write, claim)
    except CommitUnknownError:
        raise
    except (Exception, KeyboardInterrupt):
        write.abandon()
        raise
    delete_markers(components.storage, write.instant_time)
    return committed


def _write_and_commit(
    target: WriteTarget, request: WriteRequest, write: InflightWrite, claim: Claim
) -> Commit:
    storage = target.components.storage
    view = load_view(storage, target.config)
    schema = _schema_after(view, request)
    plan = _plan_write(target, request, write, view, schema)
    stats: list[WriteStat] = []
    if request.rows is not None:
        keys = KeyGenerator.from_config(target.config)
        stats = request.rows.run(group_route(plan, keys), partial(execute_write, plan))
        listed = {stat.path for stat in stats if stat.path is not None}
        delete_unlisted_files(storage, write.instant_time, listed)
    metadata = _commit_metadata(request, stats, view, schema, target, claim)
    done = write.commit(encode_record(metadata))
    return _commit_of(done, stats)


def _check_request(config: TableConfig, request: WriteRequest) -> None:
    if config.index_type not in (IndexType.BUCKET, None):
        raise UnsupportedError(
            f"Table {config.name} has a {config.index_type} index, which this release reads but "
            "cannot write through"
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


def _schema_after(view: TableView, request: WriteRequest) -> pa.Schema:
    """Return the table's data columns after the write."""
    before = view.schema()
    if request.rows is None or request.operation is Operation.DELETE:
        return before
    given = request.rows.schema
    data = pa.schema([column for column in given if column.name not in META_COLUMNS])
    return evolve_schema(before, stored_schema(data, before))


def _plan_write(
    target: WriteTarget,
    request: WriteRequest,
    write: InflightWrite,
    view: TableView,
    schema: pa.Schema,
) -> WritePlan:
    storage, config = target.components.storage, target.config
    slices = view.slices()
    columns = schema
    if request.is_partial and request.rows is not None:
        present = set(request.rows.schema.names)
        columns = pa.schema([column for column in schema if column.name in present])
    return WritePlan(
        storage_uri=storage.uri,
        storage_options=target.storage_options,
        config=config,
        schema=schema,
        avro_schema=encode_avro_schema(schema_with_meta_columns(columns), table=config.name),
        instant_time=write.instant_time,
        attempt=write.attempt.attempt,
        operation=request.operation,
        files=target.files,
        is_partial=request.is_partial,
        slices=_open_slices(config, request.operation, slices, target.files),
        known_partitions=frozenset(file_slice.group.partition for file_slice in slices),
        record_size_bytes=_record_size(view, target.files),
    )


def _open_slices(
    config: TableConfig, operation: Operation, slices: list[FileSlice], files: FileConfig
) -> dict[str, dict[int, FileSlice]]:
    """Return the slices that rows may go to; a write that replaces starts from none."""
    if operation.is_replacing:
        return {}
    if config.index_type is IndexType.BUCKET:
        return slices_by_bucket(slices)
    if operation is Operation.INSERT and config.table_type is TableType.COPY_ON_WRITE:
        return slices_with_room(slices, small_file_limit=files.small_file_limit)
    return {}


def _record_size(view: TableView, files: FileConfig) -> int:
    """Return the bytes of a record by the newest commit that wrote base files, as Hudi does."""
    for commit in reversed(view.commits):
        base_stats = [s for s in commit.metadata.write_stats() if s.log_version is None]
        rows = sum(stat.num_writes or 0 for stat in base_stats)
        size = sum(stat.file_size_in_bytes or 0 for stat in base_stats)
        if rows >= 1_000:  # Fewer rows are mostly footer.
            return max(1, size // rows)
    return files.record_size_estimate


def _replaced_groups(
    request: WriteRequest, stats: Iterable[WriteStat], view: TableView
) -> dict[str, tuple[str, ...]]:
    partitions: Collection[str] | None
    match request.operation:
        case Operation.OVERWRITE:
            partitions = None
        case Operation.OVERWRITE_PARTITIONS:
            partitions = {stat.partition_path or "" for stat in stats}
        case _:
            partitions = set(request.partitions)
    replaced: dict[str, list[str]] = {}
    for file_slice in view.slices(partitions):
        group: FileGroupId = file_slice.group
        replaced.setdefault(group.partition, []).append(group.file_id)
    return {partition: tuple(sorted(ids)) for partition, ids in replaced.items()}


def _commit_metadata(
    request: WriteRequest,
    stats: list[WriteStat],
    view: TableView,
    schema: pa.Schema,
    target: WriteTarget,
    claim: Claim,
) -> CommitMetadata:
    by_partition: dict[str, tuple[WriteStat, ...]] = {}
    for stat in stats:
        partition = stat.partition_path or ""
        by_partition[partition] = (*by_partition.get(partition, ()), stat)
    extra = {
        **request.extra_metadata,
        SCHEMA_KEY: encode_avro_schema(schema, table=target.config.name),
        WRITER_KEY: str(claim.owner),
        TOKEN_KEY: claim.token,
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
        partition_to_replace_file_ids=_replaced_groups(request, stats, view),
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
