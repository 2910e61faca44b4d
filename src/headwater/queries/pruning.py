"""What a query need not read, going by its conditions.

    partition     the path of a file group tells the values of its partition columns
    bucket        equality on all fields of the record key tells the bucket
    row group     the footer of a base file tells the smallest and largest value of a column

The first two hold for every version of a record. The third may be used on a base file without
logs; below logs only for columns of the record key, since for any other column a row that does not
satisfy the condition may still hide a row of the logs that does, or lend it columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import pyarrow as pa

from headwater.arrow.buckets import bucket_ids
from headwater.arrow.key_text import value_of_text
from headwater.arrow.keys import KeyGenerator
from headwater.arrow.meta_columns import RECORD_KEY
from headwater.config.table import TableConfig
from headwater.config.table_options import IndexType
from headwater.errors import InvalidInputError, UnsupportedError
from headwater.format.parquet.base_file import BaseFileReader
from headwater.kernel.file_ids import named_bucket
from headwater.model.files import FileGroupId, FileSlice
from headwater.queries.predicate import Comparison, Condition, Predicate, may_satisfy
from headwater.queries.row_filter import matching_values

KEYS_MAX = 1_000
"""Combinations of key values whose buckets are computed; more of them need most buckets anyway."""

_BUCKET_ENGINE = "hoodie.index.bucket.engine"
_BUCKET_HASH_FIELDS = "hoodie.bucket.index.hash.field"
_SIMPLE_ENGINE = "SIMPLE"


def prune_slices(
    slices: Iterable[FileSlice], where: Predicate, config: TableConfig, schema: pa.Schema
) -> list[FileSlice]:
    """Return the slices that may hold rows which satisfy a condition, in their order.

    Args:
        where: bound to the columns.
        schema: the table's data columns.
    """
    by_group = {file_slice.group: file_slice for file_slice in slices}
    keys = _key_generator(config)
    if keys is None or not where.is_known:
        return list(by_group.values())

    def by_conditions(
        groups: Sequence[FileGroupId], conditions: Sequence[Condition]
    ) -> list[FileGroupId]:
        partitions = sorted({group.partition for group in groups})
        readable = _matching_partitions(partitions, conditions, keys, schema)
        kept = [group for group in groups if group.partition in readable]
        buckets = _matching_buckets(conditions, keys, config, schema)
        if buckets is None:
            return kept
        others = set(range(config.bucket_count or 0)) - buckets
        return [group for group in kept if named_bucket(group.file_id) not in others]

    return [by_group[group] for group in may_satisfy(list(by_group), where, by_conditions)]


def prune_partitions(
    partitions: Sequence[str], where: Predicate, config: TableConfig, schema: pa.Schema
) -> list[str]:
    """Return the partitions whose paths do not rule out what satisfies a condition, in order.

    Args:
        where: bound to the columns.
        schema: the table's data columns.
    """
    keys = _key_generator(config)
    if keys is None:
        return list(partitions)

    def by_conditions(names: Sequence[str], conditions: Sequence[Condition]) -> list[str]:
        readable = _matching_partitions(names, conditions, keys, schema)
        return [name for name in names if name in readable]

    return may_satisfy(partitions, where, by_conditions)


def matching_row_groups(file: BaseFileReader, where: Predicate, schema: pa.Schema) -> list[int]:
    """Return the row groups that may hold rows which satisfy a predicate."""

    def by_conditions(groups: Sequence[int], conditions: Sequence[Condition]) -> list[int]:
        left = set(groups)
        for condition in conditions:
            if condition.column in file.schema.names and condition.column in schema.names:
                # A file of an older type is widened as it is read, which may round its values.
                kind = schema.field(condition.column).type
                if file.schema.field(condition.column).type == kind:
                    left &= _overlapping(file, condition, kind)
        return sorted(left)

    return may_satisfy(range(file.footer.num_row_groups), where, by_conditions)


def key_predicate(where: Predicate, config: TableConfig) -> Predicate:
    """Return what a predicate says that holds for all versions of a record or for none.

    A row of a log may lack its key columns, so nothing follows from their being null.
    """
    names = (RECORD_KEY, *config.record_key_fields)
    return where.restricted(
        lambda each: each.column in names and each.comparison is not Comparison.IS_NULL
    )


def _key_generator(config: TableConfig) -> KeyGenerator | None:
    try:
        return KeyGenerator.from_config(config)
    except (UnsupportedError, InvalidInputError):
        # Tables whose keys cannot be made here can be read all the same.
        return None


def _matching_partitions(
    partitions: Sequence[str],
    conditions: Sequence[Condition],
    keys: KeyGenerator,
    schema: pa.Schema,
) -> Collection[str]:
    told = {path: keys.partition_values(path) for path in partitions}
    readable = set(partitions)
    for condition in conditions:
        for path, values in told.items():
            if condition.column in values and path in readable:
                kind = schema.field(condition.column).type
                candidates = _partition_candidates(values[condition.column], kind)
                if candidates is not None and not _any_matches(candidates, condition):
                    readable.discard(path)
    return readable


def _partition_candidates(text: str | None, kind: pa.DataType) -> pa.Array | None:
    """Return the values that rows of a partition may have; None if the text does not tell."""
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if is_text:
        return pa.array([None, ""] if text is None else [text], kind)
    return value_of_text(text, kind)


def _any_matches(values: pa.Array, condition: Condition) -> bool:
    return any(matching_values(values, condition).to_pylist())


def _matching_buckets(
    conditions: Sequence[Condition], keys: KeyGenerator, config: TableConfig, schema: pa.Schema
) -> set[int] | None:
    """Return the buckets of the keys that satisfy conditions; None if they may be in any."""
    engine = config.raw.get(_BUCKET_ENGINE, _SIMPLE_ENGINE).upper()
    if config.index_type is not IndexType.BUCKET or engine != _SIMPLE_ENGINE:
        return None
    if config.bucket_count is None or not config.record_key_fields:
        return None
    rows = key_rows(conditions, config.record_key_fields, schema)
    if rows is None:
        return None
    hash_fields = config.raw.get(_BUCKET_HASH_FIELDS, "")
    try:
        record_keys = keys.record_keys(rows)
    except InvalidInputError:
        # An empty key, which no record has, or a type without a text: some rows are read in vain.
        return None
    fields = [field.strip() for field in hash_fields.split(",") if field.strip()]
    return set(bucket_ids(record_keys, config.bucket_count, hash_fields=fields).tolist())


def key_rows(
    conditions: Sequence[Condition], fields: Sequence[str], schema: pa.Schema
) -> pa.RecordBatch | None:
    """Return the key columns of all keys that can satisfy conditions; None if they do not tell.

    There may be none: nothing is in an empty list.
    """
    literals: Mapping[str, tuple[Any, ...]] = {
        condition.column: condition.literals for condition in conditions if condition.is_equality
    }
    if not all(field in literals for field in fields):
        return None
    count = 1
    for field in fields:
        count *= len(literals[field])
    if count > KEYS_MAX:
        return None
    combinations = list(product(*(literals[field] for field in fields)))
    try:
        columns = [
            pa.array([values[place] for values in combinations], schema.field(field).type)
            for place, field in enumerate(fields)
        ]
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        # A number that the column cannot hold.
        return None
    return pa.RecordBatch.from_arrays(columns, names=list(fields))


def _overlapping(file: BaseFileReader, condition: Condition, kind: pa.DataType) -> set[int]:
    if condition.comparison is Comparison.IS_NULL:
        return set(range(file.footer.num_row_groups))
    return {
        group
        for low, high in _bounds(condition, kind)
        for group in file.row_groups_overlapping(condition.column, low, high)
    }


def _bounds(condition: Condition, kind: pa.DataType) -> list[tuple[Any, Any]]:
    """Return the ranges outside of which no value satisfies a condition. None is an open end."""
    literals = condition.literals
    match condition.comparison:
        case Comparison.EQUAL | Comparison.IN:
            return [(literal, literal) for literal in literals]
        case Comparison.BETWEEN:
            return [(literals[0], literals[1])]
        case Comparison.LESS | Comparison.LESS_EQUAL:
            return [(None, literals[0])]
        case Comparison.GREATER | Comparison.GREATER_EQUAL if not pa.types.is_floating(kind):
            return [(literals[0], None)]
        case _:
            # Statistics leave NaN out, which is greater than every number.
            return [(None, None)]
