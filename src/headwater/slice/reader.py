"""Reading one file slice: its base file alone, or merged with its logs.

Here it is decided which columns a merge needs to answer with some columns. The answer's own and the
record key always; the ordering fields, where their values decide; of logs also the marks of
deletes. A function of the user's may look at any column, so it is given all; partial updates go
column by column.

What may be skipped before the merge is for the caller to say, as row groups of the base file.
Asking for some record keys only is always such a thing: a merge never looks across keys.

A table without meta fields does not store record keys. They are made of its key columns for the
merge, and the meta columns of the answer stay null.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.align import project_to_merge
from headwater.arrow.fold import Tombstones, fold_logs
from headwater.arrow.keys import KeyGenerator
from headwater.arrow.log_parts import LogPart
from headwater.arrow.merge import merge_batches
from headwater.arrow.merge_rule import MergeMode, MergeRule, check_mergeable, merge_rule_of
from headwater.arrow.meta_columns import RECORD_KEY, schema_with_meta_columns
from headwater.arrow.record_marks import delete_mark_columns
from headwater.arrow.schema_evolution import project_batch
from headwater.config.table import TableConfig
from headwater.errors import check
from headwater.files.base_files import open_base_file
from headwater.files.log_files import read_log_parts
from headwater.format.parquet.base_file import BaseFileReader
from headwater.model.files import FileSlice
from headwater.seams.storage import Storage
from headwater.slice.record_keys import (
    Keys,
    part_with_made_keys,
    rows_of_keys,
    with_made_keys,
    without_record_keys,
)

Batches: TypeAlias = Generator[pa.RecordBatch, None, None]
"""Rows of files that are open for as long as rows are taken; to be closed by who stops before."""

RowGroups = Callable[[BaseFileReader], Collection[int]]
"""Chooses the row groups of a base file that are read."""


@dataclass(frozen=True, slots=True)
class SliceReader:
    """Reads the file slices of one table."""

    storage: Storage
    rule: MergeRule
    schema: pa.Schema
    """The table's columns, meta columns first."""
    keyless: TableConfig | None = None
    """The config of a table whose files do not store record keys: it says how they are made."""
    verifies: bool = True
    """Whether checksums of base files are compared."""

    @classmethod
    def of_table(
        cls,
        storage: Storage,
        config: TableConfig,
        schema: pa.Schema,
        *,
        merge_function: str | None = None,
        verifies: bool = True,
    ) -> Self:
        """Return the reader of a table.

        Args:
            schema: the table's data columns.
            merge_function: see `merge_rule_of`.
            verifies: whether checksums of base files are compared.

        Raises:
            InvalidInputError: a merge function is given for a table that takes none.
        """
        rule = merge_rule_of(config, custom=merge_function)
        keyless = None if config.has_meta_fields else config
        return cls(storage, rule, schema_with_meta_columns(schema), keyless, verifies)

    def read(
        self,
        file_slice: FileSlice,
        columns: Sequence[str],
        *,
        keys: Keys | None = None,
        row_groups: RowGroups | None = None,
    ) -> Batches:
        """Give the rows that a reader of the slice finds, with exactly these columns.

        Args:
            columns: of the table, meta columns among them.
            keys: record keys, to read these records only.
            row_groups: which of the base file are needed. Below logs a row that is left out must
                be of no consequence for any version of its record.

        Raises:
            CorruptTableError: a file is missing or damaged; the error names it.
            UnsupportedError: the rule cannot be honoured, or keys cannot be made.
        """
        if file_slice.logs or (keys is not None and self.keyless is not None):
            return self._merged_rows(file_slice, columns, keys, row_groups)
        return self._base_rows(file_slice, self._fields(columns), keys, row_groups)

    def live_keys(self, file_slice: FileSlice, keys: Keys) -> pa.ChunkedArray:
        """Load which of some record keys have a record that a reader of the slice finds.

        A record is there or not whatever its values are, so that nothing but keys, ordering values
        and marks of deletes is read, and no function of the user's is called.

        Raises: as `read`.
        """
        check(self.keyless is None, "Keys that no file stores are not looked up")
        if file_slice.logs:
            check_mergeable(self.rule)
        reader = replace(self, rule=self.rule.whatever_the_values)
        with closing(reader.read(file_slice, [RECORD_KEY], keys=keys)) as batches:
            return pa.chunked_array([batch.column(RECORD_KEY) for batch in batches], pa.string())

    def tombstones(self, file_slice: FileSlice, keys: Keys) -> Tombstones:
        """Load the deletes that records of some keys would meet which come to the slice (INV-50).

        Raises: as `read`.
        """
        check(self.keyless is None, "Keys that no file stores are not looked up")
        reader = replace(self, rule=self.rule.whatever_the_values)
        needed = reader.columns_to_merge(())
        parts = reader.log_parts(file_slice, needed.names) if reader.rule.merges_by_ordering else []
        parts = [part.filter(pc.is_in(part.record_keys, value_set=keys)) for part in parts]
        folded = fold_logs(parts, reader.rule, needed)
        if not folded.is_tombstone.any():
            return folded.tombstones
        with closing(reader._base_rows(file_slice, needed, keys, None)) as stored:
            merged = merge_batches(stored, folded, reader.rule, schema=needed, keep_tombstones=True)
            for _ in merged:
                pass
        return merged.tombstones

    def columns_to_merge(self, columns: Iterable[str]) -> pa.Schema:
        """Return the columns of the table that merging takes to answer with some of them."""
        if self.rule.mode is MergeMode.CUSTOM:
            return self.schema
        wanted = {*columns, RECORD_KEY}
        if self.rule.merges_by_ordering:
            wanted.update(self.rule.ordering_fields)
        if self.keyless is not None:
            wanted.update(name.split(".")[0] for name in self.keyless.record_key_fields)
        return pa.schema([column for column in self.schema if column.name in wanted])

    def log_parts(self, file_slice: FileSlice, columns: Iterable[str]) -> list[LogPart]:
        """Load what the logs of a slice say about some columns, in merge order.

        Raises:
            CorruptTableError: a log is missing or damaged.
        """
        wanted = {*columns, *delete_mark_columns(self.rule)}
        return read_log_parts(self.storage, file_slice.logs, columns=wanted)

    def _merged_rows(
        self,
        file_slice: FileSlice,
        columns: Sequence[str],
        keys: Keys | None,
        row_groups: RowGroups | None,
    ) -> Batches:
        needed = self.columns_to_merge(columns)
        parts = self.log_parts(file_slice, needed.names)
        maker = None if self.keyless is None else KeyGenerator.from_config(self.keyless)
        if maker is not None:
            parts = [part_with_made_keys(part, maker) for part in parts]
        if keys is not None:
            parts = [part.filter(pc.is_in(part.record_keys, value_set=keys)) for part in parts]
        folded = fold_logs(parts, self.rule, needed)
        del parts  # They may be large, and what counts of them is copied.
        stored_keys = keys if maker is None else None
        project = project_to_merge if maker is None else project_batch
        with closing(
            self._base_rows(file_slice, needed, stored_keys, row_groups, project)
        ) as stored:
            base: Iterable[pa.RecordBatch] = stored
            if maker is not None:
                base = (rows_of_keys(with_made_keys(rows, maker), keys) for rows in stored)
            # Rows that are made of several records need all columns that have a say in them, and
            # rows without any column could not be counted.
            made = self._fields(columns) if columns and folded.combined is None else needed
            for batch in merge_batches(base, folded, self.rule, schema=made):
                answer = batch.select(columns)
                yield answer if maker is None else without_record_keys(answer)

    def _base_rows(
        self,
        file_slice: FileSlice,
        schema: pa.Schema,
        keys: Keys | None,
        row_groups: RowGroups | None,
        project: Callable[[pa.RecordBatch, pa.Schema], pa.RecordBatch] = project_batch,
    ) -> Batches:
        if file_slice.base is None:
            return
        with open_base_file(self.storage, file_slice.base, verifies=self.verifies) as file:
            names = schema.names
            groups = None if row_groups is None else row_groups(file)
            if keys is not None:
                names = [*names, RECORD_KEY]
                near = _row_groups_near(file, keys)
                groups = [group for group in near if groups is None or group in groups]
            for batch in file.iter_batches(names, row_groups=groups, keeps_dictionaries=True):
                yield project(rows_of_keys(batch, keys), schema)

    def _fields(self, names: Iterable[str]) -> pa.Schema:
        return pa.schema([self.schema.field(name) for name in names])


def _row_groups_near(file: BaseFileReader, keys: Keys) -> list[int]:
    bounds = pc.min_max(keys).as_py()
    if bounds["min"] is None:
        return []
    return file.row_groups_overlapping(RECORD_KEY, bounds["min"], bounds["max"])
