"""Which files clustering puts together, how large, and in which order of rows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum, unique

from headwater.config.compaction import PATTERN
from headwater.config.files import FILE_SIZE_MAX
from headwater.config.option import TEXT_LIST, Option, integer
from headwater.config.option_config import OptionConfig, inferred, setting


@unique
class RowOrder(StrEnum):
    """How rows are sorted by several columns."""

    LINEAR = "linear"
    ZORDER = "zorder"
    HILBERT = "hilbert"


CLUSTERING_SORT_COLUMNS: Option[tuple[str, ...], tuple[str, ...]] = Option(
    "hoodie.clustering.plan.strategy.sort.columns",
    TEXT_LIST,
    default=(),
    doc="Columns by which clustering sorts the rows of each group of files. Without any, rows are "
    "only put together.",
)
ROW_ORDER = Option(
    "hoodie.layout.optimize.strategy",
    RowOrder,
    default=RowOrder.LINEAR,
    doc="How clustering sorts by several columns: one after the other, or along a curve that keeps "
    "rows together which are near in all of them.",
)
CLUSTERING_FILE_BYTES = Option(
    "hoodie.clustering.plan.strategy.target.file.max.bytes",
    integer(minimum=1),
    default=None,
    doc=f"Bytes of a file that clustering makes. Default: {FILE_SIZE_MAX.key}. Hudi's own default "
    "is 1 GiB.",
)
CLUSTERING_SMALL_FILE_LIMIT = Option(
    "hoodie.clustering.plan.strategy.small.file.limit",
    integer(minimum=1),
    default=300 * 1024 * 1024,
    doc="Clustering takes file groups whose base files are smaller than this.",
)
CLUSTERING_GROUP_BYTES = Option(
    "hoodie.clustering.plan.strategy.max.bytes.per.group",
    integer(minimum=1),
    default=512 * 1024 * 1024,
    doc="Bytes of files that are rewritten together, by one task; a task that sorts holds all of "
    "their rows in memory. Hudi's own default is 2 GiB.",
)
CLUSTERING_GROUPS_MAX = Option(
    "hoodie.clustering.plan.strategy.max.num.groups",
    integer(minimum=1),
    default=30,
    doc="How many such groups one plan has at most.",
)
CLUSTERING_PARTITIONS: Option[tuple[str, ...], tuple[str, ...]] = Option(
    "hoodie.clustering.plan.strategy.partition.selected",
    TEXT_LIST,
    default=(),
    doc="Partition paths that clustering takes. Default: all.",
)
CLUSTERING_PARTITION_PATTERN = Option(
    "hoodie.clustering.plan.strategy.partition.regex.pattern",
    PATTERN,
    default=None,
    doc="Clustering takes only partitions whose whole path matches this regular expression.",
)
COPIED_ROW_GROUP_ROWS_MIN = Option(
    "headwater.clustering.copy.row.group.rows",
    integer(minimum=1),
    default=32_768,
    doc="Files that need no sorting or merging are copied row group by row group if these have at "
    "least this many rows on average. Smaller ones are decoded and put together, since a file of "
    "many small row groups is slow to read.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringConfig(OptionConfig):
    sort_columns: tuple[str, ...] = setting(CLUSTERING_SORT_COLUMNS)
    order: RowOrder = setting(ROW_ORDER)
    file_bytes: int = inferred(CLUSTERING_FILE_BYTES, lambda reader: reader.read(FILE_SIZE_MAX))
    small_file_limit: int = setting(CLUSTERING_SMALL_FILE_LIMIT)
    group_bytes_max: int = setting(CLUSTERING_GROUP_BYTES)
    groups_max: int = setting(CLUSTERING_GROUPS_MAX)
    partitions: tuple[str, ...] = setting(CLUSTERING_PARTITIONS)
    partition_pattern: str | None = setting(CLUSTERING_PARTITION_PATTERN)
    copied_row_group_rows_min: int = setting(COPIED_ROW_GROUP_ROWS_MIN)

    def takes_partition(self, path: str) -> bool:
        if self.partitions and path not in self.partitions:
            return False
        pattern = self.partition_pattern
        return pattern is None or re.fullmatch(pattern, path) is not None
