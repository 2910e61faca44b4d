"""cancel: one cancellable clustering P, and who executes, overrides, aborts and archives it (R90).

    cancel_commit        an executor and a write                    5.3, 5.5, 5.6, INV-14, INV-15
    cancel_stall         the same, and a cleaner                    5.4, INV-12
    cancel_two_aborters  two cleaners and an executor               INV-20, INV-30
    cancel_archive       a write, a cleaner and an archiver         H-02, H-06, INV-36 to INV-38

The table has one file group. P is to replace it and the write to change it, so that at most one of
them may have its way: the write, unless P has completed when the write looked for plans to cancel.
Heartbeats are touched once, so a tick is a stall of their owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from headwater.errors import (
    CommitUnknownError,
    ConflictError,
    ErrorKind,
    FencedError,
    HeadwaterError,
    StorageError,
)
from headwater.format.timeline.records import encode_record
from headwater.kernel.layout import HEARTBEATS, attempt_path, cancel_path
from headwater.kernel.timeline.active import Timeline, load_active
from headwater.kernel.timeline.names import file_name
from headwater.kernel.txn.attempts import Attempt, encode_attempt
from headwater.kernel.txn.cancel import AbortedPlan, Cancellations, undo_announced
from headwater.kernel.txn.cancel_overlapped import cancel_overlapped
from headwater.kernel.txn.cancel_records import CancelEntry, encode_entry
from headwater.kernel.txn.changes import change_of, load_changes
from headwater.kernel.txn.conflicts import ConflictCheck, Snapshot
from headwater.kernel.txn.fenced import transaction_on
from headwater.kernel.txn.guard import Executed
from headwater.kernel.txn.heartbeat import Heartbeat
from headwater.kernel.txn.markers import (
    Marker,
    MarkerKind,
    create_marker,
    delete_markers,
    load_markers,
    marker_path,
)
from headwater.kernel.txn.prefix import load_cancelled
from headwater.kernel.txn.writes import InflightWrite, start_inflight_write
from headwater.kernel.view.commits import CompletedCommit
from headwater.kernel.view.table_view import TableView
from headwater.metadata.view import load_view
from headwater.model.commit_metadata import CommitMetadata
from headwater.model.files import FileGroupId
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.plan_flags import PlanFlags
from headwater.model.plans import (
    ClusteringGroup,
    ClusteringPlan,
    RequestedReplace,
    SliceInfo,
)
from headwater.seams.storage import Storage
from headwater.services.cancel_by_policy import cancel_and_abort_by_policy
from headwater.testing.actor import Body, Process
from headwater.testing.check import (
    ABORTED,
    BEGUN,
    COMMITTED,
    ENDED,
    FAILED,
    FENCED,
    REFUSED,
    RETURNED,
    UNKNOWN,
    Checks,
)
from headwater.testing.check_cancel import (
    LOST_TO,
    PUBLISHED,
    CancelChecks,
    check_left_behind,
    is_aborted,
)
from headwater.testing.check_rows import PLANNED, Done, RowChecks, done_of
from headwater.testing.faults import Faults
from headwater.testing.history import Step
from headwater.testing.operation import Kind, Op
from headwater.testing.rows import (
    PARTITION,
    Row,
    attempt_of,
    base_file,
    config_of,
    decode_rows,
    encode_rows,
    files_of,
    metadata_of,
    put_rows,
    read_slice,
    stat_of,
)
from headwater.testing.scenarios.guard import WORLD
from headwater.testing.scenarios.occ import ARCHIVED, IDLE, archiver
from headwater.testing.scenarios.plan import (
    DEAD,
    EXPIRY_MS,
    INTERVAL_MS,
    LOCK_TIMEOUT_MS,
    PLAN,
    TOLERABLE_MISSES,
    claim_of,
    components_of,
    heartbeat_deadlines_ms,
)
from headwater.testing.scenarios.writes import LOST
from headwater.testing.simulation import Invariant, Scenario, Simulation, Violation
from headwater.testing.table import LAYOUT, TIMELINE, Area, current_state, place_of
from headwater.testing.world import World, WorldRules

CONFIG = config_of("COPY_ON_WRITE")
GROUP = FileGroupId(PARTITION, "fg-1")
CLUSTERED = FileGroupId(PARTITION, "fg-2")

CANCELLED = "cancelled"  # The plan is, and somebody else aborts it.

_BEFORE = Instant(
    InstantTime("20251231235957000"),
    Action.COMMIT,
    State.COMPLETED,
    InstantTime("20251231235958000"),
)
_OLD_FILE = base_file(GROUP, _BEFORE.requested_time, 1)
_BASIC = Checks(files_of=files_of, attempt_of=attempt_of)

MakeCancellations = Callable[..., Cancellations]
Clean = Callable[[Cancellations], str]


def cancel_commit(
    faults: Faults,
    *,
    make: MakeCancellations = Cancellations,
    write: Body | None = None,
) -> Scenario:
    """An executor and a write."""
    marks = ["plan committed", "write committed", "write lost", "plan overtaken", "plan aborted"]
    actors = {"E": executor(make=make), "I": write or ingestion()}
    return _scenario("cancel_commit", actors, faults, marks, has_rows=True)


def cancel_stall(faults: Faults, *, make: MakeCancellations = Cancellations) -> Scenario:
    """An executor that may stall, a write that overrides it, and a cleaner."""
    marks = ["write committed", "plan aborted"]
    if faults.ticks:
        marks += ["plan aborted by the cleaner", "executor fenced"]
    actors = {
        "E": executor(make=make, rounds=1),
        "I": ingestion(),
        "C": cleaner(clean=abort_the_plan),
    }
    return _scenario("cancel_stall", actors, faults, marks)


def cancel_two_aborters(faults: Faults, *, make: MakeCancellations = Cancellations) -> Scenario:
    """A cancelled plan with files of a dead attempt, two cleaners, and one who would execute it."""
    scenario = _scenario(
        "cancel_two_aborters",
        {
            "C": cleaner(make=make, clean=abort_the_plan),
            "D": cleaner(make=make, clean=abort_the_plan),
            "E": executor(make=make, rounds=1),
        },
        faults,
        ["plan aborted"],
    )
    return replace(scenario, set_up=set_up_cancelled, twins=("C", "D"))


def cancel_archive(faults: Faults, *, make: MakeCancellations = Cancellations) -> Scenario:
    """A write that cancels the plan, a cleaner that aborts it, an archiver that takes it away."""
    return _scenario(
        "cancel_archive",
        {
            "I": ingestion(),
            "C": cleaner(make=make, rounds=1, clean=abort_the_plan),
            "A": archiver(choose_ended),
        },
        faults,
        ["archived", "aborted plan archived"],
    )


def cancel_archived(faults: Faults, *, make: MakeCancellations = Cancellations) -> Scenario:
    """One who wants to cancel a clustering that has completed, a cleaner and an archiver (H-02)."""
    scenario = _scenario(
        "cancel_archived",
        {
            "Q": requester(make=make),
            "C": cleaner(make=make, rounds=1, clean=abort_the_plan),
            "A": archiver(choose_ended),
        },
        faults,
        ["archived"],
    )
    return replace(scenario, set_up=set_up_completed, check_end=_check_nothing_cancelled)


def _scenario(
    name: str,
    actors: Mapping[str, Body],
    faults: Faults,
    marks: Iterable[str],
    *,
    has_rows: bool = False,
) -> Scenario:
    """Return a scenario; `has_rows` compares every view with the reference, which is costly."""
    rows = RowChecks(config=CONFIG, before=(_done_before(),))
    cancels = CancelChecks(_BASIC)
    basic = rows.invariants() if has_rows else _BASIC.all()
    learn, hear = (rows.learn, rows.hear) if has_rows else (_BASIC.learn, _BASIC.hear)

    def learn_all(step: Step, simulation: Simulation) -> None:
        learn(step, simulation)
        cancels.learn(step, simulation)

    def hear_all(step: Step, simulation: Simulation) -> None:
        hear(step, simulation)
        cancels.hear(step, simulation)

    invariants: tuple[Invariant, ...] = (*basic, *cancels.invariants())
    return Scenario(
        name=name,
        actors=actors,
        set_up=set_up,
        invariants=invariants,
        learn=learn_all,
        hear=hear_all,
        faults=faults,
        world=WORLD,
        deadlines_ms=heartbeat_deadlines_ms,
        check_end=check_outcome,
        marks={mark: MARKS[mark] for mark in marks},
        is_private=_is_private,
        has_eager_clocks=True,
    )


def _is_private(actor: str, op: Op) -> bool:
    """Whether a call is about what only stock Hudi looks at, or reads what never changes."""
    is_data = op.kind is Kind.READ and op.target.startswith(f"{PARTITION}/")
    return is_data or op.target.startswith(f"{HEARTBEATS}/")


def is_entry(actor: str, op: Op) -> bool:
    """Whether a call is about an entry in `.cancel`, the one object that may land late (H-06)."""
    return place_of(op.target).area is Area.CANCEL


# The table before.


def plan_content(flags: PlanFlags) -> bytes:
    """Return the request of P."""
    info = SliceInfo(
        data_file_path=_OLD_FILE.path, file_id=GROUP.file_id, partition_path=GROUP.partition
    )
    plan = ClusteringPlan(
        input_groups=(ClusteringGroup(slices=(info,)),),
        extra_metadata=flags.to_extra_metadata(),
    )
    return encode_record(RequestedReplace(operation_type="CLUSTER", clustering_plan=plan))


def set_up(world: World) -> None:
    """Set up a committed file group, and P REQUESTED."""
    _put(world, _OLD_FILE.path, _old_rows())
    for state in (State.REQUESTED, State.INFLIGHT):
        _put(world, f"{TIMELINE}/{file_name(_BEFORE.requested_time, _BEFORE.action, state)}")
    _put(world, f"{TIMELINE}/{file_name(*_BEFORE)}", _content_before())
    _put(world, _plan_path(State.REQUESTED), plan_content(PlanFlags(is_cancellable=True)))


def set_up_cancelled(world: World) -> None:
    """The same with P INFLIGHT, cancelled, and the file of an attempt that gave up."""
    set_up(world)
    _put(world, _plan_path(State.INFLIGHT))
    file = base_file(CLUSTERED, PLAN, 1)
    _put(world, attempt_path(PLAN, 1), encode_attempt(DEAD))
    _put(world, marker_path(PLAN, Marker(file.path, MarkerKind.CREATE)))
    _put(world, file.path, _old_rows())
    entry = CancelEntry(owner="set-up", requested_ms=0, reason="the scenario begins so")
    _put(world, cancel_path(PLAN), encode_entry(entry))


def set_up_completed(world: World) -> None:
    """The same with P COMPLETED, and a later commit, so that P may be archived."""
    set_up(world)
    file = base_file(CLUSTERED, PLAN, 1)
    _put(world, file.path, _old_rows())
    _put(world, _plan_path(State.INFLIGHT))
    done = Instant(PLAN, Action.CLUSTERING, State.COMPLETED, InstantTime("20251231235959001"))
    content = encode_record(metadata_of("CLUSTER", [stat_of(file, _old_rows())], [GROUP]))
    _put(world, f"{TIMELINE}/{file_name(*done)}", content)
    time, later = InstantTime("20251231235959002"), InstantTime("20251231235959003")
    last = base_file(CLUSTERED, time, 1)
    _put(world, last.path, _old_rows())
    for state in (State.REQUESTED, State.INFLIGHT):
        _put(world, f"{TIMELINE}/{file_name(time, Action.COMMIT, state)}")
    content = encode_record(metadata_of("UPSERT", [stat_of(last, _old_rows())]))
    _put(world, f"{TIMELINE}/{file_name(time, Action.COMMIT, State.COMPLETED, later)}", content)


def _put(world: World, path: str, data: bytes = b"") -> None:
    world.apply("set-up", Op(Kind.PUT, path, data))


def _plan_path(state: State) -> str:
    return f"{TIMELINE}/{file_name(PLAN, Action.CLUSTERING, state)}"


def _old_rows() -> bytes:
    return encode_rows([Row("old", 0, _BEFORE.requested_time)])


def _content_before() -> bytes:
    return encode_record(metadata_of("UPSERT", [stat_of(_OLD_FILE, _old_rows())]))


def _done_before() -> Done:
    world = World(WorldRules())
    set_up(world)
    return done_of(_BEFORE, _content_before(), "", world)


# Executors, writes, cleaners.


def cancellations_of(process: Process, make: MakeCancellations = Cancellations) -> Cancellations:
    components = components_of(process)
    return make(
        components=components,
        txn=transaction_on(components, LAYOUT, lock_timeout_ms=LOCK_TIMEOUT_MS),
        layout=LAYOUT,
        load_markers=load_markers,
        interval_ms=INTERVAL_MS,
        tolerable_misses=TOLERABLE_MISSES,
    )


@dataclass(frozen=True, slots=True)
class Cluster:
    """Write the rows of the group into a new one."""

    storage: Storage

    def undo_before(self, attempt: Attempt) -> None:
        undo_announced(self.storage, load_markers, attempt)

    def execute(self, attempt: Attempt, heartbeat: Heartbeat) -> bytes:
        file = base_file(CLUSTERED, attempt.instant, attempt.attempt)
        create_marker(self.storage, attempt.instant, Marker(file.path, MarkerKind.CREATE))
        rows = decode_rows(self.storage.read(_OLD_FILE.path))
        stat = put_rows(self.storage, file, rows)
        return encode_record(metadata_of("CLUSTER", [stat], [GROUP]))


def executor(*, rounds: int = 2, make: MakeCancellations = Cancellations) -> Body:
    """Return an actor that executes P; when refused it waits for the expiry and tries again."""

    def body(process: Process) -> str:
        cancellations = cancellations_of(process, make)
        word = REFUSED
        for tried in range(rounds):
            if tried:
                process.clock.sleep_ms(EXPIRY_MS)
            process.note(BEGUN)
            word = _execute(cancellations, process.storage)
            told = (COMMITTED, RETURNED, REFUSED, ABORTED)
            process.note(ENDED, word, PLAN if word in told else "")
            if word not in (REFUSED, CANCELLED):
                break
        return word

    return body


def _execute(cancellations: Cancellations, storage: Storage) -> str:
    try:
        done = cancellations.execute(PLAN, Cluster(storage))
    except HeadwaterError as error:
        return _word_of(error)
    if isinstance(done, AbortedPlan) or done.instant.state is State.ABORTED:
        return ABORTED
    if isinstance(done, Executed):
        _forget_markers(storage, PLAN)
        return COMMITTED
    return RETURNED


def _word_of(error: HeadwaterError) -> str:
    if isinstance(error, CommitUnknownError):
        return UNKNOWN
    if isinstance(error, FencedError):
        return FENCED
    if isinstance(error, ConflictError):
        words = {ErrorKind.ALREADY_RUNNING: REFUSED, ErrorKind.PLAN_CANCELLED: CANCELLED}
        return words.get(error.kind, FAILED)
    return FAILED


MakeCheck = Callable[[InflightWrite, Storage, ConflictCheck], ConflictCheck]


def publish(write: InflightWrite, storage: Storage, check: ConflictCheck) -> ConflictCheck:
    """Look at what others did, and cancel the plans in the way, as the product does it."""
    others = check.unread(load_active(storage, LAYOUT.timeline))
    done = [instant for instant in others if instant.is_completed]
    check = replace(check, known=load_changes(storage, LAYOUT, done))
    plans = [instant for instant in others if instant.is_pending]
    return cancel_overlapped(write, storage, LAYOUT, check, plans)


def ingestion(
    *,
    publish: MakeCheck = publish,
    after: Callable[[Process], None] = lambda _: None,
) -> Body:
    """Return an actor that writes the group anew, with a row of its own."""

    def body(process: Process) -> str:
        process.note(BEGUN)
        word, time = _ingest(process, publish)
        if word == COMMITTED:
            after(process)
        process.note(ENDED, FAILED if word == LOST else word, time)
        return word

    return body


def _ingest(process: Process, publish: MakeCheck) -> tuple[str, InstantTime]:
    components, storage = components_of(process), process.storage
    txn = transaction_on(components, LAYOUT, lock_timeout_ms=LOCK_TIMEOUT_MS)
    try:
        write = start_inflight_write(components, txn, Action.COMMIT, claim_of(process), b"")
    except HeadwaterError as error:
        return _word_of(error), InstantTime("")
    time = write.instant_time
    try:
        view = load_view(storage, CONFIG)
        process.note(PLANNED, time, view.instant or "")
        metadata = _rewrite(process, write, view)
        instant = Instant(time, Action.COMMIT, State.INFLIGHT)
        mine = change_of(CompletedCommit(instant, metadata))
        check = ConflictCheck(mine=mine, snapshot=Snapshot.of(view.timeline))
        check = publish(write, storage, check)
        process.note(PUBLISHED, time)
        write.commit(encode_record(metadata), check)
    except CommitUnknownError:
        return UNKNOWN, time
    except ConflictError as conflict:
        write.abandon()
        if conflict.kind is not ErrorKind.WRITE_CONFLICT:
            return FAILED, time
        process.note(LOST_TO, time, conflict.context["other"])
        return LOST, time
    except HeadwaterError as error:
        write.abandon()
        return _word_of(error), time
    _forget_markers(storage, time)
    return COMMITTED, time


def _forget_markers(storage: Storage, time: InstantTime) -> None:
    # What a lost reply leaves behind is swept later; the commit stands.
    with suppress(StorageError):
        delete_markers(storage, time)


def _rewrite(process: Process, write: InflightWrite, view: TableView) -> CommitMetadata:
    """Read the rows of the one group there is and write them anew, announced by a marker."""
    time, storage = write.instant_time, process.storage
    (found,) = view.slices([PARTITION])
    file = base_file(found.group, time, write.attempt.attempt)
    create_marker(storage, time, Marker(file.path, MarkerKind.MERGE))
    rows = read_slice(storage, found)
    rows[process.name] = Row(process.name, 0, time)
    return metadata_of("UPSERT", [put_rows(storage, file, rows.values())])


def abort_the_plan(cancellations: Cancellations) -> str:
    """Abort P if it is cancelled; fewer calls, and so fewer states, than the service makes."""
    storage = cancellations.components.storage
    if PLAN not in load_cancelled(storage):
        return IDLE
    cancellations.abort(PLAN)
    return ABORTED


def run_the_service(cancellations: Cancellations) -> str:
    """Cancel and abort as clean does."""
    done = cancel_and_abort_by_policy(cancellations)
    if done.left:
        return REFUSED
    return ABORTED if done.aborted else IDLE


def cleaner(
    *, rounds: int = 2, make: MakeCancellations = Cancellations, clean: Clean = run_the_service
) -> Body:
    """Return an actor that aborts what is cancelled, waiting for heartbeats to lapse."""

    def body(process: Process) -> str:
        cancellations = cancellations_of(process, make)
        word = REFUSED
        for tried in range(rounds):
            if tried:
                process.clock.sleep_ms(EXPIRY_MS)
            try:
                word = clean(cancellations)
            except HeadwaterError as error:
                # Somebody else may have ended it between two looks.
                is_gone = error.kind in (ErrorKind.INSTANT_NOT_FOUND, ErrorKind.INVALID_STATE)
                word = IDLE if is_gone else _word_of(error)
            if word == ABORTED or word not in (REFUSED, IDLE):
                break
        return word

    return body


def requester(*, make: MakeCancellations = Cancellations) -> Body:
    """Return an actor that asks for the cancellation of P."""

    def body(process: Process) -> str:
        try:
            cancellations_of(process, make).request(PLAN, "asked for by hand")
        except HeadwaterError as error:
            word = _word_of(error)
            return word if word == UNKNOWN else REFUSED
        return CANCELLED

    return body


def choose_ended(timeline: Timeline) -> list[Instant]:
    """Return what was requested before the first pending instant and has ended, but the newest."""
    first = min((instant.requested_time for instant in timeline.pending), default=None)
    newest = timeline.completed[-1:]
    return [
        instant
        for instant in timeline.instants
        if not instant.is_pending
        and instant not in newest
        and (first is None or instant.requested_time < first)
    ]


# How a run may end.


def check_outcome(simulation: Simulation) -> Iterator[Violation]:
    """5.3 to 5.6: which results may stand together at the end."""
    world, results = simulation.world, simulation.results()
    state = current_state(world, PLAN)
    written = results.get("I")
    for actor, word in results.items():
        if word == COMMITTED and actor == "E" and state is not State.COMPLETED:
            yield Violation("5.5", f"the executor committed, yet the plan is {state}")
        if word == ABORTED and state not in (State.ABORTED, None):
            yield Violation("5.4", f"{actor} aborted the plan, which is {state}")
    if simulation.budgets != simulation.scenario.faults.budgets():
        return
    for actor, word in results.items():
        # Archival is refused while an entry is there, and comes again.
        if word in (FAILED, FENCED, UNKNOWN) and actor != "A":
            yield Violation("5.5", f"{actor} ended {word}: {results}")
    if written == LOST and state is not State.COMPLETED:
        yield Violation("5.6", f"the write lost although the plan is {state}")
    if "E" in results and (state is None or state.is_pending):
        yield Violation("5.4", f"nothing went wrong, yet the plan is {state}: {results}")
    if is_aborted(world, PLAN):
        for path in check_left_behind(world, PLAN):
            yield Violation("INV-38", f"the plan is aborted, {path} is still there")


def _check_nothing_cancelled(simulation: Simulation) -> Iterator[Violation]:
    """INV-10: what has completed is not cancelled, wherever it is."""
    if simulation.results()["Q"] == CANCELLED:
        yield Violation("INV-10", "a completed plan was cancelled")


# Situations that the search must have met, or it proves nothing.


def _has_ended(word: str, *actors: str) -> Callable[[Step, Simulation], bool]:
    return lambda step, simulation: (
        step.actor in actors and step.outcome is not None and step.outcome.value == word
    )


def _is_overtaken(step: Step, simulation: Simulation) -> bool:
    is_entry = step.path == cancel_path(PLAN) and step.before is None and step.after is not None
    return is_entry and step.actor == "E"


def _is_aborted(step: Step, simulation: Simulation) -> bool:
    file = place_of(step.path).file if step.path and step.after is not None else None
    return file is not None and file.state is State.ABORTED


def _is_archived(step: Step, simulation: Simulation) -> bool:
    file = place_of(step.path).file if step.path and step.after is None else None
    return file is not None and file.state is State.ABORTED


MARKS: Mapping[str, Callable[[Step, Simulation], bool]] = {
    "plan committed": _has_ended(COMMITTED, "E"),
    "write committed": _has_ended(COMMITTED, "I"),
    "write lost": _has_ended(LOST, "I"),
    "plan overtaken": _is_overtaken,
    "plan aborted": _is_aborted,
    "plan aborted by the cleaner": _has_ended(ABORTED, "C"),
    "executor fenced": _has_ended(FENCED, "E"),
    "archived": _has_ended(ARCHIVED, "A"),
    "aborted plan archived": _is_archived,
}
