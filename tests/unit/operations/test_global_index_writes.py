"""Writes to tables whose index is one of the whole table: a key is in one place, wherever."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.tables import FAST, columns, rows_of, table_at

import headwater as hw
from headwater.context import TableContext
from headwater.engine.engine import GROUP_NUMBER, Route, RowsTask, TaskContext
from headwater.engine.inline import InlineRows
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.write import run_write
from headwater.table import Table

SCHEMA = columns("id string, city string, fare long")
OPTIONS = {**FAST, "hoodie.write.lock.provider": "in_process"}
INDEXES = ("global_simple", "global_bloom", "record_index")
OPTION_OF = {
    "global_simple": "hoodie.simple.index.update.partition.path",
    "global_bloom": "hoodie.bloom.index.update.partition.path",
    "record_index": "hoodie.record.index.update.partition.path",
}
TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")

Row = tuple[str, str, int]


def new_table(
    folder: Path, index: str, table_type: str, *, moves: bool, options: Any = None, **more: Any
) -> Table:
    shape = table_at(
        folder, SCHEMA, partition_by="city", table_type=table_type, index=index, **more
    )
    options = {**OPTIONS, OPTION_OF[index]: str(moves), **(options or {})}
    return shape.with_options(options).create()


rows = rows_of(SCHEMA)


def content(table: Table) -> list[Row]:
    """Return all rows, each checked to be in the partition that it says."""
    found = table.read_arrow(["_hoodie_partition_path", "id", "city", "fare"]).to_pylist()
    assert all(row["_hoodie_partition_path"] == f"city={row['city']}" for row in found)
    return sorted((row["id"], row["city"], row["fare"]) for row in found)


def problems(table: Table) -> list[dict[str, Any]]:
    """Return what is wrong in the indexes; that they name too much is allowed."""
    found: list[dict[str, Any]] = table.inspect.validate_metadata().to_pylist()
    return [one for one in found if one["problem"] != "stale"]


@pytest.fixture(params=TYPES)
def table_type(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=INDEXES)
def index(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_record_moves_to_the_partition_of_its_row(
    tmp_path: Path, index: str, table_type: str
) -> None:
    table = new_table(tmp_path / "t", index, table_type, moves=True)
    table.upsert(rows(("a", "x", 1), ("b", "x", 2), ("c", "y", 3)))
    done = table.upsert(rows(("a", "y", 10), ("b", "x", 20), ("d", "z", 4)))
    assert (done.inserted, done.updated, done.deleted) == (2, 1, 1)
    assert content(table) == [("a", "y", 10), ("b", "x", 20), ("c", "y", 3), ("d", "z", 4)]
    assert table.read_arrow(where="city = 'x'").num_rows == 1
    assert table.read_arrow(where="id = 'a'").num_rows == 1


def test_a_record_stays_where_it_is_if_the_option_says_so(
    tmp_path: Path, index: str, table_type: str
) -> None:
    table = new_table(tmp_path / "t", index, table_type, moves=False)
    table.upsert(rows(("a", "x", 1)))
    table.upsert(rows(("a", "y", 10), ("b", "y", 2)))
    assert content(table) == [("a", "x", 10), ("b", "y", 2)]


@pytest.mark.some(3)
def test_a_record_moves_there_and_back(tmp_path: Path, index: str, table_type: str) -> None:
    table = new_table(tmp_path / "t", index, table_type, moves=True)
    for number, city in enumerate("xyxyzx"):
        table.upsert(rows(("a", city, number), (f"other{number}", city, number)))
        assert [row for row in content(table) if row[0] == "a"] == [("a", city, number)]
    table.delete(rows(("a", "nowhere", 0)))
    assert not [row for row in content(table) if row[0] == "a"]
    table.upsert(rows(("a", "y", 7)))
    assert [row for row in content(table) if row[0] == "a"] == [("a", "y", 7)]


def test_a_moved_record_is_found_by_a_writer_that_moves_none(
    tmp_path: Path, index: str, table_type: str
) -> None:
    table = new_table(tmp_path / "t", index, table_type, moves=True)
    table.upsert(rows(("a", "x", 1), ("b", "x", 1)))
    table.upsert(rows(("a", "y", 2)))
    other = hw.open_table(tmp_path / "t", {**OPTIONS, OPTION_OF[index]: "false"})
    other.upsert(rows(("a", "x", 3)))
    assert content(other) == [("a", "y", 3), ("b", "x", 1)]


def test_one_of_several_rows_of_a_key_counts_whatever_partitions_they_claim(
    tmp_path: Path, index: str, table_type: str
) -> None:
    for moves in (False, True):
        table = new_table(tmp_path / str(moves), index, table_type, moves=moves)
        table.upsert(rows(("a", "x", 1), ("a", "y", 2), ("b", "z", 3)))
        assert content(table) == [("a", "y", 2), ("b", "z", 3)]
        table.upsert(rows(("a", "x", 4), ("a", "z", 5)))
        assert content(table) == [("a", "z" if moves else "y", 5), ("b", "z", 3)]


def test_a_row_that_loses_by_its_ordering_value_moves_nothing(
    tmp_path: Path, index: str, table_type: str
) -> None:
    table = new_table(tmp_path / "t", index, table_type, moves=True, ordering="fare")
    table.upsert(rows(("a", "x", 5), ("b", "x", 5), ("c", "x", 5)))
    table.upsert(rows(("a", "y", 4), ("b", "y", 6)))
    assert content(table) == [("a", "x", 5), ("b", "y", 6), ("c", "x", 5)]
    table.upsert(rows(("b", "x", 7), ("b", "z", 6)))
    assert content(table) == [("a", "x", 5), ("b", "x", 7), ("c", "x", 5)]


def test_a_partial_update_moves_the_whole_record(
    tmp_path: Path, index: str, table_type: str
) -> None:
    table = new_table(tmp_path / "t", index, table_type, moves=True)
    table.upsert(rows(("a", "x", 1), ("b", "x", 2), ("c", "y", 3)))
    update = pa.table({"id": ["a", "b", "new"], "city": ["y", "x", "y"]})
    table.upsert(update, partial=True)
    found = sorted(map(tuple, (row.values() for row in table.read_arrow().to_pylist())))
    assert found == [("a", "y", 1), ("b", "x", 2), ("c", "y", 3), ("new", "y", None)]


def test_a_row_that_is_marked_as_a_delete_deletes_the_record_where_it_is(
    tmp_path: Path, index: str, table_type: str
) -> None:
    schema = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    table = hw.create_table(
        tmp_path / "t",
        schema=schema,
        record_key="id",
        partition_by="city",
        table_type=table_type,
        index=index,
        options={**OPTIONS, OPTION_OF[index]: "true"},
    )
    table.upsert(pa.table([["a", "b"], ["x", "x"], [1, 2], [False, False]], schema=schema))
    table.upsert(pa.table([["a"], ["y"], [1], [True]], schema=schema))
    assert table.read_arrow(["id", "city"]).to_pylist() == [{"id": "b", "city": "x"}]


def test_a_bloom_index_is_asked_in_the_metadata_table(tmp_path: Path, table_type: str) -> None:
    options = {
        "hoodie.metadata.index.bloom.filter.enable": "true",
        "hoodie.metadata.index.column.stats.enable": "true",
        "hoodie.bloom.index.use.metadata": "true",
    }
    table = new_table(tmp_path / "t", "global_bloom", table_type, moves=True, options=options)
    table.upsert(rows(("a", "x", 1), ("b", "x", 2), ("c", "y", 3)))
    table.upsert(rows(("a", "y", 10), ("c", "y", 30)))
    table.upsert(rows(("a", "z", 11)))
    assert content(table) == [("a", "z", 11), ("b", "x", 2), ("c", "y", 30)]
    assert not problems(table)


def test_base_files_of_a_global_bloom_index_have_filters(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", "global_bloom", "COPY_ON_WRITE", moves=True)
    table.upsert(rows(("a", "x", 1)))
    (path,) = (tmp_path / "t").rglob("*.parquet")
    names = pq.read_metadata(path).metadata
    assert any(b"bloomfilter" in name for name in names)


@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
def test_inserts_look_keys_up_too(
    tmp_path: Path, index: str, table_type: str, operation: str
) -> None:
    table = new_table(tmp_path / "t", index, table_type, moves=True)
    table.upsert(rows(("a", "x", 1)))
    getattr(table, operation)(rows(("a", "y", 5), ("b", "y", 6)))
    assert content(table) == [("a", "y", 5), ("b", "y", 6)]


@pytest.mark.some(1)
def test_more_rows_than_a_task_holds_in_memory(tmp_path: Path, index: str) -> None:
    options = {"headwater.write.task.memory.bytes": str(1024 * 1024)}
    table = new_table(tmp_path / "t", index, "COPY_ON_WRITE", moves=True, options=options)
    first = [(f"k{n}", "xyz"[n % 3], n) for n in range(60_000)]
    table.upsert(rows(*first))
    second = [(f"k{n}", "xyz"[(n + n % 2) % 3], -n) for n in range(0, 60_000, 5)]
    table.upsert(rows(*second))
    expected = {key: (key, city, fare) for key, city, fare in [*first, *second]}
    assert content(table) == sorted(expected.values())


KEYS = st.sampled_from([f"k{n}" for n in range(8)])
ROWS = st.lists(st.tuples(KEYS, st.sampled_from("xyz"), st.integers(0, 99)), max_size=5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["upsert", "insert", "delete"]), ROWS.filter(bool)),
        st.tuples(st.sampled_from(["compact", "cluster", "clean"]), st.just([])),
    ),
    min_size=1,
    max_size=8,
)


@given(
    index=st.sampled_from(INDEXES),
    table_type=st.sampled_from(TYPES),
    moves=st.booleans(),
    steps=STEPS,
)
@settings(max_examples=settings().max_examples // 6)
def test_a_table_is_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory,
    index: str,
    table_type: str,
    *,
    moves: bool,
    steps: Sequence[tuple[str, list[Row]]],
) -> None:
    table = new_table(tmp_path_factory.mktemp("t") / "t", index, table_type, moves=moves)
    model: dict[str, Row] = {}
    homes: dict[str, set[str]] = {}
    for step, given_rows in steps:
        apply(table, step, given_rows)
        for key, city, fare in given_rows:
            if step == "delete":
                model.pop(key, None)
            else:
                model[key] = (key, city, fare)
        found = content(table)
        assert [(key, fare) for key, _, fare in found] == [
            (key, fare) for key, _, fare in sorted(model.values())
        ]
        for key, city, _ in found:
            if moves:
                assert city == model[key][1]
            else:
                homes.setdefault(key, set()).add(city)
    if not moves and not any(step == "delete" for step, _ in steps):
        assert all(len(cities) == 1 for cities in homes.values())
    assert not problems(table)


class SplitRows(InlineRows):
    """Rows that several tasks look up and several write, with nothing known of them before."""

    def __init__(self, table: pa.Table, task_count: int) -> None:
        super().__init__(table)
        self._batches = table.to_batches(max_chunksize=2)
        self._task_count = task_count

    def held(self) -> None:  # type: ignore[override]
        return None

    def run(self, route: Route, task: RowsTask[Any]) -> list[Any]:
        assert route.tag is not None
        tagged = [one for batch in self._batches for one in route.tag(iter([batch]))]
        stats = []
        for number in range(self._task_count):
            mine = [one.filter(self._is_for(number, one)) for one in tagged]
            context = TaskContext(task=number, task_attempt=0, task_count=self._task_count)
            stats += task(context, iter([one for one in mine if one.num_rows]))
        return stats

    def _is_for(self, number: int, batch: pa.RecordBatch) -> pa.BooleanArray:
        return pa.array(batch.column(GROUP_NUMBER).to_numpy() % self._task_count == number)


@given(
    index=st.sampled_from(INDEXES),
    table_type=st.sampled_from(TYPES),
    task_count=st.integers(2, 3),
    batches=st.lists(ROWS.filter(bool), min_size=2, max_size=5),
)
@settings(
    max_examples=settings().max_examples // 8,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,  # It only makes targets.
        HealthCheck.too_slow,
    ],
)
def test_several_tasks_move_records(
    tmp_path_factory: pytest.TempPathFactory,
    target_of: Callable[[Table], TableContext],
    index: str,
    table_type: str,
    task_count: int,
    batches: Sequence[list[Row]],
) -> None:
    table = new_table(tmp_path_factory.mktemp("t") / "t", index, table_type, moves=True)
    request = WriteRequest(operation=Operation.UPSERT, columns=SCHEMA)
    model: dict[str, Row] = {}
    for batch in batches:
        # One file for each row to begin with, so that tasks have several slices.
        for row in batch if not model else ():
            table.bulk_insert(rows(row))
        run_write(target_of(table), request, SplitRows(rows(*batch), task_count))
        model |= {key: (key, city, fare) for key, city, fare in batch}
        assert content(table) == sorted(model.values())
    assert not problems(table)


def apply(table: Table, step: str, given_rows: list[Row]) -> None:
    if step in ("compact", "cluster", "clean"):
        getattr(table.services, step)()
    else:
        getattr(table, step)(rows(*given_rows))
