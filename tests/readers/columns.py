"""Columns of every type, columns that come and widen, and reads of the past."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import combinations
from pathlib import Path

import pyarrow as pa
from tests.readers.history import Step, history
from tests.readers.readers import Answers, Changes, Omits, Refuses, Snapshot, Untried
from tests.readers.shapes import FILES, NOT_TRIED, SCHEMA, TYPES, Files, found_in, rows
from tests.support.tables import COW, MOR, a_table, columns, rows_of
from tests.support.two_readers import Row

# Types -----------------------------------------------------------------------------------------

ALL_TYPES = columns(
    "id long not null, flag boolean, small int, single float, double double, text string, "
    "bytes binary, day date, moment timestamp, amount decimal(20, 4), cents decimal(5, 2), "
    "numbers array<int>, counts map<string, bigint>, "
    "place struct<floor: int, rooms: array<struct<name: string>>>, "
    "shares map<string, struct<share: double>>"
)


def full_row(id: int) -> Row:
    return {
        "id": id,
        "flag": True,
        "small": -(2**31),
        "single": 1.5,
        "double": -0.1,
        "text": "naïve ☃",
        "bytes": b"\x00\xff",
        "day": date(1969, 12, 31),
        "moment": datetime(2024, 2, 29, 23, 59, 59, 123456, UTC),
        "amount": Decimal("-1234567890123456.7891"),
        "cents": Decimal("-1.50"),
        "numbers": [1, None, 3],
        "counts": [("x", 1), ("y", None)],
        "place": {"floor": None, "rooms": [{"name": "a"}, {"name": None}]},
        "shares": [("z", {"share": 0.5}), ("w", {"share": None})],
    }


def empty_row(id: int) -> Row:
    nothing = {"text": "", "bytes": b"", "numbers": [], "counts": []}
    return {**dict.fromkeys(ALL_TYPES.names), "id": id, **nothing}


@history(files=FILES, spark=["avro-logs", "base-files"])
def all_types(path: Path, files: Files) -> Iterator[Step]:
    table = files.on(path, ALL_TYPES, buckets=2).create()
    first = [full_row(1), full_row(2), {"id": 3}]
    getattr(table, files.first)(pa.Table.from_pylist(first, schema=ALL_TYPES))
    yield Step(files.first, table, is_milestone=False)
    later = [empty_row(1), full_row(3), {"id": 2**60}]
    table.upsert(pa.Table.from_pylist(later, schema=ALL_TYPES))
    assert {row["id"]: row for row in table.read_arrow().to_pylist()} == {
        1: empty_row(1),
        2: full_row(2),
        3: full_row(3),
        2**60: {**dict.fromkeys(ALL_TYPES.names), "id": 2**60},
    }
    yield Step("upsert", table)


@history(files=FILES, spark=["parquet-logs"])
def timestamps_without_zone(path: Path, files: Files) -> Iterator[Step]:
    schema = columns("id string not null, wall timestamp_ntz")
    walls = rows_of(schema)
    table = files.on(path, schema, buckets=1).create()
    getattr(table, files.first)(walls(("a", datetime(2024, 2, 29, 1)), ("b",)))
    early = datetime(1969, 12, 31, 23, 59, 59, 123456)
    table.upsert(walls(("b", early)))
    assert found_in(table, "wall") == {"a": datetime(2024, 2, 29, 1), "b": early}
    why = "it panics ('not yet implemented') on local-timestamp-micros, the Avro type of these"
    yield Step("upsert", table, {"hudi-rs": Untried(why)})


# Evolution -------------------------------------------------------------------------------------


def added(schema: pa.Schema) -> pa.Schema:
    return schema.append(pa.field("extra", pa.struct([("tip", pa.float64())])))


def widened(schema: pa.Schema) -> pa.Schema:
    return schema.set(schema.get_field_index("fare"), pa.field("fare", pa.int64()))


EVOLUTIONS: Mapping[str, tuple[Callable[[pa.Schema], pa.Schema], Row]] = {
    "added-column": (added, {"extra": {"tip": 0.5}}),
    "widened-type": (widened, {"fare": 2**40}),
    "both": (lambda schema: added(widened(schema)), {"extra": {"tip": 0.5}, "fare": 2**40}),
}


TAKEN_FOR_PARTIAL = Refuses(
    "partial-update column 'fare' has type Int32",
    "it takes a log block without the new column for a partial update, and does not widen its "
    "other columns",
)


@history(files=FILES, evolution=EVOLUTIONS, spark=["parquet-logs-both", "base-files-both"])
def schema_evolution(
    path: Path, files: Files, evolution: tuple[Callable[[pa.Schema], pa.Schema], Row]
) -> Iterator[Step]:
    evolve, values = evolution
    limits = {"hudi-rs": TAKEN_FOR_PARTIAL} if len(values) == 2 and files.is_logs_alone else {}
    table = files.on(path, buckets=2).create()
    before = rows(("a", "sf", "n", 1, 1, "x"), ("b", "ny", "s", 1, 2, "y"))
    getattr(table, files.first)(before)
    yield Step(files.first, table, is_milestone=False)
    old = before.to_pylist()
    new = [{**old[0], **values}, {**old[1], **values, "id": "c"}]
    table.upsert(pa.Table.from_pylist(new, schema=evolve(SCHEMA)))
    yield Step("upsert with the new columns", table, limits, is_milestone=False)
    table.upsert(rows(("d", "la", "w", 2, 3, "older columns")))
    found = {row["id"]: row for row in table.read_arrow().to_pylist()}
    assert list(found["a"]) == evolve(SCHEMA).names
    fares = {key: row["fare"] for key, row in found.items()}
    assert fares == {"a": new[0]["fare"], "b": 2, "c": new[1]["fare"], "d": 3}
    assert found["c"] == new[1]
    yield Step("upsert with the old columns", table, limits)
    table.upsert(rows(("b", "la", "w", 2, 3, "older columns")))
    assert found_in(table, "fare")["b"] == 3
    yield Step("update with the old columns", table, is_milestone=False)


@history(spark=[""])
def a_column_added_and_one_widened_over_the_same_log(path: Path) -> Iterator[Step]:
    table = a_table(path, SCHEMA, table_type=MOR, buckets=1).create()
    table.insert(rows(("z", "sf", "n", 1, 0, "x")))
    table.insert(rows(("a", "sf", "n", 1, 1, "x")))
    row = ("b", "sf", "n", 1, 2**40, "x", {"tip": 0.5})
    table.insert(rows_of(added(widened(SCHEMA)))(row))
    assert found_in(table, "fare") == {"a": 1, "b": 2**40, "z": 0}
    assert found_in(table, "extra") == {"a": None, "b": {"tip": 0.5}, "z": None}
    yield Step("both", table, {"hudi-rs": TAKEN_FOR_PARTIAL, **NOT_TRIED})


# Time ------------------------------------------------------------------------------------------

ADDED = rows_of(added(SCHEMA))


@history(table_type=TYPES, spark=["mor"])
def time_travel(path: Path, table_type: str) -> Iterator[Step]:
    table = a_table(path, SCHEMA, partition_by="city", table_type=table_type, buckets=2).create()
    first = rows(("a", "sf", "n", 1, 1, "x"), ("b", "ny", "s", 1, 2, "y"))
    commits = [
        table.bulk_insert(first),
        table.upsert(rows(("a", "sf", "n", 1, 10, "x"), ("c", "sf", "s", 1, 3, "y"))),
        table.delete(first.slice(1).select(["id", "city"])),
        table.overwrite_partitions(rows(("d", "sf", "n", 1, 4, None))),
        table.upsert(ADDED(("d", "sf", "n", 1, 5, None, {"tip": 1.0}))),
        table.overwrite(rows(("e", "la", "n", 1, 6, None))),
    ]
    counts = {}
    for commit in commits:
        time = str(commit.completion_time)
        found = table.read_arrow(as_of=time)
        counts[time] = found.num_rows
        today = Omits(("extra",), "it shows the past with the columns of today")
        limits = {} if "extra" in found.schema.names else {"hudi-rs": today}
        yield Step(f"as of {time}", table, limits, [Snapshot(as_of=time)])
    assert list(counts.values()) == [2, 3, 2, 1, 1, 1]


@history(table_type=TYPES, spark=["mor"])
def base_files_alone(path: Path, table_type: str) -> Iterator[Step]:
    table = a_table(path, SCHEMA, partition_by="city", table_type=table_type).create()
    table.bulk_insert(rows(("a", "sf", "n", 1, 1, "x"), ("b", "ny", "s", 1, 2, "y")))
    table.upsert(rows(("a", "sf", "n", 1, 10, "x"), ("c", "la", "s", 1, 3, "y")))
    found = table.read_arrow(["id", "fare"], read_optimized=True).to_pylist()
    fares = {row["id"]: row["fare"] for row in found}
    assert fares == {"a": 10 if table_type == COW else 1, "b": 2, "c": 3}
    untried = Untried("no option of its reads leaves logs out")
    base_files = [Snapshot(is_read_optimized=True)]
    yield Step("in base files", table, {"hudi-rs": untried}, base_files)


BEGINNING = "19700101000000000"


@history(table_type=TYPES, spark=["mor"])
def incremental_reads(path: Path, table_type: str) -> Iterator[Step]:
    table = a_table(path, SCHEMA, partition_by="city", table_type=table_type, buckets=2).create()
    first = rows(("a", "sf", "n", 1, 1, "x"), ("b", "ny", "s", 1, 2, "y"))
    commits = [
        table.insert(first),
        table.upsert(rows(("a", "sf", "n", 1, 10, "x"), ("c", "ny", "s", 1, 3, "y"))),
        table.delete(first.slice(1).select(["id", "city"])),
        table.overwrite_partitions(rows(("d", "ny", "n", 1, 4, None))),
    ]
    times = [BEGINNING, *(str(commit.completion_time) for commit in commits)]
    windows = [Changes(after, until) for after, until in combinations(times, 2)]
    found = ["".join(sorted(table.changes_arrow(*window)["id"].to_pylist())) for window in windows]
    assert found == ["ab", "abc", "ac", "ad", "ac", "ac", "ad", "", "d", "d"]
    yield Step("in every window", table, {}, windows)


@history(spark=[""])
def a_late_update_is_no_change(path: Path) -> Iterator[Step]:
    table = a_table(path, SCHEMA, ordering="ts", table_type=MOR, buckets=1).create()
    first = table.insert(rows(("a", "sf", "n", 10, 1, "kept")))
    late = table.upsert(rows(("a", "sf", "n", 9, 2, "late")))
    assert found_in(table, "note") == {"a": "kept"}
    yield Step("a late update", table)
    window = Changes(str(first.completion_time), str(late.completion_time))
    assert table.changes_arrow(*window).num_rows == 0
    why = "it looks at the files of the window alone, where what lost against an older record won"
    late_too = Answers("note", ("late",), why)
    yield Step("its window", table, {"hudi": late_too, "hudi-rs": late_too}, [window])
