"""An object as a file that fetches the ranges which are read from it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any


class RangeInput(io.RawIOBase):
    """A seekable file over a call that returns the bytes of a range. It keeps nothing in memory."""

    def __init__(self, read_range: Callable[[int, int], bytes], size_bytes: int) -> None:
        super().__init__()
        self._read_range = read_range
        self._size_bytes = size_bytes
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def size(self) -> int:
        """Return the size of the object, which saves Arrow from seeking to its end."""
        return self._size_bytes

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size_bytes}[whence]
        self._at = max(0, start + offset)
        return self._at

    def read(self, size: int = -1) -> bytes:
        rest = max(0, self._size_bytes - self._at)
        length = rest if size < 0 else min(size, rest)
        data = self._read_range(self._at, length) if length else b""
        self._at += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)
