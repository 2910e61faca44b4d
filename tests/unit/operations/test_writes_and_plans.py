"""Writes of a real table that meet a pending clustering: it gives way, or it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.counting_storage import CountingStorage
from tests.support.plan_site import CANCELLABLE, clustering_request
from tests.support.tables import NUMBERS, a_table, numbers

from headwater import Table
from headwater.context import TableContext
from headwater.engine.inline import InlineRows
from headwater.errors import ConflictError, EarlyConflictError, ErrorKind
from headwater.kernel.layout import cancel_path
from headwater.kernel.timeline.names import file_name
from headwater.metadata.view import load_view
from headwater.model.instant import Action, InstantTime, State, instant_time_after
from headwater.model.plan_flags import PlanFlags
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.write import RunningWrite, start_write
from headwater.testing.table import TIMELINE

pytestmark = pytest.mark.usefixtures("tables_with_a_lock")

OPTIMISTIC = "optimistic_concurrency_control"
NON_BLOCKING = "non_blocking_concurrency_control"

Targets = Callable[[Table], TableContext]


rows = numbers


def new_table(folder: Path, mode: str, table_type: str, *, detects: bool = False) -> Table:
    shape = a_table(folder, NUMBERS, ordering="ts", table_type=table_type, buckets=1)
    options = {
        "hoodie.write.concurrency.mode": mode,
        "hoodie.write.lock.provider": "in_process",
        "hoodie.write.num.retries.on.conflict.failures": 0,
        "hoodie.write.concurrency.early.conflict.detection.enable": detects,
    }
    return shape.with_options(options).with_upserts(rows("ab", 1)).create()


def request_plan(table: Table, flags: PlanFlags) -> InstantTime:
    """Put a clustering of all file groups on the timeline."""
    view = load_view(table.storage, table.config)
    assert view.instant is not None
    time = instant_time_after(view.instant)
    content = clustering_request(flags, *(one.group for one in view.slices()))
    table.storage.put(f"{TIMELINE}/{file_name(time, Action.CLUSTERING, State.REQUESTED)}", content)
    return time


def values(table: Table) -> dict[str, int]:
    found = table.read_arrow()
    return dict(zip(found["id"].to_pylist(), found["value"].to_pylist(), strict=True))


def names_of(table: Table, time: InstantTime) -> list[str]:
    return [name for name in table.storage.list_names(TIMELINE) if time in name]


@pytest.mark.parametrize(
    ("mode", "table_type", "detects"),
    [
        (OPTIMISTIC, "COPY_ON_WRITE", False),
        (OPTIMISTIC, "COPY_ON_WRITE", True),
        (OPTIMISTIC, "MERGE_ON_READ", True),
        (NON_BLOCKING, "MERGE_ON_READ", False),
        ("single_writer", "COPY_ON_WRITE", False),
    ],
)
def test_a_write_cancels_a_plan_in_its_way_and_commits(
    tmp_path: Path, mode: str, table_type: str, detects: bool
) -> None:
    table = new_table(tmp_path, mode, table_type, detects=detects)
    plan = request_plan(table, CANCELLABLE)
    table.upsert(rows("a", 2))
    assert values(table) == {"a": 2, "b": 1}
    assert table.storage.read(cancel_path(plan))
    table.services.execute_abort(plan)
    assert names_of(table, plan) == [f"{plan}.clustering.aborted"]
    table.upsert(rows("b", 3))
    assert values(table) == {"a": 2, "b": 3}


@pytest.mark.parametrize("operation", ["overwrite", "delete", "bulk_insert"])
def test_every_operation_that_touches_the_groups_cancels_the_plan(
    tmp_path: Path, operation: str
) -> None:
    table = new_table(tmp_path, OPTIMISTIC, "COPY_ON_WRITE")
    plan = request_plan(table, CANCELLABLE)
    getattr(table, operation)(rows("a", 2))
    assert table.storage.read(cancel_path(plan))


@pytest.mark.parametrize("detects", [False, True])
def test_inv_64_a_plan_that_is_not_cancellable_stops_the_write(
    tmp_path: Path, detects: bool
) -> None:
    table = new_table(tmp_path, OPTIMISTIC, "COPY_ON_WRITE", detects=detects)
    plan = request_plan(table, PlanFlags())
    with pytest.raises(ConflictError) as caught:
        table.upsert(rows("a", 2))
    assert isinstance(caught.value, EarlyConflictError) is detects
    assert caught.value.kind is (ErrorKind.EARLY_CONFLICT if detects else ErrorKind.WRITE_CONFLICT)
    assert values(table) == {"a": 1, "b": 1}
    assert names_of(table, plan) == [f"{plan}.clustering.requested"]


def test_h_09_a_write_cancels_the_plan_as_soon_as_its_groups_are_known(
    tmp_path: Path, target_of: Targets
) -> None:
    table = new_table(tmp_path, OPTIMISTIC, "COPY_ON_WRITE")
    request = WriteRequest(operation=Operation.UPSERT, columns=rows("a", 2).schema)
    running: RunningWrite = start_write(target_of(table), request)
    stats = running.run_tasks(InlineRows(rows("a", 2)))
    table.upsert(rows("a", 3))
    plan = request_plan(table, CANCELLABLE)
    # The commit is refused and changes nothing. So it was not the commit that cancelled the plan.
    with pytest.raises(ConflictError):
        running.commit(stats)
    running.abandon()
    assert table.storage.list_names(".hoodie/.cancel") == [plan]


def calls_of_a_commit(folder: Path, target_of: Targets, *, has_plan: bool) -> int:
    """Return how often a write asks storage once its tasks have returned."""
    made = new_table(folder, OPTIMISTIC, "MERGE_ON_READ")
    if has_plan:
        request_plan(made, CANCELLABLE)
    counting = CountingStorage(made.storage)
    table = Table(replace(made.context, storage=counting))
    request = WriteRequest(operation=Operation.UPSERT, columns=rows("a", 2).schema)
    running = start_write(target_of(table), request)
    stats = running.run_tasks(InlineRows(rows("a", 2)))
    counting.reset()
    running.commit(stats)
    return counting.count()


def test_a_plan_in_the_way_costs_a_write_four_calls_of_storage(
    tmp_path: Path, target_of: Targets
) -> None:
    alone = calls_of_a_commit(tmp_path / "alone", target_of, has_plan=False)
    assert calls_of_a_commit(tmp_path / "met", target_of, has_plan=True) == alone + 4


def test_clean_aborts_what_writes_have_cancelled(tmp_path: Path) -> None:
    table = new_table(tmp_path, OPTIMISTIC, "COPY_ON_WRITE")
    plan = request_plan(table, CANCELLABLE)
    table.upsert(rows("a", 2))
    table.services.clean()
    assert names_of(table, plan) == [f"{plan}.clustering.aborted"]
    assert table.storage.list_names(".hoodie/.cancel") == []
    assert table.inspect.cancel_count().to_pylist() == [{"times_cancelled": 1, "waiting": 0}]
