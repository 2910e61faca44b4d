"""Reading one file slice: its base file alone, or merged with its logs.

Only the columns that a query asks for are read, with those that its filter and merging need.
Filters come after the merge: before it, a record that the filter drops would give way to the older
one that it had replaced. What may be skipped before is told in `pruning`; asking for some record
keys only is such a thing, as a merge never looks across keys.

A table without meta fields does not store record keys. They are made of its key columns for the
merge, and the meta columns of the answer stay null.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headwater.config.table import TableConfig
from headwater.kernel.arrow.fold import fold_logs
from headwater.kernel.arrow.keys import KeyGenerator
from headwater.kernel.arrow.log_parts import DataPart, LogPart
from headwater.kernel.arrow.merge import merge_batches
from headwater.kernel.arrow.merge_rule import MergeMode, MergeRule, PartialUpdate, merge_rule_of
from headwater.kernel.arrow.meta_columns import RECORD_KEY, schema_with_meta_columns
from headwater.kernel.arrow.record_marks import delete_mark_columns
from headwater.kernel.arrow.schema_evolution import project_batch
from headwater.kernel.format.base_file import BaseFileReader, open_base_file
from headwater.kernel.format.log_blocks import read_log_parts
from headwater.model.files import FileSlice
from headwater.queries.predicate import Condition, Predicate
from headwater.queries.pruning import key_conditions, matching_row_groups
from headwater.queries.row_filter import filter_rows
from headwater.seams.open_storage import open_storage
from headwater.seams.storage import Storage

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)

Batches: TypeAlias = Generator[pa.RecordBatch, None, None]
"""Rows of files that are open for as long as rows are taken; to be closed by who stops before."""


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
    where: Predicate | pc.Expression | None = None
    """Which rows to give: a predicate bound to the columns, or an expression on them. Conjuncts
    that a predicate does not know drop no row."""

    @property
    def result_schema(self) -> pa.Schema:
        return self._fields(self.columns)

    @property
    def read_schema(self) -> pa.Schema:
        """The columns of the answer and of the filter; an expression does not tell its columns."""
        known = schema_with_meta_columns(self.schema)
        if self.where is None:
            return self.result_schema
        if not isinstance(self.where, Predicate):
            return known
        more = [name for name in known.names if name in self.where.columns]
        return self._fields(tuple(dict.fromkeys((*self.columns, *more))))

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions of the filter, as far as they are known."""
        return self.where.conditions if isinstance(self.where, Predicate) else ()

    def _fields(self, names: Iterable[str]) -> pa.Schema:
        known = schema_with_meta_columns(self.schema)
        return pa.schema([known.field(name) for name in names])


def read_slices(query: SliceQuery, slices: list[FileSlice]) -> Batches:
    """Give the rows of several slices, one slice after the other.

    Raises:
        CorruptTableError: a file is missing or damaged; the error names it.
        UnsupportedError: the table's merge rule cannot be honoured.
    """
    storage = open_storage(query.storage_uri, query.storage_options)
    for file_slice in slices:
        yield from read_slice(storage, query, file_slice)


def read_slice(
    storage: Storage, query: SliceQuery, file_slice: FileSlice, keys: pa.Array | None = None
) -> Batches:
    """Give the rows of one slice with exactly the columns of the query.

    Args:
        keys: record keys, to read these records only.
    """
    names = list(query.columns)
    batches = (
        _read_merged(storage, query, file_slice, keys)
        if file_slice.logs
        else _read_base(storage, query, file_slice, query.read_schema, query.conditions, keys)
    )
    # An error that is kept keeps this frame, and the frame a file that nobody reads any more.
    with closing(batches):
        for batch in batches:
            kept = filter_rows(batch, query.where)
            if kept.num_rows:
                yield kept.select(names)


def _read_merged(
    storage: Storage, query: SliceQuery, file_slice: FileSlice, keys: pa.Array | None
) -> Batches:
    rule = merge_rule_of(query.config, custom=query.merge_function)
    needed = _columns_to_merge(query, rule)
    parts = read_log_parts(
        storage,
        file_slice.logs,
        columns=None if _looks_at_all(rule) else {*needed.names, *delete_mark_columns(rule)},
        is_visible_instant=lambda _: True,  # The view has left out what is not.
    )
    if keys is not None:
        parts = [_with_keys(part, keys) for part in parts]
    conditions = (
        key_conditions(query.where, query.config) if isinstance(query.where, Predicate) else ()
    )
    with closing(_read_base(storage, query, file_slice, needed, conditions, keys)) as base:
        if query.config.has_meta_fields:
            yield from merge_batches(base, fold_logs(parts, rule, needed), rule, schema=needed)
            return
        generator = KeyGenerator.from_config(query.config)
        made = [
            replace(part, rows=_with_made_keys(part.rows, generator))
            if isinstance(part, DataPart)
            else part
            for part in parts
        ]
        keyed = (_with_made_keys(batch, generator) for batch in base)
        for batch in merge_batches(keyed, fold_logs(made, rule, needed), rule, schema=needed):
            yield _with_record_keys(batch, pa.nulls(batch.num_rows, pa.string()))


def _with_made_keys(rows: Rows, generator: KeyGenerator) -> Rows:
    """Return rows with the keys that a table without meta fields does not store."""
    return _with_record_keys(rows, generator.record_keys(rows))


def _with_record_keys(rows: Rows, record_keys: pa.Array) -> Rows:
    if RECORD_KEY not in rows.schema.names:
        return rows.append_column(RECORD_KEY, record_keys)
    return rows.set_column(rows.schema.get_field_index(RECORD_KEY), RECORD_KEY, record_keys)


def _read_base(
    storage: Storage,
    query: SliceQuery,
    file_slice: FileSlice,
    schema: pa.Schema,
    conditions: Iterable[Condition],
    keys: pa.Array | None,
) -> Batches:
    if file_slice.base is None:
        return
    with open_base_file(storage, file_slice.base) as file:
        types = schema_with_meta_columns(query.schema)
        groups = matching_row_groups(file, conditions, types)
        if keys is None:
            for batch in file.iter_batches(schema.names, row_groups=groups):
                yield project_batch(batch, schema)
            return
        near = _row_groups_near(file, keys)
        wanted = {*schema.names, RECORD_KEY}
        for batch in file.iter_batches(wanted, row_groups=[g for g in groups if g in near]):
            found = batch.filter(pc.is_in(batch.column(RECORD_KEY), value_set=keys))
            yield project_batch(found, schema)


def _row_groups_near(file: BaseFileReader, keys: pa.Array) -> set[int]:
    bounds = pc.min_max(keys).as_py()
    if bounds["min"] is None:
        return set()
    return set(file.row_groups_overlapping(RECORD_KEY, bounds["min"], bounds["max"]))


def _with_keys(part: LogPart, keys: pa.Array) -> LogPart:
    if isinstance(part, DataPart):
        is_wanted = pc.is_in(part.rows[RECORD_KEY], value_set=keys)
        return replace(part, rows=part.rows.filter(is_wanted))
    is_wanted = pc.is_in(part.record_keys, value_set=keys)
    ordering = part.ordering
    return replace(
        part,
        record_keys=part.record_keys.filter(is_wanted),
        partition_paths=part.partition_paths.filter(is_wanted),
        ordering=None if ordering is None else tuple(each.filter(is_wanted) for each in ordering),
    )


def _columns_to_merge(query: SliceQuery, rule: MergeRule) -> pa.Schema:
    known = schema_with_meta_columns(query.schema)
    if _looks_at_all(rule):
        return known
    wanted = {*query.read_schema.names, RECORD_KEY}
    if not query.config.has_meta_fields:
        wanted.update(name.split(".")[0] for name in query.config.record_key_fields)
    if rule.merges_by_ordering:
        wanted.update(rule.ordering_fields)
    return pa.schema([column for column in known if column.name in wanted])


def _looks_at_all(rule: MergeRule) -> bool:
    return rule.mode is MergeMode.CUSTOM or rule.partial is not PartialUpdate.NONE
