"""One write from its rows to its commit: what it leaves behind, and what its failure does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.counting_storage import CountingStorage
from tests.support.tables import FAST, a_table, columns, rows_of

import headwater as hw
from headwater.config.table_options import TableType
from headwater.context import TableContext
from headwater.engine.engine import Route, RowsTask, TaskContext
from headwater.engine.inline import InlineRows
from headwater.errors import InvalidInputError
from headwater.kernel.txn.markers import Marker, MarkerKind, create_marker, load_markers
from headwater.metadata.view import load_view
from headwater.model.files import write_token
from headwater.operations import table_location
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.write import run_write, start_write
from headwater.seams.local import LocalStorage
from headwater.table import Table

R = TypeVar("R")
TargetOf = Callable[[Table], TableContext]

SCHEMA = columns("id string not null, city string, value long, note string")
UPSERT = WriteRequest(operation=Operation.UPSERT, columns=SCHEMA)

each_type = pytest.mark.parametrize("table_type", list(TableType))


rows = rows_of(SCHEMA, note="n")


def make_table(path: Path, **arguments: Any) -> Table:
    shape = a_table(path, SCHEMA, partition_by="city", buckets=2)
    return shape.having(**arguments).create()


def values_of(table: Table) -> dict[str, int]:
    return {row["id"]: row["value"] for row in table.read_arrow().to_pylist()}


def files_under(table: Table, folder: str = "") -> set[str]:
    return {info.path for info in table.storage.list_tree(folder)}


def data_files(table: Table) -> set[str]:
    return {path for path in files_under(table) if path.startswith("city=") and "_0" in path}


class DoubledRows(InlineRows):
    """Rows whose task runs twice, as under speculation; only the second run's results count."""

    def run(self, route: Route, task: RowsTask[R]) -> list[R]:
        batches = super().run(route, lambda _, given: list(given))
        task(TaskContext(task=0, task_attempt=0, task_count=1), iter(batches))
        return task(TaskContext(task=0, task_attempt=1, task_count=1), iter(batches))


class FailingRows(InlineRows):
    """Rows whose task writes everything, and whose engine fails right after."""

    def run(self, route: Route, task: RowsTask[R]) -> list[R]:
        super().run(route, task)
        raise RuntimeError("the cluster is gone")


# Markers ---------------------------------------------------------------------------------------


@each_type
def test_files_of_a_doubled_task_are_deleted_at_commit(
    tmp_path: Path, target_of: TargetOf, table_type: TableType
) -> None:
    table = make_table(tmp_path, table_type=table_type)
    table.insert(rows(("a", "sf", 1), ("b", "ny", 2)))
    before = data_files(table)
    run_write(target_of(table), UPSERT, DoubledRows(rows(("a", "sf", 10), ("c", "la", 3))))
    written = data_files(table) - before
    assert len(written) == 2
    assert all(write_token(0, 1, 1) in path for path in written)
    listed = {
        file.path for one in load_view(table.storage, table.config).slices() for file in one.files()
    }
    assert written <= listed
    assert values_of(table) == {"a": 10, "b": 2, "c": 3}


@each_type
def test_every_file_is_announced_and_markers_go_with_the_commit(
    tmp_path: Path, target_of: TargetOf, table_type: TableType
) -> None:
    table = make_table(tmp_path, table_type=table_type)
    table.bulk_insert(rows(("a", "sf", 1)))
    running = start_write(target_of(table), UPSERT)
    before = data_files(table)
    stats = running.run_tasks(InlineRows(rows(("a", "sf", 10), ("c", "la", 3))))
    markers = load_markers(table.storage, running.plan.instant_time)
    assert {marker.data_path for marker in markers} == data_files(table) - before
    kinds = {
        TableType.COPY_ON_WRITE: {MarkerKind.MERGE, MarkerKind.CREATE},
        TableType.MERGE_ON_READ: {MarkerKind.CREATE},  # Log files, too.
    }
    assert {marker.kind for marker in markers} == kinds[table_type]
    running.commit(stats)
    assert files_under(table, ".hoodie/.temp") == set()


def test_a_marker_without_its_file_is_no_harm(tmp_path: Path, target_of: TargetOf) -> None:
    table = make_table(tmp_path)
    running = start_write(target_of(table), UPSERT)
    stats = running.run_tasks(InlineRows(rows(("a", "sf", 1))))
    time = running.plan.instant_time
    create_marker(table.storage, time, Marker("city=sf/never-written.parquet", MarkerKind.CREATE))
    running.commit(stats)
    assert values_of(table) == {"a": 1}


# Failures --------------------------------------------------------------------------------------


@each_type
def test_a_failed_write_shows_nothing_and_blocks_nobody(
    tmp_path: Path, target_of: TargetOf, table_type: TableType
) -> None:
    table = make_table(tmp_path, table_type=table_type)
    table.insert(rows(("a", "sf", 1)))
    before = data_files(table)
    with pytest.raises(RuntimeError, match="the cluster is gone"):
        run_write(target_of(table), UPSERT, FailingRows(rows(("a", "sf", 9), ("b", "ny", 9))))
    assert values_of(table) == {"a": 1}
    # Its writer took away what it had written.
    assert table.inspect.heartbeats().num_rows == 0
    assert table.inspect.timeline()["action"].to_pylist()[1:] == ["rollback"]
    assert data_files(table) == before
    # Another process need not wait for this one's heartbeat to lapse.
    other = hw.open_table(table.uri, FAST)
    assert other.context.ids.owner != table.context.ids.owner
    other.upsert(rows(("b", "ny", 2)))
    table.upsert(rows(("a", "sf", 3)))
    assert values_of(other) == {"a": 3, "b": 2}


def test_a_successful_write_leaves_no_heartbeat(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    table.insert(rows(("a", "sf", 1)))
    assert table.inspect.heartbeats().num_rows == 0
    assert files_under(table, ".hoodie/.heartbeat") == set()


# What a commit says ----------------------------------------------------------------------------


def counts(commit: Any) -> tuple[int, int, int]:
    return commit.inserted, commit.updated, commit.deleted


def test_counts_of_a_copy_on_write_table(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    first = table.insert(rows(("a", "sf", 1), ("b", "ny", 2), ("b", "ny", 3)))
    assert counts(first) == (2, 0, 0)
    assert counts(table.upsert(rows(("a", "sf", 10), ("c", "sf", 3)))) == (1, 1, 0)
    assert counts(table.delete(rows(("a", "sf", 0), ("x", "sf", 0)))) == (0, 0, 1)
    assert counts(table.delete(rows(("a", "nowhere", 0)))) == (0, 0, 0)
    assert counts(table.overwrite(rows(("d", "sf", 4)))) == (1, 0, 0)
    assert counts(table.delete_partitions(["city=sf"])) == (0, 0, 0)


def test_counts_of_a_merge_on_read_table(tmp_path: Path) -> None:
    """An append does not look at what the group holds: all its rows count as updates."""
    table = make_table(tmp_path, table_type=TableType.MERGE_ON_READ, buckets=1)
    assert counts(table.insert(rows(("a", "sf", 1), ("b", "ny", 2)))) == (2, 0, 0)
    assert counts(table.upsert(rows(("a", "sf", 10), ("c", "sf", 3)))) == (0, 2, 0)
    assert counts(table.delete(rows(("a", "sf", 0), ("a", "sf", 0)))) == (0, 0, 1)


def test_a_commit_names_its_file_groups_and_times(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    commit = table.insert(rows(("a", "sf", 1), ("b", "ny", 2)))
    assert {group.partition for group in commit.file_groups} == {"city=sf", "city=ny"}
    assert commit.instant < commit.completion_time
    written = table.read_arrow(["_hoodie_commit_time"])["_hoodie_commit_time"].unique()
    assert written.to_pylist() == [commit.instant]
    assert commit.lock_held_ms >= 0


def test_overwriting_with_nothing_empties_the_table(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    first = table.insert(rows(("a", "sf", 1)))
    table.overwrite(rows())
    assert values_of(table) == {}
    assert table.read_arrow(as_of=first.completion_time).num_rows == 1
    table.insert(rows(("b", "sf", 2)))
    assert values_of(table) == {"b": 2}


@each_type
@pytest.mark.parametrize("first", ["insert", "bulk_insert"])
def test_base_files_of_a_partial_write_describe_all_columns(
    tmp_path: Path, table_type: TableType, first: str
) -> None:
    table = make_table(tmp_path, table_type=table_type, buckets=4)
    write: Callable[[pa.Table], object] = getattr(table, first)
    write(rows(*[(key, "sf", 1) for key in "abcd"]))
    some = pa.table({"id": ["a", "x"], "city": ["sf", "la"], "value": [10, 5]})
    table.upsert(some, partial=True)
    found = {row["id"]: (row["value"], row["note"]) for row in table.read_arrow().to_pylist()}
    assert found["a"] == (10, "n")
    assert found["x"] == (5, None)
    for path in (tmp_path / "trips").rglob("*.parquet"):
        described = pq.read_metadata(path).metadata[b"parquet.avro.schema"].decode()
        assert all(f'"{name}"' in described for name in SCHEMA.names)


NOT_NULL = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("n", pa.int32(), nullable=False),
        ("v", pa.string()),
    ]
)


@each_type
@pytest.mark.parametrize("index", ["bucket", "simple"])
def test_a_column_that_must_not_be_null_need_not_be_set(
    tmp_path: Path, table_type: TableType, index: str
) -> None:
    table = hw.create_table(
        tmp_path, schema=NOT_NULL, record_key="id", table_type=table_type, index=index
    )
    table.upsert(pa.table({"id": ["a"], "n": [1], "v": ["x"]}, schema=NOT_NULL))
    table.update({"v": "concat(v, 'u')"})
    matched = table.merge(pa.table({"id": ["a"], "w": ["m"]}), "id").when_matched_update(
        {"v": "concat(t.v, s.w)"}
    )
    matched.execute()
    assert table.read_arrow().to_pylist() == [{"id": "a", "n": 1, "v": "xum"}]
    table.upsert(pa.table({"id": ["a"], "v": ["p"]}), partial=True)
    with pytest.raises(InvalidInputError, match="Column n is missing, and it must not be null"):
        table.upsert(pa.table({"id": ["a", "b"], "v": ["q", "q"]}), partial=True)
    assert table.read_arrow().to_pylist() == [{"id": "a", "n": 1, "v": "p"}]


# Storage calls ---------------------------------------------------------------------------------

LOCK_CALLS_MAX = 12 + 3
"""Two transactions: take the lock, ask before each write whether it is still held, release it. The
metadata table's instant has three files."""

CALLS_MAX = 18 + 12
"""All other calls of a write to one file group, without the logs of the metadata table that it
reads, one for each commit since its last compaction. Every call is a round trip to an object
store, so whoever needs more should know why. For the metadata table:

    4   to plan: the table's config, the timeline, the folder and the base file of `files`; a folder
        of the data table is not listed, but the newest commit is read
    3   before the lock: the data table's timeline, its config, the log
    4   in the lock: the config, the three files of the instant
    1   afterwards: whether a compaction is due
"""

COMMITS_BEFORE = 4


@each_type
@pytest.mark.usefixtures("tables_with_a_lock")
def test_storage_calls_of_a_small_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_type: TableType
) -> None:
    made = make_table(tmp_path, table_type=table_type, buckets=1)
    for number in range(COMMITS_BEFORE - 1):
        made.upsert(rows(("a", "sf", number)))
    storage = CountingStorage(LocalStorage(made.uri, fsync=False), keep_trace=True)
    # Tasks reach storage by themselves; here they share the driver's, so that all is counted.
    monkeypatch.setattr(table_location, "open_storage", lambda *_: storage)
    table = Table(replace(hw.open_table(made.uri, FAST).context, storage=storage))
    table.upsert(rows(("a", "sf", 4)))
    storage.reset()
    table.upsert(rows(("a", "sf", 5)))
    for method, path in storage.trace:
        print(f"{method:15} {path}")
    calls = len(storage.trace)
    lock_calls = sum(path.startswith(".hoodie/.locks/") for _, path in storage.trace)
    print(f"{lock_calls} calls for the lock, {calls - lock_calls} others")
    assert 0 < lock_calls <= LOCK_CALLS_MAX
    assert 0 < calls - lock_calls - COMMITS_BEFORE <= CALLS_MAX


@pytest.mark.usefixtures("tables_with_a_lock")
def test_the_logs_of_a_commit_are_read_once_for_all_indexes(tmp_path: Path) -> None:
    made = hw.create_table(
        tmp_path / "trips",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        table_type=TableType.MERGE_ON_READ,
        buckets=4,
        options={
            **FAST,
            "hoodie.metadata.index.column.stats.enable": "true",
            "hoodie.metadata.global.record.level.index.enable": "true",
        },
    )
    storage = CountingStorage(LocalStorage(made.uri, fsync=False), keep_trace=True)
    table = Table(replace(hw.open_table(made.uri, FAST).context, storage=storage))
    many = rows(*((f"k{number}", "sf", number) for number in range(40)))
    table.upsert(many)
    storage.reset()
    table.upsert(many)
    reads = [at for at, (_, path) in enumerate(storage.trace) if path.startswith("city=sf/.")]
    assert reads == [*range(reads[0], reads[0] + 4)], "each of the four, and all at once"
    assert {storage.trace[at][0] for at in reads} == {"read_many"}
    told = [path for method, path in storage.trace if method == "put_many"]
    assert len({path.split("/")[2] for path in told}) == 4, "one log or more for each index"


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_partial_write_of_a_part_of_a_struct_is_refused(tmp_path: Path, table_type: str) -> None:
    number = pa.int32()
    place = pa.struct([("x", number), ("inner", pa.struct([("y", number), ("z", number)]))])
    schema = pa.schema([("id", pa.string()), ("v", number), ("place", place)])
    table = hw.create_table(tmp_path / "t", schema=schema, record_key="id", table_type=table_type)
    record = {"id": "a", "v": 1, "place": {"x": 1, "inner": {"y": 2, "z": 3}}}
    table.upsert(pa.Table.from_pylist([record], schema))
    part = pa.struct([("x", number), ("inner", pa.struct([("z", number)]))])
    some = pa.table({"id": ["a"], "place": pa.array([{"x": 9, "inner": {"z": 9}}], part)})
    with pytest.raises(InvalidInputError, match=r"without its field place\.inner\.y"):
        table.upsert(some, partial=True)
    assert table.read_arrow().to_pylist() == [record]
    whole = {"x": 9, "inner": {"y": 8, "z": 7}}
    table.upsert(pa.table({"id": ["a"], "place": pa.array([whole], place)}), partial=True)
    assert table.read_arrow().to_pylist() == [{**record, "place": whole}]
