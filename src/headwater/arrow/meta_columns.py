"""The meta columns in front of every row of a base file or log block (format rule 6.3).

Three of them have one value for all rows of a write to a file. They are dictionary arrays unless
asked otherwise: repeating a text per row costs more than the rest of the meta columns together,
and Parquet stores a dictionary either way. Arrow regards dictionaries and plain text as different
types, so whoever compares schemas asks for plain text.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import check
from headwater.model.instant import InstantTime

COMMIT_TIME = "_hoodie_commit_time"
COMMIT_SEQNO = "_hoodie_commit_seqno"
RECORD_KEY = "_hoodie_record_key"
PARTITION_PATH = "_hoodie_partition_path"
FILE_NAME = "_hoodie_file_name"
OPERATION = "_hoodie_operation"
"""A sixth column, which tables with `hoodie.allow.operation.metadata.field` have."""

META_COLUMNS = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)
META_FIELDS = tuple(pa.field(name, pa.string()) for name in META_COLUMNS)

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


def schema_with_meta_columns(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a file: the meta columns, as text, in front of the data columns."""
    return pa.schema([*META_FIELDS, *schema], metadata=schema.metadata)


def add_meta_columns(
    rows: Rows,
    *,
    instant_time: InstantTime,
    task: int,
    first_row: int,
    record_keys: pa.Array | pa.ChunkedArray,
    partition_path: str | pa.Array | pa.ChunkedArray,
    file_name: str,
    encodes_constants: bool = True,
) -> Rows:
    """Return the rows of a write with the meta columns in front.

    Args:
        task: number of the task, the second part of the sequence numbers.
        first_row: how many rows the task numbered before these; the third part counts on from it.
        partition_path: of all rows, or of each.
        file_name: the name of the base file, or the file id for rows of a log block.
        encodes_constants: whether what all rows share is a dictionary array, or plain text.
    """
    present = [name for name in META_COLUMNS if name in rows.schema.names]
    check(not present, "Rows have meta columns already", columns=present)
    count = rows.num_rows
    check(len(record_keys) == count, "Not every row has a record key", rows=count)

    def constant(text: str) -> pa.Array:
        return repeated_text(text, count, is_encoded=encodes_constants)

    columns = [
        constant(instant_time),
        sequence_numbers(instant_time, task=task, first_row=first_row, count=count),
        record_keys,
        constant(partition_path) if isinstance(partition_path, str) else partition_path,
        constant(file_name),
    ]
    return _in_front(columns, rows)


def strip_meta_columns(rows: Rows) -> Rows:
    """Return the data columns alone, also without the column of operations."""
    kept = [name for name in rows.schema.names if name not in (*META_COLUMNS, OPERATION)]
    return rows.select(kept)


def replace_file_name(rows: Rows, file_name: str) -> Rows:
    """Return rows that move to another base file; the other meta columns stay as they are."""
    place = rows.schema.get_field_index(FILE_NAME)
    column = repeated_text(file_name, rows.num_rows)
    return rows.set_column(place, pa.field(FILE_NAME, column.type), column)


def sequence_numbers(
    instant_time: InstantTime, *, task: int, first_row: int, count: int
) -> pa.StringArray:
    """Return `<T>_<task>_<n>` for `count` rows, counting up from `first_row`.

    These are the commit sequence numbers, and the record keys of a table without key columns.
    """
    numbers = pa.array(np.arange(first_row, first_row + count, dtype=np.int64))
    return pc.binary_join_element_wise(
        pa.scalar(f"{instant_time}_{task}"), pc.cast(numbers, pa.string()), "_"
    )


def repeated_text(text: str, count: int, *, is_encoded: bool = True) -> pa.Array:
    """Return one text for `count` rows."""
    if not is_encoded:
        return pa.repeat(pa.scalar(text, pa.string()), count)
    places = pa.array(np.zeros(count, dtype=np.int8))
    return pa.DictionaryArray.from_arrays(places, pa.array([text], pa.string()))


def _in_front(columns: list[pa.Array | pa.ChunkedArray], rows: Rows) -> Rows:
    fields: list[pa.Field] = []
    for name, column in zip(META_COLUMNS, columns, strict=True):
        fields.append(pa.field(name, column.type))
    schema = pa.schema([*fields, *rows.schema], metadata=rows.schema.metadata)
    return type(rows).from_arrays([*columns, *rows.columns], schema=schema)
