"""Indexes built beside four writer processes that commit once a second, and table services.

HEADWATER_TEST_INDEXED_FILES sets how many base files the table has; the default keeps the suite
short, and `make test-indexing` takes the full number. Where HEADWATER_TEST_LATENCIES names a file,
indexes are built three times more, for figures: how long commits took alone, beside builds and with
the indexes there. That is for a quiet machine.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from bisect import bisect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from hudi import HudiTableBuilder
from tests.support.hudi_rs import location_for_hudi_rs
from tests.support.scripts import load_script

import headwater as hw
from headwater.model.instant import State

FILES = int(os.environ.get("HEADWATER_TEST_INDEXED_FILES", "24"))
IS_FULL = FILES >= 2_000
LATENCIES = os.environ.get("HEADWATER_TEST_LATENCIES")
ROUNDS = 3 if LATENCIES else 0
"""How often the indexes are built beside writers alone, and dropped again, for the sake of figures:
one build is short."""
QUIET_S = 6.0
"""How long the writers are alone before and after each of these builds, and beside a process that
reads."""
BUILT_WITHIN_S = 1_500
"""Some hundred times what it takes: a builder that is not done by then never will be."""
MEASURED = {"INDEXING_JOB_MEASURES": "yes"}
"""For what is compared with each other: it has the time that the writers leave."""
KILLS = 5 if IS_FULL else 1
BUILDS_MAX = 15
"""How often the builder may be started: it may be done before its time to die has come."""
RUNS_S, STANDS_S = 0.05, 0.45
"""How long a builder of a tenth of the speed runs, and how long it is stopped, in turns."""
STOPPED_S_MAX = 3.0
"""How long it is stopped at most: it may have the lock in its hands then."""
JOB = Path(__file__).with_name("indexing_job.py")
SERVICES = ("_compact", "_clean")
FULL_ONLY = pytest.mark.skipif(not IS_FULL, reason="part of make test-indexing")

pytestmark = pytest.mark.timeout(3_600)


JOB_MODULE = load_script(JOB)
WRITERS = tuple(str(number) for number in range(JOB_MODULE.WRITERS if IS_FULL else 2))


class Site:
    """One table, and the processes that work on it."""

    def __init__(
        self, folder: Path, control: str, indexes: Sequence[str] = JOB_MODULE.INDEXES
    ) -> None:
        self._folder = folder
        self._control = control
        self.indexes = indexes
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._builders: list[subprocess.Popen[bytes]] = []
        self.partitions = JOB_MODULE.partition_count(control, FILES)
        self.table: hw.Table = JOB_MODULE.create(folder / "table", control, FILES)

    def start(self, *kinds: str, **variables: str) -> None:
        for kind in kinds:
            self._running[kind] = self._popen(kind, **variables)

    def start_builder(self, **variables: str) -> Builder:
        """Start the builder and return when it has begun."""
        process = self._popen("build", **variables)
        self._builders.append(process)
        builder = Builder(process)
        if not builder.wait_for_progress(1):
            builder.finish()
        return builder

    def _popen(self, kind: str, **variables: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(JOB), self.table.uri, self._control, kind]
        return subprocess.Popen(
            [*command, str(self.notes(kind))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={
                **os.environ,
                "INDEXING_JOB_PARTITIONS": str(self.partitions),
                "INDEXING_JOB_INDEXES": " ".join(self.indexes),
                **variables,
            },
        )

    def notes(self, kind: str) -> Path:
        return self._folder / f"{kind}.txt"

    def acknowledged(self, writer: str) -> list[tuple[int, float, float]]:
        """Return number, end and milliseconds of the commits that a writer was told of."""
        notes = self.notes(writer)
        whole, _, _ = (notes.read_text() if notes.exists() else "").rpartition("\n")
        parted = (line.split() for line in whole.splitlines())
        return [(int(number), float(end), float(ms)) for number, end, ms in parted]

    def wait_for_commits(self, count: int, at_most_s: float = float("inf")) -> None:
        """Wait until every writer that runs has made so many commits more."""
        wanted = {
            kind: len(self.acknowledged(kind)) + count for kind in self._running if kind in WRITERS
        }
        deadline = time.monotonic() + at_most_s
        while any(len(self.acknowledged(kind)) < number for kind, number in wanted.items()):
            self.check_alive()
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)

    @contextmanager
    def rest(self) -> Iterator[None]:
        """Have all processes finish what they do and wait."""
        told = self._folder / "rest"
        told.touch()
        said = [self.notes(kind).with_suffix(".rests") for kind in self._running]
        while not all(path.exists() for path in said):
            self.check_alive()
            time.sleep(0.05)
        yield
        told.unlink()
        for path in said:
            path.unlink()

    def check_alive(self) -> None:
        for kind, process in self._running.items():
            if process.poll() is not None:
                _, problems = process.communicate()
                pytest.fail(f"{kind} ended by itself:\n{problems.decode()[-4000:]}")

    def kill(self, kind: str) -> None:
        process = self._running.pop(kind)
        process.send_signal(signal.SIGKILL)
        process.communicate()

    def stop(self) -> None:
        """Let all processes finish what they do; none may have failed."""
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)
        ended = {kind: (one.communicate(timeout=600), one) for kind, one in self._running.items()}
        self._running.clear()
        for kind, ((_, problems), process) in ended.items():
            # One that is still starting does not know yet how to stop.
            is_stopped = process.returncode in (0, -signal.SIGTERM)
            assert is_stopped, f"{kind}: {problems.decode()[-4000:]}"

    def end(self) -> None:
        """Leave no process and no pipe behind, whatever the test found."""
        for kind in list(self._running):
            self.kill(kind)
        for builder in self._builders:
            builder.kill()
            builder.communicate()


class Builder:
    """A process that builds the indexes, and says how far it is, a line each time."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.lines = 0
        self.said = b""

    def wait_for_progress(self, lines: int) -> bool:
        """Wait until it has said something so many times more; False if it ended before."""
        assert self._process.stdout is not None
        for _ in range(lines):
            self.said = self._process.stdout.readline()
            if not self.said:
                return False
            self.lines += 1
        return True

    def kill(self) -> bool:
        """Kill it; False if it was done before that."""
        self._process.kill()
        self._process.communicate()
        assert self._process.returncode in (0, -signal.SIGKILL)
        return self._process.returncode != 0

    def finish(self) -> None:
        """Wait until it is done."""
        said, problems = self._process.communicate(timeout=BUILT_WITHIN_S)
        self.lines += said.count(b"\n")
        assert self._process.returncode == 0, f"the build failed:\n{problems.decode()[-4000:]}"

    def finish_slowly(self) -> None:
        """Wait until it is done, and stop it most of the time meanwhile."""
        deadline = time.monotonic() + BUILT_WITHIN_S
        while self._process.poll() is None and time.monotonic() < deadline:
            self._process.send_signal(signal.SIGSTOP)
            time.sleep(STANDS_S)
            self._process.send_signal(signal.SIGCONT)
            time.sleep(RUNS_S)
        self.finish()

    def finish_behind(self, site: Site) -> None:
        """Wait until it is done; whenever it has caught up, stop it until all writers are ahead."""
        deadline = time.monotonic() + BUILT_WITHIN_S
        while self.wait_for_progress(1) and time.monotonic() < deadline:
            if not self.said.endswith(b" 0\n"):
                continue
            self._process.send_signal(signal.SIGSTOP)
            # Twice each, which is more to catch up with than is small enough to end.
            site.wait_for_commits(2, at_most_s=STOPPED_S_MAX)
            self._process.send_signal(signal.SIGCONT)
        self.finish()


@pytest.mark.parametrize("control", ["non-blocking", pytest.param("optimistic", marks=FULL_ONLY)])
def test_indexes_are_built_beside_writers_and_services(
    tmp_path: Path, control: str, capsys: pytest.CaptureFixture[str]
) -> None:
    site = Site(tmp_path, control)
    site.start(*WRITERS)
    marks = []
    try:
        site.wait_for_commits(2)
        for _ in range(ROUNDS):
            # Commits take longer with every one that is not archived, so writers are alone before
            # and after what is compared with that.
            marks.append((time.monotonic(), Phase.ALONE))
            time.sleep(QUIET_S)
            marks.append((time.monotonic(), Phase.BESIDE))
            site.start_builder(**MEASURED).finish()
            published = float(site.notes("build").read_text())
            marks.append((published, Phase.INDEXED))
            _drop_indexes(site)
            marks.append((time.monotonic(), Phase.ALONE))
            time.sleep(QUIET_S)
            marks.append((time.monotonic(), Phase.BUSY))
            site.start("busy", **MEASURED)
            time.sleep(QUIET_S)
            site.kill("busy")
        site.start("services")
        marks.append((time.monotonic(), Phase.SERVED))
        site.start_builder().finish()
        with site.rest():
            _check_indexes(site)
        site.wait_for_commits(JOB_MODULE.DELETES_EVERY)
        site.stop()
    finally:
        site.end()
    _check_services(site)
    _check_indexes(site)
    _check_rows(site)
    if LATENCIES:
        with capsys.disabled():
            _report(Path(LATENCIES), site, control, marks)


@pytest.mark.parametrize("control", ["optimistic", pytest.param("non-blocking", marks=FULL_ONLY)])
def test_a_builder_killed_at_random_moments_is_resumed(tmp_path: Path, control: str) -> None:
    site = Site(tmp_path, control)
    chance = random.Random(17)
    site.start(*WRITERS, "services")
    try:
        site.wait_for_commits(1)
        whole = site.start_builder()
        whole.finish()
        _drop_indexes(site)
        kills = 0
        for _ in range(BUILDS_MAX):
            builder = site.start_builder()
            # At a random moment of its work, however long that takes here.
            builder.wait_for_progress(chance.randrange(whole.lines))
            if builder.kill():
                kills += 1
            else:
                _drop_indexes(site)
            if kills == (KILLS + 1) // 2:
                # A writer dies with the builder: what it had begun must not hold the next one up.
                site.kill(WRITERS[0])
                site.start(WRITERS[0])
            if kills == KILLS:
                break
        assert kills == KILLS, (
            f"{BUILDS_MAX} builds took too little time to be killed {KILLS} times"
        )
        site.start_builder().finish()
        site.wait_for_commits(2)
        site.stop()
    finally:
        site.end()
    site.table.services.rollback_failed_writes(wait=True)
    _check_services(site)
    _check_indexes(site)
    _check_rows(site)


def test_a_build_ends_however_slow_its_builder_is(tmp_path: Path) -> None:
    """LIV-16: whenever the builder has caught up, writers that never stop are ahead again.

    The full form has a builder of a tenth of the speed, which is stopped anywhere.
    """
    site = Site(tmp_path, "non-blocking", JOB_MODULE.INDEXES if IS_FULL else ["record_index"])
    site.start(*WRITERS)
    try:
        site.wait_for_commits(2)
        builder = site.start_builder()
        if IS_FULL:
            builder.finish_slowly()
        else:
            builder.finish_behind(site)
        site.stop()
    finally:
        site.end()
    _check_indexes(site)
    _check_rows(site)


def _drop_indexes(site: Site) -> None:
    for name in site.indexes:
        site.table.indexes.drop(name)


def _check_indexes(site: Site) -> None:
    table = site.table.reload()
    assert {"files", *site.indexes} <= set(table.config.metadata_partitions)
    problems = [
        row for row in table.inspect.validate_metadata().to_pylist() if row["problem"] != "stale"
    ]
    assert not problems, problems[:20]
    pending = [
        row
        for row in table.inspect.timeline().to_pylist()
        if row["action"] == "indexing" and row["state"] in (State.REQUESTED, State.INFLIGHT)
    ]
    assert not pending, pending


def _check_services(site: Site) -> None:
    noted = site.notes("services").read_text().splitlines()
    expected = {f"{name} {what}" for name in SERVICES for what in ("done", "left to another")}
    wrong = [line for line in noted if line not in expected]
    assert not wrong, "a service failed:\n" + "\n".join(wrong[-60:])
    for name in SERVICES:
        assert f"{name} done" in noted, f"{name} never got through"


def _check_rows(site: Site) -> None:
    """Compare the table with what its writers were told, and with what another reader finds."""
    possible: dict[str, set[int | None]] = {
        row["id"]: {row["number"]} for row in JOB_MODULE.first_rows(site.partitions).to_pylist()
    }
    for writer in WRITERS:
        done = {number for number, _, _ in site.acknowledged(writer)}
        for number in range(max(done) + 2):
            is_delete = JOB_MODULE.is_delete(number)
            for key in JOB_MODULE.batch(int(writer), number, site.partitions)["id"].to_pylist():
                before = possible.get(key, {None})
                possible[key] = {None if is_delete else number}
                if number not in done:
                    possible[key] |= before
    table = site.table.reload()
    rows = table.read_arrow().to_pylist()
    found = {row["id"]: row["number"] for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    wrong = {
        key: (found.get(key), values)
        for key, values in possible.items()
        if found.get(key) not in values
    }
    assert not wrong, f"{len(wrong)} keys are wrong, such as {list(wrong.items())[:5]}"
    assert found.keys() <= possible.keys()
    for key in random.Random(3).sample(sorted(possible), 5):
        by_key = table.read_arrow(where=f"id = '{key}'").to_pylist()
        assert {row["id"]: row["number"] for row in by_key} == (
            {key: found[key]} if key in found else {}
        )
    theirs = HudiTableBuilder.from_base_uri(location_for_hudi_rs(table)).build().read()
    assert {row["id"]: row["number"] for rows in theirs for row in rows.to_pylist()} == found


class Phase(StrEnum):
    """What there is beside the writers."""

    ALONE = "alone"
    BUSY = "busy"
    BESIDE = "beside"
    INDEXED = "indexed"
    SERVED = "served"


def _report(path: Path, site: Site, control: str, marks: Sequence[tuple[float, Phase]]) -> None:
    """Say how long commits took alone and beside builds, and what came after that.

    `marks` are the moments at which phases began.
    """
    times = [begun for begun, _ in marks]
    phases: dict[Phase, list[float]] = {phase: [] for phase in Phase}
    for writer in WRITERS:
        for _, end, ms in site.acknowledged(writer):
            first = bisect(times, end - ms / 1000) - 1
            if first < 0:
                continue  # The process had modules to load.
            met = {phase for _, phase in marks[first : bisect(times, end)]}
            phases[Phase.BESIDE if Phase.BESIDE in met else marks[first][1]].append(ms)
    ends = [*times[1:], times[-1]]
    builds = [
        end - begun
        for (begun, phase), end in zip(marks, ends, strict=True)
        if phase is Phase.BESIDE
    ]
    figures: dict[str, Any] = {
        "control": control,
        "files": FILES,
        "build_s": [round(one, 2) for one in builds],
        **{
            f"{phase}_ms": {
                "count": len(all_ms),
                "median": round(statistics.median(all_ms), 1),
                "mean": round(statistics.mean(all_ms), 1),
            }
            for phase, all_ms in phases.items()
            if all_ms
        },
    }
    print(f"\n{json.dumps(figures)}")
    with path.open("a") as out:
        out.write(f"{json.dumps(figures)}\n")
