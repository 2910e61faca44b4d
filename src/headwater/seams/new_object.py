"""A new object in an object store: one request for a small one, parts for a large one.

Up to `SINGLE_BYTES_MAX` bytes are gathered and created by one conditional request. What is longer
goes out in parts while it is written, under a name of its own in `UPLOADS`, a bounded number of
bytes at a time; in the end the store copies it to its name, if that is free, and the first name is
dropped. Stores complete an upload in parts without looking who has the name, the copy does look.
A process that dies in between leaves an object in `UPLOADS`, which the next sweep removes.

After an error nobody knows whether the object is there. It is read back:

    size and hash are ours  -> it landed: success
    something else          -> the name is taken: `AlreadyExistsError`
    nothing                 -> it has not landed yet: the same request again

Repeating is safe: it carries the same bytes, and creates only what is absent. Of two writers that
put the same bytes under one name both may succeed after an error; data files do not, their names
hold who writes them.
"""

from __future__ import annotations

import hashlib
import io
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, Protocol, cast

from headwater.errors import AlreadyExistsError, HeadwaterError, NotFoundError, Retry, StorageError
from headwater.seams.store_errors import IS_REPEATED

UPLOADS = ".hoodie/.uploads"
"""Where objects are that are sent in parts, until they have their name."""

PART_BYTES = 16 * 1024 * 1024
"""What one request carries at most, of the parts that are read and written."""

PARTS_AT_ONCE = 4
SINGLE_BYTES_MAX = 2 * PART_BYTES

_TRIES_MAX = 5
_PAUSE_S = 0.05  # Doubled after every try.


class Target(Protocol):
    """One name of a store, as a new object reaches it. Errors are those of the storage seam."""

    def create(self, data: bytes) -> None:
        """Create the object in one request; raise `AlreadyExistsError` if the name is taken."""
        ...

    def stage(self) -> Callable[[bytes], None]:
        """Begin to send parts under a name of their own; return what takes the next bytes."""
        ...

    def complete(self, size_bytes: int) -> None:
        """See to it that all parts are one object of that size under their own name."""
        ...

    def publish(self) -> None:
        """Copy that object to its name; raise `AlreadyExistsError` if the name is taken."""
        ...

    def unstage(self) -> None:
        """Drop the name that the parts were sent to."""
        ...

    @property
    def where(self) -> str:
        """The object's address, for errors."""
        ...

    def size_bytes(self) -> int: ...

    def read_range(self, start: int, length: int) -> bytes: ...


@contextmanager
def new_object(target: Target) -> Iterator[BinaryIO]:
    """Give a file to write to; its bytes are the object when the block ends without exception."""
    sink = _Output(target)
    try:
        yield cast("BinaryIO", sink)
        sink.finish()
    finally:
        sink.drop_staged()


class _Output(io.RawIOBase):
    """Gathers bytes, and sends them in parts once they are many."""

    def __init__(self, target: Target) -> None:
        super().__init__()
        self._target = target
        self._gathered = io.BytesIO()
        self._send: Callable[[bytes], None] | None = None
        self._hash = hashlib.sha256()
        self._size_bytes = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size_bytes

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        self._size_bytes += len(view)
        if self._send is None:
            self._gathered.write(view)
            if self._size_bytes > SINGLE_BYTES_MAX:
                self._send = self._target.stage()
                gathered, self._gathered = self._gathered, io.BytesIO()
                self._pass_on(gathered.getbuffer())
        else:
            self._pass_on(view)
        return len(view)

    def _pass_on(self, view: memoryview) -> None:
        send = cast("Callable[[bytes], None]", self._send)
        for start in range(0, len(view), PART_BYTES):
            part = bytes(view[start : start + PART_BYTES])
            self._hash.update(part)
            send(part)

    def finish(self) -> None:
        if self._send is None:
            data = self._gathered.getvalue()
            self._hash.update(data)
            self._create(lambda: self._target.create(data))
        else:
            self._target.complete(self._size_bytes)
            self._create(self._target.publish)

    def drop_staged(self) -> None:
        if self._send is not None:
            self._send = None
            with suppress(HeadwaterError):  # The next sweep drops it.
                self._target.unstage()

    def _create(self, request: Callable[[], None]) -> None:
        error: HeadwaterError | None = None
        for tried in range(_TRIES_MAX):
            if tried:
                time.sleep(_PAUSE_S * 2 ** (tried - 1))
            try:
                request()
                return
            except AlreadyExistsError as taken:
                # Without a request that went unanswered before, it cannot be this one's.
                if error is None and not taken.context.get(IS_REPEATED):
                    raise
                error = taken
            except StorageError as failed:
                if failed.retry is Retry.NEVER and error is None:
                    raise
                error = failed
            try:
                is_ours = self._is_ours()
            except NotFoundError:
                continue
            except StorageError as failed:
                error = failed
                continue
            if is_ours:
                return
            raise AlreadyExistsError(
                f"{self._target.where} exists already with other bytes; it was left as it is"
            ) from error
        raise error or AssertionError()

    def _is_ours(self) -> bool:
        if self._target.size_bytes() != self._size_bytes:
            return False
        found = hashlib.sha256()
        for start in range(0, self._size_bytes, PART_BYTES):
            found.update(self._target.read_range(start, PART_BYTES))
        return found.digest() == self._hash.digest()
