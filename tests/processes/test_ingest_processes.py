"""Jobs of several kinds fill one table, killed at random moments: each row of theirs is there once.

In the long form one of the jobs is run by two processes at once.
The table has a simple index and rows are inserted, so nobody looks keys up: a file or change that
went in twice shows as rows that are there twice.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.processes.writer import OPTIONS
from tests.support.tables import FAST

import headwater as hw
from headwater.cli.main import main

KINDS = ("json", "csv", "parquet", "changes")
TWIN = "json again"
"""A second process that runs the job of the first kind."""
SIGNS_OF_WORK = ("batch ", "conflict.already_running")
ROWS = 20
WAITED_S_MAX = 600
KILLED_WITHIN_S = 0.4


class Site:
    """The table, its sources, and the processes that run the jobs."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._fed: Counter[str] = Counter()
        self.options = {**OPTIONS, **FAST}
        schema = "id string not null, kind string, value long"
        shared = {**self.options, "hoodie.write.concurrency.mode": "optimistic_concurrency_control"}
        self.table = hw.create_table(
            folder / "target", schema=schema, record_key="id", index="simple", options=shared
        )
        self.source = hw.create_table(
            folder / "source",
            schema="id string, kind string, value string",
            record_key="id",
            options=FAST,
        )
        for kind in KINDS:
            (folder / kind).mkdir()
            self.job(kind).write_text(self._job_text(kind))

    def job(self, kind: str) -> Path:
        return self.folder / f"{kind}.toml"

    def _job_text(self, kind: str) -> str:
        options = "\n".join(f'"{key}" = "{value}"' for key, value in self.options.items())
        source = f'path = "{self.folder / kind}"\nformat = "{kind}"\nbatch_files = 2'
        select = "SELECT id, kind, value FROM source"
        if kind == "changes":
            source = f'type = "table"\npath = "{self.folder / "source"}"'
            select = "SELECT id, kind, CAST(value AS bigint) AS value FROM source"
        return f"""
        name = "{kind}"
        [source]
        {source}
        [transform]
        sql = "{select}"
        [target]
        path = "{self.folder / "target"}"
        operation = "insert"
        [target.options]
        {options}
        [quarantine]
        path = "{self.folder / "bad"}"
        limit_share = 1
        [quarantine.options]
        {options}
        """

    def feed(self, kind: str) -> None:
        """Put a file into a folder, or a commit into the table, with a bad row in each."""
        number = self._fed[kind]
        self._fed[kind] += 1
        rows = rows_of(kind, number)
        target = self.folder / kind / f"{number}.{kind}"
        unseen = target.with_name(f".{number}")
        match kind:
            case "json":
                lines = [json.dumps(row) for row in rows]
                unseen.write_text("\n".join([*lines[:5], "{bad", *lines[5:]]) + "\n")
            case "csv":
                lines = [f"{row['id']},{row['kind']},{row['value']}" for row in rows]
                lines.insert(5, f"bad-{number},csv,many")
                unseen.write_text("\n".join(["id,kind,value", *lines]) + "\n")
            case "parquet":
                keyless = {"id": None, "kind": kind, "value": number}
                pq.write_table(pa.Table.from_pylist([*rows[:5], keyless, *rows[5:]]), unseen)
            case _:
                bad = {"id": f"bad-{number}", "kind": kind, "value": "many"}
                texts = [{**row, "value": str(row["value"])} for row in [*rows, bad]]
                self.source.upsert(pa.Table.from_pylist(texts))
                return
        os.replace(unseen, target)

    def start(self, process_name: str) -> None:
        said = self._stack.enter_context(self._said(process_name).open("wb"))
        job = self.job(kind_of(process_name))
        command = [sys.executable, "-m", "headwater.cli.start", "ingest", str(job)]
        process = subprocess.Popen(
            [*command, "--every", "20ms"], stdout=subprocess.DEVNULL, stderr=said
        )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        self._running[process_name] = process

    def _said(self, process_name: str) -> Path:
        return self.folder / f"{process_name}.txt"

    def wait_for_work(self, process_name: str) -> None:
        """Wait until a process has done a batch, or lost it to its twin."""
        gives_up = time.monotonic() + WAITED_S_MAX
        said = self._said(process_name)
        for look in count(1):
            if any(sign in said.read_text() for sign in SIGNS_OF_WORK):
                return
            assert self._running[process_name].poll() is None, said.read_text()
            assert time.monotonic() < gives_up, f"{process_name} does nothing"
            if look % 100 == 0:
                self.feed(kind_of(process_name))  # Its twin may have taken what there was.
            time.sleep(0.02)

    def kill(self, process_name: str) -> None:
        process = self._running.pop(process_name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)
        for name, process in self._running.items():
            code = process.wait()
            # One that is still starting does not know yet how to stop.
            assert code in (0, -signal.SIGTERM), self._said(name).read_text()
        self._running.clear()

    def finish(self) -> None:
        """Let each job take what is left."""
        for kind in KINDS:
            assert main(["ingest", str(self.job(kind)), "--output", "json"]) == 0

    def expected(self) -> Counter[tuple[str, str, int]]:
        return Counter(
            (row["id"], row["kind"], row["value"])
            for kind in KINDS
            for number in range(self._fed[kind])
            for row in rows_of(kind, number)
        )

    def expected_bad(self) -> Counter[str]:
        return Counter({kind: self._fed[kind] for kind in KINDS})


def kind_of(process_name: str) -> str:
    return process_name.split()[0]


def rows_of(kind: str, number: int) -> list[dict[str, Any]]:
    return [
        {"id": f"{kind}-{number}-{step}", "kind": kind, "value": number * ROWS + step}
        for step in range(ROWS)
    ]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(tmp_path, stack)


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.long)])
def test_killed_jobs_take_each_row_once(site: Site, kills: int) -> None:
    chance = random.Random(24 + kills)
    # In the short form only the jobs that are killed have processes; all are finished at the end.
    is_short = kills < len(KINDS)
    victims = [chance.choice(KINDS if is_short else (*KINDS, TWIN)) for _ in range(kills)]
    at_work = tuple(dict.fromkeys(victims)) if is_short else (*KINDS, TWIN)
    for kind in KINDS:
        site.feed(kind)
    for name in at_work:
        site.start(name)
    for victim in victims:
        site.wait_for_work(victim)
        for _ in range(4):
            site.feed(kind_of(victim))
            site.feed(chance.choice(KINDS))
        time.sleep(KILLED_WITHIN_S * chance.random())
        site.kill(victim)
        site.start(victim)
        site.feed(kind_of(victim))
    site.stop()
    site.finish()

    rows = site.table.reload().read_arrow().to_pylist()
    found = Counter((row["id"], row["kind"], row["value"]) for row in rows)
    assert found == site.expected()
    bad = hw.open_table(site.folder / "bad").read_arrow().to_pylist()
    assert Counter(row["job"] for row in bad) == site.expected_bad()
    reasons = {row["job"]: row["reason"] for row in bad}
    assert "end with }" in reasons["json"]
    assert "int64" in reasons["csv"]
    assert "id" in reasons["parquet"]
    assert "cannot be cast" in reasons["changes"]
    places = {row["position"] for row in bad if row["job"] != "changes"}
    assert places == {"6"}
