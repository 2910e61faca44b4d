"""Storage that reads some objects together, and once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from io import BytesIO
from typing import BinaryIO, TypeVar

from headwater.seams.cached import cached_property
from headwater.seams.kept_objects import KeptObjects
from headwater.seams.storage import ObjectInfo, Storage, StoredObject

T = TypeVar("T")
R = TypeVar("R")


class PrefetchedStorage:
    """A storage that fetches some objects when the first of them is read, and keeps their bytes.

    For small objects that several readers want, one by one: it takes the time of one request. They
    must be such as are never overwritten, as data files are; nothing is noticed of what becomes of
    them later.
    """

    def __init__(
        self, storage: Storage, paths: Iterable[str], kept: KeptObjects | None = None
    ) -> None:
        """`kept` may have some of them, and keeps the others."""
        self._storage = storage
        self._paths = frozenset(paths)
        self._kept = kept

    @cached_property
    def _fetched(self) -> dict[str, bytes | None]:
        kept = KeptObjects() if self._kept is None else self._kept
        at_hand = kept.find(self._paths)
        paths = sorted(self._paths - at_hand.keys())
        found = dict(zip(paths, self._storage.read_many(paths), strict=True)) if paths else {}
        kept.keep({path: data for path, data in found.items() if data is not None})
        return {**at_hand, **found}

    def _at_hand(self, path: str) -> bytes | None:
        """Return what was fetched; None for everything else, and for what is absent."""
        return self._fetched[path] if path in self._paths else None

    @property
    def uri(self) -> str:
        return self._storage.uri

    @property
    def page_size(self) -> int:
        return self._storage.page_size

    @property
    def can_replace(self) -> bool:
        return self._storage.can_replace

    @property
    def is_distant(self) -> bool:
        return self._storage.is_distant

    def read(self, path: str) -> bytes:
        data = self._at_hand(path)
        return self._storage.read(path) if data is None else data

    def read_versioned(self, path: str) -> StoredObject:
        return self._storage.read_versioned(path)

    def read_range(self, path: str, start: int, length: int) -> bytes:
        return self._storage.read_range(path, start, length)

    def read_many(self, paths: Iterable[str]) -> list[bytes | None]:
        wanted = list(paths)
        if self._paths.isdisjoint(wanted):
            return self._storage.read_many(wanted)
        others = [path for path in wanted if path not in self._paths]
        found = self._fetched | dict(zip(others, self._storage.read_many(others), strict=True))
        return [found[path] for path in wanted]

    def open_input(self, path: str, size_bytes: int | None = None) -> BinaryIO:
        data = self._at_hand(path)
        return self._storage.open_input(path, size_bytes) if data is None else BytesIO(data)

    def info(self, path: str) -> ObjectInfo:
        return self._storage.info(path)

    def list_names(self, folder: str, after: str = "") -> list[str]:
        return self._storage.list_names(folder, after)

    def list_tree(self, folder: str) -> list[ObjectInfo]:
        return self._storage.list_tree(folder)

    def put(self, path: str, data: bytes) -> None:
        self._storage.put(path, data)

    def put_many(self, objects: Mapping[str, bytes]) -> None:
        self._storage.put_many(objects)

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._storage.put_if_absent(path, data)

    def open_output(self, path: str) -> AbstractContextManager[BinaryIO]:
        return self._storage.open_output(path)

    def create_many(self, objects: Mapping[str, bytes]) -> None:
        self._storage.create_many(objects)

    def replace(self, path: str, data: bytes, *, version: str) -> str:
        return self._storage.replace(path, data, version=version)

    def delete(self, path: str) -> None:
        self._storage.delete(path)

    def delete_many(self, paths: Iterable[str]) -> None:
        self._storage.delete_many(paths)

    def at_once(self, call: Callable[[T], R], items: Sequence[T]) -> list[R]:
        return self._storage.at_once(call, items)
