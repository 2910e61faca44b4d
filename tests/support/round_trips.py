"""Serial round trips to a store: how many answers must be waited for, one after the other.

A storage on the local disk behaves like one in an object store as far as that matters: what goes
out at once is waited for once, for every `WIDTH` requests. It is counted and not timed: one thread
makes the calls, and those of a wave begin at the same count.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple, TypeVar, cast

import pytest

from headwater.seams import open_storage
from headwater.seams.range_input import RangeInput
from headwater.seams.storage import ObjectInfo, Storage, StoredObject

T = TypeVar("T")
R = TypeVar("R")

WIDTH = 16
NAMES_PER_PAGE = 1000
LOCK = "table_lock.json"


class Request(NamedTuple):
    at: int
    """How many round trips came before it."""
    method: str
    path: str


@dataclass
class RoundTrips:
    """What was counted since the last `reset`."""

    serial: int = 0
    requests: list[Request] = field(default_factory=list)
    thread: int = field(default_factory=threading.get_ident)

    def reset(self) -> None:
        self.serial = 0
        self.requests.clear()

    def note(self, method: str, *paths: str, per_trip: int = 1) -> None:
        if threading.get_ident() != self.thread:
            return  # A heartbeat, which nobody waits for.
        self.requests += [Request(self.serial, method, path) for path in paths]
        self.serial += -(-len(paths) // per_trip)

    def wave(self, call: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Make calls as if `WIDTH` of them were under way at a time."""
        began = self.serial
        lanes = [began] * WIDTH
        found = []
        for item in items:
            self.serial = min(lanes)
            lane = lanes.index(self.serial)
            found.append(call(item))
            lanes[lane] = self.serial
        self.serial = max(lanes)
        return found

    @property
    def under_lock(self) -> int:
        """How many answers were waited for with the table lock held, at most at a time."""
        most, since = 0, None
        for request in self.requests:
            if not request.path.endswith(LOCK) or request.method.startswith("read"):
                continue
            if since is None:
                since = request.at + 1
            else:
                most, since = max(most, request.at - since), None
        return most

    def __str__(self) -> str:
        return "\n".join(f"{one.at:4d} {one.method:14s} {one.path}" for one in self.requests)


class RoundTripStorage:
    """Passes every call on and counts it."""

    page_size = NAMES_PER_PAGE
    is_distant = True

    def __init__(self, inner: Storage, trips: RoundTrips) -> None:
        self._inner = inner
        self._trips = trips

    @property
    def uri(self) -> str:
        return self._inner.uri

    @property
    def can_replace(self) -> bool:
        return self._inner.can_replace

    def read(self, path: str) -> bytes:
        self._trips.note("read", path)
        return self._inner.read(path)

    def read_versioned(self, path: str) -> StoredObject:
        self._trips.note("read_versioned", path)
        return self._inner.read_versioned(path)

    def read_range(self, path: str, start: int, length: int) -> bytes:
        self._trips.note("read_range", path)
        return self._inner.read_range(path, start, length)

    def read_many(self, paths: Iterable[str]) -> list[bytes | None]:
        wanted = [*paths]
        self._trips.note("read_many", *wanted, per_trip=WIDTH)
        return self._inner.read_many(wanted)

    def open_input(self, path: str, size_bytes: int | None = None) -> BinaryIO:
        if size_bytes is None:
            size_bytes = self.info(path).size_bytes
        source = RangeInput(lambda start, length: self.read_range(path, start, length), size_bytes)
        return cast("BinaryIO", source)

    def info(self, path: str) -> ObjectInfo:
        self._trips.note("info", path)
        return self._inner.info(path)

    def list_names(self, folder: str, after: str = "") -> list[str]:
        found = self._inner.list_names(folder, after)
        self._note_pages("list_names", folder, len(found))
        return found

    def list_tree(self, folder: str) -> list[ObjectInfo]:
        found = self._inner.list_tree(folder)
        self._note_pages("list_tree", folder, len(found))
        return found

    def put(self, path: str, data: bytes) -> None:
        self._trips.note("put", path)
        self._inner.put(path, data)

    def put_many(self, objects: Mapping[str, bytes]) -> None:
        self._trips.note("put_many", *objects, per_trip=WIDTH)
        self._inner.put_many(objects)

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._trips.note("put_if_absent", path)
        self._inner.put_if_absent(path, data)

    def open_output(self, path: str) -> AbstractContextManager[BinaryIO]:
        self._trips.note("open_output", path)
        return self._inner.open_output(path)

    def create_many(self, objects: Mapping[str, bytes]) -> None:
        self._trips.note("create_many", *objects, per_trip=WIDTH)
        self._inner.create_many(objects)

    def replace(self, path: str, data: bytes, *, version: str) -> str:
        self._trips.note("replace", path)
        return self._inner.replace(path, data, version=version)

    def delete(self, path: str) -> None:
        self._trips.note("delete", path)
        self._inner.delete(path)

    def delete_many(self, paths: Iterable[str]) -> None:
        unwanted = [*paths]
        self._trips.note("delete_many", *unwanted, per_trip=NAMES_PER_PAGE)
        self._inner.delete_many(unwanted)

    def at_once(self, call: Callable[[T], R], items: Sequence[T]) -> list[R]:
        return self._trips.wave(call, items)

    def _note_pages(self, method: str, folder: str, count: int) -> None:
        for _ in range(max(1, -(-count // NAMES_PER_PAGE))):
            self._trips.note(method, folder)


@contextmanager
def counted_round_trips() -> Iterator[RoundTrips]:
    """Count what tables on the local disk do, wherever in this process their storage is opened."""
    trips = RoundTrips()
    open_local = open_storage._open_local
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            open_storage,
            "_open_local",
            lambda path, settings: RoundTripStorage(open_local(path, settings), trips),
        )
        yield trips
