"""What cleaning keeps: how many commits, file versions or hours of a table's past."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, unique

from headwater.config.option import Option, integer
from headwater.config.option_config import OptionConfig, setting


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanConfig(OptionConfig):
    policy: CleanPolicy = setting(CLEAN_POLICY)
    commits_retained: int = setting(COMMITS_RETAINED)
    file_versions_retained: int = setting(FILE_VERSIONS_RETAINED)
    hours_retained: int = setting(HOURS_RETAINED)

    @property
    def versions_kept(self) -> int:
        """How many slices stay of a file group that has not changed for long."""
        by_versions = self.policy is CleanPolicy.KEEP_LATEST_FILE_VERSIONS
        return self.file_versions_retained if by_versions else 1
