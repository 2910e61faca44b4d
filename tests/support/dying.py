"""A process that dies in the middle: its storage stops, and nothing it does later reaches it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headwater.kernel.journal.journal import Journal
from headwater.kernel.journal.storage import JournaledStorage
from headwater.seams.ids import SystemIds
from headwater.seams.storage import Storage, create_each

_WRITES = ("put", "put_if_absent", "open_output", "replace", "delete")


class Killed(BaseException):
    """The process is dead; no code of it runs on."""


class DyingStorage:
    """Storage of a process that dies after so many writes; nothing it does later reaches it."""

    def __init__(self, storage: Storage, writes_left: int) -> None:
        self._storage = storage
        self._writes_left = writes_left

    def put_many(self, objects: Mapping[str, bytes]) -> None:
        for path, data in objects.items():
            self.put(path, data)

    def create_many(self, objects: Mapping[str, bytes]) -> None:
        create_each(self, objects)

    def delete_many(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.delete(path)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._storage, name)
        if not callable(call):
            return call

        def checked(*arguments: Any, **named: Any) -> Any:
            if name in _WRITES:
                self._writes_left -= 1
            if self._writes_left < 0:
                raise Killed
            return call(*arguments, **named)

        return checked


def dying_storage(storage: Storage, writes_left: int) -> Any:
    """Return a table's storage for a process that dies after so many writes to the store itself."""
    if not isinstance(storage, JournaledStorage):
        return DyingStorage(storage, writes_left)
    stored: Any = DyingStorage(storage.stored, writes_left)
    journal = storage.journal
    return JournaledStorage(Journal(stored, journal.clock, SystemIds(), journal.known.areas))
