"""A cache that holds at most so many bytes and forgets what was not used for the longest time.

Several threads may use it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from headwater.seams.mutex import new_mutex

V = TypeVar("V")


class ByteCache(Generic[V]):
    """Values by name. A value larger than the whole cache is not kept."""

    def __init__(self, size_bytes_max: int) -> None:
        self._size_bytes_max = size_bytes_max
        self._size_bytes = 0
        self._held: OrderedDict[str, tuple[V, int]] = OrderedDict()
        self._mutex = new_mutex()

    def get(self, name: str) -> V | None:
        with self._mutex:
            if name not in self._held:
                return None
            self._held.move_to_end(name)
            return self._held[name][0]

    def put(self, name: str, value: V, size_bytes: int) -> None:
        """Hold a value, in the place of what has the same name and of what is oldest."""
        with self._mutex:
            if name in self._held:
                self._size_bytes -= self._held.pop(name)[1]
            if size_bytes > self._size_bytes_max:
                return
            self._held[name] = (value, size_bytes)
            self._size_bytes += size_bytes
            while self._size_bytes > self._size_bytes_max:
                _, (_, oldest_bytes) = self._held.popitem(last=False)
                self._size_bytes -= oldest_bytes
