"""A write that goes through only if something still holds, looked at under the table lock."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.tables import a_table, trips

import headwater as hw
from headwater.engine.inline import InlineRows
from headwater.errors import ConflictError, ErrorKind
from headwater.model.operation import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.retry import write_with_retries
from headwater.table import Table

ROWS = trips(("a", "sf", 1))
LOCK = {"hoodie.write.lock.provider": "filesystem"}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return a_table(tmp_path).with_options(LOCK).create()


def test_it_is_looked_at_while_nobody_else_can_commit(table: Table) -> None:
    seen = []

    def look() -> None:
        other = hw.open_table(table.uri, LOCK)
        seen.append((other.inspect.locks().num_rows, other.history().num_rows))

    request = WriteRequest(operation=Operation.UPSERT, columns=ROWS.schema, precondition=look)
    write_with_retries(table.context, request, InlineRows(ROWS))

    assert seen == [(1, 0)]
    assert table.inspect.locks().num_rows == 0
    assert table.read_arrow().num_rows == 1


def test_a_write_is_given_up_if_it_does_not_hold(table: Table) -> None:
    def refuse() -> None:
        raise ConflictError("somebody was here", kind=ErrorKind.ALREADY_RUNNING)

    request = WriteRequest(operation=Operation.UPSERT, columns=ROWS.schema, precondition=refuse)
    with pytest.raises(ConflictError, match="somebody was here"):
        write_with_retries(table.context, request, InlineRows(ROWS))

    assert table.read_arrow().num_rows == 0
    assert table.context.load_timeline().pending == ()
    assert table.inspect.locks().num_rows == 0
