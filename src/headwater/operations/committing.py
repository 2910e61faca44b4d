"""What a write says when it commits: commit metadata, and the answer to the caller."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from headwater.format.avro.schema import encode_avro_schema
from headwater.kernel.txn.attempts import Attempt
from headwater.kernel.txn.changes import WRITER_KEY
from headwater.kernel.txn.conflicts import Snapshot
from headwater.kernel.txn.writes import CommittedWrite
from headwater.model.commit import Commit
from headwater.model.commit_metadata import CommitMetadata, ReplaceCommitMetadata, WriteStat
from headwater.model.files import FileGroupId
from headwater.operations.plan import Operation, WritePlan
from headwater.operations.request import WriteRequest

SCHEMA_KEY = "schema"
TOKEN_KEY = "headwater.token"
"""Commit metadata carries the token of its attempt, so that a writer recognises its own commit
after a lost reply (M4)."""


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
    table_schema: str | None
    """The columns that the table had then, as the commit before says."""
    is_rebased: bool = False
    """Whether its logs stay as they are when others append to the same groups first."""
    is_by_values: bool = False
    """Whether values decide between its rows and theirs, and not who comes later."""


def _replaced_groups(planned: PlannedWrite, written: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the file groups that the write replaces, given the partitions it wrote to."""
    if planned.request.operation is not Operation.OVERWRITE_PARTITIONS:
        return dict(planned.replaceable)
    replaced = {*written, *planned.request.partitions}
    return {
        partition: ids for partition, ids in planned.replaceable.items() if partition in replaced
    }


def commit_metadata(
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
        SCHEMA_KEY: encode_avro_schema(plan.columns.schema, table=plan.config.name),
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


def commit_of(done: CommittedWrite, stats: list[WriteStat]) -> Commit:
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
