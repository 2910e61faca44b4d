"""Merging the rows of several data files in the order of their instants, portion by portion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headwater.kernel.timeline.history.archived_files import HistoryFile
from headwater.kernel.timeline.history.columns import load_files
from headwater.kernel.timeline.history.rows import (
    check_agreement,
    decode_instants,
    decode_ordered,
)
from headwater.model.instant import Instant, InstantTime
from headwater.seams.storage import Storage


def merge_files(storage: Storage, folder: str, files: Sequence[HistoryFile]) -> Iterator[pa.Table]:
    """Give the rows of all files, ordered by instant time, each instant once.

    A file is read when the merge comes to its oldest instant, so usually one is open at a time.

    Raises:
        NotFoundError: kind INSTANT_NOT_FOUND; a file was cleaned away.
        CorruptTableError: a file is damaged, or two files contradict each other.
    """
    unread = sorted(files, reverse=True)
    sources: list[_Source] = []
    previous: Instant | None = None
    while True:
        sources = [source for source in sources if not source.is_empty]
        up_to = min((source.last_time for source in sources), default=None)
        if unread and (up_to is None or unread[-1].min_time <= up_to):
            file = unread.pop()
            (data,) = load_files(storage, folder, [file])
            sources.append(_Source(decode_ordered(data, f"{folder}/{file.name}")))
            continue
        if up_to is None:
            return
        rows = pa.concat_tables([source.take(up_to) for source in sources])
        rows = rows.sort_by("instantTime")
        is_new = []
        for instant in decode_instants(rows, folder):
            is_new.append(previous is None or previous.requested_time != instant.requested_time)
            if previous is not None and not is_new[-1]:
                check_agreement(previous, instant, folder)
            previous = instant
        yield rows.filter(pa.array(is_new))


class _Source:
    """The rows of one file that are still to come."""

    def __init__(self, portions: Iterator[pa.Table]) -> None:
        self._portions = portions
        self._rows: pa.Table = next(portions, None)

    @property
    def is_empty(self) -> bool:
        return self._rows is None

    @property
    def last_time(self) -> InstantTime:
        """The newest instant of the portion at hand."""
        return InstantTime(self._rows.column("instantTime")[-1].as_py())

    def take(self, up_to: InstantTime) -> pa.Table:
        """Remove the rows of the portion at hand up to a time, and return them."""
        count = pc.sum(pc.less_equal(self._rows.column("instantTime"), up_to)).as_py() or 0
        taken, rest = self._rows.slice(0, count), self._rows.slice(count)
        self._rows = rest if rest.num_rows else next(self._portions, None)
        return taken
