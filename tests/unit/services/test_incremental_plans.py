"""Plans that look at what has changed, against the same planners that look at everything.

Cleans and compactions rely on what earlier ones said of the partitions that they did not have to
look at. So every history here goes through many of them, with what might make such a word untrue in
between: pending plans that complete or are cancelled, writes that complete late or are rolled back,
commits that are taken back, savepoints that come and go, other retentions, archived commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.bare_table import LAYOUT, STEP_MS, STEPS_BEFORE_CLOCK, BareTable, at
from tests.support.counting_storage import CountingStorage

from headwater.config.clean import CleanConfig, CleanPolicy
from headwater.config.compaction import CompactionConfig
from headwater.config.table_options import TableType
from headwater.errors import CorruptTableError
from headwater.format.timeline.records import encode_record
from headwater.kernel.timeline.active import Timeline, instant_path, load_active
from headwater.kernel.timeline.history.write import archive_instants
from headwater.kernel.view.retention import completed_commits
from headwater.kernel.view.table_view import TableView
from headwater.metadata.view import load_view
from headwater.model.files import BaseFile, DataFile, FileGroupId, LogFile
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.plans import CleanerPlan, CompactionPlan
from headwater.model.service_metadata import CleanMetadata, RestoreMetadata
from headwater.seams.storage import Storage
from headwater.services import clean, logged_slices
from headwater.services.clean import listed_files, plan_next_clean, run_clean
from headwater.services.compaction import plan_next_compaction
from headwater.services.logged_slices import load_logged_slices
from headwater.services.settled import Settled

PARTITIONS = ("a", "b", "c")
GROUPS = tuple(FileGroupId(partition, f"{n}-0") for partition in PARTITIONS for n in "xy")

CLEANS = st.one_of(
    st.builds(CleanConfig, commits_retained=st.integers(1, 4)),
    st.builds(
        CleanConfig,
        policy=st.just(CleanPolicy.KEEP_LATEST_FILE_VERSIONS),
        file_versions_retained=st.integers(1, 3),
    ),
)
COMPACTIONS = st.builds(CompactionConfig, log_files_min=st.integers(0, 2))


@dataclass(frozen=True)
class Pending:
    """An instant that has begun, and what it will have done."""

    minute: int
    action: Action
    files: list[DataFile] = field(default_factory=list)
    replaced: list[FileGroupId] = field(default_factory=list)

    @property
    def groups(self) -> set[FileGroupId]:
        return {*(file.group for file in self.files), *self.replaced}


@dataclass
class World:
    """A table to which one thing after the other happens, each at a minute of its own."""

    table: BareTable = field(default_factory=BareTable)
    minute: int = STEPS_BEFORE_CLOCK
    pending: list[Pending] = field(default_factory=list)
    replaced_at: dict[FileGroupId, InstantTime] = field(default_factory=dict)

    def next_minute(self) -> int:
        self.minute += 1
        self.table.clock.advance_ms(STEP_MS)
        return self.minute

    def timeline(self) -> Timeline:
        return load_active(self.table.storage, LAYOUT.timeline)

    def view(self) -> TableView:
        return load_view(self.table.storage, self.table.config)

    def free(self, *, of_logs: bool) -> list[FileGroupId]:
        """Return the groups that a write may go to; one of base files has a group to itself."""
        taken = {
            group
            for one in self.pending
            if not of_logs or one.action is Action.REPLACE_COMMIT
            for group in one.groups
        }
        return [group for group in GROUPS if group not in taken and group not in self.replaced_at]

    def begin(self, kind: str, groups: list[FileGroupId]) -> None:
        minute = self.next_minute()
        if kind == "log":
            one = Pending(
                minute,
                Action.DELTA_COMMIT,
                [LogFile(*group, at(minute), 1, "0-0-0") for group in groups],
            )
        elif kind == "base":
            files: list[DataFile] = [BaseFile(*group, "0-0-0", at(minute)) for group in groups]
            one = Pending(minute, Action.COMMIT, files)
        else:
            new = BaseFile(groups[0].partition, f"r{minute}-0", "0-0-0", at(minute))
            one = Pending(minute, Action.REPLACE_COMMIT, [new], groups)
        self.table.commit(minute, None, one.files, action=one.action)
        self.pending.append(one)

    def write(self, kind: str, *groups: FileGroupId) -> Pending:
        """Begin a write and complete it."""
        self.begin(kind, list(groups))
        one = self.pending[-1]
        self.complete(one)
        return one

    def complete(self, one: Pending) -> None:
        self.pending.remove(one)
        self.table.commit(
            one.minute,
            self.next_minute(),
            one.files,
            action=one.action,
            replaced=one.replaced,
            operation="COMPACT" if one.action is Action.COMPACTION else "UPSERT",
        )
        self.replaced_at |= dict.fromkeys(one.replaced, at(one.minute))

    def roll_back(self, one: Pending) -> None:
        self.pending.remove(one)
        self._forget(at(one.minute))

    def take_back_last(self) -> None:
        """Take back the last commit to complete, if what it superseded is still there."""
        timeline = self.timeline()
        last = completed_commits(timeline)[-1].requested_time
        if last in (point.requested_time for point in timeline.savepoints):
            return
        taken = {p: self.table.storage.read(p) for p in self.table.paths() if last in p}
        for path in taken:
            self.table.storage.delete(path)
        try:
            self.table.newest()
        except CorruptTableError:  # The product refuses it.
            for path, data in taken.items():
                self.table.storage.put(path, data)
            return
        self.replaced_at = {g: t for g, t in self.replaced_at.items() if t != last}

    def _forget(self, time: InstantTime) -> None:
        for path in self.table.paths():
            if time in path:
                self.table.storage.delete(path)

    def savepoint(self, time: InstantTime) -> None:
        """Leave a savepoint unfinished; it protects like any other."""
        self.table.storage.put(f"{LAYOUT.timeline}/{time}.savepoint.inflight", b"")

    def drop_savepoint(self, time: InstantTime) -> None:
        self.table.storage.delete(f"{LAYOUT.timeline}/{time}.savepoint.inflight")

    def clean(self, config: CleanConfig) -> None:
        """Compare what both planners would delete, and delete it."""
        self.next_minute()
        target, view = self.table.target(), self.view()
        found = plan_next_clean(target, config, view)
        with everywhere():
            expected = plan_next_clean(target, config, self.view())
        assert _deleted(found) == _deleted(expected)
        run_clean(target, config)

    def plan_compaction(self, config: CompactionConfig) -> None:
        """Compare what both planners would compact, and request it."""
        view = self.view()
        found = plan_next_compaction(view, config)
        logged = load_logged_slices(view).slices
        with everywhere():
            expected = plan_next_compaction(self.view(), config)
            assert logged == load_logged_slices(self.view()).slices
        assert (found and found.operations) == (expected and expected.operations)
        if found is None:
            return
        groups = [
            FileGroupId(o.partition_path or "", o.file_id or "") for o in found.operations or ()
        ]
        if any(
            group in one.groups
            for one in self.pending
            if one.action is not Action.DELTA_COMMIT
            for group in groups
        ):
            return  # The conflict check of one of them would not let both complete.
        self.request(found)

    def request(self, plan: CompactionPlan | None) -> None:
        """Request a compaction, which may be completed or rolled back later."""
        assert plan is not None
        minute = self.next_minute()
        instant = Instant(at(minute), Action.COMPACTION, State.REQUESTED)
        self.table.storage.put(instant_path(LAYOUT.timeline, instant), encode_record(plan))
        files: list[DataFile] = [BaseFile(*g, "0-0-0", at(minute)) for g in _planned(plan)]
        self.pending.append(Pending(minute, Action.COMPACTION, files))

    def archive(self, count: int) -> None:
        """Archive what is oldest, up to the first instant that the product would keep."""
        timeline = self.timeline()
        cleans = [i for i in timeline.completed if i.action is Action.CLEAN]
        kept = {point.requested_time for point in timeline.savepoints}
        kept |= {i.requested_time for i in (*cleans[-1:], *timeline.completed[-1:])}
        chosen = []
        for instant in timeline.instants[:count]:
            is_kept = instant.requested_time in kept or instant.is_pending
            if is_kept or instant.action is Action.REPLACE_COMMIT:
                break
            chosen.append(instant)
        archive_instants(self.table.storage, LAYOUT, chosen)

    def note(self, name: str, record: CleanMetadata | RestoreMetadata) -> None:
        """Let another engine have done something."""
        requested = self.next_minute()
        path = f"{LAYOUT.timeline}/{at(requested)}_{at(self.next_minute())}.{name}"
        self.table.storage.put(path, encode_record(record))


def _planned(plan: CompactionPlan | None) -> list[FileGroupId]:
    operations = () if plan is None else plan.operations or ()
    return [FileGroupId(one.partition_path or "", one.file_id or "") for one in operations]


def _deleted(plan: CleanerPlan | None) -> set[str]:
    return set() if plan is None else {file.path for file in listed_files(plan, path="")}


@contextmanager
def everywhere() -> Iterator[None]:
    """Let planners look at the whole table, as they do where nobody tells."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clean, "load_settled", lambda *_: None)
        patch.setattr(logged_slices, "_load_logs_after", lambda _: None)
        yield


STEPS = (
    *("log", "log", "log", "base", "base", "replace", "complete", "complete", "roll back"),
    *("take back", "savepoint", "drop savepoint", "clean", "clean", "compact", "archive"),
)


def step(world: World, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
    """Let one thing happen, if it can."""
    kind = draw(st.sampled_from(STEPS))
    if kind in ("log", "base", "replace"):
        free = world.free(of_logs=kind == "log")
        if free:
            world.begin(
                kind, draw(st.lists(st.sampled_from(free), min_size=1, max_size=2, unique=True))
            )
            if draw(st.integers(0, 3)):
                world.complete(world.pending[-1])
    elif kind in ("complete", "roll back") and world.pending:
        one = draw(st.sampled_from(world.pending))
        world.complete(one) if kind == "complete" else world.roll_back(one)
    elif kind == "clean":
        world.clean(draw(CLEANS))
    elif kind == "compact":
        world.plan_compaction(draw(COMPACTIONS))
    elif kind == "archive":
        world.archive(draw(st.integers(1, 6)))
    elif commits := completed_commits(world.timeline()):
        points = [point.requested_time for point in world.timeline().savepoints]
        if kind == "take back":
            world.take_back_last()
        elif kind == "savepoint":
            world.savepoint(commits[-1].requested_time)
        elif kind == "drop savepoint" and points:
            world.drop_savepoint(draw(st.sampled_from(points)))


@given(st.data())
@pytest.mark.usefixtures("tables_with_a_lock")
def test_nothing_is_missed_over_any_history(data: st.DataObject) -> None:
    world = World()
    for _ in range(data.draw(st.integers(5, 40))):
        step(world, data.draw)
    world.clean(data.draw(CLEANS))
    world.plan_compaction(data.draw(COMPACTIONS))


# Each of what the property has to find, on its own. ---------------------------------------------

AX, AY, BX, BY, CX, _ = GROUPS
RESTORED = RestoreMetadata(
    start_restore_time=at(0),
    time_taken_in_millis=1,
    instants_to_rollback=(),
    hoodie_restore_metadata={},
)
KEEP_ONE = CleanConfig(commits_retained=1)


def superseded(world: World, group: FileGroupId, times: int = 2) -> str:
    """Write base files of a group, one after the other; return the path of the first."""
    first = world.write("base", group).files[0].path
    for _ in range(times - 1):
        world.write("base", group)
    return first


def clean_until(earliest: InstantTime) -> CleanMetadata:
    """Return the record of a clean of another engine, which found nothing."""
    return CleanMetadata(
        start_clean_time=earliest,
        time_taken_in_millis=1,
        total_files_deleted=0,
        earliest_commit_to_retain=earliest,
        partition_metadata={},
    )


def cleaned(world: World, config: CleanConfig = KEEP_ONE) -> set[str]:
    """Clean, with both planners of one mind, and return what went."""
    before = world.table.data_files()
    world.clean(config)
    return before - world.table.data_files()


def folders_listed(world: World, plan: Callable[[Storage], object]) -> set[str]:
    """Return the partitions that storage was asked for."""
    storage = CountingStorage(world.table.storage, keep_trace=True)
    plan(storage)
    paths = {path for method, path in storage.trace if method.startswith("list")}
    return {partition for partition in PARTITIONS if partition in paths or "" in paths}


def folders_of_clean(world: World) -> set[str]:
    target = world.table.target()

    def plan(storage: Storage) -> object:
        return plan_next_clean(target, KEEP_ONE, load_view(storage, world.table.config))

    return folders_listed(world, plan)


def folders_of_compaction(world: World) -> set[str]:
    def plan(storage: Storage) -> object:
        return plan_next_compaction(load_view(storage, world.table.config), CompactionConfig())

    return folders_listed(world, plan)


@pytest.fixture
def settled() -> World:
    """A table whose last clean looked everywhere and left nothing to do; its floor is in `c`."""
    world = World()
    gone = {superseded(world, AX), superseded(world, BX)}
    world.write("base", CX)
    world.write("base", CX)
    assert cleaned(world) >= gone
    return world


@pytest.mark.usefixtures("tables_with_a_lock")
def test_a_clean_looks_at_the_partitions_that_have_changed_since(settled: World) -> None:
    assert folders_of_clean(World()) == set()
    settled.write("base", BX)
    settled.write("base", CX)
    assert folders_of_clean(settled) == {"b", "c"}
    settled.write("replace", AX)
    assert folders_of_clean(settled) == {"a", "b", "c"}


@pytest.mark.usefixtures("tables_with_a_lock")
def test_groups_that_were_replaced_by_nothing_are_cleaned(settled: World) -> None:
    """As a dropped partition is: no file is written to it."""
    settled.next_minute()
    one = Pending(settled.minute, Action.REPLACE_COMMIT, [], [AX])
    settled.pending.append(one)
    settled.complete(one)
    settled.write("base", BX)
    assert any(path.startswith("a/") for path in cleaned(settled))


@pytest.mark.usefixtures("tables_with_a_lock")
def test_what_a_plan_was_spared_goes_after_the_plan_was_cancelled() -> None:
    world = World()
    base = world.write("base", AX).files[0].path
    log = world.write("log", AX).files[0].path
    world.plan_compaction(CompactionConfig())
    (plan,) = world.pending
    # Another writer replaces the group all the same, and the clean has other things to do.
    new = BaseFile("a", "new-0", "0-0-0", at(world.next_minute()))
    world.table.commit(
        world.minute, world.next_minute(), [new], action=Action.REPLACE_COMMIT, replaced=[AX]
    )
    superseded(world, BX, times=3)
    assert not {base, log} & cleaned(world)
    world.roll_back(plan)
    superseded(world, CX, times=2)
    assert cleaned(world) >= {base, log}


@pytest.mark.usefixtures("tables_with_a_lock")
def test_what_a_pending_write_was_spared_goes_after_it_has_ended() -> None:
    world = World()
    first = world.write("base", AX).files[0].path
    world.begin("log", [BY])
    world.write("base", AX)
    superseded(world, BX, times=3)
    world.clean(KEEP_ONE)
    assert first in world.table.data_files()
    world.complete(world.pending[0])
    world.write("base", BX)
    world.write("base", BX)
    assert first in cleaned(world)


@pytest.mark.usefixtures("tables_with_a_lock")
def test_what_a_savepoint_was_spared_goes_after_it_was_dropped() -> None:
    world = World()
    first = world.write("base", AX)
    point = completed_commits(world.timeline())[-1].requested_time
    world.savepoint(point)
    world.write("base", AX)
    superseded(world, BX, times=3)
    assert first.files[0].path not in cleaned(world)
    world.write("base", BX)
    assert folders_of_clean(world) == {"b"}  # As long as it is there, nothing changes.
    world.drop_savepoint(point)
    assert first.files[0].path in cleaned(world)


@pytest.mark.usefixtures("tables_with_a_lock")
def test_fewer_versions_are_kept_everywhere() -> None:
    world = World()
    paths = [world.write("base", AX).files[0].path for _ in range(4)]
    superseded(world, BX, times=4)
    versions = CleanConfig(policy=CleanPolicy.KEEP_LATEST_FILE_VERSIONS, file_versions_retained=3)
    assert paths[0] in cleaned(world, versions)
    world.write("base", BX)
    assert cleaned(world, replace(versions, file_versions_retained=2)) >= {paths[1]}
    world.write("base", BX)
    assert cleaned(world) >= {paths[2]}


@pytest.mark.usefixtures("tables_with_a_lock")
def test_what_began_after_the_first_retained_instant_is_looked_at_again() -> None:
    """A clean of another engine may retain less than ours, and leave what it should not."""
    world = World()
    world.write("base", BX)
    superseded(world, BX)
    first = superseded(world, AX)
    superseded(world, CX)
    last = completed_commits(world.timeline())[-1].requested_time
    world.note("clean", clean_until(last))
    assert first not in cleaned(world, CleanConfig(commits_retained=4))
    superseded(world, CX)
    assert first in cleaned(world)


@pytest.mark.usefixtures("tables_with_a_lock")
def test_commits_that_are_archived_meanwhile_count(settled: World) -> None:
    first = superseded(settled, AX, times=3)
    superseded(settled, BX)
    newest_clean = max(i for i in settled.timeline().completed if i.action is Action.CLEAN)
    later = [i for i in settled.timeline().instants if i > newest_clean]
    archive_instants(settled.table.storage, LAYOUT, later[:3])
    assert first in cleaned(settled)


@pytest.mark.usefixtures("tables_with_a_lock")
def test_a_clean_of_another_engine_in_between_changes_nothing(settled: World) -> None:
    last = completed_commits(settled.timeline())[-1].requested_time
    settled.note("clean", clean_until(last))
    settled.write("base", BX)
    assert "a" not in folders_of_clean(settled)


@pytest.mark.usefixtures("tables_with_a_lock")
def test_after_a_restore_both_look_everywhere(settled: World) -> None:
    settled.write("log", BX)
    settled.plan_compaction(CompactionConfig())
    settled.complete(settled.pending[0])
    assert folders_of_clean(settled) == {"b", "c"}
    assert folders_of_compaction(settled) == set()
    settled.note("restore", RESTORED)
    assert folders_of_clean(settled) == set(PARTITIONS)
    assert folders_of_compaction(settled) == set(PARTITIONS)


def test_records_of_other_engines_and_damaged_words_say_nothing() -> None:
    assert Settled.from_extra_metadata({}) is None
    said = Settled(at(1), 2)
    assert Settled.from_extra_metadata(said.to_extra_metadata()) == said
    for key in said.to_extra_metadata():
        for wrong in ("", "x", "-1"):
            assert Settled.from_extra_metadata({**said.to_extra_metadata(), key: wrong}) is None


@pytest.fixture
def compacted() -> World:
    """A table of three partitions whose last compaction took all logs in."""
    world = World()
    for group in (AX, BX, CX):
        world.write("base", group)
        world.write("log", group)
    world.plan_compaction(CompactionConfig())
    world.complete(world.pending[0])
    return world


def planned(world: World, **config: Any) -> set[FileGroupId]:
    """Plan and request a compaction, with both planners of one mind; return its groups."""
    before = len(world.pending)
    world.plan_compaction(CompactionConfig(**config))
    found = world.pending[before:]
    return {group for one in found for group in one.groups}


def test_a_compaction_looks_at_the_partitions_that_have_changed_since(compacted: World) -> None:
    compacted.write("log", BX)
    assert folders_of_compaction(compacted) == {"b"}
    assert planned(compacted) == {BX}


def test_groups_with_few_logs_are_not_forgotten(compacted: World) -> None:
    compacted.write("log", AX)
    compacted.write("log", BX)
    compacted.write("log", BX)
    assert planned(compacted, log_files_min=2) == {BX}
    compacted.complete(compacted.pending[0])
    assert planned(compacted) == {AX}


def test_groups_that_were_too_much_for_one_plan_come_next(compacted: World) -> None:
    left = {AX, BX, CX}
    for group in left:
        log = compacted.write("log", group).files[0]
        compacted.table.storage.put(log.path, bytes(3 << 20))
    for _ in range(3):
        some = planned(compacted, io_mb_max=1)
        assert len(some) == 1
        left -= some
        compacted.complete(compacted.pending[0])
    assert not left


def test_groups_of_a_plan_that_is_cancelled_come_again(compacted: World) -> None:
    compacted.write("log", AX)
    assert planned(compacted) == {AX}
    (cancelled,) = compacted.pending
    compacted.write("log", BX)
    assert planned(compacted) == {BX}
    compacted.complete(compacted.pending[1])
    compacted.roll_back(cancelled)
    assert planned(compacted) == {AX}


def test_a_plan_that_has_not_completed_is_not_relied_on(compacted: World) -> None:
    compacted.write("log", AX)
    assert planned(compacted) == {AX}
    compacted.roll_back(compacted.pending[0])
    assert planned(compacted) == {AX}


def test_a_compaction_that_is_taken_back_takes_its_word_with_it(compacted: World) -> None:
    compacted.write("log", AX)
    assert planned(compacted) == {AX}
    compacted.complete(compacted.pending[0])
    compacted.take_back_last()
    assert planned(compacted) == {AX}


def test_a_write_that_completes_late_is_seen(compacted: World) -> None:
    compacted.begin("log", [AX])
    (late,) = compacted.pending
    compacted.write("log", BX)
    assert planned(compacted) == {BX}
    compacted.complete(compacted.pending[1])
    compacted.complete(late)
    assert planned(compacted) == {AX}


def test_a_plan_of_chosen_groups_repeats_what_was_said(compacted: World) -> None:
    compacted.write("log", AX)
    compacted.write("log", BX)
    plan = plan_next_compaction(compacted.view(), CompactionConfig(), [BX])
    assert _planned(plan) == [BX]
    compacted.request(plan)
    compacted.complete(compacted.pending[0])
    assert planned(compacted) == {AX}


def test_a_plan_of_chosen_groups_before_any_other_says_nothing() -> None:
    world = World()
    world.write("log", AX)
    world.write("log", BX)
    plan = plan_next_compaction(world.view(), CompactionConfig(), [BX])
    assert plan is not None
    assert plan.extra_metadata == {}


def test_the_word_of_an_archived_compaction_holds(compacted: World) -> None:
    table = compacted.table
    table.config = replace(table.config, table_type=TableType.MERGE_ON_READ)
    compacted.write("log", BX)
    compacted.write("log", BX)
    archive_instants(table.storage, LAYOUT, compacted.timeline().instants[:-1])
    assert folders_of_compaction(compacted) == {"b"}
    assert planned(compacted) == {BX}


def test_logs_of_archived_commits_count(compacted: World) -> None:
    late = compacted.write("log", AX)
    compacted.write("log", BX)
    instants = compacted.timeline().instants
    position = next(n for n, i in enumerate(instants) if i.requested_time == at(late.minute))
    kept = [i for i in instants if i.action is Action.COMPACTION]
    chosen = [i for i in instants[: position + 1] if i not in kept]
    archive_instants(compacted.table.storage, LAYOUT, chosen)
    assert planned(compacted) == {AX, BX}


def test_a_plan_of_another_engine_in_between_changes_nothing(compacted: World) -> None:
    compacted.write("log", AX)
    compacted.write("log", BX)
    with everywhere():
        plan = plan_next_compaction(compacted.view(), CompactionConfig(), [AX])
    assert plan is not None
    compacted.request(replace(plan, extra_metadata={}))
    compacted.complete(compacted.pending[0])
    assert folders_of_compaction(compacted) == {"a", "b"}
    assert planned(compacted) == {BX}
