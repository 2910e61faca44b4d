"""Options of the metadata table."""

from __future__ import annotations

import pytest

from headwater.config.metadata import MetadataConfig
from headwater.config.option import OptionAliasWarning
from headwater.config.registry import check_options
from headwater.errors import ErrorKind, InvalidInputError


def test_defaults_are_hudis() -> None:
    config = MetadataConfig.from_options({})
    assert config.is_enabled
    assert not config.has_column_stats
    assert not config.has_bloom_filters
    assert not config.has_record_index
    assert (config.stats_columns, config.stats_columns_max) == ((), 32)
    assert (config.compaction_commits, config.index_timeout_ms) == (10, 900_000)


def test_options_are_read_by_hudis_names() -> None:
    config = MetadataConfig.from_options(
        {
            "hoodie.metadata.enable": "false",
            "hoodie.metadata.index.column.stats.enable": "true",
            "hoodie.metadata.index.column.stats.column.list": "a, b",
            "hoodie.metadata.index.bloom.filter.enable": "true",
            "hoodie.metadata.global.record.level.index.enable": "true",
            "hoodie.metadata.index.check.timeout.seconds": "60",
        }
    )
    assert not config.is_enabled
    assert config.has_column_stats
    assert config.has_bloom_filters
    assert config.has_record_index
    assert config.stats_columns == ("a", "b")
    assert config.index_timeout_ms == 60_000


def test_older_names_are_understood() -> None:
    with pytest.warns(OptionAliasWarning):
        config = MetadataConfig.from_options({"hoodie.metadata.record.index.enable": "true"})
    assert config.has_record_index


def test_bounds_that_cross_are_refused_with_everything_else_that_is_wrong() -> None:
    with pytest.raises(InvalidInputError, match=r"must not exceed") as raised:
        check_options(
            {
                "hoodie.metadata.record.index.min.filegroup.count": "20",
                "hoodie.metadata.record.index.max.filegroup.count": "10",
            }
        )
    assert raised.value.kind is ErrorKind.INVALID_OPTION
    with pytest.raises(InvalidInputError, match="at least 1"):
        check_options({"hoodie.metadata.index.check.timeout.seconds": "0"})


@pytest.mark.parametrize(
    ("name", "records", "groups"),
    [
        ("files", 10**9, 1),
        ("column_stats", 10**9, 2),
        ("partition_stats", 10**9, 1),
        ("bloom_filters", 10**9, 4),
        ("record_index", 0, 10),
        ("record_index", 10**9, 90),
        ("secondary_index_x", 10**9, 90),
        ("record_index", 10**15, 10_000),
    ],
)
def test_indexes_of_records_grow_with_the_table(name: str, records: int, groups: int) -> None:
    assert MetadataConfig().groups_of(name, record_count=records) == groups
