"""Apache Hudi and we write to one table at the same time, each beside the services of the other.

`make soak-hudi` takes ten minutes for each kind of lock and control, and kills processes of both
sides meanwhile. What was acknowledged must be there at the end, once; what was not must be there
whole or not at all. Tables of other shapes, and other operations, are tried for a shorter time.
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
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from tests.hudi.soak_batches import (
    BEGINNING,
    OPERATIONS,
    OWN,
    PLANS,
    SCHEMA,
    batch,
    shared_key,
)
from tests.hudi.test_hudi_rolls_back_ours import die_in_an_upsert
from tests.support.beside_hudi import YES, shows
from tests.support.hudi_on_s3 import s3_lock_options, s3_settings
from tests.support.hudi_peer import (
    Bundle,
    HudiEndedError,
    HudiError,
    HudiPeer,
    NoHudiError,
    find_bundle,
)
from tests.support.server_processes import CannotRunServer
from tests.support.store_servers import S3Server, versitygw
from tests.support.tables import COW, MOR, table_at
from tests.support.two_readers import META, TwoReaders, without
from tests.support.zookeeper_server import run_zookeeper

from headwater.table import Table

SECONDS = float(os.environ.get("HEADWATER_SOAK_SECONDS", "20"))
IS_LONG = SECONDS >= 60
SHAPE_SECONDS_MAX = 60.0
DEADLINE_S = 1_800
KILLED_EVERY_S = 30.0
HERE = Path(__file__).parent

OURS = {
    "hoodie.write.lock.wait_time_ms": "600000",
    "hoodie.clean.commits.retained": "6",
    "hoodie.keep.min.commits": "12",
    "hoodie.keep.max.commits": "16",
}
ON_DISK = {"headwater.storage.fsync": "false"}
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
STORAGE_LOCK = "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"
BUCKET = "tables"

METADATA_TABLE = {"hoodie.metadata.enable": "true"}
EVERY_INDEX = {
    **METADATA_TABLE,
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
}
BY_HOUR = {
    "hoodie.keygen.timebased.timestamp.type": "UNIX_TIMESTAMP",
    "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd/HH",
}
HEARTBEAT = {
    "hoodie.client.heartbeat.interval_in_ms": "2000",
    "hoodie.client.heartbeat.tolerable.misses": "4",
}


class Case(NamedTuple):
    table_type: str
    control: str
    lock: str = "filesystem"
    index_type: str = "bucket"
    plan: str = "upserts"
    partition_by: str = "city"
    ordering: str | None = "ts"
    options: Mapping[str, str] = {}
    """Of both sides."""
    ours: Mapping[str, str] = {}
    theirs: Mapping[str, str] = {}
    wins: str = "greatest"
    """Which update of a shared key counts: the `greatest` by ordering, the `last`, or `both`."""
    is_soaked: bool = False
    has_dead_writes: bool = False

    @property
    def hudi_index(self) -> dict[str, str]:
        if self.index_type == "bucket":
            return {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}
        return {"hoodie.index.type": self.index_type.upper()}

    @property
    def seconds(self) -> float:
        return SECONDS if self.is_soaked else min(SECONDS, SHAPE_SECONDS_MAX)

    @property
    def commits_min(self) -> int:
        """How many each side acknowledges at least, however long that takes."""
        return len(OPERATIONS) if self.plan == "every operation" else 3

    @property
    def pause_s(self) -> float:
        # Under optimistic control the slower side, which is Hudi, would lose to us every time
        # where both write to the same file groups. And a write of Hudi's takes seconds, in which
        # we are not to commit so often that clean takes away what it reads.
        if self.control == NON_BLOCKING:
            return 0.5
        return 15.0 if self.plan == "upserts" else 5.0


OPTIMISTIC = "optimistic_concurrency_control"
NON_BLOCKING = "non_blocking_concurrency_control"
ROW_WRITER = {"hoodie.datasource.write.row.writer.enable": "true"}
CASES = {
    "non-blocking": Case(MOR, NON_BLOCKING, is_soaked=True),
    "optimistic cow": Case(COW, OPTIMISTIC, index_type="simple", is_soaked=True),
    "optimistic mor, zookeeper": Case(MOR, OPTIMISTIC, "zookeeper", is_soaked=True),
    "non-blocking, storage": Case(MOR, NON_BLOCKING, "storage", is_soaked=True),
    "optimistic cow, storage": Case(
        COW, OPTIMISTIC, "storage", index_type="simple", is_soaked=True
    ),
    "optimistic mor, storage": Case(MOR, OPTIMISTIC, "storage", is_soaked=True),
    "every operation, cow": Case(
        COW, OPTIMISTIC, index_type="simple", plan="every operation", theirs=ROW_WRITER
    ),
    "every operation, mor": Case(
        MOR, OPTIMISTIC, index_type="simple", plan="every operation", theirs=ROW_WRITER
    ),
    "every index, a global one": Case(
        MOR, OPTIMISTIC, index_type="record_index", options=EVERY_INDEX
    ),
    "times as partitions, two ordering fields": Case(
        MOR,
        NON_BLOCKING,
        partition_by="at",
        ordering="era,ts",
        options=BY_HOUR,
        ours={"hoodie.table.keygenerator.type": "TIMESTAMP"},
    ),
    "the last write wins": Case(MOR, OPTIMISTIC, ordering=None, wins="last"),
    "partial updates": Case(
        MOR,
        OPTIMISTIC,
        ordering=None,
        ours={"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"},
        wins="both",
    ),
    "dead writes": Case(MOR, OPTIMISTIC, options=HEARTBEAT, has_dead_writes=True),
}


class Place(NamedTuple):
    """Where the table is, and the options that make both sides take one lock there."""

    base: str
    ours: Mapping[str, str]
    theirs: Mapping[str, str]
    settings: Mapping[str, str] = {}
    """Of Hudi's session."""


@contextmanager
def place(case: Case, bundle: Bundle, folder: Path) -> Iterator[Place]:
    match case.lock:
        case "filesystem":
            expire = {"hoodie.write.lock.filesystem.expire": "1"}
            yield Place(
                str(folder),
                {"hoodie.write.lock.provider": FILE_LOCK, **expire, **ON_DISK},
                {"hoodie.write.lock.provider": FILE_LOCK, **expire},
            )
        case "zookeeper":
            try:
                with run_zookeeper(folder / "zookeeper") as address:
                    yield Place(str(folder), *zookeeper_locks(address))
            except CannotRunServer as missing:
                pytest.skip(str(missing))
        case "storage":
            with versitygw(folder / "s3", BUCKET) as server:
                yield on_s3(bundle, server, folder / "client")


def zookeeper_locks(address: str) -> tuple[dict[str, str], dict[str, str]]:
    host, port = address.split(":")
    where = {
        "hoodie.write.lock.zookeeper.url": host,
        "hoodie.write.lock.zookeeper.port": port,
        "hoodie.write.lock.zookeeper.base_path": "/soak",
        "hoodie.write.lock.zookeeper.lock_key": "trips",
    }
    ours = {"hoodie.write.lock.provider": ZOOKEEPER_LOCK, **where, **ON_DISK}
    # Hudi connects to what the URL says, and does not look at the port.
    url = {"hoodie.write.lock.zookeeper.url": address}
    return ours, {"hoodie.write.lock.provider": ZOOKEEPER_LOCK, **where, **url}


def on_s3(bundle: Bundle, server: S3Server, folder: Path) -> Place:
    """Hudi has a storage-based lock for object stores only, so the table is on one, too."""
    folder.mkdir()
    try:
        settings = s3_settings(bundle, server, folder)
    except NoHudiError as missing:
        pytest.skip(str(missing))
    # Short leases: whoever is killed with the lock keeps it until they end.
    lease = {
        "hoodie.write.lock.storage.validity.timeout.secs": "20",
        "hoodie.write.lock.storage.renew.interval.secs": "2",
    }
    return Place(
        f"s3://{BUCKET}",
        {"hoodie.write.lock.provider": STORAGE_LOCK, **lease, **server.options},
        {"hoodie.write.lock.provider": STORAGE_LOCK, **lease, **s3_lock_options(server)},
        settings,
    )


class OurJob:
    """A process of ours, started again after each kill."""

    def __init__(
        self, table: Table, kind: str, notes: Path, options: Mapping[str, str], case: Case
    ) -> None:
        self._command = [
            sys.executable,
            str(HERE / "soak_job.py"),
            table.uri,
            kind,
            str(notes),
            json.dumps(dict(options)),
            str(case.pause_s),
            case.plan,
        ]
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self.notes = notes
        self._start()

    def _start(self) -> None:
        # The process takes SIGTERM from when it knows what to do then; until then it would die.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            self._process = subprocess.Popen(self._command, env=self._environment)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

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

    def __init__(
        self,
        bundle: Bundle,
        settings: Mapping[str, str],
        path: str,
        options: Mapping[str, str],
        case: Case,
    ) -> None:
        self._bundle = bundle
        self._settings = settings
        self._path = path
        self._options = dict(options)
        self._plan = PLANS[case.plan]
        self._is_over = threading.Event()
        self.acknowledged: list[int] = []
        self.errors: list[str] = []
        self.kills = 0
        self.has_written = False
        """Whether the session of now has got a write through."""
        self._peer: HudiPeer | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._is_over.is_set():
            with HudiPeer(self._bundle, settings=self._settings) as peer:
                self._peer = peer
                try:
                    number = self._write_until_it_ends(peer, number)
                finally:
                    self.has_written = False
                    self._peer = None  # Its number may soon be another process's.

    def _write_until_it_ends(self, peer: HudiPeer, number: int) -> int:
        """Write step after step; return the number of the next."""
        # A process whose first act is to append to column statistics may fail, and goes on
        # failing. One that has read a metadata table does not, even if we cleaned the files
        # away that it was to read.
        with suppress(HudiError):
            peer.read(self._path, EVERY_INDEX)
        while not self._is_over.is_set():
            try:
                self._write(peer, number)
                self.acknowledged.append(number)
                self.has_written = True
            except HudiEndedError as error:
                self.errors.append(str(error))
                return number + 1
            except HudiError as error:
                self.errors.append(str(error))
                print(f"Hudi failed: {root_cause(str(error))}")
            number += 1
            self._is_over.wait(0.5)
        return number

    def _write(self, peer: HudiPeer, number: int) -> None:
        step = self._plan("theirs", number)
        chosen = {
            "hoodie.datasource.write.operation": step.operation,
            "hoodie.datasource.write.partitions.to.delete": step.partition,
        }
        if step.operation != "delete_partition":
            del chosen["hoodie.datasource.write.partitions.to.delete"]
        peer.write(step.rows, self._path, {**self._options, **chosen})

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

    def check_alive(self) -> None:
        """Check that Hudi's side goes on; one that has given up would find nothing wrong."""
        assert self._thread.is_alive(), self.errors[-1:]

    def abandon(self) -> None:
        self._is_over.set()
        if self._thread.is_alive():
            self.kill()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()


@pytest.mark.parametrize("name", CASES)
@shows(
    "upserts under optimistic control, locks of files, of storage and of ZooKeeper",
    we_read=YES,
    we_write=YES,
    they_read=YES,
    both=YES,
)
@shows("upserts under non-blocking control", we_read=YES, we_write=YES, they_read=YES, both=YES)
@shows("copy-on-write and merge-on-read, every operation", both=YES)
@shows("bulk inserts by row writer", both=YES)
@shows("global indexes", both=YES)
@shows("metadata table with every index", both=YES)
@shows("partition paths made of times", both=YES)
@shows("several ordering fields", both=YES)
@shows("every merge mode, and payloads that map to one", both=YES)
@shows("dead writes, rolled back by the other", both=YES)
def test_nothing_is_lost_doubled_or_stuck(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    try:
        bundle = find_bundle()
    except NoHudiError as missing:
        pytest.skip(str(missing))
    with ExitStack() as stack:
        home = stack.enter_context(place(case, bundle, tmp_path))
        control = {"hoodie.write.concurrency.mode": case.control}
        options = {**OURS, **home.ours, **control, **case.options}
        table = create(case, home.base, options)
        dead: set[str] = set()
        if case.has_dead_writes:
            die_in_an_upsert(table, {**options, **METADATA_TABLE}, batch("ours", 500_000))
            dead = pending_writes(table)
            assert dead, "it did not die in its write"
        theirs = {**hudi_options(case, table), **home.theirs}
        peer = Theirs(bundle, home.settings, table.uri, theirs, case)
        stack.callback(peer.abandon)
        if case.has_dead_writes:
            dead.add(kill_in_a_write(table, peer))
        writer = OurJob(table, "write", tmp_path / "written", options, case)
        stack.callback(writer.abandon)
        services = OurJob(table, "serve", tmp_path / "served", options, case)
        stack.callback(services.abandon)
        run(case, writer, services, peer)
        wait_until_rolled_back(table, dead)
        peer.stop()
        writer.stop()
        services.stop()
        table = table.reload()
        with HudiPeer(bundle, settings=home.settings) as hudi:
            check(case, table, hudi, writer, services, peer)


def create(case: Case, base: str, options: Mapping[str, str]) -> Table:
    builder = table_at(
        f"{base}/trips",
        SCHEMA,
        partition_by=case.partition_by,
        ordering=case.ordering and case.ordering.split(","),
        table_type=case.table_type,
        index=case.index_type,
        buckets=2 if case.index_type == "bucket" else None,
    )
    # Without what builders say of tables on a disk.
    table = replace(builder, options={**options, **case.ours}).create()
    # All shared keys are there, so that none is inserted by both at once.
    table.upsert(pa.concat_tables([batch("ours", number) for number in BEGINNING]))
    return table


def hudi_options(case: Case, table: Table) -> dict[str, str]:
    options = {
        **THEIRS,
        **case.hudi_index,
        **case.options,
        **case.theirs,
        "hoodie.write.concurrency.mode": case.control.upper(),
        "hoodie.table.name": table.name,
    }
    if case.table_type == MOR:
        options |= {
            "hoodie.compact.inline": "true",
            "hoodie.compact.inline.max.delta.commits": "4",
        }
    return options


def pending_writes(table: Table) -> set[str]:
    pending = table.context.load_timeline().pending
    return {str(one.requested_time) for one in pending if one.action.is_ingestion}


def kill_in_a_write(table: Table, peer: Theirs) -> str:
    """Kill Hudi in a write while nobody else writes; return the write."""
    before = pending_writes(table)
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        if pending_writes(table) - before:
            peer.kill()
            dead = pending_writes(table) - before
            if dead:  # Otherwise it was faster, and its next process is tried.
                return dead.pop()
        time.sleep(0.01)
    raise AssertionError("Hudi could not be killed in a write")


def wait_until_rolled_back(table: Table, dead: set[str]) -> None:
    until = time.monotonic() + DEADLINE_S
    while dead & pending_writes(table):
        assert time.monotonic() < until, "nobody rolled back a write that died"
        time.sleep(0.5)
    completed = {str(one.requested_time) for one in table.context.load_timeline().completed}
    assert not dead & completed


def run(case: Case, writer: OurJob, services: OurJob, peer: Theirs) -> None:
    """Wait until the time is over and both have committed; kill processes if there is time."""
    began = time.monotonic()
    next_kill = began + KILLED_EVERY_S
    chance = random.Random(7)
    while True:
        now = time.monotonic()
        peer.check_alive()
        are_done = min(len(peer.acknowledged), len(writer.told)) >= case.commits_min
        if now > began + case.seconds and are_done:
            return
        assert now < began + case.seconds + DEADLINE_S, (peer.errors[-1:], writer.told[-3:])
        if IS_LONG and case.is_soaked and now > next_kill:
            # A session takes longer to start than the next kill is away, on a machine that is busy.
            theirs = [peer.kill] if peer.has_written else []
            chance.choice([writer.kill, services.kill, *theirs])()
            next_kill = now + KILLED_EVERY_S
        time.sleep(0.5)


def check(
    case: Case, table: Table, hudi: HudiPeer, writer: OurJob, services: OurJob, peer: Theirs
) -> None:
    """All that was acknowledged is there once, whoever reads; the rest whole or not at all."""
    failed = [line for line in services.told if line.startswith("error")]
    assert not failed, "\n".join(services.told[-30:])
    # Hudi shows a column that it makes a partition path of as that text.
    skip = {"at"} if case.partition_by == "at" else set()
    found = without(TwoReaders(hudi, table).check_snapshot("afterwards", skip=skip), META)
    keys = Counter(row["id"] for row in found)
    assert keys.most_common(1)[0][1] == 1, keys.most_common(3)
    by_batch: Counter[tuple[str, int]] = Counter()
    for row in found:
        if not row["id"].startswith("both-"):
            by_batch[(row["writer"], row["number"])] += 1
    assert set(by_batch.values()) == {OWN}, "a batch is there in part"
    acknowledged = {("theirs", number) for number in peer.acknowledged}
    acknowledged |= {("ours", int(number)) for number in writer.told}
    check_steps(case, by_batch.keys(), acknowledged)
    if case.plan == "upserts":
        check_shared(case, found, acknowledged)
    problems: list[dict[str, Any]] = table.inspect.problems(deep=True).to_pylist()
    assert problems == []
    told = table.inspect.validate_metadata().to_pylist()
    assert [one for one in told if one["problem"] != "stale"] == []
    print(
        f"ours {len(writer.told)}, theirs {len(peer.acknowledged)} of "
        f"{len(peer.acknowledged) + len(peer.errors)}, {peer.kills} kills of theirs, "
        f"services {Counter(services.told).most_common()}"
    )


def root_cause(trace: str) -> str:
    """Return the line of a stack trace of Java's that says why; the first if it is none."""
    lines = trace.splitlines()
    causes = [line for line in lines if line.startswith((": ", "Caused by: "))]
    return (causes or lines)[-1 if causes else 0]


Steps = Collection[tuple[str, int]]


def check_steps(case: Case, there: Steps, acknowledged: Steps) -> None:
    """What a step added is there unless the next was to end it; what a step ended is not."""
    plan = PLANS[case.plan]
    for writer, number in acknowledged:
        step = plan(writer, number)
        if step.adds and not plan(writer, number + 1).ends_previous:
            assert (writer, number) in there, (writer, number)
        if step.ends_previous:
            assert (writer, number - 1) not in there, (writer, number)


def check_shared(case: Case, found: list[dict[str, Any]], acknowledged: Steps) -> None:
    """Of the updates of a key by both those count that should."""
    shared = {row["id"]: row for row in found if row["id"].startswith("both-")}
    for writer, number in acknowledged:
        row = shared[shared_key(number)]
        match case.wins:
            case "greatest":
                assert row["ts"] >= batch(writer, number)["ts"][0].as_py(), (writer, number)
            case "last" if row["writer"] == writer:
                assert row["number"] >= number, (writer, number)
            case "both":
                assert row[writer] >= number, (writer, number)
