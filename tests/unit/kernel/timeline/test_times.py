"""Issuing instant times: INV-40 for any clock."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.kernel.timeline.times import issue_time
from headwater.model.instant import InstantTime, instant_time_at

NOON_MS = 1_704_110_400_000  # 2024-01-01 12:00:00.000 UTC
NOON = InstantTime("20240101120000000")


def test_the_first_time_is_the_clock() -> None:
    assert issue_time(NOON_MS, None, is_utc=True) == NOON


def test_a_clock_ahead_of_everything_known_is_taken() -> None:
    assert issue_time(NOON_MS, InstantTime("20240101115959999"), is_utc=True) == NOON


@pytest.mark.parametrize(
    ("known", "issued"),
    [
        (NOON, "20240101120000001"),
        ("20240101120000999", "20240101120001000"),
        ("20241231235959999", "20250101000000000"),
    ],
)
def test_a_clock_that_is_behind_counts_on_from_what_is_known(known: str, issued: str) -> None:
    assert issue_time(NOON_MS, InstantTime(known), is_utc=True) == issued


@settings(deadline=None)
@given(st.lists(st.integers(-(10**9), 10**9), min_size=2))
def test_times_strictly_increase_under_skew_and_steps_backward(offsets: list[int]) -> None:
    issued: list[InstantTime] = []
    for offset in offsets:
        issued.append(issue_time(NOON_MS + offset, max(issued, default=None), is_utc=True))
    assert all(one < other for one, other in pairwise(issued))


@settings(deadline=None)
@given(st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=20))
def test_a_time_is_never_behind_the_clock_that_issued_it(offsets: list[int]) -> None:
    largest: InstantTime | None = None
    for offset in offsets:
        largest = issue_time(NOON_MS + offset, largest, is_utc=True)
        assert largest >= instant_time_at(NOON_MS + offset)
