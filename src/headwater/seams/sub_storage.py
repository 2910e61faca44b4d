"""A folder of a storage, as a storage of its own: a table that lies inside another table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import BinaryIO, TypeVar

from headwater.seams.storage import ObjectInfo, Storage, StoredObject
from headwater.seams.storage_arguments import check_path

T = TypeVar("T")
R = TypeVar("R")


class SubStorage:
    """The objects below one folder of `storage`, under paths relative to that folder.

    It has the guarantees of the storage that it is a part of. Errors name whole paths.
    """

    def __init__(self, storage: Storage, folder: str) -> None:
        check_path(folder)
        self._storage = storage
        self._folder = folder

    @property
    def whole(self) -> Storage:
        """The storage that this is a folder of."""
        return self._storage

    @property
    def folder(self) -> str:
        return self._folder

    @property
    def uri(self) -> str:
        return f"{self._storage.uri.rstrip('/')}/{self._folder}"

    @property
    def page_size(self) -> int:
        return self._storage.page_size

    @property
    def can_replace(self) -> bool:
        return self._storage.can_replace

    @property
    def is_distant(self) -> bool:
        return self._storage.is_distant

    def __repr__(self) -> str:
        return f"SubStorage({self._storage!r}, {self._folder!r})"

    def read(self, path: str) -> bytes:
        return self._storage.read(self._whole(path))

    def read_versioned(self, path: str) -> StoredObject:
        return self._storage.read_versioned(self._whole(path))

    def read_range(self, path: str, start: int, length: int) -> bytes:
        return self._storage.read_range(self._whole(path), start, length)

    def read_many(self, paths: Iterable[str]) -> list[bytes | None]:
        return self._storage.read_many([self._whole(path) for path in paths])

    def open_input(self, path: str, size_bytes: int | None = None) -> BinaryIO:
        return self._storage.open_input(self._whole(path), size_bytes)

    def info(self, path: str) -> ObjectInfo:
        return self._relative(self._storage.info(self._whole(path)))

    def list_names(self, folder: str, after: str = "") -> list[str]:
        return self._storage.list_names(self._whole_folder(folder), after)

    def list_tree(self, folder: str) -> list[ObjectInfo]:
        return [
            self._relative(info) for info in self._storage.list_tree(self._whole_folder(folder))
        ]

    def put(self, path: str, data: bytes) -> None:
        self._storage.put(self._whole(path), data)

    def put_many(self, objects: Mapping[str, bytes]) -> None:
        self._storage.put_many({self._whole(path): data for path, data in objects.items()})

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._storage.put_if_absent(self._whole(path), data)

    def open_output(self, path: str) -> AbstractContextManager[BinaryIO]:
        return self._storage.open_output(self._whole(path))

    def create_many(self, objects: Mapping[str, bytes]) -> None:
        self._storage.create_many({self._whole(path): data for path, data in objects.items()})

    def replace(self, path: str, data: bytes, *, version: str) -> str:
        return self._storage.replace(self._whole(path), data, version=version)

    def delete(self, path: str) -> None:
        self._storage.delete(self._whole(path))

    def delete_many(self, paths: Iterable[str]) -> None:
        self._storage.delete_many([self._whole(path) for path in paths])

    def at_once(self, call: Callable[[T], R], items: Sequence[T]) -> list[R]:
        return self._storage.at_once(call, items)

    def _whole(self, path: str) -> str:
        return f"{self._folder}/{path}"

    def _whole_folder(self, folder: str) -> str:
        return self._whole(folder) if folder else self._folder

    def _relative(self, info: ObjectInfo) -> ObjectInfo:
        return info._replace(path=info.path[len(self._folder) + 1 :])
