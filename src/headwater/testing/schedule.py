"""Strategies that choose one action at a time, for runs that go from the start to the end.

    Random   uniform; weak alone
    Sticky   stays with one actor with probability 0.8; finds long stretches of one process
    Pct      random priorities and a few change points; finds deep orderings
    Rarely   one actor gets a step after many of the others; finds work that never ends
    Replay   a decision list; entries that are not possible are skipped, then round robin

The exhaustive search does not choose, it forks; see `explore`.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random as RandomSource
from typing import Protocol

from headwater.testing.history import Action, Move

_STAY_PROBABILITY = 0.8
_FAULT_PROBABILITY = 0.08  # Faults are many per state; uniform choice would spend them at once.
_PCT_STEPS = 150  # About how long a run is: change points fall somewhere in it.

_NO_FAULTS = frozenset({Move.RUN, Move.IDLE})


class Strategy(Protocol):
    def choose(self, actions: list[Action]) -> Action:
        """Return one of `actions`, which is never empty."""
        ...


class Random:
    def __init__(self, seed: int) -> None:
        self._source = RandomSource(seed)

    def choose(self, actions: list[Action]) -> Action:
        return _choose_kind(actions, self._source, self._source.choice)


class Sticky:
    def __init__(self, seed: int) -> None:
        self._source = RandomSource(seed)
        self._last = ""

    def choose(self, actions: list[Action]) -> Action:
        chosen = _choose_kind(actions, self._source, self._stay)
        self._last = chosen.actor or self._last
        return chosen

    def _stay(self, runs: list[Action]) -> Action:
        same = [run for run in runs if run.actor == self._last]
        if same and self._source.random() < _STAY_PROBABILITY:
            return same[0]
        return self._source.choice(runs)


class Pct:
    """Probabilistic concurrency testing: the actor with the highest priority runs; at `depth` - 1
    random steps it falls behind all others."""

    def __init__(self, seed: int, depth: int = 3) -> None:
        self._source = RandomSource(seed)
        self._changes = {self._source.randrange(_PCT_STEPS) for _ in range(depth - 1)}
        self._priorities: dict[tuple[str, int], float] = {}
        self._step = 0

    def choose(self, actions: list[Action]) -> Action:
        return _choose_kind(actions, self._source, self._highest)

    def _highest(self, runs: list[Action]) -> Action:
        for run in runs:
            self._priorities.setdefault((run.actor, run.thread), self._source.random())
        chosen = max(runs, key=lambda run: self._priorities[run.actor, run.thread])
        if self._step in self._changes:
            self._priorities[chosen.actor, chosen.thread] = -self._step
        self._step += 1
        return chosen


class Rarely:
    """One actor is slower than all others by a factor: it gets one step in so many.

    The gaps differ, since nobody is slow to a beat: two others that hand a lock to each other with
    a period that fits would keep it from the third for ever.
    """

    def __init__(self, actor: str, factor: int) -> None:
        self._actor = actor
        self._factor = factor
        self._source = RandomSource(factor)
        self._gap = factor
        self._last = ""

    def choose(self, actions: list[Action]) -> Action:
        self._gap -= 1
        runs = [action for action in actions if action.move in _NO_FAULTS]
        others = [run for run in runs if run.actor != self._actor]
        if not others or (self._gap <= 0 and len(others) < len(runs)):
            self._gap = self._source.randint(1, 2 * self._factor - 1)
            return next(run for run in runs if run.actor == self._actor)
        chosen = next((run for run in others if run.actor > self._last), others[0])
        self._last = chosen.actor
        return chosen


class Replay:
    def __init__(self, decisions: Iterable[str]) -> None:
        self._decisions = list(decisions)
        self._at = 0
        self._last = ""
        self.skipped: list[str] = []

    def choose(self, actions: list[Action]) -> Action:
        by_text = {str(action): action for action in actions}
        while self._at < len(self._decisions):
            text = self._decisions[self._at]
            if text not in by_text and len(actions) == 1:
                break  # A forced action is not in the list; it delays the next entry only.
            self._at += 1
            if text in by_text:
                return self._take(by_text[text])
            self.skipped.append(text)
        return self._take(self._next_in_turn(actions))

    def _take(self, action: Action) -> Action:
        self._last = action.actor or self._last
        return action

    def _next_in_turn(self, actions: list[Action]) -> Action:
        runs = [action for action in actions if action.move in _NO_FAULTS] or actions
        after = [run for run in runs if run.actor > self._last]
        return (after or runs)[0]


def _choose_kind(actions: list[Action], source: RandomSource, choose_run: _ChooseRun) -> Action:
    runs = [action for action in actions if action.move in _NO_FAULTS]
    faults = [action for action in actions if action.move not in _NO_FAULTS]
    if faults and (not runs or source.random() < _FAULT_PROBABILITY):
        # Kinds first: there are many ways to crash and only one to let time pass.
        move = source.choice(sorted({fault.move for fault in faults}))
        return source.choice([fault for fault in faults if fault.move is move])
    return choose_run(runs)


class _ChooseRun(Protocol):
    def __call__(self, runs: list[Action], /) -> Action: ...
