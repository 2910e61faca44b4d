"""Creating an object exactly once when replies can get lost (M4).

A storage error does not say whether the write landed. So it is read back:

    my bytes are there     -> it landed: success
    other bytes are there  -> somebody else has the name: conflict
    nothing is there       -> it has not landed *yet*: the very same write is tried again; or it
                              has not landed at all, if the error says that it has ended

The retry carries the same bytes under the same name, so a first write that lands late changes
nothing. Whoever runs out of tries gets `CommitUnknownError` and must delete nothing.

Two writers never put the same bytes under one name: contents carry the attempt's token, or the
name contains an instant time that the writer claimed with its attempt.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from headwater.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    ConflictError,
    NotFoundError,
    Retry,
    StorageError,
)
from headwater.seams.clock import Clock
from headwater.seams.metrics import STORAGE_RETRIES
from headwater.seams.storage import Storage
from headwater.seams.storage_metrics import store_of

_TRIES_MAX = 5
_PAUSE_MS = 50  # Doubled after every try: 50, 100, 200, 400 ms.


def put_once(
    storage: Storage,
    clock: Clock,
    path: str,
    data: bytes,
    *,
    put: Callable[[str, bytes], None] | None = None,
    read_back: Callable[[], bytes | None] | None = None,
) -> None:
    """Create `path` with `data`, surviving lost replies and late landings.

    Args:
        put, read_back: create and read the path, for a caller that wants more in the same moment;
            by default the storage does.

    Raises:
        ConflictError: the name holds something else.
        CommitUnknownError: storage did not say in time whether the write landed.
        StorageError: the store refuses for good, and nothing was written.
    """
    error: StorageError | None = None
    for tried in range(_TRIES_MAX):
        if tried:
            _meter_retry(storage)
            clock.sleep_ms(_PAUSE_MS << (tried - 1))
        try:
            (put or storage.put_if_absent)(path, data)
            return
        except AlreadyExistsError:
            # It may be our own earlier write, or one that the store's client retried by itself.
            pass
        except StorageError as failed:
            if failed.retry is Retry.NEVER and error is None:
                raise
            error = _unsettled(error, failed)
        try:
            found = _read_back(partial(storage.read, path) if read_back is None else read_back)
        except StorageError as failed:
            error = error or failed
            if error.is_final and failed.is_final:
                break
            continue
        if found == data:
            return
        if found is not None:
            raise name_taken(storage, path) from error
        if error is not None and error.is_final:
            raise error
    raise _unknown(path) from error


def name_taken(storage: Storage, path: str) -> ConflictError:
    """Return why a path cannot be created."""
    return ConflictError(
        "Another writer took this name first; reload the timeline and try again",
        table=storage.uri,
        path=path,
    )


def put_if_missing(storage: Storage, clock: Clock, path: str, data: bytes) -> bool:
    """See to it that there is an object under `path`, whoever made it.

    Returns whether it is known that this call did.

    Raises:
        CommitUnknownError: storage did not say in time whether the write landed.
        StorageError: the store refuses for good, and nothing was written.
    """
    error: StorageError | None = None
    for tried in range(_TRIES_MAX):
        if error is not None and not error.is_final:
            _meter_retry(storage)
            clock.sleep_ms(_PAUSE_MS << (tried - 1))
        try:
            storage.put_if_absent(path, data)
            return True
        except AlreadyExistsError:
            return False
        except StorageError as failed:
            if failed.ends_after(error):
                raise
            error = _unsettled(error, failed)
    raise _unknown(path) from error


def put_surely(storage: Storage, clock: Clock, path: str, data: bytes) -> None:
    """Create or overwrite `path`; doing so twice is no harm.

    Raises:
        StorageError: storage failed too often; it may have landed.
    """
    for tried in range(_TRIES_MAX):
        if tried:
            _meter_retry(storage)
            clock.sleep_ms(_PAUSE_MS << (tried - 1))
        try:
            storage.put(path, data)
            return
        except StorageError as failed:
            if failed.is_final or tried + 1 == _TRIES_MAX:
                raise


def _meter_retry(storage: Storage) -> None:
    STORAGE_RETRIES.add(1, store_of(storage.uri), "write", "unsettled")


def _unsettled(error: StorageError | None, failed: StorageError) -> StorageError:
    """Return the failure to remember: one whose write may yet land, if there is one."""
    return failed if error is None or error.is_final else error


def _unknown(path: str) -> CommitUnknownError:
    return CommitUnknownError(
        "Storage failed and it is not known whether this write landed. Do not "
        "clean up: load the timeline again once storage answers, it will tell",
        path=path,
    )


def _read_back(read: Callable[[], bytes | None]) -> bytes | None:
    try:
        return read()
    except NotFoundError:
        return None
