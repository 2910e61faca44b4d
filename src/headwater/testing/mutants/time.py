"""Planted bugs in how times and names are claimed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from headwater.kernel.timeline.active import Timeline
from headwater.kernel.txn.events import Completed
from headwater.kernel.txn.prefix import Needs, Prefix
from headwater.kernel.txn.steps import Complete
from headwater.kernel.txn.transaction import (
    Beside,
    Decided,
    Decision,
    LockTransaction,
    Refusal,
    Step,
    Transaction,
)
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.seams.clock import Clock
from headwater.seams.components import Components
from headwater.seams.storage import Storage
from headwater.testing.faults import Faults
from headwater.testing.mutants.mutant import Mutant
from headwater.testing.scenarios.guard import guard_2
from headwater.testing.scenarios.ingest import writer
from headwater.testing.scenarios.plan import LOCK_TIMEOUT_MS, executor
from headwater.testing.scenarios.unknown import unknown
from headwater.testing.simulation import Scenario
from headwater.testing.table import LAYOUT

R = TypeVar("R")


@dataclass(frozen=True)
class _TakeTime:
    """Issue a time and write nothing."""

    def needs(self, timeline: Timeline) -> Needs:
        return Needs()

    def decide(self, prefix: Prefix) -> Decision[InstantTime]:
        return Decision((), prefix.next_time)


@dataclass(frozen=True)
class _CompleteAt:
    step: Complete
    time: InstantTime

    def needs(self, timeline: Timeline) -> Needs:
        return self.step.needs(timeline)

    def decide(self, prefix: Prefix) -> Decision[Instant] | Refusal:
        return self.step.decide(replace(prefix, next_time=self.time))


class _EarlyCompletionTime(LockTransaction):
    def run(self, step: Step[R], beside: Beside[R] | None = None) -> Decided[R]:
        if isinstance(step, Complete):
            time = super().run(_TakeTime()).result
            return super().run(_CompleteAt(step, time), beside)
        return super().run(step, beside)


class _UncheckedComplete(Complete):
    """Leaves it to put-if-absent to refuse a second completed file, whose name differs."""

    def decide(self, prefix: Prefix) -> Decision[Instant] | Refusal:
        time, action = self.attempt.instant, Action.COMPACTION
        event = Completed(time, action, prefix.next_time, self.content)
        return Decision((event,), Instant(time, action, State.COMPLETED, prefix.next_time))


class _NoLookForCompleted(LockTransaction):
    def run(self, step: Step[R], beside: Beside[R] | None = None) -> Decided[R]:
        if isinstance(step, Complete):
            return super().run(_UncheckedComplete(step.attempt, step.content), beside)
        return super().run(step, beside)


def _put(storage: Storage, clock: Clock, path: str, data: bytes) -> None:
    storage.put(path, data)


def early_transaction(components: Components) -> Transaction:
    return _EarlyCompletionTime(components, LAYOUT, lock_timeout_ms=LOCK_TIMEOUT_MS)


def _unchecked(components: Components) -> Transaction:
    return _NoLookForCompleted(components, LAYOUT, lock_timeout_ms=LOCK_TIMEOUT_MS)


def _writers_with_early_times() -> Scenario:
    scenario = unknown(Faults())
    return replace(
        scenario, actors={name: writer(transaction=early_transaction) for name in scenario.actors}
    )


def _executors_without_look() -> Scenario:
    scenario = guard_2(Faults(ticks=1))
    actors = {name: executor(transaction=_unchecked) for name in scenario.actors}
    return replace(scenario, actors=actors)


MUTANTS = (
    Mutant(
        name="completion time issued before the lock scope of the file",
        scenario=_writers_with_early_times,
        must_violate=("INV-41",),
    ),
    Mutant(
        name="completed file named by completion time only",
        scenario=_executors_without_look,
        must_violate=("INV-02",),
    ),
    Mutant(
        name="instant claimed with put instead of put_if_absent",
        scenario=lambda: unknown(Faults(crashes=1)),
        patches=(("headwater.kernel.txn.transaction.put_once", _put),),
        must_violate=("INV-19", "INV-21"),
    ),
)
