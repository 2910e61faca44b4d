"""What is taken back is gone from every index too, also if they had taken it in for good."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.tables import a_table

from headwater.errors import StorageError
from headwater.table import Table

INDEXES = ("bloom_filters", "column_stats", "files", "partition_stats", "record_index")


def trips(path: Path, table_type: str) -> Table:
    shape = a_table(path, "id string, city string, fare double, ts long", partition_by="city")
    options = {
        "hoodie.metadata.index.column.stats.enable": "true",
        "hoodie.metadata.index.bloom.filter.enable": "true",
        "hoodie.metadata.global.record.level.index.enable": "true",
        "hoodie.metadata.compact.max.delta.commits": "2",
    }
    return shape.having(ordering="ts", table_type=table_type, buckets=2, options=options).create()


def upsert(table: Table, number: int) -> str:
    rows = {"id": ["a", f"c{number}"], "city": ["sf", "ny"], "fare": [1.0, 2.0], "ts": [number] * 2}
    return table.upsert(pa.table(rows)).instant


def ids(table: Table) -> list[str]:
    return sorted(table.read_arrow(["id"])["id"].to_pylist())


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.some(1)
def test_a_restore_takes_back_what_indexes_hold_in_base_files(
    tmp_path: Path, table_type: str
) -> None:
    table = trips(tmp_path, table_type)
    upsert(table, 0)
    saved = upsert(table, 1)
    table.services.savepoint(saved)
    for number in range(2, 8):
        upsert(table, number)
    table.services.restore(saved)
    config = table.reload().config
    assert config.metadata_partitions == INDEXES
    assert config.indexes_to_rebuild == ()
    assert ids(table) == ["a", "c0", "c1"]
    assert table.inspect.validate_metadata().num_rows == 0
    upsert(table, 9)
    assert "missing" not in table.inspect.validate_metadata()["problem"].to_pylist()
    assert ids(table) == ["a", "c0", "c1", "c9"]


def test_a_rebuild_that_fails_is_made_up_for_by_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = trips(tmp_path, "COPY_ON_WRITE")
    saved = upsert(table, 1)
    table.services.savepoint(saved)
    for number in range(2, 8):
        upsert(table, number)

    def fail(*args: object, **names: object) -> None:
        raise StorageError("The store is away")

    with monkeypatch.context() as patch:
        patch.setattr("headwater.services.rebuild.Indexes.create", fail)
        table.services.restore(saved)
    config = table.reload().config
    assert config.metadata_partitions == ()
    assert config.indexes_to_rebuild == INDEXES
    assert ids(table) == ["a", "c1"]  # By listing.
    upsert(table, 9)
    table.services.clean()
    assert table.reload().config.metadata_partitions == INDEXES
    assert table.inspect.validate_metadata().num_rows == 0
    assert ids(table) == ["a", "c1", "c9"]


def test_what_lies_in_logs_is_forgotten_without_a_rebuild(tmp_path: Path) -> None:
    table = trips(tmp_path, "MERGE_ON_READ")
    upsert(table, 1)
    last = upsert(table, 2)
    table.services.rollback(last)
    assert table.reload().config.metadata_partitions == INDEXES
    assert ids(table) == ["a", "c1"]
    assert table.inspect.validate_metadata().num_rows == 0
