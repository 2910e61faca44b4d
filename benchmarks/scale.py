"""Does what a table costs follow what is asked and what changed, or how large it is?

A table of metadata alone: so many files in so many partitions, a hundred in each, of which a few
exist. Every question is asked in a process of its own, of each size:

    plan a read       the slices of one partition; target 20 ms, and the peak of the smallest table
    plan a write      view and plan of an upsert into one partition; the same targets
    plan compaction   after a few commits to three partitions: the first time, and the next
    plan clean        the same
    archive           of those commits, planned and done

Floor: the same question put to the smallest table. Beside the time on the clock stands the time of
the processor, which others on the machine disturb less, and what was asked of storage.

Run: python benchmarks/scale.py [--files 10000 100000 1000000] [--turns 7] [--json PATH]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

from index_tables import (
    LOCKED,
    create_files_table,
    partition_name,
    rows_of_few_buckets,
    scratch,
    timed,
)
from targets import Target
from tests.support.counting_storage import CountingStorage, open_counting

import headwater as hw
from headwater.config.clean import CleanConfig
from headwater.config.compaction import CompactionConfig
from headwater.context import TableContext
from headwater.kernel.txn.writes import InflightWrite
from headwater.metadata.view import view_of
from headwater.model.instant import InstantTime
from headwater.operations.plan import Operation
from headwater.operations.preparing import prepare_write
from headwater.operations.request import WriteRequest
from headwater.services.clean import plan_next_clean
from headwater.services.compaction import plan_next_compaction

MAKING_COMMITS = 10
"""Each of them writes one partition of real files, which the questions about changes use."""
CHANGED_PARTITIONS = 3
CHANGES = 12
OPTIONS = {
    **LOCKED,
    "hoodie.clean.commits.retained": "3",
    "hoodie.keep.min.commits": "6",
    "hoodie.keep.max.commits": "8",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
}
PLAN_MS_MAX = 20
PEAK_RATIO_MAX = 1.1
FOLLOWS_RATIO_MAX = 1.5


@dataclass(frozen=True, slots=True)
class Figure:
    """One question, asked of a table of one size."""

    question: str
    files: int
    ms: float
    cpu_ms: float
    calls: int
    kilobytes: int
    peak_mb: int
    """Of a process that did nothing else, Python and its libraries included."""
    first_ms: float = 0.0
    """What it took the first time in its process, modules and all."""


class WeighingStorage(CountingStorage):
    """A storage that counts calls, and the bytes that they carry."""

    byte_count = 0

    def read(self, path: str) -> bytes:
        return self._weighed(super().read(path))

    def read_range(self, path: str, start: int, length: int) -> bytes:
        return self._weighed(super().read_range(path, start, length))

    def read_many(self, paths: Iterable[str]) -> list[bytes | None]:
        found = super().read_many(paths)
        self.byte_count += sum(len(data) for data in found if data is not None)
        return found

    def put(self, path: str, data: bytes) -> None:
        super().put(path, self._weighed(data))

    def put_if_absent(self, path: str, data: bytes) -> None:
        super().put_if_absent(path, self._weighed(data))

    def put_many(self, objects: Mapping[str, bytes]) -> None:
        self.byte_count += sum(map(len, objects.values()))
        super().put_many(objects)

    def _weighed(self, data: bytes) -> bytes:
        self.byte_count += len(data)
        return data


Question = Callable[[TableContext], object]


def plan_read(table: TableContext) -> object:
    return view_of(table).slices([partition_name(0)])


def plan_write(table: TableContext) -> object:
    """Plan an upsert that is never begun: a plan needs the time and the attempt of it alone."""
    rows = rows_of_few_buckets(0, 0)
    request = WriteRequest(operation=Operation.UPSERT, columns=rows.schema)
    view = view_of(table)
    view.load_ahead()
    unbegun = cast(InflightWrite, Unbegun(table.now(), Attempted(1)))
    return prepare_write(table, request, unbegun, view, rows.to_batches())


@dataclass(frozen=True)
class Attempted:
    attempt: int


@dataclass(frozen=True)
class Unbegun:
    instant_time: InstantTime
    attempt: Attempted


def plan_compaction(table: TableContext) -> object:
    return plan_next_compaction(view_of(table), CompactionConfig.from_options(table.options))


def plan_clean(table: TableContext) -> object:
    return plan_next_clean(table, CleanConfig.from_options(table.options), view_of(table))


def change(table: hw.Table) -> None:
    """Commit a few times to a few file groups of a few partitions."""
    known = view_of(table.context).known_partitions()
    assert known is not None
    each = len(known) // MAKING_COMMITS
    for number in range(CHANGES):
        partition = each * (number % CHANGED_PARTITIONS)
        table.upsert(rows_of_few_buckets(partition, number))


QUESTIONS: dict[str, Question] = {
    "plan a read": plan_read,
    "plan a write": plan_write,
    "plan compaction": plan_compaction,
    "plan clean": plan_clean,
}
DEEDS: dict[str, Callable[[hw.Table], object]] = {
    "fold": lambda table: table.services.compact_metadata_table(),
    "change": change,
    "compact": lambda table: table.services.compact(),
    "clean": lambda table: table.services.clean(),
    "archive": lambda table: table.services.archive(),
}
MEASURED_DEEDS = ("clean", "archive")
COURSE = (
    ("fold", ""),
    ("change", ""),
    ("plan a read", ""),
    ("plan a write", ""),
    ("plan compaction", ", first"),
    ("compact", ""),
    ("change", ""),
    ("plan clean", ", first"),
    ("clean", ", first"),
    ("archive", ", first"),
    ("plan compaction", ", next"),
    ("compact", ""),
    ("change", ""),
    ("plan clean", ", next"),
    ("clean", ", next"),
    ("archive", ", next"),
)
"""What happens to a table, step by step, each in a process of its own."""


def measure(path: str, name: str, files: int, turns: int) -> Figure:
    """Ask a question several times. What one asking costs storage is counted once."""
    table = hw.open_table(path, OPTIONS)
    ask = QUESTIONS[name]
    taken, of_processor = [], []
    # The first one loads modules; peaks are those of all of them.
    for _ in range(turns + 1):
        began, began_cpu = time.perf_counter(), time.process_time()
        ask(table.context)
        taken.append((time.perf_counter() - began) * 1000)
        of_processor.append((time.process_time() - began_cpu) * 1000)
    # Opened anew: what this process knows of the metadata table by now is not counted on.
    counted, storage = open_counting(WeighingStorage, path, OPTIONS)
    ask(counted.context)
    return Figure(
        name,
        files,
        statistics.median(taken[1:]),
        statistics.median(of_processor[1:]),
        storage.count(),
        storage.byte_count // 1024,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        taken[0],
    )


def measure_once(path: str, name: str, files: int) -> Figure:
    """Do what changes the table, in a process that has done nothing else."""
    counted, storage = open_counting(WeighingStorage, path, OPTIONS)
    began, began_cpu = time.perf_counter(), time.process_time()
    DEEDS[name](counted)
    ms = (time.perf_counter() - began) * 1000
    cpu_ms = (time.process_time() - began_cpu) * 1000
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return Figure(name, files, ms, cpu_ms, storage.count(), storage.byte_count // 1024, peak_mb, ms)


def measure_table(path: str, files: int, turns: int) -> list[Figure]:
    """Go through the course of one table."""
    figures = []
    for name, when in COURSE:
        command = [sys.executable, __file__, "--step", name, "--table", path]
        command += ["--files", str(files), "--turns", str(turns)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        if done.stdout:
            figure = Figure(**json.loads(done.stdout))
            figures.append(replace(figure, question=name + when))
            print(render(figures[-1:]), flush=True)
    return figures


def run_step(name: str, path: str, files: int, turns: int) -> None:
    if name in QUESTIONS:
        print(json.dumps(asdict(measure(path, name, files, turns))))
    elif name in MEASURED_DEEDS:
        print(json.dumps(asdict(measure_once(path, name, files))))
    else:
        DEEDS[name](hw.open_table(path, OPTIONS))


def targets(figures: list[Figure]) -> list[Target]:
    """Hold the largest table to what was asked for, and to the smallest one."""
    least, most = min(f.files for f in figures), max(f.files for f in figures)
    small = {f.question: f for f in figures if f.files == least}
    found = []
    for figure in (f for f in figures if f.files == most):
        name, floor = f"{figure.question}, {most:,} files", small[figure.question]
        if figure.question in ("plan a read", "plan a write"):
            found.append(Target(name, figure.ms, "ms", PLAN_MS_MAX))
        if not figure.question.endswith("first"):
            ratio = figure.cpu_ms / floor.cpu_ms
            found.append(Target(f"{name}, processor", ratio, "x", FOLLOWS_RATIO_MAX))
            peak = figure.peak_mb / floor.peak_mb
            found.append(Target(f"{name}, peak", peak, "x", PEAK_RATIO_MAX))
    return found


def render(figures: list[Figure]) -> str:
    return "\n".join(
        f"{figure.question:24}{figure.files:>10,} files{figure.ms:>10,.1f} ms"
        f"{figure.cpu_ms:>10,.1f} ms cpu{figure.calls:>7,} calls{figure.kilobytes:>9,} KB"
        f"{figure.peak_mb:>7,} MB peak{figure.first_ms:>10,.1f} ms at first"
        for figure in figures
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--files", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--table", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step is not None:
        run_step(given.step, given.table, given.files[0], given.turns)
        return
    figures: list[Figure] = []
    for files in sorted(given.files):
        with scratch() as folder:
            path = f"{folder}/table"
            seconds = timed(partial(make, path, files)) / 1000
            print(f"made a table of {files:,} files in {seconds:.0f} s", flush=True)
            figures += measure_table(path, files, given.turns)
    print()
    print(render(sorted(figures, key=lambda figure: figure.question)))
    print()
    for target in targets(figures):
        print(target)
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(figure) for figure in figures], indent=2) + "\n")


def make(path: str, files: int) -> None:
    create_files_table(path, files, MAKING_COMMITS, is_stored=False)


if __name__ == "__main__":
    main()
