"""Incremental queries: the rows that were written in a window of time.

The answer is view(until), restricted to rows whose `_hoodie_commit_time` is the instant of a write
that completed in (after, until] (INV-54). So it holds the last version of every record that was
inserted or updated in the window, whole, wherever compaction and clustering have put it meanwhile:
table services keep each row's instant and contribute nothing of their own (INV-56). Rows carry the
time at which their write was requested; the window is about completion times, of which there are
no late arrivals (INV-41), so consecutive windows show every write exactly once.

Deletes leave no row and do not show up, as in Hudi; the change feed (`cdc`) has them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime

from headwater.arrow.meta_columns import COMMIT_TIME
from headwater.config.table import TableConfig
from headwater.context import TableContext
from headwater.errors import ErrorKind, InvalidInputError, NotFoundError, UnsupportedError
from headwater.kernel.view.as_of import parse_as_of
from headwater.kernel.view.table_view import TableView
from headwater.metadata.view import view_of
from headwater.model.files import FileSlice
from headwater.model.instant import InstantTime
from headwater.queries.predicate import Comparison, Condition, Predicate
from headwater.queries.slice_query import SliceQuery

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Window:
    """Completion times with `after` < time <= `until`; None leaves an end open."""

    after: InstantTime | None
    until: InstantTime | None


@dataclass(frozen=True, slots=True)
class IncrementalPlan:
    """The slices that may hold rows of the window, and how to read them with `read_slices`.

    `instants` are the requested times of the writes of the window. The query's filter keeps their
    rows only.
    """

    query: SliceQuery
    slices: tuple[FileSlice, ...]
    instants: tuple[InstantTime, ...]


def parse_window(
    after: str | datetime | None, until: str | datetime | None, *, is_utc: bool = True
) -> Window:
    """Return the window that a caller means.

    Args:
        after: a completion time in any form of `as_of`; None, or zeros such as `0`, for the
            beginning.
        until: likewise; None for now.
        is_utc: see `parse_as_of`.

    Raises:
        InvalidInputError: a time is malformed, or the window ends before it begins.
    """
    if _is_zeros(until):
        raise InvalidInputError(
            f"A window until {until}, the beginning, holds nothing. Leave `until` out for one that "
            "ends now, or give a time"
        )
    first = None if after is None or _is_zeros(after) else parse_as_of(after, is_utc=is_utc)
    last = None if until is None else parse_as_of(until, is_utc=is_utc)
    if first is not None and last is not None and last < first:
        raise InvalidInputError(f"The window after {after} until {until} ends before it begins")
    return Window(first, last)


def _is_zeros(given: str | datetime | None) -> bool:
    return isinstance(given, str) and given != "" and not given.strip("0")


def plan_incremental(
    table: TableContext, window: Window, *, is_of_stream: bool = False
) -> IncrementalPlan:
    """Plan to read the rows that were written in a window of time.

    Args:
        is_of_stream: whether later windows are read as well, up to now. Then of a window whose end
            cleaning has passed the rows are read that are still there: the others were written
            again in a later one, or deleted.

    Raises:
        NotFoundError: the table cannot be read as of the end of the window.
        UnsupportedError: the table's rows do not carry their instants.
        CorruptTableError: a file of the answer is missing.
    """
    check_rows_have_instants(table.config)
    view = _view_of_stream(table, window) if is_of_stream else view_of(table, as_of=window.until)
    writes = view.instants_within_open_closed(window.after, window.until)
    instants = tuple(write.requested_time for write in writes)
    schema = view.schema()
    query = SliceQuery.on(table, schema, where=written_by(*instants))
    slices = _slices_to_read(view, window) if instants else []
    view.check_complete(slices)
    return IncrementalPlan(query, tuple(slices), instants)


def _view_of_stream(table: TableContext, window: Window) -> TableView:
    try:
        return view_of(table, as_of=window.until)
    except NotFoundError as error:
        if error.kind is not ErrorKind.OUTSIDE_RETENTION:
            raise
        log.info("window is outside of retention, rows of now are read window=%s", window)
        return view_of(table)


def written_by(*instants: InstantTime) -> Predicate:
    """Return the predicate that holds for rows of some writes."""
    return Predicate((Condition(COMMIT_TIME, Comparison.IN, instants),))


def check_rows_have_instants(config: TableConfig) -> None:
    """Raise unless rows tell which instant wrote them.

    Raises:
        UnsupportedError: the table was created without meta columns.
    """
    if not config.has_meta_fields:
        raise UnsupportedError(
            f"Table {config.name} has hoodie.populate.meta.fields=false, so its rows do not tell "
            "when they were written and changes cannot be read. Create a table with meta fields"
        )


def _slices_to_read(view: TableView, window: Window) -> list[FileSlice]:
    return view.slices() if window.after is None else view.slices_changed_after(window.after)
