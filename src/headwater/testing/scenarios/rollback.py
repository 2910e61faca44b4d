"""rollback: a writer that stalls or fails, and cleaners that roll its write back (3.4).

W is in the middle of a write of one file: the instant is inflight and its heartbeat beats no more,
so a tick is a stall of W. Another write, committed before, has a file in the same file group, which
nobody may touch. A cleaner that is refused, because W seems alive or another cleaner is at work,
waits for the heartbeat to lapse and tries again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from headwater.errors import (
    CommitUnknownError,
    ConflictError,
    ErrorKind,
    FencedError,
    NotFoundError,
    StorageError,
)
from headwater.kernel.layout import HOODIE, attempt_path
from headwater.kernel.timeline.active import load_active
from headwater.kernel.txn.attempts import Attempt, Purpose, encode_attempt
from headwater.kernel.txn.fenced import transaction_on
from headwater.kernel.txn.heartbeat import Heartbeat
from headwater.kernel.txn.markers import (
    Marker,
    MarkerKind,
    create_marker,
    delete_markers,
    load_markers,
)
from headwater.kernel.txn.rollback import Rollbacks, RolledBackWrite, rollback_own_write
from headwater.kernel.txn.transaction import Transaction
from headwater.kernel.txn.writes import InflightWrite
from headwater.model.instant import Action, InstantTime, State
from headwater.seams.ids import Owner
from headwater.services.rollback import rollback_failed_writes
from headwater.testing.actor import Body, Process
from headwater.testing.check import (
    BEGUN,
    COMMITTED,
    ENDED,
    FAILED,
    FENCED,
    REFUSED,
    UNKNOWN,
)
from headwater.testing.faults import Faults
from headwater.testing.history import Step
from headwater.testing.operation import Kind, Op
from headwater.testing.scenarios.guard import WORLD
from headwater.testing.scenarios.plan import (
    CHECKS,
    EXPIRY_MS,
    INTERVAL_MS,
    LOCK_TIMEOUT_MS,
    TOLERABLE_MISSES,
    components_of,
    data_path,
    encode_files,
    heartbeat_deadlines_ms,
)
from headwater.testing.simulation import Scenario, Simulation, Violation
from headwater.testing.table import (
    LAYOUT,
    TIMELINE,
    Area,
    attempt_in,
    attempt_numbers,
    current_state,
    place_of,
    rollbacks_in,
    timeline_files,
)
from headwater.testing.world import START_MS, World

WRITE = InstantTime("20251231235959000")
OTHER = InstantTime("20251231235958000")
GROUP = "fg-1"
FILE = data_path(WRITE, 1, file_id=GROUP)
OTHER_FILE = data_path(OTHER, 1, file_id=GROUP)

_CLEANERS = "CD"

ROLLED_BACK = "rolled back"
IDLE = "idle"  # Nothing to do, or nothing any more.

WRITER = Attempt(
    instant=WRITE,
    attempt=1,
    token="the writer's",
    owner=Owner("W", 1, "W-1"),
    purpose=Purpose.WRITE,
    started_ms=0,
    interval_ms=INTERVAL_MS,
    tolerable_misses=TOLERABLE_MISSES,
)

MakeTableTransaction = Callable[..., Transaction]
MakeRollbacks = Callable[..., Rollbacks]
Clean = Callable[[Rollbacks, Transaction], str]


def rollback_two(
    faults: Faults,
    *,
    cleaners: int = 2,
    transaction: MakeTableTransaction = transaction_on,
    make: MakeRollbacks = Rollbacks,
) -> Scenario:
    """A stalled writer that goes on, and two cleaners."""
    marks = ["writer committed"]
    if faults.ticks:
        marks += ["rolled back", "writer fenced", "late file"]
    if faults.ticks and faults.crashes:
        marks += ["rollback taken up by another process", "left pending by a crash"]
    return Scenario(
        name="rollback_two",
        actors={
            "W": writer(transaction=transaction),
            **{name: cleaner(transaction=transaction, make=make) for name in _CLEANERS[:cleaners]},
        },
        set_up=set_up,
        invariants=CHECKS.all(),
        learn=CHECKS.learn,
        hear=CHECKS.hear,
        faults=faults,
        world=WORLD,
        deadlines_ms=heartbeat_deadlines_ms,
        check_end=check_outcome,
        marks={mark: MARKS[mark] for mark in marks},
        twins=tuple(_CLEANERS),
        is_private=is_plain_heartbeat,
    )


def rollback_own(faults: Faults) -> Scenario:
    """A writer whose rows are bad rolls its own write back, beside one cleaner."""
    marks = ["rolled back by its owner", "rolled back by the cleaner"]
    scenario = rollback_two(faults)
    return replace(
        scenario,
        name="rollback_own",
        actors={"W": writer(has_bad_rows=True), "C": cleaner(clean=run_the_service)},
        marks={mark: MARKS[mark] for mark in marks},
    )


def is_plain_heartbeat(actor: str, op: Op) -> bool:
    """Only stock Hudi looks at these."""
    return place_of(op.target).area is Area.HEARTBEAT


def set_up(world: World) -> None:
    """Set up a committed write, and another one inflight with the attempt of W."""

    def put(path: str, data: bytes = b"") -> None:
        world.apply("set-up", Op(Kind.PUT, path, data))

    put(OTHER_FILE, b"rows of another write")
    put(f"{TIMELINE}/{OTHER}.commit.requested")
    put(f"{TIMELINE}/{OTHER}.inflight")
    put(f"{TIMELINE}/{OTHER}_20251231235958001.commit", encode_files([OTHER_FILE]))
    put(attempt_path(WRITE, 1), encode_attempt(WRITER))
    put(f"{TIMELINE}/{WRITE}.commit.requested")
    put(f"{TIMELINE}/{WRITE}.inflight")


def writer(
    *, transaction: MakeTableTransaction = transaction_on, has_bad_rows: bool = False
) -> Body:
    """Return the owner of the inflight write; with bad rows it fails after it wrote its file."""

    def body(process: Process) -> str:
        process.note(BEGUN)
        word = _write(process, transaction, has_bad_rows)
        process.note(ENDED, word, WRITE)
        return word

    return body


def _write(process: Process, transaction: MakeTableTransaction, has_bad_rows: bool) -> str:
    components, storage = components_of(process), process.storage
    txn = transaction(components, LAYOUT, lock_timeout_ms=LOCK_TIMEOUT_MS)
    heartbeat = Heartbeat(storage, process.clock, WRITER, claimed_ms=START_MS)
    inflight = InflightWrite(txn, heartbeat, 0)
    try:
        create_marker(storage, WRITE, Marker(FILE, MarkerKind.MERGE))
        storage.put(FILE, b"rows by W")
        if has_bad_rows:
            done = rollback_own_write(components, LAYOUT, load_markers, inflight)
            return FAILED if done is None else ROLLED_BACK
        inflight.commit(encode_files([FILE]))
    except CommitUnknownError:
        return UNKNOWN
    except FencedError:
        inflight.abandon()
        return FENCED
    delete_markers(storage, WRITE)
    return COMMITTED


def roll_back_the_write(rollbacks: Rollbacks, txn: Transaction) -> str:
    """Roll back the one write there is."""
    try:
        done = rollbacks.roll_back(WRITE)
    except NotFoundError:
        return IDLE
    return ROLLED_BACK if isinstance(done, RolledBackWrite) else IDLE


def run_the_service(rollbacks: Rollbacks, txn: Transaction) -> str:
    """Find failed writes and roll them back; more calls, and so more states, than needed."""
    if rollback_failed_writes(rollbacks, txn.watch):
        return ROLLED_BACK
    is_pending = load_active(rollbacks.components.storage, TIMELINE).pending
    return REFUSED if is_pending else IDLE


def cleaner(
    *,
    rounds: int = 2,
    transaction: MakeTableTransaction = transaction_on,
    make: MakeRollbacks = Rollbacks,
    clean: Clean = roll_back_the_write,
) -> Body:
    """Return an actor that cleans until nothing is left to do, waiting for heartbeats to lapse."""

    def body(process: Process) -> str:
        components = components_of(process)
        txn = transaction(components, LAYOUT, lock_timeout_ms=LOCK_TIMEOUT_MS)
        rollbacks = make(
            components=components,
            txn=txn,
            layout=LAYOUT,
            load_markers=load_markers,
            interval_ms=INTERVAL_MS,
            tolerable_misses=TOLERABLE_MISSES,
        )
        word = REFUSED
        for tried in range(rounds):
            if tried:
                process.clock.sleep_ms(EXPIRY_MS)
            try:
                word = clean(rollbacks, txn)
            except CommitUnknownError:
                return UNKNOWN
            except FencedError:
                return FENCED
            except ConflictError as conflict:
                if conflict.kind is not ErrorKind.ALREADY_RUNNING:
                    return FAILED
            except StorageError:
                return FAILED
            if word != REFUSED:
                break
        return word

    return body


def check_outcome(simulation: Simulation) -> Iterator[Violation]:
    """5.2 D4 and INV-30: rolled back or completed, never both, and the same storage each time."""
    world, results = simulation.world, simulation.results()
    state = current_state(world, WRITE)
    rollbacks = rollbacks_in(world)
    is_rolled_back = any(rollback.is_done for rollback in rollbacks)
    is_completed = state is State.COMPLETED
    is_neither = not is_rolled_back and not is_completed
    if (is_rolled_back and is_completed) or (is_neither and not _may_be_left(results)):
        yield Violation("5.2", f"the write is {state}, and {len(rollbacks)} rollbacks are there")
    if len(rollbacks) > 1:
        yield Violation("INV-30", f"{len(rollbacks)} rollbacks for one write")
    if results["W"] == COMMITTED and state is not State.COMPLETED:
        yield Violation("5.2", f"the writer committed, yet its write is {state}")
    if OTHER_FILE not in world.objects:
        yield Violation("INV-30", "the file of another write is gone")
    is_clean = is_rolled_back and "crashed" not in results.values()
    # A writer that is alive may leave a file, a marker and its own heartbeat after everybody left.
    if is_clean and results["W"] == ROLLED_BACK:
        for path in world.paths:
            if WRITE in path and path.startswith((f"{HOODIE}/.", "city=")):
                yield Violation("INV-30", f"the write is rolled back, {path} is still there")


def _may_be_left(results: Mapping[str, str]) -> bool:
    """Whether the write may still be pending: somebody died, stalled or found it alive."""
    return any(word not in (COMMITTED, ROLLED_BACK, IDLE) for word in results.values())


# Situations that the search must have met, or it proves nothing.


def _has_ended(word: str, *actors: str) -> Callable[[Step, Simulation], bool]:
    return lambda step, simulation: (
        step.actor in actors and step.outcome is not None and step.outcome.value == word
    )


def _is_taken_up(step: Step, simulation: Simulation) -> bool:
    """A second process begins to execute the rollback."""
    place = place_of(step.path) if step.path else None
    if place is None or place.area is not Area.ATTEMPT or step.before is not None:
        return False
    attempt = None if step.after is None else attempt_in(step.after)
    is_rollback = any(rollback.time == place.time for rollback in rollbacks_in(simulation.world))
    return is_rollback and attempt is not None and attempt.attempt > 1


def _is_left_pending(step: Step, simulation: Simulation) -> bool:
    return simulation.is_over and any(
        file.action is Action.ROLLBACK
        and current_state(simulation.world, file.requested_time) is not State.COMPLETED
        for file in timeline_files(simulation.world)
    )


def _is_late_file(step: Step, simulation: Simulation) -> bool:
    """The writer writes its file after its rollback was scheduled."""
    is_file = step.path == FILE and step.after is not None
    return is_file and len(attempt_numbers(simulation.world, WRITE)) != 1


MARKS: Mapping[str, Callable[[Step, Simulation], bool]] = {
    "writer committed": _has_ended(COMMITTED, "W"),
    "writer fenced": _has_ended(FENCED, "W"),
    "rolled back": _has_ended(ROLLED_BACK, "C", "D"),
    "rolled back by its owner": _has_ended(ROLLED_BACK, "W"),
    "rolled back by the cleaner": _has_ended(ROLLED_BACK, "C"),
    "rollback taken up by another process": _is_taken_up,
    "left pending by a crash": _is_left_pending,
    "late file": _is_late_file,
}
