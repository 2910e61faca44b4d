"""The mutex seam: exclusion among the threads of one process, for a few plain statements.

Never call another seam while holding a mutex. The simulator switches processes at seam calls, and
a process that sleeps with the mutex in its hand would stop all the others.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

T = TypeVar("T")


class PerThread(threading.local, Generic[T]):
    """A value that each thread sets for itself; None for all others."""

    value: T | None = None


def new_mutex() -> AbstractContextManager[bool]:
    """A mutex for `with` blocks; not reentrant."""
    return threading.Lock()
