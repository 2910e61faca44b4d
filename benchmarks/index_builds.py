"""Building indexes: how fast, how much memory it takes, and what writers notice of it."""

from __future__ import annotations

import hashlib
import multiprocessing
import time
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing.pool import AsyncResult
from threading import Barrier, Event

import pyarrow as pa
from index_tables import LOCKED, UNSYNCED, Figure, Sizes, compared, scratch
from spark_bench import PeakMemory, new_session

import headwater as hw

INDEXES = ("column_stats", "bloom_filters", "record_index")
WRITERS = 4
WRITES_EVERY_S = 1.0
LOOKS_EVERY_S = 0.05
BUCKETS = 4
KEYS_EACH = 800
"""Keys of every partition, two hundred for each of its files."""
ROWS_WRITTEN = 20
FIRST_COMMITS = 2
"""A writer's first commits load modules and fill caches."""
WITHOUT_SPARK, WITH_SPARK = "in one process", "as Spark tasks"
NON_BLOCKING = {
    **LOCKED,
    "hoodie.write.concurrency.mode": "non_blocking_concurrency_control",
}


def measure_builds(sizes: Sizes, path: str, *, with_spark: bool) -> list[Figure]:
    """Build each index of a table in a process of its own, and leave it there."""
    figures = []
    for name in INDEXES:
        for how in (WITH_SPARK, WITHOUT_SPARK) if with_spark else (WITHOUT_SPARK,):
            ms, peak_mb = build_in_process(path, name, how)
            speed = sizes.rows / (ms / 1000)
            note = f"{speed:,.0f} rows a second, {sizes.groups / (ms / 1000):,.0f} files"
            figures.append(Figure(f"build of {name}", how, ms, 1.0, note, peak_mb=peak_mb))
    return figures


def build_in_process(path: str, name: str, how: str = WITHOUT_SPARK) -> tuple[float, int]:
    """Build an index in a process of its own; return milliseconds, and its peak memory in MB."""
    context = multiprocessing.get_context("spawn")
    taken = context.Queue()
    builder = context.Process(target=build_once, args=(path, name, how, taken))
    builder.start()
    assert builder.pid is not None
    with PeakMemory(builder.pid) as peak:
        builder.join()
    assert builder.exitcode == 0, f"the build of {name} failed"
    return taken.get(), peak.mb


def build_once(path: str, name: str, how: str, taken: multiprocessing.Queue[float]) -> None:
    options = dict(LOCKED)
    if how == WITH_SPARK:
        session = new_session()
        session.range(2).toArrow()  # Its first job is not what is measured.
        options["headwater.write.inline.bytes"] = "0"
    table = hw.open_table(path, options)
    if name in table.config.metadata_partitions:
        table.indexes.drop(name)
    began = time.perf_counter()
    table.indexes.create([name])
    taken.put((time.perf_counter() - began) * 1000)


@dataclass(frozen=True, slots=True)
class Span:
    begin: float
    end: float

    def overlaps(self, others: Iterable[Span]) -> bool:
        return any(self.begin < one.end and one.begin < self.end for one in others)


def measure_writers(sizes: Sizes) -> list[Figure]:
    """Let four processes commit once a second: alone, beside builds, and beside a busy process.

    The busy process touches nothing of the table, so it shows what a core that computes takes from
    the others on this machine. In the last phase the indexes are there and nobody builds: what a
    commit costs that tells them all.
    """
    partitions = sizes.indexed_files // BUCKETS
    with scratch() as folder:
        path = f"{folder}/table"
        _create(path, partitions)
        context = multiprocessing.get_context("spawn")
        with context.Manager() as manager, context.Pool(WRITERS + 1) as pool:
            building, busy, stop = manager.Event(), manager.Event(), manager.Event()

            def start_writers(ready: Barrier) -> list[AsyncResult[list[Span]]]:
                return [
                    pool.apply_async(run_writer, (path, writer, partitions, ready, stop))
                    for writer in range(WRITERS)
                ]

            ready = manager.Barrier(WRITERS + 2)
            writers = start_writers(ready)
            builder = pool.apply_async(run_builder, (path, building, busy, ready, stop))
            ready.wait()
            for _ in range(sizes.phases):
                time.sleep(sizes.phase_s)
                for phase in (building, busy):
                    phase.set()
                    time.sleep(sizes.phase_s)
                    phase.clear()
            stop.set()
            builds, computed, drops = builder.get()
            alone_and_beside = [span for writer in writers for span in writer.get()]
            stop.clear()
            hw.open_table(path, NON_BLOCKING).indexes.create(INDEXES)
            ready = manager.Barrier(WRITERS + 1)
            writers = start_writers(ready)
            ready.wait()
            time.sleep(sizes.phase_s)
            stop.set()
            kept = [span for writer in writers for span in writer.get()]
    spans = {
        "alone": [
            one for one in alone_and_beside if not one.overlaps([*builds, *computed, *drops])
        ],
        "beside a busy process": [one for one in alone_and_beside if one.overlaps(computed)],
        "beside a build": [one for one in alone_and_beside if one.overlaps(builds)],
        "all indexes there": kept,
    }
    taken = {name: [(one.end - one.begin) * 1000 for one in some] for name, some in spans.items()}
    notes = {name: f"{len(some)} commits" for name, some in spans.items()}
    notes["beside a build"] += f", {len(builds)} builds"
    return compared(
        f"commit of one of {WRITERS} writers, {sizes.indexed_files:,} files",
        taken,
        notes,
        {"beside a build": "at most 1.10"},
    )


def _create(path: str, partitions: int) -> None:
    table = hw.create_table(
        path,
        schema=_rows(0, 0, 0, 1).schema,
        record_key="id",
        partition_by="part",
        table_type="MERGE_ON_READ",
        buckets=BUCKETS,
        # Non-blocking writers would start the buckets with log files.
        options={**LOCKED, **UNSYNCED},
    )
    table.bulk_insert(pa.concat_tables(_rows(part, 0, 0, KEYS_EACH) for part in range(partitions)))


def _rows(partition: int, number: int, first: int, count: int) -> pa.Table:
    return pa.table(
        {
            "id": [f"{partition}-{(first + key) % KEYS_EACH}" for key in range(count)],
            "part": [f"part-{partition}"] * count,
            "value": [float(number)] * count,
        }
    )


def run_writer(path: str, writer: int, partitions: int, ready: Barrier, stop: Event) -> list[Span]:
    """Upsert into partitions of its own, once a second; return when each commit took place."""
    table = hw.open_table(path, NON_BLOCKING)
    own = range(writer, partitions, WRITERS)
    spans: list[Span] = []
    while len(spans) <= FIRST_COMMITS or not stop.is_set():
        number = len(spans)
        if number == FIRST_COMMITS:
            ready.wait()
            # Writers that commit at the same moments would measure how they queue for the lock.
            time.sleep(writer * WRITES_EVERY_S / WRITERS)
        rows = _rows(own[number % len(own)], number, number * ROWS_WRITTEN, ROWS_WRITTEN)
        begin = time.monotonic()
        table.upsert(rows)
        spans.append(Span(begin, time.monotonic()))
        time.sleep(max(0.0, WRITES_EVERY_S - (spans[-1].end - begin)))
    return spans[FIRST_COMMITS:]


def run_builder(
    path: str, building: Event, busy: Event, ready: Barrier, stop: Event
) -> tuple[list[Span], list[Span], list[Span]]:
    """Build all indexes and drop them, or compute, over and over while it may.

    Returns when it has built, computed and dropped.
    """
    table = hw.open_table(path, NON_BLOCKING)
    ready.wait()
    builds: list[Span] = []
    computed: list[Span] = []
    drops: list[Span] = []
    while not stop.is_set():
        if busy.is_set():
            computed.append(_compute())
            continue
        if not building.is_set():
            time.sleep(LOOKS_EVERY_S)
            continue
        begin = time.monotonic()
        table.indexes.create(INDEXES)
        built = time.monotonic()
        for name in INDEXES:
            table.indexes.drop(name)
        builds.append(Span(begin, built))
        drops.append(Span(built, time.monotonic()))
    return builds, computed, drops


def _compute() -> Span:
    """Keep a core busy for a moment."""
    begin = time.monotonic()
    while (end := time.monotonic()) < begin + LOOKS_EVERY_S:
        hashlib.sha256(b"busy").digest()
    return Span(begin, end)
