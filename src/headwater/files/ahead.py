"""Files of several slices, fetched together from a distant store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headwater.model.files import FileSlice
from headwater.seams.prefetched_storage import PrefetchedStorage
from headwater.seams.storage import Storage

SMALL_BYTES_MAX = 4 * 1024 * 1024
"""About what a store sends in the time of another request. A larger file is read in parts."""

_AHEAD_BYTES_MAX = 64 * 1024 * 1024


def with_files_at_hand(
    storage: Storage, slices: Sequence[FileSlice]
) -> Iterator[tuple[Storage, FileSlice]]:
    """Give slices, each with the storage to read it from; small files of many come at once.

    On a disk it is the storage itself: there a file is mapped faster than read.
    """
    if not storage.is_distant:
        yield from ((storage, one) for one in slices)
        return
    for some in _windows(slices):
        small = [
            file.path
            for one in some
            for file in one.files()
            if 0 < file.size_bytes <= SMALL_BYTES_MAX
        ]
        ahead = PrefetchedStorage(storage, small)
        yield from ((ahead, one) for one in some)


def _windows(slices: Sequence[FileSlice]) -> Iterator[list[FileSlice]]:
    """Cut slices into runs whose small files fit into memory together."""
    window: list[FileSlice] = []
    gathered = 0
    for one in slices:
        window.append(one)
        gathered += sum(f.size_bytes for f in one.files() if f.size_bytes <= SMALL_BYTES_MAX)
        if gathered >= _AHEAD_BYTES_MAX:
            yield window
            window, gathered = [], 0
    if window:
        yield window
