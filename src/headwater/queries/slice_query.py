"""Answering a query from file slices.

Only the columns that a query asks for are read, with those that its filter needs and those that
`slice.reader` needs to merge. Filters come after the merge: before it, a record that the filter
drops would give way to the older one that it had replaced. What may be skipped before is told in
`pruning`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.meta_columns import schema_with_meta_columns
from headwater.config.table import TableConfig
from headwater.context import TableContext
from headwater.files.ahead import with_files_at_hand
from headwater.model.files import FileSlice
from headwater.queries.predicate import Predicate
from headwater.queries.pruning import key_predicate, matching_row_groups
from headwater.queries.row_filter import filter_rows
from headwater.seams.open_storage import open_storage
from headwater.seams.storage import Storage
from headwater.slice.reader import Batches, SliceReader


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceQuery:
    """What to read of file slices: frozen and picklable, so that any engine can run it."""

    storage_uri: str
    storage_options: Mapping[str, str] = field(repr=False)
    config: TableConfig
    schema: pa.Schema
    """The table's data columns as of the query."""
    columns: tuple[str, ...]
    """Columns of the answer, in order; meta columns may be among them."""
    merge_function: str | None = None
    """The function of a table with merge mode CUSTOM."""
    verifies: bool = True
    """Whether checksums of base files are compared."""
    where: Predicate | pc.Expression | None = None
    """Which rows to give: a predicate bound to the columns, or an expression of pyarrow on them.
    What a predicate does not know drops no row."""

    @classmethod
    def on(
        cls,
        table: TableContext,
        schema: pa.Schema,
        *,
        columns: tuple[str, ...] | None = None,
        where: Predicate | pc.Expression | None = None,
    ) -> Self:
        """Return a query of a table with these data columns; of all of them unless told."""
        return cls(
            storage_uri=table.storage.uri,
            storage_options=table.options,
            config=table.config,
            schema=schema,
            columns=tuple(schema.names) if columns is None else columns,
            merge_function=table.merge_function,
            verifies=table.file_config.verifies_checksums,
            where=where,
        )

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
    def known(self) -> Predicate:
        """What is known of the filter for single columns."""
        return self.where if isinstance(self.where, Predicate) else Predicate()

    def slice_reader(self, storage: Storage) -> SliceReader:
        """Return what reads the slices that the query asks for."""
        return SliceReader.of_table(
            storage,
            self.config,
            self.schema,
            merge_function=self.merge_function,
            verifies=self.verifies,
        )

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
    for at_hand, file_slice in with_files_at_hand(storage, slices):
        yield from read_slice(at_hand, query, file_slice)


def read_slice(
    storage: Storage, query: SliceQuery, file_slice: FileSlice, keys: pa.Array | None = None
) -> Batches:
    """Give the rows of one slice with exactly the columns of the query.

    Args:
        keys: record keys, to read these records only.
    """
    names = list(query.columns)
    known = key_predicate(query.known, query.config) if file_slice.logs else query.known
    reader = query.slice_reader(storage)
    batches = reader.read(
        file_slice,
        query.read_schema.names,
        keys=keys,
        row_groups=lambda file: matching_row_groups(file, known, reader.schema),
    )
    # An error that is kept keeps this frame, and the frame a file that nobody reads any more.
    with closing(batches):
        for batch in batches:
            kept = filter_rows(batch, query.where)
            if kept.num_rows:
                yield kept.select(names)
