"""Writes of Apache Hudi whose process was killed, rolled back by us by Hudi's own rules.

Hudi writes as one of several writers, so it has a heartbeat. Its process is killed once a data file
of the write is there; if the commit was faster, the next process tries again. We find the write by
its heartbeat, which stands still; live it would beat every second.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.beside_hudi import YES, shows
from tests.support.hudi_peer import HudiError, HudiPeer, find_bundle
from tests.support.tables import COW, MOR, a_table, columns, rows_of
from tests.support.two_readers import META, TwoReaders, without

from headwater.model.files import parse_data_file
from headwater.model.instant import Instant, State
from headwater.table import Table

SCHEMA = columns("id string not null, city string, ts long, fare long")
rows = rows_of(SCHEMA)
HEARTBEAT = {
    "hoodie.client.heartbeat.interval_in_ms": "1000",
    "hoodie.client.heartbeat.tolerable.misses": "2",
}
OURS = {
    **HEARTBEAT,
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "filesystem",
}
THEIRS = {
    **HEARTBEAT,
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.write.lock.provider": (
        "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
    ),
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "2",
    "hoodie.upsert.shuffle.parallelism": "2",
}
PID = "result = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()"
DEADLINE_S = 300
PROCESSES_MAX = 5


def data_files(table: Table) -> set[str]:
    paths = (info.path for info in table.storage.list_tree(""))
    return {path for path in paths if not path.startswith(".hoodie/") and parse_data_file(path)}


def fares(table: Table) -> dict[str, int]:
    return {row["id"]: row["fare"] for row in table.read_arrow(["id", "fare"]).to_pylist()}


def pending(table: Table) -> list[Instant]:
    return list(table.context.load_timeline().pending)


@contextmanager
def in_background(peer: HudiPeer, table: Table, some: pa.Table) -> Iterator[threading.Thread]:
    def write() -> None:
        with suppress(HudiError):  # It is killed; the timeline tells whether in time.
            peer.write(some, table.uri, {**THEIRS, "hoodie.table.name": table.name})

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield thread
    finally:
        thread.join()


def kill_in_an_upsert(table: Table, some: pa.Table) -> Instant:
    """Return the write of a process of Hudi's, killed between its first file and its end."""
    for _ in range(PROCESSES_MAX):
        before = data_files(table)
        with HudiPeer(find_bundle()) as peer:
            pid = int(peer.run(PID))
            with in_background(peer, table, some) as writing:
                while writing.is_alive() and not data_files(table) - before:
                    time.sleep(0.002)
                os.kill(pid, signal.SIGKILL)
        left = pending(table)
        if left:
            assert data_files(table) - before, "it was killed before it had written anything"
            return left[0]
    raise AssertionError("Hudi committed before it could be killed, every time")


@pytest.mark.parametrize("table_type", [COW, MOR])
@shows("dead writes, rolled back by the other", we_read=YES, we_write=YES)
def test_a_write_of_a_killed_process(hudi: HudiPeer, tmp_path: Path, table_type: str) -> None:
    shape = a_table(
        tmp_path,
        SCHEMA,
        partition_by="city",
        ordering="ts",
        table_type=table_type,
        buckets=2,
    )
    ours = shape.with_options(OURS).create()
    ours.insert(rows(("a", "sf", 1, 1), ("b", "ny", 1, 2)))
    both = TwoReaders(hudi, ours)
    before = data_files(ours)

    dead = kill_in_an_upsert(ours, rows(("a", "sf", 9, 9), ("c", "la", 9, 9)))
    assert dead.state is State.INFLIGHT
    left = {path for path in data_files(ours) - before if dead.requested_time in path}
    seen = fares(ours)

    until = time.monotonic() + DEADLINE_S
    done = ours.services.rollback_failed_writes()
    while not done and time.monotonic() < until:
        time.sleep(0.5)
        done = ours.services.rollback_failed_writes()

    assert [one.instant for one in done] == [dead.requested_time]
    assert not left & data_files(ours)
    assert pending(ours) == []
    found = without(both.check_snapshot("after our rollback of Hudi's write"), META)
    assert {row["id"]: row["fare"] for row in found} == seen
    assert ours.inspect.problems().num_rows == 0

    hudi.write(rows(("b", "ny", 20, 3)), ours.uri, {**THEIRS, "hoodie.table.name": ours.name})
    ours.reload().upsert(rows(("a", "sf", 20, 4)))
    found = without(both.check_snapshot("both wrote on"), META)
    assert {row["id"]: row["fare"] for row in found} == {**seen, "a": 4, "b": 3}
    assert ours.reload().inspect.problems(deep=True).num_rows == 0
