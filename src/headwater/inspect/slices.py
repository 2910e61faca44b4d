"""What does a snapshot read of every file group: which base file, and how much log on top of it?"""

from __future__ import annotations

import pyarrow as pa

from headwater.config.table import TableConfig
from headwater.inspect.completion import load_completion_times
from headwater.metadata.view import load_view
from headwater.seams.storage import Storage

SCHEMA = pa.schema(
    [
        pa.field("partition", pa.string(), nullable=False),
        pa.field("file_id", pa.string(), nullable=False),
        pa.field("base_instant", pa.string(), nullable=False),
        pa.field("base_file", pa.string()),  # A path; null for a slice of log files alone.
        pa.field("base_size_bytes", pa.int64()),
        pa.field("log_count", pa.int32(), nullable=False),
        pa.field("log_size_bytes", pa.int64(), nullable=False),
        pa.field("latest_completion_time", pa.string(), nullable=False),
    ]
)


def list_slices(storage: Storage, config: TableConfig) -> pa.Table:
    """Return the newest file slice of every file group, by partition and file id.

    Paths are relative to the table's base.

    Raises: see `kernel.view.table_view.TableView`.
    """
    view = load_view(storage, config)
    slices = view.slices()
    completion_times = load_completion_times(storage, view, slices)
    rows = [
        {
            "partition": file_slice.group.partition,
            "file_id": file_slice.group.file_id,
            "base_instant": file_slice.base_instant,
            "base_file": None if file_slice.base is None else file_slice.base.path,
            "base_size_bytes": None if file_slice.base is None else file_slice.base.size_bytes,
            "log_count": len(file_slice.logs),
            "log_size_bytes": sum(log.size_bytes for log in file_slice.logs),
            "latest_completion_time": max(
                completion_times[file.instant_time] for file in file_slice.files()
            ),
        }
        for file_slice in slices
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)
