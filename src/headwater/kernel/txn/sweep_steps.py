"""The steps of sweeping, as pure decisions; `services.sweep` runs them.

    FindGone          say which instants can never come to be any more
    ForgetAttempts    delete the attempts of instants that have ended

The files and markers of an instant that is gone are deleted after the first of them, without the
lock: what is gone stays gone, for times only grow. Its attempts go last, in the second. That looks
once more, for a completed instant may be taken back meanwhile, and whoever finishes that needs the
fence on it. A fence may even have the number of an attempt that another sweep has deleted (N-66).

What a crash leaves behind: some of the attempts, which the next sweep finds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.kernel.timeline.active import Timeline
from headwater.kernel.txn.events import AttemptsForgotten
from headwater.kernel.txn.prefix import Needs, Prefix
from headwater.kernel.txn.rollback_plan import pending_undoing
from headwater.kernel.txn.transaction import Decision
from headwater.model.instant import InstantTime


@dataclass(frozen=True, slots=True)
class FindGone:
    """Say which of some instants are on neither timeline, and were given up by their owners.

    A writer claims its time first and requests the instant afterwards, in one transaction. Times
    above the largest one known stay: the claim keeps them from being issued again.
    """

    times: tuple[InstantTime, ...]

    def needs(self, timeline: Timeline) -> Needs:
        return Needs(
            attempts=self.times,
            in_history=tuple(time for time in self.times if timeline.find(time) is None),
            changes=pending_undoing(timeline),
        )

    def decide(self, prefix: Prefix) -> Decision[tuple[InstantTime, ...]]:
        timeline, undone = prefix.timeline, being_undone(prefix)
        largest = timeline.largest_time or InstantTime("")
        gone = (
            time
            for time in self.times
            if time < largest
            and timeline.find(time) is None
            and time not in prefix.in_history
            and time not in undone
            and not _is_claimed(prefix, time)
        )
        return Decision((), tuple(gone))


@dataclass(frozen=True, slots=True)
class ForgetAttempts:
    """Delete attempts of instants that have ended, by their paths.

    Those of an instant that is pending, or that somebody is about to take back, stay. Answers with
    the instants whose attempts went.
    """

    paths: Mapping[InstantTime, tuple[str, ...]]

    def needs(self, timeline: Timeline) -> Needs:
        return Needs(changes=pending_undoing(timeline))

    def decide(self, prefix: Prefix) -> Decision[tuple[InstantTime, ...]]:
        undone = being_undone(prefix)
        pending = {instant.requested_time for instant in prefix.timeline.pending}
        ended = [time for time in sorted(self.paths) if time not in undone | pending]
        events = tuple(AttemptsForgotten(self.paths[time]) for time in ended if self.paths[time])
        return Decision(events, tuple(ended))


def being_undone(prefix: Prefix) -> frozenset[InstantTime]:
    """Return what pending rollbacks and restores take back."""
    found = (prefix.changes[i.requested_time].undone for i in pending_undoing(prefix.timeline))
    return frozenset().union(*found)


def _is_claimed(prefix: Prefix, time: InstantTime) -> bool:
    seen = prefix.newest_attempts.get(time)
    return seen is not None and seen.is_active
