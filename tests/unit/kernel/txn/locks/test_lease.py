"""The rules of a held lease, whatever its home."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from tests.support.manual_clock import ManualClock

from headwater.errors import ErrorKind, FencedError, StorageError
from headwater.kernel.txn.locks.lease import Lease
from headwater.seams.lock import LockInfo

LEASE_MS = 1_000
RENEW_MS = 300


def renews_at_once(home: Home) -> int | None:
    return home.clock.monotonic_ms()


def does_not_answer(home: Home) -> int | None:
    raise StorageError("no answer")


@dataclass
class Home:
    """A home in memory that does with a renewal what the test says."""

    clock: ManualClock
    on_renew: Callable[[Home], int | None] = renews_at_once
    is_held: bool = True
    renewals: int = 0
    gives_up: list[StorageError | None] = field(default_factory=list)

    def renew(self, deadline_ms: int | None) -> int | None:
        self.renewals += 1
        return self.on_renew(self)

    def is_mine(self) -> bool:
        return self.is_held

    def give_up(self) -> None:
        failure = self.gives_up.pop() if self.gives_up else None
        if failure is not None:
            raise failure
        self.is_held = False

    def holder(self) -> LockInfo | None:
        return None


def a_lease(home: Home, lease_ms: int = LEASE_MS) -> Lease:
    return Lease(
        home,
        home.clock,
        key="k",
        place="somewhere",
        token=7,
        lease_ms=lease_ms,
        renew_ms=RENEW_MS,
        sent_ms=home.clock.monotonic_ms(),
    )


@pytest.fixture
def home() -> Home:
    return Home(ManualClock())


def test_a_lease_counts_from_before_its_write_was_sent(home: Home) -> None:
    def renews_slowly(home: Home) -> int | None:
        sent_ms = home.clock.monotonic_ms()
        home.clock.advance_ms(100)
        return sent_ms

    home.on_renew = renews_slowly
    lease = a_lease(home)
    home.clock.advance_ms(RENEW_MS + 100)
    with home.clock.timers_stalled():
        home.clock.advance_ms(LEASE_MS - 100 - 1)
        assert not lease.is_lost
        home.clock.advance_ms(1)
        assert lease.is_lost


def test_a_renewal_that_comes_back_after_the_deadline_is_too_late(home: Home) -> None:
    def renews_too_slowly(home: Home) -> int | None:
        sent_ms = home.clock.monotonic_ms()
        home.clock.advance_ms(LEASE_MS)
        return sent_ms

    home.on_renew = renews_too_slowly
    lease = a_lease(home)
    home.clock.advance_ms(RENEW_MS)
    assert lease.is_lost
    assert home.clock.timer_count == 0


def test_a_late_tick_does_not_renew(home: Home) -> None:
    lease = a_lease(home)
    with home.clock.timers_stalled():
        home.clock.advance_ms(LEASE_MS)
    home.clock.advance_ms(1)
    assert home.renewals == 0
    assert lease.is_lost


def test_an_unknown_renewal_leaves_the_deadline_and_is_tried_again(home: Home) -> None:
    home.on_renew = does_not_answer
    lease = a_lease(home)
    home.clock.advance_ms(LEASE_MS - 1)
    assert not lease.is_lost
    assert home.renewals == 3
    home.clock.advance_ms(1)
    assert lease.is_lost


def test_a_renewal_refused_by_the_home_loses_the_lease_at_once(home: Home) -> None:
    home.on_renew = lambda _: None
    lease = a_lease(home)
    home.clock.advance_ms(RENEW_MS)
    assert lease.is_lost
    with pytest.raises(FencedError, match="no longer names this holder"):
        lease.check()


def test_a_lost_lease_is_not_released(home: Home) -> None:
    lease = a_lease(home)
    with home.clock.timers_stalled():
        home.clock.advance_ms(LEASE_MS)
    lease.release()
    assert home.is_held


def test_a_release_that_failed_can_be_repeated(home: Home) -> None:
    home.gives_up = [None, StorageError("no answer")]
    lease = a_lease(home)
    with pytest.raises(StorageError):
        lease.release()
    assert home.is_held
    assert home.clock.timer_count == 0
    lease.release()
    assert not home.is_held


def test_a_released_lease_is_not_lost_when_its_time_runs_out(home: Home) -> None:
    lease = a_lease(home)
    lease.release()
    home.clock.advance_ms(2 * LEASE_MS)
    assert not lease.is_lost


def test_a_lease_of_zero_has_no_deadline_and_is_renewed(home: Home) -> None:
    lease = a_lease(home, lease_ms=0)
    home.clock.advance_ms(100 * LEASE_MS)
    assert home.renewals > 100
    with home.clock.timers_stalled():
        home.clock.advance_ms(100 * LEASE_MS)
        lease.check()


def test_the_error_names_the_lock_and_its_token(home: Home) -> None:
    lease = a_lease(home)
    home.is_held = False
    with pytest.raises(FencedError) as fenced:
        lease.check()
    assert fenced.value.kind is ErrorKind.LOCK_LOST
    assert "'k' at somewhere, taken with token 7" in str(fenced.value)
    assert "Nobody has it now" in str(fenced.value)
