"""Real writer processes on one table, some of them killed: nothing acknowledged is ever lost.

HEADWATER_TEST_WRITERS and HEADWATER_TEST_COMMITS set how many there are and how many commits each
makes; the defaults keep the suite short, and `make test-writers` takes the full numbers.
"""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest
from hudi import HudiTableBuilder
from tests.support.hudi_rs import location_for_hudi_rs

import headwater as hw

WRITERS = int(os.environ.get("HEADWATER_TEST_WRITERS", "3"))
COMMITS = int(os.environ.get("HEADWATER_TEST_COMMITS", "4"))
KILLED_EACH_ROUND = max(1, WRITERS // 4)
ROUNDS = 2
SCRIPT = Path(__file__).with_name("writer.py")
MODES = ["non_blocking_concurrency_control", "optimistic_concurrency_control"]

StartProcess = Callable[[Sequence[str]], subprocess.Popen[bytes]]

# Half a second for each commit is plenty; this only ends what hangs.
pytestmark = pytest.mark.timeout(1800 + 10 * WRITERS * COMMITS)


def _load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("writer", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT_MODULE = _load_script()


class Fleet:
    """The writers of one table."""

    def __init__(self, folder: Path, mode: str, start_process: StartProcess) -> None:
        self.path = folder / "table"
        self._folder = folder
        self._start_process = start_process
        self._mode = mode
        self._next = [0] * WRITERS
        self.table = hw.create_table(
            self.path,
            schema="id string, writer long, number long, ts long",
            record_key="id",
            ordering="ts",
            table_type="MERGE_ON_READ",
            buckets=2,
            options={**SCRIPT_MODULE.OPTIONS, "hoodie.write.concurrency.mode": mode},
        )

    def start(self, commits: int) -> list[subprocess.Popen[bytes]]:
        processes = []
        for writer in range(WRITERS):
            first = self._next[writer]
            self._next[writer] += commits
            command = [sys.executable, str(SCRIPT), str(self.path), str(self._notes(writer))]
            command += [str(writer), str(first), str(first + commits), self._mode]
            processes.append(self._start_process(command))
        return processes

    def wait_for_commits(self, writer: int, count: int, process: subprocess.Popen[bytes]) -> None:
        """Wait until a writer has made so many commits of this round, or has ended."""
        begun = self._next[writer] - COMMITS
        while process.poll() is None:
            if sum(number >= begun for number in self.acknowledged(writer)) >= count:
                return
            time.sleep(0.01)

    def acknowledged(self, writer: int) -> set[int]:
        notes = self._notes(writer)
        if not notes.exists():
            return set()
        whole, _, _ = notes.read_text().rpartition("\n")
        return set(map(int, whole.split()))

    def check(self, *, killed: bool) -> None:
        """Compare the table with what its writers were told."""
        found = {
            row["id"]: (row["ts"], row["writer"], row["number"])
            for row in self.table.read_arrow().to_pylist()
        }
        assert len(found) == self.table.read_arrow().num_rows, "a key is there twice"
        certain: dict[str, int] = {}
        possible: dict[str, set[int]] = {}
        for writer in range(WRITERS):
            done = self.acknowledged(writer)
            if not killed:
                assert done == set(range(self._next[writer])), f"writer {writer} missed commits"
            for number in range(self._next[writer]):
                for row in SCRIPT_MODULE.batch(writer, number).to_pylist():
                    key, ts = row["id"], row["ts"]
                    possible.setdefault(key, set()).add(ts)
                    if number in done:
                        certain[key] = max(ts, certain.get(key, -1))
        for key, ts in certain.items():
            assert key in found, f"{key} was acknowledged and is lost"
            assert found[key][0] >= ts, (
                f"{key} was acknowledged at {ts}, the table has {found[key]}"
            )
        for key, (ts, writer, number) in found.items():
            assert ts in possible[key]
            assert ts == number * 100 + writer, f"{key} mixes two rows"
            assert killed or ts == certain[key]
        theirs = HudiTableBuilder.from_base_uri(location_for_hudi_rs(self.table)).build().read()
        rows = [row for rows in theirs for row in rows.to_pylist()]
        assert {row["id"]: (row["ts"], row["writer"], row["number"]) for row in rows} == found

    def _notes(self, writer: int) -> Path:
        return self._folder / f"acknowledged-{writer}"


def _finish(process: subprocess.Popen[bytes]) -> None:
    _, problems = process.communicate()
    assert process.returncode == 0, problems.decode()[-3000:]


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
def test_writers_lose_nothing(tmp_path: Path, mode: str, start_process: StartProcess) -> None:
    fleet = Fleet(tmp_path, mode, start_process)
    for process in fleet.start(COMMITS):
        _finish(process)
    fleet.check(killed=False)


@pytest.mark.parametrize("mode", MODES)
def test_writers_of_which_some_are_killed_each_round_lose_nothing(
    tmp_path: Path, mode: str, start_process: StartProcess
) -> None:
    fleet = Fleet(tmp_path, mode, start_process)
    chance = random.Random(7)
    for _ in range(ROUNDS):
        processes = fleet.start(COMMITS)
        victims = chance.sample(range(WRITERS), KILLED_EACH_ROUND)
        for victim in victims:
            # Somewhere between its first commit and its last one, and anywhere in between two.
            fleet.wait_for_commits(victim, chance.randrange(1, COMMITS), processes[victim])
            time.sleep(chance.random() * 0.2)
            processes[victim].send_signal(signal.SIGKILL)
            processes[victim].communicate()
        for writer, process in enumerate(processes):
            if writer not in victims:
                _finish(process)
    fleet.check(killed=True)
