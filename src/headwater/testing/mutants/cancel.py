"""Planted bugs in cancellation, abort and the rollback of removable plans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from headwater.errors import HeadwaterError
from headwater.kernel.layout import TableLayout
from headwater.kernel.timeline.history.write import deletion_waves
from headwater.kernel.timeline.names import TimelineFile
from headwater.kernel.txn.cancel_records import CancelEntry, encode_entry
from headwater.kernel.txn.cancel_steps import CompleteClustering, RequestCancel, StartAbort
from headwater.kernel.txn.conflicts import ConflictCheck
from headwater.kernel.txn.events import (
    Aborted,
    CancelRequested,
    Completed,
    Delete,
    Event,
    Write,
    writes_of,
)
from headwater.kernel.txn.prefix import Prefix
from headwater.kernel.txn.rollback_steps import ScheduleRollback
from headwater.kernel.txn.steps import Complete, StartExecution
from headwater.kernel.txn.transaction import Decision, Refusal
from headwater.kernel.txn.writes import InflightWrite
from headwater.model.files import FileGroupId
from headwater.model.instant import Instant, InstantTime, State
from headwater.seams.storage import Storage
from headwater.testing.actor import Process
from headwater.testing.faults import Fate, Faults
from headwater.testing.mutants.mutant import Mutant
from headwater.testing.scenarios.cancel import (
    cancel_archive,
    cancel_archived,
    cancel_commit,
    cancel_stall,
    cancel_two_aborters,
    cancellations_of,
    ingestion,
)
from headwater.testing.scenarios.plan import PLAN
from headwater.testing.scenarios.removable import NEVER_MS, removable

_STALL = Faults(ticks=1, has_long_ticks=False)
_CRASH = Faults(crashes=1, fates=(Fate.DROP,))


class _LooksAtEntryOnly(CompleteClustering):
    """Takes a plan for fit to complete whenever there is no entry for it (H-01)."""

    def decide(self, prefix: Prefix) -> Decision[Any] | Refusal:
        found = prefix.timeline.find(self.attempt.instant)
        if found is None or found.is_completed or found.requested_time in prefix.cancelled:
            return CompleteClustering.decide(self, prefix)
        done = found._replace(state=State.COMPLETED, completion_time=prefix.next_time)
        completed = Completed(found.requested_time, found.action, prefix.next_time, self.content)
        return Decision((completed,), done)


def _entry_first(events: Iterable[Event], layout: TableLayout) -> Iterator[Write]:
    """Delete the entry of a plan before its aborted file is there: steps 10 and 9."""
    writes = list(writes_of(list(events), layout))
    is_abort = any(isinstance(event, Aborted) for event in events)
    entries = [write for write in writes if isinstance(write, Delete) and "/.cancel/" in write.path]
    yield from entries if is_abort else ()
    yield from (write for write in writes if not (is_abort and write in entries))


class _CancelsWhatIsGone(RequestCancel):
    """Takes an instant that is not on the active timeline for one that may be cancelled (H-02)."""

    def decide(self, prefix: Prefix) -> Decision[Any] | Refusal:
        if prefix.timeline.find(self.time) is not None:
            return RequestCancel.decide(self, prefix)
        entry = CancelEntry(owner=self.owner, requested_ms=0, reason=self.reason)
        gone = CancelRequested(self.time, encode_entry(entry))
        return Decision((gone,), None)


class _KeepsQuiet(Complete):
    """Commits a write without cancelling the plans in its way."""

    def decide(self, prefix: Prefix) -> Decision[Instant] | Refusal:
        decided = Complete.decide(self, prefix)
        if isinstance(decided, Refusal):
            return decided
        events = (event for event in decided.events if not isinstance(event, CancelRequested))
        return Decision(tuple(events), decided.result)


def _publish_nothing(write: InflightWrite, storage: Storage, check: ConflictCheck) -> ConflictCheck:
    return check


def _cancel_later(process: Process) -> None:
    """Cancel the plan after the write has committed and given the lock back."""
    try:
        cancellations_of(process).request(PLAN, "too late")
    except HeadwaterError:
        return


class _DoesNotLook(CompleteClustering):
    """Completes whatever writes have announced (H-09)."""

    def _write_ahead(self, prefix: Prefix, groups: frozenset[FileGroupId]) -> InstantTime | None:
        return None


class _UnguardedAbort(StartAbort):
    """Claims no attempt and looks at no heartbeat... of those before it (H-05)."""

    def decide(self, prefix: Prefix) -> Decision[Any] | Refusal:
        seen = {
            time: replace(found, is_active=False) for time, found in prefix.newest_attempts.items()
        }
        return StartAbort.decide(self, replace(prefix, newest_attempts=seen))


class _ExecutesCancelled(StartExecution):
    """Executes a plan although it is cancelled or its execution has failed (H-15, INV-26)."""

    def _why_not_executed(self, instant: Instant, prefix: Prefix) -> HeadwaterError | None:
        return None


class _Impatient(ScheduleRollback):
    """Rolls back a removable plan however young it is."""

    def _why_plan_stays(self, target: Instant, prefix: Prefix) -> HeadwaterError | None:
        return None


def _terminal_first(
    files: Mapping[str, TimelineFile], *, have_files: bool = True
) -> list[list[str]]:
    return deletion_waves(files, have_files=have_files)[::-1]


MUTANTS = (
    Mutant(
        name="pre-commit looks only at .cancel",
        scenario=lambda: cancel_stall(_STALL),
        patches=(("headwater.kernel.txn.cancel.CompleteClustering", _LooksAtEntryOnly),),
        must_violate=("INV-02", "INV-12"),
        preemptions_max=1,
    ),
    Mutant(
        name="entry deleted before the plan is aborted",
        scenario=lambda: cancel_commit(_CRASH),
        patches=(("headwater.kernel.txn.transaction.writes_of", _entry_first),),
        must_violate=("INV-09", "INV-15"),
    ),
    Mutant(
        name="request_cancel ignores archived state",
        scenario=lambda: cancel_archived(Faults()),
        patches=(("headwater.kernel.txn.cancel.RequestCancel", _CancelsWhatIsGone),),
        must_violate=("INV-10", "INV-59"),
    ),
    Mutant(
        name="write cancels after releasing the lock",
        scenario=lambda: cancel_commit(
            Faults(), write=ingestion(publish=_publish_nothing, after=_cancel_later)
        ),
        patches=(
            ("headwater.kernel.txn.writes.Complete", _KeepsQuiet),
            # The plan asks what has completed since as well, for the sake of other engines (N-184).
            ("headwater.kernel.txn.cancel_steps._overtaken", lambda *_: None),
        ),
        must_violate=("INV-15",),
    ),
    Mutant(
        name="plan completes beside a published write",
        scenario=lambda: cancel_commit(Faults(), write=ingestion(publish=_publish_nothing)),
        patches=(("headwater.kernel.txn.cancel.CompleteClustering", _DoesNotLook),),
        must_violate=("INV-14",),
    ),
    Mutant(
        name="abort does not look at heartbeats",
        scenario=lambda: cancel_two_aborters(Faults()),
        patches=(("headwater.kernel.txn.cancel.StartAbort", _UnguardedAbort),),
        must_violate=("INV-20",),
    ),
    Mutant(
        name="archival deletes the terminal file first",
        scenario=lambda: cancel_archive(Faults()),
        patches=(("headwater.kernel.timeline.history.write.deletion_waves", _terminal_first),),
        must_violate=("INV-36", "INV-59"),
    ),
    Mutant(
        name="removable plan executed again",
        scenario=lambda: removable(_STALL, delay_ms=NEVER_MS),
        patches=(("headwater.kernel.txn.guard.StartExecution", _ExecutesCancelled),),
        must_violate=("INV-26",),
    ),
    Mutant(
        name="removable plan rolled back too young",
        scenario=lambda: removable(Faults(), delay_ms=NEVER_MS, executors=1),
        patches=(("headwater.kernel.txn.rollback.ScheduleRollback", _Impatient),),
        must_violate=("INV-28",),
    ),
)
