"""What rows of a file group say to an index over rows: one index key for each row.

    record index      the record key
    secondary index   the value of its column and the record key, as `index_keys` joins them

Keys come from files alone, with few columns read:

    index_keys_of_base_file, index_keys_of_logs
                       every row that is in a file, whether a reader finds it or not
    keys_of_deletes    deletes that records may still meet: the record index has them, too
    live_index_keys    the rows that a reader of a slice finds

An index may name too much and never too little, so a log adds its index keys without a look at what
is below it, and only whoever reads a whole slice can tell which index keys are gone:
`vanished_index_keys`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.key_text import column_text, has_text
from headwater.arrow.merge_rule import MergeRule
from headwater.arrow.meta_columns import COMMIT_TIME, RECORD_KEY, schema_with_meta_columns
from headwater.config.table_options import MergeMode
from headwater.errors import ErrorKind, InvalidInputError, UnsupportedError
from headwater.files.base_files import open_base_file
from headwater.files.log_files import read_data_parts, read_delete_parts
from headwater.metadata.index_keys import secondary_keys
from headwater.model.files import BaseFile, FileSlice, LogFile
from headwater.seams.storage import Storage
from headwater.slice.reader import SliceReader


@dataclass(frozen=True, slots=True)
class IndexKeyRule:
    """How the rows of a table become the index keys of one index."""

    merge: MergeRule
    schema: pa.Schema
    """The table's data columns."""
    column: str | None = None
    """The column of a secondary index, dotted inside of structs; None for the record index."""

    @property
    def columns(self) -> frozenset[str]:
        """The columns that the index keys are made of, those at the top."""
        return frozenset(
            {RECORD_KEY} if self.column is None else {RECORD_KEY, self.column.split(".")[0]}
        )

    def of_rows(self, rows: pa.Table | pa.RecordBatch) -> pa.StringArray:
        """Return the index key of each row.

        Raises:
            InvalidInputError: the column's type has no text that all engines agree on.
        """
        keys = _one_piece(rows[RECORD_KEY]).cast(pa.string())
        if self.column is None:
            return keys
        top, *inner = self.column.split(".")
        if top not in rows.schema.names:
            return secondary_keys(pa.nulls(len(keys), pa.string()), keys)
        values = _one_piece(rows[top])
        for name in inner:
            values = pc.struct_field(values, name)
        return secondary_keys(secondary_text(values, self.column), keys)


def has_secondary_text(kind: pa.DataType) -> bool:
    """Whether a secondary index can be on columns of a type."""
    return bool(pa.types.is_time(kind) or has_text(kind))


def secondary_text(values: pa.Array, column: str) -> pa.StringArray:
    """Return the values of a column as texts of a secondary index; nulls stay null.

    They are those of the values as Avro stores them: dates are days, and times are numbers.

    Raises:
        InvalidInputError: kind INVALID_INDEX; the type has no text that all engines agree on.
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if not has_secondary_text(values.type):
        raise InvalidInputError(
            f"Column {column} has the type {values.type}, whose values have no text that all "
            "engines agree on, but there is a secondary index on it. Drop the index, or cast the "
            "column",
            kind=ErrorKind.INVALID_INDEX,
        )
    if pa.types.is_date32(values.type):
        return pc.cast(values.view(pa.int32()), pa.string())
    if pa.types.is_time(values.type):
        number = pa.int32() if values.type.bit_width == 32 else pa.int64()
        return pc.cast(values.view(number), pa.string())
    return column_text(values, column).cast(pa.string())


def index_key_rule(
    merge: MergeRule, schema: pa.Schema, *, column: str | None, has_meta_fields: bool
) -> IndexKeyRule:
    """Return the rule of an index over the rows of a table.

    Raises:
        InvalidInputError: the table has no such column.
        UnsupportedError: the table cannot have the index.
    """
    what = "a record index" if column is None else f"a secondary index on {column}"
    if not has_meta_fields:
        raise UnsupportedError(
            f"A table without meta fields cannot have {what}: its files do not have record keys",
            kind=ErrorKind.UNSUPPORTED_OPTION,
        )
    if column is not None:
        if column.split(".")[0] not in schema.names:
            raise InvalidInputError(
                f"The table has no column {column}. It has {', '.join(schema.names)}"
            )
        if merge.mode is MergeMode.CUSTOM:
            # A merge function may make values that no file has.
            raise UnsupportedError(
                f"A table with merge mode CUSTOM cannot have {what}: what it holds is known only "
                "after merging",
                kind=ErrorKind.UNSUPPORTED_OPTION,
            )
    return IndexKeyRule(merge, schema, column)


def index_keys_of_base_file(
    storage: Storage, file: BaseFile, rule: IndexKeyRule
) -> Iterator[pa.StringArray]:
    """Give the index keys of a base file, piece by piece.

    Raises:
        CorruptTableError: the file is missing or damaged.
    """
    with open_base_file(storage, file) as reader:
        for batch in reader.iter_batches(rule.columns):
            yield rule.of_rows(batch)


def index_keys_of_logs(
    storage: Storage, logs: Sequence[LogFile], rule: IndexKeyRule
) -> list[pa.StringArray]:
    """Return the index keys of all rows in some logs.

    A partial row that lacks the column of a secondary index has no index key: it leaves the value
    that the record has.

    Raises:
        CorruptTableError: a log is missing or damaged.
    """
    return [
        rule.of_rows(part.rows)
        for log in logs
        for part in read_data_parts(storage, log, rule.columns)
        if not part.is_partial or rule.columns <= set(part.rows.column_names)
    ]


def keys_of_deletes(
    storage: Storage, logs: Sequence[LogFile], rule: IndexKeyRule
) -> list[pa.StringArray]:
    """Return the keys of deletes with ordering values in some logs, for the record index.

    Records that come late are to meet them (INV-50), so they are found like those of records.

    Raises:
        CorruptTableError: a log is missing or damaged.
    """
    if rule.column is not None or not rule.merge.merges_by_ordering:
        return []
    return [part.ordered_keys for log in logs for part in read_delete_parts(storage, log)]


@dataclass(frozen=True, slots=True)
class LiveIndexKeys:
    """Keys of rows that readers find, and the times of the commits that wrote the rows."""

    index_keys: pa.StringArray
    commit_times: pa.StringArray | None
    """None if all rows are from the base file."""


def live_index_keys(
    storage: Storage, file_slice: FileSlice, rule: IndexKeyRule
) -> Iterator[LiveIndexKeys]:
    """Give the index keys of the rows that a reader of the slice finds, piece by piece.

    Raises:
        CorruptTableError: a file is missing or damaged.
        UnsupportedError: the table's merge rule cannot be honoured.
    """
    if not file_slice.logs:
        if file_slice.base is not None:
            for index_keys in index_keys_of_base_file(storage, file_slice.base, rule):
                yield LiveIndexKeys(index_keys, None)
        return
    reader = SliceReader(storage, rule.merge, schema_with_meta_columns(rule.schema))
    with closing(reader.read(file_slice, [*rule.columns, COMMIT_TIME])) as batches:
        for batch in batches:
            yield LiveIndexKeys(
                rule.of_rows(batch), _one_piece(batch[COMMIT_TIME]).cast(pa.string())
            )


def vanished_index_keys(
    storage: Storage, file_slice: FileSlice, rule: IndexKeyRule
) -> pa.StringArray:
    """Return the index keys in the files of a slice that no reader of it finds any more.

    They are what compaction and clustering leave behind.

    Raises:
        CorruptTableError: a file is missing or damaged.
        UnsupportedError: the table's merge rule cannot be honoured.
    """
    if not file_slice.logs:
        return pa.array([], pa.string())
    base = (
        () if file_slice.base is None else index_keys_of_base_file(storage, file_slice.base, rule)
    )
    logs = file_slice.logs
    deletes = keys_of_deletes(storage, logs, rule)
    held = unique_keys([*base, *index_keys_of_logs(storage, logs, rule), *deletes])
    live = [piece.index_keys for piece in live_index_keys(storage, file_slice, rule)]
    return without_keys(held, live)


def unique_keys(pieces: Sequence[pa.StringArray]) -> pa.StringArray:
    """Return each index key once."""
    return pc.unique(pa.chunked_array(pieces, pa.string()))


def without_keys(index_keys: pa.StringArray, others: Sequence[pa.StringArray]) -> pa.StringArray:
    """Return the index keys that are not among the others."""
    known = pa.chunked_array(others, pa.string())
    if not len(index_keys) or not len(known):
        return index_keys
    return index_keys.filter(pc.invert(pc.is_in(index_keys, value_set=known)))


def _one_piece(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        combined = column.combine_chunks()
        return combined if isinstance(combined, pa.Array) else combined.chunk(0)
    return column
