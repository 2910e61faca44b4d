"""Who is at work on the table, and when was each last heard of?

Ages are by the store's modification times against this machine's clock, good enough for people to
read. The protocol itself never compares two clocks (see `kernel.txn.heartbeat`).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headwater.kernel.layout import HEARTBEATS
from headwater.kernel.timeline.names import is_instant_time
from headwater.kernel.txn.attempts import decode_attempt, list_attempts
from headwater.seams.clock import Clock
from headwater.seams.storage import ObjectInfo, Storage

SCHEMA = pa.schema(
    [
        pa.field("instant", pa.string(), nullable=False),
        pa.field("attempt", pa.int32()),  # Null: a plain heartbeat file alone, as stock Hudi's.
        pa.field("purpose", pa.string()),
        pa.field("host", pa.string()),
        pa.field("pid", pa.int64()),
        pa.field("writer_id", pa.string()),
        pa.field("started", pa.timestamp("ms", tz="UTC")),
        pa.field("last_beat", pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field("age_ms", pa.int64(), nullable=False),
        pa.field("expiry_ms", pa.int64()),
        pa.field("is_released", pa.bool_()),
    ]
)


def list_heartbeats(storage: Storage, clock: Clock) -> pa.Table:
    """Return one row per attempt, and one per plain heartbeat that no attempt stands behind.

    Raises:
        CorruptTableError: an attempt is unreadable; the error names it.
    """
    now_ms = clock.now_ms()
    found = list_attempts(storage)
    contents = storage.read_many([info.path for info in found])
    rows = [
        _attempt_row(info, data, now_ms)
        for info, data in zip(found, contents, strict=True)
        if data is not None  # Its owner finished between the listing and the read.
    ]
    known = {row["instant"] for row in rows}
    for info in storage.list_tree(HEARTBEATS):
        instant = info.path.rpartition("/")[2]
        # Hadoop puts checksums beside Hudi's on a local disk.
        if is_instant_time(instant) and instant not in known:
            rows.append({"instant": instant, **_ages(info, now_ms)})
    rows.sort(key=lambda row: (row["instant"], row.get("attempt") or 0))
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _attempt_row(info: ObjectInfo, data: bytes, now_ms: int) -> dict[str, Any]:
    attempt = decode_attempt(data, path=info.path)
    return {
        "instant": attempt.instant,
        "attempt": attempt.attempt,
        "purpose": attempt.purpose.value,
        "host": attempt.owner.host,
        "pid": attempt.owner.pid,
        "writer_id": attempt.owner.writer_id,
        "started": attempt.started_ms,
        "expiry_ms": attempt.expiry_ms,
        "is_released": attempt.is_released,
        **_ages(info, now_ms),
    }


def _ages(info: ObjectInfo, now_ms: int) -> dict[str, Any]:
    return {"last_beat": info.modified_ms, "age_ms": now_ms - info.modified_ms}
