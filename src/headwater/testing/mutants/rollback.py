"""Planted bugs in how failed writes are rolled back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from headwater.kernel.layout import TableLayout, attempt_folder
from headwater.kernel.txn.attempts import Attempt
from headwater.kernel.txn.events import Event, RolledBack, Write, writes_of
from headwater.kernel.txn.guard import Work
from headwater.kernel.txn.heartbeat import Heartbeat
from headwater.kernel.txn.markers import delete_markers
from headwater.kernel.txn.prefix import Prefix
from headwater.kernel.txn.rollback import Rollbacks
from headwater.kernel.txn.rollback_steps import CompleteRollback, ScheduleRollback
from headwater.kernel.txn.steps import Complete
from headwater.kernel.txn.transaction import (
    Beside,
    Decided,
    Decision,
    LockTransaction,
    Refusal,
    Step,
)
from headwater.model.instant import Instant
from headwater.model.plans import RollbackPlan
from headwater.seams.storage import Storage
from headwater.testing.faults import Fate, Faults
from headwater.testing.mutants.guard import DecidedEarlier, UnfencedComplete
from headwater.testing.mutants.mutant import Mutant
from headwater.testing.scenarios.plan import PARTITION
from headwater.testing.scenarios.rollback import GROUP, WRITE, rollback_two

R = TypeVar("R")

_STALL = Faults(ticks=1, has_long_ticks=False)
_STALL_AND_CRASH = Faults(ticks=1, has_long_ticks=False, crashes=1, fates=(Fate.DROP,))


@dataclass(frozen=True)
class _WithMore:
    """Does more than the work it stands for, before it."""

    work: Work
    storage: Storage

    def undo_before(self, attempt: Attempt) -> None:
        self.work.undo_before(attempt)

    def execute(self, attempt: Attempt, heartbeat: Heartbeat) -> bytes:
        self.do_more()
        return self.work.execute(attempt, heartbeat)

    def do_more(self) -> None:
        raise NotImplementedError


class _ListedByInstant(_WithMore):
    """Deletes what has the write in its name, whether the plan lists it or not."""

    def do_more(self) -> None:
        for found in self.storage.list_tree(PARTITION):
            if WRITE in found.path:
                self.storage.delete(found.path)


class _ListedByGroup(_WithMore):
    """Takes all files of a file group that the write touched for the write's own."""

    def do_more(self) -> None:
        for found in self.storage.list_tree(PARTITION):
            if found.path.startswith(f"{PARTITION}/{GROUP}_"):
                self.storage.delete(found.path)


class _MarkersFirst(_WithMore):
    """Forgets what the write announced before it is gone."""

    def do_more(self) -> None:
        delete_markers(self.storage, WRITE)


class _AttemptsFirst(_WithMore):
    """Forgets that the write is dead before it is gone."""

    def do_more(self) -> None:
        for name in self.storage.list_names(attempt_folder(WRITE)):
            self.storage.delete(f"{attempt_folder(WRITE)}/{name}")


def _rollbacks_with(work: type[_WithMore]) -> type[Rollbacks]:
    class Broken(Rollbacks):
        def _work(self, plan: RollbackPlan) -> Any:
            return work(Rollbacks._work(self, plan), self.components.storage)

    return Broken


class _NoAttemptCheck(LockTransaction):
    def run(self, step: Step[R], beside: Beside[R] | None = None) -> Decided[R]:
        if isinstance(step, Complete):
            return super().run(UnfencedComplete(step.attempt, step.content), beside)
        return super().run(step, beside)


class _ScheduledOutsideLock(LockTransaction):
    def run(self, step: Step[R], beside: Beside[R] | None = None) -> Decided[R]:
        if isinstance(step, ScheduleRollback):
            return super().run(DecidedEarlier(step, self._prefixes.load(step.needs)), beside)
        return super().run(step, beside)


class _Unfenced(ScheduleRollback):
    """Schedules without declaring the attempts of the write dead."""

    def decide(self, prefix: Prefix) -> Decision[Any] | Refusal:
        decided = ScheduleRollback.decide(self, prefix)
        if isinstance(decided, Refusal):
            return decided
        return Decision(decided.events[1:], decided.result)


class _Second(ScheduleRollback):
    """Does not look whether a rollback of the write is pending."""

    def _pending_rollback(self, prefix: Prefix) -> Instant | None:
        return None


class _CompletedFirst(CompleteRollback):
    """Completes while the write is still on the timeline."""

    def decide(self, prefix: Prefix) -> Decision[Instant] | Refusal:
        decided = CompleteRollback.decide(self, prefix)
        if isinstance(decided, Refusal):
            return decided
        return Decision(decided.events[::-1], decided.result)


def _inflight_first(events: Iterable[Event], layout: TableLayout) -> Iterator[Write]:
    for event in events:
        writes = list(writes_of([event], layout))
        yield from reversed(writes) if isinstance(event, RolledBack) else writes


MUTANTS = (
    Mutant(
        name="write rolled back by listing its files",
        scenario=lambda: rollback_two(_STALL, cleaners=1, make=_rollbacks_with(_ListedByInstant)),
        must_violate=("INV-27",),
    ),
    Mutant(
        name="write rolled back by listing its file groups",
        scenario=lambda: rollback_two(_STALL, cleaners=1, make=_rollbacks_with(_ListedByGroup)),
        must_violate=("INV-59",),
    ),
    Mutant(
        name="markers deleted before the rollback completes",
        scenario=lambda: rollback_two(_STALL, cleaners=1, make=_rollbacks_with(_MarkersFirst)),
        must_violate=("INV-60",),
    ),
    Mutant(
        name="attempts deleted before the rollback completes",
        scenario=lambda: rollback_two(_STALL, cleaners=1, make=_rollbacks_with(_AttemptsFirst)),
        must_violate=("INV-21", "INV-31"),
    ),
    Mutant(
        name="no attempt check at commit of a write",
        scenario=lambda: rollback_two(_STALL, cleaners=1, transaction=_NoAttemptCheck),
        must_violate=("INV-31", "INV-59"),
    ),
    Mutant(
        name="rollback scheduled without fencing the writer",
        scenario=lambda: rollback_two(_STALL, cleaners=1),
        patches=(("headwater.kernel.txn.rollback.ScheduleRollback", _Unfenced),),
        must_violate=("INV-28", "INV-31"),
    ),
    Mutant(
        name="rollback decided outside the lock",
        scenario=lambda: rollback_two(_STALL, cleaners=1, transaction=_ScheduledOutsideLock),
        must_violate=("INV-28",),
    ),
    Mutant(
        name="second rollback for the same write",
        scenario=lambda: rollback_two(_STALL_AND_CRASH),
        patches=(("headwater.kernel.txn.rollback.ScheduleRollback", _Second),),
        must_violate=("INV-29",),
    ),
    Mutant(
        name="rollback completed before its target is gone",
        scenario=lambda: rollback_two(_STALL, cleaners=1),
        patches=(("headwater.kernel.txn.rollback.CompleteRollback", _CompletedFirst),),
        must_violate=("INV-32",),
    ),
    Mutant(
        name="inflight file of a rolled-back write deleted first",
        scenario=lambda: rollback_two(_STALL, cleaners=1),
        patches=(("headwater.kernel.txn.transaction.writes_of", _inflight_first),),
        must_violate=("INV-01",),
    ),
)
