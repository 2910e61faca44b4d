"""Whole writes that find out early: who detects, what is left behind, and how they go on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.tables import NUMBERS, a_table, numbers

from headwater import Table, open_table
from headwater.context import TableContext
from headwater.engine.engine import TaskContext
from headwater.engine.inline import InlineRows
from headwater.errors import EarlyConflictError, ErrorKind
from headwater.kernel.layout import ATTEMPTS
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.tasks.execute import execute_write
from headwater.operations.write import RunningWrite, start_write

MODE = "hoodie.write.concurrency.mode"
OPTIMISTIC = "optimistic_concurrency_control"
RETRIES = "hoodie.write.num.retries.on.conflict.failures"
ENABLED = "hoodie.write.concurrency.early.conflict.detection.enable"
OPTIONS = {MODE: OPTIMISTIC, "hoodie.write.lock.provider": "filesystem"}
ONCE = {**OPTIONS, RETRIES: "0"}

Targets = Callable[[Table], TableContext]


rows = numbers


def new_table(folder: Path, options: dict[str, str], table_type: str = "MERGE_ON_READ") -> Table:
    shape = a_table(folder, NUMBERS, ordering="ts", table_type=table_type, buckets=1)
    return shape.with_options(options).create()


def values(table: Table) -> dict[str, int]:
    found = table.read_arrow()
    return dict(zip(found["id"].to_pylist(), found["value"].to_pylist(), strict=True))


def begin(target: TableContext, given: pa.Table) -> RunningWrite:
    """Begin a write and run its tasks."""
    inline = InlineRows(given)
    request = WriteRequest(operation=Operation.UPSERT, columns=inline.schema)
    running = start_write(target, request)
    running.run_tasks(inline)
    return running


def data_files(table: Table) -> set[str]:
    paths = {info.path for info in table.storage.list_tree("")}
    return {path for path in paths if ".hoodie" not in path}


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_write_behind_another_stops_before_it_writes_a_file(
    tmp_path: Path, target_of: Targets, table_type: str
) -> None:
    table = new_table(tmp_path, ONCE, table_type)
    table.upsert(rows("abc", 1))
    first = begin(target_of(table), rows("abc", 2))
    before = data_files(table)
    with pytest.raises(EarlyConflictError) as caught:
        table.upsert(rows("cde", 3))
    assert caught.value.kind is ErrorKind.EARLY_CONFLICT
    assert caught.value.context["other"] == first.plan.instant_time
    assert data_files(table) == before
    mine = caught.value.context["instant"]
    assert not [i.path for i in table.storage.list_tree(ATTEMPTS) if mine in i.path]
    first.abandon()


def test_a_batch_that_stopped_is_written_when_the_other_has_given_up(
    tmp_path: Path, target_of: Targets, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(tmp_path, OPTIONS, "COPY_ON_WRITE")
    first = begin(target_of(table), rows("abc", 2))
    tries: list[str] = []
    run_tasks = RunningWrite.run_tasks

    def counted(write: RunningWrite, given: InlineRows) -> object:
        try:
            return run_tasks(write, given)
        except EarlyConflictError as conflict:
            tries.append(conflict.kind)
            first.abandon()
            raise

    monkeypatch.setattr(RunningWrite, "run_tasks", counted)
    table.upsert(rows("cde", 3))
    assert tries == [ErrorKind.EARLY_CONFLICT]
    assert values(table) == dict.fromkeys("cde", 3)


def test_who_holds_the_table_lock_does_not_stop_for_others(
    tmp_path: Path, target_of: Targets
) -> None:
    """Or a batch that lost too often would lose for ever against one that stalls (LIV-07)."""
    options = {**OPTIONS, "headwater.write.conflicts.before.lock": "1"}
    table = new_table(tmp_path, options)
    first = begin(target_of(table), rows("abc", 2))
    table.upsert(rows("cde", 3))
    assert values(table) == dict.fromkeys("cde", 3)
    first.abandon()


def test_a_task_that_starts_after_the_conflict_does_nothing(
    tmp_path: Path, target_of: Targets
) -> None:
    table = new_table(tmp_path, OPTIONS)
    first = begin(target_of(table), rows("abc", 2))
    request = WriteRequest(operation=Operation.UPSERT, columns=rows("a", 0).schema)
    second = start_write(target_of(table), request)
    task = partial(execute_write, second.plan)
    with pytest.raises(EarlyConflictError) as found:
        task(TaskContext(0, 0, 2), iter(rows("a", 3).to_batches()))
    taken: list[int] = []

    def untouched() -> object:
        taken.append(1)
        yield from rows("b", 3).to_batches()

    with pytest.raises(EarlyConflictError) as told:
        task(TaskContext(1, 1, 2), untouched())  # type: ignore[arg-type]
    assert told.value.context == found.value.context
    assert taken == [], "its rows are not even asked for"
    second.abandon()
    first.abandon()


@pytest.mark.parametrize(
    "options",
    [
        {MODE: "single_writer"},
        {MODE: "non_blocking_concurrency_control", "hoodie.write.lock.provider": "filesystem"},
        {**OPTIONS, ENABLED: "false"},
    ],
    ids=["single writer", "non-blocking", "turned off"],
)
def test_others_do_not_detect(tmp_path: Path, target_of: Targets, options: dict[str, str]) -> None:
    table = new_table(tmp_path, options)
    request = WriteRequest(operation=Operation.UPSERT, columns=rows("a", 0).schema)
    running = start_write(target_of(table), request)
    assert running.plan.announcing.detection is None
    running.abandon()


def test_the_strategy_comes_from_the_options(tmp_path: Path, target_of: Targets) -> None:
    new_table(tmp_path, OPTIONS)
    strategy = "SimpleTransactionDirectMarkerBasedDetectionStrategy"
    key = "hoodie.write.concurrency.early.conflict.detection.strategy"
    table = open_table(tmp_path / "trips", {**OPTIONS, key: strategy})
    request = WriteRequest(operation=Operation.UPSERT, columns=rows("a", 0).schema)
    running = start_write(target_of(table), request)
    assert running.plan.announcing.detection is not None
    assert running.plan.announcing.detection.strategy == "transaction_direct"
    running.abandon()
    table.upsert(rows("abc", 1))
    assert values(table) == dict.fromkeys("abc", 1)
