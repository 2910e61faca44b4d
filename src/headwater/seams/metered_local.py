"""Storage on a local disk whose requests are counted.

A class of its own, which is opened only if somebody listens: to ask at every call whether somebody
does would cost those who read thousands of small files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import BinaryIO

from headwater.seams.local import LocalStorage
from headwater.seams.storage import ObjectInfo
from headwater.seams.storage_metrics import storage_request

_STORE = "file"


class MeteredLocalStorage(LocalStorage):
    """Counts what the methods of the seam do; what they make of each other counts as well."""

    def read(self, path: str) -> bytes:
        with storage_request(_STORE, "read"):
            return super().read(path)

    def read_range(self, path: str, start: int, length: int) -> bytes:
        with storage_request(_STORE, "read"):
            return super().read_range(path, start, length)

    def open_input(self, path: str, size_bytes: int | None = None) -> BinaryIO:
        with storage_request(_STORE, "read"):
            return super().open_input(path, size_bytes)

    def info(self, path: str) -> ObjectInfo:
        with storage_request(_STORE, "look up"):
            return super().info(path)

    def list_names(self, folder: str, after: str = "") -> list[str]:
        with storage_request(_STORE, "list"):
            return super().list_names(folder, after)

    def list_tree(self, folder: str) -> list[ObjectInfo]:
        with storage_request(_STORE, "list"):
            return super().list_tree(folder)

    def put(self, path: str, data: bytes) -> None:
        with storage_request(_STORE, "write"):
            super().put(path, data)

    def put_many(self, objects: Mapping[str, bytes]) -> None:
        with storage_request(_STORE, "write", len(objects)):
            super().put_many(objects)

    def put_if_absent(self, path: str, data: bytes) -> None:
        with storage_request(_STORE, "write"):
            super().put_if_absent(path, data)

    @contextmanager
    def open_output(self, path: str) -> Iterator[BinaryIO]:
        with storage_request(_STORE, "write"), super().open_output(path) as sink:
            yield sink

    def create_many(self, objects: Mapping[str, bytes]) -> None:
        with storage_request(_STORE, "write", len(objects)):
            super().create_many(objects)

    def replace(self, path: str, data: bytes, *, version: str) -> str:
        with storage_request(_STORE, "replace"):
            return super().replace(path, data, version=version)

    def delete(self, path: str) -> None:
        with storage_request(_STORE, "delete"):
            super().delete(path)
