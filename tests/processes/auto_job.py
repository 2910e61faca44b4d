"""One writer of the test of `service run --auto`: it writes until it is told to stop.

    python auto_job.py TABLE WRITER NOTES

Every batch is a function of its writer and number. NOTES gets a line for each that was
acknowledged: its number, and how many milliseconds it took.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from itertools import count
from pathlib import Path

import pyarrow as pa

import headwater as hw

HOT_KEYS = 20
NEW_ROWS = 5
BATCHES_A_DAY = 8
WRITE_EVERY_S = 0.2

OPTIONS = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "filesystem",
    "hoodie.write.lock.wait_time_ms": "1800000",
    "hoodie.parquet.small.file.limit": "0",  # Each insert makes a file of its own.
    "hoodie.clean.commits.retained": "10",
    "headwater.cancel.poll.interval.ms": "200",
}
SCHEMA = "id string not null, city string, number long, ts long"


def batch(writer: int, number: int) -> pa.Table:
    """Return rows of a partition that is written all the time, and of one that is left one day."""
    hot = [(f"{writer}-{(number * 7 + step) % HOT_KEYS}", f"hot-{writer}") for step in range(10)]
    day = f"day-{writer}-{number // BATCHES_A_DAY}"
    new = [(f"{writer}-new-{number * NEW_ROWS + step}", day) for step in range(NEW_ROWS)]
    ids, cities = zip(*hot, *new, strict=True)
    numbers = pa.array([number] * len(ids), pa.int64())
    return pa.table({"id": ids, "city": cities, "number": numbers, "ts": numbers})


def main() -> None:
    path, writer, notes = sys.argv[1:]
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    table = hw.open_table(path, OPTIONS)
    with Path(notes).open("a") as out:
        for number in count():
            if stop.is_set():
                return
            began = time.monotonic()
            table.upsert(batch(int(writer), number))
            out.write(f"{number} {(time.monotonic() - began) * 1000:.0f}\n")
            out.flush()
            stop.wait(WRITE_EVERY_S)


if __name__ == "__main__":
    main()
