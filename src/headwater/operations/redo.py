"""What a write that lost has to write again, and what it keeps.

A loser keeps its instant, and the files of whatever nobody else has touched. Written again is the
smallest part of the batch whose rows can go to no file that is kept:

    bucket index                    the buckets in which it lost
    other indexes, or none          the partitions in which it lost
    indexes of the whole table      all rows, since any may go to any partition

Nothing is, if all that the write lost against were columns: its files are as good as older ones,
and its commit says the new columns. So even a write can whose rows this process does not have.

All of it is compared with what completed up to the view that the redo is planned on, not only with
the commit that it lost to: from then on this view is its snapshot, and what came before it is never
looked at again (N-70).

Some losers have to begin anew, with an instant of their own: a write that lost to one that was
requested later, whose base files would lie above its own (N-12) and whose logs other engines would
take for the newer ones (N-128); one that replaces file groups;
one that was planned on what a restore has undone since; and one in the way of a pending plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headwater.errors import ConflictError
from headwater.kernel.txn.changes import Change
from headwater.kernel.txn.conflicts import ConflictCheck
from headwater.model.commit_metadata import WriteStat
from headwater.model.files import FileGroupId
from headwater.operations.plan import RedoPart, WritePlan, bucket_of


class Redo(NamedTuple):
    """A write after a redo."""

    stats: list[WriteStat]
    """All that it consists of: what was kept, and what was written again."""
    discarded: list[WriteStat]
    """What it had written before and that counts no longer."""


def part_to_redo(
    plan: WritePlan,
    check: ConflictCheck,
    others: Iterable[Change],
    keys: Sequence[ConflictError],
) -> RedoPart | None:
    """Return what is written again; None if the batch has to begin anew.

    Args:
        others: everything that the write may conflict with, up to the view of the redo.
        keys: the conflicts of its new keys with them.
    """
    if plan.operation.is_replacing:
        return None
    groups: set[FileGroupId] = set()
    winners = {conflict.context["other"] for conflict in keys}
    for other in others:
        if check.makes_way(other):
            continue
        clashing = check.clashing_groups(other)
        if other.undone & check.snapshot.completed or (clashing and other.instant.is_pending):
            return None
        if clashing:
            winners.add(other.instant.requested_time)
        groups.update(clashing)
    if any(time > plan.instant_time for time in winners):
        return None
    number = 1 if plan.redo is None else plan.redo.number + 1
    if not groups and not keys:
        return RedoPart(number=number, partitions=frozenset())
    if plan.is_handed_over:
        return None
    if plan.is_global:
        return RedoPart(number=number)
    if plan.is_bucketed:
        lost = frozenset((group.partition, bucket_of(group)) for group in groups)
        return RedoPart(number=number, buckets=lost)
    partitions = {conflict.context["partition"] for conflict in keys}
    partitions.update(group.partition for group in groups)
    return RedoPart(number=number, partitions=frozenset(partitions))


def split_stats(
    part: RedoPart, plan: WritePlan, stats: Iterable[WriteStat]
) -> tuple[list[WriteStat], list[WriteStat]]:
    """Return what a write has written that stays, and what is written again."""
    kept: list[WriteStat] = []
    discarded: list[WriteStat] = []
    for stat in stats:
        (discarded if part.has(*_place_of(plan, stat)) else kept).append(stat)
    return kept, discarded


def _place_of(plan: WritePlan, stat: WriteStat) -> tuple[str, int]:
    group = FileGroupId(stat.partition_path or "", stat.file_id or "")
    return group.partition, bucket_of(group) if plan.is_bucketed else 0
