"""A rollback dies after every single storage write, and another process comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from tests.support.manual_clock import ManualClock

from headwater.config.table_options import TableType
from headwater.kernel.layout import ATTEMPTS
from headwater.kernel.timeline.active import load_active
from headwater.model.instant import Action, InstantTime
from headwater.services.rollback import rollback_failed_writes
from headwater.table import Table

pytestmark = pytest.mark.usefixtures("tables_with_a_lock")

Bench = Any  # All are in conftest.py, which cannot be imported.
CleanerOf = Callable[..., Any]
Dying = Callable[..., Any]
Copies = Callable[[Table], Iterator[Table]]

WRITES_MIN = 18
"""A rollback of two files writes more often than this; fewer would mean that nothing was tried."""


def contents(table: Table) -> dict[str, bytes]:
    storage = table.storage
    return {
        info.path: storage.read(info.path)
        for info in storage.list_tree("")
        if not info.path.startswith(".hoodie/.locks/")
    }


def check_rolled_back(table: Table, time: InstantTime, before: dict[str, bytes]) -> None:
    """The table is as it was before the failed write, with one completed rollback."""
    after = contents(table)
    assert [path for path in after if time in path] == []
    assert before.items() <= after.items()
    timeline = load_active(table.storage, ".hoodie/timeline")
    assert timeline.pending == ()
    assert [i.action for i in timeline.completed if i.action is Action.ROLLBACK] == ["rollback"]
    values = {row["id"]: row["value"] for row in table.read_arrow().to_pylist()}
    assert values == {"a": 5, "b": 2}
    # A process that dies right after claiming a time leaves the claim, and no such instant.
    for path in after:
        if path.startswith(f"{ATTEMPTS}/"):
            assert timeline.find(InstantTime(path.split("/")[2])) is None


@pytest.mark.parametrize("table_type", list(TableType))
@pytest.mark.some(1)
def test_another_process_finishes_what_a_dead_one_began(
    make_bench: Callable[..., Bench],
    cleaner_of: CleanerOf,
    dying: Dying,
    killed: type[BaseException],
    copies: Copies,
    table_type: TableType,
) -> None:
    bench = make_bench(table_type)
    before = bench.files()
    time = bench.fail_write()
    for writes, table in zip(count(), copies(bench.table), strict=False):
        clock = ManualClock()
        victim = cleaner_of("C", table, clock, dying(table.storage, writes))
        try:
            rollback_failed_writes(victim.rollbacks, victim.watch)
            has_died = False
        except killed:
            has_died = True
            heir = cleaner_of("D", table, _without_timers_of_the_dead(clock))
            rollback_failed_writes(heir.rollbacks, heir.watch, wait=True)
        check_rolled_back(table, time, before)
        if not has_died:
            assert writes > WRITES_MIN
            return


def test_a_second_death_changes_nothing(
    bench: Bench,
    cleaner_of: CleanerOf,
    dying: Dying,
    killed: type[BaseException],
    copies: Copies,
) -> None:
    before = bench.files()
    time = bench.fail_write()
    deaths = 0
    tables = copies(bench.table)
    for first in range(0, WRITES_MIN, 2):
        for second in range(0, WRITES_MIN, 3):
            table = next(tables)
            clock = ManualClock()
            for name, writes in (("C", first), ("D", second), ("E", None)):
                storage = None if writes is None else dying(table.storage, writes)
                cleaner = cleaner_of(name, table, clock, storage)
                try:
                    rollback_failed_writes(cleaner.rollbacks, cleaner.watch, wait=True)
                except killed:
                    deaths += 1
                    clock = _without_timers_of_the_dead(clock)
            check_rolled_back(table, time, before)
    assert deaths > WRITES_MIN


def _without_timers_of_the_dead(clock: ManualClock) -> ManualClock:
    """Return a clock at the same time; what a dead process wanted to do at a later one is off."""
    return ManualClock(clock.now_ms())
