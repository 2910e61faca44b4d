"""Which file slices answer a snapshot, read-optimised or time-travel query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headwater.config.table import TableConfig
from headwater.errors import InvalidInputError
from headwater.kernel.arrow.meta_columns import META_COLUMNS
from headwater.kernel.view.as_of import parse_as_of
from headwater.kernel.view.table_view import TableView, load_view
from headwater.model.files import FileSlice
from headwater.queries.slice_reader import SliceQuery
from headwater.seams.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """What to read; see `Table.read`."""

    columns: tuple[str, ...] | None = None
    as_of: str | None = None
    is_read_optimized: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """The slices of one moment, and how to read them."""

    query: SliceQuery
    slices: tuple[FileSlice, ...]


def plan_snapshot(
    storage: Storage,
    config: TableConfig,
    request: ReadRequest,
    *,
    storage_options: Mapping[str, str],
    merge_function: str | None = None,
) -> SnapshotPlan:
    """Plan a query of one moment: now, or as of a time, inclusive.

    Raises:
        InvalidInputError: a column does not exist, or the time is malformed.
        NotFoundError: the table cannot be read as of that time.
        CorruptTableError: a file of the answer is missing.
    """
    as_of = None if request.as_of is None else parse_as_of(request.as_of)
    view = load_view(storage, config, as_of=as_of)
    query = SliceQuery(
        storage_uri=storage.uri,
        storage_options=storage_options,
        config=config,
        schema=view.schema(),
        columns=_columns(view, request.columns),
        merge_function=merge_function,
    )
    slices = view.read_optimized_slices() if request.is_read_optimized else view.slices()
    view.check_complete(slices)
    return SnapshotPlan(query, tuple(slices))


def _columns(view: TableView, asked: Sequence[str] | None) -> tuple[str, ...]:
    names = view.schema().names
    if asked is None:
        return tuple(names)
    unknown = [name for name in asked if name not in names and name not in META_COLUMNS]
    if unknown:
        raise InvalidInputError(
            f"Table {view.config.name} has no column {', '.join(unknown)}; it has "
            f"{', '.join(names)}"
        )
    return tuple(asked)
