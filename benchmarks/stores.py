"""What does a request that takes 20 ms do to a table on an object store?

    python benchmarks/stores.py [--delay-ms 20] [--seconds 10] [--writers 8] [--json PATH]

A real S3 server on loopback, and a line to it that holds every request back. Two questions:

- How many requests of an operation wait for each other? The time that the delay adds, in delays.
  Tests count the same at the storage seam; here it is what a user's watch says.
- How many commits a second does one table take from several writers, each a process of its own?
  Non-blocking ones all write to the same file groups, optimistic ones each to a partition; once
  with a lock and once with a journal instead (fenced).

Each figure has its target, and says whether it is held. Without the server (`make stores`) nothing
is measured.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pyarrow as pa
import pytest
from slow_line import SlowLine, slow_line
from targets import Target
from tests.support.store_servers import versitygw

import headwater as hw

BUCKET = "tables"
ROWS = 100
TURNS = 3
MODES = {
    "non-blocking": "non_blocking_concurrency_control",
    "optimistic": "optimistic_concurrency_control",
}
TIMELINES = {
    "lock": {"headwater.timeline.fenced": "false"},
    "fenced": {"headwater.timeline.fenced": "true"},
}
SERIAL_REQUESTS = {"lock": 14.0, "fenced": 9.0}
COMMITS_A_SECOND = {"lock": 8.0, "fenced": 15.0}


@dataclass(frozen=True, slots=True)
class Store:
    """An S3 server, and how a client reaches it over the line."""

    line: SlowLine
    options: dict[str, str]


@contextmanager
def distant_store(delay_s: float) -> Iterator[Store]:
    """Serve S3 over a line; `delay_s` of it can be set at any time."""
    with (
        tempfile.TemporaryDirectory(prefix="headwater-stores-") as folder,
        versitygw(Path(folder), BUCKET) as server,
        slow_line(server.port) as line,
    ):
        endpoint = f"http://127.0.0.1:{line.port}"
        line.delay_s = delay_s
        yield Store(line, {**server.options, "headwater.storage.endpoint": endpoint})


def batch(number: int, count: int = ROWS, *, city: str = "all") -> pa.Table:
    return pa.table(
        {
            "id": [f"key-{(number * count + step) % 10_000}" for step in range(count)],
            "city": [city] * count,
            "value": [float(number)] * count,
            "ts": [number] * count,
        }
    )


def create(
    store: Store, name: str, *, buckets: int, options: dict[str, str] | None = None
) -> hw.Table:
    return hw.create_table(
        f"s3://{BUCKET}/{name}",
        schema=batch(0).schema,
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type="MERGE_ON_READ",
        buckets=buckets,
        options={**store.options, **(options or {})},
    )


def serial_requests(line: SlowLine, delay_s: float, run: Callable[[], object]) -> float:
    """Return how many delays an operation takes, as the median of a few turns."""
    found = []
    for _ in range(TURNS):
        times = []
        for line.delay_s in (0.0, delay_s):
            began = time.perf_counter()
            run()
            times.append(time.perf_counter() - began)
        found.append((times[1] - times[0]) / delay_s)
    line.delay_s = 0.0
    return statistics.median(found)


def upsert_one_row(table: hw.Table, numbers: Iterator[int]) -> None:
    table.upsert(batch(next(numbers), 1))


def measure_operations(delay_s: float) -> list[Target]:
    numbers = iter(range(1, 1_000_000))
    with distant_store(0.0) as store:
        one = create(store, "one", buckets=1, options=TIMELINES["lock"])
        fenced = create(store, "fenced", buckets=1, options=TIMELINES["fenced"])
        many = create(store, "many", buckets=64)
        for table in (one, fenced, many):
            table.upsert(batch(0, 1_000))
        operations: list[tuple[str, Callable[[], object], float]] = [
            *(
                (f"upsert of one row, {name}", partial(upsert_one_row, table, numbers), target)
                for (name, target), table in zip(
                    SERIAL_REQUESTS.items(), (one, fenced), strict=True
                )
            ),
            ("upsert into 64 groups", lambda: many.upsert(batch(next(numbers), 1_000)), 22),
            ("read of 64 groups", lambda: many.read_arrow(), 12),
        ]
        found = []
        for name, run, target in operations:
            many.services.compact()  # So that a group has one log, as in the tests.
            many.upsert(batch(next(numbers), 1_000))
            run()  # What is read once in a process is not what is measured.
            value = serial_requests(store.line, delay_s, run)
            found.append(Target(name, value, "requests", target))
            print(found[-1], flush=True)
    return found


def run_writer(
    uri: str, options: dict[str, str], writer: int, seconds: float, start: Barrier
) -> tuple[int, int]:
    """Write until the time is over; return the batches that were acknowledged and given up."""
    is_shared = options["hoodie.write.concurrency.mode"] == MODES["non-blocking"]
    city = "all" if is_shared else f"of writer {writer}"
    table = hw.open_table(uri, options)
    table.upsert(batch(writer, city=city))
    start.wait()
    done = given_up = 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        try:
            table.upsert(batch(writer * 7919 + done, city=city))
            done += 1
        except hw.ConflictError:
            given_up += 1
    return done, given_up


def measure_writers(
    control: str, timeline: str, writers: int, seconds: float, delay_s: float
) -> Target:
    with distant_store(delay_s) as store:
        mode = {"hoodie.write.concurrency.mode": MODES[control]}
        table = create(store, control, buckets=4, options={**mode, **TIMELINES[timeline]})
        context = multiprocessing.get_context("spawn")
        with context.Manager() as manager, context.Pool(writers) as pool:
            start = manager.Barrier(writers)
            options = {**store.options, **mode}
            jobs = [
                pool.apply_async(run_writer, (table.uri, options, writer, seconds, start))
                for writer in range(writers)
            ]
            tallies = [job.get() for job in jobs]
    given_up = sum(tally[1] for tally in tallies)
    commits = sum(tally[0] for tally in tallies)
    requests = store.line.requests / (commits + writers)
    name = f"{writers} {control} writers, {timeline}, {given_up} given up, {requests:.0f} requests"
    return Target(name, commits / seconds, "commits/s", COMMITS_A_SECOND[timeline], is_least=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--delay-ms", type=float, default=20)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    delay_s = arguments.delay_ms / 1000
    try:
        figures = measure_operations(delay_s)
    except pytest.skip.Exception as skipped:
        print(skipped)
        return
    for control, timeline in product(MODES, TIMELINES):
        figures.append(
            measure_writers(control, timeline, arguments.writers, arguments.seconds, delay_s)
        )
        print(figures[-1], flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(one) for one in figures], indent=2) + "\n")


if __name__ == "__main__":
    main()
