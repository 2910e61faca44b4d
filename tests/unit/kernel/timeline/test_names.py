"""Names of timeline files: format rule 2.2, in both directions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import CorruptTableError, ErrorKind, InternalError
from headwater.kernel.timeline.names import TimelineFile, file_name, parse_file_name
from headwater.model.instant import Action, InstantTime, State

T = InstantTime("20240102030405006")
C = InstantTime("20240102030405999")

# Format rule 2.2, row by row: what a pending file of the action says, and the file it ends in.
TABLE = [
    (Action.COMMIT, f"{T}.commit.requested", f"{T}.inflight", f"{T}_{C}.commit"),
    (
        Action.DELTA_COMMIT,
        f"{T}.deltacommit.requested",
        f"{T}.deltacommit.inflight",
        f"{T}_{C}.deltacommit",
    ),
    (
        Action.COMPACTION,
        f"{T}.compaction.requested",
        f"{T}.compaction.inflight",
        f"{T}_{C}.commit",
    ),
    (
        Action.LOG_COMPACTION,
        f"{T}.logcompaction.requested",
        f"{T}.logcompaction.inflight",
        f"{T}_{C}.deltacommit",
    ),
    (
        Action.CLUSTERING,
        f"{T}.clustering.requested",
        f"{T}.clustering.inflight",
        f"{T}_{C}.replacecommit",
    ),
    (
        Action.REPLACE_COMMIT,
        f"{T}.replacecommit.requested",
        f"{T}.replacecommit.inflight",
        f"{T}_{C}.replacecommit",
    ),
    (Action.CLEAN, f"{T}.clean.requested", f"{T}.clean.inflight", f"{T}_{C}.clean"),
    (Action.ROLLBACK, f"{T}.rollback.requested", f"{T}.rollback.inflight", f"{T}_{C}.rollback"),
    (Action.RESTORE, f"{T}.restore.requested", f"{T}.restore.inflight", f"{T}_{C}.restore"),
    (Action.SAVEPOINT, None, f"{T}.savepoint.inflight", f"{T}_{C}.savepoint"),
    (Action.INDEXING, f"{T}.indexing.requested", f"{T}.indexing.inflight", f"{T}_{C}.indexing"),
]


def test_the_table_lists_every_action() -> None:
    assert {row[0] for row in TABLE} == set(Action)


@pytest.mark.parametrize(("action", "requested", "inflight", "completed"), TABLE)
def test_file_names_of_format_rule_2_2(
    action: Action, requested: str | None, inflight: str, completed: str
) -> None:
    if requested is not None:
        assert file_name(T, action, State.REQUESTED) == requested
        assert parse_file_name(requested) == TimelineFile(T, action, State.REQUESTED)
    assert file_name(T, action, State.INFLIGHT) == inflight
    assert parse_file_name(inflight) == TimelineFile(T, action, State.INFLIGHT)
    assert file_name(T, action, State.COMPLETED, C) == completed
    # The name of a completed file no longer tells a compaction from a commit.
    assert parse_file_name(completed) == TimelineFile(T, action.completed_name, State.COMPLETED, C)


def test_only_a_clustering_is_ever_aborted() -> None:
    name = f"{T}.clustering.aborted"
    assert file_name(T, Action.CLUSTERING, State.ABORTED) == name
    assert parse_file_name(name) == TimelineFile(T, Action.CLUSTERING, State.ABORTED)
    assert parse_file_name(f"{T}.compaction.aborted") is None
    with pytest.raises(InternalError, match="No compaction is ever aborted"):
        file_name(T, Action.COMPACTION, State.ABORTED)


def test_a_savepoint_is_never_requested() -> None:
    assert parse_file_name(f"{T}.savepoint.requested") is None
    with pytest.raises(InternalError, match="No savepoint is ever requested"):
        file_name(T, Action.SAVEPOINT, State.REQUESTED)


def test_a_completion_time_goes_with_completed_files_and_no_others() -> None:
    with pytest.raises(InternalError, match="needs a completion time"):
        file_name(T, Action.COMMIT, State.COMPLETED)
    with pytest.raises(InternalError, match="Only a completed file"):
        file_name(T, Action.COMMIT, State.INFLIGHT, C)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "history",
        T,
        f"{T}.commit",  # Layout 1 completed a commit so.
        f"{T}_{C}",
        f"{T}_{C}.compaction",  # A compaction completes as a commit.
        f"{T}_{C}.commit.requested",
        f"{T}_{C}.commit.crc",
        f".{T}_{C}.commit.crc",
        f"{T}.commit.inflight",
        f"{T}.commit.requested.tmp",
        f"{T}.COMMIT.REQUESTED",
        "hoodie.properties",
    ],
)
def test_other_names_belong_to_somebody_else(name: str) -> None:
    assert parse_file_name(name) is None


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("2024010203040500.commit.requested", "2024010203040500"),
        ("20240102030405006x.inflight", "20240102030405006x"),
        (f"latest_{C}.commit", "latest"),
        (f"{T}_.commit", ""),
        (f"{T}_20240102.deltacommit", "20240102"),
        (f"{T}_{C}_{C}.commit", f"{C}_{C}"),
        ("٢٠٢٤٠١٠٢٠٣٠٤٠٥٠٠٦.commit.requested", "٢٠٢٤٠١٠٢٠٣٠٤٠٥٠٠٦"),
    ],
)
def test_a_timeline_suffix_behind_no_instant_time_is_corrupt(name: str, bad: str) -> None:
    with pytest.raises(CorruptTableError) as raised:
        parse_file_name(name, folder="tl")
    assert raised.value.kind is ErrorKind.CORRUPT_TIMELINE
    assert raised.value.context["path"] == f"tl/{name}"
    assert repr(bad) in raised.value.message


def test_legacy_times_without_milliseconds_are_read() -> None:
    legacy = InstantTime("20190102030405")
    assert parse_file_name(f"{legacy}.clean.inflight") == TimelineFile(
        legacy, Action.CLEAN, State.INFLIGHT
    )
    assert parse_file_name(f"{legacy}_{C}.clean") == TimelineFile(
        legacy, Action.CLEAN, State.COMPLETED, C
    )


times = st.from_regex(r"[0-9]{14}([0-9]{3})?", fullmatch=True).map(
    lambda digits: InstantTime("".join(str(int(digit)) for digit in digits))
)


def is_possible(action: Action, state: State) -> bool:
    if state is State.ABORTED:
        return action is Action.CLUSTERING
    return not (state is State.REQUESTED and action is Action.SAVEPOINT)


@settings(deadline=None)
@given(times, times, st.sampled_from(Action), st.sampled_from(State))
def test_parsing_undoes_naming(
    time: InstantTime, completion: InstantTime, action: Action, state: State
) -> None:
    if not is_possible(action, state):
        with pytest.raises(InternalError):
            file_name(time, action, state)
        return
    if state is State.COMPLETED:
        parsed = parse_file_name(file_name(time, action, state, completion))
        assert parsed == TimelineFile(time, action.completed_name, state, completion)
    else:
        parsed = parse_file_name(file_name(time, action, state))
        assert parsed == TimelineFile(time, action, state)


PIECES = [T, C, "20190102030405", "2024", "", ".", "_", *Action, *State, "crc", "٢٠٢٤"]


@settings(deadline=None, max_examples=500)
@given(st.lists(st.sampled_from(PIECES), max_size=7).map("".join))
def test_naming_undoes_parsing(name: str) -> None:
    parsed = parse_or_none(name)
    if parsed is not None:
        assert file_name(*parsed) == name


def parse_or_none(name: str) -> TimelineFile | None:
    try:
        return parse_file_name(name)
    except CorruptTableError:
        return None
