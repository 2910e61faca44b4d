"""Reading what timeline files say, many at a time and only when somebody asks.

A timeline file is write-once (INV-05), so bytes read once stay right. Archival may delete a file
between the listing that named it and the read; that is a `NotFoundError` to be answered with a
fresh listing, never an empty content.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from headwater.errors import ErrorKind, NotFoundError, Retry
from headwater.kernel.timeline.active import instant_path
from headwater.model.instant import Instant, State
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
        self._bytes_max = bytes_max
        self._bytes = 0
        self._cached: OrderedDict[str, bytes] = OrderedDict()  # The longest unused comes first.

    def load(self, instants: Iterable[Instant], state: State | None = None) -> list[bytes]:
        """Return what `load_contents` does, reading only what is not remembered."""
        paths = [instant_path(self._folder, instant, state) for instant in instants]
        absent = [path for path in dict.fromkeys(paths) if path not in self._cached]
        fresh = dict(zip(absent, _load_paths(self._storage, absent), strict=True))
        contents = [fresh[path] if path in fresh else self._cached[path] for path in paths]
        for path, content in zip(paths, contents, strict=True):
            self._remember(path, content)
        return contents

    def _remember(self, path: str, content: bytes) -> None:
        self._bytes += len(content) - len(self._cached.get(path, b""))
        self._cached[path] = content
        self._cached.move_to_end(path)
        while self._bytes > self._bytes_max:
            _, dropped = self._cached.popitem(last=False)
            self._bytes -= len(dropped)


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
