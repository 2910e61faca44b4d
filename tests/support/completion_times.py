"""When did an instant complete? The answer lies on the active or on the archived timeline.

Archival writes the archived timeline before it deletes from the active one, so whoever reads them
the other way round, the active one first, finds every completed instant on at least one of them.
An instant on neither was rolled back, aborted and tidied away, or never existed: it is not
committed, however old it is (H-44). "Older than the first active instant" proves nothing.
"""

from __future__ import annotations

from headwater.kernel.layout import TableLayout
from headwater.kernel.timeline.active import Timeline, load_active
from headwater.kernel.timeline.history.read import HistoryTimeline
from headwater.model.instant import InstantTime
from headwater.seams.storage import Storage


class CompletionTimes:
    """Completion times of instants, as of one listing of the active timeline.

    `history` must be looked at after that listing; being lazy, it is if it is new. It is read only
    for an instant that is not on the active timeline.
    """

    def __init__(self, active: Timeline, history: HistoryTimeline) -> None:
        self._active = active
        self._history = history

    def find(self, time: InstantTime) -> InstantTime | None:
        """Return when the instant requested at `time` completed; None if it is not committed.

        An instant that completed and was archived since the listing may be found, with its later
        completion time.

        Raises:
            NotFoundError: kind INSTANT_NOT_FOUND; the archived timeline was cleaned meanwhile.
            CorruptTableError: a file of the archived timeline is damaged.
        """
        instant = self._active.find(time)
        if instant is not None:
            return instant.completion_time
        return self._history.completion_time_of(time)


def load_completion_times(storage: Storage, layout: TableLayout) -> CompletionTimes:
    """List the active timeline; the archived one is read when somebody asks for it."""
    active = load_active(storage, layout.timeline)
    return CompletionTimes(active, HistoryTimeline(storage, layout.history))
