"""Damage done to indexes by hand, and what validation says of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.tables import a_table, rows_of

import headwater as hw
from headwater.format.hfile.writer import sort_entries
from headwater.format.metadata.records import encode_record_locations
from headwater.inspect.validate_metadata import SCHEMA as PROBLEM_SCHEMA
from headwater.kernel.view.table_view import load_listed_view
from headwater.metadata.column_ranges import ColumnRange
from headwater.metadata.column_stats import column_stats_records, partition_stats_records
from headwater.metadata.log_files import encode_metadata_log, read_metadata_log
from headwater.metadata.records import MetadataRecords
from headwater.model.files import DataFile, parse_data_file
from headwater.table import Table

PARTITIONS = ("bloom_filters", "column_stats", "files", "partition_stats", "record_index")
OPTIONS = {
    "headwater.storage.fsync": "false",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
}
ROWS = pa.schema([("id", pa.string()), ("city", pa.string()), ("fare", pa.int64())])

Problem = dict[str, Any]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    shape = a_table(tmp_path, ROWS, partition_by="city", buckets=1, options=OPTIONS)
    return shape.with_upserts(rows(("a", "sf", 1), ("b", "ny", 2))).create()


rows = rows_of(ROWS)


def problems(table: Table) -> list[Problem]:
    found: list[Problem] = table.inspect.validate_metadata().to_pylist()
    return found


def logs_of(table: Table, partition: str) -> list[str]:
    """Return the logs of one index that have entries."""
    storage = table.context.components.storage
    paths = [info.path for info in storage.list_tree(f".hoodie/metadata/{partition}")]
    files = [(path, parse_data_file(path)) for path in paths]
    times = {file.instant_time for _, file in files if file is not None}
    newest = max(times)
    return [path for path, file in files if file is not None and file.instant_time == newest]


def tell(
    table: Table, partition: str, change: Callable[[MetadataRecords], MetadataRecords]
) -> None:
    """Change what the newest commit told one index."""
    storage = table.context.components.storage
    for path in logs_of(table, partition):
        file = parse_data_file(path)
        assert file is not None
        (said,) = read_metadata_log(storage.read(path), path=path)
        changed = change(said)
        data = encode_metadata_log(changed, partition, file.instant_time)
        storage.put(path, data)


def base_files(table: Table) -> dict[str, DataFile]:
    view = load_listed_view(table.context.components.storage, table.config)
    return {one.group.partition: next(one.files()) for one in view.slices()}


def test_a_table_whose_indexes_are_right_has_no_problems(table: Table) -> None:
    assert set(table.config.metadata_partitions) == set(PARTITIONS)
    assert table.inspect.validate_metadata().equals(PROBLEM_SCHEMA.empty_table())


def test_a_table_without_indexes_has_no_problems(tmp_path: Path) -> None:
    bare = hw.create_table(
        tmp_path / "bare",
        schema=ROWS,
        record_key="id",
        options={"headwater.storage.fsync": "false", "hoodie.metadata.enable": "false"},
    )
    bare.insert(rows(("a", "sf", 1)))
    assert problems(bare) == []


@pytest.mark.parametrize("partition", PARTITIONS)
def test_what_was_not_told_is_missing(table: Table, partition: str) -> None:
    tell(table, partition, lambda _: MetadataRecords.none())
    found = problems(table)
    assert {row["partition"] for row in found} == {partition}
    assert {row["problem"] for row in found} <= {"missing", "wrong"}
    assert any(row["problem"] == "missing" for row in found) or partition == "files"


def test_bounds_of_a_file_without_rows_may_be_missing(table: Table) -> None:
    """As Hudi leaves them; a file that no index knows is read."""
    table.delete(pa.table({"id": ["a"], "city": ["sf"]}))
    (left,) = [
        one
        for one in table.inspect.files().to_pylist()
        if one["partition"] == "city=sf" and one["is_latest"]
    ]
    assert pq.ParquetFile(Path(table.uri) / left["path"]).metadata.num_rows == 0
    tell(table, "column_stats", lambda _: MetadataRecords.none())
    assert problems(table) == []


@pytest.mark.parametrize("partition", PARTITIONS)
def test_a_lost_log_is_noticed(table: Table, partition: str) -> None:
    for path in logs_of(table, partition):
        table.context.components.storage.delete(path)
    found = problems(table)
    assert {row["partition"] for row in found} == {partition}
    assert any(row["problem"] in ("missing", "wrong") for row in found)


@pytest.mark.parametrize("partition", PARTITIONS)
def test_a_damaged_log_is_told_and_the_others_are_validated(table: Table, partition: str) -> None:
    storage = table.context.components.storage
    (first, *_) = logs_of(table, partition)
    storage.put(first, storage.read(first)[:-20])
    found = problems(table)
    assert {row["partition"] for row in found} == {partition}
    assert all(row["problem"] == "wrong" for row in found)
    assert any("trips" in (row["held"] or "") for row in found)


def test_a_record_in_another_place_is_wrong(table: Table) -> None:
    sf, ny = (base_files(table)[f"city={city}"].file_id for city in ("sf", "ny"))

    def moved(said: MetadataRecords) -> MetadataRecords:
        values = encode_record_locations("city=ny", ny, pa.array([1] * len(said.keys)))
        return MetadataRecords(said.keys, values, said.removed)

    tell(table, "record_index", moved)
    (row,) = problems(table)
    assert (row["partition"], row["key"], row["problem"]) == ("record_index", "a", "wrong")
    assert row["held"] == f"city=ny/{ny}"
    assert row["expected"] == f"city=sf/{sf}"


def test_an_entry_of_nothing_is_stale(table: Table) -> None:
    (path, *_) = logs_of(table, "record_index")
    (said,) = read_metadata_log(table.context.components.storage.read(path), path=path)

    def more(told: MetadataRecords) -> MetadataRecords:
        if told.keys.to_pylist() != said.keys.to_pylist():
            return told
        keys = pa.concat_arrays([told.keys, pa.array(["zz"])])
        values = pa.concat_arrays([told.values, told.values[:1]])
        return MetadataRecords(*sort_entries(keys, values), told.removed)

    tell(table, "record_index", more)
    found = [(row["key"], row["problem"]) for row in problems(table)]
    assert found == [("zz", "stale")]


@pytest.mark.parametrize(
    ("low", "high", "problem"), [(1, 0, "wrong"), (5, 9, "wrong"), (0, 1, "stale"), (1, 1, None)]
)
@pytest.mark.parametrize("partition", ["column_stats", "partition_stats"])
def test_bounds_that_are_too_narrow_are_wrong_and_wider_ones_stale(
    table: Table, partition: str, low: int, high: int, problem: str | None
) -> None:
    file = base_files(table)["city=sf"]
    fare = ColumnRange("fare", pa.int64(), low, high, 1, 0)
    told = (
        column_stats_records([(file, [fare])])
        if partition == "column_stats"
        else partition_stats_records({"city=sf": [fare]}, is_tight=False)
    )

    def narrowed(said: MetadataRecords) -> MetadataRecords:
        keys = said.keys.to_pylist()
        values = said.values.to_pylist()
        for key, value in zip(told.keys.to_pylist(), told.values.to_pylist(), strict=True):
            if key in keys:
                values[keys.index(key)] = value
        return MetadataRecords(said.keys, pa.array(values, pa.binary()), said.removed)

    tell(table, partition, narrowed)
    found = problems(table)
    assert [row["problem"] for row in found] == ([] if problem is None else [problem])
    assert all("fare" in row["held"] and "1 to 1" in row["expected"] for row in found)


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_nan_is_no_problem_and_a_bound_below_it_is(tmp_path: Path, kind: pa.DataType) -> None:
    measured = pa.schema([("id", pa.string()), ("x", kind)])
    table = hw.create_table(
        tmp_path / "measured", schema=measured, record_key="id", buckets=1, options=OPTIONS
    )
    table.insert(pa.table({"id": ["a", "b"], "x": [float("nan"), 1.5]}, measured))
    assert problems(table) == []
    (file,) = base_files(table).values()
    narrow = ColumnRange("x", kind, 1.5, 1.5, 2, 0)
    tell(table, "column_stats", lambda _: column_stats_records([(file, [narrow])]))
    assert "wrong" in {row["problem"] for row in problems(table)}


def test_bounds_of_years_that_python_does_not_know_are_told(tmp_path: Path) -> None:
    never = pa.schema([("id", pa.string()), ("until", pa.timestamp("us", "UTC"))])
    table = hw.create_table(
        tmp_path / "never", schema=never, record_key="id", buckets=1, options=OPTIONS
    )
    rows = pa.table([pa.array(["a"]), pa.array([2**63 - 1])], names=never.names)
    table.insert(rows.cast(never))
    (file,) = base_files(table).values()
    narrow = ColumnRange("until", never.field("until").type, 0, 0, 1, 0)
    tell(table, "column_stats", lambda _: column_stats_records([(file, [narrow])]))
    (wrong,) = (row for row in problems(table) if row["problem"] == "wrong")
    assert wrong["expected"].endswith(
        "until: 294247-01-10T04:00:54.775807 to 294247-01-10T04:00:54.775807"
    )
