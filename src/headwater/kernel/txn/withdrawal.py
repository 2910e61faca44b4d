"""Taking back what has completed: the latest commit, or all since a savepoint.

    TakeBackCommit        roll back the last commit to complete
    TakeBackForRestore    roll back one of the instants that a restore names
    FinishWithdrawal      go on where one of these died

A rollback R of a failed write T deletes files that nobody sees. If T has completed, readers see its
files, and writers plan on its rows. So T leaves the timeline first, in the transaction that
schedules R:

1. table config without the indexes that cannot forget T; it keeps their names for `rebuild`;
2. the next attempt of T, released at once; its purpose says that T is withdrawn;
3. the first attempt of R;
4. the request of R: the plan, which names every file of T;
5. the files of T on the timeline.

From 4 on no write that was planned on T can commit: a pending rollback counts as if it had
completed (`conflicts`). From 5 on no view shows T. Then R is executed like any rollback.

What a crash leaves behind, by the last write that landed:

    after          state                                         who repairs
    table config   T stands; the table is read without indexes   `clean` builds them again
    attempt of T   the same, and T has an attempt that is dead   clean sweeps it
    attempt of R   the same; the time R is used up               clean sweeps it
    request of R   T stands and R is pending                     whoever takes R up does 5 first
    some files     the same                                      the same
    all files      T is gone and R is pending                    whoever takes R up

The purpose of the attempt tells R from the rollback of a failed write, whose target cannot have
completed, and which is refused if it has.

Another engine's write that was planned on T looks for no rollback: it would commit, and bring rows
of T back. So nothing is taken back while one is pending (N-186). Hudi begins none while a restore
is pending.

A plan that is taken back by a restore goes the same way, pending or completed. Nobody executes or
aborts it from 2 on: the guard sees the purpose of its newest attempt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from headwater.config.table import TableConfig
from headwater.config.table_options import (
    INDEXES_TO_REBUILD,
    METADATA_PARTITIONS,
    METADATA_PARTITIONS_INFLIGHT,
)
from headwater.errors import (
    ConflictError,
    ErrorKind,
    HeadwaterError,
    InvalidInputError,
    Retry,
)
from headwater.format.timeline.records import encode_record
from headwater.kernel.layout import TableLayout
from headwater.kernel.timeline.active import Timeline, load_active
from headwater.kernel.txn.attempts import Attempt, Purpose
from headwater.kernel.txn.events import (
    AttemptStarted,
    ConfigChanged,
    Event,
    Requested,
    RolledBack,
    Withdrawn,
)
from headwater.kernel.txn.prefix import Needs, Prefix
from headwater.kernel.txn.rollback_plan import (
    decode_rollback_plan,
    pending_rollbacks,
    pending_undoing,
    plan_deletions,
    requests_for,
    rollback_plan,
    target_of,
)
from headwater.kernel.txn.rollback_steps import AlreadyScheduled
from headwater.kernel.txn.steps import (
    Claim,
    Started,
    no_such_instant,
    pending_ingestion,
    pending_instant_of,
)
from headwater.kernel.txn.transaction import Decision, Refusal, Transaction
from headwater.kernel.view.commits import COMMIT_ACTIONS
from headwater.kernel.view.retention import completed_commits
from headwater.model.instant import Action, Instant, InstantTime, State, instant_time_after
from headwater.model.plans import RollbackRequest
from headwater.seams.storage import Storage

_EXECUTIONS_MAX = 90_000
"""Fences have numbers above those of executions. The attempts of what has completed are swept, and
the number of one that stalled long ago must not come back: it would prove that it is the newest, in
the moment in which T looks pending again (N-66)."""

LoadIndexesHolding = Callable[[Storage, TableConfig, Timeline, InstantTime], frozenset[str]]
"""Return the indexes that must be dropped because they cannot forget an instant."""


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """A commit or plan is off the timeline; the caller owns the rollback that deletes its files."""

    rollback: Started
    dropped_indexes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """An instant that is to be taken back, and what its withdrawal must see."""

    target: InstantTime
    claim: Claim
    base_uri: str
    load_indexes_holding: LoadIndexesHolding

    def _needs(self, instant: Instant) -> Needs:
        return Needs(
            attempt_numbers=(self.target,),
            markers=(self.target,),
            config=True,
            holding=partial(_load_holding, self.load_indexes_holding, self.target),
            commits=(instant,) if _is_commit(instant) else (),
        )

    def _withdraw(self, target: Instant, prefix: Prefix) -> Decision[Withdrawal]:
        time = prefix.next_time
        number = max(prefix.newest_attempt_numbers[self.target], _EXECUTIONS_MAX) + 1
        fence = self.claim.attempt(self.target, number, Purpose.WITHDRAW, prefix.now_ms)
        attempt = self.claim.attempt(time, 1, Purpose.EXECUTE, prefix.now_ms)
        plan = encode_record(rollback_plan(target, self._deletions(prefix)))
        events = (
            *_without_indexes(prefix),
            AttemptStarted(replace(fence, is_released=True)),
            AttemptStarted(attempt),
            Requested(time, Action.ROLLBACK, plan),
            _leaving(target),
        )
        requested = Instant(time, Action.ROLLBACK, State.REQUESTED)
        started = Started(attempt, requested, prefix.monotonic_ms)
        return Decision(events, Withdrawal(started, tuple(sorted(prefix.holding))))

    def _deletions(self, prefix: Prefix) -> tuple[RollbackRequest, ...]:
        """Return what the instant wrote. Markers tell what a plan that did not complete has."""
        markers = prefix.markers[self.target]
        announced = plan_deletions(self.target, markers, self.base_uri)
        commit = prefix.commits.get(self.target)
        if commit is None:
            return announced
        paths = {marker.data_path for marker in markers}
        return requests_for(paths.union(file.path for file in commit.files), self.base_uri)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeBackCommit(_Target):
    """Request the rollback of the last commit to complete, and withdraw it.

    It has no savepoint, no pending plan has taken it in, cleaning has left what the table needs
    without it, and nobody else is about to take it back.
    """

    def needs(self, timeline: Timeline) -> Needs:
        instant = timeline.find(self.target)
        if instant is None or instant.completion_time is None or not _is_commit(instant):
            return Needs()
        return replace(
            self._needs(instant),
            attempt_numbers=(self.target, *times_of_pending(timeline)),
            changes=pending_undoing(timeline),
            rewrites=True,
            # Before the first commit of all there is no view that could be incomplete.
            history=len(completed_commits(timeline)) == 1,
            readable=(_right_before(instant.completion_time),),
        )

    def decide(self, prefix: Prefix) -> Decision[Withdrawal] | Refusal:
        instant = prefix.timeline.find(self.target)
        if instant is None:
            return Refusal(no_such_instant(self.target))
        error = _why_not_undoable(instant, prefix) or why_written_elsewhere(prefix)
        return self._withdraw(instant, prefix) if error is None else Refusal(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeBackForRestore(_Target):
    """Request the rollback of an instant that a pending restore names, and withdraw it.

    `restore` proves that the restore is still its owner's to execute. Answers with the rollback
    that is pending already, or None if the instant is gone; an aborted plan has left nothing.
    """

    restore: Attempt

    def needs(self, timeline: Timeline) -> Needs:
        instant = timeline.find(self.target)
        ours = Needs(attempt_numbers=(self.restore.instant,), requests=pending_rollbacks(timeline))
        if instant is None:
            return ours
        needs = self._needs(instant)
        return replace(
            needs,
            attempt_numbers=(*needs.attempt_numbers, *ours.attempt_numbers),
            requests=ours.requests,
        )

    def decide(self, prefix: Prefix) -> Decision[Withdrawal | AlreadyScheduled | None] | Refusal:
        restore = pending_instant_of(self.restore, prefix)
        if isinstance(restore, Refusal):
            return restore
        for rollback in pending_rollbacks(prefix.timeline):
            data = prefix.requests[rollback.requested_time]
            if target_of(decode_rollback_plan(data, path=str(rollback))) == self.target:
                return Decision((), AlreadyScheduled(rollback))
        instant = prefix.timeline.find(self.target)
        if instant is None or instant.state is State.ABORTED:
            return Decision((), None)
        return self._withdraw(instant, prefix)


def _why_not_undoable(instant: Instant, prefix: Prefix) -> HeadwaterError | None:
    """Return why a commit may not be rolled back, or None."""
    timeline, time = prefix.timeline, instant.requested_time
    if instant.completion_time is None or not _is_commit(instant):
        return _not_undoable(instant, "is no completed commit")
    error = why_being_undone(instant, prefix)
    if error is not None:
        return error
    if any(point.requested_time == time for point in timeline.savepoints):
        return _not_undoable(instant, "has a savepoint. Delete the savepoint first")
    commits = completed_commits(timeline)
    if commits[-1] != instant:
        return _not_undoable(
            instant,
            f"was not the last commit to complete, {commits[-1]} was. Roll that back first, or "
            "restore the table to a savepoint",
        )
    is_first = len(commits) == 1 and not prefix.history
    unreadable = prefix.unreadable.get(_right_before(instant.completion_time))
    if unreadable is not None and not is_first:
        return unreadable
    commit = prefix.commits[time]
    touched = {file.group for file in commit.files}.union(commit.replaced_groups())
    for group, plan in prefix.rewrites.items():
        # It took in a file of the commit, or was made before that replaced the group.
        if group in touched and plan.requested_time > instant.completion_time:
            return _not_undoable(
                instant,
                f"was taken in by the plan {plan}. Execute that first, and roll it back before",
            )
    return None


def why_being_undone(instant: Instant, prefix: Prefix) -> HeadwaterError | None:
    """Return the pending rollback or restore that takes an instant back, as an error.

    The step needs the changes of `pending_undoing`.
    """
    for undoing in pending_undoing(prefix.timeline):
        if instant.requested_time in prefix.changes[undoing.requested_time].undone:
            return ConflictError(
                f"{undoing} is about to take {instant.requested_time} back. Wait until it has "
                "ended; if its process died, `clean` finishes it",
                kind=ErrorKind.ALREADY_RUNNING,
                instant=instant.requested_time,
                other=undoing.requested_time,
            )
    return None


def why_written_elsewhere(prefix: Prefix) -> HeadwaterError | None:
    """Return what another engine is writing, or has left, as an error.

    The step needs the attempt numbers of `times_of_pending`.
    """
    for write in pending_ingestion(prefix.timeline):
        time = write.requested_time
        if not prefix.newest_attempt_numbers[time]:
            return ConflictError(
                f"Another engine is writing {write} or has left it. It looks for nothing that is "
                "taken back, and would bring rows of that back. Wait until it has ended; if its "
                f"process died, `headwater service rollback` with {time} takes away what it left. "
                "Nothing was changed",
                kind=ErrorKind.FOREIGN_WRITER,
                retry=Retry.SAME_CALL,
                instant=time,
            )
    return None


def times_of_pending(timeline: Timeline) -> tuple[InstantTime, ...]:
    """Return whose attempts `why_written_elsewhere` asks for."""
    return tuple(write.requested_time for write in pending_ingestion(timeline))


def _not_undoable(instant: Instant, reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"{instant} cannot be rolled back: it {reason}. Nothing was changed",
        kind=ErrorKind.INVALID_STATE,
        instant=instant.requested_time,
    )


def _is_commit(instant: Instant) -> bool:
    return instant.is_completed and instant.action.completed_name in COMMIT_ACTIONS


def _right_before(completion_time: InstantTime) -> InstantTime:
    return instant_time_after(completion_time, -1)


def _load_holding(
    load: LoadIndexesHolding,
    target: InstantTime,
    storage: Storage,
    config: TableConfig,
    timeline: Timeline,
) -> frozenset[str]:
    return load(storage, config, timeline, target)


def _without_indexes(prefix: Prefix) -> tuple[ConfigChanged, ...]:
    """Take out of use the indexes that cannot forget the instant, and note to build them again."""
    config, dropped = prefix.config, prefix.holding
    if not dropped or config is None:
        return ()
    rest = tuple(name for name in config.metadata_partitions if name not in dropped)
    building = tuple(n for n in config.metadata_partitions_inflight if n not in dropped)
    again = tuple(sorted({*config.indexes_to_rebuild, *dropped}))
    return (
        ConfigChanged(
            {
                METADATA_PARTITIONS.key: METADATA_PARTITIONS.encode(rest),
                METADATA_PARTITIONS_INFLIGHT.key: METADATA_PARTITIONS_INFLIGHT.encode(building),
                INDEXES_TO_REBUILD.key: INDEXES_TO_REBUILD.encode(again),
            }
        ),
    )


@dataclass(frozen=True, slots=True)
class FinishWithdrawal:
    """Withdraw what a process that died had begun to withdraw."""

    target: InstantTime

    def needs(self, timeline: Timeline) -> Needs:
        return Needs(attempts=(self.target,))

    def decide(self, prefix: Prefix) -> Decision[None]:
        target = prefix.timeline.find(self.target)
        seen = prefix.newest_attempts.get(self.target)
        if target is None or seen is None or seen.attempt.purpose is not Purpose.WITHDRAW:
            return Decision((), None)
        return Decision((_leaving(target),), None)


def finish_withdrawal(
    storage: Storage, layout: TableLayout, txn: Transaction, target: InstantTime
) -> None:
    """Make sure that the target of a pending rollback is off the timeline if it is withdrawn.

    A failed write stays: it leaves when its rollback completes.
    """
    found = load_active(storage, layout.timeline).find(target)
    if found is not None and not (found.is_pending and found.action.is_ingestion):
        txn.run(FinishWithdrawal(target))


def _leaving(target: Instant) -> Event:
    if target.is_pending:
        return RolledBack(target.requested_time, target.action)
    return Withdrawn(target)
