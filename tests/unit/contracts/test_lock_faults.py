"""What lost replies, outages and races do to the locks that live in storage.

Each test runs an operation again and again and hurts it at its first, second, ... call to the
store, until the operation makes no more calls, so no call is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from typing import TypeVar

import pytest
from tests.support.manual_clock import ManualClock
from tests.support.memory_storage import MemoryStorage

from headwater.errors import (
    AlreadyExistsError,
    ConflictError,
    ErrorKind,
    FencedError,
    Retry,
    StorageError,
)
from headwater.kernel.txn.locks.file_system import FileSystemLockProvider
from headwater.kernel.txn.locks.lease import Lease
from headwater.kernel.txn.locks.storage_based import StorageBasedLockProvider
from headwater.seams.ids import SystemIds
from headwater.seams.lock import LockProvider
from headwater.seams.storage import ObjectInfo

LEASE_MS = 30_000
RENEW_MS = 3_000
LOCK = ".hoodie/lock"
CALL_COUNT_MAX = 60  # No operation makes nearly as many; a loop that gets here never ends.

T = TypeVar("T")


class Fault(Enum):
    NOT_APPLIED = auto()
    REPLY_LOST = auto()
    LANDS_LATER = auto()  # When the test calls `land`.


class FaultyStorage(MemoryStorage):
    """A store that fails at chosen calls, or lets something else happen before them."""

    def __init__(self, clock: ManualClock, *, can_replace: bool) -> None:
        super().__init__(clock=clock)
        self._has_replace = can_replace
        self._countdown = 0
        self._counts_reads = True
        self._before: Callable[[], None] = lambda: None
        self._late: list[Callable[[], object]] = []
        self._fault: Fault | None = None
        self._is_out = False
        self._more_failures = 0
        self.has_hit = False  # Whether the chosen call was made.

    @property
    def can_replace(self) -> bool:
        return self._has_replace

    def fail_at(
        self, call: int, fault: Fault, *, count_reads: bool = True, more_failures: int = 0
    ) -> None:
        """Fail the chosen call, counting all calls or writes only, and some more after it."""
        self._countdown, self._fault, self._counts_reads = call, fault, count_reads
        self._more_failures = more_failures

    def land(self) -> None:
        """Let what was held back take effect, if it still can."""
        while self._late:
            with suppress(AlreadyExistsError, ConflictError):
                self._late.pop()()

    def interrupt_at(self, call: int, before: Callable[[], None]) -> None:
        self._countdown, self._fault, self._counts_reads = call, None, True
        self._before = before

    def go_out_at(self, call: int) -> None:
        """Answer nothing from this call on, until `recover`."""

        def go_out() -> None:
            self._is_out = True

        self.interrupt_at(call, go_out)

    def recover(self) -> None:
        """Work again."""
        self._countdown, self._more_failures, self._is_out = 0, 0, False

    def _call(self, call: Callable[[], T], *, is_read: bool = False) -> T:
        if self.has_hit and self._more_failures > 0:
            self._more_failures -= 1
            raise StorageError("no answer")
        is_counted = self._counts_reads or not is_read
        is_hit = is_counted and self._countdown == 1
        self.has_hit |= is_hit
        if is_counted:
            self._countdown = max(self._countdown - 1, 0)
        if is_hit and self._fault is None:
            self._before()
        if is_hit and self._fault is Fault.LANDS_LATER:
            self._late.append(call)
        if self._is_out or (is_hit and self._fault in (Fault.NOT_APPLIED, Fault.LANDS_LATER)):
            raise StorageError("no answer")
        result = call()
        if is_hit and self._fault is Fault.REPLY_LOST:
            raise StorageError("the reply was lost")
        return result

    def read(self, path: str) -> bytes:
        return self._call(lambda: super(FaultyStorage, self).read(path), is_read=True)

    def info(self, path: str) -> ObjectInfo:
        return self._call(lambda: super(FaultyStorage, self).info(path), is_read=True)

    def put(self, path: str, data: bytes) -> None:
        self._call(lambda: super(FaultyStorage, self).put(path, data))

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._call(lambda: super(FaultyStorage, self).put_if_absent(path, data))

    def replace(self, path: str, data: bytes, *, version: str) -> str:
        return self._call(lambda: super(FaultyStorage, self).replace(path, data, version=version))

    def delete(self, path: str) -> None:
        self._call(lambda: super(FaultyStorage, self).delete(path))


class World:
    """A store and the processes that use it, on one time line."""

    def __init__(self, kind: str) -> None:
        self.clock = ManualClock()
        self.storage = FaultyStorage(self.clock, can_replace=kind != "filesystem-without-replace")
        self._kind = kind

    def process(self) -> LockProvider:
        if self._kind == "storage":
            return StorageBasedLockProvider(
                self.storage, self.clock, SystemIds(), validity_ms=LEASE_MS, renew_ms=RENEW_MS
            )
        return FileSystemLockProvider(
            self.storage, self.clock, SystemIds(), expire_ms=LEASE_MS, renew_ms=RENEW_MS
        )

    def watcher(self) -> LockProvider:
        """A process that has seen for a whole lease that the lock does not change."""
        provider = self.process()
        provider.inspect()
        self.clock.advance_ms(2 * LEASE_MS)
        return provider

    def used_lock(self) -> int:
        """Take and release the lock once, so that nothing is new; return the token."""
        held = self.process().acquire(timeout_ms=0)
        held.release()
        return held.token

    def dead_lock(self) -> int:
        """Leave a lock whose holder is gone and whose lease has run out; return the token."""
        token = self.process().acquire(timeout_ms=0).token
        with self.clock.timers_stalled():
            self.clock.advance_ms(2 * LEASE_MS)
        self.clock.advance_ms(RENEW_MS)
        assert self.clock.timer_count == 0
        return token

    def nothing(self) -> int:
        return 0


KINDS = ("filesystem", "filesystem-without-replace", "storage")
STATES = ("nothing", "used_lock", "dead_lock")


def each_call(kind: str, state: str) -> Iterator[tuple[World, int, int]]:
    """Yield a fresh world, the last token in it, and the number of the call to hurt: 1, 2, ...

    The test hurts one operation and lets the store recover right after it.
    """
    for call in range(1, CALL_COUNT_MAX):
        world = World(kind)
        token: int = getattr(world, state)()
        yield world, token, call
        if not world.storage.has_hit:
            assert call > 1, "the operation made no call at all"
            return
    raise AssertionError("the operation never ends")


def assert_works(world: World, last_token: int) -> None:
    """Whatever happened, the lock goes on to work once what is left of it has expired."""
    first = world.process().acquire(timeout_ms=3 * LEASE_MS)
    assert first.token > last_token
    with pytest.raises(ConflictError):
        world.process().acquire(timeout_ms=2 * LEASE_MS)
    first.check()
    first.release()
    second = world.process().acquire(timeout_ms=0)
    assert second.token > first.token
    second.release()
    assert world.process().inspect() is None
    assert world.clock.timer_count == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", [Fault.NOT_APPLIED, Fault.REPLY_LOST])
class TestErrors:
    @pytest.mark.parametrize("state", STATES)
    @pytest.mark.some(9)
    def test_during_acquire(self, kind: str, state: str, fault: Fault) -> None:
        for world, last_token, call in each_call(kind, state):
            provider = world.watcher()
            world.storage.fail_at(call, fault)
            held = provider.acquire(timeout_ms=3 * LEASE_MS)
            world.storage.recover()
            assert held.token == last_token + 1
            held.check()
            with pytest.raises(ConflictError):
                world.process().acquire(timeout_ms=2 * LEASE_MS)
            held.check()
            held.release()
            assert_works(world, held.token)

    def test_during_renewal(self, kind: str, fault: Fault) -> None:
        for world, _, call in each_call(kind, "used_lock"):
            held = world.process().acquire(timeout_ms=0)
            world.storage.fail_at(call, fault)
            world.clock.advance_ms(RENEW_MS)
            world.storage.recover()
            world.clock.advance_ms(2 * LEASE_MS)
            held.check()
            with pytest.raises(ConflictError):
                world.process().acquire(timeout_ms=2 * LEASE_MS)
            held.check()
            held.release()
            assert_works(world, held.token)

    def test_during_release(self, kind: str, fault: Fault) -> None:
        for world, _, call in each_call(kind, "used_lock"):
            held = world.process().acquire(timeout_ms=0)
            world.storage.fail_at(call, fault)
            try:
                held.release()
            except StorageError:
                held.release()
            world.storage.recover()
            assert world.process().inspect() is None
            held.release()
            assert_works(world, held.token)

    def test_during_break(self, kind: str, fault: Fault) -> None:
        for world, last_token, call in each_call(kind, "dead_lock"):
            observer = world.watcher()
            world.storage.fail_at(call, fault)
            try:
                observer.break_expired()
            except StorageError:
                observer.break_expired()
            world.storage.recover()
            assert_works(world, last_token)


@pytest.mark.parametrize("kind", KINDS)
class TestLostReplies:
    """A write that landed counts, although the store answered with an error (M4)."""

    @pytest.mark.parametrize("state", STATES)
    def test_a_lock_whose_caller_gave_up_is_freed(self, kind: str, state: str) -> None:
        for world, last_token, call in each_call(kind, state):
            provider = world.watcher()
            # The reply is lost and reading back fails as well; after that the store is well.
            world.storage.fail_at(call, Fault.REPLY_LOST, count_reads=False, more_failures=1)
            with suppress(StorageError):
                provider.acquire(timeout_ms=0).release()
            world.storage.recover()
            found = world.process().inspect()
            assert found is None or found.token == last_token
            assert_works(world, last_token)

    def test_a_lock_that_was_broken_before_its_caller_knew_of_it(self, kind: str) -> None:
        world = World(kind)
        world.used_lock()
        provider = world.watcher()
        world.storage.fail_at(1, Fault.REPLY_LOST, count_reads=False, more_failures=1_000_000)

        def recover_and_break() -> bool:
            world.storage.recover()
            world.process().break_expired()
            return False

        world.clock.every_ms(2 * LEASE_MS, recover_and_break, "an operator")
        held = provider.acquire(timeout_ms=5 * LEASE_MS)
        held.check()
        held.release()
        assert_works(world, held.token)

    @pytest.mark.parametrize("state", STATES)
    def test_acquire_needs_no_second_try(self, kind: str, state: str) -> None:
        for world, last_token, call in each_call(kind, state):
            provider = world.watcher()
            world.storage.fail_at(call, Fault.REPLY_LOST, count_reads=False)
            try:
                held = provider.acquire(timeout_ms=0)
            except StorageError:
                # Removing an expired lock is the one write whose effect cannot be told apart from
                # another's; the next try finds the lock free.
                assert (kind, state) == ("filesystem-without-replace", "dead_lock")
                continue
            finally:
                world.storage.recover()
            held.check()
            assert held.token == last_token + 1

    def test_a_renewal_counts_from_when_it_was_sent(self, kind: str) -> None:
        world = World(kind)
        held = world.process().acquire(timeout_ms=0)
        world.storage.fail_at(1, Fault.REPLY_LOST, count_reads=False)
        world.clock.advance_ms(RENEW_MS)
        assert world.storage.has_hit
        with world.clock.timers_stalled():
            world.clock.advance_ms(LEASE_MS - 1)
            held.check()
            world.clock.advance_ms(1)
            with pytest.raises(FencedError):
                held.check()

    def test_a_renewal_that_did_not_land_does_not_count(self, kind: str) -> None:
        world = World(kind)
        held = world.process().acquire(timeout_ms=0)
        world.storage.fail_at(1, Fault.NOT_APPLIED, count_reads=False)
        world.clock.advance_ms(RENEW_MS)
        assert world.storage.has_hit
        with world.clock.timers_stalled():
            world.clock.advance_ms(LEASE_MS - RENEW_MS - 1)
            held.check()
            world.clock.advance_ms(1)
            with pytest.raises(FencedError):
                held.check()


@pytest.mark.parametrize("kind", ["filesystem", "storage"])
class TestLateLandings:
    """Conditional writes that land late (F4) do no harm once something else was written."""

    def test_a_renewal_that_lands_during_the_next_one(self, kind: str) -> None:
        world = World(kind)
        held = world.process().acquire(timeout_ms=0)
        world.storage.fail_at(1, Fault.LANDS_LATER, count_reads=False)
        world.clock.advance_ms(RENEW_MS)
        world.storage.interrupt_at(2, world.storage.land)
        world.clock.advance_ms(RENEW_MS)
        world.clock.advance_ms(2 * LEASE_MS)
        held.check()
        held.release()
        assert_works(world, held.token)

    def test_a_renewal_that_lands_after_the_release(self, kind: str) -> None:
        world = World(kind)
        held = world.process().acquire(timeout_ms=0)
        world.storage.fail_at(1, Fault.LANDS_LATER, count_reads=False)
        world.clock.advance_ms(RENEW_MS)
        held.release()
        world.storage.land()
        assert world.process().inspect() is None

    def test_a_taking_that_lands_under_a_holder(self, kind: str) -> None:
        world = World(kind)
        world.dead_lock()
        first, second = world.watcher(), world.watcher()
        world.storage.fail_at(1, Fault.LANDS_LATER, count_reads=False)
        with pytest.raises(StorageError):
            first.acquire(timeout_ms=0)
        held = second.acquire(timeout_ms=0)
        world.storage.land()
        held.check()


@pytest.mark.parametrize("kind", KINDS)
class TestOutages:
    @pytest.mark.parametrize("state", STATES)
    @pytest.mark.some(4)
    def test_acquire_fails_and_leaves_nothing_that_lasts(self, kind: str, state: str) -> None:
        for world, last_token, call in each_call(kind, state):
            provider = world.watcher()
            world.storage.go_out_at(call)
            try:
                provider.acquire(timeout_ms=RENEW_MS).release()
            except StorageError:
                assert world.clock.timer_count == 0
            world.storage.recover()
            assert_works(world, last_token)

    def test_a_holder_cut_off_for_a_lease_is_lost_before_another_gets_the_lock(
        self, kind: str
    ) -> None:
        world = World(kind)
        held = world.process().acquire(timeout_ms=0)
        assert isinstance(held, Lease)
        world.storage.go_out_at(1)
        world.clock.advance_ms(LEASE_MS)
        assert held.is_lost
        with pytest.raises(FencedError, match="not known"):
            held.check()
        world.storage.recover()
        assert_works(world, held.token)

    def test_a_short_outage_does_not_lose_the_lock(self, kind: str) -> None:
        world = World(kind)
        held = world.process().acquire(timeout_ms=0)
        world.storage.go_out_at(1)
        world.clock.advance_ms(LEASE_MS - 2 * RENEW_MS)
        with pytest.raises(StorageError):
            held.check()
        world.storage.recover()
        world.clock.advance_ms(4 * LEASE_MS)
        held.check()

    def test_denied_access_is_not_tried_again(self, kind: str) -> None:
        world = World(kind)
        calls = 0

        def deny() -> None:
            nonlocal calls
            calls += 1
            raise StorageError("denied", kind=ErrorKind.STORAGE_DENIED, retry=Retry.NEVER)

        world.storage.interrupt_at(1, deny)
        before_ms = world.clock.monotonic_ms()
        with pytest.raises(StorageError, match="denied"):
            world.process().acquire(timeout_ms=LEASE_MS)
        assert calls == 1
        assert world.clock.monotonic_ms() == before_ms


@pytest.mark.parametrize("kind", ["filesystem", "filesystem-without-replace"])
@pytest.mark.parametrize("state", STATES)
def test_a_lock_file_deleted_while_it_is_taken_is_not_handed_out(kind: str, state: str) -> None:
    """A client of stock Hudi deletes the file whenever it closes."""
    for world, last_token, call in each_call(kind, state):
        provider = world.watcher()
        world.storage.interrupt_at(call, partial(world.storage.delete, LOCK))
        held = provider.acquire(timeout_ms=LEASE_MS)
        world.storage.recover()
        held.check()
        assert held.token > last_token
        held.release()


class Racer:
    """A process that may take an expired lock over."""

    def __init__(self, world: World) -> None:
        self._provider = world.watcher()
        self.held: Lease | None = None

    def try_thrice(self) -> None:
        """Try three times: the first may only clear the way for the second."""
        for _ in range(3):
            if self.held is None:
                self.try_once()

    def try_once(self) -> None:
        try:
            held = self._provider.acquire(timeout_ms=0)
        except ConflictError:
            return
        assert isinstance(held, Lease)
        self.held = held


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("state", STATES)
class TestRaces:
    """Another process acts in full before each single call of this one."""

    def test_l1_one_of_two_gets_the_lock(self, kind: str, state: str) -> None:
        for world, last_token, call in each_call(kind, state):
            one, other = Racer(world), Racer(world)
            world.storage.interrupt_at(call, other.try_thrice)
            one.try_once()
            world.storage.recover()
            (held,) = [racer.held for racer in (one, other) if racer.held is not None]
            held.check()
            assert held.token > last_token
            held.release()
            assert_works(world, held.token)

    def test_l2_tokens_grow_when_another_takes_and_releases(self, kind: str, state: str) -> None:
        for world, last_token, call in each_call(kind, state):
            one, other = Racer(world), Racer(world)

            def take_and_release(other: Racer = other) -> None:
                other.try_thrice()
                if other.held is not None:
                    other.held.release()

            world.storage.interrupt_at(call, take_and_release)
            one.try_once()
            world.storage.recover()
            tokens = [last_token]
            tokens += [racer.held.token for racer in (other, one) if racer.held is not None]
            assert tokens == sorted(set(tokens))
            assert len(tokens) > 1
            if one.held is not None:
                one.held.check()
                one.held.release()
            assert_works(world, max(tokens))
