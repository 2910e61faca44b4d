"""Hudi's `FileSystemBasedLockProvider`: the lock is a file named `lock`.

    <folder>/lock                      the table lock, where stock Hudi writers look too
    <folder>/.locks/<key>.lock         any other key
    <lock>.epoch                       the last fencing token
    <lock>.takeover                    the right to remove an expired lock

Taking a lock:

1. Create the file with `put_if_absent`. After an unknown outcome read it back: the acquisition id
   in it says whose it is (M4).
2. If it is there and expired, take it over: with a conditional `replace` where the store has one,
   else by removing and creating it under the take-over guard, itself created with `put_if_absent`.
3. Raise the epoch by one; that is the fencing token.
4. Read the lock back: it must still be this acquisition's.

When a lock is expired. A file of ours says how long it may stand unchanged, its holder rewrites it
several times in that span, and an observer counts on its own monotonic clock (H-26). If the holder
ran on the observer's own system, and that says that the process has ended, seconds are enough,
whatever the lease: what the process still had sent has landed by then. A file of stock Hudi is
never rewritten, so its modification time decides, as in Hudi. What `inspect` shows compares wall
clocks and may be wrong; nothing is taken on that ground.

What stays open, because the store has no conditional delete:

- `release` reads the file and then deletes it. A holder that stalls between the two for longer
  than its remaining lease deletes its successor's lock. So does a delete that was answered with an
  error and lands after the lease. Both are excluded by A1, and the victim learns of it: `check`
  finds no lock of its own.
- Without `replace`, a renewal is a read and a `put`, and a take-over a read and a `delete` under
  the guard, with the same window; so is raising the epoch. Any interleaving is safe as long as no
  process stalls for longer than a lease between the two calls.
- Stock Hudi deletes the file without looking, on release, on take-over by its own expiry, and
  whenever one of its clients closes. It cannot be stopped from here; `check` notices.
- A create that was answered with an error and lands after its caller gave up, or after it released,
  leaves a lock that nobody renews: it blocks the table until it expires.
"""

from __future__ import annotations

from headwater.errors import (
    AlreadyExistsError,
    ConflictError,
    ErrorKind,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from headwater.kernel.txn.locks.lease import CLOCK_DRIFT_MS, Lease, OnLost, SentWrites
from headwater.kernel.txn.locks.lock_file import (
    Epoch,
    LockFile,
    parse_epoch,
    parse_foreign_owner,
    parse_lock_file,
)
from headwater.kernel.txn.locks.names import quote_lock_key
from headwater.kernel.txn.locks.unchanged import Unchanged
from headwater.kernel.txn.locks.waiting import live_lock_error, pace_of, wait_for_lock
from headwater.seams.clock import Clock
from headwater.seams.ids import Ids
from headwater.seams.lock import TABLE, LockInfo
from headwater.seams.storage import Storage, StoredObject

RENEWALS_PER_LEASE = 3  # Two renewals in a row may fail before the lease is lost.
# A lock without expiry is renewed all the same: other engines may judge it by its age, with their
# shortest setting of one minute.
RENEW_WITHOUT_EXPIRY_MS = 20_000
# How long the guard of a take-over may stand: two calls to the store, with plenty of room.
TAKEOVER_MS = 30_000
# For how long the lock of a process that has ended is left: requests that it had sent may land.
HOLDER_ENDED_MS = 3_000
WRITE_ATTEMPT_COUNT_MAX = 3
OBSERVE_EVERY_MS = 1_000


class FileSystemLockProvider:
    """Locks as files, for stores that create atomically."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        ids: Ids,
        *,
        folder: str = ".hoodie",
        expire_ms: int = 0,
        renew_ms: int | None = None,
        on_lost: OnLost | None = None,
    ) -> None:
        """Keep locks in `folder`, with leases of `expire_ms` (0 never expires).

        Raises:
            InvalidInputError: the renewal interval does not fit into the lease.
        """
        if renew_ms is None:
            renew_ms = expire_ms // RENEWALS_PER_LEASE if expire_ms else RENEW_WITHOUT_EXPIRY_MS
        if expire_ms < 0 or renew_ms <= 0 or 0 < expire_ms < 2 * renew_ms:
            raise InvalidInputError(
                f"A lock that expires after {expire_ms} ms cannot be renewed every {renew_ms} ms. "
                "Set hoodie.write.lock.filesystem.expire to 0 (never), or to at least twice the "
                "renewal interval.",
                kind=ErrorKind.INVALID_OPTION,
            )
        self.storage = storage
        self.clock = clock
        self.ids = ids
        self.expire_ms = expire_ms
        self.renew_ms = renew_ms
        self.on_lost = on_lost
        self.unchanged = Unchanged(clock)
        self._prefix = f"{folder.strip('/')}/" if folder.strip("/") else ""

    @property
    def name(self) -> str:
        return "filesystem"

    def path_of(self, key: str) -> str:
        if key == TABLE:
            return f"{self._prefix}lock"
        return f"{self._prefix}.locks/{quote_lock_key(key)}.lock"

    def place_of(self, key: str) -> str:
        return f"{self.storage.uri}/{self.path_of(key)}"

    def acquire(self, key: str = TABLE, *, timeout_ms: int) -> Lease:
        """Take the lock, waiting at most `timeout_ms`.

        Raises:
            ConflictError: kind LOCK_TIMEOUT, naming the holder.
            StorageError: the store did not answer.
            CorruptTableError: the epoch object is unreadable.
        """
        return wait_for_lock(
            _Attempt(self, key),
            key=key,
            home=self.place_of(key),
            remedy=(
                "an expired lock is taken over once it was seen unchanged for the length of its "
                "lease, or removed with `headwater lock break`; if a lock without expiry has lost "
                f"its holder, delete {self.place_of(key)}"
            ),
            timeout_ms=timeout_ms,
            clock=self.clock,
            ids=self.ids,
            pace=pace_of(self.storage),
        )

    def inspect(self, key: str = TABLE) -> LockInfo | None:
        """Who holds the lock, or None when it is free.

        Whether it is expired is told by the wall clock, or by having watched it.
        """
        found = self.load(key)
        return None if found is None else self.describe(key, found.data)

    def break_expired(self, key: str = TABLE) -> LockInfo | None:
        """Remove an expired lock and return what it was; None when it is free.

        A lock of ours that looks expired is watched until it was unchanged for the length of its
        lease, or for seconds if its process has ended, so this may take that long. It is taken over
        and released, which also raises the token.

        Raises:
            ConflictError: the lock is held and not expired.
            StorageError: the store did not answer.
            CorruptTableError: the epoch object is unreadable.
        """
        found = self.load(key)
        if found is None:
            return None
        info = self.describe(key, found.data)
        if not info.is_expired:
            raise live_lock_error(info, key=key, home=self.place_of(key))
        if not self._watch(key, found.data):
            holder = self.inspect(key)
            if holder is None:
                return None
            raise live_lock_error(holder, key=key, home=self.place_of(key))
        self.acquire(key, timeout_ms=0).release()
        return info

    def close(self) -> None:
        """Do nothing: it keeps nothing open."""

    def load(self, key: str) -> StoredObject | None:
        """Read the lock; the version in the answer is empty where the store cannot compare it."""
        path = self.path_of(key)
        found = self.load_object(path)
        if found is None:
            self.unchanged.forget(path)
        return found

    def load_object(self, path: str) -> StoredObject | None:
        try:
            if self.storage.can_replace:
                return self.storage.read_versioned(path)
            return StoredObject(self.storage.read(path), "")
        except NotFoundError:
            return None

    def is_expired(self, key: str, data: bytes) -> bool:
        """Whether the lock with this content may be taken over."""
        path = self.path_of(key)
        lock = parse_lock_file(data, path)
        if lock is not None:
            if lock.acquisition in self.ids.given_up:
                return True
            seen_ms = self.unchanged.seen_ms(path, data)
            if seen_ms >= HOLDER_ENDED_MS and self.ids.is_gone(lock.process):
                return True
            return lock.lease_ms > 0 and seen_ms >= lock.lease_ms + CLOCK_DRIFT_MS
        if not self.expire_ms:
            return False
        try:
            modified_ms = self.storage.info(path).modified_ms
        except NotFoundError:
            return False
        return self.clock.now_ms() - modified_ms > self.expire_ms

    def _watch(self, key: str, data: bytes) -> bool:
        """Wait until the lock may be taken over; False when it changed meanwhile."""
        while not self.is_expired(key, data):
            self.clock.sleep_ms(OBSERVE_EVERY_MS)
            found = self.load(key)
            if found is None or found.data != data:
                return False
        return True

    def describe(self, key: str, data: bytes) -> LockInfo:
        """Say what the lock with this content is, for people to read."""
        now_ms = self.clock.now_ms()
        lock = parse_lock_file(data, self.path_of(key))
        if lock is None:
            return self._describe_foreign(key, data, now_ms)
        is_expired = self.is_expired(key, data)
        expires_ms = lock.written_ms + lock.lease_ms if lock.lease_ms else None
        # One whose process has ended looks expired too, and `break_expired` watches it for seconds.
        is_past = expires_ms is not None and now_ms > expires_ms + CLOCK_DRIFT_MS
        looks_expired = is_past or self.ids.is_gone(lock.process)
        return LockInfo(
            key=key,
            provider=self.name,
            owner=lock.owner,
            token=lock.token or self._token_of(key, lock.acquisition),
            acquired_ms=lock.acquired_ms,
            expires_ms=expires_ms,
            is_expired=is_expired or looks_expired,
        )

    def _describe_foreign(self, key: str, data: bytes, now_ms: int) -> LockInfo:
        try:
            modified_ms = self.storage.info(self.path_of(key)).modified_ms
        except NotFoundError:
            modified_ms = now_ms
        return LockInfo(
            key=key,
            provider=self.name,
            owner=parse_foreign_owner(data),
            token=None,
            acquired_ms=modified_ms,
            expires_ms=modified_ms + self.expire_ms if self.expire_ms else None,
            is_expired=self.is_expired(key, data),
        )

    def _token_of(self, key: str, acquisition: str) -> int | None:
        """The token of a lock whose file was not rewritten since it was issued."""
        path = f"{self.path_of(key)}.epoch"
        found = self.load_object(path)
        if found is None:
            return None
        epoch = parse_epoch(found.data, path)
        return epoch.token if epoch.acquisition == acquisition else None


class _Attempt:
    """Taking one lock: implements `LockAttempt`."""

    def __init__(self, provider: FileSystemLockProvider, key: str) -> None:
        self._provider = provider
        self._storage = provider.storage
        self._clock = provider.clock
        self._key = key
        self._path = provider.path_of(key)
        self._home = self._new_home()
        self._guard: tuple[bytes, int] | None = None  # Its content, and when it was sent.

    def take(self) -> Lease | None:
        current = self._provider.load(self._key)
        if current is None:
            current = self._create()
        elif not self._home.owns(current.data) and self._is_expired(current):
            current = self._take_over(current)
        # An error above keeps the guard, so that the next try goes on where this one stopped.
        self._drop_guard()
        if current is None or not self._home.owns(current.data):
            return None
        return self._finish(current)

    def holder(self) -> LockInfo | None:
        return self._provider.inspect(self._key)

    def abandon(self) -> None:
        self._home.give_up()
        self._drop_guard()

    def _new_home(self) -> _FileHome:
        return _FileHome(self._provider, self._key, self._provider.ids.new_uuid())

    def _finish(self, current: StoredObject) -> Lease | None:
        """Issue the token and make sure that the lock is still this acquisition's."""
        home = self._home
        sent_ms = home.sent_ms(current.data)
        home.token = self._next_token()
        if not home.is_mine() or self._is_over(sent_ms):
            # A lock of ours whose lease ran out while it was being taken is nobody's: it must
            # expire like any other before someone takes it, this caller included.
            self._home = self._new_home()
            return None
        self._provider.unchanged.forget(self._path)
        return Lease(
            home,
            self._clock,
            key=self._key,
            place=self._provider.place_of(self._key),
            token=home.token,
            lease_ms=self._provider.expire_ms,
            renew_ms=self._provider.renew_ms,
            sent_ms=sent_ms,
            on_lost=self._provider.on_lost,
        )

    def _is_expired(self, current: StoredObject) -> bool:
        return self._provider.is_expired(self._key, current.data)

    def _is_over(self, sent_ms: int) -> bool:
        lease_ms = self._provider.expire_ms
        return lease_ms > 0 and self._clock.monotonic_ms() >= sent_ms + lease_ms

    def _create(self) -> StoredObject | None:
        """Create the lock; return what is there afterwards."""
        data = self._home.next_content()
        try:
            self._storage.put_if_absent(self._path, data)
        except AlreadyExistsError:
            return self._provider.load(self._key)
        except StorageError:
            found = self._provider.load(self._key)
            if found is None:
                raise
            return found
        return StoredObject(data, "")

    def _take_over(self, expired: StoredObject) -> StoredObject | None:
        """Put this acquisition in the place of an expired one; return what is there afterwards."""
        if not self._storage.can_replace:
            return self._take_over_guarded(expired)
        data = self._home.next_content()
        try:
            version = self._storage.replace(self._path, data, version=expired.version)
        except (ConflictError, StorageError) as error:
            found = self._provider.load(self._key)
            if isinstance(error, StorageError) and found == expired:
                raise
            return found
        return StoredObject(data, version)

    def _take_over_guarded(self, expired: StoredObject) -> StoredObject | None:
        # Without the guard two processes could both find the lock expired, and the slower one
        # delete the lock that the faster one has just created.
        if not self._take_guard():
            return None
        current = self._provider.load(self._key)
        if current is None or current.data != expired.data or not self._is_guard_fresh():
            return current
        self._storage.delete(self._path)
        return self._create()

    @property
    def _guard_path(self) -> str:
        return f"{self._path}.takeover"

    def _take_guard(self) -> bool:
        if self._guard is None:
            self._guard = (self._provider.ids.new_uuid().encode(), self._clock.monotonic_ms())
        content, _ = self._guard
        try:
            self._storage.put_if_absent(self._guard_path, content)
        except AlreadyExistsError:
            if self._load_guard() == content:
                return True
            self._guard = None
            self._remove_stale_guard()
            return False
        except StorageError:
            if self._load_guard() != content:
                raise
        return True

    def _load_guard(self) -> bytes | None:
        found = self._provider.load_object(self._guard_path)
        return None if found is None else found.data

    def _is_guard_fresh(self) -> bool:
        return self._guard is not None and (
            self._clock.monotonic_ms() < self._guard[1] + TAKEOVER_MS
        )

    def _remove_stale_guard(self) -> None:
        """Remove the guard of a process that died during a take-over."""
        content = self._load_guard()
        if content is None:
            return
        seen_ms = self._provider.unchanged.seen_ms(self._guard_path, content)
        if seen_ms >= TAKEOVER_MS + CLOCK_DRIFT_MS and self._load_guard() == content:
            self._storage.delete(self._guard_path)

    def _drop_guard(self) -> None:
        if self._guard is None:
            return
        # A guard that stood for too long may be another's by now; it is left to be found stale.
        if self._is_guard_fresh() and self._load_guard() == self._guard[0]:
            self._storage.delete(self._guard_path)
        self._guard = None

    def _next_token(self) -> int:
        """Raise the epoch by one for this acquisition.

        The epoch is compared and replaced where the store can. Elsewhere it is overwritten, which
        is right as long as this acquisition has the lock.
        """
        path = f"{self._path}.epoch"
        failure: StorageError | None = None
        for _ in range(WRITE_ATTEMPT_COUNT_MAX):
            found = self._provider.load_object(path)
            last = Epoch(0, "") if found is None else parse_epoch(found.data, path)
            if last.acquisition == self._home.acquisition:
                return last.token
            epoch = Epoch(last.token + 1, self._home.acquisition, last.unknown)
            try:
                self._put_epoch(path, epoch.encode(), found)
                return epoch.token
            except (AlreadyExistsError, ConflictError):
                continue
            except StorageError as error:
                failure = error
        raise failure or StorageError(
            f"The epoch {path} of a lock changed {WRITE_ATTEMPT_COUNT_MAX} times while its token "
            "was being issued. Try again.",
            path=path,
        )

    def _put_epoch(self, path: str, data: bytes, found: StoredObject | None) -> None:
        if found is None:
            self._storage.put_if_absent(path, data)
        elif self._storage.can_replace:
            self._storage.replace(path, data, version=found.version)
        else:
            self._storage.put(path, data)


class _FileHome:
    """The lock file as one acquisition sees it: implements `LeaseHome`."""

    def __init__(self, provider: FileSystemLockProvider, key: str, acquisition: str) -> None:
        self.acquisition = acquisition
        self.token: int | None = None
        self._provider = provider
        self._storage = provider.storage
        self._clock = provider.clock
        self._key = key
        self._path = provider.path_of(key)
        self._writes = SentWrites(provider.clock)
        self._acquired_ms: int | None = None

    def next_content(self) -> bytes:
        """The content of the next write, which is about to be sent."""
        now_ms = self._clock.now_ms()
        if self.token is None:
            self._acquired_ms = now_ms
        owner = self._provider.ids.owner
        return LockFile(
            owner=str(owner),
            acquisition=self.acquisition,
            token=self.token,
            acquired_ms=now_ms if self._acquired_ms is None else self._acquired_ms,
            written_ms=now_ms,
            lease_ms=self._provider.expire_ms,
            write=self._writes.next_number(),
            pid=owner.pid,
            process_space=owner.process_space,
            process_started=owner.started,
        ).encode()

    def owns(self, data: bytes) -> bool:
        lock = parse_lock_file(data, self._path)
        return lock is not None and lock.acquisition == self.acquisition

    def sent_ms(self, data: bytes) -> int:
        """When the write of this acquisition with this content was sent."""
        lock = parse_lock_file(data, self._path)
        return self._writes.sent_ms(lock.write if lock else 1)

    def is_mine(self) -> bool:
        found = self._provider.load(self._key)
        return found is not None and self.owns(found.data)

    def holder(self) -> LockInfo | None:
        return self._provider.inspect(self._key)

    def renew(self, deadline_ms: int | None) -> int | None:
        found = self._provider.load(self._key)
        if found is None or not self.owns(found.data):
            return None
        if deadline_ms is not None and self._clock.monotonic_ms() >= deadline_ms:
            return None
        data = self.next_content()
        try:
            if self._storage.can_replace:
                self._storage.replace(self._path, data, version=found.version)
            else:
                self._storage.put(self._path, data)
        except (ConflictError, StorageError):
            found = self._provider.load(self._key)
            if found is None or not self.owns(found.data):
                return None
            data = found.data
        return self.sent_ms(data)

    def give_up(self) -> None:
        for attempt in range(1, WRITE_ATTEMPT_COUNT_MAX + 1):
            try:
                if self.is_mine():
                    self._storage.delete(self._path)
                return
            except StorageError as error:
                if attempt < WRITE_ATTEMPT_COUNT_MAX:
                    continue
                # A delete that may yet land would remove what this process has then.
                if error.is_final:
                    self._provider.ids.given_up.note(self.acquisition)
                raise
