"""Cancelling a plan and aborting it: the cancellable-clustering design, with its holes closed.

P is a plan that says it is cancellable. Cancelling is quick and final: one object under the lock,
and P can never complete. Aborting deletes what executions of P left behind, and ends P; whoever
comes does it, if nobody is at work on P.

`request_cancel`:

1. start a transaction;
2. reload the timeline;
3. completed: raise;
4. aborted: return;
5. not pending, or not cancellable: raise; else create `.cancel/P` if it is not there;
6. end the transaction.

What a crash leaves behind, by the last step that was done:

    1 to 4   nothing; the lock until its lease ends           the caller tries again
    5        decided: P can never complete                    the caller tries again and succeeds;
                                                              its executor or clean aborts P
    6        the same, and the caller may not know            the same

`execute_abort`:

1. start a transaction;
2. reload the timeline;
3. aborted: finish the tidying of step 10, return; unknown: drop the entry, return; completed, not
   cancelled or not cancellable: raise;
4. active heartbeat: raise; else claim the next attempt of P, which makes all others dead;
5. end the transaction;
6. begin the heartbeat of the attempt;
7. delete the files that earlier attempts announced, then take P back to REQUESTED;
8. start a transaction; is this attempt still the newest, P pending and cancelled?
9. create `P.aborted`, which holds the plan and who asked for what when;
10. delete the inflight file, the request and `.cancel/P`, in this order;
11. end the transaction; then delete markers, heartbeats and attempts of P.

What a crash leaves behind:

    1 to 6      an attempt; whoever comes waits for its heartbeat to lapse, and starts over
    7, partly   all attempts dead, some files deleted, P pending and cancelled; the same
    7           P REQUESTED and cancelled; the same, there is nothing to delete. Who wants to
                execute P aborts it instead
    9           P ABORTED; whoever comes does step 10. Archival leaves P alone until then
    10, partly  the same
    10, 11      done; what is left of markers, heartbeats and attempts is swept (`sweep_aborted`)

An execution of P, `Cancellations.execute`, is that of any plan, with three differences. It does not
begin if P is cancelled, it may look now and then whether P is (`CancelWatch`), and at its commit
point nobody must have cancelled or overtaken P (`CompleteClustering`). Whoever finds P cancelled
in any of these gives its attempt up and aborts P at once: it decides under the lock and deletes
after it (H-14). What a crash leaves behind:

    attempt               the successor declares it dead
    inflight, data files  the successor deletes exactly the files of that attempt, or aborts P
    completed file        nothing to repair; heartbeat and markers are swept
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from headwater.config.plans import CANCEL_POLL_INTERVAL
from headwater.errors import (
    ConflictError,
    CorruptTableError,
    ErrorKind,
    HeadwaterError,
    NotFoundError,
)
from headwater.kernel.layout import TableLayout, cancel_path
from headwater.kernel.timeline.active import Timeline, instant_path, load_active
from headwater.kernel.timeline.contents import load_contents
from headwater.kernel.txn.attempts import Attempt
from headwater.kernel.txn.cancel_records import CancelEntry, decode_entry
from headwater.kernel.txn.cancel_steps import (
    CancelOvertaken,
    CompleteClustering,
    Dropped,
    FinishAbort,
    RequestCancel,
    StartAbort,
    completed_since,
)
from headwater.kernel.txn.changes import Change, load_changes
from headwater.kernel.txn.guard import (
    CompletingStep,
    Executed,
    MakeUpdate,
    Returned,
    Work,
    beating,
    run_guarded,
    run_started,
    undo_dead_attempts,
)
from headwater.kernel.txn.leftovers import forget_instant, load_instants_with_leftovers
from headwater.kernel.txn.markers import LoadMarkers, own_files
from headwater.kernel.txn.metadata_commit import MetadataCommit, delete_metadata_logs
from headwater.kernel.txn.plan_flags import decode_flags
from headwater.kernel.txn.steps import Claim, Complete, Ended, Started, plan_cancelled
from headwater.kernel.txn.transaction import Transaction
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.plan_flags import PlanFlags
from headwater.seams.clock import Clock
from headwater.seams.components import Components
from headwater.seams.storage import Storage

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AbortedPlan:
    """A cancelled plan that has ended, whoever ended it.

    `instant` is None if it had left the timeline before, and only its entry was dropped.
    """

    time: InstantTime
    instant: Instant | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancellations:
    """Cancellations of one table by this process, and executions of what may be cancelled."""

    components: Components
    txn: Transaction
    layout: TableLayout
    load_markers: LoadMarkers
    interval_ms: int
    tolerable_misses: int
    is_guarded: bool = True
    """Whether an execution leaves another one alone that seems alive; an abort always does."""
    poll_interval_ms: int = CANCEL_POLL_INTERVAL.default

    def request(self, time: InstantTime, reason: str) -> Instant:
        """Cancel a pending plan for good, or find that it is aborted: `request_cancel`.

        Raises:
            NotFoundError: kind INSTANT_NOT_FOUND; it is not on the active timeline.
            InvalidInputError: kind INVALID_STATE, it has completed; kind NOT_CANCELLABLE.
            ConflictError: the lock was not to be had in time.
            CommitUnknownError: storage did not say whether the entry landed; try again.
        """
        owner = str(self.components.ids.owner)
        done = self.txn.run(RequestCancel(time, owner, reason)).result
        log.info("cancellation requested instant=%s reason=%s", time, reason)
        return done

    def abort(self, time: InstantTime) -> AbortedPlan:
        """Delete what a cancelled plan left behind, and end it: `execute_abort`.

        Raises:
            NotFoundError: kind INSTANT_NOT_FOUND; it is not on the active timeline.
            InvalidInputError: kind INVALID_STATE, it has completed; kind NOT_CANCELLABLE; kind
                NOT_CANCELLED, nobody asked for it. Nothing was changed.
            ConflictError: kind ALREADY_RUNNING; somebody is at work on it. Nothing was changed.
            FencedError: this process stalled and another one took the abort over.
            CommitUnknownError: storage did not say what landed; whoever comes next finds out.
        """
        entry = self._load_entry(time)
        started = self.txn.run(StartAbort(time, self.claim(), entry)).result
        if isinstance(started, Dropped):
            log.info("cancel entry of an unknown instant dropped instant=%s", time)
            return AbortedPlan(time, None)
        if isinstance(started, Ended):
            self._tidy(time)
            return AbortedPlan(time, started.instant)
        with beating(self.components, started) as heartbeat:
            undo_dead_attempts(self.txn, started, heartbeat, self.undo_before)
            heartbeat.check()
            done = self.txn.run(FinishAbort(started.attempt, entry)).result
        self._tidy(time)
        log.info("plan aborted instant=%s attempt=%d", time, started.attempt.attempt)
        return AbortedPlan(time, done)

    def execute(
        self,
        plan: InstantTime | Started,
        work: Work,
        update: MakeUpdate | None = None,
        beside: Callable[[], object] = lambda: None,
        complete: CompletingStep = Complete,
    ) -> Executed | Returned | AbortedPlan:
        """Execute a plan; a clustering that is cancelled is aborted instead.

        Args:
            plan: its requested time, or the attempt that its scheduler claimed.
            work: may call `watch(...).check` now and then.
            update: tells the indexes of the table.
            beside: is called once it is completed; see `guard.run_guarded`.
            complete: how one completes that is no clustering.

        Raises:
            ConflictError: kind PLAN_CANCELLED; it is cancelled, and somebody else is at work on it.
            Others: see `guard.run_guarded` and `abort`.
        """
        time = plan.attempt.instant if isinstance(plan, Started) else plan
        if not isinstance(plan, Started) or plan.instant.action is Action.CLUSTERING:
            complete = self._completion_of(time, complete)
        try:
            if isinstance(plan, Started):
                return run_started(
                    self.components,
                    self.txn,
                    plan,
                    work,
                    complete,
                    update=update,
                    beside=beside,
                )
            return run_guarded(
                self.components,
                self.txn,
                plan,
                self.claim(),
                work,
                complete,
                is_guarded=self.is_guarded,
                update=update,
                beside=beside,
            )
        except ConflictError as conflict:
            if conflict.kind is not ErrorKind.PLAN_CANCELLED:
                raise
            cancelled = conflict
        except CorruptTableError as error:
            # What is missing may have been taken back; nobody could ever execute the plan then.
            owner = str(self.components.ids.owner)
            if not self.txn.run(CancelOvertaken(time, owner)).result:
                raise
            cancelled = plan_cancelled(Instant(time, Action.CLUSTERING, State.REQUESTED))
            cancelled.__cause__ = error
        log.info("cancelled plan is aborted by its executor instant=%s", time)
        try:
            return self.abort(time)
        except ConflictError as refused:
            if refused.kind is not ErrorKind.ALREADY_RUNNING:
                raise
            raise cancelled from refused

    def claim(self) -> Claim:
        """Return a new claim of this process, for one attempt."""
        return Claim.new(
            self.components.ids,
            interval_ms=self.interval_ms,
            tolerable_misses=self.tolerable_misses,
        )

    def watch(self, time: InstantTime) -> CancelWatch:
        """Return what a running execution asks whether its plan is cancelled."""
        storage, clock = self.components.storage, self.components.clock
        return CancelWatch(storage, clock, time, every_ms=self.poll_interval_ms)

    def undo_before(self, attempt: Attempt) -> None:
        """Delete the files that attempts with smaller numbers announced."""
        undo_announced(self.components.storage, self.load_markers, attempt)
        delete_metadata_logs(
            self.components.storage, attempt.instant, before_attempt=attempt.attempt
        )

    def load_flags(self, plans: list[Instant]) -> list[PlanFlags]:
        """Return what pending plans say about their own end.

        Raises:
            NotFoundError: kind INSTANT_NOT_FOUND; one left the active timeline.
            CorruptTableError: a plan is damaged.
        """
        folder = self.layout.timeline
        contents = load_contents(self.components.storage, folder, plans, State.REQUESTED)
        return [
            decode_flags(plan, data, path=instant_path(folder, plan, State.REQUESTED))
            for plan, data in zip(plans, contents, strict=True)
        ]

    def sweep_aborted(self, seen: Timeline | None = None) -> None:
        """Delete what a dead aborter, or an executor that woke up late, left of aborted plans.

        Nothing is looked for if a timeline that was seen before has no aborted plan.
        """
        if seen is not None and all(
            instant.state is not State.ABORTED for instant in seen.instants
        ):
            return
        storage = self.components.storage
        named = load_instants_with_leftovers(storage)
        timeline = load_active(storage, self.layout.timeline)
        for instant in timeline.instants:
            if instant.state is State.ABORTED and instant.requested_time in named:
                self._tidy(instant.requested_time)

    def _completion_of(self, time: InstantTime, other: CompletingStep) -> CompletingStep:
        instant = load_active(self.components.storage, self.layout.timeline).find(time)
        if instant is None or not instant.is_pending or instant.action is not Action.CLUSTERING:
            return other
        try:
            (flags,) = self.load_flags([instant])
        except NotFoundError:
            return other  # It has ended just now, which the guard will find.

        def complete(
            attempt: Attempt, content: bytes, *, metadata: MetadataCommit | None = None
        ) -> CompleteClustering:
            return CompleteClustering(attempt, content, metadata, flags, self._changes_since(time))

        return complete

    def _changes_since(self, plan: InstantTime) -> dict[InstantTime, Change]:
        """Read most of what the commit point asks for while it holds nobody up."""
        done = completed_since(load_active(self.components.storage, self.layout.timeline), plan)
        try:
            return load_changes(self.components.storage, self.layout, done)
        except NotFoundError:
            return {}  # One was rolled back just now.

    def _load_entry(self, time: InstantTime) -> CancelEntry | None:
        try:
            return decode_entry(self.components.storage.read(cancel_path(time)))
        except NotFoundError:
            return None

    def _tidy(self, time: InstantTime) -> None:
        """Delete everything about an aborted plan but its aborted file."""
        storage = self.components.storage
        try:
            # A slow task may have written files since; none of them belongs to anybody.
            storage.delete_many(own_files(self.load_markers(storage, time), time))
            forget_instant(storage, time)
        except HeadwaterError as error:
            # The plan has ended; the next sweep finds what is left.
            log.warning("leftovers of an aborted plan remain instant=%s error=%s", time, error)


class CancelWatch:
    """Tells a running execution when its plan is cancelled, so that it stops for nothing's sake.

    A cancelled plan that was aborted already has lost its entry; by then its executor has lost its
    attempt, which the heartbeat tells.
    """

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        time: InstantTime,
        *,
        every_ms: int = CANCEL_POLL_INTERVAL.default,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._time = time
        self._every_ms = every_ms
        self._looked_ms: int | None = None

    def check(self) -> None:
        """Raise if the plan is cancelled; looks into storage at most once per interval.

        Raises:
            ConflictError: kind PLAN_CANCELLED.
            StorageError: storage failed.
        """
        now_ms = self._clock.monotonic_ms()
        if self._looked_ms is not None and now_ms < self._looked_ms + self._every_ms:
            return
        self._looked_ms = now_ms
        try:
            self._storage.info(cancel_path(self._time))
        except NotFoundError:
            return
        raise plan_cancelled(Instant(self._time, Action.CLUSTERING, State.INFLIGHT))


def undo_announced(storage: Storage, load_markers: LoadMarkers, attempt: Attempt) -> None:
    """Delete the files that dead attempts of an instant announced by markers (INV-27).

    Idempotent, and safe to run late: names tell the attempt, and a file of this one or of a later
    one is never touched.
    """
    announced = load_markers(storage, attempt.instant)
    storage.delete_many(own_files(announced, attempt.instant, before_attempt=attempt.attempt))
