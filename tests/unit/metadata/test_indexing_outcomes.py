"""Rows 5.8: an index is built beside writers and services, one interleaving each.

The index is the simulator's toy, which knows the data files of the table; everything else is the
product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pytest
from tests.support.dying import DyingStorage, Killed
from tests.support.manual_clock import ManualClock
from tests.support.memory_storage import MemoryStorage

from headwater.errors import (
    AlreadyExistsError,
    ConflictError,
    CorruptTableError,
    ErrorKind,
    FencedError,
    InvalidInputError,
    NotFoundError,
)
from headwater.format.timeline.records import encode_record
from headwater.kernel.layout import METADATA, METADATA_TIMELINE
from headwater.kernel.table_config import load_table_config, update_table_config
from headwater.kernel.timeline.active import Timeline, load_active
from headwater.kernel.timeline.names import file_name
from headwater.kernel.txn.attempts import Attempt
from headwater.kernel.txn.guard import beating
from headwater.kernel.txn.heartbeat import Heartbeat
from headwater.kernel.txn.index_plan import (
    PlannedIndex,
    decode_index_plan,
    pending_indexings,
)
from headwater.kernel.txn.locks.in_process import InProcessLockProvider, InProcessLocks
from headwater.kernel.txn.metadata_commit import load_index_partitions
from headwater.kernel.txn.schedule import schedule_plan
from headwater.kernel.txn.steps import EnterInflight, Started
from headwater.kernel.txn.transaction import LockTransaction
from headwater.kernel.txn.writes import CommittedWrite, InflightWrite, start_inflight_write
from headwater.metadata.coverage import load_covered
from headwater.metadata.indexing import Indexing, IndexProgress, Report, Stage
from headwater.metadata.table import load_metadata_table
from headwater.model.commit_metadata import WriteStat
from headwater.model.files import BaseFile, FileGroupId, attempt_of, parse_data_file
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.plans import CleanerPlan, CompactionPlan
from headwater.seams.ids import Owner, SystemIds
from headwater.seams.storage import Storage
from headwater.testing.actor import Process
from headwater.testing.operation import Op
from headwater.testing.rows import PARTITION, Row, base_file, metadata_of, put_rows
from headwater.testing.scenarios.index import (
    PLANNED,
    commit_before,
    indexing_of,
)
from headwater.testing.scenarios.plan import claim_of, components_of
from headwater.testing.table import LAYOUT, TIMELINE
from headwater.testing.toy_index import INDEX, ToyContent, ToyUpdate, look_up_all, rebuild

OTHER = "bloom_filters"
LAPSED_MS = 100_000


@dataclass(frozen=True)
class Writing:
    """A write that has not committed."""

    write: InflightWrite
    update: ToyUpdate
    content: bytes

    @property
    def time(self) -> InstantTime:
        return self.write.instant_time

    def commit(self) -> CommittedWrite:
        return self.write.commit(self.content, None, self.update)


@dataclass(frozen=True)
class Site:
    """A table with two commits and the index `files`, and what processes do to it."""

    storage: Storage = field(default_factory=MemoryStorage)
    clock: ManualClock = field(default_factory=ManualClock)
    locks: InProcessLocks = field(default_factory=InProcessLocks)

    def __post_init__(self) -> None:
        site = self

        class SetUp:
            def apply(self, actor: str, op: Op) -> None:
                site.storage.put(op.target, op.data)

        commit_before(SetUp())  # type: ignore[arg-type]

    def process(self, name: str, *, writes_left: int | None = None) -> Process:
        """Return a process on a host of its own, which may die after so many writes."""
        storage: Any = self.storage
        if writes_left is not None:
            storage = DyingStorage(storage, writes_left=writes_left)
        ids = SystemIds(Owner(name, 1, name))
        lock = InProcessLockProvider(self.locks, self.clock, ids, table="site")
        return Process(name, storage, self.clock, ids, lock, lambda *values: None)

    def indexing(self, name: str = "X", *, writes_left: int | None = None) -> Indexing:
        return indexing_of(self.process(name, writes_left=writes_left))

    def begin(self, name: str) -> Writing:
        """Begin a write and write its file: everything but the commit."""
        process = self.process(name)
        components = components_of(process)
        txn = LockTransaction(components, LAYOUT)
        write = start_inflight_write(components, txn, Action.COMMIT, claim_of(process), b"")
        time = write.instant_time
        file = base_file(FileGroupId(PARTITION, f"fg-{name}"), time, 1)
        stat = put_rows(self.storage, file, [Row(name, 0, time)])
        seen = load_index_partitions(self.storage, self.clock, LAYOUT, self.timeline)
        update = ToyUpdate(self.storage, time, 1, ([file.path], []), seen)
        self.clock.advance_ms(10)
        return Writing(write, update, encode_record(metadata_of("UPSERT", [stat])))

    def write(self, name: str) -> InstantTime:
        writing = self.begin(name)
        writing.commit()
        return writing.time

    def begin_plan(self, action: Action, content: bytes) -> Started:
        process = self.process("service")
        txn = LockTransaction(components_of(process), LAYOUT)
        started = schedule_plan(txn, action, lambda: content, lambda: claim_of(process))
        assert started is not None
        self.clock.advance_ms(10)
        return started

    @property
    def timeline(self) -> Timeline:
        return load_active(self.storage, TIMELINE)

    @property
    def usable(self) -> frozenset[str]:
        config = load_table_config(self.storage, self.clock)
        return load_metadata_table(self.storage, config, self.timeline).usable

    @property
    def inflight(self) -> tuple[str, ...]:
        return load_table_config(self.storage, self.clock).metadata_partitions_inflight

    def held(self, partition: str = INDEX) -> frozenset[str]:
        return look_up_all(self.storage, load_table_config(self.storage, self.clock), partition)

    def is_right(self, partition: str = INDEX) -> bool:
        """Whether the index can be used, and holds what the table has."""
        return partition in self.usable and self.held(partition) == rebuild(self.storage)

    def is_gone(self, partition: str = INDEX) -> bool:
        """Whether nothing of an index is left (INV-76)."""
        config = load_table_config(self.storage, self.clock)
        listed = {*config.metadata_partitions, *config.metadata_partitions_inflight}
        files = [info.path for info in self.storage.list_tree(f"{METADATA}/{partition}")]
        return partition not in listed and not files and not pending_indexings(self.timeline)

    def lapse(self) -> None:
        """Let time pass in which nobody beats."""
        with self.clock.timers_stalled():
            self.clock.advance_ms(LAPSED_MS)


@pytest.fixture
def site() -> Site:
    return Site()


def schedule(site: Site, *planned: PlannedIndex) -> Instant:
    plan = site.indexing().schedule(planned or [PLANNED])
    assert plan is not None
    site.clock.advance_ms(10)
    return plan


@dataclass(frozen=True)
class During:
    """The toy, with something that happens right before or after base files are written."""

    toy: ToyContent
    before: Callable[[], object] = lambda: None
    after: Callable[[], object] = lambda: None

    def initialise(self, planned: PlannedIndex, time: InstantTime) -> None:
        self.toy.initialise(planned, time)

    def build(
        self, planned: PlannedIndex, attempt: Attempt, check: Callable[[], None], report: Report
    ) -> Sequence[WriteStat]:
        self.before()
        stats = self.toy.build(planned, attempt, check, report)
        self.after()
        return stats

    def catch_up(
        self,
        partitions: frozenset[str],
        run: Sequence[Instant],
        timeline: Timeline,
        attempt: Attempt,
    ) -> Iterator[tuple[int, Sequence[WriteStat]]]:
        return self.toy.catch_up(partitions, run, timeline, attempt)

    def encode_commit(self, stats: Sequence[WriteStat], covered: frozenset[str]) -> bytes:
        return self.toy.encode_commit(stats, covered)


def building(
    site: Site,
    name: str = "X",
    *,
    before: Callable[[], object] = lambda: None,
    after: Callable[[], object] = lambda: None,
) -> Indexing:
    indexing = site.indexing(name)
    return replace(indexing, content=During(ToyContent(site.storage), before, after))


def announcing(site: Site, then: Callable[[], object]) -> Indexing:
    """Return a builder with something that happens right after it has announced its indexes."""

    @dataclass(frozen=True)
    class Announcing(Indexing):
        def _announce(self, build: Any) -> None:
            super()._announce(build)
            then()

    whole = site.indexing()
    return Announcing(**{name: getattr(whole, name) for name in whole.__dataclass_fields__})


def without_indexes(site: Site) -> None:
    """Make the next index the first one of the table."""
    changes = {"hoodie.table.metadata.partitions": ""}
    locks = components_of(site.process("set-up")).locks
    update_table_config(site.storage, locks, site.clock, changes, lock_timeout_ms=1_000)


def covered(site: Site, time: InstantTime) -> frozenset[str]:
    """Return the partitions that an instant has told itself."""
    return load_covered(site.storage, [time])[time]


# The rows of 5.8 ---------------------------------------------------------------------------------


def test_5_8_case_1_a_writer_that_gave_up_is_rolled_back_and_the_index_completes(
    site: Site,
) -> None:
    failed = site.begin("W")
    failed.update.prepare(frozenset({INDEX, "files"}))
    failed.write.abandon()
    done = site.indexing().run(schedule(site).requested_time)
    assert done.finished == {INDEX}
    assert site.is_right()
    assert site.timeline.find(failed.time) is None
    assert not [info.path for info in site.storage.list_tree(METADATA) if failed.time in info.path]


def test_5_8_case_1_a_writer_that_lapsed_is_rolled_back_and_cannot_commit(site: Site) -> None:
    writing = site.begin("W")
    plan = schedule(site)
    indexing = site.indexing()

    def look() -> None:
        for attempt in [writing.write.attempt]:
            indexing.txn.watch.is_active(attempt)
        site.lapse()

    indexing = replace(indexing, content=During(ToyContent(site.storage), after=look))
    # The builder stalls as long as everybody else does, so it lives longer than that.
    indexing = replace(indexing, interval_ms=10 * LAPSED_MS)
    indexing.run(plan.requested_time)
    assert site.is_right()
    with pytest.raises(FencedError):
        writing.commit()


def test_5_8_case_2_after_a_failed_build_the_writer_commits_and_the_next_run_is_right(
    site: Site,
) -> None:
    writing = site.begin("W")
    plan = schedule(site)
    with pytest.raises(Killed):
        site.indexing("X", writes_left=6).run(plan.requested_time)
    writing.commit()
    assert INDEX not in site.usable
    site.lapse()
    with pytest.raises(ConflictError, match="already running"):
        site.indexing("Y").run(plan.requested_time)
    builder = site.indexing("Z")
    with pytest.raises(ConflictError):
        builder.run(plan.requested_time)
    site.lapse()
    builder.run(plan.requested_time)
    assert site.is_right()


def test_5_8_case_3a_a_writer_that_starts_after_the_announcement_tells_the_index(
    site: Site,
) -> None:
    plan = schedule(site)
    written: list[InstantTime] = []
    announcing(site, lambda: written.append(site.write("W"))).run(plan.requested_time)
    assert covered(site, written[0]) == {INDEX, "files"}
    assert site.is_right()


def test_n_54_what_comes_before_the_announcement_is_told_by_the_builder(site: Site) -> None:
    plan = schedule(site)
    early = site.write("W")
    written: list[InstantTime] = []
    building(site, after=lambda: written.append(site.write("V"))).run(plan.requested_time)
    for time in (early, *written):
        assert covered(site, time) == {"files"}
        assert any(time in path for path in site.held())
    assert site.is_right()


def test_n_54_a_writer_that_prepared_before_the_announcement_prepares_again(site: Site) -> None:
    plan = schedule(site)
    writing = site.begin("W")
    assert writing.update.seen == {"files"}
    announcing(site, writing.commit).run(plan.requested_time)
    assert covered(site, writing.time) == {INDEX, "files"}
    assert site.is_right()


def test_n_187_a_builder_that_was_taken_over_takes_its_late_base_files_away(site: Site) -> None:
    """To readers that go by names they would be as good as those of the one that completed it."""
    plan = schedule(site)

    def take_over() -> None:
        other = site.indexing("Y")
        with pytest.raises(ConflictError):  # Which sees the heartbeat for the first time.
            other.run(plan.requested_time)
        site.lapse()
        other.run(plan.requested_time)

    with pytest.raises(FencedError):
        building(site, before=take_over).run(plan.requested_time)
    files = [parse_data_file(info.path) for info in site.storage.list_tree(f"{METADATA}/{INDEX}")]
    bases = [one for one in files if isinstance(one, BaseFile)]
    assert [attempt_of(one.write_token) for one in bases] == [3]
    assert site.is_right()


def test_n_54_a_writer_of_another_engine_that_began_before_the_announcement_is_waited_for(
    site: Site,
) -> None:
    plan = schedule(site)
    begun = InstantTime(f"{int(plan.requested_time) + 5}")

    def begin_elsewhere() -> None:
        for state in (State.REQUESTED, State.INFLIGHT):
            site.storage.put(f"{TIMELINE}/{file_name(begun, Action.COMMIT, state)}", b"")

    with pytest.raises(ConflictError) as raised:
        building(site, after=begin_elsewhere).run(plan.requested_time)
    assert raised.value.kind is ErrorKind.INDEX_TIMEOUT
    assert begun in str(raised.value)
    assert site.is_gone()


def test_n_54_the_first_index_of_a_table_is_told_from_its_request_on(site: Site) -> None:
    without_indexes(site)
    assert load_index_partitions(site.storage, site.clock, LAYOUT, site.timeline) == frozenset()
    plan = schedule(site)
    time = site.write("W")
    assert covered(site, time) == {INDEX}
    site.indexing().run(plan.requested_time)
    assert site.is_right()


def test_5_8_case_3b_a_writer_that_commits_right_after_the_index_tells_it(site: Site) -> None:
    plan = schedule(site)
    writing = site.begin("W")
    site.indexing().run(plan.requested_time)
    before = rebuild(site.storage)
    writing.commit()
    assert rebuild(site.storage) > before
    assert site.is_right()


def test_5_8_case_3b_even_if_it_prepared_before_the_index_was_planned(site: Site) -> None:
    writing = site.begin("W")
    assert writing.update.seen == {"files"}
    plan = schedule(site)
    # Stands for a builder that does not wait; the writer alone must get it right.
    indexing = replace(site.indexing(), timeout_ms=0)
    writing_done: list[CommittedWrite] = []
    content = During(ToyContent(site.storage), after=lambda: writing_done.append(writing.commit()))
    replace(indexing, content=content).run(plan.requested_time)
    assert writing_done
    assert site.is_right()


def test_5_8_case_3c_a_plan_appears_with_all_its_file_groups(site: Site) -> None:
    seen: list[set[str]] = []

    @dataclass(frozen=True)
    class Watched(ToyContent):
        def initialise(self, planned: PlannedIndex, time: InstantTime) -> None:
            super().initialise(planned, time)
            seen.append({i.action for i in pending_indexings(site.timeline)})

    planned = replace(PLANNED, group_count=100)
    indexing = replace(site.indexing(), content=Watched(site.storage))
    plan = indexing.schedule([planned, PlannedIndex(partition=OTHER, group_count=4)])
    assert plan is not None
    assert seen == [set(), set()]
    site.write("W")
    indexing.run(plan.requested_time)
    assert site.is_right()
    assert site.is_right(OTHER)


def test_5_8_case_4_services_of_the_metadata_table_leave_the_index_alone(site: Site) -> None:
    plan = schedule(site)
    site.write("W")
    config = load_table_config(site.storage, site.clock)
    table = load_metadata_table(site.storage, config, site.timeline)
    assert table.planned == {INDEX}
    assert table.usable == {"files"}
    site.indexing().run(plan.requested_time)
    assert site.usable == {"files", INDEX}


def five_is_pending(site: Site) -> tuple[list[InstantTime], Writing]:
    done = [site.write(f"C{number}") for number in (1, 2, 3, 4)]
    pending = site.begin("C5")
    done += [site.write(f"C{number}") for number in (6, 7, 8)]
    return done, pending


def up_to(site: Site, plan: Instant) -> InstantTime | None:
    name = file_name(plan.requested_time, Action.INDEXING, State.REQUESTED)
    data = site.storage.read(f"{TIMELINE}/{name}")
    return decode_index_plan(data, path=name)[0].up_to


def test_5_8_case_5_the_base_is_the_last_write_before_the_first_pending_one(site: Site) -> None:
    done, pending = five_is_pending(site)
    plan = schedule(site)
    assert up_to(site, plan) == done[3]
    building(site, after=pending.commit).run(plan.requested_time)
    assert site.is_right()
    assert len(site.held()) == 10


def test_5_8_case_5_a_write_that_does_not_end_aborts_the_index_after_the_timeout(
    site: Site,
) -> None:
    _, pending = five_is_pending(site)
    plan = schedule(site)
    reports: list[IndexProgress] = []
    indexing = replace(site.indexing(), report=reports.append)
    with pytest.raises(ConflictError) as raised:
        indexing.run(plan.requested_time)
    assert raised.value.kind is ErrorKind.INDEX_TIMEOUT
    assert pending.time in str(raised.value)
    assert site.is_gone()
    assert site.usable == {"files"}
    assert next(r.lag for r in reports if r.stage is Stage.CATCHING_UP) == 1
    pending.commit()
    site.indexing("Y").run(schedule(site).requested_time)
    assert site.is_right()


@dataclass(frozen=True)
class RfcTable:
    """DC 1 to 3, CLEAN 4 inflight, DC 5 and 6, COMPACT 7 requested, DC 8, INDEX 9, DC 10."""

    clean: Started
    commits: list[InstantTime]
    plan: Instant
    last: Writing
    beat: AbstractContextManager[Heartbeat]


def rfc_table(site: Site) -> RfcTable:
    done = [site.write(f"DC{number}") for number in (1, 2, 3)]
    clean = site.begin_plan(Action.CLEAN, encode_record(CleanerPlan(policy="KEEP_LATEST_COMMITS")))
    components = components_of(site.process("service"))
    LockTransaction(components, LAYOUT).run(EnterInflight(clean.attempt))
    done += [site.write(f"DC{number}") for number in (5, 6)]
    compaction = site.begin_plan(Action.COMPACTION, encode_record(CompactionPlan()))
    with beating(components, compaction):
        pass  # Whoever scheduled it leaves it to others.
    done += [site.write("DC8")]
    plan = schedule(site)
    return RfcTable(clean, done, plan, site.begin("DC10"), beating(components, clean))


def test_5_8_the_table_of_the_rfc(site: Site) -> None:
    rfc = rfc_table(site)
    assert up_to(site, rfc.plan) == rfc.commits[4]
    with pytest.raises(KeyboardInterrupt), rfc.beat:
        raise KeyboardInterrupt  # The clean gives up; its plan stays, and tells the index later.
    site.indexing().run(rfc.plan.requested_time)
    assert site.is_right()
    rfc.last.commit()
    assert site.is_right()
    assert len(site.held()) == 9


def test_5_8_the_table_of_the_rfc_a_clean_at_work_aborts_the_index_after_the_timeout(
    site: Site,
) -> None:
    rfc = rfc_table(site)
    with rfc.beat, pytest.raises(ConflictError) as raised:
        site.indexing().run(rfc.plan.requested_time)
    assert raised.value.kind is ErrorKind.INDEX_TIMEOUT
    assert rfc.clean.instant.requested_time in str(raised.value)
    assert site.is_gone()
    rfc.last.commit()


def test_5_8_wherever_a_build_dies_the_next_run_ends_in_the_same_state() -> None:
    for writes_left in count():
        site = Site()
        early = site.write("A")
        plan = schedule(site)
        site.write("B")
        is_dead = False
        try:
            site.indexing("X", writes_left=writes_left).run(plan.requested_time)
        except Killed:
            is_dead = True
        found = site.timeline.get(plan.requested_time)
        if is_dead and not found.is_completed:
            assert INDEX not in site.usable
        site.write("C")
        successor = site.indexing("Y")
        run_until_free(site, successor, plan.requested_time)
        assert site.is_right()
        assert not site.inflight
        assert any(early in path for path in site.held())
        if not is_dead:
            assert writes_left > 10
            return


def run_until_free(site: Site, indexing: Indexing, time: InstantTime) -> None:
    try:
        indexing.run(time)
    except ConflictError as conflict:
        if conflict.kind is not ErrorKind.ALREADY_RUNNING:
            raise
        site.lapse()
        indexing.run(time)


def test_5_8_wherever_scheduling_dies_the_index_can_be_planned_again() -> None:
    for writes_left in count():
        site = Site()
        is_dead = False
        try:
            site.indexing("X", writes_left=writes_left).schedule([replace(PLANNED, group_count=3)])
        except Killed:
            is_dead = True
        site.clock.advance_ms(10)
        site.write("A")
        indexing = site.indexing("Y")
        pending = pending_indexings(site.timeline)
        plan = pending[0] if pending else indexing.schedule([PLANNED])
        assert plan is not None
        indexing.run(plan.requested_time)
        assert site.is_right()
        if not is_dead:
            assert writes_left > 4
            return


def test_5_8_wherever_an_abort_dies_nothing_of_the_index_is_used_and_it_can_be_built() -> None:
    for writes_left in count():
        site = Site()
        plan = schedule(site)
        with pytest.raises(Killed):
            site.indexing("X", writes_left=8).run(plan.requested_time)
        assert site.inflight == (INDEX,)
        is_dead = False
        try:
            site.indexing("Y", writes_left=writes_left).cancel(plan.requested_time)
        except Killed:
            is_dead = True
        assert site.usable == {"files"}
        site.write("A")
        indexing = site.indexing("Z")
        pending = pending_indexings(site.timeline)
        again = pending[0] if pending else indexing.schedule([PLANNED])
        assert again is not None
        run_until_free(site, indexing, again.requested_time)
        assert site.is_right()
        assert not site.inflight
        if not is_dead:
            assert writes_left > 4
            return


# The resolutions of 6.4 --------------------------------------------------------------------------


def test_h_48_an_instant_that_told_others_only_is_told_by_the_builder(site: Site) -> None:
    """A writer of RFC-45 looks for plans before it prepares, and has missed this one."""
    writing = site.begin("W")
    plan = schedule(site)

    def commit_early() -> None:
        metadata = writing.update.prepare(writing.update.seen)
        data = site.timeline
        completion = InstantTime(f"{int(data.largest_time or '0') + 5}")
        for state in (State.REQUESTED, State.INFLIGHT):
            name = file_name(writing.time, Action.DELTA_COMMIT, state)
            site.storage.put(f"{METADATA_TIMELINE}/{name}", b"")
        own = file_name(writing.time, Action.DELTA_COMMIT, State.COMPLETED, completion)
        site.storage.put(f"{METADATA_TIMELINE}/{own}", metadata.content)
        name = file_name(writing.time, Action.COMMIT, State.COMPLETED, completion)
        site.storage.put(f"{TIMELINE}/{name}", writing.content)
        site.clock.advance_ms(100)

    building(site, after=commit_early).run(plan.requested_time)
    assert site.is_right()
    assert any(writing.time in path for path in site.held())


def test_h_50_a_build_that_died_before_table_config_is_rolled_forward(site: Site) -> None:
    plan = schedule(site)

    @dataclass(frozen=True)
    class Dying(Indexing):
        def _publish(self) -> frozenset[str]:
            raise Killed

    whole = site.indexing()
    dying = Dying(**{name: getattr(whole, name) for name in whole.__dataclass_fields__})
    with pytest.raises(Killed):
        dying.run(plan.requested_time)
    assert site.timeline.get(plan.requested_time).is_completed
    assert INDEX not in site.usable
    site.write("W")
    assert site.indexing("Y").finish() == {INDEX}
    assert site.is_right()
    assert site.indexing("Y").finish() == frozenset()


def test_h_51_what_can_be_built_stays_and_the_rest_goes(site: Site) -> None:
    @dataclass(frozen=True)
    class Damaged(ToyContent):
        def build(
            self, planned: PlannedIndex, attempt: Attempt, check: Callable[[], None], report: Report
        ) -> Sequence[WriteStat]:
            if planned.partition == OTHER:
                raise CorruptTableError("a file is damaged")
            return super().build(planned, attempt, check, report)

    plan = schedule(site, PLANNED, PlannedIndex(partition=OTHER, group_count=2))
    indexing = replace(site.indexing(), content=Damaged(site.storage))
    site.write("W")
    done = indexing.run(plan.requested_time)
    assert done.finished == {INDEX}
    assert list(done.left_out) == [OTHER]
    assert site.is_right()
    assert site.is_gone(OTHER)
    site.write("V")
    assert site.is_right()


def test_h_54_a_plan_that_nobody_executes_is_not_waited_for(site: Site) -> None:
    compaction = site.begin_plan(Action.COMPACTION, encode_record(CompactionPlan()))
    site.lapse()
    indexing = site.indexing()
    plan = schedule(site)
    number = compaction.attempt
    indexing.txn.watch.is_active(number)
    indexing = replace(indexing, interval_ms=10 * LAPSED_MS)
    content = During(ToyContent(site.storage), after=site.lapse)
    replace(indexing, content=content).run(plan.requested_time)
    assert site.is_right()
    assert site.timeline.get(compaction.instant.requested_time).is_pending


def test_h_58_the_options_of_a_writer_take_nothing_away(site: Site) -> None:
    site.indexing().run(schedule(site).requested_time)
    site.write("W")
    assert site.usable == {"files", INDEX}


def test_h_60_a_partition_has_one_plan_at_most(site: Site) -> None:
    plan = schedule(site)
    with pytest.raises(AlreadyExistsError) as raised:
        site.indexing("Y").schedule([PLANNED])
    assert raised.value.kind is ErrorKind.INDEX_EXISTS
    site.indexing().run(plan.requested_time)
    assert site.is_right()
    assert site.indexing("Y").schedule([PLANNED]) is None


def test_h_60_a_build_at_work_is_not_taken_over(site: Site) -> None:
    plan = schedule(site)

    def try_too() -> None:
        with pytest.raises(ConflictError) as raised:
            site.indexing("Y").run(plan.requested_time)
        assert raised.value.kind is ErrorKind.ALREADY_RUNNING

    building(site, after=try_too).run(plan.requested_time)
    assert site.is_right()


def test_inv_76_a_failed_build_leaves_nothing_and_other_indexes_alone(site: Site) -> None:
    site.indexing().run(schedule(site).requested_time)
    plan = schedule(site, PlannedIndex(partition=OTHER, group_count=2))

    def fail() -> None:
        raise ValueError("the engine broke")

    with pytest.raises(ValueError, match="the engine broke"):
        building(site, before=fail).run(plan.requested_time)
    assert site.is_gone(OTHER)
    site.write("W")
    assert site.is_right()


def test_inv_79_an_index_changes_only_its_own_keys_of_table_config(site: Site) -> None:
    plan = schedule(site)

    def change() -> None:
        locks = site.process("Y").lock
        changes: dict[str, str | None] = {"hoodie.table.partition.fields": "city"}
        update_table_config(site.storage, locks, site.clock, changes, lock_timeout_ms=1_000)

    building(site, after=change).run(plan.requested_time)
    config = load_table_config(site.storage, site.clock)
    assert config.raw["hoodie.table.partition.fields"] == "city"
    assert config.metadata_partitions == (INDEX, "files")
    assert config.metadata_partitions_inflight == ()


# Cancel, drop, and what is taken back -----------------------------------------------------------


def test_a_cancelled_build_stops_and_leaves_nothing(site: Site) -> None:
    plan = schedule(site)
    cancel = site.indexing("Y").cancel
    with pytest.raises(FencedError):
        building(site, after=lambda: cancel(plan.requested_time)).run(plan.requested_time)
    assert site.is_gone()
    site.write("W")
    site.indexing().run(schedule(site).requested_time)
    assert site.is_right()


def test_n_36_entries_for_a_plan_that_was_cancelled_do_not_count_for_the_next(site: Site) -> None:
    without_indexes(site)
    plan = schedule(site)
    writing = site.begin("W")
    metadata = writing.update.prepare(writing.update.seen)
    assert metadata.partitions == {INDEX}
    site.indexing().cancel(plan.requested_time)
    again = schedule(site, replace(PLANNED, group_count=3))
    building(site, after=writing.commit).run(again.requested_time)
    assert site.is_right()
    assert any(writing.time in path for path in site.held())


def test_n_37_a_plan_that_is_cancelled_under_a_writer_fails_nobody(site: Site) -> None:
    plan = schedule(site)
    before = site.timeline
    site.indexing().cancel(plan.requested_time)
    assert load_index_partitions(site.storage, site.clock, LAYOUT, before) == {"files"}


def test_only_a_pending_index_plan_is_cancelled(site: Site) -> None:
    done = site.indexing().run(schedule(site).requested_time)
    with pytest.raises(InvalidInputError) as raised:
        site.indexing().cancel(done.instant.requested_time)
    assert raised.value.kind is ErrorKind.INVALID_STATE
    with pytest.raises(InvalidInputError, match="no index plan"):
        site.indexing().cancel(site.write("W"))
    with pytest.raises(NotFoundError):
        site.indexing().run(InstantTime("20990101000000000"))
    assert site.is_right()


def test_a_dropped_index_is_gone_and_can_be_built_again(site: Site) -> None:
    site.indexing().run(schedule(site).requested_time)
    writing = site.begin("W")
    writing.update.prepare(writing.update.seen)
    site.indexing().drop(INDEX)
    assert site.is_gone()
    writing.commit()
    with pytest.raises(NotFoundError) as raised:
        site.indexing().drop(INDEX)
    assert raised.value.kind is ErrorKind.INDEX_NOT_FOUND
    plan = schedule(site)
    with pytest.raises(ConflictError, match="Cancel"):
        site.indexing().drop(INDEX)
    site.indexing().run(plan.requested_time)
    assert site.is_right()


def test_wherever_a_drop_dies_the_index_is_not_used_half() -> None:
    for writes_left in count():
        site = Site()
        site.indexing().run(schedule(site).requested_time)
        is_dead = False
        try:
            site.indexing("X", writes_left=writes_left).drop(INDEX)
        except Killed:
            is_dead = True
        assert INDEX not in site.usable or site.is_right()
        site.write("W")
        if INDEX not in site.usable:
            site.indexing("Y").run(schedule(site).requested_time)
        assert site.is_right()
        if not is_dead:
            assert writes_left > 2
            return


def test_a_build_on_what_is_taken_back_meanwhile_starts_again(site: Site) -> None:
    taken_back = site.write("A")
    plan = schedule(site)
    builds = 0

    def take_back() -> None:
        nonlocal builds
        builds += 1
        if builds > 1:
            return
        instant = site.timeline.get(taken_back)
        for state in (State.REQUESTED, State.INFLIGHT):
            site.storage.delete(f"{TIMELINE}/{file_name(taken_back, Action.COMMIT, state)}")
        site.storage.delete(f"{TIMELINE}/{file_name(*instant)}")
        end_restore(site, begin_restore(site))

    building(site, after=take_back).run(plan.requested_time)
    assert builds == 2
    assert not any(taken_back in path for path in site.held())


def begin_restore(site: Site) -> InstantTime:
    """Request a restore of another engine, which leaves no attempt."""
    time = InstantTime(f"{int(site.timeline.largest_time or '0') + 5}")
    site.storage.put(f"{TIMELINE}/{file_name(time, Action.RESTORE, State.REQUESTED)}", b"")
    return time


def end_restore(site: Site, time: InstantTime) -> None:
    name = file_name(time, Action.RESTORE, State.COMPLETED, time)
    site.storage.put(f"{TIMELINE}/{name}", b"")


@pytest.mark.parametrize("is_first", [True, False], ids=["before the plan", "before its end"])
def test_n_192_a_restore_of_another_engine_is_waited_for(site: Site, is_first: bool) -> None:
    """It takes the metadata table back as well, and the index with it."""
    begun: list[InstantTime] = []
    waited: list[InstantTime] = []

    def begin() -> None:
        if not begun:
            begun.append(begin_restore(site))

    class AtTheEnd(ToyContent):
        def encode_commit(self, stats: Sequence[WriteStat], covered: frozenset[str]) -> bytes:
            begin()
            return super().encode_commit(stats, covered)

    def end(progress: IndexProgress) -> None:
        if progress.stage is Stage.CATCHING_UP and begun and not waited:
            assert progress.lag == 1
            waited.extend(begun)
            end_restore(site, *begun)

    site.write("A")
    if is_first:
        begin()
    plan = schedule(site)
    content = AtTheEnd(site.storage)
    replace(site.indexing(), content=content, report=end).run(plan.requested_time)
    assert waited == begun
    assert site.timeline.get(plan.requested_time).is_completed
    assert site.is_right()
