"""What was written to the table, when, by whom and how much."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pyarrow as pa

from headwater.context import TableContext
from headwater.errors import InvalidInputError
from headwater.kernel.txn.changes import WRITER_KEY
from headwater.kernel.view.commits import COMMIT_ACTIONS, CompletedCommit, decode_commit
from headwater.metadata.view import view_of

SCHEMA = pa.schema(
    [
        pa.field("instant", pa.string(), nullable=False),
        pa.field("completion_time", pa.string(), nullable=False),
        pa.field("action", pa.string(), nullable=False),
        pa.field("operation", pa.string()),
        pa.field("inserted", pa.int64(), nullable=False),
        pa.field("updated", pa.int64(), nullable=False),
        pa.field("deleted", pa.int64(), nullable=False),
        pa.field("file_groups", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("writer", pa.string()),
    ]
)


def list_history(table: TableContext, limit: int | None = None) -> pa.Table:
    """Return the completed commits of writes and services, newest first, archived ones too.

    Raises:
        InvalidInputError: the limit is no number of commits.
        Otherwise see `kernel.view.table_view.TableView`.
    """
    if limit is not None and (not isinstance(limit, int) or limit < 0):
        raise InvalidInputError(f"A limit is a whole number of commits, at least 0, got {limit!r}")
    rows = [commit_row(commit) for commit in islice(_commits(table), limit)]
    return pa.Table.from_pylist(rows, SCHEMA)


def _commits(table: TableContext) -> Iterator[CompletedCommit]:
    view = view_of(table)
    shown = set()
    for commit in view.newest_commits():
        shown.add(commit.requested_time)
        yield commit
    history = table.commit_reader().history
    archived = {
        instant.requested_time: instant
        for instant in history.instants()
        if instant.action.completed_name in COMMIT_ACTIONS and instant.requested_time not in shown
    }
    found = [
        decode_commit(archived[time], contents.metadata, contents.path)
        for time, contents in history.iter_contents(archived)
    ]
    yield from sorted(found, key=lambda commit: commit.completion_time, reverse=True)


def commit_row(commit: CompletedCommit) -> dict[str, object]:
    """Return what a commit says of itself, as a row of `SCHEMA`."""
    stats = list(commit.metadata.write_stats())
    return {
        "instant": str(commit.requested_time),
        "completion_time": str(commit.completion_time),
        "action": str(commit.instant.action.completed_name),
        "operation": commit.metadata.operation_type,
        "inserted": sum(stat.num_inserts or 0 for stat in stats),
        "updated": sum(stat.num_update_writes or 0 for stat in stats),
        "deleted": sum(stat.num_deletes or 0 for stat in stats),
        "file_groups": len({(stat.partition_path, stat.file_id) for stat in stats}),
        "bytes": sum(stat.file_size_in_bytes or 0 for stat in stats),
        "writer": (commit.metadata.extra_metadata or {}).get(WRITER_KEY),
    }
