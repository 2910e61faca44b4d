"""Waiting for a lock: bounded, with back-off and jitter, and an answer that names the holder.

The bound is on how long one holder is waited for. Somebody who sees the lock go from hand to hand
waits on: the others make progress, and its own turn comes (LIV-17).
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import NamedTuple, Protocol, TypeVar

from headwater.errors import ConflictError, ErrorKind, StorageError
from headwater.seams.clock import Clock
from headwater.seams.ids import Ids
from headwater.seams.lock import HeldLock, LockInfo
from headwater.seams.storage import Storage

log = logging.getLogger(__name__)


class Pace(NamedTuple):
    """How long the pauses between tries are: the first, and the longest."""

    first_ms: int
    max_ms: int


# Who pauses for longer than others hold the lock is overtaken by everybody who comes later: with
# pauses of up to a second, one commit in ten of eight writers took two seconds and more. On a disk
# and in ZooKeeper a look costs next to nothing; to a store it is a request, and a lock there is
# held for several of them.
NEAR = Pace(10, 60)
DISTANT = Pace(20, 250)


def pace_of(storage: Storage) -> Pace:
    return DISTANT if storage.is_distant else NEAR


H_co = TypeVar("H_co", bound=HeldLock, covariant=True)


class LockAttempt(Protocol[H_co]):
    """One caller's wish for one lock, tried several times under one identity.

    After an unknown outcome the next try recognises what an earlier one wrote (M4).
    """

    def take(self) -> H_co | None:
        """Try once; None means that somebody else has the lock."""
        ...

    def holder(self) -> LockInfo | None: ...

    def abandon(self) -> None:
        """Remove what an unfinished try may have left behind, and nothing of anybody else."""
        ...


def wait_for_lock(
    attempt: LockAttempt[H_co],
    *,
    key: str,
    home: str,
    remedy: str,
    timeout_ms: int,
    clock: Clock,
    ids: Ids,
    pace: Pace = DISTANT,
) -> H_co:
    """Try until the lock is taken, at least once; give one and the same holder `timeout_ms`.

    `home` says where the lock lives and `remedy` what to do about a holder that is gone.

    Raises:
        ConflictError: kind LOCK_TIMEOUT; one and the same has had the lock all the time.
        StorageError: the lock's home did not answer, or denied access.
    """
    patience = _Patience(clock.monotonic_ms(), timeout_ms)
    backoff_ms = pace.first_ms
    try:
        while True:
            failure: StorageError | None = None
            try:
                if (held := attempt.take()) is not None:
                    return held
            except StorageError as error:
                failure = error
            left_ms = patience.left_ms(clock.monotonic_ms(), attempt)
            if left_ms <= 0 or (failure is not None and failure.is_final):
                break
            pause_ms = backoff_ms // 2 + ids.jitter(backoff_ms // 2 + 1)
            clock.sleep_ms(min(pause_ms, patience.undisturbed_ms(clock.monotonic_ms())))
            backoff_ms = min(backoff_ms * 2, pace.max_ms)
    except BaseException:
        # Somebody who loses patience must not stay in a queue, and so in the way of the others.
        _abandon(attempt, key)
        raise
    _abandon(attempt, key)
    if failure is not None:
        raise failure
    raise timeout_error(attempt.holder(), key=key, home=home, remedy=remedy, timeout_ms=timeout_ms)


class _Patience:
    """How long a waiter still waits: it begins anew whenever the lock has gone to another holder.

    To look who that is costs a call, so it is done twice in a period and not at every try.
    """

    def __init__(self, now_ms: int, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._deadline_ms = now_ms + timeout_ms
        self._look_ms = now_ms + timeout_ms // 2
        self._seen: LockInfo | None = None
        self._has_looked = False

    def left_ms(self, now_ms: int, attempt: LockAttempt[H_co]) -> int:
        if now_ms < self._look_ms:
            return self._deadline_ms - now_ms
        is_over = now_ms >= self._deadline_ms
        if is_over or not self._has_looked:
            holder = _holder(attempt)
            if is_over and self._has_looked and holder is not None and not self._is_same(holder):
                self._deadline_ms = now_ms + self._timeout_ms
                self._look_ms = now_ms + self._timeout_ms // 2
                self._has_looked = False
            else:
                self._has_looked = True
            self._seen = holder
        return self._deadline_ms - now_ms

    def undisturbed_ms(self, now_ms: int) -> int:
        """Return how long a pause may be without missing the next look at the holder."""
        ends_ms = self._deadline_ms if self._has_looked else self._look_ms
        return max(1, ends_ms - now_ms)

    def _is_same(self, holder: LockInfo) -> bool:
        # Another engine's locks have no tokens.
        return self._seen is not None and (
            (self._seen.owner, self._seen.token, self._seen.acquired_ms)
            == (holder.owner, holder.token, holder.acquired_ms)
        )


def _holder(attempt: LockAttempt[H_co]) -> LockInfo | None:
    try:
        return attempt.holder()
    except StorageError:
        return None  # The next try says what is wrong.


def _abandon(attempt: LockAttempt[H_co], key: str) -> None:
    try:
        attempt.abandon()
    except StorageError as error:
        # The caller already learns of a failure. What is left behind ends with its lease.
        log.warning("lock attempt left behind key=%s error=%s", key, error)


def timeout_error(
    holder: LockInfo | None, *, key: str, home: str, remedy: str, timeout_ms: int
) -> ConflictError:
    """Say who has the lock, since when and until when, and what to do about it."""
    if holder is None:
        situation = "others took it first each time, and it is free just now. Try again"
    else:
        situation = f"{describe_holder(holder)}. Wait for it and try again; {remedy}"
    return ConflictError(
        f"Could not take the lock {key!r} at {home} within {timeout_ms} ms: {situation}.",
        kind=ErrorKind.LOCK_TIMEOUT,
        key=key,
        holder=holder.owner if holder else None,
        token=holder.token if holder else None,
    )


def live_lock_error(holder: LockInfo, *, key: str, home: str) -> ConflictError:
    """Refuse to break a lock that is not expired."""
    return ConflictError(
        f"The lock {key!r} at {home} cannot be broken: {describe_holder(holder)}. Only an expired "
        "lock can be broken; stop its holder, or wait until it expires.",
        kind=ErrorKind.CONFLICT,
        key=key,
        holder=holder.owner,
        token=holder.token,
    )


def describe_holder(holder: LockInfo) -> str:
    since = f" since {utc_text(holder.acquired_ms)}" if holder.acquired_ms is not None else ""
    if holder.is_expired:
        expiry = "and it is expired"
    elif holder.expires_ms is None:
        expiry = "and it does not expire by itself"
    else:
        expiry = f"and it expires at {utc_text(holder.expires_ms)} unless renewed"
    return f"{holder.owner} has held it{since}, {expiry}"


def utc_text(epoch_ms: int) -> str:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat(timespec="milliseconds")
