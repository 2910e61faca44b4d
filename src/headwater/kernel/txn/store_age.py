"""How old an object is, by the store's own clock alone, so that no two clocks are compared."""

from __future__ import annotations

import logging

from headwater.errors import NotFoundError, StorageError
from headwater.kernel.layout import CLOCK
from headwater.seams.storage import Storage

log = logging.getLogger(__name__)


def age_by_store_ms(storage: Storage, path: str) -> int | None:
    """Return for how long at least an object has been as it is; None if the store does not say.

    One that is written meanwhile is taken for younger than it was, never for older.
    """
    try:
        storage.put(CLOCK, b"")
        now, written = storage.at_once(storage.info, [CLOCK, path])
        storage.delete(CLOCK)  # Whoever only looks leaves the table as it was.
    except (StorageError, NotFoundError) as error:
        log.warning("the store does not say how old an object is path=%s error=%s", path, error)
        return None
    # Stores tell whole seconds.
    return max(0, now.modified_ms - written.modified_ms - 1_000)
