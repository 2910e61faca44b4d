"""A cache that holds at most so many bytes and forgets what was not used for the longest time.

Several threads may use it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from headwater.seams.mutex import new_mutex

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ByteCache(Generic[K, V]):
    """Values by key. A value larger than the whole cache is not kept."""

    def __init__(self, size_bytes_max: int) -> None:
        self._size_bytes_max = size_bytes_max
        self._size_bytes = 0
        self._held: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._mutex = new_mutex()

    def get(self, key: K) -> V | None:
        with self._mutex:
            if key not in self._held:
                return None
            self._held.move_to_end(key)
            return self._held[key][0]

    def put(self, key: K, value: V, size_bytes: int) -> None:
        """Hold a value, in the place of what has the same key and of what is oldest."""
        with self._mutex:
            if key in self._held:
                self._size_bytes -= self._held.pop(key)[1]
            if size_bytes > self._size_bytes_max:
                return
            self._held[key] = (value, size_bytes)
            self._size_bytes += size_bytes
            while self._size_bytes > self._size_bytes_max:
                _, (_, oldest_bytes) = self._held.popitem(last=False)
                self._size_bytes -= oldest_bytes
