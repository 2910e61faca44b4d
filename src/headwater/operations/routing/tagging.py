"""Finding the file groups of rows by their keys, before the rows travel to their tasks.

Each row gets a number, in the column `GROUP_NUMBER`:

    0 and more    the number of the slice in the plan that holds the row's key
    below 0       the key is new; equal keys get equal numbers, so that one task meets them all

A key that was inserted more than once may be in several slices; then its row goes to each of them,
as in Hudi. A delete leaves rows of unknown keys out. With an index of the whole table the slice may
be in another partition than the row's own. Files of merge-on-read tables may still have keys of
records that are gone, deleted by logs on top of them; of several slices those count that have the
record, see `deleted_keys`. A write that moves records takes the first of these alone, or else there
would be several afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.arrow.java_hash import string_hashes
from headwater.arrow.keys import KeyGenerator
from headwater.config.table_options import BLOOM_INDEXES
from headwater.engine.engine import GROUP_NUMBER
from headwater.model.files import FileSlice
from headwater.operations.plan import Operation, WritePlan
from headwater.operations.routing.deleted_keys import without_deleted_keys
from headwater.operations.routing.indexed_summaries import IndexedSummaries
from headwater.operations.routing.key_lookup import Found, KeyLookup, Search
from headwater.operations.routing.partition_rows import rows_by_partition
from headwater.operations.routing.record_index_lookup import RecordIndexLookup
from headwater.operations.tasks.fit import fit_rows

GATHERED_ROWS = 262_144
GATHERED_BYTES = 64 * 1024 * 1024
"""Rows are looked up in lots of about this many rows or bytes, because a file's keys are gone
through once for each lot."""

_Numbers: TypeAlias = npt.NDArray[np.int64]


def tag_rows(
    plan: WritePlan, batches: Iterator[pa.RecordBatch], *, located: pa.Table | None = None
) -> Iterator[pa.RecordBatch]:
    """Give the rows of a task again, with their numbers.

    Args:
        located: where the keys of all rows are, if that is known; see `find_locations`.

    Raises:
        InvalidInputError: a key is null or empty, or a key or partition column is missing.
        CorruptTableError: a base file or the record index is missing or damaged.
        StorageError: storage failed.
    """
    keys = KeyGenerator.from_config(plan.config)
    storage = plan.location.open()
    if plan.key_search.uses_record_index:
        index = RecordIndexLookup(storage, plan, located)
        for lot in gathered(batches):
            yield tag_indexed_batch(plan, keys, index, lot)
        return
    lookup = KeyLookup(
        storage,
        uses_bloom_filters=plan.config.index_type in BLOOM_INDEXES,
        cache_bytes=plan.files.task_memory_bytes // 2,
        indexed=IndexedSummaries(storage, plan) if plan.key_search.has_bloom_index else None,
    )
    for lot in gathered(batches):
        yield tag_batch(plan, keys, lookup, lot)


def tag_indexed_batch(
    plan: WritePlan, keys: KeyGenerator, index: RecordIndexLookup, batch: pa.RecordBatch
) -> pa.RecordBatch:
    """Return the rows of one batch with the numbers that the record index tells."""
    carrying = keys.with_keys_and_paths(batch, fit_rows(plan, batch))
    record_keys, paths = keys.record_keys(carrying), keys.partition_dictionary(carrying)
    numbers = _numbers_of_new(record_keys)
    owners = index.find(record_keys, None if plan.is_global else paths)
    numbers = np.where(owners >= 0, owners, numbers)
    return _numbered(carrying, numbers, [], keeps_new=plan.operation is not Operation.DELETE)


def tag_batch(
    plan: WritePlan, keys: KeyGenerator, lookup: KeyLookup, batch: pa.RecordBatch
) -> pa.RecordBatch:
    """Return the rows of one batch with their numbers."""
    carrying = keys.with_keys_and_paths(batch, fit_rows(plan, batch))
    record_keys, paths = keys.record_keys(carrying), keys.partition_dictionary(carrying)
    numbers = _numbers_of_new(record_keys)
    repeated: list[tuple[_Numbers, int]] = []
    searched = [
        (rows, record_keys.take(pa.array(rows)).dictionary_encode(), slices)
        for rows, slices in _searched(plan, paths)
    ]
    all_found = lookup.find([Search(encoded.dictionary, slices) for _, encoded, slices in searched])
    for (rows, encoded, slices), holders in zip(searched, all_found, strict=True):
        codes = encoded.indices.to_numpy().astype(np.int64)
        owners = np.full(len(encoded.dictionary), -1, np.int64)
        found: Sequence[Found] = holders
        if plan.is_merge_on_read:
            found = without_deleted_keys(lookup.storage, plan, encoded.dictionary, slices, holders)
        for number, positions in found:
            is_owned = owners[positions] >= 0
            owners[positions[~is_owned]] = number
            if is_owned.any() and not plan.moves_records:
                repeated.append((rows[np.isin(codes, positions[is_owned])], number))
        owner_of_row = owners[codes]
        numbers[rows] = np.where(owner_of_row >= 0, owner_of_row, numbers[rows])
    return _numbered(carrying, numbers, repeated, keeps_new=plan.operation is not Operation.DELETE)


def _numbers_of_new(record_keys: pa.StringArray) -> _Numbers:
    return -1 - (string_hashes(record_keys).astype(np.int64) & 0x7FFFFFFF)


def _searched(
    plan: WritePlan, paths: pa.DictionaryArray
) -> Iterator[tuple[_Numbers, Mapping[int, FileSlice]]]:
    """Give the numbers of rows, and the slices in which their keys may be."""
    if plan.is_global:
        everywhere = {n: one for slices in plan.groups.slices.values() for n, one in slices.items()}
        yield np.arange(len(paths)), everywhere
        return
    for partition, numbers in rows_by_partition(paths):
        if plan.groups.slices.get(partition):
            yield numbers, plan.groups.slices[partition]


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


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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
