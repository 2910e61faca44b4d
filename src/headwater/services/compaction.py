"""Compaction: a new base file for each file group, made of the old one and the logs on top of it.

It deletes nothing that a commit lists; clean does, when nobody needs the old slice any more. It
survives every other action beside it: writers go on appending to the same file groups, and what
they complete after the plan was requested lies on top of what the plan makes (RFC-66). A replace
of the file group takes back what the compaction wrote anew. Two plans of one group are never
pending together. See `rewrite` for what a crash leaves behind.

Deletes. Under event-time ordering a delete with an ordering value also hides records with smaller
values that arrive later (INV-50). A base file has no room for it, so a compaction writes the
deletes that nothing has won over into a log file of its own beside the base file, where readers
find them before all other logs (H-39), and so does the next. All other deletes are gone with the
compaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import assert_never

from headwater.arrow.meta_columns import replace_file_name
from headwater.config.compaction import CompactionConfig, CompactionTrigger
from headwater.context import TableContext
from headwater.engine.engine import Poll, TaskContext
from headwater.format.timeline.records import encode_record
from headwater.kernel.txn.attempts import Attempt
from headwater.kernel.txn.markers import MarkerKind
from headwater.kernel.txn.steps import Started
from headwater.kernel.view.commits import CompletedCommit
from headwater.kernel.view.table_view import TableView
from headwater.metadata.table_change import Inputs
from headwater.metadata.view import view_of
from headwater.model.commit_metadata import CommitMetadata, WriteStat
from headwater.model.files import FileGroupId, FileSlice
from headwater.model.instant import Action, Instant, InstantTime, instant_time_after
from headwater.model.plans import CompactionOperation, CompactionPlan
from headwater.seams.storage import both_at_once
from headwater.services.logged_slices import load_logged_slices
from headwater.services.rewrite import (
    RewriteWork,
    Rewritten,
    load_compaction_plan,
    rewrite_job,
    run,
    run_next,
    schedule,
)
from headwater.services.rewrite_files import (
    RewriteJob,
    RewriteOutput,
    base_stat,
    by_partition,
    commit_extra,
    operation_of_slice,
    planned_bytes,
    put_kept_deletes,
    slice_of_operation,
)
from headwater.services.taken_back import still_committed, times_of
from headwater.slice.merged_slice import encoded_schema, open_merged

_COMPACT = "COMPACT"


# From here on files are read in parts, as columns are needed.
_LARGE_MB = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTask:
    """One file group to compact."""

    job: RewriteJob
    slice: FileSlice
    log_bytes: int
    is_small: bool = False
    """Whether all that is read of it fits into a few megabytes, by its plan."""


# The plan.


def is_compaction_due(
    commits: Sequence[CompletedCommit],
    pending: Iterable[Instant],
    config: CompactionConfig,
    now: InstantTime,
) -> bool:
    """Whether enough was written since the last compaction, by the trigger of the config.

    Args:
        commits: those of the active timeline, by completion time.
        pending: the pending instants.
        now: the time by this process's clock, in the digits of the timeline.
    """
    compactions = [one for one in commits if one.is_any_compaction and not one.is_log_compaction]
    since = compactions[-1].completion_time if compactions else None
    if config.trigger is CompactionTrigger.NUM_COMMITS_AFTER_LAST_REQUEST:
        asked = [one.requested_time for one in pending if one.action is Action.COMPACTION]
        since = max((*asked, *(one.requested_time for one in compactions)), default=None)
    writes = [
        one
        for one in commits
        if one.instant.action is Action.DELTA_COMMIT
        and not one.is_table_service
        and (since is None or one.completion_time > since)
    ]
    if not writes:
        return False
    is_enough = len(writes) >= config.delta_commits
    began = since or writes[0].completion_time
    is_long = now >= instant_time_after(began, config.delta_time_ms)
    match config.trigger:
        case CompactionTrigger.TIME_ELAPSED:
            return is_long
        case CompactionTrigger.NUM_AND_TIME:
            return is_enough and is_long
        case CompactionTrigger.NUM_OR_TIME:
            return is_enough or is_long
        case CompactionTrigger.NUM_COMMITS | CompactionTrigger.NUM_COMMITS_AFTER_LAST_REQUEST:
            return is_enough
        case _:
            assert_never(config.trigger)


def plan_compaction(
    slices: Iterable[FileSlice],
    *,
    closed: Collection[FileGroupId],
    config: CompactionConfig,
) -> CompactionPlan | None:
    """Plan to compact file groups; None if none of them needs it.

    Args:
        slices: what readers see of every file group.
        closed: groups that another pending plan names.
    """
    chosen = [
        one
        for one in slices
        if one.group not in closed
        and config.takes_partition(one.group.partition)
        and one.appended_logs
        and len(one.appended_logs) >= config.log_files_min
        and _log_bytes(one) >= config.log_bytes_min
    ]
    chosen.sort(key=lambda one: (-_log_bytes(one), one.group))
    operations = tuple(_within_io([operation_of_slice(one) for one in chosen], config.io_mb_max))
    if not operations:
        return None
    return CompactionPlan(operations=operations, preserve_hoodie_metadata=True)


def plan_next_compaction(
    view: TableView, config: CompactionConfig, only: Collection[FileGroupId] | None = None
) -> CompactionPlan | None:
    """Plan to compact what has logs by the newest view; None if nothing needs it.

    `only` are the file groups that the plan may take; all unless given.

    Raises:
        CorruptTableError: a plan of the timeline is damaged.
    """
    logged = load_logged_slices(view, only)
    plan = plan_compaction(logged.slices, closed=view.pending_rewrites.keys(), config=config)
    return plan and replace(plan, extra_metadata=logged.extra_metadata(view, plan))


def _within_io(
    operations: Iterable[CompactionOperation], io_mb_max: int
) -> Iterator[CompactionOperation]:
    used = 0.0
    for number, operation in enumerate(operations):
        used += (operation.metrics or {}).get("TOTAL_IO_MB", 0.0)
        if number and used > io_mb_max:
            return
        yield operation


def _log_bytes(one: FileSlice) -> int:
    return sum(log.size_bytes for log in one.appended_logs)


# The tasks.


def execute_compaction_task(context: TaskContext, task: CompactionTask) -> list[WriteStat]:
    """Write one file group anew; idempotent, safe to run twice or on two machines.

    Raises:
        CorruptTableError: a file is missing or damaged.
        UnsupportedError: the table's merge rule cannot be honoured.
    """
    job, one = task.job, task.slice
    small = [file.path for file in one.files()] if task.is_small else ()
    output = RewriteOutput(job, context, small)
    base = output.base_file(one.group)
    schema = encoded_schema(output.slice_reader, [one])
    with open_merged(output.slice_reader, one, schema) as found:
        written = output.write_base(
            base,
            MarkerKind.CREATE if one.base is None else MarkerKind.MERGE,
            (replace_file_name(batch, base.name) for batch in found.batches),
            row_count_max=found.row_count_max,
        )
    counts = found.batches.counts
    stat = replace(
        base_stat(base, row_count=written.row_count, size_bytes=written.size_bytes),
        prev_commit=one.base_instant,
        prev_base_file=None if one.base is None else one.base.name,
        num_deletes=counts.deleted,
        num_update_writes=counts.updated,
        num_inserts=written.row_count - counts.updated,
        total_log_records=found.log_record_count,
        total_log_blocks=found.log_block_count,
        total_log_files_compacted=len(one.logs),
        total_log_size_compacted=task.log_bytes,
        total_updated_records_compacted=found.key_count,
    )
    kept = found.batches.tombstones
    if not len(kept.record_keys):
        return [stat]
    return [stat, put_kept_deletes(output, job, one.group, kept)]


# The commit.


def schedule_compaction(
    table: TableContext,
    config: CompactionConfig,
    *,
    only_if_due: bool = False,
    only: Collection[FileGroupId] | None = None,
    is_executed_later: bool = True,
) -> Started | None:
    """Plan a compaction and request it; None if there is nothing to compact.

    Args:
        only_if_due: whether the trigger of the config decides, too.
        only: the file groups that it may take; all unless given.

    Raises: see `rewrite.schedule`.
    """

    def make(view: TableView) -> bytes | None:
        if only_if_due and not _is_due(table, view, config):
            return None
        plan = plan_next_compaction(view, config, only)
        return None if plan is None else encode_record(plan)

    return schedule(table, Action.COMPACTION, make, is_executed_later=is_executed_later)


def run_compaction(
    table: TableContext,
    config: CompactionConfig,
    instant: InstantTime | None = None,
    *,
    only_if_due: bool = False,
) -> Rewritten | None:
    """Execute a plan; see `rewrite.run_next`. None if there is nothing to compact.

    Raises: see `rewrite.run_next`.
    """
    return run_next(
        table,
        Action.COMPACTION,
        instant,
        lambda: schedule_compaction(
            table, config, only_if_due=only_if_due, is_executed_later=False
        ),
        partial(_run, table),
    )


def compact_only(
    table: TableContext, config: CompactionConfig, only: Collection[FileGroupId]
) -> Rewritten | None:
    """Plan a compaction of some file groups and execute it; None if there is nothing to compact.

    Raises: see `rewrite.schedule` and `rewrite.run`.
    """
    started = schedule_compaction(table, config, only=only, is_executed_later=False)
    return None if started is None else _run(table, started)


def _run(table: TableContext, plan: Started | InstantTime) -> Rewritten:
    execution = _Execution(table)
    work = RewriteWork(table.storage, execution.run)
    return run(table, Action.COMPACTION, work, plan, execution.inputs, execution.times_read)


def _is_due(table: TableContext, view: TableView, config: CompactionConfig) -> bool:
    return is_compaction_due(view.commits, view.timeline.pending, config, table.now())


class _Execution:
    """One execution of a plan, which is read once."""

    def __init__(self, table: TableContext) -> None:
        self._table = table
        self._plan: CompactionPlan | None = None
        self._slices: Sequence[FileSlice] = ()

    def inputs(self, time: InstantTime) -> Inputs:
        """Return the file groups that get a new base file, with what they held."""
        return {one.group: tuple(one.files()) for one in self._slices}

    def times_read(self) -> frozenset[InstantTime]:
        return times_of(self._slices)

    def run(self, attempt: Attempt, poll: Poll) -> CommitMetadata:
        table = self._table
        plan, view = both_at_once(
            table.storage, lambda: self._load_plan(attempt.instant), lambda: view_of(table)
        )
        job = rewrite_job(table, view, attempt)
        operations = plan.operations or ()
        slices = still_committed(
            table, view, attempt.instant, [slice_of_operation(one) for one in operations]
        )
        self._slices = [one for one in slices if one is not None]
        tasks = []
        for operation, one in zip(operations, slices, strict=True):
            if one is None:
                continue
            tasks.append(
                CompactionTask(
                    job=job,
                    slice=one,
                    log_bytes=int((operation.metrics or {}).get("TOTAL_LOG_FILES_SIZE", 0)),
                    is_small=(operation.metrics or {}).get("TOTAL_IO_READ_MB", _LARGE_MB)
                    < _LARGE_MB,
                )
            )
        engine = table.engine_for(planned_bytes(one.metrics for one in operations))
        found = engine.run(execute_compaction_task, tasks, poll=poll)
        return CommitMetadata(
            partition_to_write_stats=by_partition(stat for stats in found for stat in stats),
            compacted=True,
            extra_metadata=commit_extra(job, attempt),
            operation_type=_COMPACT,
        )

    def _load_plan(self, time: InstantTime) -> CompactionPlan:
        if self._plan is None:
            self._plan = load_compaction_plan(self._table, time, Action.COMPACTION)
        return self._plan
