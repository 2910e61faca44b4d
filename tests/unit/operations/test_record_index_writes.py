"""Writes to tables whose records are found by the record index: a key is in one place."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.tables import FAST, columns, rows_of, table_at

import headwater as hw
from headwater.context import TableContext
from headwater.metadata.partition_kinds import RECORD_INDEX
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.write import start_write
from headwater.table import Table

SCHEMA = columns("id string, city string, fare long")
OPTIONS = {**FAST, "hoodie.write.lock.provider": "in_process"}


@pytest.fixture(params=["COPY_ON_WRITE", "MERGE_ON_READ"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    return new_table(tmp_path / "t", request.param)


def new_table(folder: Path, table_type: str = "COPY_ON_WRITE", **more: Any) -> Table:
    shape = table_at(folder, SCHEMA, partition_by="city", index="record_index", options=OPTIONS)
    return shape.having(table_type=table_type, **more).create()


rows = rows_of(SCHEMA)


def content(table: Table) -> list[tuple[Any, ...]]:
    """Return the partition path of each row, and the row."""
    found = table.read_arrow(["_hoodie_partition_path", "id", "city", "fare"])
    return sorted(tuple(row.values()) for row in found.to_pylist())


def test_a_new_table_has_the_index(table: Table) -> None:
    assert RECORD_INDEX in table.config.metadata_partitions


def test_a_record_stays_in_its_partition(table: Table) -> None:
    table.upsert(rows(("a", "x", 1), ("b", "y", 2)))
    done = table.upsert(rows(("a", "y", 10), ("c", "y", 3)))
    assert (done.inserted, done.updated) == (1, 1)
    # Its partition column is that of where it is, by which readers skip partitions.
    assert content(table) == [
        ("city=x", "a", "x", 10),
        ("city=y", "b", "y", 2),
        ("city=y", "c", "y", 3),
    ]
    assert table.read_arrow(where="city = 'x'").num_rows == 1


@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
def test_an_insert_of_a_key_that_exists_updates_it(table: Table, operation: str) -> None:
    table.upsert(rows(("a", "x", 1)))
    getattr(table, operation)(rows(("a", "y", 5), ("b", "y", 6)))
    assert content(table) == [("city=x", "a", "x", 5), ("city=y", "b", "y", 6)]


def test_a_delete_finds_a_record_whatever_partition_is_said(table: Table) -> None:
    table.upsert(rows(("a", "x", 1), ("b", "x", 2)))
    table.delete(rows(("a", "y", 0), ("nobody", "x", 0)))
    assert content(table) == [("city=x", "b", "x", 2)]


def test_a_deleted_record_may_come_again_anywhere(table: Table) -> None:
    table.upsert(rows(("a", "x", 1)))
    table.delete(rows(("a", "x", 0)))
    table.upsert(rows(("a", "y", 2)))
    ((_, key, _, fare),) = content(table)
    assert (key, fare) == ("a", 2)
    assert table.read_arrow(where="id = 'a'").num_rows == 1


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("index", ["record_index", "global_simple"])
@pytest.mark.parametrize("is_compacted", [False, True])
@pytest.mark.some(3)
def test_a_deleted_record_comes_again_where_its_row_says(
    tmp_path: Path, table_type: str, index: str, is_compacted: bool
) -> None:
    stay = {**OPTIONS, "hoodie.simple.index.update.partition.path": "false"}
    table = new_table(tmp_path / "t", table_type, index=index, options=stay)
    table.upsert(rows(("a", "x", 1), ("b", "x", 1)))
    table.delete(rows(("a", "x", 0)))
    if is_compacted and table_type == "MERGE_ON_READ":
        assert table.services.compact() is not None
    table.upsert(rows(("a", "y", 2), ("b", "y", 2), ("a", "z", 3)))
    expected = [("city=x", "b", "x", 2), ("city=z", "a", "z", 3)]
    assert content(table) == expected
    if table_type == "MERGE_ON_READ":
        assert table.services.compact() is not None
        assert content(table) == expected
    table.upsert(rows(("a", "x", 4)))
    assert content(table) == [expected[0], ("city=z", "a", "z", 4)]
    assert table.read_arrow(where="id = 'a' AND city = 'z'")["fare"].to_pylist() == [4]


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize(
    ("arrow", "first", "second"),
    [
        (pa.timestamp("us", "UTC"), datetime(2024, 1, 1, tzinfo=UTC), datetime.now(UTC)),
        (pa.date32(), date(2024, 1, 1), date(2024, 6, 1)),
        (pa.string(), "", "x"),
        (pa.string(), None, "x"),
    ],
)
def test_a_record_that_stays_has_the_partition_value_it_had(
    tmp_path: Path, table_type: str, arrow: pa.DataType, first: Any, second: Any
) -> None:
    schema = pa.schema([("id", pa.string()), ("city", arrow), ("fare", pa.int64())])
    table = new_table(tmp_path / "t", table_type, schema=schema)
    table.upsert(pa.table([["a"], pa.array([first], arrow), [1]], schema=schema))
    table.upsert(pa.table([["a"], pa.array([second], arrow), [2]], schema=schema))
    assert table.read_arrow(["city", "fare"]).to_pylist() == [{"city": first, "fare": 2}]
    own, other = pc.scalar(pa.scalar(first, arrow)), pc.scalar(pa.scalar(second, arrow))
    is_first = pc.field("city").is_null() if first is None else pc.field("city") == own
    assert table.read_arrow(where=is_first)["fare"].to_pylist() == [2]
    assert table.read_arrow(where=pc.field("city") == other).num_rows == 0


def test_an_entry_of_a_replaced_group_counts_as_none(table: Table) -> None:
    table.upsert(rows(("a", "x", 1), ("b", "y", 2)))
    table.delete_partitions(["city=x"])
    table.upsert(rows(("a", "y", 3)))
    assert content(table) == [("city=y", "a", "y", 3), ("city=y", "b", "y", 2)]
    table.overwrite(rows(("a", "x", 4)))
    table.upsert(rows(("a", "z", 5), ("b", "z", 6)))
    assert content(table) == [("city=x", "a", "x", 5), ("city=z", "b", "z", 6)]


def test_clustering_and_compaction_move_records_and_they_are_found(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", "MERGE_ON_READ")
    for number in range(3):
        table.bulk_insert(rows((f"k{number}", "x", number)))
    table.upsert(rows(("k0", "y", 10)))
    assert table.services.compact() is not None
    assert table.services.cluster() is not None
    done = table.upsert(rows(("k0", "y", 20), ("k2", "y", 22)))
    assert (done.inserted, done.updated) == (0, 2)
    assert content(table) == [
        ("city=x", "k0", "x", 20),
        ("city=x", "k1", "x", 1),
        ("city=x", "k2", "x", 22),
    ]


def test_without_the_index_keys_are_searched_in_all_files(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t")
    table.upsert(rows(("a", "x", 1), ("b", "y", 2)))
    table.indexes.drop(RECORD_INDEX)
    table.upsert(rows(("a", "y", 3), ("c", "y", 4)))
    assert content(table) == [
        ("city=x", "a", "x", 3),
        ("city=y", "b", "y", 2),
        ("city=y", "c", "y", 4),
    ]
    table.indexes.create(RECORD_INDEX)
    table.upsert(rows(("c", "x", 5)))
    assert content(table)[-1] == ("city=y", "c", "y", 5)


def test_only_partitions_of_the_rows_and_their_records_are_loaded(
    tmp_path: Path, target_of: Callable[[Table], TableContext]
) -> None:
    table = new_table(tmp_path / "t")
    table.upsert(rows(("a", "x", 1), ("b", "y", 2), ("c", "z", 3)))
    request = WriteRequest(operation=Operation.UPSERT, columns=SCHEMA)
    running = start_write(
        target_of(table), request, held=rows(("a", "y", 9), ("new", "w", 1)).to_batches()
    )
    assert set(running.plan.groups.slices) == {"city=x", "city=y"}
    assert running.plan.key_search.uses_record_index
    running.abandon()


def test_partitions_cannot_be_overwritten(table: Table) -> None:
    with pytest.raises(hw.UnsupportedError, match="Delete the partitions and upsert"):
        table.overwrite_partitions(rows(("a", "x", 1)))


def test_of_a_table_without_partitions(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", partition_by=None)
    table.upsert(rows(("a", "x", 1), ("b", "y", 2)))
    table.upsert(rows(("a", "y", 3)))
    assert [row[1:] for row in content(table)] == [("a", "y", 3), ("b", "y", 2)]
    table.overwrite_partitions(rows(("a", "z", 4)))
    assert [row[1:] for row in content(table)] == [("a", "z", 4)]
