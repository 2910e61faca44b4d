"""N-90: what a write puts at once lands in any order, and its process may die in between."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.support.dying import DyingStorage, Killed
from tests.support.tables import a_table, columns, rows_of

from headwater.kernel.layout import METADATA_TIMELINE, TableLayout
from headwater.seams.clock import SystemClock
from headwater.seams.ids import Owner, SystemIds
from headwater.table import Table

pytestmark = pytest.mark.usefixtures("tables_with_a_lock")

T = TypeVar("T")
R = TypeVar("R")

TIMELINE = TableLayout().timeline
SCHEMA = columns("id string not null, city string, value long")
rows = rows_of(SCHEMA)


class LastFirst(DyingStorage):
    """What goes out at once is made from the last to the first."""

    def at_once(self, call: Callable[[T], R], items: Sequence[T]) -> list[R]:
        return [call(item) for item in reversed(items)][::-1]


class NeverTicking:
    def cancel(self) -> None:
        """There is nothing to end."""


class DeadClock(SystemClock):
    """The clock of a process whose timers die with it."""

    def every_ms(self, interval_ms: int, call: Callable[[], bool], name: str) -> Any:
        return NeverTicking()


def values(table: Table) -> dict[str, int]:
    found = table.read_arrow()
    return dict(zip(found["id"].to_pylist(), found["value"].to_pylist(), strict=True))


def dead_owner() -> Owner:
    ended = subprocess.Popen(["true"])
    ended.wait()
    return replace(SystemIds().owner, pid=ended.pid, writer_id="dead")


def unfinished(table: Table) -> set[str]:
    """Return what the timelines have of instants that lack some of their files."""
    left: dict[tuple[str, str], set[str]] = {}
    for folder in (TIMELINE, METADATA_TIMELINE):
        for name in table.storage.list_names(folder):
            time, _, state = name.partition(".")
            kind = "completed" if "_" in time else state.rpartition(".")[2]
            left.setdefault((folder, time.partition("_")[0]), set()).add(kind)
    return {
        f"{folder}: {', '.join(sorted(kinds))}"
        for (folder, _), kinds in left.items()
        if len(kinds) < 3
    }


@pytest.mark.parametrize("kind", [DyingStorage, LastFirst])
@pytest.mark.some(1)
def test_n_90_a_write_that_dies_anywhere_is_whole_or_rolled_back(
    tmp_path: Path, kind: type[DyingStorage]
) -> None:
    table = a_table(tmp_path, SCHEMA, partition_by="city", buckets=1).create()
    table.upsert(rows(("a", "sf", 0)))
    ids, stored, seen = SystemIds(dead_owner()), 0, set[str]()
    for written in range(1, 60):
        storage: Any = kind(table.storage, written)
        context = table.context
        locks = context.components.locks  # Else its lock would have to be waited for.
        dying = Table(replace(context, storage=storage, clock=DeadClock(), ids=ids, locks=locks))
        before = unfinished(table)
        try:
            dying.upsert(rows(("a", "sf", written)))
            is_over = True
        except Killed:
            is_over = False
        seen |= unfinished(table) - before
        # As a process that has just started sees it.
        found = Table(replace(table.context, options=table.context.options))
        value = values(found)["a"]
        assert value in (stored, written)
        found.services.rollback_failed_writes()
        assert not found.context.load_timeline().pending
        assert unfinished(table) == before
        assert values(found) == {"a": value}
        assert found.inspect.validate_metadata().num_rows == 0
        stored = value
        if is_over:
            break
    assert is_over
    assert stored == written
    alone = {f"{TIMELINE}: inflight", f"{METADATA_TIMELINE}: completed"}
    assert alone <= seen if kind is LastFirst else alone.isdisjoint(seen)
