"""Reading one file slice: its base file alone, or merged with its logs.

Only the columns that a query asks for are read, with those that merging needs to decide between
records. Filters on other columns than the key come after the merge: before it, a record that the
filter drops would give way to the older one that it had replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from headwater.config.table import TableConfig
from headwater.kernel.arrow.fold import fold_logs
from headwater.kernel.arrow.merge import merge_batches
from headwater.kernel.arrow.merge_rule import MergeMode, MergeRule, PartialUpdate, merge_rule_of
from headwater.kernel.arrow.meta_columns import OPERATION, RECORD_KEY, schema_with_meta_columns
from headwater.kernel.arrow.record_marks import IS_DELETED
from headwater.kernel.arrow.schema_evolution import project_batch
from headwater.kernel.format.base_file import open_base_file
from headwater.kernel.format.log_blocks import read_log_parts
from headwater.model.files import FileSlice
from headwater.seams.open_storage import open_storage
from headwater.seams.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceQuery:
    """What to read of file slices: frozen and picklable, so that any engine can run it."""

    storage_uri: str
    storage_options: Mapping[str, str]
    config: TableConfig
    schema: pa.Schema
    """The table's data columns as of the query."""
    columns: tuple[str, ...]
    """Columns of the answer, in order; meta columns may be among them."""
    merge_function: str | None = None
    """The function of a table with merge mode CUSTOM."""

    @property
    def result_schema(self) -> pa.Schema:
        known = schema_with_meta_columns(self.schema)
        return pa.schema([known.field(name) for name in self.columns])


def read_slices(query: SliceQuery, slices: list[FileSlice]) -> Iterator[pa.RecordBatch]:
    """Give the rows of several slices, one slice after the other.

    Raises:
        CorruptTableError: a file is missing or damaged; the error names it.
        UnsupportedError: the table's merge rule cannot be honoured.
    """
    storage = open_storage(query.storage_uri, query.storage_options)
    for file_slice in slices:
        yield from read_slice(storage, query, file_slice)


def read_slice(
    storage: Storage, query: SliceQuery, file_slice: FileSlice
) -> Iterator[pa.RecordBatch]:
    """Give the rows of one slice with exactly the columns of the query."""
    result = query.result_schema
    if not file_slice.logs:
        yield from _read_base(storage, file_slice, result)
        return
    rule = merge_rule_of(query.config, custom=query.merge_function)
    needed = _columns_to_merge(query, rule)
    parts = read_log_parts(
        storage,
        file_slice.logs,
        columns=None if _looks_at_all(rule) else {*needed.names, *_delete_marks(rule)},
        is_visible_instant=lambda _: True,  # The view has left out what is not.
    )
    folded = fold_logs(parts, rule, needed)
    base = _read_base(storage, file_slice, needed)
    for batch in merge_batches(base, folded, rule, schema=needed):
        yield batch.select(list(result.names))


def _read_base(
    storage: Storage, file_slice: FileSlice, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    if file_slice.base is None:
        return
    with open_base_file(storage, file_slice.base) as file:
        for batch in file.iter_batches(schema.names):
            yield project_batch(batch, schema)


def _columns_to_merge(query: SliceQuery, rule: MergeRule) -> pa.Schema:
    known = schema_with_meta_columns(query.schema)
    if _looks_at_all(rule):
        return known
    wanted = {*query.columns, RECORD_KEY}
    if rule.merges_by_ordering:
        wanted.update(rule.ordering_fields)
    return pa.schema([column for column in known if column.name in wanted])


def _delete_marks(rule: MergeRule) -> tuple[str, ...]:
    """Return the columns that make a record of a log a delete."""
    marks = (IS_DELETED, OPERATION)
    return marks if rule.delete_field is None else (*marks, rule.delete_field)


def _looks_at_all(rule: MergeRule) -> bool:
    return rule.mode is MergeMode.CUSTOM or rule.partial is not PartialUpdate.NONE
