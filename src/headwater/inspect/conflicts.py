"""Which work met other work, and what became of it?

The active timeline and the entries of cancellations say it: plans that gave way to writes, writes
that lost to others and were written again, and failed writes that were rolled back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from headwater.context import TableContext
from headwater.format.timeline.records import decode_record
from headwater.inspect.cancels import list_cancels
from headwater.kernel.timeline.active import instant_path
from headwater.metadata.view import view_of
from headwater.model.commit import Redone
from headwater.model.instant import Action
from headwater.model.service_metadata import RollbackMetadata

SCHEMA = pa.schema(
    [
        pa.field("instant", pa.string(), nullable=False),  # What lost.
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("by", pa.string()),  # Whoever it gave way to, or the rollback.
        pa.field("reason", pa.string()),
    ]
)


def list_conflicts(table: TableContext) -> pa.Table:
    """Return one row per piece of work that gave way, oldest first.

    Raises:
        CorruptTableError: a record of the timeline is unreadable; the error names it.
    """
    found = (*_cancelled(table), *_redone(table), *_rolled_back(table))
    rows = sorted(found, key=lambda row: row["instant"])
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _cancelled(table: TableContext) -> Iterator[dict[str, Any]]:
    for row in list_cancels(table.storage, table.layout).to_pylist():
        yield {
            "instant": row["instant"],
            "outcome": "cancelled" if row["is_waiting"] else "aborted",
            "by": row["cancelled_by"],
            "reason": row["reason"],
        }


def _redone(table: TableContext) -> Iterator[dict[str, Any]]:
    for commit in view_of(table).newest_commits():
        redone = Redone.from_metadata(commit.metadata.extra_metadata)
        if redone.times:
            yield {
                "instant": commit.requested_time,
                "outcome": "redone",
                "by": redone.by or None,
                "reason": f"{redone.files} files with {redone.rows} rows were written again, "
                f"tried {redone.times + 1} times",
            }


def _rolled_back(table: TableContext) -> Iterator[dict[str, Any]]:
    completed = table.load_timeline().completed
    rollbacks = [instant for instant in completed if instant.action is Action.ROLLBACK]
    paths = [instant_path(table.layout.timeline, instant) for instant in rollbacks]
    for instant, path, content in zip(
        rollbacks, paths, table.storage.read_many(paths), strict=True
    ):
        if content is None:
            continue  # Archived meanwhile.
        done = decode_record(RollbackMetadata, content, path=path)
        for target in done.instants_rollback:
            yield {
                "instant": target.commit_time,
                "outcome": "rolled back",
                "by": instant.requested_time,
                "reason": f"{done.total_files_deleted} files deleted",
            }
