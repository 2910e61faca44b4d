"""Clusterings from their plan to their commit."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial

from headwater.arrow.curves import check_sortable
from headwater.config.clustering import ClusteringConfig
from headwater.config.table import TableConfig
from headwater.config.table_options import INDEX_TYPE, IndexType
from headwater.context import TableContext
from headwater.engine.engine import Poll
from headwater.errors import InvalidInputError
from headwater.format.timeline.records import encode_record
from headwater.kernel.txn.attempts import Attempt
from headwater.kernel.txn.steps import Started
from headwater.kernel.view.table_view import TableView
from headwater.metadata.table_change import Inputs
from headwater.metadata.view import view_of
from headwater.model.commit_metadata import ReplaceCommitMetadata
from headwater.model.files import FileGroupId, FileSlice
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.plan_flags import PlanFlags
from headwater.model.plans import ClusteringGroup, ClusteringPlan
from headwater.operations.inferred_index import check_buckets
from headwater.operations.writers_elsewhere import check_nobody_else_writes
from headwater.services.clustering.copy import files_to_copy
from headwater.services.clustering.execute import ClusteringTask, execute_clustering_task
from headwater.services.clustering.plan import (
    CLUSTER,
    config_of_plan,
    order_text,
    plan_clustering,
)
from headwater.services.rewrite import (
    RewriteWork,
    Rewritten,
    closed_groups,
    rewrite_job,
    run,
    run_next,
    schedule,
)
from headwater.services.rewrite_files import (
    RewriteJob,
    by_partition,
    commit_extra,
    planned_bytes,
    slice_of_names,
)

_DECODED_PER_COPIED = 8
"""Copying costs as much as decoding and encoding an eighth of the bytes, so more of them pay no
job of an engine."""

ORDER_KEY = "headwater.clustering.order"
"""In the commit: how the rows of its files are sorted, so that they are not sorted again."""


def schedule_clustering(
    table: TableContext,
    config: ClusteringConfig,
    flags: PlanFlags,
    *,
    only: Collection[FileGroupId] | None = None,
    is_executed_later: bool = True,
) -> Started | None:
    """Plan a clustering and request it; None if there is nothing to gain.

    `only` are the file groups that it may take; all unless given.

    Raises:
        InvalidInputError: rows cannot be sorted as the config says, or nothing tells by which
            index the table's records are found.
        UnsupportedError: its buckets are not all alike.
        ConflictError: kind ALREADY_RUNNING; another engine is writing, see below.
        Others: see `rewrite.schedule`.
    """
    check_buckets(table)
    is_in_buckets = is_bucketed(table.config)

    def make(view: TableView) -> bytes | None:
        check_nobody_else_writes(table)
        if config.sort_columns:
            check_sortable(view.schema(), config.sort_columns, config.order)
        plan = plan_clustering(
            view.slices(),
            closed=closed_groups(view, only),
            config=config,
            sorted_by=orders_of(view),
            is_bucketed=is_in_buckets,
            base_uri=table.storage.uri,
            flags=flags,
        )
        return None if plan is None else encode_record(plan)

    return schedule(table, Action.CLUSTERING, make, is_executed_later=is_executed_later)


def run_clustering(
    table: TableContext, config: ClusteringConfig, instant: InstantTime | None = None
) -> Rewritten | None:
    """Execute a plan; see `rewrite.run_next`. None if there is nothing to gain.

    A plan that is cancelled is aborted instead.

    Raises: see `rewrite.run_next`.
    """
    return run_next(
        table,
        Action.CLUSTERING,
        instant,
        # Removable, because it keeps writes to its file groups from completing: one that fails is
        # in nobody's way.
        lambda: schedule_clustering(
            table, config, PlanFlags(is_removable=True), is_executed_later=False
        ),
        partial(_run, table, config),
    )


def cluster_only(
    table: TableContext,
    config: ClusteringConfig,
    flags: PlanFlags,
    only: Collection[FileGroupId],
) -> Rewritten | None:
    """Plan a clustering of some file groups and execute it; None if there is nothing to gain.

    Raises: see `schedule_clustering` and `rewrite.run`.
    """
    started = schedule_clustering(table, config, flags, only=only, is_executed_later=False)
    return None if started is None else _run(table, config, started)


def _run(table: TableContext, config: ClusteringConfig, plan: Started | InstantTime) -> Rewritten:
    time = plan.attempt.instant if isinstance(plan, Started) else plan
    watch = table.cancellations.watch(time)
    return run(
        table,
        Action.CLUSTERING,
        RewriteWork(table.storage, partial(_execute, table, config), watch.check),
        plan,
        partial(_load_inputs, table),
    )


def is_bucketed(config: TableConfig) -> bool:
    """Whether each file group is clustered for itself, because a hash says what belongs to it.

    Raises:
        InvalidInputError: nothing tells by which index the table's records are found.
    """
    if config.index_type is None and config.record_key_fields:
        raise InvalidInputError(
            f"Table {config.name} has a record key but does not say by which index its records "
            f"were written, so rows might be put where writers do not find them. Open it with the "
            f"option {INDEX_TYPE.key} that its writers use"
        )
    return config.index_type is IndexType.BUCKET


def orders_of(view: TableView) -> dict[InstantTime, str]:
    """Return how clusterings of the active timeline sorted their rows, by instant."""
    found = ((one, (one.metadata.extra_metadata or {}).get(ORDER_KEY)) for one in view.commits)
    return {one.requested_time: order for one, order in found if order}


def _load_plan(table: TableContext, time: InstantTime) -> ClusteringPlan:
    instant = Instant(time, Action.CLUSTERING, State.INFLIGHT)
    request = table.commit_reader().load_clustering(instant)
    return request.clustering_plan or ClusteringPlan()


def _load_inputs(table: TableContext, time: InstantTime) -> Inputs:
    groups = _load_plan(table, time).input_groups or ()
    slices = (one for group in groups for one in _slices_of(group))
    return {one.group: tuple(one.files()) for one in slices}


def _execute(
    table: TableContext, config: ClusteringConfig, attempt: Attempt, poll: Poll
) -> ReplaceCommitMetadata:
    plan = _load_plan(table, attempt.instant)
    job = rewrite_job(table, view_of(table), attempt)
    planned = config_of_plan(plan, config)
    is_in_buckets = is_bucketed(table.config)
    groups = [group for group in plan.input_groups or () if group.slices]
    tasks = [
        _task(job, planned, number, group, is_in_buckets) for number, group in enumerate(groups)
    ]
    size_bytes = planned_bytes(group.metrics for group in groups)
    is_copying = not planned.sort_columns and all(files_to_copy(task.slices) for task in tasks)
    engine = table.engine_for(size_bytes // _DECODED_PER_COPIED if is_copying else size_bytes)
    found = engine.run(execute_clustering_task, tasks, poll=poll)
    extra = commit_extra(job, attempt)
    if planned.sort_columns:
        extra[ORDER_KEY] = order_text(planned)
    return ReplaceCommitMetadata(
        partition_to_write_stats=by_partition(stat for stats in found for stat in stats),
        extra_metadata=extra,
        operation_type=CLUSTER,
        partition_to_replace_file_ids=_replaced(tasks),
    )


def _task(
    job: RewriteJob,
    config: ClusteringConfig,
    number: int,
    group: ClusteringGroup,
    is_in_buckets: bool,
) -> ClusteringTask:
    return ClusteringTask(
        job=job,
        config=config,
        number=number,
        slices=tuple(_slices_of(group)),
        output_count=1 if is_in_buckets else max(1, group.num_output_file_groups or 1),
        is_bucketed=is_in_buckets,
    )


def _slices_of(group: ClusteringGroup) -> Iterator[FileSlice]:
    for one in group.slices or ():
        named = FileGroupId(one.partition_path or "", one.file_id or "")
        yield slice_of_names(named, one.data_file_path, one.delta_file_paths or ())


def _replaced(tasks: list[ClusteringTask]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for task in tasks:
        for one in task.slices:
            found.setdefault(one.group.partition, []).append(one.group.file_id)
    return {partition: tuple(sorted(ids)) for partition, ids in found.items()}
