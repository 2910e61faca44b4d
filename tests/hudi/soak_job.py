"""Our side of the soak: a writer, or table services, until the process is told to stop or killed.

    python soak_job.py TABLE KIND NOTES OPTIONS PAUSE_S PLAN

KIND is `write` or `serve`. NOTES gets the numbers of steps that were acknowledged, or what became
of each service. What a step is says PLAN, one of `soak_batches`. Started with SIGTERM blocked, it
takes it once it can stop in order.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

from tests.hudi.soak_batches import PLANS, Plan, Step

import headwater as hw
from headwater.errors import ConflictError, FencedError


def perform(table: hw.Table, step: Step) -> None:
    match step.operation:
        case "insert_overwrite":
            table.overwrite_partitions(step.rows)
        case "delete_partition":
            table.delete_partitions([step.partition])
        case operation:
            getattr(table, operation)(step.rows)


def write(table: hw.Table, stop: threading.Event, notes: Path, pause_s: float, plan: Plan) -> None:
    known = notes.read_text().split() if notes.exists() else []
    # Nobody knows whether the batch after the last noted one was committed; it is not repeated.
    number = int(known[-1]) + 2 if known else 0
    with notes.open("a") as out:
        while not stop.is_set():
            try:
                perform(table, plan("ours", number))
            except ConflictError:
                continue  # The same batch once more: nothing of it was committed.
            except FencedError:
                # A client of Hudi's that closes deletes the lock file, whoever has the lock. We
                # notice, and what became of the batch is not known; it is not repeated.
                number += 1
                continue
            out.write(f"{number}\n")
            out.flush()
            os.fsync(out.fileno())
            number += 1
            stop.wait(pause_s)


def serve(table: hw.Table, stop: threading.Event, notes: Path, pause_s: float, _: Plan) -> None:
    run = table.services
    services: tuple[Callable[[], object], ...] = (run.compact, run.clean, run.archive, run.cluster)
    with notes.open("a") as out:
        for once in cycle(services):
            if stop.is_set():
                return
            name = getattr(once, "__name__", "")
            try:
                once()
                out.write(f"{name} done\n")
            except (ConflictError, FencedError):
                out.write(f"{name} left to another\n")
            except Exception:  # noqa: BLE001 - the test shows whatever it was
                out.write(f"error {traceback.format_exc()}")
            out.flush()
            stop.wait(pause_s)


def main() -> None:
    path, kind, notes, options, pause_s, plan = sys.argv[1:]
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    table = hw.open_table(path, json.loads(options))
    job = {"write": write, "serve": serve}[kind]
    job(table, stop, Path(notes), float(pause_s), PLANS[plan])


if __name__ == "__main__":
    main()
