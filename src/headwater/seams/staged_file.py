"""A file that is complete before any name leads to it: how a local object appears whole (S3).

On Linux the bytes go into a file without a name (O_TMPFILE), so a crash while they are written
leaves nothing behind. Where the system or the file system has no such thing they go into a file
whose name begins with `HIDDEN_PREFIX`, which no listing reports. A crash can leave that one behind;
it is harmless and may be deleted once no writer runs.
"""

from __future__ import annotations

import errno
import io
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

HIDDEN_PREFIX = ".tmp-headwater-"

_FILE_MODE = 0o666  # Narrowed by the umask, as for a file that any other program creates.
_OWN_DESCRIPTORS = "/proc/self/fd"
# EPERM is what ext4 says in a folder that was removed; creating a name there tells it apart.
_NO_NAMELESS_FILES = frozenset(
    {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS, errno.EPERM}
)


class StagedFile:
    """The staged bytes in their folder. `stage` makes it and tidies up after it."""

    def __init__(self, folder: int, file: int, hidden_name: str | None) -> None:
        self._folder = folder
        self._file = file
        self._hidden_name = hidden_name

    def append(self, data: bytes) -> None:
        _write_all(self._file, memoryview(data))

    def sync(self) -> None:
        """Return when the bytes are on the disk."""
        os.fsync(self._file)

    def open_sink(self, translate: Callable[[OSError], Exception]) -> StagedSink:
        """Return a file that appends to the staged bytes and raises what `translate` returns."""
        return StagedSink(self._file, translate)

    def link(self, name: str) -> None:
        """Give the file a name that is free. Exactly one of several callers gets it.

        Raises:
            FileExistsError: the name is taken.
            OSError: among others EPERM, where the file system has no hard links.
        """
        if self._hidden_name is None:
            # A file without a name is linked through the descriptor that holds it.
            source = f"{_OWN_DESCRIPTORS}/{self._file}"
            os.link(source, name, dst_dir_fd=self._folder, follow_symlinks=True)
        else:
            os.link(self._hidden_name, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)

    def replace(self, name: str) -> None:
        """Give the file the name, taking it from the file that had it."""
        if self._hidden_name is None:
            # Only a rename replaces, and a rename needs a name to start from.
            hidden_name = _new_hidden_name()
            self.link(hidden_name)
            self._hidden_name = hidden_name
        os.replace(self._hidden_name, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._hidden_name = None

    def discard(self) -> None:
        """Drop the hidden name, if one is left."""
        if self._hidden_name is not None:
            with suppress(FileNotFoundError):
                os.unlink(self._hidden_name, dir_fd=self._folder)


class StagedSink(io.FileIO):
    """An unbuffered file whose every write takes all of its data."""

    def __init__(self, file: int, translate: Callable[[OSError], Exception]) -> None:
        super().__init__(file, "wb", closefd=False)
        self._translate = translate

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        try:
            _write_all(self.fileno(), view)
        except OSError as error:
            raise self._translate(error) from error
        return len(view)


@contextmanager
def stage(folder: int, data: bytes, *, fsync: bool) -> Iterator[StagedFile]:
    """Write `data` where no reader sees it, in the folder that `folder` is a descriptor of."""
    with stage_empty(folder) as staged:
        staged.append(data)
        if fsync:
            staged.sync()
        yield staged


@contextmanager
def stage_empty(folder: int) -> Iterator[StagedFile]:
    """Create a file where no reader sees it, in the folder that `folder` is a descriptor of."""
    file, hidden_name = _create(folder)
    try:
        staged = StagedFile(folder, file, hidden_name)
        try:
            yield staged
        finally:
            staged.discard()
    finally:
        os.close(file)


def create_empty(folder: int, name: str) -> bool:
    """Create an empty file of that name, which needs no staging; False if the name is taken."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        os.close(os.open(name, flags, _FILE_MODE, dir_fd=folder))
    except FileExistsError:
        return False
    return True


def _create(folder: int) -> tuple[int, str | None]:
    # The flag is missing on other systems than Linux, and useless without /proc to link through.
    nameless = getattr(os, "O_TMPFILE", None)
    if nameless is not None and os.path.isdir(_OWN_DESCRIPTORS):
        try:
            return os.open(".", os.O_WRONLY | nameless, _FILE_MODE, dir_fd=folder), None
        except OSError as error:
            if error.errno not in _NO_NAMELESS_FILES:
                raise
    hidden_name = _new_hidden_name()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    return os.open(hidden_name, flags, _FILE_MODE, dir_fd=folder), hidden_name


def _new_hidden_name() -> str:
    return f"{HIDDEN_PREFIX}{uuid.uuid4().hex}"


def _write_all(file: int, data: memoryview) -> None:
    rest = data
    while rest:  # One write takes at most 2 GiB, and less on a file system that is filling up.
        rest = rest[os.write(file, rest) :]
