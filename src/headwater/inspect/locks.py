"""Who holds the table lock, since when, and until when?"""

from __future__ import annotations

import pyarrow as pa

from headwater.seams.lock import LockProvider

SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("provider", pa.string(), nullable=False),
        pa.field("owner", pa.string(), nullable=False),
        pa.field("token", pa.int64()),
        pa.field("acquired", pa.timestamp("ms", tz="UTC")),
        pa.field("expires", pa.timestamp("ms", tz="UTC")),
        pa.field("is_expired", pa.bool_(), nullable=False),
    ]
)


def list_locks(locks: LockProvider) -> pa.Table:
    """Return the table lock as one row, or no row when it is free."""
    held = locks.inspect()
    if held is None:
        return SCHEMA.empty_table()
    row = {
        "key": held.key,
        "provider": held.provider,
        "owner": held.owner,
        "token": held.token,
        "acquired": held.acquired_ms,
        "expires": held.expires_ms,
        "is_expired": held.is_expired,
    }
    return pa.Table.from_pylist([row], schema=SCHEMA)
