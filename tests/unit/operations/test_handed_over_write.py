"""Writes that begin in one process and end in another."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.tables import FENCED

from headwater import Table, create_table, open_table
from headwater.context import TableContext
from headwater.engine.engine import TaskContext
from headwater.errors import ErrorKind, FencedError
from headwater.kernel.txn.attempts import encode_attempt
from headwater.operations.committing import PlannedWrite
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.tasks import staging
from headwater.operations.tasks.execute import execute_write
from headwater.operations.tasks.staging import StagedRows, needs_staging, stage_rows, staging_folder
from headwater.operations.write import abandon_write, resume_write, start_write

ROWS = pa.table({"id": ["a", "b", "c"], "amount": [1, 2, 3]})


@pytest.fixture(params=["COPY_ON_WRITE", "MERGE_ON_READ"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    return create_table(
        tmp_path / "trips",
        schema=ROWS.schema,
        record_key="id",
        table_type=request.param,
        buckets=2,
    )


@pytest.fixture
def fenced_table(tmp_path: Path) -> Table:
    return create_table(
        tmp_path / "fenced", schema=ROWS.schema, record_key="id", buckets=2, options=FENCED
    )


def target_of(table: Table) -> TableContext:
    return table.context


def begin(
    table: Table, operation: Operation = Operation.UPSERT, columns: pa.Schema = ROWS.schema
) -> PlannedWrite:
    """Begin a write; it crosses to the next process as bytes."""
    request = WriteRequest(operation=operation, columns=columns)
    planned = start_write(target_of(table), request).hand_over()
    crossed = pickle.loads(pickle.dumps(planned))
    assert isinstance(crossed, PlannedWrite)
    return crossed


def test_another_process_commits_what_tasks_wrote(table: Table) -> None:
    planned = begin(table)
    batches = [ROWS.to_batches()[0].slice(0, 2), ROWS.to_batches()[0].slice(2)]
    staged, stats = [], []
    for number, batch in enumerate(batches):
        here = TaskContext(task=number, task_attempt=number, task_count=1 << 31)
        if needs_staging(planned.plan):
            staged.append(stage_rows(planned.plan, here, iter([batch])))
        else:
            stats += execute_write(planned.plan, here, iter([batch]))
    assert table.read_arrow().num_rows == 0

    running = resume_write(target_of(open_table(table.uri)), planned)
    paths = [path for path in staged if path is not None]
    if paths:
        stats += running.run_tasks(StagedRows(table.storage, paths, ROWS.schema))
    commit = running.commit(stats, {"note": "kept"})

    assert commit.instant == planned.attempt.instant
    assert commit.inserted == 3
    assert table.read_arrow().sort_by("id").to_pylist() == ROWS.to_pylist()
    assert table.storage.list_tree(staging_folder(commit.instant)) == []
    assert table.inspect.heartbeats().num_rows == 0


def test_only_writes_that_rewrite_base_files_lay_rows_aside(table: Table) -> None:
    is_copy_on_write = table.config.table_type == "COPY_ON_WRITE"
    for operation, expected in (
        (Operation.UPSERT, is_copy_on_write),
        (Operation.INSERT, is_copy_on_write),
        (Operation.DELETE, is_copy_on_write),
        (Operation.BULK_INSERT, True),
        (Operation.OVERWRITE, True),
    ):
        planned = begin(table, operation)
        assert needs_staging(planned.plan) is expected
        abandon_write(target_of(table), planned.attempt)


def test_keys_that_are_looked_up_come_together(tmp_path: Path) -> None:
    table = create_table(tmp_path / "trips", schema=ROWS.schema, record_key="id", index="simple")
    table.upsert(ROWS)
    planned = begin(table)
    assert needs_staging(planned.plan)
    changed = pa.table({"id": ["b", "d"], "amount": [20, 40]}).to_batches()[0]
    staged = []
    for task in range(2):
        here = TaskContext(task=task, task_attempt=task, task_count=1 << 31)
        staged.append(stage_rows(planned.plan, here, iter([changed.slice(task, 1)])))

    running = resume_write(target_of(table), planned)
    files = [file for file in staged if file is not None]
    commit = running.commit(running.run_tasks(StagedRows(table.storage, files, ROWS.schema)))

    assert (commit.inserted, commit.updated) == (1, 1)
    found = table.read_arrow().sort_by("id").to_pydict()
    assert found == {"id": ["a", "b", "c", "d"], "amount": [1, 20, 3, 40]}


@pytest.mark.parametrize("index", ["bucket", "simple", "global_simple", "record_index"])
def test_each_file_group_is_written_by_one_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: str
) -> None:
    """However many tasks there are: rows of one group are of one share."""
    count = 1_000
    rows = pa.table({"id": [f"key-{n}" for n in range(count)], "amount": range(count)})
    table = create_table(tmp_path / "trips", schema=rows.schema, record_key="id", index=index)
    table.upsert(rows.slice(0, count // 2))
    monkeypatch.setattr(staging, "TASK_BYTES", 1)
    monkeypatch.setattr(pa, "cpu_count", lambda: 3)
    planned = begin(table)
    changed = rows.set_column(1, "amount", [pa.array(range(count, 2 * count))])
    files = []
    for task in range(2):
        here = TaskContext(task=task, task_attempt=task, task_count=1 << 31)
        some = changed.take(list(range(task, count, 2))).to_batches()
        file = stage_rows(planned.plan, here, iter(some))
        assert file is not None
        assert len(set(file.shares)) > 3
        files.append(file)

    running = resume_write(target_of(table), planned)
    stats = running.run_tasks(StagedRows(table.storage, files, ROWS.schema))
    commit = running.commit(stats)

    assert len({stat.path for stat in stats}) == len({stat.file_id for stat in stats})
    assert len({stat.path for stat in stats}) > 1
    assert (commit.inserted, commit.updated) == (count // 2, count // 2)
    assert table.read_arrow().sort_by("id").equals(changed.sort_by("id"))


def test_a_task_without_rows_lays_nothing_aside(table: Table) -> None:
    planned = begin(table)
    here = TaskContext(task=0, task_attempt=0, task_count=1 << 31)
    empty = ROWS.to_batches()[0].slice(0, 0)

    assert stage_rows(planned.plan, here, iter([empty])) is None
    assert table.storage.list_tree(staging_folder(planned.attempt.instant)) == []


def test_an_overwrite_spares_what_others_wrote_since_it_began(tmp_path: Path) -> None:
    rows = pa.table({"id": ["a", "b"], "city": ["sf", "ny"]})
    ours, theirs = rows.slice(0, 1), rows.slice(1)
    table = create_table(
        tmp_path / "trips", schema=rows.schema, record_key="id", partition_by="city"
    )
    table.upsert(ours)
    planned = begin(table, Operation.OVERWRITE, rows.schema)
    table.upsert(theirs)

    resume_write(target_of(table), planned).commit([])

    assert table.read_arrow().to_pylist() == theirs.to_pylist()


@pytest.mark.usefixtures("tables_with_a_lock")
def test_a_write_that_was_taken_over_cannot_go_on(table: Table) -> None:
    planned = begin(table)
    path = planned.attempt.path.replace("00001", "00002")
    table.storage.put(path, encode_attempt(planned.attempt))

    with pytest.raises(FencedError) as raised:
        resume_write(target_of(table), planned)
    assert raised.value.kind is ErrorKind.ATTEMPT_SUPERSEDED


def test_a_write_that_was_given_up_cannot_go_on(table: Table) -> None:
    planned = begin(table)
    abandon_write(target_of(table), planned.attempt)

    assert table.inspect.heartbeats().num_rows == 0
    with pytest.raises(FencedError):
        resume_write(target_of(table), planned)
    with pytest.raises(FencedError):
        abandon_write(target_of(table), planned.attempt)


def test_a_write_that_was_committed_cannot_go_on(table: Table) -> None:
    planned = begin(table)
    resume_write(target_of(table), planned).commit([])

    with pytest.raises(FencedError):
        resume_write(target_of(table), planned)


def test_what_has_ended_on_a_fenced_table_cannot_go_on(fenced_table: Table) -> None:
    committed, given_up = begin(fenced_table), begin(fenced_table)
    resume_write(target_of(fenced_table), committed).commit([])
    abandon_write(target_of(fenced_table), given_up.attempt)

    for planned in (committed, given_up):
        with pytest.raises(FencedError):
            resume_write(target_of(fenced_table), planned)
