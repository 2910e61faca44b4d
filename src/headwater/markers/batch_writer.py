"""Many markers in few writes.

A marker that arrives while all writers are busy goes into the next batch, together with all others
that arrive meanwhile; a batch is written as soon as a writer is idle. So a lone marker waits for
nothing, and the batches grow with the load. Nothing waits for an interval to pass, as stock Hudi's
batches do, because a write already under way is wait enough.

Batches go round robin over a number of files, each rewritten whole: with more files, less is
rewritten. One file has one write under way at a time.

Everything here runs on one event loop but the writes themselves, which threads of the loop do. So
plain statements need no lock.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from enum import Enum, auto, unique

from headwater.errors import ErrorKind, StorageError
from headwater.kernel.txn.markers import Marker
from headwater.markers.batches import BatchFile, first_free_number, put_marker_type
from headwater.markers.bloom_markers import NewFilter, no_filter
from headwater.model.instant import InstantTime
from headwater.seams.storage import Storage

log = logging.getLogger(__name__)

QUEUE_MAX = 10_000
"""Markers that may wait for a writer; a megabyte or so."""

# More writers make smaller batches, and so more writes. Tried with 1, 2 and 4 on a local disk only.
_WRITERS_MAX = 4

# A failed write uses its file up. A store that failed this often will not take the next one.
_FAILURES_MAX = 100


@unique
class Added(Enum):
    DURABLE = auto()
    BUSY = auto()  # Too many markers wait; nothing was added. Try again later.
    SEALED = auto()  # No marker is added any more.


class _Batch:
    """Markers that are written together; `end` holds the error they met, or None."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.markers: list[Marker] = []
        self.end: asyncio.Future[Exception | None] = loop.create_future()


class BatchWriter:
    """The markers of one instant, on their way to storage."""

    def __init__(
        self,
        storage: Storage,
        time: InstantTime,
        *,
        file_count: int,
        queue_max: int = QUEUE_MAX,
        new_filter: NewFilter = no_filter,
    ) -> None:
        """Find out what the instant's folder holds already, and name the kind of its markers.

        Raises:
            StorageError: storage failed.
        """
        put_marker_type(storage, time)
        self._storage = storage
        self._time = time
        self._queue_max = queue_max
        self._new_filter = new_filter
        self._next_number = first_free_number(storage, time)
        self._idle = deque(self._new_file() for _ in range(file_count))
        self._waiting: _Batch | None = None
        self._batch_of: dict[Marker, _Batch] = {}
        self._writing: set[asyncio.Task[None]] = set()
        self._failure_count = 0
        self._is_sealed = False

    def markers(self) -> list[Marker]:
        """Return the markers that are durable, ordered by path."""
        return sorted(marker for marker, batch in self._batch_of.items() if batch.end.done())

    async def add(self, markers: Sequence[Marker]) -> Added:
        """Return once all markers are durable; those that already are cost nothing.

        Raises:
            StorageError: some of the markers may not be durable.
        """
        if self._is_sealed:
            return Added.SEALED
        if self._failure_count >= _FAILURES_MAX:
            raise self._failed(f"storage failed {self._failure_count} times")
        new = [marker for marker in markers if marker not in self._batch_of]
        # A queue without room for a single request would never be short enough.
        if self._waiting and len(self._waiting.markers) + len(new) > self._queue_max:
            return Added.BUSY
        for marker in new:
            self._enqueue(marker)
        ends = {self._batch_of[marker].end for marker in markers}
        self._write_batches()
        if ends:
            await asyncio.wait(ends)
        for end in ends:
            if (error := end.result()) is not None:
                raise self._failed(str(error)) from error
        return Added.DURABLE

    async def seal(self) -> None:
        """Add no marker any more, and return once those on their way have arrived, or failed."""
        self._is_sealed = True
        while self._writing:
            await asyncio.wait(self._writing)

    def _enqueue(self, marker: Marker) -> None:
        if marker in self._batch_of:  # Twice in one request.
            return
        if self._waiting is None:
            self._waiting = _Batch(asyncio.get_running_loop())
        self._waiting.markers.append(marker)
        self._batch_of[marker] = self._waiting

    def _write_batches(self) -> None:
        if self._waiting is None or not self._idle or len(self._writing) >= _WRITERS_MAX:
            return
        batch, self._waiting = self._waiting, None
        task = asyncio.create_task(self._write(batch, self._idle.popleft()))
        self._writing.add(task)
        task.add_done_callback(self._go_on)

    def _go_on(self, task: asyncio.Task[None]) -> None:
        self._writing.discard(task)
        self._write_batches()

    async def _write(self, batch: _Batch, file: BatchFile) -> None:
        error: Exception | None = None
        try:
            await asyncio.to_thread(file.add, batch.markers)
        except Exception as failure:
            log.exception("markers not stored instant=%s path=%s", self._time, file.path)
            error = failure
            self._failure_count += 1
            file = self._new_file()
            for marker in batch.markers:
                del self._batch_of[marker]
        self._idle.append(file)
        batch.end.set_result(error)

    def _new_file(self) -> BatchFile:
        number = self._next_number
        self._next_number += 1
        return BatchFile(self._storage, self._time, number, self._new_filter)

    def _failed(self, reason: str) -> StorageError:
        return StorageError(
            f"Markers of instant {self._time} could not be stored: {reason}",
            kind=ErrorKind.MARKER_SERVICE,
        )
