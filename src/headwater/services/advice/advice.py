"""One piece of advice, and the order of several."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum, unique

from headwater.model.files import FileGroupId
from headwater.model.instant import Action, InstantTime
from headwater.services.advice.worth import COMMIT_BYTES


@unique
class Need(StrEnum):
    """What is wrong with a table. Of needs that are worth as much the first goes first."""

    FAILED_WRITES = "failed_writes"
    CANCELLED_PLAN = "cancelled_plan"
    UNFINISHED_CLEAN = "unfinished_clean"
    UNFINISHED_INDEX = "unfinished_index"
    DROPPED_INDEX = "dropped_index"
    EXPIRED_LOCK = "expired_lock"
    WAITING_PLAN = "waiting_plan"
    METADATA_LOGS = "metadata_logs"
    LOGS = "logs"
    MANY_LOGS = "many_logs"
    SMALL_FILES = "small_files"
    UNSORTED = "unsorted"
    OBSOLETE_FILES = "obsolete_files"
    LONG_TIMELINE = "long_timeline"
    MISSING_INDEX = "missing_index"


_RANKS = {need: rank for rank, need in enumerate(Need)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What a table needs, what to call for it, and what that brings and costs."""

    need: Need
    call: str
    """What to call, in Python."""
    why: str
    gain_bytes: int
    """What each read is spared, with files and names counted in bytes (`advice.worth`)."""
    cost_bytes: int
    """What is read and written for it once."""
    times_cancelled: int = 0
    """How often writers cancelled such work since it last got through; each halves the rank."""
    instant: InstantTime | None = None
    """The plan that is meant, if it is one."""
    action: Action | None = None
    """What kind of plan."""
    file_groups: tuple[FileGroupId, ...] = ()
    """What is to be rewritten, if anything is."""
    indexes: tuple[str, ...] = ()
    """What is to be built, if anything is."""

    @property
    def score(self) -> float:
        """Gain over cost, by which advice is ranked."""
        cost = float(self.cost_bytes + COMMIT_BYTES)
        return self.gain_bytes / cost * 0.5**self.times_cancelled

    @property
    def reads_to_pay(self) -> float:
        """After how many reads it has brought what it cost."""
        return (self.cost_bytes + COMMIT_BYTES) / max(1, self.gain_bytes)

    def __str__(self) -> str:
        return f"{self.need}: {self.why}. {self.call}"


def ranked(advice: Iterable[Advice]) -> list[Advice]:
    """Return advice in the order in which to follow it."""
    return sorted(advice, key=lambda one: (-one.score, _RANKS[one.need], one.instant or ""))
