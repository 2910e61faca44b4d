"""Rolling back failed writes: which ones there are, and what to do about each.

A write has failed when its instant is pending and nobody works on it: its writer said so when it
gave up, its process is known to have ended, or its heartbeat has stood still for longer than it
may. `kernel.txn.rollback` holds the protocol, and what a crash leaves behind.

It deletes data files of failed writes, nothing else, and survives any other action beside it:
writers, whose live instants it leaves alone; other rollbacks, which share the work; readers, who
never see what is deleted.

A write of another engine is rolled back once it is dead by that engine's own rules
(`kernel.txn.foreign`), and so is a rollback of such a write finished that the engine has left. Its
other rollbacks, its restores and plans it ends itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

from headwater.errors import (
    ConflictError,
    ErrorKind,
    HeadwaterError,
    NotFoundError,
    UnsupportedError,
)
from headwater.kernel.timeline.active import Timeline, load_active
from headwater.kernel.txn.attempts import Attempt, load_attempt, load_newest_number
from headwater.kernel.txn.foreign import is_dead_elsewhere
from headwater.kernel.txn.heartbeat import HeartbeatWatch
from headwater.kernel.txn.rollback import Rollbacks, RolledBackWrite
from headwater.kernel.txn.rollback_plan import pending_rollbacks, target_of
from headwater.kernel.txn.rollback_steps import check_target, is_protected
from headwater.kernel.txn.steps import Ended
from headwater.model.instant import Action, InstantTime

log = logging.getLogger(__name__)

_LOOK_EVERY_MS = 1_000


def rollback_failed_writes(
    rollbacks: Rollbacks,
    watch: HeartbeatWatch,
    *,
    wait: bool = False,
    timeline: Timeline | None = None,
) -> list[RolledBackWrite]:
    """Roll back every failed write, finish the rollbacks that others began, and tidy up.

    `watch` is what this process has seen of heartbeats. With `wait`, one that it has not seen for
    long enough is watched until it moves or runs out; otherwise its writer counts as alive.
    `timeline` is the table's, if it was listed before.

    Raises: see `Rollbacks.roll_back`; the other writes are rolled back all the same.
    """
    done: list[RolledBackWrite] = []
    first_error: HeadwaterError | None = None
    if timeline is None:
        timeline = load_active(rollbacks.components.storage, rollbacks.layout.timeline)
    _drop_refused(rollbacks, timeline)
    for target in failed_writes(rollbacks, watch, timeline, wait=wait):
        try:
            outcome = rollbacks.roll_back(target)
        except HeadwaterError as error:
            if _is_somebody_elses(error):
                log.info("failed write left alone instant=%s reason=%s", target, error)
                continue
            log.warning("failed write not rolled back instant=%s error=%s", target, error)
            first_error = first_error or error
            continue
        if isinstance(outcome, RolledBackWrite):
            done.append(outcome)
    if done or any(instant.action is Action.ROLLBACK for instant in timeline.completed):
        rollbacks.tidy_leftovers()
    if first_error is not None:
        raise first_error
    return done


def _drop_refused(rollbacks: Rollbacks, timeline: Timeline) -> None:
    """End what other engines requested and may not execute, because the commit has a savepoint."""
    if not timeline.savepoints:
        return
    for rollback in pending_rollbacks(timeline):
        try:
            target, time = target_of(rollbacks.load_plan(rollback)), rollback.requested_time
        except NotFoundError:
            continue  # It has ended since.
        if is_protected(timeline, target) and rollbacks.drop(time):
            log.info("rollback ended, its target is saved rollback=%s instant=%s", time, target)


def rollback_write(
    rollbacks: Rollbacks, watch: HeartbeatWatch, target: InstantTime, *, wait: bool = False
) -> RolledBackWrite | Ended:
    """Roll back one failed write, or return the instant if it has completed.

    Raises: see `Rollbacks.roll_back`.
    """
    if rollbacks.foreign is not None:
        rollbacks = replace(rollbacks, foreign=rollbacks.foreign.when_named())
    if wait:
        timeline = load_active(rollbacks.components.storage, rollbacks.layout.timeline)
        begun = {found: time for time, found in _pending_targets(rollbacks, timeline)}
        _wait_until_dead(rollbacks, watch, begun.get(target, target))
    return rollbacks.roll_back(target)


def failed_writes(
    rollbacks: Rollbacks, watch: HeartbeatWatch, timeline: Timeline, *, wait: bool = False
) -> Iterator[InstantTime]:
    """Give the writes that somebody began to roll back, then those whose writers are dead.

    This is a look from outside the lock that saves taking it for nothing. The transaction that
    schedules a rollback looks again.
    """
    targeted = set()
    for rollback, target in _pending_targets(rollbacks, timeline):
        if wait:
            _wait_until_dead(rollbacks, watch, rollback)
        targeted.add(target)
        yield target
    writes = {
        instant.requested_time: instant
        for instant in timeline.pending
        if instant.action.is_ingestion and instant.requested_time not in targeted
    }
    found = {time: _newest_attempt(rollbacks, time) for time in writes}
    storage, folder = rollbacks.components.storage, rollbacks.layout.timeline
    # All of them are looked at before the first is waited for, so their times run together.
    alive = {time for time, attempt in found.items() if attempt and watch.is_active(attempt)}
    for time, attempt in found.items():
        if attempt is None:
            if is_dead_elsewhere(rollbacks.foreign, storage, folder, writes[time]):
                yield time
        elif time not in alive or (wait and _wait_until_dead(rollbacks, watch, time)):
            yield time


def _pending_targets(
    rollbacks: Rollbacks, timeline: Timeline
) -> Iterator[tuple[InstantTime, InstantTime]]:
    """Give each pending rollback that is ours, or left to us, with the write that it rolls back."""
    for rollback in pending_rollbacks(timeline):
        if rollbacks.is_ours(rollback):
            yield rollback.requested_time, target_of(rollbacks.load_plan(rollback))
        elif rollbacks.is_left(rollback):
            target = target_of(rollbacks.load_plan(rollback))
            if check_target(timeline, target, rollback) is None:
                yield rollback.requested_time, target


def _wait_until_dead(rollbacks: Rollbacks, watch: HeartbeatWatch, time: InstantTime) -> bool:
    """Watch a heartbeat until it moves, which says that its owner is alive, or runs out."""
    first = attempt = _newest_attempt(rollbacks, time)
    while attempt is not None and (remaining_ms := watch.remaining_ms(attempt)) > 0:
        if attempt != first:
            return False
        rollbacks.components.clock.sleep_ms(min(_LOOK_EVERY_MS, remaining_ms))
        attempt = _newest_attempt(rollbacks, time)
    return True


def _newest_attempt(rollbacks: Rollbacks, time: InstantTime) -> Attempt | None:
    storage = rollbacks.components.storage
    number = load_newest_number(storage, time)
    return load_attempt(storage, time, number) if number else None


def _is_somebody_elses(error: HeadwaterError) -> bool:
    """Whether an error says that somebody is at work on the write, has just finished, or must."""
    if isinstance(error, ConflictError):
        return error.kind is ErrorKind.ALREADY_RUNNING
    if isinstance(error, NotFoundError):
        return error.kind is ErrorKind.INSTANT_NOT_FOUND
    return isinstance(error, UnsupportedError)
