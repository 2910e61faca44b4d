"""One ingestion instant from request to commit, as stages that offer only the next step.

    request_write -> StartedWrite.enter_inflight -> InflightWrite.commit -> CommittedWrite
    start_inflight_write                       -> InflightWrite.commit -> CommittedWrite

The second is for writes that have no workload profile to publish before they write: one
transaction less.

An inflight write may go on in another process: `InflightWrite.hand_over` here, and
`resume_inflight_write` there. Between them the processes of the write beat for it together.

Every stage can `abandon`: the heartbeat is released and whatever was written stays invisible until
clean rolls the instant back. After an unknown outcome nothing is released or deleted (M4).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from headwater.errors import (
    CommitUnknownError,
    ConflictError,
    ErrorKind,
    FencedError,
    HeadwaterError,
)
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.txn.attempts import Attempt, load_attempt, load_newest_number
from headwater.kernel.txn.changes import Change
from headwater.kernel.txn.conflicts import ConflictCheck
from headwater.kernel.txn.guard import lost_files_explained
from headwater.kernel.txn.heartbeat import Heartbeat, heartbeat_of
from headwater.kernel.txn.metadata_commit import (
    IndexUpdate,
    MetadataCommit,
    commit_with_indexes,
)
from headwater.kernel.txn.steps import (
    CancelOverlapped,
    Claim,
    Complete,
    EnterInflight,
    Started,
    StartWrite,
)
from headwater.kernel.txn.transaction import Beside, Decided, Step, Transaction
from headwater.model.instant import Action, Instant, InstantTime
from headwater.seams.components import Components
from headwater.seams.storage import both_at_once

R = TypeVar("R")

log = logging.getLogger(__name__)

_WATCH_EVERY_MS = 1_000

_STARTS_MAX = 5
"""A time can be taken only when a lock failed or a clock repeats a time whose writer died right
after claiming it; each retry asks for a later one."""


@dataclass(frozen=True, slots=True)
class CommittedWrite:
    instant: Instant
    lock_held_ms: int  # Over all transactions of the write.


def request_write(
    components: Components,
    txn: Transaction,
    action: Action,
    claim: Claim,
    *,
    is_single_writer: bool = False,
) -> StartedWrite:
    """Request a new instant and begin its heartbeat.

    Raises:
        ConflictError: kind LIVE_WRITER, another writer is at work on a single-writer table.
    """
    begun = _start(components, txn, StartWrite(action, claim, is_single_writer))
    return StartedWrite(txn, begun.heartbeat, begun.lock_held_ms)


def start_inflight_write(
    components: Components,
    txn: Transaction,
    action: Action,
    claim: Claim,
    content: bytes,
    *,
    is_single_writer: bool = False,
    on_dead: Callable[[InstantTime], object] = lambda _: None,
    beside: Callable[[Timeline], object] = lambda _: None,
) -> InflightWrite:
    """Request a new instant, go inflight with it at once, and begin its heartbeat.

    `on_dead` is called with writes that it waited for and that turned out to be dead, so that
    nobody else has to wait for them. `beside` is called with the timeline that the instant was
    begun on, and has it, while the lock is given back. It must not raise.

    Raises:
        ConflictError: kind LIVE_WRITER, another writer is at work on a single-writer table.
    """
    step = StartWrite(action, claim, is_single_writer, content)
    begun = _start(components, txn, step, beside)
    inflight = InflightWrite(txn, begun.heartbeat, begun.lock_held_ms)
    for dead in begun.waited_for:
        try:
            on_dead(dead)
        except HeadwaterError as error:
            # The next clean takes it back; the write that is about to begin does not need it.
            log.warning("dead write left to others instant=%s error=%s", dead, error)
    return inflight


def resume_inflight_write(
    components: Components, txn: Transaction, attempt: Attempt
) -> InflightWrite:
    """Go on with a write that was handed over, as its only owner from now on.

    Raises:
        FencedError: the write was taken over, or has ended.
    """
    claimed_ms = components.clock.monotonic_ms()
    newest = load_newest_number(components.storage, attempt.instant)
    known = load_attempt(components.storage, attempt.instant, attempt.attempt)
    if newest != attempt.attempt or known is None or not attempt.is_alive_in(known):
        raise FencedError(
            f"{attempt} of instant {attempt.instant} cannot go on: it has ended or was taken over "
            "by another attempt. Start the operation again",
            kind=ErrorKind.ATTEMPT_SUPERSEDED,
            instant=attempt.instant,
        )
    heartbeat = heartbeat_of(components, known, claimed_ms)
    with ExitStack() as stack:
        stack.callback(heartbeat.stop)
        heartbeat.beat()
        inflight = InflightWrite(txn, heartbeat, 0)
        stack.pop_all()  # From here on the write ends it.
        return inflight


class _Begun(NamedTuple):
    heartbeat: Heartbeat
    lock_held_ms: int
    waited_for: tuple[InstantTime, ...]


def _start(
    components: Components,
    txn: Transaction,
    step: StartWrite,
    beside: Callable[[Timeline], object] = lambda _: None,
) -> _Begun:
    """Request the instant, having made sure that a writer who seems at work really is.

    What a killed writer left behind looks alive until it was seen unchanged for its expiry time,
    and a job that has just started has seen nothing yet. So it watches: a heartbeat that moves
    belongs to a live writer, and one that does not runs out. Returned are also the instants of the
    writers that it waited for.
    """
    storage = components.storage
    watched: dict[InstantTime, tuple[object, ...]] = {}
    heartbeats: list[Heartbeat] = []

    def go_on(decided: Decided[Started]) -> None:
        started, seen = decided.result, decided.timeline

        def beat() -> None:
            heartbeats.append(heartbeat_of(components, started.attempt, started.claimed_ms))

        own = Timeline((*seen.instants, started.instant), seen.savepoints)
        both_at_once(storage, beat, lambda: beside(own))

    conflicts = 0
    while True:
        try:
            decided = txn.run(step, go_on)
        except ConflictError as conflict:
            if conflict.kind is ErrorKind.LIVE_WRITER:
                other = conflict.context["instant"]
                seen = tuple(conflict.context[name] for name in ("attempt", "beat"))
                if watched.get(other, seen) != seen:
                    raise
                if other not in watched:
                    log.warning("waiting to see whether another writer is alive: %s", conflict)
                watched[other] = seen
                components.clock.sleep_ms(_WATCH_EVERY_MS)
                continue
            conflicts += 1
            if conflict.kind is not conflict.default_kind or conflicts == _STARTS_MAX:
                raise
            continue
        except BaseException:
            for each in heartbeats:  # It may have begun to beat before its outcome was unknown.
                each.stop()
            raise
        *late, heartbeat = heartbeats
        for each in late:  # Of decisions that came too late to count.
            each.stop()
        return _Begun(heartbeat, decided.lock_held_ms, tuple(watched))


class _Stage:
    def __init__(self, txn: Transaction, heartbeat: Heartbeat, lock_held_ms: int) -> None:
        self._txn = txn
        self._heartbeat = heartbeat
        self._lock_held_ms = lock_held_ms

    @property
    def instant_time(self) -> InstantTime:
        return self._heartbeat.attempt.instant

    @property
    def attempt(self) -> Attempt:
        return self._heartbeat.attempt

    @property
    def transaction(self) -> Transaction:
        """What this write runs its steps in; it may hold the table lock already."""
        return self._txn

    def check(self) -> None:
        """Raise `FencedError` if this writer let its heartbeat lapse."""
        self._heartbeat.check()

    def abandon(self) -> None:
        """Give up: others may roll the instant back at once."""
        self._heartbeat.release()

    def _run(self, step: Step[R], beside: Beside[R] | None = None) -> Decided[R]:
        self._heartbeat.check()
        try:
            decided = self._txn.run(step, beside)
        except CommitUnknownError as unknown:
            self._heartbeat.stop(unknown)
            raise
        self._lock_held_ms += decided.lock_held_ms
        return decided


class StartedWrite(_Stage):
    def enter_inflight(self, content: bytes = b"") -> InflightWrite:
        """Publish the workload profile `content`."""
        self._run(EnterInflight(self.attempt, content))
        return InflightWrite(self._txn, self._heartbeat, self._lock_held_ms)


class InflightWrite(_Stage):
    def hand_over(self) -> None:
        """Let another process commit or abandon this write, with `resume_inflight_write`.

        This process beats on for as long as it lives and the attempt does; so may tasks, with
        `shared_heartbeat`. Nobody beats once all of them are gone, so the attempt should have
        claimed a time of expiry that covers such gaps. Safety does not depend on it: the commit
        proves that the attempt is still the newest.
        """
        self._heartbeat.share()

    def cancel(self, plans: tuple[Change, ...]) -> frozenset[InstantTime]:
        """Cancel the plans that this write has met; return those that can never complete now.

        An unknown outcome leaves the write as it is: its commit cancels them again.

        Raises:
            ConflictError: the lock was not to be had in time.
            FencedError: this writer was taken over.
            CommitUnknownError, StorageError: storage did not say whether an entry landed.
        """
        self.check()
        decided = self._txn.run(CancelOverlapped(self.attempt, plans))
        self._lock_held_ms += decided.lock_held_ms
        return decided.result

    def commit(
        self,
        content: bytes,
        check: ConflictCheck | None = None,
        update: IndexUpdate | None = None,
        beside: Callable[[], object] = lambda: None,
    ) -> CommittedWrite:
        """Make everything the commit metadata `content` lists visible, as one.

        With `update` the indexes of the table learn of it in the same transaction. `beside` is
        called once it is committed, while the lock is given back. It must not raise.

        Raises:
            ConflictError: kind WRITE_CONFLICT; another instant that `check` does not fit with came
                first. Nothing was committed.
            FencedError: this writer was taken over; nothing was committed.
            CommitUnknownError: the timeline will tell when it is read again.
        """

        def finish(_: Decided[Instant]) -> None:
            self._heartbeat.finish(beside)

        def complete(metadata: MetadataCommit | None) -> Decided[Instant]:
            return self._run(Complete(self.attempt, content, check, metadata), finish)

        with lost_files_explained(self._txn, self.attempt):
            decided = commit_with_indexes(complete, update, self._txn.hold)
        return CommittedWrite(decided.result, self._lock_held_ms)
