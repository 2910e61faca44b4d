"""The system refuses a call: an error of ours soon, nothing half done, and then on as before.

Every operation and service meets a disk that is full, broken, read-only or denied, and a process
without descriptors: at every call that local storage makes of the system, once or from then on.
Each time

* what is raised is an error of ours, after pauses of a second at most;
* rows are those from before, or those from after if no error or an unknown outcome says so;
  what takes commits back does so first, and may fail thereafter;
* no descriptor, thread or process is left;
* the next write, and the same service again, go through as soon as the fault is gone, and the
  table is whole.

How long it takes is what it asks the clock to wait for. The short form takes some calls of each,
the long one every call with every error.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from tests.support.failing_system import FAILING, FailingSystem, Fault
from tests.support.left_open import outcome_of
from tests.support.tables import COW, MOR, columns, rows_of

import headwater as hw
from headwater.errors import AlreadyExistsError, CommitUnknownError, HeadwaterError
from headwater.seams.clock import SystemClock
from headwater.table import Table

SCHEMA = columns("id string not null, city string, ts long, value long")
rows = rows_of(SCHEMA)

FIRST = rows(("a", "sf", 1, 1), ("b", "ny", 1, 2), ("c", "sf", 1, 3))
SECOND = rows(("a", "sf", 2, 5), ("d", "ny", 1, 4))
KEYS = rows(("a", "sf", 3, 0), ("b", "ny", 3, 0))
LATER = rows(("z", "sf", 9, 9))

OPTIONS = {
    "hoodie.write.markers.type": "direct",
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.log.compaction.blocks.threshold": "2",
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.metadata.compact.max.delta.commits": "2",
}
MODE, PROVIDER = "hoodie.write.concurrency.mode", "hoodie.write.lock.provider"
OPTIMISTIC = {MODE: "optimistic_concurrency_control", PROVIDER: "storage"}
NON_BLOCKING = {MODE: "non_blocking_concurrency_control", PROVIDER: "filesystem"}
ALONE: dict[str, str] = {}

WAITED_MS_MAX = 1_000
SAMPLES = 2
"""Faults of each operation in the short form."""

MEMORY = Path("/dev/shm")
"""Where files cost nothing: tables are copied for each fault."""

Call = Callable[[Table], object]


@dataclass(frozen=True)
class Operation:
    """What is done to a copy of a table, with which options, and how it is done again."""

    source: str
    options: Mapping[str, str]
    call: Call
    again: Call | None = None
    is_stepwise: bool = False
    """Whether readers may see it done though it failed: it begins with what takes rows back."""


def _create_index(table: Table) -> None:
    with suppress(AlreadyExistsError):
        table.indexes.create(["record_index", "column_stats"])


def _roll_back_last(table: Table) -> None:
    table.services.rollback(table.inspect.timeline()["requested_time"].to_pylist()[-1])


def _savepoint(table: Table) -> None:
    with suppress(AlreadyExistsError):
        table.services.savepoint()


def _restore(table: Table) -> None:
    table.services.restore(table.services.savepoints()[0].instant)


def _service(source: str, options: Mapping[str, str], call: Call) -> Operation:
    return Operation(source, options, call, again=call)


OPERATIONS: dict[str, Operation] = {
    "upsert into base files": Operation("bases", OPTIMISTIC, lambda t: t.upsert(SECOND)),
    "upsert into logs": Operation("logs", OPTIMISTIC, lambda t: t.upsert(SECOND)),
    "upsert that blocks nobody": Operation("logs", NON_BLOCKING, lambda t: t.upsert(SECOND)),
    "upsert alone": Operation("bases", ALONE, lambda t: t.upsert(SECOND)),
    "delete": Operation("logs", OPTIMISTIC, lambda t: t.delete(KEYS)),
    "compaction": _service("logs", NON_BLOCKING, lambda t: t.services.compact()),
    "log compaction": _service("logs", NON_BLOCKING, lambda t: t.services.log_compact()),
    "clustering": _service("bases", OPTIMISTIC, lambda t: t.services.cluster()),
    "clean": _service("old", OPTIMISTIC, lambda t: t.services.clean()),
    "archive": _service("cleaned", OPTIMISTIC, lambda t: t.services.archive()),
    "savepoint": Operation("bases", OPTIMISTIC, _savepoint, again=_savepoint),
    "restore": Operation("saved", OPTIMISTIC, _restore, again=_restore, is_stepwise=True),
    "rollback": Operation("logs", OPTIMISTIC, _roll_back_last, is_stepwise=True),
    "index build": Operation("logs", OPTIMISTIC, _create_index, again=_create_index),
}


def _prepare(folder: Path) -> None:
    def create(name: str, **arguments: Any) -> Table:
        return hw.create_table(
            folder / name,
            schema=SCHEMA,
            record_key="id",
            partition_by="city",
            ordering="ts",
            options={**OPTIONS, **OPTIMISTIC},
            **arguments,
        )

    logs = create("logs", table_type=MOR, buckets=1)
    for write in (FIRST, SECOND.slice(1), FIRST.slice(0, 2)):
        logs.upsert(write)
    bases = create("bases", table_type=COW, index="bloom")
    bases.insert(FIRST)
    bases.insert(rows(("x", "sf", 1, 1)))
    old = create("old", table_type=COW, buckets=1)
    for number in range(5):
        old.upsert(rows(("a", "sf", number, number), ("b", "ny", number, number)))
    shutil.copytree(old.uri, folder / "cleaned")
    cleaned = hw.open_table(folder / "cleaned", {**OPTIONS, **OPTIMISTIC})
    cleaned.services.clean()
    saved = create("saved", table_type=COW, buckets=1)
    saved.upsert(FIRST)
    saved.services.savepoint()
    saved.upsert(SECOND)


@dataclass
class Bench:
    """Tables, each prepared once, and a system whose calls can fail."""

    folder: Path
    system: FailingSystem
    waits_ms: list[int]
    numbers: Iterator[int] = field(default_factory=count)

    def copy(self, name: str) -> Path:
        folder = self.folder / f"copy-{next(self.numbers)}"
        shutil.copytree(self.folder / name, folder)
        return folder


@pytest.fixture(scope="module")
def prepared() -> Iterator[Path]:
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    with TemporaryDirectory(prefix="headwater-", dir=place) as folder:
        _prepare(Path(folder))
        yield Path(folder)


@pytest.fixture
def bench(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    waits_ms: list[int] = []
    monotonic_ms = SystemClock.monotonic_ms
    # Time passes when somebody waits for it, and at once.
    monkeypatch.setattr(
        SystemClock, "sleep_ms", lambda _, duration_ms: waits_ms.append(duration_ms)
    )
    monkeypatch.setattr(SystemClock, "monotonic_ms", lambda me: monotonic_ms(me) + sum(waits_ms))
    system = FailingSystem()
    system.install(monkeypatch)
    yield Bench(prepared, system, waits_ms)
    for copy in prepared.glob("copy-*"):
        shutil.rmtree(copy)


def rows_in(folder: Path) -> list[dict[str, Any]]:
    found: pa.Table = hw.open_table(folder).read_arrow(columns=SCHEMA.names)
    return sorted(found.to_pylist(), key=lambda row: str(row["id"]))


def check_fault(bench: Bench, operation: Operation, fault: Fault, after: list[Any]) -> bool:
    """Let an operation meet a fault, and check what becomes of it; False if it met none."""
    folder = bench.copy(operation.source)
    before = rows_in(folder)
    table = hw.open_table(folder, {**OPTIONS, **operation.options})
    raised: list[HeadwaterError] = []

    def attempt() -> None:
        try:
            operation.call(table)
        except HeadwaterError as error:
            raised.append(error.with_traceback(None))

    bench.waits_ms.clear()
    with bench.system.failing(fault):
        ended = outcome_of(attempt)
    if not bench.system.failed:
        return False
    assert ended.error is None, "an error that is not ours"
    assert ended.left == []
    assert sum(bench.waits_ms) <= WAITED_MS_MAX, f"it waits: {bench.waits_ms}"
    error = raised[0] if raised else None
    found = rows_in(folder)
    if error is None:
        assert found == after
    elif operation.is_stepwise or isinstance(error, CommitUnknownError):
        assert found in (before, after)
    else:
        assert found == before, f"rows changed in spite of {error!r}"

    bench.waits_ms.clear()
    table = hw.open_table(folder, {**OPTIONS, **operation.options})
    if operation.again is not None:
        operation.again(table)
        found = rows_in(folder)
        assert found == after
    table.upsert(LATER)
    assert sum(bench.waits_ms) <= WAITED_MS_MAX, f"the next one waits: {bench.waits_ms}"
    assert rows_in(folder) == [*found, *LATER.to_pylist()]
    table.services.clean()
    assert table.inspect.problems().to_pylist() == []
    return True


@cache
def _errors() -> list[int]:
    return sorted(FAILING)


def faults_of(calls: list[str]) -> list[Fault]:
    return [
        Fault(at, error, is_lasting)
        for at, call in enumerate(calls)
        for error in _errors()
        if call in FAILING[error]
        for is_lasting in (False, True)
    ]


def run_well(bench: Bench, operation: Operation) -> tuple[list[str], list[Any]]:
    """Return the calls that an operation makes, and the rows that it leaves."""
    folder = bench.copy(operation.source)
    table = hw.open_table(folder, {**OPTIONS, **operation.options})
    bench.system.calls.clear()
    operation.call(table)
    return list(bench.system.calls), rows_in(folder)


def check_faults(bench: Bench, name: str, choose: Callable[[list[Fault]], list[Fault]]) -> None:
    operation = OPERATIONS[name]
    calls, after = run_well(bench, operation)
    met = 0
    for fault in choose(faults_of(calls)):
        try:
            met += check_fault(bench, operation, fault, after)
        except Exception as error:
            error.add_note(f"{name}, {fault} of {len(calls)}: {calls[fault.at]}")
            raise
        for copy in bench.folder.glob("copy-*"):
            shutil.rmtree(copy)
    assert met


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.some(5)
def test_a_call_that_the_system_refuses(bench: Bench, name: str) -> None:
    turn = list(OPERATIONS).index(name)

    def some(faults: list[Fault]) -> list[Fault]:
        # All along the way; errors, and whether they last, take turns.
        chosen = []
        for number in range(SAMPLES):
            error = _errors()[(turn + number) % len(_errors())]
            is_lasting = bool((turn + number) % 2)
            fitting = [f for f in faults if f.error == error and f.is_lasting == is_lasting]
            place = (2 * number + 1) * len(fitting) // (2 * SAMPLES)
            chosen.append(fitting[place])
        return chosen

    check_faults(bench, name, some)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("name", OPERATIONS)
def test_any_call_that_the_system_refuses(bench: Bench, name: str) -> None:
    """Every error at every call, lasting or not in turns: 18,000 faults in all."""

    def in_turns(faults: list[Fault]) -> list[Fault]:
        return [f for f in faults if f.is_lasting == bool((f.at + _errors().index(f.error)) % 2)]

    check_faults(bench, name, in_turns)
