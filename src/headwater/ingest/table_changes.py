"""What is written to another table, window after window of completion times.

Windows follow each other without a gap, and of completion times there are no late arrivals, so
every write is in exactly one of them.

Nobody waits for a reader: a clean, a rollback or a restore may delete the files of a window while
they are being read. Then the window is planned again, on the table as it is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.meta_columns import COMMIT_TIME, RECORD_KEY
from headwater.context import TableContext
from headwater.errors import CorruptTableError, ErrorKind
from headwater.ingest.bad_rows import BadRows
from headwater.ingest.checkpoint import Note
from headwater.ingest.job import TableSource
from headwater.ingest.rows import SourceRows
from headwater.ingest.source import check_same_source
from headwater.metadata.view import view_of
from headwater.model.instant import Action, InstantTime
from headwater.queries.cdc import ChangeFeedPlan, change_schema, plan_change_feed
from headwater.queries.change_images import read_changes
from headwater.queries.incremental import (
    IncrementalPlan,
    Window,
    parse_window,
    plan_incremental,
)
from headwater.queries.slice_query import read_slices

_KIND = "table"
_REMOVING = (Action.CLEAN, Action.ROLLBACK, Action.RESTORE)


@dataclass(frozen=True, slots=True)
class TableChanges:
    """A table whose changes are being read."""

    source: TableSource
    table: TableContext

    @property
    def warnings(self) -> Sequence[str]:
        return ()

    def load_schema(self) -> pa.Schema:
        schema = view_of(self.table.reload()).schema()
        return change_schema(schema) if self.source.is_feed else schema

    def next_batch(self, notes: Iterator[Note]) -> ChangesBatch | None:
        newest = next(notes, None)
        while True:
            table = self.table.reload()
            known = _removals(table)
            try:
                return self._plan(table, newest, known)
            except CorruptTableError as error:
                is_missing = error.kind is ErrorKind.MISSING_DATA_FILE
                if not is_missing or _removals(table) <= known:
                    raise

    def _plan(
        self, table: TableContext, newest: Note | None, removals: frozenset[InstantTime]
    ) -> ChangesBatch | None:
        window = self._window(table, newest)
        if window is None:
            return None
        plan: IncrementalPlan | ChangeFeedPlan
        if self.source.is_feed:
            plan = plan_change_feed(table, window)
            writes = len({task.instant_time for task in plan.tasks})
        else:
            plan = plan_incremental(table, window)
            writes = len(plan.instants)
        return ChangesBatch(table, window, plan, writes, removals) if writes else None

    def _window(self, table: TableContext, newest: Note | None) -> Window | None:
        """Return the time since the last window; None if nothing completed in it."""
        if newest is None:
            after = parse_window(self.source.after, None, is_utc=table.config.is_utc).after
        else:
            check_same_source(newest, _KIND, table.storage.uri)
            after = parse_window(newest.value("until"), None).after
        done = [i.completion_time for i in table.load_timeline().completed if i.completion_time]
        until = max(done, default=None)
        if until is None or (after is not None and until <= after):
            return None
        return Window(after, until)


@dataclass(frozen=True, slots=True)
class ChangesBatch:
    """The writes of one window."""

    table: TableContext
    window: Window
    plan: IncrementalPlan | ChangeFeedPlan
    writes: int
    removals: frozenset[InstantTime]
    """What had deleted files of the table, or begun to, before the window was planned."""

    @property
    def uri(self) -> str:
        return self.table.storage.uri

    @property
    def summary(self) -> str:
        return f"{self.writes} commit{'s' if self.writes > 1 else ''} up to {self.window.until}"

    @property
    def schema(self) -> pa.Schema:
        if isinstance(self.plan, ChangeFeedPlan):
            return self.plan.result_schema
        return self.plan.query.schema

    @property
    def content(self) -> Mapping[str, Any]:
        return {"kind": _KIND, "place": self.uri, "until": str(self.window.until)}

    def read(self, bad: BadRows) -> Iterator[SourceRows]:
        if isinstance(self.plan, ChangeFeedPlan):
            return self._read_feed(self.plan)
        return self._read_rows(self.plan)

    def is_unchanged(self) -> bool:
        return True  # What was read stays in the target, also if the table takes it back.

    def is_overtaken(self) -> bool:
        return not _removals(self.table) <= self.removals

    def _read_rows(self, plan: IncrementalPlan) -> Iterator[SourceRows]:
        """Give rows, each known by its commit and key, in whatever window it is read."""
        names = plan.query.schema.names
        query = replace(plan.query, columns=(COMMIT_TIME, RECORD_KEY, *names))
        with closing(read_slices(query, list(plan.slices))) as batches:
            for batch in batches:
                places = pc.binary_join_element_wise(
                    batch.column(COMMIT_TIME), batch.column(RECORD_KEY), "/"
                )
                yield SourceRows(batch.select(names), self.uri, places)

    def _read_feed(self, plan: ChangeFeedPlan) -> Iterator[SourceRows]:
        """Give changes, each known by its commit and its number among the changes of it."""
        last, count = "", 0
        with closing(read_changes(plan.query, plan.tasks)) as batches:
            for batch in batches:
                if not batch.num_rows:
                    continue
                times = batch.column("ts")
                numbers = _numbers_within(times, last, count)
                last, count = times[-1].as_py(), int(numbers[-1])
                places = pc.binary_join_element_wise(
                    times, pa.array(numbers).cast(pa.string()), "/"
                )
                yield SourceRows(batch, self.uri, places)


def _removals(table: TableContext) -> frozenset[InstantTime]:
    """Return the cleans, rollbacks and restores of a table, the pending ones too."""
    instants = table.load_timeline().instants
    return frozenset(each.requested_time for each in instants if each.action in _REMOVING)


def _numbers_within(times: pa.Array, last: str, count: int) -> np.ndarray[Any, Any]:
    """Return the number of each change among those of its time, which lie one after the other.

    Args:
        last, count: the time of the change before, and its number.
    """
    codes = times.dictionary_encode().indices.to_numpy()
    begins = np.flatnonzero(np.diff(codes, prepend=-1))
    places = np.arange(len(codes))
    starts = np.repeat(begins, np.diff(begins, append=len(codes)))
    numbers = places - starts + 1
    if times[0].as_py() == last:
        numbers[starts == 0] += count
    return numbers
