"""The store's own clock: what time it is, and how old objects are, with no other one compared."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from headwater.errors import NotFoundError, StorageError
from headwater.kernel.layout import CLOCK
from headwater.seams.storage import Storage

log = logging.getLogger(__name__)

_WHOLE_SECOND_MS = 1_000
"""Stores tell whole seconds: an object may be that much younger than its time says."""


class StoreTimes(NamedTuple):
    """What time it is for a store, and when objects were written; None for those it has not."""

    now_ms: int
    written_ms: list[int | None]

    def age_ms(self, written_ms: int) -> int:
        """Return for how long at least an object has been as it is."""
        return max(0, self.now_ms - written_ms - _WHOLE_SECOND_MS)


def load_store_times(storage: Storage, paths: Sequence[str] = ()) -> StoreTimes:
    """Ask a store for its times.

    An object that is written meanwhile is taken for younger than it was, never for older.

    Raises:
        StorageError, NotFoundError: the store does not say.
    """

    def written_ms(path: str) -> int | None:
        try:
            return storage.info(path).modified_ms
        except NotFoundError:
            return None

    storage.put(CLOCK, b"")
    now_ms, *written = storage.at_once(written_ms, [CLOCK, *paths])
    if now_ms is None:
        raise NotFoundError("Another process deleted it while it was asked for", path=CLOCK)
    storage.delete(CLOCK)  # Whoever only looks leaves the table as it was.
    return StoreTimes(now_ms, written)


def age_by_store_ms(storage: Storage, path: str) -> int | None:
    """Return for how long at least an object has been as it is; None if the store does not say."""
    try:
        times = load_store_times(storage, [path])
    except (StorageError, NotFoundError) as error:
        log.warning("the store does not say how old an object is path=%s error=%s", path, error)
        return None
    (written_ms,) = times.written_ms
    return None if written_ms is None else times.age_ms(written_ms)
