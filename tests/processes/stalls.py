"""What processes are stopped in, what others do meanwhile, and what must be true afterwards.

Every write says which rows it brings, with ordering values, so that the rows of a table follow from
*which* writes count and not from their order: of each key the largest value. A write counts if it
was acknowledged and no restore has taken it back.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.hudi_rs import location_for_hudi_rs
from tests.support.stopped_process import A_DAY_MS, Leaping, StoppedProcess, Stops, Told
from tests.support.tables import COW, MOR, TableBuilder, a_table, columns, rows_of

import headwater as hw
from headwater import opening
from headwater.errors import (
    CommitUnknownError,
    ConflictError,
    ErrorKind,
    FencedError,
    HeadwaterError,
)
from headwater.format.timeline.records import decode_record
from headwater.kernel.journal.storage import JournaledStorage
from headwater.kernel.timeline.contents import load_contents
from headwater.kernel.timeline.history.read import HistoryTimeline
from headwater.model.instant import Action, State
from headwater.model.plans import RestorePlan
from headwater.table import Table

SCHEMA = columns("id string not null, ts long, value long")
rows = rows_of(SCHEMA)

Rows = tuple[tuple[str, int, int], ...]
"""Key, ordering value, value."""

OPTIONS = {
    "headwater.timeline.fenced": "true",
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "3",
    "hoodie.keep.max.commits": "4",
    "hoodie.compact.inline.max.delta.commits": "1",
    "hoodie.parquet.small.file.limit": "0",
}
MODES = {
    "non-blocking": {"hoodie.write.concurrency.mode": "non_blocking_concurrency_control"},
    "optimistic": {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"},
}
UNKNOWN = "unknown"
ENDED = (ErrorKind.INSTANT_NOT_FOUND, ErrorKind.INVALID_STATE)
"""A plan was executed, or aborted and archived, while somebody was about to cancel it."""
OWN: Rows = (("a", 50, 1), ("own", 1, 2), ("late", 0, 3))
"""What a stopped writer brings: of `a` the newest, of `late` none that counts beside others'."""


@dataclass
class Writes:
    """What was acknowledged, by instant."""

    acknowledged: dict[str, Rows] = field(default_factory=dict)

    def upsert(self, table: Table, *brought: tuple[str, int, int]) -> None:
        self.acknowledged[table.upsert(rows(*brought)).instant] = brought

    def expected(self, taken_back: set[str]) -> dict[str, int]:
        best: dict[str, tuple[int, int]] = {}
        for instant, brought in self.acknowledged.items():
            if instant not in taken_back:
                for key, ts, value in brought:
                    best[key] = max(best.get(key, (-1, 0)), (ts, value))
        return {key: value for key, (_, value) in best.items()}


@dataclass(frozen=True)
class Operation:
    """What one process does, on a table that was prepared for it."""

    table: TableBuilder
    prepare: Callable[[Table, Writes], Any]
    """What comes before; returns what `act` needs to know, such as an instant."""
    act: Callable[[Table, Any], Any]
    services: tuple[str, ...] = ("clean", "archive")
    """What others run meanwhile."""
    refusals: tuple[ErrorKind, ...] = ()
    """What it may be told besides conflicts."""

    def on(self, path: Path) -> tuple[Any, Writes]:
        writes = Writes()
        table = replace(self.table, path=path).create()
        return self.prepare(table, writes), writes


@dataclass(frozen=True)
class Scene:
    """An operation with the table that it is about to begin on, which can be had many times."""

    operation: Operation
    path: Path
    known: Any
    writes: Writes

    @classmethod
    def of(cls, operation: Operation, path: Path) -> Scene:
        return cls(operation, path, *operation.on(path))

    @property
    def options(self) -> Mapping[str, str]:
        return self.operation.table.options

    def copied(self, path: Path) -> Scene:
        shutil.copytree(self.path, path)
        return replace(self, path=path, writes=Writes(dict(self.writes.acknowledged)))

    def remove(self) -> None:
        """Delete the table and what was copied of it for hudi-rs."""
        shutil.rmtree(self.path)
        shutil.rmtree(f"{self.path}-listed", ignore_errors=True)

    def open(self) -> Table:
        return hw.open_table(self.path, self.options)

    def start(self, **how: Any) -> StoppedProcess[Table, Any]:
        return StoppedProcess(self.open, lambda table: self.operation.act(table, self.known), **how)


# What processes are stopped in -----------------------------------------------------------------


def _first_writes(table: Table, writes: Writes) -> None:
    for number in range(3):
        writes.upsert(table, ("a", number, number), (f"first-{number}", 1, number))


def _upsert(table: Table, _: None) -> str:
    return table.upsert(rows(*OWN)).instant


def _plan_clustering(table: Table, writes: Writes) -> str:
    _first_writes(table, writes)
    plan = table.services.schedule_clustering(cancellable=True)
    assert plan is not None
    return plan


def _plan_rewrite(schedule: str) -> Callable[[Table, Writes], str]:
    """Return what plans a rewrite that no write cancels."""

    def prepare(table: Table, writes: Writes) -> str:
        _first_writes(table, writes)
        plan = getattr(table.services, schedule)()
        assert isinstance(plan, str)
        return plan

    return prepare


def _cluster(table: Table, plan: str) -> None:
    table.services.cluster(plan)


def _compact(table: Table, plan: str) -> None:
    table.services.compact(plan)


def _cancel(table: Table, plan: str) -> None:
    table.services.request_cancel(plan)
    table.services.execute_abort(plan)


def _leave_failed_write(table: Table, writes: Writes) -> None:
    """Let a process die when all is there of a write but the decision that completes it."""
    _first_writes(table, writes)

    def open_again() -> Table:
        return hw.open_table(table.uri, table.context.options)

    with StoppedProcess(open_again, lambda t: _upsert(t, None), stops=before_slot(2)) as process:
        process.wait_until_stopped()


def before_slot(number: int) -> Stops:
    """Stop before the decision of this number that a process makes, from 1."""

    def stops(calls: Sequence[str]) -> bool:
        decided = [call for call in calls if is_slot_put(call)]
        return len(decided) == number and is_slot_put(calls[-1])

    return stops


def is_slot_put(call: str) -> bool:
    return call.startswith("put_if_absent") and call.endswith(".slot")


def _roll_back(table: Table, _: None) -> int:
    return len(table.services.rollback_failed_writes(wait=True))


def _many_writes(table: Table, writes: Writes) -> None:
    for number in range(8):
        writes.upsert(table, ("a", number, number), (f"first-{number}", 1, number))


def _archive(table: Table, _: None) -> int:
    return len(table.services.archive().archived)


def _save(table: Table, writes: Writes) -> str:
    _first_writes(table, writes)
    saved = table.services.savepoint().instant
    writes.upsert(table, ("a", 30, 30), ("undone", 1, 1))
    writes.upsert(table, ("a", 31, 31))
    return saved


def _restore(table: Table, saved: str) -> tuple[str, ...]:
    return table.services.restore(saved).undone


FOLDING, CLUSTERING = ("compact", "clean", "archive"), ("cluster", "clean", "archive")


def _table(path: Path, table_type: str, mode: str, **arguments: Any) -> TableBuilder:
    how = {"ordering": "ts", "table_type": table_type, **(arguments or {"buckets": 1})}
    return a_table(path, SCHEMA, **how).with_options({**OPTIONS, **MODES[mode]})


def operation_on(path: Path, name: str) -> Operation:
    """Return one of `OPERATIONS`, for tables below a folder."""
    optimistic = _table(path, MOR, "optimistic")
    on_base = _table(path, COW, "optimistic")
    match name:
        case "commit-mor-non-blocking":
            non_blocking = _table(path, MOR, "non-blocking")
            return Operation(non_blocking, _first_writes, _upsert, FOLDING)
        case "commit-mor-optimistic":
            return Operation(optimistic, _first_writes, _upsert, FOLDING)
        case "commit-cow-optimistic":
            return Operation(on_base, _first_writes, _upsert)
        case "cancellation":
            looked_up = _table(path, COW, "optimistic", index="simple")
            return Operation(looked_up, _plan_clustering, _cancel, CLUSTERING, ENDED)
        case "clustering":
            looked_up = _table(path, COW, "optimistic", index="simple")
            plan = _plan_rewrite("schedule_clustering")
            return Operation(looked_up, plan, _cluster, CLUSTERING, ENDED)
        case "compaction":
            plan = _plan_rewrite("schedule_compaction")
            return Operation(optimistic, plan, _compact, FOLDING, ENDED)
        case "rollback":
            return Operation(optimistic, _leave_failed_write, _roll_back, FOLDING)
        case "archive":
            return Operation(on_base, _many_writes, _archive)
        case "restore":  # What it takes back must not be archived.
            return Operation(on_base, _save, _restore, ("clean",))
        case _:
            raise ValueError(name)


OPERATIONS = (
    *("commit-mor-non-blocking", "commit-mor-optimistic", "commit-cow-optimistic"),
    *("clustering", "compaction", "cancellation", "rollback", "archive", "restore"),
)


# What others do meanwhile ----------------------------------------------------------------------


@contextmanager
def patient() -> Iterator[None]:
    """Let what is opened here wait for nobody: time leaps instead."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "SystemClock", Leaping)
        yield


def act_meanwhile(scene: Scene, *, is_busy: bool) -> None:
    """Take the stopped process for dead, and go on as if it was.

    Those who are busy decide so much that the journal forgets where the stopped one was.
    """
    with patient():
        table = scene.open()
    run = table.services
    try_to(partial(run.rollback_failed_writes, wait=True))
    if scene.operation.act in (_cluster, _compact):
        _take_over(table, scene)
    for number in range(4 if is_busy else 1):
        brought = (("a", 10 + number, number), (f"other-{number}", 1, number), ("late", 9, number))
        try_to(partial(scene.writes.upsert, table, *brought))
        for name in scene.operation.services if is_busy else ():
            try_to(getattr(run, name))


def _take_over(table: Table, scene: Scene) -> None:
    """Do what the stopped process is at, once its heartbeat has stood still for long enough."""
    try_to(partial(scene.operation.act, table, scene.known))  # Sees the heartbeat.
    table.context.components.clock.sleep_ms(A_DAY_MS)
    try_to(partial(scene.operation.act, table, scene.known))


def try_to(act: Callable[[], object]) -> None:
    """Do what may be refused because somebody else is at work."""
    try:
        act()
    except (ConflictError, FencedError):
        return


# What must be true afterwards ------------------------------------------------------------------


def check_told(scene: Scene, told: Told[Any]) -> None:
    """Check that what a process was told is so, and note a write that was acknowledged.

    Of an unknown outcome the table says how it came out, all of it or nothing.
    """
    error = told.error
    if error is not None and not isinstance(error, HeadwaterError):
        raise error
    if error is not None and error.kind not in scene.operation.refusals:
        assert isinstance(error, (ConflictError, FencedError, CommitUnknownError)), repr(error)
    table = scene.open()
    if scene.operation.act is _upsert:
        if error is None:
            assert told.answer is not None
            scene.writes.acknowledged[told.answer] = OWN
        elif isinstance(error, CommitUnknownError) and "own" in rows_by_us(table):
            scene.writes.acknowledged[UNKNOWN] = OWN
    elif scene.operation.act is _cancel and error is None:
        assert scene.known not in _instants(table)
    elif scene.operation.act is _restore and error is None:
        assert told.answer is not None
        assert set(told.answer) <= _taken_back(table)


def check_table(scene: Scene) -> None:
    """Check that nothing that was acknowledged is lost, and all can read and go on."""
    table = _check_rows(scene)
    # A process that gave up may leave what it began, on the timeline and, if it was to bring rows,
    # in data files that clean takes away; then fsck says so, and nothing else.
    left = {"timeline", "files"} if scene.operation.act is _upsert else {"timeline"}
    assert {row["check"] for row in table.inspect.problems(deep=True).to_pylist()} <= left
    with patient():
        table = scene.open()
    table.services.rollback_failed_writes(wait=True)
    if scene.known in table.inspect.plans()["instant"].to_pylist():
        scene.operation.act(table, scene.known)  # Who was to execute it has given up.
    table.services.clean()
    scene.writes.upsert(table, ("a", 60, 60), ("after", 1, 1))
    table = _check_rows(scene)
    assert table.inspect.problems(deep=True).to_pylist() == []


def _check_rows(scene: Scene) -> Table:
    table = scene.open()
    expected = scene.writes.expected(_taken_back(table))
    assert rows_by_us(table) == expected
    assert rows_by_hudi_rs(table) == expected
    _check_files(table)
    known = _instants(table)
    acknowledged = {*scene.writes.acknowledged} - {UNKNOWN}
    assert acknowledged - known <= _taken_back(table)
    return table


def _check_files(table: Table) -> None:
    """Check that other engines find on the timelines what the journal has, and no more."""
    storage = table.storage
    assert isinstance(storage, JournaledStorage)
    state = storage.journal.look().state
    for folder in state.areas.folders:
        assert sorted(storage.stored.list_names(folder)) == sorted(state.names(folder)), folder


def rows_by_us(table: Table) -> dict[str, int]:
    return {row["id"]: row["value"] for row in table.read_arrow().to_pylist()}


def rows_by_hudi_rs(table: Table) -> dict[str, int]:
    import hudi

    batches = hudi.HudiTableBuilder.from_base_uri(location_for_hudi_rs(table)).build().read()
    found = [row for batch in batches for row in pa.record_batch(batch).to_pylist()]
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["value"] for row in found}


def _instants(table: Table) -> set[str]:
    history = HistoryTimeline(table.storage, table.context.layout.history)
    completed = table.context.load_timeline().completed
    return {i.requested_time for i in (*completed, *history.instants())}


def _taken_back(table: Table) -> set[str]:
    """Return what restores have taken back: all of their plans, or some if they are pending."""
    folder = table.context.layout.timeline
    timeline, known = table.context.load_timeline(), _instants(table)
    found: set[str] = set()
    restores = [i for i in timeline.instants if i.action is Action.RESTORE]
    plans = load_contents(table.storage, folder, restores, State.REQUESTED)
    for restore, data in zip(restores, plans, strict=True):
        plan = decode_record(RestorePlan, data, path=folder)
        planned = {info.commit_time for info in plan.instants_to_rollback}
        if restore.state is State.COMPLETED:
            assert not planned & known
        found |= planned - known
    return found
