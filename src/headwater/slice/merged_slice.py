"""All that readers see of one file slice, for a task that writes it anew.

Text that repeats stays in dictionaries on its way from file to file; to undo and redo them would
cost half as much again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pyarrow as pa

from headwater.arrow.fold import fold_logs
from headwater.arrow.log_parts import LogPart
from headwater.arrow.merge import MergedBatches, merge_batches
from headwater.errors import check
from headwater.files.base_files import open_base_file
from headwater.format.parquet.columns import low_cardinality_in_footer
from headwater.model.files import FileSlice
from headwater.slice.reader import SliceReader


@dataclass(frozen=True, slots=True)
class MergedSlice:
    """The merged rows of a slice, to be taken once, and what they were made of."""

    batches: MergedBatches
    """They know afterwards what was done, and which deletes still count (INV-50)."""
    log_block_count: int
    """Of what lies on top of the base file."""
    log_record_count: int
    key_count: int
    """How many different records the logs name."""
    row_count_max: int


@contextmanager
def open_merged(
    reader: SliceReader,
    file_slice: FileSlice,
    schema: pa.Schema | None = None,
    *,
    written: Sequence[LogPart] = (),
) -> Iterator[MergedSlice]:
    """Open a slice with all its columns, for as long as the block runs.

    Args:
        schema: the columns of the batches, as `encoded_schema` returns it; None: the table's.
        written: what comes on top of the logs.

    Raises:
        CorruptTableError: a file is missing or damaged; also while batches are taken.
        UnsupportedError: the table's merge rule cannot be honoured.
    """
    check(reader.keyless is None, "A slice without record keys is not written anew")
    parts = [*reader.log_parts(file_slice, reader.schema.names), *written]
    block_count, record_count = len(parts), sum(len(part.record_keys) for part in parts)
    folded = fold_logs(parts, reader.rule, reader.schema)
    del parts  # They may be large, and what counts of them is copied.
    with ExitStack() as stack:
        batches: Iterable[pa.RecordBatch] = ()
        row_count = folded.record_count
        if file_slice.base is not None:
            base = stack.enter_context(open_base_file(reader.storage, file_slice.base))
            batches = base.iter_batches(keeps_dictionaries=True)
            row_count += base.row_count
        merged = merge_batches(
            batches, folded, reader.rule, schema=schema or reader.schema, keep_tombstones=True
        )
        yield MergedSlice(merged, block_count, record_count, folded.key_count, row_count)


def encoded_schema(reader: SliceReader, slices: Collection[FileSlice]) -> pa.Schema:
    """Return the columns of files, with dictionaries where the first base file seems to have them.

    Raises:
        CorruptTableError: that file is missing or damaged.
    """
    base = next((one.base for one in slices if one.base is not None), None)
    if base is None:
        return reader.schema
    with open_base_file(reader.storage, base) as file:
        repeated = set(low_cardinality_in_footer(file.footer))
    return pa.schema(
        [
            field.with_type(pa.dictionary(pa.int32(), field.type))
            if field.name in repeated and field.type == pa.string()
            else field
            for field in reader.schema
        ]
    )
