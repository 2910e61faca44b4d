"""Taking back what has completed: the latest commit, or all since a savepoint.

A rollback R of a failed write T deletes files that nobody sees. If T has completed, readers see its
files, and writers plan on its rows. So T leaves the timeline first, in the transaction that
schedules R:

1. the next attempt of T, released at once; its purpose says that T is withdrawn;
2. the first attempt of R;
3. the request of R: the plan, which names every file of T;
4. the files of T on the timeline.

From 3 on no write that was planned on T can commit: a pending rollback counts as if it had
completed (`conflicts`). From 4 on no view shows T. Then R is executed like any rollback.

A crash between 3 and 4 leaves T as it is and R pending; whoever takes R up does 4 first
(`finish_withdrawal`). The purpose of the attempt tells it from the rollback of a failed write,
whose target cannot have completed, and which is refused if it has.

A plan that is taken back by a restore goes the same way, pending or completed. Nobody executes or
aborts it from 1 on: the guard sees the purpose of its newest attempt.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headwater.errors import ConflictError, Retry
from headwater.format.timeline.records import encode_record
from headwater.kernel.layout import TableLayout
from headwater.kernel.timeline.active import Timeline, load_active
from headwater.kernel.txn.attempts import Purpose
from headwater.kernel.txn.events import AttemptStarted, Event, Requested, RolledBack, Withdrawn
from headwater.kernel.txn.rollback_plan import rollback_plan
from headwater.kernel.txn.steps import Claim, Started
from headwater.kernel.txn.transaction import Decision, Needs, Prefix, Refusal, Transaction
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.model.plans import RollbackRequest
from headwater.seams.storage import Storage


@dataclass(frozen=True, slots=True)
class ScheduleWithdrawal:
    """Request the rollback of an instant that the caller may take back, and withdraw it."""

    target: Instant
    requests: tuple[RollbackRequest, ...]
    claim: Claim

    def needs(self, timeline: Timeline) -> Needs:
        return Needs(attempt_numbers=(self.target.requested_time,))

    def decide(self, prefix: Prefix) -> Decision[Started] | Refusal:
        target, time = self.target, prefix.next_time
        if prefix.timeline.find(target.requested_time) != target:
            return Refusal(
                ConflictError(
                    f"{target} changed while its rollback was planned. Nothing was changed; try "
                    "again",
                    instant=target.requested_time,
                    retry=Retry.FRESH_VIEW,
                )
            )
        number = prefix.newest_attempt_numbers[target.requested_time] + 1
        fence = self.claim.attempt(target.requested_time, number, Purpose.WITHDRAW, prefix.now_ms)
        attempt = self.claim.attempt(time, 1, Purpose.EXECUTE, prefix.now_ms)
        plan = encode_record(rollback_plan(target, self.requests))
        events = (
            AttemptStarted(replace(fence, is_released=True)),
            AttemptStarted(attempt),
            Requested(time, Action.ROLLBACK, plan),
            _leaving(target),
        )
        requested = Instant(time, Action.ROLLBACK, State.REQUESTED)
        return Decision(events, Started(attempt, requested, prefix.monotonic_ms))


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
