"""The view of a write, loaded while the lock of its first step is given back."""

from __future__ import annotations

import logging

from headwater.context import TableContext
from headwater.errors import HeadwaterError
from headwater.kernel.timeline.active import Timeline
from headwater.metadata.view import IndexedView, view_of
from headwater.model.instant import InstantTime

log = logging.getLogger(__name__)


class ViewAhead:
    """The view of a write, on the timeline that its instant was begun on."""

    def __init__(self, table: TableContext) -> None:
        self._table = table
        self.view: IndexedView | None = None

    def load(self, timeline: Timeline) -> None:
        """Load it; leave to who needs it to say what is wrong, if something is."""
        try:
            view = view_of(self._table, timeline=timeline)
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
