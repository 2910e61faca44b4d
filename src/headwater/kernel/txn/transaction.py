"""Transactions: every change of the timeline is one pure decision, made on one moment's prefix.

A protocol step is a `Step`: it says what it must see and decides, as a pure function, which events
to append. The transaction owns everything else. This module holds the lock-trusting
implementation:

1. take the table lock;
2. reload the timeline, and what else the step asked for; from a distant store together with what
   it would have asked for on the timeline that was seen last;
3. issue the next instant time: max(clock, largest time known + 1 ms), unless the clock is wrong;
4. let the step decide;
5. write each event's object with put-if-absent, asking the lock's home right before each write
   whether we still hold it; an unknown outcome is read back, never taken for a failure. What
   counts for nothing alone is written at once (`events.Together`);
6. release the lock, and do meanwhile what does not need it.

It is safe as long as the lock never expires while its holder still acts (A1). `fenced`
replaces it without any step knowing: it reads the prefix, lets the step decide and appends at the
next slot, deciding again when the slot was taken.

A process that dies between two writes of one decision leaves a prefix of them, and of those that go
out at once any (N-90). Each step lists its events so that every such state is one that somebody
repairs, and says who.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar, Unpack, assert_never

from headwater.errors import CommitUnknownError, HeadwaterError, StorageError
from headwater.kernel.layout import TableLayout
from headwater.kernel.table_config import update_table_config_in_lock
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.timeline.history.write import write_history
from headwater.kernel.txn.events import (
    ChangeConfig,
    Completed,
    Delete,
    Ensure,
    Event,
    Put,
    PutOnce,
    Together,
    Write,
    WriteHistory,
    writes_of,
)
from headwater.kernel.txn.heartbeat import HeartbeatWatch
from headwater.kernel.txn.metering import meter_decision, meter_ensured, meter_refusal
from headwater.kernel.txn.prefix import LoadingWays, Needs, Prefix, PrefixLoader
from headwater.kernel.write_once import put_if_missing, put_once, put_surely
from headwater.seams.components import Components
from headwater.seams.ids import Ids
from headwater.seams.lock import HeldLock
from headwater.seams.metered_lock import acquire_metered
from headwater.seams.mutex import PerThread
from headwater.seams.storage import both_at_once

log = logging.getLogger(__name__)

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Decision(Generic[R_co]):
    """Append these events, in this order, and answer the caller."""

    events: tuple[Event, ...]
    result: R_co


@dataclass(frozen=True, slots=True)
class Refusal:
    """Change nothing and raise this."""

    error: HeadwaterError


class Step(Protocol[R_co]):
    def needs(self, timeline: Timeline) -> Needs:
        """Say what it must see beside this timeline, which may be one that is outdated."""
        ...

    def decide(self, prefix: Prefix) -> Decision[R_co] | Refusal:
        """Pure: the same prefix gives the same decision."""
        ...


@dataclass(frozen=True, slots=True)
class Decided(Generic[R]):
    """What a transaction came to."""

    result: R
    lock_held_ms: int
    timeline: Timeline
    """The one that it was decided on, without what was decided."""


Beside = Callable[[Decided[R]], object]
"""What goes on while the lock is given back, because nothing of it needs the lock."""


CheckMode = Callable[[], None]
"""Raises if transactions of another kind have the table by now."""


class Transaction(Protocol):
    @property
    def watch(self) -> HeartbeatWatch:
        """What this process has seen of other processes' heartbeats."""
        ...

    def hold(self) -> AbstractContextManager[object]:
        """Keep others from committing for the whole block, or at least behind this process."""
        ...

    def undisturbed(self, block: Callable[[], R]) -> R:
        """Run a block that no decision of others comes between.

        It may be run several times, so whatever it writes without a decision must be nobody's but
        its own, and do no harm if it stays. `run` is part of the block.

        Raises:
            HeadwaterError: as `run`, and what the block raises.
        """
        ...

    def catch_up(self) -> None:
        """Write what of a begun write is not in files yet; to be called while it is at work."""
        ...

    def run(self, step: Step[R], beside: Beside[R] | None = None) -> Decided[R]:
        """Decide and write as one; then do what goes on `beside` the lock's release.

        Raises:
            ConflictError: the lock was not to be had in time, or another writer took a name.
            FencedError: the lock was lost; nothing was written after that.
            CommitUnknownError: a write may or may not have landed.
            HeadwaterError: whatever the step refused with; nothing was written.
        """
        ...


class LockTransaction:
    """Transactions that trust the table lock (mode L)."""

    def __init__(
        self,
        components: Components,
        layout: TableLayout,
        *,
        lock_timeout_ms: int = 60_000,
        check_mode: CheckMode | None = None,
        **ways: Unpack[LoadingWays],
    ) -> None:
        """`check_mode` is asked under the lock, together with what a step must see."""
        self._components = components
        self._layout = layout
        self._table = components.storage.uri
        self._lock_timeout_ms = lock_timeout_ms
        self._check_mode = check_mode
        self._prefixes = PrefixLoader(components, layout, **ways)
        self._held: PerThread[HeldLock] = PerThread()

    @property
    def watch(self) -> HeartbeatWatch:
        """What this process has seen of other processes' heartbeats."""
        return self._prefixes.watch

    def catch_up(self) -> None:
        """Nothing: all of it is written under the lock."""

    def run(self, step: Step[R], beside: Beside[R] | None = None) -> Decided[R]:
        held = self._held.value or self._acquire()
        is_kept = held is self._held.value
        try:
            decided = self._decide(step, held)
            if beside is not None:
                afterwards: list[Callable[[], object]] = [partial(beside, decided)]
                if not is_kept:
                    afterwards.insert(0, partial(release_quietly, held))
                self._components.storage.at_once(lambda call: call(), afterwards)
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            give_up_claim(step, error, self._components.ids)
            raise
        finally:
            if not is_kept:
                release_quietly(held)  # Which does nothing if it is released.
        return decided

    def _decide(self, step: Step[R], held: HeldLock) -> Decided[R]:
        clock = self._components.clock
        began_ms = clock.monotonic_ms()
        load = partial(self._prefixes.load, step.needs)
        if self._check_mode is None:
            prefix = load()
        else:
            prefix, _ = both_at_once(self._components.storage, load, self._check_mode)
        decision = step.decide(prefix)
        if isinstance(decision, Refusal):
            meter_refusal(self._table, decision.error)
            raise decision.error
        for write in writes_of(decision.events, self._layout):
            self._apply(write, held)
        ended = {event.time for event in decision.events if isinstance(event, Completed)}
        seen = self._prefixes.note_seen(prefix.timeline, ended)
        meter_decision(self._table, prefix, decision.events, seen)
        return Decided(decision.result, clock.monotonic_ms() - began_ms, prefix.timeline)

    @contextmanager
    def hold(self) -> Iterator[HeldLock]:
        """Keep the table lock for the whole block: no other process commits meanwhile.

        For a writer that lost too often (LIV-07), and for what must happen together with a
        decision. Others wait, or give up after their time-out. A block inside another one of the
        same thread has the lock already.
        """
        if self._held.value is not None:
            yield self._held.value
            return
        held = self._acquire()
        try:
            self._held.value = held
            yield held
        finally:
            self._held.value = None
            release_quietly(held)

    def undisturbed(self, block: Callable[[], R]) -> R:
        with self.hold():
            return block()

    def _acquire(self) -> HeldLock:
        acquire = partial(self._components.locks.acquire, timeout_ms=self._lock_timeout_ms)
        return acquire_metered(self._table, acquire)

    def _apply(self, write: Write, held: HeldLock) -> None:
        storage, clock = self._components.storage, self._components.clock
        held.check()
        match write:
            case PutOnce() | Put():
                self._put(write)
            case Together(puts):
                storage.at_once(self._put, puts)
            case Ensure(path, data):
                if put_if_missing(storage, clock, path, data):
                    meter_ensured(self._table, path)
            case Delete(path):
                storage.delete(path)
            case ChangeConfig(changes):
                update_table_config_in_lock(storage, held, clock, changes)
            case WriteHistory(instants):
                write_history(storage, self._layout, instants)
            case _:
                assert_never(write)

    def _put(self, write: PutOnce | Put) -> None:
        storage, clock = self._components.storage, self._components.clock
        if isinstance(write, Put):
            put_surely(storage, clock, write.path, write.data)
        else:
            put_once(storage, clock, write.path, write.data)


def give_up_claim(step: object, error: BaseException, ids: Ids) -> None:
    """Note that nobody beats for the attempt that a step claimed, if nothing lands later.

    What is no error of ours is an interrupt, of whatever class (N-194).
    """
    claim = getattr(step, "claim", None)
    match error:
        case StorageError():
            is_over = error.is_final
        case CommitUnknownError():
            is_over = error.is_over
        case _:
            is_over = not isinstance(error, HeadwaterError)
    if claim is not None and is_over:
        ids.given_up.note(claim.token)


def release_quietly(held: HeldLock) -> None:
    try:
        held.release()
    except HeadwaterError as error:
        # The decision stands whatever becomes of the lock; its lease ends by itself.
        log.warning("table lock not released, others wait for its lease error=%s", error)
