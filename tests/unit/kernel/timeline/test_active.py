"""The active timeline: σ(t), the fast parser against a naive twin, and listings of many pages."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.memory_storage import MemoryStorage

from headwater.errors import CorruptTableError, ErrorKind, NotFoundError
from headwater.kernel.timeline.active import (
    Timeline,
    instant_path,
    load_active,
    parse_timeline,
)
from headwater.kernel.timeline.names import TimelineFile, file_name, parse_file_name
from headwater.model.instant import Action, Instant, InstantTime, State

T1 = InstantTime("20240101000000001")
T2 = InstantTime("20240101000000002")
T3 = InstantTime("20240101000000003")
T9 = InstantTime("20240101000000009")
LEGACY = InstantTime("20190101000000")


def naive_timeline(names: list[str]) -> Timeline:
    """Say the same as `parse_timeline`, by `parse_file_name` alone and one instant at a time."""
    files = [file for name in names if (file := parse_file_name(name)) is not None]
    instants, savepoints = [], []
    for time in sorted({file.requested_time for file in files}):
        own = [f for f in files if f.requested_time == time and f.action is not Action.SAVEPOINT]
        guards = [f for f in files if f.requested_time == time and f.action is Action.SAVEPOINT]
        if own:
            instants.append(naive_instant(own))
        if guards:
            completions = [f.completion_time for f in guards if f.completion_time is not None]
            savepoints.append(
                Instant(time, Action.SAVEPOINT, State.COMPLETED, max(completions))
                if completions
                else Instant(time, Action.SAVEPOINT, State.INFLIGHT)
            )
    return Timeline(instants, savepoints)


def naive_instant(files: list[TimelineFile]) -> Instant:
    time = files[0].requested_time
    for state in (State.COMPLETED, State.ABORTED, State.INFLIGHT, State.REQUESTED):
        shown = [file for file in files if file.state is state]
        if not shown:
            continue
        pending_actions = {file.action for file in files if file.state is not State.COMPLETED}
        if state is State.COMPLETED and len(shown) > 1:
            if {file.action for file in shown} not in ({Action.CLEAN}, {Action.ROLLBACK}):
                raise CorruptTableError("two completed files")
            shown = sorted(shown)
        if len(pending_actions) > 1:
            raise CorruptTableError("two pending actions")
        action = next(iter(pending_actions), shown[0].action)
        if state is State.COMPLETED and action.completed_name is not shown[0].action:
            raise CorruptTableError("completed as something else")
        return Instant(time, action, state, shown[0].completion_time)
    raise AssertionError(files)


TIMES = [InstantTime(f"2024010100000{second:04d}") for second in range(6)] + [LEGACY]
FOREIGN = ["history", ".hidden", f"{T1}.commit", f"{T1}_{T9}.commit.crc", f"{T2}.x", "_", T1]
BROKEN = [f"{LEGACY}_20.commit.requested", f"{T1}_2024.01010000000.commit", f"{T1}_x.clean"]

times = st.sampled_from(TIMES)
pending_names = st.builds(
    lambda time, state, action: (
        f"{time}.inflight"
        if (state, action) == ("inflight", "commit")
        else f"{time}.{action}.{state}"
    ),
    times,
    st.sampled_from(["requested", "inflight", "aborted"]),
    st.sampled_from([action.value for action in Action]),
)
completed_names = st.builds(
    lambda time, completion, action: f"{time}_{completion}.{action}",
    times,
    times,
    st.sampled_from([action.value for action in Action]),
)
any_names = st.lists(
    st.one_of(pending_names, completed_names, st.sampled_from(FOREIGN + BROKEN)), unique=True
)


@settings(deadline=None, max_examples=500)
@given(any_names)
def test_parse_timeline_equals_its_naive_twin_on_any_names(names: list[str]) -> None:
    assert outcome(parse_timeline, names) == outcome(naive_timeline, names)


@st.composite
def well_formed_names(draw: st.DrawFn) -> list[str]:
    """Names as correct writers leave them, in any order, with foreign files in between."""
    names = set(draw(st.lists(st.sampled_from(FOREIGN))))
    for index in draw(st.sets(st.integers(0, 30))):
        time, completion = (
            InstantTime(f"{T1[:-5]}{index:05d}"),
            InstantTime(f"{T1[:-5]}{index + 500:05d}"),
        )
        action = draw(st.sampled_from([a for a in Action if a is not Action.SAVEPOINT]))
        state = draw(st.sampled_from(State))
        if state is State.ABORTED:
            action = Action.CLUSTERING
        left = draw(st.sets(st.sampled_from([State.REQUESTED, State.INFLIGHT])))
        names |= {file_name(time, action, pending) for pending in left}
        is_completed = state is State.COMPLETED
        names.add(file_name(time, action, state, completion if is_completed else None))
        if is_completed and draw(st.booleans()):
            names.add(file_name(time, Action.SAVEPOINT, State.INFLIGHT))
            if draw(st.booleans()):
                names.add(file_name(time, Action.SAVEPOINT, State.COMPLETED, T9))
    return draw(st.permutations(sorted(names)))


@settings(deadline=None, max_examples=100)
@given(well_formed_names())
def test_parse_timeline_equals_its_naive_twin_on_what_writers_leave(names: list[str]) -> None:
    timeline = parse_timeline(names)
    assert timeline == naive_timeline(names)
    assert list(timeline.instants) == sorted(timeline.instants)
    assert all(type(instant) is Instant for instant in timeline.instants)


def outcome(parse: Callable[[list[str]], Timeline], names: list[str]) -> Timeline | type[Exception]:
    try:
        return parse(names)
    except CorruptTableError as error:
        return type(error)


@pytest.mark.parametrize("files", range(1, 16))
def test_state_is_the_most_final_file(files: int) -> None:
    names = {
        State.REQUESTED: f"{T1}.clustering.requested",
        State.INFLIGHT: f"{T1}.clustering.inflight",
        State.ABORTED: f"{T1}.clustering.aborted",
        State.COMPLETED: f"{T1}_{T9}.replacecommit",
    }
    present = [state for bit, state in enumerate(names) if files >> bit & 1]
    (instant,) = parse_timeline(names[state] for state in present).instants
    assert instant.state is present[-1]
    assert instant.completion_time == (T9 if present[-1] is State.COMPLETED else None)
    # The completed file alone does not tell that it was a clustering.
    alone = present == [State.COMPLETED]
    assert instant.action is (Action.REPLACE_COMMIT if alone else Action.CLUSTERING)


def test_a_savepoint_lives_beside_the_instant_it_protects() -> None:
    names = [f"{T1}_{T2}.commit", f"{T1}.savepoint.inflight", f"{T1}_{T3}.savepoint"]
    timeline = parse_timeline(names)
    assert timeline.instants == (Instant(T1, Action.COMMIT, State.COMPLETED, T2),)
    assert timeline.savepoints == (Instant(T1, Action.SAVEPOINT, State.COMPLETED, T3),)
    assert parse_timeline(names[:2]).savepoints == (Instant(T1, Action.SAVEPOINT, State.INFLIGHT),)


@pytest.mark.parametrize(
    "names",
    [
        [f"{T1}_{T2}.commit", f"{T1}_{T3}.commit"],
        [f"{T1}_{T2}.commit", f"{T1}_{T3}.deltacommit"],
        [f"{LEGACY}_{T2}.commit", f"{LEGACY}_{T3}.commit"],
        [f"{T1}_{T2}.commit", f"{T1}_20240101000000.commit"],
        [f"{T1}_{T2}.restore", f"{T1}_{T3}.restore"],
        [f"{T1}_{T2}.clean", f"{T1}_{T3}.rollback"],
    ],
)
def test_two_completed_files_of_one_instant_are_corrupt(names: list[str]) -> None:
    with pytest.raises(CorruptTableError, match="two completed files") as raised:
        parse_timeline([*names, f"{T9}.inflight"], folder="tl")
    assert raised.value.kind is ErrorKind.CORRUPT_TIMELINE
    assert raised.value.context["path"] in [f"tl/{name}" for name in names]
    assert all(name in raised.value.message for name in names)


@pytest.mark.parametrize("action", [Action.CLEAN, Action.ROLLBACK])
def test_n_159_what_two_engines_have_done_is_done_once(action: Action) -> None:
    """Hudi finishes a clean or rollback that it found pending, though we were faster."""
    names = [f"{T1}_{T3}.{action}", f"{T1}_{T2}.{action}", f"{T1}.{action}.requested"]
    for order in permutations(names):
        found = parse_timeline([*order, f"{T9}.inflight"])
        assert found.find(T1) == Instant(T1, action, State.COMPLETED, T2)


@pytest.mark.parametrize(
    "names",
    [
        [f"{T1}.commit.requested", f"{T1}.deltacommit.inflight"],
        [f"{T1}.commit.requested", f"{T1}.deltacommit.requested"],
        [f"{T1}.clean.requested", f"{T1}_{T2}.commit"],
        [f"{T1}.commit.requested", f"{T1}.compaction.inflight", f"{T1}_{T2}.commit"],
        [f"{T1}.compaction.requested", f"{T1}_{T2}.deltacommit"],
        [f"{T1}.replacecommit.requested", f"{T1}.clustering.aborted"],
    ],
)
def test_two_unrelated_actions_under_one_time_are_corrupt(names: list[str]) -> None:
    with pytest.raises(CorruptTableError, match="belongs to one action") as raised:
        parse_timeline(names, folder="tl")
    assert (raised.value.context["instant"], raised.value.context["path"]) == (T1, "tl")


@pytest.mark.parametrize(
    "name",
    ["20240101.commit.requested", f"{T1}_2024.commit", "2024010100000000x.clean.inflight"],
)
def test_a_timeline_file_without_instant_time_is_corrupt(name: str) -> None:
    with pytest.raises(CorruptTableError) as raised:
        parse_timeline([f"{T1}_{T2}.commit", name], folder="tl")
    assert raised.value.context["path"] == f"tl/{name}"


def test_completed_instants_come_in_the_order_of_their_effect() -> None:
    timeline = parse_timeline([f"{T1}_{T9}.commit", f"{T2}_{T3}.commit", f"{T3}.inflight"])
    assert [i.requested_time for i in timeline.completed] == [T2, T1]
    assert timeline.pending == (Instant(T3, Action.COMMIT, State.INFLIGHT),)
    assert [i.requested_time for i in timeline.completed_within_open_closed(T3, T9)] == [T1]
    assert [i.requested_time for i in timeline.completed_within_open_closed(None, T3)] == [T2]
    assert len(timeline.completed_within_open_closed(None, None)) == 2
    assert timeline.completed_within_open_closed(T9, None) == ()


@pytest.mark.parametrize(
    ("names", "largest"),
    [
        ([], None),
        ([f"{T2}.inflight"], T2),
        ([f"{T1}_{T9}.commit", f"{T2}.inflight"], T9),
        ([f"{T1}_{T2}.commit", f"{T3}.clustering.aborted"], T3),
        ([f"{T1}_{T2}.commit", f"{T1}_{T9}.savepoint"], T9),
    ],
)
def test_largest_time_is_the_largest_of_all_times(
    names: list[str], largest: InstantTime | None
) -> None:
    assert parse_timeline(names).largest_time == largest


def test_an_instant_is_found_by_its_requested_time() -> None:
    timeline = parse_timeline([f"{T1}_{T2}.commit"])
    assert timeline.find(T1) is timeline.get(T1) is timeline.instants[0]
    assert timeline.find(T2) is None
    with pytest.raises(NotFoundError) as raised:
        timeline.get(T2)
    assert raised.value.kind is ErrorKind.INSTANT_NOT_FOUND


def test_instant_path_is_that_of_the_files_own_state() -> None:
    compaction = Instant(T1, Action.COMPACTION, State.COMPLETED, T2)
    assert instant_path("tl", compaction) == f"tl/{T1}_{T2}.commit"
    assert instant_path("tl", compaction, State.REQUESTED) == f"tl/{T1}.compaction.requested"


class PagedStorage(MemoryStorage):
    """Lists in pages; after each listing the next of `changes` happens."""

    def __init__(self, page_size: int, *changes: Callable[[MemoryStorage], None]) -> None:
        super().__init__()
        self._page_size = page_size
        self._changes = list(changes)
        self.listings = 0

    @property
    def page_size(self) -> int:
        return self._page_size

    def list_names(self, folder: str, after: str = "") -> list[str]:
        self.listings += 1
        names = super().list_names(folder, after)
        if self._changes:
            self._changes.pop(0)(self)
        return names


def time(number: int) -> InstantTime:
    return InstantTime(f"{T1[:-3]}{number:03d}")


def commit(requested: int, completed: int) -> Callable[[MemoryStorage], None]:
    def put(storage: MemoryStorage) -> None:
        storage.put(f"tl/{time(requested)}.commit.requested", b"")
        storage.put(f"tl/{time(requested)}_{time(completed)}.commit", b"")

    return put


def test_one_page_is_listed_once() -> None:
    storage = PagedStorage(5)
    for number in (0, 2):
        commit(number, number + 1)(storage)
    assert len(load_active(storage, "tl")) == 2
    assert storage.listings == 1


def test_several_pages_that_stand_still_are_listed_twice() -> None:
    storage = PagedStorage(3)
    for number in (0, 2, 4):
        commit(number, number + 1)(storage)
    assert len(load_active(storage, "tl").completed) == 3
    assert storage.listings == 2


def test_n_59_what_completes_between_two_listings_is_not_completed_yet() -> None:
    later = commit(6, 9)
    storage = PagedStorage(3, lambda storage: (commit(8, 20)(storage), later(storage))[0])
    for number in (0, 2, 4):
        commit(number, number + 1)(storage)
    storage.put(f"tl/{time(6)}.commit.requested", b"")
    timeline = load_active(storage, "tl")
    assert [i.requested_time for i in timeline.completed] == [time(0), time(2), time(4)]
    assert [i.requested_time for i in timeline.pending] == [time(6), time(8)]
    assert storage.listings == 2


def test_n_59_a_listing_that_missed_an_earlier_commit_is_completed_by_the_second() -> None:
    """The first listing passes a page, then a commit completes there, then a later one beyond."""

    class Torn(PagedStorage):
        def list_names(self, folder: str, after: str = "") -> list[str]:
            names = super().list_names(folder, after)
            missed = f"{time(0)}_{time(7)}.commit"
            return [name for name in names if name != missed] if self.listings == 1 else names

    storage = Torn(3, commit(8, 11))
    commit(0, 7)(storage)
    commit(2, 9)(storage)
    timeline = load_active(storage, "tl")
    assert [i.requested_time for i in timeline.completed] == [time(0), time(2)]
    assert [i.requested_time for i in timeline.pending] == [time(8)]


def test_n_68_what_is_archived_while_it_is_listed_is_not_taken_for_pending() -> None:
    """The second listing has the request of an instant, and is then overtaken by its archival."""

    class Overtaken(PagedStorage):
        def list_names(self, folder: str, after: str = "") -> list[str]:
            names = super().list_names(folder, after)
            gone = f"{time(0)}_{time(1)}.commit"
            return [name for name in names if name != gone] if self.listings == 2 else names

    storage = Overtaken(3)
    for number in (0, 2):
        commit(number, number + 1)(storage)
    storage.put(f"tl/{time(2)}.savepoint.inflight", b"")
    timeline = load_active(storage, "tl")
    assert [i.requested_time for i in timeline.instants] == [time(2)]
    assert timeline.pending == ()
    assert [point.requested_time for point in timeline.savepoints] == [time(2)]


def test_a_timeline_that_never_stands_still_is_listed_twice() -> None:
    storage = PagedStorage(3, *(commit(number, number + 1) for number in range(10, 80, 2)))
    for number in (0, 2, 4):
        commit(number, number + 1)(storage)
    assert len(load_active(storage, "tl").completed) == 3
    assert storage.listings == 2


def test_an_absent_folder_is_an_empty_timeline() -> None:
    assert load_active(MemoryStorage(), "tl") == Timeline([])
