"""One process beside writers: it runs table services, or restores the table to savepoints.

    python restore_job.py TABLE ROLE NOTES MODE

ROLE is `services` or `restores`; both go on until they are told to stop. Of each restore NOTES gets
the instants that were taken back, in one line.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TypeVar

import headwater as hw
from headwater.errors import ConflictError, ErrorKind, FencedError, HeadwaterError
from headwater.kernel.timeline.active import load_active

T = TypeVar("T")

PAUSE_S = 0.05
WRITES_TAKEN_BACK = 3
OPTIONS = {
    "hoodie.write.lock.provider": "filesystem",
    "hoodie.write.lock.wait_time_ms": "1800000",
    "hoodie.compact.inline.max.delta.commits": "1",
    "hoodie.log.compaction.blocks.threshold": "2",
    "hoodie.clean.commits.retained": "3",
}


def again(act: Callable[[], T]) -> T:
    """Do what must be done, however often others are at work first."""
    while True:
        try:
            return act()
        except ConflictError:
            threading.Event().wait(PAUSE_S)


def serve(table: hw.Table, stop: threading.Event) -> None:
    run = table.services
    acts: tuple[Callable[[], object], ...] = (run.compact, run.log_compact, run.cluster, run.clean)
    for once in cycle(acts):
        if stop.is_set():
            return
        try:
            once()
        except HeadwaterError as error:
            # Another one was first, or what was planned is taken back: both are said as such.
            is_told = isinstance(error, (ConflictError, FencedError))
            if not is_told and error.kind is not ErrorKind.INSTANT_NOT_FOUND:
                raise
        stop.wait(PAUSE_S)


def restore(table: hw.Table, stop: threading.Event, notes: Path) -> None:
    run = table.services
    with notes.open("a") as out:
        while not stop.is_set():
            if not writes_of(table):
                stop.wait(PAUSE_S)
                continue
            saved = again(run.savepoint).instant
            before = writes_of(table)
            while len(writes_of(table) - before) < WRITES_TAKEN_BACK and not stop.is_set():
                stop.wait(PAUSE_S)
            done = again(partial(run.restore, saved))
            again(partial(run.delete_savepoint, saved))
            out.write(" ".join(done.undone) + "\n")
            out.flush()
            os.fsync(out.fileno())


def writes_of(table: hw.Table) -> set[str]:
    timeline = load_active(table.storage, ".hoodie/timeline")
    return {i.requested_time for i in timeline.completed if i.action.is_ingestion}


def main() -> None:
    path, role, notes, mode = sys.argv[1:]
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    table = hw.open_table(path, {**OPTIONS, "hoodie.write.concurrency.mode": mode})
    if role == "services":
        serve(table, stop)
    else:
        restore(table, stop, Path(notes))


if __name__ == "__main__":
    main()
