"""beside_hudi: a fenced table on which Apache Hudi writes too, which knows nothing of the journal.

    hudi_beside     a writer of ours that writes twice, and one of Hudi's
    hudi_beside_two two writers of ours, and one of Hudi's
    hudi_dead       as hudi_beside, and a write of Hudi's may count as dead although it goes on
    hudi_eager      a writer of ours, and one of Hudi's that rolls back whatever is pending first
    hudi_clustered  a clustering of ours, and a writer of Hudi's that appends to what it replaces

But for the last two all rewrite one file group, so that whoever has not seen another takes back
what that one wrote.
Hudi acts by the files alone: it puts its request on the timeline, looks at the table, writes a base
file and completes, whatever anybody does meanwhile. What of it a slot adopts counts as a commit
from there on and is checked like one of ours; the rest is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from headwater.config.table import TableConfig
from headwater.config.table_options import FENCED as IS_FENCED
from headwater.config.table_options import METADATA_PARTITIONS
from headwater.errors import raise_internal
from headwater.format.properties import encode_properties
from headwater.format.timeline.records import encode_record
from headwater.kernel.journal.journal import Journal
from headwater.kernel.journal.storage import JournaledStorage
from headwater.kernel.layout import CLOCK, HEARTBEATS, JOURNAL, PROPERTIES, heartbeat_path
from headwater.kernel.new_table import NewTable, plan_table_config
from headwater.kernel.timeline.active import Timeline, instant_path, parse_timeline
from headwater.kernel.txn.events import ConfigChanged, Event
from headwater.kernel.txn.fenced import transaction_on
from headwater.kernel.txn.foreign import ForeignRule, PendingElsewhere
from headwater.kernel.txn.prefix import Needs, Prefix
from headwater.kernel.txn.transaction import Decision, Transaction
from headwater.kernel.view.table_view import TableView
from headwater.metadata.view import load_view
from headwater.model.commit_metadata import WriteStat
from headwater.model.files import FileGroupId
from headwater.model.instant import Action, Instant, InstantTime, State, instant_time_at
from headwater.model.service_metadata import RollbackMetadata
from headwater.seams.clock import Timer
from headwater.seams.components import Components
from headwater.seams.storage import Storage
from headwater.testing.actor import Body, Process
from headwater.testing.check import COMMITTED, ENDED, FAILED
from headwater.testing.check_others import learn_others, others_invariants
from headwater.testing.check_rows import PLANNED, RowChecks
from headwater.testing.faults import Faults
from headwater.testing.fenced import fenced
from headwater.testing.fenced_world import AREAS, FencedWorld
from headwater.testing.history import Step
from headwater.testing.operation import Kind, Op
from headwater.testing.rows import (
    PARTITION,
    Row,
    base_file,
    log_file,
    metadata_of,
    put_rows,
    read_slice,
)
from headwater.testing.scenarios.nbcc import CONFIG as BUCKETS
from headwater.testing.scenarios.nbcc import REPLACERS, nbcc_replace
from headwater.testing.scenarios.occ import CONFIG, FIRST, SECOND, rewrite
from headwater.testing.scenarios.plan import EXPIRY_MS, LOCK_TIMEOUT_MS, heartbeat_deadlines_ms
from headwater.testing.scenarios.writes import Write, writer
from headwater.testing.seams import SimClock, SimIds, SimLock, SimStorage
from headwater.testing.simulation import Scenario, Simulation, Violation
from headwater.testing.table import LAYOUT, TIMELINE
from headwater.testing.world import World, WorldRules

SCHEMA = pa.schema([("id", pa.string())])
HUDI = "H"
_BEAT_MS = 1_000
"""How much time passes before anything that Hudi puts on the timeline: ours give out a few
milliseconds each."""
_TIMED = (".hoodie/.attempts/", f"{TIMELINE}/", f"{HEARTBEATS}/", CLOCK)
_WORLD = WorldRules(counts=False, timed=_TIMED)


def hudi_beside(faults: Faults, *, marks: tuple[str, ...] = ()) -> Scenario:
    return _with_hudi(_rewriting("hudi_beside", faults), marks)


def hudi_beside_two(faults: Faults, *, marks: tuple[str, ...] = ()) -> Scenario:
    return _with_hudi(_rewriting("hudi_beside_two", faults, writers="WV", rounds=1), marks)


def hudi_dead(faults: Faults, *, marks: tuple[str, ...] = ()) -> Scenario:
    rule = ForeignRule(expiry_ms=EXPIRY_MS, silence_ms=EXPIRY_MS)
    return _with_hudi(_rewriting("hudi_dead", faults, rule=rule), marks)


def hudi_eager(faults: Faults, *, marks: tuple[str, ...] = ()) -> Scenario:
    """Its rollback falls neither between a slot and its files nor on a commit of that moment: what
    has completed for us only, it takes back, as it would with a lock."""
    scenario = _with_hudi(_rewriting("hudi_eager", faults), marks, _eager_hudi)

    def is_private(actor: str, op: Op) -> bool:
        is_rest = op.kind is not Kind.SLEEP if actor == HUDI else _follows_slot(op)
        return is_rest or scenario.is_private(actor, op)

    return replace(scenario, is_private=is_private)


def hudi_clustered(faults: Faults, *, marks: tuple[str, ...] = ()) -> Scenario:
    scenario = nbcc_replace(faults, by="clustering")
    actors = {"C": REPLACERS["clustering"]}

    def set_up(world: World) -> None:
        _new_table(world)
        scenario.set_up(world)

    # Hudi's non-blocking writers keep off no plan. Whose rows get lost over it says INV-81.
    invariants = tuple(one for one in scenario.invariants if one.id != "INV-64")
    changed = replace(
        scenario,
        name="hudi_clustered",
        actors=actors,
        set_up=set_up,
        invariants=invariants,
        world=_WORLD,
        twins=(),
    )
    return _with_hudi(changed, marks, _appending_hudi)


def _rewriting(
    name: str,
    faults: Faults,
    *,
    writers: str = "W",
    rounds: int = 2,
    rule: ForeignRule | None = None,
) -> Scenario:
    """Return writers of one file group, which write several times."""
    checks = RowChecks(config=CONFIG)

    def transaction(components: Components) -> Transaction:
        elsewhere = PendingElsewhere(rule=rule, expiry_ms=EXPIRY_MS)
        return transaction_on(
            components, LAYOUT, lock_timeout_ms=LOCK_TIMEOUT_MS, elsewhere=elsewhere
        )

    write = Write(config=CONFIG, action=Action.COMMIT, fill=rewrite(FIRST), transaction=transaction)
    return Scenario(
        name=name,
        actors=dict.fromkeys(writers, _again(writer(write), rounds)),
        set_up=_new_table,
        invariants=checks.invariants(),
        learn=checks.learn,
        hear=checks.hear,
        faults=faults,
        world=_WORLD,
        deadlines_ms=heartbeat_deadlines_ms,
        is_private=_is_private,
        has_eager_clocks=True,
    )


def _with_hudi(scenario: Scenario, marks: tuple[str, ...], body: Body | None = None) -> Scenario:
    """Return a scenario on a table with a journal that has begun, and Hudi beside it."""
    wrapped = fenced(
        replace(
            scenario,
            actors={**scenario.actors, HUDI: body or _hudi},
            marks={mark: MARKS[mark] for mark in marks},
            check_end=_check_outcome,
        )
    )

    def learn(step: Step, simulation: Simulation) -> None:
        wrapped.learn(step, simulation)
        learn_others(step, simulation)

    return replace(
        wrapped,
        invariants=(*wrapped.invariants, *others_invariants()),
        learn=learn,
        world=replace(_WORLD, make=_begun),
    )


def _new_table(world: World) -> None:
    new = NewTable(location="t", schema=SCHEMA, record_key=("id",))
    config = plan_table_config(new, {IS_FENCED.key: IS_FENCED.encode(True)})
    data = encode_properties(config.to_properties(), comment="set up")
    world.apply("set-up", Op(Kind.PUT, PROPERTIES, data))


def _begun(world: World) -> FencedWorld:
    """Return the world of a table whose journal has a slot."""
    made = FencedWorld.over(world, others=frozenset({HUDI}))

    def call(op: Op) -> object:
        return made.act("set-up", op)[0]

    clock, ids = SimClock(call, no_timer), SimIds("set-up", 1)
    journal = Journal(SimStorage(call), clock, ids, AREAS)
    components = Components(JournaledStorage(journal), clock, ids, SimLock(call))
    transaction_on(components, LAYOUT).run(_Said(ConfigChanged({METADATA_PARTITIONS.key: ""})))
    return made


def no_timer(interval_ms: int, call: Callable[[], bool], name: str) -> Timer:
    raise_internal("The set-up has no use for a timer", name=name)


@dataclass(frozen=True, slots=True)
class _Said:
    """A step of one event."""

    event: Event

    def needs(self, timeline: Timeline) -> Needs:
        return Needs()

    def decide(self, prefix: Prefix) -> Decision[None]:
        return Decision((self.event,), None)


def _is_private(actor: str, op: Op) -> bool:
    """Whether a call is about what nobody else looks at, or reads what nobody else changes."""
    is_own = op.target.startswith(".hoodie/.attempts/")
    return is_own or (op.kind is Kind.READ and op.target.startswith(f"{PARTITION}/"))


def _follows_slot(op: Op) -> bool:
    is_look = op.kind is Kind.LIST_NAMES and op.target == JOURNAL
    return is_look or op.target.startswith(f"{HEARTBEATS}/")


def _again(body: Body, rounds: int) -> Body:
    def again(process: Process) -> str:
        return " ".join(str(body(process)) for _ in range(rounds))

    return again


Fill = Callable[[Storage, TableView, InstantTime], WriteStat]
"""Write a data file as of a view."""


def _hudi(process: Process) -> str:
    return _write(process, CONFIG, Action.COMMIT, partial(_rewritten, FIRST))


def _appending_hudi(process: Process) -> str:
    return _write(process, BUCKETS, Action.DELTA_COMMIT, _appended)


def _eager_hudi(process: Process) -> str:
    """Write as under the eager policy: whatever is pending has failed."""
    assert isinstance(process.storage, JournaledStorage)
    storage, clock = process.storage.stored, process.clock
    clock.sleep_ms(_BEAT_MS)
    for number, one in enumerate(parse_timeline(storage.list_names(TIMELINE)).pending):
        _roll_back(storage, clock.now_ms() + 2 * number, one)
    # To another group, so that no conflict hides what was rolled back.
    return _write(process, CONFIG, Action.COMMIT, partial(_rewritten, SECOND))


def _rewritten(
    group: FileGroupId, storage: Storage, view: TableView, time: InstantTime
) -> WriteStat:
    slices = {one.group: one for one in view.slices([PARTITION])}
    rows = dict(read_slice(storage, slices[group])) if group in slices else {}
    rows[HUDI] = Row(HUDI, 0, time)
    return put_rows(storage, base_file(group, time, 0), rows.values())


def _appended(storage: Storage, view: TableView, time: InstantTime) -> WriteStat:
    group = view.slices([PARTITION])[0].group
    return put_rows(storage, log_file(group, time, 0), [Row(HUDI, 0, time)])


def _roll_back(storage: Storage, now_ms: int, dead: Instant) -> None:
    time = instant_time_at(now_ms)
    for state in (State.REQUESTED, State.INFLIGHT):
        storage.put(instant_path(TIMELINE, Instant(time, Action.ROLLBACK, state)), b"")
    for info in list(storage.list_tree(PARTITION)):
        if info.path.endswith(f"_{dead.requested_time}.parquet"):
            storage.delete(info.path)
    for name in storage.list_names(TIMELINE):
        if name.startswith(dead.requested_time):
            storage.delete(f"{TIMELINE}/{name}")
    done = Instant(time, Action.ROLLBACK, State.COMPLETED, instant_time_at(now_ms + 1))
    metadata = RollbackMetadata(
        start_rollback_time=time,
        time_taken_in_millis=0,
        total_files_deleted=1,
        commits_rollback=(dead.requested_time,),
        partition_metadata={},
    )
    storage.put(instant_path(TIMELINE, done), encode_record(metadata))


def _write(process: Process, config: TableConfig, action: Action, fill: Fill) -> str:
    """Write as Hudi does that is alone on a table: it asks nobody."""
    assert isinstance(process.storage, JournaledStorage)
    storage, clock = process.storage.stored, process.clock
    clock.sleep_ms(_BEAT_MS)
    time = instant_time_at(clock.now_ms())
    storage.put(heartbeat_path(time), b"")
    for state in (State.REQUESTED, State.INFLIGHT):
        storage.put(instant_path(TIMELINE, Instant(time, action, state)), b"")
    view = load_view(storage, config)
    process.note(PLANNED, time, view.instant or "")
    stat = fill(storage, view, time)
    clock.sleep_ms(_BEAT_MS)
    done = Instant(time, action, State.COMPLETED, instant_time_at(clock.now_ms()))
    storage.put(instant_path(TIMELINE, done), encode_record(metadata_of("UPSERT", [stat])))
    storage.delete(heartbeat_path(time))
    return COMMITTED


def _check_outcome(simulation: Simulation) -> Iterator[Violation]:
    if simulation.budgets != simulation.scenario.faults.budgets():
        return
    results = simulation.results()
    if results[HUDI] != COMMITTED:
        yield Violation("INV-84", f"{HUDI} ended {results[HUDI]}")


def _is_adopted(step: Step, simulation: Simulation) -> bool:
    world = simulation.world
    assert isinstance(world, FencedWorld)
    return any(path in world.state.paths for path in world.foreign)


def _is_refused(step: Step, simulation: Simulation) -> bool:
    return any(note.name == ENDED and note.values[:1] == (FAILED,) for note in step.notes)


MARKS: Mapping[str, Callable[[Step, Simulation], bool]] = {
    "adopted": _is_adopted,
    "refused": _is_refused,
}
