"""Which file slices answer a snapshot, read-optimised or time-travel query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.meta_columns import META_COLUMNS, schema_with_meta_columns
from headwater.config.table import TableConfig
from headwater.context import TableContext
from headwater.errors import InvalidInputError
from headwater.kernel.table_config import table_layout
from headwater.kernel.timeline.active import load_active
from headwater.kernel.timeline.history.read import HistoryTimeline
from headwater.kernel.view.as_of import completion_of, parse_as_of
from headwater.kernel.view.slicing import without_logs
from headwater.metadata.view import IndexedView, view_of
from headwater.model.files import FileSlice
from headwater.model.instant import InstantTime
from headwater.queries.data_skipping import readable_partitions, skip_slices
from headwater.queries.located_groups import located_groups
from headwater.queries.predicate import Predicate
from headwater.queries.pruning import prune_partitions, prune_slices
from headwater.queries.row_filter import bind_predicate, filter_rows
from headwater.queries.slice_query import SliceQuery
from headwater.queries.text_filter import filter_of, known_part_of, with_now

_FEW_SLICES = 4
"""So few slices, in which records were located, are read at once: asking an index for their
statistics costs more than their footers, which say the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """What to read; see `Table.read`."""

    columns: tuple[str, ...] | None = None
    as_of: str | datetime | None = None
    is_read_optimized: bool = False
    pinned: InstantTime | None = None
    """A completion time that was the newest when somebody was told of the columns. The table is
    read as of it; while it is the newest, by all indexes."""
    where: str | pc.Expression | None = None
    """A condition in SQL, or an expression on data and meta columns."""
    zone: str = "UTC"
    """That of times in the condition that do not say theirs."""
    now: datetime | None = None
    """What a condition that asks for the time is answered; when the query is planned unless
    given."""
    known: Predicate = field(default_factory=Predicate)
    """What else is known of the rows that the caller wants; others may be left out."""
    is_filtered: bool = False
    """Whether all rows that the query gives must satisfy `where`. Otherwise the caller filters them
    again, and what is understood of `where` only spares reading them."""


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """The slices of one moment, and how to read them."""

    query: SliceQuery
    slices: tuple[FileSlice, ...]
    where: str | None = None
    """The condition in SQL for whoever filters rows again; it says the time that was asked for."""


def plan_snapshot(
    table: TableContext, request: ReadRequest, view: IndexedView | None = None
) -> SnapshotPlan:
    """Plan a query of one moment: now, or as of a time, inclusive.

    Args:
        view: the table as of the request's moment, if it was loaded already.

    Raises:
        InvalidInputError: a column does not exist, the time is malformed, or rows must satisfy a
            condition that is not understood.
        NotFoundError: the table cannot be read as of that time.
        CorruptTableError: a file of the answer is missing.
    """
    if view is None:
        as_of = None if request.as_of is None else find_as_of(table, request.as_of)
        view = view_of(table, as_of=as_of)
        if as_of is None and request.pinned not in (None, view.instant):
            request = replace(request, as_of=request.pinned)
            view = view_of(table, as_of=request.pinned)
    schema = view.schema()
    if isinstance(request.where, str):
        now = request.now or table.moment()
        request = replace(request, where=with_now(request.where, schema, request.zone, now))
    where = _with_known(_row_filter(request, schema), request, schema)
    columns = _columns(table.config, schema, request.columns)
    query = SliceQuery.on(table, schema, columns=columns, where=where)
    if isinstance(where, Predicate) and where.is_known:
        slices = _matching_slices(view, where, schema, request, table.options)
    else:
        slices = _as_asked(view.slices(), request)
    view.check_complete(slices)
    said = request.where if isinstance(request.where, str) else None
    return SnapshotPlan(query, tuple(slices), said)


def find_as_of(table: TableContext, given: str | datetime) -> InstantTime:
    """Return the completion time that a query of a table means; see `kernel.view.as_of`.

    Raises:
        InvalidInputError: the time is malformed.
    """
    time = parse_as_of(given, is_utc=table.config.is_utc)
    if given != time:
        return time  # A moment, in a form that no instant has.
    layout = table_layout(table.config)
    timeline = load_active(table.storage, layout.timeline)
    return completion_of(time, timeline, HistoryTimeline(table.storage, layout.history))


def _as_asked(slices: list[FileSlice], request: ReadRequest) -> list[FileSlice]:
    return without_logs(slices) if request.is_read_optimized else slices


def _matching_slices(
    view: IndexedView,
    where: Predicate,
    schema: pa.Schema,
    request: ReadRequest,
    options: Mapping[str, str],
) -> list[FileSlice]:
    """Return the slices that may hold rows which satisfy a condition.

    What is cheap to ask and leaves most out comes first, so that little else is loaded: where
    records are, then which partitions can be left out, then buckets and file statistics.
    """
    is_newest = request.as_of is None
    # Indexes over rows tell of records as their logs have left them, and so not where base files
    # hold versions of them that are updated, moved or deleted since.
    is_located = is_newest and not request.is_read_optimized
    located = located_groups(view, where, schema, options) if is_located else None
    if located is not None:
        slices = view.slices_of(located)
    else:
        partitions = view.known_partitions()
        if partitions is not None:
            partitions = prune_partitions(partitions, where, view.config, schema)
            if is_newest:
                partitions = readable_partitions(view, partitions, where, schema)
        slices = view.slices(partitions)
    slices = prune_slices(_as_asked(slices, request), where, view.config, schema)
    if located is not None and len(slices) <= _FEW_SLICES:
        return slices
    return skip_slices(view, slices, where, schema)


def _row_filter(request: ReadRequest, schema: pa.Schema) -> Predicate | pc.Expression | None:
    known = schema_with_meta_columns(schema)
    if request.where is None:
        return None
    if isinstance(request.where, str):
        if request.is_filtered:
            return filter_of(request.where, known, request.zone)
        return known_part_of(request.where, known, request.zone)
    if not isinstance(request.where, pc.Expression):
        raise InvalidInputError(
            "A condition is SQL as text, or an expression of pyarrow, got "
            f"{type(request.where).__name__}"
        )
    try:
        filter_rows(known.empty_table(), request.where)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidInputError(
            f"The expression {request.where} cannot be evaluated on the table's columns: {error}"
        ) from error
    return request.where


def _with_known(
    where: Predicate | pc.Expression | None, request: ReadRequest, schema: pa.Schema
) -> Predicate | pc.Expression | None:
    known = bind_predicate(request.known, schema_with_meta_columns(schema))
    if isinstance(where, pc.Expression) or not known.is_known:
        return where
    own = where or Predicate()
    return replace(
        own,
        conditions=own.conditions + known.conditions,
        alternatives=own.alternatives + known.alternatives,
    )


def _columns(
    config: TableConfig, schema: pa.Schema, asked: Sequence[str] | None
) -> tuple[str, ...]:
    names = schema.names
    if asked is None:
        return tuple(names)
    unknown = [name for name in asked if name not in names and name not in META_COLUMNS]
    if unknown:
        raise InvalidInputError(
            f"Table {config.name} has no column {', '.join(unknown)}; it has {', '.join(names)}"
        )
    if repeated := [name for name, count in Counter(asked).items() if count > 1]:
        raise InvalidInputError(
            f"A read of table {config.name} names {', '.join(repeated)} twice. Name each column "
            "once, and rename copies of it afterwards"
        )
    return tuple(asked)
