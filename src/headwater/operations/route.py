"""Which file group each row of a batch goes to."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.engine.engine import Route, RouteKind
from headwater.kernel.arrow.buckets import bucket_ids
from headwater.kernel.arrow.java_hash import string_hashes
from headwater.kernel.arrow.keys import KeyGenerator
from headwater.operations.plan import WritePlan

_PATH_HASH_BITS = 20


Numbers = npt.NDArray[np.signedinteger[Any]]


class GroupKey(NamedTuple):
    """A file group before it has a file id: its bucket, or 0 where rows go to any file."""

    partition: str
    number: int


def assign_groups(
    plan: WritePlan, keys: KeyGenerator, batch: pa.RecordBatch
) -> tuple[Numbers, list[GroupKey]]:
    """Return a number for each row and the group that each number stands for.

    Raises:
        InvalidInputError: a key is null or empty, or a key or partition column is missing.
    """
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
        GroupKey(partitions[number // per_partition], number % per_partition)
        for number in used.tolist()
    ]
    return compact[codes], groups


def group_route(plan: WritePlan, keys: KeyGenerator) -> Route:
    """Return how the rows of a write find their tasks."""
    if not plan.is_bucketed:
        return Route(kind=RouteKind.ANYWHERE)
    has_plain_key = not keys.names_fields and len(keys.record_key_fields) == 1
    return Route(
        kind=RouteKind.BY_FILE_GROUP,
        group_numbers=partial(group_numbers, plan.bucket_count, keys),
        bucket_count=plan.bucket_count,
        simple_key=keys.record_key_fields[0] if has_plain_key else None,
        simple_partition=plan.config.partition_columns,
    )


def group_numbers(bucket_count: int, keys: KeyGenerator, batch: pa.RecordBatch) -> pa.Array:
    """Return a number per row that rows of one file group share."""
    paths = keys.partition_dictionary(batch)
    hashes = string_hashes(paths.dictionary).astype(np.int64) & ((1 << _PATH_HASH_BITS) - 1)
    per_row = hashes[paths.indices.to_numpy(zero_copy_only=False)]
    return pa.array((per_row + bucket_ids(keys.record_keys(batch), bucket_count)).astype(np.int32))
