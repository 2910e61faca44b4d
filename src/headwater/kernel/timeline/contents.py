"""Reading what timeline files say, many at a time and only when somebody asks.

A timeline file is write-once (INV-05), so bytes read once stay right. Archival may delete a file
between the listing that named it and the read; that is a `NotFoundError` to be answered with a
fresh listing, never an empty content.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headwater.errors import ErrorKind, NotFoundError, Retry
from headwater.kernel.timeline.active import instant_path
from headwater.model.instant import Instant, State
from headwater.seams.byte_cache import ByteCache
from headwater.seams.storage import Storage

CACHE_BYTES_MAX = 64 * 1024 * 1024
"""Commit files of ten thousand small commits fit."""


def load_contents(
    storage: Storage, folder: str, instants: Iterable[Instant], state: State | None = None
) -> list[bytes]:
    """Read the files that say the instants are in `state`, by default each in its own.

    Raises:
        NotFoundError: kind INSTANT_NOT_FOUND; a file vanished, or never existed in that state.
    """
    return _load_paths(storage, [instant_path(folder, instant, state) for instant in instants])


class TimelineContents:
    """Contents of one timeline's files, remembered up to a number of bytes."""

    def __init__(self, storage: Storage, folder: str, *, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._storage = storage
        self._folder = folder
        self._cached = ByteCache[str, bytes](bytes_max)

    def load(self, instants: Iterable[Instant], state: State | None = None) -> list[bytes]:
        """Return what `load_contents` does, reading only what is not remembered."""
        paths = [instant_path(self._folder, instant, state) for instant in instants]
        held = ((path, self._cached.get(path)) for path in dict.fromkeys(paths))
        found = {path: content for path, content in held if content is not None}
        absent = [path for path in dict.fromkeys(paths) if path not in found]
        for path, content in zip(absent, _load_paths(self._storage, absent), strict=True):
            found[path] = content
            self._cached.put(path, content, len(content))
        return [found[path] for path in paths]


def _load_paths(storage: Storage, paths: Sequence[str]) -> list[bytes]:
    contents = []
    for path, content in zip(paths, storage.read_many(paths) if paths else (), strict=True):
        if content is None:
            raise NotFoundError(
                f"Timeline file {path} is gone: its instant was archived or rolled back after the "
                "timeline was listed. Load the timeline again",
                kind=ErrorKind.INSTANT_NOT_FOUND,
                retry=Retry.FRESH_VIEW,
                path=path,
            )
        contents.append(content)
    return contents
