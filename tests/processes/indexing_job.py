"""One process of the indexing test: a writer, the table services, or the builder of the indexes.

    python indexing_job.py TABLE CONTROL KIND NOTES

KIND is build, services, or the number of a writer. Writers and services go on until they are told
to stop, and rest for as long as there is a file `rest` beside NOTES, each saying so in a file of
its own. The builder ends when all indexes can be used. A batch is a function of its writer and
number, and every partition, so every key, belongs to one writer. NOTES gets one line for each
commit that was acknowledged: its number, when it ended on the clock that all processes of the
machine share, and how many milliseconds it took.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import headwater as hw
from headwater.errors import ConflictError, FencedError
from headwater.metadata.indexing import IndexProgress, Stage

INDEXES = ("column_stats", "bloom_filters", "record_index")
WRITERS = 4
KEYS_EACH = 20
"""Keys of every partition in the beginning: enough for each of four buckets to have a file."""
PARTITIONS_TOUCHED = 3
ROWS_TOUCHED = 3
DELETES_EVERY = 4
WRITES_EVERY_S = 1.0
SERVICE_PAUSE_S = 0.5
REST_S = 0.1

# Heartbeats are as long as they are by default: the system says at once that a killed process has
# ended, and one on a busy machine, whose heartbeat is late, must not be taken for dead.
SHARED_OPTIONS = {
    "hoodie.write.lock.provider": "filesystem",
    "hoodie.write.lock.wait_time_ms": "120000",
    "hoodie.write.num.retries.on.conflict.failures": "20",
    "hoodie.metadata.compact.max.delta.commits": "4",
    "hoodie.compact.inline.max.delta.commits": "6",
    "hoodie.clean.commits.retained": "6",
}
MODES = {
    "non-blocking": "non_blocking_concurrency_control",
    "optimistic": "optimistic_concurrency_control",
}


def options(control: str) -> dict[str, str]:
    return {**SHARED_OPTIONS, "hoodie.write.concurrency.mode": MODES[control]}


def create(path: Path, control: str, files: int) -> hw.Table:
    """Create a table of so many base files, give or take a bucket without keys.

    A bucket table for writers that do not block each other. For the optimistic ones each partition
    has one file, whose bloom filter finds its keys.
    """
    how = {"buckets": 4} if control == "non-blocking" else {"index": "bloom"}
    table = hw.create_table(
        path,
        schema="id string, part string, number long",
        record_key="id",
        partition_by="part",
        table_type="MERGE_ON_READ",
        # Non-blocking writers would start the buckets with log files. Nothing is at stake yet, and
        # so many files would wait for the disk for long.
        options={**options("optimistic"), "headwater.storage.fsync": "false"},
        **how,
    )
    table.bulk_insert(first_rows(partition_count(control, files)))
    return hw.open_table(path, options(control))


def partition_count(control: str, files: int) -> int:
    return files // 4 if control == "non-blocking" else files


def first_rows(partitions: int) -> pa.Table:
    places = [(part, key) for part in range(partitions) for key in range(KEYS_EACH)]
    return _rows({f"p{part}-k{key}": part for part, key in places}, -1)


def batch(writer: int, number: int, partitions: int) -> pa.Table:
    """Return rows to upsert: some keys that were there in the beginning, and a new one each."""
    keys = _touched(writer, number, partitions)
    if not is_delete(number):
        keys |= {f"p{part}-n{number}": part for part in set(keys.values())}
    return _rows(keys, number)


def is_delete(number: int) -> bool:
    """Whether the keys of a batch are deleted."""
    return number % DELETES_EVERY == DELETES_EVERY - 1


def _touched(writer: int, number: int, partitions: int) -> dict[str, int]:
    own = range(writer, partitions, WRITERS)
    keys = {}
    for step in range(PARTITIONS_TOUCHED):
        part = own[(number * PARTITIONS_TOUCHED + step) % len(own)]
        for row in range(ROWS_TOUCHED):
            keys[f"p{part}-k{(number * 7 + row * 3) % KEYS_EACH}"] = part
    return keys


def _rows(partition_of: Mapping[str, int], number: int) -> pa.Table:
    return pa.table(
        {
            "id": list(partition_of),
            "part": [f"part-{part}" for part in partition_of.values()],
            "number": [number] * len(partition_of),
        }
    )


def rests(notes: Path) -> bool:
    """Whether the process is to do nothing for now; the test waits until it has said so."""
    is_told = notes.with_name("rest").exists()
    if is_told:
        notes.with_suffix(".rests").touch()
    return is_told


def write(table: hw.Table, stop: threading.Event, notes: Path, writer: int) -> None:
    partitions = int(os.environ["INDEXING_JOB_PARTITIONS"])
    known = notes.read_text().splitlines() if notes.exists() else []
    # Nobody knows whether the batch after the last noted one was committed; it is not repeated.
    number = int(known[-1].split()[0]) + 2 if known else 0
    with notes.open("a") as out:
        while not stop.is_set():
            if rests(notes):
                stop.wait(REST_S)
                continue
            stop.wait(_until_turn(writer))
            rows = batch(writer, number, partitions)
            began = time.monotonic()
            if is_delete(number):
                table.delete(rows)
            else:
                table.upsert(rows)
            ended = time.monotonic()
            out.write(f"{number} {ended} {(ended - began) * 1000:.1f}\n")
            out.flush()
            os.fsync(out.fileno())
            number += 1


def _until_turn(writer: int) -> float:
    """Return how long it is until a writer's turn.

    Writers that commit at the same moments would measure how they queue for the lock.
    """
    return (writer / WRITERS - time.monotonic() / WRITES_EVERY_S) % 1.0 * WRITES_EVERY_S


def serve(table: hw.Table, stop: threading.Event, notes: Path) -> None:
    """Compact and clean the table over and over; note what fails."""
    with notes.open("a") as out:
        while not stop.is_set():
            if rests(notes):
                stop.wait(REST_S)
                continue
            for service in (_compact, _clean):
                try:
                    service(table)
                except (ConflictError, FencedError):
                    out.write(f"{service.__name__} left to another\n")
                except Exception:  # noqa: BLE001 - the test shows whatever it was
                    out.write(traceback.format_exc())
                else:
                    out.write(f"{service.__name__} done\n")
                out.flush()
            stop.wait(SERVICE_PAUSE_S)


def _compact(table: hw.Table) -> None:
    table.services.compact(only_if_due=True)


def _clean(table: hw.Table) -> None:
    table.services.clean()


def build(table: hw.Table, notes: Path) -> None:
    """Finish what a builder that was killed has left, then build what is still missing.

    Notes when the last index was published.
    """

    def note(progress: IndexProgress) -> None:
        print(progress.stage, progress.lag, flush=True)
        if progress.stage is Stage.PUBLISHED:
            notes.write_text(f"{time.monotonic()}\n")

    print("begun", flush=True)
    table.indexes.run(progress=note)
    wanted = os.environ["INDEXING_JOB_INDEXES"].split()
    missing = [name for name in wanted if name not in table.reload().config.metadata_partitions]
    if missing:
        table.indexes.create(missing, progress=note)


def keep_busy(path: str) -> None:
    """Read files of the table over and over: what any busy process takes from the writers."""
    while True:
        for file in sorted(Path(path).glob("*/*.parquet")):
            pq.read_table(file, columns=["id"], use_threads=False).column(0).to_pylist()


def main() -> None:
    path, control, kind, notes = sys.argv[1:]
    stop = threading.Event()
    if kind not in ("build", "busy"):
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
    if kind in ("build", "busy") and "INDEXING_JOB_MEASURES" in os.environ:
        # Elsewhere a build has a machine of its own; here it has what the writers leave.
        os.nice(19)
    table = hw.open_table(path, options(control))
    if kind == "build":
        build(table, Path(notes))
    elif kind == "busy":
        keep_busy(path)
    elif kind == "services":
        serve(table, stop, Path(notes))
    else:
        write(table, stop, Path(notes), int(kind))


if __name__ == "__main__":
    main()
