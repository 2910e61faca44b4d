"""What an instant did to file groups, as the conflict check sees it.

Every data file that a commit lists touches its file group in one of four ways. A group that is
touched in several ways counts as touched in the strongest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum, unique

from headwater.format.timeline.records import decode_record
from headwater.kernel.layout import TableLayout
from headwater.kernel.timeline.active import instant_path
from headwater.kernel.timeline.contents import load_contents
from headwater.kernel.timeline.history.read import HistoryTimeline
from headwater.kernel.view.commits import (
    COMMIT_ACTIONS,
    CommitReader,
    CompletedCommit,
    decode_commit,
)
from headwater.model.files import BaseFile, DataFile, FileGroupId
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.plan_flags import says_cancellable
from headwater.model.plans import ClusteringPlan, RequestedReplace, RestorePlan, RollbackPlan
from headwater.model.service_metadata import RestoreMetadata, RollbackMetadata
from headwater.seams.storage import Storage

UNDOING = (Action.ROLLBACK, Action.RESTORE)

WRITER_KEY = "headwater.writer"
"""Commit metadata carries who wrote it, so that a conflict can name the other side."""


@unique
class Touch(IntEnum):
    """What is done to a file group, from the weakest to the strongest."""

    COMPACT = 1  # Its rows are written again, none changes.
    APPEND = 2  # It gets log files.
    WRITE_BASE = 3  # It gets a base file, made from what the writer saw of it.
    REPLACE = 4  # It ends; its rows are gone or live elsewhere.


@dataclass(frozen=True, slots=True)
class NewKeys:
    """A file in which a write put keys that it did not find in the table."""

    file: DataFile
    row_count: int
    """How many rows the file has in all; the older ones of a file that was filled up, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one instant does, did, or has undone."""

    instant: Instant
    touches: dict[FileGroupId, Touch]
    owner: str | None = None
    undone: frozenset[InstantTime] = frozenset()
    """The instants that a rollback or restore took back, or is about to."""
    is_cancellable: bool = False
    """Whether it is a pending plan that gives way to writes."""
    inserts: tuple[NewKeys, ...] = ()
    """The files with keys that were new to the table, of a write that brought rows."""
    schema: str | None = None
    """The columns that a write left, as its commit says; services carry those of their plan."""

    @property
    def written(self) -> Iterable[FileGroupId]:
        """The groups that live on with files of this instant."""
        return (group for group, touch in self.touches.items() if touch is not Touch.REPLACE)


def change_of(commit: CompletedCommit) -> Change:
    """Return what a commit did."""
    touches: dict[FileGroupId, Touch] = {}
    for file in commit.files:
        if commit.is_any_compaction:
            touch = Touch.COMPACT
        elif isinstance(file, BaseFile):
            touch = Touch.WRITE_BASE
        else:
            touch = Touch.APPEND
        touches[file.group] = max(touch, touches.get(file.group, touch))
    for group in commit.replaced_groups():
        touches[group] = Touch.REPLACE
    owner = (commit.metadata.extra_metadata or {}).get(WRITER_KEY)
    return Change(
        instant=commit.instant,
        touches=touches,
        owner=owner,
        inserts=tuple(_inserts(commit)),
        schema=None if commit.is_table_service else commit.schema,
    )


def _inserts(commit: CompletedCommit) -> Iterator[NewKeys]:
    """Give the files that hold new keys; a table service writes only what was there."""
    if commit.is_table_service:
        return
    rows = {
        (stat.path or "").rpartition("/")[2]: stat.num_writes or 0
        for stat in commit.metadata.write_stats()
        if stat.num_inserts
    }
    for file in commit.files:
        if file.name in rows:
            yield NewKeys(file, rows[file.name])


def decode_change(instant: Instant, content: bytes, path: str) -> Change:
    """Return what the file of an instant says it does: the completed one, or that of a plan.

    Raises:
        CorruptTableError: the file is damaged.
    """
    if instant.action in UNDOING:
        return Change(instant=instant, touches={}, undone=_undone(instant, content, path))
    if instant.is_pending:
        plan = decode_record(RequestedReplace, content, path=path).clustering_plan
        return Change(
            instant=instant,
            touches=dict.fromkeys(clustered_groups(plan), Touch.REPLACE),
            is_cancellable=plan is not None and says_cancellable(plan.extra_metadata),
        )
    return change_of(decode_commit(instant, content, path))


def clustered_groups(plan: ClusteringPlan | None) -> Iterator[FileGroupId]:
    """Give the file groups that a clustering replaces."""
    for group in (plan.input_groups if plan is not None else None) or ():
        for one in group.slices or ():
            yield FileGroupId(one.partition_path or "", one.file_id or "")


def load_changes(
    storage: Storage,
    layout: TableLayout,
    instants: Sequence[Instant],
    archived: Iterable[InstantTime] = (),
) -> dict[InstantTime, Change]:
    """Read what instants of the active timeline did, and those of the archived that exist.

    A completed instant that archival took off the active timeline meanwhile is read where it is.

    Raises:
        NotFoundError: kind INSTANT_NOT_FOUND; a pending instant left the timeline meanwhile.
        CorruptTableError: a file is damaged.
    """
    pending = [i._replace(state=State.REQUESTED) for i in instants if i.is_pending]
    completed = [i for i in instants if not i.is_pending]
    contents = load_contents(storage, layout.timeline, pending)
    contents += CommitReader(storage, layout).load_contents(completed)
    changes = {}
    for instant, content in zip([*pending, *completed], contents, strict=True):
        path = instant_path(layout.timeline, instant)
        changes[instant.requested_time] = decode_change(instant, content, path)
    if times := list(archived):
        history = HistoryTimeline(storage, layout.history)
        found = history.find_all(times)
        for time, row in history.iter_contents(found):
            if concerns_groups(found[time]):
                changes[time] = decode_change(found[time], row.metadata, row.path)
    return changes


def concerns_groups(instant: Instant) -> bool:
    """Whether an instant may conflict with a write: by its groups, or by what it undoes."""
    if instant.state is State.COMPLETED:
        return instant.action.completed_name in (*COMMIT_ACTIONS, *UNDOING)
    return instant.is_pending and instant.action in (Action.CLUSTERING, *UNDOING)


def _undone(instant: Instant, content: bytes, path: str) -> frozenset[InstantTime]:
    """Return what a rollback or restore has undone, or is about to."""
    times: Iterable[str]
    if instant.action is Action.ROLLBACK and instant.is_pending:
        target = decode_record(RollbackPlan, content, path=path).instant_to_rollback
        times = () if target is None else (target.commit_time,)
    elif instant.action is Action.ROLLBACK:
        times = decode_record(RollbackMetadata, content, path=path).commits_rollback
    elif instant.is_pending:
        plan = decode_record(RestorePlan, content, path=path)
        times = (info.commit_time for info in plan.instants_to_rollback)
    else:
        restore = decode_record(RestoreMetadata, content, path=path)
        times = (*restore.instants_to_rollback, *restore.hoodie_restore_metadata)
    return frozenset(map(InstantTime, times))
