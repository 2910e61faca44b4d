"""The four seams of a simulated process: every call becomes an `Op` handed to a `Call`.

Inside a scenario the `Call` hands the baton to the scheduler and returns the answer it chose.
Outside, it may apply the operation to a world directly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from hashlib import blake2b
from io import BytesIO
from typing import Any, BinaryIO, TypeVar
from uuid import UUID

from headwater.errors import NotFoundError
from headwater.seams.clock import Timer
from headwater.seams.given_up import GivenUp
from headwater.seams.ids import Owner
from headwater.seams.lock import TABLE, LockInfo
from headwater.seams.storage import ObjectInfo, StoredObject, create_each
from headwater.testing.buffered_output import buffered_output
from headwater.testing.operation import Kind, Op

T = TypeVar("T")
R = TypeVar("R")

Call = Callable[[Op], Any]
StartTimer = Callable[[int, Callable[[], bool], str], Timer]


@dataclass(frozen=True, slots=True)
class SimStorage:
    """Storage whose listings are atomic per page only (F10)."""

    call: Call
    page_size: int = 1000
    uri: str = "sim://table"
    can_replace: bool = True
    is_distant: bool = False

    def read(self, path: str) -> bytes:
        data: bytes = self.call(Op(Kind.READ, path))
        return data

    def read_versioned(self, path: str) -> StoredObject:
        found: StoredObject = self.call(Op(Kind.READ_VERSIONED, path))
        return found

    def read_range(self, path: str, start: int, length: int) -> bytes:
        data: bytes = self.call(Op(Kind.READ_RANGE, path, number=start, length=length))
        return data

    def read_many(self, paths: Iterable[str]) -> list[bytes | None]:
        # One call per object: several reads at once are not one moment.
        return [self._read_or_none(path) for path in paths]

    def _read_or_none(self, path: str) -> bytes | None:
        try:
            return self.read(path)
        except NotFoundError:
            return None

    def open_input(self, path: str, size_bytes: int | None = None) -> BinaryIO:
        return BytesIO(self.read(path))

    def info(self, path: str) -> ObjectInfo:
        found: ObjectInfo = self.call(Op(Kind.INFO, path))
        return found

    def list_names(self, folder: str, after: str = "") -> list[str]:
        return self._list(
            Kind.LIST_NAMES, folder, after and (f"{folder}/{after}" if folder else after)
        )

    def list_tree(self, folder: str) -> list[ObjectInfo]:
        return self._list(Kind.LIST_TREE, folder, "")

    def _list(self, kind: Kind, folder: str, after: str | None) -> list[Any]:
        entries: list[Any] = []
        while after is not None:
            page, after = self.call(Op(kind, folder, text=after, number=self.page_size))
            entries.extend(page)
        return entries

    def put(self, path: str, data: bytes) -> None:
        self.call(Op(Kind.PUT, path, data))

    def put_many(self, objects: Mapping[str, bytes]) -> None:
        # One call per object: a process may die between any two.
        for path, data in objects.items():
            self.put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> None:
        self.call(Op(Kind.PUT_IF_ABSENT, path, data))

    def open_output(self, path: str) -> AbstractContextManager[BinaryIO]:
        return buffered_output(lambda data: self.put_if_absent(path, data))

    def create_many(self, objects: Mapping[str, bytes]) -> None:
        create_each(self, objects)

    def replace(self, path: str, data: bytes, *, version: str) -> str:
        new_version: str = self.call(Op(Kind.REPLACE, path, data, text=version))
        return new_version

    def delete(self, path: str) -> None:
        self.call(Op(Kind.DELETE, path))

    def delete_many(self, paths: Iterable[str]) -> None:
        # One call per object: a process may die between any two.
        for path in paths:
            self.delete(path)

    def at_once(self, call: Callable[[T], R], items: Sequence[T]) -> list[R]:
        # The last one first: a disk goes the other way, and a store any way (N-90).
        return [call(item) for item in reversed(items)][::-1]


@dataclass(frozen=True, slots=True)
class SimClock:
    """World time plus the offset of one process. Only the scheduler moves it."""

    call: Call
    start_timer: StartTimer

    def now_ms(self) -> int:
        now_ms: int = self.call(Op(Kind.NOW))
        return now_ms

    def monotonic_ms(self) -> int:
        now_ms: int = self.call(Op(Kind.MONOTONIC))
        return now_ms

    def sleep_ms(self, duration_ms: int) -> None:
        self.call(Op(Kind.SLEEP, number=duration_ms))

    def every_ms(self, interval_ms: int, call: Callable[[], bool], name: str) -> Timer:
        return self.start_timer(interval_ms, call, name)


class SimIds:
    """Ids that depend only on the name of the process and on how many it took before."""

    def __init__(self, name: str, incarnation: int) -> None:
        # A restarted process runs on the same host, but shares no id with its former self.
        self._owner = Owner(name, incarnation, f"{name}-{incarnation}")
        self._count = 0
        self.given_up = GivenUp()

    @property
    def owner(self) -> Owner:
        return self._owner

    def new_uuid(self) -> str:
        return str(UUID(bytes=self._next_digest(), version=4))

    def jitter(self, bound: int) -> int:
        return int.from_bytes(self._next_digest()) % bound

    def is_gone(self, owner: Owner) -> bool:
        """Simulated processes run on hosts of their own, so none can tell."""
        return False

    def _next_digest(self) -> bytes:
        self._count += 1
        return blake2b(f"{self._owner}/{self._count}".encode(), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class SimHeldLock:
    call: Call
    key: str
    token: int

    def check(self) -> None:
        self.call(Op(Kind.CHECK, self.key, number=self.token))

    def release(self) -> None:
        self.call(Op(Kind.RELEASE, self.key, number=self.token))


@dataclass(frozen=True, slots=True)
class SimLock:
    """The lock provider of one simulated process."""

    call: Call
    name: str = "simulated"

    def acquire(self, key: str = TABLE, *, timeout_ms: int) -> SimHeldLock:
        token: int = self.call(Op(Kind.ACQUIRE, key, number=timeout_ms))
        return SimHeldLock(self.call, key, token)

    def inspect(self, key: str = TABLE) -> LockInfo | None:
        found: LockInfo | None = self.call(Op(Kind.INSPECT, key))
        return found

    def break_expired(self, key: str = TABLE) -> LockInfo | None:
        broken: LockInfo | None = self.call(Op(Kind.BREAK, key))
        return broken

    def close(self) -> None:
        """Do nothing: it keeps nothing open."""
