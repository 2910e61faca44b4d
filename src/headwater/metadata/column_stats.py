"""Records of `column_stats` and `partition_stats`: ranges of columns, by file and by partition.

column_stats      one entry for each column and file, logs included. When a file is removed, an
                  entry that is marked as deleted follows
partition_stats   one entry for each column and partition. A write widens it by what it added,
                  since it does not see the other files; only a build makes it tight. Nothing
                  narrows it in between: it may cover more than there is, never less
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import pyarrow as pa

from headwater.format.metadata.column_stats import encode_statistic
from headwater.format.metadata.schema import RecordType
from headwater.format.metadata.wrapped_values import value_kind
from headwater.metadata.column_ranges import ColumnRange, join_ranges
from headwater.metadata.index_keys import column_stats_keys, partition_id, partition_stats_keys
from headwater.metadata.records import MetadataRecords
from headwater.model.files import DataFile

FileRanges = tuple[DataFile, Sequence[ColumnRange]]
"""A file with the ranges of its columns."""


def column_stats_records(files: Iterable[FileRanges]) -> MetadataRecords:
    """Return the entries of some files."""
    return _encode(
        [(file.partition, file.name, one) for file, ranges in files for one in ranges],
        RecordType.COLUMN_STATS,
        is_tight=False,
    )


def removed_column_stats(files: Collection[DataFile], columns: Sequence[str]) -> MetadataRecords:
    """Return the entries by which files of these columns are forgotten."""
    return _encode(
        [
            (file.partition, file.name, ColumnRange(column, pa.null(), None, None, 0, 0))
            for file in files
            for column in columns
        ],
        RecordType.COLUMN_STATS,
        is_tight=False,
        is_deleted=True,
    )


def ranges_by_partition(
    files: Iterable[FileRanges], schema: pa.Schema
) -> dict[str, list[ColumnRange]]:
    """Return the joined ranges of each partition's files.

    Args:
        schema: the table's data columns.
    """
    found: dict[str, list[ColumnRange]] = {}
    for file, ranges in files:
        found.setdefault(file.partition, []).extend(ranges)
    return {partition: join_ranges(ranges, schema) for partition, ranges in found.items()}


def partition_stats_records(
    ranges: Mapping[str, Sequence[ColumnRange]], *, is_tight: bool
) -> MetadataRecords:
    """Return the entries of some partitions.

    Args:
        is_tight: whether the ranges are those of all files of a partition, or widen what is known.
    """
    return _encode(
        [
            (partition, partition_id(partition), one)
            for partition, some in ranges.items()
            for one in some
            if is_tight or one.value_count  # Nothing widens nothing.
        ],
        RecordType.PARTITION_STATS,
        is_tight=is_tight,
    )


def _encode(
    rows: Sequence[tuple[str, str, ColumnRange]],
    record_type: RecordType,
    *,
    is_tight: bool,
    is_deleted: bool = False,
) -> MetadataRecords:
    """Encode rows of partition, name and range."""
    if not rows:
        return MetadataRecords.none()
    partitions, names, ranges = zip(*rows, strict=True)
    columns = pa.array([one.column for one in ranges], pa.string())
    paths = pa.array(partitions, pa.string())
    keys = (
        column_stats_keys(columns, paths, pa.array(names, pa.string()))
        if record_type is RecordType.COLUMN_STATS
        else partition_stats_keys(columns, paths)
    )
    kinds = {kind: value_kind(kind) for kind in {one.type for one in ranges}}
    values = [
        encode_statistic(
            record_type,
            name,
            one.column,
            kinds[one.type],
            (one.low, one.high),
            (one.value_count, one.null_count, one.size_bytes, one.uncompressed_bytes),
            is_deleted=is_deleted,
            is_tight=is_tight,
        )
        for name, one in zip(names, ranges, strict=True)
    ]
    return MetadataRecords(keys, pa.array(values, pa.binary()), pa.array([], pa.string()))
