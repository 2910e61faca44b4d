"""What was committed, newest first, and how much of it?"""

from __future__ import annotations

import pyarrow as pa

from headwater.config.table import TableConfig
from headwater.kernel.view.commits import CompletedCommit
from headwater.metadata.view import load_view
from headwater.seams.storage import Storage

SCHEMA = pa.schema(
    [
        pa.field("instant", pa.string(), nullable=False),
        pa.field("completion_time", pa.string(), nullable=False),
        pa.field("operation", pa.string()),
        pa.field("inserted", pa.int64(), nullable=False),
        pa.field("updated", pa.int64(), nullable=False),
        pa.field("deleted", pa.int64(), nullable=False),
        pa.field("files", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
    ]
)


def list_history(storage: Storage, config: TableConfig) -> pa.Table:
    """Return one row per completed commit of the active timeline, the newest first.

    Raises: see `kernel.view.table_view.TableView`.
    """
    commits = sorted(
        load_view(storage, config).commits, key=lambda each: each.completion_time, reverse=True
    )
    return pa.Table.from_pylist([_row(commit) for commit in commits], schema=SCHEMA)


def _row(commit: CompletedCommit) -> dict[str, object]:
    stats = list(commit.metadata.write_stats())
    return {
        "instant": commit.requested_time,
        "completion_time": commit.completion_time,
        "operation": commit.metadata.operation_type,
        "inserted": sum(stat.num_inserts or 0 for stat in stats),
        "updated": sum(stat.num_update_writes or 0 for stat in stats),
        "deleted": sum(stat.num_deletes or 0 for stat in stats),
        "files": sum(stat.path is not None for stat in stats),
        "bytes": sum(stat.total_write_bytes or 0 for stat in stats),
    }
