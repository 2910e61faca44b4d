"""Logs of writes and services, and that compaction keeps up with writers that never pause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

import headwater as hw
from headwater.config.table_options import TableType
from headwater.engine.inline import InlineRows
from headwater.metadata.view import load_view
from headwater.model.files import LogFile, parse_data_file
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.write import RunningWrite, start_write
from headwater.table import Table

NON_BLOCKING = {
    "hoodie.write.concurrency.mode": "non_blocking_concurrency_control",
    "hoodie.write.lock.provider": "in_process",
    "hoodie.log.compaction.blocks.threshold": "2",
    "headwater.storage.fsync": "false",
}
SCHEMA = pa.schema([("id", pa.string()), ("value", pa.int64())])


def new_table(folder: Path) -> Table:
    return hw.create_table(
        folder / "numbers",
        schema=SCHEMA,
        record_key="id",
        table_type=TableType.MERGE_ON_READ,
        buckets=2,
        options=NON_BLOCKING,
    )


def rows(value: int) -> pa.Table:
    return pa.table({"id": [*"abcdef"], "value": [value] * 6}, schema=SCHEMA)


def logs_in(table: Table) -> list[LogFile]:
    found = (parse_data_file(info.path) for info in table.storage.list_tree(""))
    return [file for file in found if isinstance(file, LogFile)]


def test_inv_58_a_task_writes_one_log_to_a_group_in_an_instant(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for value in range(3):
        table.upsert(rows(value))
    table.delete(pa.table({"id": ["a", "b"]}))
    assert table.services.log_compact() is not None
    logs = logs_in(table)
    assert len(logs) > 4
    assert {log.version for log in logs} == {1}
    named = Counter((log.group, log.instant_time, log.write_token) for log in logs)
    assert max(named.values()) == 1


class Pending:
    """A write that has written its files and is not committed yet."""

    def __init__(self, table: Table, value: int) -> None:
        given = InlineRows(rows(value))
        request = WriteRequest(operation=Operation.UPSERT, columns=given.schema)
        self.running: RunningWrite = start_write(table.context, request)
        self._stats = self.running.run_tasks(given)

    def commit(self) -> None:
        self.running.commit(self._stats)


def unfolded(table: Table) -> Sequence[LogFile]:
    return [log for one in load_view(table.storage, table.config).slices() for log in one.logs]


def test_liv_11_compactions_are_made_though_some_write_is_always_pending(tmp_path: Path) -> None:
    """At no moment is nobody writing, and yet no log stays for longer than one round."""
    table = new_table(tmp_path)
    pending = Pending(table, 0)
    for value in range(1, 4):
        earlier, pending = pending, Pending(table, value)
        earlier.commit()
        committed = {log.instant_time for log in unfolded(table)}
        assert committed == {earlier.running.plan.instant_time}
        assert table.services.compact() is not None
        assert unfolded(table) == []
        assert set(table.read_arrow()["value"].to_pylist()) == {value - 1}
    pending.commit()
    assert set(table.read_arrow()["value"].to_pylist()) == {3}
