"""A storage that counts, so that a test can say how many calls an operation may make."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import BinaryIO, TypeVar

import pytest

from headwater import opening
from headwater.seams.open_storage import open_storage
from headwater.seams.storage import ObjectInfo, Storage, StoredObject
from headwater.table import Table, open_table

T = TypeVar("T")
R = TypeVar("R")


class CountingStorage:
    """Passes every call on and counts it under the name of its method, failed calls included.

    `read_many`, `put_many` and `delete_many` count once for each path, as if each was a request.
    `open_input` and `open_output` count once, whatever is then read or written through the file.
    With `keep_trace`, `trace` holds (method, path) of every call in the order in which they began.
    """

    def __init__(self, inner: Storage, *, keep_trace: bool = False) -> None:
        self._inner = inner
        self._keep_trace = keep_trace
        self._calls: Counter[str] = Counter()
        self._trace: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    @property
    def counts(self) -> dict[str, int]:
        """The number of calls by method; methods that were not called are missing."""
        with self._lock:
            return dict(self._calls)

    @property
    def trace(self) -> list[tuple[str, str]]:
        with self._lock:
            return list(self._trace)

    def count(self, *methods: str) -> int:
        """Return the number of calls to the named methods, or to all of them if none is named."""
        with self._lock:
            return sum(self._calls[method] for method in methods or tuple(self._calls))

    def reset(self) -> None:
        """Start again from zero, with an empty trace."""
        with self._lock:
            self._calls.clear()
            self._trace.clear()

    @property
    def uri(self) -> str:
        return self._inner.uri

    @property
    def page_size(self) -> int:
        return self._inner.page_size

    @property
    def can_replace(self) -> bool:
        return self._inner.can_replace

    @property
    def is_distant(self) -> bool:
        return self._inner.is_distant

    def read(self, path: str) -> bytes:
        self._note("read", path)
        return self._inner.read(path)

    def read_versioned(self, path: str) -> StoredObject:
        self._note("read_versioned", path)
        return self._inner.read_versioned(path)

    def read_range(self, path: str, start: int, length: int) -> bytes:
        self._note("read_range", path)
        return self._inner.read_range(path, start, length)

    def read_many(self, paths: Iterable[str]) -> list[bytes | None]:
        wanted = list(paths)
        self._note("read_many", *wanted)
        return self._inner.read_many(wanted)

    def open_input(self, path: str, size_bytes: int | None = None) -> BinaryIO:
        self._note("open_input", path)
        return self._inner.open_input(path, size_bytes)

    def info(self, path: str) -> ObjectInfo:
        self._note("info", path)
        return self._inner.info(path)

    def list_names(self, folder: str, after: str = "") -> list[str]:
        self._note("list_names", folder)
        return self._inner.list_names(folder, after)

    def list_tree(self, folder: str) -> list[ObjectInfo]:
        self._note("list_tree", folder)
        return self._inner.list_tree(folder)

    def put(self, path: str, data: bytes) -> None:
        self._note("put", path)
        self._inner.put(path, data)

    def put_many(self, objects: Mapping[str, bytes]) -> None:
        self._note("put_many", *objects)
        self._inner.put_many(objects)

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._note("put_if_absent", path)
        self._inner.put_if_absent(path, data)

    def open_output(self, path: str) -> AbstractContextManager[BinaryIO]:
        self._note("open_output", path)
        return self._inner.open_output(path)

    def create_many(self, objects: Mapping[str, bytes]) -> None:
        self._note("create_many", *objects)
        self._inner.create_many(objects)

    def replace(self, path: str, data: bytes, *, version: str) -> str:
        self._note("replace", path)
        return self._inner.replace(path, data, version=version)

    def delete(self, path: str) -> None:
        self._note("delete", path)
        self._inner.delete(path)

    def delete_many(self, paths: Iterable[str]) -> None:
        unwanted = list(paths)
        self._note("delete_many", *unwanted)
        self._inner.delete_many(unwanted)

    def at_once(self, call: Callable[[T], R], items: Sequence[T]) -> list[R]:
        return self._inner.at_once(call, items)

    def _note(self, method: str, *paths: str) -> None:
        with self._lock:
            self._calls[method] += len(paths)
            if self._keep_trace:
                self._trace += [(method, path) for path in paths]


C = TypeVar("C", bound=CountingStorage)


def open_counting(
    kind: type[C], uri: str, options: Mapping[str, str] | None = None
) -> tuple[Table, C]:
    """Open a table whose calls of storage are counted, those below its journal, from the first."""
    storage = kind(open_storage(uri, options or {}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "open_storage", lambda *_: storage)
        return open_table(uri, options), storage
