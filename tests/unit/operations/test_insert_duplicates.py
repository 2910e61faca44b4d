"""Inserts that drop or refuse rows whose keys the table has."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import headwater as hw
from headwater.engine.inline import InlineRows
from headwater.errors import ConflictError, ErrorKind, InvalidInputError, UnsupportedError
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.write import start_write

SCHEMA = "id long, city string, fare double, ts long"
DROP = {"hoodie.datasource.write.insert.drop.duplicates": "true"}
FAIL = {"hoodie.datasource.insert.dup.policy": "fail"}


def rows_of(*rows: tuple[int, str, float]) -> pa.Table:
    ids, cities, fares = zip(*rows, strict=True)
    return pa.table({"id": ids, "city": cities, "fare": fares, "ts": [1] * len(rows)})


def found(path: str) -> list[tuple[int, str, float]]:
    rows = hw.open_table(path).read_arrow(["id", "city", "fare"]).to_pylist()
    return sorted((row["id"], row["city"], row["fare"]) for row in rows)


def create(path: Path, index: str, table_type: str) -> str:
    place = str(path / "t")
    table = hw.create_table(
        place,
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type=table_type,
        options={"hoodie.index.type": index},
    )
    table.insert(rows_of((1, "sf", 1.0), (2, "sf", 2.0), (3, "ny", 3.0)))
    return place


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("index", ["BUCKET", "SIMPLE", "GLOBAL_SIMPLE", "RECORD_INDEX"])
def test_rows_of_keys_that_exist_are_dropped(tmp_path: Path, index: str, table_type: str) -> None:
    path = create(tmp_path, index, table_type)
    # Within a batch one row of a key counts; where a record is deleted, a row of its key is new.
    hw.open_table(path).delete(where="id = 2")
    hw.open_table(path, DROP).insert(
        rows_of((1, "sf", 9.0), (2, "sf", 9.0), (4, "sf", 4.0), (4, "sf", 4.0), (5, "la", 5.0))
    )
    assert found(path) == [
        (1, "sf", 1.0),
        (2, "sf", 9.0),
        (3, "ny", 3.0),
        (4, "sf", 4.0),
        (5, "la", 5.0),
    ]
    before = found(path)
    commit = hw.open_table(path, DROP).insert(rows_of((1, "sf", 8.0), (4, "sf", 8.0)))
    assert commit.inserted + commit.updated == 0
    assert found(path) == before


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_key_of_the_whole_table_is_found_in_another_partition(
    tmp_path: Path, table_type: str
) -> None:
    path = create(tmp_path, "GLOBAL_SIMPLE", table_type)
    hw.open_table(path, DROP).insert(rows_of((3, "sf", 9.0), (6, "sf", 6.0)))
    assert found(path) == [(1, "sf", 1.0), (2, "sf", 2.0), (3, "ny", 3.0), (6, "sf", 6.0)]


@pytest.mark.parametrize("index", ["BUCKET", "SIMPLE"])
def test_an_insert_of_keys_that_exist_is_refused(tmp_path: Path, index: str) -> None:
    path = create(tmp_path, index, "MERGE_ON_READ")
    table = hw.open_table(path, FAIL)
    table.insert(rows_of((7, "sf", 7.0)))
    with pytest.raises(InvalidInputError, match=r"1 keys of an insert .* such as '1'") as caught:
        table.insert(rows_of((1, "sf", 9.0), (8, "sf", 8.0)))
    assert caught.value.kind is ErrorKind.KEYS_EXIST
    assert [key for key, *_ in found(path)] == [1, 2, 3, 7]


def test_upserts_and_bulk_inserts_are_no_inserts(tmp_path: Path) -> None:
    path = create(tmp_path, "SIMPLE", "COPY_ON_WRITE")
    table = hw.open_table(path, DROP)
    table.upsert(rows_of((1, "sf", 9.0)))
    assert found(path)[0] == (1, "sf", 9.0)
    with pytest.raises(UnsupportedError, match="A bulk insert does not look for keys"):
        table.bulk_insert(rows_of((9, "sf", 9.0)))


@pytest.mark.parametrize("index", ["BUCKET", "SIMPLE"])
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_an_insert_meets_keys_that_another_one_brought_meanwhile(
    tmp_path: Path, index: str, table_type: str
) -> None:
    """Also where an insert into a bucket would otherwise append the same logs in any case."""
    path = create(tmp_path, index, table_type)
    options = {
        **DROP,
        "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
        "hoodie.write.lock.provider": "filesystem",
        "hoodie.write.concurrency.early.conflict.detection.enable": "false",
    }
    table = hw.open_table(path, options)
    rows = InlineRows(rows_of((10, "sf", 1.0), (11, "sf", 1.0)))
    request = WriteRequest(operation=Operation.INSERT, columns=rows.schema)
    write = start_write(table.context, request, held=rows.held(), redoes=True)
    stats = write.run_tasks(rows)
    hw.open_table(path, options).insert(rows_of((10, "sf", 2.0)))
    with pytest.raises(ConflictError):
        write.commit(stats)
    redone = write.redo(rows, stats)
    if redone is None:
        write.abandon()
        table.insert(rows_of((10, "sf", 1.0), (11, "sf", 1.0)))
    else:
        write.commit(redone.stats)
    assert found(path)[-2:] == [(10, "sf", 2.0), (11, "sf", 1.0)]
