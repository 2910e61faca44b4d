"""The rule of early detection, the same for all strategies: must a write stop now?

A write W that is about to touch file group g stops only if (INV-67)

- a candidate that was requested before W, is pending, and has an active heartbeat has announced by
a
  marker that it touches g too, or
- an instant that W did not see completed on g since, or
- g belongs to a clustering that is pending and does not give way to writes,

and only if the conflict check of the commit would refuse the two together; see `txn.conflicts` for
which ways to touch a group fit. So detection never stops a write that could have committed beside
the other, and a write that it lets pass is still checked at its commit (INV-66).

Of two writers that are at work on the same groups the one requested first goes on, in whatever
order they come to them. If each stopped for the other, neither would ever commit (H-62, INV-68).

Only changed groups matter, not who found out or how: strategies differ in where they look.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headwater.errors import EarlyConflictError
from headwater.kernel.txn.changes import Change, Touch
from headwater.kernel.txn.conflicts import ConflictCheck, Snapshot, undoing
from headwater.kernel.txn.markers import Marker
from headwater.model.files import FileGroupId
from headwater.model.instant import Action, Instant, InstantTime


def is_ahead(other: InstantTime, mine: InstantTime) -> bool:
    """Whether another pending writer goes first if both want the same file group."""
    return other < mine


def touch_of(marker: Marker, action: Action) -> Touch:
    """Return what an instant of that action is about to do to the file group of a marker.

    The name of the data file tells, not the kind of the marker: engines differ in the latter.
    """
    if action in (Action.COMPACTION, Action.LOG_COMPACTION):
        return Touch.COMPACT
    return Touch.APPEND if marker.is_log else Touch.WRITE_BASE


def announced_change(instant: Instant, markers: Iterable[Marker], owner: str | None) -> Change:
    """Return what a pending instant does, as far as its markers tell."""
    touches: dict[FileGroupId, Touch] = {}
    for marker in markers:
        touch = touch_of(marker, instant.action)
        touches[marker.group] = max(touch, touches.get(marker.group, touch))
    return Change(instant=instant, touches=touches, owner=owner)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyCheck:
    """What a write is and what it saw, for the rule."""

    instant: Instant
    snapshot: Snapshot
    is_bucketed: bool

    def find(
        self,
        touches: Mapping[FileGroupId, Touch],
        *,
        announced: Iterable[Change] = (),
        since: Iterable[Change] = (),
    ) -> EarlyConflictError | None:
        """Return why the write must stop, if it must.

        Args:
            touches: what it does, or is about to do.
            announced: what the markers of candidates tell whose heartbeats are active.
            since: what instants did that completed after the snapshot, and what pending
                clusterings are going to replace.
        """
        check = self.commit_check(touches)
        for other in announced:
            is_rival = other.instant.is_pending and is_ahead(
                other.instant.requested_time, self.instant.requested_time
            )
            if is_rival and check.find([other]) is not None:
                return _conflict(check, other, is_announced=True)
        for other in since:
            is_seen = other.instant.requested_time in self.snapshot.completed
            if not is_seen and check.find([other]) is not None:
                return _conflict(check, other, is_announced=False)
        return None

    def commit_check(self, touches: Mapping[FileGroupId, Touch]) -> ConflictCheck:
        """Return the check that a commit with these touches would have to pass."""
        return ConflictCheck(
            mine=Change(instant=self.instant, touches=dict(touches)),
            snapshot=self.snapshot,
            is_bucketed=self.is_bucketed,
        )


def _conflict(check: ConflictCheck, other: Change, *, is_announced: bool) -> EarlyConflictError:
    time = check.mine.instant.requested_time
    theirs = f"{other.instant.action} {other.instant.requested_time}"
    by = f" by {other.owner}" if other.owner else ""
    groups = check.clashing_groups(other)
    group = str(groups[0]) if groups else None
    if group is None:
        does, remedy = undoing(other.instant)
        what = f"was planned on commits that {theirs}{by} {does}"
    elif is_announced:
        what = f"meets {theirs}{by}, which began first and is at work on file group {group}"
        remedy = "write the batch again when the other has ended"
    elif other.instant.is_pending:
        what = f"meets {theirs}{by}, which is about to replace file group {group}"
        remedy = "write the batch again when the other has ended"
    else:
        what = f"meets {theirs}{by}, which has changed file group {group} since it began"
        remedy = "write the batch again: it will be planned on their result"
    return EarlyConflictError(
        f"Write {time} stops early: it {what}. Nothing was committed; {remedy}",
        instant=time,
        other=other.instant.requested_time,
        owner=other.owner,
        group=group,
        undone_by=other.instant.requested_time if group is None else None,
    )
