"""Which committed data files make up the table, who wrote each, and which does a reader need?

All files of the file groups that the newest view shows are listed: those of the newest file slices,
and those of older slices that are kept for readers of the past. Files of pending or failed writes
are no part of the table. Change-feed logs are none of any slice and are left out, as are logs whose
content a log compaction has taken in.

A file that storage has lost is listed too, with the size that its commit noted; a read names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from headwater.config.table import TableConfig
from headwater.inspect.completion import load_completion_times
from headwater.metadata.view import load_view
from headwater.model.files import BaseFile, DataFile
from headwater.model.instant import InstantTime
from headwater.seams.storage import Storage

SCHEMA = pa.schema(
    [
        pa.field("partition", pa.string(), nullable=False),
        pa.field("file_id", pa.string(), nullable=False),
        pa.field("base_instant", pa.string(), nullable=False),  # Names the slice it belongs to.
        pa.field("kind", pa.string(), nullable=False),  # base or log
        pa.field("requested_time", pa.string(), nullable=False),
        pa.field("completion_time", pa.string(), nullable=False),
        pa.field("version", pa.int32()),  # Null for base files, which have none.
        pa.field("write_token", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("is_latest", pa.bool_(), nullable=False),  # Whether a snapshot reads it.
        pa.field("path", pa.string(), nullable=False),  # Relative to the table's base.
    ]
)


def list_files(storage: Storage, config: TableConfig) -> pa.Table:
    """Return one row per file, by partition, file id and slice, in the order they are merged in.

    Raises: see `kernel.view.table_view.TableView`.
    """
    view = load_view(storage, config)
    groups = view.all_slices()
    latest = {file.path for file_slice in view.slices() for file in file_slice.files()}
    oldest_first = [one for slices in groups.values() for one in reversed(slices)]
    completion_times = load_completion_times(storage, view, oldest_first)
    rows = [
        {
            "base_instant": file_slice.base_instant,
            "is_latest": file.path in latest,
            **_file_row(file, completion_times),
        }
        for file_slice in oldest_first
        for file in file_slice.files()
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _file_row(
    file: DataFile, completion_times: Mapping[InstantTime, InstantTime]
) -> dict[str, Any]:
    return {
        "partition": file.partition,
        "file_id": file.file_id,
        "kind": "base" if isinstance(file, BaseFile) else "log",
        "requested_time": file.instant_time,
        "completion_time": completion_times[file.instant_time],
        "version": None if isinstance(file, BaseFile) else file.version,
        "write_token": file.write_token,
        "size_bytes": file.size_bytes,
        "path": file.path,
    }
