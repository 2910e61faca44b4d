"""The view of a write, loaded while the lock of its first step is given back."""

from __future__ import annotations

import logging

from headwater.context import TableContext
from headwater.errors import HeadwaterError
from headwater.kernel.timeline.active import Timeline
from headwater.kernel.txn.attempts import load_attempt, load_newest_number
from headwater.kernel.txn.foreign import is_dead_elsewhere
from headwater.kernel.txn.steps import pending_ingestion
from headwater.metadata.view import IndexedView, view_of
from headwater.model.instant import Instant, InstantTime

log = logging.getLogger(__name__)


class ViewAhead:
    """The view of a write, on the timeline that its instant was begun on."""

    def __init__(self, table: TableContext) -> None:
        self._table = table
        self._timeline: Timeline | None = None
        self.view: IndexedView | None = None

    def load(self, timeline: Timeline) -> None:
        """Load it; leave to who needs it to say what is wrong, if something is."""
        self._timeline = timeline
        try:
            view = view_of(self._table, timeline=timeline, is_for_decision=True)
            view.load_ahead()
        except HeadwaterError as error:
            # The write has begun, and must come to where it can be given up.
            log.info("view is loaded again error=%s", error)
            return
        self.view = view

    def roll_back(self, dead: InstantTime) -> None:
        """Roll a dead write back, which the timeline of the view has."""
        self.view = None
        self._table.rollbacks.roll_back(dead)

    def roll_back_failed(self, mine: InstantTime) -> None:
        """Roll back the writes that dead processes left, as the eager policy asks of who begins."""
        pending = () if self._timeline is None else pending_ingestion(self._timeline)
        for write in pending:
            if write.requested_time == mine or not self._has_failed(write):
                continue
            try:
                self.roll_back(write.requested_time)
            except HeadwaterError as error:
                log.warning(
                    "failed write left to others instant=%s error=%s", write.requested_time, error
                )

    def _has_failed(self, write: Instant) -> bool:
        """Look from outside the lock; the transaction that schedules a rollback looks again."""
        storage, time = self._table.storage, write.requested_time
        number = load_newest_number(storage, time)
        if number:
            attempt = load_attempt(storage, time, number)
            return attempt is not None and not self._table.txn.watch.is_active(attempt)
        folder = self._table.layout.timeline
        return is_dead_elsewhere(self._table.foreign_rule, storage, folder, write)
