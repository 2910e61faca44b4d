"""Every write, to tables of every layout and kind of key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
from tests.readers.history import Step, history
from tests.readers.readers import Omits
from tests.readers.shapes import SCHEMA, TYPES, found_in, rows
from tests.support.tables import a_table, with_properties

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


# Layouts are the same for both types of table, so that a few of them have to do for one.
@history(
    long=("cow-plain", "cow-two-columns-plain", "cow-url-encoded"),
    spark=("mor-two-columns", "cow-url-encoded-plain"),
    table_type=TYPES,
    layout=LAYOUTS,
)
def every_write(
    path: Path, table_type: str, layout: tuple[tuple[str, ...], Mapping[str, str]]
) -> Iterator[Step]:
    partition_by, options = layout
    table = a_table(
        path,
        SCHEMA,
        partition_by=partition_by,
        ordering="ts",
        table_type=table_type,
        buckets=2,
        options=options,
    ).create()
    sf = "são paulo: 50% of a/b?" if options.keys() & URL_ENCODED.keys() else "sf"
    first = rows(
        ("a", sf, "n", 10, 1, "old"),
        ("b", "ny", "s", 10, 2, None),
        ("c", None, None, 10, 3, "a null partition"),
        ("d", sf, None, 10, 4, ""),
    )
    last_keys = first.slice(3).select(["id", *partition_by])
    table.insert(first)
    yield Step("insert", table, is_milestone=False)
    table.upsert(
        rows(
            ("a", sf, "n", 11, 10, "newer"),
            ("b", "ny", "s", 9, 20, "late and ignored"),
            ("e", "ny", "s", 10, 5, "added"),
            ("c", None, None, 10, 30, "as new, later write"),
        )
    )
    yield Step("upsert", table, is_milestone=False)
    table.delete(last_keys)
    yield Step("delete", table, is_milestone=False)
    table.delete(last_keys)
    assert found_in(table, "fare") == {"a": 10, "b": 2, "c": 30, "e": 5}
    yield Step("delete of what is not there", table)
    table.upsert(rows(("d", sf, None, 20, 40, "back")))
    yield Step("insert again", table, is_milestone=False)
    table.bulk_insert(rows(("f", "la", "w", 1, 6, "new partition")))
    yield Step("bulk insert", table, is_milestone=False)
    table.overwrite_partitions(rows(("g", "ny", "s", 1, 7, "replaces")))
    yield Step("overwrite of partitions", table, is_milestone=False)
    table.upsert(rows(("g", "ny", "s", 2, 8, "updated"), ("b", "ny", "s", 1, 9, "back")))
    assert set(found_in(table, "fare")) == (set("acdfgb") if partition_by else set("gb"))
    yield Step("upsert after replacing", table)
    table.overwrite(rows(("h", sf, "n", 1, 1, None), ("i", "ny", "s", 1, 2, None)))
    yield Step("overwrite", table, is_milestone=False)
    table.upsert(rows(("h", sf, "n", 2, 3, "last")))
    assert found_in(table, "fare") == {"h": 3, "i": 2}
    yield Step("upsert after overwriting", table)
    if partition_by:
        table.delete_partitions([found_in(table, "_hoodie_partition_path")["i"]])
        assert set(found_in(table, "fare")) == {"h"}
        yield Step("deleted partitions", table)


@history(table_type=TYPES, index={"simple": "simple", "bloom": "bloom"}, spark=["mor-simple"])
def records_found_by_a_look_up(path: Path, table_type: str, index: str) -> Iterator[Step]:
    shape = {"partition_by": "city", "ordering": "ts", "table_type": table_type, "index": index}
    table = a_table(path, SCHEMA).having(**shape).create()
    first = rows(("a", "sf", "n", 10, 1, "x"), ("b", "ny", "s", 10, 2, "y"))
    table.upsert(first)
    yield Step("first upsert", table, is_milestone=False)
    table.upsert(rows(("a", "sf", "n", 11, 10, "x"), ("c", "sf", "s", 10, 3, "y")))
    yield Step("second upsert", table, is_milestone=False)
    table.delete(first.slice(1).select(["id", "city"]))
    assert found_in(table, "fare") == {"a": 10, "c": 3}
    yield Step("delete", table)


@history(table_type=TYPES, spark=["mor"])
def rows_without_keys(path: Path, table_type: str) -> Iterator[Step]:
    shape = {"record_key": None, "partition_by": "city", "table_type": table_type}
    table = a_table(path, SCHEMA).having(**shape).create()
    twice = rows(("a", "sf", "n", 1, 1, "x"), ("a", "sf", "n", 1, 1, "x"))
    table.insert(twice)
    yield Step("insert", table, is_milestone=False)
    table.insert(twice)
    yield Step("insert into files with room", table, is_milestone=False)
    table.bulk_insert(rows(("b", "ny", "n", 1, 1, None)))
    assert table.read_arrow().num_rows == 5
    yield Step("bulk insert", table)
    table.overwrite_partitions(rows(("c", "sf", "n", 1, 1, None)))
    assert table.read_arrow().sort_by("id")["id"].to_pylist() == ["b", "c"]
    yield Step("overwrite of a partition", table)


# Keys ------------------------------------------------------------------------------------------


@history(
    table_type=TYPES,
    partition_by={"none": (), "one": ("city",), "two": ("city", "zone")},
    spark=["mor-two"],
)
def complex_keys(path: Path, table_type: str, partition_by: tuple[str, ...]) -> Iterator[Step]:
    shape = {"record_key": ("id", "note"), "partition_by": partition_by, "table_type": table_type}
    table = a_table(path, SCHEMA).having(**shape).create()
    table.insert(
        rows(
            ("a", "sf", "n", 1, 1, None),
            ("a", "sf", "n", 1, 2, ""),
            ("a", "sf", "n", 1, 3, "x,y:z"),
        )
    )
    yield Step("insert", table, is_milestone=False)
    table.upsert(rows(("a", "sf", "n", 1, 10, None), ("a", "sf", "n", 1, 30, "x,y:z")))
    yield Step("upsert", table, is_milestone=False)
    table.delete(rows(("a", "sf", "n", 1, 2, "")).select(["id", "note", "city", "zone"]))
    found = found_in(table, "fare", by="_hoodie_record_key")
    assert found == {"id:a,note:__null__": 10, "id:a,note:x,y:z": 30}
    yield Step("delete", table)


@history(table_type=TYPES, spark=["cow"])
def timestamp_keys(path: Path, table_type: str) -> Iterator[Step]:
    shape = {"partition_by": "ts", "table_type": table_type}
    table = with_properties(
        a_table(path, SCHEMA, **shape).with_options(NOT_HIVE_STYLE).create(),
        {
            "hoodie.table.keygenerator.type": "TIMESTAMP",
            "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
            "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
            "hoodie.keygen.timebased.timezone": "UTC",
        },
    )
    november, march = 1_700_000_000_000, 1_710_000_000_000
    table.insert(rows(("a", "sf", "n", november, 1, "x"), ("b", "sf", "n", march, 2, "y")))
    yield Step("insert", table, is_milestone=False)
    table.upsert(rows(("a", "sf", "n", november + 1, 9, "x"), ("c", "sf", "n", march, 3, "y")))
    yield Step("upsert", table, is_milestone=False)
    table.delete(pa.table({"id": ["b"], "ts": [march]}))
    paths = found_in(table, "_hoodie_partition_path")
    assert paths == {"a": "2023/11/14", "c": "2024/03/09"}
    as_text = Omits(("ts",), "Hudi gives the partition column of this key generator as text")
    yield Step("delete", table, {"hudi": as_text})
