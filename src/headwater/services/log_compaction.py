"""Log compaction: the logs of a file slice become one log file; the base file stays.

It is much cheaper than a compaction and lets readers open one file where there were many. It
deletes nothing; clean does. The new log stands for its inputs (INV-51): it lies where they lay, it
is seen where its own commit is, and no reader sees both. So a plan takes all logs that readers see
of a slice, but for the deletes that were kept beside its base file: these are the first in any
case, and who looks a key up knows them by their name. What completes later comes after them, as it
would have before.
Writers may append to the same file groups meanwhile; a compaction of one of them may not be
pending. See `rewrite` for what a crash leaves behind.

A record survives that wins over the others of its key, and so does a delete; and in front of both a
delete without ordering value, which removes a row of the base file whatever follows it. Where a
record brings only some of its columns, or a function of the user's merges records, one cannot stand
for several: there the logs are put one behind the other in one file, block by block.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from headwater.arrow.fold import fold_logs
from headwater.arrow.log_parts import DataPart, DeletePart, LogPart
from headwater.arrow.merge_rule import MergeRule
from headwater.config.compaction import CompactionConfig
from headwater.context import TableContext
from headwater.engine.engine import Poll, TaskContext
from headwater.files.log_files import read_log_parts
from headwater.format.avro.schema import encode_avro_schema
from headwater.format.log.blocks import encode_data_blocks, encode_delete_blocks, log_file_bytes
from headwater.format.timeline.records import encode_record
from headwater.kernel.txn.attempts import Attempt
from headwater.kernel.txn.steps import Started
from headwater.kernel.view.table_view import TableView
from headwater.metadata.view import view_of
from headwater.model.commit_metadata import CommitMetadata, WriteStat
from headwater.model.files import FileGroupId, FileSlice
from headwater.model.instant import Action, InstantTime
from headwater.model.plan_flags import PlanFlags
from headwater.model.plans import CompactionPlan
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
    by_partition,
    commit_extra,
    log_stat,
    operation_of_slice,
    slice_of_operation,
)
from headwater.services.taken_back import still_committed, times_of

_LOG_COMPACT = "LOG_COMPACT"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCompactionTask:
    """One file slice whose logs become one."""

    job: RewriteJob
    slice: FileSlice
    log_bytes: int


def plan_log_compaction(
    slices: Iterable[FileSlice],
    *,
    closed: Collection[FileGroupId],
    config: CompactionConfig,
    flags: PlanFlags,
) -> CompactionPlan | None:
    """Plan to compact logs of file groups; None if no group has enough of them.

    Args:
        slices: what readers see of every file group.
        closed: groups that another pending plan names.
    """
    chosen = [
        replace(one, logs=one.appended_logs)
        for one in slices
        if one.group not in closed
        and config.takes_partition(one.group.partition)
        and len(one.appended_logs) >= config.log_compaction_files_min
    ]
    if not chosen:
        return None
    return CompactionPlan(
        operations=tuple(operation_of_slice(one) for one in chosen),
        extra_metadata=flags.to_extra_metadata(),
        preserve_hoodie_metadata=True,
    )


def execute_log_compaction_task(context: TaskContext, task: LogCompactionTask) -> WriteStat:
    """Write the logs of a slice as one; idempotent, safe to run twice or on two machines.

    Raises:
        CorruptTableError: a file is missing or damaged.
        UnsupportedError: the table's merge rule cannot be honoured.
    """
    output = RewriteOutput(task.job, context)
    one = task.slice
    parts = read_log_parts(output.storage, one.logs)
    times = sorted({log.instant_time for log in one.logs})
    rule = output.slice_reader.rule
    written = _fold(task.job, rule, parts) if _is_foldable(rule, parts) else parts
    file = output.log_file(one.group)
    data = log_file_bytes(block for part in written for block in _blocks(task.job, part, times))
    output.put_log(file, data)
    return replace(
        log_stat(file, len(data)),
        num_writes=sum(part.rows.num_rows for part in written if isinstance(part, DataPart)),
        num_deletes=sum(len(part.record_keys) for part in written if isinstance(part, DeletePart)),
        total_log_blocks=len(parts),
        total_log_files_compacted=len(one.logs),
        total_log_size_compacted=task.log_bytes,
    )


def _is_foldable(rule: MergeRule, parts: Iterable[LogPart]) -> bool:
    is_whole = not any(isinstance(part, DataPart) and part.is_partial for part in parts)
    return is_whole and not rule.combines_records


def _fold(job: RewriteJob, rule: MergeRule, parts: Sequence[LogPart]) -> list[LogPart]:
    """Return the records that survive, and the deletes that do.

    In front of them are the deletes that removed a base row before they came.
    """
    folded = fold_logs(parts, rule, job.file_schema)
    time = job.instant_time
    survivors: list[LogPart] = [folded.resets.to_part(time)]
    survivors += [DataPart(time, folded.rows), folded.tombstones.to_part(time)]
    return [part for part in survivors if len(part.record_keys)]


def _blocks(job: RewriteJob, part: LogPart, times: Sequence[InstantTime]) -> Iterable[bytes]:
    """Return the blocks of a part, which stand for those of some instants."""
    if isinstance(part, DeletePart):
        return encode_delete_blocks(
            part.record_keys,
            part.partition_paths,
            part.ordering,
            instant_time=job.instant_time,
            avro_schema_json=job.avro_schema,
            compacted_block_times=times,
        )
    return encode_data_blocks(
        part.rows,
        instant_time=job.instant_time,
        avro_schema_json=encode_avro_schema(part.rows.schema, table=job.config.name),
        block_format=job.files.log_block_format,
        is_partial=part.is_partial,
        compacted_block_times=times,
        compression=job.files.compression,
    )


def schedule_log_compaction(
    table: TableContext,
    config: CompactionConfig,
    flags: PlanFlags,
    *,
    only: Collection[FileGroupId] | None = None,
    is_executed_later: bool = True,
) -> Started | None:
    """Plan a log compaction and request it; None if there are not enough logs anywhere.

    `only` are the file groups that it may take; all unless given.

    Raises: see `rewrite.schedule`.
    """

    def make(view: TableView) -> bytes | None:
        logged = load_logged_slices(view, only)
        plan = plan_log_compaction(
            logged.slices, closed=view.pending_rewrites.keys(), config=config, flags=flags
        )
        return None if plan is None else encode_record(plan)

    return schedule(table, Action.LOG_COMPACTION, make, is_executed_later=is_executed_later)


def run_log_compaction(
    table: TableContext, config: CompactionConfig, instant: InstantTime | None = None
) -> Rewritten | None:
    """Execute a plan; see `rewrite.run_next`. None if there are not enough logs anywhere.

    Raises: see `rewrite.run_next`.
    """
    return run_next(
        table,
        Action.LOG_COMPACTION,
        instant,
        lambda: schedule_log_compaction(table, config, PlanFlags(), is_executed_later=False),
        partial(_run, table),
    )


def compact_logs_only(
    table: TableContext, config: CompactionConfig, only: Collection[FileGroupId]
) -> Rewritten | None:
    """Plan a log compaction of some file groups and execute it; None if none has enough logs.

    Raises: see `rewrite.schedule` and `rewrite.run`.
    """
    started = schedule_log_compaction(
        table, config, PlanFlags(), only=only, is_executed_later=False
    )
    return None if started is None else _run(table, started)


def _run(table: TableContext, plan: Started | InstantTime) -> Rewritten:
    read: list[FileSlice] = []
    work = RewriteWork(table.storage, partial(_execute, table, read))
    return run(table, Action.LOG_COMPACTION, work, plan, times_read=lambda: times_of(read))


def _execute(
    table: TableContext, read: list[FileSlice], attempt: Attempt, poll: Poll
) -> CommitMetadata:
    """Do what a plan says; `read` are the slices that are read."""
    plan, view = load_compaction_plan(table, attempt.instant, Action.LOG_COMPACTION), view_of(table)
    job = rewrite_job(table, view, attempt)
    operations = plan.operations or ()
    sizes = [int((one.metrics or {}).get("TOTAL_LOG_FILES_SIZE", 0)) for one in operations]
    slices = still_committed(
        table, view, attempt.instant, [slice_of_operation(one) for one in operations]
    )
    read[:] = [one for one in slices if one is not None]
    tasks = [
        LogCompactionTask(job=job, slice=one, log_bytes=size)
        for one, size in zip(slices, sizes, strict=True)
        if one is not None
    ]
    engine = table.engine_for(sum(sizes))
    stats = engine.run(execute_log_compaction_task, tasks, poll=poll)
    return CommitMetadata(
        partition_to_write_stats=by_partition(stats),
        compacted=True,
        extra_metadata=commit_extra(job, attempt),
        operation_type=_LOG_COMPACT,
    )
