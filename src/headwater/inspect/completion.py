"""When did the commits of some files complete?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headwater.kernel.table_config import table_layout
from headwater.kernel.timeline.history.read import HistoryTimeline
from headwater.kernel.view.table_view import TableView
from headwater.model.files import FileSlice
from headwater.model.instant import InstantTime
from headwater.seams.storage import Storage


def load_completion_times(
    storage: Storage, view: TableView, slices: Iterable[FileSlice]
) -> Mapping[InstantTime, InstantTime]:
    """Return the completion time of every instant that wrote a file of these slices of a view.

    The archived timeline is read only for instants that the active one does not have any more.
    """
    times = {file.instant_time for file_slice in slices for file in file_slice.files()}
    if not view.config.has_layout_two:
        # Archived instants completed when they were requested, as all do there (N-113).
        return {time: time for time in times}
    found = {time: instant for time in times if (instant := view.timeline.find(time)) is not None}
    if len(found) < len(times):
        history = HistoryTimeline(storage, table_layout(view.config).history)
        found |= history.find_all(times - found.keys())
    return {
        time: instant.completion_time
        for time, instant in found.items()
        if instant.completion_time is not None
    }
