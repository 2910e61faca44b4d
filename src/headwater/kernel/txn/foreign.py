"""Other engines: when a pending write is dead, by Apache Hudi's own rules, and a plan anybody's.

Hudi claims no attempts. What shows that a writer of its lives is the plain file
`.hoodie/.heartbeat/<T>`: under the lazy policy of failed writes it is there before the instant, its
modification time is the beat, and a writer that gives up deletes it. Under the eager policy, for a
single writer, there is none, for whoever writes next takes every pending write for a failed one.

We take a write of Hudi's for dead (INV-112)

- with a heartbeat: once that has stood still for longer than its writer tolerates;
- without one: once nothing of the write has changed for that long, if the policy was said to us or
  the instant was named; else a day later, for a live writer under the eager policy looks like that.

A plan that Hudi only requested is anybody's to execute, but not at once: Hudi with inline services
plans after its commit, looks for the plan again, and fails the whole write, which has landed, if
somebody was faster. So a plan is left to its engine until nothing was heard of it for as long as a
heartbeat may stand still (N-153).

How old a file is the store says, by its own clock alone. Under the policy NEVER no write of Hudi's
is touched.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import NamedTuple

from headwater.errors import ConflictError, ErrorKind, HeadwaterError, NotFoundError, StorageError
from headwater.kernel.layout import heartbeat_path, marker_folder
from headwater.kernel.timeline.active import instant_path, load_active
from headwater.kernel.txn.store_age import age_by_store_ms, load_store_times
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.seams.storage import Storage

log = logging.getLogger(__name__)

_PENDING = (State.REQUESTED, State.INFLIGHT)
_SILENT_MS = 24 * 60 * 60 * 1000


class Silence(NamedTuple):
    """For how long nothing was heard of a write that no attempt of ours stands behind."""

    beat_ms: int | None
    """Since its heartbeat was written; None if there is none."""
    quiet_ms: int
    """Since anything of it was: heartbeat, timeline files, markers."""


def foreign_expiry_ms(*, interval_ms: int, tolerable_misses: int) -> int:
    """Return for how long nothing may be heard of what another engine has begun."""
    # One more than Hudi's own: nobody is to be the first to call a writer dead.
    return interval_ms * (tolerable_misses + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRule:
    """When a write of another engine counts as dead."""

    expiry_ms: int
    silence_ms: int = _SILENT_MS
    """For how long nothing of a write without a heartbeat may have changed."""

    @classmethod
    def of(cls, *, interval_ms: int, tolerable_misses: int, is_said: bool) -> ForeignRule:
        """Return the rule for the heartbeat of the options.

        `is_said` is whether somebody vouches for what Hudi's jobs do: by its policy of failed
        writes, or by naming the instant.
        """
        expiry_ms = foreign_expiry_ms(interval_ms=interval_ms, tolerable_misses=tolerable_misses)
        return cls(expiry_ms=expiry_ms, silence_ms=expiry_ms if is_said else _SILENT_MS)

    def when_named(self) -> ForeignRule:
        """Return the rule for an instant that somebody named."""
        return ForeignRule(expiry_ms=self.expiry_ms, silence_ms=self.expiry_ms)

    def why_alive(self, write: Instant, silence: Silence) -> HeadwaterError | None:
        """Return why a pending write of another engine is left alone, or None if it is dead."""
        if silence.beat_ms is not None and silence.beat_ms <= self.expiry_ms:
            reason = (
                f"its heartbeat is {silence.beat_ms} ms old and may be {self.expiry_ms} ms, by "
                "hoodie.client.heartbeat.interval_in_ms"
            )
        elif silence.beat_ms is None and silence.quiet_ms <= self.silence_ms:
            reason = (
                f"it has no heartbeat, and something of it was written {silence.quiet_ms} ms ago: "
                f"it is left alone for {self.silence_ms} ms, or {self.expiry_ms} ms if it is named "
                "or hoodie.clean.failed.writes.policy is given"
            )
        else:
            return None
        return ConflictError(
            f"No attempt of Headwater stands behind {write}: another engine is writing it or did, "
            f"and may be alive, for {reason}. Nothing was changed; try again later, or let that "
            "engine roll it back",
            kind=ErrorKind.ALREADY_RUNNING,
            instant=write.requested_time,
        )


def is_dead_elsewhere(
    rule: ForeignRule | None, storage: Storage, timeline_folder: str, write: Instant
) -> bool:
    """Whether a pending write of another engine is dead; without a rule none is.

    A look from outside the lock: the transaction that schedules a rollback looks again.
    """
    if rule is None:
        log.info("write of another engine is left to it instant=%s", write.requested_time)
        return False
    error = rule.why_alive(write, load_silence(storage, timeline_folder, write))
    if error is not None:
        log.info("write of another engine is left alone: %s", error)
    return error is None


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingElsewhere:
    """Tells whether another engine goes on with what it has pending."""

    rule: ForeignRule | None
    """For writes and rollbacks; without one none of them is dead."""
    expiry_ms: int
    """For how long a plan is left to the engine that requested it."""

    def is_left(self, storage: Storage, timeline_folder: str, pending: Instant) -> bool:
        if pending.action.is_ingestion or pending.action is Action.ROLLBACK:
            return is_dead_elsewhere(self.rule, storage, timeline_folder, pending)
        return load_left_ms(storage, timeline_folder, pending, self.expiry_ms) == 0


def why_executed_elsewhere(plan: Instant, beat_ms: int, expiry_ms: int) -> ConflictError | None:
    """Return why a plan is not executed here: another engine beats for it; None if it is dead.

    Hudi begins to beat under the table lock, before the plan is inflight. So who holds the lock and
    sees no beat is the first; two that execute one plan would both complete it (N-153).
    """
    if beat_ms > expiry_ms:
        return None
    return ConflictError(
        f"{plan} is being executed by another engine: its heartbeat is {beat_ms} ms old, "
        f"and may be {expiry_ms} ms by hoodie.client.heartbeat.interval_in_ms. Nothing was "
        "changed; wait for that engine to finish",
        kind=ErrorKind.ALREADY_RUNNING,
        instant=plan.requested_time,
    )


def load_left_ms(storage: Storage, timeline_folder: str, plan: Instant, expiry_ms: int) -> int:
    """Return for how much longer a plan that another engine requested is left to it; 0: no longer.

    An engine that executes it beats already before the plan is inflight.
    """
    quiet_ms = load_silence(storage, timeline_folder, plan).quiet_ms
    return max(0, expiry_ms - quiet_ms + 1)


def load_beat_ms(storage: Storage, time: InstantTime) -> int | None:
    """Return how old the heartbeat of an instant is, by the store's clock; None if none is there.

    If the store does not say, it is as young as can be.
    """
    path = heartbeat_path(time)
    try:
        storage.info(path)
    except NotFoundError:
        return None  # As for most; the store's clock costs four calls more.
    age_ms = age_by_store_ms(storage, path)
    return 0 if age_ms is None else age_ms


def load_silence(storage: Storage, timeline_folder: str, write: Instant) -> Silence:
    """Return for how long nothing was heard of a pending write, or plan, of another engine.

    Whatever the store does not say counts as heard right now.
    """
    time = write.requested_time
    paths = [
        heartbeat_path(time),
        *(instant_path(timeline_folder, write, state) for state in _PENDING),
    ]
    try:
        times = load_store_times(storage, paths)
        markers = [info.modified_ms for info in storage.list_tree(marker_folder(time))]
        # A writer that is done deletes its heartbeat after it has completed, so it shows by now.
        found = load_active(storage, timeline_folder).find(time)
    except (StorageError, NotFoundError) as error:
        log.warning("the store does not say how old a write is instant=%s error=%s", time, error)
        return Silence(None, 0)
    beat_ms, *written = times.written_ms
    heard = [ms for ms in (beat_ms, *written, *markers) if ms is not None]
    if found is None or not found.is_pending or not heard:
        return Silence(None, 0)
    return Silence(None if beat_ms is None else times.age_ms(beat_ms), times.age_ms(max(heard)))
