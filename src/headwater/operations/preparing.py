"""Planning a write: from what is asked and the table as it is to a `WritePlan`.

1. the columns after the write;
2. how keys are looked up, and where those of rows are that this process has;
3. the partitions that rows may go to, and their slices;
4. how tasks find out that another writer is ahead.

Everything here reads the view and decides; nothing is written.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import pyarrow as pa

from headwater.arrow.meta_columns import schema_with_meta_columns
from headwater.config.files import FileConfig
from headwater.config.table import TableConfig
from headwater.config.table_options import (
    BLOOM_INDEXES,
    RECORD_INDEXES,
    IndexType,
)
from headwater.config.write import ConcurrencyMode
from headwater.context import TableContext
from headwater.errors import CorruptTableError, InvalidInputError
from headwater.format.avro.schema import encode_avro_schema
from headwater.kernel.table_config import table_layout
from headwater.kernel.txn.attempts import Attempt
from headwater.kernel.txn.conflicts import Snapshot
from headwater.kernel.txn.writes import InflightWrite
from headwater.kernel.view.table_view import TableView
from headwater.markers.detection import Detection, plan_detection
from headwater.markers.early_conflict import EarlyCheck
from headwater.metadata.partition_kinds import BLOOM_FILTERS, COLUMN_STATS, RECORD_INDEX
from headwater.metadata.record_lookup import find_locations, find_locations_by_partition
from headwater.metadata.view import IndexedView
from headwater.model.files import FileSlice
from headwater.model.instant import Instant, State
from headwater.operations.plan import (
    KeySearch,
    OpenGroups,
    Operation,
    WriteColumns,
    WritePlan,
    action_of,
    generations_of,
    has_room,
    slices_by_bucket,
    slices_by_number,
)
from headwater.operations.request import (
    WriteRequest,
    check_sort_columns,
    columns_of_rows,
    schema_after,
)
from headwater.operations.routing.route import (
    carry_keys,
    located_keys_of,
    record_keys_of,
    touched_partitions,
)
from headwater.operations.table_location import TableLocation

log = logging.getLogger(__name__)

_SIZED_COMMITS_MAX = 7
"""How many commits are searched for the size of a record, newest first."""

_SHOWN_PARTITIONS_MAX = 20
"""A message that names what a table has ends somewhere."""


@dataclass(frozen=True, slots=True)
class HeldRows:
    """The rows of a write that this process has; they carry their keys and partition paths."""

    batches: Sequence[pa.RecordBatch]
    located: pa.Table | None = None
    """Where their keys are, if the record index was asked."""


def prepare_write(
    table: TableContext,
    request: WriteRequest,
    write: InflightWrite,
    view: IndexedView,
    batches: Sequence[pa.RecordBatch] | None,
) -> tuple[WritePlan, HeldRows | None, frozenset[str] | None]:
    """Return the plan of a write, the rows that this process has, and the partitions they touch.

    Raises:
        InvalidInputError: rows, columns or keys do not fit the table.
        CorruptTableError: the metadata table is missing or damaged.
    """
    plan = _plan_write(table, request, write, view)
    held = None if batches is None else HeldRows(carry_keys(plan, batches))
    plan, held = _look_up(plan, view, held)
    touched = _touched(plan, held)
    return _open_groups(plan, view, touched), held, touched


def _plan_write(
    table: TableContext,
    request: WriteRequest,
    write: InflightWrite,
    view: TableView,
) -> WritePlan:
    storage, config = table.components.storage, table.config
    schema = schema_after(view, request, table.file_config)
    check_sort_columns(table.file_config, request, schema)
    of_rows = columns_of_rows(config, schema, request, table.file_config)
    is_bucketed = config.index_type is IndexType.BUCKET
    return WritePlan(
        location=TableLocation.of(storage, table.options),
        config=config,
        columns=WriteColumns(
            schema=schema,
            avro_schema=_file_schema(schema, config),
            block_avro_schema=_file_schema(of_rows if request.is_partial else schema, config),
            of_rows=of_rows,
        ),
        instant_time=write.instant_time,
        attempt=write.attempt.attempt,
        operation=request.operation,
        files=table.file_config,
        is_partial=request.is_partial,
        is_non_blocking=table.write_config.concurrency_mode is ConcurrencyMode.NON_BLOCKING,
        groups=OpenGroups(
            record_size_bytes=None if is_bucketed else _record_size(view, table.file_config),
            generations=generations_of(view.replaces) if is_bucketed else {},
        ),
    )


def _file_schema(columns: pa.Schema, config: TableConfig) -> str:
    return encode_avro_schema(schema_with_meta_columns(columns), table=config.name)


def _record_size(view: TableView, files: FileConfig) -> int | None:
    """Return the bytes of a record by the newest commit that wrote base files, as Hudi does."""
    for commit in islice(view.newest_commits(), _SIZED_COMMITS_MAX):
        base_stats = [s for s in commit.metadata.write_stats() if s.log_version is None]
        rows = sum(stat.num_writes or 0 for stat in base_stats)
        size = sum(stat.file_size_in_bytes or 0 for stat in base_stats)
        if rows >= 1_000:  # Fewer rows are mostly footer.
            return max(1, size // rows)
    return files.record_size_estimate


def _look_up(
    plan: WritePlan, view: IndexedView, held: HeldRows | None
) -> tuple[WritePlan, HeldRows | None]:
    """Return the plan with the way that keys are looked up, and where those of held rows are.

    A table whose record index is being built, or cannot be trusted, is searched without it.
    """
    if plan.config.index_type in BLOOM_INDEXES and plan.files.bloom_uses_metadata:
        has_filters = plan.looks_up and view.has_index(BLOOM_FILTERS)
        has_ranges = has_filters and view.has_index(COLUMN_STATS)
        return replace(
            plan, key_search=KeySearch(has_bloom_index=has_filters, has_key_ranges=has_ranges)
        ), held
    is_partitioned = plan.config.index_type is IndexType.RECORD_LEVEL_INDEX
    is_asked = is_partitioned or plan.config.index_type in RECORD_INDEXES
    if not is_asked or plan.operation.is_replacing or not view.has_index(RECORD_INDEX):
        return plan, held
    table = view.metadata_table
    definition = None if table is None else table.definitions.get(RECORD_INDEX)
    if is_partitioned is not (definition is not None and definition.is_partitioned):
        return plan, held  # The index is of the other kind, and does not know all places.
    searched = replace(plan, key_search=KeySearch(uses_record_index=True))
    if held is None or table is None:
        return searched, held
    try:
        if is_partitioned:
            located = find_locations_by_partition(table, located_keys_of(plan, held.batches))
        else:
            located = find_locations(table, record_keys_of(plan, held.batches))
    except CorruptTableError as error:
        log.warning("record index not used table=%s reason=%s", plan.config.name, error)
        return plan, held
    return searched, replace(held, located=located)


def _touched(plan: WritePlan, held: HeldRows | None) -> frozenset[str] | None:
    """Return the partitions that the rows may go to; None: any."""
    if held is None or (plan.is_global and held.located is None):
        return None
    own = touched_partitions(plan, held.batches)
    if held.located is None:
        return own
    return own.union(held.located["partition_path"].unique().to_pylist())


def _open_groups(plan: WritePlan, view: TableView, touched: Collection[str] | None) -> WritePlan:
    """Return the plan with the slices of the partitions that rows may go to, None: of all.

    Of a table with many partitions a small write needs few, and only these are loaded.
    """
    slices = view.slices(touched)
    groups = replace(
        plan.groups,
        slices=_open_slices(plan, slices),
        known_partitions=frozenset(file_slice.group.partition for file_slice in slices),
    )
    return replace(plan, groups=groups)


def _open_slices(plan: WritePlan, slices: list[FileSlice]) -> dict[str, dict[int, FileSlice]]:
    """Return the slices that rows may go to; a write that replaces starts from none."""
    if plan.operation.is_replacing:
        return {}
    if plan.is_bucketed:
        return slices_by_bucket(slices, plan.bucket_count)
    if plan.operation in (Operation.UPSERT, Operation.DELETE) or plan.looks_up:
        return slices_by_number(slices)
    if plan.operation is Operation.INSERT and not plan.is_merge_on_read:
        limit = plan.files.small_file_limit
        return slices_by_number(s for s in slices if has_room(s, small_file_limit=limit))
    return {}


def plan_detection_of(
    table: TableContext, plan: WritePlan, mine: Attempt, view: TableView
) -> Detection | None:
    is_optimistic = table.write_config.concurrency_mode is ConcurrencyMode.OPTIMISTIC
    if not is_optimistic or not table.detection_config.is_enabled:
        return None
    action = action_of(table.config, plan.operation)
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


def replaceable_groups(
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
        partitions = None if touched is None else {*touched, *request.partitions}
    found: dict[str, list[str]] = {}
    for file_slice in view.slices(partitions):
        found.setdefault(file_slice.group.partition, []).append(file_slice.group.file_id)
    if request.operation is Operation.DELETE_PARTITIONS:
        _check_partitions(request.partitions, found, view)
    return {partition: tuple(sorted(ids)) for partition, ids in found.items()}


def _check_partitions(asked: Sequence[str], found: Collection[str], view: TableView) -> None:
    """Refuse partitions that are not there: most likely their paths are written otherwise."""
    if not asked:
        raise InvalidInputError(f"No partition of table {view.config.name} was named to delete")
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
