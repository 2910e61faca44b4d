"""The conflict check: may a write commit, given what happened since its snapshot?

A write W planned on snapshot(W): which instants were completed when it looked. At its commit
everything that is completed and was not is a candidate, whatever its requested time (H-69), and
also if it was archived meanwhile (H-70). W commits only if it fits with all of them (INV-61).

They meet in file groups, that is (partition, file id) (INV-65). What W does to a group stands at
the left, what the other instant did to it on top:

    mine          COMPACT    APPEND       WRITE_BASE   REPLACE
    COMPACT       conflict   fits         conflict     conflict
    APPEND        fits       conflict*    conflict     conflict
    WRITE_BASE    conflict   conflict     conflict     conflict
    REPLACE       fits       conflict     conflict     conflict

    *  fits for a non-blocking writer: both delta commits stay, readers merge them. So it does for
       an optimistic one that would write the same log again if it lost: it is at once where its
       redo would bring it, behind the other.

COMPACT and APPEND fit because log files belong to the slice that was there when they completed:
what a compaction did not plan stays on top of it. REPLACE takes back what COMPACT rewrote. A
pending clustering that cannot be cancelled counts as if it had replaced its groups (INV-64). One
that can gives way to every write: it is cancelled by the commit that meets it, and is no conflict
(INV-15). To other plans it is one.

By operation: `upsert`, `insert` and `delete` APPEND to merge-on-read tables and WRITE_BASE in all
others, as `bulk_insert` does; `overwrite`, `overwrite_partitions`, `delete_partitions` and
clustering REPLACE groups and WRITE_BASE of new ones; compaction and log compaction COMPACT.
Rollbacks and restores touch no group of a reader's, but a write that was planned on rows that
they undid, or that a pending one is about to undo, cannot commit. Clean, savepoints and indexing
never conflict.

In a table with a bucket index two groups may not share (partition, bucket): writing different
ones is a conflict too.

A base file lies in its group by requested time. One of W would lie below the base files of instants
that were requested after W and had completed when W looked, and what W wrote would be hidden. So a
write of base files conflicts with them although it has seen them (N-12).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter

import pyarrow as pa

from headwater.errors import ConflictError, ErrorKind
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.txn.changes import Change, Touch, concerns_groups
from headwater.kernel.txn.key_conflicts import KeyCheck
from headwater.model.files import DataFile, FileGroupId
from headwater.model.instant import Action, Instant, InstantTime

_FITTING = frozenset(
    {
        (Touch.COMPACT, Touch.APPEND),
        (Touch.APPEND, Touch.COMPACT),
        (Touch.REPLACE, Touch.COMPACT),
    }
)
"""Mine, theirs."""

_NAMED_MAX = 3
"""How many file groups an error names."""

_REQUESTED = attrgetter("requested_time")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The timeline that a write was planned on."""

    completed: frozenset[InstantTime] = frozenset()
    pending: frozenset[InstantTime] = frozenset()

    @classmethod
    def of(cls, timeline: Timeline) -> Snapshot:
        return cls(
            frozenset(map(_REQUESTED, timeline.completed)),
            frozenset(map(_REQUESTED, timeline.pending)),
        )

    def candidates(self, timeline: Timeline, mine: InstantTime) -> list[Instant]:
        """Return the instants of a later timeline that a write may conflict with."""
        return [
            instant
            for instant in timeline.instants
            if instant.requested_time not in self.completed
            and instant.requested_time != mine
            and concerns_groups(instant)
        ]

    def overtakers(self, timeline: Timeline, mine: InstantTime) -> list[Instant]:
        """Return the instants that were requested after mine, yet completed before it looked.

        None of them was archived since: archival stops at mine.
        """
        return [
            instant
            for instant in timeline.instants
            if instant.requested_time > mine
            and instant.requested_time in self.completed
            and concerns_groups(instant)
        ]

    def vanished(self, timeline: Timeline) -> list[InstantTime]:
        """Return what was pending and is gone: rolled back, or completed and archived.

        No other candidate can have been archived. Archival stops at the first pending instant,
        and mine is pending: what it passes was requested before mine, so the snapshot has it.
        """
        return sorted(time for time in self.pending if timeline.find(time) is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictCheck:
    """What a write did and saw, for the check inside its commit."""

    mine: Change
    snapshot: Snapshot
    is_bucketed: bool = False
    is_non_blocking: bool = False
    is_rebased: bool = False
    """Whether appends would be written again as they are after a loss, so that they just stay."""
    is_by_values: bool = False
    """Whether values decide between two appends, whichever of them counts as the later one."""
    starts_groups: bool = False
    """Whether the write made file groups that the snapshot does not have."""
    known: Mapping[InstantTime, Change] = field(default_factory=dict)
    """Changes of candidates that were read before the lock was taken."""
    planned_schema: str | None = None
    """The columns of the table that the write was planned on, empty if it had none; None: they are
    not compared."""
    cancelled: frozenset[InstantTime] = frozenset()
    """Plans that this write has cancelled already, which nobody can take back."""
    keys: KeyCheck | None = None
    """How new keys are compared with those of others; None: nothing is promised of them."""

    def unread(self, timeline: Timeline) -> list[Instant]:
        """Return the candidates whose changes must be read for the check."""
        mine = self.mine.instant.requested_time
        wanted: list[Instant] = []
        fitting: list[Instant] = []
        for instant in self.snapshot.candidates(timeline, mine):
            (fitting if self._fits_unread(instant) else wanted).append(instant)
        if Touch.WRITE_BASE in self.mine.touches.values() or self._keeps_order:
            wanted += self.snapshot.overtakers(timeline, mine)
        if fitting and self.planned_schema is not None:
            # Each write keeps the columns of the one before, so the newest tells of all (INV-100).
            wanted.append(_last_completed(fitting))
        return [instant for instant in wanted if not self._knows(instant)]

    def _knows(self, instant: Instant) -> bool:
        """Whether what was read is still what the instant does; a plan may have ended since."""
        known = self.known.get(instant.requested_time)
        return known is not None and known.instant.is_pending == instant.is_pending

    def _fits_unread(self, other: Instant) -> bool:
        """Whether an instant fits, whatever rows it wrote: a delta commit, for one that appends.

        If the write started a bucket, an optimistic writer may have started it under another id.
        """
        return (
            self.is_non_blocking
            and not self.starts_groups
            and other.action is Action.DELTA_COMMIT
            and all(touch is Touch.APPEND for touch in self.mine.touches.values())
        )

    def others(self, timeline: Timeline, read: Mapping[InstantTime, Change]) -> list[Change]:
        """Return all changes to check against, given what was read of them just now, in order.

        A plan that was pending when it was read and has ended since is left out: if it completed
        it was read again, and if it was aborted nothing is to be feared from it.
        """
        found = []
        for time, change in sorted({**self.known, **read}.items()):
            now = timeline.find(time) if change.instant.is_pending else None
            if not change.instant.is_pending or (now is not None and now.is_pending):
                found.append(change)
        return found

    def plans_to_cancel(self, others: Iterable[Change]) -> list[Change]:
        """Return the pending plans that must not complete if this write commits."""
        return [
            other
            for other in others
            if self.makes_way(other)
            and other.instant.requested_time not in self.cancelled
            and self.clashing_groups(other)
        ]

    def makes_way(self, other: Change) -> bool:
        """Whether the other is a plan that gives way to this write, which brings rows."""
        is_write = self.mine.instant.action.is_ingestion
        return is_write and other.is_cancellable and other.instant.is_pending

    def find(self, others: Iterable[Change]) -> ConflictError | None:
        """Return the conflict with the first of the other changes that does not fit."""
        for other in others:
            if self.makes_way(other):
                continue
            groups = self.clashing_groups(other)
            if groups or other.undone & self.snapshot.completed:
                return _conflict(self.mine, other, groups)
            if self._hides_columns_of(other):
                return _schema_conflict(self.mine, other)
        return None

    def unseen(self, others: Iterable[Change]) -> list[Change]:
        """Return those of the other changes that had not completed when this write looked."""
        return [o for o in others if o.instant.requested_time not in self.snapshot.completed]

    def key_files(self, timeline: Timeline, read: Mapping[InstantTime, Change]) -> list[DataFile]:
        """Return the files whose keys the commit must see, given what was read of the others."""
        if self.keys is None:
            return []
        return self.keys.wanted(self.mine, self.unseen(self.others(timeline, read)))

    def find_key(
        self, others: Iterable[Change], keys: Mapping[str, pa.ChunkedArray]
    ) -> ConflictError | None:
        """Return the conflict with the first of the other changes that has the same new keys."""
        if self.keys is None:
            return None
        return self.keys.find(self.mine, self.unseen(others), keys)

    def clashing_groups(self, other: Change) -> list[FileGroupId]:
        """Return the file groups that the two must not both touch, in order."""
        if other.instant.requested_time in self.snapshot.completed:
            return self._hidden_groups(other)
        clashing = [
            group
            for group in self.mine.touches.keys() & other.touches.keys()
            if not self._fits(self.mine.touches[group], other, other.touches[group])
        ]
        if self.is_bucketed:
            theirs = {(group.partition, group.file_id[:8]): group for group in other.written}
            for group in self.mine.written:
                rival = theirs.get((group.partition, group.file_id[:8]), group)
                if rival != group:
                    clashing.append(group)
        return sorted(set(clashing))

    def _hides_columns_of(self, other: Change) -> bool:
        """Whether the commit would take back columns that another one brought (INV-100).

        The newest commit tells the columns of the table.
        """
        if self.planned_schema is None or other.schema is None:
            return False
        is_seen = other.instant.requested_time in self.snapshot.completed
        return not is_seen and other.schema not in (self.planned_schema, self.mine.schema)

    @property
    def _keeps_order(self) -> bool:
        """Whether appends to one file group must complete in the order of their requests.

        We merge logs by completion, other engines by request (N-128). Non-blocking writers cannot
        keep the two alike, and where values decide it does not matter.
        """
        appends = Touch.APPEND in self.mine.touches.values()
        is_any_order = self.is_rebased and self.is_by_values
        return appends and not self.is_non_blocking and not is_any_order

    def _hidden_groups(self, overtaker: Change) -> list[FileGroupId]:
        """Return the file groups in which an overtaker's files would count as newer than mine."""
        keeps_order = self._keeps_order
        return sorted(
            group
            for group, touch in self.mine.touches.items()
            if group in overtaker.touches
            and (
                touch is Touch.WRITE_BASE
                or (keeps_order and touch is overtaker.touches[group] is Touch.APPEND)
            )
        )

    def _fits(self, mine: Touch, other: Change, theirs: Touch) -> bool:
        if mine is Touch.APPEND and theirs is Touch.APPEND:
            is_later = self.mine.instant.requested_time > other.instant.requested_time
            is_rebased = self.is_rebased and (self.is_by_values or is_later)
            appends_stay = self.is_non_blocking or is_rebased
            return appends_stay and other.instant.action is Action.DELTA_COMMIT
        return (mine, theirs) in _FITTING


def _last_completed(instants: Iterable[Instant]) -> Instant:
    return max(instants, key=lambda instant: instant.completion_time or "")


def _schema_conflict(mine: Change, other: Change) -> ConflictError:
    time, theirs = mine.instant.requested_time, other.instant
    by = f" by {other.owner}" if other.owner else ""
    return ConflictError(
        f"{theirs.action} {theirs.requested_time}{by} changed the columns of the table, and write "
        f"{time} was planned on the columns before. Nothing was committed; write the batch again",
        kind=ErrorKind.WRITE_CONFLICT,
        instant=time,
        other=theirs.requested_time,
        owner=other.owner,
    )


def undoing(undone_by: Instant) -> tuple[str, str]:
    """Return what a rollback or restore does to what a write was planned on, and a remedy."""
    if not undone_by.is_pending:
        return "has undone since", "write the batch again"
    return "is undoing", (
        "write the batch again when it has ended. If nobody works on it any more, "
        "`headwater service clean` finishes it"
    )


def _conflict(mine: Change, other: Change, groups: list[FileGroupId]) -> ConflictError:
    time = mine.instant.requested_time
    theirs = f"{other.instant.action} {other.instant.requested_time}"
    by = f" by {other.owner}" if other.owner else ""
    if not groups:
        does, again = undoing(other.instant)
        return ConflictError(
            f"Write {time} was planned on commits that {theirs}{by} {does}. Nothing was committed; "
            f"{again}",
            kind=ErrorKind.WRITE_CONFLICT,
            instant=time,
            other=other.instant.requested_time,
            undone_by=other.instant.requested_time,
        )
    named = ", ".join(map(str, groups[:_NAMED_MAX]))
    more = f" and {len(groups) - _NAMED_MAX} more" if len(groups) > _NAMED_MAX else ""
    if other.instant.is_pending:
        what, remedy = "is about to replace", "Wait until it has ended, then write the batch again"
    else:
        what, remedy = "changed first", "Write the batch again: it will be planned on their result"
    return ConflictError(
        f"Write {time} and {theirs}{by} touch the same file groups, which the other {what}: "
        f"{named}{more}. Nothing was committed. {remedy}",
        kind=ErrorKind.WRITE_CONFLICT,
        instant=time,
        other=other.instant.requested_time,
        owner=other.owner,
    )
