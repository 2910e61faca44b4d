"""Which services run after a write, by the process that wrote."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.config.option import Option, integer
from headwater.config.option_config import OptionConfig, setting

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
    aliases=("hoodie.datasource.clustering.inline.enable",),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TableServicesConfig(OptionConfig):
    compacts: bool = setting(INLINE_COMPACTION)
    compacts_logs: bool = setting(INLINE_LOG_COMPACTION)
    clusters: bool = setting(INLINE_CLUSTERING)
    clustering_commits: int = setting(INLINE_CLUSTERING_COMMITS)
    cleans: bool = setting(AUTOMATIC_CLEAN)
    clean_commits: int = setting(AUTOMATIC_CLEAN_COMMITS)
    archives: bool = setting(AUTOMATIC_ARCHIVE)

    @property
    def is_idle(self) -> bool:
        """Whether no service runs after a write."""
        return not (
            self.compacts or self.compacts_logs or self.clusters or self.cleans or self.archives
        )
