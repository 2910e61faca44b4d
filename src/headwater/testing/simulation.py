"""One state of a scenario, the actions possible in it, and how each changes it.

Every actor has declared the calls it makes next, and nothing of them has happened. The scheduler
picks one action, performs it atomically, and the actor runs on to its next call. States fork
cheaply, so a search can go on from the same state with another action.

Five reductions keep the search small without hiding behaviour:

- a clock is read at once when no fault can move time any more;
- asking a lock that cannot expire, and giving back a session lock, happen at once: nobody else's
  next call depends on them, except those that wait for the lock, and they may time out elsewhere;
- of twins that have not begun, only the first may begin: the rest are the same with other names;
- a process crashes at its writes, lock calls and pauses only: a crash at a read leaves the same
  storage as a crash at the write before or after it;
- calls that the scenario knows to be private happen at once.

A sixth does hide something and is therefore an option: `has_eager_clocks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from headwater.errors import HeadwaterError, StorageError, raise_internal
from headwater.testing.actor import MAIN, Body, Local, Outcome, ProcessRules, Program
from headwater.testing.faults import Budgets, Fate, Faults
from headwater.testing.history import Action, Facts, Move, Step
from headwater.testing.operation import (
    PURE_READS,
    STORAGE_READS,
    STORAGE_WRITES,
    Failure,
    Kind,
    Op,
)
from headwater.testing.world import Change, World, WorldRules

_TIMED = frozenset({Kind.SLEEP, Kind.WAIT, Kind.ACQUIRE})


class Violation(NamedTuple):
    """An invariant that does not hold, and how one can tell."""

    invariant: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariant:
    """A named claim, evaluated after every step that could break it.

    That is a step that changed an object `under` a prefix; with None, one in which an actor told
    the checker something. What a step changed comes before what its actor then tells, and facts
    are learned in between.
    """

    id: str
    check: Callable[[Step, Simulation], Iterable[str]]
    under: str | None = ""


def no_deadlines(world: World) -> Iterable[int]:
    return ()


def nothing_to_learn(step: Step, simulation: Simulation) -> None:
    """Remember nothing."""


def no_call(actor: str, op: Op) -> bool:
    return False


def any_end(simulation: Simulation) -> Iterable[Violation]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A world, its actors, what may go wrong, and what must hold all the same."""

    name: str
    actors: Mapping[str, Body]
    set_up: Callable[[World], None]
    invariants: tuple[Invariant, ...]
    learn: Callable[[Step, Simulation], None] = nothing_to_learn  # From calls and changes.
    hear: Callable[[Step, Simulation], None] = nothing_to_learn  # From what actors tell.
    faults: Faults = field(default_factory=Faults)
    world: WorldRules = field(default_factory=WorldRules)
    processes: ProcessRules = field(default_factory=ProcessRules)
    offsets_ms: Mapping[str, int] = field(default_factory=dict)
    deadlines_ms: Callable[[World], Iterable[int]] = no_deadlines
    check_end: Callable[[Simulation], Iterable[Violation]] = any_end
    marks: Mapping[str, Callable[[Step, Simulation], bool]] = field(default_factory=dict)
    is_private: Callable[[str, Op], bool] = no_call  # Nobody else can notice or disturb the call.
    has_eager_clocks: bool = False  # No time passes between a call's answer and reading the clock.
    has_twins: bool = False  # The actors differ in name only; the first one may go first.
    twins: tuple[str, ...] = ()  # These actors do, where the others do not.
    free_sleep_ms: int = 1000  # Pauses up to this end whenever the scheduler likes.
    steps_max: int = 2000


class Cast:
    """The programs of a scenario, shared by all its states."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._programs: dict[tuple[str, int], Program] = {}

    def program(self, name: str, incarnation: int = 1) -> Program:
        known = self._programs.get((name, incarnation))
        if known is None:
            body, rules = self._scenario.actors[name], self._scenario.processes
            known = Program(name, body, rules, incarnation)
            self._programs[name, incarnation] = known
        return known

    def close(self) -> Iterator[Violation]:
        """End all suspended processes; return which of them did not end as the dead do."""
        for program in self._programs.values():
            program.close()
            for problem in program.problems:
                yield Violation("SIM-CRASH", problem)


class Seat(NamedTuple):
    """One actor in one state. A dead one has no local state any more."""

    program: Program
    local: Local | None

    @property
    def outcome(self) -> Outcome | None:
        return None if self.local is None else self.local.outcome

    @property
    def is_dead(self) -> bool:
        return self.local is None

    @property
    def is_untouched(self) -> bool:
        return self.local is self.program.root and self.program.incarnation == 1

    def key(self) -> tuple[int, object]:
        """Of a process that ended only its result matters, and of a dead one nothing."""
        if self.local is None:
            return self.program.incarnation, None
        if self.local.outcome is not None:
            return self.program.incarnation, str(self.local.outcome.value)
        return self.program.incarnation, self.local.index


class Simulation:
    """One state; `perform` moves it to the next."""

    __slots__ = ("_cast", "budgets", "facts", "limbo", "scenario", "seats", "wakes_ms", "world")

    def __init__(self, scenario: Scenario, cast: Cast) -> None:
        self.scenario = scenario
        self._cast = cast
        self.world = World(scenario.world)
        self.world.offsets_ms = dict(scenario.offsets_ms)
        scenario.set_up(self.world)
        if scenario.world.make is not None:
            self.world = scenario.world.make(self.world)
        self.budgets: Budgets = scenario.faults.budgets()
        self.facts = Facts()
        self.limbo: tuple[tuple[str, Op], ...] = ()
        self.wakes_ms: dict[tuple[str, int], int] = {}
        self.seats: dict[str, Seat] = {}
        for name in scenario.actors:
            program = cast.program(name)
            self._sit(name, program, program.root, MAIN)

    def opening(self) -> list[Step]:
        """Return a step per actor that had something to say before its first call."""
        roots = {name: seat.program.root for name, seat in self.seats.items()}
        return [
            Step(Action(Move.RESTART, name), name, notes=root.notes, outcome=root.outcome)
            for name, root in roots.items()
            if root.notes or root.outcome is not None
        ]

    def fork(self) -> Simulation:
        twin = Simulation.__new__(Simulation)
        twin.scenario = self.scenario
        twin._cast = self._cast
        twin.world = self.world.fork()
        twin.budgets = self.budgets
        twin.facts = self.facts.fork()
        twin.limbo = self.limbo
        twin.wakes_ms = self.wakes_ms
        twin.seats = self.seats
        return twin

    def key(self) -> bytes:
        """Return 128 bits that stand for this state: equal keys mean equal futures."""
        locals_ = [seat.key() for seat in self.seats.values()]
        whole = (
            self.world.key(),
            locals_,
            sorted(self.wakes_ms.items()),
            tuple(self.budgets),
            self.limbo,
            self.facts.digest,
        )
        return blake2b(repr(whole).encode(), digest_size=16).digest()

    # What can happen next.

    def actions(self) -> list[Action]:
        """Return every action possible in this state; none means the run is over."""
        calls = list(self._calls())
        for name, thread, op in calls:
            if self._happens_at_once(name, op):
                return [Action(Move.RUN, name, thread)]
        runs = [
            Action(Move.RUN, name, thread)
            for name, thread, op in calls
            if self._is_enabled(name, thread, op)
        ]
        if not runs and any(wake > self.world.now_ms for wake in self._wakes()):
            runs.append(Action(Move.IDLE))
        runs += [Action(Move.LAND, detail=str(index)) for index in range(len(self.limbo))]
        if calls and any(self.budgets):
            runs += self._fault_actions(calls)
        if self.budgets.restarts:
            dead = (name for name, seat in self.seats.items() if seat.is_dead)
            runs += [Action(Move.RESTART, name) for name in dead]
        return runs

    @property
    def is_over(self) -> bool:
        """Whether every actor has ended or died; late landings and restarts may still follow."""
        return not any(True for _ in self._calls())

    def is_forced(self, action: Action) -> bool:
        """Whether an action is the only one because nothing depends on when it happens."""
        if action.move is not Move.RUN:
            return False
        _, op = self._call_of(action)
        return self._happens_at_once(action.actor, op)

    def _calls(self) -> Iterator[tuple[str, int, Op]]:
        has_first = False
        for name, seat in self.seats.items():
            if seat.local is not None:
                is_twin = self.scenario.has_twins or name in self.scenario.twins
                if is_twin and seat.is_untouched:
                    # Of twins that have done nothing yet, one stands for all.
                    if has_first:
                        continue
                    has_first = True
                for thread, op in seat.local.pending:
                    yield name, thread, op

    def _happens_at_once(self, name: str, op: Op) -> bool:
        if self.scenario.is_private(name, op):
            # Unless it may fail: then the actor itself can notice.
            budgets = self.budgets
            return not (budgets.lost_replies or budgets.failures or budgets.limbos)
        match op.kind:
            case Kind.NOW | Kind.MONOTONIC:
                return self.scenario.has_eager_clocks or not (
                    self.budgets.ticks or self.budgets.clock_steps
                )
            case Kind.CHECK:
                return not self.budgets.lock_expiries
            case Kind.RELEASE:
                return self.world.rules.lock == "session"
            case Kind.JOIN:
                return self._is_enabled(name, MAIN, op)
            case _:
                return False

    def _is_enabled(self, name: str, thread: int, op: Op) -> bool:
        match op.kind:
            case Kind.ACQUIRE:
                return self.world.is_free(op.target) or self._has_come(name, thread)
            case Kind.SLEEP:
                return op.number <= self.scenario.free_sleep_ms or self._has_come(name, thread)
            case Kind.WAIT:
                return self._has_come(name, thread)
            case Kind.JOIN:
                local = self.seats[name].local
                return local is not None and local.op_of(op.number) is None
            case _:
                return True

    def _has_come(self, name: str, thread: int) -> bool:
        return self.wakes_ms[name, thread] <= self.world.now_ms

    def _wakes(self) -> Iterator[int]:
        yield from self.wakes_ms.values()
        yield from self.world.lock_deadlines_ms()

    def _ticks_to(self) -> list[int]:
        now_ms = self.world.now_ms
        moments = {*self._wakes(), *self.scenario.deadlines_ms(self.world)}
        return sorted(moment for moment in moments if moment > now_ms)

    def _fault_actions(self, calls: list[tuple[str, int, Op]]) -> Iterator[Action]:
        budgets, faults = self.budgets, self.scenario.faults
        if budgets.ticks:
            moments = self._ticks_to()
            if moments:
                yield Action(Move.TICK, detail="next")
            if len(moments) > 1 and faults.has_long_ticks:
                yield Action(Move.TICK, detail="last")
        for name, thread, op in calls:
            if op.kind in STORAGE_WRITES:
                if budgets.lost_replies and faults.may_fail(name, op):
                    yield Action(Move.LOST_REPLY, name, thread)
                if budgets.limbos and faults.may_fail(name, op):
                    yield Action(Move.LIMBO, name, thread)
            is_storage = op.kind in STORAGE_WRITES or op.kind in STORAGE_READS
            if budgets.failures and is_storage and faults.may_fail(name, op):
                yield Action(Move.FAIL, name, thread)
            if budgets.crashes and op.kind not in PURE_READS:
                yield from self._crashes(name, thread, op)
            if budgets.ticker_failures and thread != MAIN:
                yield Action(Move.STOP_TIMER, name, thread)
        if budgets.lock_expiries and self.world.rules.lock == "lease":
            for key, hold in self.world.locks.items():
                if hold.expires_ms is None:
                    yield Action(Move.EXPIRE_LOCK, detail=key)
        for name, seat in self.seats.items():
            if budgets.clock_steps and not seat.is_dead and seat.outcome is None:
                for delta_ms in faults.clock_steps_ms:
                    yield Action(Move.STEP_CLOCK, name, detail=str(delta_ms))

    def _crashes(self, name: str, thread: int, op: Op) -> Iterator[Action]:
        for fate in self.scenario.faults.fates:
            has_effect = op.kind in STORAGE_WRITES
            if fate is Fate.LIMBO and not (has_effect and self.budgets.limbos):
                continue
            if fate is Fate.APPLY and not has_effect:
                continue
            yield Action(Move.CRASH, name, thread, fate)

    # What happens.

    def perform(self, action: Action) -> Step:
        """Perform one of `actions()`."""
        match action.move:
            case Move.RUN:
                return self._run(action)
            case Move.LOST_REPLY | Move.FAIL | Move.LIMBO:
                return self._fail(action)
            case Move.LAND:
                return self._land(action)
            case Move.CRASH:
                return self._crash(action)
            case Move.TICK | Move.IDLE:
                return self._pass_time(action)
            case Move.EXPIRE_LOCK:
                self.budgets = self.budgets.without(lock_expiries=1)
                self.world.expire_lock(action.detail)
                return Step(action)
            case Move.STEP_CLOCK:
                self.budgets = self.budgets.without(clock_steps=1)
                self.world.step_clock(action.actor, int(action.detail))
                return Step(action, action.actor)
            case Move.STOP_TIMER:
                return self._stop_timer(action)
            case Move.RESTART:
                return self._restart(action)

    def _call_of(self, action: Action) -> tuple[Local, Op]:
        local = self.seats[action.actor].local
        op = None if local is None else local.op_of(action.thread)
        if local is None or op is None:
            raise_internal("An action names a call that nobody makes", action=str(action))
        return local, op

    def _run(self, action: Action) -> Step:
        _, op = self._call_of(action)
        if op.kind is Kind.SLEEP:
            self.world.advance_to(self.wakes_ms[action.actor, action.thread])
        effect = self._apply(action.actor, op)
        return self._answer(action, op, effect, effect.answer)

    def _fail(self, action: Action) -> Step:
        _, op = self._call_of(action)
        effect = _Effect()
        match action.move:
            case Move.LOST_REPLY:
                self.budgets = self.budgets.without(lost_replies=1)
                effect = self._apply(action.actor, op)
            case Move.LIMBO:
                self.budgets = self.budgets.without(limbos=1)
                self.limbo = (*self.limbo, (action.actor, op))
            case _:
                self.budgets = self.budgets.without(failures=1)
        error = StorageError("Storage did not answer", path=op.target)
        return self._answer(action, op, effect, Failure.of(error))

    def _land(self, action: Action) -> Step:
        index = int(action.detail)
        actor, op = self.limbo[index]
        self.limbo = self.limbo[:index] + self.limbo[index + 1 :]
        effect = self._apply(actor, op)
        return Step(action, actor, op, effect.answer, effect.changes)

    def _crash(self, action: Action) -> Step:
        local, op = self._call_of(action)
        self.budgets = self.budgets.without(crashes=1)
        effect = _Effect()
        if action.detail == Fate.APPLY:
            effect = self._apply(action.actor, op)
        elif action.detail == Fate.LIMBO:
            self.budgets = self.budgets.without(limbos=1)
            self.limbo = (*self.limbo, (action.actor, op))
        program = self.seats[action.actor].program
        program.crash(local)
        self.seats = {**self.seats, action.actor: Seat(program, None)}
        self._forget_wakes(action.actor)
        self.world.bury(action.actor)
        return Step(action, action.actor, op, None, effect.changes)

    def _pass_time(self, action: Action) -> Step:
        if action.move is Move.IDLE:
            to_ms = min(wake for wake in self._wakes() if wake > self.world.now_ms)
        else:
            self.budgets = self.budgets.without(ticks=1)
            to_ms = self._ticks_to()[0 if action.detail == "next" else -1]
        passed_ms = to_ms - self.world.now_ms
        self.world.advance_to(to_ms)
        return Step(action, answer=passed_ms)

    def _stop_timer(self, action: Action) -> Step:
        local, op = self._call_of(action)
        self.budgets = self.budgets.without(ticker_failures=1)
        program = self.seats[action.actor].program
        self._sit(action.actor, program, program.after_end_of(local, action.thread), None)
        return Step(action, action.actor, op)

    def _restart(self, action: Action) -> Step:
        self.budgets = self.budgets.without(restarts=1)
        former = self.seats[action.actor].program
        program = self._cast.program(action.actor, former.incarnation + 1)
        self._sit(action.actor, program, program.root, MAIN)
        return Step(action, action.actor, notes=program.root.notes, outcome=program.root.outcome)

    def _apply(self, actor: str, op: Op) -> _Effect:
        try:
            answer, changes = self.world.act(actor, op)
        except HeadwaterError as error:
            return _Effect(Failure.of(error))
        return _Effect(answer, tuple(changes))

    def _answer(self, action: Action, op: Op, effect: _Effect, answer: Any) -> Step:
        name = action.actor
        program, local = self.seats[name]
        if local is None:
            raise_internal("A dead actor gets no answers", actor=name)
        after = program.after(local, action.thread, answer)
        self._sit(name, program, after, action.thread)
        if after.outcome is not None:
            self.world.bury(name)
        return Step(
            action, name, op, answer, effect.changes, notes=after.notes, outcome=after.outcome
        )

    def _sit(self, name: str, program: Program, local: Local, answered: int | None) -> None:
        """Put an actor into a local state and note when the calls it now makes may end.

        A call that was pending before keeps its deadline; `answered` names the thread whose call
        is new.
        """
        self.seats = {**self.seats, name: Seat(program, local)}
        known = self.wakes_ms
        if known:
            self._forget_wakes(name)
        for thread, op in local.pending:
            if op.kind in _TIMED:
                at = (name, thread)
                is_new = thread == answered or at not in known
                wake_ms = self.world.now_ms + op.number if is_new else known[at]
                self.wakes_ms = {**self.wakes_ms, at: wake_ms}

    def _forget_wakes(self, name: str) -> None:
        self.wakes_ms = {at: wake for at, wake in self.wakes_ms.items() if at[0] != name}

    # What the checkers ask.

    def results(self) -> dict[str, str]:
        """Return how each actor ended: its own word, `crashed`, or `blocked`."""
        return {name: _result_of(seat) for name, seat in self.seats.items()}

    def violations(self, step: Step) -> Iterator[Violation]:
        """Return what the step just performed broke."""
        if step.outcome is not None and step.outcome.error is not None:
            yield Violation("SIM-ERROR", f"{step.actor} failed: {step.outcome.error}")
        for place, each in enumerate(step.by_change()):
            moment = self._without(step.changes[place + 1 :])
            if each.path:
                for invariant in self.scenario.invariants:
                    if invariant.under is not None and each.path.startswith(invariant.under):
                        for message in invariant.check(each, moment):
                            yield Violation(invariant.id, message)
            self.scenario.learn(each, moment)
        if step.notes or step.outcome is not None:
            for invariant in self.scenario.invariants:
                if invariant.under is None:
                    for message in invariant.check(step, self):
                        yield Violation(invariant.id, message)
            self.scenario.hear(step, self)

    def _without(self, later: tuple[Change, ...]) -> Simulation:
        """Return this state as it was between two changes of one step; checkers share its facts."""
        if not later:
            return self
        moment = self.fork()
        moment.facts = self.facts
        for change in reversed(later):
            moment.world.undo(change)
        return moment


class _Effect(NamedTuple):
    """What an operation returned, and what it changed."""

    answer: Any = None
    changes: tuple[Change, ...] = ()


def _result_of(seat: Seat) -> str:
    if seat.is_dead:
        return "crashed"
    return "blocked" if seat.outcome is None else str(seat.outcome.value)
