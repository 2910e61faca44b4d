"""Work whose view is gone meanwhile, writes and reads, and work that finds real damage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.tables import COW, LOCKED, MOR, a_table, trips

from headwater import Table, open_table
from headwater.errors import ConflictError, CorruptTableError, ErrorKind, NotFoundError, Retry
from headwater.kernel.txn.changes import load_changes
from headwater.kernel.txn.guard import claimed
from headwater.kernel.txn.restore_steps import RequestRestore
from headwater.kernel.txn.rollback import Rollbacks
from headwater.kernel.txn.rollback_plan import pending_rollbacks
from headwater.kernel.view.table_view import TableView
from headwater.metadata.index_content import TableIndexes
from headwater.model.instant import parse_instant_time
from headwater.model.operation import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.retry import loss_of
from headwater.operations.write import RunningWrite, start_write
from headwater.queries.slice_query import read_slices

OPTIONS = {
    "hoodie.write.lock.provider": "filesystem",
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
}

Meanwhile = Callable[[Callable[[], object]], None]


@pytest.fixture
def before_tasks(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Return a function that has others act when the next write is planned, before it reads."""
    waiting: list[Callable[[], object]] = []
    run_tasks = RunningWrite.run_tasks

    def act_first(write: RunningWrite, given: object) -> object:
        others = waiting.copy()
        waiting.clear()
        for act in others:
            act()
        return run_tasks(write, given)  # type: ignore[arg-type]

    monkeypatch.setattr(RunningWrite, "run_tasks", act_first)
    return waiting.append


@pytest.fixture
def before_check(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Return a function that has others act when the next write knows whom it is up against."""
    waiting: list[Callable[[], object]] = []

    def act_first(*arguments: object) -> object:
        others = waiting.copy()
        waiting.clear()
        for act in others:
            act()
        return load_changes(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("headwater.operations.write.load_changes", act_first)
    return waiting.append


def values(table: Table) -> dict[str, int]:
    found = table.read_arrow()
    return dict(zip(found["id"].to_pylist(), found["value"].to_pylist(), strict=True))


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_n_129_a_write_on_what_a_restore_deletes_is_planned_again(
    tmp_path: Path, before_tasks: Meanwhile, table_type: str
) -> None:
    shape = a_table(tmp_path, index="simple", table_type=table_type).with_options(OPTIONS)
    table = shape.create()
    table.upsert(trips(("a", "sf", 1)))
    saved = table.services.savepoint().instant
    table.upsert(trips(("a", "sf", 2), ("b", "sf", 2)))
    if table_type == MOR:
        table.services.compact()
    other = open_table(table.uri, OPTIONS)
    before_tasks(lambda: other.services.restore(saved))
    done = table.upsert(trips(("b", "sf", 3), ("c", "sf", 3)), partial=False)
    assert done.redone.times == 1
    assert values(table) == {"a": 1, "b": 3, "c": 3}
    assert table.inspect.problems(deep=True).num_rows == 0


def test_n_129_so_is_one_whose_rival_is_taken_back_while_it_is_looked_at(
    tmp_path: Path, before_tasks: Meanwhile, before_check: Meanwhile
) -> None:
    table = a_table(tmp_path, buckets=1, table_type=MOR).with_options(OPTIONS).create()
    table.upsert(trips(("a", "sf", 1)))
    other = open_table(table.uri, OPTIONS)
    saved = other.services.savepoint().instant

    def come() -> None:
        other.upsert(trips(("a", "sf", 9)))
        before_check(lambda: other.services.restore(saved))

    before_tasks(come)
    assert table.upsert(trips(("b", "sf", 2))).redone.times == 1
    assert values(table) == {"a": 1, "b": 2}


def test_n_129_files_of_what_is_being_taken_back_may_be_missing(tmp_path: Path) -> None:
    table = a_table(tmp_path, table_type=COW).with_options(OPTIONS).create()
    table.upsert(trips(("a", "sf", 1)))
    saved = parse_instant_time(table.services.savepoint().instant)
    table.upsert(trips(("a", "sf", 2)))
    (row,) = table.inspect.slices().to_pylist()
    kind = ErrorKind.MISSING_DATA_FILE
    missing = CorruptTableError("it does not exist", kind=kind, path=row["base_file"])
    assert loss_of(table.context, missing) is None
    table.context.txn.run(RequestRestore(saved, table.context.claim()))
    assert loss_of(table.context, missing) is not None


@pytest.mark.parametrize("more", [{}, LOCKED], ids=["journal", "lock"])
def test_who_writes_beside_a_restore_that_was_left_is_told_who_finishes_it(
    tmp_path: Path, more: dict[str, str]
) -> None:
    options = {**OPTIONS, **more, "hoodie.write.num.retries.on.conflict.failures": "1"}
    table = a_table(tmp_path, buckets=1, table_type=MOR).with_options(options).create()
    table.upsert(trips(("a", "sf", 1)))
    saved = parse_instant_time(table.services.savepoint().instant)
    table.upsert(trips(("a", "sf", 2)))
    context = table.context
    started = context.txn.run(RequestRestore(saved, context.claim())).result
    with pytest.raises(ConflictError, match="is undoing"), claimed(context.components, started):
        table.upsert(trips(("a", "sf", 3)))
    table.services.clean()
    table.upsert(trips(("b", "sf", 3)))
    assert values(table) == {"a": 1, "b": 3}


def test_a_file_that_the_table_needs_is_missing_all_the_same(tmp_path: Path) -> None:
    table = a_table(tmp_path, index="simple", table_type=COW).with_options(OPTIONS).create()
    table.upsert(trips(("a", "sf", 1)))
    (row,) = table.inspect.slices().to_pylist()
    path = Path(table.uri) / row["base_file"]
    path.unlink()
    with pytest.raises(CorruptTableError) as error:
        table.upsert(trips(("a", "sf", 2)))
    assert error.value.kind is ErrorKind.MISSING_DATA_FILE


# Reads -------------------------------------------------------------------------------------------


def restored_soon(tmp_path: Path) -> tuple[Table, Callable[[], object]]:
    """Return a table, and what takes its newest commit back from somewhere else."""
    table = a_table(tmp_path, buckets=1, table_type=MOR).with_options(OPTIONS).create()
    table.upsert(trips(("a", "sf", 1)))
    saved = table.services.savepoint().instant
    table.upsert(trips(("a", "sf", 2), ("b", "ny", 2)))
    table.services.compact()
    other = open_table(table.uri, OPTIONS)
    return table, lambda: other.services.restore(saved)


def test_n_181_a_scan_whose_moment_is_gone_says_so(tmp_path: Path) -> None:
    table, restore = restored_soon(tmp_path)
    scans = [table.scan(), table.scan(), table.scan()]
    assert [one.schema for one in scans]
    restore()
    for read in (scans[0].to_arrow, scans[1].count, scans[2].to_reader().read_all):
        with pytest.raises(NotFoundError, match="Scan the table again") as gone:
            read()
        assert (gone.value.kind, gone.value.retry) == (
            ErrorKind.OUTSIDE_RETENTION,
            Retry.FRESH_VIEW,
        )


def test_n_181_a_read_whose_moment_is_gone_reads_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, restore = restored_soon(tmp_path)
    others = [restore]

    def late(*arguments: Any) -> Any:
        while others:
            others.pop()()
        return read_slices(*arguments)

    monkeypatch.setattr("headwater.scan.read_slices", late)
    assert values(table) == {"a": 1}
    assert not others


def test_n_181_a_read_of_a_table_that_has_lost_a_file_says_that(tmp_path: Path) -> None:
    table, _ = restored_soon(tmp_path)
    for file in Path(table.uri).rglob("*.parquet"):
        file.unlink()
    with pytest.raises(CorruptTableError):
        table.read_arrow()


def test_n_181_an_index_build_whose_files_are_gone_has_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, restore = restored_soon(tmp_path)
    waiting: list[Callable[[], object]] = [restore, dict]
    deriver = TableIndexes._deriver

    def late(self: TableIndexes, view: TableView) -> Any:
        if waiting:
            waiting.pop()()  # The second time it has listed what it is about to read.
        return deriver(self, view)

    monkeypatch.setattr(TableIndexes, "_deriver", late)
    with pytest.raises(ConflictError) as lost:
        table.indexes.create("record_index")
    assert lost.value.kind is ErrorKind.INDEX_OUTDATED
    assert not waiting
    assert table.indexes.create("record_index") is not None
    assert table.inspect.problems(deep=True).num_rows == 0


def test_n_181_a_rollback_of_what_nobody_sees_does_not_hide_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = restored_soon(tmp_path)
    failed = start_write(
        table.context, WriteRequest(operation=Operation.UPSERT, columns=table.schema)
    )
    monkeypatch.setattr(Rollbacks, "_execute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        failed.abandon()
    assert pending_rollbacks(table.context.load_timeline())
    for file in Path(table.uri).rglob("*.parquet"):
        file.unlink()
    with pytest.raises(CorruptTableError):
        table.read_arrow()


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt
