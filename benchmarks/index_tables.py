"""What the parts of `index.py` share: figures, tables, and storage that is far away."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar
from uuid import NAMESPACE_URL, uuid5

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tests.support.counting_storage import CountingStorage

import headwater as hw
from headwater.arrow.buckets import bucket_ids
from headwater.config.table_options import IndexType
from headwater.engine.engine import Route, RowsTask
from headwater.engine.inline import InlineRows
from headwater.model.commit_metadata import WriteStat
from headwater.operations.plan import Operation
from headwater.operations.request import WriteRequest
from headwater.operations.write import run_write
from headwater.seams.storage import ObjectInfo, Storage

R = TypeVar("R")

LOCKED = {
    "hoodie.write.lock.provider": "filesystem",
    "hoodie.write.lock.wait_time_ms": "120000",
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
}
"""Indexes are built beside writers, so a table must have a lock that all of them take."""
UNSYNCED = {"headwater.storage.fsync": "false"}
"""For tables in the making. What is measured waits for the disk, as it should."""
WITHOUT_METADATA = {"hoodie.metadata.enable": "false"}
PARTITION_METADATA = ".hoodie_partition_metadata"
FILES_EACH = 100
PAGE_ENTRIES = 1_000
"""What one answer of an object store to a listing holds."""
LINKS_MAX = 10_000
"""How many names one file gets; file systems allow some ten thousand."""
BUCKET_DIGITS = 8
"""With so many digits a file id says its bucket."""
SCATTER = np.uint64(0x9E3779B97F4A7C15)
"""Odd, so that multiples of it are distinct 64-bit numbers, in no order."""


@dataclass(frozen=True, slots=True)
class Figure:
    what: str
    variant: str
    ms: float
    ratio: float
    """To the first variant of its comparison."""
    note: str = ""
    target: str = ""
    peak_mb: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    rows: int
    groups: int
    """Over so many files the rows are spread."""
    files: tuple[int, ...]
    """How many files the tables have whose commits and listings are compared."""
    turns: int
    commits: int
    """How many small commits each variant makes."""
    indexed_files: int
    phases: int
    """How often writers are measured alone, and beside a build, in turns."""
    phase_s: float


QUICK = Sizes(
    rows=200_000,
    groups=20,
    files=(1_000, 4_000),
    turns=2,
    commits=6,
    indexed_files=100,
    phases=1,
    phase_s=3,
)
FULL = Sizes(
    rows=10_000_000,
    groups=200,
    files=(1_000, 10_000, 100_000),
    turns=5,
    commits=40,
    indexed_files=2_000,
    phases=4,
    phase_s=12,
)


@contextmanager
def scratch() -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="headwater-bench-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def timed(run: Callable[[], object]) -> float:
    """Return milliseconds."""
    began = time.perf_counter()
    run()
    return (time.perf_counter() - began) * 1000


def in_turns(turns: int, variants: Mapping[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Run all variants once for their caches, then in turns; return the milliseconds of each."""
    for run in variants.values():
        run()
    taken: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(turns):
        for name, run in variants.items():
            taken[name].append(timed(run))
    return taken


def compared(
    what: str,
    taken: Mapping[str, list[float]],
    notes: Mapping[str, str] | None = None,
    targets: Mapping[str, str] | None = None,
) -> list[Figure]:
    """Return the medians of some variants, and their ratios to the first one."""
    medians = {name: statistics.median(all_ms) for name, all_ms in taken.items() if all_ms}
    first = next(iter(medians.values()))
    return [
        Figure(
            what, name, ms, ms / first, (notes or {}).get(name, ""), (targets or {}).get(name, "")
        )
        for name, ms in medians.items()
    ]


def row_ids(numbers: pa.Array) -> pa.Array:
    """Return unique keys whose order has nothing to do with that of the numbers."""
    scattered = pa.array(numbers.to_numpy().astype(np.uint64) * SCATTER)
    return pc.binary_join_element_wise("key", scattered.cast(pa.string()), "-")


def rows_between(start: int, end: int) -> pa.Table:
    """Return rows of five columns, sorted by `seen`."""
    numbers = pa.array(np.arange(start, end, dtype=np.int64))
    cities = pa.array((np.arange(start, end) % 16).astype(np.int64)).cast(pa.string())
    return pa.table(
        {
            "id": row_ids(numbers),
            "seen": numbers,
            "city": pc.binary_join_element_wise("city", cities, "-"),
            "amount": pa.array((np.arange(start, end) * 7 % 1_000_003).astype(np.float64)),
            "note": pc.binary_join_element_wise("note", numbers.cast(pa.string()), "of", " "),
        }
    )


def create_rows_table(path: str, rows: int, groups: int) -> None:
    """Create a table of so many file groups, each of a range of `seen`, its keys in no order."""
    table = hw.create_table(
        path,
        schema=rows_between(0, 1).schema,
        record_key="id",
        table_type="MERGE_ON_READ",
        index="bloom",
        options={**LOCKED, **UNSYNCED, "hoodie.parquet.small.file.limit": "0"},
    )
    each = rows // groups
    for group in range(groups):
        table.bulk_insert(rows_between(group * each, (group + 1) * each))


def with_index(table: hw.Table, index: IndexType) -> hw.Table:
    """Return a table as if it had been created with another index.

    One table of many rows has to serve all: its files have bloom filters in their footers, and its
    keys are unique, as those of a table with a record index are known to be.
    """
    config = replace(table.config, index_type=index)
    return hw.Table(replace(table.context, stored_config=config))


def create_files_table(
    path: str, files: int, commits: int = 10, *, is_stored: bool = True
) -> hw.Table:
    """Create a table of so many base files, a hundred in each partition, by so many commits.

    Writing 100,000 Parquet files takes minutes, and nobody here reads them. So each commit writes
    the files of one partition and gives them further names, in other partitions. All else is done
    by the product: commit, timeline and metadata table are those of any table of this size.
    Unless they are stored, the further names are in the metadata alone.
    """
    table = hw.create_table(
        path,
        schema=small_rows(0, 0).schema,
        record_key="id",
        partition_by="part",
        table_type="MERGE_ON_READ",
        buckets=FILES_EACH,
        options={**LOCKED, **UNSYNCED},
    )
    each = files // FILES_EACH // commits
    target = table.context
    for commit in range(commits):
        # Eight keys for a bucket: nearly all of them get one.
        rows = small_rows(commit * each, 0, count=8 * FILES_EACH)
        request = WriteRequest(operation=Operation.BULK_INSERT, columns=rows.schema)
        copies = range(commit * each + 1, (commit + 1) * each)
        run_write(target, request, LinkedRows(rows, path, copies, is_stored=is_stored))
    return hw.open_table(path, LOCKED)


def small_rows(partition: int, number: int, count: int = 100) -> pa.Table:
    return pa.table(
        {
            "id": [f"key-{key}" for key in range(count)],
            "part": [partition_name(partition)] * count,
            "value": [float(number)] * count,
        }
    )


def rows_of_few_buckets(partition: int, number: int) -> pa.Table:
    """Return 100 rows of a partition that belong to four of its hundred buckets."""
    rows = small_rows(partition, number, count=40 * FILES_EACH)
    is_wanted = pa.array(bucket_ids(rows["id"].combine_chunks(), FILES_EACH) < 4)
    return rows.filter(is_wanted).slice(0, 100)


def partition_name(number: int) -> str:
    return f"part-{number:05}"


class LinkedRows(InlineRows):
    """Rows of one partition, whose files appear in further partitions too."""

    def __init__(
        self, rows: pa.Table, root: str, copies: Iterable[int], *, is_stored: bool = True
    ) -> None:
        super().__init__(rows)
        self._root = Path(root)
        self._copies = tuple(copies)
        self._is_stored = is_stored

    def run(self, route: Route, task: RowsTask[R]) -> list[R]:
        written = super().run(route, task)
        results = list(written)
        for number in self._copies:
            for stat in written:
                assert isinstance(stat, WriteStat)
                results.append(self._link(stat, partition_name(number)))  # type: ignore[arg-type]
        return results

    def _link(self, stat: WriteStat, partition: str) -> WriteStat:
        assert stat.path is not None
        source = self._root / stat.path
        if not self._is_stored:
            return _renamed(stat, source.name, partition)
        folder = self._root / partition
        if not folder.exists():
            folder.mkdir()
            shutil.copy(source.with_name(PARTITION_METADATA), folder)
        name = folder / source.name
        if source.stat().st_nlink < LINKS_MAX:
            os.link(source, name)
        else:
            shutil.copy(source, name)
        return replace(stat, path=f"{partition}/{source.name}", partition_path=partition)


def _renamed(stat: WriteStat, name: str, partition: str) -> WriteStat:
    """Return a write stat as of a file group of its own, with its bucket.

    The same names in every partition would take no room in files that are compressed.
    """
    assert stat.file_id is not None
    own = uuid5(NAMESPACE_URL, f"{partition}/{stat.file_id}")
    file_id = f"{stat.file_id[:BUCKET_DIGITS]}{str(own)[BUCKET_DIGITS:]}-0"
    path = f"{partition}/{name.replace(stat.file_id, file_id)}"
    return replace(stat, file_id=file_id, path=path, partition_path=partition)


class FarStorage(CountingStorage):
    """A storage each of whose requests takes so long, as those of an object store do.

    Every further page of a listing is a request of its own. Of several paths so many are on their
    way at a time.
    """

    def __init__(self, inner: Storage, latency_s: float, width: int = 16) -> None:
        super().__init__(inner)
        self._latency_s = latency_s
        self._width = width
        self._further_pages = 0

    @property
    def requests(self) -> int:
        return self.count() + self._further_pages

    def list_names(self, folder: str, after: str = "") -> list[str]:
        found = super().list_names(folder, after)
        self._turn_pages(len(found))
        return found

    def list_tree(self, folder: str) -> list[ObjectInfo]:
        found = super().list_tree(folder)
        self._turn_pages(len(found))
        return found

    def _turn_pages(self, entries: int) -> None:
        further = max(0, -(-entries // PAGE_ENTRIES) - 1)
        self._further_pages += further
        time.sleep(self._latency_s * further)

    def _note(self, method: str, *paths: str) -> None:
        super()._note(method, *paths)
        time.sleep(self._latency_s * -(-len(paths) // self._width))
