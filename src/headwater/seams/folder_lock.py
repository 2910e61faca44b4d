"""Locks on folders of the local disk, between threads and processes alike.

The lock is an flock on the folder itself, so it leaves no file in the table, dies with its holder,
and costs about a microsecond. Whoever changes one name holds it shared; whoever needs the folder
to stand still holds it alone. Only headwater takes it: other engines neither wait nor are waited
for.
"""

from __future__ import annotations

import errno
import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.errors import StorageError, UnsupportedError

# A hold lasts microseconds, or the two listings of a large folder; a longer one is a stopped
# process, and waiting on would hide it.
WAIT_S_MAX = 30.0
_PAUSE_S_MIN = 0.0001
_PAUSE_S_MAX = 0.005

_NO_FOLDER_LOCKS = frozenset(
    {errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
)


@contextmanager
def hold_folder(folder: int, path: str, *, alone: bool) -> Iterator[None]:
    """Hold the lock of the folder that `folder` is a descriptor of; `path` is for messages.

    Each hold needs a descriptor of its own: two holds through one do not exclude each other.

    Raises:
        StorageError: the lock was not free within `WAIT_S_MAX`. Nothing was changed.
        UnsupportedError: the file system cannot lock a folder.
    """
    mode = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
    deadline_s = time.monotonic() + WAIT_S_MAX
    pause_s = _PAUSE_S_MIN
    while not _try_lock(folder, path, mode):
        if time.monotonic() > deadline_s:
            raise StorageError(
                f"The folder {path} was locked for {WAIT_S_MAX:.0f} seconds by another headwater "
                "process. Look for one that is stopped, then try again"
            )
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _PAUSE_S_MAX)
    try:
        yield
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)


def _try_lock(folder: int, path: str, mode: int) -> bool:
    try:
        fcntl.flock(folder, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _NO_FOLDER_LOCKS:
            raise UnsupportedError(
                f"The file system of {path} cannot lock a folder ({error.strerror}). "
                "Keep the table on a disk of this machine or in an object store"
            ) from error
        raise
    return True
