"""What has completed since a write took its snapshot, at the cost of few looks.

The markers of a write vanish when it commits. Who comes to the same file group a moment later finds
it by its commit instead (RFC-56, "check commit conflict"), reckoned from the snapshot that the rows
were routed by and not from when the task began (H-63).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from headwater.errors import CorruptTableError, NotFoundError, StorageError
from headwater.kernel.layout import TableLayout
from headwater.kernel.timeline.active import load_active
from headwater.kernel.txn.changes import Change, load_changes
from headwater.markers.early_conflict import EarlyCheck
from headwater.model.instant import Instant, InstantTime
from headwater.seams.clock import Clock
from headwater.seams.storage import Storage

log = logging.getLogger(__name__)

LOOK_EVERY_MS = 1_000


class CommitsSince:
    """The instants that a write did not see, as one process knows them."""

    def __init__(
        self, storage: Storage, clock: Clock, layout: TableLayout, check: EarlyCheck
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._layout = layout
        self._check = check
        self._looked_ms: int | None = None
        self._known: dict[Instant, Change] = {}

    def changes(self) -> Sequence[Change]:
        """Return what they did, not much older than a second.

        What cannot be read counts as no conflict seen (INV-69): the commit will read it again.
        """
        now_ms = self._clock.monotonic_ms()
        if self._looked_ms is None or now_ms >= self._looked_ms + LOOK_EVERY_MS:
            self._looked_ms = now_ms
            try:
                self._look()
            except (NotFoundError, StorageError, CorruptTableError) as error:
                log.info("commits not read, conflicts show at the commit error=%s", error)
        return list(self._known.values())

    def is_pending(self, time: InstantTime) -> bool:
        """Whether an instant has not reached its end, by a look at the timeline right now.

        Raises:
            StorageError: storage failed.
        """
        found = load_active(self._storage, self._layout.timeline).find(time)
        return found is not None and found.is_pending

    def _look(self) -> None:
        timeline = load_active(self._storage, self._layout.timeline)
        candidates = self._check.commit_check({}).unread(timeline)
        new = [instant for instant in candidates if instant not in self._known]
        changes = load_changes(self._storage, self._layout, new) if new else {}
        # A pending clustering that is gone was taken back, and is forgotten.
        self._known = {
            instant: self._known.get(instant) or changes[instant.requested_time]
            for instant in candidates
        }
