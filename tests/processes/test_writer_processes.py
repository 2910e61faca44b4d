"""Real writer processes on one table: nothing acknowledged is ever lost.

Some of them are killed, some all bring the same new keys at once, and some write beside services
and restores to savepoints.

HEADWATER_TEST_WRITERS and HEADWATER_TEST_COMMITS set how many there are and how many commits each
makes; the defaults keep the suite short, and `make test-writers` takes the full numbers.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hudi import HudiTableBuilder
from tests.support.hudi_rs import location_for_hudi_rs
from tests.support.scripts import load_script

import headwater as hw
from headwater.metadata.view import load_view

IS_SHORT = "HEADWATER_TEST_WRITERS" not in os.environ
WRITERS = int(os.environ.get("HEADWATER_TEST_WRITERS", "3"))
COMMITS = int(os.environ.get("HEADWATER_TEST_COMMITS", "4"))
WRITERS_APART = 2 if IS_SHORT else WRITERS
"""How many there are of those that are not killed."""
KILLED_EACH_ROUND = max(1, WRITERS // 4)
ROUNDS = 2
SCRIPT = Path(__file__).with_name("writer.py")
RESTORE_SCRIPT = Path(__file__).with_name("restore_job.py")
NON_BLOCKING = "non_blocking_concurrency_control"
OPTIMISTIC = "optimistic_concurrency_control"
MODES = [NON_BLOCKING, OPTIMISTIC]
STAYING = {
    "hoodie.simple.index.update.partition.path": "false",
    "hoodie.bloom.index.update.partition.path": "false",
    "hoodie.record.index.update.partition.path": "false",
}
INDEX_KINDS = (
    "bucket",
    "simple",
    "bloom",
    "record_level_index",
    "global_simple",
    "global_bloom",
    "record_index",
)

StartProcess = Callable[[Sequence[str]], subprocess.Popen[bytes]]

# Half a second for each commit is plenty; this only ends what hangs.
pytestmark = pytest.mark.timeout(1800 + 10 * WRITERS * COMMITS)


SCRIPT_MODULE = load_script(SCRIPT)


class Fleet:
    """The writers of one table."""

    def __init__(
        self,
        folder: Path,
        mode: str,
        start_process: StartProcess,
        *,
        table_type: str = "MERGE_ON_READ",
        index: str = "bucket",
        collides: bool = False,
        writers: int = WRITERS,
    ) -> None:
        self.path = folder / "table"
        self._folder = folder
        self._start_process = start_process
        self._mode = mode
        self._collides = collides
        self._is_global = index in ("global_simple", "global_bloom", "record_index")
        self._next = [0] * writers
        self.table = hw.create_table(
            self.path,
            schema="id string, writer long, number long, ts long" + ", city string" * collides,
            record_key="id",
            ordering="ts",
            table_type=table_type,
            index=index,
            buckets=2 if index == "bucket" else None,
            partition_by="city" if collides else None,
            options={**SCRIPT_MODULE.OPTIONS, **STAYING, "hoodie.write.concurrency.mode": mode},
        )

    def start(self, commits: int) -> list[subprocess.Popen[bytes]]:
        processes = []
        for writer in range(len(self._next)):
            first = self._next[writer]
            self._next[writer] += commits
            command = [sys.executable, str(SCRIPT), str(self.path), str(self._notes(writer))]
            command += [str(writer), str(first), str(first + commits), self._mode]
            command += [str(len(self._next))] * self._collides
            processes.append(self._start_process(command))
        return processes

    def start_beside(self, role: str) -> subprocess.Popen[bytes]:
        """Start a process that serves the table, or restores it."""
        command = [sys.executable, str(RESTORE_SCRIPT), str(self.path), role]
        return self._start_process([*command, str(self._folder / role), self._mode])

    def taken_back(self) -> set[str]:
        """Return the instants that restores say they took back."""
        notes = self._folder / "restores"
        return set(notes.read_text().split()) if notes.exists() else set()

    def wait_for_commits(self, writer: int, count: int, process: subprocess.Popen[bytes]) -> None:
        """Wait until a writer has made so many commits of this round, or has ended."""
        begun = self._next[writer] - COMMITS
        while process.poll() is None:
            if sum(number >= begun for number in self.acknowledged(writer)) >= count:
                return
            time.sleep(0.01)

    def acknowledged(self, writer: int) -> dict[int, str]:
        found: dict[int, str] = SCRIPT_MODULE.acknowledged(self._notes(writer))
        return found

    def batch(self, writer: int, number: int) -> Iterable[dict[str, Any]]:
        if self._collides:
            found = SCRIPT_MODULE.colliding_batch(writer, number, is_global=self._is_global)
        else:
            found = SCRIPT_MODULE.batch(writer, number)
        rows: list[dict[str, Any]] = found.to_pylist()
        return rows

    def check(self, *, killed: bool) -> None:
        """Compare the table with what its writers were told."""
        found = {
            row["id"]: (row["ts"], row["writer"], row["number"])
            for row in self.table.read_arrow().to_pylist()
        }
        assert len(found) == self.table.read_arrow().num_rows, "a key is there twice"
        certain: dict[str, int] = {}
        possible: dict[str, set[int]] = {}
        taken_back = self.taken_back()
        for writer in range(len(self._next)):
            done = self.acknowledged(writer)
            if not killed:
                assert set(done) == set(range(self._next[writer])), f"writer {writer} missed some"
            for number in range(self._next[writer]):
                if done.get(number) in taken_back:
                    continue
                for row in self.batch(writer, number):
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
            assert ts in possible.get(key, ()), f"{key} at {ts} was taken back, or never written"
            assert ts == number * 100 + writer, f"{key} mixes two rows"
            assert killed or ts == certain[key]
        if not any(one.logs for one in load_view(self.table.storage, self.table.config).slices()):
            return  # hudi-rs merges; where there is nothing to merge it tells nothing new.
        theirs = HudiTableBuilder.from_base_uri(location_for_hudi_rs(self.table)).build().read()
        rows = [row for rows in theirs for row in rows.to_pylist()]
        assert {row["id"]: (row["ts"], row["writer"], row["number"]) for row in rows} == found

    def check_is_clean(self) -> None:
        """Nothing is wrong with the table, no key is there twice, and indexes say what is there."""
        self.table.services.clean()
        assert self.table.inspect.problems(deep=True).to_pylist() == []
        assert self.table.inspect.doubled_keys().num_rows == 0
        problems = self.table.inspect.validate_metadata()["problem"].to_pylist()
        assert set(problems) <= {"stale"}

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


@pytest.mark.parametrize("mode", [NON_BLOCKING, pytest.param(OPTIMISTIC, marks=pytest.mark.long)])
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


LONG_BUT = {k: [] if k == "record_index" else [pytest.mark.long] for k in INDEX_KINDS}
RESTORED = [
    pytest.param("bucket", "MERGE_ON_READ", NON_BLOCKING),
    pytest.param("bucket", "MERGE_ON_READ", OPTIMISTIC, marks=pytest.mark.long),
    pytest.param("simple", "COPY_ON_WRITE", OPTIMISTIC, marks=pytest.mark.long),
    pytest.param("bloom", "MERGE_ON_READ", OPTIMISTIC, marks=pytest.mark.long),
    pytest.param("record_index", "MERGE_ON_READ", OPTIMISTIC, marks=pytest.mark.long),
]


@pytest.mark.parametrize("index", [pytest.param(k, marks=LONG_BUT[k]) for k in INDEX_KINDS])
def test_inv_94_new_keys_that_all_writers_bring_at_once_are_there_once(
    tmp_path: Path, index: str, start_process: StartProcess
) -> None:
    table_type = "COPY_ON_WRITE" if index in ("simple", "global_bloom") else "MERGE_ON_READ"
    fleet = Fleet(
        tmp_path,
        OPTIMISTIC,
        start_process,
        table_type=table_type,
        index=index,
        collides=True,
        writers=WRITERS_APART,
    )
    for process in fleet.start(max(2, COMMITS // 2)):
        _finish(process)
    fleet.check(killed=False)
    fleet.check_is_clean()


@pytest.mark.parametrize(("index", "table_type", "mode"), RESTORED)
def test_writers_beside_services_and_restores_agree_on_what_stands(
    tmp_path: Path, index: str, table_type: str, mode: str, start_process: StartProcess
) -> None:
    fleet = Fleet(
        tmp_path, mode, start_process, table_type=table_type, index=index, writers=WRITERS_APART
    )
    beside = [fleet.start_beside(role) for role in ("services", "restores")]
    # Until a restore has met commits: on a busy machine the writers may be done before the first.
    while not fleet.taken_back():
        assert [process.poll() for process in beside] == [None, None]
        for process in fleet.start(COMMITS):
            _finish(process)
    for process in beside:
        process.send_signal(signal.SIGTERM)
        _finish(process)
    fleet.check(killed=False)
    fleet.check_is_clean()
