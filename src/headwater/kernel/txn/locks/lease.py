"""A held lease: what the storage-backed lock providers share.

A lease is a promise with two sides. The holder promises to stop at its deadline, counted on its
own monotonic clock from the moment *before* it sent the write that is now in the lock's home.
Everybody else promises not to take the lock until the lease has run out after that write *landed*.
So the holder stops first, whatever the wall clocks say, unless it is stalled between looking at its
deadline and acting (A1); `check` asks the home as well, right before the write that matters.

1. A timer renews the lease well before the deadline.
2. A renewal that finds somebody else in the home, or comes back after the deadline, loses the
   lease for good: a lease is never renewed back to life (L3).
3. A renewal with an unknown outcome leaves the deadline where it is; the next one tries again.
4. `release` stops the timer first, so that no renewal follows the release. A lost lease is not
   released: there is nothing of this holder's left to give up, and the home may be another's.
5. A lock that nobody has any more, because an interrupt came before it was kept, is given up by the
   timer when it comes to renew it (N-194).
6. A forked child finds its parent's lease in its memory. It is not the child's: to it, it is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from headwater.errors import ErrorKind, FencedError, HeadwaterError, StorageError
from headwater.kernel.txn.locks.waiting import describe_holder
from headwater.seams.clock import Clock, while_kept
from headwater.seams.ids import this_process
from headwater.seams.lock import LockInfo
from headwater.seams.mutex import new_mutex

log = logging.getLogger(__name__)

# Monotonic clocks of two machines do not tick at exactly the same rate, and wall clocks differ:
# whoever takes a lock over waits this much longer. Hudi allows the same for its storage lock.
CLOCK_DRIFT_MS = 500

HELD_BY_PARENT = "the process that this one was forked from holds it, and still may"

OnLost = Callable[[FencedError], None]
"""Called once, on any thread, as soon as a loss is noticed. It must not call the lock."""

AskHolder = Callable[[], LockInfo | None]


class LeaseHome(Protocol):
    """The place of one lock, as the holder of one acquisition sees it."""

    def renew(self, deadline_ms: int | None) -> int | None:
        """Write the lease anew, unless `deadline_ms` has come on the monotonic clock.

        Returns the moment, on the same clock, before the write now in the home was sent; None when
        the home is no longer this acquisition's.

        Raises:
            StorageError: whether the lease is renewed is not known.
        """
        ...

    def is_mine(self) -> bool:
        """Ask the home whether it still names this acquisition."""
        ...

    def give_up(self) -> None:
        """Free the home if it is still this acquisition's; succeed also when it is not.

        Raises:
            StorageError: whether it is free is not known; the call may be repeated.
        """
        ...

    def holder(self) -> LockInfo | None: ...


class SentWrites:
    """When each write of one acquisition was sent, on this process's monotonic clock.

    Every write carries its number. Reading the home back after a lost reply so tells which of them
    is in place, and from when its lease counts.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sent_ms: list[int] = []

    def next_number(self) -> int:
        """Number the write that is about to be sent."""
        self._sent_ms.append(self._clock.monotonic_ms())
        return len(self._sent_ms)

    def sent_ms(self, number: int) -> int:
        return self._sent_ms[number - 1]


class Lease:
    """A `HeldLock` that lives as long as it is renewed."""

    def __init__(
        self,
        home: LeaseHome,
        clock: Clock,
        *,
        key: str,
        place: str,
        token: int,
        lease_ms: int,
        renew_ms: int,
        sent_ms: int,
        on_lost: OnLost | None = None,
    ) -> None:
        """Start renewing. `lease_ms` 0 has no deadline; `sent_ms` is when the taking was sent."""
        self._home = home
        self._clock = clock
        self._key = key
        self._place = place
        self._token = token
        self._lease_ms = lease_ms
        self._on_lost = on_lost
        self._held_by = this_process()
        self._mutex = new_mutex()
        self._deadline_ms = self._deadline_after(sent_ms)
        self._lost_because: str | None = None
        self._is_given_up = False
        self._is_released = False
        renew = while_kept(self._renew, partial(_give_up_dropped, home, place))
        self._timer = clock.every_ms(renew_ms, renew, f"headwater-lock-{key}")

    @property
    def token(self) -> int:
        return self._token

    @property
    def is_lost(self) -> bool:
        """Whether this holder may no longer act. Asks its own clock, not the home."""
        self._notice_deadline()
        return self._lost_because is not None

    def check(self) -> None:
        """Ask the lock's home who holds it.

        Raises:
            FencedError: this holder lost the lock; it must not write any more.
            StorageError: the home did not answer.
        """
        if self._is_given_up:
            raise self._fenced("this holder released it")
        if not self.is_lost and not self._home.is_mine():
            self._lose("its home no longer names this holder")
        self._notice_deadline()
        if self._lost_because is not None:
            raise self._fenced(self._lost_because)

    def release(self) -> None:
        """Give the lock up; do nothing when it is released or lost already.

        Raises:
            StorageError: whether the lock is free is not known. It is no longer renewed; calling
                again tries again.
        """
        give_up_surely(self._give_up)

    def _give_up(self) -> None:
        self._timer.cancel()
        if self._is_released or self.is_lost:
            return
        self._is_given_up = True
        self._home.give_up()
        self._is_released = True

    def _renew(self) -> bool:
        if self._is_released or self.is_lost:
            return False
        try:
            sent_ms = self._home.renew(self._deadline_ms)
        except StorageError as error:
            log.warning("lock renewal outcome unknown key=%s error=%s", self._key, error)
            return True
        if sent_ms is None:
            self._lose("its home no longer names this holder")
            return False
        self._notice_deadline()
        with self._mutex:
            if self._lost_because is None:
                self._deadline_ms = self._deadline_after(sent_ms)
        return self._lost_because is None

    def _deadline_after(self, sent_ms: int) -> int | None:
        return sent_ms + self._lease_ms if self._lease_ms else None

    def _notice_deadline(self) -> None:
        if self._held_by != this_process() and not self._is_released:
            self._lose(HELD_BY_PARENT)
            return
        now_ms = self._clock.monotonic_ms()
        with self._mutex:
            is_past = self._deadline_ms is not None and now_ms >= self._deadline_ms
        if is_past and not self._is_released:
            self._lose(f"its lease of {self._lease_ms} ms ran out before it was renewed")

    def _lose(self, reason: str) -> None:
        with self._mutex:
            is_first = self._lost_because is None
            if is_first:
                self._lost_because = reason
        if not is_first:
            return
        log.warning("lock lost key=%s token=%d reason=%s", self._key, self._token, reason)
        if self._on_lost is not None:
            self._on_lost(self._fenced(reason))

    def _fenced(self, reason: str) -> FencedError:
        return lock_lost_error(
            reason, self._home.holder, key=self._key, place=self._place, token=self._token
        )


def give_up_surely(give_up: Callable[[], None]) -> None:
    """Give a lock up, once more if an interrupt of whatever class came in between.

    Or nobody could have it for as long as this process lives (N-194).

    Raises:
        StorageError: as `give_up`.
    """
    try:
        give_up()
    except HeadwaterError:
        raise
    except BaseException:
        give_up()
        raise


def _give_up_dropped(home: LeaseHome, place: str) -> None:
    """Give up a lock that nobody has any more."""
    log.warning("lock given up, its holder was interrupted before it could place=%s", place)
    try:
        home.give_up()
    except StorageError as error:
        log.warning("lock not given up, its lease ends it place=%s error=%s", place, error)


def lock_lost_error(
    reason: str, ask_holder: AskHolder | None, *, key: str, place: str, token: int
) -> FencedError:
    """Say which hold was lost, why, and who has the lock now."""
    return FencedError(
        f"Lost the lock {key!r} at {place}, taken with token {token}: {reason}. "
        f"{_describe_now(ask_holder)}. Write "
        "nothing more under it; start over from a freshly loaded table.",
        kind=ErrorKind.LOCK_LOST,
        key=key,
        token=token,
    )


def _describe_now(ask_holder: AskHolder | None) -> str:
    if ask_holder is None:
        return "Who has it now is not known"
    try:
        holder = ask_holder()
    except StorageError as error:
        return f"Who has it now is not known ({error})"
    return "Nobody has it now" if holder is None else f"Now {describe_holder(holder)}"
