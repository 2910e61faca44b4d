"""What readers see of one file slice, for a task that writes it anew.

Text that repeats stays in dictionaries on its way from file to file; to undo and redo them would
cost half as much again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa

from headwater.kernel.arrow.fold import Tombstones, fold_logs
from headwater.kernel.arrow.log_parts import LogPart
from headwater.kernel.arrow.merge import MergedBatches, merge_batches
from headwater.kernel.format.base_file import open_base_file
from headwater.kernel.format.log_blocks import encode_delete_blocks, log_file_bytes, read_log_parts
from headwater.kernel.format.parquet_columns import low_cardinality_in_footer
from headwater.model.commit_metadata import WriteStat
from headwater.model.files import FileGroupId, FileSlice
from headwater.seams.storage import Storage
from headwater.services.rewrite_files import RewriteJob, RewriteOutput, log_stat


@dataclass(frozen=True, slots=True)
class MergedSlice:
    """The merged rows of a slice, to be taken once, and what they were made of."""

    batches: MergedBatches
    parts: tuple[LogPart, ...]
    """What its logs say, in merge order."""
    key_count: int
    """How many records the logs name."""
    row_count_max: int


@contextmanager
def open_merged(
    storage: Storage, job: RewriteJob, one: FileSlice, schema: pa.Schema
) -> Iterator[MergedSlice]:
    """Open a slice for as long as the block runs.

    Args:
        schema: the columns of the batches, as `encoded_schema` returns it.

    Raises:
        CorruptTableError: a file is missing or damaged; also while batches are taken.
        UnsupportedError: the table's merge rule cannot be honoured.
    """
    parts = read_log_parts(storage, one.logs)
    folded = fold_logs(parts, job.rule, job.file_schema)
    with ExitStack() as stack:
        batches: Iterable[pa.RecordBatch] = ()
        row_count = folded.rows.num_rows
        if one.base is not None:
            base = stack.enter_context(open_base_file(storage, one.base))
            batches = base.iter_batches(keeps_dictionaries=True)
            row_count += base.row_count
        merged = merge_batches(batches, folded, job.rule, schema=schema, keep_tombstones=True)
        yield MergedSlice(merged, tuple(parts), folded.key_count, row_count)


def encoded_schema(storage: Storage, job: RewriteJob, slices: Collection[FileSlice]) -> pa.Schema:
    """Return the columns of files, with dictionaries where the first base file seems to have them.

    Raises:
        CorruptTableError: that file is missing or damaged.
    """
    schema = job.file_schema
    base = next((one.base for one in slices if one.base is not None), None)
    if base is None:
        return schema
    with open_base_file(storage, base) as file:
        repeated = set(low_cardinality_in_footer(file.footer))
    return pa.schema(
        [
            field.with_type(pa.dictionary(pa.int32(), field.type))
            if field.name in repeated and field.type == pa.string()
            else field
            for field in schema
        ]
    )


def put_kept_deletes(
    output: RewriteOutput, job: RewriteJob, group: FileGroupId, deletes: Tombstones
) -> WriteStat:
    """Write deletes that still count into a log file beside a new base file (H-39)."""
    blocks = encode_delete_blocks(
        deletes.record_keys,
        deletes.partition_paths,
        deletes.ordering,
        instant_time=job.instant_time,
        avro_schema_json=job.avro_schema,
    )
    file = output.log_file(group)
    data = log_file_bytes(blocks)
    output.put_log(file, data)
    return replace(log_stat(file, len(data)), num_deletes=len(deletes.record_keys))
