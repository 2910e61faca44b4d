"""Archiving: what leaves the active timeline, what stays, and what readers find afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from tests.support.manual_clock import ManualClock
from tests.support.retained_answers import ask_all, check_unchanged, completion_times
from tests.support.tables import FAST, FENCED
from tests.support.tables import trips as rows

import headwater as hw
from headwater.config.archive import ArchiveConfig
from headwater.config.clean import CleanConfig
from headwater.config.table_options import TableType
from headwater.context import TableContext
from headwater.errors import ErrorKind, InvalidInputError
from headwater.kernel.layout import attempt_folder, cancel_path, heartbeat_path, marker_folder
from headwater.kernel.table_config import table_layout
from headwater.kernel.timeline.active import Timeline, instant_path, load_active
from headwater.kernel.timeline.history.read import HistoryTimeline
from headwater.kernel.timeline.history.write import archive_instants
from headwater.kernel.txn.locks.in_process import InProcessLockProvider, InProcessLocks
from headwater.model.instant import Action, Instant, InstantTime, State, instant_time_after
from headwater.seams.components import Components
from headwater.seams.ids import Owner, SystemIds
from headwater.seams.storage import Storage
from headwater.services.archive import Bounds, plan_archive, run_archive
from headwater.table import Table

Bench = Any  # In conftest.py, which cannot be imported.

QUICK_TO_DIE = {
    "hoodie.client.heartbeat.interval_in_ms": "1000",
    "hoodie.client.heartbeat.tolerable.misses": "2",
}
SHORT = {
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.metadata.compact.max.delta.commits": "1",
}
"""Instants stay active until a compaction of the metadata table has taken in what they told it."""
CONFIG = ArchiveConfig(commits_min=2, commits_max=3)

each_type = pytest.mark.parametrize("table_type", list(TableType))


@pytest.fixture
def make_table(make_table: Callable[..., Table]) -> Callable[..., Table]:
    """Return a function that makes a table with so many commits and a short active timeline."""

    def make(
        table_type: TableType = TableType.COPY_ON_WRITE, *, commits: int = 6, **options: str
    ) -> Table:
        return make_table(table_type, commits=commits, **{**SHORT, **options})

    return make


def folder(table: Table) -> str:
    return table_layout(table.config).timeline


def active(table: Table) -> Timeline:
    return load_active(table.storage, folder(table))


def archived(table: Table) -> list[InstantTime]:
    history = HistoryTimeline(table.storage, table_layout(table.config).history)
    return [instant.requested_time for instant in history.instants()]


# The policy ------------------------------------------------------------------------------------


def at(number: int) -> InstantTime:
    return InstantTime(f"{number:017d}")


def done(requested: int, completed: int | None = None, action: Action = Action.COMMIT) -> Instant:
    return Instant(at(requested), action, State.COMPLETED, at(completed or requested + 1))


def pending(requested: int, action: Action = Action.COMMIT) -> Instant:
    return Instant(at(requested), action, State.INFLIGHT)


COMMITS = [done(number) for number in range(10, 70, 10)]
"""Six commits, of which the policy of `CONFIG` archives four."""


def chosen(
    *instants: Instant,
    savepoints: tuple[Instant, ...] = (),
    bounds: Bounds | None = None,
    cancelled: tuple[InstantTime, ...] = (),
) -> list[int]:
    timeline = Timeline(sorted(instants), savepoints)
    found = plan_archive(timeline, bounds or Bounds(), cancelled, CONFIG)
    return [int(instant.requested_time) for instant in found]


def test_the_oldest_commits_go_until_the_minimum_is_left() -> None:
    assert chosen(*COMMITS) == [10, 20, 30, 40]


def test_up_to_the_maximum_nothing_goes() -> None:
    assert chosen(*COMMITS[:3]) == []
    assert chosen(*COMMITS[:4]) == [10, 20]


def test_other_actions_go_with_the_commits_around_them() -> None:
    clean, rollback = done(15, action=Action.CLEAN), done(25, action=Action.ROLLBACK)
    late = done(55, action=Action.CLEAN)
    assert chosen(*COMMITS, clean, rollback, late) == [10, 15, 20, 25, 30, 40]


def test_inv_37_archival_ends_before_a_pending_instant() -> None:
    assert chosen(*COMMITS, pending(25)) == [10]
    assert chosen(*COMMITS, pending(25, Action.COMPACTION)) == [10]


def test_n_190_the_last_commit_before_a_pending_instant_stays() -> None:
    """Other engines take what is older than the first commit of a timeline for completed."""
    assert chosen(*COMMITS, pending(25), done(22, action=Action.CLEAN)) == [10]
    assert chosen(*COMMITS, pending(55)) == [10, 20, 30, 40]
    assert chosen(*COMMITS, pending(5)) == []
    assert chosen(*COMMITS, pending(15), pending(35)) == []


def test_inv_37_what_completed_after_a_pending_instant_was_requested_stays() -> None:
    slow = done(15, 33)
    assert chosen(*COMMITS, slow, pending(32)) == [10]
    assert chosen(*COMMITS, slow, pending(34)) == [10, 15, 20]


def test_n_13_the_last_to_complete_stays_though_it_was_requested_first() -> None:
    assert chosen(*COMMITS, done(5, 99)) == []
    assert chosen(*COMMITS, done(15, 99)) == [10]
    assert chosen(*COMMITS, done(15, 99), pending(100)) == [10]


def test_inv_37_a_savepoint_and_what_completed_after_it_stay() -> None:
    savepoint = Instant(at(30), Action.SAVEPOINT, State.COMPLETED, at(66))
    assert chosen(*COMMITS, savepoints=(savepoint,)) == [10, 20]
    # A restore would have to take the slow one back.
    assert chosen(*COMMITS, done(15, 45), savepoints=(savepoint,)) == [10]


def test_inv_37_an_abort_that_is_not_finished_stays() -> None:
    aborted = Instant(at(25), Action.CLUSTERING, State.ABORTED)
    assert chosen(*COMMITS, aborted) == [10, 20, 25, 30, 40]
    assert chosen(*COMMITS, aborted, cancelled=(at(25),)) == [10, 20]


def test_what_cleaning_and_indexing_still_need_stays() -> None:
    assert chosen(*COMMITS, bounds=Bounds(earliest_retained=at(30))) == [10, 20]
    assert chosen(*COMMITS, bounds=Bounds(indexed_up_to=at(21))) == [10, 20]
    assert chosen(*COMMITS, bounds=Bounds(unfolded_since=at(31))) == [10, 20]
    assert chosen(*COMMITS, bounds=Bounds(staying=frozenset({at(40)}))) == [10, 20, 30]


# Tables ----------------------------------------------------------------------------------------


@each_type
@pytest.mark.some(1)
def test_no_answer_changes_and_the_timeline_stays_bounded(
    make_table: Callable[..., Table], table_type: TableType
) -> None:
    table = make_table(table_type)
    for number in range(20, 28):
        table.upsert(rows(("a", "sf", number)))
        table.services.clean()
        result = table.services.archive()
        assert set(archived(table)) >= {i.requested_time for i in result.archived}
        assert len(active(table).instants) <= 12
    table.upsert(rows(("a", "sf", 99)))
    times = completion_times(table)[-4:]
    before = ask_all(table, times)
    assert table.services.archive().archived
    assert check_unchanged(before, ask_all(table, times)) == set()


def test_hudi_rs_reads_the_same_rows_after_archival(make_table: Callable[..., Table]) -> None:
    hudi = pytest.importorskip("hudi", reason="hudi-rs is not installed")
    table = make_table(commits=8)
    table.services.clean()
    assert len(table.services.archive().archived) >= 5
    batches = hudi.HudiTableBuilder.from_base_uri(table.uri).build().read(None)
    theirs = pa.Table.from_batches(batches).select(["id", "value"]).to_pylist()
    ours = table.read_arrow(["id", "value"]).to_pylist()
    assert sorted(theirs, key=str) == sorted(ours, key=str)


def test_the_clean_that_bounds_time_travel_stays(make_table: Callable[..., Table]) -> None:
    table = make_table()
    times = completion_times(table)
    before = ask_all(table, times)
    saved = table.services.savepoint(active(table).completed[0].requested_time)
    (strict,) = table.services.clean()
    table.services.delete_savepoint(saved.instant)
    # The next clean retains more. It must not make anybody believe that older views are whole.
    options = {"hoodie.clean.commits.retained": "4", "hoodie.keep.min.commits": "5"}
    (lenient,) = hw.open_table(table.uri, {**FAST, **options}).services.clean()
    assert strict.earliest_retained is not None
    assert lenient.earliest_retained is not None
    assert lenient.earliest_retained < strict.earliest_retained
    for number in range(4):
        table.upsert(rows(("a", "sf", number)))
    archived_now = table.services.archive().archived
    assert len(archived_now) == 6
    assert active(table).find(strict.instant) is not None
    after = {**ask_all(table, times), "snapshot": before["snapshot"]}
    assert {f"as of {time}" for time in times[:5]} <= check_unchanged(before, after)


@pytest.mark.usefixtures("tables_with_a_lock")
def test_n_159_a_clean_that_two_engines_completed_is_one(make_table: Callable[..., Table]) -> None:
    table = make_table(commits=3)
    table.services.clean()
    (clean,) = (i for i in active(table).completed if i.action is Action.CLEAN)
    assert clean.completion_time is not None
    later = clean._replace(completion_time=instant_time_after(clean.completion_time, 2))
    said = table.storage.read(instant_path(folder(table), clean))
    table.storage.put(instant_path(folder(table), later), said)
    table = table.reload()
    assert active(table).find(clean.requested_time) == clean
    for number in range(6):
        table.upsert(rows((f"later {number}", "sf", number)))
        table.services.clean()
    table.services.archive()
    assert active(table).find(clean.requested_time) is None
    names = table.storage.list_names(folder(table))
    assert not [name for name in names if name.startswith(clean.requested_time)]
    assert table.inspect.problems(deep=True).num_rows == 0
    assert table.inspect.validate_metadata().num_rows == 0


def test_a_replace_stays_while_files_that_it_hides_are_there(
    make_table: Callable[..., Table],
) -> None:
    table = make_table(commits=2)
    replaced = table.overwrite(rows(("c", "sf", 1)))
    for number in range(6):
        table.upsert(rows(("c", "sf", number)))
    before = table.read_arrow().to_pylist()
    table.services.archive()
    assert active(table).find(InstantTime(replaced.instant)) is not None
    assert table.read_arrow().to_pylist() == before
    table.services.clean()
    table.services.archive()
    assert replaced.instant in archived(table)
    assert table.read_arrow().to_pylist() == before


def test_files_of_a_rolled_back_write_go_before_its_rollback_is_archived(bench: Bench) -> None:
    time = bench.fail_write()
    files = {p: d for p, d in bench.files().items() if time in p and p.endswith(".parquet")}
    assert files
    (done_,) = bench.table.services.rollback_failed_writes()
    for path, data in files.items():
        bench.table.storage.put(path, data)  # A task of the dead write that came late.
    for number in range(6):
        bench.table.upsert(rows(("a", "sf", number)))
    table = hw.open_table(bench.table.uri, {**FAST, **SHORT})
    result = table.services.archive()
    assert set(result.deleted_orphans) == set(files)
    assert done_.rollback in archived(table)
    assert not files.keys() & bench.files().keys()


@pytest.mark.usefixtures("tables_with_a_lock")
def test_inv_38_an_aborted_instant_leaves_nothing_behind(make_table: Callable[..., Table]) -> None:
    table = make_table(commits=0)
    storage = table.storage
    table.upsert(rows(("a", "sf", 0)))
    time = InstantTime(str(int(completion_times(table)[0]) + 1))
    storage.put(f"{folder(table)}/{time}.clustering.aborted", b"{}")
    storage.put(f"{marker_folder(time)}/city=sf/x.parquet.marker.CREATE", b"")
    storage.put(heartbeat_path(time), b"")
    storage.put(f"{attempt_folder(time)}/00001.json", b"")
    storage.put(cancel_path(time), b"{}")
    for number in range(6):
        table.upsert(rows(("a", "sf", number)))
    table.services.archive()
    assert active(table).find(time) is not None, "its abort is not finished"
    storage.delete(cancel_path(time))
    table.services.archive()
    assert not [info.path for info in storage.list_tree("") if time in info.path]


@pytest.mark.usefixtures("tables_with_a_lock")
def test_inv_37_an_entry_in_cancel_is_refused_whatever_the_policy(
    make_table: Callable[..., Table],
) -> None:
    table = make_table(commits=1)
    time = InstantTime(str(int(completion_times(table)[0]) + 1))
    table.storage.put(f"{folder(table)}/{time}.clustering.aborted", b"{}")
    table.storage.put(cancel_path(time), b"{}")
    table.upsert(rows(("a", "sf", 1)))
    aborted = active(table).get(time)
    with pytest.raises(InvalidInputError, match="has an entry in") as error:
        archive_instants(table.storage, table_layout(table.config), [aborted])
    assert error.value.kind is ErrorKind.INVALID_STATE


# Many processes, and dead ones -----------------------------------------------------------------


LOCKS = InProcessLocks()


def as_process(table: Table, name: str, storage: Storage | None = None) -> TableContext:
    clock = ManualClock(table.context.clock.now_ms())
    ids = SystemIds(Owner(name, 1, name))
    provider = InProcessLockProvider(LOCKS, clock, ids, table=table.uri)
    components = Components(storage or table.storage, clock, ids, provider)
    return TableContext.through(components, table.config, QUICK_TO_DIE)


@pytest.mark.parametrize("options", [{}, FENCED], ids=["lock", "fenced"])
def test_inv_35_the_next_archival_finishes_what_a_dead_one_began(
    options: dict[str, str],
    make_table: Callable[..., Table],
    dying: Callable[..., Any],
    killed: type[BaseException],
    copies: Callable[[Table], Iterator[Table]],
) -> None:
    original = make_table(commits=4, **options)
    times = completion_times(original)
    before = ask_all(original, times[-2:])
    instants = {i.requested_time for i in active(original).instants}
    clean = CleanConfig(commits_retained=1)
    for writes, table in zip(count(), copies(original), strict=False):
        has_died = False
        try:
            run_archive(as_process(table, "R", dying(table.storage, writes)), CONFIG, clean)
        except killed:
            has_died = True
        shown = {i.requested_time for i in active(table).instants}
        assert instants <= shown | set(archived(table))
        assert active(table).pending == ()
        if has_died:
            run_archive(as_process(table, "S"), ArchiveConfig(commits_min=2, commits_max=2), clean)
        assert check_unchanged(before, ask_all(table, times[-2:])) == set()
        if not has_died:
            assert writes > 6
            return


def test_many_archivals_at_once_do_the_work_of_one(make_table: Callable[..., Table]) -> None:
    table = make_table(commits=7)
    before = ask_all(table, completion_times(table))
    instants = {i.requested_time for i in active(table).instants}
    tables = [hw.open_table(table.uri, {**FAST, **SHORT}) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda one: one.services.archive(), tables))
    left = {i.requested_time for i in active(table).instants}
    assert len(left) == 2
    assert set(archived(table)) == instants - left
    assert check_unchanged(before, ask_all(table, completion_times(table))) == set()
