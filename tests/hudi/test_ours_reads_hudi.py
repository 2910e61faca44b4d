"""Every shape of table that Apache Hudi writes, as we read it: row for row what Hudi reads.

Where our writer knows the table's index it then writes too, and Hudi reads and writes on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.beside_hudi import YES, refused, shows
from tests.support.hudi_peer import HudiError, HudiPeer
from tests.support.hudi_tables import HudiTable

from headwater.arrow.meta_columns import COMMIT_TIME
from headwater.errors import ErrorKind, InvalidInputError, UnsupportedError

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

COW, MOR = "COPY_ON_WRITE", "MERGE_ON_READ"
HIVE_STYLE = {"hoodie.datasource.write.hive_style_partitioning": "true"}
URL_ENCODED = {"hoodie.datasource.write.partitionpath.urlencode": "true"}
AVRO_LOGS = {"hoodie.logfile.data.block.format": "avro"}
PARQUET_LOGS = {"hoodie.logfile.data.block.format": "parquet"}
SIMPLE = {"hoodie.index.type": "SIMPLE"}
BLOOM = {"hoodie.index.type": "BLOOM"}
BUCKETS = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}


def rows(*values: tuple[Any, ...], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(schema.names, row, strict=True)) for row in values], schema=schema
    )


def described(
    table_type: str,
    *,
    record_key: str = "id",
    partition_by: str = "",
    ordering: str = "ts",
    options: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return Hudi's options for a table."""
    return {
        "hoodie.datasource.write.table.type": table_type,
        "hoodie.datasource.write.recordkey.field": record_key,
        "hoodie.datasource.write.partitionpath.field": partition_by,
        "hoodie.table.ordering.fields": ordering,
        **(options or {}),
    }


class Shape(NamedTuple):
    """A kind of table."""

    table_type: str
    index_options: Mapping[str, str]
    partition_by: str = ""
    record_key: str = "id"
    options: Mapping[str, str] = {}
    city: str = "sf"

    @property
    def hudi_options(self) -> dict[str, str]:
        return described(
            self.table_type,
            record_key=self.record_key,
            partition_by=self.partition_by,
            options={**self.index_options, **self.options},
        )


ODD_CITY = "são paulo: 50% of a/b?"
SHAPES = {
    "cow-simple": Shape(COW, SIMPLE),
    "mor-bloom-avro": Shape(MOR, BLOOM, options=AVRO_LOGS),
    "cow-bucket-plain": Shape(COW, BUCKETS, "city"),
    "mor-bucket-hive-parquet": Shape(MOR, BUCKETS, "city", options={**HIVE_STYLE, **PARQUET_LOGS}),
    "mor-simple-plain-parquet": Shape(MOR, SIMPLE, "city", options=PARQUET_LOGS),
    "cow-bloom-hive": Shape(COW, BLOOM, "city", options=HIVE_STYLE),
    "cow-encoded": Shape(COW, SIMPLE, "city", options=URL_ENCODED, city=ODD_CITY),
    "mor-encoded-hive": Shape(
        MOR, BLOOM, "city", options={**HIVE_STYLE, **URL_ENCODED}, city=ODD_CITY
    ),
    "mor-two-columns-complex": Shape(
        MOR, BUCKETS, "city,zone", "id,note", options={**HIVE_STYLE, **AVRO_LOGS}
    ),
    "cow-two-columns-plain": Shape(COW, SIMPLE, "city,zone"),
}


@pytest.mark.parametrize("name", SHAPES)
@shows("copy-on-write and merge-on-read, every operation", we_read=YES, we_write=YES)
def test_every_write_of_hudi_to_every_shape(hudi: HudiPeer, tmp_path: Path, name: str) -> None:
    shape = SHAPES[name]
    table = HudiTable(hudi, tmp_path / "trips", shape.hudi_options)
    sf = shape.city
    first = rows(
        ("a", sf, "n", 10, 1, "old"),
        ("b", "ny", "s", 10, 2, "b"),
        ("c", None, None, 10, 3, "a null partition"),
        ("d", sf, "n", 10, 4, "d"),
    )
    table.write(first, "insert")
    table.write(
        rows(
            ("a", sf, "n", 11, 10, "old"),
            ("b", "ny", "s", 9, 20, "b"),
            ("e", "ny", "s", 10, 5, "added"),
        )
    )
    table.write(first.slice(3), "delete")
    if shape.partition_by:
        table.write(rows(("g", "ny", "s", 1, 7, "replaces")), "insert_overwrite")
    table.check_snapshot("Hudi's writes")
    # In incremental reads Hudi takes partition columns from the path and leaves them encoded.
    as_shown = (lambda row: {**row, "city": escaped(row["city"])}) if sf == ODD_CITY else None
    table.check_history(is_merge_on_read=shape.table_type == MOR, as_shown=as_shown)
    check_ours_writes_on(table, shape)


def escaped(value: str | None) -> str | None:
    return value and value.replace("%", "%25").replace(":", "%3A").replace("/", "%2F").replace(
        "?", "%3F"
    )


def check_ours_writes_on(table: HudiTable, shape: Shape) -> None:
    """Check that Hudi reads what we write to its table, and updates it."""
    sf = shape.city
    ours = table.open(shape.index_options)
    ours.upsert(
        rows(
            ("a", sf, "n", 12, 100, "old"),
            ("c", None, None, 12, 300, "a null partition"),
            ("h", sf, "n", 1, 8, "ours"),
        )
    )
    mine = table.check_snapshot("our upsert")
    fares = {row["id"]: row["fare"] for row in mine}
    assert (fares["a"], fares["c"], fares["h"]) == (100, 300, 8)
    table.write(rows(("h", sf, "n", 2, 9, "ours"), ("c", None, None, 13, 301, "a null partition")))
    theirs = table.check_snapshot("Hudi's update of our rows")
    assert len(theirs) == len(mine), "Hudi's index does not find the records that we wrote"


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_deleted_partitions_and_replaced_tables(
    hudi: HudiPeer, tmp_path: Path, table_type: str
) -> None:
    options = described(table_type, partition_by="city", options=SIMPLE)
    table = HudiTable(hudi, tmp_path / "trips", options)
    first = rows(("a", "sf", "n", 1, 1, ""), ("b", "ny", "n", 1, 1, ""), ("c", "la", "n", 1, 1, ""))
    table.write(first, "bulk_insert")
    table.write(rows(("a", "sf", "n", 2, 2, ""), ("b", "ny", "n", 2, 2, "")))
    table.write(
        first.slice(1, 1),
        "delete_partition",
        {"hoodie.datasource.write.partitions.to.delete": "ny"},
    )
    table.check_snapshot("delete_partition")
    table.write(rows(("b", "ny", "n", 0, 3, "back")))
    table.write(
        rows(("d", "sf", "n", 1, 4, "all"), ("e", "ny", "n", 1, 4, "all")), "insert_overwrite_table"
    )
    assert [row["id"] for row in table.check_snapshot("insert_overwrite_table")] == ["e", "d"]
    table.check_history(is_merge_on_read=table_type == MOR)


# Keys ------------------------------------------------------------------------------------------

KEYGEN = "hoodie.datasource.write.keygenerator.class"
TIME = "hoodie.keygen.timebased."
BY_HOUR = {
    KEYGEN: "org.apache.hudi.keygen.TimestampBasedKeyGenerator",
    f"{TIME}timestamp.type": "UNIX_TIMESTAMP",
    f"{TIME}output.dateformat": "yyyy/MM/dd/HH",
}
BY_CITY_AND_DAY = {
    KEYGEN: "org.apache.hudi.keygen.CustomKeyGenerator",
    f"{TIME}timestamp.type": "UNIX_TIMESTAMP",
    f"{TIME}output.dateformat": "yyyy-MM-dd",
}
TIMED = rows(("a", "sf", "n", 1_700_000_000, 1, "x"), ("b", "ny", "s", 1_710_000_000, 2, "y"))
TIMED_AGAIN = rows(("a", "sf", "n", 1_700_000_000, 9, "x"), ("c", "ny", "s", 1_710_000_000, 3, "z"))


@pytest.mark.parametrize("table_type", [COW, MOR])
@shows("partition paths made of times", we_read=YES, we_write=YES, they_read=YES)
def test_a_time_as_partition_path(hudi: HudiPeer, tmp_path: Path, table_type: str) -> None:
    """Hudi shows the partition column as text, whatever type it has in the files."""
    options = described(table_type, partition_by="ts", ordering="", options={**SIMPLE, **BY_HOUR})
    table = HudiTable(hudi, tmp_path / "trips", options)
    table.write(TIMED, "insert")
    table.write(TIMED_AGAIN)
    table.write(TIMED.slice(1), "delete")
    table.open(SIMPLE).upsert(TIMED)
    ours = table.read_by_us()
    assert {row["_hoodie_partition_path"] for row in ours} == {"2023/11/14/22", "2024/03/09/16"}
    assert sorted(row["fare"] for row in ours) == [1, 2, 3]
    theirs = [{**row, "ts": int(row["ts"])} for row in table.read_by_hudi()]
    assert theirs == ours


def test_a_custom_partition_path_that_hudi_cannot_read_back(hudi: HudiPeer, tmp_path: Path) -> None:
    """The settings of the time are not stored with the table, and Hudi parses the folder name."""
    options = described(
        MOR, partition_by="city:SIMPLE,ts:TIMESTAMP", options={**SIMPLE, **BY_CITY_AND_DAY}
    )
    table = HudiTable(hudi, tmp_path / "trips", options)
    table.write(TIMED, "insert")
    table.write(TIMED_AGAIN)
    with pytest.raises(HudiError, match=r"Failed to cast value `[0-9-]+` to `LongType`"):
        table.read_by_hudi()
    assert sorted(row["fare"] for row in table.read_by_us()) == [2, 3, 9]
    with pytest.raises(
        InvalidInputError, match=r"needs hoodie\.keygen\.timebased\.timestamp\.type"
    ):
        table.open(SIMPLE).upsert(TIMED)


@pytest.mark.parametrize("table_type", [COW, MOR])
def test_a_table_without_key(hudi: HudiPeer, tmp_path: Path, table_type: str) -> None:
    options = {
        "hoodie.datasource.write.table.type": table_type,
        "hoodie.datasource.write.partitionpath.field": "city",
    }
    table = HudiTable(hudi, tmp_path / "trips", options)
    table.write(TIMED, "insert")
    table.write(TIMED, "bulk_insert")
    for row in table.check_snapshot("Hudi's inserts"):
        assert re.fullmatch(rf"{row[COMMIT_TIME]}_[0-9]+_[0-9]+", row["_hoodie_record_key"])
    table.open().insert(TIMED_AGAIN)
    found = table.check_snapshot("both inserted")
    assert len({row["_hoodie_record_key"] for row in found}) == len(found) == 6
    with pytest.raises(InvalidInputError, match="has no record key"):
        table.open().upsert(TIMED)


@pytest.mark.parametrize("block_format", ["avro", "parquet"])
@shows(
    "virtual keys",
    we_read=YES,
    we_write=refused("keys that are not stored would have to be made of columns for every look-up"),
    both=refused("as writes after Hudi"),
    they_read=refused("we make no such table"),
)
def test_a_table_without_meta_fields(hudi: HudiPeer, tmp_path: Path, block_format: str) -> None:
    """Neither base files nor log blocks store record keys; delete blocks do."""
    options = described(
        MOR,
        partition_by="city",
        ordering="",
        options={
            **SIMPLE,
            "hoodie.populate.meta.fields": "false",
            "hoodie.logfile.data.block.format": block_format,
        },
    )
    table = HudiTable(hudi, tmp_path / "trips", options)
    table.write(rows(("a", "sf", "n", 1, 1, ""), ("b", "sf", "n", 1, 2, "")), "insert")
    table.write(rows(("a", "sf", "n", 1, 10, ""), ("c", "ny", "n", 1, 3, "")))
    table.write(rows(("b", "sf", "n", 1, 2, "")), "delete")
    assert [row["fare"] for row in table.check_snapshot("Hudi's writes", meta=())] == [3, 10]
    assert (
        table.open().read_arrow(["_hoodie_record_key"]).to_pylist()
        == [{"_hoodie_record_key": None}] * 2
    )
    with pytest.raises(UnsupportedError, match=r"hoodie\.populate\.meta\.fields=false") as refused:
        table.open(SIMPLE).upsert(TIMED)
    assert refused.value.kind is ErrorKind.UNSUPPORTED_OPTION


# Merging ---------------------------------------------------------------------------------------

MODE = "hoodie.write.record.merge.mode"
PAYLOAD = "hoodie.datasource.write.payload.class"
MODEL = "org.apache.hudi.common.model"
DELETABLE = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("ts", pa.int64()),
        pa.field("seq", pa.int64()),
        pa.field("fare", pa.int32()),
        pa.field("note", pa.string()),
        pa.field("_hoodie_is_deleted", pa.bool_()),
    ]
)
BY_COMMIT = {MODE: "COMMIT_TIME_ORDERING"}
BY_EVENT = {MODE: "EVENT_TIME_ORDERING"}
MERGES: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "commit-time": (MOR, "", {**BY_COMMIT, **AVRO_LOGS}),
    "commit-time-despite-ordering": (MOR, "ts", {**BY_COMMIT, **PARQUET_LOGS}),
    "event-time": (MOR, "ts", {**BY_EVENT, **PARQUET_LOGS}),
    "event-time-two-fields": (MOR, "ts,seq", {**BY_EVENT, **AVRO_LOGS}),
    "event-time-cow": (COW, "ts,seq", BY_EVENT),
    "partial-update": (MOR, "ts", {PAYLOAD: f"{MODEL}.PartialUpdateAvroPayload"}),
    "non-defaults": (MOR, "ts", {PAYLOAD: f"{MODEL}.OverwriteNonDefaultsWithLatestAvroPayload"}),
}


@pytest.mark.parametrize("name", MERGES)
@shows("every merge mode, and payloads that map to one", we_read=YES, we_write=YES, they_read=YES)
def test_every_merge_mode(hudi: HudiPeer, tmp_path: Path, name: str) -> None:
    table_type, ordering, options = MERGES[name]
    table = HudiTable(
        hudi,
        tmp_path / "trips",
        described(table_type, ordering=ordering, options={**SIMPLE, **options}),
    )
    first = rows(
        *((key, 10, 1, fare, key, False) for fare, key in enumerate("abcde", 1)), schema=DELETABLE
    )
    second = rows(
        ("a", 11, 1, None, "newer", False),
        ("b", 9, 2, 20, "late", False),
        ("c", 10, 2, 30, None, False),
        ("d", 11, 0, None, None, True),
        ("e", 9, 0, None, None, True),
        schema=DELETABLE,
    )
    third = rows(
        ("a", 10, 9, 100, "late again", False),
        ("d", 5, 0, 40, "after its delete", False),
        ("f", 1, 1, 6, None, False),
        schema=DELETABLE,
    )
    for each in (first, second, third):
        table.write(each, "insert" if each is first else "upsert")
    table.write(first.slice(1, 1), "delete")
    if name == "partial-update":
        # Hudi merges logs with each other before they meet the base file, so a late record fills
        # the gap of a newer one that was not compacted yet. Ours is filled by what was there.
        for writes_on in (False, True):
            if writes_on:
                table.open(SIMPLE).upsert(rows(("c", 12, 1, None, "ours", False), schema=DELETABLE))
            ours = {row["id"]: row for row in table.read_by_us(meta=())}
            theirs = {row["id"]: row for row in table.read_by_hudi(meta=())}
            assert (ours.pop("a")["fare"], theirs.pop("a")["fare"]) == (1, 100)
            assert ours == theirs
        assert (ours["c"]["fare"], ours["c"]["note"]) == (30, "ours")
        return
    found = {row["id"]: row for row in table.check_snapshot("Hudi's writes", meta=(COMMIT_TIME,))}
    assert "b" not in found
    table.open(SIMPLE).upsert(third.slice(0, 1))
    table.check_snapshot("our upsert", meta=())


UNAVAILABLE = "__debezium_unavailable_value"
CHANGED_BY: Mapping[str, tuple[str, str, list[list[tuple[Any, ...]]]]] = {
    "debezium.PostgresDebeziumAvroPayload": (
        "_event_lsn long, _change_operation_type string, note string",
        "_event_lsn",
        [
            [("a", 1, "c", "x"), ("b", 1, "c", "y"), ("c", 1, "c", "z")],
            [("a", 2, "u", UNAVAILABLE), ("b", 2, "d", "y"), ("c", 0, "u", "late")],
            [("a", 3, "u", UNAVAILABLE), ("d", 1, "c", UNAVAILABLE)],
        ],
    ),
    "debezium.MySqlDebeziumAvroPayload": (
        "_event_bin_file string, _event_pos long, _change_operation_type string, note string",
        "_event_bin_file,_event_pos",
        [
            [("a", "f.1", 1, "c", "x"), ("b", "f.1", 2, "c", "y"), ("c", "f.2", 1, "c", "z")],
            [("a", "f.1", 2, "u", "x2"), ("b", "f.1", 3, "d", "y"), ("c", "f.1", 9, "u", "late")],
        ],
    ),
    "AWSDmsAvroPayload": (
        "ts long, Op string, note string",
        "ts",
        [[("a", 1, "I", "x"), ("b", 1, "I", "y")], [("a", 0, "U", "x2"), ("b", 2, "D", "y")]],
    ),
}


@pytest.mark.parametrize("payload", CHANGED_BY)
def test_tables_fed_by_change_streams(hudi: HudiPeer, tmp_path: Path, payload: str) -> None:
    columns, ordering, writes = CHANGED_BY[payload]
    types = {"string": pa.string(), "long": pa.int64()}
    named = [column.split() for column in columns.split(", ")]
    schema = pa.schema(
        [pa.field("id", pa.string(), nullable=False)]
        + [pa.field(column, types[kind]) for column, kind in named]
    )
    options = described(MOR, ordering=ordering, options={**SIMPLE, PAYLOAD: f"{MODEL}.{payload}"})
    table = HudiTable(hudi, tmp_path / "changes", options)
    for number, values in enumerate(writes):
        table.write(rows(*values, schema=schema), "upsert" if number else "insert")
    found = table.check_snapshot(payload, meta=())
    assert "b" not in {row["id"] for row in found}


def test_hudi_shows_an_update_that_lost_in_incremental_reads(
    hudi: HudiPeer, tmp_path: Path
) -> None:
    """Hudi reads the logs of a window without the base file below; we read the table (INV-54)."""
    table = HudiTable(hudi, tmp_path / "trips", described(MOR, options=SIMPLE))
    table.write(rows(("a", "sf", "n", 10, 1, ""), ("b", "sf", "n", 10, 2, "")), "insert")
    first = table.completion_times()[-1]
    table.write(rows(("a", "sf", "n", 11, 10, ""), ("b", "sf", "n", 9, 20, "late")))
    last = table.completion_times()[-1]
    with pytest.raises(AssertionError, match="the incremental reads of"):
        table.check_window(first, last)
    assert [row["fare"] for row in table.open().changes_arrow(first, last).to_pylist()] == [10]
    window = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": first,
        "hoodie.datasource.read.end.instanttime": last,
    }
    assert sorted(row["fare"] for row in table.read_by_hudi(window)) == [10, 20]
    assert [row["fare"] for row in table.check_snapshot("a late update")] == [2, 10]


def test_an_instant_means_the_table_right_after_it(hudi: HudiPeer, tmp_path: Path) -> None:
    """For Hudi too; any other time is one of completion for us (INV-47)."""
    table = HudiTable(hudi, tmp_path / "trips", described(COW, options=SIMPLE))
    table.write(rows(("a", "sf", "n", 10, 1, "")), "insert")
    table.write(rows(("a", "sf", "n", 11, 2, "")))
    second = table.open().inspect.timeline().to_pylist()[1]
    requested, completed = str(second["requested_time"]), str(second["completion_time"])
    assert [row["fare"] for row in table.read_by_hudi({"as.of.instant": requested})] == [2]
    assert [row["fare"] for row in table.read_by_us(as_of=requested)] == [2]
    assert table.read_by_us(as_of=completed) == table.read_by_hudi({"as.of.instant": completed})


# Columns ---------------------------------------------------------------------------------------

ALL_TYPES = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("ts", pa.int64()),
        pa.field("flag", pa.bool_()),
        pa.field("i", pa.int32()),
        pa.field("f", pa.float32()),
        pa.field("d", pa.float64()),
        pa.field("text", pa.string()),
        pa.field("bytes", pa.binary()),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("local", pa.timestamp("us")),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("big", pa.decimal128(30, 10)),
        pa.field("list", pa.list_(pa.int32())),
        pa.field("map", pa.map_(pa.string(), pa.int64())),
        pa.field("struct", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])),
    ]
)


def filled(key: int, ts: int) -> tuple[Any, ...]:
    moment = datetime(2024, 1, 2, 3, 4, 5, 678901)
    return (
        *(key, ts, True, 3, 1.5, 2.25, "ü", b"\x00\xff", date(2024, 2, 29)),
        *(moment.replace(tzinfo=UTC), moment, Decimal("-123.45")),
        *(Decimal("12345678901234567890.0123456789"), [1, 3], [("k", 1), ("l", None)]),
        {"x": 1, "y": ["a", "b"]},
    )


def nulls(key: int, ts: int) -> tuple[Any, ...]:
    return (key, ts, *[None] * (len(ALL_TYPES) - 2))


def leaf_paths(path: Path) -> list[str]:
    schema = pq.ParquetFile(path).schema
    return [schema.column(number).path for number in range(len(schema))]


@pytest.mark.parametrize(
    ("table_type", "block_format", "first"),
    [(COW, "avro", "bulk_insert"), (MOR, "avro", "insert"), (MOR, "parquet", "bulk_insert")],
)
def test_every_type(
    hudi: HudiPeer, tmp_path: Path, table_type: str, block_format: str, first: str
) -> None:
    """Bulk inserts are written by Spark, inserts through Avro; they shape Parquet differently."""
    options = {**SIMPLE, "hoodie.logfile.data.block.format": block_format}
    table = HudiTable(hudi, tmp_path / "types", described(table_type, options=options))
    table.write(rows(filled(1, 1), nulls(2, 1), filled(3, 1), schema=ALL_TYPES), first)
    (base,) = table.path.glob("*.parquet")
    footer = pq.read_metadata(base)
    is_by_spark = first == "bulk_insert"
    assert (b"org.apache.spark.version" in footer.metadata) == is_by_spark
    assert (b"parquet.avro.schema" in footer.metadata) != is_by_spark
    lists = [name for name in leaf_paths(base) if name.startswith("list.")]
    assert lists == (["list.list.element"] if is_by_spark else ["list.array"])
    table.write(rows(nulls(1, 2), filled(2, 2), schema=ALL_TYPES))
    table.check_snapshot("Hudi's writes")
    table.open(SIMPLE).upsert(rows(filled(1, 3), nulls(3, 3), filled(4, 1), schema=ALL_TYPES))
    table.check_snapshot("our upsert")
    table.write(rows(filled(3, 4), nulls(4, 4), schema=ALL_TYPES))
    assert len(table.check_snapshot("Hudi's update of our rows")) == 4


KEY = pa.field("id", pa.string(), nullable=False)
COLUMNS_OF_WRITES = [
    pa.schema([KEY, ("ts", pa.int64()), ("n", pa.int32()), ("gone", pa.string())]),
    pa.schema(
        [
            *(KEY, ("ts", pa.int64()), ("n", pa.int64()), ("gone", pa.string())),
            *(("added", pa.string()), ("struct", pa.struct([("x", pa.int32())]))),
        ]
    ),
    pa.schema(
        [
            *(KEY, ("ts", pa.int64()), ("n", pa.float64()), ("added", pa.string())),
            ("struct", pa.struct([("x", pa.int64()), ("y", pa.string())])),
        ]
    ),
]


@pytest.mark.parametrize(
    ("table_type", "block_format"), [(COW, "avro"), (MOR, "avro"), (MOR, "parquet")]
)
def test_columns_that_change(
    hudi: HudiPeer, tmp_path: Path, table_type: str, block_format: str
) -> None:
    """Columns come, go, and get wider; time travel shows the columns of then, in both."""
    options = {
        **SIMPLE,
        "hoodie.logfile.data.block.format": block_format,
        "hoodie.write.set.null.for.missing.columns": "true",
    }
    table = HudiTable(hudi, tmp_path / "columns", described(table_type, options=options))
    one, two, three = COLUMNS_OF_WRITES
    table.write(rows(("a", 1, 1, "x"), ("b", 1, 2, "y"), ("c", 1, 3, "z"), schema=one), "insert")
    table.write(rows(("a", 2, 2**40, "x", "new", {"x": 1}), schema=two))
    table.write(rows(("b", 3, 1.5, "later", {"x": 2**40, "y": "s"}), schema=three))
    found = table.check_snapshot("Hudi's writes")
    assert {row["n"] for row in found} == {float(2**40), 1.5, 3.0}
    first, second, last = table.completion_times()
    for time in (first, second):
        assert table.read_by_us(as_of=time) == table.read_by_hudi({"as.of.instant": time})
    table.check_window(first, last)
    table.open(SIMPLE).upsert(rows(("d", 4, 4.5, "ours", None), schema=three))
    table.check_snapshot("our upsert")


# What we refuse --------------------------------------------------------------------------------


def test_older_versions_and_what_this_release_cannot_honour(hudi: HudiPeer, tmp_path: Path) -> None:
    options = described(MOR, partition_by="city", options=SIMPLE)
    eight = HudiTable(hudi, tmp_path / "eight", {**options, "hoodie.write.table.version": "8"})
    eight.write(TIMED, "insert")
    eight.write(TIMED_AGAIN)
    eight.check_snapshot("version 8")
    with pytest.raises(UnsupportedError, match="has version 8, which Headwater reads but does not"):
        eight.open(SIMPLE).upsert(TIMED)
    six = HudiTable(hudi, tmp_path / "six", {**options, "hoodie.write.table.version": "6"})
    six.write(TIMED, "insert")
    six.check_snapshot("version 6")
    with pytest.raises(UnsupportedError, match="headwater table upgrade"):
        six.open(SIMPLE).upsert(TIMED)
    dropped = HudiTable(
        hudi,
        tmp_path / "dropped",
        {**options, "hoodie.datasource.write.drop.partition.columns": "true"},
    )
    dropped.write(TIMED, "insert")
    with pytest.raises(UnsupportedError, match=r"drop\.partition\.columns=true"):
        dropped.open()
