"""The lock seam: mutual exclusion with an owner, a lease and a fencing token.

Guarantees, tested for every provider by `tests/unit/contracts/test_locks.py`:

L1  at most one holder of a key at a time, as long as no lease expires under a live holder (A1).
L2  the fencing token of a key grows with every acquisition.
L3  while held, the lease is renewed in the background; a holder whose lease ran out is told so by
    `check` and can never renew it back to life.
L4  `release` gives up only the caller's own hold, and is idempotent.
L5  an expired lock may be taken by the next caller, or removed with `break_expired`.

The table lock is the key `TABLE`. Other keys (a partition and file id) are locks of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

TABLE = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class LockInfo:
    """What anyone can see of a lock."""

    key: str
    provider: str
    owner: str
    token: int | None  # None where the holder is another engine that has no tokens.
    acquired_ms: int | None
    expires_ms: int | None  # None: held until released, or while the holder's session lives.
    is_expired: bool


class HeldLock(Protocol):
    @property
    def token(self) -> int: ...

    def check(self) -> None:
        """Ask the lock's home who holds it.

        Raises:
            FencedError: this holder lost the lock; it must not write any more.
        """
        ...

    def release(self) -> None: ...


class LockProvider(Protocol):
    @property
    def name(self) -> str: ...

    def acquire(self, key: str = TABLE, *, timeout_ms: int) -> HeldLock:
        """Take the lock, waiting at most `timeout_ms`.

        Raises:
            ConflictError: kind LOCK_TIMEOUT, naming the holder.
        """
        ...

    def inspect(self, key: str = TABLE) -> LockInfo | None:
        """Who holds the lock, or None when it is free."""
        ...

    def break_expired(self, key: str = TABLE) -> LockInfo | None:
        """Remove an expired lock and return what it was; None when it is free.

        Raises:
            ConflictError: the lock is held and not expired.
        """
        ...

    def close(self) -> None:
        """End what it keeps open, such as a session, and with that the locks that hang on it."""
        ...
