"""Jobs of several kinds fill one table, killed at random moments: each row of theirs is there once.

In the long form one of the jobs is run by two processes at once, and one reads a topic of Kafka
where a broker can be had (`make kafka`). The table has a simple index and rows are inserted, so
nobody looks keys up: a file or change that went in twice shows as rows that are there twice.
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
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.processes.writer import OPTIONS
from tests.support.kafka_server import PARTITIONS, Broker, find_package, run_kafka
from tests.support.server_processes import CannotRunServer
from tests.support.tables import FAST

import headwater as hw
from headwater.cli.main import main

KINDS = ("json", "csv", "parquet", "changes")
KAFKA = "kafka"
TWIN = "json again"
"""A second process that runs the job of the first kind."""
SIGNS_OF_WORK = ("batch ", "conflict.already_running")
ROWS = 20
WAITED_S_MAX = 600
KILLED_WITHIN_S = 0.4


class Site:
    """The table, its sources, and the processes that run the jobs."""

    def __init__(self, folder: Path, stack: ExitStack, broker: Broker | None = None) -> None:
        self.folder = folder
        self.kinds = KINDS if broker is None else (*KINDS, KAFKA)
        self._stack = stack
        self._broker = broker
        self._producing = ExitStack()
        self._stack.push(self._producing)
        self._topic: subprocess.Popen[str] | None = None
        if broker is not None:
            self._topic = self._producing.enter_context(broker.producer(KAFKA))
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
        for kind in self.kinds:
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
        elif self._broker is not None and kind == KAFKA:
            servers = f'servers = "{self._broker.address}"\nbatch_records = 50'
            source = f'type = "kafka"\ntopic = "{KAFKA}"\npartitions = {PARTITIONS}\n{servers}'
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
        lines = [json.dumps(row) for row in rows]
        with_bad = "\n".join([*lines[:5], "{bad", *lines[5:]]) + "\n"
        if kind == KAFKA:
            assert self._topic is not None
            assert self._topic.stdin is not None
            self._topic.stdin.write(with_bad)
            self._topic.stdin.flush()
            return
        target = self.folder / kind / f"{number}.{kind}"
        unseen = target.with_name(f".{number}")
        match kind:
            case "json":
                unseen.write_text(with_bad)
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
            [*command, "--every", "20ms"],
            stdout=subprocess.DEVNULL,
            stderr=said,
            env=environment_of(kind_of(process_name)),
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
        self._producing.close()
        for kind in self.kinds:
            command = ["ingest", str(self.job(kind)), "--output", "json"]
            if kind == KAFKA:
                # By itself, because a session of Spark stays with its process.
                done = subprocess.run(
                    [sys.executable, "-m", "headwater.cli.start", *command],
                    capture_output=True,
                    text=True,
                    check=False,
                    env=environment_of(kind),
                )
                assert done.returncode == 0, done.stderr
            else:
                assert main(command) == 0

    def expected(self) -> Counter[tuple[str, str, int]]:
        return Counter(
            (row["id"], row["kind"], row["value"])
            for kind in self.kinds
            for number in range(self._fed[kind])
            for row in rows_of(kind, number)
        )

    def expected_bad(self) -> Counter[str]:
        return Counter({kind: self._fed[kind] for kind in self.kinds})


def environment_of(kind: str) -> dict[str, str]:
    """Return what a process is given: to Spark, its package for Kafka."""
    if kind != KAFKA:
        return dict(os.environ)
    jars = ",".join(map(str, find_package(version("pyspark"))))
    return {**os.environ, "PYSPARK_SUBMIT_ARGS": f"--jars {jars} pyspark-shell"}


def kind_of(process_name: str) -> str:
    return process_name.split()[0]


def rows_of(kind: str, number: int) -> list[dict[str, Any]]:
    return [
        {"id": f"{kind}-{number}-{step}", "kind": kind, "value": number * ROWS + step}
        for step in range(ROWS)
    ]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_killed_jobs_take_each_row_once(tmp_path: Path, stack: ExitStack) -> None:
    chance = random.Random(26)
    victims = [chance.choice(KINDS) for _ in range(2)]
    # Only the jobs that are killed have processes; all are finished at the end.
    check_killed_jobs(Site(tmp_path, stack), chance, victims, at_work=dict.fromkeys(victims))


@pytest.mark.long
def test_many_killed_jobs_take_each_row_once(tmp_path: Path, stack: ExitStack) -> None:
    chance = random.Random(44)
    at_work = (*KINDS, TWIN)
    victims = [chance.choice(at_work) for _ in range(20)]
    check_killed_jobs(Site(tmp_path, stack), chance, victims, at_work=at_work)


@pytest.mark.long
def test_killed_jobs_take_each_record_of_a_topic_once(tmp_path: Path, stack: ExitStack) -> None:
    try:
        find_package(version("pyspark"))
        broker = stack.enter_context(run_kafka(tmp_path / "broker"))
    except CannotRunServer as missing:
        pytest.skip(f"no Kafka: {missing}")
    chance = random.Random(24)
    at_work = ("json", "changes", KAFKA)
    victims = [chance.choice(at_work) for _ in range(20)]
    check_killed_jobs(Site(tmp_path, stack, broker), chance, victims, at_work=at_work)


def check_killed_jobs(
    site: Site, chance: random.Random, victims: Iterable[str], at_work: Iterable[str]
) -> None:
    for kind in site.kinds:
        site.feed(kind)
    for name in at_work:
        site.start(name)
    for victim in victims:
        site.wait_for_work(victim)
        for _ in range(4):
            site.feed(kind_of(victim))
            site.feed(chance.choice(site.kinds))
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
    for kind in {"json", KAFKA} & reasons.keys():
        assert "end with }" in reasons[kind]
    assert "int64" in reasons["csv"]
    assert "id" in reasons["parquet"]
    assert "cannot be cast" in reasons["changes"]
    places = {row["position"] for row in bad if row["job"] in ("json", "csv", "parquet")}
    assert places == {"6"}
