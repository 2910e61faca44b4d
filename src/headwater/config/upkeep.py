"""Which services run after a write, by the process that wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from headwater.config.option import Option, OptionReader, integer

INLINE_COMPACTION = Option(
    "hoodie.compact.inline",
    bool,
    default=False,
    doc="Whether a write to a merge-on-read table compacts it when that is due, by "
    "hoodie.compact.inline.trigger.strategy.",
)
INLINE_LOG_COMPACTION = Option(
    "hoodie.log.compaction.inline",
    bool,
    default=False,
    doc="Whether a write to a merge-on-read table puts its logs together when there are enough, by "
    "hoodie.log.compaction.blocks.threshold.",
)
INLINE_CLUSTERING = Option(
    "hoodie.clustering.inline",
    bool,
    default=False,
    doc="Whether a write clusters the table after every hoodie.clustering.inline.max.commits.",
)
INLINE_CLUSTERING_COMMITS = Option(
    "hoodie.clustering.inline.max.commits",
    integer(minimum=1),
    default=4,
    doc="After how many commits a write clusters the table.",
)
AUTOMATIC_CLEAN = Option(
    "hoodie.clean.automatic",
    bool,
    default=False,
    doc="Whether a write cleans the table after every hoodie.clean.trigger.max.commits. Hudi's own "
    "default is true; here nothing is deleted unless it is asked for.",
)
AUTOMATIC_CLEAN_COMMITS = Option(
    "hoodie.clean.trigger.max.commits",
    integer(minimum=1),
    default=1,
    aliases=("hoodie.clean.max.commits",),
    doc="After how many commits a write cleans the table.",
)
AUTOMATIC_ARCHIVE = Option(
    "hoodie.archive.automatic",
    bool,
    default=False,
    doc="Whether a write archives old instants once there are more than hoodie.keep.max.commits. "
    "Hudi's own default is true.",
)

UPKEEP_OPTIONS: tuple[Option[Any, Any], ...] = (
    INLINE_COMPACTION,
    INLINE_LOG_COMPACTION,
    INLINE_CLUSTERING,
    INLINE_CLUSTERING_COMMITS,
    AUTOMATIC_CLEAN,
    AUTOMATIC_CLEAN_COMMITS,
    AUTOMATIC_ARCHIVE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepConfig:
    compacts: bool = INLINE_COMPACTION.default
    compacts_logs: bool = INLINE_LOG_COMPACTION.default
    clusters: bool = INLINE_CLUSTERING.default
    clustering_commits: int = INLINE_CLUSTERING_COMMITS.default
    cleans: bool = AUTOMATIC_CLEAN.default
    clean_commits: int = AUTOMATIC_CLEAN_COMMITS.default
    archives: bool = AUTOMATIC_ARCHIVE.default

    @property
    def is_idle(self) -> bool:
        """Whether no service runs after a write."""
        return not (
            self.compacts or self.compacts_logs or self.clusters or self.cleans or self.archives
        )

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Return the config that `options` describe; keys of other subjects are left alone.

        Raises:
            InvalidInputError: kind INVALID_OPTION, naming every malformed option.
        """
        reader = OptionReader(options)
        config = cls(
            compacts=reader.read(INLINE_COMPACTION),
            compacts_logs=reader.read(INLINE_LOG_COMPACTION),
            clusters=reader.read(INLINE_CLUSTERING),
            clustering_commits=reader.read(INLINE_CLUSTERING_COMMITS),
            cleans=reader.read(AUTOMATIC_CLEAN),
            clean_commits=reader.read(AUTOMATIC_CLEAN_COMMITS),
            archives=reader.read(AUTOMATIC_ARCHIVE),
        )
        reader.finish()
        return config
