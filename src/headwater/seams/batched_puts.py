"""Objects that are put together, a bounded number of bytes at a time."""

from __future__ import annotations

from headwater.seams.storage import Storage

GATHERED_BYTES_MAX = 32 * 1024 * 1024
"""Many small objects fit in, and a few large ones do not fill the memory."""


class BatchedPuts:
    """Gathers objects for `put_many`. They are there for certain after `flush` only."""

    def __init__(self, storage: Storage, bytes_max: int = GATHERED_BYTES_MAX) -> None:
        self._storage = storage
        self._bytes_max = bytes_max
        self._objects: dict[str, bytes] = {}
        self._bytes = 0

    def add(self, path: str, data: bytes) -> None:
        """Put an object, now or later; each path comes once."""
        self._objects[path] = data
        self._bytes += len(data)
        if self._bytes >= self._bytes_max:
            self.flush()

    def flush(self) -> None:
        """Put all that was gathered."""
        objects, self._objects, self._bytes = self._objects, {}, 0
        self._storage.put_many(objects)
