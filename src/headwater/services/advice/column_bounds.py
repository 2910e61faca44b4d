"""The smallest and largest values of columns in base files, without reading a row.

They come from column statistics where the table has them; else from the footers of at most
`FOOTERS_MAX` base files. A file whose footer does not tell is left out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa

from headwater.arrow.curves import check_sortable
from headwater.config.clustering import ClusteringConfig, RowOrder
from headwater.context import TableContext
from headwater.errors import CorruptTableError
from headwater.files.base_files import open_base_file
from headwater.metadata.partition_kinds import COLUMN_STATS
from headwater.metadata.view import IndexedView
from headwater.model.files import BaseFile
from headwater.queries.data_skipping import file_bounds
from headwater.services.advice.overlap import overlap_of
from headwater.services.advice.statistics import Overlap

log = logging.getLogger(__name__)

FOOTERS_MAX = 200
"""Base files whose footers are read for the bounds of a column, those of whole partitions."""


def load_overlaps(
    table: TableContext, view: IndexedView, config: ClusteringConfig
) -> Iterator[Overlap]:
    """Give how files lie over each other in the columns that rows are to be sorted by.

    Raises:
        InvalidInputError: rows cannot be sorted by them.
        CorruptTableError: a base file is missing or damaged.
    """
    if not config.sort_columns:
        return
    files = [
        one.base
        for one in view.slices()
        if one.base is not None
        and one.group not in view.pending_rewrites
        and config.takes_partition(one.group.partition)
    ]
    if not files:
        return
    schema = view.schema()
    check_sortable(schema, config.sort_columns, config.order)
    # One after the other: files are apart by the first column, and hardly by those behind it.
    is_linear = config.order is RowOrder.LINEAR
    for column in config.sort_columns[:1] if is_linear else config.sort_columns:
        try:
            yield overlap_of(column, *_bounds(table, view, column, files, schema))
        except pa.ArrowException as error:
            # Of files of an older schema values may have another type, and some have no order.
            log.info("column not compared column=%s reason=%s", column, error)


def _bounds(
    table: TableContext,
    view: IndexedView,
    column: str,
    files: list[BaseFile],
    schema: pa.Schema,
) -> tuple[list[BaseFile], pa.Array, pa.Array]:
    """Return files with the bounds of a column in each."""
    indexes = view.metadata_table
    if indexes is not None and view.has_index(COLUMN_STATS):
        try:
            bounds = file_bounds(indexes, column, files, schema)
        except CorruptTableError as error:
            view.distrust_indexes(error)
        else:
            if bounds.low.null_count < len(files):
                return files, bounds.low, bounds.high
    some = _sample(files)
    kind = schema.field(column).type
    ranges = [_range_of_footer(table, file, column) for file in some]
    low = pa.array([one[0] for one in ranges], kind, from_pandas=True)
    high = pa.array([one[1] for one in ranges], kind, from_pandas=True)
    return some, low, high


def _sample(files: list[BaseFile]) -> list[BaseFile]:
    """Return files of whole partitions, of those with the most files first."""
    if len(files) <= FOOTERS_MAX:
        return files
    by_partition: dict[str, list[BaseFile]] = {}
    for file in files:
        by_partition.setdefault(file.partition, []).append(file)
    largest = sorted(by_partition.values(), key=len, reverse=True)
    return [file for some in largest for file in some][:FOOTERS_MAX]


def _range_of_footer(table: TableContext, file: BaseFile, column: str) -> tuple[object, object]:
    """Return the bounds of a column that a footer tells, None and None where it does not."""
    with open_base_file(table.storage, file) as reader:
        footer = reader.footer
        names = [footer.schema.column(at).path for at in range(len(footer.schema))]
        if column not in names:
            return None, None
        place = names.index(column)
        found = [
            footer.row_group(at).column(place).statistics for at in range(footer.num_row_groups)
        ]
    told = [one for one in found if one is not None and one.has_min_max]
    if not told or len(told) < len(found):
        return None, None
    return min(one.min for one in told), max(one.max for one in told)
