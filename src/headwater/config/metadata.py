"""The metadata table: which indexes a new table begins with, and how they are kept and built.

What a table has is in its own properties (`hoodie.table.metadata.partitions`); these options say
what to add when a table or an index is created, and never take anything away (H-58).
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.config.option import TEXT_LIST, Option, OptionReader, integer, seconds
from headwater.config.option_config import OptionConfig, setting

METADATA_ENABLE = Option(
    "hoodie.metadata.enable",
    bool,
    default=True,
    doc="Whether a new table gets a metadata table, and whether reads use the one that there is. "
    "Writers keep the indexes of a table in step whatever this says.",
)
COLUMN_STATS_ENABLE = Option(
    "hoodie.metadata.index.column.stats.enable",
    bool,
    default=False,
    doc="Whether a new table begins with an index of every file's smallest and largest values.",
)
COLUMN_STATS_COLUMNS: Option[tuple[str, ...], tuple[str, ...]] = Option(
    "hoodie.metadata.index.column.stats.column.list",
    TEXT_LIST,
    default=(),
    doc="The columns of column and partition statistics. Empty: the first ones, as many as "
    "hoodie.metadata.index.column.stats.max.columns.to.index says.",
)
COLUMN_STATS_COLUMNS_MAX = Option(
    "hoodie.metadata.index.column.stats.max.columns.to.index",
    integer(minimum=1),
    default=32,
    doc="How many columns get statistics when no list of them is given.",
)
COLUMN_STATS_GROUPS = Option(
    "hoodie.metadata.index.column.stats.file.group.count",
    integer(minimum=1),
    default=2,
    doc="Over how many file groups column statistics are spread; fixed when they are built.",
)
PARTITION_STATS_ENABLE = Option(
    "hoodie.metadata.index.partition.stats.enable",
    bool,
    default=True,
    doc="Whether a new partitioned table with column statistics also gets those of partitions.",
)
PARTITION_STATS_GROUPS = Option(
    "hoodie.metadata.index.partition.stats.file.group.count",
    integer(minimum=1),
    default=1,
    doc="Over how many file groups partition statistics are spread; fixed when they are built.",
)
BLOOM_FILTER_ENABLE = Option(
    "hoodie.metadata.index.bloom.filter.enable",
    bool,
    default=False,
    doc="Whether a new table begins with an index of the bloom filters of its base files.",
)
BLOOM_FILTER_GROUPS = Option(
    "hoodie.metadata.index.bloom.filter.file.group.count",
    integer(minimum=1),
    default=4,
    doc="Over how many file groups bloom filters are spread; fixed when they are built.",
)
RECORD_INDEX_ENABLE = Option(
    "hoodie.metadata.global.record.level.index.enable",
    bool,
    default=False,
    aliases=("hoodie.metadata.record.index.enable",),
    doc="Whether a new table begins with an index from record keys to file groups.",
)
RECORD_INDEX_GROUPS_MIN = Option(
    "hoodie.metadata.record.index.min.filegroup.count",
    integer(minimum=1),
    default=10,
    aliases=("hoodie.metadata.global.record.level.index.min.filegroup.count",),
    doc="Over at least how many file groups a record or secondary index is spread.",
)
RECORD_INDEX_GROUPS_MAX = Option(
    "hoodie.metadata.record.index.max.filegroup.count",
    integer(minimum=1),
    default=10_000,
    aliases=("hoodie.metadata.global.record.level.index.max.filegroup.count",),
    doc="Over at most how many file groups a record or secondary index is spread.",
)
RECORD_INDEX_GROUP_BYTES = Option(
    "hoodie.metadata.record.index.max.filegroup.size",
    integer(minimum=1),
    default=1 << 30,
    aliases=("hoodie.metadata.record.level.index.max.filegroup.size",),
    doc="How many bytes a file group of a record or secondary index is meant to reach.",
)
METADATA_COMPACTION_COMMITS = Option(
    "hoodie.metadata.compact.max.delta.commits",
    integer(minimum=1),
    default=10,
    doc="After how many delta commits Apache Hudi's jobs compact the metadata table. Headwater "
    "does so a little earlier, after four fifths of them, so that no process of Hudi's has to "
    "begin with it.",
)
INDEX_CHECK_TIMEOUT = Option(
    "hoodie.metadata.index.check.timeout.seconds",
    seconds(minimum=1),
    default=900_000,
    doc="How long the builder of an index waits for writes that were at work when it had built it. "
    "After that the indexes that are complete stay, and the others are taken away.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataConfig(OptionConfig):
    is_enabled: bool = setting(METADATA_ENABLE)
    has_column_stats: bool = setting(COLUMN_STATS_ENABLE)
    stats_columns: tuple[str, ...] = setting(COLUMN_STATS_COLUMNS)
    """Empty: the first `stats_columns_max` columns."""
    stats_columns_max: int = setting(COLUMN_STATS_COLUMNS_MAX)
    column_stats_groups: int = setting(COLUMN_STATS_GROUPS)
    has_partition_stats: bool = setting(PARTITION_STATS_ENABLE)
    """Means something for partitioned tables with column statistics only."""
    partition_stats_groups: int = setting(PARTITION_STATS_GROUPS)
    has_bloom_filters: bool = setting(BLOOM_FILTER_ENABLE)
    bloom_filter_groups: int = setting(BLOOM_FILTER_GROUPS)
    has_record_index: bool = setting(RECORD_INDEX_ENABLE)
    record_index_groups_min: int = setting(RECORD_INDEX_GROUPS_MIN)
    record_index_groups_max: int = setting(RECORD_INDEX_GROUPS_MAX)
    record_index_group_bytes: int = setting(RECORD_INDEX_GROUP_BYTES)
    compaction_commits: int = setting(METADATA_COMPACTION_COMMITS)
    index_timeout_ms: int = setting(INDEX_CHECK_TIMEOUT)

    def _check(self, reader: OptionReader) -> None:
        reader.require(
            self.record_index_groups_min <= self.record_index_groups_max,
            f"{RECORD_INDEX_GROUPS_MIN.key} must not exceed {RECORD_INDEX_GROUPS_MAX.key}, got "
            f"{self.record_index_groups_min} and {self.record_index_groups_max}",
        )

    def groups_of(self, name: str, *, record_count: int = 0, record_bytes: int = 48) -> int:
        """Return over how many file groups a new index of this name is spread.

        Record and secondary indexes grow with the table, so they are sized by how many records
        there are, `record_bytes` being what an entry of one comes to.
        """
        match name:
            case "files":
                return 1
            case "column_stats":
                return self.column_stats_groups
            case "partition_stats":
                return self.partition_stats_groups
            case "bloom_filters":
                return self.bloom_filter_groups
            case _:
                # Twice what there is now: the number stays as it is while the table grows.
                wanted = -(-2 * record_count * record_bytes // self.record_index_group_bytes)
                return min(max(wanted, self.record_index_groups_min), self.record_index_groups_max)
