"""One process of the chaos test on an object store: it works until it is told to stop.

    python store_chaos_job.py TABLE KIND NOTES

KIND is the number of a writer, `services`, or `indexes`. A writer notes the numbers of the batches
that were acknowledged, the others what became of their work. How the store is reached is in the
environment variable HEADWATER_STORE_OPTIONS, as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pyarrow as pa

import headwater as hw
from headwater.errors import ConflictError, FencedError, HeadwaterError, Retry

WRITERS = 6
KEYS = 24
PAUSE_S = 0.5
MODES = ("optimistic_concurrency_control", "non_blocking_concurrency_control")

OPTIONS = {
    "hoodie.write.lock.wait_time_ms": "600000",
    "hoodie.write.num.retries.on.conflict.failures": "100",
    "hoodie.compact.inline.max.delta.commits": "3",
    "hoodie.clean.commits.retained": "4",
    "hoodie.keep.min.commits": "20",
    "hoodie.keep.max.commits": "30",
}


def options_of(kind: str) -> dict[str, str]:
    mode = MODES[int(kind) % 2] if kind.isdecimal() else MODES[1]
    store: dict[str, str] = json.loads(os.environ["HEADWATER_STORE_OPTIONS"])
    return {**store, **OPTIONS, "hoodie.write.concurrency.mode": mode}


def batch(writer: int, number: int) -> pa.Table:
    """Rows of keys that only this writer has, among the file groups that all of them have."""
    keys = [(number * 5 + step) % KEYS for step in range(KEYS // 2)]
    return pa.table(
        {
            "id": [f"{writer}-{key}" for key in keys],
            "number": pa.array([number] * len(keys), pa.int64()),
        }
    )


def write(table: hw.Table, writer: int, stop: threading.Event, notes: Path) -> None:
    known = notes.read_text().split() if notes.exists() else []
    # Nobody knows whether the batch after the last noted one was committed; it is not repeated.
    number = int(known[-1]) + 2 if known else 0
    with notes.open("a") as out:
        while not stop.is_set():
            try:
                table.upsert(batch(writer, number))
            except HeadwaterError as error:
                # Faults may go on for longer than a write tries; then it says what to do.
                if error.retry is Retry.NEVER:
                    raise
                stop.wait(PAUSE_S)
                continue
            out.write(f"{number}\n")
            out.flush()
            os.fsync(out.fileno())
            number += 1
            stop.wait(PAUSE_S)


def cluster(table: hw.Table) -> None:
    planned = table.services.schedule_clustering(cancellable=True, cancellation_policy="8 instants")
    if planned is not None:
        table.services.cluster(planned)


def retain(table: hw.Table) -> None:
    table.services.clean()
    table.services.archive()


def index(table: hw.Table) -> None:
    table.indexes.create(["column_stats"])
    table.indexes.drop("column_stats")


WORK: dict[str, tuple[Callable[[hw.Table], object], ...]] = {
    "services": (lambda table: table.services.compact(only_if_due=True), cluster, retain),
    "indexes": (index,),
}


def work(table: hw.Table, kind: str, stop: threading.Event, notes: Path) -> None:
    with notes.open("a") as out:
        for number in count():
            if stop.is_set():
                return
            try:
                WORK[kind][number % len(WORK[kind])](table)
                out.write("done\n")
            except (ConflictError, FencedError):
                out.write("left to another\n")
            except HeadwaterError as error:
                is_passing = error.retry is not Retry.NEVER or kind == "indexes"
                out.write("failed for now\n" if is_passing else traceback.format_exc())
            except Exception:  # noqa: BLE001 - the test shows whatever it was
                out.write(traceback.format_exc())
            out.flush()
            stop.wait(PAUSE_S)


def main() -> None:
    path, kind, notes = sys.argv[1:]
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    table = hw.open_table(path, options_of(kind))
    if kind.isdecimal():
        write(table, int(kind), stop, Path(notes))
    else:
        work(table, kind, stop, Path(notes))


if __name__ == "__main__":
    main()
