"""A damaged metadata table: readers say so, or list storage instead, and never lose a row.

Whatever happens to its files, a query gives the rows that it gave before, with a warning in the
log where the damage kept an index from being used, or `CorruptTableError`.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.tables import LOCKED, columns, table_at

import headwater as hw
from headwater.errors import CorruptTableError, ErrorKind, HeadwaterError
from headwater.format.hfile.reader import HFile
from headwater.format.properties import parse_properties
from headwater.kernel.table_config import update_table_config
from headwater.metadata import indexes as table_indexes
from headwater.metadata.view import load_view
from headwater.table import Table

Row = dict[str, Any]

SCHEMA = columns("id string not null, city string, ts long, fare int")
OPTIONS = {
    "headwater.storage.fsync": "false",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
    "hoodie.metadata.record.index.min.filegroup.count": "2",
    "hoodie.metadata.index.bloom.filter.file.group.count": "1",
    "hoodie.metadata.index.column.stats.file.group.count": "1",
    "hoodie.metadata.compact.max.delta.commits": "4",
    **LOCKED,  # A journal would know what the files of the timeline said.
}
QUERIES = (
    None,
    "id = 'la-9'",
    "id IN ('sf-1', 'ny-3', 'absent')",
    "fare >= 6",
)
METADATA = ".hoodie/metadata"
TIMELINE = f"{METADATA}/.hoodie/timeline"
DEFINITIONS = ".hoodie/.index_defs/index.json"
WARNING = "not used"

EXAMPLES = settings().max_examples // 10
"""How many files to damage in each of the tests that try any."""


def rows(fares: Mapping[str, int], ts: int) -> pa.Table:
    values = [
        {"id": key, "city": key.partition("-")[0], "ts": ts, "fare": fare}
        for key, fare in fares.items()
    ]
    return pa.Table.from_pylist(values, schema=SCHEMA)


@dataclass(frozen=True)
class Trips:
    """A table with some history, and what queries of it find."""

    path: Path
    expected: Mapping[str | None, list[Row]]

    def metadata_files(self, pattern: str = "**/*") -> list[Path]:
        found = sorted((self.path / METADATA).glob(pattern))
        return [file for file in found if file.is_file()]

    @contextmanager
    def damaged(self, file: Path, change: Callable[[bytes], bytes]) -> Iterator[None]:
        """Change a file for the time of a block."""
        content = file.read_bytes()
        try:
            file.write_bytes(change(content))
            yield
        finally:
            file.write_bytes(content)


def find(table: Table, where: str | None) -> list[Row]:
    found = table.read_arrow(["_hoodie_commit_time", *SCHEMA.names], where=where)
    return sorted(found.to_pylist(), key=repr)


def answers(table: Table) -> dict[str | None, list[Row]]:
    return {where: find(table, where) for where in QUERIES}


def a_table(path: Path, **arguments: Any) -> Trips:
    table = table_at(path / "trips", SCHEMA, ordering="ts", options=OPTIONS, **arguments).create()
    table.insert(rows({f"{city}-{n}": n for city in ("sf", "ny") for n in range(8)}, 0))
    for ts in range(1, 5):
        table.upsert(rows({f"sf-{ts}": ts + 10, f"la-{ts + 5}": ts}, ts))
    table.delete(rows({"ny-0": 0}, 6))
    return Trips(path / "trips", answers(table))


@pytest.fixture(scope="module")
def trips_of(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Trips]:
    """Tables that tests may damage for a while: the next one finds them whole."""
    folder = tmp_path_factory.mktemp("tables")
    return {
        "cow": a_table(folder / "cow", partition_by="city", buckets=1),
        "mor": a_table(folder / "mor", table_type="MERGE_ON_READ", buckets=2),
    }


@pytest.fixture(params=["cow", "mor"])
def trips(request: pytest.FixtureRequest, trips_of: Mapping[str, Trips]) -> Trips:
    return trips_of[request.param]


@pytest.fixture
def copy(trips: Trips, tmp_path: Path) -> Trips:
    """The same table for a test alone."""
    shutil.copytree(trips.path, tmp_path / "trips")
    return replace(trips, path=tmp_path / "trips")


def check_no_row_is_lost(trips: Trips) -> int:
    """Ask everything; return how many queries were answered rather than refused."""
    table, answered = hw.open_table(trips.path), 0
    for where, expected in trips.expected.items():
        try:
            found = find(table, where)
        except CorruptTableError as refused:
            if refused.kind is not ErrorKind.CORRUPT_METADATA_TABLE:
                raise
        else:
            assert found == expected, where
            answered += 1
    return answered


def check_answers_by_listing(trips: Trips, caplog: pytest.LogCaptureFixture) -> None:
    """Check that every query is answered, and that the log says what was wrong."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="headwater"):
        assert check_no_row_is_lost(trips) == len(QUERIES)
        table = hw.open_table(trips.path)
        view = load_view(table.storage, table.config)
        view.slices()
    assert view.metadata_table is None
    assert [entry for entry in caplog.records if WARNING in entry.getMessage()]


def test_the_whole_table_is_read_through_its_indexes(
    trips: Trips, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="headwater"):
        assert check_no_row_is_lost(trips) == len(QUERIES)
    table = hw.open_table(trips.path)
    view = load_view(table.storage, table.config)
    for name in ("files", "column_stats", "bloom_filters", "record_index"):
        assert view.has_index(name), name
    assert not caplog.records
    assert len(trips.metadata_files("*/*.hfile")) > 4


# Damage at every position ----------------------------------------------------------------------


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_flipped_bits_of_base_files_and_logs(trips: Trips, data: st.DataObject) -> None:
    file = data.draw(st.sampled_from(data_files(trips)), label="file")
    at = data.draw(st.integers(0, file.stat().st_size - 1), label="position")
    bit = data.draw(st.integers(0, 7), label="bit")

    def flip(content: bytes) -> bytes:
        changed = bytearray(content)
        changed[at] ^= 1 << bit
        return bytes(changed)

    with trips.damaged(file, flip):
        check_no_row_is_lost(trips)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_files_that_were_cut(trips: Trips, data: st.DataObject) -> None:
    file = data.draw(st.sampled_from([*data_files(trips), *commits(trips)]), label="file")
    size = data.draw(st.integers(0, file.stat().st_size - 1), label="size")
    with trips.damaged(file, lambda content: content[:size]):
        check_no_row_is_lost(trips)


@settings(
    max_examples=EXAMPLES // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_files_with_the_content_of_others(trips: Trips, data: st.DataObject) -> None:
    file = data.draw(st.sampled_from(data_files(trips)), label="file")
    other = data.draw(st.sampled_from(data_files(trips)), label="other")
    content = other.read_bytes()
    # An empty base file has no record that could tell where it is from.
    is_empty = other.suffix == ".hfile" and not HFile.of_bytes(content, path="").entry_count
    if other.parent != file.parent and not is_empty:
        with trips.damaged(file, lambda _: content):
            check_no_row_is_lost(trips)


def test_an_empty_file_in_place_of_the_list_of_files(
    copy: Trips, caplog: pytest.LogCaptureFixture
) -> None:
    """It is whole, and has no record that could tell which partition it belongs to."""
    empty = copy.metadata_files("bloom_filters/*_00000000000000001.hfile")[0]
    newest = max(copy.metadata_files("files/*.hfile"), key=lambda file: file.name.split("_")[-1])
    newest.write_bytes(empty.read_bytes())
    check_answers_by_listing(copy, caplog)


def data_files(trips: Trips) -> list[Path]:
    """Return the base files and logs of the metadata table that are not empty."""
    found = [*trips.metadata_files("*/*.hfile"), *trips.metadata_files("*/.*.log.*")]
    return [file for file in found if file.stat().st_size]


def commits(trips: Trips) -> list[Path]:
    return sorted((trips.path / TIMELINE).glob("*_*.*commit"))


# Missing files ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "are_all_tried", [False, pytest.param(True, marks=pytest.mark.long)], ids=["newest", "all"]
)
@pytest.mark.some(1)
def test_any_file_is_missing(trips: Trips, are_all_tried: bool) -> None:
    files = trips.metadata_files()
    assert len(files) > 20
    # The newest of each kind; an older one may be folded into it already.
    newest = {(file.parent, file.suffix, ".log." in file.name): file for file in files}
    for file in files if are_all_tried else newest.values():
        content = file.read_bytes()
        file.unlink()
        try:
            check_no_row_is_lost(trips)
        finally:
            file.write_bytes(content)


@pytest.mark.parametrize("change", [None, lambda content: content[: len(content) // 2]])
def test_a_log_that_was_written_in_the_place_of_a_commit_is_damaged(
    tmp_path: Path,
    change: Callable[[bytes], bytes] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The commits that it stands for do not list it, so the build of the index does."""
    # As if the builder had died before it folded these logs.
    monkeypatch.setattr(table_indexes, "run_metadata_services", lambda upkeep: None)
    locked = {**OPTIONS, "hoodie.write.lock.provider": "in_process"}
    names = ["column_stats", "bloom_filters", "record_index"]
    table = hw.create_table(
        tmp_path / "trips",
        schema=SCHEMA,
        record_key="id",
        ordering="ts",
        table_type="MERGE_ON_READ",
        buckets=2,
        options={key: value for key, value in locked.items() if not key.endswith(".enable")},
    )
    table.insert(rows({f"sf-{n}": n for n in range(8)}, 0))
    table.indexes.schedule(names)
    for ts in range(1, 4):
        table.upsert(rows({f"sf-{ts}": ts + 10, f"la-{ts + 5}": ts}, ts))
    (built,) = table.indexes.run()
    assert built.finished == set(names)
    trips = Trips(tmp_path / "trips", answers(table.reload()))
    assert check_no_row_is_lost(trips) == len(QUERIES)
    told = trips.metadata_files("*/.*.log.1_*-0-1")
    assert {file.parent.name for file in told} == set(names)
    for file in told:
        content = file.read_bytes()
        file.unlink() if change is None else file.write_bytes(change(content))
        check_no_row_is_lost(trips)
        assert hw.open_table(trips.path).inspect.validate_metadata().num_rows
        file.write_bytes(content)


MISSING = {
    "base file of files": "files/*.hfile",
    "logs of files": "files/.*.log.*",
    "commits": ".hoodie/timeline/*_*.*commit",
}


@pytest.mark.parametrize("pattern", MISSING.values(), ids=MISSING.keys())
def test_all_files_of_a_kind_are_missing(
    copy: Trips, pattern: str, caplog: pytest.LogCaptureFixture
) -> None:
    for file in copy.metadata_files(pattern):
        file.unlink()
    check_answers_by_listing(copy, caplog)


@pytest.mark.parametrize("folder", ["", "files", ".hoodie"])
def test_a_folder_is_missing(copy: Trips, folder: str, caplog: pytest.LogCaptureFixture) -> None:
    shutil.rmtree(copy.path / METADATA / folder)
    check_answers_by_listing(copy, caplog)


@pytest.mark.parametrize("folder", ["column_stats", "record_index"])
@pytest.mark.parametrize("trips", ["mor"], indirect=True)
def test_the_folder_of_another_index_is_missing(
    copy: Trips, folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(copy.path / METADATA / folder)
    with caplog.at_level(logging.WARNING, logger="headwater"):
        assert check_no_row_is_lost(copy) == len(QUERIES)
    assert [entry for entry in caplog.records if folder in entry.getMessage()]


# Behind the data table -------------------------------------------------------------------------


def test_the_newest_commit_is_not_there(copy: Trips, caplog: pytest.LogCaptureFixture) -> None:
    newest = commits(copy)[-1]
    time = newest.name.partition("_")[0]
    for file in copy.metadata_files(f".hoodie/timeline/{time}*"):
        file.unlink()
    check_answers_by_listing(copy, caplog)


def test_the_newest_commit_is_pending(copy: Trips, caplog: pytest.LogCaptureFixture) -> None:
    commits(copy)[-1].unlink()
    check_answers_by_listing(copy, caplog)


def test_another_writer_leaves_the_metadata_table_out(
    copy: Trips, caplog: pytest.LogCaptureFixture
) -> None:
    properties = copy.path / ".hoodie/hoodie.properties"
    content = properties.read_bytes()
    table = hw.open_table(copy.path, OPTIONS)
    set_property(table, {"hoodie.table.metadata.partitions": ""})
    blind = hw.open_table(copy.path, OPTIONS)
    blind.upsert(rows({"sf-1": 99, "new-1": 99}, 50))
    expected = answers(blind)
    assert expected != copy.expected
    properties.write_bytes(content)
    check_answers_by_listing(replace(copy, expected=expected), caplog)
    # Ours writes on, and still nobody trusts what has a hole.
    table.upsert(rows({"sf-2": 77, "new-2": 77}, 51))
    assert {row["id"]: row["fare"] for row in find(table, None)}.items() >= {
        ("sf-1", 99),
        ("new-1", 99),
        ("sf-2", 77),
        ("new-2", 77),
    }
    check_answers_by_listing(replace(copy, expected=answers_listed(copy)), caplog)


def answers_listed(trips: Trips) -> dict[str | None, list[Row]]:
    return answers(hw.open_table(trips.path, {"hoodie.metadata.enable": "false"}))


def set_property(table: Table, changes: Mapping[str, str]) -> None:
    locks = table.context.components.locks
    update_table_config(table.storage, locks, table.context.clock, changes, lock_timeout_ms=1_000)


# What the table says of its indexes ------------------------------------------------------------


def change_definitions(change: Callable[[Any], Any]) -> Callable[[bytes], bytes]:
    def changed(content: bytes) -> bytes:
        return json.dumps(change(json.loads(content))).encode()

    return changed


def without_version(definitions: Any) -> Any:
    for one in definitions["indexDefinitions"].values():
        one.pop("version", None)
    return definitions


BAD_DEFINITIONS: dict[str, Callable[[bytes], bytes]] = {
    "without version": change_definitions(without_version),
    "of no index": change_definitions(lambda _: {"indexDefinitions": {}}),
    "empty": lambda _: b"",
    "cut": lambda content: content[: len(content) // 2],
    "no JSON": lambda _: b"\xff\xfe",
    "not an object": lambda _: b"[]",
}


@pytest.mark.parametrize("change", BAD_DEFINITIONS.values(), ids=BAD_DEFINITIONS.keys())
def test_index_definitions_are_wrong(trips: Trips, change: Callable[[bytes], bytes]) -> None:
    with trips.damaged(trips.path / DEFINITIONS, change):
        check_no_row_is_lost(trips)


def test_index_definitions_are_missing(copy: Trips) -> None:
    (copy.path / DEFINITIONS).unlink()
    check_no_row_is_lost(copy)


@pytest.mark.parametrize("name", ["expr_index_of_another_engine", "secondary_index_gone", "tomb"])
@pytest.mark.some(2)
def test_the_table_names_an_index_that_is_not_there(copy: Trips, name: str) -> None:
    table = hw.open_table(copy.path, OPTIONS)
    properties = parse_properties(table.storage.read(".hoodie/hoodie.properties"), path="")
    named = properties["hoodie.table.metadata.partitions"]
    set_property(table, {"hoodie.table.metadata.partitions": f"{named},{name}"})
    assert check_no_row_is_lost(copy) > 0
    # A writer that cannot keep an index up to date says so. Where nobody can use the index, which
    # has no files, it may write on.
    try:
        hw.open_table(copy.path, OPTIONS).upsert(rows({"sf-1": 99}, 50))
    except HeadwaterError as refused:
        if name not in str(refused):
            raise
        check_no_row_is_lost(copy)
    else:
        check_no_row_is_lost(replace(copy, expected=answers_listed(copy)))
