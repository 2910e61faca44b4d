"""H-26: how long something has not changed, on the observer's own clock."""

from __future__ import annotations

from tests.support.manual_clock import ManualClock

from headwater.kernel.txn.locks.unchanged import Unchanged


def test_it_counts_from_the_first_look() -> None:
    clock = ManualClock()
    unchanged = Unchanged(clock)
    assert unchanged.seen_ms("p", b"a") == 0
    clock.advance_ms(5)
    clock.step_wall_ms(1_000)
    assert unchanged.seen_ms("p", b"a") == 5


def test_a_change_starts_anew() -> None:
    clock = ManualClock()
    unchanged = Unchanged(clock)
    unchanged.seen_ms("p", b"a")
    clock.advance_ms(5)
    assert unchanged.seen_ms("p", b"b") == 0
    clock.advance_ms(3)
    assert unchanged.seen_ms("p", b"b") == 3


def test_paths_are_told_apart() -> None:
    clock = ManualClock()
    unchanged = Unchanged(clock)
    unchanged.seen_ms("p", b"a")
    clock.advance_ms(5)
    assert unchanged.seen_ms("q", b"a") == 0


def test_what_is_forgotten_starts_anew() -> None:
    clock = ManualClock()
    unchanged = Unchanged(clock)
    unchanged.seen_ms("p", b"a")
    clock.advance_ms(5)
    unchanged.forget("p")
    assert unchanged.seen_ms("p", b"a") == 0


def test_empty_content_counts_too() -> None:
    clock = ManualClock()
    unchanged = Unchanged(clock)
    unchanged.seen_ms("p", b"")
    clock.advance_ms(5)
    assert unchanged.seen_ms("p", b"") == 5
