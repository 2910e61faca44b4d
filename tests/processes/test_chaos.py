"""Ingestion, and three processes that run all services, and every few seconds one is killed.

HEADWATER_CHAOS_SECONDS sets how long; the default keeps the suite short, `make chaos` takes five
minutes. A process is killed only after it has done something, however long that takes it.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest
from hudi import HudiTableBuilder
from tests.support.collecting import Ledger, in_ledger
from tests.support.hudi_rs import location_for_hudi_rs
from tests.support.scripts import load_script

import headwater as hw
from headwater.kernel.layout import CANCEL_COUNT, CANCELS
from headwater.kernel.txn.cancel_records import decode_count
from headwater.model.instant import Action, State
from headwater.seams.meters import Metric, listen, stop_listening
from headwater.seams.metrics import COMMITS, CONFLICTS, PLANS, ROLLBACKS

SECONDS = float(os.environ.get("HEADWATER_CHAOS_SECONDS", "6"))
KILLED_WITHIN_S = 2.0
KILLS_MIN = 5
WAITED_S_MAX = 900.0
JOB = Path(__file__).with_name("chaos_job.py")
KINDS = ("ingest", "0", "1", "2")
SERVICES = ("compact", "cluster", "retain")
INSTANTS_MAX = 60
"""Twelve commits and what services did between them, with some room for those that are pending."""

StartProcess = Callable[[Sequence[str]], subprocess.Popen[bytes]]

pytestmark = pytest.mark.timeout(SECONDS + 1800)


class Site:
    """The processes, and what they noted."""

    def __init__(self, folder: Path, start_process: StartProcess) -> None:
        self.path = folder / "table"
        self.ledger = folder / "ledger.txt"
        self.kills: Counter[str] = Counter()
        self._folder = folder
        self._start_process = start_process
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._size_at_start: dict[str, int] = {}

    def notes(self, kind: str) -> Path:
        return self._folder / f"{kind}.txt"

    def noted(self, *kinds: str) -> str:
        notes = map(self.notes, kinds)
        return "".join(path.read_text() for path in notes if path.exists())

    def start(self, kind: str) -> None:
        self._size_at_start[kind] = len(self.noted(kind))
        given = map(str, (JOB, self.path, kind, self.notes(kind), self.ledger))
        self._running[kind] = self._start_process([sys.executable, *given])

    def has_worked(self, kind: str) -> bool:
        """Return whether a process has noted anything since it was started."""
        return len(self.noted(kind)) > self._size_at_start[kind]

    def is_done(self, service: str) -> bool:
        return f"{service} done\n" in self.noted(*KINDS[1:])

    def wait_until(self, has_happened: Callable[[str], bool], what: str) -> None:
        gives_up = time.monotonic() + WAITED_S_MAX
        while not has_happened(what):
            self.check_alive()
            assert time.monotonic() < gives_up, f"{what} never got through"
            time.sleep(0.05)

    def check_alive(self) -> None:
        for kind, process in self._running.items():
            if process.poll() is not None:
                _, problems = process.communicate()
                pytest.fail(f"{kind} ended by itself:\n{problems.decode()[-4000:]}")

    def kill(self, kind: str) -> None:
        self.kills[kind] += 1
        process = self._running.pop(kind)
        process.send_signal(signal.SIGKILL)
        process.communicate()

    def stop(self) -> None:
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)
        for kind, process in self._running.items():
            _, problems = process.communicate()
            # One that is still starting does not know yet how to stop.
            is_stopped = process.returncode in (0, -signal.SIGTERM)
            assert is_stopped, f"{kind}: {problems.decode()[-4000:]}"
        self._running.clear()


def test_services_and_ingestion_survive_kills(tmp_path: Path, start_process: StartProcess) -> None:
    job = load_script(JOB)
    site = Site(tmp_path, start_process)
    hw.create_table(
        site.path,
        schema=job.batch(0).schema,
        record_key="id",
        ordering="ts",
        table_type="MERGE_ON_READ",
        buckets=2,
        options=job.OPTIONS,
    )
    chance = random.Random(11)
    for kind in KINDS:
        site.start(kind)
    ends = time.monotonic() + SECONDS
    kills = 0
    while time.monotonic() < ends or kills < KILLS_MIN:
        kills += 1
        victim = chance.choice(KINDS)
        site.wait_until(site.has_worked, victim)
        time.sleep(KILLED_WITHIN_S * chance.random())
        site.check_alive()
        site.kill(victim)
        site.start(victim)
    for name in SERVICES:
        site.wait_until(site.is_done, name)
    site.wait_until(site.has_worked, "ingest")
    site.stop()

    ledger = Ledger(site.ledger)
    listen(ledger)
    try:
        table = hw.open_table(site.path, job.OPTIONS)
        _settle(table)
    finally:
        stop_listening(ledger)
    _check_services(site)
    _check_rows(table, job, site)
    _check_metrics(table, site)
    timeline = table.inspect.timeline()
    assert timeline.num_rows < INSTANTS_MAX, timeline["action"].to_pylist()
    states = set(timeline["state"].to_pylist())
    assert states <= {State.COMPLETED, State.ABORTED}, timeline.to_pylist()
    assert table.storage.list_names(CANCELS) == []


def _settle(table: hw.Table) -> None:
    """Let a last process finish what the killed ones left."""
    table.services.rollback_failed_writes(wait=True)
    while table.services.compact() is not None:
        pass
    while (plan := _pending_clustering(table)) is not None:
        table.services.cluster(plan)
    table.services.clean()
    table.services.archive()


def _pending_clustering(table: hw.Table) -> str | None:
    for row in table.inspect.timeline().to_pylist():
        if row["action"] == "clustering" and row["state"] in (State.REQUESTED, State.INFLIGHT):
            return str(row["requested_time"])
    return None


def _check_services(site: Site) -> None:
    noted = site.noted(*KINDS[1:]).splitlines()
    expected = {f"{name} {what}" for name in SERVICES for what in ("done", "left to another")}
    wrong = [line for line in noted if line not in expected]
    assert not wrong, "a service failed:\n" + "\n".join(wrong[-60:])


def _check_metrics(table: hw.Table, site: Site) -> None:
    """What was counted is what the timeline shows.

    A process that is killed may have written an end of an instant and not have counted it: no more
    than one, for it counts before it goes on. Nothing is counted that did not happen.
    """

    def counted_of(metric: Metric, **labels: str) -> float:
        return in_ledger(site.ledger, metric, table=table.uri, **labels)

    ingests, kills = site.kills["ingest"], site.kills.total()
    found = _completed(table)
    committed = counted_of(COMMITS, outcome="ok")
    acknowledged = len(site.noted("ingest").split())
    assert acknowledged <= committed <= acknowledged + ingests
    assert committed <= found[Action.DELTA_COMMIT] <= committed + ingests
    # A write loses only against a clustering that replaced its file groups, and tries again.
    lost = counted_of(COMMITS, outcome="conflict")
    assert counted_of(COMMITS) == committed + lost
    assert lost <= counted_of(CONFLICTS, strategy="commit") <= lost + ingests
    for action in (Action.COMPACTION, Action.CLUSTERING, Action.CLEAN, Action.ROLLBACK):
        counted = counted_of(PLANS, action=action, event="completed")
        assert counted <= found[action.completed_name] <= counted + kills, action
        assert counted <= counted_of(PLANS, action=action, event="scheduled") + kills
    rollbacks = counted_of(ROLLBACKS)
    assert rollbacks <= found[Action.ROLLBACK] <= rollbacks + kills
    aborted = decode_count(table.storage.read(CANCEL_COUNT)).times if _has_count(table) else 0
    for event in ("cancelled", "aborted"):
        counted = counted_of(PLANS, event=event)
        assert counted <= aborted <= counted + kills, event


def _completed(table: hw.Table) -> Counter[Action]:
    """Return how many instants have completed, by action; those of the archived timeline too."""
    instants = [*table.context.load_timeline().completed]
    instants += table.context.commit_reader().history.instants()
    actions = {one.requested_time: one.action.completed_name for one in instants}
    return Counter(actions.values())


def _has_count(table: hw.Table) -> bool:
    folder, _, name = CANCEL_COUNT.rpartition("/")
    return name in table.storage.list_names(folder)


def _check_rows(table: hw.Table, job: ModuleType, site: Site) -> None:
    found = {row["id"]: row["number"] for row in table.read_arrow().to_pylist()}
    assert len(found) == table.read_arrow().num_rows, "a key is there twice"
    acknowledged = [int(number) for number in site.noted("ingest").split()]
    assert acknowledged, "nothing was ingested"
    certain: dict[str, int] = {}
    possible: dict[str, set[int]] = {}
    noted = set(acknowledged)
    for number in range(acknowledged[-1] + 2):
        for key in job.batch(number)["id"].to_pylist():
            possible.setdefault(key, set()).add(number)
            if number in noted:
                certain[key] = number
    for key, number in certain.items():
        assert key in found, f"{key} of batch {number} was acknowledged and is lost"
        assert found[key] >= number, f"{key} was acknowledged by {number}, found {found[key]}"
    for key, number in found.items():
        assert number in possible[key], f"{key} holds {number}, which nobody wrote"
    theirs = HudiTableBuilder.from_base_uri(location_for_hudi_rs(table)).build().read()
    assert {row["id"]: row["number"] for rows in theirs for row in rows.to_pylist()} == found
