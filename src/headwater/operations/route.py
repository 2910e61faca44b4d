"""Which file group each row of a batch goes to."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.engine.engine import GROUP_NUMBER, Route, RouteKind
from headwater.errors import check
from headwater.kernel.arrow.buckets import bucket_ids
from headwater.kernel.arrow.java_hash import string_hashes
from headwater.kernel.arrow.keys import KeyGenerator
from headwater.operations.fit import fit_rows
from headwater.operations.plan import INSERTS, WritePlan
from headwater.operations.tagging import tag_rows

_PATH_HASH_BITS = 20

Numbers = npt.NDArray[np.signedinteger[Any]]


class GroupKey(NamedTuple):
    """A file group before it has a file id.

    The number is that of a bucket or of a slice in the plan, or `INSERTS`.
    """

    partition: str
    number: int


def assign_groups(
    plan: WritePlan, keys: KeyGenerator, batch: pa.RecordBatch
) -> tuple[pa.RecordBatch, Numbers, list[GroupKey]]:
    """Return the rows as the table has them, a number for each, and the groups of the numbers.

    Raises:
        InvalidInputError: a key is null or empty, or a column is missing or does not fit.
    """
    if not plan.looks_up:
        rows = fit_rows(plan, batch)
        return rows, *_computed_groups(plan, keys, rows)
    check(GROUP_NUMBER in batch.schema.names, "Rows reached their task without being looked up")
    rows = fit_rows(plan, batch.drop_columns([GROUP_NUMBER]))
    return rows, *_tagged_groups(keys, rows, batch.column(GROUP_NUMBER).to_numpy())


def _tagged_groups(
    keys: KeyGenerator, rows: pa.RecordBatch, tags: Numbers
) -> tuple[Numbers, list[GroupKey]]:
    paths = keys.partition_dictionary(rows)
    codes = paths.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    # One integer out of two, the number in the lower half, lifted to begin at 0.
    pairs = (codes << 32) + np.maximum(tags, INSERTS) - INSERTS
    used, numbers = np.unique(pairs, return_inverse=True)
    partitions = paths.dictionary.to_pylist()
    groups = [
        GroupKey(partitions[pair >> 32], (pair & 0xFFFFFFFF) + INSERTS) for pair in used.tolist()
    ]
    return numbers, groups


def _computed_groups(
    plan: WritePlan, keys: KeyGenerator, batch: pa.RecordBatch
) -> tuple[Numbers, list[GroupKey]]:
    paths = keys.partition_dictionary(batch)
    partitions = paths.dictionary.to_pylist()
    codes = paths.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    per_partition = 1
    if plan.is_bucketed:
        per_partition = plan.bucket_count
        codes = codes * per_partition + bucket_ids(keys.record_keys(batch), per_partition)
    # Numbers are small and dense enough to count; sorting them would cost more than the hash.
    used = np.flatnonzero(np.bincount(codes, minlength=len(partitions) * per_partition))
    compact = np.zeros(len(partitions) * per_partition, dtype=np.int64)
    compact[used] = np.arange(len(used))
    groups = [
        GroupKey(
            partitions[number // per_partition],
            number % per_partition if plan.is_bucketed else INSERTS,
        )
        for number in used.tolist()
    ]
    return compact[codes], groups


def group_route(plan: WritePlan, keys: KeyGenerator) -> Route:
    """Return how the rows of a write find their tasks."""
    if plan.looks_up:
        return Route(kind=RouteKind.BY_FILE_GROUP, tag=partial(tag_rows, plan))
    if not plan.is_bucketed:
        return Route(kind=RouteKind.ANYWHERE)
    has_plain_key = not keys.names_fields and len(keys.record_key_fields) == 1
    # A path made of formatted times is shared by many values of its column.
    has_plain_path = all(field.time is None for field in keys.partition.fields)
    return Route(
        kind=RouteKind.BY_FILE_GROUP,
        group_numbers=partial(group_numbers, plan, keys),
        bucket_count=plan.bucket_count,
        simple_key=keys.record_key_fields[0] if has_plain_key and has_plain_path else None,
        simple_partition=tuple(field.column for field in keys.partition.fields),
        is_hive_style=keys.partition.is_hive_style,
    )


def group_numbers(plan: WritePlan, keys: KeyGenerator, batch: pa.RecordBatch) -> pa.Array:
    """Return a number per row that rows of one file group share.

    Raises:
        InvalidInputError: as `assign_groups`.
    """
    rows = fit_rows(plan, batch)
    paths = keys.partition_dictionary(rows)
    hashes = string_hashes(paths.dictionary).astype(np.int64) & ((1 << _PATH_HASH_BITS) - 1)
    per_row = hashes[paths.indices.to_numpy(zero_copy_only=False)]
    buckets = bucket_ids(keys.record_keys(rows), plan.bucket_count)
    return pa.array((per_row + buckets).astype(np.int32))
