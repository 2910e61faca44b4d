"""What another engine takes back although a pending compaction has taken it in (N-189).

Rollbacks and restores of ours refuse that. The commit point asks once more
(`kernel.txn.compaction_steps`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from headwater.context import TableContext
from headwater.errors import CorruptTableError
from headwater.kernel.txn.changes import load_changes
from headwater.kernel.txn.compaction_steps import read_too_early, undone_since
from headwater.kernel.view.table_view import TableView
from headwater.model.files import FileSlice
from headwater.model.instant import InstantTime

log = logging.getLogger(__name__)


def still_committed(
    table: TableContext, view: TableView, plan: InstantTime, slices: Sequence[FileSlice]
) -> list[FileSlice | None]:
    """Return planned slices without what another engine has taken back since.

    None stands for one that has no logs left or has lost its base file: the next plan takes in what
    its group has then.
    """
    undoing = undone_since(view.timeline, plan)
    changes = load_changes(table.storage, table.layout, undoing)
    gone = frozenset().union(*(change.undone for change in changes.values()))
    kept: list[FileSlice | None] = [_without(one, gone) for one in slices]
    if left_out := [str(one.group) for one, found in zip(slices, kept, strict=True) if not found]:
        log.warning(
            "file groups left out of a plan, for another engine has taken their files back "
            "table=%s instant=%s groups=%s",
            table.config.name,
            plan,
            ", ".join(left_out),
        )
    return kept


def _without(one: FileSlice, gone: frozenset[InstantTime]) -> FileSlice | None:
    if gone.isdisjoint(times_of([one])):
        return one
    logs = tuple(file for file in one.logs if file.instant_time not in gone)
    if not logs or (one.base is not None and one.base.instant_time in gone):
        return None
    return replace(one, logs=logs)


def check_not_taken_back(
    table: TableContext, plan: InstantTime, read: frozenset[InstantTime], error: CorruptTableError
) -> None:
    """Raise if what could not be read was taken back meanwhile, which is no damage."""
    undoing = undone_since(table.load_timeline(), plan)
    for time, change in load_changes(table.storage, table.layout, undoing).items():
        if change.undone & read:
            raise read_too_early(plan, time) from error


def times_of(slices: Iterable[FileSlice]) -> frozenset[InstantTime]:
    """Return the instants that wrote the files of some slices."""
    return frozenset(file.instant_time for one in slices for file in one.files())
