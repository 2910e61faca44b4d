"""How many commits stay on the active timeline."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.config.clean import CLEAN_POLICY, COMMITS_RETAINED, CleanPolicy
from headwater.config.option import Option, OptionReader, integer
from headwater.config.option_config import OptionConfig, inferred, setting

_COMMITS_MIN_DEFAULT = 20
_COMMITS_BETWEEN = 10
"""How far the defaults lie apart: what is retained, the least and the most that stays."""

COMMITS_MIN = Option(
    "hoodie.keep.min.commits",
    integer(minimum=1),
    default=None,
    doc="How many commits an archival leaves on the active timeline. Default: "
    f"{_COMMITS_MIN_DEFAULT}, or {_COMMITS_BETWEEN} more than a clean retains if that is more.",
)
COMMITS_MAX = Option(
    "hoodie.keep.max.commits",
    integer(minimum=1),
    default=None,
    doc="Up to how many commits on the active timeline nothing is archived. Default: "
    f"{_COMMITS_BETWEEN} more than hoodie.keep.min.commits.",
)
MERGE_BATCH_SIZE = Option(
    "hoodie.timeline.compaction.batch.size",
    integer(minimum=2),
    default=10,
    doc="How many files of one level of the archived timeline are merged into one of the next.",
)


def _commits_retained(reader: OptionReader) -> int:
    by_commits = reader.read(CLEAN_POLICY) is CleanPolicy.KEEP_LATEST_COMMITS
    return reader.read(COMMITS_RETAINED) if by_commits else 0


def _commits_min(reader: OptionReader) -> int:
    return max(_COMMITS_MIN_DEFAULT, _commits_retained(reader) + _COMMITS_BETWEEN)


def _commits_max(reader: OptionReader) -> int:
    return reader.read_or(COMMITS_MIN, _commits_min) + _COMMITS_BETWEEN


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveConfig(OptionConfig):
    commits_min: int = inferred(COMMITS_MIN, _commits_min)
    commits_max: int = inferred(COMMITS_MAX, _commits_max)
    merge_batch_size: int = setting(MERGE_BATCH_SIZE)

    def _check(self, reader: OptionReader) -> None:
        retained = _commits_retained(reader)
        reader.require(
            self.commits_min > retained,
            f"{COMMITS_MIN.key}={self.commits_min} must be larger than the {retained} commits that "
            "a clean retains",
        )
        reader.require(
            self.commits_max > self.commits_min,
            f"{COMMITS_MAX.key}={self.commits_max} must be larger than "
            f"{COMMITS_MIN.key}={self.commits_min}",
        )
