"""Waiting for a lock, by somebody who gives it up."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.manual_clock import ManualClock

from headwater.errors import ConflictError, ErrorKind, InternalError, StorageError
from headwater.kernel.txn.locks.file_system import FileSystemLockProvider
from headwater.kernel.txn.locks.waiting import DISTANT, NEAR, wait_for_lock
from headwater.seams.ids import SystemIds
from headwater.seams.local import LocalStorage
from headwater.seams.lock import HeldLock, LockInfo


class Queue:
    """An attempt that stands in a queue until it is abandoned: implements `LockAttempt`."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.is_abandoned = False
        self._error = error

    def take(self) -> HeldLock | None:
        if self._error is not None:
            raise self._error
        return None

    def holder(self) -> LockInfo | None:
        return None

    def abandon(self) -> None:
        self.is_abandoned = True


class InterruptedClock(ManualClock):
    """A clock of somebody who loses patience while waiting."""

    def sleep_ms(self, duration_ms: int) -> None:
        raise KeyboardInterrupt


def wait(queue: Queue, clock: ManualClock) -> None:
    wait_for_lock(
        queue,
        key="table",
        home="here",
        remedy="wait",
        timeout_ms=1_000,
        clock=clock,
        ids=SystemIds(),
    )


def test_an_interrupt_while_waiting_leaves_the_queue() -> None:
    queue = Queue()
    with pytest.raises(KeyboardInterrupt):
        wait(queue, InterruptedClock())
    assert queue.is_abandoned


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(), InternalError("a bug"), StorageError("no answer")]
)
def test_a_try_that_fails_leaves_the_queue(error: BaseException) -> None:
    queue = Queue(error)
    with pytest.raises(type(error)):
        wait(queue, ManualClock())
    assert queue.is_abandoned


class Handed(Queue):
    """A lock that goes to somebody else every so often, and is free in the end."""

    def __init__(self, clock: ManualClock, each_ms: int, free_after_ms: int) -> None:
        super().__init__()
        self._clock = clock
        self._began_ms = clock.monotonic_ms()
        self._each_ms = each_ms
        self._free_after_ms = free_after_ms

    def take(self) -> HeldLock | None:
        if self._waited_ms() >= self._free_after_ms:
            raise Taken
        return None

    def holder(self) -> LockInfo | None:
        token = self._waited_ms() // self._each_ms
        return LockInfo(
            key="table",
            provider="test",
            owner="somebody",
            token=token,
            acquired_ms=None,
            expires_ms=None,
            is_expired=False,
        )

    def _waited_ms(self) -> int:
        return self._clock.monotonic_ms() - self._began_ms


class Taken(Exception):
    """The lock was there to be taken."""


class WaitingClock(ManualClock):
    def sleep_ms(self, duration_ms: int) -> None:
        self.advance_ms(duration_ms)


def test_liv_17_who_sees_the_lock_change_hands_waits_on() -> None:
    clock = WaitingClock()
    queue = Handed(clock, each_ms=400, free_after_ms=20_000)
    with pytest.raises(Taken):
        wait(queue, clock)


def test_one_holder_is_waited_for_as_long_as_was_said() -> None:
    clock = WaitingClock()
    began_ms = clock.monotonic_ms()
    queue = Handed(clock, each_ms=10**6, free_after_ms=20_000)
    with pytest.raises(ConflictError) as error:
        wait(queue, clock)
    assert error.value.kind is ErrorKind.LOCK_TIMEOUT
    assert clock.monotonic_ms() - began_ms == 1_000


class WatchedClock(ManualClock):
    def __init__(self) -> None:
        super().__init__()
        self.pauses_ms: list[int] = []

    def sleep_ms(self, duration_ms: int) -> None:
        self.pauses_ms.append(duration_ms)
        super().sleep_ms(duration_ms)


def test_n_124_who_waits_on_a_disk_is_not_overtaken_for_long(tmp_path: Path) -> None:
    """A pause of a second, where others hold the lock for milliseconds, was one of two seconds."""
    storage, clock = LocalStorage(tmp_path), WatchedClock()
    held = FileSystemLockProvider(storage, clock, SystemIds()).acquire(timeout_ms=0)
    with pytest.raises(ConflictError):
        FileSystemLockProvider(storage, clock, SystemIds()).acquire(timeout_ms=2_000)
    held.release()
    assert max(clock.pauses_ms) <= NEAR.max_ms
    assert DISTANT.max_ms > NEAR.max_ms
