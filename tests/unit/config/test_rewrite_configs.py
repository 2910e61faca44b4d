"""Options of compaction and clustering."""

from __future__ import annotations

import pytest

from headwater.config.clustering import ClusteringConfig, RowOrder
from headwater.config.compaction import CompactionConfig, CompactionTrigger
from headwater.config.registry import check_options
from headwater.errors import InvalidInputError


def test_compaction_options_are_hudis() -> None:
    given = check_options(
        {
            "hoodie.compact.inline.trigger.strategy": "num_or_time",
            "hoodie.compact.inline.max.delta.commits": 7,
            "hoodie.compact.inline.max.delta.seconds": 60,
            "hoodie.compaction.logfile.num.threshold": 3,
            "hoodie.compaction.logfile.size.threshold": 1000,
            "hoodie.compaction.target.io": 500,
            "hoodie.compaction.partition.path.regex": "city=.*",
            "hoodie.log.compaction.blocks.threshold": 4,
        }
    )
    assert CompactionConfig.from_options(given.known) == CompactionConfig(
        trigger=CompactionTrigger.NUM_OR_TIME,
        delta_commits=7,
        delta_time_ms=60_000,
        log_files_min=3,
        log_bytes_min=1000,
        io_mb_max=500,
        partitions="city=.*",
        log_compaction_files_min=4,
    )
    assert CompactionConfig.from_options({}) == CompactionConfig()


def test_clustering_options_are_hudis() -> None:
    given = check_options(
        {
            "hoodie.clustering.plan.strategy.sort.columns": "a, b",
            "hoodie.layout.optimize.strategy": "HILBERT",
            "hoodie.clustering.plan.strategy.target.file.max.bytes": 100,
            "hoodie.clustering.plan.strategy.small.file.limit": 90,
            "hoodie.clustering.plan.strategy.max.bytes.per.group": 200,
            "hoodie.clustering.plan.strategy.max.num.groups": 2,
            "hoodie.clustering.plan.strategy.partition.selected": "city=sf,city=ny",
            "hoodie.clustering.plan.strategy.partition.regex.pattern": "city=.*",
            "headwater.clustering.copy.row.group.rows": 5,
        }
    )
    assert ClusteringConfig.from_options(given.known) == ClusteringConfig(
        sort_columns=("a", "b"),
        order=RowOrder.HILBERT,
        file_bytes=100,
        small_file_limit=90,
        group_bytes_max=200,
        groups_max=2,
        partitions=("city=sf", "city=ny"),
        partition_pattern="city=.*",
        copied_row_group_rows_min=5,
    )
    assert ClusteringConfig.from_options({}) == ClusteringConfig()


def test_new_files_are_as_large_as_those_of_writes_unless_said_otherwise() -> None:
    writes = {"hoodie.parquet.max.file.size": "1000"}
    assert ClusteringConfig.from_options(writes).file_bytes == 1000


def test_partitions_must_match_as_a_whole() -> None:
    config = CompactionConfig(partitions="city=s.")
    assert config.takes_partition("city=sf")
    assert not config.takes_partition("city=sfo")
    both = ClusteringConfig(partitions=("a", "ab"), partition_pattern="a.")
    assert [path for path in ("a", "ab", "ac") if both.takes_partition(path)] == ["ab"]


def test_malformed_patterns_and_numbers_are_named() -> None:
    with pytest.raises(InvalidInputError) as caught:
        check_options(
            {
                "hoodie.compaction.partition.path.regex": "city=(",
                "hoodie.clustering.plan.strategy.max.num.groups": 0,
                "hoodie.layout.optimize.strategy": "spiral",
            }
        )
    message = caught.value.message
    assert "hoodie.compaction.partition.path.regex must be a regular expression" in message
    assert "hoodie.clustering.plan.strategy.max.num.groups" in message
    assert "one of linear, zorder, hilbert, got 'spiral'" in message
