"""How many commits stay on the active timeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from headwater.config.clean import CleanConfig, CleanPolicy
from headwater.config.option import Option, OptionReader, integer

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

ARCHIVE_OPTIONS: tuple[Option[Any, Any], ...] = (COMMITS_MIN, COMMITS_MAX, MERGE_BATCH_SIZE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveConfig:
    commits_min: int = _COMMITS_MIN_DEFAULT
    commits_max: int = _COMMITS_MIN_DEFAULT + _COMMITS_BETWEEN
    merge_batch_size: int = MERGE_BATCH_SIZE.default

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Return the config that `options` describe; keys of other subjects are left alone.

        Raises:
            InvalidInputError: kind INVALID_OPTION, naming every problem.
        """
        reader = OptionReader(options)
        clean = CleanConfig.from_options(options)
        by_commits = clean.policy is CleanPolicy.KEEP_LATEST_COMMITS
        retained = clean.commits_retained if by_commits else 0
        least, most = reader.read(COMMITS_MIN), reader.read(COMMITS_MAX)
        if least is None:
            least = max(_COMMITS_MIN_DEFAULT, retained + _COMMITS_BETWEEN)
        if most is None:
            most = least + _COMMITS_BETWEEN
        reader.require(
            least > retained,
            f"{COMMITS_MIN.key}={least} must be larger than the {retained} commits that a clean "
            "retains",
        )
        reader.require(
            most > least, f"{COMMITS_MAX.key}={most} must be larger than {COMMITS_MIN.key}={least}"
        )
        config = cls(
            commits_min=least,
            commits_max=most,
            merge_batch_size=reader.read(MERGE_BATCH_SIZE),
        )
        reader.finish()
        return config

    def to_options(self) -> dict[str, str]:
        """Return the options that `from_options` turns into this config."""
        return {
            COMMITS_MIN.key: COMMITS_MIN.encode(self.commits_min),
            COMMITS_MAX.key: COMMITS_MAX.encode(self.commits_max),
            MERGE_BATCH_SIZE.key: MERGE_BATCH_SIZE.encode(self.merge_batch_size),
        }
