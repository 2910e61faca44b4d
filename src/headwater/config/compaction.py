"""When log files are compacted, and which of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum, unique

from headwater.config.option import Option, ValueType, integer, seconds
from headwater.config.option_config import OptionConfig, setting


@unique
class CompactionTrigger(StrEnum):
    """What makes a compaction due."""

    NUM_COMMITS = "NUM_COMMITS"
    NUM_COMMITS_AFTER_LAST_REQUEST = "NUM_COMMITS_AFTER_LAST_REQUEST"
    TIME_ELAPSED = "TIME_ELAPSED"
    NUM_AND_TIME = "NUM_AND_TIME"
    NUM_OR_TIME = "NUM_OR_TIME"


def _parse_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(text) from error
    return text


PATTERN: ValueType[str] = ValueType("a regular expression", _parse_pattern, str)

COMPACTION_TRIGGER = Option(
    "hoodie.compact.inline.trigger.strategy",
    CompactionTrigger,
    default=CompactionTrigger.NUM_COMMITS,
    doc="What makes a compaction due: so many delta commits since the last one completed, or was "
    "requested, so much time, or both.",
)
DELTA_COMMITS = Option(
    "hoodie.compact.inline.max.delta.commits",
    integer(minimum=1),
    default=5,
    doc="Delta commits after which a compaction is due.",
)
DELTA_TIME = Option(
    "hoodie.compact.inline.max.delta.seconds",
    seconds(minimum=1),
    default=3_600_000,
    doc="Time since the last compaction after which one is due, for triggers that go by time.",
)
LOG_FILES_MIN = Option(
    "hoodie.compaction.logfile.num.threshold",
    integer(minimum=0),
    default=0,
    doc="File groups with fewer log files than this are left out of compactions.",
)
LOG_BYTES_MIN = Option(
    "hoodie.compaction.logfile.size.threshold",
    integer(minimum=0),
    default=0,
    doc="File groups whose log files have fewer bytes together are left out of compactions.",
)
COMPACTION_IO_MB_MAX = Option(
    "hoodie.compaction.target.io",
    integer(minimum=1),
    default=512_000,
    doc="Megabytes that one compaction reads and writes at most. File groups with the most bytes "
    "in log files come first; one is always taken.",
)
COMPACTION_PARTITIONS = Option(
    "hoodie.compaction.partition.path.regex",
    PATTERN,
    default=None,
    doc="Compactions take only partitions whose whole path matches this regular expression.",
)
LOG_COMPACTION_FILES_MIN = Option(
    "hoodie.log.compaction.blocks.threshold",
    integer(minimum=2),
    default=5,
    doc="File groups with fewer log files than this are left out of log compactions.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionConfig(OptionConfig):
    trigger: CompactionTrigger = setting(COMPACTION_TRIGGER)
    delta_commits: int = setting(DELTA_COMMITS)
    delta_time_ms: int = setting(DELTA_TIME)
    log_files_min: int = setting(LOG_FILES_MIN)
    log_bytes_min: int = setting(LOG_BYTES_MIN)
    io_mb_max: int = setting(COMPACTION_IO_MB_MAX)
    partitions: str | None = setting(COMPACTION_PARTITIONS)
    log_compaction_files_min: int = setting(LOG_COMPACTION_FILES_MIN)

    def takes_partition(self, path: str) -> bool:
        return self.partitions is None or re.fullmatch(self.partitions, path) is not None
