"""Executing a plan under RFC-79's guard: many processes may try, one does the work.

`run_guarded` is the whole life of one execution of plan P:

1. transaction: claim attempt k, unless another attempt is alive (refused) or P has ended
   (returned); the heartbeat of the attempt begins;
2. undo dead attempts: delete exactly the files that attempts before k published, then, in a
   transaction, take P back to REQUESTED if one of them had brought it INFLIGHT;
3. transaction: P goes INFLIGHT;
4. do the work; every file it creates carries k in its name;
5. transaction: P completes, if attempt k is still the newest;
6. the heartbeat ends, on failure as well as on success, so that a retry need not wait.

A process that stalls in any of these and wakes up after a take-over fails the proof of its next
transaction. What it still deletes in step 2 belongs to attempts before its own, and what it still
creates in step 4 carries its own number; neither is ever part of a later attempt (H-18, H-19).

What a crash leaves behind is listed in `steps`. The next execution repairs all of it in step 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from headwater.errors import CommitUnknownError, CorruptTableError, FencedError
from headwater.kernel.txn.attempts import Attempt, Purpose
from headwater.kernel.txn.heartbeat import Heartbeat, heartbeat_of
from headwater.kernel.txn.metadata_commit import (
    IndexUpdate,
    MetadataCommit,
    commit_with_indexes,
)
from headwater.kernel.txn.steps import (
    Claim,
    Complete,
    Ended,
    EnterInflight,
    RevertToRequested,
    Started,
    StartExecution,
    StillOurs,
    plan_cancelled,
)
from headwater.kernel.txn.transaction import Decided, Step, Transaction
from headwater.model.instant import Instant, InstantTime, State
from headwater.seams.components import Components
from headwater.seams.spans import attempt_span


class Work(Protocol):
    """What an execution does between going inflight and committing."""

    def undo_before(self, attempt: Attempt) -> None:
        """Delete what attempts with smaller numbers published. Idempotent, and safe to run late."""
        ...

    def execute(self, attempt: Attempt, heartbeat: Heartbeat) -> bytes:
        """Do the work and return the content of the completed file.

        Names of created files contain `attempt.attempt`. Long work calls `heartbeat.check` now and
        then, to stop early once it has been taken over.
        """
        ...


@dataclass(frozen=True, slots=True)
class Executed:
    """This call did the work."""

    instant: Instant
    lock_held_ms: int


@dataclass(frozen=True, slots=True)
class Returned:
    """The plan had ended before: completed by somebody else, or aborted."""

    instant: Instant


@dataclass(frozen=True, slots=True)
class Overtaken:
    """A cancellable plan met a write that goes first, and has cancelled itself."""

    instant: Instant
    by: InstantTime


class CompletingStep(Protocol):
    """How a plan completes: from its attempt and the content of its completed file."""

    def __call__(
        self, attempt: Attempt, content: bytes, *, metadata: MetadataCommit | None = None
    ) -> Step[Instant | Overtaken]: ...


MakeUpdate = Callable[[Attempt], IndexUpdate]
"""Say what an attempt, which has done its work, has to tell the indexes of the table."""


def run_guarded(
    components: Components,
    txn: Transaction,
    time: InstantTime,
    claim: Claim,
    work: Work,
    complete: CompletingStep = Complete,
    *,
    is_guarded: bool = True,
    update: MakeUpdate | None = None,
    beside: Callable[[], object] = lambda: None,
) -> Executed | Returned:
    """Execute the plan requested at `time`, or return what became of it.

    Without `is_guarded` it takes over from an attempt that seems alive instead of being refused.
    With `update` the indexes of the table learn of it in the same transaction. `beside` is called
    once it is completed, while the lock is given back. It must not raise.

    Raises:
        ConflictError: kind ALREADY_RUNNING, another attempt is alive; kind PLAN_CANCELLED, it can
            only be aborted (see `cancel`); kind PLAN_NOT_EXECUTABLE, it can only be rolled back.
            Nothing was completed.
        FencedError: this execution was taken over; it wrote nothing to the timeline since.
        NotFoundError: there is no such instant.
        CommitUnknownError: whether the plan completed will show when the timeline is read again.
    """
    started = txn.run(StartExecution(time, Purpose.EXECUTE, claim, is_guarded)).result
    if isinstance(started, Ended):
        return Returned(started.instant)
    return run_started(components, txn, started, work, complete, update=update, beside=beside)


def run_started(
    components: Components,
    txn: Transaction,
    started: Started,
    work: Work,
    complete: CompletingStep = Complete,
    *,
    update: MakeUpdate | None = None,
    beside: Callable[[], object] = lambda: None,
) -> Executed:
    """Execute a plan whose attempt was claimed already: steps 2 to 6.

    Raises: see `run_guarded`.
    """
    with beating(components, started) as heartbeat:
        attempt = started.attempt
        undo_dead_attempts(txn, started, heartbeat, work.undo_before)
        heartbeat.check()
        txn.run(EnterInflight(attempt))

        def finish(decided: Decided[Instant | Overtaken]) -> None:
            if not isinstance(decided.result, Overtaken):
                heartbeat.finish(beside)

        def commit(metadata: MetadataCommit | None) -> Decided[Instant | Overtaken]:
            heartbeat.check()
            return txn.run(complete(attempt, content, metadata=metadata), finish)

        with lost_files_explained(txn, attempt):
            content = work.execute(attempt, heartbeat)
            told = None if update is None else update(attempt)
            done = commit_with_indexes(commit, told, txn.hold)
        if isinstance(done.result, Overtaken):
            raise plan_cancelled(done.result.instant)
        return Executed(done.result, done.lock_held_ms)


@contextmanager
def beating(components: Components, started: Started) -> Iterator[Heartbeat]:
    """Keep a claimed attempt alive for as long as the block runs.

    After a failure its number stays taken and others need not wait; after an unknown outcome
    nothing is touched.
    """
    attempt = started.attempt
    heartbeat = heartbeat_of(components, attempt, started.claimed_ms)
    try:
        with attempt_span(components.storage.uri, attempt.instant, attempt.attempt):
            yield heartbeat
    except CommitUnknownError as unknown:
        heartbeat.stop(unknown)
        raise
    except (Exception, KeyboardInterrupt, SystemExit):
        heartbeat.release()
        raise
    heartbeat.finish()


@contextmanager
def lost_files_explained(txn: Transaction, attempt: Attempt) -> Iterator[None]:
    """Say of an attempt that misses files if it was taken over: those who do so delete its files.

    Raises:
        FencedError: that is why.
        CorruptTableError: it is not.
    """
    try:
        yield
    except CorruptTableError as error:
        try:
            txn.run(StillOurs(attempt))
        except FencedError as fenced:
            raise fenced from error
        raise


@contextmanager
def claimed(components: Components, started: Started) -> Iterator[None]:
    """Give a claimed attempt up if what is read before its heartbeat beats cannot be (N-133)."""
    try:
        yield
    except (Exception, KeyboardInterrupt, SystemExit):
        heartbeat_of(components, started.attempt, started.claimed_ms).release()
        raise


def undo_dead_attempts(
    txn: Transaction,
    started: Started,
    heartbeat: Heartbeat,
    undo: Callable[[Attempt], None],
) -> None:
    """Delete what earlier attempts of a plan left behind, and take the plan back to REQUESTED."""
    attempt = started.attempt
    was_inflight = started.instant.state is State.INFLIGHT
    if was_inflight or attempt.attempt > 1:
        undo(attempt)
    if was_inflight:
        heartbeat.check()
        txn.run(RevertToRequested(attempt))
