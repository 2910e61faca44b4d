"""Writers that overlap: what each control lets through, and that nothing is lost either way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.tables import NUMBERS, a_table, numbers

from headwater import Table, create_table, open_table
from headwater.context import TableContext
from headwater.engine.inline import InlineRows
from headwater.errors import ConflictError, ErrorKind, InvalidInputError
from headwater.kernel.view.table_view import TableView
from headwater.metadata.view import load_view
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.write import RunningWrite, start_write

MODE = "hoodie.write.concurrency.mode"
OPTIMISTIC = "optimistic_concurrency_control"
NON_BLOCKING = "non_blocking_concurrency_control"
SETTINGS = {
    "hoodie.write.lock.provider": "filesystem",
    # What is settled here is settled at the commit.
    "hoodie.write.concurrency.early.conflict.detection.enable": "false",
}

Targets = Callable[[Table], TableContext]


rows = numbers


def new_table(folder: Path, mode: str, table_type: str = "MERGE_ON_READ", **options: str) -> Table:
    shape = a_table(folder, NUMBERS, ordering="ts", table_type=table_type, buckets=2)
    return shape.with_options({MODE: mode, **SETTINGS, **options}).create()


def values(table: Table) -> dict[str, int]:
    found = table.read_arrow()
    ids = found["id"].to_pylist()
    assert len(ids) == len(set(ids)), "a key is there twice"
    return dict(zip(ids, found["value"].to_pylist(), strict=True))


class Writer:
    """A write that a test takes step by step."""

    def __init__(self, target: TableContext, given: pa.Table, operation: Operation) -> None:
        self._rows = InlineRows(given)
        request = WriteRequest(operation=operation, columns=self._rows.schema)
        self.write: RunningWrite = start_write(target, request)
        self._stats = self.write.run_tasks(self._rows)

    def commit(self) -> None:
        self.write.commit(self._stats)

    def lose(self) -> ConflictError:
        with pytest.raises(ConflictError) as caught:
            self.commit()
        self.write.abandon()
        assert caught.value.kind is ErrorKind.WRITE_CONFLICT
        return caught.value


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_of_two_optimistic_writers_of_a_group_the_second_to_commit_loses(
    tmp_path: Path, target_of: Targets, table_type: str
) -> None:
    table = new_table(tmp_path, OPTIMISTIC, table_type)
    table.upsert(rows("abcdef", 1))
    first = Writer(target_of(table), rows("abc", 2), Operation.UPSERT)
    second = Writer(target_of(table), rows("cde", 3), Operation.UPSERT)
    second.commit()
    conflict = first.lose()
    assert conflict.context["other"] == second.write.plan.instant_time
    assert values(table) == {"a": 1, "b": 1, "c": 3, "d": 3, "e": 3, "f": 1}


def test_rows_are_not_hidden_by_a_writer_that_began_later_and_was_seen(
    tmp_path: Path, target_of: Targets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planned on the other's base file, requested before it: it would lie below it (N-12)."""
    table = new_table(tmp_path, OPTIMISTIC, "COPY_ON_WRITE")
    table.upsert(rows("abcdef", 1))
    rival = open_table(tmp_path / "trips", {MODE: OPTIMISTIC, **SETTINGS})

    def load_late(*arguments: Any, **options: Any) -> TableView:
        monkeypatch.setattr("headwater.metadata.view.load_view", load_view)
        rival.upsert(rows("def", 2))
        return load_view(*arguments, **options)

    monkeypatch.setattr("headwater.metadata.view.load_view", load_late)
    overtaken = Writer(target_of(table), rows("abc", 3), Operation.UPSERT)
    overtaken.lose()
    table.upsert(rows("abc", 3))
    assert values(table) == {"a": 3, "b": 3, "c": 3, "d": 2, "e": 2, "f": 2}


def test_a_writer_that_began_before_and_ended_after_the_snapshot_counts(
    tmp_path: Path, target_of: Targets
) -> None:
    """Requested first, completed last: choosing rivals by requested time would miss it (H-69)."""
    table = new_table(tmp_path, OPTIMISTIC)
    long = Writer(target_of(table), rows("abc", 1), Operation.UPSERT)
    table.upsert(rows("xyz", 5))
    late = Writer(target_of(table), rows("abc", 2), Operation.UPSERT)
    long.lose()
    late.commit()
    assert values(table) == {"x": 5, "y": 5, "z": 5, "a": 2, "b": 2, "c": 2}


@pytest.mark.parametrize("operation", [Operation.UPSERT, Operation.INSERT, Operation.BULK_INSERT])
def test_non_blocking_writers_that_start_the_same_groups_both_commit(
    tmp_path: Path, target_of: Targets, operation: Operation
) -> None:
    table = new_table(tmp_path, NON_BLOCKING)
    first = Writer(target_of(table), rows("abc", 1), operation)
    second = Writer(target_of(table), rows("cde", 2), operation)
    second.commit()
    first.commit()
    assert values(table) == {"a": 1, "b": 1, "c": 2, "d": 2, "e": 2}
    files = {row["file_id"] for row in table.inspect.slices().to_pylist()}
    assert len(files) == 2, "a bucket has two file groups"


def test_a_non_blocking_write_to_a_replaced_group_is_planned_again(
    tmp_path: Path, target_of: Targets
) -> None:
    table = new_table(tmp_path, NON_BLOCKING)
    table.upsert(rows("abcdef", 1))
    before = {row["file_id"] for row in table.inspect.slices().to_pylist()}
    writer = Writer(target_of(table), rows("abc", 2), Operation.UPSERT)
    table.overwrite(rows("xyz", 3))
    writer.lose()
    table.upsert(rows("abc", 2))
    assert values(table) == {"x": 3, "y": 3, "z": 3, "a": 2, "b": 2, "c": 2}
    after = {row["file_id"] for row in table.inspect.slices().to_pylist()}
    assert not before & after, "a replaced file id came back"


def test_an_overwrite_loses_to_rows_that_it_did_not_see(tmp_path: Path, target_of: Targets) -> None:
    table = new_table(tmp_path, NON_BLOCKING)
    table.upsert(rows("abc", 1))
    overwrite = Writer(target_of(table), rows("xyz", 3), Operation.OVERWRITE)
    table.upsert(rows("abcd", 2))
    overwrite.lose()
    assert values(table) == {"a": 2, "b": 2, "c": 2, "d": 2}


def test_a_bucket_that_an_overwrite_started_is_not_started_twice(
    tmp_path: Path, target_of: Targets
) -> None:
    table = new_table(tmp_path, NON_BLOCKING)
    writer = Writer(target_of(table), rows("abcdef", 1), Operation.UPSERT)
    table.overwrite(rows("uvwxyz", 3))
    writer.lose()
    assert values(table) == dict.fromkeys("uvwxyz", 3)


def test_after_delete_partitions_rows_come_back_in_new_groups(tmp_path: Path) -> None:
    table = create_table(
        tmp_path / "trips",
        schema="id string, city string, value long, ts long",
        record_key="id",
        partition_by="city",
        table_type="MERGE_ON_READ",
        buckets=1,
        options={MODE: NON_BLOCKING, **SETTINGS},
    )
    ids = []
    for value in (1, 2, 3):
        row: Mapping[str, list[object]] = {"id": ["a"], "city": ["sf"]}
        table.upsert(pa.table({**row, "value": [value], "ts": [value]}))
        ids += [row["file_id"] for row in table.inspect.slices().to_pylist()]
        assert values(table) == {"a": value}
        table.delete_partitions(["city=sf"])
        assert values(table) == {}
    assert len(set(ids)) == 3


@pytest.mark.parametrize("mode", [OPTIMISTIC, NON_BLOCKING])
@pytest.mark.some(1)
@pytest.mark.usefixtures("tables_with_a_lock")
def test_a_batch_that_lost_is_written_again_until_it_wins(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rival overwrites the table each time the batch was planned; then the lock keeps it out."""
    table = new_table(tmp_path, mode)
    table.upsert(rows("abcdef", 0))
    rival = open_table(
        tmp_path / "trips",
        {MODE: mode, **SETTINGS, "hoodie.write.lock.wait_time_ms": "200"},
    )
    tries: list[str] = []
    plan = RunningWrite.run_tasks

    def overtaken(write: RunningWrite, given: InlineRows) -> object:
        if write.plan.operation is Operation.UPSERT:
            try:
                rival.overwrite(rows("xyz", len(tries)))
                tries.append("lost")
            except ConflictError as kept_out:
                tries.append(kept_out.kind)
        return plan(write, given)

    monkeypatch.setattr(RunningWrite, "run_tasks", overtaken)
    table.upsert(rows("abc", 7))
    assert tries == ["lost", "lost", ErrorKind.LOCK_TIMEOUT], "the third try holds the lock"
    assert values(table) == {"x": 1, "y": 1, "z": 1, "a": 7, "b": 7, "c": 7}


def test_without_retries_the_conflict_is_the_callers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(
        tmp_path, OPTIMISTIC, **{"hoodie.write.num.retries.on.conflict.failures": "0"}
    )
    table.upsert(rows("abc", 1))
    rival = open_table(tmp_path / "trips", {MODE: OPTIMISTIC, **SETTINGS})
    run_tasks = RunningWrite.run_tasks

    def overtaken(write: RunningWrite, given: InlineRows) -> object:
        if write.plan.operation is Operation.UPSERT:
            rival.overwrite(rows("xyz", 2))
        return run_tasks(write, given)

    monkeypatch.setattr(RunningWrite, "run_tasks", overtaken)
    with pytest.raises(ConflictError) as caught:
        table.upsert(rows("abc", 3))
    assert caught.value.kind is ErrorKind.WRITE_CONFLICT
    assert values(table) == dict.fromkeys("xyz", 2)


@pytest.mark.parametrize(
    ("table_type", "index", "reason"),
    [
        ("COPY_ON_WRITE", "bucket", "of two that are made at the same time readers take one"),
        ("MERGE_ON_READ", "simple", "would be there twice"),
    ],
)
def test_non_blocking_control_is_refused_where_rows_could_be_hidden(
    tmp_path: Path, table_type: str, index: str, reason: str
) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        create_table(
            tmp_path / "trips",
            schema=rows("a", 0).schema,
            record_key="id",
            table_type=table_type,
            index=index,
            options={MODE: NON_BLOCKING, **SETTINGS},
        )
    assert not (tmp_path / "trips" / ".hoodie").exists()


@pytest.mark.parametrize("mode", [NON_BLOCKING, OPTIMISTIC])
def test_a_partial_write_that_could_null_what_another_brings_is_refused(
    tmp_path: Path, mode: str
) -> None:
    """N-17: only where a null counts as a value, and only without conflicts."""
    table = new_table(tmp_path, mode)
    table.upsert(rows("a", 1))
    part = pa.table({"id": ["a", "b"], "ts": [2, 2]})
    if mode == OPTIMISTIC:
        table.upsert(part, partial=True)
        assert values(table) == {"a": 1, "b": None}
        return
    before = table.inspect.timeline()
    with pytest.raises(InvalidInputError, match="merges by column") as caught:
        table.upsert(part, partial=True)
    assert caught.value.kind is ErrorKind.INVALID_OPTION
    assert table.inspect.timeline() == before


def test_partial_writes_of_non_blocking_writers_that_start_one_record_both_stay(
    tmp_path: Path, target_of: Targets
) -> None:
    """N-17: each of them planned when the record was not there yet."""
    merging = {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}
    table = create_table(
        tmp_path / "trips",
        schema="id string, left long, right long, ts long",
        record_key="id",
        ordering="ts",
        table_type="MERGE_ON_READ",
        buckets=1,
        options={MODE: NON_BLOCKING, **SETTINGS, **merging},
    )
    slow = start_write(
        target_of(table),
        WriteRequest(
            operation=Operation.UPSERT,
            columns=pa.schema({"id": pa.string(), "left": pa.int64(), "ts": pa.int64()}),
            is_partial=True,
        ),
    )
    table.upsert(pa.table({"id": ["a"], "right": [2], "ts": [1]}), partial=True)
    late = InlineRows(pa.table({"id": ["a"], "left": [1], "ts": [1]}))
    slow.commit(slow.run_tasks(late))
    found = table.read_arrow().select(["id", "left", "right"]).to_pylist()
    assert found == [{"id": "a", "left": 1, "right": 2}]
