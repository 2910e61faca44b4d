"""Apache Hudi and we write to one table at the same time, each beside the services of the other.

`make soak-hudi` takes ten minutes for each case and kills processes of both sides meanwhile. What
was acknowledged must be there at the end, once; what was not must be there whole or not at all.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.hudi.soak_batches import OWN, SCHEMA, batch
from tests.support.beside_hudi import YES, shows
from tests.support.hudi_peer import Bundle, HudiError, HudiPeer, NoHudiError, find_bundle
from tests.support.server_processes import CannotRunServer
from tests.support.tables import COW, MOR, a_table
from tests.support.two_readers import META, TwoReaders, without
from tests.support.zookeeper_server import run_zookeeper

from headwater.table import Table

SECONDS = float(os.environ.get("HEADWATER_SOAK_SECONDS", "20"))
IS_LONG = SECONDS >= 60
COMMITS_MIN = 3
"""How many each side acknowledges at least, however long that takes."""
DEADLINE_S = 1_800
KILLED_EVERY_S = 30.0
HERE = Path(__file__).parent

OURS = {
    "hoodie.write.lock.wait_time_ms": "600000",
    "hoodie.clean.commits.retained": "6",
    "hoodie.keep.min.commits": "12",
    "hoodie.keep.max.commits": "16",
    "headwater.storage.fsync": "false",
}
THEIRS = {
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.clean.automatic": "true",
    "hoodie.clean.commits.retained": "6",
    "hoodie.archive.automatic": "true",
    "hoodie.keep.min.commits": "12",
    "hoodie.keep.max.commits": "16",
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
    "hoodie.upsert.shuffle.parallelism": "2",
    "hoodie.write.lock.wait_time_ms": "60000",
    "hoodie.write.lock.num_retries": "10",
    "hoodie.metadata.index.column.stats.enable": "false",
    "hoodie.metadata.global.record.level.index.enable": "false",
}
FILE_LOCK = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
ZOOKEEPER_LOCK = "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider"


class Case(NamedTuple):
    table_type: str
    control: str
    lock: str
    index_type: str = "bucket"

    @property
    def hudi_index(self) -> dict[str, str]:
        if self.index_type == "bucket":
            return {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}
        return {"hoodie.index.type": self.index_type.upper()}


OPTIMISTIC = "optimistic_concurrency_control"
NON_BLOCKING = "non_blocking_concurrency_control"
CASES = {
    "non-blocking": Case(MOR, NON_BLOCKING, "filesystem"),
    "optimistic cow": Case(COW, OPTIMISTIC, "filesystem", "simple"),
    "optimistic mor, zookeeper": Case(MOR, OPTIMISTIC, "zookeeper"),
}


@contextmanager
def locks(case: Case, folder: Path) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Give the options that make both sides take one lock: ours, and theirs."""
    if case.lock == "filesystem":
        expire = {"hoodie.write.lock.filesystem.expire": "1"}
        yield (
            {"hoodie.write.lock.provider": "filesystem", **expire},
            {"hoodie.write.lock.provider": FILE_LOCK, **expire},
        )
        return
    try:
        with run_zookeeper(folder) as address:
            host, port = address.split(":")
            where = {
                "hoodie.write.lock.zookeeper.url": host,
                "hoodie.write.lock.zookeeper.port": port,
                "hoodie.write.lock.zookeeper.base_path": "/soak",
                "hoodie.write.lock.zookeeper.lock_key": "trips",
            }
            yield (
                {"hoodie.write.lock.provider": "zookeeper", **where},
                # Hudi connects to what the URL says, and does not look at the port.
                {
                    "hoodie.write.lock.provider": ZOOKEEPER_LOCK,
                    **where,
                    "hoodie.write.lock.zookeeper.url": address,
                },
            )
    except CannotRunServer as missing:
        pytest.skip(str(missing))


class OurJob:
    """A process of ours, started again after each kill."""

    def __init__(
        self, table: Table, kind: str, notes: Path, options: Mapping[str, str], pause_s: float
    ) -> None:
        self._command = [
            sys.executable,
            str(HERE / "soak_job.py"),
            table.uri,
            kind,
            str(notes),
            json.dumps(dict(options)),
            str(pause_s),
        ]
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self.notes = notes
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(self._command, env=self._environment)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._start()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(DEADLINE_S) == 0, self._command

    def abandon(self) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def told(self) -> list[str]:
        return self.notes.read_text().splitlines() if self.notes.exists() else []


class Theirs:
    """Hudi's side: one thread that drives a session, started again after each kill."""

    def __init__(self, bundle: Bundle, path: str, options: Mapping[str, str]) -> None:
        self._bundle = bundle
        self._path = path
        self._options = dict(options)
        self._is_over = threading.Event()
        self.acknowledged: list[int] = []
        self.errors: list[str] = []
        self.kills = 0
        self._peer: HudiPeer | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._is_over.is_set():
            with suppress(HudiError), HudiPeer(self._bundle) as peer:
                self._peer = peer
                while not self._is_over.is_set():
                    try:
                        peer.write(batch("theirs", number), self._path, self._options)
                        self.acknowledged.append(number)
                    except (HudiError, BrokenPipeError) as error:
                        self.errors.append(str(error))
                        if "process ended" in str(error) or isinstance(error, BrokenPipeError):
                            break
                    finally:
                        number += 1
                    self._is_over.wait(0.5)

    def kill(self) -> None:
        peer = self._peer
        if peer is None:
            return
        found = subprocess.run(
            ["pgrep", "-P", str(peer.pid)], capture_output=True, text=True, check=False
        )
        for process in (*found.stdout.split(), str(peer.pid)):
            with suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)
        self.kills += 1

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()


@pytest.mark.parametrize("name", CASES)
@shows(
    "upserts under optimistic control, locks of files and of ZooKeeper",
    we_read=YES,
    we_write=YES,
    they_read=YES,
    both=YES,
)
@shows("upserts under non-blocking control", we_read=YES, we_write=YES, they_read=YES, both=YES)
def test_nothing_is_lost_doubled_or_stuck(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    try:
        bundle = find_bundle()
    except NoHudiError as missing:
        pytest.skip(str(missing))
    with ExitStack() as stack:
        ours, theirs = stack.enter_context(locks(case, tmp_path / "zookeeper"))
        control = {"hoodie.write.concurrency.mode": case.control}
        options = {**OURS, **ours, **control}
        builder = a_table(
            tmp_path,
            SCHEMA,
            partition_by="city",
            ordering="ts",
            table_type=case.table_type,
            index=case.index_type,
            buckets=2 if case.index_type == "bucket" else None,
        )
        table = builder.with_options(options).create()
        table.upsert(batch("ours", 1_000_000))
        hudi_options = {
            **THEIRS,
            **theirs,
            **case.hudi_index,
            "hoodie.write.concurrency.mode": case.control.upper(),
            "hoodie.table.name": table.name,
        }
        if case.table_type == MOR:
            hudi_options |= {
                "hoodie.compact.inline": "true",
                "hoodie.compact.inline.max.delta.commits": "4",
            }
        # Under optimistic control the slower side, which is Hudi, would lose to us every time.
        pause_s = 0.5 if case.control == NON_BLOCKING else 15.0
        writer = OurJob(table, "write", tmp_path / "written", options, pause_s)
        stack.callback(writer.abandon)
        services = OurJob(table, "serve", tmp_path / "served", options, pause_s)
        stack.callback(services.abandon)
        peer = Theirs(bundle, table.uri, hudi_options)
        run(writer, services, peer)
        peer.stop()
        writer.stop()
        services.stop()
        table = table.reload()
        with HudiPeer(bundle) as hudi:
            check(table, hudi, writer, services, peer)


def run(writer: OurJob, services: OurJob, peer: Theirs) -> None:
    """Wait until the time is over and both have committed; kill processes if there is time."""
    began = time.monotonic()
    next_kill = began + KILLED_EVERY_S
    chance = random.Random(7)
    while True:
        now = time.monotonic()
        are_done = min(len(peer.acknowledged), len(writer.told)) >= COMMITS_MIN
        if now > began + SECONDS and are_done:
            return
        assert now < began + SECONDS + DEADLINE_S, (peer.errors[-1:], writer.told[-3:])
        if IS_LONG and now > next_kill:
            chance.choice([writer.kill, services.kill, peer.kill])()
            next_kill = now + KILLED_EVERY_S
        time.sleep(0.5)


def check(table: Table, hudi: HudiPeer, writer: OurJob, services: OurJob, peer: Theirs) -> None:
    """All that was acknowledged is there once, whoever reads; the rest whole or not at all."""
    failed = [line for line in services.told if line.startswith("error")]
    assert not failed, "\n".join(services.told[-30:])
    found = without(TwoReaders(hudi, table).check_snapshot("afterwards"), META)
    keys = Counter(row["id"] for row in found)
    assert keys.most_common(1)[0][1] == 1, keys.most_common(3)
    by_batch: Counter[tuple[str, int]] = Counter()
    for row in found:
        if not row["id"].startswith("both-"):
            by_batch[(row["writer"], row["number"])] += 1
    assert set(by_batch.values()) == {OWN}, "a batch is there in part"
    acknowledged = {("theirs", number) for number in peer.acknowledged}
    acknowledged |= {("ours", int(number)) for number in writer.told}
    assert acknowledged <= by_batch.keys(), sorted(acknowledged - by_batch.keys())
    check_shared(found, acknowledged)
    problems: list[dict[str, Any]] = table.inspect.problems(deep=True).to_pylist()
    assert problems == []
    told = table.inspect.validate_metadata().to_pylist()
    assert [one for one in told if one["problem"] != "stale"] == []
    print(
        f"ours {len(writer.told)}, theirs {len(peer.acknowledged)} of "
        f"{len(peer.acknowledged) + len(peer.errors)}, {peer.kills} kills of theirs, "
        f"services {Counter(services.told).most_common()}"
    )


def check_shared(found: list[dict[str, Any]], acknowledged: set[tuple[str, int]]) -> None:
    """Of a key that both update the latest counts, by its ordering value."""
    latest = {row["id"]: row["ts"] for row in found if row["id"].startswith("both-")}
    for writer, number in acknowledged:
        rows = batch(writer, number).to_pylist()
        shared = rows[-1]
        assert latest[shared["id"]] >= shared["ts"], shared
