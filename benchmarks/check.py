"""Are the targets held? Prints each figure beside its target; exit code 1 if one is missed.

    python benchmarks/check.py [--rows 1000000] [--seconds 10] [--json PATH] [--only NAME ...]

Start-up, small commits, index builds, writers beside each other, and writes and reads next to plain
Spark Parquet in the same run. The other scripts of this folder say where the time goes. On two
quiet cores it takes some ten minutes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import writers
from index_builds import build_in_process
from index_tables import create_rows_table
from targets import Target
from tests.support.counting_storage import CountingStorage, open_counting

import headwater as hw

HERE = Path(__file__).parent
PYTHON = sys.executable
HEADWATER = str(Path(PYTHON).parent / "headwater")
ROWS = 1_000
TURNS = 7
LATER = 500
WRITES = {
    ("bulk insert", "merge on read"): 0.9,
    ("MOR bucket upsert", "upsert"): 1.0,
    ("COW upsert", "upsert"): 0.35,
}
READS = {
    ("2 % updated, all columns", "read"): 1.1,
    ("2 % updated, 2 of 10 columns", "read"): 1.25,
}
INDEXES = ["column_stats", "bloom_filters", "record_index"]
BUILT_ROWS = 4_000_000
BUILT_FILES = 80
"""Enough that what a build holds is moved to disk several times."""


def seconds_of(*command: str) -> float:
    """Return the best time of a command in a process of its own."""
    best = float("inf")
    for _ in range(TURNS):
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        best = min(best, time.perf_counter() - began)
    return best


def rows(number: int, count: int = ROWS) -> pa.Table:
    ids = [f"key-{each}" for each in range(count)]
    values = pa.array([float(number)] * count)
    return pa.table({"id": ids, "value": values, "ts": pa.array([number] * count, pa.int64())})


def a_table(folder: str, **options: str) -> hw.Table:
    return hw.create_table(
        f"{folder}/table",
        schema=rows(0).schema,
        record_key="id",
        ordering="ts",
        table_type="MERGE_ON_READ",
        buckets=8,
        options=options,
    )


def median_ms(table: hw.Table, numbers: Iterator[int], count: int = 40) -> float:
    found = []
    for _ in range(count):
        batch = rows(next(numbers))
        began = time.perf_counter()
        table.upsert(batch)
        found.append((time.perf_counter() - began) * 1000)
    return statistics.median(found)


def start_up(_: argparse.Namespace) -> Iterator[Target]:
    nothing = seconds_of(PYTHON, "-c", "pass")
    ours = seconds_of(PYTHON, "-c", "import headwater") - nothing
    arrow = seconds_of(PYTHON, "-c", "import pyarrow") - nothing
    yield Target("import headwater, to import pyarrow", ours / arrow, "ratio", 2.0)
    yield Target("headwater --help", seconds_of(HEADWATER, "--help"), "s", 0.3)
    with tempfile.TemporaryDirectory() as folder:
        a_table(folder).upsert(rows(1, 10))
        code = f"import headwater as hw; hw.open_table('{folder}/table').read_arrow()"
        yield Target("open a table and read ten rows", seconds_of(PYTHON, "-c", code), "s", 0.6)


def commits(_: argparse.Namespace) -> Iterator[Target]:
    numbers = iter(range(1, 1_000_000))
    with tempfile.TemporaryDirectory() as folder:
        table = a_table(folder)
        table.upsert(rows(0))
        plain = median_ms(table, numbers)
        yield Target("commit of 1,000 rows from Arrow", plain, "ms", 20.0)
    with tempfile.TemporaryDirectory() as folder:
        table = a_table(folder)
        table.upsert(rows(0))
        locked = hw.open_table(table.uri, {"hoodie.write.lock.provider": "in_process"})
        locked.indexes.create(INDEXES)
        indexed = median_ms(table, numbers)
        yield Target("the same with three indexes, to without", indexed / plain, "ratio", 1.2)
    with tempfile.TemporaryDirectory() as folder:
        never = {"hoodie.archive.automatic": "false", "hoodie.clean.automatic": "false"}
        table = a_table(folder, **never)
        first = median_ms(table, numbers)
        for _turn in range(LATER):
            table.upsert(rows(next(numbers), 1))
        late = median_ms(table, numbers)
        yield Target(f"the same {LATER} unarchived commits later", late / first, "ratio", 1.05)
    with tempfile.TemporaryDirectory() as folder:
        yield Target("storage calls of a one-row commit", calls_of_one_row(folder), "calls", 25)


def index_builds(_: argparse.Namespace) -> Iterator[Target]:
    with tempfile.TemporaryDirectory() as folder:
        create_rows_table(f"{folder}/rows", BUILT_ROWS, BUILT_FILES)
        ms, peak_mb = build_in_process(f"{folder}/rows", "record_index")
    speed = BUILT_ROWS / ms / 1000
    yield Target("record index built in a process", speed, "M rows/s", 1.5, is_least=True)
    yield Target("its peak memory", peak_mb, "MB", 512)


def calls_of_one_row(folder: str) -> int:
    table = a_table(folder)
    for number in range(3):
        table.upsert(rows(number))
    again, storage = open_counting(CountingStorage, table.uri)
    again.upsert(rows(4, 1))
    before = storage.count()
    again.upsert(rows(5, 1))
    return storage.count() - before


def many_writers(given: argparse.Namespace) -> Iterator[Target]:
    for timeline in writers.TIMELINES:
        one = writers.measure("non-blocking", timeline, 8, given.seconds)
        name = f"8 non-blocking writers, {timeline}"
        yield Target(name, one.commits_per_second, "commits/s", 50, is_least=True)
    one = writers.measure("optimistic", "lock", 8, given.seconds)
    yield Target("8 writers that conflict", one.commits_per_second, "commits/s", 25, is_least=True)
    yield Target("8 writers that conflict, median", one.median_ms, "ms", 250)


def beside_spark(given: argparse.Namespace) -> Iterator[Target]:
    """Run the benchmarks of writes and reads, and pick their ratios to plain Parquet."""
    bounds = {"write.py": WRITES, "read.py": READS}
    for script, targets in bounds.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "figures.json"
            size = ["--rows", str(given.rows), "--json", str(path)]
            subprocess.run([sys.executable, HERE / script, *size], check=True, capture_output=True)
            figures = json.loads(path.read_text())
        found = {(one["what"], one["variant"]): one["ratio"] for one in figures}
        for key, most in targets.items():
            yield Target(f"{key[0]}, {key[1]}, to the floor", found[key], "ratio", most)


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Target]]] = {
    "start-up": start_up,
    "commits": commits,
    "index_builds": index_builds,
    "writers": many_writers,
    "spark": beside_spark,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=[*PARTS])
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found: list[Target] = []
    for name in given.only:
        for target in PARTS[name](given):
            found.append(target)
            print(target, flush=True)
    missed = [target for target in found if not target.is_held]
    print(f"\n{len(found) - len(missed)} held, {len(missed)} missed")
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(one) for one in found], indent=2) + "\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
