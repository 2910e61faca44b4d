"""Reading the tables that real Hudi wrote through their metadata tables: the same as by listing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.arrow.meta_columns import META_COLUMNS
from headwater.kernel.view.table_view import TableView, load_listed_view
from headwater.metadata.partition_kinds import SECONDARY_INDEX_PREFIX
from headwater.metadata.view import load_view
from headwater.queries.snapshot import ReadRequest, plan_snapshot

Unpack = Callable[[str], Path]

INDEXED = [
    "cow-v9_txns_nonpart_meta",
    "cow-v9_txns_simple_meta",
    "mor-avro-v8_trips_8i3u1d",
    "mor-avro-v9_nonpartitioned_rollback",
    "mor-avro-v9_txns_nonpart_meta",
    "mor-avro-v9_txns_simple_meta",
]
LISTING = {"hoodie.metadata.enable": "false"}
UNIQUE = {"hoodie.index.type": "RECORD_INDEX"}
"""Says that no key is there twice, which holds for the tables of transactions."""

each_indexed = pytest.mark.parametrize("name", INDEXED)


@pytest.fixture(autouse=True)
def no_fallback(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """An index that is passed over is told in the log."""
    caplog.set_level(logging.WARNING, logger="headwater")
    yield
    assert [record.getMessage() for record in caplog.records] == []


def slices_of(view: TableView) -> list[list[str]]:
    return [[str(each) for each in one.files()] for one in view.slices()]


@each_indexed
@pytest.mark.some(2)
def test_views_of_every_moment_equal_listing(hudi_table: Unpack, name: str) -> None:
    table = hw.open_table(hudi_table(name))
    newest = load_view(table.storage, table.config)
    listed = load_listed_view(table.storage, table.config)
    assert newest.metadata_table is not None
    assert newest.known_partitions() == listed.partitions()
    for time in (None, *(commit.completion_time for commit in newest.commits)):
        view = load_view(table.storage, table.config, as_of=time)
        other = load_listed_view(table.storage, table.config, as_of=time)
        assert slices_of(view) == slices_of(other)
        assert view.all_slices() == other.all_slices()
        for partition in other.partitions():
            assert view.slices([partition]) == other.slices([partition])


def literals(values: pa.ChunkedArray) -> Iterator[str]:
    """Give the distinct values of a column as SQL, some of them."""
    for value in values.unique().to_pylist()[1:2]:
        match value:
            case None | bytes() | bool() | list() | dict():
                continue
            case str():
                yield "'" + value.replace("'", "''") + "'"
            case date() if type(value) is date:
                yield f"DATE '{value.isoformat()}'"
            case int() | Decimal():
                yield str(value)


def conditions(rows: pa.Table) -> Iterator[str]:
    for column in rows.column_names:
        for literal in literals(rows[column]):
            for comparison in ("=", "<"):
                yield f"`{column}` {comparison} {literal}"
        yield f"`{column}` IS NULL"


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.long)])
@each_indexed
@pytest.mark.some(2)
def test_reads_by_any_condition_equal_listing(hudi_table: Unpack, name: str, every: int) -> None:
    folder = hudi_table(name)
    is_unique = "txns" in name
    table = hw.open_table(folder, UNIQUE if is_unique else {})
    listing = hw.open_table(folder, LISTING)
    columns = [*META_COLUMNS, *table.read_arrow().column_names]
    rows = table.read_arrow(columns)
    all_conditions = list(conditions(rows))
    assert len(all_conditions) > 15
    for where in all_conditions[::every]:
        found = table.read_arrow(columns, where=where)
        assert found.equals(listing.read_arrow(columns, where=where)), where


def groups_read(table: hw.Table, where: str) -> int:
    request = ReadRequest(where=where, is_filtered=True)
    plan = plan_snapshot(table.context, request)
    return len(plan.slices)


def key_condition(table: hw.Table, row: dict[str, Any]) -> str:
    fields = table.config.record_key_fields
    return " AND ".join(f"{field} = '{row[field]}'" for field in fields)


@pytest.mark.parametrize("name", [name for name in INDEXED if "txns" in name])
@pytest.mark.some(2)
def test_a_record_key_reads_one_file_group(hudi_table: Unpack, name: str) -> None:
    table = hw.open_table(hudi_table(name), UNIQUE)
    rows = table.read_arrow().to_pylist()
    assert len(load_view(table.storage, table.config).slices()) > 1
    for row in rows:
        assert groups_read(table, key_condition(table, row)) == 1
    nobody = dict.fromkeys(table.config.record_key_fields, "nobody")
    assert groups_read(table, key_condition(table, nobody)) == 0


@pytest.mark.parametrize("name", [name for name in INDEXED if "txns" in name])
def test_a_secondary_index_reads_the_groups_of_its_records(hudi_table: Unpack, name: str) -> None:
    table = hw.open_table(hudi_table(name), UNIQUE)
    view = load_view(table.storage, table.config)
    assert view.metadata_table is not None
    secondary = {
        definition.source_fields[0]
        for index, definition in view.metadata_table.definitions.items()
        if index.startswith(SECONDARY_INDEX_PREFIX) and view.has_index(index)
    }
    assert secondary
    rows = table.read_arrow(["_hoodie_file_name", *secondary])
    for column in secondary:
        for literal in literals(rows[column]):
            found = table.read_arrow(["_hoodie_file_name"], where=f"{column} = {literal}")
            expected = len(set(found["_hoodie_file_name"].to_pylist()))
            assert groups_read(table, f"{column} = {literal}") == expected
