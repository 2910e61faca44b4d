"""Writes and services of Apache Hudi whose process was killed, and what we make of them.

Hudi writes as one of several writers, so it has a heartbeat. Its process is killed once a data file
of the write is there; if the commit was faster, the next process tries again. We find the write by
its heartbeat, which stands still; live it would beat every second. A service is killed once it is
inflight. We leave it to Hudi, for only Hudi can tell whether it is at work, and Hudi ends it later.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from tests.hudi.test_both_at_once import FILE_LOCK
from tests.support.beside_hudi import YES, shows
from tests.support.hudi_peer import HudiError, HudiPeer, find_bundle
from tests.support.hudi_procedures import call, register
from tests.support.tables import COW, MOR, a_table, columns, rows_of
from tests.support.two_readers import META, TwoReaders, without

from headwater.errors import UnsupportedError
from headwater.kernel.layout import heartbeat_path
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
    "hoodie.write.lock.provider": FILE_LOCK,
}
THEIRS = {
    **HEARTBEAT,
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.write.lock.provider": FILE_LOCK,
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "2",
    "hoodie.upsert.shuffle.parallelism": "2",
}
PID = "result = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()"
DEADLINE_S = 300
SILENT_S = 3.0
"""For so long after its last beat Hudi takes a process for alive, and a second more."""
PROCESSES_MAX = 5


def data_files(table: Table) -> set[str]:
    paths = (info.path for info in table.storage.list_tree(""))
    return {path for path in paths if not path.startswith(".hoodie/") and parse_data_file(path)}


def fares(table: Table) -> dict[str, int]:
    return {row["id"]: row["fare"] for row in table.read_arrow(["id", "fare"]).to_pylist()}


def pending(table: Table) -> list[Instant]:
    return list(table.context.load_timeline().pending)


@contextmanager
def in_background(job: Callable[[], None]) -> Iterator[threading.Thread]:
    def run() -> None:
        with suppress(HudiError):  # It is killed; the timeline tells whether in time.
            job()

    thread = threading.Thread(target=run)
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
            options = {**THEIRS, "hoodie.table.name": table.name}
            with in_background(partial(peer.write, some, table.uri, options)) as writing:
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
def test_a_write_of_a_killed_process(
    hudi: HudiPeer, tmp_path: Path, table_type: str, decided: dict[str, str]
) -> None:
    shape = a_table(
        tmp_path,
        SCHEMA,
        partition_by="city",
        ordering="ts",
        table_type=table_type,
        buckets=2,
    )
    ours = shape.with_options({**OURS, **decided}).create()
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


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_n_183_indexes_that_a_killed_process_has_made_lack_nothing(
    hudi: HudiPeer, tmp_path: Path, table_type: str, decided: dict[str, str]
) -> None:
    """Hudi makes column statistics before its first write; whoever reads by them trusts them."""
    shape = a_table(
        tmp_path, SCHEMA, partition_by="city", ordering="ts", table_type=table_type, buckets=2
    )
    ours = shape.with_options({**OURS, **decided}).create()
    ours.insert(rows(("a", "sf", 1, 1), ("b", "ny", 1, 2)))
    kill_in_an_upsert(ours, rows(("a", "sf", 9, 9), ("c", "la", 9, 9)))
    until = time.monotonic() + DEADLINE_S
    while not ours.services.rollback_failed_writes() and time.monotonic() < until:
        time.sleep(0.5)
    expected = {"a": 1, "b": 2}
    check_filtered(hudi, ours, expected)
    ours.reload().upsert(rows(("b", "ny", 10, 100), ("d", "sf", 10, 200), ("e", "rome", 10, 300)))
    expected |= {"b": 100, "d": 200, "e": 300}
    check_filtered(hudi, ours, expected)
    hudi.write(rows(("f", "oslo", 20, 3)), ours.uri, {**THEIRS, "hoodie.table.name": ours.name})
    check_filtered(hudi, ours, expected | {"f": 3})
    ours.reload().upsert(rows(("a", "sf", 30, 400)))
    check_filtered(hudi, ours, expected | {"f": 3, "a": 400})


def check_filtered(hudi: HudiPeer, ours: Table, expected: dict[str, int]) -> None:
    """Check that nobody leaves rows out by indexes."""
    by_indexes = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}
    for least, most in ((0, 10), (50, 500), (0, 500)):
        where = f"fare >= {least} AND fare <= {most}"
        wanted = {key: fare for key, fare in expected.items() if least <= fare <= most}
        for found in (
            hudi.read(ours.uri, by_indexes, columns=["id", "fare"], where=where),
            ours.reload().read_arrow(["id", "fare"], where=where),
        ):
            assert {row["id"]: row["fare"] for row in found.to_pylist()} == wanted
    assert ours.reload().inspect.problems(deep=True).num_rows == 0


class Service(NamedTuple):
    """One of Hudi's, on a table for which there is something to do."""

    table_type: str
    index_type: str
    procedure: str
    arguments: str
    of_ours: str
    resumed: str
    """How Hudi ends it."""


SERVICES = {
    "compaction": Service(
        MOR,
        "bucket",
        "run_compaction",
        "op => 'scheduleAndExecute', options => 'hoodie.compact.inline.max.delta.commits=1'",
        "compact",
        resumed="op => 'run'",
    ),
    "clustering": Service(
        COW, "simple", "run_clustering", "order => 'fare'", "cluster", resumed="op => 'execute'"
    ),
    "clean": Service(
        COW, "simple", "run_clean", "retain_commits => 1", "clean", resumed="retain_commits => 1"
    ),
}
INDEX = {
    "bucket": {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"},
    "simple": {"hoodie.index.type": "SIMPLE"},
}


def kill_in_a_service(table: Table, service: Service, settings: dict[str, str]) -> Instant:
    """Return the service of a process of Hudi's, killed between going inflight and its end."""
    for number in range(PROCESSES_MAX):
        for fare in range(3):
            table.upsert(rows(("a", "sf", 10 * number + fare, fare), (f"n{fare}", "ny", 1, 1)))
        with HudiPeer(find_bundle()) as peer:
            pid = int(peer.run(PID))
            # A process that begins with the metadata table by a service fails by itself.
            peer.read(table.uri, {"hoodie.metadata.enable": "true"})
            register(peer, "served", table.uri)
            arguments = f"table => 'served', {service.arguments}"
            serve = partial(call, peer, service.procedure, arguments, settings)
            with in_background(serve) as serving:
                while serving.is_alive() and not inflight(table):
                    time.sleep(0.002)
                os.kill(pid, signal.SIGKILL)
        left = inflight(table)
        if left:
            return left[0]
    raise AssertionError("Hudi was done before it could be killed, every time")


def inflight(table: Table) -> list[Instant]:
    return [one for one in pending(table) if one.state is State.INFLIGHT]


def wait_until_silent(table: Table, dead: Instant) -> None:
    """Wait until Hudi has to see that nobody beats for an instant, however fast this machine is."""
    beat = Path(table.uri) / heartbeat_path(dead.requested_time)
    while beat.exists() and time.time() - beat.stat().st_mtime < SILENT_S:
        time.sleep(0.1)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_of_a_killed_process(
    hudi: HudiPeer, tmp_path: Path, name: str, decided: dict[str, str]
) -> None:
    service = SERVICES[name]
    table = a_table(
        tmp_path,
        SCHEMA,
        partition_by="city",
        ordering="ts",
        table_type=service.table_type,
        index=service.index_type,
        buckets=2 if service.index_type == "bucket" else None,
    )
    ours = table.with_options({**OURS, **decided}).create()
    both = TwoReaders(hudi, ours)
    settings = {**THEIRS, **INDEX[service.index_type], "hoodie.metadata.enable": "true"}

    dead = kill_in_a_service(ours, service, settings)
    assert str(dead.action) == name
    seen = fares(ours)
    found = without(both.check_snapshot("a dead service"), META)
    assert {row["id"]: row["fare"] for row in found} == seen

    of_ours = getattr(ours.services, service.of_ours)
    if name != "clean":
        with pytest.raises(UnsupportedError, match="begun by another engine"):
            of_ours(dead.requested_time)
    of_ours()
    ours.services.clean()
    assert pending(ours) == [dead]
    register(hudi, "served", ours.uri)
    wait_until_silent(ours, dead)
    call(hudi, service.procedure, f"table => 'served', {service.resumed}", settings)
    assert pending(ours) == []
    found = without(both.check_snapshot("its end"), META)
    assert {row["id"]: row["fare"] for row in found} == seen
    assert ours.reload().inspect.problems(deep=True).num_rows == 0

    hudi.write(rows(("b", "ny", 90, 3)), ours.uri, {**settings, "hoodie.table.name": ours.name})
    ours.reload().upsert(rows(("a", "sf", 90, 4)))
    found = without(both.check_snapshot("both wrote on"), META)
    assert {row["id"]: row["fare"] for row in found} == {**seen, "a": 4, "b": 3}
    assert ours.reload().inspect.problems(deep=True).num_rows == 0
