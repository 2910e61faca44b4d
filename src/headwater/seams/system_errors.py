"""Errors of the system about files, in the words of the one exception tree."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.errors import ErrorKind, Retry, StorageError

BROKEN = "The disk or what leads to it fails; see the log of the system"
FULL = {
    errno.ENOSPC: "The disk is full; free some space and try again",
    errno.EDQUOT: "The disk quota is used up; free some space and try again",
    errno.EFBIG: "This process may not write files of that size; raise its limit and try again",
    errno.EMFILE: "This process has too many open files; raise its limit and try again",
    errno.ENFILE: "The system has too many open files; close some and try again",
}
_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_LASTING = {
    errno.ENOTDIR: "A file stands where a folder is needed; remove or rename it",
    errno.EISDIR: "A folder stands where the object would be; remove or rename it",
    errno.ENAMETOOLONG: "The file system cannot keep a name this long; choose a shorter one",
}


def system_error(doing: str, error: OSError) -> StorageError:
    """Return the error of a call that did nothing; `doing` says what could not be done."""
    what = f"{doing}: {error.strerror}"
    if error.errno in _DENIED:
        return StorageError(
            f"{what}. Give this process access to it, or use another location",
            kind=ErrorKind.STORAGE_DENIED,
            retry=Retry.NEVER,
        )
    if error.errno in _LASTING:
        return StorageError(f"{what}. {_LASTING[error.errno]}", retry=Retry.NEVER)
    if error.errno in FULL:
        return StorageError(f"{what}. {FULL[error.errno]}", kind=ErrorKind.STORAGE_FULL)
    if error.errno == errno.EIO:
        return StorageError(f"{what}. {BROKEN}", kind=ErrorKind.STORAGE_BROKEN)
    return StorageError(f"{what}. Try again")


@contextmanager
def naming_scratch(folder: str | None = None) -> Iterator[None]:
    """Turn errors of the files that rows wait in into errors of ours.

    Raises:
        StorageError: such a file cannot be written or read.
    """
    try:
        yield
    except OSError as error:
        raise scratch_error(error, folder) from error


def scratch_error(error: OSError, folder: str | None = None) -> StorageError:
    where = folder or "the folder for temporary files"
    return system_error(f"Cannot keep rows in {where}, which TMPDIR chooses", error)
