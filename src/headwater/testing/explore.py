"""Entry points: search all runs of a scenario, hunt with random ones, replay one.

`exhaust` is depth first over all decisions, forking the state at every choice. A state seen before
is not entered again: everything that can follow is or will be explored from the first visit. Two
calls that commute lead to one state whichever comes first, which is most of what partial-order
reduction would give.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import process_time

from headwater.errors import raise_internal
from headwater.testing.history import Action, Move, Step
from headwater.testing.schedule import Replay, Strategy
from headwater.testing.simulation import Cast, Scenario, Simulation, Violation


@dataclass(frozen=True, slots=True)
class Trace:
    """One run from the start: what was decided, what happened, what broke."""

    decisions: tuple[str, ...]
    steps: tuple[Step, ...]
    results: dict[str, str]
    violation: Violation | None
    objects: dict[str, bytes]
    marks: frozenset[str]


@dataclass(slots=True)
class Report:
    """What a search or a hunt found."""

    scenario: str
    strategy: str
    runs: int = 0
    states: int = 0
    steps: int = 0
    seconds: float = 0.0  # Of this process's processor, whatever else the machine does.
    is_complete: bool = False
    marks: set[str] = field(default_factory=set)
    results: set[tuple[tuple[str, str], ...]] = field(default_factory=set)
    violation: Violation | None = None
    decisions: tuple[str, ...] = ()
    missing_marks: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        return self.violation is None and not self.missing_marks


class _Frame:
    """A state on the current path with several ways on, and those not taken yet."""

    __slots__ = ("actions", "decisions", "last", "last_can_go_on", "preemptions", "simulation")

    def __init__(
        self,
        simulation: Simulation,
        actions: list[Action],
        decisions: list[Action],
        last: str,
        preemptions: int,
    ) -> None:
        self.simulation = simulation
        self.decisions = decisions  # That led here from the frame below.
        self.last = last
        self.preemptions = preemptions
        # Taken from the end: first the calls, in the order of the actors, then the faults.
        self.actions = actions[::-1]
        self.last_can_go_on = any(
            action.move is Move.RUN and action.actor == last for action in actions
        )


StopAt = Callable[[Violation], bool]


def any_violation(violation: Violation) -> bool:
    return True


def exhaust(
    scenario: Scenario,
    *,
    preemptions_max: int | None = None,
    has_cache: bool = True,
    states_max: int | None = None,
    stop_at: StopAt = any_violation,
) -> Report:
    """Search every run of `scenario`, or until the first violation that `stop_at` accepts.

    With `preemptions_max` an actor that could go on is left at most that often; faults and the
    passing of time do not count.
    """
    bound = "" if preemptions_max is None else f", preemptions <= {preemptions_max}"
    report = Report(scenario.name, f"exhaustive{bound}")
    cast = Cast(scenario)
    began = process_time()
    with quiet_logs():
        search = _Search(scenario, report, preemptions_max, has_cache, states_max, stop_at)
        search.run(Simulation(scenario, cast))
        unwound = _first(cast.close(), stop_at)
        report.violation = report.violation or unwound
    report.seconds = process_time() - began
    if report.is_complete:
        report.missing_marks = tuple(sorted(set(scenario.marks) - report.marks))
    return report


@dataclass(slots=True)
class _Search:
    """The depth-first search of one scenario."""

    scenario: Scenario
    report: Report
    preemptions_max: int | None
    has_cache: bool
    states_max: int | None
    stop_at: StopAt
    seen: set[bytes] = field(default_factory=set)
    stack: list[_Frame] = field(default_factory=list)

    def run(self, start: Simulation) -> None:
        report = self.report
        report.violation = _first(_opening_violations(start, report), self.stop_at)
        if report.violation is None:
            self._go_on(start, [], "", 0)
        while self.stack and report.violation is None:
            frame = self.stack[-1]
            if not frame.actions:
                self.stack.pop()
                continue
            if self.states_max is not None and report.states >= self.states_max:
                return
            action = frame.actions.pop()
            preemptions = frame.preemptions + _preemption_cost(frame, action)
            if self.preemptions_max is not None and preemptions > self.preemptions_max:
                continue
            # The last way on may have the state to itself; the others need a copy.
            simulation = frame.simulation.fork() if frame.actions else frame.simulation
            if self._perform(simulation, action, [action]):
                self._go_on(simulation, [action], action.actor or frame.last, preemptions)
        report.is_complete = report.violation is None

    def _go_on(
        self, simulation: Simulation, decisions: list[Action], last: str, preemptions: int
    ) -> None:
        """Go on to the next state with a choice and put it on the stack, unless it is known.

        States without a choice are not kept. The first of them is remembered all the same, or its
        tail would be run again for every way that leads there.
        """
        actions = simulation.actions()
        is_first = True
        while len(actions) == 1:
            if is_first and not simulation.is_forced(actions[0]):
                if self._is_known(simulation, last, preemptions):
                    return
                is_first = False
            decisions.append(actions[0])
            if len(decisions) > self.scenario.steps_max:
                raise_internal(f"A run of {self.scenario.name} does not end")
            if not self._perform(simulation, actions[0], decisions):
                return
            last = actions[0].actor or last
            actions = simulation.actions()
        if not actions:
            self.report.runs += 1
            self._check_end(simulation, decisions)
        elif not self._is_known(simulation, last, preemptions) and (
            not simulation.is_over or self._check_end(simulation, decisions)
        ):
            self.stack.append(_Frame(simulation, actions, decisions, last, preemptions))
            if len(self.stack) > self.scenario.steps_max:
                raise_internal(f"A run of {self.scenario.name} does not end")

    def _check_end(self, simulation: Simulation, decisions: list[Action]) -> bool:
        self.report.results.add(tuple(simulation.results().items()))
        return self._judge(self.scenario.check_end(simulation), decisions)

    def _is_known(self, simulation: Simulation, last: str, preemptions: int) -> bool:
        """Whether this state was met before; from now on it was."""
        if self.has_cache:
            key = simulation.key()
            if self.preemptions_max is not None:
                key += f"{last} {preemptions}".encode()
            if key in self.seen:
                self.report.runs += 1
                return True
            self.seen.add(key)
        self.report.states += 1
        return False

    def _perform(self, simulation: Simulation, action: Action, decisions: list[Action]) -> bool:
        """Perform one action; False if that broke something."""
        step = simulation.perform(action)
        self.report.steps += 1
        _reach_marks(self.scenario, step, simulation, self.report.marks)
        return self._judge(simulation.violations(step), decisions)

    def _judge(self, violations: Iterable[Violation], decisions: list[Action]) -> bool:
        found = _first(violations, self.stop_at)
        if found is None:
            return True
        self.report.violation = found
        path = [action for frame in self.stack for action in frame.decisions]
        self.report.decisions = tuple(str(action) for action in (*path, *decisions))
        return False


def _preemption_cost(frame: _Frame, action: Action) -> int:
    is_switch = action.move is Move.RUN and action.actor != frame.last
    return 1 if is_switch and frame.last_can_go_on else 0


def _opening_violations(simulation: Simulation, report: Report) -> Iterator[Violation]:
    for step in simulation.opening():
        _reach_marks(simulation.scenario, step, simulation, report.marks)
        yield from simulation.violations(step)


def _first(violations: Iterable[Violation], stop_at: StopAt) -> Violation | None:
    # Every checker sees every step, also after a violation: they learn facts on the way.
    return next((violation for violation in list(violations) if stop_at(violation)), None)


def _reach_marks(scenario: Scenario, step: Step, simulation: Simulation, reached: set[str]) -> None:
    for name, is_reached in scenario.marks.items():
        if name not in reached and is_reached(step, simulation):
            reached.add(name)


def run(
    scenario: Scenario,
    strategy: Strategy,
    *,
    stop_at: StopAt = any_violation,
) -> Trace:
    """Run `scenario` once, as `strategy` decides, until it ends or breaks."""
    cast = Cast(scenario)
    with quiet_logs():
        simulation = Simulation(scenario, cast)
        report = Report(scenario.name, type(strategy).__name__)
        violation = _first(_opening_violations(simulation, report), stop_at)
        steps: list[Step] = []
        while violation is None:
            actions = simulation.actions()
            if not actions:
                violation = _first(scenario.check_end(simulation), stop_at)
                break
            if len(steps) >= scenario.steps_max:
                violation = Violation("SIM-ENDLESS", f"no end within {len(steps)} steps")
                break
            step = simulation.perform(strategy.choose(actions))
            steps.append(step)
            _reach_marks(scenario, step, simulation, report.marks)
            violation = _first(simulation.violations(step), stop_at)
            if violation is None and simulation.is_over:
                violation = _first(scenario.check_end(simulation), stop_at)
        unwound = _first(cast.close(), stop_at)
        violation = violation or unwound
    return Trace(
        decisions=tuple(str(step.action) for step in steps),
        steps=tuple(steps),
        results=simulation.results(),
        violation=violation,
        objects={path: found.data for path, found in simulation.world.objects.items()},
        marks=frozenset(report.marks),
    )


def replay(
    scenario: Scenario,
    decisions: Iterable[str],
    *,
    stop_at: StopAt = any_violation,
) -> Trace:
    """Run `scenario` as a decision list says; the rest goes round robin without faults."""
    return run(scenario, Replay(decisions), stop_at=stop_at)


def hunt(
    scenario: Scenario,
    strategy: Callable[[int], Strategy],
    seeds: Iterable[int],
    *,
    stop_at: StopAt = any_violation,
) -> Report:
    """Run `scenario` once per seed until something breaks."""
    report = Report(scenario.name, "")
    began = process_time()
    for seed in seeds:
        chooser = strategy(seed)
        report.strategy = type(chooser).__name__.lower()
        trace = run(scenario, chooser, stop_at=stop_at)
        report.runs += 1
        report.steps += len(trace.steps)
        report.marks |= trace.marks
        report.results.add(tuple(trace.results.items()))
        if trace.violation is not None:
            report.violation = trace.violation
            report.decisions = trace.decisions
            break
    report.seconds = process_time() - began
    return report


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Keep the product's warnings about injected faults out of the way: there are millions."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(level)
