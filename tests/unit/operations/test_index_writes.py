"""Tables with a simple or bloom index behave as a dict of records, however many tasks write."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.tables import columns, table_at

import headwater as hw
from headwater.context import TableContext
from headwater.engine.engine import GROUP_NUMBER, Route, RouteKind, RowsTask, TaskContext
from headwater.errors import InvalidInputError
from headwater.metadata.view import load_view
from headwater.model.commit import Commit
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.tasks.staging import StagedRows, stage_rows
from headwater.operations.write import run_write, start_write
from headwater.table import Table

R = TypeVar("R")
Row = dict[str, Any]

SCHEMA = columns("id string not null, city string, value long, note string")
KEY_COLUMNS = ["id", "city"]

each_index = pytest.mark.parametrize("index", ["simple", "bloom"])
each_type = pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])


def make_table(path: Path | str, **arguments: Any) -> Table:
    return table_at(Path(path), SCHEMA, partition_by="city").having(**arguments).create()


def rows_of(*rows: tuple[str, str, int]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {"id": key, "city": city, "value": value, "note": f"n{value}"}
            for key, city, value in rows
        ],
        SCHEMA,
    )


def read(table: Table) -> list[Row]:
    rows: list[Row] = table.read_arrow().to_pylist()
    return sorted(rows, key=lambda row: (row["city"], row["id"], row["value"]))


def read_with_hudi_rs(table: Table) -> list[Row]:
    builder = pytest.importorskip("hudi", reason="hudi-rs is not installed").HudiTableBuilder
    batches = builder.from_base_uri(table.uri).build().read()
    rows = [row for batch in batches for row in pa.table(batch).select(SCHEMA.names).to_pylist()]
    return sorted(rows, key=lambda row: (row["city"], row["id"], row["value"]))


def group_of(table: Table) -> dict[str, str]:
    """Return record key -> file id."""
    names = table.read_arrow(["id", "_hoodie_file_name"]).to_pylist()
    # Rows of a log carry the file id alone.
    return {row["id"]: row["_hoodie_file_name"].partition("_")[0] for row in names}


class SplitRows:
    """Rows that go to several tasks by their numbers, as a cluster would send them."""

    def __init__(self, table: pa.Table, *, task_count: int, batch_rows: int = 3) -> None:
        self._table = table
        self._task_count = task_count
        self._batch_rows = batch_rows

    @property
    def schema(self) -> pa.Schema:
        return self._table.schema

    @property
    def driver_host(self) -> None:
        return None

    def held(self) -> None:
        return None

    def run(self, route: Route, task: RowsTask[R]) -> list[R]:
        batches = self._table.to_batches(self._batch_rows)
        if route.kind is RouteKind.BY_FILE_GROUP:
            assert route.tag is not None
            # Each task of the map side looks up for itself.
            batches = [batch for given in batches for batch in route.tag(iter([given]))]
        results: list[R] = []
        for number in range(self._task_count):
            context = TaskContext(task=number, task_attempt=0, task_count=self._task_count)
            results += task(context, self._rows_of_task(batches, route, number))
        return results

    def _rows_of_task(
        self, batches: list[pa.RecordBatch], route: Route, number: int
    ) -> Iterator[pa.RecordBatch]:
        for at, batch in enumerate(batches):
            if route.kind is RouteKind.ANYWHERE:
                if at % self._task_count == number:
                    yield batch
                continue
            mine = [tag % self._task_count == number for tag in batch[GROUP_NUMBER].to_pylist()]
            yield batch.filter(pa.array(mine, pa.bool_()))


def target_of(table: Table) -> TableContext:
    return table.context


def write_split(
    table: Table, operation: Operation, rows: pa.Table, *, task_count: int, partial: bool = False
) -> Commit:
    request = WriteRequest(operation=operation, columns=rows.schema, is_partial=partial)
    return run_write(target_of(table), request, SplitRows(rows, task_count=task_count))


class Step(NamedTuple):
    operation: Operation
    rows: list[tuple[str, str, int]]


keys = st.sampled_from(["a", "b", "c", "d", "é", "€", "z" * 20])
row = st.tuples(keys, st.sampled_from(["sf", "la"]), st.integers(0, 99))
steps = st.lists(
    st.builds(
        Step,
        st.sampled_from(
            [
                Operation.UPSERT,
                Operation.UPSERT,
                Operation.DELETE,
                Operation.OVERWRITE_PARTITIONS,
            ]
        ),
        st.lists(row, min_size=1, max_size=6),
    ),
    min_size=1,
    max_size=4,
)


def apply(model: dict[tuple[str, str], int], step: Step) -> None:
    if step.operation is Operation.OVERWRITE_PARTITIONS:
        cities = {city for _, city, _ in step.rows}
        for held in [held for held in model if held[1] in cities]:
            del model[held]
    for key, city, value in step.rows:
        if step.operation is Operation.DELETE:
            model.pop((key, city), None)
        else:
            model[key, city] = value


@each_index
@each_type
@settings(max_examples=8, deadline=None)
@given(history=steps, task_count=st.integers(1, 3), fills=st.booleans())
@pytest.mark.some(2)
def test_any_history_equals_that_of_a_dict(
    index: str, table_type: str, history: list[Step], task_count: int, fills: bool
) -> None:
    model: dict[tuple[str, str], int] = {}
    # Files of one or two rows, or files that take all: keys are spread, or meet.
    sizes = (
        {} if fills else {"hoodie.parquet.small.file.limit": 0, "hoodie.parquet.max.file.size": 9}
    )
    with tempfile.TemporaryDirectory() as folder:
        table = make_table(folder, index=index, table_type=table_type, options=sizes)
        for step in history:
            rows = rows_of(*step.rows)
            if step.operation is Operation.DELETE:
                rows = rows.select(KEY_COLUMNS)
            write_split(table, step.operation, rows, task_count=task_count)
            apply(model, step)
            assert read(table) == [
                {"id": key, "city": city, "value": value, "note": f"n{value}"}
                for (key, city), value in sorted(model.items(), key=lambda item: item[0][::-1])
            ]


@each_index
@each_type
def test_hudi_rs_reads_the_same_rows(tmp_path: Path, index: str, table_type: str) -> None:
    table = make_table(tmp_path / "t", index=index, table_type=table_type)
    table.insert(rows_of(("a", "sf", 1), ("b", "sf", 2), ("c", "la", 3)))
    table.upsert(rows_of(("a", "sf", 4), ("d", "sf", 5), ("c", "la", 6)))
    table.delete(rows_of(("b", "sf", 0), ("nobody", "la", 0)).select(KEY_COLUMNS))
    table.upsert(rows_of(("b", "la", 7), ("d", "sf", 8)))
    expected = [("b", "la", 7), ("c", "la", 6), ("a", "sf", 4), ("d", "sf", 8)]
    assert [(row["id"], row["city"], row["value"]) for row in read(table)] == expected
    assert read_with_hudi_rs(table) == read(table)


@each_index
@each_type
def test_an_update_goes_to_the_group_that_holds_the_key(
    tmp_path: Path, index: str, table_type: str
) -> None:
    sizes = {"hoodie.parquet.small.file.limit": 0}
    table = make_table(tmp_path / "t", index=index, table_type=table_type, options=sizes)
    for value, key in enumerate("abc"):
        table.upsert(rows_of((key, "sf", value)))
    before = group_of(table)
    assert len(set(before.values())) == 3
    commit = table.upsert(rows_of(("b", "sf", 10), ("c", "sf", 11), ("d", "sf", 12)))
    after = group_of(table)
    assert {key: after[key] for key in "abc"} == before
    assert after["d"] not in before.values()
    assert (commit.updated, commit.inserted) == (2, 1)
    assert {group.file_id for group in commit.file_groups} == {after[key] for key in "bcd"}


@each_type
def test_inserts_make_base_files_and_updates_make_logs_or_base_files(
    tmp_path: Path, table_type: str
) -> None:
    table = make_table(tmp_path / "t", index="simple", table_type=table_type)
    table.upsert(rows_of(("a", "sf", 1)))
    table.upsert(rows_of(("a", "sf", 2)))
    (found,) = load_view(table.storage, table.config).slices()
    assert found.base is not None
    assert len(found.logs) == (0 if table_type == "COPY_ON_WRITE" else 1)


@each_index
@each_type
def test_a_deleted_key_can_be_written_again(tmp_path: Path, index: str, table_type: str) -> None:
    table = make_table(tmp_path / "t", index=index, table_type=table_type)
    table.upsert(rows_of(("a", "sf", 1), ("b", "sf", 2)))
    table.delete(rows_of(("a", "sf", 0)).select(KEY_COLUMNS))
    assert [row["id"] for row in read(table)] == ["b"]
    table.upsert(rows_of(("a", "sf", 3)))
    assert [(row["id"], row["value"]) for row in read(table)] == [("a", 3), ("b", 2)]


@each_index
@each_type
def test_an_insert_looks_nothing_up_and_an_upsert_reaches_every_copy(
    tmp_path: Path, index: str, table_type: str
) -> None:
    table = make_table(
        tmp_path / "t",
        index=index,
        table_type=table_type,
        options={"hoodie.parquet.small.file.limit": 0},
    )
    table.insert(rows_of(("a", "sf", 1)))
    table.insert(rows_of(("a", "sf", 3), ("b", "sf", 4)))
    assert [row["value"] for row in read(table)] == [1, 3, 4]
    write_split(table, Operation.UPSERT, rows_of(("a", "sf", 9)), task_count=2)
    assert [row["value"] for row in read(table)] == [9, 9, 4]
    assert read_with_hudi_rs(table) == read(table)
    table.delete(rows_of(("a", "sf", 0)).select(KEY_COLUMNS))
    assert [row["id"] for row in read(table)] == ["b"]


@each_type
def test_an_insert_keeps_a_key_that_comes_twice_and_a_delete_removes_both(
    tmp_path: Path, table_type: str
) -> None:
    table = make_table(tmp_path / "t", index="simple", table_type=table_type)
    table.insert(rows_of(("a", "sf", 1), ("a", "sf", 2), ("b", "sf", 3)))
    assert [row["value"] for row in read(table)] == [1, 2, 3]
    table.delete(rows_of(("a", "sf", 0)).select(KEY_COLUMNS))
    assert [row["value"] for row in read(table)] == [3]


@each_type
def test_the_same_key_in_another_partition_is_another_record(
    tmp_path: Path, table_type: str
) -> None:
    table = make_table(tmp_path / "t", index="bloom", table_type=table_type)
    table.upsert(rows_of(("a", "sf", 1)))
    table.upsert(rows_of(("a", "la", 2)))
    assert [(row["city"], row["value"]) for row in read(table)] == [("la", 2), ("sf", 1)]


@each_type
def test_a_partial_upsert_keeps_what_it_does_not_bring(tmp_path: Path, table_type: str) -> None:
    table = make_table(tmp_path / "t", index="simple", table_type=table_type)
    table.upsert(rows_of(("a", "sf", 1), ("b", "sf", 2)))
    some = rows_of(("a", "sf", 5), ("new", "sf", 6)).select(["id", "city", "value"])
    write_split(table, Operation.UPSERT, some, task_count=2, partial=True)
    assert [(row["id"], row["value"], row["note"]) for row in read(table)] == [
        ("a", 5, "n1"),
        ("b", 2, "n2"),
        ("new", 6, None),
    ]


@each_type
def test_a_row_that_is_a_delete_removes_its_record_and_inserts_none(
    tmp_path: Path, table_type: str
) -> None:
    schema = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    table = make_table(tmp_path / "t", index="simple", table_type=table_type, schema=schema)
    kept = pa.array([False, False])
    first = rows_of(("a", "sf", 1), ("b", "sf", 2)).append_column("_hoodie_is_deleted", kept)
    table.upsert(first)
    rows = rows_of(("a", "sf", 3), ("new", "sf", 4), ("newer", "sf", 5))
    table.upsert(rows.append_column("_hoodie_is_deleted", pa.array([True, True, False])))
    assert [(row["id"], row["value"]) for row in read(table)] == [("b", 2), ("newer", 5)]


def test_rows_that_were_laid_aside_are_looked_up_too(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", index="bloom")
    table.upsert(rows_of(("a", "sf", 1), ("b", "sf", 2)))
    rows = rows_of(("b", "sf", 3), ("c", "sf", 4))
    running = start_write(
        target_of(table), WriteRequest(operation=Operation.UPSERT, columns=rows.schema)
    )
    here = TaskContext(task=0, task_attempt=0, task_count=1)
    path = stage_rows(running.plan, here, iter(rows.to_batches()))
    assert path is not None
    commit = running.commit(running.run_tasks(StagedRows(table.storage, [path], rows.schema)))
    assert (commit.inserted, commit.updated) == (1, 1)
    assert [(row["id"], row["value"]) for row in read(table)] == [("a", 1), ("b", 3), ("c", 4)]


@each_type
def test_ordering_decides_also_across_groups(tmp_path: Path, table_type: str) -> None:
    table = make_table(tmp_path / "t", index="simple", table_type=table_type, ordering="value")
    table.upsert(rows_of(("a", "sf", 5), ("a", "sf", 3), ("b", "sf", 1)))
    table.upsert(rows_of(("a", "sf", 4), ("b", "sf", 2)))
    assert [(row["id"], row["value"]) for row in read(table)] == [("a", 5), ("b", 2)]


def test_a_key_that_is_null_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", index="simple")
    bad = pa.table({"id": pa.array(["a", None]), "city": ["sf", "sf"], "value": [1, 2]})
    with pytest.raises(InvalidInputError, match="null"):
        table.upsert(bad)
    assert read(table) == []


def test_a_table_that_does_not_say_its_index_is_written_by_the_index_of_the_writer(
    tmp_path: Path,
) -> None:
    make_table(tmp_path / "t", index="simple").upsert(rows_of(("a", "sf", 1)))
    properties = tmp_path / "t" / ".hoodie" / "hoodie.properties"
    dropped = ("hoodie.index.type", "#headwater.crc32")
    lines = properties.read_text().splitlines()
    kept = [line for line in lines if not line.startswith(dropped)]
    properties.write_text("\n".join(kept) + "\n")
    with pytest.raises(InvalidInputError, match=r"Open it with the option hoodie\.index\.type"):
        hw.open_table(tmp_path / "t").upsert(rows_of(("a", "sf", 2)))
    table = hw.open_table(tmp_path / "t", options={"hoodie.index.type": "BLOOM"})
    table.upsert(rows_of(("a", "sf", 2), ("b", "sf", 3)))
    assert [(row["id"], row["value"]) for row in read(table)] == [("a", 2), ("b", 3)]
    assert "hoodie.index.type" not in properties.read_text()
