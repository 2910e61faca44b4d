"""What do the services that rewrite files cost, and how soon does another process take one over?

    compaction           floor: plain Spark reads the same base files and writes them back
    log compaction       the same table, its logs alone
    sorted clustering    floor: plain Spark reads the same files and writes them back, unsorted
    copying clustering   floor: the same clustering with every row decoded and encoded again
    take-over            from the kill of an executor to the completion by another process, which
                         knows nothing but its heartbeat, against the heartbeat's interval
    cancellation         a small write with and without a clustering in its way, that it cancels;
                         and from there until the executor has stopped, against its interval

Run: python benchmarks/services.py [--rows 2000000] [--batch 400000] [--turns 3] [--json PATH]
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import pyarrow as pa
from spark_bench import Figure, bytes_below, new_session, rows_of, show
from tests.support.counting_storage import CountingStorage, open_counting

import headwater as hw
from headwater.config.compaction import DELTA_COMMITS
from headwater.config.write import HEARTBEAT_INTERVAL
from headwater.engine.engine import Poll, never_stops
from headwater.errors import ConflictError
from headwater.kernel.timeline.active import load_active
from headwater.metadata.view import load_view
from headwater.model.instant import State
from headwater.seams.ids import Owner, SystemIds
from headwater.services import Services

BUCKETS = 8
SMALL_FILES = 16
HEARTBEAT_INTERVALS_MS = (500, 1_000, 2_000)
POLL_INTERVALS_MS = (200, 1_000, 5_000)
STARTED_WITHIN_S = 60
LOOK_EVERY_S = 0.02
LOCK_RELEASED_S = 0.5
SPARK = {"headwater.write.inline.bytes": "0"}
COPYING = {"headwater.clustering.copy.row.group.rows": "1"}
DECODING = {"headwater.clustering.copy.row.group.rows": "1000000000"}


class Bench:
    """One session, one scratch folder, and the figures so far."""

    def __init__(self, turns: int) -> None:
        self.spark = new_session()
        self.turns = turns
        self.figures: list[Figure] = []
        self._folder = tempfile.mkdtemp(prefix="headwater-bench-")
        self._numbers = count()

    def place(self) -> str:
        return f"{self._folder}/{next(self._numbers)}"

    def copy(self, table: hw.Table, options: Mapping[str, str]) -> hw.Table:
        """Return a copy of a table, since a service changes what it works on."""
        place = self.place()
        shutil.copytree(table.uri, place)
        return hw.open_table(place, options)

    def rewrite(self, table: hw.Table) -> str:
        """Read and write back the base files of a table with plain Spark."""
        slices = load_view(table.storage, table.config).slices()
        files = [f"{table.uri}/{one.base.path}" for one in slices if one.base is not None]
        place = self.place()
        self.spark.read.parquet(*files).write.parquet(place)
        return place

    def compare(self, what: str, variants: Mapping[str, Turn], rows: int) -> None:
        """Measure the variants in turns, the floor first; preparing them is not timed."""
        best = dict.fromkeys(variants, float("inf"))
        sizes = dict.fromkeys(variants, 0)
        for _ in range(self.turns):
            for name, turn in variants.items():
                run = turn()
                began = time.perf_counter()
                place = run()
                best[name] = min(best[name], time.perf_counter() - began)
                sizes[name] = bytes_below(place)
        floor = next(iter(best.values()))
        for name, seconds in best.items():
            self.figures.append(Figure(what, name, seconds, seconds / floor, rows, sizes[name]))


Turn = Callable[[], Callable[[], str]]
"""Prepare one run, and return it; a run returns the folder that it wrote to."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--batch", type=int, default=400_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json")
    parser.add_argument("--victim", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.victim is not None:
        execute_for_ever(given.victim)
    bench = Bench(given.turns)
    measure_compaction(bench, given.rows, given.batch)
    measure_clustering(bench, given.rows)
    measure_take_over(bench)
    measure_cancellation(bench)
    show(bench.figures, given.json)


def measure_compaction(bench: Bench, rows: int, batch: int) -> None:
    data = rows_of(bench.spark, 0, rows)
    table = hw.create_table(
        bench.place(),
        schema=data.schema,
        record_key="id",
        ordering="ts",
        table_type="MERGE_ON_READ",
        buckets=BUCKETS,
        options=SPARK,
    )
    table.bulk_insert(data)
    for ts in (2, 3):
        table.upsert(rows_of(bench.spark, 0, rows, step=max(1, 2 * rows // batch), ts=ts))

    def service(run: Callable[[Services], object]) -> Turn:
        def prepare() -> Callable[[], str]:
            copy = bench.copy(table, {**SPARK, "hoodie.log.compaction.blocks.threshold": "2"})
            return lambda: (run(copy.services), copy.uri)[1]

        return prepare

    # Warm the session and its Python workers before anything is timed.
    bench.rewrite(table)
    bench.copy(table, SPARK).services.compact()
    bench.compare(
        "compaction",
        {
            "spark rewrite": lambda: lambda: bench.rewrite(table),
            "compact": service(lambda services: services.compact()),
            "log compact": service(lambda services: services.log_compact()),
        },
        rows,
    )


def measure_clustering(bench: Bench, rows: int) -> None:
    data = rows_of(bench.spark, 0, rows)
    table = hw.create_table(
        bench.place(),
        schema=data.schema,
        record_key="id",
        index="simple",
        options={**SPARK, "hoodie.parquet.small.file.limit": "0", "headwater.write.tasks": "1"},
    )
    each = -(-rows // SMALL_FILES)
    for start in range(0, rows, each):
        table.bulk_insert(rows_of(bench.spark, start, min(rows, start + each)))

    def cluster(options: Mapping[str, str], **arguments: Any) -> Turn:
        def prepare() -> Callable[[], str]:
            copy = bench.copy(table, {**options, **_in_two_groups(table)})

            def run() -> str:
                plan = copy.services.schedule_clustering(**arguments)
                assert plan is not None
                copy.services.cluster(plan)
                return copy.uri

            return run

        return prepare

    order = {"sort_by": ["amount", "score"]}
    bench.compare(
        "sorted clustering",
        {
            "spark rewrite": lambda: lambda: bench.rewrite(table),
            "linear": cluster(SPARK, **order),
            "zorder": cluster(SPARK, **order, order="zorder"),
            "hilbert": cluster(SPARK, **order, order="hilbert"),
        },
        rows,
    )
    # Where they run is the product's choice: what is copied needs a job of Spark much later.
    bench.compare(
        "copying clustering",
        {"decoding": cluster(DECODING), "copying": cluster(COPYING)},
        rows,
    )


def _in_two_groups(table: hw.Table) -> dict[str, str]:
    """Return options that make two tasks of a table, one for each core."""
    size = sum(one.size_bytes for one in load_view(table.storage, table.config).slices())
    return {"hoodie.clustering.plan.strategy.max.bytes.per.group": str(size * 6 // 10)}


def measure_take_over(bench: Bench) -> None:
    for interval_ms in HEARTBEAT_INTERVALS_MS:
        seconds = take_over(bench, interval_ms)
        expiry_s = 2 * interval_ms / 1000
        name = f"heartbeat {interval_ms} ms"
        bench.figures.append(Figure("take-over", name, seconds, seconds / expiry_s, 1, 0))


def take_over(bench: Bench, interval_ms: int) -> float:
    """Return how long after its kill the plan of another process is completed by this one."""
    place = bench.place()
    options = {HEARTBEAT_INTERVAL.key: str(interval_ms), DELTA_COMMITS.key: "1"}
    data = rows_of(bench.spark, 0, 1)
    table = hw.create_table(
        place,
        schema=data.schema,
        record_key="id",
        table_type="MERGE_ON_READ",
        buckets=1,
        options=options,
    )
    table.upsert(data)
    table.upsert(data)  # The first one makes base files, and nothing to compact.
    plan = table.services.schedule_compaction()
    assert plan is not None
    victim = subprocess.Popen([sys.executable, __file__, "--victim", f"{place} {interval_ms}"])
    try:
        _wait_until_inflight(table, plan)
        # It still holds the table lock. One that is killed with it costs the lock's lease as well.
        time.sleep(LOCK_RELEASED_S)
    finally:
        victim.kill()
        victim.wait()
    killed = time.perf_counter()
    while True:
        try:
            table.services.compact(plan)
        except ConflictError:
            time.sleep(LOOK_EVERY_S)
        else:
            return time.perf_counter() - killed


def measure_cancellation(bench: Bench) -> None:
    for poll_ms in POLL_INTERVALS_MS:
        table, storage = _counted_table(bench, poll_ms)
        alone = _timed_write(table, storage)
        plan = table.services.schedule_clustering(sort_by="id", cancellable=True)
        assert plan is not None
        executor = threading.Thread(target=_execute_stuck, args=(table, plan))
        executor.start()
        _wait_until_inflight(table, plan)
        cancelling = _timed_write(table, storage)
        cancelled = time.perf_counter()
        executor.join()
        stopped_s = time.perf_counter() - cancelled
        for name, (seconds, calls) in (("alone", alone), ("cancels a plan", cancelling)):
            what = f"write of 100 rows, {calls} storage calls"
            bench.figures.append(Figure(what, name, seconds, seconds / alone[0], 100, 0))
        name = f"looks every {poll_ms} ms"
        ratio = stopped_s / (poll_ms / 1000)
        bench.figures.append(Figure("executor stopped", name, stopped_s, ratio, 1, 0))


def _counted_table(bench: Bench, poll_ms: int) -> tuple[hw.Table, CountingStorage]:
    place = bench.place()
    options = {
        "hoodie.write.concurrency.mode": "non_blocking_concurrency_control",
        "hoodie.write.lock.provider": "filesystem",
        "headwater.cancel.poll.interval.ms": str(poll_ms),
    }
    made = hw.create_table(
        place,
        schema=_small_batch(0).schema,
        record_key="id",
        table_type="MERGE_ON_READ",
        buckets=4,
        options=options,
    )
    table, storage = open_counting(CountingStorage, made.uri, options)
    for number in range(5):
        table.upsert(_small_batch(number))
    return table, storage


def _timed_write(table: hw.Table, storage: CountingStorage) -> tuple[float, int]:
    before = storage.count()
    began = time.perf_counter()
    table.upsert(_small_batch(9))
    return time.perf_counter() - began, storage.count() - before


def _small_batch(number: int) -> pa.Table:
    return pa.table({"id": [f"key-{key}" for key in range(100)], "value": [number] * 100})


def _execute_stuck(table: hw.Table, plan: str) -> None:
    """Execute a plan whose tasks never end, until it is found to be cancelled."""
    # Its calls are its own: it reaches the table past the storage that counts.
    own = hw.open_table(table.uri, table.context.options)
    Services(replace(own.context, engine_for=lambda _: StuckEngine())).cluster(plan)


def _wait_until_inflight(table: hw.Table, plan: str) -> None:
    deadline = time.perf_counter() + STARTED_WITHIN_S
    while time.perf_counter() < deadline:
        for instant in load_active(table.storage, ".hoodie/timeline").pending:
            if instant.requested_time == plan and instant.state is State.INFLIGHT:
                return
        time.sleep(LOOK_EVERY_S)
    raise TimeoutError(f"the victim did not begin within {STARTED_WITHIN_S} s")


class StuckEngine:
    """Runs no task and never ends."""

    is_in_process = True

    def run(self, function: Any, tasks: Any, *, poll: Poll = never_stops) -> Any:
        while True:
            poll()
            time.sleep(LOOK_EVERY_S)


def execute_for_ever(where: str) -> None:
    """Execute the pending plan of a table as a process on another machine would, until killed."""
    place, interval_ms = where.split()
    table = hw.open_table(place, {HEARTBEAT_INTERVAL.key: interval_ms})
    # A process of this machine would be known to be dead at once.
    ids = SystemIds(Owner("elsewhere", 1, "elsewhere"))
    Services(replace(table.context, ids=ids, engine_for=lambda _: StuckEngine())).compact()


if __name__ == "__main__":
    main()
