"""Reads and look-ups with indexes, next to the same without."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from itertools import count

import numpy as np
import pyarrow as pa
from index_tables import (
    LOCKED,
    WITHOUT_METADATA,
    Figure,
    Sizes,
    compared,
    in_turns,
    row_ids,
    rows_between,
    with_index,
)
from pyspark.sql import SparkSession

import headwater as hw
from headwater.config.table_options import IndexType
from headwater.queries.snapshot import ReadRequest, plan_snapshot

TAGGED_KEYS = 1_000
TAGGED_GROUPS = 10
POINT_TARGET = "at least 50x faster"


def measure_point_lookup(
    spark: SparkSession, sizes: Sizes, table: hw.Table, plain: hw.Table
) -> list[Figure]:
    """Read one row by its record key, another one each time."""
    numbers = iter(np.random.default_rng(5).permutation(sizes.rows).tolist())

    def where() -> str:
        return f"id = '{row_ids(pa.array([next(numbers)]))[0].as_py()}'"

    def by_arrow(which: hw.Table) -> Callable[[], object]:
        return lambda: _one(which.read_arrow(where=where()).num_rows)

    def by_spark(which: hw.Table) -> Callable[[], object]:
        return lambda: _one(len(which.read(where=where(), spark=spark).collect()))

    figures = []
    for reader, by in (("read_arrow", by_arrow), ("Spark read", by_spark)):
        taken = in_turns(sizes.turns, {"full scan": by(plain), "record_index": by(table)})
        figures += _faster(f"point look-up, {reader}", taken, sizes.groups, table, where())
    return figures


def _one(rows: int) -> None:
    assert rows == 1, f"one row has this key, {rows} were read"


def _faster(
    what: str, taken: dict[str, list[float]], groups: int, table: hw.Table, where: str
) -> list[Figure]:
    scan, indexed = (statistics.median(all_ms) for all_ms in taken.values())
    slices = len(_slices(table, where))
    notes = {
        "full scan": f"{groups} files",
        "record_index": f"{slices} file; {scan / indexed:.0f}x faster",
    }
    return compared(what, taken, notes, {"record_index": POINT_TARGET})


def measure_skipping(
    spark: SparkSession, sizes: Sizes, table: hw.Table, plain: hw.Table
) -> list[Figure]:
    """Read a range of the sorted column that lies in one file, and one that lies in a twentieth."""
    each = sizes.rows // sizes.groups
    figures = []
    for matching in (1, max(2, sizes.groups // 20)):
        start = each * (sizes.groups // 3)
        where = f"seen >= {start} AND seen < {start + matching * each}"

        def by_arrow(which: hw.Table, where: str = where) -> Callable[[], object]:
            return lambda: which.read_arrow(["amount"], where=where)

        def by_spark(which: hw.Table, where: str = where) -> Callable[[], object]:
            return lambda: which.read(["amount"], where=where, spark=spark).collect()

        expected = table.read_arrow(["amount"], where=where).num_rows
        assert expected == matching * each, f"{expected} rows in place of {matching * each}"
        for reader, by in (("read_arrow", by_arrow), ("Spark read", by_spark)):
            taken = in_turns(sizes.turns, {"footers": by(plain), "column_stats": by(table)})
            notes = {
                "footers": f"{len(_slices(plain, where))} files",
                "column_stats": f"{len(_slices(table, where))} files",
            }
            what = f"{matching} of {sizes.groups} files match, {reader}"
            target = {"column_stats": f"{matching} files"}
            figures += compared(what, taken, notes, target)
    return figures


def _slices(table: hw.Table, where: str) -> tuple[object, ...]:
    plan = plan_snapshot(table.context, ReadRequest(where=where, is_filtered=True))
    return plan.slices


def measure_tagging(sizes: Sizes, path: str) -> list[Figure]:
    """Upsert 1,000 rows whose keys are in some of the file groups."""
    table = hw.open_table(path, LOCKED)
    tables = {
        "bloom filters in footers": hw.open_table(path, {**LOCKED, **WITHOUT_METADATA}),
        "bloom_filters": table,
        "record_index": with_index(table, IndexType.RECORD_INDEX),
    }
    numbers = count()
    each = sizes.rows // sizes.groups
    touched = min(TAGGED_GROUPS, sizes.groups)
    some = TAGGED_KEYS // touched

    def upsert(table: hw.Table) -> Callable[[], object]:
        def run() -> None:
            first = next(numbers) * some % (each - some)
            starts = [group * each + first for group in range(touched)]
            parts = [rows_between(start, start + some) for start in starts]
            done = table.upsert(pa.concat_tables(parts))
            assert done.updated == TAGGED_KEYS, f"{done.updated} of {TAGGED_KEYS} keys were found"

        return run

    taken = in_turns(sizes.turns, {name: upsert(one) for name, one in tables.items()})
    return compared(f"upsert of {TAGGED_KEYS:,} rows, {sizes.rows:,} in the table", taken)
