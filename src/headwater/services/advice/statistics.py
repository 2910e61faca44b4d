"""What is known of a table when advice is given: one value, so that advice is a pure decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique

from headwater.model.files import FileGroupId, FileSlice
from headwater.model.instant import Action, InstantTime


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPlan:
    """A pending plan that nobody works on."""

    instant: InstantTime
    action: Action
    is_cancelled: bool = False
    file_groups: tuple[FileGroupId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """How the ranges of a column in the files of a table lie over each other."""

    column: str
    file_count: int
    """Files whose bounds are known."""
    depth: float
    """How many files of its partition a value lies in, on average; 1 if rows are sorted."""
    spared_files: float
    spared_bytes: int
    """What a read with a filter on the column need not read once they are."""


@unique
class IndexState(StrEnum):
    MISSING = "missing"
    """The options ask for it, and the table has it not."""
    UNFINISHED = "unfinished"
    """It is planned or half built, and nobody works on it."""
    DROPPED = "dropped"
    """It was dropped when a commit was taken back, and waits to be built again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataTableStatistics:
    """How far the metadata table is behind its own compaction."""

    commits: int
    """Delta commits since the last one."""
    commits_max: int
    """From how many on one is due."""
    size_bytes: int = 0
    """Of its files; 0 if none is due."""
    waits_for: tuple[InstantTime, ...] = ()
    """Instants that have to end before it can be compacted."""

    @property
    def is_due(self) -> bool:
        return self.commits >= self.commits_max


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatistics:
    """What is known of a table. What is not said is in order."""

    slices: tuple[FileSlice, ...] = ()
    """What readers see of every file group."""
    closed: frozenset[FileGroupId] = frozenset()
    """File groups that a pending plan names."""
    written: Mapping[FileGroupId, InstantTime] = field(default_factory=dict)
    """When a file group was last written, if the active timeline tells; services do not write."""
    writes: tuple[InstantTime, ...] = ()
    """The writes of the active timeline, oldest first."""
    is_rewritable: bool = True
    """Whether this release can write base files of the table anew."""
    is_bucketed: bool | None = False
    """None: nothing tells where rows belong, and so nothing may be clustered."""
    base_uri: str = ""
    sorted_by: Mapping[InstantTime, str] = field(default_factory=dict)
    """How clusterings sorted their rows, by instant."""
    overlaps: tuple[Overlap, ...] = ()
    """Of the columns that rows are to be sorted by."""
    cancelled_clusterings: int = 0
    """How many were cancelled since the last one that completed."""
    instant_count: int = 0
    archivable: int = 0
    """Instants of the active timeline that an archival would take."""
    obsolete_files: int = 0
    obsolete_bytes: int = 0
    """Files that a clean would delete."""
    failed_writes: tuple[InstantTime, ...] = ()
    """Pending writes whose writers are dead or have given up."""
    failed_plans: tuple[InstantTime, ...] = ()
    """Removable plans whose execution failed: they are rolled back, not executed again."""
    unfinished: tuple[InstantTime, ...] = ()
    """Cleans and restores that nobody works on any more."""
    waiting_plans: tuple[WaitingPlan, ...] = ()
    metadata_table: MetadataTableStatistics | None = None
    indexes: Mapping[str, IndexState] = field(default_factory=dict)
    """Indexes that are not as they should be."""
    expired_lock: str | None = None
    """Who held the table lock when its lease ran out, if nobody has taken it since."""

    @property
    def base_files(self) -> int:
        return sum(one.base is not None for one in self.slices)
