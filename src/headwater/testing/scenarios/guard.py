"""guard: several executors of one compaction plan (5.1, INV-18 to INV-24).

Each executes the plan; if refused, it waits for the other's heartbeat to lapse and tries again. The
heartbeats of this scenario are touched once and never refreshed, so a tick is a stall, a failed
ticker and a late beat in one; `guard_with_tickers` has timers that beat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from headwater.model.instant import State
from headwater.testing.actor import ProcessRules
from headwater.testing.check import COMMITTED, FAILED, FENCED, REFUSED, RETURNED
from headwater.testing.faults import Faults
from headwater.testing.history import Move, Step
from headwater.testing.scenarios.plan import (
    CHECKS,
    PLAN,
    executor,
    heartbeat_deadlines_ms,
    request_plan,
    request_plan_with_dead_attempt,
)
from headwater.testing.simulation import Scenario, Simulation, Violation
from headwater.testing.table import (
    TIMELINE,
    Area,
    attempt_numbers,
    attempts_in,
    current_state,
    place_of,
)
from headwater.testing.world import World, WorldRules

_NAMES = "XYZ"
_CRASHED = "crashed"

WORLD = WorldRules(counts=False, timed=(".hoodie/.attempts/",))


def guard(
    *,
    name: str,
    executors: int = 2,
    faults: Faults,
    set_up: Callable[[World], None] = request_plan,
    marks: tuple[str, ...] = (),
) -> Scenario:
    """Return a scenario of `executors` processes that all want to execute the plan."""
    return Scenario(
        name=name,
        actors={actor: executor() for actor in _NAMES[:executors]},
        set_up=set_up,
        invariants=CHECKS.all(),
        learn=CHECKS.learn,
        hear=CHECKS.hear,
        faults=faults,
        world=WORLD,
        deadlines_ms=heartbeat_deadlines_ms,
        check_end=check_outcome,
        marks={mark: MARKS[mark] for mark in marks},
        has_twins=True,
    )


def guard_2(faults: Faults, *, is_after_death: bool = False) -> Scenario:
    """Two executors; `is_after_death`: the plan is INFLIGHT from an attempt that died (5.1 C)."""
    marks = ["returned"]
    if faults.ticks:
        marks += ["taken over", "owner resumed after its heartbeat lapsed", "fenced"]
        marks += ["plan taken back"]
    if faults.crashes and faults.ticks:
        marks += ["plan left pending by a crash"]
    if faults.lost_replies:
        marks += ["lost reply on the completed file", "lost reply on the attempt"]
    if is_after_death and "plan taken back" not in marks:
        marks += ["plan taken back"]
    return guard(
        name="guard_2_after_death" if is_after_death else "guard_2",
        faults=faults,
        set_up=request_plan_with_dead_attempt if is_after_death else request_plan,
        marks=tuple(marks),
    )


def guard_3(faults: Faults) -> Scenario:
    return guard(name="guard_3", executors=3, faults=faults, marks=("returned",))


def guard_with_tickers(faults: Faults) -> Scenario:
    """Two executors whose heartbeats beat in the background, and may stop doing so."""
    scenario = guard(name="guard_with_tickers", faults=faults, marks=("returned",))
    return replace(
        scenario,
        processes=ProcessRules(has_tickers=True),
        marks={"beat": MARKS["beat"], **scenario.marks},
    )


def guard_skewed(faults: Faults, offsets_ms: Mapping[str, int]) -> Scenario:
    """The same two executors with clocks that disagree (INV-43): no outcome depends on them."""
    scenario = guard_2(faults)
    return replace(scenario, name="guard_skewed", offsets_ms=offsets_ms, has_twins=False)


def check_outcome(simulation: Simulation) -> Iterator[Violation]:
    """5.1: which results may stand together at the end."""
    results = list(simulation.results().values())
    state = current_state(simulation.world, PLAN)
    is_faultless = simulation.budgets == simulation.scenario.faults.budgets()
    committed = results.count(COMMITTED)
    allowed = {COMMITTED, RETURNED, REFUSED}
    if not is_faultless:
        allowed |= {FENCED, FAILED, _CRASHED}
    for result in sorted(set(results) - allowed):
        yield Violation("5.1", f"an executor ended {result}: {simulation.results()}")
    if committed > 1:
        yield Violation("5.1", f"{committed} executors committed")
    if is_faultless and committed != 1:
        yield Violation("5.1", f"nothing went wrong, yet {committed} executors committed")
    if committed and state is not State.COMPLETED:
        yield Violation("5.1", f"an executor committed, yet the plan is {state}")
    if f"{TIMELINE}/{PLAN}.compaction.requested" not in simulation.world.objects:
        yield Violation("5.1", "the plan is gone")


# Situations that the search must have met, or it proves nothing.


def _is_taken_over(step: Step, simulation: Simulation) -> bool:
    if not step.path or step.before is not None or place_of(step.path).area is not Area.ATTEMPT:
        return False
    others = [attempt for path, _, attempt in attempts_in(simulation.world) if path != step.path]
    return any(not attempt.is_released for attempt in others)


def _has_owner_resumed(step: Step, simulation: Simulation) -> bool:
    if step.action.move is not Move.RUN or step.op is None:
        return False
    newest = max(attempt_numbers(simulation.world, PLAN), default=0)
    return any(
        attempt.owner.host == step.actor and attempt.attempt < newest and not attempt.is_released
        for _, _, attempt in attempts_in(simulation.world)
    )


def _is_taken_back(step: Step, simulation: Simulation) -> bool:
    place = place_of(step.path) if step.path else None
    return (
        place is not None
        and place.file is not None
        and place.file.state is State.INFLIGHT
        and step.after is None
    )


def _is_left_pending(step: Step, simulation: Simulation) -> bool:
    return simulation.is_over and current_state(simulation.world, PLAN) is not State.COMPLETED


def _is_lost_reply_on(area: Area) -> Callable[[Step, Simulation], bool]:
    def is_reached(step: Step, simulation: Simulation) -> bool:
        if step.action.move is not Move.LOST_REPLY or not step.path:
            return False
        place = place_of(step.path)
        is_completed = place.file is None or place.file.state is State.COMPLETED
        return place.area is area and is_completed

    return is_reached


def _has_ended(word: str) -> Callable[[Step, Simulation], bool]:
    return lambda step, simulation: step.outcome is not None and step.outcome.value == word


def _has_beaten(step: Step, simulation: Simulation) -> bool:
    is_attempt = bool(step.path) and place_of(step.path).area is Area.ATTEMPT
    return is_attempt and step.action.thread != 0 and step.before is not None


MARKS: Mapping[str, Callable[[Step, Simulation], bool]] = {
    "taken over": _is_taken_over,
    "owner resumed after its heartbeat lapsed": _has_owner_resumed,
    "plan taken back": _is_taken_back,
    "plan left pending by a crash": _is_left_pending,
    "lost reply on the completed file": _is_lost_reply_on(Area.TIMELINE),
    "lost reply on the attempt": _is_lost_reply_on(Area.ATTEMPT),
    "returned": _has_ended(RETURNED),
    "fenced": _has_ended(FENCED),
    "beat": _has_beaten,
}
