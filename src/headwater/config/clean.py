"""What cleaning keeps: how many commits, file versions or hours of a table's past."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Any, Self

from headwater.config.option import Option, OptionReader, integer


@unique
class CleanPolicy(StrEnum):
    KEEP_LATEST_COMMITS = "KEEP_LATEST_COMMITS"
    KEEP_LATEST_FILE_VERSIONS = "KEEP_LATEST_FILE_VERSIONS"
    KEEP_LATEST_BY_HOURS = "KEEP_LATEST_BY_HOURS"


CLEAN_POLICY = Option(
    "hoodie.clean.policy",
    CleanPolicy,
    default=CleanPolicy.KEEP_LATEST_COMMITS,
    aliases=("hoodie.cleaner.policy",),
    doc="What a clean keeps beside the newest state of the table: that of the last commits, so "
    "many versions of every file group, or that of the last hours.",
)
COMMITS_RETAINED = Option(
    "hoodie.clean.commits.retained",
    integer(minimum=1),
    default=10,
    aliases=("hoodie.cleaner.commits.retained",),
    doc="As of how many of the last commits the table stays readable; for KEEP_LATEST_COMMITS.",
)
FILE_VERSIONS_RETAINED = Option(
    "hoodie.clean.fileversions.retained",
    integer(minimum=1),
    default=3,
    aliases=("hoodie.cleaner.fileversions.retained",),
    doc="How many file slices of every file group stay; for KEEP_LATEST_FILE_VERSIONS.",
)
HOURS_RETAINED = Option(
    "hoodie.clean.hours.retained",
    integer(minimum=1),
    default=24,
    aliases=("hoodie.cleaner.hours.retained",),
    doc="As of the commits of how many hours the table stays readable; for KEEP_LATEST_BY_HOURS.",
)

CLEAN_OPTIONS: tuple[Option[Any, Any], ...] = (
    CLEAN_POLICY,
    COMMITS_RETAINED,
    FILE_VERSIONS_RETAINED,
    HOURS_RETAINED,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanConfig:
    policy: CleanPolicy = CLEAN_POLICY.default
    commits_retained: int = COMMITS_RETAINED.default
    file_versions_retained: int = FILE_VERSIONS_RETAINED.default
    hours_retained: int = HOURS_RETAINED.default

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Return the config that `options` describe; keys of other subjects are left alone.

        Raises:
            InvalidInputError: kind INVALID_OPTION, naming every malformed option.
        """
        reader = OptionReader(options)
        config = cls(
            policy=reader.read(CLEAN_POLICY),
            commits_retained=reader.read(COMMITS_RETAINED),
            file_versions_retained=reader.read(FILE_VERSIONS_RETAINED),
            hours_retained=reader.read(HOURS_RETAINED),
        )
        reader.finish()
        return config

    def to_options(self) -> dict[str, str]:
        """Return the options that `from_options` turns into this config."""
        return {
            CLEAN_POLICY.key: CLEAN_POLICY.encode(self.policy),
            COMMITS_RETAINED.key: COMMITS_RETAINED.encode(self.commits_retained),
            FILE_VERSIONS_RETAINED.key: FILE_VERSIONS_RETAINED.encode(self.file_versions_retained),
            HOURS_RETAINED.key: HOURS_RETAINED.encode(self.hours_retained),
        }
