"""Hudi's `StorageBasedLockProvider`: the lock is an object that is replaced conditionally.

    .hoodie/.locks/table_lock.json     the table lock, where stock Hudi writers look too
    .hoodie/.locks/<key>.json          any other key

The object holds `expired`, `validUntil` and `owner`, which Hudi requires, and fields of ours, which
it ignores: `holder`, `token`, `acquiredMs`, `write` and `validityMs`. It is never deleted; each
step writes it on the condition that it is still the version last seen, so none can undo another's:

1. Take: if it is absent, released (`expired`), or its lease is over for certain, write it as one's
   own.
2. Renew: write a later `validUntil`, by the store's clock where that is asked. If somebody else
   wrote it, the lock is lost.
3. Release: write `expired` = true.

After an unknown outcome the object is read back: `owner` names the acquisition and `write` which of
its writes is in place (M4). A write that lands late does nothing once the object has changed; if it
takes a lock whose caller has given up, that lock stands until its `validUntil`.

`validUntil` is compared with wall clocks because stock Hudi compares it so. A clock that runs ahead
would end a lease whose holder still acts (N-91). So on a distant store that is not enough: the
store must say, by its own clock alone, that the object is older than the lease is long. A clock
that is behind keeps nobody waiting for longer than a lease: one that was seen unchanged for as long
as it is long is over as well. A take-over from a holder that still acts is what A1 excludes, and
what `check` finds out. The token is the previous one plus one. An engine that has no tokens drops
ours; the next token is then drawn from its `validUntil`, which is larger than any number of
acquisitions could have counted to.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any

from headwater.errors import (
    AlreadyExistsError,
    ConflictError,
    CorruptTableError,
    ErrorKind,
    InvalidInputError,
    NotFoundError,
    StorageError,
    raise_internal,
)
from headwater.format.own_json import decode_own, encode_own, unknown_fields
from headwater.kernel.txn.locks.lease import CLOCK_DRIFT_MS, Lease, OnLost, SentWrites
from headwater.kernel.txn.locks.names import quote_lock_key
from headwater.kernel.txn.locks.unchanged import Unchanged
from headwater.kernel.txn.locks.waiting import live_lock_error, pace_of, wait_for_lock
from headwater.kernel.txn.store_age import age_by_store_ms
from headwater.seams.clock import Clock
from headwater.seams.ids import Ids
from headwater.seams.lock import TABLE, LockInfo
from headwater.seams.storage import Storage, StoredObject

log = logging.getLogger(__name__)

FOLDER = ".hoodie/.locks"
# Hudi's own limits: a lease that a few slow requests can outlast is worse than none.
VALIDITY_MS_MIN = 10_000
RENEWALS_PER_VALIDITY_MIN = 10
WRITE_ATTEMPT_COUNT_MAX = 3

# Far below any lease, and above what a transaction takes on a store that answers soon.
_ASKED_AGAIN_AFTER_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageLock:
    """The content of a lock object."""

    expired: bool
    valid_until_ms: int
    owner: str
    holder: str | None = None
    token: int | None = None
    acquired_ms: int | None = None
    write: int | None = None
    validity_ms: int | None = None
    """How long the lease is, from when the holder sent it."""
    unknown: str = ""
    """What a newer release says besides, as text."""

    def encode(self) -> bytes:
        content: dict[str, Any] = {
            "expired": self.expired,
            "validUntil": self.valid_until_ms,
            "owner": self.owner,
            "holder": self.holder,
            "token": self.token,
            "acquiredMs": self.acquired_ms,
            "write": self.write,
            "validityMs": self.validity_ms,
        }
        return encode_own({k: v for k, v in content.items() if v is not None}, self.unknown)


_FIELDS = ("expired", "validUntil", "owner", "holder", "token", "acquiredMs", "write", "validityMs")


def parse_storage_lock(data: bytes, path: str) -> StorageLock:
    """Return the content of a lock object.

    Raises:
        CorruptTableError: it lacks what Hudi requires.
        UnsupportedError: kind UNSUPPORTED_FILE_VERSION; a newer release wrote it.
    """
    try:
        content = decode_own(data, path=path)
        return StorageLock(
            expired=bool(content["expired"]),
            valid_until_ms=int(content["validUntil"]),
            owner=str(content["owner"]),
            holder=content.get("holder"),
            token=_optional_int(content, "token"),
            acquired_ms=_optional_int(content, "acquiredMs"),
            write=_optional_int(content, "write"),
            validity_ms=_optional_int(content, "validityMs"),
            unknown=unknown_fields(content, _FIELDS),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptTableError(
            f"The lock object {path} is unreadable. Stop every writer of the table, delete it, and "
            "start again.",
            path=path,
        ) from error


def _optional_int(content: dict[str, Any], name: str) -> int | None:
    value = content.get(name)
    return None if value is None else int(value)


def next_token(previous: StorageLock | None) -> int:
    if previous is None:
        return 1
    return (previous.valid_until_ms if previous.token is None else previous.token) + 1


class StorageBasedLockProvider:
    """Locks as objects, for stores with conditional writes."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        ids: Ids,
        *,
        validity_ms: int = 300_000,
        renew_ms: int = 30_000,
        on_lost: OnLost | None = None,
        asks_store: bool = False,
    ) -> None:
        """Keep locks in the table, with leases of `validity_ms`.

        With `asks_store` the store's clock says when they end, beside those of the writers.

        Raises:
            InvalidInputError: the store has no conditional overwrite, or the intervals do not fit.
        """
        if not storage.can_replace:
            raise InvalidInputError(
                f"The storage-based lock needs conditional overwrites, which {storage.uri} does "
                "not have. Set hoodie.write.lock.provider to filesystem or zookeeper.",
                kind=ErrorKind.INVALID_OPTION,
            )
        is_too_short = validity_ms < max(VALIDITY_MS_MIN, RENEWALS_PER_VALIDITY_MIN * renew_ms)
        if renew_ms <= 0 or is_too_short:
            raise InvalidInputError(
                "hoodie.write.lock.storage.validity.timeout.secs must be at least "
                f"{VALIDITY_MS_MIN // 1000} s and {RENEWALS_PER_VALIDITY_MIN} times "
                "hoodie.write.lock.storage.renew.interval.secs, which must be above 0; got "
                f"{validity_ms} ms and {renew_ms} ms",
                kind=ErrorKind.INVALID_OPTION,
            )
        self.storage = storage
        self.clock = clock
        self.ids = ids
        self.validity_ms = validity_ms
        self.renew_ms = renew_ms
        self.on_lost = on_lost
        self.asks_store = asks_store
        self.store_ahead_ms = 0
        """How far the store's clock is ahead of this process's, as far as that was seen."""
        self._unchanged = Unchanged(clock)
        self._released: dict[str, tuple[StorageLock, str]] = {}

    @property
    def name(self) -> str:
        return "storage"

    def path_of(self, key: str) -> str:
        return f"{FOLDER}/{'table_lock' if key == TABLE else quote_lock_key(key)}.json"

    def place_of(self, key: str) -> str:
        return f"{self.storage.uri}/{self.path_of(key)}"

    def acquire(self, key: str = TABLE, *, timeout_ms: int) -> Lease:
        """Take the lock, waiting at most `timeout_ms`.

        Raises:
            ConflictError: kind LOCK_TIMEOUT, naming the holder.
            StorageError: the store did not answer.
            CorruptTableError: the lock object is unreadable.
        """
        return wait_for_lock(
            _Attempt(self, key),
            key=key,
            home=self.place_of(key),
            remedy="an expired lock is taken over, or released with `headwater lock break`",
            timeout_ms=timeout_ms,
            clock=self.clock,
            ids=self.ids,
            pace=pace_of(self.storage),
        )

    def inspect(self, key: str = TABLE) -> LockInfo | None:
        """Who holds the lock, or None when it is free."""
        found = self.load(key)
        if found is None:
            return None
        lock = parse_storage_lock(found.data, self.path_of(key))
        return None if lock.expired else self._describe(key, lock)

    def break_expired(self, key: str = TABLE) -> LockInfo | None:
        """Release an expired lock and return what it was; None when it is free.

        Raises:
            ConflictError: the lock is held and not expired.
            StorageError: whether it is released is not known; the call may be repeated.
        """
        found = self.load(key)
        if found is None:
            return None
        path = self.path_of(key)
        lock = parse_storage_lock(found.data, path)
        if lock.expired:
            return None
        info = self._describe(key, lock)
        if not self.is_over(key, lock, found.data):
            raise live_lock_error(info, key=key, home=self.place_of(key))
        try:
            self.storage.replace(path, replace(lock, expired=True).encode(), version=found.version)
        except ConflictError as error:
            holder = self.inspect(key)
            if holder is not None:
                raise live_lock_error(holder, key=key, home=self.place_of(key)) from error
        return info

    def close(self) -> None:
        """Do nothing: it keeps nothing open."""

    def load(self, key: str) -> StoredObject | None:
        try:
            return self.storage.read_versioned(self.path_of(key))
        except NotFoundError:
            return None

    def remember_released(self, key: str, lock: StorageLock, version: str) -> None:
        """Keep what this process left of a lock, so that it can take it again without a look."""
        self._released[key] = (lock, version)

    def forget_released(self, key: str) -> tuple[StorageLock, str] | None:
        return self._released.pop(key, None)

    def is_over(self, key: str, lock: StorageLock, data: bytes) -> bool:
        """Whether the lock, found as `data`, may be taken: released, or its lease is over.

        This process knows also which locks it has given up when storage did not take its word.

        Raises:
            StorageError: the store did not answer.
        """
        if lock.expired or lock.owner in self.ids.given_up:
            return True
        seen_ms = self._unchanged.seen_ms(self.path_of(key), data)
        if lock.validity_ms is not None and seen_ms >= lock.validity_ms + CLOCK_DRIFT_MS:
            return True
        if not self._is_past(lock):
            return False
        if not self.asks_store:
            return True
        age_ms = age_by_store_ms(self.storage, self.path_of(key))
        # An engine that does not say how long its leases are is given as long as ours.
        return age_ms is not None and age_ms >= (lock.validity_ms or self.validity_ms)

    def _is_past(self, lock: StorageLock) -> bool:
        return self.clock.now_ms() > lock.valid_until_ms + CLOCK_DRIFT_MS

    def _describe(self, key: str, lock: StorageLock) -> LockInfo:
        return LockInfo(
            key=key,
            provider=self.name,
            owner=lock.holder or f"another engine (owner {lock.owner})",
            token=lock.token,
            acquired_ms=lock.acquired_ms,
            expires_ms=lock.valid_until_ms,
            is_expired=lock.expired or self._is_past(lock),
        )


class _Attempt:
    """Taking one lock: implements `LockAttempt`."""

    def __init__(self, provider: StorageBasedLockProvider, key: str) -> None:
        self._provider = provider
        self._key = key
        self._home = self._new_home()

    def take(self) -> Lease | None:
        return self._take_released() or self._take_found()

    def _take_released(self) -> Lease | None:
        """Take the lock as this process left it, if nobody had it since."""
        released = self._provider.forget_released(self._key)
        if released is None:
            return None
        lock = self._home.write_first(token=next_token(released[0]), version=released[1])
        if lock is None or lock.expired or not self._home.owns(lock):
            return None
        return self._finish(lock)

    def _take_found(self) -> Lease | None:
        found = self._provider.load(self._key)
        lock = self._home.parse(found)
        if lock is not None and lock.expired and self._home.owns(lock):
            # Somebody broke what an earlier try took; that acquisition is over.
            self._home = self._new_home()
        if found is None or lock is None:
            lock = self._home.write_first(token=next_token(None), version=None)
        elif not self._home.owns(lock) and self._provider.is_over(self._key, lock, found.data):
            lock = self._home.write_first(token=next_token(lock), version=found.version)
        if lock is None or lock.expired or not self._home.owns(lock):
            return None
        return self._finish(lock)

    def holder(self) -> LockInfo | None:
        return self._provider.inspect(self._key)

    def abandon(self) -> None:
        self._home.give_up()

    def _new_home(self) -> _ObjectHome:
        return _ObjectHome(self._provider, self._key, self._provider.ids.new_uuid())

    def _finish(self, lock: StorageLock) -> Lease | None:
        provider, home = self._provider, self._home
        sent_ms = home.sent_ms(lock)
        if lock.token is None:
            raise_internal("a lock was written without its token", path=provider.path_of(self._key))
        if provider.clock.monotonic_ms() >= sent_ms + provider.validity_ms:
            # The reply came after the lease ran out: the lock is nobody's, and must expire like
            # any other before someone takes it, this caller included.
            self._home = self._new_home()
            return None
        return Lease(
            home,
            provider.clock,
            key=self._key,
            place=provider.place_of(self._key),
            token=lock.token,
            lease_ms=provider.validity_ms,
            renew_ms=provider.renew_ms,
            sent_ms=sent_ms,
            on_lost=provider.on_lost,
        )


class _ObjectHome:
    """The lock object as one acquisition sees it: implements `LeaseHome`."""

    def __init__(self, provider: StorageBasedLockProvider, key: str, owner: str) -> None:
        self.owner = owner
        self._provider = provider
        self._storage = provider.storage
        self._clock = provider.clock
        self._key = key
        self._path = provider.path_of(key)
        self._writes = SentWrites(provider.clock)
        self._written: tuple[StorageLock, str] | None = None
        """What this acquisition wrote last, and its version if the store told."""
        self._seen_mine_ms: tuple[int, int] | None = None
        """When the store last said that the lock is this one's, by both clocks."""
        self._sent_wall_ms = 0

    def parse(self, found: StoredObject | None) -> StorageLock | None:
        return None if found is None else parse_storage_lock(found.data, self._path)

    def owns(self, lock: StorageLock) -> bool:
        return lock.owner == self.owner

    def sent_ms(self, lock: StorageLock) -> int:
        """When the write of this acquisition with this content was sent."""
        return self._writes.sent_ms(lock.write or 1)

    def write_first(self, *, token: int, version: str | None) -> StorageLock | None:
        """Write the lock as this acquisition's; return what is there afterwards.

        Raises:
            StorageError: nothing of this acquisition is there, though it may land yet.
        """
        now_ms = self._clock.now_ms()
        lock = StorageLock(
            expired=False,
            valid_until_ms=now_ms + self._provider.store_ahead_ms + self._provider.validity_ms,
            owner=self.owner,
            holder=str(self._provider.ids.owner),
            token=token,
            acquired_ms=now_ms,
            write=self._writes.next_number(),
            validity_ms=self._provider.validity_ms,
        )
        try:
            self._put(lock, version)
        except (AlreadyExistsError, ConflictError):
            return self.parse(self._provider.load(self._key))
        except StorageError:
            found = self.parse(self._provider.load(self._key))
            if found is None or not self.owns(found):
                raise
            return found
        return lock

    def is_mine(self) -> bool:
        """Whether the lock is this acquisition's.

        A distant store is not asked again for a moment after it has said so: what is written then
        could as well have been longer on its way. The moment has to be one by both clocks: the
        monotonic one stands still while the machine sleeps (N-92).
        """
        now_ms = self._now_ms()
        if self._storage.is_distant and self._seen_mine_ms is not None:
            passed_ms = [
                abs(now - seen) for now, seen in zip(now_ms, self._seen_mine_ms, strict=True)
            ]
            if max(passed_ms) < _ASKED_AGAIN_AFTER_MS:
                return True
        is_mine = self._mine() is not None
        self._seen_mine_ms = now_ms if is_mine else None
        return is_mine

    def _now_ms(self) -> tuple[int, int]:
        return self._clock.monotonic_ms(), self._clock.now_ms()

    def holder(self) -> LockInfo | None:
        return self._provider.inspect(self._key)

    def renew(self, deadline_ms: int | None) -> int | None:
        for _ in range(WRITE_ATTEMPT_COUNT_MAX):
            mine = self._mine()
            if mine is None:
                return None
            if deadline_ms is not None and self._clock.monotonic_ms() >= deadline_ms:
                return None
            lock, version = mine
            self._compare_clocks()
            now_ms = self._clock.now_ms() + self._provider.store_ahead_ms
            # The wall clock may have been set back; a lease only ever grows.
            valid_until_ms = max(lock.valid_until_ms, now_ms + self._provider.validity_ms)
            renewed = replace(lock, valid_until_ms=valid_until_ms, write=self._writes.next_number())
            try:
                self._put(renewed, version)
            except ConflictError:
                continue
            except StorageError:
                mine = self._mine()
                return None if mine is None else self.sent_ms(mine[0])
            return self.sent_ms(renewed)
        raise self._restless()

    def give_up(self) -> None:
        for attempt in range(1, WRITE_ATTEMPT_COUNT_MAX + 1):
            try:
                # What was written last is still there, unless a renewal came in between.
                mine = self._written if attempt == 1 else None
                if (mine := mine or self._mine()) is not None:
                    lock, version = mine
                    self._put(replace(lock, expired=True), version)
                    if self._written is not None:
                        self._provider.remember_released(self._key, *self._written)
                return
            except ConflictError:
                continue
            except StorageError:
                if attempt == WRITE_ATTEMPT_COUNT_MAX:
                    self._provider.ids.given_up.note(self.owner)
                    raise
        raise self._restless()

    def _compare_clocks(self) -> None:
        """See how far the store's clock is ahead, by when it says that it took the last write."""
        if not self._provider.asks_store:
            return
        try:
            taken_ms = self._storage.info(self._path).modified_ms
        except (StorageError, NotFoundError) as error:
            log.info("the store does not say its time path=%s error=%s", self._path, error)
            return
        self._provider.store_ahead_ms = taken_ms - self._sent_wall_ms

    def _restless(self) -> StorageError:
        return StorageError(
            f"The lock object {self._path} changed between reading and writing it, "
            f"{WRITE_ATTEMPT_COUNT_MAX} times in a row. Try again.",
            path=self._path,
        )

    def _mine(self) -> tuple[StorageLock, str] | None:
        """The object and its version, if it is this acquisition's and not released."""
        found = self._provider.load(self._key)
        lock = self.parse(found)
        if found is None or lock is None or not self.owns(lock) or lock.expired:
            return None
        return lock, found.version

    def _put(self, lock: StorageLock, version: str | None) -> None:
        sent_ms = self._now_ms()
        self._sent_wall_ms = sent_ms[1]
        self._written = None
        if version is None:
            self._storage.put_if_absent(self._path, lock.encode())
        else:
            new_version = self._storage.replace(self._path, lock.encode(), version=version)
            self._written = (lock, new_version)
        self._seen_mine_ms = sent_ms
