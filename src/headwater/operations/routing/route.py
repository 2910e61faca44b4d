"""Which file group each row of a batch goes to."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.arrow.buckets import bucket_ids
from headwater.arrow.java_hash import string_hashes
from headwater.arrow.keys import CARRIED_PATH, KeyGenerator, put_down
from headwater.engine.engine import GROUP_NUMBER, Route, RouteKind
from headwater.errors import check
from headwater.operations.plan import INSERTS, WritePlan
from headwater.operations.routing.existing_partitions import existing_partitions
from headwater.operations.routing.record_index_lookup import keys_by_partition
from headwater.operations.routing.tagging import tag_rows
from headwater.operations.tasks.fit import fit_rows

_PATH_HASH_BITS = 20

Numbers = npt.NDArray[np.signedinteger[Any]]


_LOTS = 16
"""New keys are settled in so many lots, so that not all rows of a task have to be held at once."""


class GroupKey(NamedTuple):
    """A file group before it has a file id.

    The number is that of a bucket or of a slice in the plan, or `INSERTS`. In a plan that settles
    partitions, new keys come to their task as lots first: numbers below 0, without a partition.
    """

    partition: str
    number: int


def assign_groups(
    plan: WritePlan, keys: KeyGenerator, batch: pa.RecordBatch
) -> tuple[pa.RecordBatch, Numbers, list[GroupKey]]:
    """Return the rows as the table has them, a number for each, and the groups of the numbers.

    The rows carry their keys from here on, if a look-up has not seen to that before.

    Raises:
        InvalidInputError: a key is null, empty or may be that of other values, or a column is
            missing or does not fit.
    """
    if not plan.looks_up:
        rows = fit_rows(plan, batch)
        keys.check_distinct(rows)
        rows = keys.with_keys(rows)
        return put_down(rows, [CARRIED_PATH]), *_computed_groups(plan, keys, rows)
    check(GROUP_NUMBER in batch.schema.names, "Rows reached their task without being looked up")
    rows = fit_rows(plan, batch.drop_columns([GROUP_NUMBER]))
    keys.check_distinct(rows)
    rows = keys.with_keys(rows)
    tags = batch.column(GROUP_NUMBER).to_numpy()
    own = keys.partition_dictionary(rows)
    rows = put_down(rows, [CARRIED_PATH])  # The group of a row says it.
    if not plan.is_global:
        return rows, *_tagged_groups(own, tags)
    homes = existing_partitions(plan, own, tags)
    groups = _unsettled_groups if plan.settles_partitions else _tagged_groups
    return rows, *groups(homes, tags)


def _tagged_groups(paths: pa.DictionaryArray, tags: Numbers) -> tuple[Numbers, list[GroupKey]]:
    codes = paths.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    # One integer out of two, the number in the lower half, lifted to begin at 0.
    pairs = (codes << 32) + np.maximum(tags, INSERTS) - INSERTS
    used, numbers = np.unique(pairs, return_inverse=True)
    partitions = paths.dictionary.to_pylist()
    groups = [
        GroupKey(partitions[pair >> 32], (pair & 0xFFFFFFFF) + INSERTS) for pair in used.tolist()
    ]
    return numbers, groups


def _unsettled_groups(paths: pa.DictionaryArray, tags: Numbers) -> tuple[Numbers, list[GroupKey]]:
    """Return the groups of slices, and lots of new keys such that equal keys are in one."""
    partitions = paths.dictionary.to_pylist()
    codes = paths.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    is_new = tags < 0
    # All keys of a task have equal remainders, so the lots are made of other digits.
    lots = (tags.astype(np.int64) >> 8) % _LOTS
    pairs = np.where(is_new, (len(partitions) << 32) + lots, (codes << 32) + tags)
    used, numbers = np.unique(pairs, return_inverse=True)
    groups = []
    for pair in used.tolist():
        code, number = pair >> 32, pair & 0xFFFFFFFF
        is_slice = code < len(partitions)
        groups.append(GroupKey(partitions[code], number) if is_slice else GroupKey("", -1 - number))
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


def carry_keys(plan: WritePlan, batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return rows that carry their keys and partition paths, for what follows.

    Raises:
        InvalidInputError: as `assign_groups`.
    """
    keys = KeyGenerator.from_config(plan.config)
    return [
        keys.with_keys_and_paths(batch, fit_rows(plan, batch))
        for batch in batches
        if batch.num_rows
    ]


def touched_partitions(plan: WritePlan, batches: Iterable[pa.RecordBatch]) -> frozenset[str]:
    """Return the partitions that rows belong to which carry their paths."""
    keys = KeyGenerator.from_config(plan.config)
    found = (keys.partition_dictionary(batch).dictionary.to_pylist() for batch in batches)
    return frozenset(chain.from_iterable(found))


def record_keys_of(plan: WritePlan, batches: Iterable[pa.RecordBatch]) -> pa.StringArray:
    """Return the keys of rows that carry them, each once."""
    keys = KeyGenerator.from_config(plan.config)
    found = [keys.record_keys(batch) for batch in batches]
    return pa.chunked_array(found, pa.string()).unique()


def located_keys_of(
    plan: WritePlan, batches: Iterable[pa.RecordBatch]
) -> dict[str, pa.StringArray]:
    """Return the keys of rows that carry them, by the partitions of the rows, each once."""
    keys = KeyGenerator.from_config(plan.config)
    found: dict[str, list[pa.StringArray]] = {}
    for batch in batches:
        record_keys, paths = keys.record_keys(batch), keys.partition_dictionary(batch)
        for path, some in keys_by_partition(record_keys, paths).items():
            found.setdefault(path, []).append(some)
    return {path: pa.chunked_array(found[path], pa.string()).unique() for path in found}


def group_route(plan: WritePlan, keys: KeyGenerator, located: pa.Table | None = None) -> Route:
    """Return how the rows of a write find their tasks.

    Args:
        located: where the keys of all rows are, if that was looked up already; see
            `record_lookup.find_locations`.
    """
    if plan.looks_up:
        return Route(kind=RouteKind.BY_FILE_GROUP, tag=partial(tag_rows, plan, located=located))
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
