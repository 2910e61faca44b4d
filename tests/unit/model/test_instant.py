"""Instants, their states and actions, and arithmetic on instant times."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import ErrorKind, InvalidInputError
from headwater.model.instant import (
    Action,
    Instant,
    InstantTime,
    State,
    instant_time_after,
    instant_time_at,
    parse_instant_time,
)

T = InstantTime("20240101000000000")
YEAR_1_MS = -62_135_596_800_000
YEAR_9999_MS = 253_402_300_799_999


def test_pending_means_requested_or_inflight() -> None:
    assert [state for state in State if state.is_pending] == [State.REQUESTED, State.INFLIGHT]
    assert [Instant(T, Action.CLEAN, state).is_pending for state in State] == [
        state.is_pending for state in State
    ]
    assert [state for state in State if Instant(T, Action.CLEAN, state).is_completed] == [
        State.COMPLETED
    ]


def test_maintenance_completes_under_the_name_of_a_write() -> None:
    renamed = {a: a.completed_name for a in Action if a.completed_name is not a}
    assert renamed == {
        Action.COMPACTION: Action.COMMIT,
        Action.LOG_COMPACTION: Action.DELTA_COMMIT,
        Action.CLUSTERING: Action.REPLACE_COMMIT,
    }


def test_ingestion_brings_rows() -> None:
    assert {action for action in Action if action.is_ingestion} == {
        Action.COMMIT,
        Action.DELTA_COMMIT,
        Action.REPLACE_COMMIT,
    }


def test_an_instant_prints_as_time_action_and_state() -> None:
    assert str(Instant(T, Action.COMPACTION, State.INFLIGHT)) == f"{T}.compaction.inflight"


@pytest.mark.parametrize(
    "text", ["", "2024010100000000", "202401010000000000", "2024010100000000x", f" {T}", f"{T}\n"]
)
def test_an_instant_time_is_17_ascii_digits(text: str) -> None:
    with pytest.raises(InvalidInputError, match="17 digits") as raised:
        parse_instant_time(text)
    assert raised.value.kind is ErrorKind.INVALID_INSTANT_TIME


def test_digits_of_other_scripts_are_no_instant_time() -> None:
    with pytest.raises(InvalidInputError):
        parse_instant_time("\N{ARABIC-INDIC DIGIT TWO}" * 17)


def test_a_valid_instant_time_is_returned_as_it_is() -> None:
    assert parse_instant_time(T) == T


@pytest.fixture
def zone_of_kolkata(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    yield
    monkeypatch.undo()
    assert "TZ" not in os.environ or os.environ["TZ"] != "Asia/Kolkata"
    time.tzset()


@pytest.mark.usefixtures("zone_of_kolkata")
def test_digits_are_utc_or_those_of_the_local_zone() -> None:
    assert instant_time_at(1_704_110_400_007) == "20240101120000007"
    assert instant_time_at(1_704_110_400_007, is_utc=False) == "20240101173000007"


@pytest.mark.parametrize(
    ("time_", "milliseconds", "later"),
    [
        ("20240101000000000", 1, "20240101000000001"),
        ("20240101000000999", 1, "20240101000001000"),
        ("20240101000059999", 1, "20240101000100000"),
        ("20240101235959999", 1, "20240102000000000"),
        ("20240228235959999", 1, "20240229000000000"),
        ("20230228235959999", 1, "20230301000000000"),
        ("20231231235959999", 1, "20240101000000000"),
        ("20240101000000500", 86_400_000, "20240102000000500"),
        # Seconds only, as releases before 0.10 wrote: they count from their first millisecond.
        ("20190101000000", 1, "20190101000000001"),
        ("20190101235959", 1000, "20190102000000000"),
        # The metadata table's bootstrap instants are numbers, not dates.
        ("00000000000000000", 1, "00000000000000001"),
        ("00000000000000009", 1, "00000000000000010"),
        ("00000000000000999", 1, "00000000000001000"),
    ],
)
def test_instant_time_after(time_: str, milliseconds: int, later: str) -> None:
    assert instant_time_after(InstantTime(time_), milliseconds) == later


@settings(deadline=None)
@given(
    st.integers(1000 * (YEAR_1_MS // 1000 + 31_556_952_000), YEAR_9999_MS - 10**12),
    st.integers(1, 10**12),
)
def test_instant_time_after_adds_as_the_clock_does(epoch_ms: int, milliseconds: int) -> None:
    later = instant_time_after(instant_time_at(epoch_ms), milliseconds)
    assert later == instant_time_at(epoch_ms + milliseconds)
    assert later > instant_time_at(epoch_ms)
