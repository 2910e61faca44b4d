"""A system whose calls fail: the disk is full, broken, read-only or denied, descriptors run out.

The errors are raised by the calls that `LocalStorage` makes of the system, so that all of it that
lies between them and a caller is what runs in the world. Only calls fail that can fail so: a full
disk still deletes, a process without descriptors still writes to the files that it has open.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pytest

from headwater.seams import folder_lock, local, staged_file

_OPENS = frozenset({"open", "open folder", "create", "open input", "scandir"})
_MAKES = frozenset({"create", "mkdir", "link", "replace"})

FAILING: dict[int, frozenset[str]] = {
    errno.ENOSPC: _MAKES | {"write", "fsync"},
    errno.EMFILE: _OPENS,
    errno.EIO: _OPENS | _MAKES | {"write", "fsync", "unlink", "stat", "read input", "flock"},
    errno.EROFS: _MAKES | {"write", "fsync", "unlink"},
    errno.EACCES: _OPENS | _MAKES | {"unlink", "stat"},
}
"""Which calls fail with which error."""


@dataclass(frozen=True)
class Fault:
    """One call fails, or all of its kind from then on until the fault is gone."""

    at: int
    error: int
    is_lasting: bool

    def __str__(self) -> str:
        name = errno.errorcode[self.error]
        return f"{name} at call {self.at}{' and from then on' if self.is_lasting else ''}"


class FailingSystem:
    """Counts the calls of the system, and lets some of them fail."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.failed = 0
        self._fault: Fault | None = None

    @contextmanager
    def failing(self, fault: Fault) -> Iterator[None]:
        """Let a call fail, counted from here."""
        self.calls, self.failed, self._fault = [], 0, fault
        try:
            yield
        finally:
            self._fault = None

    def enter(self, call: str) -> None:
        """Note a call that is about to be made; raise if it fails."""
        number = len(self.calls)
        self.calls.append(call)
        fault = self._fault
        if fault is None or number < fault.at or call not in FAILING[fault.error]:
            return
        if number == fault.at or fault.is_lasting:
            self.failed += 1
            raise OSError(fault.error, os.strerror(fault.error))

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put this system between local storage and the real one."""
        calls = _Calls(self)
        monkeypatch.setattr(local, "os", calls)
        monkeypatch.setattr(staged_file, "os", calls)
        monkeypatch.setattr(folder_lock, "fcntl", _Locks(self))
        monkeypatch.setattr(local, "pa", _Files(self))
        monkeypatch.setattr(local, "open", self._open, raising=False)
        # One after the other, so that a number means the same call each time.
        monkeypatch.setattr(local, "_WRITES_AT_ONCE", 1)

    def _open(self, *arguments: Any, **named: Any) -> Any:
        self.enter("open")
        return open(*arguments, **named)


class _Calls:
    """The module `os`, whose calls are counted."""

    def __init__(self, system: FailingSystem) -> None:
        self._enter = system.enter

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        if name not in ("scandir", "mkdir", "link", "replace", "write", "fsync", "unlink", "stat"):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            self._enter(name)
            return found(*arguments, **named)

        return call

    def open(self, path: str, flags: int, *arguments: Any, **named: Any) -> int:
        is_new = flags & os.O_WRONLY
        self._enter("create" if is_new else "open folder")
        return os.open(path, flags, *arguments, **named)


class _Locks:
    """The module `fcntl`, whose locks are counted when they are taken."""

    def __init__(self, system: FailingSystem) -> None:
        self._enter = system.enter

    def __getattr__(self, name: str) -> Any:
        return getattr(fcntl, name)

    def flock(self, folder: int, mode: int) -> None:
        if mode != fcntl.LOCK_UN:
            self._enter("flock")
        fcntl.flock(folder, mode)


class _Files:
    """The module `pyarrow`, whose files are counted when they are opened, and fail when read.

    Arrow reads with threads of its own, so their reads are not counted one by one: a file whose
    reading fails does so at the first.
    """

    def __init__(self, system: FailingSystem) -> None:
        self._enter = system.enter

    def __getattr__(self, name: str) -> Any:
        return getattr(pa, name)

    def OSFile(self, path: str, mode: str) -> Any:  # noqa: N802
        self._enter("open input")
        file = pa.OSFile(path, mode)
        try:
            self._enter("read input")
        except OSError as error:
            return _UnreadableFile(file, error)
        return file


class _UnreadableFile(io.RawIOBase):
    """A file that can be opened and not read."""

    def __init__(self, file: BinaryIO, error: OSError) -> None:
        self._file = file
        self._error = error

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def size(self) -> int:
        size: Callable[[], int] = self._file.size  # type: ignore[attr-defined]
        return size()

    def read(self, size: int = -1, /) -> bytes:
        raise OSError(self._error.errno, self._error.strerror)

    def close(self) -> None:
        self._file.close()
        super().close()
