"""The rule of early detection, which is a pure function."""

from __future__ import annotations

import pickle

import pytest

from headwater.errors import EarlyConflictError, ErrorKind, Retry
from headwater.kernel.txn.changes import Change, Touch
from headwater.kernel.txn.conflicts import Snapshot
from headwater.kernel.txn.markers import Marker, MarkerKind
from headwater.markers.early_conflict import EarlyCheck, announced_change, touch_of
from headwater.model.files import FileGroupId
from headwater.model.instant import Action, Instant, InstantTime, State

EARLIER = InstantTime("20260101000000001")
MINE = InstantTime("20260101000000005")
LATER = InstantTime("20260101000000009")
G = FileGroupId("city=sf", "a-0")
APPENDS = {G: Touch.APPEND}


def instant(
    time: InstantTime, action: Action = Action.DELTA_COMMIT, state: State = State.INFLIGHT
) -> Instant:
    completion = InstantTime("20260101000000007") if state is State.COMPLETED else None
    return Instant(time, action, state, completion)


def change(
    of: Instant, touch: Touch = Touch.APPEND, group: FileGroupId = G, owner: str | None = None
) -> Change:
    return Change(instant=of, touches={group: touch}, owner=owner)


def check(*completed: InstantTime, is_bucketed: bool = False) -> EarlyCheck:
    return EarlyCheck(
        instant=instant(MINE),
        snapshot=Snapshot(completed=frozenset(completed)),
        is_bucketed=is_bucketed,
    )


def test_a_writer_that_began_first_goes_first() -> None:
    conflict = check().find(APPENDS, announced=[change(instant(EARLIER), owner="host/1/w")])
    assert isinstance(conflict, EarlyConflictError)
    assert conflict.kind is ErrorKind.EARLY_CONFLICT
    assert conflict.retry is Retry.FRESH_VIEW
    assert conflict.context == {
        "instant": MINE,
        "other": EARLIER,
        "owner": "host/1/w",
        "group": "city=sf/a-0",
    }
    for part in (MINE, EARLIER, "host/1/w", "city=sf/a-0", "write the batch again"):
        assert part in conflict.message
    again = pickle.loads(pickle.dumps(conflict))
    assert (type(again), again.context) == (type(conflict), conflict.context)


def test_a_writer_that_began_later_stops_nobody() -> None:
    assert check().find(APPENDS, announced=[change(instant(LATER))]) is None


@pytest.mark.parametrize("state", [State.COMPLETED, State.ABORTED])
def test_what_markers_of_an_ended_instant_say_does_not_count(state: State) -> None:
    assert check().find(APPENDS, announced=[change(instant(EARLIER, state=state))]) is None


def test_another_partition_is_another_group() -> None:
    other = change(instant(EARLIER), group=FileGroupId("city=la", G.file_id))
    assert check().find(APPENDS, announced=[other]) is None
    assert check().find(APPENDS, since=[other]) is None


@pytest.mark.parametrize("time", [EARLIER, LATER])
def test_who_committed_since_counts_whenever_it_began(time: InstantTime) -> None:
    done = change(instant(time, state=State.COMPLETED))
    conflict = check().find(APPENDS, since=[done])
    assert conflict is not None
    assert "has changed file group" in conflict.message
    assert check(time).find(APPENDS, since=[done]) is None, "the snapshot has it"


def test_a_pending_clustering_counts_by_its_plan() -> None:
    clustering = change(instant(LATER, Action.CLUSTERING, State.REQUESTED), Touch.REPLACE)
    conflict = check().find(APPENDS, since=[clustering])
    assert conflict is not None
    assert "is about to replace" in conflict.message


def test_a_rollback_of_what_the_write_was_planned_on_counts() -> None:
    rollback = Change(
        instant=instant(LATER, Action.ROLLBACK, State.COMPLETED),
        touches={},
        undone=frozenset({EARLIER}),
    )
    conflict = check(EARLIER).find(APPENDS, since=[rollback])
    assert conflict is not None
    assert "undone" in conflict.message
    assert "group" not in conflict.context
    assert check().find(APPENDS, since=[rollback]) is None


@pytest.mark.parametrize("mine", list(Touch))
@pytest.mark.parametrize("theirs", list(Touch))
def test_it_stops_exactly_who_the_commit_would_refuse(mine: Touch, theirs: Touch) -> None:
    done = change(instant(EARLIER, state=State.COMPLETED), theirs)
    pending = change(instant(EARLIER), theirs)
    is_refused = check().commit_check({G: mine}).find([done]) is not None
    assert (check().find({G: mine}, since=[done]) is not None) == is_refused
    assert (check().find({G: mine}, announced=[pending]) is not None) == is_refused


def test_groups_of_one_bucket_are_one_in_a_bucketed_table() -> None:
    mine = FileGroupId("", "00000003-0000-0000-0000-000000000000-0")
    next_generation = FileGroupId("", "00000003-2026-0101-0000-000000010000-0")
    other = change(instant(EARLIER), Touch.WRITE_BASE, next_generation)
    assert check(is_bucketed=True).find({mine: Touch.APPEND}, announced=[other]) is not None
    assert check().find({mine: Touch.APPEND}, announced=[other]) is None


@pytest.mark.parametrize("kind", list(MarkerKind))
def test_the_name_of_the_file_tells_what_is_done_not_the_kind_of_marker(kind: MarkerKind) -> None:
    log = Marker("city=sf/.a-0_20260101000000001.log.1_0-1-0", kind)
    base = Marker("city=sf/a-0_0-1-0_20260101000000001.parquet", kind)
    assert touch_of(log, Action.DELTA_COMMIT) is Touch.APPEND
    assert touch_of(base, Action.COMMIT) is Touch.WRITE_BASE
    assert touch_of(base, Action.COMPACTION) is Touch.COMPACT
    found = announced_change(instant(EARLIER), [log, base, log], "me")
    assert found.touches == {G: Touch.WRITE_BASE}
    assert found.owner == "me"


def test_a_compaction_does_not_stop_those_who_append() -> None:
    base = Marker("city=sf/a-0_0-1-0_20260101000000001.parquet", MarkerKind.MERGE)
    compaction = announced_change(instant(EARLIER, Action.COMPACTION), [base], None)
    assert check().find(APPENDS, announced=[compaction]) is None
    assert check().find({G: Touch.WRITE_BASE}, announced=[compaction]) is not None
