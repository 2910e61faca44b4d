"""Small commits beside the metadata table: what it costs them, and what it spares them."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from itertools import count

from index_tables import (
    FILES_EACH,
    LOCKED,
    WITHOUT_METADATA,
    FarStorage,
    Figure,
    Sizes,
    compared,
    create_files_table,
    in_turns,
    partition_name,
    rows_of_few_buckets,
    scratch,
    small_rows,
    timed,
)
from tests.support.counting_storage import CountingStorage, open_counting

import headwater as hw
from headwater.metadata.view import load_view

COLUMN_STATS = {"hoodie.metadata.index.column.stats.enable": "true"}
RECORD_INDEX = {"hoodie.metadata.global.record.level.index.enable": "true"}
OVERHEAD_MS = 60
REQUEST_S = 0.02
"""A fast object store answers in about so long."""


def measure_overhead(sizes: Sizes) -> list[Figure]:
    """Commit 100 rows to tables that differ in their indexes alone, in turns."""
    variants = {
        "no metadata table": WITHOUT_METADATA,
        "files": {},
        "files, column_stats": COLUMN_STATS,
        "files, column_stats, record_index": {**COLUMN_STATS, **RECORD_INDEX},
    }
    numbers = count()
    with scratch() as folder:
        tables = {
            name: _small_table(f"{folder}/{number}", options)
            for number, (name, options) in enumerate(variants.items())
        }
        taken = in_turns(
            sizes.commits,
            {
                name: lambda table=table: table.upsert(small_rows(0, next(numbers)))  # type: ignore[misc]
                for name, table in tables.items()
            },
        )
        calls = {name: _calls_of_a_commit(table) for name, table in tables.items()}
    base_ms = statistics.median(taken["no metadata table"])
    mean_ms = statistics.mean(taken["no metadata table"])
    # Every tenth commit or so also compacts the metadata table, which the mean has a part of.
    notes = {
        name: f"{calls[name]} storage calls; {statistics.median(all_ms) - base_ms:+.0f} ms, in the "
        f"mean {statistics.mean(all_ms) - mean_ms:+.0f} ms"
        for name, all_ms in taken.items()
    }
    target = f"at most +{OVERHEAD_MS} ms"
    return compared(
        "commit of 100 rows",
        taken,
        notes,
        {name: target for name in variants if name != "no metadata table"},
    )


def _small_table(path: str, options: dict[str, str]) -> hw.Table:
    return hw.create_table(
        path,
        schema=small_rows(0, 0).schema,
        record_key="id",
        partition_by="part",
        table_type="MERGE_ON_READ",
        buckets=4,
        options={**LOCKED, **options},
    )


def _calls_of_a_commit(table: hw.Table) -> int:
    counted, storage = open_counting(CountingStorage, table.uri, table.context.options)
    before = storage.count()
    counted.upsert(small_rows(0, 0))
    return storage.count() - before


def measure_size(sizes: Sizes) -> list[Figure]:
    """Commit to, and list, tables that differ in how many files they have alone."""
    figures: list[Figure] = []
    with scratch() as folder:
        tables: dict[str, hw.Table] = {}
        for files in sizes.files:
            name = f"{files:,} files"
            seconds = timed(partial(_keep, tables, name, f"{folder}/{files}", files)) / 1000
            print(f"made a table of {name} in {seconds:.0f} s", flush=True)
        figures += _measure_flat_commits(sizes, tables)
        largest = tables[f"{sizes.files[-1]:,} files"]
        figures += _measure_listing(sizes, largest, sizes.files[-1])
    return figures


def _keep(tables: dict[str, hw.Table], name: str, path: str, files: int) -> None:
    tables[name] = create_files_table(path, files)


def _measure_flat_commits(sizes: Sizes, tables: dict[str, hw.Table]) -> list[Figure]:
    numbers = count()

    def commit(table: hw.Table) -> Callable[[], object]:
        return lambda: table.upsert(rows_of_few_buckets(0, next(numbers)))

    listing = {
        f"{name}, by listing": hw.open_table(table.uri, {**LOCKED, **WITHOUT_METADATA})
        for name, table in tables.items()
    }
    flat = in_turns(sizes.commits // 2, {name: commit(table) for name, table in tables.items()})
    listed = in_turns(2, {name: commit(table) for name, table in listing.items()})
    targets = dict.fromkeys(list(flat)[1:], "0.8 to 1.2")
    return [
        *compared("commit of 100 rows to", flat, targets=targets),
        *compared("commit of 100 rows to", listed),
    ]


def _measure_listing(sizes: Sizes, table: hw.Table, files: int) -> list[Figure]:
    """List all file slices, and those of one partition, on disk and on an object store."""
    figures: list[Figure] = []
    few = [partition_name(0)]
    for where, far_s, turns in (("local disk", 0.0, sizes.turns), ("20 ms away", REQUEST_S, 1)):
        for what, partitions in ((f"{files:,} files", None), (f"{FILES_EACH} of them", few)):
            requests: dict[str, int] = {}

            def listed(
                name: str, uses_indexes: bool, far_s: float, partitions: list[str] | None
            ) -> None:
                storage = FarStorage(table.storage, far_s)
                view = load_view(storage, table.config, uses_indexes=uses_indexes)
                view.slices(partitions)
                requests[name] = storage.requests  # noqa: B023 - it runs before the next turn

            taken = in_turns(
                turns,
                {
                    name: partial(listed, name, uses, far_s, partitions)
                    for name, uses in (("storage listed", False), ("metadata table", True))
                },
            )
            notes = {name: f"{number} requests" for name, number in requests.items()}
            figures += compared(f"view of {what}, {where}", taken, notes)
    return figures
