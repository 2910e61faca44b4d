"""Operations, services, reads and checks close what they open and end what they start.

Every one of them is made to fail at calls of storage all along its way, in every manner: the call
fails, its reply is lost, storage is gone from then on, the user interrupts, the process stalls and
is fenced, what is read is damaged, a file breaks off while it is read or written. Afterwards there
are no more descriptors, threads and child processes than before.

The short form takes some calls of each, the long one every call; all manners take turns.
"""

from __future__ import annotations

import io
import os
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum, unique
from functools import partial
from itertools import count, cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support import left_open
from tests.support.left_open import outcome_of
from tests.support.memory_storage import MemoryStorage
from tests.support.tables import columns, rows_of

import headwater as hw
from headwater.cli.commands.fsck import find_problems
from headwater.cli.main import main
from headwater.config.markers import MarkerConfig
from headwater.config.registry import check_options
from headwater.config.source import SourceConfig
from headwater.engine.inline import InlineRows
from headwater.errors import FencedError, StorageError
from headwater.format.parquet.base_file import write_base_file
from headwater.kernel.table_config import table_layout
from headwater.kernel.txn.attempts import Attempt
from headwater.kernel.txn.locks.in_process import InProcessLockProvider
from headwater.kernel.txn.locks.zookeeper import ZookeeperSession
from headwater.kernel.txn.transaction import LockTransaction
from headwater.kernel.txn.writes import resume_inflight_write
from headwater.markers.running import start_marker_service
from headwater.markers.service import NoConflictWatch
from headwater.metadata.indexing import IndexProgress
from headwater.model.instant import InstantTime, State
from headwater.opening import Place
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.write import start_write
from headwater.queries.slice_query import read_slices
from headwater.queries.snapshot import ReadRequest, plan_snapshot
from headwater.seams.clock import SystemClock
from headwater.seams.http_server import HttpServer
from headwater.seams.ids import SystemIds
from headwater.seams.local import LocalStorage
from headwater.seams.parallel_map import parallel_map
from headwater.seams.prefetch import prefetched
from headwater.seams.storage import Storage
from headwater.spark import source_writer
from headwater.spark.schemas import frame_schema_of
from headwater.table import Table

SCHEMA = columns("id string not null, city string, ts long, value long")
OPTIONS = {
    "headwater.storage.fsync": "false",
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "storage",  # Its lease is renewed by a thread.
    "hoodie.write.lock.wait_time_ms": "30",
    "hoodie.write.markers.type": "direct",
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.log.compaction.blocks.threshold": "2",
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
}
SERVED = {"hoodie.write.markers.type": "timeline_server_based"}

SAMPLES = 4
"""Failures of each call in the short form, besides those within files."""

MEMORY = Path("/dev/shm")
"""Where files cost nothing: tables are copied for each failure."""


rows = rows_of(SCHEMA)


FIRST = rows(("a", "sf", 1, 1), ("b", "ny", 1, 2), ("c", "sf", 1, 3))
SECOND = rows(("a", "sf", 2, 5), ("d", "ny", 1, 4))
KEYS = rows(("a", "sf", 3, 0), ("b", "ny", 3, 0))


@unique
class Manner(StrEnum):
    """How a call of storage fails."""

    FAILS = "fails"
    REPLY_LOST = "reply lost"
    GONE = "gone"
    INTERRUPTED = "interrupted"
    EXIT = "exit"
    STALLED = "stalled"
    DAMAGED = "damaged"
    BREAKS_OFF = "breaks off"
    BREAKS_OFF_LATER = "breaks off later"
    INTERRUPTED_WITHIN = "interrupted within"


ANYWHERE = (
    Manner.FAILS,
    Manner.GONE,
    Manner.INTERRUPTED,
    Manner.STALLED,
    Manner.REPLY_LOST,
    Manner.DAMAGED,
    Manner.EXIT,
)
IN_FILES = (Manner.BREAKS_OFF, Manner.INTERRUPTED_WITHIN, Manner.BREAKS_OFF_LATER)
WRITES = frozenset({"put", "put_many", "create_many", "put_if_absent", "replace", "delete"})
READS = frozenset({"read", "read_range", "read_many", "open_input"})
FILES = frozenset({"open_input", "open_output"})

_AN_HOUR_MS = 3_600_000


class HastyClock(SystemClock):
    """The machine's clock, that waits for nothing and can be set forward."""

    def __init__(self) -> None:
        self.stalled_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.stalled_ms

    def sleep_ms(self, duration_ms: int) -> None:
        super().sleep_ms(min(duration_ms, 1))


class FailingFile(io.RawIOBase):
    """A file that fails once so many parts of it were read or written."""

    def __init__(self, file: BinaryIO, parts: int, fail: Callable[[], None]) -> None:
        self._file = file
        self._parts = parts
        self._fail = fail

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def read(self, size: int = -1, /) -> bytes:
        self._count()
        return self._file.read(size) if size >= 0 else self._file.read()

    def write(self, data: Any, /) -> int:
        self._count()
        return self._file.write(data)

    def close(self) -> None:
        self._file.close()
        super().close()

    def _count(self) -> None:
        self._parts -= 1
        if self._parts < 0:
            self._fail()


class FailingStorage:
    """A storage of which one call fails in some manner, and what follows from it."""

    def __init__(self, storage: Storage, clock: HastyClock) -> None:
        self._storage = storage
        self._clock = clock
        self._left: int | None = None
        self._manner = Manner.FAILS
        self.calls: list[str] = []

    def arm(self, at: int, manner: Manner) -> None:
        """Let the call fail that comes after so many others."""
        self._left, self._manner = at, manner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._storage, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            self.calls.append(name)
            if self._left is None or self._left < 0:
                return found(*arguments, **named)
            self._left -= 1
            if self._left >= 0:
                return found(*arguments, **named)
            if self._manner is Manner.GONE:
                self._left = 0  # So that the next one fails, too.
            return self._failing(name, lambda: found(*arguments, **named), *arguments)

        return call

    def _failing(self, name: str, make: Callable[[], Any], *arguments: Any) -> Any:
        match self._manner:
            case Manner.REPLY_LOST if name in WRITES:
                make()
            case Manner.STALLED:
                self._clock.stalled_ms += _AN_HOUR_MS
                return make()
            case Manner.DAMAGED if name in READS:
                return self._damaged(name, make, *arguments)
            case Manner.BREAKS_OFF | Manner.INTERRUPTED_WITHIN if name in FILES:
                return self._breaking(name, make(), parts=0)
            case Manner.BREAKS_OFF_LATER if name in FILES:
                return self._breaking(name, make(), parts=1)
        return self._fail()

    def _fail(self) -> None:
        # Signals come to the main thread alone. Arrow's threads are not to become Python's, either.
        is_main = threading.get_ident() == threading.main_thread().ident
        match self._manner:
            case Manner.INTERRUPTED | Manner.INTERRUPTED_WITHIN if is_main:
                raise KeyboardInterrupt
            case Manner.EXIT if is_main:
                raise SystemExit
            case Manner.BREAKS_OFF | Manner.BREAKS_OFF_LATER:
                raise OSError("the disk is full")
            case _:
                raise StorageError("storage did not answer")

    def _damaged(self, name: str, make: Callable[[], Any], *arguments: Any) -> Any:
        if name == "open_input":
            path = Path(self._storage.uri) / arguments[0]
            path.write_bytes(_torn(path.read_bytes()))
            return make()
        found = make()
        if isinstance(found, bytes):
            return _torn(found)
        return [None if data is None else _torn(data) for data in found]

    def _breaking(self, name: str, made: Any, *, parts: int) -> Any:
        return (
            self._breaking_output(made, parts)
            if name == "open_output"
            else FailingFile(made, parts, self._fail)
        )

    @contextmanager
    def _breaking_output(
        self, output: AbstractContextManager[BinaryIO], parts: int
    ) -> Iterator[FailingFile]:
        with output as sink:
            yield FailingFile(sink, parts, self._fail)


def _torn(data: bytes) -> bytes:
    return data[: len(data) // 2]


@dataclass
class Bench:
    """Tables to break, each prepared once, and what is done to a copy of them."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    numbers: Iterator[int] = field(default_factory=count)

    def open_copy(self, name: str, options: dict[str, str]) -> tuple[Table, FailingStorage]:
        folder = self.folder / f"copy-{next(self.numbers)}"
        shutil.copytree(self.folder / name, folder)
        checked = check_options({**OPTIONS, **options})
        clock = HastyClock()
        storage = FailingStorage(LocalStorage(folder, fsync=False), clock)
        # Tasks open the storage by themselves.
        for module in [m for m in sys.modules.values() if m.__name__.startswith("headwater.")]:
            if hasattr(module, "open_storage"):
                self.monkeypatch.setattr(module, "open_storage", lambda *_: storage)
        table = Table.load(Place(storage=storage, clock=clock, ids=SystemIds(), options=checked))
        assert table.context.components  # Made here, so that what it opens does not count.
        storage.calls.clear()
        return table, storage


@pytest.fixture(scope="module")
def prepared() -> Iterator[Path]:
    """Make the tables: rows in base files and logs, with indexes, a past and failed writes."""
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    with TemporaryDirectory(prefix="headwater-", dir=place) as folder:
        _prepare(Path(folder))
        yield Path(folder)


def _prepare(folder: Path) -> None:

    def create(name: str, **arguments: Any) -> Table:
        return hw.create_table(
            folder / name,
            schema=SCHEMA,
            record_key="id",
            partition_by="city",
            ordering="ts",
            options=OPTIONS,
            **arguments,
        )

    logs = create("logs", table_type="MERGE_ON_READ", buckets=1)
    for write in (FIRST, SECOND, FIRST.slice(0, 2)):
        logs.upsert(write)
    logs.delete(KEYS.slice(0, 1))
    logs.indexes.create(["column_stats", "record_index"])
    logs.indexes.create("secondary_index_by_value", columns=["value"])
    logs.upsert(SECOND)
    _fail_write(_copy(logs, folder / "failed"))
    _copy(logs, folder / "planned").indexes.schedule("secondary_index_by_ts", columns=["ts"])

    bases = create("bases", table_type="COPY_ON_WRITE", index="bloom")
    for write in (FIRST, SECOND.slice(1), rows(("x", "sf", 1, 1)), rows(("y", "sf", 1, 1))):
        bases.insert(write)
    bases.indexes.create(["column_stats", "bloom_filters"])

    old = create("old", table_type="COPY_ON_WRITE", buckets=1)
    for number in range(5):
        old.upsert(rows(("a", "sf", number, number), ("b", "ny", number, number)))
    old.services.clean()
    old.services.archive()
    for number in range(3):
        old.upsert(rows(("a", "sf", number + 5, number)))

    saved = create("saved", table_type="COPY_ON_WRITE", buckets=1)
    saved.upsert(FIRST)
    saved.services.savepoint()
    saved.upsert(SECOND)


def _copy(table: Table, folder: Path) -> Table:
    shutil.copytree(table.uri, folder)
    return hw.open_table(folder, OPTIONS)


def _fail_write(table: Table) -> None:
    """Leave a write whose process ended after its tasks had written their files."""
    request = WriteRequest(operation=Operation.UPSERT, columns=SCHEMA)
    running = start_write(table.context, request)
    running.run_tasks(InlineRows(SECOND))
    attempt = running.hand_over().attempt
    txn = LockTransaction(table.context.components, table_layout(table.config))
    resume_inflight_write(table.context.components, txn, attempt).abandon()


@pytest.fixture
def bench(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    yield Bench(prepared, monkeypatch)
    for copy in prepared.glob("copy-*"):
        shutil.rmtree(copy)


def _inspect(table: Table) -> None:
    asked = table.inspect
    asked.timeline(operations=True)
    asked.files()
    asked.slices()
    asked.heartbeats()
    asked.locks()
    asked.cancels()
    asked.cancel_count()
    asked.indexes()


def _plan_and_cancel(table: Table) -> None:
    plan = table.indexes.schedule("secondary_index_by_city", columns=["city"])
    assert plan is not None
    table.indexes.cancel(plan)


def _cancel_clustering(table: Table) -> None:
    plan = table.services.schedule_clustering(cancellable=True)
    assert plan is not None
    table.services.request_cancel(plan)
    table.services.execute_abort(plan)


def _roll_back_last(table: Table) -> None:
    table.services.rollback(table.inspect.timeline()["requested_time"].to_pylist()[-1])


def _savepoint(table: Table) -> None:
    made = table.services.savepoint()
    table.services.delete_savepoint(made.instant)


Call = Callable[[Table], object]

CALLS: dict[str, tuple[str, Call]] = {
    "upsert": ("logs", lambda t: t.upsert(SECOND)),
    "partial upsert": (
        "logs",
        lambda t: t.upsert(SECOND.select(["id", "city", "ts"]), partial=True),
    ),
    "delete": ("logs", lambda t: t.delete(KEYS)),
    "overwrite": ("logs", lambda t: t.overwrite(SECOND)),
    "delete_partitions": ("logs", lambda t: t.delete_partitions(["city=sf"])),
    "merging upsert": ("bases", lambda t: t.upsert(SECOND)),
    "merging delete": ("bases", lambda t: t.delete(KEYS)),
    "insert": ("bases", lambda t: t.insert(SECOND)),
    "bulk_insert": ("bases", lambda t: t.bulk_insert(SECOND)),
    "overwrite_partitions": ("bases", lambda t: t.overwrite_partitions(SECOND)),
    "compact": ("logs", lambda t: t.services.compact()),
    "log_compact": ("logs", lambda t: t.services.log_compact()),
    "cluster logs": ("logs", lambda t: t.services.cluster()),
    "cluster": ("bases", lambda t: t.services.cluster()),
    "cancel clustering": ("bases", _cancel_clustering),
    "clean": ("old", lambda t: t.services.clean()),
    "archive": ("old", lambda t: t.services.archive()),
    "savepoint": ("saved", _savepoint),
    "restore": ("saved", lambda t: t.services.restore(t.services.savepoints()[0].instant)),
    "rollback": ("logs", _roll_back_last),
    "rollback_failed_writes": ("failed", lambda t: t.services.rollback_failed_writes()),
    "index create": (
        "logs",
        lambda t: t.indexes.create("secondary_index_by_city", columns=["city"]),
    ),
    "index run": ("planned", lambda t: t.indexes.run()),
    "index cancel": ("logs", _plan_and_cancel),
    "index drop": ("logs", lambda t: t.indexes.drop("secondary_index_by_value")),
    "read": ("logs", lambda t: t.read_arrow(where="value > 1")),
    "incremental": ("logs", lambda t: t.changes_arrow(None)),
    "change feed": ("logs", lambda t: t.changes_arrow(None, cdc=True)),
    "change feed of base files": ("bases", lambda t: t.changes_arrow(None, cdc=True)),
    "read of the past": ("old", lambda t: t.changes_arrow("0")),
    "inspect": ("logs", _inspect),
    "validate_metadata": ("logs", lambda t: t.inspect.validate_metadata()),
    "validate_metadata of filters": ("bases", lambda t: t.inspect.validate_metadata()),
    "advise": ("planned", lambda t: t.services.advise(sort_by="value")),
    "fsck": ("logs", lambda t: list(find_problems(t, is_deep=True))),
    "fsck of base files": ("bases", lambda t: list(find_problems(t, is_deep=True))),
}


@dataclass(frozen=True)
class Failure:
    at: int
    name: str
    manner: Manner


def failures(calls: list[str]) -> list[Failure]:
    """Return every way in which the calls of one operation may fail."""
    return [
        Failure(at, name, manner)
        for at, name in enumerate(calls)
        for manner in Manner
        if not (manner in IN_FILES and name not in FILES)
        and not (manner is Manner.DAMAGED and name not in READS)
        and not (manner is Manner.REPLY_LOST and name not in WRITES)
    ]


def some_failures(name: str, calls: list[str]) -> list[Failure]:
    """Return some of them: at calls all along the way, and in manners that take turns."""
    every = failures(calls)
    turn = list(CALLS).index(name)
    chosen = []
    for number, manner in enumerate(islice(cycle(ANYWHERE), turn, turn + SAMPLES)):
        fitting = [one for one in every if one.manner is manner]
        if fitting:
            chosen.append(fitting[(2 * number + 1) * len(fitting) // (2 * SAMPLES)])
    for kind in sorted(FILES.intersection(calls)):
        within = [one for one in every if one.name == kind and one.manner in IN_FILES]
        chosen.append(within[(len(within) // 2 + turn) % len(within)])
    return chosen


def failures_everywhere(name: str, calls: list[str]) -> list[Failure]:
    """Return one failure of every call, in manners that take turns."""
    every = failures(calls)
    turn = list(CALLS).index(name)
    by_call = [[one for one in every if one.at == at] for at in range(len(calls))]
    return [ways[(at + turn) % len(ways)] for at, ways in enumerate(by_call)]


def check_failures(
    bench: Bench,
    name: str,
    choose: Callable[[str, list[str]], list[Failure]],
    options: dict[str, str] | None = None,
) -> None:
    source, call = CALLS[name]
    table, storage = bench.open_copy(source, options or {})
    well = outcome_of(partial(call, table))
    assert well.error is None
    assert well.left == []
    failed = 0
    for failure in choose(name, list(storage.calls)):
        table, storage = bench.open_copy(source, options or {})
        storage.arm(failure.at, failure.manner)
        ended = outcome_of(partial(call, table))
        assert ended.left == [], f"after {failure}, which ended in {ended.error}"
        failed += ended.error is not None
    assert failed, "Nothing failed, so nothing was tested"


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.some(12)
def test_nothing_is_left_open_by_what_fails(bench: Bench, name: str) -> None:
    check_failures(bench, name, some_failures)


@pytest.mark.parametrize("name", ["upsert", "merging upsert"])
@pytest.mark.some(1)
def test_nothing_is_left_open_by_a_write_with_a_marker_service(bench: Bench, name: str) -> None:
    check_failures(bench, name, some_failures, SERVED)


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", CALLS)
def test_nothing_is_left_open_by_what_fails_anywhere(bench: Bench, name: str) -> None:
    check_failures(bench, name, failures_everywhere)


# What the users' own code raises.


@pytest.mark.parametrize("raised", [RuntimeError, KeyboardInterrupt, SystemExit, FencedError])
def test_nothing_is_left_open_when_progress_of_a_build_raises(
    bench: Bench, raised: type[BaseException]
) -> None:
    reports: list[IndexProgress] = []

    def build(report: Callable[[IndexProgress], None]) -> None:
        table, _ = bench.open_copy("planned", {})
        table.indexes.run(progress=report)

    build(reports.append)
    assert len(reports) > 1
    for at in range(len(reports)):
        seen: list[IndexProgress] = []

        def fail(progress: IndexProgress, at: int = at, seen: list[Any] = seen) -> None:
            seen.append(progress)
            if len(seen) > at:
                raise raised("enough")

        ended = outcome_of(partial(build, fail))
        assert raised.__name__ in (ended.error or "")
        assert ended.left == []


@pytest.mark.parametrize("name", ["logs", "bases"])
def test_nothing_is_left_open_by_a_filter_that_fails(bench: Bench, name: str) -> None:
    table, _ = bench.open_copy(name, {})
    where = pc.field("city").cast(pa.int64()) == 1
    ended = outcome_of(lambda: table.read_arrow(where=where))
    assert "ArrowInvalid" in (ended.error or "")
    assert ended.left == []


@pytest.mark.parametrize("name", ["logs", "bases"])
def test_nothing_is_left_open_by_rows_that_nobody_takes(bench: Bench, name: str) -> None:
    table, _ = bench.open_copy(name, {})
    plan = plan_snapshot(table.context, ReadRequest())

    def take_one() -> None:
        batches = read_slices(plan.query, list(plan.slices))
        next(batches)
        batches.close()

    assert outcome_of(take_one).left == []


# Single things that are opened.


def test_a_base_file_whose_rows_fail_is_not_finished_later(tmp_path: Path) -> None:
    def fail() -> Iterator[pa.Table]:
        yield FIRST
        raise RuntimeError("no more rows")

    def write() -> None:
        with LocalStorage(tmp_path, fsync=False).open_output("a") as sink:
            write_base_file(fail(), SCHEMA, sink=sink, row_group_rows=1)

    ended = outcome_of(write)
    assert "RuntimeError" in (ended.error or "")
    assert ended.left == []
    assert list(tmp_path.iterdir()) == []


def test_threads_end_with_who_asked_for_them() -> None:
    def fail(number: int) -> None:
        raise RuntimeError(f"item {number} is too much")

    def take_ahead() -> None:
        for number in prefetched(iter(range(3))):
            fail(number)

    for call in (take_ahead, partial(parallel_map, fail, range(3), width=2)):
        ended = outcome_of(call)
        assert "RuntimeError" in (ended.error or "")
        assert ended.left == []


def test_a_marker_service_that_cannot_start_listens_no_more() -> None:
    class Broken(NoConflictWatch):
        def start(self) -> None:
            raise KeyboardInterrupt

    def start() -> None:
        storage, ids, time = MemoryStorage(), SystemIds(), InstantTime("20260101000000000")
        start_marker_service(storage, ids, time, MarkerConfig(), conflicts=Broken())

    ended = outcome_of(start)
    assert "KeyboardInterrupt" in (ended.error or "")
    assert ended.left == []


def test_what_ends_while_it_is_counted_is_not_left(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = left_open.descriptors
    goes_on = threading.Event()
    threads: list[threading.Thread] = []

    def list_and_wait() -> Iterator[tuple[int, str]]:
        yield from listed()
        goes_on.set()
        for thread in threads:
            thread.join()

    def start() -> None:
        def read() -> None:
            with open(os.devnull):
                is_open.set()
                goes_on.wait()

        goes_on.clear()
        is_open = threading.Event()
        threads.append(threading.Thread(target=read))
        threads[0].start()
        is_open.wait()

    monkeypatch.setattr(left_open, "descriptors", list_and_wait)
    assert outcome_of(start).left == []


def test_a_server_that_was_never_started_does_not_listen() -> None:
    async def app(*_: Any) -> None:
        raise AssertionError("nobody asks")

    assert outcome_of(lambda: HttpServer(app).stop()).left == []


@pytest.mark.parametrize("raised", [None, KeyboardInterrupt])
def test_a_session_that_does_not_begin_is_ended(
    monkeypatch: pytest.MonkeyPatch, raised: type[BaseException] | None
) -> None:
    client = pytest.importorskip("kazoo.client").KazooClient
    if raised is not None:

        def start(self: Any, timeout: float) -> None:
            self.start_async()
            raise raised

        monkeypatch.setattr(client, "start", start)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # Nobody listens there, and nobody else will.
        hosts = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = outcome_of(
            lambda: ZookeeperSession(
                SystemClock(), hosts=hosts, session_timeout_ms=1_000, connection_timeout_ms=100
            )
        )
    assert (raised or StorageError).__name__ in (ended.error or "")
    assert ended.left == []


def test_a_table_ends_the_session_of_its_locks(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[InProcessLockProvider] = []
    monkeypatch.setattr(InProcessLockProvider, "close", lambda locks: closed.append(locks))
    in_process = {"hoodie.write.lock.provider": "in_process"}
    table, _ = bench.open_copy("bases", in_process)
    with suppress(RuntimeError), table:
        raise RuntimeError("a job that fails")
    assert closed == [table.context.components.locks]
    # Nothing is opened to be closed.
    with hw.open_table(bench.folder / "bases", {**OPTIONS, **in_process}):
        pass
    assert len(closed) == 1


@pytest.mark.parametrize("manner", [Manner.FAILS, Manner.INTERRUPTED])
def test_nothing_is_left_open_by_a_write_that_is_not_taken_up(bench: Bench, manner: Manner) -> None:
    def attempt_of(table: Table) -> Attempt:
        running = start_write(
            table.context, WriteRequest(operation=Operation.UPSERT, columns=SCHEMA)
        )
        return running.hand_over().attempt

    def take_up(table: Table, attempt: Attempt) -> None:
        txn = LockTransaction(table.context.components, table_layout(table.config))
        resume_inflight_write(table.context.components, txn, attempt).abandon()

    table, storage = bench.open_copy("logs", {})
    attempt = attempt_of(table)
    storage.calls.clear()
    assert outcome_of(partial(take_up, table, attempt)).error is None
    for at in range(len(storage.calls)):
        table, storage = bench.open_copy("logs", {})
        attempt = attempt_of(table)
        storage.arm(at, manner)
        ended = outcome_of(partial(take_up, table, attempt))
        assert ended.left == [], f"after call {at}, which ended in {ended.error}"
        with suppress(FencedError):
            take_up(table, attempt)  # Ends the beating of who handed it over.


@pytest.mark.parametrize("raised", [StorageError, KeyboardInterrupt])
def test_nobody_beats_for_a_write_of_a_stream_that_could_not_be_noted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, raised: type[BaseException]
) -> None:
    def fail(*_: object) -> None:
        raise raised("no answer")

    table, _ = bench.open_copy("logs", {})
    bench.monkeypatch.undo()
    monkeypatch.setattr(source_writer, "save_attempt", fail)
    config = SourceConfig.from_options({"path": table.uri, **OPTIONS})
    schema = frame_schema_of(SCHEMA)
    ended = outcome_of(
        lambda: source_writer.begin_write(config, schema, is_overwrite=False, sink="a stream")
    )
    assert raised.__name__ in (ended.error or "")
    assert ended.left == []
    assert set(table.inspect.timeline()["state"].to_pylist()) == {State.COMPLETED}


def test_the_command_line_leaves_nothing_open(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    table, _ = bench.open_copy("bases", {})
    bench.monkeypatch.undo()
    path = next(Path(table.uri).glob("city=*/*.parquet"))
    path.write_bytes(_torn(path.read_bytes()))
    ended = outcome_of(lambda: main(["fsck", table.uri, "--deep"]))
    assert ended.error is None
    assert ended.left == []
    assert "bytes, and its commit says" in " ".join(capsys.readouterr().out.split())
