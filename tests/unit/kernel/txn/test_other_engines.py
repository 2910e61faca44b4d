"""Instants of other engines on a fenced table: what is adopted, what is refused, what is ours."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest
from tests.support.counting_storage import CountingStorage
from tests.support.dying import DyingStorage, Killed
from tests.support.manual_clock import ManualClock
from tests.support.memory_storage import MemoryStorage

from headwater.config.table import TableConfig
from headwater.config.table_options import (
    INDEXES_PLANNED,
    INDEXES_TO_REBUILD,
    METADATA_PARTITIONS,
)
from headwater.errors import ConflictError, ErrorKind
from headwater.format.metadata.index_definitions import encode_index_definitions
from headwater.format.properties import encode_properties
from headwater.format.timeline.records import encode_record
from headwater.kernel.journal.journal import Journal
from headwater.kernel.journal.slots import Entry, Slot, Verb
from headwater.kernel.journal.state import (
    ERASED_KEPT,
    Areas,
    JournalState,
    decode_checkpoint,
    encode_checkpoint,
)
from headwater.kernel.journal.storage import JournaledStorage, erase_files
from headwater.kernel.layout import (
    INDEX_DEFINITIONS,
    METADATA,
    METADATA_TIMELINE,
    PROPERTIES,
    TableLayout,
    cancel_path,
    heartbeat_path,
)
from headwater.kernel.new_table import NewTable, plan_table_config
from headwater.kernel.table_config import create_table_config, load_table_config
from headwater.kernel.timeline.active import Timeline, load_active
from headwater.kernel.txn.events import (
    ConfigChanged,
    DefinitionsChanged,
    Event,
    Requested,
    RevertedToRequested,
    WentInflight,
)
from headwater.kernel.txn.fenced import FencedTransaction
from headwater.kernel.txn.foreign import ForeignRule, PendingElsewhere
from headwater.kernel.txn.locks.storage_based import StorageBasedLockProvider
from headwater.kernel.txn.other_engines import OtherEngines
from headwater.kernel.txn.others_found import Findings, find_others
from headwater.kernel.txn.prefix import Needs, Prefix
from headwater.kernel.txn.steps import Claim
from headwater.kernel.txn.transaction import Decision
from headwater.kernel.txn.writes import CommittedWrite, request_write
from headwater.model.instant import Action, Instant, InstantTime, State, instant_time_at
from headwater.model.service_metadata import RollbackMetadata
from headwater.seams.components import Components
from headwater.seams.ids import Owner, SystemIds
from headwater.seams.storage import Storage

LAYOUT = TableLayout()
TIMELINE = LAYOUT.timeline
AREAS = Areas(TIMELINE)
EXPIRY_MS = 10_000
SURELY_MS = EXPIRY_MS + 1_000
"""Stores tell whole seconds: something may be that much younger."""


def time_of(number: int) -> InstantTime:
    return InstantTime(f"20260101000000{number:03d}")


def files_of(requested: int, completed: int | None = None) -> list[str]:
    names = [f"{time_of(requested)}.deltacommit.{state}" for state in ("requested", "inflight")]
    done = [] if completed is None else [f"{time_of(requested)}_{time_of(completed)}.deltacommit"]
    return [*names, *done]


def state_with(names: list[str], *, issued: int, erased: list[str] | None = None) -> JournalState:
    state = JournalState(areas=AREAS)
    made = [Entry(Verb.CREATE, f"{TIMELINE}/{name}", b"x") for name in [*names, *(erased or [])]]
    state = state.after(a_slot(state, made, issued), "1")
    return state.after(
        a_slot(state, [Entry(Verb.ERASE, f"{TIMELINE}/{n}") for n in erased or []], issued), "2"
    )


def a_slot(state: JournalState, entries: list[Entry], issued: int | None = None) -> Slot:
    return Slot(
        number=state.number + 1,
        follows=state.digest,
        operation="o",
        owner="w",
        issued=None if issued is None else time_of(issued),
        waves=(tuple(entries),),
    )


# The pure decision.


def test_what_the_journal_has_is_nothing_to_find() -> None:
    ours = files_of(1, 2)
    assert find_others(state_with(ours, issued=2), ours) == Findings()


def test_an_instant_that_came_after_all_of_ours_can_be_adopted() -> None:
    ours, theirs = files_of(1, 2), files_of(5, 6)
    found = find_others(state_with(ours, issued=2), [*ours, *theirs])
    done = Instant(time_of(5), Action.DELTA_COMMIT, State.COMPLETED, time_of(6))
    assert (found.completed, found.pending, found.overlapping) == ((done,), (), ())
    assert found.names == {time_of(5): tuple(sorted(theirs))}


def test_a_pending_one_is_live() -> None:
    found = find_others(state_with(files_of(1, 2), issued=2), files_of(5))
    assert [one.requested_time for one in found.pending] == [time_of(5)]
    assert not found.completed


@pytest.mark.parametrize("issued", [5, 6, 7])
def test_one_that_began_before_our_last_decision_overlaps(issued: int) -> None:
    found = find_others(state_with(files_of(1, 2), issued=issued), files_of(5, 6))
    assert [one.requested_time for one in found.overlapping] == [time_of(5)]
    assert not found.completed


def test_a_file_that_a_slot_erased_is_ours_whatever_its_time() -> None:
    late = files_of(3, 4)
    state = state_with(files_of(1, 2), issued=9, erased=late)
    assert find_others(state, [*files_of(1, 2), *late]) == Findings()


def test_a_plan_that_the_journal_has_may_be_executed_by_anybody() -> None:
    plan = f"{time_of(3)}.compaction.requested"
    state = state_with([plan, *files_of(4, 5)], issued=5)
    begun = find_others(state, [plan, f"{time_of(3)}.compaction.inflight"])
    assert [one.requested_time for one in begun.pending] == [time_of(3)]
    done = find_others(state, [plan, f"{time_of(3)}_{time_of(8)}.commit"])
    assert [one.requested_time for one in done.completed] == [time_of(3)]


def test_a_plan_that_a_write_has_cancelled_may_not() -> None:
    plan = f"{time_of(3)}.clustering.requested"
    state = state_with([plan], issued=3)
    cancel = Entry(Verb.CREATE, cancel_path(time_of(3)))
    state = state.after(a_slot(state, [cancel]), "3")
    done = find_others(state, [plan, f"{time_of(3)}_{time_of(8)}.replacecommit"])
    assert [one.requested_time for one in done.overlapping] == [time_of(3)]


@pytest.mark.parametrize("name", ["deltacommit.requested", "aborted"])
def test_a_file_under_the_time_of_ours_that_is_no_plan_is_not_theirs_to_complete(name: str) -> None:
    ours = f"{time_of(3)}.{name}"
    ours = f"{time_of(3)}.clustering.aborted" if name == "aborted" else ours
    completed = "replacecommit" if name == "aborted" else "deltacommit"
    done = find_others(
        state_with([ours], issued=3), [ours, f"{time_of(3)}_{time_of(8)}.{completed}"]
    )
    assert [one.requested_time for one in done.overlapping] == [time_of(3)]


def test_a_savepoint_has_the_time_of_what_it_protects() -> None:
    ours = files_of(1, 2)
    point = [f"{time_of(1)}.savepoint.inflight", f"{time_of(1)}_{time_of(7)}.savepoint"]
    assert find_others(state_with(ours, issued=2), [*ours, *point]).completed
    assert find_others(state_with(ours, issued=8), [*ours, *point]).overlapping
    assert find_others(state_with(ours, issued=2), [*ours, point[0]]).pending


def test_other_names_are_nobodys() -> None:
    ours = files_of(1, 2)
    assert find_others(state_with(ours, issued=2), [*ours, ".keep", "history"]) == Findings()


def test_a_completed_file_is_gone_only_if_it_was_in_a_file_for_sure() -> None:
    ours = files_of(1, 2)
    state = state_with(ours, issued=2)
    unsure = find_others(state, [])
    assert unsure.is_nothing  # Its author may not have written it yet.
    assert unsure.missing == set(ours)
    assert find_others(state.without_data(2), []).gone == set(ours[2:])
    assert not find_others(state.without_data(2), ours[2:]).gone


def test_erased_names_are_remembered_for_a_while_and_by_checkpoints() -> None:
    late = files_of(3, 4)
    state = state_with([], issued=9, erased=late)
    read = decode_checkpoint(encode_checkpoint(state), AREAS, number=state.number)
    assert read.erased == state.erased
    assert not find_others(read, late).strays
    while state.number < 2 + ERASED_KEPT // 2:
        state = state.after(a_slot(state, []), "2")
    assert sorted(find_others(state, late).strays) == sorted(late)  # Refreshed by the next slot.
    while state.number < 2 + ERASED_KEPT:
        state = state.after(a_slot(state, []), "2")
    assert not state.erased


def test_a_name_that_is_used_again_is_not_erased() -> None:
    name = f"{time_of(3)}.compaction.inflight"
    state = state_with([], issued=3, erased=[name])
    state = state.after(a_slot(state, [Entry(Verb.CREATE, f"{TIMELINE}/{name}")]), "3")
    assert not state.erased


# Decisions beside another engine.


@dataclass(frozen=True)
class Planned:
    """A step that requests a compaction."""

    def needs(self, timeline: Timeline) -> Needs:
        return Needs()

    def decide(self, prefix: Prefix) -> Decision[InstantTime]:
        event = Requested(prefix.next_time, Action.COMPACTION, b"plan")
        return Decision((event,), prefix.next_time)


@dataclass(frozen=True)
class Said:
    """A step of one event."""

    event: Event

    def needs(self, timeline: Timeline) -> Needs:
        return Needs()

    def decide(self, prefix: Prefix) -> Decision[None]:
        return Decision((self.event,), None)


@dataclass
class Site:
    """A fenced table, the clock that its processes share, and another engine at work on it."""

    storage: Storage = field(default_factory=MemoryStorage)
    clock: ManualClock = field(default_factory=ManualClock)

    def process(self, name: str = "w") -> tuple[Components, FencedTransaction]:
        ids = SystemIds(Owner("host", 1, name))
        journal = Journal(self.storage, self.clock, ids, AREAS)
        journaled = JournaledStorage(journal, OtherEngines(journal, LAYOUT).foresee)
        locks = StorageBasedLockProvider(self.storage, self.clock, ids)
        components = Components(journaled, self.clock, ids, locks)
        rule = ForeignRule(expiry_ms=EXPIRY_MS, silence_ms=2 * EXPIRY_MS)
        elsewhere = PendingElsewhere(rule=rule, expiry_ms=EXPIRY_MS)
        return components, FencedTransaction(components, LAYOUT, journaled, elsewhere=elsewhere)

    def claim(self, components: Components) -> Claim:
        return Claim(
            owner=components.ids.owner,
            token=components.ids.new_uuid(),
            interval_ms=1_000,
            tolerable_misses=2,
        )

    def commit(self, name: str = "w") -> CommittedWrite:
        self.clock.advance_ms(10)
        components, txn = self.process(name)
        started = request_write(components, txn, Action.DELTA_COMMIT, self.claim(components))
        return started.enter_inflight().commit(b"ours")

    def tick(self) -> InstantTime:
        self.clock.advance_ms(10)
        return instant_time_at(self.clock.now_ms())

    def hudi_begins(self) -> InstantTime:
        time = self.tick()
        for state in ("requested", "inflight"):
            self.put(f"{time}.deltacommit.{state}")
        return time

    def hudi_completes(self, time: InstantTime) -> None:
        self.put(f"{time}_{self.tick()}.deltacommit")

    def plan(self) -> InstantTime:
        """Request a compaction of ours that nobody executes."""
        self.clock.advance_ms(10)
        _, txn = self.process()
        return txn.run(Planned()).result

    def hudi_plans(self) -> InstantTime:
        """Let it request one, and leave it."""
        time = self.tick()
        self.put(f"{time}.compaction.requested")
        self.clock.advance_ms(SURELY_MS + 1)
        return time

    def hudi_takes_back(self, *times: InstantTime, keep: str = "nothing") -> InstantTime:
        """Delete the files of these instants, and tell in a rollback that was completed."""
        for name in self.storage.list_names(TIMELINE):
            if name.startswith(times) and not name.endswith(keep):
                self.storage.delete(f"{TIMELINE}/{name}")
        time = self.tick()
        self.put(f"{time}.rollback.requested")
        said = RollbackMetadata(
            start_rollback_time=time,
            time_taken_in_millis=1,
            total_files_deleted=0,
            commits_rollback=times,
            partition_metadata={},
        )
        self.put(f"{time}_{self.tick()}.rollback", data=encode_record(said))
        return time

    def put(self, name: str, folder: str = TIMELINE, data: bytes = b"theirs") -> None:
        self.storage.put(f"{folder}/{name}", data)

    def pending(self) -> list[Instant]:
        """What the next decision of ours finds pending."""
        components, _ = self.process("reader")
        return list(load_active(components.storage, TIMELINE).pending)

    def completed(self) -> list[InstantTime]:
        """What a reader of ours sees."""
        components, _ = self.process("reader")
        done = load_active(components.storage, TIMELINE).completed
        return [instant.requested_time for instant in done]


@pytest.fixture
def site() -> Site:
    """A table whose store has the clock of the test, so that files have its times."""
    clock = ManualClock()
    return Site(MemoryStorage(clock=clock), clock)


def refused(site: Site) -> ConflictError:
    with pytest.raises(ConflictError) as raised:
        site.commit()
    assert raised.value.kind is ErrorKind.FOREIGN_WRITER
    return raised.value


def test_an_instant_that_completed_while_nothing_of_ours_was_at_work_is_adopted(site: Site) -> None:
    first = site.commit().instant.requested_time
    time = site.hudi_begins()
    site.hudi_completes(time)
    site.put(f"{time}_{time}.deltacommit", METADATA_TIMELINE)
    assert site.completed() == [first, time]  # Readers need no decision for it.
    second = site.commit().instant.requested_time
    assert site.completed() == [first, time, second]
    components, _ = site.process()
    assert components.storage.list_names(METADATA_TIMELINE) == [f"{time}_{time}.deltacommit"]
    assert site.commit().instant.requested_time > second


def test_a_live_one_is_refused_until_it_has_ended(site: Site) -> None:
    first = site.commit().instant.requested_time
    time = site.hudi_begins()
    before = sorted(info.path for info in site.storage.list_tree(""))
    error = refused(site)
    assert time in str(error)
    assert "--no-fenced" in str(error)
    assert sorted(info.path for info in site.storage.list_tree("")) == before
    assert site.completed() == [first]  # Readers do not fail.
    assert [one.requested_time for one in site.pending()] == [time]
    site.hudi_completes(time)
    later = site.hudi_begins()
    assert site.completed() == [first, time]
    refused(site)
    site.hudi_completes(later)
    assert site.commit().instant.requested_time > later
    assert {time, later} < set(site.completed())


def test_a_live_one_that_its_engine_rolled_back_is_no_hindrance(site: Site) -> None:
    site.commit()
    time = site.hudi_begins()
    refused(site)
    rollback = site.hudi_takes_back(time)
    site.commit()
    assert rollback in site.completed()
    assert time not in site.completed()


def test_commits_of_ours_that_it_took_back_leave_the_journal(site: Site) -> None:
    first, second, third = (site.commit().instant.requested_time for _ in range(3))
    rollback = site.hudi_takes_back(second, third)
    assert site.completed() == [first, rollback]  # Readers need no decision for it.
    last = site.commit().instant.requested_time
    assert site.completed() == [first, rollback, last]


def test_a_commit_of_ours_that_nobody_says_to_have_taken_back_is_no_others_to_remove(
    site: Site,
) -> None:
    first, second = (site.commit().instant.requested_time for _ in range(2))
    rollback = site.hudi_takes_back(second)
    for name in site.storage.list_names(TIMELINE):
        if name.startswith(first):
            site.storage.delete(f"{TIMELINE}/{name}")
    assert "neither side knew of the other" in str(refused(site))
    assert site.completed() == [first, second]
    assert rollback not in site.completed()


def test_a_dead_write_of_ours_that_it_rolled_back_leaves_the_journal(site: Site) -> None:
    site.commit()
    components, txn = site.process("dead")
    dead = request_write(components, txn, Action.DELTA_COMMIT, site.claim(components))
    txn.catch_up()
    assert [one.requested_time for one in site.pending()] == [dead.instant_time]
    site.hudi_takes_back(dead.instant_time)
    site.commit()
    assert site.pending() == []


def test_a_dead_attempt_at_a_plan_that_it_rolled_back_leaves_the_plan(site: Site) -> None:
    site.commit()
    plan = site.plan()
    _, txn = site.process("dead")
    txn.run(Said(WentInflight(plan, Action.COMPACTION, b"")))
    assert [one.state for one in site.pending()] == [State.INFLIGHT]
    site.hudi_takes_back(plan, keep=".requested")
    site.commit()
    assert [one.state for one in site.pending()] == [State.REQUESTED]


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_plan_that_it_executed_is_completed(site: Site, is_ours: bool) -> None:
    """Whoever planned it, and whatever we have committed since."""
    site.commit()
    plan = site.plan() if is_ours else site.hudi_plans()
    site.commit()
    site.clock.advance_ms(10)
    site.put(f"{plan}.compaction.inflight")
    refused(site)
    site.put(f"{plan}_{site.tick()}.commit")
    site.put(f"{plan}_{plan}.deltacommit", METADATA_TIMELINE)
    assert plan in site.completed()
    site.commit()
    assert plan in site.completed()
    components, _ = site.process()
    assert components.storage.list_names(METADATA_TIMELINE) == [f"{plan}_{plan}.deltacommit"]


def test_a_plan_is_left_to_it_for_a_while(site: Site) -> None:
    """It may be about to execute it, and may fail if we are faster (N-153)."""
    site.commit()
    plan = site.tick()
    site.put(f"{plan}.compaction.requested")
    site.clock.advance_ms(SURELY_MS - 20)
    assert plan in str(refused(site))
    site.clock.advance_ms(21)
    site.commit()
    assert [(one.requested_time, one.action) for one in site.pending()] == [
        (plan, Action.COMPACTION)
    ]


def test_a_plan_that_was_made_while_we_decided_is_never_adopted(site: Site) -> None:
    """What we decided may be missing in it."""
    site.commit()
    plan = site.tick()
    site.commit()
    site.put(f"{plan}.compaction.requested")
    site.clock.advance_ms(3 * EXPIRY_MS)
    assert plan in str(refused(site))


def test_a_write_that_is_dead_by_its_own_rules_is_taken_over_to_be_rolled_back(site: Site) -> None:
    site.commit()
    time = site.hudi_begins()
    site.storage.put(heartbeat_path(time), b"")
    site.clock.advance_ms(SURELY_MS - 20)
    assert time in str(refused(site))
    site.clock.advance_ms(21)
    site.commit()
    assert [one.requested_time for one in site.pending()] == [time]
    site.hudi_completes(time)  # It was not dead after all.
    assert "neither side knew of the other" in str(refused(site))
    assert time not in site.completed()


def test_a_rollback_that_it_has_left_is_taken_over(site: Site) -> None:
    site.commit()
    time = site.tick()
    site.put(f"{time}.rollback.requested")
    site.storage.put(heartbeat_path(time), b"")
    assert time in str(refused(site))
    site.clock.advance_ms(SURELY_MS + 1)
    site.commit()
    assert [one.requested_time for one in site.pending()] == [time]


@pytest.mark.parametrize("action", ["clean", "restore"])
def test_what_only_its_engine_can_end_is_never_taken_over(site: Site, action: str) -> None:
    site.commit()
    time = site.tick()
    site.put(f"{time}.{action}.requested")
    site.clock.advance_ms(10 * EXPIRY_MS)
    assert time in str(refused(site))


def test_a_savepoint_that_it_deleted_leaves_the_journal(site: Site) -> None:
    commit = site.commit().instant.requested_time
    point = f"{commit}_{site.tick()}.savepoint"
    site.put(f"{commit}.savepoint.inflight")
    site.put(point)
    site.commit()
    components, _ = site.process()
    assert point in components.storage.list_names(TIMELINE)
    for name in (point, f"{commit}.savepoint.inflight"):
        site.storage.delete(f"{TIMELINE}/{name}")
    site.commit()
    assert not [n for n in components.storage.list_names(TIMELINE) if "savepoint" in n]
    assert commit in site.completed()


def test_one_that_we_decided_beside_is_refused_for_good(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """Hudi gave itself a time, and its first file came after our decision."""
    site.commit()
    time = site.tick()
    ours = site.commit().instant.requested_time
    site.put(f"{time}.deltacommit.requested")
    site.hudi_completes(time)
    assert "neither side knew of the other" in str(refused(site))
    assert ours in site.completed()
    caplog.clear()
    watching, _ = site.process("reader")
    for _ in range(3):  # It is said once, however often one looks.
        assert load_active(watching.storage, TIMELINE).find(time) is None
    assert caplog.text.count("reads leave out") == 1


def test_one_that_began_before_our_files_were_there_is_refused(site: Site) -> None:
    """By its times it came after ours, but it cannot have seen ours."""
    site.commit()
    components, txn = site.process("slow")
    started = request_write(components, txn, Action.DELTA_COMMIT, site.claim(components))
    inflight = started.enter_inflight()
    write, begun = txn._journaled.files.write, []

    def write_late(*arguments: Any) -> bool:
        begun.append(site.hudi_begins())
        site.clock.advance_ms(10)
        return write(*arguments)

    txn._journaled.files.write = write_late  # type: ignore[assignment,method-assign]
    inflight.commit(b"ours")
    (time,) = begun
    site.hudi_completes(time)
    assert "neither side knew of the other" in str(refused(site))


def test_one_that_saw_no_files_of_a_dead_author_is_refused(site: Site) -> None:
    site.commit()
    components, txn = site.process("dead")
    started = request_write(components, txn, Action.DELTA_COMMIT, site.claim(components))
    inflight = started.enter_inflight()
    confirm = txn._journaled.journal.confirm
    txn._journaled.files.write = lambda put, *_: confirm(put)  # type: ignore[method-assign]
    inflight.commit(b"ours")
    site.hudi_completes(site.hudi_begins())
    refused(site)


def test_a_write_of_ours_that_another_engine_overtook_can_never_complete(site: Site) -> None:
    site.commit()
    components, txn = site.process("slow")
    slow = request_write(
        components, txn, Action.DELTA_COMMIT, site.claim(components)
    ).enter_inflight()
    time = site.hudi_begins()
    site.hudi_completes(time)
    site.commit("other")  # Which adopts.
    with pytest.raises(ConflictError) as raised:
        slow.commit(b"ours")
    assert raised.value.kind is ErrorKind.FOREIGN_WRITER
    assert slow.instant_time not in site.completed()
    assert time in site.completed()


def test_a_file_that_we_erased_and_that_comes_late_changes_nothing(site: Site) -> None:
    first = site.commit().instant
    site.commit()
    components, _ = site.process()
    names = [n for n in site.storage.list_names(TIMELINE) if n.startswith(first.requested_time)]
    erase_files(components.storage, [[f"{TIMELINE}/{name}"] for name in names])
    for name in names:
        site.put(name)
    site.commit()
    assert first.requested_time not in site.completed()


def test_a_file_that_a_dead_process_deleted_late_is_put_again(site: Site) -> None:
    """It took an attempt back, stood still until the plan was executed again, and died."""
    plan = site.plan()
    _, txn = site.process()
    path = f"{TIMELINE}/{plan}.compaction.inflight"
    txn.run(Said(WentInflight(plan, Action.COMPACTION, b"")))
    txn.run(Said(RevertedToRequested(plan, Action.COMPACTION)))
    txn.run(Said(WentInflight(plan, Action.COMPACTION, b"")))
    site.storage.delete(path)
    txn.run(Said(Requested(site.tick(), Action.COMPACTION, b"another plan")))
    assert site.storage.read(path) == b""


def test_a_decision_lists_the_timeline_once() -> None:
    storage = CountingStorage(MemoryStorage(), keep_trace=True)
    site = Site(storage)
    site.commit("first")  # So that several slots are new to the next process.
    components, txn = site.process()
    storage.reset()
    request_write(components, txn, Action.DELTA_COMMIT, site.claim(components))
    assert storage.trace.count(("list_names", TIMELINE)) == 1


# What it changes beside the timelines.


@pytest.fixture
def configured(site: Site) -> Site:
    new = NewTable(location="t", schema=pa.schema([("id", pa.string())]), record_key=("id",))
    config = plan_table_config(new, {})
    create_table_config(site.storage, site.clock, SystemIds(), config)
    site.commit()
    return site


def hudi_writes(site: Site, **changes: str | None) -> None:
    """Let it change table config as it does: it reads, changes and overwrites the file."""
    raw = dict(load_table_config(site.storage, site.clock).raw)
    kept = {key: text for key, text in {**raw, **changes}.items() if text is not None}
    time = site.hudi_begins()
    site.storage.put(PROPERTIES, encode_properties(kept, comment="Hudi was here"))
    site.hudi_completes(time)


def config_seen(site: Site) -> TableConfig:
    components, _ = site.process("reader")
    return load_table_config(components.storage, site.clock)


def test_what_it_changed_in_table_config_is_taken_over(configured: Site) -> None:
    site = configured
    hudi_writes(site, **{METADATA_PARTITIONS.key: "files,record_index"})
    assert config_seen(site).metadata_partitions == ("files", "record_index")
    site.commit()
    assert config_seen(site).metadata_partitions == ("files", "record_index")
    _, txn = site.process()
    txn.run(
        Said(ConfigChanged({INDEXES_TO_REBUILD.key: "column_stats"}))
    )  # And is not undone by ours.
    for config in (config_seen(site), load_table_config(site.storage, site.clock)):
        assert config.metadata_partitions == ("files", "record_index")
        assert config.indexes_to_rebuild == ("column_stats",)
    hudi_writes(site, **{METADATA_PARTITIONS.key: "files"})
    site.commit()
    assert config_seen(site).metadata_partitions == ("files",)
    assert config_seen(site).indexes_to_rebuild == ("column_stats",)


def test_table_config_that_it_wrote_anew_and_left_as_it_was_is_no_change(configured: Site) -> None:
    site = configured
    hudi_writes(site)
    site.commit()
    assert b"Hudi was here" in site.storage.read(PROPERTIES)


def change_config(site: Site, **options: str) -> None:
    changed = {**load_table_config(site.storage, site.clock).raw, **options}
    site.storage.put(PROPERTIES, encode_properties(changed, comment="Hudi was here"))


@pytest.mark.parametrize("is_cut", [False, True])
def test_n_183_what_a_dead_write_of_it_changed_is_put_back(configured: Site, is_cut: bool) -> None:
    """The indexes that it has made know nothing of what we commit from now on."""
    site = configured
    definitions = encode_index_definitions({})
    _, txn = site.process()
    txn.run(Said(DefinitionsChanged(INDEX_DEFINITIONS, definitions)))
    time = site.hudi_begins()
    site.storage.put(heartbeat_path(time), b"")
    change_config(site, **{METADATA_PARTITIONS.key: "column_stats,files"})
    site.storage.put(INDEX_DEFINITIONS, b"{}")
    if is_cut:
        site.storage.put(PROPERTIES, site.storage.read(PROPERTIES)[:100])
    site.clock.advance_ms(SURELY_MS + 1)
    site.commit()
    assert [one.requested_time for one in site.pending()] == [time]
    for config in (config_seen(site), load_table_config(site.storage, site.clock)):
        assert config.metadata_partitions == ()
    assert site.storage.read(INDEX_DEFINITIONS) == definitions


@pytest.mark.parametrize("writes", range(1, 6))
def test_n_183_who_dies_before_it_is_put_back_leaves_it_to_the_next(
    configured: Site, writes: int
) -> None:
    """The first write is the slot."""
    site = configured
    site.storage.put(heartbeat_path(site.hudi_begins()), b"")
    change_config(site, **{METADATA_PARTITIONS.key: "column_stats,files"})
    site.clock.advance_ms(SURELY_MS + 1)
    with suppress(Killed):
        replace(site, storage=DyingStorage(site.storage, writes)).commit("dead")
    assert config_seen(site).metadata_partitions == ()  # Whoever decides reads what slots say.
    site.commit()
    assert load_table_config(site.storage, site.clock).metadata_partitions == ()


def test_n_183_what_a_dead_write_of_it_left_as_it_was_is_not_written(configured: Site) -> None:
    site = configured
    site.commit()
    before = site.storage.read(PROPERTIES)
    site.storage.put(heartbeat_path(site.hudi_begins()), b"")
    site.clock.advance_ms(SURELY_MS + 1)
    site.commit()
    assert site.pending()
    assert site.storage.read(PROPERTIES) == before


@pytest.mark.parametrize("is_late", [False, True])
def test_n_183_indexes_made_before_something_of_ours_are_not_taken_over(
    configured: Site, is_late: bool
) -> None:
    site, file = configured, f"{METADATA}/column_stats/col-stats-0000-0_0-0-0_1.hfile"
    if not is_late:
        site.storage.put(file, b"")
    site.clock.advance_ms(10)
    site.commit()
    site.clock.advance_ms(10)
    if is_late:
        site.storage.put(file, b"")
    made = ("column_stats", "files", "record_index") if is_late else ()
    for _ in range(2):  # The second time, what is left of its table config is what we had put.
        hudi_writes(site, **{METADATA_PARTITIONS.key: "column_stats,files,record_index"})
        site.commit()
        for config in (config_seen(site), load_table_config(site.storage, site.clock)):
            assert config.metadata_partitions == made


def test_one_that_undid_what_we_had_decided_is_refused(configured: Site) -> None:
    site = configured
    before = site.storage.read(PROPERTIES)
    _, txn = site.process()
    txn.run(Said(ConfigChanged({INDEXES_TO_REBUILD.key: "column_stats"})))
    site.clock.advance_ms(10)
    time = site.hudi_begins()
    site.storage.put(PROPERTIES, before)  # It had read it earlier.
    site.hudi_completes(time)
    assert "hoodie.properties" in str(refused(site))
    assert config_seen(site).indexes_to_rebuild == ("column_stats",)


def test_births_of_indexes_that_it_dropped_are_forgotten(configured: Site) -> None:
    site = configured
    plan = time_of(1)
    births = f"column_stats:{plan}:1,record_index:{plan}:4"
    _, txn = site.process()
    txn.run(
        Said(
            ConfigChanged(
                {
                    METADATA_PARTITIONS.key: "column_stats,files,record_index",
                    INDEXES_PLANNED.key: births,
                }
            )
        )
    )
    hudi_writes(site, **{METADATA_PARTITIONS.key: "files,record_index"})
    site.commit()
    assert config_seen(site).indexes_planned == (f"record_index:{plan}:4",)


def test_definitions_that_it_changed_are_taken_over(configured: Site) -> None:
    site = configured
    written = encode_index_definitions({})
    site.storage.put(INDEX_DEFINITIONS, written)
    hudi_writes(site)
    site.commit()
    components, _ = site.process("reader")
    state = components.storage.journal.look().state  # type: ignore[attr-defined]
    assert state.paths[INDEX_DEFINITIONS].data == written
