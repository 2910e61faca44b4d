"""Making the next item while the current one is in use."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def prefetched(items: Iterator[T]) -> Iterator[T]:
    """Give items, of which the next is made in another thread while the one before is in use.

    It pays where making an item lets go of the interpreter's lock, as decompression does. Items
    must not be made by calling the other seams: the simulator knows one thread only.
    """
    end = object()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="ahead") as thread:
        coming = thread.submit(next, items, end)
        while (item := coming.result()) is not end:
            coming = thread.submit(next, items, end)
            yield item  # type: ignore[misc]
