"""Storage in the memory of this process, for unit tests and for trying things out.

It promises no more than a real store does. In particular the version of an object is a hash of its
bytes, as on the local disk and in S3, so that no test comes to rely on a counter.
"""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from io import BytesIO
from typing import BinaryIO, TypeVar

from headwater.errors import AlreadyExistsError, ConflictError, NotFoundError
from headwater.seams.clock import Clock, SystemClock
from headwater.seams.storage import ObjectInfo, StoredObject, create_each
from headwater.seams.storage_arguments import check_folder, check_path, check_range
from headwater.testing.buffered_output import buffered_output

T = TypeVar("T")
R = TypeVar("R")


class MemoryStorage:
    """Objects in a dict that threads share. Every instance is a store of its own."""

    def __init__(self, uri: str = "memory://", clock: Clock | None = None) -> None:
        self._uri = uri
        self._clock = clock or SystemClock()
        self._objects: dict[str, tuple[bytes, int]] = {}  # Bytes and modification time, by path.
        self._lock = threading.Lock()

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def page_size(self) -> int:
        return sys.maxsize

    @property
    def can_replace(self) -> bool:
        return True

    @property
    def is_distant(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"MemoryStorage({self._uri!r})"

    def read(self, path: str) -> bytes:
        data = self._read_or_none(path)
        if data is None:
            raise self._absent(path)
        return data

    def read_versioned(self, path: str) -> StoredObject:
        data = self.read(path)
        return StoredObject(data, _version_of(data))

    def read_range(self, path: str, start: int, length: int) -> bytes:
        check_range(path, start, length)
        return self.read(path)[start : start + length]

    def read_many(self, paths: Iterable[str]) -> list[bytes | None]:
        return [self._read_or_none(path) for path in paths]

    def open_input(self, path: str, size_bytes: int | None = None) -> BinaryIO:
        return BytesIO(self.read(path))

    def info(self, path: str) -> ObjectInfo:
        check_path(path)
        with self._lock:
            found = self._objects.get(path)
        if found is None:
            raise self._absent(path)
        data, modified_ms = found
        return ObjectInfo(path, len(data), modified_ms)

    def list_names(self, folder: str, after: str = "") -> list[str]:
        below = (path[len(_prefix(folder)) :] for path in self._paths_below(folder))
        return [name for name in below if "/" not in name and name > after]

    def list_tree(self, folder: str) -> list[ObjectInfo]:
        prefix = _prefix(folder)
        with self._lock:
            return sorted(
                ObjectInfo(path, len(data), modified_ms)
                for path, (data, modified_ms) in self._objects.items()
                if path.startswith(prefix)
            )

    def put(self, path: str, data: bytes) -> None:
        check_path(path)
        with self._lock:
            self._store(path, data)

    def put_many(self, objects: Mapping[str, bytes]) -> None:
        for path, data in objects.items():
            self.put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> None:
        check_path(path)
        with self._lock:
            if path in self._objects:
                raise AlreadyExistsError(f"{self._uri}/{path} exists already; it was left as it is")
            self._store(path, data)

    def open_output(self, path: str) -> AbstractContextManager[BinaryIO]:
        check_path(path)
        return buffered_output(lambda data: self.put_if_absent(path, data))

    def create_many(self, objects: Mapping[str, bytes]) -> None:
        create_each(self, objects)

    def replace(self, path: str, data: bytes, *, version: str) -> str:
        check_path(path)
        with self._lock:
            found = self._objects.get(path)
            if found is None or _version_of(found[0]) != version:
                raise ConflictError(
                    f"{self._uri}/{path} {'changed' if found else 'vanished'} since it was read. "
                    "Read it again and decide anew"
                )
            self._store(path, data)
        return _version_of(data)

    def delete(self, path: str) -> None:
        check_path(path)
        with self._lock:
            self._objects.pop(path, None)

    def delete_many(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.delete(path)

    def at_once(self, call: Callable[[T], R], items: Sequence[T]) -> list[R]:
        return [call(item) for item in items]

    def _store(self, path: str, data: bytes) -> None:
        # A copy, so that a caller who reuses a buffer does not change what is stored.
        self._objects[path] = (bytes(data), self._clock.now_ms())

    def _read_or_none(self, path: str) -> bytes | None:
        check_path(path)
        with self._lock:
            found = self._objects.get(path)
        return found[0] if found else None

    def _paths_below(self, folder: str) -> list[str]:
        prefix = _prefix(folder)
        with self._lock:
            return [path for path in self._objects if path.startswith(prefix)]

    def _absent(self, path: str) -> NotFoundError:
        return NotFoundError(f"There is no object {self._uri}/{path}")


def _prefix(folder: str) -> str:
    check_folder(folder)
    return f"{folder}/" if folder else ""


def _version_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
