"""One task that finds a conflict stops all tasks of its write.

    .hoodie/.detection/<T>/conflict.json

The task leaves a note and ends. The others look for it now and then, wherever they run and whatever
engine runs them, and end too. So the resources of a write that has lost are free in a second or so,
and no engine has to know how to cancel a job.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TypeVar

from headwater.errors import EarlyConflictError, NotFoundError, StorageError
from headwater.format.own_json import decode_own, encode_own
from headwater.kernel.layout import detection_folder
from headwater.model.instant import InstantTime
from headwater.seams.clock import Clock
from headwater.seams.storage import Storage

log = logging.getLogger(__name__)

LOOK_EVERY_MS = 1_000

T = TypeVar("T")


def abort_signal_path(time: InstantTime) -> str:
    return f"{detection_folder(time)}/conflict.json"


def leave_abort_signal(storage: Storage, time: InstantTime, conflict: EarlyConflictError) -> None:
    """Tell all tasks of a write why it must stop."""
    note = {"message": conflict.message, "context": conflict.context}
    try:
        storage.put(abort_signal_path(time), encode_own(note))
    except StorageError as error:
        # The others go on for nothing; that the write fails is certain all the same.
        log.warning("stop note not left instant=%s error=%s", time, error)


class AbortSignal:
    """The note of one write, as one of its tasks sees it."""

    def __init__(self, storage: Storage, clock: Clock, time: InstantTime) -> None:
        self._storage = storage
        self._clock = clock
        self._time = time
        self._looked_ms: int | None = None

    def check(self) -> None:
        """Look for the note, if the last look was a while ago.

        Raises:
            EarlyConflictError: another task found a conflict.
            UnsupportedError: kind UNSUPPORTED_FILE_VERSION; a task of a newer release did.
        """
        now_ms = self._clock.monotonic_ms()
        if self._looked_ms is not None and now_ms < self._looked_ms + LOOK_EVERY_MS:
            return
        self._looked_ms = now_ms
        path = abort_signal_path(self._time)
        try:
            found = decode_own(self._storage.read(path), path=path)
        except NotFoundError:
            return
        except (StorageError, ValueError) as error:
            log.info("stop note not read instant=%s error=%s", self._time, error)
            return
        raise EarlyConflictError(found["message"], **found["context"])

    def watched(self, items: Iterable[T]) -> Iterator[T]:
        """Give the items, for as long as there is no note.

        Raises:
            EarlyConflictError: another task found a conflict.
        """
        for item in items:
            self.check()
            yield item
