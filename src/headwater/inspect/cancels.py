"""Which plans were cancelled, by whom and why, and what became of them?"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headwater.errors import NotFoundError
from headwater.kernel.layout import CANCEL_COUNT, TableLayout, cancel_path
from headwater.kernel.timeline.active import instant_path, load_active
from headwater.kernel.txn.cancel_records import (
    CancelEntry,
    decode_abort,
    decode_count,
    decode_entry,
)
from headwater.kernel.txn.prefix import load_cancelled
from headwater.model.instant import State
from headwater.seams.storage import Storage

SCHEMA = pa.schema(
    [
        pa.field("instant", pa.string(), nullable=False),
        pa.field("state", pa.string()),  # Null: the instant has left the active timeline.
        pa.field("is_waiting", pa.bool_(), nullable=False),  # Whether it is still to be aborted.
        pa.field("cancelled_by", pa.string()),
        pa.field("cancelled", pa.timestamp("ms", tz="UTC")),
        pa.field("reason", pa.string()),
        pa.field("aborted_by", pa.string()),
        pa.field("aborted", pa.timestamp("ms", tz="UTC")),
    ]
)
COUNT_SCHEMA = pa.schema(
    [
        pa.field("times_cancelled", pa.int64(), nullable=False),
        pa.field("waiting", pa.int64(), nullable=False),
    ]
)


def list_cancels(storage: Storage, layout: TableLayout) -> pa.Table:
    """Return one row per cancelled plan that waits or is on the active timeline, oldest first.

    Raises:
        CorruptTableError: an aborted file is unreadable; the error names it.
    """
    waiting = load_cancelled(storage)
    timeline = load_active(storage, layout.timeline)
    aborted = {i.requested_time: i for i in timeline.instants if i.state is State.ABORTED}
    rows = []
    for time in sorted({*waiting, *aborted}):
        instant = timeline.find(time)
        row: dict[str, Any] = {
            "instant": time,
            "state": None if instant is None else instant.state.value,
            "is_waiting": time in waiting,
        }
        if time in aborted:
            path = instant_path(layout.timeline, aborted[time])
            data = _read(storage, path)
            if data is None:
                continue  # Archived since.
            record = decode_abort(data, path=path)
            row |= _entry_fields(record.entry)
            row |= {"aborted_by": record.owner, "aborted": record.aborted_ms}
        else:
            row |= _entry_fields(decode_entry(_read(storage, cancel_path(time)) or b""))
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def count_cancels(storage: Storage) -> pa.Table:
    """Return one row: how often plans of the table were cancelled, and how many wait for it.

    A number that grows while clustering never completes says that writes starve it.
    """
    count = decode_count(_read(storage, CANCEL_COUNT))
    waiting = load_cancelled(storage)
    times = count.times + len(waiting.difference(count.counted))
    rows = [{"times_cancelled": times, "waiting": len(waiting)}]
    return pa.Table.from_pylist(rows, schema=COUNT_SCHEMA)


def _entry_fields(entry: CancelEntry | None) -> dict[str, Any]:
    if entry is None:
        return {}
    return {
        "cancelled_by": entry.owner,
        "cancelled": entry.requested_ms,
        "reason": entry.reason,
    }


def _read(storage: Storage, path: str) -> bytes | None:
    try:
        return storage.read(path)
    except NotFoundError:
        return None
