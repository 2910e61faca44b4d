"""Small objects whose bytes a process keeps, because it will want them again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping

from headwater.seams.mutex import new_mutex

BYTES_MAX = 8 * 1024 * 1024


class KeptObjects:
    """The bytes of objects that are never overwritten, those that were used last. Bounded.

    What was damaged or deleted in storage since is not noticed, so whoever checks a table reads it
    without this.
    """

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._objects: OrderedDict[str, bytes] = OrderedDict()
        self._mutex = new_mutex()

    def find(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Return those of some objects that are kept."""
        found = {}
        with self._mutex:
            for path in paths:
                data = self._objects.get(path)
                if data is not None:
                    self._objects.move_to_end(path)
                    found[path] = data
        return found

    def keep(self, objects: Mapping[str, bytes]) -> None:
        """Keep objects as they were read or written; others go if there are too many."""
        with self._mutex:
            for path, data in objects.items():
                self._bytes += len(data) - len(self._objects.pop(path, b""))
                self._objects[path] = data
            while self._bytes > self._bytes_max:
                _, oldest = self._objects.popitem(last=False)
                self._bytes -= len(oldest)
