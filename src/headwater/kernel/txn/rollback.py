"""Rolling back a failed write T: RFC-79's two steps, for whoever comes (3.4, H-24, H-25).

1. Schedule. Read the markers of T, then in one transaction: refuse if somebody is at work on T,
   make every attempt of T dead for good, and request the rollback R with the plan: exactly the
   files that the markers announced. If a rollback of T is pending already, take that one up.
2. Execute, outside the lock, under the same guard as any plan: delete the listed files, and what T
   wrote for indexes; then in one transaction take T off the timelines and complete R.
3. Tidy up: what markers announced since the plan was made, the markers, and the heartbeats and
   attempts of T and R.

A rollback deletes data files of T only, and only after T can never complete. Files of a writer that
stalls and wakes up later are listed by no commit, so nobody ever sees them (M6). Those that its
markers show are deleted in step 3, or when somebody tidies up after that (`tidy_leftovers`).

What a crash leaves behind, by the last write that landed, and who repairs it:

    attempt of T              T is pending and nobody works on it: the next rollback schedules again
    attempt 1 of R            the same; the time R is used up, and no such instant exists
    request of R              whoever comes takes R up, once the heartbeat of its attempt has lapsed
    inflight file of R        the same; it starts again from REQUESTED
    some files deleted        the same; deleting what is gone is no harm
    request of T deleted      the same; T still shows as INFLIGHT, and R as pending
    inflight of T deleted     the same; R is found by itself, and T is not needed to execute it
    completed file of R       T is rolled back; `tidy_leftovers` does step 3
    some markers deleted      the same, as long as any marker, heartbeat or attempt is left
    some attempts deleted     the same; those of T go last

Everything but the first two is done by `Rollbacks.resume` and `tidy_leftovers`, by any process.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

from headwater.errors import CorruptTableError, HeadwaterError, UnsupportedError
from headwater.format.timeline.records import decode_record, encode_record
from headwater.kernel.layout import TableLayout
from headwater.kernel.timeline.active import instant_path, load_active
from headwater.kernel.timeline.contents import load_contents
from headwater.kernel.txn.attempts import Attempt, load_newest_number
from headwater.kernel.txn.foreign import ForeignRule, is_dead_elsewhere
from headwater.kernel.txn.guard import Executed, Returned, claimed, run_guarded, run_started
from headwater.kernel.txn.heartbeat import Heartbeat
from headwater.kernel.txn.leftovers import forget_attempts, load_instants_with_leftovers
from headwater.kernel.txn.markers import (
    LoadMarkers,
    Marker,
    delete_markers,
    files_by_name,
    own_files,
)
from headwater.kernel.txn.metadata_commit import delete_metadata_logs
from headwater.kernel.txn.rollback_plan import (
    decode_rollback_plan,
    listed_paths,
    plan_deletions,
    rollback_metadata,
    target_of,
)
from headwater.kernel.txn.rollback_steps import (
    AlreadyScheduled,
    CompleteRollback,
    DropRollback,
    ScheduleRollback,
    check_target,
)
from headwater.kernel.txn.schedule import run_claiming
from headwater.kernel.txn.steps import Claim, Ended, Started
from headwater.kernel.txn.transaction import Transaction
from headwater.kernel.txn.withdrawal import finish_withdrawal
from headwater.kernel.txn.writes import InflightWrite, StartedWrite
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.plans import RollbackPlan, RollbackRequest
from headwater.model.service_metadata import RollbackMetadata
from headwater.seams.clock import Clock
from headwater.seams.components import Components
from headwater.seams.metrics import ROLLBACKS
from headwater.seams.storage import Storage

log = logging.getLogger(__name__)

_DELETED_AT_ONCE = 1_000
"""After so many files a rollback looks whether it is still its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledBackWrite:
    """A failed write that is gone."""

    instant: InstantTime
    rollback: InstantTime
    completion_time: InstantTime
    deleted_paths: tuple[str, ...]
    """The files of the plan, relative to the table's base, whether they had been written or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollbacks:
    """Rollbacks of one table by this process."""

    components: Components
    txn: Transaction
    layout: TableLayout
    load_markers: LoadMarkers
    interval_ms: int
    tolerable_misses: int
    delay_ms: int = 0
    """How old a removable plan must be that nobody has begun to execute."""
    foreign: ForeignRule | None = None
    """When a write of another engine is dead; without it all of them are left to their engines."""
    cause: str = "dead"
    """Why writes are rolled back, for metrics."""

    def roll_back(self, target: InstantTime) -> RolledBackWrite | Ended:
        """Roll back a failed write or removable plan, or return what became of it.

        Raises:
            ConflictError: kind ALREADY_RUNNING, its writer or another rollback is at work; kind
                PLAN_TOO_YOUNG, it is a plan that may still be executed.
            FencedError: this process stalled and another one took the rollback over.
            NotFoundError: there is no such instant.
            UnsupportedError: it is a plan that stays, or one that is left to another engine.
            CorruptTableError: its markers are damaged.
            CommitUnknownError: storage did not say what landed; whoever comes next finds out.
        """
        storage = self.components.storage
        requests = plan_deletions(target, self._announced(target), storage.uri)
        scheduled = self._schedule(target, requests)
        if isinstance(scheduled, Ended):
            return scheduled
        if isinstance(scheduled, AlreadyScheduled):
            return self.resume(scheduled.rollback)
        log.info(
            "rollback scheduled instant=%s rollback=%s files=%d",
            target,
            scheduled.instant.requested_time,
            len(requests),
        )
        done = self.execute_scheduled(scheduled)
        ROLLBACKS.add(1, storage.uri, self.cause)
        return done

    def execute_scheduled(self, scheduled: Started) -> RolledBackWrite:
        """Execute a rollback that this process has just scheduled.

        Raises: see `roll_back`.
        """
        with claimed(self.components, scheduled):
            plan = self.load_plan(scheduled.instant)
        return self._finish(plan, self._execute(scheduled, plan))

    def resume(self, rollback: Instant) -> RolledBackWrite:
        """Execute a pending rollback, or return what another process made of it.

        Raises: see `roll_back`.
        """
        plan = self.load_plan(rollback)
        if not self.is_ours(rollback) and not self.is_left(rollback):
            # Ours have attempts for as long as they are pending, so it has completed meanwhile.
            timeline = load_active(self.components.storage, self.layout.timeline)
            ended = timeline.get(rollback.requested_time)
            if not ended.is_pending:
                return self._finish(plan, Returned(ended))
            raise UnsupportedError(
                f"No attempt of Headwater stands behind {rollback}, so another engine is executing "
                "it or was. Let that engine finish it; once it is dead, this will",
                instant=rollback.requested_time,
            )
        finish_withdrawal(self.components.storage, self.layout, self.txn, target_of(plan))
        done = run_guarded(
            self.components,
            self.txn,
            rollback.requested_time,
            self._claim(),
            self._work(plan),
            partial(CompleteRollback, target=target_of(plan)),
        )
        if isinstance(done, Executed):
            ROLLBACKS.add(1, self.components.storage.uri, "resumed")
        return self._finish(plan, done)

    def is_ours(self, rollback: Instant) -> bool:
        """Whether Headwater scheduled it; other engines claim no attempts."""
        return load_newest_number(self.components.storage, rollback.requested_time) > 0

    def is_left(self, begun: Instant) -> bool:
        """Whether another engine began a write or rollback, and is dead by its own rules (N-163).

        Should that engine come back and complete a rollback as well, it is done once all the same
        (N-159).
        """
        storage = self.components.storage
        return is_dead_elsewhere(self.foreign, storage, self.layout.timeline, begun)

    def drop(self, rollback: InstantTime) -> bool:
        """End a rollback that its engine has requested and may not execute; say if it was one."""
        return self.txn.run(DropRollback(rollback)).result

    def load_plan(self, rollback: Instant) -> RollbackPlan:
        """Raises:
        NotFoundError: kind INSTANT_NOT_FOUND; the rollback left the active timeline.
        CorruptTableError: the plan is damaged.
        """
        folder = self.layout.timeline
        (data,) = load_contents(self.components.storage, folder, [rollback], State.REQUESTED)
        return decode_rollback_plan(data, path=instant_path(folder, rollback, State.REQUESTED))

    def tidy_leftovers(self) -> None:
        """Sweep what rollbacks that died after completing, or writers that outlived them, left.

        Only what a completed rollback on the active timeline answers for is touched.
        """
        storage, folder = self.components.storage, self.layout.timeline
        named = load_instants_with_leftovers(storage)
        # Listed afterwards: an instant whose claim was seen is on this timeline, or is gone.
        timeline = load_active(storage, folder)
        gone = {time for time in named if timeline.find(time) is None}
        done = [
            instant
            for instant in timeline.completed
            if instant.action is Action.ROLLBACK
            and (instant.requested_time in named or any(t < instant.requested_time for t in gone))
        ]
        for rollback, data in zip(done, load_contents(storage, folder, done), strict=True):
            path = instant_path(folder, rollback)
            metadata = decode_record(RollbackMetadata, data, path=path)
            for target in map(InstantTime, metadata.commits_rollback):
                if timeline.find(target) is None and {target, rollback.requested_time} & named:
                    self._tidy(target, rollback.requested_time)

    def _schedule(
        self, target: InstantTime, requests: tuple[RollbackRequest, ...]
    ) -> Started | Ended | AlreadyScheduled:
        return run_claiming(
            self.txn,
            lambda: ScheduleRollback(target, requests, self._claim(), self.delay_ms, self.foreign),
        )

    def _announced(self, target: InstantTime) -> list[Marker]:
        """Return what an instant said that it would write.

        Hudi truncates a file of many markers before it writes the next batch, so one that is killed
        leaves lines that nobody can read any more: there the names of files tell.
        """
        storage = self.components.storage
        try:
            return self.load_markers(storage, target)
        except CorruptTableError:
            if load_newest_number(storage, target) > 0:
                raise
        log.warning("markers are damaged, files are found by name instant=%s", target)
        return [*files_by_name(storage, target)]

    def _claim(self) -> Claim:
        return Claim.new(
            self.components.ids,
            interval_ms=self.interval_ms,
            tolerable_misses=self.tolerable_misses,
        )

    def _work(self, plan: RollbackPlan) -> _Deletions:
        return _Deletions(
            storage=self.components.storage,
            clock=self.components.clock,
            timeline_folder=self.layout.timeline,
            plan=plan,
        )

    def _execute(self, started: Started, plan: RollbackPlan) -> Executed:
        return run_started(
            self.components,
            self.txn,
            started,
            self._work(plan),
            partial(CompleteRollback, target=target_of(plan)),
        )

    def _finish(self, plan: RollbackPlan, done: Executed | Returned) -> RolledBackWrite:
        target, rollback = target_of(plan), done.instant
        assert rollback.completion_time is not None
        self._tidy(target, rollback.requested_time)
        return RolledBackWrite(
            instant=target,
            rollback=rollback.requested_time,
            completion_time=rollback.completion_time,
            deleted_paths=tuple(listed_paths(plan)),
        )

    def _tidy(self, target: InstantTime, rollback: InstantTime) -> None:
        storage = self.components.storage
        try:
            # Once more also those of the plan: a slow writer may have finished one meanwhile.
            storage.delete_many(own_files(self._announced(target), target))
            delete_markers(storage, target)
            for time in (rollback, target):
                forget_attempts(storage, time)
        except HeadwaterError as error:
            # The rollback stands; the next call of `tidy_leftovers` finds what is left.
            log.warning("leftovers of a rollback remain instant=%s error=%s", target, error)


def rollback_own_write(
    components: Components,
    layout: TableLayout,
    load_markers: LoadMarkers,
    write: StartedWrite | InflightWrite,
) -> RolledBackWrite | None:
    """Give up a write of this process and roll it back at once.

    Its owner need not wait for its own heartbeat. Call it when no task of the write runs any more,
    and never after an unknown outcome. An owner that has lapsed, or was taken over, leaves the
    rollback to others; so does one whose storage or lock fails now. The caller has an error to
    raise already, so this raises none.
    """
    write.abandon()
    rollbacks = Rollbacks(
        components=components,
        txn=write.transaction,
        layout=layout,
        load_markers=load_markers,
        interval_ms=write.attempt.interval_ms,
        tolerable_misses=write.attempt.tolerable_misses,
        cause="own",
    )
    try:
        done = rollbacks.roll_back(write.instant_time)
    except HeadwaterError as error:
        log.warning("failed write left to others instant=%s error=%s", write.instant_time, error)
        return None
    return done if isinstance(done, RolledBackWrite) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Deletions:
    """The work of a rollback, between going inflight and completing."""

    storage: Storage
    clock: Clock
    timeline_folder: str
    plan: RollbackPlan

    def undo_before(self, attempt: Attempt) -> None:
        """Undo nothing: what an earlier attempt deleted is what this one deletes."""

    def execute(self, attempt: Attempt, heartbeat: Heartbeat) -> bytes:
        began_ms = self.clock.monotonic_ms()
        timeline = load_active(self.storage, self.timeline_folder)
        error = check_target(timeline, target_of(self.plan), timeline.get(attempt.instant))
        if error is not None:
            raise error
        doomed = [*listed_paths(self.plan)]
        for first in range(0, len(doomed), _DELETED_AT_ONCE):
            heartbeat.check()
            self.storage.delete_many(doomed[first : first + _DELETED_AT_ONCE])
        heartbeat.check()
        delete_metadata_logs(self.storage, target_of(self.plan))
        taken_ms = self.clock.monotonic_ms() - began_ms
        return encode_record(rollback_metadata(self.plan, attempt.instant, taken_ms))
