"""How many small commits does one table take from several writers at the same time?

    python benchmarks/writers.py [--seconds 10] [--writers 1 2 4 8 16] [--modes non-blocking]
        [--timelines lock fenced] [--json PATH] [--plot PATH]

Every writer is a process of its own that upserts batches of 100 rows into one merge-on-read table
of four buckets on local disk, as fast as it can; once with a lock and once with a journal instead
(fenced). All of them touch all buckets, so under optimistic control every two overlapping writes
conflict. Counted are batches that were acknowledged, batches that were given up after their
retries, how long the table lock was held, and how much of a batch was written again because others
came first.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import product
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pyarrow as pa

import headwater as hw
from headwater.model.commit import Redone

MODES = {
    "non-blocking": "non_blocking_concurrency_control",
    "optimistic": "optimistic_concurrency_control",
}
TIMELINES = {
    "lock": {"headwater.timeline.fenced": "false"},
    "fenced": {"headwater.timeline.fenced": "true"},
}
OPTIONS = {"hoodie.write.lock.provider": "filesystem", "hoodie.write.lock.wait_time_ms": "120000"}
STYLES = ("o-", "o--", "s-", "s--")
ROWS = 100
KEYS = 10_000


@dataclass(frozen=True, slots=True)
class Figure:
    control: str
    timeline: str
    writers: int
    commits: int
    given_up: int
    seconds: float
    median_ms: float
    lock_held_ms: float
    redone: float
    """How often a batch was written again, in whole or in part, for each that was committed."""
    redone_files: float

    @property
    def commits_per_second(self) -> float:
        return self.commits / self.seconds

    @property
    def success_rate(self) -> float:
        return self.commits / max(1, self.commits + self.given_up)


@dataclass(frozen=True, slots=True)
class Tally:
    """What one writer did."""

    latencies_ms: list[float]
    lock_held_ms: list[int]
    given_up: int
    redone: list[Redone]


def batch(writer: int, number: int) -> pa.Table:
    first = writer * 7919 + number * ROWS
    return pa.table(
        {
            "id": [f"key-{(first + step) % KEYS}" for step in range(ROWS)],
            "value": [float(number)] * ROWS,
            "ts": [number] * ROWS,
        }
    )


def run_writer(path: str, mode: str, writer: int, seconds: float, start: Barrier) -> Tally:
    table = hw.open_table(path, {**OPTIONS, "hoodie.write.concurrency.mode": mode})
    table.upsert(batch(writer, 0))  # Imports and first calls are not what is measured.
    start.wait()
    latencies: list[float] = []
    held: list[int] = []
    redone: list[Redone] = []
    given_up = number = 0
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        try:
            done = table.upsert(batch(writer, number))
            held.append(done.lock_held_ms)
            redone.append(done.redone)
            latencies.append((time.perf_counter() - began) * 1000)
        except hw.ConflictError:
            given_up += 1
        number += 1
    return Tally(latencies, held, given_up, redone)


def measure(control: str, timeline: str, writers: int, seconds: float) -> Figure:
    with tempfile.TemporaryDirectory(prefix="headwater-writers-") as folder:
        path = f"{folder}/table"
        mode = MODES[control]
        table = hw.create_table(
            path,
            schema=batch(0, 0).schema,
            record_key="id",
            ordering="ts",
            table_type="MERGE_ON_READ",
            buckets=4,
            options={**OPTIONS, **TIMELINES[timeline], "hoodie.write.concurrency.mode": mode},
        )
        table.upsert(batch(0, 0))
        context = multiprocessing.get_context("spawn")
        with context.Manager() as manager, context.Pool(writers) as pool:
            start = manager.Barrier(writers)
            jobs = [
                pool.apply_async(run_writer, (path, mode, writer, seconds, start))
                for writer in range(writers)
            ]
            tallies = [job.get() for job in jobs]
    latencies = [ms for tally in tallies for ms in tally.latencies_ms]
    held = [ms for tally in tallies for ms in tally.lock_held_ms]
    redone = [one for tally in tallies for one in tally.redone]
    return Figure(
        control=control,
        timeline=timeline,
        writers=writers,
        commits=len(latencies),
        given_up=sum(tally.given_up for tally in tallies),
        seconds=seconds,
        median_ms=statistics.median(latencies) if latencies else 0.0,
        lock_held_ms=statistics.median(held) if held else 0.0,
        redone=sum(one.times for one in redone) / max(1, len(redone)),
        redone_files=sum(one.files for one in redone) / max(1, len(redone)),
    )


def render(figures: list[Figure]) -> str:
    lines = [
        f"{'control':14}{'timeline':10}{'writers':>8}{'commits/s':>11}{'success':>9}"
        f"{'median':>10}{'lock held':>11}{'redone':>9}{'files':>7}"
    ]
    lines += [
        f"{figure.control:14}{figure.timeline:10}{figure.writers:>8}{figure.commits_per_second:>11.1f}"
        f"{figure.success_rate:>9.1%}{figure.median_ms:>7.0f} ms{figure.lock_held_ms:>8.0f} ms"
        f"{figure.redone:>9.2f}{figure.redone_files:>7.2f}"
        for figure in figures
    ]
    return "\n".join(lines)


def plot(figures: list[Figure], path: Path) -> None:
    # Drawn only on request, so the benchmark runs without matplotlib.
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(9, 3.6), layout="constrained")
    speed, success = picture.subplots(1, 2)
    for (control, timeline), style in zip(product(MODES, TIMELINES), STYLES, strict=True):
        mine = [f for f in figures if (f.control, f.timeline) == (control, timeline)]
        counts, label = [str(figure.writers) for figure in mine], f"{control}, {timeline}"
        speed.plot(counts, [figure.commits_per_second for figure in mine], style, label=label)
        success.plot(counts, [figure.success_rate * 100 for figure in mine], style, label=label)
    speed.set(title="small commits on one table", xlabel="writers", ylabel="commits a second")
    speed.set_ylim(bottom=0)
    success.set(title="batches that got through", xlabel="writers", ylabel="%")
    success.set_ylim(0, 105)
    speed.legend()
    picture.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--writers", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--modes", choices=MODES, nargs="+", default=[*MODES])
    parser.add_argument("--timelines", choices=TIMELINES, nargs="+", default=[*TIMELINES])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, {arguments.seconds:.0f} s each, batches of {ROWS} rows")
    figures = []
    cases = product(arguments.modes, arguments.writers, arguments.timelines)
    for control, writers, timeline in cases:
        figures.append(measure(control, timeline, writers, arguments.seconds))
        print(render(figures[-1:]).splitlines()[-1], flush=True)
    print()
    print(render(figures))
    if arguments.json is not None:
        results = [
            {
                **asdict(f),
                "commits_per_second": f.commits_per_second,
                "success_rate": f.success_rate,
            }
            for f in figures
        ]
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")
    if arguments.plot is not None:
        plot(figures, arguments.plot)


if __name__ == "__main__":
    main()
