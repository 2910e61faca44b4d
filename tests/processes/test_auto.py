"""`headwater service run --auto` beside four writers: none fails, no row is lost, and it gets on.

HEADWATER_AUTO_SECONDS sets how long; `make auto` takes ten minutes. What it prints are figures, for
a quiet machine: nothing here is judged by speed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.support.scripts import load_script

import headwater as hw
from headwater.metadata.view import view_of
from headwater.model.files import FileSlice
from headwater.services.advice.costs import amplification

SECONDS = float(os.environ.get("HEADWATER_AUTO_SECONDS", "20"))
WRITERS = 4
BATCHES_MIN = 12
"""So that every writer has left a partition behind, which clustering then finds cold."""
WAITED_S_MAX = 900.0
READS = 10
EVERY_S = "5"
JOB = Path(__file__).with_name("auto_job.py")

StartProcess = Callable[[Sequence[str]], subprocess.Popen[bytes]]

pytestmark = [pytest.mark.long, pytest.mark.timeout(SECONDS * 2 + 1800)]


class Site:
    """A table, and the writers at work on it."""

    def __init__(self, folder: Path, start_process: StartProcess) -> None:
        folder.mkdir()
        self.job = load_script(JOB)
        self.path = folder / "table"
        self._folder = folder
        self._start_process = start_process
        self._running: list[subprocess.Popen[bytes]] = []
        hw.create_table(
            self.path,
            schema=self.job.SCHEMA,
            record_key="id",
            ordering="ts",
            partition_by="city",
            table_type="MERGE_ON_READ",
            index="simple",
            options=self.job.OPTIONS,
        )

    def start_writers(self) -> None:
        for writer in range(WRITERS):
            command = [sys.executable, str(JOB), str(self.path), str(writer)]
            self._running.append(self._start_process([*command, str(self._notes(writer))]))

    def wait(self, seconds: float, look: Callable[[], object] = lambda: None) -> None:
        """Wait so long, and until every writer has written enough."""
        ends = time.monotonic() + seconds
        gives_up = ends + WAITED_S_MAX
        while time.monotonic() < ends or min(map(len, self._all_noted())) < BATCHES_MIN:
            assert time.monotonic() < gives_up, "a writer got nowhere"
            for process in self._running:
                assert process.poll() is None, process.communicate()[1].decode()[-4000:]
            look()
            time.sleep(0.5)

    def stop_writers(self) -> None:
        for process in self._running:
            process.send_signal(signal.SIGTERM)
        for process in self._running:
            _, problems = process.communicate(timeout=WAITED_S_MAX)
            assert process.returncode == 0, problems.decode()[-4000:]
        self._running.clear()

    def expected(self) -> dict[str, int]:
        """Return what every key holds after the batches that were acknowledged."""
        found: dict[str, int] = {}
        for writer in range(WRITERS):
            for number, _ in self._noted(writer):
                for key in self.job.batch(writer, number)["id"].to_pylist():
                    found[key] = number
        return found

    def mean_write_ms(self, number_max: int) -> float:
        """Return how long the first batches took, so that tables of one size are compared."""
        return statistics.mean(
            took for noted in self._all_noted() for number, took in noted if number <= number_max
        )

    def last_number(self) -> int:
        """Return the last batch that every writer has written."""
        return min(noted[-1][0] for noted in self._all_noted())

    def commit_count(self) -> int:
        return sum(map(len, self._all_noted()))

    def open(self) -> hw.Table:
        return hw.open_table(self.path, self.job.OPTIONS)

    def _notes(self, writer: int) -> Path:
        return self._folder / f"{writer}.txt"

    def _noted(self, writer: int) -> list[tuple[int, int]]:
        notes = self._notes(writer)
        lines = notes.read_text().splitlines(keepends=True) if notes.exists() else []
        whole = [line.split() for line in lines if line.endswith("\n")]
        return [(int(number), int(took)) for number, took in whole]

    def _all_noted(self) -> list[list[tuple[int, int]]]:
        return [self._noted(writer) for writer in range(WRITERS)]


def slices_of(table: hw.Table) -> list[FileSlice]:
    return view_of(table.context).slices()


def values_of(table: hw.Table) -> dict[str, int]:
    rows = table.read_arrow(columns=["id", "number"]).to_pylist()
    found = {row["id"]: row["number"] for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found


def read_ms(table: hw.Table) -> float:
    began = time.monotonic()
    table.read_arrow()
    return (time.monotonic() - began) * 1000


def test_services_that_think_get_on_beside_writers(
    tmp_path: Path, start_process: StartProcess
) -> None:
    alone = Site(tmp_path / "alone", start_process)
    alone.start_writers()
    alone.wait(SECONDS / 4)
    alone.stop_writers()

    site = Site(tmp_path / "beside", start_process)
    table = site.open()
    amplified: list[float] = []
    given = [part for key, value in site.job.OPTIONS.items() for part in ("-o", f"{key}={value}")]
    command = [sys.executable, "-m", "headwater.cli.main", "service", "run", str(site.path)]
    command += ["--auto", "--every", EVERY_S, "--output", "json", *given]
    answer = tmp_path / "report.json"
    with answer.open("w") as out, subprocess.Popen(command, stdout=out) as service:
        try:
            site.start_writers()
            site.wait(SECONDS, lambda: amplified.append(amplification(slices_of(table))))
            assert service.poll() is None, "the loop ended by itself"
            site.stop_writers()
            service.send_signal(signal.SIGTERM)
            assert service.wait(WAITED_S_MAX) == 0
        finally:
            service.kill()

    report = json.loads(answer.read_text())
    assert values_of(table) == site.expected(), "what was acknowledged is there, and nothing else"
    assert table.inspect.problems(deep=True).to_pylist() == []
    assert not [name for name in report if name.endswith("failed")], report
    assert any(name.endswith("done") for name in report), report
    _print_figures(alone, site, table, report, amplified)


def _print_figures(
    alone: Site, site: Site, table: hw.Table, report: dict[str, int], amplified: list[float]
) -> None:
    fresh = site.path.with_name("fresh")
    shutil.copytree(site.path, fresh)
    compacted = hw.open_table(fresh, site.job.OPTIONS)
    while compacted.services.compact() is not None:
        pass
    assert values_of(compacted) == values_of(table)
    plans = ("logs", "many_logs", "small_files", "unsorted", "waiting_plan")
    done = sum(report.get(f"{name} done", 0) for name in plans)
    cancelled = sum(report.get(f"{name} cancelled", 0) for name in plans)
    # In turns, so that both meet the same machine.
    taken = [(read_ms(table), read_ms(compacted)) for _ in range(READS)]
    ours, theirs = (min(times) for times in zip(*taken, strict=True))
    print()
    print(f"commits {site.commit_count()}, files {len(slices_of(table))} in use at the end")
    print(f"report {report}")
    print(f"plans finished {done}, cancelled {cancelled}")
    print(
        f"read amplification by files and bytes: median {statistics.median(amplified):.2f}, "
        f"largest {max(amplified):.2f}, at the end {amplification(slices_of(table)):.2f}"
    )
    print(f"read {ours:.0f} ms, freshly compacted {theirs:.0f} ms: {ours / theirs:.2f} times")
    last = min(site.last_number(), alone.last_number())
    beside, by_themselves = site.mean_write_ms(last), alone.mean_write_ms(last)
    print(
        f"of the first {last + 1} batches of each writer one took {beside:.0f} ms beside services, "
        f"and {by_themselves:.0f} ms alone: {beside / by_themselves:.2f} times"
    )
