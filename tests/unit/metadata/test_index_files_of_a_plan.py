"""Whose files count in the folder of an index, and which of them may be wiped (ADR 14)."""

from __future__ import annotations

import pytest

from headwater.kernel.txn.attempts import Attempt, Purpose
from headwater.kernel.txn.index_births import IndexBirth
from headwater.metadata.indexing import may_be_wiped
from headwater.metadata.partition_files import (
    INITIAL_TOKEN,
    catchup_token,
    is_catchup_log,
    is_of_birth,
)
from headwater.metadata.partition_kinds import file_id
from headwater.model.files import BaseFile, LogFile, write_token
from headwater.model.instant import InstantTime
from headwater.seams.ids import Owner

INDEX = "column_stats"
EARLIER, PLAN, LATER = (InstantTime(f"2026010100000000{n}") for n in (1, 5, 9))
BIRTH = IndexBirth(PLAN, 2)


def attempt(plan: InstantTime, number: int = 1) -> Attempt:
    return Attempt(
        instant=plan,
        attempt=number,
        owner=Owner("host", 1, "id"),
        purpose=Purpose.EXECUTE,
        started_ms=0,
        interval_ms=1,
        tolerable_misses=1,
        token="t",
    )


def log(time: InstantTime, token: str, group: int = 0) -> LogFile:
    return LogFile(INDEX, file_id(INDEX, group), time, 1, token)


def base(time: InstantTime, group: int = 0) -> BaseFile:
    return BaseFile(INDEX, file_id(INDEX, group), write_token(group, 1, 0), time, "hfile")


@pytest.mark.parametrize(
    ("file", "counts"),
    [
        (log(PLAN, INITIAL_TOKEN), True),
        (log(EARLIER, INITIAL_TOKEN), False),
        (log(PLAN, INITIAL_TOKEN, group=2), False),
        (base(PLAN), True),
        (base(LATER), True),
        (base(EARLIER), False),
        (base(LATER, group=2), False),
        # A writer that was at work when the index was planned has an earlier time.
        (log(EARLIER, write_token(0, 1, 0)), True),
        (log(LATER, write_token(0, 1, 0)), True),
        (log(LATER, catchup_token(0, attempt(PLAN))), True),
        (log(LATER, catchup_token(0, attempt(PLAN, 7))), True),
        (log(LATER, catchup_token(0, attempt(EARLIER))), False),
        (log(LATER, catchup_token(0)), False),
    ],
)
def test_files_of_an_earlier_index_of_the_same_name_count_for_nothing(
    file: LogFile | BaseFile, counts: bool
) -> None:
    assert is_of_birth(file, BIRTH) is counts


def test_builders_write_to_names_of_their_own() -> None:
    tokens = [
        catchup_token(0),
        *(catchup_token(0, attempt(plan, n)) for plan in (EARLIER, PLAN) for n in (1, 2)),
    ]
    assert len(set(tokens)) == len(tokens)
    assert all(is_catchup_log(log(LATER, token)) for token in tokens)
    assert all(int(token.rpartition("-")[2]) < 2**31 for token in tokens)
    assert not is_catchup_log(log(LATER, INITIAL_TOKEN))
    assert not is_catchup_log(log(LATER, write_token(0, 1, 0)))


def test_what_a_pending_instant_may_still_write_to_is_not_wiped() -> None:
    pending = {EARLIER}
    folder = ".hoodie/metadata/"
    assert not may_be_wiped(f"{folder}{log(EARLIER, write_token(0, 1, 0)).path}", pending)
    assert may_be_wiped(f"{folder}{log(PLAN, INITIAL_TOKEN).path}", pending)
    assert not may_be_wiped(f"{folder}{INDEX}/.hoodie_partition_metadata", pending)
