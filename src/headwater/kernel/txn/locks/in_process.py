"""Hudi's `InProcessLockProvider`: exclusion among the threads of one process, and no further.

Locks are entries of an `InProcessLocks`, of which a process has one: providers exclude each other
exactly if they share it. There is no lease. A hold ends when it is released or with the process,
so it can be neither lost nor expired. A forked child has locks of its own, all free at first, and
holds none of its parent's.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.errors import FencedError
from headwater.kernel.txn.locks.lease import HELD_BY_PARENT, give_up_surely, lock_lost_error
from headwater.kernel.txn.locks.names import quote_lock_key
from headwater.kernel.txn.locks.waiting import NEAR, live_lock_error, wait_for_lock
from headwater.seams.clock import Clock
from headwater.seams.ids import Ids, this_process
from headwater.seams.lock import TABLE, LockInfo
from headwater.seams.mutex import new_mutex


@dataclass(frozen=True, slots=True)
class InProcessHold:
    acquisition: str
    owner: str
    token: int
    acquired_ms: int


class InProcessLocks:
    """All locks of one process, by table and key."""

    def __init__(self) -> None:
        self._mutex = new_mutex()
        self._holds: dict[tuple[str, str, str], InProcessHold] = {}
        self._last_token = 0

    def take(
        self, table: str, key: str, *, acquisition: str, owner: str, acquired_ms: int
    ) -> InProcessHold | None:
        """Return a hold with a fresh token, or None if the lock is held."""
        place = this_process(), table, key
        with self._mutex:
            if place in self._holds:
                return None
            self._last_token += 1
            hold = InProcessHold(acquisition, owner, self._last_token, acquired_ms)
            self._holds[place] = hold
            return hold

    def find(self, table: str, key: str) -> InProcessHold | None:
        with self._mutex:
            return self._holds.get((this_process(), table, key))

    def give_up(self, table: str, key: str, acquisition: str) -> None:
        place = this_process(), table, key
        with self._mutex:
            hold = self._holds.get(place)
            if hold is not None and hold.acquisition == acquisition:
                del self._holds[place]


class InProcessLockProvider:
    """Locks for the threads that share `locks`; `table` keeps tables apart."""

    def __init__(self, locks: InProcessLocks, clock: Clock, ids: Ids, *, table: str) -> None:
        self.locks = locks
        self.clock = clock
        self.ids = ids
        self.table = table

    @property
    def name(self) -> str:
        return "in_process"

    def acquire(self, key: str = TABLE, *, timeout_ms: int) -> InProcessLock:
        """Take the lock, waiting at most `timeout_ms`.

        Raises:
            ConflictError: kind LOCK_TIMEOUT, naming the holder.
        """
        quote_lock_key(key)  # Refuse the keys that other providers refuse.
        return wait_for_lock(
            _Attempt(self, key),
            key=key,
            home=self.table,
            remedy="it is held by this process, and ends with it at the latest",
            timeout_ms=timeout_ms,
            clock=self.clock,
            ids=self.ids,
            pace=NEAR,
        )

    def inspect(self, key: str = TABLE) -> LockInfo | None:
        """Who holds the lock, or None when it is free."""
        hold = self.locks.find(self.table, key)
        if hold is None:
            return None
        return LockInfo(
            key=key,
            provider=self.name,
            owner=hold.owner,
            token=hold.token,
            acquired_ms=hold.acquired_ms,
            expires_ms=None,
            is_expired=False,
        )

    def break_expired(self, key: str = TABLE) -> LockInfo | None:
        """Return None when the lock is free.

        Raises:
            ConflictError: the lock is held; it never expires.
        """
        holder = self.inspect(key)
        if holder is not None:
            raise live_lock_error(holder, key=key, home=self.table)
        return None

    def close(self) -> None:
        """Do nothing: it keeps nothing open."""


class InProcessLock:
    """A hold on an in-process lock."""

    def __init__(self, provider: InProcessLockProvider, key: str, hold: InProcessHold) -> None:
        self._provider = provider
        self._key = key
        self._hold = hold
        self._held_by = this_process()

    @property
    def token(self) -> int:
        return self._hold.token

    @property
    def is_lost(self) -> bool:
        return self._held_by != this_process()

    def check(self) -> None:
        """Make sure that the lock is held.

        Raises:
            FencedError: it was released, or is the parent's of this process.
        """
        if self._provider.locks.find(self._provider.table, self._key) != self._hold:
            raise self._fenced()

    def release(self) -> None:
        """Give the lock up; do nothing when it was released already."""
        locks, table = self._provider.locks, self._provider.table
        give_up_surely(lambda: locks.give_up(table, self._key, self._hold.acquisition))

    def _fenced(self) -> FencedError:
        return lock_lost_error(
            HELD_BY_PARENT if self.is_lost else "this holder released it",
            lambda: self._provider.inspect(self._key),
            key=self._key,
            place=self._provider.table,
            token=self.token,
        )


class _Attempt:
    """Taking one lock: implements `LockAttempt`."""

    def __init__(self, provider: InProcessLockProvider, key: str) -> None:
        self._provider = provider
        self._key = key
        self._acquisition = provider.ids.new_uuid()

    def take(self) -> InProcessLock | None:
        provider = self._provider
        hold = provider.locks.take(
            provider.table,
            self._key,
            acquisition=self._acquisition,
            owner=str(provider.ids.owner),
            acquired_ms=provider.clock.now_ms(),
        )
        return None if hold is None else InProcessLock(provider, self._key, hold)

    def holder(self) -> LockInfo | None:
        return self._provider.inspect(self._key)

    def abandon(self) -> None:
        # A try either holds the lock or did nothing; who is interrupted may not know which.
        self._provider.locks.give_up(self._provider.table, self._key, self._acquisition)
