"""Which instants does the active timeline hold, and how far has each come?"""

from __future__ import annotations

import pyarrow as pa

from headwater.kernel.layout import TableLayout
from headwater.kernel.timeline.active import load_active
from headwater.seams.storage import Storage

SCHEMA = pa.schema(
    [
        pa.field("requested_time", pa.string(), nullable=False),
        pa.field("action", pa.string(), nullable=False),
        pa.field("state", pa.string(), nullable=False),
        pa.field("completion_time", pa.string()),
    ]
)


def list_instants(storage: Storage, layout: TableLayout) -> pa.Table:
    """Return the instants by requested time, each savepoint right after what it protects."""
    timeline = load_active(storage, layout.timeline)
    instants = sorted((*timeline.instants, *timeline.savepoints), key=lambda i: i.requested_time)
    columns = {
        "requested_time": [str(instant.requested_time) for instant in instants],
        "action": [instant.action.value for instant in instants],
        "state": [instant.state.value for instant in instants],
        "completion_time": [instant.completion_time for instant in instants],
    }
    return pa.table(columns, schema=SCHEMA)
