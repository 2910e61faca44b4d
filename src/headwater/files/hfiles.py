"""HFiles, opened through storage: whole, or block by block."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from headwater.errors import NotFoundError
from headwater.format.hfile.blocks import corrupt
from headwater.format.hfile.reader import HFile
from headwater.seams.storage import Storage

WHOLE_FILE_BYTES_MAX = 1024 * 1024
"""A file up to this size is read in one request, which costs less than a second one would."""
TAIL_BYTES = 512 * 1024
"""Holds trailer, file info and the index of some 10,000 blocks: 600 MB of entries."""

# Every commit opens the small base files of the metadata table. They are remembered by all of their
# bytes, so that a file that has changed is never taken for what it was.
_REMEMBERED_COUNT = 128
_REMEMBERED_BYTES_MAX = 32 * 1024


def open_hfile(storage: Storage, path: str, size_bytes: int | None = None) -> HFile:
    """Open a file: in one request if it is small, and with its index only if it is not.

    Raises:
        CorruptTableError: the file is missing or damaged.
        UnsupportedError: it has a version, compression or index that this release cannot read.
    """
    try:
        if size_bytes is None:
            start = storage.read_range(path, 0, WHOLE_FILE_BYTES_MAX + 1)
            if len(start) <= WHOLE_FILE_BYTES_MAX:
                return _of(start, path)
            size_bytes = storage.info(path).size_bytes
        elif size_bytes <= WHOLE_FILE_BYTES_MAX:
            return _of(storage.read(path), path)
        tail_start = size_bytes - TAIL_BYTES
        tail = storage.read_range(path, tail_start, TAIL_BYTES)
    except NotFoundError as error:
        raise corrupt(path, "it does not exist") from error
    source = _InStorage(storage, path, tail_start, memoryview(tail))
    return HFile(source, size_bytes, path)


def _of(data: bytes, path: str) -> HFile:
    is_small = len(data) <= _REMEMBERED_BYTES_MAX
    return _remembered(data, path) if is_small else HFile.of_bytes(data, path=path)


@lru_cache(_REMEMBERED_COUNT)
def _remembered(data: bytes, path: str) -> HFile:
    return HFile.of_bytes(data, path=path)


@dataclass(frozen=True, slots=True)
class _InStorage:
    """A file of which the last bytes are at hand."""

    storage: Storage
    path: str
    tail_start: int
    tail: memoryview

    def read(self, start: int, end: int) -> memoryview:
        if start >= self.tail_start:
            return self.tail[start - self.tail_start : end - self.tail_start]
        data = self.storage.read_range(self.path, start, end - start)
        return memoryview(data)
