"""Planted bugs in the heartbeat guard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from headwater.kernel.layout import TableLayout, attempt_folder, heartbeat_path
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.txn.attempts import Attempt, encode_attempt
from headwater.kernel.txn.events import Event, Put, Together, Write, writes_of
from headwater.kernel.txn.heartbeat import Heartbeat
from headwater.kernel.txn.prefix import Needs, Prefix
from headwater.kernel.txn.steps import Complete, StartExecution
from headwater.kernel.txn.transaction import (
    Beside,
    Decided,
    Decision,
    LockTransaction,
    Refusal,
    Step,
    Transaction,
)
from headwater.model.instant import Instant
from headwater.seams.clock import Clock
from headwater.seams.components import Components
from headwater.seams.given_up import GivenUp
from headwater.seams.storage import Storage
from headwater.testing.faults import Faults
from headwater.testing.mutants.mutant import Mutant
from headwater.testing.scenarios.guard import guard_2, guard_with_tickers
from headwater.testing.scenarios.plan import LOCK_TIMEOUT_MS, MakeTransaction, OneFile, executor
from headwater.testing.scenarios.unknown import unknown
from headwater.testing.simulation import Scenario
from headwater.testing.table import LAYOUT

R = TypeVar("R")


def _with_executor(scenario: Scenario, **broken: Any) -> Scenario:
    actors = {name: executor(**broken) for name in scenario.actors}
    return replace(scenario, actors=actors)


def _make(transaction: type[LockTransaction]) -> MakeTransaction:
    def make(components: Components) -> Transaction:
        return transaction(components, LAYOUT, lock_timeout_ms=LOCK_TIMEOUT_MS)

    return make


@dataclass(frozen=True)
class DecidedEarlier:
    """A step that decides on a prefix somebody loaded before."""

    step: Step[Any]
    prefix: Prefix

    def needs(self, timeline: Timeline) -> Needs:
        return Needs()

    def decide(self, prefix: Prefix) -> Decision[Any] | Refusal:
        return self.step.decide(self.prefix)


class _GuardOutsideLock(LockTransaction):
    def run(self, step: Step[R], beside: Beside[R] | None = None) -> Decided[R]:
        if isinstance(step, StartExecution):
            return super().run(DecidedEarlier(step, self._prefixes.load(step.needs)), beside)
        return super().run(step, beside)


class UnfencedComplete(Complete):
    """Takes its own attempt for the newest."""

    def decide(self, prefix: Prefix) -> Decision[Instant] | Refusal:
        mine = {self.attempt.instant: self.attempt.attempt}
        return super().decide(replace(prefix, newest_attempt_numbers=mine))


class _NoAttemptCheck(LockTransaction):
    def run(self, step: Step[R], beside: Beside[R] | None = None) -> Decided[R]:
        if isinstance(step, Complete):
            return super().run(UnfencedComplete(step.attempt, step.content), beside)
        return super().run(step, beside)


class _UndoByPrefix(OneFile):
    """Takes every file of the plan for one of a dead attempt."""

    def is_dead(self, owner: tuple[str, int], attempt: Attempt) -> bool:
        return owner[0] == attempt.instant


class _HeartbeatOfAnyone(Heartbeat):
    """Tidies up every attempt of the instant, whoever owns it."""

    def finish(self, beside: Callable[[], object] = lambda: None) -> None:
        for name in self._storage.list_names(attempt_folder(self.attempt.instant)):
            self._storage.delete(f"{attempt_folder(self.attempt.instant)}/{name}")
        super().finish(beside)


class _ForgottenAttempts(Heartbeat):
    """Deletes the attempt on failure too, so that only live ones count."""

    def release(self) -> None:
        self.finish()


class _PlainFileLast(Heartbeat):
    """Deletes the plain heartbeat when a successor may already keep it fresh."""

    def release(self) -> None:
        self._timer.cancel()
        if self._lapsed():
            return
        self._attempt = self._attempt.released()
        self._storage.put(self._attempt.path, encode_attempt(self._attempt))
        self._storage.delete(heartbeat_path(self._attempt.instant))


class _LateDeadline(Heartbeat):
    """Counts its first deadline from after the claim, while others count from the claim."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        claimed: Attempt,
        *,
        claimed_ms: int,
        given_up: GivenUp | None = None,
    ) -> None:
        late_ms = clock.monotonic_ms()
        super().__init__(storage, clock, claimed, claimed_ms=late_ms, given_up=given_up)


class _TwoReadings(Heartbeat):
    """Compares one reading of the clock with its deadline and extends it by another."""

    def beat(self) -> bool:
        if self._lapsed():
            return False
        began_ms = self._clock.monotonic_ms()
        self._attempt = self._attempt.next_beat()
        self._storage.put(self._attempt.path, encode_attempt(self._attempt))
        self._deadline_ms = began_ms + self._attempt.expiry_ms
        return True


def _plain_heartbeat_last(events: Iterable[Event], layout: TableLayout) -> Iterator[Write]:
    """Make the instant visible first, and then the heartbeat that other engines look at."""
    beats: list[Put] = []
    for write in writes_of(events, layout):
        if isinstance(write, Together):
            beats += [put for put in write.puts if isinstance(put, Put)]
            yield from (put for put in write.puts if not isinstance(put, Put))
        else:
            yield write
    yield from beats


MUTANTS = (
    Mutant(
        name="plain heartbeat after the instant",
        scenario=lambda: unknown(Faults()),
        patches=(("headwater.kernel.txn.transaction.writes_of", _plain_heartbeat_last),),
        must_violate=("INV-111",),
    ),
    Mutant(
        name="guard check outside the lock",
        scenario=lambda: _with_executor(guard_2(Faults()), transaction=_make(_GuardOutsideLock)),
        must_violate=("INV-19", "INV-24"),
    ),
    Mutant(
        name="no attempt check at commit",
        scenario=lambda: _with_executor(
            guard_2(Faults(ticks=1)), transaction=_make(_NoAttemptCheck)
        ),
        must_violate=("INV-18", "INV-59"),
    ),
    Mutant(
        name="rollback by prefix listing",
        scenario=lambda: _with_executor(
            guard_2(Faults(ticks=1), is_after_death=True), work=_UndoByPrefix
        ),
        must_violate=("INV-27", "INV-59"),
    ),
    Mutant(
        name="heartbeat deleted without owner check",
        scenario=lambda: guard_2(Faults(ticks=1)),
        patches=(("headwater.kernel.txn.heartbeat.Heartbeat", _HeartbeatOfAnyone),),
        must_violate=("INV-21",),
    ),
    Mutant(
        name="attempt numbers from live heartbeat files",
        scenario=lambda: guard_2(Faults(lost_replies=1)),
        patches=(("headwater.kernel.txn.heartbeat.Heartbeat", _ForgottenAttempts),),
        must_violate=("INV-19",),
    ),
    Mutant(
        name="plain heartbeat deleted after the release",
        scenario=lambda: guard_2(Faults(lost_replies=1)),
        patches=(("headwater.kernel.txn.heartbeat.Heartbeat", _PlainFileLast),),
        must_violate=("INV-21",),
    ),
    Mutant(
        name="first deadline counted from after the claim",
        scenario=lambda: guard_2(Faults(ticks=1)),
        patches=(("headwater.kernel.txn.heartbeat.Heartbeat", _LateDeadline),),
        must_violate=("INV-22",),
    ),
    Mutant(
        name="deadline extended by a second reading of the clock",
        scenario=lambda: guard_with_tickers(Faults(ticks=2)),
        patches=(("headwater.kernel.txn.heartbeat.Heartbeat", _TwoReadings),),
        must_violate=("INV-21",),
    ),
)
