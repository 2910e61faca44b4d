"""Views of the tables real Hudi wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headwater.config.registry import check_options
from headwater.config.table import TableConfig
from headwater.kernel.view.table_view import TableView
from headwater.metadata.view import load_view
from headwater.model.files import BaseFile
from headwater.opening import Place, open_context
from headwater.seams.storage import Storage

FIXTURES = Path(__file__).resolve().parents[3] / "shared" / "fixtures"

Unpack = Callable[[str], Path]

# Name -> visible file groups of the table and of its metadata table.
GROUPS = {
    "cow-v6_nonpartitioned": (1, None),
    "mor-parquet-v6_nonpartitioned": (2, None),
    "cow-v8_empty": (0, None),
    "cow-v8_nonpartitioned": (1, None),
    "cow-v8_simplekeygen_hivestyle_no_metafields": (3, None),
    "cow-v9_txns_nonpart_meta": (2, 26),
    "cow-v9_txns_nonpart_nometa": (2, None),
    "cow-v9_txns_simple_meta": (5, 28),
    "cow-v9_txns_simple_nometa": (5, None),
    "mor-avro-v8_trips_8i3u1d": (3, 17),
    "mor-avro-v9_nonpartitioned_rollback": (2, 6),
    "mor-avro-v9_txns_nonpart_meta": (2, 26),
    "mor-avro-v9_txns_simple_meta": (5, 28),
    "mor-avro-v9_txns_simple_nometa": (5, None),
}
WITH_LOGS = {"mor-avro-v8_trips_8i3u1d", "mor-parquet-v6_nonpartitioned"}
"""Tables whose newest slices have log files."""

each_table = pytest.mark.parametrize("name", GROUPS)


def opened(folder: Path) -> tuple[Storage, TableConfig]:
    place = Place.at(folder, check_options({}))
    context = open_context(place)
    return context.storage, context.config


def view_of(folder: Path) -> TableView:
    return load_view(*opened(folder))


def row_count(folder: Path, bases: list[BaseFile]) -> int:
    return sum(pq.read_metadata(folder / base.path).num_rows for base in bases)


def test_every_table_is_tested() -> None:
    if not FIXTURES.is_dir():
        pytest.skip("the shared folder with Hudi's tables is not beside the project")
    names = {path.stem for path in FIXTURES.glob("*.zip")}
    assert names == set(GROUPS)


@each_table
def test_file_groups_and_files(hudi_table: Unpack, name: str) -> None:
    table = hudi_table(name)
    expected, expected_in_metadata = GROUPS[name]
    folders = [(table, expected)]
    if expected_in_metadata is not None:
        folders.append((table / ".hoodie" / "metadata", expected_in_metadata))
    for folder, groups in folders:
        view = view_of(folder)
        slices = view.slices()
        assert len(slices) == groups
        view.check_complete(slices)
        for file in (file for one in slices for file in one.files()):
            assert (folder / file.path).stat().st_size == file.size_bytes > 0
        assert {one.group.partition for one in slices} == set(view.partitions())


@each_table
def test_rows_of_slices_without_logs(hudi_table: Unpack, name: str) -> None:
    table = hudi_table(name)
    slices = view_of(table).slices()
    assert any(one.logs for one in slices) == (name in WITH_LOGS)
    expected = json.loads((FIXTURES / f"{name}.expected.json").read_text())
    if name not in WITH_LOGS:
        bases = [one.base for one in slices if one.base is not None]
        assert row_count(table, bases) == expected["rows"]
    schema = view_of(table).schema()
    for row in expected["data"][:1]:
        assert set(row) == set(schema.names)


@each_table
def test_every_commit_can_be_travelled_to(hudi_table: Unpack, name: str) -> None:
    """Views grow commit by commit: each one is the view before and what one commit did."""
    table = hudi_table(name)
    latest = view_of(table)
    storage, config = opened(table)
    for commit in latest.commits:
        then = load_view(storage, config, as_of=commit.completion_time)
        assert then.slices() == latest.slices_up_to(commit.completion_time)
        then.check_complete(then.slices())
        shown = {file.path for one in then.slices() for file in one.files()}
        before = {
            file.path
            for one in latest.slices_before(commit.completion_time)
            for file in one.files()
        }
        written = {file.path for file in commit.files}
        assert shown - before == written
        assert not written & before
