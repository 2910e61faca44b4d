"""index: a builder of an index beside those who change the table (RFC-45, 5.8).

    index_toctou   a writer that commits while the index is planned, built and published
    index_clean    the same, and a cleaner that deletes what the build reads
    index_hole     two writers, so that one completes while the other is pending
    index_builders two builders of the same index, and a writer
    index_compacted  two writers, and a compaction of the metadata table
    index_skipped  two writers, a builder, and a compaction of the metadata table
    index_used     a writer, with an index in use
    index_again    a writer, while the index is cancelled and planned anew under its old name
    index_outrun   two writers that never stop, and a builder that is slower than both

The table has two versions of a file group when it begins, so that a cleaner finds work. Plans,
builds and commits are the product's; what the index holds is the toy's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from headwater.config.clean import CleanConfig
from headwater.errors import (
    CommitUnknownError,
    ConflictError,
    ErrorKind,
    FencedError,
    HeadwaterError,
)
from headwater.format.properties import encode_properties
from headwater.format.timeline.records import decode_record, encode_record
from headwater.kernel.layout import ATTEMPTS, HEARTBEATS, METADATA, METADATA_TIMELINE, PROPERTIES
from headwater.kernel.table_config import load_table_config
from headwater.kernel.timeline.active import Timeline, instant_path, load_active
from headwater.kernel.timeline.names import file_name
from headwater.kernel.txn.attempts import Attempt
from headwater.kernel.txn.events import Completed, MetadataCommitted, Requested, WentInflight
from headwater.kernel.txn.fenced import transaction_on
from headwater.kernel.txn.guard import run_started
from headwater.kernel.txn.heartbeat import Heartbeat
from headwater.kernel.txn.index_plan import (
    PlannedIndex,
    encode_index_plan,
    encode_index_result,
    pending_indexings,
)
from headwater.kernel.txn.markers import load_markers
from headwater.kernel.txn.metadata_commit import (
    IndexUpdate,
    MetadataCommit,
    load_index_partitions,
)
from headwater.kernel.txn.prefix import Needs, Prefix
from headwater.kernel.txn.rollback import Rollbacks
from headwater.kernel.txn.schedule import schedule_plan
from headwater.kernel.txn.transaction import Decision
from headwater.kernel.txn.writes import InflightWrite, start_inflight_write
from headwater.kernel.view.commits import CommitReader
from headwater.kernel.view.retention import earliest_to_retain
from headwater.kernel.view.table_view import load_listed_view
from headwater.metadata.indexing import Indexing, log_progress
from headwater.metadata.partition_files import is_catchup_log
from headwater.metadata.partition_kinds import file_id
from headwater.metadata.services import MetadataServices
from headwater.metadata.services import _schedule as schedule_metadata_compaction
from headwater.model.files import (
    BaseFile,
    FileGroupId,
    LogFile,
    parse_data_file,
    write_token,
)
from headwater.model.instant import (
    Action,
    Instant,
    InstantTime,
    State,
    instant_time_after,
    instant_time_at,
)
from headwater.model.plans import CleanerPlan
from headwater.seams.storage import Storage
from headwater.services.clean import (
    _floor_of,
    clean_metadata,
    listed_files,
    load_protected,
    plan_clean,
)
from headwater.testing.actor import Body, Process
from headwater.testing.check import (
    BEGUN,
    COMMITTED,
    ENDED,
    FAILED,
    FENCED,
    REFUSED,
    UNKNOWN,
    Checks,
)
from headwater.testing.check_index import (
    BUILT,
    NOT_BUILT,
    check_index_end,
    hear_of_index,
)
from headwater.testing.faults import Faults
from headwater.testing.history import Step
from headwater.testing.operation import Kind, Op
from headwater.testing.rows import (
    PARTITION,
    Row,
    attempt_of,
    base_file,
    config_of,
    encode_rows,
    files_of,
    metadata_of,
    put_rows,
    stat_of,
)
from headwater.testing.scenarios.guard import WORLD
from headwater.testing.scenarios.plan import (
    EXPIRY_MS,
    INTERVAL_MS,
    LOCK_TIMEOUT_MS,
    TOLERABLE_MISSES,
    claim_of,
    components_of,
    heartbeat_deadlines_ms,
)
from headwater.testing.schedule import Rarely
from headwater.testing.simulation import Scenario, Simulation, Violation
from headwater.testing.table import LAYOUT, TIMELINE, place_of, timeline_files
from headwater.testing.toy_index import (
    INDEX,
    ToyContent,
    ToyFold,
    ToyUpdate,
    encode_toy,
    encode_toy_commit,
)
from headwater.testing.world import World

CONFIG = config_of("COPY_ON_WRITE", {"hoodie.table.metadata.partitions": "files"})
GROUP = FileGroupId(PARTITION, "fg-1")
PLANNED = PlannedIndex(partition=INDEX, group_count=1)
TIMEOUT_MS = 3 * EXPIRY_MS
BUILDER_INTERVAL_MS = 5 * INTERVAL_MS
"""No heartbeat beats here, so a builder must live through its own waiting."""
BUILDER_EXPIRY_MS = BUILDER_INTERVAL_MS * TOLERABLE_MISSES
_PATIENT_INTERVAL_MS = 60_000
"""The same for writers that wait for the builder's turns; it is the default of the product."""

TIMED_OUT = "timed out"
IDLE = "idle"
OUTRUN = "outrun"
OUTRUN_COMMITS = 300
"""How many commits a writer makes before it says that an index will never be there.

Those of a table with a journal take fewer steps than the builder's own: it is there after 200 to
300 of them, at a thirtieth of the writers' speed."""
EARLY = "early"  # (instant): its writer looks for indexes when it begins, as RFC-45 says.

_TIMES = ("20251231235950000", "20251231235954000")
_BEFORE = tuple(
    Instant(InstantTime(t), Action.COMMIT, State.COMPLETED, InstantTime(f"{t[:14]}900"))
    for t in _TIMES
)
_FIRST_PLAN = InstantTime("20251231235958000")
_CHECKS = Checks(files_of=lambda data: _listed(data), attempt_of=attempt_of)


def _listed(content: bytes) -> list[str]:
    """Return the data files of a commit; a clean and an index plan list none."""
    try:
        return files_of(content)
    except HeadwaterError:
        return []


def index_toctou(faults: Faults, *, is_early: bool = False, group_count: int = 1) -> Scenario:
    """A writer and a builder. An early writer looks for indexes when it begins."""
    planned = replace(PLANNED, group_count=group_count)
    return _scenario(
        f"index_toctou{', early writer' if is_early else ''}",
        {"W": early_writer if is_early else writer, "X": builder(planned)},
        faults,
        marks=("published", "told by its builder", *(() if is_early else ("prepared again",))),
    )


def index_hole(faults: Faults) -> Scenario:
    """Two writers and a builder: what completes beside an older pending write is in the index."""
    scenario = _scenario(
        "index_hole",
        {"W": writer, "V": writer, "X": builder()},
        faults,
        marks=("published", "prepared again"),
    )
    return replace(scenario, twins=("W", "V"))


def index_builders(faults: Faults) -> Scenario:
    """Two who want the same index, and a writer."""
    scenario = _scenario(
        "index_builders",
        {"X": builder(), "Y": builder(), "W": writer},
        faults,
        marks=("published",),
    )
    return replace(scenario, twins=("X", "Y"))


def index_compacted(faults: Faults) -> Scenario:
    """Two writers, and somebody who compacts the metadata table of an index in use."""
    scenario = _scenario(
        "index_compacted",
        {"W": writer, "V": writer, "M": compactor},
        faults,
        marks=("folded",),
    )
    return replace(scenario, set_up=commit_before_and_build, twins=("W", "V"))


def index_skipped(faults: Faults) -> Scenario:
    """Two writers, a builder, and somebody who compacts the metadata table meanwhile (INV-80)."""
    scenario = _scenario(
        "index_skipped",
        {"W": writer, "V": writer, "X": builder(), "M": compactor},
        faults,
        marks=("published",),
    )
    return replace(scenario, twins=("W", "V"))


def index_used(faults: Faults) -> Scenario:
    """A writer, on a table whose index is in use."""
    scenario = _scenario("index_used", {"W": writer}, faults, marks=())
    return replace(scenario, set_up=commit_before_and_build)


def index_clean(faults: Faults) -> Scenario:
    """A builder, a cleaner and a writer."""
    return _scenario(
        "index_clean",
        {"X": builder(), "C": cleaner, "W": writer},
        faults,
        marks=("published", "cleaned while it was built"),
    )


def index_again(faults: Faults, *, is_first: bool = False) -> Scenario:
    """The index is planned; somebody cancels the plan, plans it anew and builds it.

    The first index of a table is told from its request on, and not only once it is announced.
    """
    scenario = _scenario(
        f"index_again{', first index' if is_first else ''}",
        {"W": writer, "X": rebuilder},
        faults,
        marks=("published", "prepared again"),
    )
    return replace(scenario, set_up=partial(commit_before_and_plan, is_first=is_first))


def index_outrun() -> Scenario:
    """Two writers commit until the index can be used; the builder is scheduled rarely (LIV-16).

    Run with `slow_builder`: a search would go on for ever.
    """
    scenario = _scenario(
        "index_outrun",
        {"V": busy_writer, "W": busy_writer, "X": builder(look_every_ms=1)},
        Faults(),
        marks=("published", "told by its builder", "prepared again"),
    )
    return replace(
        scenario,
        check_end=_check_not_outrun,
        steps_max=50_000,
        free_sleep_ms=200,  # Else no pause would end while others are at work.
    )


def slow_builder(seed: int) -> Rarely:
    return Rarely("X", 20 + 5 * seed)


def _check_not_outrun(simulation: Simulation) -> Iterator[Violation]:
    yield from _check_end(simulation)
    results = simulation.results()
    if results.get("X") != BUILT or OUTRUN in results.values():
        yield Violation("LIV-16", f"the build did not end while others committed: {results}")


def _scenario(
    name: str, actors: Mapping[str, Body], faults: Faults, *, marks: tuple[str, ...]
) -> Scenario:
    return Scenario(
        name=name,
        actors=actors,
        set_up=commit_before,
        invariants=(
            *_CHECKS.timeline(),
            *_CHECKS.guard(),
            *(i for i in _CHECKS.data() if i.id != "INV-59"),  # A clean deletes listed files.
        ),
        learn=_CHECKS.learn,
        hear=_hear,
        faults=faults,
        world=WORLD,
        deadlines_ms=heartbeat_deadlines_ms,
        check_end=_check_end,
        marks={mark: MARKS[mark] for mark in marks},
        is_private=is_private,
        has_eager_clocks=True,
        free_sleep_ms=0,
    )


def is_private(actor: str, op: Op) -> bool:
    """Whether a call reads what never changes, or is about what nobody else looks at."""
    if op.kind in (Kind.READ, Kind.READ_VERSIONED):
        return not op.target.startswith((PROPERTIES, f"{ATTEMPTS}/"))
    return op.target.startswith((f"{HEARTBEATS}/", LAYOUT.history, f"{PARTITION}/fg-{actor}"))


def _hear(step: Step, simulation: Simulation) -> None:
    _CHECKS.hear(step, simulation)
    hear_of_index(step, simulation)
    for note in step.notes:
        if note.name == EARLY:
            simulation.facts.learn((EARLY, note.values[0]))


def _check_end(simulation: Simulation) -> Iterator[Violation]:
    yield from check_index_end(simulation)
    if simulation.budgets != simulation.scenario.faults.budgets():
        return
    for actor, word in simulation.results().items():
        if word in (FAILED, NOT_BUILT, FENCED, UNKNOWN, TIMED_OUT):
            yield Violation("INV-76", f"{actor} ended {word} although nothing went wrong")


# The table before.


def commit_before(world: World) -> None:
    """Set up a table with two versions of one file, and a metadata table that has `files`."""

    def put(path: str, data: bytes = b"") -> None:
        world.apply("set-up", Op(Kind.PUT, path, data))

    properties = dict(CONFIG.to_properties())
    put(PROPERTIES, encode_properties(properties, comment="set up"))
    put(f"{METADATA}/.hoodie/hoodie.properties")
    for instant in _BEFORE:
        time = instant.requested_time
        file, data = base_file(GROUP, time, 1), encode_rows([Row("k", 0, time)])
        put(file.path, data)
        for state in (State.REQUESTED, State.INFLIGHT):
            put(f"{TIMELINE}/{file_name(time, instant.action, state)}")
        content = encode_record(metadata_of("UPSERT", [stat_of(file, data)]))
        put(f"{TIMELINE}/{file_name(*instant)}", content)


def commit_before_and_plan(world: World, *, is_first: bool = False) -> None:
    """Set up the same, with a plan whose builder has died, perhaps before it announced it."""
    commit_before(world)
    properties = {
        **CONFIG.to_properties(),
        **(
            {"hoodie.table.metadata.partitions": ""}
            if is_first
            else {"hoodie.table.metadata.partitions.inflight": INDEX}
        ),
    }
    encoded = encode_properties(properties, comment="set up")
    world.apply("set-up", Op(Kind.PUT, PROPERTIES, encoded))
    log = LogFile(INDEX, file_id(INDEX, 0), _FIRST_PLAN, 1, write_token(0, 0, 0))
    world.apply("set-up", Op(Kind.PUT, f"{METADATA}/{log.path}", encode_toy(())))
    plan = encode_index_plan([PLANNED], _BEFORE[-1].requested_time)
    for state in (State.REQUESTED, State.INFLIGHT):
        name = file_name(_FIRST_PLAN, Action.INDEXING, state)
        data = plan if state is State.REQUESTED else b""
        world.apply("set-up", Op(Kind.PUT, f"{TIMELINE}/{name}", data))


def commit_before_and_build(world: World) -> None:
    """Set up the same, with the index built and in use."""
    commit_before_and_plan(world)

    def put(path: str, data: bytes = b"") -> None:
        world.apply("set-up", Op(Kind.PUT, path, data))

    completion = InstantTime(f"{_FIRST_PLAN[:14]}900")
    token = write_token(0, 1, 0)
    base = BaseFile(INDEX, file_id(INDEX, 0), token, _FIRST_PLAN, "hfile")
    paths = [base_file(GROUP, instant.requested_time, 1).path for instant in _BEFORE]
    put(f"{METADATA}/{base.path}", encode_toy(paths))
    action = Action.DELTA_COMMIT
    for state in (State.REQUESTED, State.INFLIGHT):
        put(f"{METADATA_TIMELINE}/{file_name(_FIRST_PLAN, action, state)}")
    name = file_name(_FIRST_PLAN, action, State.COMPLETED, completion)
    put(f"{METADATA_TIMELINE}/{name}", encode_toy_commit([], [INDEX]))
    done = file_name(_FIRST_PLAN, Action.INDEXING, State.COMPLETED, completion)
    put(f"{TIMELINE}/{done}", encode_index_result([PLANNED], _FIRST_PLAN))
    properties = {
        **CONFIG.to_properties(),
        "hoodie.table.metadata.partitions": f"{INDEX},files",
    }
    put(PROPERTIES, encode_properties(properties, comment="set up"))


# Who builds.


def indexing_of(process: Process) -> Indexing:
    components = components_of(process)
    txn = transaction_on(components, LAYOUT, lock_timeout_ms=LOCK_TIMEOUT_MS)
    rollbacks = Rollbacks(
        components=components,
        txn=txn,
        layout=LAYOUT,
        load_markers=load_markers,
        interval_ms=INTERVAL_MS,
        tolerable_misses=TOLERABLE_MISSES,
    )
    return Indexing(
        components=components,
        txn=txn,
        layout=LAYOUT,
        content=ToyContent(process.storage),
        roll_back=rollbacks.roll_back,
        is_dead_elsewhere=rollbacks.is_left,
        interval_ms=BUILDER_INTERVAL_MS,
        tolerable_misses=TOLERABLE_MISSES,
        timeout_ms=TIMEOUT_MS,
        look_every_ms=EXPIRY_MS,
        report=log_progress,
    )


def builder(
    planned: PlannedIndex = PLANNED, rounds: int = 3, look_every_ms: int = EXPIRY_MS
) -> Body:
    """Return an actor that plans the index, unless that was done, and builds it."""

    def body(process: Process) -> str:
        indexing = replace(indexing_of(process), look_every_ms=look_every_ms)
        word = REFUSED
        for tried in range(rounds):
            if tried:
                process.clock.sleep_ms(BUILDER_EXPIRY_MS)
            process.note(BEGUN)
            word = _word(partial(_build, indexing, process, planned))
            if word != REFUSED:
                break
        return _of_builder(word)

    return body


def _build(indexing: Indexing, process: Process, planned: PlannedIndex) -> str:
    indexing.finish()
    pending = pending_indexings(load_active(process.storage, TIMELINE))
    plan = pending[0] if pending else indexing.schedule([planned])
    if plan is None:
        return BUILT
    indexing.run(plan.requested_time)
    return BUILT


def rebuilder(process: Process) -> str:
    """Cancel the plan that there is, plan the index anew and build it."""
    indexing = indexing_of(process)
    process.note(BEGUN)

    def again() -> str:
        pending = pending_indexings(load_active(process.storage, TIMELINE))
        if pending and pending[0].requested_time == _FIRST_PLAN:
            indexing.cancel(_FIRST_PLAN)
        return _build(indexing, process, PLANNED)

    return _of_builder(_word(again))


def _of_builder(word: str) -> str:
    return NOT_BUILT if word == FAILED else word


def _word(call: Callable[[], str]) -> str:
    try:
        return call()
    except CommitUnknownError:
        return UNKNOWN
    except FencedError:
        return FENCED
    except ConflictError as conflict:
        if conflict.kind is ErrorKind.INDEX_TIMEOUT:
            return TIMED_OUT
        return REFUSED if conflict.kind is ErrorKind.ALREADY_RUNNING else FAILED
    except HeadwaterError:
        return FAILED


# Who changes the table.


@dataclass(frozen=True, slots=True)
class _StartForeign:
    """Begin a write as another engine does: without an attempt."""

    def needs(self, timeline: Timeline) -> Needs:
        return Needs()

    def decide(self, prefix: Prefix) -> Decision[InstantTime]:
        # Not the time that somebody has claimed who died: nothing told the other engine of that.
        time = instant_time_after(prefix.next_time, 1)
        begun = (Requested(time, Action.COMMIT), WentInflight(time, Action.COMMIT, b""))
        return Decision(begun, time)


@dataclass(frozen=True, slots=True)
class _CompleteForeign:
    """Commit with entries for the indexes that there were when the write began (H-49)."""

    time: InstantTime
    content: bytes
    metadata: MetadataCommit

    def needs(self, timeline: Timeline) -> Needs:
        return Needs()

    def decide(self, prefix: Prefix) -> Decision[None]:
        done = prefix.next_time
        return Decision(
            (
                MetadataCommitted(self.time, done, self.metadata.content),
                Completed(self.time, Action.COMMIT, done, self.content),
            ),
            None,
        )


def writer(process: Process) -> str:
    """Commit one new file, and tell the indexes."""
    process.note(BEGUN)
    word, time = _write(process)
    process.note(ENDED, word, time)
    return word


def busy_writer(process: Process) -> str:
    """Commit over and over, until the index is in use or that has taken too long."""
    for _ in range(OUTRUN_COMMITS):
        process.note(BEGUN)
        word, time = _write(process, _PATIENT_INTERVAL_MS)
        process.note(ENDED, word, time)
        if word != COMMITTED:
            return word
        if INDEX in load_table_config(process.storage, process.clock).metadata_partitions:
            return COMMITTED
    return OUTRUN


def _write(process: Process, interval_ms: int = INTERVAL_MS) -> tuple[str, InstantTime]:
    claim = claim_of(process, interval_ms)
    components = components_of(process)
    txn = transaction_on(components, LAYOUT, lock_timeout_ms=LOCK_TIMEOUT_MS)
    time = InstantTime("")
    write: InflightWrite | None = None
    try:
        write = start_inflight_write(components, txn, Action.COMMIT, claim, b"")
        time = write.instant_time
        update = _update(process, time, write.attempt.attempt)
        content = _put_file(process, time)
        write.commit(content, None, update)
    except CommitUnknownError:
        return UNKNOWN, time
    except FencedError:
        return FENCED, time
    except HeadwaterError:
        if write is not None:
            write.abandon()
        return FAILED, time
    return COMMITTED, time


def early_writer(process: Process) -> str:
    """Commit one new file as another engine does: it looks for indexes when it begins (H-49)."""
    process.note(BEGUN)
    components = components_of(process)
    txn = transaction_on(components, LAYOUT, lock_timeout_ms=LOCK_TIMEOUT_MS)

    def write() -> str:
        time = txn.run(_StartForeign()).result
        process.note(EARLY, time)
        update = _update(process, time, 1)
        content = _put_file(process, time)
        txn.run(_CompleteForeign(time, content, update.prepare(update.seen)))
        return COMMITTED

    return _word(write)


def _put_file(process: Process, time: InstantTime) -> bytes:
    """Write the file of a write; return its commit metadata."""
    file = base_file(FileGroupId(PARTITION, f"fg-{process.name}"), time, 1)
    stat = put_rows(process.storage, file, [Row("w", 0, time)])
    return encode_record(metadata_of("UPSERT", [stat]))


def _update(process: Process, time: InstantTime, attempt: int) -> ToyUpdate:
    timeline = load_active(process.storage, TIMELINE)
    seen = load_index_partitions(process.storage, process.clock, LAYOUT, timeline)
    file = base_file(FileGroupId(PARTITION, f"fg-{process.name}"), time, attempt)
    return ToyUpdate(process.storage, time, attempt, ([file.path], []), seen)


def cleaner(process: Process) -> str:
    """Plan a clean as the product does, and execute it."""
    components = components_of(process)
    txn = transaction_on(components, LAYOUT, lock_timeout_ms=LOCK_TIMEOUT_MS)

    def clean() -> str:
        process.note(BEGUN)
        plan = _plan_clean(process)
        if plan is None:
            return IDLE
        made = encode_record(plan)
        started = schedule_plan(txn, Action.CLEAN, lambda: made, lambda: claim_of(process))
        if started is None:
            return IDLE
        work = _Clean(process.storage)
        update = partial(_clean_update, process)
        run_started(components, txn, started, work, update=update)
        return COMMITTED

    return _word(clean)


def _plan_clean(process: Process) -> CleanerPlan | None:
    config = CleanConfig(commits_retained=1)
    view = load_listed_view(process.storage, load_table_config(process.storage, process.clock))
    now = instant_time_at(process.clock.now_ms())
    earliest = earliest_to_retain(view.timeline, config, now)
    commits = CommitReader(process.storage, LAYOUT)
    floor = _floor_of(view.timeline, commits, earliest)
    if earliest is None or floor is None:
        return None
    protected = load_protected(view, commits, floor, folder=TIMELINE)
    return plan_clean(view, protected, config, earliest, "")


@dataclass(frozen=True, slots=True)
class _Clean:
    storage: Storage

    def undo_before(self, attempt: Attempt) -> None:
        """Undo no deletion."""

    def plan(self, time: InstantTime) -> CleanerPlan:
        instant = Instant(time, Action.CLEAN, State.REQUESTED)
        path = instant_path(TIMELINE, instant, State.REQUESTED)
        return decode_record(CleanerPlan, self.storage.read(path), path=path)

    def execute(self, attempt: Attempt, heartbeat: Heartbeat) -> bytes:
        plan = self.plan(attempt.instant)
        for file in listed_files(plan, path=""):
            self.storage.delete(file.path)
        return encode_record(clean_metadata(plan, attempt.instant, 0, path=""))


def _clean_update(process: Process, attempt: Attempt) -> IndexUpdate:
    timeline = load_active(process.storage, TIMELINE)
    seen = load_index_partitions(process.storage, process.clock, LAYOUT, timeline)
    plan = _Clean(process.storage).plan(attempt.instant)
    gone = [file.path for file in listed_files(plan, path="")]
    return ToyUpdate(process.storage, attempt.instant, attempt.attempt, ([], gone), seen)


def compactor(process: Process) -> str:
    """Plan a compaction of the metadata table as the product does, and fold toy entries."""
    upkeep = MetadataServices(
        components=components_of(process),
        config=load_table_config(process.storage, process.clock),
        commits=1,
        claim=lambda: claim_of(process),
        lock_timeout_ms=LOCK_TIMEOUT_MS,
    )
    txn = upkeep.transaction()

    def compact() -> str:
        started = schedule_metadata_compaction(upkeep, txn)
        if started is None:
            return IDLE
        run_started(upkeep.own, txn, started, ToyFold(upkeep.own.storage))
        return COMMITTED

    return _word(compact)


# Situations that the search must have met, or it proves nothing.


def _is_published(step: Step, simulation: Simulation) -> bool:
    return (
        step.path == PROPERTIES
        and INDEX.encode()
        in (step.after or b"").split(b"hoodie.table.metadata.partitions=")[-1].split(b"\n")[0]
    )


def _is_prepared_again(step: Step, simulation: Simulation) -> bool:
    """Whether a writer tells the index what it has not when it first prepared."""
    if step.actor not in "WV" or step.after is None or step.before is not None:
        return False
    is_log = step.path.startswith(f"{METADATA}/{INDEX}/.")
    return is_log and any(f.action is Action.INDEXING for f in timeline_files(simulation.world))


def _is_told_by_builder(step: Step, simulation: Simulation) -> bool:
    """Whether the builder tells the index what a writer has not."""
    if step.actor != "X" or step.after is None:
        return False
    file = parse_data_file(step.path)
    return file is not None and is_catchup_log(file)


def _is_cleaned_meanwhile(step: Step, simulation: Simulation) -> bool:
    file = place_of(step.path).file if step.path and step.after is not None else None
    if file is None or file.action is not Action.CLEAN or file.state is not State.COMPLETED:
        return False
    states = [f.state for f in timeline_files(simulation.world) if f.action is Action.INDEXING]
    return State.REQUESTED in states and State.COMPLETED not in states


def _is_folded(step: Step, simulation: Simulation) -> bool:
    return step.path.startswith(METADATA_TIMELINE) and step.path.endswith(".commit")


MARKS: Mapping[str, Callable[[Step, Simulation], bool]] = {
    "folded": _is_folded,
    "published": _is_published,
    "prepared again": _is_prepared_again,
    "told by its builder": _is_told_by_builder,
    "cleaned while it was built": _is_cleaned_meanwhile,
}
