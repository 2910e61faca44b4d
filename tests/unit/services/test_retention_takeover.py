"""A process stalls before any of its writes, another one takes over, and then it wakes up.

What it does then changes nothing any more: it fails its next proof, and what it still deletes was
to be deleted. Where it stalls with the table lock in its hands, nobody can take over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.support.manual_clock import ManualClock
from tests.support.retained_answers import ask_all, check_unchanged, completion_times
from tests.support.tables import a_table
from tests.support.tables import trips as _rows

from headwater.config.clean import CleanConfig
from headwater.context import TableContext
from headwater.errors import ConflictError, ErrorKind, FencedError
from headwater.kernel.table_config import table_layout
from headwater.kernel.timeline.active import load_active
from headwater.kernel.txn.locks.in_process import InProcessLockProvider, InProcessLocks
from headwater.model.instant import Action
from headwater.seams.components import Components
from headwater.seams.ids import Owner, SystemIds
from headwater.seams.storage import Storage, create_each
from headwater.services.clean import run_clean
from headwater.services.restore import finish_restores, run_restore
from headwater.services.rollback import rollback_failed_writes
from headwater.services.undo import rollback_commit
from headwater.table import Table

pytestmark = pytest.mark.usefixtures("tables_with_a_lock")

QUICK_TO_DIE = {
    "hoodie.client.heartbeat.interval_in_ms": "1000",
    "hoodie.client.heartbeat.tolerable.misses": "2",
}
WRITES = ("put", "put_if_absent", "open_output", "replace", "delete")
Work = Callable[[TableContext], Any]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Return a table with four commits and a savepoint of the first."""
    made = a_table(tmp_path, partition_by="city", buckets=1).create()
    for number in range(4):
        made.upsert(_rows(("a", "sf", number), (f"n{number}", "ny", number)))
        if number == 0:
            made.services.savepoint()
    return made


class Stalling:
    """Storage of a process that stalls before one of its writes while others act."""

    def __init__(self, storage: Storage, before: int, act: Callable[[], None]) -> None:
        self._storage = storage
        self._before = before
        self._act = act
        self.writes = 0

    def put_many(self, objects: Mapping[str, bytes]) -> None:
        for path, data in objects.items():
            self.put(path, data)

    def create_many(self, objects: Mapping[str, bytes]) -> None:
        create_each(self, objects)

    def delete_many(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.delete(path)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._storage, name)
        if name not in WRITES:
            return call

        def stalled(*arguments: Any, **named: Any) -> Any:
            self.writes += 1
            if self.writes == self._before + 1:
                self._act()
            return call(*arguments, **named)

        return stalled


def _process(table: Table, name: str, locks: InProcessLocks, storage: Any = None) -> TableContext:
    clock = ManualClock(table.context.clock.now_ms())
    ids = SystemIds(Owner(name, 1, name))
    provider = InProcessLockProvider(locks, clock, ids, table=table.uri)
    components = Components(storage or table.storage, clock, ids, provider)
    options = {**QUICK_TO_DIE, "hoodie.write.lock.wait_time_ms": "10"}
    return TableContext.through(components, table.config, options)


def _take_over(process: TableContext, work: Work) -> None:
    """Do the work as a process that waits until it takes the owner of what it finds for dead."""
    clock = process.clock
    rollback_failed_writes(process.rollbacks, process.txn.watch, wait=True)
    for _ in range(2):
        finish_restores(process)
        run_clean(process, CleanConfig(commits_retained=100))
        clock.sleep_ms(10_000)
    if not process.load_timeline().pending:
        work(process)


def _interrupt_everywhere(
    original: Table, copies: Callable[[Table], Iterator[Table]], work: Work
) -> Iterator[tuple[Table, bool]]:
    """Give a copy of a table for each write of the work, after somebody took over before it."""
    for before, table in zip(count(), copies(original), strict=False):
        locks = InProcessLocks()
        taken: list[bool] = []

        def act(table: Table = table, locks: InProcessLocks = locks, taken: Any = taken) -> None:
            try:
                _take_over(_process(table, "heir", locks), work)
            except ConflictError as conflict:
                if conflict.kind is not ErrorKind.LOCK_TIMEOUT:
                    raise
            else:
                taken.append(True)

        storage = Stalling(table.storage, before, act)
        try:
            work(_process(table, "stalled", locks, storage))
        except FencedError:
            assert taken
        except ConflictError as conflict:
            if not taken and conflict.kind is not ErrorKind.LOCK_TIMEOUT:
                raise
        if storage.writes <= before:
            return
        heir = _process(table, "last", locks)
        _take_over(heir, lambda _: None)
        yield table, bool(taken)


def _has_nothing_pending(table: Table) -> bool:
    return not load_active(table.storage, table_layout(table.config).timeline).pending


def _count(table: Table, action: Action) -> int:
    timeline = load_active(table.storage, table_layout(table.config).timeline)
    return [instant.action for instant in timeline.completed].count(action)


def test_a_stalled_clean_deletes_nothing_that_is_needed(
    table: Table, copies: Callable[[Table], Iterator[Table]]
) -> None:
    times = completion_times(table)
    before = ask_all(table, times)
    take_overs = 0
    for copy, was_taken in _interrupt_everywhere(
        table, copies, lambda process: run_clean(process, CleanConfig(commits_retained=1))
    ):
        check_unchanged(before, ask_all(copy, times))
        assert _has_nothing_pending(copy)
        take_overs += was_taken
    assert take_overs >= 3


def test_a_stalled_rollback_takes_back_one_commit(
    table: Table, copies: Callable[[Table], Iterator[Table]]
) -> None:
    times = completion_times(table)
    last = load_active(table.storage, table_layout(table.config).timeline).completed[-1]
    before = ask_all(table, times[:-1])
    expected = before[f"as of {times[-2]}"]

    def work(process: TableContext) -> None:
        timeline = process.load_timeline()
        if timeline.find(last.requested_time) is not None:
            rollback_commit(process, last.requested_time)

    take_overs = 0
    for copy, was_taken in _interrupt_everywhere(table, copies, work):
        if _count(copy, Action.ROLLBACK):
            assert ask_all(copy, times[:-1])["snapshot"] == expected
        assert _count(copy, Action.ROLLBACK) <= 1
        assert _has_nothing_pending(copy)
        take_overs += was_taken
    assert take_overs >= 3


def test_a_stalled_restore_ends_at_the_savepoint(
    table: Table, copies: Callable[[Table], Iterator[Table]]
) -> None:
    times = completion_times(table)
    saved = load_active(table.storage, table_layout(table.config).timeline).savepoints[0]
    expected = ask_all(table, times[:1])[f"as of {times[0]}"]

    def work(process: TableContext) -> None:
        if Action.RESTORE not in [i.action for i in process.load_timeline().completed]:
            run_restore(process, saved.requested_time)

    take_overs = 0
    for copy, was_taken in _interrupt_everywhere(table, copies, work):
        if _count(copy, Action.RESTORE):
            assert ask_all(copy, times[:1])["snapshot"] == expected
        assert _count(copy, Action.RESTORE) <= 1
        assert _has_nothing_pending(copy)
        take_overs += was_taken
    assert take_overs >= 5
