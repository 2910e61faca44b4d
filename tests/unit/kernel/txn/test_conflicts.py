"""The conflict check as a table: what may commit after what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headwater.errors import ErrorKind
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.txn.changes import Change, Touch
from headwater.kernel.txn.conflicts import ConflictCheck, Snapshot
from headwater.model.files import FileGroupId
from headwater.model.instant import Action, Instant, InstantTime, State

MINE = InstantTime("20260101000000500")
GROUP = FileGroupId("p", "00000001-0000-0000-0000-000000000000-0")
NEXT = FileGroupId("p", "00000001-2026-0101-0000-000400000000-0")
ELSEWHERE = FileGroupId("q", GROUP.file_id)

FITTING = {
    (Touch.COMPACT, Touch.APPEND),
    (Touch.APPEND, Touch.COMPACT),
    (Touch.REPLACE, Touch.COMPACT),
}


def time(ms: int) -> InstantTime:
    return InstantTime(f"20260101000000{ms:03d}")


def completed(requested: int, completion: int, action: Action = Action.DELTA_COMMIT) -> Instant:
    return Instant(time(requested), action, State.COMPLETED, time(completion))


def pending(requested: int, action: Action = Action.DELTA_COMMIT) -> Instant:
    return Instant(time(requested), action, State.INFLIGHT)


def mine(
    touch: Touch,
    group: FileGroupId = GROUP,
    *,
    is_bucketed: bool = False,
    is_non_blocking: bool = False,
) -> ConflictCheck:
    return ConflictCheck(
        mine=Change(instant=pending(500), touches={group: touch}),
        snapshot=Snapshot(),
        is_bucketed=is_bucketed,
        is_non_blocking=is_non_blocking,
    )


def theirs(touch: Touch, group: FileGroupId = GROUP) -> Change:
    return Change(instant=completed(400, 600), touches={group: touch}, owner="host/1/other")


@pytest.mark.parametrize("left", Touch)
@pytest.mark.parametrize("top", Touch)
def test_the_table_of_touches(left: Touch, top: Touch) -> None:
    found = mine(left).find([theirs(top)])
    assert (found is None) == ((left, top) in FITTING)


@pytest.mark.parametrize("left", Touch)
@pytest.mark.parametrize("top", Touch)
def test_for_non_blocking_writers_only_appends_fit_as_well(left: Touch, top: Touch) -> None:
    found = mine(left, is_non_blocking=True).find([theirs(top)])
    is_append = left is top is Touch.APPEND
    assert (found is None) == (is_append or (left, top) in FITTING)


def test_the_same_file_id_in_another_partition_is_another_group() -> None:
    assert mine(Touch.REPLACE).find([theirs(Touch.REPLACE, ELSEWHERE)]) is None


@pytest.mark.parametrize(
    ("is_bucketed", "touch", "clashes"),
    [(True, Touch.APPEND, True), (True, Touch.REPLACE, False), (False, Touch.APPEND, False)],
)
def test_two_groups_of_one_bucket(is_bucketed: bool, touch: Touch, clashes: bool) -> None:
    check = mine(Touch.APPEND, NEXT, is_bucketed=is_bucketed, is_non_blocking=True)
    assert (check.find([theirs(touch)]) is not None) == clashes


def test_a_conflict_says_who_was_first_where_and_what_to_do() -> None:
    found = mine(Touch.APPEND).find([theirs(Touch.APPEND)])
    assert found is not None
    assert found.kind is ErrorKind.WRITE_CONFLICT
    assert found.context["other"] == time(400)
    for part in (MINE, "deltacommit 20260101000000400", "host/1/other", str(GROUP), "again"):
        assert part in str(found)


def test_a_write_planned_on_commits_that_were_undone_conflicts() -> None:
    undoing = Change(
        instant=completed(520, 530, Action.RESTORE), touches={}, undone=frozenset({time(100)})
    )
    change = Change(instant=pending(500), touches={GROUP: Touch.APPEND})
    saw = Snapshot(completed=frozenset({time(100)}))
    conflict = ConflictCheck(mine=change, snapshot=saw).find([undoing])
    assert conflict is not None
    assert "undone" in conflict.message
    assert ConflictCheck(mine=change, snapshot=Snapshot()).find([undoing]) is None


def test_candidates_are_chosen_by_what_the_writer_saw_not_by_requested_time() -> None:
    """A long write with a smaller requested time that completed in between counts (H-69)."""
    before = Timeline([completed(100, 110), pending(200), completed(300, 310)])
    snapshot = Snapshot.of(before)
    after = Timeline(
        [
            completed(100, 110),
            completed(200, 520),
            completed(300, 310),
            pending(500),
            completed(510, 515),
            completed(530, 540, Action.CLEAN),
            pending(550, Action.CLUSTERING),
            pending(560),
        ]
    )
    found = [instant.requested_time for instant in snapshot.candidates(after, MINE)]
    assert found == [time(200), time(510), time(550)]


def test_what_was_pending_and_is_gone_may_have_been_archived() -> None:
    snapshot = Snapshot.of(Timeline([pending(200), pending(210)]))
    assert snapshot.vanished(Timeline([pending(210), pending(500)])) == [time(200)]


def test_non_blocking_appends_read_no_delta_commit_but_every_other_action() -> None:
    timeline = Timeline(
        [completed(100, 600), completed(200, 610, Action.REPLACE_COMMIT), pending(500)]
    )
    appends = mine(Touch.APPEND, is_non_blocking=True)
    assert [i.requested_time for i in appends.unread(timeline)] == [time(200)]
    replaces = mine(Touch.REPLACE, is_non_blocking=True)
    assert len(replaces.unread(timeline)) == 2


def test_inv_100_of_the_writes_that_fit_the_newest_to_complete_is_read_for_its_columns() -> None:
    compared = replace(mine(Touch.APPEND, is_non_blocking=True), planned_schema="a")
    newest = completed(100, 620)
    timeline = Timeline([newest, completed(200, 610), pending(500), completed(510, 600)])
    assert compared.unread(timeline) == [newest]
    known = {newest.requested_time: Change(instant=newest, touches={}, schema="a")}
    assert replace(compared, known=known).unread(timeline) == []


@pytest.mark.parametrize(
    ("planned", "theirs", "conflicts"),
    [
        ("a", "a", False),
        ("a", "a b", True),
        ("a", "a c", False),  # Mine says the same.
        ("", "a b", True),  # Both are the first writes of a table.
        (None, "a b", False),
        ("a", None, False),  # A table service.
    ],
)
def test_inv_100_columns_that_others_brought(
    planned: str | None, theirs: str | None, conflicts: bool
) -> None:
    check = ConflictCheck(
        mine=Change(instant=pending(500), touches={GROUP: Touch.APPEND}, schema="a c"),
        snapshot=Snapshot(),
        is_non_blocking=True,
        planned_schema=planned,
    )
    other = Change(instant=completed(400, 600), touches={GROUP: Touch.APPEND}, schema=theirs)
    found = check.find([other])
    assert (found is not None) == conflicts
    if found is not None:
        assert "changed the columns" in found.message


def test_a_non_blocking_write_that_starts_a_bucket_reads_delta_commits_too() -> None:
    timeline = Timeline([completed(100, 600), pending(500)])
    check = replace(mine(Touch.APPEND, is_non_blocking=True), starts_groups=True)
    assert [i.requested_time for i in check.unread(timeline)] == [time(100)]


def test_what_was_read_before_the_lock_is_not_read_again() -> None:
    check = ConflictCheck(
        mine=Change(instant=pending(500), touches={GROUP: Touch.APPEND}),
        snapshot=Snapshot(),
        known={time(400): theirs(Touch.COMPACT)},
    )
    assert check.unread(Timeline([completed(400, 600), pending(500)])) == []


def test_a_base_file_must_not_lie_below_one_that_its_writer_has_seen() -> None:
    """Readers take the base file with the largest requested time (N-12)."""
    overtaker, earlier = completed(510, 520), completed(400, 505)
    saw = Snapshot.of(Timeline([earlier, pending(500), overtaker]))
    later = Timeline([earlier, pending(500), overtaker])
    change = Change(instant=pending(500), touches={GROUP: Touch.WRITE_BASE})
    check = ConflictCheck(mine=change, snapshot=saw)
    assert check.unread(later) == [overtaker]
    for touch in (Touch.WRITE_BASE, Touch.APPEND):
        theirs = Change(instant=overtaker, touches={GROUP: touch})
        assert check.find([theirs]) is not None
        elsewhere = Change(instant=overtaker, touches={ELSEWHERE: touch})
        assert check.find([elsewhere]) is None


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        ({}, True),
        ({"is_rebased": True}, True),
        ({"is_rebased": True, "is_by_values": True}, False),
        ({"is_non_blocking": True}, False),
    ],
)
def test_n_128_a_log_must_not_count_as_older_than_one_that_its_writer_has_seen(
    options: dict[str, Any], counts: bool
) -> None:
    """Other engines take the log with the largest requested time for the newest."""
    overtaker = completed(510, 520)
    timeline = Timeline([pending(500), overtaker])
    mine = Change(instant=pending(500), touches={GROUP: Touch.APPEND})
    check = ConflictCheck(mine=mine, snapshot=Snapshot.of(timeline), **options)
    assert check.unread(timeline) == ([overtaker] if counts else [])
    theirs = Change(instant=overtaker, touches={GROUP: Touch.APPEND})
    assert (check.find([theirs]) is not None) == counts
    # A log lies above the base files that completed before it, whenever they were requested.
    base = Change(instant=overtaker, touches={GROUP: Touch.WRITE_BASE})
    assert check.find([base]) is None


def test_n_128_appends_stay_beside_those_that_were_requested_before() -> None:
    mine = Change(instant=pending(500), touches={GROUP: Touch.APPEND})
    for requested, by_values, fits in (
        (400, False, True),
        (510, False, False),
        (510, True, True),
    ):
        other = Change(instant=completed(requested, 600), touches={GROUP: Touch.APPEND})
        check = ConflictCheck(
            mine=mine, snapshot=Snapshot(), is_rebased=True, is_by_values=by_values
        )
        assert (check.find([other]) is None) == fits
