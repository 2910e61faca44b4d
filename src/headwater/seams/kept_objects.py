"""Small objects whose bytes a process keeps, because it will want them again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headwater.seams.byte_cache import ByteCache

BYTES_MAX = 8 * 1024 * 1024


class KeptObjects:
    """The bytes of objects that are never overwritten, those that were used last. Bounded.

    What was damaged or deleted in storage since is not noticed, so whoever checks a table reads it
    without this.
    """

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._held = ByteCache[str, bytes](bytes_max)

    def find(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Return those of some objects that are kept."""
        found = ((path, self._held.get(path)) for path in paths)
        return {path: data for path, data in found if data is not None}

    def keep(self, objects: Mapping[str, bytes]) -> None:
        """Keep objects as they were read or written; others go if there are too many."""
        for path, data in objects.items():
            self._held.put(path, data, len(data))
