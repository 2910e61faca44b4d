"""Which instants does the active timeline hold, and how far has each come?"""

from __future__ import annotations

import pyarrow as pa

from headwater.config.table import TableConfig
from headwater.kernel.table_config import table_layout
from headwater.kernel.timeline.active import Timeline, load_active
from headwater.metadata.view import load_view
from headwater.seams.storage import Storage

SCHEMA = pa.schema(
    [
        pa.field("requested_time", pa.string(), nullable=False),
        pa.field("action", pa.string(), nullable=False),
        pa.field("state", pa.string(), nullable=False),
        pa.field("completion_time", pa.string()),
    ]
)
OPERATION = pa.field("operation", pa.string())


def list_instants(storage: Storage, config: TableConfig) -> pa.Table:
    """Return the instants by requested time, each savepoint right after what it protects."""
    return _table_of(load_active(storage, table_layout(config).timeline))


def list_operations(storage: Storage, config: TableConfig) -> pa.Table:
    """Return the same, and what kind of write each completed commit was, as its metadata names it.

    Every commit is read for it.

    Raises: see `kernel.view.table_view.TableView`.
    """
    view = load_view(storage, config)
    operations = {
        (commit.requested_time, commit.completion_time): commit.metadata.operation_type
        for commit in view.commits
    }
    instants = _table_of(view.timeline)
    # A savepoint has the requested time of its commit, but completed at a time of its own.
    times = zip(
        instants["requested_time"].to_pylist(), instants["completion_time"].to_pylist(), strict=True
    )
    return instants.append_column(
        OPERATION, pa.array([operations.get(pair) for pair in times], OPERATION.type)
    )


def _table_of(timeline: Timeline) -> pa.Table:
    instants = sorted((*timeline.instants, *timeline.savepoints), key=lambda i: i.requested_time)
    columns = {
        "requested_time": [str(instant.requested_time) for instant in instants],
        "action": [instant.action.value for instant in instants],
        "state": [instant.state.value for instant in instants],
        "completion_time": [instant.completion_time for instant in instants],
    }
    return pa.table(columns, schema=SCHEMA)
