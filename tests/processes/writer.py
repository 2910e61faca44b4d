"""One writer process: upserts numbered batches and notes, in a file, which are acknowledged.

    python writer.py TABLE NOTES WRITER FIRST LAST MODE

Every batch is a function of its writer and number, so whoever reads the notes knows its rows.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyarrow as pa

import headwater as hw

KEYS = 64
ROWS = 12

# Heartbeats are as long as they are by default: the system says at once that a killed process has
# ended, and a writer on a busy machine, whose heartbeat is late, must not be taken for dead.
OPTIONS = {
    "hoodie.write.lock.provider": "filesystem",
    "hoodie.write.lock.wait_time_ms": "1800000",
    "hoodie.write.num.retries.on.conflict.failures": "100",
}


def batch(writer: int, number: int) -> pa.Table:
    """Rows that other writers have too; the larger number wins, and the writer breaks ties."""
    keys = [(number * 7 + writer * 5 + step * 3) % KEYS for step in range(ROWS)]
    return pa.table(
        {
            "id": [f"key-{key}" for key in dict.fromkeys(keys)],
            "writer": [writer] * len(set(keys)),
            "number": [number] * len(set(keys)),
            "ts": [number * 100 + writer] * len(set(keys)),
        }
    )


def main() -> None:
    path, notes, writer, first, last, mode = sys.argv[1:]
    table = hw.open_table(path, {**OPTIONS, "hoodie.write.concurrency.mode": mode})
    with Path(notes).open("a") as out:
        for number in range(int(first), int(last)):
            table.upsert(batch(int(writer), number))
            out.write(f"{number}\n")
            out.flush()
            os.fsync(out.fileno())


if __name__ == "__main__":
    main()
