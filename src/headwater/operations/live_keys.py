"""Which records a file slice holds, by key alone."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing

import pyarrow as pa

from headwater.kernel.arrow.fold import fold_logs
from headwater.kernel.arrow.merge import merge_batches
from headwater.kernel.arrow.merge_rule import MergeRule
from headwater.kernel.arrow.meta_columns import RECORD_KEY
from headwater.kernel.arrow.record_marks import delete_mark_columns
from headwater.kernel.arrow.schema_evolution import project_batch
from headwater.kernel.format.base_file import open_base_file
from headwater.kernel.format.log_blocks import read_log_parts
from headwater.model.files import FileSlice
from headwater.seams.storage import Storage


def live_keys(
    storage: Storage, file_slice: FileSlice, rule: MergeRule, schema: pa.Schema
) -> pa.ChunkedArray:
    """Load the keys of the records that a reader of the slice finds, deleted ones left out.

    Args:
        schema: the table's columns, meta columns first.

    Raises:
        CorruptTableError: a file is missing or damaged.
        UnsupportedError: the rule cannot be honoured.
    """
    deciding = {RECORD_KEY, *(rule.ordering_fields if rule.merges_by_ordering else ())}
    needed = pa.schema([column for column in schema if column.name in deciding])
    parts = read_log_parts(
        storage,
        file_slice.logs,
        columns={*needed.names, *delete_mark_columns(rule)},
        is_visible_instant=lambda _: True,  # The view has left out what is not.
    )
    folded = fold_logs(parts, rule, needed)
    with closing(_base_rows(storage, file_slice, needed)) as base:
        merged = merge_batches(base, folded, rule, schema=needed)
        return pa.chunked_array([batch.column(RECORD_KEY) for batch in merged], pa.string())


def _base_rows(
    storage: Storage, file_slice: FileSlice, schema: pa.Schema
) -> Generator[pa.RecordBatch, None, None]:
    if file_slice.base is None:
        return
    with open_base_file(storage, file_slice.base) as file:
        for batch in file.iter_batches(schema.names):
            yield project_batch(batch, schema)
