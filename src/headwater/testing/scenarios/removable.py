"""removable: executors and a cleaner of one removable plan (5.2, INV-26, INV-28).

P is a clustering whose failed execution is not repeated. Executors try it; if refused they try
again after the heartbeat has lapsed. The cleaner rolls back what nobody executes any more, if it is
old enough or was begun. Heartbeats are touched once, so a tick is a stall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from headwater.errors import (
    CommitUnknownError,
    ConflictError,
    ErrorKind,
    FencedError,
    HeadwaterError,
    NotFoundError,
)
from headwater.kernel.timeline.names import file_name
from headwater.kernel.txn.attempts import Attempt, Purpose, encode_attempt
from headwater.kernel.txn.cancel import undo_announced
from headwater.kernel.txn.fenced import transaction_on
from headwater.kernel.txn.guard import Executed, run_guarded
from headwater.kernel.txn.heartbeat import Heartbeat
from headwater.kernel.txn.markers import Marker, MarkerKind, create_marker, load_markers
from headwater.kernel.txn.rollback import Rollbacks
from headwater.model.instant import Action, InstantTime, State, instant_time_after, instant_time_at
from headwater.model.plan_flags import PlanFlags
from headwater.seams.ids import Owner
from headwater.seams.storage import Storage
from headwater.services.removable import removable_plans, rollback_removable_plans
from headwater.testing.actor import Body, Process
from headwater.testing.check import (
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
from headwater.testing.faults import Faults
from headwater.testing.history import Step
from headwater.testing.operation import Kind, Op
from headwater.testing.rows import attempt_of, base_file
from headwater.testing.scenarios.cancel import GROUP, plan_content
from headwater.testing.scenarios.guard import WORLD
from headwater.testing.scenarios.plan import (
    EXPIRY_MS,
    INTERVAL_MS,
    LOCK_TIMEOUT_MS,
    TOLERABLE_MISSES,
    claim_of,
    components_of,
    encode_files,
    files_of,
    heartbeat_deadlines_ms,
)
from headwater.testing.scenarios.rollback import IDLE, ROLLED_BACK, is_plain_heartbeat
from headwater.testing.simulation import Invariant, Scenario, Simulation, Violation
from headwater.testing.table import (
    LAYOUT,
    TIMELINE,
    attempts_in,
    current_state,
    place_of,
    rollbacks_in,
)
from headwater.testing.world import World

CHECKS = Checks(files_of=files_of, attempt_of=attempt_of)
PLAN = InstantTime("20251231235959000")

SCHEDULED = Attempt(
    instant=PLAN,
    attempt=1,
    token="the scheduler's",
    owner=Owner("S", 1, "S-1"),
    purpose=Purpose.EXECUTE,
    started_ms=0,
    interval_ms=INTERVAL_MS,
    tolerable_misses=TOLERABLE_MISSES,
    is_released=True,
)
"""Who schedules a plan claims its first attempt, and leaves the execution to others."""

NEVER_MS = 3_600_000
"""A delay that no run outlasts: what was not begun stays."""


def removable(faults: Faults, *, delay_ms: int = 0, executors: int = 2) -> Scenario:
    """Executors of P, and a cleaner; P is as old as `delay_ms`, or younger, when they begin."""
    marks = ["committed"]
    if not delay_ms:
        marks += ["rolled back"]
    if faults.ticks and faults.crashes:
        marks += ["rolled back after it was begun"]
    names = "XY"[:executors]
    return Scenario(
        name="removable",
        actors={**{name: executor() for name in names}, "C": cleaner(delay_ms)},
        set_up=set_up,
        invariants=(
            *CHECKS.all(),
            Invariant(id="INV-28", check=_young_plan_stays(delay_ms), under=f"{TIMELINE}/"),
        ),
        learn=CHECKS.learn,
        hear=CHECKS.hear,
        faults=faults,
        world=WORLD,
        deadlines_ms=heartbeat_deadlines_ms,
        check_end=check_outcome,
        marks={mark: MARKS[mark] for mark in marks},
        twins=tuple(names),
        is_private=is_plain_heartbeat,
        has_eager_clocks=True,
    )


def set_up(world: World) -> None:
    """Set up P REQUESTED."""
    path = f"{TIMELINE}/{file_name(PLAN, Action.CLUSTERING, State.REQUESTED)}"
    world.apply("set-up", Op(Kind.PUT, path, plan_content(PlanFlags(is_removable=True))))
    world.apply("set-up", Op(Kind.PUT, SCHEDULED.path, encode_attempt(SCHEDULED)))


@dataclass(frozen=True, slots=True)
class OneFile:
    """Write one data file, announced by a marker."""

    storage: Storage

    def undo_before(self, attempt: Attempt) -> None:
        undo_announced(self.storage, load_markers, attempt)

    def execute(self, attempt: Attempt, heartbeat: Heartbeat) -> bytes:
        path = base_file(GROUP, attempt.instant, attempt.attempt).path
        create_marker(self.storage, attempt.instant, Marker(path, MarkerKind.CREATE))
        self.storage.put(path, f"rows by {attempt.token}".encode())
        return encode_files([path])


def executor(*, rounds: int = 2) -> Body:
    """Return an actor that executes P; when refused it waits for the expiry and tries again."""

    def body(process: Process) -> str:
        components = components_of(process)
        txn = transaction_on(components, LAYOUT, lock_timeout_ms=LOCK_TIMEOUT_MS)
        word = REFUSED
        for tried in range(rounds):
            if tried:
                process.clock.sleep_ms(EXPIRY_MS)
            process.note(BEGUN)
            try:
                work = OneFile(process.storage)
                done = run_guarded(components, txn, PLAN, claim_of(process), work)
                word = COMMITTED if isinstance(done, Executed) else RETURNED
            except HeadwaterError as error:
                word = _word_of(error)
            told = (COMMITTED, RETURNED, REFUSED)
            process.note(ENDED, word, PLAN if word in told else "")
            if word != REFUSED:
                break
        return word

    return body


def cleaner(delay_ms: int, *, rounds: int = 2) -> Body:
    """Return an actor that rolls removable plans back until nothing is left to do."""

    def body(process: Process) -> str:
        components = components_of(process)
        rollbacks = Rollbacks(
            components=components,
            txn=transaction_on(components, LAYOUT, lock_timeout_ms=LOCK_TIMEOUT_MS),
            layout=LAYOUT,
            load_markers=load_markers,
            interval_ms=INTERVAL_MS,
            tolerable_misses=TOLERABLE_MISSES,
            delay_ms=delay_ms,
        )
        for tried in range(rounds):
            if tried:
                process.clock.sleep_ms(EXPIRY_MS)
            try:
                if rollback_removable_plans(rollbacks):
                    return ROLLED_BACK
                if not removable_plans(rollbacks):
                    return IDLE
            except HeadwaterError as error:
                return _word_of(error)
        return REFUSED

    return body


def _word_of(error: HeadwaterError) -> str:
    if isinstance(error, CommitUnknownError):
        return UNKNOWN
    if isinstance(error, FencedError):
        return FENCED
    refusals = (ErrorKind.ALREADY_RUNNING, ErrorKind.PLAN_NOT_EXECUTABLE)
    if isinstance(error, ConflictError) and error.kind in refusals:
        return REFUSED
    return REFUSED if isinstance(error, NotFoundError) else FAILED


def check_outcome(simulation: Simulation) -> Iterator[Violation]:
    """5.2: rolled back or completed, never both; without a fault exactly one of the two."""
    results = simulation.results()
    state = current_state(simulation.world, PLAN)
    is_rolled_back = any(rollback.is_done for rollback in rollbacks_in(simulation.world))
    committed = list(results.values()).count(COMMITTED)
    if committed > 1 or (committed and state is not State.COMPLETED):
        yield Violation("5.2", f"the plan is {state}: {results}")
    if is_rolled_back and state is not None:
        yield Violation("5.2", f"the plan is rolled back, and is {state}: {results}")
    if simulation.budgets != simulation.scenario.faults.budgets():
        return
    for actor, word in results.items():
        if word in (FAILED, FENCED, UNKNOWN):
            yield Violation("5.2", f"{actor} ended {word}: {results}")
    if state is not State.COMPLETED and not is_rolled_back:
        yield Violation("5.2", f"nothing went wrong, yet the plan is {state}: {results}")


def _young_plan_stays(delay_ms: int) -> Callable[[Step, Simulation], Iterator[str]]:
    def check(step: Step, simulation: Simulation) -> Iterator[str]:
        file = place_of(step.path).file
        is_request = file is not None and file.state is State.REQUESTED and step.after is not None
        if not is_request or file is None or file.action is not Action.ROLLBACK:
            return
        now = instant_time_at(simulation.world.now_ms)
        is_due = instant_time_after(PLAN, delay_ms) <= now
        # Whoever set to work on it has left an attempt beside the one of its schedule (N-131).
        attempts = [one for _, _, one in attempts_in(simulation.world) if one.instant == PLAN]
        is_begun = any(one.purpose is Purpose.EXECUTE and one.attempt > 1 for one in attempts)
        is_requested = current_state(simulation.world, PLAN) is State.REQUESTED
        if is_requested and not is_begun and not is_due:
            yield f"a rollback of {PLAN} is scheduled, which is too young and not begun"

    return check


# Situations that the search must have met, or it proves nothing.


def _has_ended(word: str) -> Callable[[Step, Simulation], bool]:
    return lambda step, simulation: step.outcome is not None and step.outcome.value == word


def _is_begun_and_rolled_back(step: Step, simulation: Simulation) -> bool:
    file = place_of(step.path).file if step.path and step.after is None else None
    is_plan = file is not None and file.requested_time == PLAN
    return is_plan and file is not None and file.state is State.INFLIGHT


MARKS: Mapping[str, Callable[[Step, Simulation], bool]] = {
    "committed": _has_ended(COMMITTED),
    "rolled back": _has_ended(ROLLED_BACK),
    "rolled back after it was begun": _is_begun_and_rolled_back,
}
