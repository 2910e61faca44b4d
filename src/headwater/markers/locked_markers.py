"""Looking for a conflict and creating the marker as one, under a lock for the file group.

Without it two writers may look at the same moment, each before the other's marker is there, and
find out only at the commit. The lock is not needed for anything else: a writer that loses it, or
waits too long for it, goes on without (H-68).
"""

from __future__ import annotations

import logging

from headwater.errors import ConflictError, CorruptTableError, FencedError, StorageError
from headwater.kernel.txn.markers import Marker, Markers
from headwater.seams.lock import HeldLock, LockProvider

log = logging.getLogger(__name__)

WAIT_MS_MAX = 10_000
"""Holders need milliseconds. A dead one may leave a lock without expiry, which must not stop a task
for each of its file groups as long as a table lock would."""


class LockedMarkers:
    """Markers that are created one writer at a time, each file group by itself."""

    def __init__(self, markers: Markers, locks: LockProvider, *, wait_ms: int) -> None:
        self._markers = markers
        self._locks = locks
        self._wait_ms = min(wait_ms, WAIT_MS_MAX)

    def create(self, marker: Marker) -> None:
        held = self._acquire(str(marker.group))
        try:
            self._markers.create(marker)
        finally:
            if held is not None:
                _release(held)

    def _acquire(self, key: str) -> HeldLock | None:
        try:
            return self._locks.acquire(key, timeout_ms=self._wait_ms)
        except (ConflictError, StorageError, CorruptTableError) as error:
            log.warning("file group not locked, conflicts may show late error=%s", error)
            return None


def _release(held: HeldLock) -> None:
    try:
        held.release()
    except (FencedError, ConflictError, StorageError, CorruptTableError) as error:
        log.warning("lock of a file group not released, its lease ends it error=%s", error)
