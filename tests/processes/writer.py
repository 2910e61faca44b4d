"""One writer process: upserts numbered batches and notes, in a file, which are acknowledged.

    python writer.py TABLE NOTES WRITER FIRST LAST MODE [WRITERS]

Every batch is a function of its writer and number, so whoever reads the notes knows its rows. They
say the instant of each batch as well. With WRITERS, a batch is begun when all of so many writers
have the one before acknowledged, so that they all bring the same new keys at once.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pyarrow as pa

import headwater as hw
from headwater.config.table_options import GLOBAL_INDEXES

KEYS = 64
ROWS = 12
NEW_KEYS = 4

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
    return rows_of(writer, number, [f"key-{key}" for key in dict.fromkeys(keys)])


def colliding_batch(writer: int, number: int, *, is_global: bool) -> pa.Table:
    """Keys that the batches of this number bring, and one of the batches before.

    With an index of the whole table every other writer has them in another partition.
    """
    keys = [f"key-{number}-{step}" for step in range(NEW_KEYS)] + [f"key-{max(number - 1, 0)}-0"]
    found = rows_of(writer, number, list(dict.fromkeys(keys)))
    cities = [f"c{writer % 2 if is_global else hash_of(key)}" for key in found["id"].to_pylist()]
    return found.append_column("city", pa.array(cities))


def rows_of(writer: int, number: int, keys: list[str]) -> pa.Table:
    count = len(keys)
    return pa.table(
        {
            "id": keys,
            "writer": [writer] * count,
            "number": [number] * count,
            "ts": [number * 100 + writer] * count,
        }
    )


def hash_of(key: str) -> int:
    return sum(key.encode()) % 2


def acknowledged(notes: Path) -> dict[int, str]:
    """Return the instants of the batches that were acknowledged, by number."""
    if not notes.exists():
        return {}
    whole, _, _ = notes.read_text().rpartition("\n")
    words = (line.split() for line in whole.splitlines())
    return {int(number): instant for number, instant in words}


def wait_for_all(notes: Path, writers: int, number: int) -> None:
    """Wait until all writers have had a batch acknowledged."""
    while any(
        number not in acknowledged(notes.with_name(f"acknowledged-{writer}"))
        for writer in range(writers)
    ):
        time.sleep(0.02)


def main() -> None:
    path, given, writer, first, last, mode, *writers = sys.argv[1:]
    notes = Path(given)
    table = hw.open_table(path, {**OPTIONS, "hoodie.write.concurrency.mode": mode})
    is_global = table.config.index_type in GLOBAL_INDEXES
    with notes.open("a") as out:
        for number in range(int(first), int(last)):
            if writers:
                if number > 0:
                    wait_for_all(notes, int(writers[0]), number - 1)
                rows = colliding_batch(int(writer), number, is_global=is_global)
            else:
                rows = batch(int(writer), number)
            done = table.upsert(rows)
            out.write(f"{number} {done.instant}\n")
            out.flush()
            os.fsync(out.fileno())


if __name__ == "__main__":
    main()
