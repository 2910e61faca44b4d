"""Finding the file groups of rows by their keys, before the rows travel to their tasks.

Each row gets a number, in the column `GROUP_NUMBER`:

    0 and more    the number of the slice in the plan that holds the row's key
    below 0       the key is new; equal keys get equal numbers, so that one task meets them all

A key that was inserted more than once may be in several slices; then its row goes to each of them,
as in Hudi. A delete leaves rows of unknown keys out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.config.table_options import IndexType
from headwater.engine.engine import GROUP_NUMBER
from headwater.kernel.arrow.java_hash import string_hashes
from headwater.kernel.arrow.keys import KeyGenerator
from headwater.operations.fit import fit_rows
from headwater.operations.key_lookup import KeyLookup
from headwater.operations.plan import Operation, WritePlan
from headwater.seams.open_storage import open_storage

GATHERED_ROWS = 262_144
GATHERED_BYTES = 64 * 1024 * 1024
"""Rows are looked up in lots of about this many rows or bytes, because a file's keys are gone
through once for each lot."""

_Numbers: TypeAlias = npt.NDArray[np.int64]


def tag_rows(plan: WritePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Give the rows of a task again, with their numbers.

    Raises:
        InvalidInputError: a key is null or empty, or a key or partition column is missing.
        CorruptTableError: a base file is missing or damaged.
        StorageError: storage failed.
    """
    keys = KeyGenerator.from_config(plan.config)
    lookup = KeyLookup(
        open_storage(plan.storage_uri, plan.storage_options),
        uses_bloom_filters=plan.config.index_type is IndexType.BLOOM,
        cache_bytes=plan.files.task_memory_bytes // 2,
    )
    for lot in _gathered(batches):
        yield tag_batch(plan, keys, lookup, lot)


def tag_batch(
    plan: WritePlan, keys: KeyGenerator, lookup: KeyLookup, batch: pa.RecordBatch
) -> pa.RecordBatch:
    """Return the rows of one batch with their numbers."""
    fitting = fit_rows(plan, batch)
    record_keys = keys.record_keys(fitting)
    numbers = -1 - (string_hashes(record_keys).astype(np.int64) & 0x7FFFFFFF)
    repeated: list[tuple[_Numbers, int]] = []
    for partition, rows in _rows_by_partition(keys.partition_dictionary(fitting)):
        slices = plan.slices.get(partition)
        if not slices:
            continue
        encoded = record_keys.take(pa.array(rows)).dictionary_encode()
        codes = encoded.indices.to_numpy().astype(np.int64)
        owners = np.full(len(encoded.dictionary), -1, np.int64)
        for number, positions in lookup.find(encoded.dictionary, slices):
            is_owned = owners[positions] >= 0
            owners[positions[~is_owned]] = number
            if is_owned.any():
                repeated.append((rows[np.isin(codes, positions[is_owned])], number))
        owner_of_row = owners[codes]
        numbers[rows] = np.where(owner_of_row >= 0, owner_of_row, numbers[rows])
    return _numbered(batch, numbers, repeated, keeps_new=plan.operation is not Operation.DELETE)


def _numbered(
    batch: pa.RecordBatch,
    numbers: _Numbers,
    repeated: list[tuple[_Numbers, int]],
    *,
    keeps_new: bool,
) -> pa.RecordBatch:
    if not keeps_new or repeated:
        kept = np.arange(len(numbers)) if keeps_new else np.flatnonzero(numbers >= 0)
        rows = np.concatenate([kept, *(more for more, _ in repeated)])
        numbers = np.concatenate(
            [numbers[kept], *(np.full(len(more), number) for more, number in repeated)]
        )
        batch = batch.take(pa.array(rows))
    return batch.append_column(GROUP_NUMBER, pa.array(numbers.astype(np.int32)))


def _rows_by_partition(paths: pa.DictionaryArray) -> Iterator[tuple[str, _Numbers]]:
    """Give each partition path with the numbers of its rows."""
    codes = paths.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(paths.dictionary)))
    start = 0
    for partition, end in zip(paths.dictionary.to_pylist(), ends.tolist(), strict=True):
        if end > start:
            yield partition, order[start:end]
        start = end


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    held: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        held.append(batch)
        rows += batch.num_rows
        size_bytes += batch.nbytes
        if rows >= GATHERED_ROWS or size_bytes >= GATHERED_BYTES:
            yield pa.concat_batches(held)
            held, rows, size_bytes = [], 0, 0
    if held:
        yield pa.concat_batches(held)
