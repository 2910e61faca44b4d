"""Waiting for a lock, by somebody who gives it up."""

from __future__ import annotations

import pytest
from tests.support.manual_clock import ManualClock

from headwater.errors import InternalError, StorageError
from headwater.kernel.txn.locks.waiting import wait_for_lock
from headwater.seams.ids import SystemIds
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
