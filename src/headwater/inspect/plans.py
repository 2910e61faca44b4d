"""Which plans wait or are being executed, by whom, and what is each to do?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from headwater.context import TableContext
from headwater.errors import ErrorKind, NotFoundError
from headwater.inspect.heartbeats import list_heartbeats
from headwater.kernel.timeline.active import instant_path
from headwater.kernel.txn.index_plan import decode_index_plan
from headwater.kernel.txn.plan_flags import decode_flags
from headwater.kernel.txn.prefix import load_cancelled
from headwater.kernel.txn.rollback_plan import decode_rollback_plan
from headwater.kernel.view.commits import CommitReader
from headwater.model.instant import Action, Instant, InstantTime, State, parse_instant_time

SCHEMA = pa.schema(
    [
        pa.field("instant", pa.string(), nullable=False),
        pa.field("action", pa.string(), nullable=False),
        pa.field("state", pa.string(), nullable=False),
        pa.field("file_groups", pa.int64()),  # Null: the plan does not go by file groups.
        pa.field("is_cancellable", pa.bool_(), nullable=False),
        pa.field("is_cancelled", pa.bool_(), nullable=False),
        pa.field("worker", pa.string()),  # Null: nobody is at work on it.
        pa.field("heartbeat_age_ms", pa.int64()),
    ]
)
CONTENT = pa.schema(
    [
        pa.field("partition", pa.string()),
        pa.field("subject", pa.string(), nullable=False),  # A file group, an index or an instant.
        pa.field("files", pa.list_(pa.string()), nullable=False),
    ]
)
_REWRITES = (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING)


def list_plans(table: TableContext) -> pa.Table:
    """Return one row per pending plan, oldest first.

    Raises:
        CorruptTableError: a plan or an attempt is unreadable; the error names it.
    """
    timeline = table.load_timeline()
    cancelled = load_cancelled(table.storage)
    workers = _workers(table)
    rows = []
    for instant in timeline.pending:
        if not _is_plan(instant):
            continue
        try:
            content = list(_content(table, instant))
            is_cancellable = _is_cancellable(table, instant)
        except NotFoundError:
            continue  # It ended meanwhile.
        rows.append(
            {
                "instant": instant.requested_time,
                "action": instant.action.value,
                "state": instant.state.value,
                "file_groups": len(content) if instant.action in _REWRITES else None,
                "is_cancellable": is_cancellable,
                "is_cancelled": instant.requested_time in cancelled,
                **workers.get(instant.requested_time, {}),
            }
        )
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def show_plan(table: TableContext, time: str) -> pa.Table:
    """Return what a plan of the active timeline is to do, one row per file group or index.

    Raises:
        NotFoundError: kind INSTANT_NOT_FOUND; the active timeline has no such plan.
        InvalidInputError: kind INVALID_INSTANT_TIME.
        CorruptTableError: the plan is unreadable; the error names it.
    """
    instant = table.load_timeline().get(parse_instant_time(time))
    if not _is_plan(instant):
        raise NotFoundError(
            f"{time} is a {instant.action.value}, not a plan", kind=ErrorKind.INSTANT_NOT_FOUND
        )
    return pa.Table.from_pylist(list(_content(table, instant)), schema=CONTENT)


def _is_plan(instant: Instant) -> bool:
    return instant.action in (*_REWRITES, Action.INDEXING, Action.ROLLBACK)


def _content(table: TableContext, instant: Instant) -> Iterator[dict[str, Any]]:
    reader = CommitReader(table.storage, table.layout)
    match instant.action:
        case Action.COMPACTION | Action.LOG_COMPACTION:
            for operation in reader.load_plan(instant).operations or ():
                yield _row(
                    operation.partition_path,
                    operation.file_id,
                    (operation.data_file_path, *(operation.delta_file_paths or ())),
                )
        case Action.CLUSTERING:
            plan = reader.load_clustering(instant).clustering_plan
            for group in () if plan is None else plan.input_groups or ():
                for one in group.slices or ():
                    yield _row(
                        one.partition_path,
                        one.file_id,
                        (one.data_file_path, *(one.delta_file_paths or ())),
                    )
        case Action.INDEXING:
            path = instant_path(table.layout.timeline, instant, State.REQUESTED)
            for planned in decode_index_plan(table.storage.read(path), path=path):
                yield _row(None, planned.partition, ())
        case Action.ROLLBACK:
            path = instant_path(table.layout.timeline, instant, State.REQUESTED)
            rollback = decode_rollback_plan(table.storage.read(path), path=path)
            target = rollback.instant_to_rollback
            for request in rollback.rollback_requests or ():
                yield _row(
                    request.partition_path,
                    "" if target is None else target.commit_time,
                    request.files_to_be_deleted,
                )


def _row(
    partition: str | None, subject: str | None, files: tuple[str | None, ...]
) -> dict[str, Any]:
    names = [file.rpartition("/")[2] for file in files if file]
    return {"partition": partition, "subject": subject or "", "files": names}


def _is_cancellable(table: TableContext, instant: Instant) -> bool:
    if instant.action is not Action.CLUSTERING:
        return False
    path = instant_path(table.layout.timeline, instant, State.REQUESTED)
    return decode_flags(instant, table.storage.read(path), path=path).is_cancellable


def _workers(table: TableContext) -> dict[InstantTime, dict[str, Any]]:
    """Return who is at work on each instant: the newest attempt that was not given up."""
    found: dict[InstantTime, dict[str, Any]] = {}
    for row in list_heartbeats(table.storage, table.clock).to_pylist():
        if row["is_released"]:
            continue
        worker = row["writer_id"] or "/".join(
            str(row[name]) for name in ("host", "pid") if row[name] is not None
        )
        found[parse_instant_time(row["instant"])] = {
            "worker": worker or None,
            "heartbeat_age_ms": row["age_ms"],
        }
    return found
