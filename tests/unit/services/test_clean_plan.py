"""The planner of a clean against readers, over histories of many file groups and late commits.

Tables are in memory and hold no rows: which files a view consists of is all that matters here.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.bare_table import LAYOUT, BareTable, at

from headwater.config.clean import CleanConfig, CleanPolicy
from headwater.kernel.timeline.active import load_active
from headwater.kernel.timeline.history.write import archive_instants
from headwater.metadata.view import load_view
from headwater.model.files import BaseFile, DataFile, FileGroupId, LogFile
from headwater.model.instant import Action
from headwater.services.clean import run_clean

pytestmark = pytest.mark.usefixtures("tables_with_a_lock")


@dataclass(frozen=True)
class Write:
    """An instant of a history; numbers are minutes."""

    requested: int
    completed: int | None
    kind: str
    """base, log, replace."""
    groups: tuple[int, ...]


@st.composite
def histories(draw: st.DrawFn) -> list[Write]:
    """Draw a history that the conflict check allows.

    Writers of base files of a group come one after the other, by both times (INV-61, N-12). Logs
    may come and go as they like.
    """
    order = draw(st.permutations(range(2 * (count := draw(st.integers(3, 14))))))
    pairs = sorted(
        (min(order[2 * i : 2 * i + 2]), max(order[2 * i : 2 * i + 2])) for i in range(count)
    )
    newest: dict[int, tuple[int, int]] = {}
    gone: set[int] = set()
    writes = []
    for requested, completed in pairs:
        kind = draw(st.sampled_from(["base", "base", "base", "log", "replace"]))
        groups = tuple(sorted(draw(st.sets(st.integers(0, 2), min_size=1, max_size=2))))
        if any(g in gone or newest.get(g, (-1, -1)) >= (requested, 0) for g in groups):
            continue
        if any(newest[g][1] > completed for g in groups if g in newest):
            continue
        if kind != "log":
            for group in groups:
                newest[group] = (requested, completed)
        if kind == "replace":
            gone.update(groups)
        writes.append(Write(requested, completed, kind, groups))
    return writes


def build(history: list[Write], pending: set[int]) -> BareTable:
    table = BareTable()
    for number, write in enumerate(history):
        completed = None if number in pending else write.completed
        ids = [FileGroupId("", f"g{group}-0") for group in write.groups]
        if write.kind == "log":
            files: list[DataFile] = [
                LogFile(*group, at(write.requested), 1, "0-0-0") for group in ids
            ]
            table.commit(write.requested, completed, files, action=Action.DELTA_COMMIT)
        elif write.kind == "base":
            files = [BaseFile(*group, "0-0-0", at(write.requested)) for group in ids]
            table.commit(write.requested, completed, files, action=Action.COMMIT)
        else:
            new = BaseFile("", f"r{number}-0", "0-0-0", at(write.requested))
            table.commit(
                write.requested, completed, [new], action=Action.REPLACE_COMMIT, replaced=ids
            )
    return table


CONFIGS = st.one_of(
    st.builds(CleanConfig, commits_retained=st.integers(1, 6)),
    st.builds(
        CleanConfig,
        policy=st.just(CleanPolicy.KEEP_LATEST_FILE_VERSIONS),
        file_versions_retained=st.integers(1, 3),
    ),
)


@given(histories(), st.data(), st.lists(CONFIGS, min_size=1, max_size=3))
def test_inv_33_and_inv_52_over_any_history(
    history: list[Write], data: st.DataObject, configs: list[CleanConfig]
) -> None:
    last = len(history) - 1
    pending = set(data.draw(st.sets(st.integers(0, last), max_size=1))) if history else set()
    table = build(history, pending)
    times = [w.completed for i, w in enumerate(history) if i not in pending and w.completed]
    if not times:
        return
    times.sort()
    begun = [history[index].requested for index in pending]
    before, newest = table.views(times), table.newest()
    as_of_pending = [max((t for t in times if t < begin), default=None) for begin in begun]
    for number, config in enumerate(configs):
        retained = times[-config.commits_retained :]
        cleaned = run_clean(table.target(), config)
        after = table.views(times)
        assert table.newest() == newest
        for time in times:
            assert after[time] in (before[time], None), f"view as of {time}"
        if config.policy is CleanPolicy.KEEP_LATEST_COMMITS and number == 0:
            assert all(after[time] is not None for time in retained)
        for seen in as_of_pending:
            files = before[seen] if seen is not None else None
            assert files is None or files <= table.data_files()
        for one in cleaned:
            assert not set(one.deleted_paths) & table.data_files()


@given(histories(), st.integers(0, 30))
def test_what_is_needed_is_what_any_view_since_then_shows(history: list[Write], since: int) -> None:
    table = build(history, set())
    times = [at(since), *(at(time) for time in range(since, 31))]
    for group in load_view(table.storage, table.config).histories():
        views = (group.latest_as_of(time) for time in times)
        shown = {file.path for view in views if view is not None for file in view.files()}
        assert group.paths_needed(at(since)) == shown


def test_late_completion_of_an_early_request_is_counted_as_recent() -> None:
    """The slow commit completed last, so the view before it is among those retained."""
    table = BareTable()
    group = FileGroupId("", "g0-0")
    other = FileGroupId("", "g1-0")
    table.commit(0, 1, [BaseFile(*group, "0-0-0", at(0))], action=Action.COMMIT)
    table.commit(2, 20, [BaseFile(*group, "0-0-0", at(2))], action=Action.COMMIT)  # Slow.
    for number in (3, 6, 9):
        table.commit(
            number, number + 1, [BaseFile(*other, "0-0-0", at(number))], action=Action.COMMIT
        )
    before = table.views([1, 4, 7, 10, 20])
    run_clean(table.target(), CleanConfig(commits_retained=2))
    after = table.views([1, 4, 7, 10, 20])
    assert after[10] == before[10]
    assert after[20] == before[20]
    # By requested times the slow one would be old, and what it superseded at 20 gone already.
    assert BaseFile(*group, "0-0-0", at(0)).path in table.data_files()


def test_what_archived_commits_wrote_is_cleaned_like_the_rest() -> None:
    table = BareTable()
    group = FileGroupId("", "g0-0")
    for number in range(0, 20, 2):
        table.commit(
            number, number + 1, [BaseFile(*group, "0-0-0", at(number))], action=Action.COMMIT
        )
    timeline = load_active(table.storage, LAYOUT.timeline)
    archive_instants(table.storage, LAYOUT, timeline.completed[:6])
    run_clean(table.target(), CleanConfig(commits_retained=2))
    assert table.data_files() == {
        BaseFile(*group, "0-0-0", at(number)).path for number in (14, 16, 18)
    }
    views = table.views(list(range(1, 20, 2)))
    assert [time for time, files in views.items() if files is not None] == [17, 19]


@pytest.mark.parametrize("policy", list(CleanPolicy))
def test_inv_33_what_a_pending_write_has_read_stays(policy: CleanPolicy) -> None:
    table = BareTable()
    group, other = FileGroupId("", "g0-0"), FileGroupId("", "g1-0")
    table.commit(0, 1, [BaseFile(*group, "0-0-0", at(0))], action=Action.COMMIT)
    table.commit(2, 3, [BaseFile(*group, "0-0-0", at(2))], action=Action.COMMIT)
    table.commit(4, None, [BaseFile(*other, "0-0-0", at(4))], action=Action.COMMIT)
    for number in (6, 8, 10, 12):
        table.commit(
            number, number + 1, [BaseFile(*group, "0-0-0", at(number))], action=Action.COMMIT
        )
    before = table.views([3])[3]
    assert before is not None
    config = CleanConfig(
        policy=policy, commits_retained=1, file_versions_retained=1, hours_retained=24
    )
    run_clean(table.target(), config)
    assert before <= table.data_files()


def test_an_unfinished_savepoint_is_respected() -> None:
    table = BareTable()
    group = FileGroupId("", "g0-0")
    for number in range(0, 10, 2):
        table.commit(
            number, number + 1, [BaseFile(*group, "0-0-0", at(number))], action=Action.COMMIT
        )
    table.storage.put(f"{LAYOUT.timeline}/{at(2)}.savepoint.inflight", b"")
    run_clean(table.target(), CleanConfig(commits_retained=1))
    kept = {BaseFile(*group, "0-0-0", at(number)).path for number in (2, 6, 8)}
    assert table.data_files() == kept
