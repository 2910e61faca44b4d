"""Make a failing run short enough to read.

The failure to keep is "some invariant with the same id fails". In turn, until nothing helps:

1. drop stretches of the decision list, then single decisions; the rest of the run goes round robin;
2. drop faults one by one;
3. move a decision next to the actor's previous one, so that there are fewer switches.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from headwater.testing.explore import Trace, replay
from headwater.testing.history import Move
from headwater.testing.simulation import Scenario, Violation

_ROUNDS_MAX = 8

_NO_FAULTS = (f"{Move.RUN} ", Move.IDLE)


def shrink(scenario: Scenario, trace: Trace) -> Trace:
    """Return a shorter run of `scenario` that breaks the same invariant as `trace`."""
    violation = trace.violation
    if violation is None:
        return trace

    def is_same(other: Violation) -> bool:
        return other.invariant == violation.invariant

    def attempt(decisions: list[str]) -> Trace | None:
        again = replay(scenario, decisions, stop_at=is_same)
        return again if again.violation is not None else None

    best = trace
    for _ in range(_ROUNDS_MAX):
        smaller = _drop_stretches(best, attempt)
        smaller = _drop_faults(smaller, attempt)
        smaller = _merge_switches(smaller, attempt)
        if _size(smaller) >= _size(best):
            break
        best = smaller
    return best


_Attempt = Callable[[list[str]], Trace | None]


def _size(trace: Trace) -> tuple[int, int, int]:
    faults = sum(not decision.startswith(_NO_FAULTS) for decision in trace.decisions)
    return faults, len(trace.steps), switches(trace)


def switches(trace: Trace) -> int:
    """Count how often the run goes over to another actor."""
    actors = [step.actor for step in trace.steps if step.actor]
    return sum(one != other for one, other in pairwise(actors))


def _better(best: Trace, candidate: Trace | None) -> Trace | None:
    return candidate if candidate is not None and _size(candidate) < _size(best) else None


def _drop_stretches(best: Trace, attempt: _Attempt) -> Trace:
    length = max(1, len(best.decisions) // 2)
    while length:
        at = 0
        while at < len(best.decisions):
            rest = [*best.decisions[:at], *best.decisions[at + length :]]
            smaller = _better(best, attempt(rest))
            if smaller is None:
                at += length
            else:
                best = smaller
        length //= 2
    return best


def _drop_faults(best: Trace, attempt: _Attempt) -> Trace:
    at = 0
    while at < len(best.decisions):
        if not best.decisions[at].startswith(_NO_FAULTS):
            rest = [*best.decisions[:at], *best.decisions[at + 1 :]]
            smaller = _better(best, attempt(rest))
            if smaller is not None:
                best = smaller
                continue
        at += 1
    return best


def _merge_switches(best: Trace, attempt: _Attempt) -> Trace:
    at = 1
    while at < len(best.decisions):
        decisions = list(best.decisions)
        previous = next((i for i in range(at - 1, -1, -1) if decisions[i] == decisions[at]), None)
        if previous is not None and previous < at - 1:
            decisions.insert(previous + 1, decisions.pop(at))
            best = _better(best, attempt(decisions)) or best
        at += 1
    return best
