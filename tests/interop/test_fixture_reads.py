"""Rows of the tables that real Hudi wrote, as we read them, against what hudi-rs read."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import ErrorKind
from headwater.metadata.view import load_view

FIXTURES = Path(__file__).resolve().parents[3] / "shared" / "fixtures"

Unpack = Callable[[str], Path]
Row = dict[str, Any]

NAMES = sorted(path.stem for path in FIXTURES.glob("*.zip"))
OLD = [name for name in NAMES if "-v6_" in name]

each_table = pytest.mark.parametrize("name", NAMES)
each_old_table = pytest.mark.parametrize("name", OLD)


def expected_rows(name: str) -> list[Row]:
    content = json.loads((FIXTURES / f"{name}.expected.json").read_text())
    rows: list[Row] = content["data"]
    assert len(rows) == content["rows"]
    return in_order(rows)


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def as_json(value: Any) -> Any:
    """Return a value as the expectations spell it."""
    match value:
        case bytes():
            return value.hex()
        case datetime():
            return value.replace(tzinfo=value.tzinfo or UTC).isoformat()
        case date():
            return value.isoformat()
        case Decimal():
            return str(value)
        case dict():
            return {name: as_json(inner) for name, inner in value.items()}
        case list() | tuple():
            return [as_json(inner) for inner in value]
        case _:
            return value


def rows_of(table: pa.Table) -> list[Row]:
    return in_order([as_json(row) for row in table.to_pylist()])


@each_table
def test_the_rows_are_those_that_hudi_rs_reads(hudi_table: Unpack, name: str) -> None:
    assert rows_of(hw.open_table(hudi_table(name)).read_arrow()) == expected_rows(name)


@each_table
def test_chosen_columns_come_in_the_order_asked_for(hudi_table: Unpack, name: str) -> None:
    table = hw.open_table(hudi_table(name))
    whole = table.read_arrow()
    asked = list(reversed(whole.column_names))[:2]
    chosen = table.read_arrow(asked)
    assert chosen.column_names == asked
    assert rows_of(chosen) == rows_of(whole.select(asked))


@each_table
@pytest.mark.some(4)
def test_every_commit_can_be_read_as_hudi_rs_reads_it(hudi_table: Unpack, name: str) -> None:
    hudi = pytest.importorskip("hudi", reason="hudi-rs is not installed")
    table = hw.open_table(hudi_table(name))
    theirs = hudi.HudiTableBuilder.from_base_uri(table.uri).build()
    found = None
    for commit in load_view(table.storage, table.config).commits:
        found = table.read_arrow(as_of=commit.completion_time)
        options = hudi.HudiReadOptions().with_as_of_timestamp(commit.completion_time)
        batches = [pa.record_batch(batch) for batch in theirs.read(options)]
        then = pa.Table.from_batches(batches).select(found.schema.names)
        assert rows_of(then) == rows_of(found)
    assert ([] if found is None else rows_of(found)) == expected_rows(name)


def test_rows_of_a_table_without_meta_fields_have_none(hudi_table: Unpack) -> None:
    table = hw.open_table(hudi_table("cow-v8_simplekeygen_hivestyle_no_metafields"))
    found = table.read_arrow(["_hoodie_commit_time", "_hoodie_record_key", "id"])
    assert sorted(found["id"].to_pylist()) == [1, 2, 3, 4]
    assert set(found["_hoodie_commit_time"].to_pylist()) == {None}
    assert set(found["_hoodie_record_key"].to_pylist()) == {None}


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("mor-")])
def test_base_files_alone_hold_whole_rows(hudi_table: Unpack, name: str) -> None:
    table = hw.open_table(hudi_table(name))
    found = table.read_arrow(read_optimized=True)
    assert found.schema == table.read_arrow().schema
    # Most of these tables were compacted last, so that nothing is left to merge.
    if not any(one.logs for one in load_view(table.storage, table.config).slices()):
        assert rows_of(found) == expected_rows(name)
    assert found.num_rows > 0


@each_old_table
def test_a_table_of_version_6_is_not_written(hudi_table: Unpack, name: str) -> None:
    table = hw.open_table(hudi_table(name), {"hoodie.index.type": "SIMPLE"})
    rows = table.read_arrow()
    for write in (
        lambda: table.upsert(rows),
        lambda: table.delete(rows),
        lambda: table.services.compact(),
        lambda: table.services.clean(),
        lambda: table.services.archive(),
        lambda: table.indexes.create(["column_stats"]),
    ):
        with pytest.raises(hw.UnsupportedError, match="headwater table upgrade") as caught:
            write()
        assert caught.value.kind is ErrorKind.UNSUPPORTED_TABLE_VERSION
    assert rows_of(hw.open_table(hudi_table(name)).read_arrow()) == expected_rows(name)


@each_old_table
def test_changes_of_a_table_of_version_6_go_by_requested_times(
    hudi_table: Unpack, name: str
) -> None:
    table = hw.open_table(hudi_table(name))
    second, first = (row["instant"] for row in table.history().to_pylist())
    everything = table.changes_arrow(None)
    assert rows_of(everything) == expected_rows(name)
    times = table.read_arrow(["id", "_hoodie_commit_time"]).to_pylist()
    changed = sorted(row["id"] for row in times if row["_hoodie_commit_time"] == second)
    assert sorted(table.changes_arrow(after=first)["id"].to_pylist()) == changed
    if name.startswith("mor-"):
        with pytest.raises(hw.UnsupportedError, match="version 6"):
            table.changes_arrow(None, cdc=True)
    else:
        changes = table.changes_arrow(after=first, cdc=True).to_pylist()
        assert sorted(row["after"]["id"] for row in changes) == changed


@each_table
def test_nothing_is_wrong_with_them(hudi_table: Unpack, name: str) -> None:
    problems = hw.open_table(hudi_table(name)).inspect.problems(deep=True).to_pylist()
    # One of them was filled by inserts that look for no keys.
    assert {one["check"] for one in problems} <= {"keys"}
    assert len(problems) <= 1
