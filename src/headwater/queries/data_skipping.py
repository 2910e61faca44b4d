"""What a query need not read, going by the statistics of the metadata table.

    partition_stats    bounds of a column over all files of a partition
    column_stats       bounds of a column in one file, base file or log

A file group is skipped only if there is a condition that neither its base file nor any of its logs
can satisfy: what a row of the group holds in a column, some file of the group holds there. That is
not so where a function of the user's merges rows, so there groups with logs are read. Counts of
nulls say nothing about merged rows either.

Files never change, so their statistics hold at any time. Those of partitions hold for the newest
view alone: built anew, they leave out what only older views show.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.meta_columns import schema_with_meta_columns
from headwater.config.table_options import MergeMode
from headwater.errors import CorruptTableError, ErrorKind
from headwater.format.avro.binary import MalformedAvroError
from headwater.format.metadata.column_stats import decode_column_stats, typed_bounds
from headwater.metadata.index_keys import (
    column_prefix,
    column_stats_keys,
    partition_stats_keys,
)
from headwater.metadata.partition_kinds import COLUMN_STATS, PARTITION_STATS
from headwater.metadata.records import MetadataRecords
from headwater.metadata.table import MetadataTable
from headwater.metadata.view import IndexedView
from headwater.model.files import DataFile, FileGroupId, FileSlice
from headwater.queries.predicate import Comparison, Condition, Predicate, may_satisfy
from headwater.queries.value_bounds import ValueBounds, may_match

log = logging.getLogger(__name__)

LOOKED_UP_MAX = 2_000
"""Files whose statistics are looked up one by one; for more, all of a column are read."""

Mask: TypeAlias = npt.NDArray[np.bool_]

_OF_NULLS = (Comparison.IS_NULL, Comparison.IS_NOT_NULL)


def readable_partitions(
    view: IndexedView, partitions: Sequence[str], where: Predicate, schema: pa.Schema
) -> list[str]:
    """Return the partitions that may hold rows which satisfy a condition, in their order.

    Args:
        view: the newest view of the table.
        where: bound to the columns.
        schema: the table's data columns.
    """
    table = view.metadata_table
    if table is None or not partitions or not where.is_known:
        return list(partitions)
    if view.config.merge_mode is MergeMode.CUSTOM or not view.has_index(PARTITION_STATS):
        return list(partitions)

    def by_conditions(names: Sequence[str], conditions: Sequence[Condition]) -> list[str]:
        is_readable = np.ones(len(names), np.bool_)
        for condition in conditions:
            if condition.comparison not in _OF_NULLS:
                bounds = _partition_bounds(table, condition.column, names, schema)
                is_readable &= may_match(bounds, condition)
        return [name for name, is_read in zip(names, is_readable, strict=True) if is_read]

    try:
        return may_satisfy(partitions, where, by_conditions)
    except CorruptTableError as error:
        _log_unused(view, PARTITION_STATS, error)
        return list(partitions)


def skip_slices(
    view: IndexedView, slices: Sequence[FileSlice], where: Predicate, schema: pa.Schema
) -> list[FileSlice]:
    """Return the slices that may hold rows which satisfy a condition, in their order.

    Args:
        where: bound to the columns.
        schema: the table's data columns.
    """
    table = view.metadata_table
    if table is None or not slices or not where.is_known or not view.has_index(COLUMN_STATS):
        return list(slices)
    by_group = {each.group: each for each in slices}
    is_custom = view.config.merge_mode is MergeMode.CUSTOM

    def by_conditions(
        groups: Sequence[FileGroupId], conditions: Sequence[Condition]
    ) -> list[FileGroupId]:
        asked = [by_group[group] for group in groups]
        is_merged = np.array([bool(each.logs) for each in asked])
        is_readable = np.ones(len(asked), np.bool_)
        for condition in conditions:
            # A condition can only drop what those before it have left.
            left = np.flatnonzero(is_readable & ~(is_merged & is_custom))
            if condition.comparison in _OF_NULLS:
                left = left[~is_merged[left]]
            if len(left):
                files = [list(asked[at].files()) for at in left.tolist()]
                is_readable[left] = _any_matches(table, files, condition, schema)
        return [group for group, is_read in zip(groups, is_readable, strict=True) if is_read]

    try:
        return [by_group[group] for group in may_satisfy(list(by_group), where, by_conditions)]
    except CorruptTableError as error:
        _log_unused(view, COLUMN_STATS, error)
        return list(slices)


def _any_matches(
    table: MetadataTable,
    groups: Sequence[Sequence[DataFile]],
    condition: Condition,
    schema: pa.Schema,
) -> Mask:
    """Return for each group of files whether one of them may satisfy a condition."""
    files = [file for group in groups for file in group]
    matches = may_match(file_bounds(table, condition.column, files, schema), condition)
    starts = np.cumsum([0, *(len(group) for group in groups[:-1])])
    found: Mask = np.logical_or.reduceat(matches, starts)
    return found


def file_bounds(
    table: MetadataTable, column: str, files: Sequence[DataFile], schema: pa.Schema
) -> ValueBounds:
    """Return the bounds of a column in each of some files, by the column statistics.

    Raises:
        CorruptTableError: kind CORRUPT_METADATA_TABLE.
    """
    columns = pa.repeat(pa.scalar(column), len(files))
    keys = column_stats_keys(
        columns,
        pa.array([file.partition for file in files], pa.string()),
        pa.array([file.name for file in files], pa.string()),
    )
    if len(files) <= LOOKED_UP_MAX:
        entries = table.look_up(COLUMN_STATS, keys)
    else:
        entries = table.scan(COLUMN_STATS, column_prefix(column))
    return _bounds_of(COLUMN_STATS, entries, keys, column, schema)


def _partition_bounds(
    table: MetadataTable, column: str, partitions: Sequence[str], schema: pa.Schema
) -> ValueBounds:
    columns = pa.repeat(pa.scalar(column), len(partitions))
    keys = partition_stats_keys(columns, pa.array(partitions, pa.string()))
    entries = table.look_up(PARTITION_STATS, keys)
    bounds = _bounds_of(PARTITION_STATS, entries, keys, column, schema)
    unknown = pa.nulls(len(keys), pa.int64())
    # They are added up by writes, of which none takes back what it hides.
    return ValueBounds(bounds.low, bounds.high, unknown, unknown)


def _bounds_of(
    index: str, entries: MetadataRecords, keys: pa.StringArray, column: str, schema: pa.Schema
) -> ValueBounds:
    """Return the bounds that entries hold for some keys, unknown ones where there is no entry."""
    kind = schema_with_meta_columns(schema).field(column).type
    try:
        decoded = decode_column_stats(entries.values)
        low, high = typed_bounds(decoded, kind)
    except MalformedAvroError as error:
        raise CorruptTableError(
            f"An entry of the index {index} is damaged: {error}. Drop the index and create it "
            "again",
            kind=ErrorKind.CORRUPT_METADATA_TABLE,
        ) from error
    at = pc.index_in(keys, value_set=entries.keys)
    return ValueBounds(
        low.take(at),
        high.take(at),
        decoded["value_count"].combine_chunks().take(at),
        decoded["null_count"].combine_chunks().take(at),
    )


def _log_unused(view: IndexedView, index: str, reason: object) -> None:
    log.warning("index not used table=%s index=%s reason=%s", view.config.name, index, reason)
