"""N-62: a forked child holds no lock of its parent, whichever provider gave it."""

from __future__ import annotations

import pytest
from tests.support.forks import in_a_child
from tests.support.manual_clock import ManualClock
from tests.support.memory_storage import MemoryStorage

from headwater.errors import ErrorKind, FencedError
from headwater.kernel.txn.locks.file_system import FileSystemLockProvider
from headwater.kernel.txn.locks.in_process import InProcessLockProvider, InProcessLocks
from headwater.kernel.txn.locks.storage_based import StorageBasedLockProvider
from headwater.seams.ids import SystemIds
from headwater.seams.lock import LockProvider


def a_provider(name: str) -> LockProvider:
    storage, clock, ids = MemoryStorage(), ManualClock(), SystemIds()
    if name == "in_process":
        return InProcessLockProvider(InProcessLocks(), clock, ids, table="t")
    if name == "filesystem":
        return FileSystemLockProvider(storage, clock, ids)
    return StorageBasedLockProvider(storage, clock, ids)


@pytest.mark.parametrize("name", ["in_process", "filesystem", "storage"])
def test_n_62_a_lock_of_the_parent_is_lost_to_a_child(name: str) -> None:
    provider = a_provider(name)
    held = provider.acquire(timeout_ms=0)

    def use_it() -> tuple[ErrorKind, str, bool]:
        with pytest.raises(FencedError) as raised:
            held.check()
        held.release()
        is_held = provider.inspect() is not None
        return raised.value.kind, raised.value.message, is_held

    kind, message, is_held = in_a_child(use_it)
    assert kind is ErrorKind.LOCK_LOST
    assert "forked" in message
    assert is_held or name == "in_process", "a child gives up nothing of its parent's"
    held.check()
    held.release()
    assert provider.inspect() is None


def test_n_62_locks_of_the_threads_of_the_parent_do_not_stop_a_child() -> None:
    provider = a_provider("in_process")
    provider.acquire(timeout_ms=0)
    in_a_child(lambda: provider.acquire(timeout_ms=0).check())


def test_n_62_a_child_takes_a_lock_in_its_own_name() -> None:
    provider = a_provider("filesystem")

    def take() -> str:
        provider.acquire(timeout_ms=0)
        holder = provider.inspect()
        assert holder is not None
        return holder.owner

    mine = provider.acquire(timeout_ms=0)
    holder = provider.inspect()
    mine.release()
    assert holder is not None
    assert in_a_child(take) != holder.owner
