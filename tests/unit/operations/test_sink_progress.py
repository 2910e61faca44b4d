"""Which batches of a streaming query a table has."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headwater import Table, create_table
from headwater.context import TableContext
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.sink_progress import (
    encode_progress,
    load_newest_batch,
    load_saved_attempt,
    save_attempt,
)
from headwater.operations.write import start_write

ROWS = pa.table({"n": [1]})


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return create_table(tmp_path / "events", schema=ROWS.schema)


def target_of(table: Table) -> TableContext:
    return table.context


def commit(table: Table, extra_metadata: dict[str, str]) -> None:
    request = WriteRequest(operation=Operation.INSERT, columns=ROWS.schema)
    start_write(target_of(table), request).commit([], extra_metadata)


def newest(table: Table, sink: str) -> int | None:
    return load_newest_batch(table.storage, table.config, sink)


def test_every_sink_has_its_own_batches(table: Table) -> None:
    assert newest(table, "one") is None
    commit(table, encode_progress("one", 0))
    commit(table, encode_progress("two", 7))
    commit(table, encode_progress("one", 1))
    table.insert(ROWS)

    assert newest(table, "one") == 1
    assert newest(table, "two") == 7
    assert newest(table, "three") is None


def test_a_sink_is_found_behind_many_commits_of_others(table: Table) -> None:
    commit(table, encode_progress("one", 3))
    for _ in range(25):
        commit(table, {})
    assert newest(table, "one") == 3


@pytest.mark.parametrize("text", ["", "not json", "[]", '{"one": "many"}', '"one"'])
def test_what_others_wrote_under_the_key_is_no_batch(table: Table, text: str) -> None:
    commit(table, encode_progress("one", 2))
    commit(table, {"_hudi_streaming_sink_checkpoint": text})
    assert newest(table, "one") == 2


def test_the_attempt_that_a_sink_has_begun_is_found_again(table: Table) -> None:
    assert load_saved_attempt(table.storage, "a/b ..") is None
    request = WriteRequest(operation=Operation.INSERT, columns=ROWS.schema)
    planned = start_write(target_of(table), request).hand_over()
    save_attempt(table.storage, "a/b ..", planned.attempt)

    assert load_saved_attempt(table.storage, "a/b ..") == planned.attempt
    assert load_saved_attempt(table.storage, "a") is None
