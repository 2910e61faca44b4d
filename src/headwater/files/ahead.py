"""Files of several slices, fetched together from a distant store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from headwater.model.files import DataFile, FileSlice
from headwater.seams.prefetched_storage import PrefetchedStorage
from headwater.seams.storage import Storage

SMALL_BYTES_MAX = 4 * 1024 * 1024
"""About what a store sends in the time of another request. A larger file is read in parts."""
AHEAD_BYTES_MAX = 64 * 1024 * 1024

T = TypeVar("T")


def with_files_at_hand(
    storage: Storage, slices: Sequence[FileSlice]
) -> Iterator[tuple[Storage, FileSlice]]:
    """Give slices, each with the storage to read it from; small files of many come at once.

    On a disk it is the storage itself: there a file is mapped faster than read.
    """
    if not storage.is_distant:
        yield from ((storage, one) for one in slices)
        return
    sizes = [sum(file.size_bytes for file in _small_files(one)) for one in slices]
    for window in windows(slices, sizes, AHEAD_BYTES_MAX):
        small = [file.path for one in window for file in _small_files(one)]
        ahead = PrefetchedStorage(storage, small)
        yield from ((ahead, one) for one in window)


def windows(
    items: Sequence[T], sizes: Sequence[int], bytes_max: int, *, items_max: int | None = None
) -> Iterator[list[T]]:
    """Cut items, in their order, into lots of so many bytes and items together at most.

    One that is larger by itself is alone.
    """
    window: list[T] = []
    window_bytes = 0
    for item, size in zip(items, sizes, strict=True):
        if window and (window_bytes + size > bytes_max or len(window) == items_max):
            yield window
            window, window_bytes = [], 0
        window.append(item)
        window_bytes += size
    if window:
        yield window


def _small_files(one: FileSlice) -> list[DataFile]:
    return [file for file in one.files() if 0 < file.size_bytes <= SMALL_BYTES_MAX]
