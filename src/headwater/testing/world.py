"""The world all simulated processes share: storage, time and locks, as plain dicts.

`World.apply` is the only thing a process can do to it; the scheduler alone moves time, expires
locks and buries the dead. A world forks in constant time, which lets the depth-first search go
back to an earlier state without running anything again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

from headwater.errors import (
    AlreadyExistsError,
    ConflictError,
    ErrorKind,
    FencedError,
    NotFoundError,
    raise_internal,
)
from headwater.seams.lock import LockInfo
from headwater.seams.storage import ObjectInfo, StoredObject
from headwater.testing.operation import STORAGE_WRITES, Kind, Op
from headwater.testing.seams import SimStorage

START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z; any fixed moment would do.
DIGEST_MASK = (1 << 128) - 1
LAST_CHARACTER = "\U0010ffff"


class SimObject(NamedTuple):
    data: bytes
    generation: int
    modified_ms: int


class SimHold(NamedTuple):
    """A held lock. `expires_ms` is set once the holder is dead and nobody renews its lease."""

    holder: str
    token: int
    acquired_ms: int
    expires_ms: int | None = None


class Change(NamedTuple):
    """An object that a call created, changed or deleted."""

    path: str
    before: bytes | None
    after: bytes | None


class Page(NamedTuple):
    """One atomic page of a listing; `after` continues it, None ends it."""

    entries: tuple[Any, ...]
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldRules:
    """What does not change while a scenario runs.

    A session lock dies with its holder. A lease outlives it by `lease_ms`, and is renewed while
    the holder lives, so that it ends early only by the fault that ends it.

    A world that `counts` has fencing tokens and versions over everything that ever happened, as
    real ones do. That keeps apart states in which nobody can tell the difference, so scenarios
    whose processes look at neither leave it off: tokens then count per process, and versions start
    again after a deletion. Likewise only objects in `timed` folders show when they were modified.
    """

    page_size: int = 1000
    lock: Literal["session", "lease"] = "session"
    lease_ms: int = 60_000
    start_ms: int = START_MS
    counts: bool = True
    timed: tuple[str, ...] = ("",)
    make: Callable[[World], World] | None = None
    """Makes the world that a scenario runs in of the one that it set up."""


class World:
    """Everything outside the processes."""

    __slots__ = (
        "_is_shared",
        "digest",
        "generations",
        "locks",
        "memo",
        "now_ms",
        "objects",
        "offsets_ms",
        "paths",
        "rules",
        "tokens",
    )

    def __init__(self, rules: WorldRules) -> None:
        self.rules = rules
        self.objects: dict[str, SimObject] = {}
        self.paths: list[str] = []
        self.generations: dict[str, int] = {}
        self.digest = 0
        self.now_ms = rules.start_ms
        self.offsets_ms: dict[str, int] = {}
        self.locks: dict[str, SimHold] = {}
        self.tokens: dict[str, int] = {}
        # What a checker derived from the objects, and the digest it is valid for.
        self.memo: tuple[int, Any] = (-1, None)
        self._is_shared = False

    @property
    def author(self) -> str | None:
        """Who decided the last change, where that is written down; it may be a former self."""
        return None

    def fork(self) -> World:
        """Return a twin; the two share their dicts until either writes."""
        twin = type(self).__new__(type(self))
        twin.rules = self.rules
        twin.objects = self.objects
        twin.paths = self.paths
        twin.generations = self.generations
        twin.digest = self.digest
        twin.now_ms = self.now_ms
        twin.offsets_ms = self.offsets_ms
        twin.locks = self.locks
        twin.tokens = self.tokens
        twin.memo = self.memo
        twin._is_shared = self._is_shared = True
        return twin

    def key(self) -> tuple[object, ...]:
        """Return a value that two worlds share only if no process can tell them apart."""
        return (
            self.digest,
            self.now_ms,
            sorted(self.offsets_ms.items()),
            sorted(self.locks.items()),
            sorted(self.tokens.items()),
        )

    def apply(self, actor: str, op: Op) -> Any:
        """Perform one seam call of `actor` atomically and return its answer.

        Raises:
            HeadwaterError: as the seam's protocol says.
        """
        match op.kind:
            case Kind.READ:
                return self._object(op.target).data
            case Kind.READ_VERSIONED:
                found = self._object(op.target)
                return StoredObject(found.data, str(found.generation))
            case Kind.READ_RANGE:
                return self._object(op.target).data[op.number : op.number + op.length]
            case Kind.INFO:
                return self._info(op.target)
            case Kind.LIST_NAMES:
                return self._page_of_names(op.target, op.text, op.number)
            case Kind.LIST_TREE:
                return self._page_of_tree(op.target, op.text, op.number)
            case Kind.PUT:
                self._write(op.target, op.data)
            case Kind.PUT_IF_ABSENT:
                if op.target in self.objects:
                    raise AlreadyExistsError("The object exists already", path=op.target)
                self._write(op.target, op.data)
            case Kind.REPLACE:
                return self._replace(op)
            case Kind.DELETE:
                self._delete(op.target)
            case Kind.NOW:
                return self.now_ms + self.offsets_ms.get(actor, 0)
            case Kind.MONOTONIC:
                return self.now_ms
            case Kind.ACQUIRE:
                return self._acquire(actor, op.target)
            case Kind.CHECK:
                self._check(actor, op.target, op.number)
            case Kind.RELEASE:
                hold = self.locks.get(op.target)
                if hold is not None and (hold.holder, hold.token) == (actor, op.number):
                    self._drop_lock(op.target)
            case Kind.INSPECT:
                return self._inspect(op.target)
            case Kind.BREAK:
                return self._break_expired(op.target)
            case Kind.SLEEP | Kind.WAIT | Kind.JOIN:
                pass  # Only the moment it is allowed to run matters.
            case _:
                raise_internal("The simulated world does not know an operation", op=op.kind)
        return None

    def act(self, actor: str, op: Op) -> tuple[Any, list[Change]]:
        """Perform one seam call of a process; return its answer, and what it changed.

        Raises:
            HeadwaterError: as the seam's protocol says.
        """
        path = op.target if op.kind in STORAGE_WRITES else ""
        old = self.objects.get(path) if path else None
        answer = self.apply(actor, op)
        new = self.objects.get(path) if path else None
        if new is old:
            return answer, []
        change = Change(path, None if old is None else old.data, None if new is None else new.data)
        return answer, [change]

    def undo(self, change: Change) -> None:
        """Take back what a call changed last."""
        if change.before is None:
            self._delete(change.path)
        else:
            self._write(change.path, change.before)

    # What the scheduler does, never a process.

    def advance_to(self, now_ms: int) -> None:
        self.now_ms = max(self.now_ms, now_ms)

    def step_clock(self, actor: str, delta_ms: int) -> None:
        offset_ms = self.offsets_ms.get(actor, 0) + delta_ms
        self.offsets_ms = {**self.offsets_ms, actor: offset_ms}

    def expire_lock(self, key: str) -> None:
        """End the lease of a live holder: anyone may take the lock now."""
        self.locks = {**self.locks, key: self.locks[key]._replace(expires_ms=self.now_ms)}

    def bury(self, actor: str) -> None:
        """Let go of what a process that ended held: sessions at once, leases when they run out."""
        if not self.rules.counts:
            self.tokens = {name: count for name, count in self.tokens.items() if name != actor}
        for key, hold in self.locks.items():
            if hold.holder != actor or hold.expires_ms is not None:
                continue
            if self.rules.lock == "session":
                self._drop_lock(key)
            else:
                ends = hold._replace(expires_ms=self.now_ms + self.rules.lease_ms)
                self.locks = {**self.locks, key: ends}

    def is_free(self, key: str) -> bool:
        hold = self.locks.get(key)
        return hold is None or self._is_expired(hold)

    def lock_deadlines_ms(self) -> list[int]:
        """Return the moments at which leases of the dead run out."""
        ends = (hold.expires_ms for hold in self.locks.values())
        return [end for end in ends if end is not None and end > self.now_ms]

    # Storage.

    def _object(self, path: str) -> SimObject:
        found = self.objects.get(path)
        if found is None:
            raise NotFoundError("There is no such object", path=path)
        return found

    def _info(self, path: str) -> ObjectInfo:
        found = self._object(path)
        return ObjectInfo(path, len(found.data), found.modified_ms)

    def _own_dicts(self) -> None:
        if self._is_shared:
            self.objects = dict(self.objects)
            self.paths = list(self.paths)
            self.generations = dict(self.generations)
            self._is_shared = False

    def _write(self, path: str, data: bytes) -> int:
        self._own_dicts()
        old = self.objects.get(path)
        generation = self.generations.get(path, 0) + 1
        modified_ms = self.now_ms if path.startswith(self.rules.timed) else self.rules.start_ms
        new = SimObject(data, generation, modified_ms)
        self.objects[path] = new
        self.generations[path] = generation
        if old is None:
            insort(self.paths, path)
        else:
            self.digest -= _object_digest(path, old)
        self.digest = (self.digest + _object_digest(path, new)) & DIGEST_MASK
        return generation

    def _delete(self, path: str) -> None:
        if path not in self.objects:
            return
        self._own_dicts()
        old = self.objects.pop(path)
        del self.paths[bisect_left(self.paths, path)]
        change = -_object_digest(path, old)
        if self.rules.counts:
            # The generation outlives the object, so a version never comes back with other bytes.
            change += _object_digest(path, SimObject(b"", -old.generation, 0))
        else:
            del self.generations[path]
        self.digest = (self.digest + change) & DIGEST_MASK

    def _replace(self, op: Op) -> str:
        found = self.objects.get(op.target)
        if found is None or str(found.generation) != op.text:
            raise ConflictError("The object changed or vanished", path=op.target, version=op.text)
        return str(self._write(op.target, op.data))

    def _page_of_tree(self, folder: str, after: str, size: int) -> Page:
        prefix = f"{folder}/" if folder else ""
        start = bisect_right(self.paths, after) if after else bisect_left(self.paths, prefix)
        end = bisect_left(self.paths, prefix + LAST_CHARACTER) if prefix else len(self.paths)
        stop = min(end, start + size)
        entries = tuple(self._info(path) for path in self.paths[start:stop])
        return Page(entries, self.paths[stop - 1] if stop < end else None)

    def _page_of_names(self, folder: str, after: str, size: int) -> Page:
        prefix = f"{folder}/" if folder else ""
        cut = len(prefix)
        paths = self.paths
        at = bisect_right(paths, after) if after else bisect_left(paths, prefix)
        names: list[str] = []
        while at < len(paths) and paths[at].startswith(prefix):
            name, slash, _ = paths[at][cut:].partition("/")
            if slash:
                at = bisect_left(paths, f"{prefix}{name}/{LAST_CHARACTER}", at)
                continue
            if len(names) == size:
                return Page(tuple(names), prefix + names[-1])
            names.append(name)
            at += 1
        return Page(tuple(names), None)

    # Locks.

    def _is_expired(self, hold: SimHold) -> bool:
        return hold.expires_ms is not None and hold.expires_ms <= self.now_ms

    def _drop_lock(self, key: str) -> None:
        self.locks = {other: hold for other, hold in self.locks.items() if other != key}

    def _acquire(self, actor: str, key: str) -> int:
        hold = self.locks.get(key)
        if hold is not None and not self._is_expired(hold):
            raise ConflictError(
                f"The lock {key!r} is held by {hold.holder}; it was not free in time",
                kind=ErrorKind.LOCK_TIMEOUT,
                owner=hold.holder,
            )
        counted = key if self.rules.counts else actor
        token = self.tokens.get(counted, 0) + 1
        self.tokens = {**self.tokens, counted: token}
        self.locks = {**self.locks, key: SimHold(actor, token, self.now_ms)}
        return token

    def _check(self, actor: str, key: str, token: int) -> None:
        hold = self.locks.get(key)
        is_mine = hold is not None and (hold.holder, hold.token) == (actor, token)
        if hold is None or not is_mine or self._is_expired(hold):
            raise FencedError(
                f"The lock {key!r} was lost; stop and write nothing more",
                kind=ErrorKind.LOCK_LOST,
                token=token,
            )

    def _inspect(self, key: str) -> LockInfo | None:
        hold = self.locks.get(key)
        if hold is None:
            return None
        return LockInfo(
            key=key,
            provider="simulated",
            owner=hold.holder,
            token=hold.token,
            acquired_ms=hold.acquired_ms,
            expires_ms=hold.expires_ms,
            is_expired=self._is_expired(hold),
        )

    def _break_expired(self, key: str) -> LockInfo | None:
        found = self._inspect(key)
        if found is not None and not found.is_expired:
            raise ConflictError(
                f"The lock {key!r} is held by {found.owner} and has not expired",
                owner=found.owner,
            )
        if found is not None:
            self._drop_lock(key)
        return found


def _object_digest(path: str, found: SimObject) -> int:
    digest = blake2b(f"{path}\0{found.generation}\0{found.modified_ms}\0".encode(), digest_size=16)
    digest.update(found.data)
    return int.from_bytes(digest.digest())


def standalone_storage(*, page_size: int = 1000) -> SimStorage:
    """Return a simulated storage outside any scenario: every call takes effect at once."""
    world = World(WorldRules(page_size=page_size))
    return SimStorage(lambda op: world.apply("standalone", op), page_size=page_size)
