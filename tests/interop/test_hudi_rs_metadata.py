"""Tables of ours through their metadata table, as hudi-rs reads them and as we do.

hudi-rs 0.5 takes the files of a table from the partition `files` whenever the table config names
it, whatever `hoodie.metadata.enable` says, and lists storage only where there is no metadata table.
So it reads the table, and then a copy of it without `.hoodie/metadata`; both must give the rows and
slices that we find, through the metadata table and by listing. It skips files by the statistics in
their footers, not by `column_stats`; those are read by Apache Hudi in `tests/hudi`.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from tests.support.tables import columns

import headwater as hw
from headwater.arrow.meta_columns import META_COLUMNS, OPERATION
from headwater.metadata.view import load_view
from headwater.seams.clock import SystemClock, Timer
from headwater.seams.ids import Owner, SystemIds
from headwater.seams.storage import Storage
from headwater.table import Table

hudi = pytest.importorskip("hudi", reason="hudi-rs is not installed")

Row = dict[str, Any]
Slice = tuple[str, str, str]

SCHEMA = columns("id string not null, city string, ts long, fare int")
META = [name for name in META_COLUMNS if name != OPERATION]
COW, MOR = "COPY_ON_WRITE", "MERGE_ON_READ"
TIMELINE = ".hoodie/timeline"
METADATA = ".hoodie/metadata"
OPTIONS = {
    "headwater.storage.fsync": "false",
    "hoodie.metadata.record.index.min.filegroup.count": "2",
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.log.compaction.blocks.threshold": "2",
    "hoodie.clean.commits.retained": "2",
    "hoodie.keep.min.commits": "4",
    "hoodie.keep.max.commits": "6",
    "hoodie.write.lock.provider": "in_process",
}
ALL_INDEXES = {
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
}


class Shape(NamedTuple):
    """What kind of table to make."""

    table_type: str
    partition_by: tuple[str, ...]
    index_type: str
    options: dict[str, str]

    def create(self, path: Path, **options: str) -> Table:
        return hw.create_table(
            path / "trips",
            schema=SCHEMA,
            record_key="id",
            partition_by=self.partition_by,
            ordering="ts",
            table_type=self.table_type,
            index=self.index_type,
            options={**OPTIONS, **self.options, **options},
            buckets=2 if self.index_type == "bucket" else None,
        )


SHAPES = {
    "cow-bucket": Shape(COW, ("city",), "bucket", {}),
    "cow-record-index-unpartitioned": Shape(COW, (), "record_index", {}),
    "cow-bloom-all-indexes": Shape(COW, ("city",), "bloom", ALL_INDEXES),
    "mor-bucket-all-indexes": Shape(MOR, ("city",), "bucket", ALL_INDEXES),
    "mor-bucket-unpartitioned": Shape(MOR, (), "bucket", {}),
    "mor-simple": Shape(MOR, ("city",), "simple", {}),
    "cow-record-level-index": Shape(COW, ("city",), "record_level_index", {}),
    "mor-record-level-index": Shape(MOR, ("city",), "record_level_index", {}),
    "mor-bloom-unpartitioned-all-indexes": Shape(MOR, (), "bloom", ALL_INDEXES),
}
SHORT = {"cow-record-index-unpartitioned", "mor-bucket-all-indexes"}
"""Two that have most of the traits of the others between them; `make test-more` takes all."""
each_shape = pytest.mark.parametrize(
    "shape",
    [
        pytest.param(shape, id=name, marks=[] if name in SHORT else [pytest.mark.long])
        for name, shape in SHAPES.items()
    ],
)


class Readers:
    """Asks hudi-rs and ourselves, with the metadata table and without it."""

    def __init__(self, table: Table, folder: Path) -> None:
        self.table = table
        self._listed = folder / "listed"

    def check(self, step: str) -> list[Row]:
        """Check that all of them find the same, and that ours trusts the table; return our rows."""
        ours = rows_by_us(self.table)
        listing = without_index(self.table)
        assert rows_by_us(listing) == ours, f"we list other rows after {step}"
        assert rows_by_hudi_rs(self.table.uri) == ours, f"hudi-rs reads other rows after {step}"
        assert slices_by_hudi_rs(self.table.uri) == slices_by_us(self.table), step
        shutil.rmtree(self._listed, ignore_errors=True)
        no_metadata = shutil.ignore_patterns("metadata")
        shutil.copytree(self.table.uri, self._listed, ignore=no_metadata, copy_function=os.link)
        assert rows_by_hudi_rs(self._listed) == ours, f"hudi-rs lists other rows after {step}"
        problems = self.table.inspect.validate_metadata().to_pylist()
        wrong = [one for one in problems if one["problem"] != "stale"]
        assert not wrong, f"the indexes are wrong after {step}"
        return ours


@pytest.fixture(autouse=True)
def trusted(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail a test in which a view of ours did without the metadata table."""
    with caplog.at_level(logging.WARNING, logger="headwater"):
        yield
    warned = [entry.getMessage() for entry in caplog.records if "not used" in entry.getMessage()]
    assert not warned


def without_index(table: Table) -> Table:
    options = {**table.context.options, "hoodie.metadata.enable": "false"}
    return Table(replace(table.context, options=options))


def rows_by_us(table: Table) -> list[Row]:
    return in_order(table.read_arrow([*META, *SCHEMA.names]).to_pylist())


def rows_by_hudi_rs(path: str | Path, options: Any = None) -> list[Row]:
    batches = hudi.HudiTableBuilder.from_base_uri(str(path)).build().read(options)
    return in_order(row for batch in batches for row in pa.record_batch(batch).to_pylist())


def in_order(found: Iterable[Row]) -> list[Row]:
    return sorted(found, key=lambda row: repr(sorted(row.items())))


def slices_by_hudi_rs(path: str | Path) -> set[Slice]:
    found = hudi.HudiTableBuilder.from_base_uri(str(path)).build().get_file_slices()
    return {(one.partition_path, one.file_id, one.base_file_name) for one in found}


def slices_by_us(table: Table) -> set[Slice]:
    view = load_view(table.storage, table.config)
    found = view.slices()
    assert view.metadata_table is not None
    return {(*one.group, "" if one.base is None else one.base.name) for one in found}


def rows(fares: dict[str, int], ts: int) -> pa.Table:
    values = [
        {"id": key, "city": key.partition("-")[0], "ts": ts, "fare": fare}
        for key, fare in fares.items()
    ]
    return pa.Table.from_pylist(values, schema=SCHEMA)


def fares(found: Sequence[Row]) -> dict[str, int]:
    return {row["id"]: row["fare"] for row in found}


def last_commit(table: Table) -> str:
    found = table.inspect.timeline().to_pylist()
    commits = [row for row in found if row["action"] in ("commit", "deltacommit")]
    return str(max(commits, key=lambda row: row["completion_time"])["requested_time"])


# Every operation and service -------------------------------------------------------------------


@each_shape
@pytest.mark.some(1)
def test_every_operation_and_service(tmp_path: Path, shape: Shape) -> None:
    table = shape.create(tmp_path)
    services, readers = table.services, Readers(table, tmp_path)
    table.insert(rows({"sf-a": 1, "sf-b": 2, "ny-a": 3, "ny-b": 4}, 1))
    readers.check("an insert")
    if "record_index" in table.config.metadata_partitions:
        table.indexes.create("secondary_index_by_fare", columns=["fare"])
        readers.check("an index build")
    table.upsert(rows({"sf-a": 10, "la-a": 5}, 2))
    readers.check("an upsert")
    table.upsert(rows({"sf-a": 11, "la-a": 6, "sf-c": 7}, 3))
    if shape.table_type == MOR:
        services.log_compact()
        readers.check("a log compaction")
    table.delete(rows({"ny-b": 0}, 4))
    assert fares(readers.check("a delete")) == {
        "sf-a": 11,
        "sf-b": 2,
        "sf-c": 7,
        "ny-a": 3,
        "la-a": 6,
    }
    table.bulk_insert(rows({"sf-x": 1, "la-x": 2}, 5))
    readers.check("a bulk insert")
    if shape.table_type == MOR:
        services.compact()
        readers.check("a compaction")
    plan = services.schedule_clustering("fare")
    if plan is not None:
        if shape.partition_by:
            table.upsert(rows({"zz-a": 1}, 6))
        services.cluster(plan)
        readers.check("a clustering")
    table.upsert(rows({"sf-a": 12, "zz-b": 2}, 7))
    readers.check("an upsert after a clustering")
    saved = services.savepoint()
    at_savepoint = readers.check("a savepoint")
    table.overwrite_partitions(rows({"sf-n": 1}, 8))
    readers.check("an overwrite of partitions")
    table.upsert(rows({"sf-n": 2, "sf-m": 3}, 9))
    if shape.partition_by:
        table.delete_partitions(["city=sf"])
        assert not [key for key in fares(readers.check("deleted partitions")) if key[:2] == "sf"]
    table.overwrite(rows({"sf-o": 1, "ny-o": 2}, 10))
    assert fares(readers.check("an overwrite")) == {"sf-o": 1, "ny-o": 2}
    services.restore(saved.instant)
    assert readers.check("a restore") == at_savepoint
    services.delete_savepoint(saved.instant)
    table.upsert(rows({"sf-a": 20, "qq-a": 1}, 11))
    services.rollback(last_commit(table))
    assert readers.check("the rollback of a commit") == at_savepoint
    for ts in range(12, 18):
        table.upsert(rows({"sf-a": ts, f"ny-{ts}": ts}, ts))
        if shape.table_type == MOR and ts % 2:
            services.compact()
    assert services.clean()
    readers.check("a clean")
    assert services.archive().archived
    readers.check("archival")
    table.upsert(rows({"sf-a": 30, "sf-z": 1}, 30))
    services.clean()
    if "record_index" in table.config.metadata_partitions:
        assert "secondary_index_by_fare" in table.reload().config.metadata_partitions
    found = fares(readers.check("a write behind the archive"))
    assert (found["sf-a"], found["sf-z"], found["ny-17"]) == (30, 1, 17)


@pytest.mark.parametrize(
    "shape",
    [
        SHAPES["cow-bucket"],
        pytest.param(SHAPES["mor-bucket-all-indexes"], marks=pytest.mark.long),
    ],
)
def test_compactions_of_the_metadata_table(tmp_path: Path, shape: Shape) -> None:
    """Each write may be followed by one; the logs that it folds in are cleaned away later."""
    table = shape.create(tmp_path, **{"hoodie.metadata.compact.max.delta.commits": "3"})
    readers = Readers(table, tmp_path)
    for ts in range(1, 10):
        table.upsert(rows({f"sf-{ts % 4}": ts, f"c{ts % 3}-{ts}": ts}, ts))
        if ts % 4 == 0:
            table.delete(rows({f"c{ts % 3}-{ts}": 0}, ts))
        if ts % 5 == 0:
            table.services.clean()
        readers.check(f"write {ts}")
    files = (tmp_path / "trips" / METADATA / "files").glob("files-0000-0_*.hfile")
    compactions = list((tmp_path / "trips" / METADATA / TIMELINE).glob("*.compaction.requested"))
    assert compactions or len(list(files)) > 1, "the metadata table was never compacted"
    table.services.archive()
    readers.check("archival")


def test_groups_that_begin_with_logs_show_when_they_have_a_base_file(tmp_path: Path) -> None:
    """A limit of hudi-rs 0.5: of what the metadata table lists it passes over groups of logs alone.

    Only writers that share buckets without a lock begin groups so.
    """
    mode = {"hoodie.write.concurrency.mode": "non_blocking_concurrency_control"}
    table = SHAPES["mor-bucket-all-indexes"].create(tmp_path, **mode)
    table.upsert(rows({"sf-a": 1, "ny-a": 2}, 1))
    assert not any(base for _, _, base in slices_by_us(table))
    assert rows_by_hudi_rs(table.uri) == []
    assert fares(rows_by_us(table)) == {"sf-a": 1, "ny-a": 2}
    table.services.compact()
    table.upsert(rows({"sf-a": 3}, 2))
    assert fares(Readers(table, tmp_path).check("a compaction")) == {"sf-a": 3, "ny-a": 2}


# Writes that failed ----------------------------------------------------------------------------


class Died(BaseException):
    """The process is dead; no code of it runs on."""


class DyingStorage:
    """Storage of a process that dies when it is about to create a certain file."""

    def __init__(self, storage: Storage, folder: str, suffix: str) -> None:
        self._storage = storage
        self._folder = folder
        self._suffix = suffix
        self._is_dead = False

    def __getattr__(self, name: str) -> Any:
        if self._is_dead:
            raise Died
        return getattr(self._storage, name)

    def put_if_absent(self, path: str, data: bytes) -> None:
        folder, _, name = path.rpartition("/")
        if folder == self._folder and "_" in name and name.endswith(self._suffix):
            self._is_dead = True
        if self._is_dead:
            raise Died
        self._storage.put_if_absent(path, data)


class NeverTicking:
    def cancel(self) -> None:
        """There is nothing to end."""


class DeadClock(SystemClock):
    """The clock of a process whose timers die with it."""

    def every_ms(self, interval_ms: int, call: Callable[[], bool], name: str) -> Timer:
        return NeverTicking()


def dead_owner() -> Owner:
    ended = subprocess.Popen(["true"])
    ended.wait()
    return replace(SystemIds().owner, pid=ended.pid, writer_id="dead")


DEATHS = {
    "before-metadata": (f"{METADATA}/{TIMELINE}", ".deltacommit"),
    "between": (TIMELINE, "commit"),
}


@pytest.mark.parametrize("shape", [SHAPES["cow-bucket"], SHAPES["mor-bucket-all-indexes"]])
@pytest.mark.parametrize("death", DEATHS.values(), ids=DEATHS.keys())
@pytest.mark.some(2)
@pytest.mark.usefixtures("tables_with_a_lock")
def test_a_writer_dies_before_its_instant_completes(
    tmp_path: Path, shape: Shape, death: tuple[str, str]
) -> None:
    table = shape.create(tmp_path)
    readers = Readers(table, tmp_path)
    table.insert(rows({"sf-a": 1, "ny-a": 2}, 1))
    table.upsert(rows({"sf-a": 5}, 2))
    before = readers.check("two writes")
    storage: Any = DyingStorage(table.storage, *death)
    ids = SystemIds(dead_owner())
    dying = Table(replace(table.context, storage=storage, clock=DeadClock(), ids=ids))
    with pytest.raises(Died):
        dying.upsert(rows({"sf-a": 9, "la-a": 9}, 3))
    assert [row["state"] for row in table.inspect.timeline().to_pylist()].count("inflight") == 1
    # hudi-rs knows no rollback to come, but what is not completed shows neither to it nor to us.
    assert rows_by_us(table) == before
    if death == DEATHS["before-metadata"]:
        assert rows_by_hudi_rs(table.uri) == before
    assert len(table.services.rollback_failed_writes()) == 1
    assert readers.check("the rollback") == before
    table.upsert(rows({"sf-a": 7, "la-a": 7}, 4))
    assert fares(readers.check("the next write")) == {"sf-a": 7, "la-a": 7, "ny-a": 2}


# Skipping files --------------------------------------------------------------------------------


@pytest.mark.parametrize("table_type", [COW, MOR])
@pytest.mark.some(1)
def test_files_are_skipped_and_no_row_is_lost(tmp_path: Path, table_type: str) -> None:
    """hudi-rs asks the footers of base files only where it has no logs to merge."""
    table = Shape(table_type, ("city",), "simple", ALL_INDEXES).create(tmp_path)
    for city in ("la", "ny", "sf"):
        for start in (0, 10, 20):
            ids = {f"{city}-{number:02d}": number for number in range(start, start + 10)}
            table.bulk_insert(rows(ids, start))
    assert len(slices_by_us(table)) == 9
    everything = rows_by_us(table)
    cases = {
        ("fare", ">=", "20"): (lambda row: row["fare"] >= 20, 3),
        ("fare", "=", "15"): (lambda row: row["fare"] == 15, 3),
        ("city", "=", "ny"): (lambda row: row["city"] == "ny", 3),
        ("id", "=", "sf-07"): (lambda row: row["id"] == "sf-07", 1),
        ("ts", "<", "0"): (lambda row: row["ts"] < 0, 0),
    }
    theirs = hudi.HudiTableBuilder.from_base_uri(table.uri).build()
    for condition, (is_wanted, slice_count) in cases.items():
        options = hudi.HudiReadOptions(filters=[condition])
        found = rows_by_hudi_rs(table.uri, options)
        assert found == in_order(filter(is_wanted, everything)), condition
        if table_type == COW or condition[0] == "city":
            assert len(theirs.get_file_slices(options)) == slice_count, condition
        column, operator, value = condition
        text = value if column in ("fare", "ts") else f"'{value}'"
        where = f"{column} {operator} {text}"
        ours = table.read_arrow([*META, *SCHEMA.names], where=where).to_pylist()
        assert in_order(ours) == found, condition


def test_hudi_rs_believes_the_metadata_table(tmp_path: Path) -> None:
    """What the tests above compare would else be two listings."""
    table = SHAPES["cow-bucket"].create(tmp_path)
    table.insert(rows({"sf-a": 1}, 1))
    table.insert(rows({"ny-a": 2}, 1))
    commits = sorted((tmp_path / "trips" / METADATA / TIMELINE).glob("*.deltacommit"))
    commits[-1].unlink()
    assert fares(rows_by_hudi_rs(table.uri)) == {"sf-a": 1}
