"""Every shape of table that we write, as hudi-rs reads it: row for row what we read ourselves.

After each step of a table's history both readers answer the same questions; meta columns are
compared too. What hudi-rs 0.5 cannot do is a test that is skipped with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import combinations, product
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from tests.support.hudi_rs import location_for_hudi_rs
from tests.support.two_readers import META, read_with_meta_columns

import headwater as hw
from headwater.config.table_options import TableType
from headwater.kernel.table_config import update_table_config
from headwater.metadata.view import load_view
from headwater.table import Table

hudi = pytest.importorskip("hudi", reason="hudi-rs is not installed")

Row = dict[str, Any]

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("city", pa.string()),
        pa.field("zone", pa.string()),
        pa.field("ts", pa.int64()),
        pa.field("fare", pa.int32()),
        pa.field("note", pa.string()),
    ]
)

each_type = pytest.mark.parametrize(
    "table_type", [TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ]
)


class Files(NamedTuple):
    """Which files a history of writes makes."""

    table_type: TableType
    block_format: str
    first: str
    """The first write."""
    is_logs_alone: bool = False
    """Whether file groups start as logs, as those of non-blocking writers do."""

    @property
    def options(self) -> dict[str, str]:
        options = {"hoodie.logfile.data.block.format": self.block_format}
        return {**options, **NON_BLOCKING} if self.is_logs_alone else options


NON_BLOCKING = {
    "hoodie.write.concurrency.mode": "non_blocking_concurrency_control",
    "hoodie.write.lock.provider": "in_process",
}
COW = Files(TableType.COPY_ON_WRITE, "parquet", "insert")
MOR = TableType.MERGE_ON_READ
ALL_FILES = {
    "base-files": COW,
    "parquet-logs": Files(MOR, "parquet", "insert", is_logs_alone=True),
    "avro-logs": Files(MOR, "avro", "insert", is_logs_alone=True),
    "parquet-logs-on-base": Files(MOR, "parquet", "insert"),
    "avro-logs-on-base": Files(MOR, "avro", "insert"),
    "parquet-logs-on-bulk": Files(MOR, "parquet", "bulk_insert"),
}
each_kind_of_files = pytest.mark.parametrize("files", ALL_FILES.values(), ids=ALL_FILES.keys())

DELETE_MARK = {
    "hoodie.record.merge.property.hoodie.payload.delete.field": "op",
    "hoodie.record.merge.property.hoodie.payload.delete.marker": "D",
}


def new_table(path: Path, *, options: Mapping[str, str] | None = None, **arguments: Any) -> Table:
    # Nothing here has to survive a power cut, and forcing files out is half of the time.
    return hw.create_table(
        path, options={"headwater.storage.fsync": "false", **(options or {})}, **arguments
    )


def rows(*values: tuple[Any, ...], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(schema.names, row, strict=True)) for row in values], schema=schema
    )


def in_order(found: Iterable[Row]) -> list[Row]:
    return sorted(found, key=lambda row: repr(sorted(row.items())))


def open_by_hudi_rs(table: Table) -> Any:
    return hudi.HudiTableBuilder.from_base_uri(location_for_hudi_rs(table)).build()


def rows_in(batches: Iterable[Any]) -> list[Row]:
    return in_order(row for batch in batches for row in pa.record_batch(batch).to_pylist())


def read_by_hudi_rs(table: Table, options: Any = None) -> list[Row]:
    return rows_in(open_by_hudi_rs(table).read(options))


def read_by_us(table: Table, as_of: str | None = None) -> list[Row]:
    return in_order(read_with_meta_columns(table, as_of=as_of).to_pylist())


def check_both_read_the_same(table: Table, step: str, *, skip: Iterable[str] = ()) -> None:
    ours = without(read_by_us(table), skip)
    assert ours, f"the step {step!r} left nothing to compare"
    theirs = open_by_hudi_rs(table)
    assert without(rows_in(theirs.read()), skip) == ours, f"the readers differ after {step!r}"
    assert slices_of(theirs) == slices_by_us(table), f"other files after {step!r}"


def without(found: list[Row], columns: Iterable[str]) -> list[Row]:
    dropped = set(columns)
    return in_order(
        {name: value for name, value in row.items() if name not in dropped} for row in found
    )


def slices_of(opened: Any) -> set[tuple[str, str, tuple[str, ...]]]:
    """Return the file slices that hudi-rs knows of."""
    found = opened.get_file_slices()
    return {(one.partition_path, one.file_id, tuple(sorted(one.log_file_names))) for one in found}


def slices_by_us(table: Table) -> set[tuple[str, str, tuple[str, ...]]]:
    return {
        (*one.group, tuple(sorted(log.name for log in one.logs)))
        for one in load_view(table.storage, table.config).slices()
    }


def set_property(table: Table, changes: Mapping[str, str]) -> Table:
    """Return the table with a config that stock Hudi can create and `create_table` cannot."""
    locks = table.context.components.locks
    update_table_config(table.storage, locks, table.context.clock, changes, lock_timeout_ms=1_000)
    return hw.open_table(table.uri, table.context.options)


# Partitioning ----------------------------------------------------------------------------------

URL_ENCODED = {"hoodie.datasource.write.partitionpath.urlencode": "true"}
NOT_HIVE_STYLE = {"hoodie.datasource.write.hive_style_partitioning": "false"}
LAYOUTS: Mapping[str, tuple[tuple[str, ...], Mapping[str, str]]] = {
    "unpartitioned": ((), {}),
    "hive-style": (("city",), {}),
    "plain": (("city",), NOT_HIVE_STYLE),
    "two-columns": (("city", "zone"), {}),
    "two-columns-plain": (("city", "zone"), NOT_HIVE_STYLE),
    "url-encoded": (("city",), URL_ENCODED),
    "url-encoded-plain": (("city",), {**URL_ENCODED, **NOT_HIVE_STYLE}),
}
CITY = {"url-encoded": "são paulo: 50% of a/b?", "url-encoded-plain": "são paulo: 50% of a/b?"}


# Layouts are the same for both types of table, so that a few of them have to do for one.
LONG = {(TableType.COPY_ON_WRITE, name) for name in ("plain", "two-columns-plain", "url-encoded")}


@pytest.mark.parametrize(
    ("table_type", "layout"),
    [
        pytest.param(*both, marks=[pytest.mark.long] * (both in LONG))
        for both in product((TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ), LAYOUTS)
    ],
)
def test_every_write_to_every_layout(tmp_path: Path, table_type: TableType, layout: str) -> None:
    partition_by, options = LAYOUTS[layout]
    table = new_table(
        tmp_path / "trips",
        schema=SCHEMA,
        record_key="id",
        partition_by=partition_by,
        ordering="ts",
        table_type=table_type,
        buckets=2,
        options=options,
    )
    sf = CITY.get(layout, "sf")
    key_columns = ["id", *partition_by]
    first = rows(
        ("a", sf, "n", 10, 1, "old"),
        ("b", "ny", "s", 10, 2, None),
        ("c", None, None, 10, 3, "a null partition"),
        ("d", sf, None, 10, 4, ""),
    )
    steps: Mapping[str, Callable[[], object]] = {
        "insert": lambda: table.insert(first),
        "upsert": lambda: table.upsert(
            rows(
                ("a", sf, "n", 11, 10, "newer"),
                ("b", "ny", "s", 9, 20, "late and ignored"),
                ("e", "ny", "s", 10, 5, "added"),
                ("c", None, None, 10, 30, "as new, later write"),
            )
        ),
        "delete": lambda: table.delete(first.slice(3).select(key_columns)),
        "delete what is not there": lambda: table.delete(first.slice(3).select(key_columns)),
        "insert again": lambda: table.upsert(rows(("d", sf, None, 1, 40, "back"))),
        "bulk_insert": lambda: table.bulk_insert(rows(("f", "la", "w", 1, 6, "new partition"))),
        "overwrite_partitions": lambda: table.overwrite_partitions(
            rows(("g", "ny", "s", 1, 7, "replaces"))
        ),
        "upsert after replacing": lambda: table.upsert(
            rows(("g", "ny", "s", 2, 8, "updated"), ("b", "ny", "s", 1, 9, "back"))
        ),
        "overwrite": lambda: table.overwrite(
            rows(("h", sf, "n", 1, 1, None), ("i", "ny", "s", 1, 2, None))
        ),
        "upsert after overwriting": lambda: table.upsert(rows(("h", sf, "n", 2, 3, "last"))),
    }
    for step, write in steps.items():
        write()
        check_both_read_the_same(table, step)
    if partition_by:
        (partition,) = {
            row["_hoodie_partition_path"] for row in read_by_us(table) if row["id"] == "i"
        }
        table.delete_partitions([partition])
        check_both_read_the_same(table, "delete_partitions")
        assert {row["id"] for row in read_by_us(table)} == {"h"}


@each_type
@pytest.mark.parametrize("index", ["simple", "bloom"])
def test_records_found_by_a_look_up(tmp_path: Path, table_type: TableType, index: str) -> None:
    table = new_table(
        tmp_path / "trips",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type=table_type,
        index=index,
    )
    first = rows(("a", "sf", "n", 10, 1, "x"), ("b", "ny", "s", 10, 2, "y"))
    table.upsert(first)
    check_both_read_the_same(table, "first upsert")
    table.upsert(rows(("a", "sf", "n", 11, 10, "x"), ("c", "sf", "s", 10, 3, "y")))
    check_both_read_the_same(table, "second upsert")
    table.delete(first.slice(1).select(["id", "city"]))
    check_both_read_the_same(table, "delete")
    assert {row["id"]: row["fare"] for row in read_by_us(table)} == {"a": 10, "c": 3}


@each_type
def test_rows_without_keys(tmp_path: Path, table_type: TableType) -> None:
    table = new_table(
        tmp_path / "events", schema=SCHEMA, partition_by="city", table_type=table_type
    )
    twice = rows(("a", "sf", "n", 1, 1, "x"), ("a", "sf", "n", 1, 1, "x"))
    table.insert(twice)
    check_both_read_the_same(table, "insert")
    table.insert(twice)
    check_both_read_the_same(table, "insert into files with room")
    table.bulk_insert(rows(("b", "ny", "n", 1, 1, None)))
    check_both_read_the_same(table, "bulk_insert")
    table.overwrite_partitions(rows(("c", "sf", "n", 1, 1, None)))
    check_both_read_the_same(table, "overwrite_partitions")
    assert [row["id"] for row in table.read_arrow().sort_by("id").to_pylist()] == ["b", "c"]


# Keys ------------------------------------------------------------------------------------------


@each_type
@pytest.mark.parametrize("partition_by", [(), ("city",), ("city", "zone")], ids=["", "one", "two"])
def test_complex_keys(tmp_path: Path, table_type: TableType, partition_by: tuple[str, ...]) -> None:
    table = new_table(
        tmp_path / "trips",
        schema=SCHEMA,
        record_key=("id", "note"),
        partition_by=partition_by,
        table_type=table_type,
    )
    table.insert(
        rows(
            ("a", "sf", "n", 1, 1, None),
            ("a", "sf", "n", 1, 2, ""),
            ("a", "sf", "n", 1, 3, "x,y:z"),
        )
    )
    check_both_read_the_same(table, "insert")
    table.upsert(rows(("a", "sf", "n", 1, 10, None), ("a", "sf", "n", 1, 30, "x,y:z")))
    check_both_read_the_same(table, "upsert")
    table.delete(rows(("a", "sf", "n", 1, 2, "")).select(["id", "note", "city", "zone"]))
    check_both_read_the_same(table, "delete")
    found = {row["_hoodie_record_key"]: row["fare"] for row in read_by_us(table)}
    assert found == {"id:a,note:__null__": 10, "id:a,note:x,y:z": 30}


@each_type
def test_timestamp_keys(tmp_path: Path, table_type: TableType) -> None:
    table = set_property(
        new_table(
            tmp_path / "trips",
            schema=SCHEMA,
            record_key="id",
            partition_by="ts",
            table_type=table_type,
            options=NOT_HIVE_STYLE,
        ),
        {
            "hoodie.table.keygenerator.type": "TIMESTAMP",
            "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
            "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
            "hoodie.keygen.timebased.timezone": "UTC",
        },
    )
    november, march = 1_700_000_000_000, 1_710_000_000_000
    table.insert(rows(("a", "sf", "n", november, 1, "x"), ("b", "sf", "n", march, 2, "y")))
    check_both_read_the_same(table, "insert")
    table.upsert(rows(("a", "sf", "n", november + 1, 9, "x"), ("c", "sf", "n", march, 3, "y")))
    check_both_read_the_same(table, "upsert")
    table.delete(pa.table({"id": ["b"], "ts": [march]}))
    check_both_read_the_same(table, "delete")
    found = {row["id"]: row["_hoodie_partition_path"] for row in read_by_us(table)}
    assert found == {"a": "2023/11/14", "c": "2024/03/09"}


# Merging ---------------------------------------------------------------------------------------


@each_kind_of_files
@pytest.mark.parametrize(
    ("mark", "ordering"),
    [
        pytest.param("_hoodie_is_deleted", None, id="flag-commit-time"),
        pytest.param("_hoodie_is_deleted", "ts", id="flag-event-time"),
        pytest.param("op", "ts", id="op-event-time"),
        pytest.param("op", None, id="op-commit-time", marks=pytest.mark.long),
    ],
)
def test_deletes_among_upserts(
    tmp_path: Path,
    files: Files,
    ordering: str | None,
    mark: str,
) -> None:
    is_flag = mark == "_hoodie_is_deleted"
    schema = SCHEMA.append(pa.field(mark, pa.bool_() if is_flag else pa.string()))
    kept, gone = (False, True) if is_flag else ("I", "D")
    table = new_table(
        tmp_path / "trips",
        schema=schema,
        record_key="id",
        ordering=ordering,
        table_type=files.table_type,
        buckets=2,
        options={
            **files.options,
            **({} if is_flag else DELETE_MARK),
        },
    )
    write = getattr(table, files.first)
    write(
        rows(
            ("a", "sf", "n", 10, 1, "x", kept),
            ("b", "sf", "n", 10, 2, "x", None),
            ("c", "sf", "n", 10, 3, "x", gone),
            ("d", "sf", "n", 10, 4, "x", kept),
            schema=schema,
        )
    )
    check_both_read_the_same(table, files.first)
    assert {row["id"] for row in read_by_us(table)} == {"a", "b", "d"}
    table.upsert(
        rows(
            ("a", "sf", "n", 11, 10, "y", gone),
            ("b", "sf", "n", 9, 20, "y", gone),
            ("e", "sf", "n", 10, 50, "y", kept),
            schema=schema,
        )
    )
    check_both_read_the_same(table, "upsert with deletes")
    survivors = {"d", "e"} if ordering is None else {"b", "d", "e"}
    assert {row["id"] for row in read_by_us(table)} == survivors
    table.upsert(rows(("a", "sf", "n", 12, 100, "z", kept), schema=schema))
    check_both_read_the_same(table, "insert again")
    table.delete(pa.table({"id": ["d"]}))
    check_both_read_the_same(table, "delete")
    assert {row["id"] for row in read_by_us(table)} == (survivors | {"a"}) - {"d"}


PARTIAL_MODES: Mapping[str, tuple[Mapping[str, str], str | None]] = {
    "ignore-defaults": ({"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}, None),
    "fill-unavailable": (
        {
            "hoodie.table.partial.update.mode": "FILL_UNAVAILABLE",
            "hoodie.record.merge.property.partial.update.unavailable.value": "?",
        },
        "?",
    ),
}


@each_kind_of_files
@pytest.mark.parametrize("ordering", [None, "ts"], ids=["commit-time", "event-time"])
@pytest.mark.parametrize("mode", PARTIAL_MODES)
def test_partial_update_modes(
    tmp_path: Path,
    files: Files,
    ordering: str | None,
    mode: str,
) -> None:
    changes, absent = PARTIAL_MODES[mode]
    table = set_property(
        new_table(
            tmp_path / "trips",
            schema=SCHEMA,
            record_key="id",
            ordering=ordering,
            table_type=files.table_type,
            buckets=1,
            options=files.options,
        ),
        changes,
    )
    write = getattr(table, files.first)
    write(rows(("a", "sf", "n", 10, 1, "old"), ("b", "ny", "s", 10, 2, "old")))
    check_both_read_the_same(table, files.first)
    table.upsert(rows(("a", absent, "w", 11, 10, absent), ("b", "la", absent, 9, 20, "late")))
    # Of a late record that may have filled gaps we show when it was written, so that incremental
    # reads find the row; hudi-rs shows the record that won.
    skip = [] if ordering is None else META
    check_both_read_the_same(table, "upsert", skip=skip)
    table.upsert(rows(("a", "kl", absent, 12, 11, absent), ("c", "pa", "e", 1, 3, "new")))
    check_both_read_the_same(table, "second upsert", skip=skip)
    found = {row["id"]: row for row in table.read_arrow().to_pylist()}
    assert found["a"] == {
        "id": "a", "city": "kl", "zone": "w", "ts": 12, "fare": 11, "note": "old",
    }  # fmt: skip
    assert found["b"]["city"] == ("la" if ordering is None else "ny")


@each_kind_of_files
def test_updates_that_bring_some_columns(tmp_path: Path, files: Files) -> None:
    table = new_table(
        tmp_path / "trips",
        schema=SCHEMA,
        record_key="id",
        ordering="ts",
        table_type=files.table_type,
    )
    write = getattr(table, files.first)
    write(rows(("a", "sf", "n", 10, 1, "old"), ("b", "ny", "s", 10, 2, "old")))
    check_both_read_the_same(table, files.first)
    fares = {"id": ["a", "c"], "ts": [11, 1], "fare": pa.array([10, 30], pa.int32())}
    table.upsert(pa.table(fares), partial=True)
    check_both_read_the_same(table, "partial update of the fare")
    table.upsert(pa.table({"id": ["a", "b"], "ts": [12, 9], "note": ["n", "m"]}), partial=True)
    # Neither reader agrees on who wrote the row whose late update filled no gap.
    check_both_read_the_same(table, "partial update of the note", skip=META)
    found = {row["id"]: (row["city"], row["fare"], row["note"]) for row in read_by_us(table)}
    assert found == {"a": ("sf", 10, "n"), "b": ("ny", 2, "old"), "c": (None, 30, None)}


# Columns ---------------------------------------------------------------------------------------

ALL_TYPES = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("flag", pa.bool_()),
        pa.field("small", pa.int32()),
        pa.field("single", pa.float32()),
        pa.field("double", pa.float64()),
        pa.field("text", pa.string()),
        pa.field("bytes", pa.binary()),
        pa.field("day", pa.date32()),
        pa.field("moment", pa.timestamp("us", tz="UTC")),
        pa.field("amount", pa.decimal128(20, 4)),
        pa.field("numbers", pa.list_(pa.int32())),
        pa.field("counts", pa.map_(pa.string(), pa.int64())),
        pa.field(
            "place",
            pa.struct(
                [("floor", pa.int32()), ("rooms", pa.list_(pa.struct([("name", pa.string())])))]
            ),
        ),
        pa.field("shares", pa.map_(pa.string(), pa.struct([("share", pa.float64())]))),
    ]
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
        "numbers": [1, None, 3],
        "counts": [("x", 1), ("y", None)],
        "place": {"floor": None, "rooms": [{"name": "a"}, {"name": None}]},
        "shares": [("z", {"share": 0.5}), ("w", {"share": None})],
    }


def empty_row(id: int) -> Row:
    return {
        **dict.fromkeys(ALL_TYPES.names),
        "id": id,
        "text": "",
        "bytes": b"",
        "numbers": [],
        "counts": [],
    }


@each_kind_of_files
def test_all_types(tmp_path: Path, files: Files) -> None:
    table = new_table(
        tmp_path / "types",
        schema=ALL_TYPES,
        record_key="id",
        table_type=files.table_type,
        buckets=2,
        options=files.options,
    )
    write = getattr(table, files.first)
    write(pa.Table.from_pylist([full_row(1), full_row(2), {"id": 3}], schema=ALL_TYPES))
    check_both_read_the_same(table, files.first)
    later = [empty_row(1), full_row(3), {"id": 2**60}]
    table.upsert(pa.Table.from_pylist(later, schema=ALL_TYPES))
    check_both_read_the_same(table, "upsert")
    found = {row["id"]: row for row in table.read_arrow().to_pylist()}
    assert found[2] == full_row(2)
    assert found[3] == full_row(3)
    assert found[1] == empty_row(1)


def added(schema: pa.Schema) -> pa.Schema:
    return schema.append(pa.field("extra", pa.struct([("tip", pa.float64())])))


def widened(schema: pa.Schema) -> pa.Schema:
    place = schema.get_field_index("fare")
    return schema.set(place, pa.field("fare", pa.int64()))


EVOLUTIONS: Mapping[str, tuple[Callable[[pa.Schema], pa.Schema], Row]] = {
    "added-column": (added, {"extra": {"tip": 0.5}}),
    "widened-type": (widened, {"fare": 2**40}),
}


@each_kind_of_files
@pytest.mark.parametrize("evolution", EVOLUTIONS)
def test_schema_evolution(tmp_path: Path, files: Files, evolution: str) -> None:
    table = new_table(
        tmp_path / "trips",
        schema=SCHEMA,
        record_key="id",
        table_type=files.table_type,
        buckets=2,
        options=files.options,
    )
    evolve, values = EVOLUTIONS[evolution]
    before = rows(("a", "sf", "n", 1, 1, "x"), ("b", "ny", "s", 1, 2, "y")).to_pylist()
    write = getattr(table, files.first)
    write(pa.Table.from_pylist(before, schema=SCHEMA))
    check_both_read_the_same(table, files.first)
    after = [{**before[0], **values}, {**before[1], **values, "id": "c"}]
    table.upsert(pa.Table.from_pylist(after, schema=evolve(SCHEMA)))
    check_both_read_the_same(table, "upsert with the new columns")
    table.upsert(rows(("b", "la", "w", 2, 3, "older columns")))
    check_both_read_the_same(table, "upsert with the old columns")
    assert table.read_arrow().schema.names == evolve(SCHEMA).names
    found = {row["id"]: row for row in table.read_arrow().to_pylist()}
    assert found["c"] == after[1]
    assert found["b"]["fare"] == 3


# Time ------------------------------------------------------------------------------------------


@each_type
def test_time_travel(tmp_path: Path, table_type: TableType) -> None:
    table = new_table(
        tmp_path / "trips",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        table_type=table_type,
        buckets=2,
    )
    first = rows(("a", "sf", "n", 1, 1, "x"), ("b", "ny", "s", 1, 2, "y"))
    commits = [
        table.insert(first),
        table.upsert(rows(("a", "sf", "n", 1, 10, "x"), ("c", "sf", "s", 1, 3, "y"))),
        table.delete(first.slice(1).select(["id", "city"])),
        table.overwrite_partitions(rows(("d", "sf", "n", 1, 4, None))),
        table.upsert(added_rows(("d", "sf", "n", 1, 5, None, {"tip": 1.0}))),
        table.overwrite(rows(("e", "la", "n", 1, 6, None))),
    ]
    counts = []
    for commit in commits:
        ours = read_by_us(table, commit.completion_time)
        # hudi-rs shows the past with the columns of today.
        later = {"extra"} - ours[0].keys()
        options = hudi.HudiReadOptions().with_as_of_timestamp(commit.completion_time)
        assert without(read_by_hudi_rs(table, options), later) == ours
        counts.append(len(ours))
    assert counts == [2, 3, 2, 1, 1, 1]


BEGINNING = "19700101000000000"


@each_type
def test_incremental_reads(tmp_path: Path, table_type: TableType) -> None:
    table = new_table(
        tmp_path / "trips",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        table_type=table_type,
        buckets=2,
    )
    first = rows(("a", "sf", "n", 1, 1, "x"), ("b", "ny", "s", 1, 2, "y"))
    commits = [
        table.insert(first),
        table.upsert(rows(("a", "sf", "n", 1, 10, "x"), ("c", "ny", "s", 1, 3, "y"))),
        table.delete(first.slice(1).select(["id", "city"])),
        table.overwrite_partitions(rows(("d", "ny", "n", 1, 4, None))),
    ]
    times = [BEGINNING, *(commit.completion_time for commit in commits)]
    found = {}
    for after, until in combinations(range(len(times)), 2):
        options = (
            hudi.HudiReadOptions()
            .with_query_type(hudi.HudiQueryType.Incremental)
            .with_start_timestamp(times[after])
            .with_end_timestamp(times[until])
        )
        ours = in_order(table.changes_arrow(times[after], times[until]).to_pylist())
        assert without(read_by_hudi_rs(table, options), META) == ours
        found[after, until] = "".join(sorted(row["id"] for row in ours))
    assert found == {
        (0, 1): "ab", (0, 2): "abc", (0, 3): "ac", (0, 4): "ad",
        (1, 2): "ac", (1, 3): "ac", (1, 4): "ad",
        (2, 3): "", (2, 4): "d",
        (3, 4): "d",
    }  # fmt: skip


def added_rows(*values: tuple[Any, ...]) -> pa.Table:
    return rows(*values, schema=added(SCHEMA))


# What hudi-rs cannot read ----------------------------------------------------------------------


def skip_as_refused(table: Table, refusal: str, why: str) -> None:
    """Skip, having seen that we read the table and that hudi-rs still refuses it as expected."""
    assert read_by_us(table)
    with pytest.raises(Exception, match=refusal):
        read_by_hudi_rs(table)
    pytest.skip(why)


def test_an_insert_with_the_unavailable_marker(tmp_path: Path) -> None:
    changes, marker = PARTIAL_MODES["fill-unavailable"]
    shape: dict[str, Any] = {"record_key": "id", "table_type": MOR, "buckets": 1}
    table = set_property(new_table(tmp_path / "trips", schema=SCHEMA, **shape), changes)
    table.insert(rows(("a", marker, "n", 1, 1, "x")))
    assert table.read_arrow(["city"]).to_pylist() == [{"city": marker}]
    check_both_read_the_same(table, "into a base file")
    table.insert(rows(("b", marker, "n", 1, 1, "x")))
    assert table.read_arrow(["city"]).to_pylist() == [{"city": marker}] * 2
    skip_as_refused(
        table,
        "no prior value to fill from",
        "hudi-rs refuses a record of a log that has the unavailable marker and no older value",
    )


def test_a_column_added_and_one_widened_over_the_same_log(tmp_path: Path) -> None:
    table = new_table(tmp_path / "trips", schema=SCHEMA, record_key="id", table_type=MOR, buckets=1)
    table.insert(rows(("z", "sf", "n", 1, 0, "x")))
    table.insert(rows(("a", "sf", "n", 1, 1, "x")))
    row = ("b", "sf", "n", 1, 2**40, "x", {"tip": 0.5})
    table.insert(rows(row, schema=added(widened(SCHEMA))))
    fares = {row["id"]: (row["fare"], row["extra"]) for row in table.read_arrow().to_pylist()}
    assert fares == {"a": (1, None), "b": (2**40, {"tip": 0.5}), "z": (0, None)}
    skip_as_refused(
        table,
        "partial-update column 'fare' has type Int32",
        "hudi-rs takes a log block without the new column for a partial update, and does not widen "
        "its other columns",
    )


@each_type
def test_several_ordering_fields(tmp_path: Path, table_type: TableType) -> None:
    table = new_table(
        tmp_path / "trips",
        schema=SCHEMA,
        record_key="id",
        ordering=("ts", "fare"),
        table_type=table_type,
    )
    table.insert(rows(("a", "sf", "n", 1, 2, "kept")))
    table.upsert(rows(("a", "sf", "n", 1, 1, "late")))
    assert table.read_arrow(["note"]).to_pylist() == [{"note": "kept"}]
    skip_as_refused(
        table, "Multiple ordering fields", "hudi-rs refuses every table with two ordering fields"
    )


@pytest.mark.skip(
    reason="hudi-rs panics ('not yet implemented') on local-timestamp-micros, the Avro type of a "
    "timestamp without zone"
)
def test_a_timestamp_without_zone(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.string()), pa.field("moment", pa.timestamp("us"))])
    table = new_table(tmp_path / "types", schema=schema, record_key="id")
    table.insert(rows(("a", datetime(2024, 2, 29, 1)), schema=schema))
    check_both_read_the_same(table, "insert")
