"""Virtual time."""

from __future__ import annotations

from tests.support.manual_clock import EPOCH_MS, ManualClock


def test_sleeping_moves_both_clocks() -> None:
    clock = ManualClock()
    clock.sleep_ms(5)
    assert (clock.now_ms(), clock.monotonic_ms()) == (EPOCH_MS + 5, 5)


def test_a_step_moves_the_wall_clock_only() -> None:
    clock = ManualClock()
    clock.step_wall_ms(-7)
    assert (clock.now_ms(), clock.monotonic_ms()) == (EPOCH_MS - 7, 0)


def test_a_skewed_clock_shares_the_time_line() -> None:
    clock = ManualClock()
    skewed = clock.with_wall_ahead_ms(100)
    skewed.sleep_ms(5)
    assert clock.monotonic_ms() == skewed.monotonic_ms() == 5
    assert skewed.now_ms() == clock.now_ms() + 100


def test_timers_fire_in_the_order_they_are_due() -> None:
    clock = ManualClock()
    fired: list[tuple[str, int]] = []

    def note(name: str) -> bool:
        fired.append((name, clock.monotonic_ms()))
        return True

    clock.every_ms(30, lambda: note("slow"), "slow")
    clock.every_ms(20, lambda: note("fast"), "fast")
    clock.advance_ms(65)
    assert fired == [("fast", 20), ("slow", 30), ("fast", 40), ("slow", 60), ("fast", 60)]
    assert clock.monotonic_ms() == 65


def test_a_timer_ends_when_its_call_says_so_or_when_it_is_cancelled() -> None:
    clock = ManualClock()
    fired: list[str] = []

    def note(name: str, *, goes_on: bool) -> bool:
        fired.append(name)
        return goes_on

    clock.every_ms(10, lambda: note("once", goes_on=False), "once")
    cancelled = clock.every_ms(10, lambda: note("never", goes_on=True), "never")
    cancelled.cancel()
    clock.advance_ms(50)
    assert fired == ["once"]
    assert clock.timer_count == 0


def test_stalled_timers_fire_late_and_once() -> None:
    clock = ManualClock()
    fired: list[int] = []

    def note() -> bool:
        fired.append(clock.monotonic_ms())
        return True

    clock.every_ms(10, note, "timer")
    with clock.timers_stalled():
        clock.advance_ms(35)
    assert fired == []
    clock.advance_ms(1)
    assert fired == [35]


def test_a_timer_that_takes_time_delays_its_next_call() -> None:
    clock = ManualClock()
    fired: list[int] = []

    def slow() -> bool:
        fired.append(clock.monotonic_ms())
        clock.sleep_ms(25)
        return True

    clock.every_ms(10, slow, "slow")
    clock.advance_ms(50)
    assert fired == [10, 45]
