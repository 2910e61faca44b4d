"""Options of cleaning and archival."""

from __future__ import annotations

import pytest

from headwater.config.archive import ArchiveConfig
from headwater.config.clean import CleanConfig, CleanPolicy
from headwater.config.option import OptionAliasWarning
from headwater.config.registry import check_options
from headwater.errors import ErrorKind, InvalidInputError, UnsupportedError


def test_defaults_are_hudis() -> None:
    clean, archive = CleanConfig.from_options({}), ArchiveConfig.from_options({})
    assert clean.policy is CleanPolicy.KEEP_LATEST_COMMITS
    assert (clean.commits_retained, clean.file_versions_retained, clean.hours_retained) == (
        10,
        3,
        24,
    )
    assert (archive.commits_min, archive.commits_max, archive.merge_batch_size) == (20, 30, 10)


def test_configs_survive_a_journey_through_options() -> None:
    clean = CleanConfig(
        policy=CleanPolicy.KEEP_LATEST_BY_HOURS,
        commits_retained=3,
        file_versions_retained=4,
        hours_retained=5,
    )
    assert CleanConfig.from_options(clean.to_options()) == clean
    archive = ArchiveConfig(commits_min=12, commits_max=15, merge_batch_size=4)
    assert ArchiveConfig.from_options(archive.to_options()) == archive


def test_older_names_are_understood() -> None:
    with pytest.warns(OptionAliasWarning):
        config = CleanConfig.from_options({"hoodie.cleaner.commits.retained": "7"})
    assert config.commits_retained == 7


def test_archival_leaves_more_than_a_clean_retains() -> None:
    config = ArchiveConfig.from_options({"hoodie.clean.commits.retained": "40"})
    assert (config.commits_min, config.commits_max) == (50, 60)
    with pytest.raises(InvalidInputError, match="must be larger than the 10 commits") as error:
        ArchiveConfig.from_options({"hoodie.keep.min.commits": "10"})
    assert error.value.kind is ErrorKind.INVALID_OPTION
    by_versions = {
        "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS",
        "hoodie.keep.min.commits": "1",
        "hoodie.keep.max.commits": "2",
    }
    assert ArchiveConfig.from_options(by_versions).commits_min == 1


def test_the_maximum_is_above_the_minimum() -> None:
    with pytest.raises(InvalidInputError, match=r"keep\.max\.commits=20 must be larger"):
        ArchiveConfig.from_options({"hoodie.keep.max.commits": "20"})


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("hoodie.clean.policy", "KEEP_ALL"),
        ("hoodie.clean.commits.retained", "0"),
        ("hoodie.clean.fileversions.retained", "0"),
        ("hoodie.clean.hours.retained", "-1"),
        ("hoodie.timeline.compaction.batch.size", "1"),
    ],
)
def test_malformed_values_are_refused(key: str, text: str) -> None:
    with pytest.raises(InvalidInputError, match=key):
        check_options({key: text})


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("hoodie.archive.beyond.savepoint", "true"),
    ],
)
def test_what_is_not_done_is_refused(key: str, text: str) -> None:
    with pytest.raises(UnsupportedError, match=key):
        check_options({key: text})
