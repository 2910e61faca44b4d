"""Whose files count in the folder of an index, and which of them may be wiped (ADR 14)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.tables import FENCED, MOR, a_table

from headwater.kernel.layout import METADATA
from headwater.kernel.txn.attempts import Attempt, Purpose
from headwater.kernel.txn.index_births import IndexBirth
from headwater.metadata.indexing import may_be_wiped
from headwater.metadata.partition_files import (
    INITIAL_TOKEN,
    catchup_token,
    is_catchup_log,
    is_of_birth,
    is_of_earlier_plan,
)
from headwater.metadata.partition_kinds import file_id
from headwater.metadata.table import list_own_files
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
    is_of_a_group_too_many = int(file.file_id.split("-")[-2]) >= BIRTH.group_count
    assert counts or is_of_a_group_too_many or is_of_earlier_plan(file, BIRTH)


def test_groups_that_an_index_does_not_have_are_of_an_earlier_plan_or_of_one_to_come() -> None:
    assert is_of_earlier_plan(log(EARLIER, INITIAL_TOKEN, group=2), BIRTH)
    assert not is_of_earlier_plan(log(LATER, INITIAL_TOKEN, group=2), BIRTH)


def test_what_came_late_from_an_earlier_plan_is_deleted_by_the_services(tmp_path: Path) -> None:
    """Other engines would count it (N-149)."""
    table = a_table(tmp_path, "id string, value long", table_type=MOR, options=FENCED).create()

    def write(number: int) -> None:
        table.upsert(pa.table({"id": ["a"], "value": [number]}))

    write(0)
    table.indexes.create(INDEX, columns=["value"])
    (born,) = {file.instant_time for file in list_own_files(table.storage, INDEX)}
    table.indexes.drop(INDEX)
    table.indexes.create(INDEX, columns=["value"])
    write(1)
    (done,) = (i.requested_time for i in table.context.load_timeline().completed[-1:])
    late: list[LogFile | BaseFile] = [
        log(born, INITIAL_TOKEN, group=1),
        log(done, catchup_token(0, attempt(born))),
        base(born),
    ]
    for file in late:
        table.storage.put_if_absent(f"{METADATA}/{file.path}", b"late")
    to_come = log(InstantTime("9" * 17), INITIAL_TOKEN, group=1)
    table.storage.put_if_absent(f"{METADATA}/{to_come.path}", b"to come")
    for number in range(2, 14):
        write(number)
    left = {file.path for file in list_own_files(table.storage)}
    assert left.isdisjoint(file.path for file in late)
    assert to_come.path in left
    assert not table.inspect.validate_metadata().to_pylist()


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
