"""One process of the chaos test: it writes, or runs table services, until it is told to stop.

    python chaos_job.py TABLE KIND NOTES LEDGER

KIND is ingest, or the number of a process that runs all services in turns. A batch is a function of
its number, and NOTES gets the numbers that were acknowledged, or what became of each service.
LEDGER gets all that is counted as metrics, from every process.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pyarrow as pa
from tests.support.collecting import Ledger

import headwater as hw
from headwater.errors import ConflictError, FencedError
from headwater.seams.meters import listen

KEYS = 400
ROWS = 40
INGEST_EVERY_S = 1.0
SERVICE_PAUSE_S = 0.3

# Heartbeats are as long as they are by default: the system says at once that a killed process has
# ended, and one on a busy machine, whose heartbeat is late, must not be taken for dead.
OPTIONS = {
    "hoodie.write.concurrency.mode": "non_blocking_concurrency_control",
    "hoodie.write.lock.provider": "filesystem",
    "hoodie.write.lock.wait_time_ms": "600000",
    "hoodie.compact.inline.max.delta.commits": "3",
    "hoodie.clean.commits.retained": "4",
    "hoodie.keep.min.commits": "8",
    "hoodie.keep.max.commits": "12",
    "headwater.cancel.poll.interval.ms": "200",
}


def batch(number: int) -> pa.Table:
    """Return rows of which later batches bring many again; every fifth key is new."""
    old = [(number * 31 + step * 7) % KEYS for step in range(ROWS * 4 // 5)]
    new = [KEYS + number * ROWS + step for step in range(ROWS // 5)]
    keys = [*dict.fromkeys(old), *new]
    return pa.table(
        {
            "id": [f"key-{key}" for key in keys],
            "number": [number] * len(keys),
            "ts": [number] * len(keys),
        }
    )


def ingest(table: hw.Table, stop: threading.Event, notes: Path) -> None:
    known = notes.read_text().split() if notes.exists() else []
    # Nobody knows whether the batch after the last noted one was committed; it is not repeated.
    number = int(known[-1]) + 2 if known else 0
    with notes.open("a") as out:
        while not stop.is_set():
            table.upsert(batch(number))
            out.write(f"{number}\n")
            out.flush()
            os.fsync(out.fileno())
            number += 1
            stop.wait(INGEST_EVERY_S)


def compact(table: hw.Table) -> None:
    table.services.compact(only_if_due=True)


def cluster(table: hw.Table) -> None:
    planned = table.services.schedule_clustering(
        sort_by="id", cancellable=True, cancellation_policy="8 instants"
    )
    if planned is not None:
        table.services.cluster(planned)


def retain(table: hw.Table) -> None:
    table.services.clean()
    table.services.archive()


SERVICES: tuple[Callable[[hw.Table], None], ...] = (compact, cluster, retain)


def serve(table: hw.Table, stop: threading.Event, notes: Path, first: int) -> None:
    """Run all services over and over, each process beginning with another one."""
    with notes.open("a") as out:
        for number in count(first):
            if stop.is_set():
                return
            once = SERVICES[number % len(SERVICES)]
            try:
                once(table)
                out.write(f"{once.__name__} done\n")
            except (ConflictError, FencedError):
                out.write(f"{once.__name__} left to another\n")
            except Exception:  # noqa: BLE001 - the test shows whatever it was
                out.write(traceback.format_exc())
            out.flush()
            stop.wait(SERVICE_PAUSE_S)


def main() -> None:
    path, kind, notes, ledger = sys.argv[1:]
    listen(Ledger(Path(ledger)))
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    table = hw.open_table(path, OPTIONS)
    if kind == "ingest":
        ingest(table, stop, Path(notes))
    else:
        serve(table, stop, Path(notes), int(kind))


if __name__ == "__main__":
    main()
