"""Which advice is followed next: rank, budget, back-off, and everybody's turn."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from headwater.model.files import FileGroupId
from headwater.model.instant import InstantTime
from headwater.services.advice.advice import Advice, Need
from headwater.services.auto.agenda import TURN_AFTER, Agenda, Budget, Key, in_turn
from headwater.services.auto.back_off import BackOff

MB = 1024 * 1024
HOT, COLD = FileGroupId("p", "hot"), FileGroupId("p", "cold")


def piece(need: Need, gain_mb: int = 10, cost_mb: int = 0, plan: str | None = None) -> Advice:
    instant = None if plan is None else InstantTime(plan)
    return Advice(
        need=need,
        call="",
        why="",
        gain_bytes=gain_mb * MB,
        cost_bytes=cost_mb * MB,
        instant=instant,
    )


def one_round(agenda: Agenda, *advice: Advice, now_ms: int = 0, takes_ms: int = 0) -> list[Need]:
    """Follow advice that is the same whatever was done; return what was, in order."""
    done = []
    agenda.begin_round(now_ms)
    while (chosen := agenda.next_piece(advice, now_ms)) is not None:
        done.append(chosen.need)
        agenda.spend(chosen.cost_bytes)
        now_ms += takes_ms
    agenda.end_round()
    return done


def test_a_round_follows_each_piece_once_the_best_first() -> None:
    advice = [piece(Need.LOGS), piece(Need.SMALL_FILES), piece(Need.LONG_TIMELINE)]
    assert one_round(Agenda(Budget()), *advice) == [
        Need.LOGS,
        Need.SMALL_FILES,
        Need.LONG_TIMELINE,
    ]


def test_of_waiting_plans_each_is_a_piece_of_its_own() -> None:
    plans = [piece(Need.WAITING_PLAN, plan="1"), piece(Need.WAITING_PLAN, plan="2")]
    assert len(one_round(Agenda(Budget()), *plans)) == 2


def test_what_people_have_to_do_is_left_to_them() -> None:
    assert one_round(Agenda(Budget()), piece(Need.EXPIRED_LOCK)) == []


# Budget.


def test_no_piece_begins_after_the_seconds_of_a_round_but_the_first() -> None:
    advice = [piece(Need.LOGS), piece(Need.SMALL_FILES), piece(Need.LONG_TIMELINE)]
    assert one_round(Agenda(Budget(seconds=2)), *advice, takes_ms=1_500) == [
        Need.LOGS,
        Need.SMALL_FILES,
    ]
    assert one_round(Agenda(Budget(seconds=0)), *advice, takes_ms=1_500) == [Need.LOGS]


def test_a_piece_that_is_not_paid_for_is_passed_over_for_one_that_is() -> None:
    advice = [
        piece(Need.LOGS, cost_mb=8),
        piece(Need.SMALL_FILES, cost_mb=8),
        piece(Need.MANY_LOGS),
    ]
    done = one_round(Agenda(Budget(bytes=10 * MB)), *advice)
    assert done == [Need.LOGS, Need.MANY_LOGS]


def test_advice_is_asked_for_within_what_is_left() -> None:
    agenda = Agenda(Budget(bytes=10 * MB))
    agenda.begin_round(0)
    assert agenda.scope(0).bytes_max == 10 * MB
    agenda.spend(7 * MB)
    assert agenda.scope(0).bytes_max == 3 * MB
    assert agenda.scope(0).is_cold_first
    assert Agenda(Budget()).scope(0).bytes_max is None


def test_what_costs_more_than_a_budget_has_its_turn_and_later_rounds_pay_for_it() -> None:
    agenda = Agenda(Budget(bytes=10 * MB))
    large, small = piece(Need.LOGS, cost_mb=25), piece(Need.SMALL_FILES, cost_mb=5)
    rounds = [one_round(agenda, large, small) for _ in range(TURN_AFTER + 4)]
    assert rounds[:TURN_AFTER] == [[Need.SMALL_FILES]] * TURN_AFTER
    assert rounds[TURN_AFTER] == [Need.LOGS]
    # It spent 25 of 10: the next round has nothing, the one after it half.
    assert rounds[TURN_AFTER + 1 : TURN_AFTER + 3] == [[], [Need.SMALL_FILES]]


def test_of_two_that_cost_more_than_a_budget_one_goes_at_a_time() -> None:
    agenda = Agenda(Budget(bytes=10 * MB))
    large = [piece(Need.LOGS, cost_mb=11), piece(Need.SMALL_FILES, cost_mb=11)]
    rounds = [one_round(agenda, *large) for _ in range(TURN_AFTER + 3)]
    assert rounds[TURN_AFTER:] == [[Need.LOGS], [], [Need.SMALL_FILES]]


# Everybody's turn.


def test_what_had_to_stand_back_goes_first_and_nothing_starves() -> None:
    """A budget for one piece a round, and five needs that are there again every time."""
    agenda = Agenda(Budget(seconds=1))
    advice = [
        piece(Need.LOGS),
        piece(Need.MANY_LOGS),
        piece(Need.SMALL_FILES),
        piece(Need.OBSOLETE_FILES),
        piece(Need.LONG_TIMELINE),
    ]
    rounds = 100
    done = [one_round(agenda, *advice, takes_ms=2_000)[0] for _ in range(rounds)]
    times = Counter(done)
    assert times.keys() == {one.need for one in advice}
    for need in times:
        places = [-1, *(place for place, one in enumerate(done) if one is need), rounds]
        longest = max(b - a for a, b in pairwise(places))
        assert longest <= TURN_AFTER + len(advice), f"{need} waited {longest} rounds"
    assert done[:TURN_AFTER] == [Need.LOGS] * TURN_AFTER, "the best is still the first"


def test_the_longest_wait_goes_before_a_shorter_one_and_a_short_one_has_no_turn_yet() -> None:
    best, short, long, longest = map(
        piece, (Need.LOGS, Need.SMALL_FILES, Need.OBSOLETE_FILES, Need.LONG_TIMELINE)
    )
    waited: dict[Key, int] = {
        (Need.SMALL_FILES, None): TURN_AFTER - 1,
        (Need.OBSOLETE_FILES, None): TURN_AFTER,
        (Need.LONG_TIMELINE, None): TURN_AFTER + 2,
    }
    assert in_turn([best, short, long, longest], waited) == [longest, long, best, short]


def test_who_is_not_asked_for_any_more_loses_its_place() -> None:
    agenda = Agenda(Budget(seconds=1))
    best, other = piece(Need.LOGS), piece(Need.LONG_TIMELINE)
    for _ in range(TURN_AFTER):
        one_round(agenda, best, other, takes_ms=2_000)
    one_round(agenda, best, takes_ms=2_000)
    assert one_round(agenda, best, other, takes_ms=2_000) == [Need.LOGS]


# Back-off.


def test_each_time_doubles_the_pause_up_to_the_longest() -> None:
    back_off = BackOff(first_ms=10, longest_ms=50)
    pauses = []
    now_ms = 0
    for _ in range(5):
        back_off.note(Need.SMALL_FILES, [HOT], now_ms)
        began_ms = now_ms
        while back_off.avoided(now_ms):
            now_ms += 1
        pauses.append(now_ms - began_ms)
    assert pauses == [10, 20, 40, 50, 50]


def test_file_groups_are_left_alone_one_by_one_and_kinds_of_work_too() -> None:
    back_off = BackOff()
    back_off.note(Need.SMALL_FILES, [HOT], 0)
    assert back_off.avoided(1) == {Need.SMALL_FILES: {HOT}}
    assert not back_off.is_resting(Need.SMALL_FILES, None, 1)
    back_off.note(Need.LONG_TIMELINE, [None], 0)
    assert back_off.is_resting(Need.LONG_TIMELINE, None, 1)
    assert back_off.avoided(1).keys() == {Need.SMALL_FILES}


def test_both_kinds_of_clustering_are_left_alone_together() -> None:
    back_off = BackOff()
    back_off.note(Need.UNSORTED, [None], 0)
    assert back_off.is_resting(Need.SMALL_FILES, None, 1)


def test_success_forgets_and_so_does_time() -> None:
    back_off = BackOff(first_ms=10, longest_ms=1_000)
    back_off.note(Need.SMALL_FILES, [HOT, COLD], 0)
    back_off.forget(Need.SMALL_FILES, [COLD])
    assert back_off.avoided(1) == {Need.SMALL_FILES: {HOT}}
    back_off.note(Need.SMALL_FILES, [HOT], 2_000)
    assert not back_off.avoided(2_010), "after so long it is a first time again"


def test_what_is_backing_off_is_not_followed_and_then_is() -> None:
    agenda = Agenda(Budget(), BackOff(first_ms=1_000))
    failed, plan = piece(Need.LONG_TIMELINE), piece(Need.WAITING_PLAN, plan="1")
    agenda.back_off.note(Need.LONG_TIMELINE, [None], 0)
    agenda.back_off.note(Need.WAITING_PLAN, [InstantTime("1")], 0)
    other = piece(Need.WAITING_PLAN, plan="2")
    assert one_round(agenda, failed, plan, other, now_ms=500) == [Need.WAITING_PLAN]
    assert len(one_round(agenda, failed, plan, other, now_ms=1_000)) == 3
