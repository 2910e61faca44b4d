"""What each side of the soak writes: keys of its own, and keys that both of them update."""

from __future__ import annotations

import pyarrow as pa

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("city", pa.string()),
        pa.field("ts", pa.int64()),
        pa.field("writer", pa.string()),
        pa.field("number", pa.int64()),
    ]
)
CITIES = ("sf", "ny")
OWN, SHARED = 3, 4


def batch(writer: str, number: int) -> pa.Table:
    """Return a batch: some new keys that nobody else has, and one that everybody updates."""
    ids = [f"{writer}-{number}-{step}" for step in range(OWN)] + [f"both-{number % SHARED}"]
    # Of two updates of a shared key none has the other's time, so what counts is never in doubt.
    ts = number * 2 + (writer == "ours")
    return pa.table(
        {
            "id": ids,
            "city": [CITIES[sum(map(ord, one)) % len(CITIES)] for one in ids],
            "ts": [ts] * len(ids),
            "writer": [writer] * len(ids),
            "number": [number] * len(ids),
        },
        schema=SCHEMA,
    )
