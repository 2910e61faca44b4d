"""Writes to tables whose records are found by the record index: a key is in one place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.context import TableContext
from headwater.metadata.partition_kinds import RECORD_INDEX
from headwater.operations.plan import Operation
from headwater.operations.write import WriteRequest, start_write
from headwater.table import Table

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("fare", pa.int64())])
OPTIONS = {"headwater.storage.fsync": "false", "hoodie.write.lock.provider": "in_process"}


@pytest.fixture(params=["COPY_ON_WRITE", "MERGE_ON_READ"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    return new_table(tmp_path / "t", request.param)


def new_table(folder: Path, table_type: str = "COPY_ON_WRITE", **more: Any) -> Table:
    options = {"schema": SCHEMA, "record_key": "id", "partition_by": "city", "options": OPTIONS}
    return hw.create_table(
        folder, table_type=table_type, index="record_index", **{**options, **more}
    )


def rows(*tuples: tuple[str, str, int]) -> pa.Table:
    columns = zip(*tuples, strict=True)
    return pa.table([list(column) for column in columns], schema=SCHEMA)


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
    assert set(running.plan.slices) == {"city=x", "city=y"}
    assert running.plan.uses_record_index
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
