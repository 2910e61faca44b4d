"""Every shape of table that we write, as Apache Hudi reads it: row for row what we read ourselves.

Meta columns are compared too. Where Hudi answers otherwise by a limit of its own, the test says
what it answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from tests.support.hudi_peer import HudiError, HudiPeer
from tests.support.two_readers import META, Row, TwoReaders, without

import headwater as hw
from headwater.config.table_options import TableType
from headwater.kernel.table_config import update_table_config
from headwater.table import Table

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

COW, MOR = TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ
each_type = pytest.mark.parametrize("table_type", [COW, MOR], ids=["cow", "mor"])


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
LOGS_ALONE = {
    "parquet-logs": Files(MOR, "parquet", "insert", is_logs_alone=True),
    "avro-logs": Files(MOR, "avro", "insert", is_logs_alone=True),
}
BASE_FILES = {
    "base-files": Files(COW, "parquet", "insert"),
    "parquet-logs-on-base": Files(MOR, "parquet", "insert"),
    "avro-logs-on-base": Files(MOR, "avro", "bulk_insert"),
}
ALL_FILES = {**LOGS_ALONE, **BASE_FILES}
each_kind_of_files = pytest.mark.parametrize("files", ALL_FILES.values(), ids=ALL_FILES.keys())
each_kind_with_base_files = pytest.mark.parametrize(
    "files", BASE_FILES.values(), ids=BASE_FILES.keys()
)
each_ordering = pytest.mark.parametrize("ordering", [None, "ts"], ids=["commit-time", "event-time"])


def new_table(path: Path, *, options: Mapping[str, str] | None = None, **arguments: Any) -> Table:
    # Nothing here has to survive a power cut.
    return hw.create_table(
        path / "trips", options={"headwater.storage.fsync": "false", **(options or {})}, **arguments
    )


def rows(*values: tuple[Any, ...], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(schema.names, row, strict=True)) for row in values], schema=schema
    )


def set_property(table: Table, changes: Mapping[str, str]) -> Table:
    """Return the table with a config that Hudi can create and `create_table` cannot."""
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
STRANGE_CITY = "são paulo: 50% of a/b?"


@each_type
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_write_to_every_layout(
    hudi: HudiPeer, tmp_path: Path, table_type: TableType, layout: str
) -> None:
    partition_by, options = LAYOUTS[layout]
    table = new_table(
        tmp_path,
        schema=SCHEMA,
        record_key="id",
        partition_by=partition_by,
        ordering="ts",
        table_type=table_type,
        buckets=2,
        options=options,
    )
    both = TwoReaders(hudi, table)
    sf = STRANGE_CITY if options.keys() & URL_ENCODED.keys() else "sf"
    first = rows(
        ("a", sf, "n", 10, 1, "old"),
        ("b", "ny", "s", 10, 2, None),
        ("c", None, None, 10, 3, "a null partition"),
        ("d", sf, None, 10, 4, ""),
    )
    last_keys = first.slice(3).select(["id", *partition_by])
    table.insert(first)
    table.upsert(
        rows(
            ("a", sf, "n", 11, 10, "newer"),
            ("b", "ny", "s", 9, 20, "late and ignored"),
            ("e", "ny", "s", 10, 5, "added"),
            ("c", None, None, 10, 30, "as new, later write"),
        )
    )
    table.delete(last_keys)
    table.delete(last_keys)
    found = both.check_snapshot("after updates and deletes")
    assert {row["id"]: row["fare"] for row in found} == {"a": 10, "b": 2, "c": 30, "e": 5}

    table.upsert(rows(("d", sf, None, 1, 40, "back")))
    table.bulk_insert(rows(("f", "la", "w", 1, 6, "new partition")))
    table.overwrite_partitions(rows(("g", "ny", "s", 1, 7, "replaces")))
    table.upsert(rows(("g", "ny", "s", 2, 8, "updated"), ("b", "ny", "s", 1, 9, "back")))
    found = both.check_snapshot("after replacing partitions")
    assert {row["id"] for row in found} == set("acdfgb") if partition_by else set("gb")

    table.overwrite(rows(("h", sf, "n", 1, 1, None), ("i", "ny", "s", 1, 2, None)))
    table.upsert(rows(("h", sf, "n", 2, 3, "last")))
    found = both.check_snapshot("after overwriting")
    assert {row["id"]: row["fare"] for row in found} == {"h": 3, "i": 2}

    if partition_by:
        (path,) = {row["_hoodie_partition_path"] for row in found if row["id"] == "i"}
        table.delete_partitions([path])
        found = both.check_snapshot("after deleting a partition")
        assert {row["id"] for row in found} == {"h"}


@each_type
@pytest.mark.parametrize("index", ["simple", "bloom"])
def test_records_found_by_a_look_up(
    hudi: HudiPeer, tmp_path: Path, table_type: TableType, index: str
) -> None:
    table = new_table(
        tmp_path,
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type=table_type,
        index=index,
    )
    first = rows(("a", "sf", "n", 10, 1, "x"), ("b", "ny", "s", 10, 2, "y"))
    table.upsert(first)
    table.upsert(rows(("a", "sf", "n", 11, 10, "x"), ("c", "sf", "s", 10, 3, "y")))
    table.delete(first.slice(1).select(["id", "city"]))
    found = TwoReaders(hudi, table).check_snapshot("after upserts and a delete")
    assert {row["id"]: row["fare"] for row in found} == {"a": 10, "c": 3}


@each_type
def test_rows_without_keys(hudi: HudiPeer, tmp_path: Path, table_type: TableType) -> None:
    table = new_table(tmp_path, schema=SCHEMA, partition_by="city", table_type=table_type)
    both = TwoReaders(hudi, table)
    twice = rows(("a", "sf", "n", 1, 1, "x"), ("a", "sf", "n", 1, 1, "x"))
    table.insert(twice)
    table.insert(twice)
    table.bulk_insert(rows(("b", "ny", "n", 1, 1, None)))
    assert len(both.check_snapshot("after inserts")) == 5
    table.overwrite_partitions(rows(("c", "sf", "n", 1, 1, None)))
    found = both.check_snapshot("after overwriting a partition")
    assert {row["id"] for row in found} == {"b", "c"}


# Keys ------------------------------------------------------------------------------------------


@each_type
@pytest.mark.parametrize("partition_by", [(), ("city",), ("city", "zone")], ids=["", "one", "two"])
def test_complex_keys(
    hudi: HudiPeer, tmp_path: Path, table_type: TableType, partition_by: tuple[str, ...]
) -> None:
    table = new_table(
        tmp_path,
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
    table.upsert(rows(("a", "sf", "n", 1, 10, None), ("a", "sf", "n", 1, 30, "x,y:z")))
    table.delete(rows(("a", "sf", "n", 1, 2, "")).select(["id", "note", "city", "zone"]))
    found = TwoReaders(hudi, table).check_snapshot("after an upsert and a delete")
    keys = {row["_hoodie_record_key"]: row["fare"] for row in found}
    assert keys == {"id:a,note:__null__": 10, "id:a,note:x,y:z": 30}


@each_type
def test_timestamp_keys(hudi: HudiPeer, tmp_path: Path, table_type: TableType) -> None:
    table = set_property(
        new_table(
            tmp_path,
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
    table.upsert(rows(("a", "sf", "n", november + 1, 9, "x"), ("c", "sf", "n", march, 3, "y")))
    table.delete(pa.table({"id": ["b"], "ts": [march]}))
    both = TwoReaders(hudi, table)
    found = both.check_snapshot("after upserts and a delete", skip=["ts"])
    paths = {row["id"]: row["_hoodie_partition_path"] for row in found}
    assert paths == {"a": "2023/11/14", "c": "2024/03/09"}
    # Hudi gives the partition column of a TIMESTAMP key generator as text, whatever its type.
    theirs = {row["id"]: row["ts"] for row in both.read_by_hudi({})}
    assert theirs == {"a": str(november + 1), "c": str(march)}


# Merging ---------------------------------------------------------------------------------------

DELETE_MARK = {
    "hoodie.record.merge.property.hoodie.payload.delete.field": "op",
    "hoodie.record.merge.property.hoodie.payload.delete.marker": "D",
}


@each_kind_of_files
@each_ordering
@pytest.mark.parametrize("mark", ["_hoodie_is_deleted", "op"])
def test_deletes_among_upserts(
    hudi: HudiPeer, tmp_path: Path, files: Files, ordering: str | None, mark: str
) -> None:
    is_flag = mark == "_hoodie_is_deleted"
    schema = SCHEMA.append(pa.field(mark, pa.bool_() if is_flag else pa.string()))
    kept, gone = (False, True) if is_flag else ("I", "D")
    table = new_table(
        tmp_path,
        schema=schema,
        record_key="id",
        ordering=ordering,
        table_type=files.table_type,
        buckets=2,
        options={**files.options, **({} if is_flag else DELETE_MARK)},
    )
    both = TwoReaders(hudi, table)
    getattr(table, files.first)(
        rows(
            ("a", "sf", "n", 10, 1, "x", kept),
            ("b", "sf", "n", 10, 2, "x", None),
            ("c", "sf", "n", 10, 3, "x", gone),
            ("d", "sf", "n", 10, 4, "x", kept),
            schema=schema,
        )
    )
    table.upsert(
        rows(
            ("a", "sf", "n", 11, 10, "y", gone),
            ("b", "sf", "n", 9, 20, "y", gone),
            ("e", "sf", "n", 10, 50, "y", kept),
            schema=schema,
        )
    )
    survivors = {"d", "e"} if ordering is None else {"b", "d", "e"}
    found = both.check_snapshot("after an upsert with deletes")
    assert {row["id"] for row in found} == survivors
    table.upsert(
        rows(
            ("a", "sf", "n", 12, 100, "z", kept),
            ("e", "sf", "n", 9, 60, "late", gone),
            schema=schema,
        )
    )
    table.delete(pa.table({"id": ["d"]}))
    found = both.check_snapshot("after inserting again and deleting")
    late = {"e"} if ordering is None else set()
    assert {row["id"] for row in found} == (survivors | {"a"}) - {"d"} - late


@each_type
def test_several_ordering_fields(hudi: HudiPeer, tmp_path: Path, table_type: TableType) -> None:
    table = new_table(
        tmp_path,
        schema=SCHEMA,
        record_key="id",
        ordering=("ts", "fare"),
        table_type=table_type,
        buckets=1,
    )
    table.insert(rows(("a", "sf", "n", 1, 2, "kept"), ("b", "sf", "n", 1, 1, "old")))
    table.upsert(rows(("a", "sf", "n", 1, 1, "late"), ("b", "sf", "n", 1, 2, "newer")))
    found = TwoReaders(hudi, table).check_snapshot("after a late update and a newer one")
    assert {row["id"]: row["note"] for row in found} == {"a": "kept", "b": "newer"}


@each_type
def test_records_merged_by_a_function(
    hudi: HudiPeer,
    tmp_path: Path,
    table_type: TableType,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hudi reads what the function made of base files; logs it would have to merge itself."""
    (tmp_path / "merged_by_a_test.py").write_text("def keep(old, new):\n    return old\n")
    monkeypatch.syspath_prepend(tmp_path)
    table = new_table(
        tmp_path,
        schema=SCHEMA,
        record_key="id",
        table_type=table_type,
        buckets=1,
        options={
            "hoodie.record.merge.mode": "CUSTOM",
            "headwater.merge.function": "merged_by_a_test:keep",
        },
    )
    both = TwoReaders(hudi, table)
    table.bulk_insert(rows(("a", "sf", "n", 1, 1, "kept")))
    both.check_snapshot("before anything is merged")
    table.upsert(rows(("a", "sf", "n", 1, 2, "new"), ("b", "sf", "n", 1, 1, "added")))
    assert {row["id"]: row["note"] for row in both.read_by_us()} == {"a": "kept", "b": "added"}
    if table_type is COW:
        both.check_snapshot("after a merge by the function")
    else:
        with pytest.raises(HudiError, match="No valid spark merger implementation set"):
            both.read_by_hudi({})


PARTIAL_MODES: Mapping[str, tuple[Mapping[str, str], str | None]] = {
    "ignore-defaults": ({"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}, None),
    "fill-unavailable": (
        {
            "hoodie.table.partial.update.mode": "FILL_UNAVAILABLE",
            "hoodie.record.merge.property.hoodie.write.partial.update.unavailable.value": "?",
        },
        "?",
    ),
}
WRITTEN = ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_file_name")


@each_kind_of_files
@each_ordering
@pytest.mark.parametrize("mode", PARTIAL_MODES)
def test_partial_update_modes(
    hudi: HudiPeer, tmp_path: Path, files: Files, ordering: str | None, mode: str
) -> None:
    changes, absent = PARTIAL_MODES[mode]
    table = set_property(
        new_table(
            tmp_path,
            schema=SCHEMA,
            record_key="id",
            ordering=ordering,
            table_type=files.table_type,
            buckets=1,
            options=files.options,
        ),
        changes,
    )
    getattr(table, files.first)(
        rows(("a", "sf", "n", 10, 1, "old"), ("b", "ny", "s", 10, 2, "old"))
    )
    table.upsert(rows(("a", absent, "w", 11, 10, absent), ("b", "la", absent, 9, 20, "late")))
    table.upsert(rows(("a", "kl", absent, 12, 11, absent), ("c", "pa", "e", 1, 3, "new")))
    # Of a late record that may have filled gaps we show when it was written, so that incremental
    # reads find the row; Hudi shows the record that won.
    skip = () if ordering is None else WRITTEN
    both = TwoReaders(hudi, table)
    found = {row["id"]: row for row in both.check_snapshot("after two upserts", skip=skip)}
    assert without([found["a"]], META) == [
        {"id": "a", "city": "kl", "zone": "w", "ts": 12, "fare": 11, "note": "old"}
    ]
    assert found["b"]["city"] == ("la" if ordering is None else "ny")


@each_kind_with_base_files
@each_ordering
def test_updates_that_bring_some_columns(
    hudi: HudiPeer, tmp_path: Path, files: Files, ordering: str | None
) -> None:
    table = new_table(
        tmp_path,
        schema=SCHEMA,
        record_key="id",
        ordering=ordering,
        table_type=files.table_type,
        buckets=1,
        options=files.options,
    )
    both = TwoReaders(hudi, table)
    getattr(table, files.first)(
        rows(
            ("a", "sf", "n", 10, 1, "old"),
            ("b", "ny", "s", 10, 2, "old"),
            ("d", "la", "w", 10, 4, "old"),
        )
    )
    table.delete(pa.table({"id": ["d"]}))
    fares = {"id": ["a", "c", "d"], "ts": [11, 1, 11], "fare": pa.array([10, 30, 40], pa.int32())}
    table.upsert(pa.table(fares), partial=True)
    both.check_snapshot("after a partial update of the fare")
    table.upsert(pa.table({"id": ["a", "b"], "ts": [12, 9], "note": ["n", "m"]}), partial=True)
    found = both.check_snapshot(
        "after a partial update of the note", skip=() if ordering is None else WRITTEN
    )
    assert {row["id"]: (row["city"], row["fare"], row["note"]) for row in found} == {
        "a": ("sf", 10, "n"),
        "b": ("ny", 2, "m" if ordering is None else "old"),
        "c": (None, 30, None),
        "d": (None, 40, None),
    }


def test_hudi_fails_on_a_record_that_comes_back_beside_partial_updates(
    hudi: HudiPeer, tmp_path: Path
) -> None:
    """Once Hudi met a block of partial updates in a slice of a table without ordering, a record
    that follows a delete of its key makes it look for the schema of the delete, which has none."""
    table = new_table(tmp_path, schema=SCHEMA, record_key="id", table_type=MOR, buckets=1)
    both = TwoReaders(hudi, table)
    table.insert(rows(("a", "sf", "n", 10, 1, "old"), ("b", "ny", "s", 10, 2, "old")))
    table.upsert(pa.table({"id": ["a"], "note": ["new"]}), partial=True)
    table.delete(pa.table({"id": ["b"]}))
    both.check_snapshot("after a partial update and a delete")
    table.upsert(rows(("b", "ny", "s", 10, 3, "back")))
    assert {row["id"]: row["note"] for row in both.read_by_us()} == {"a": "new", "b": "back"}
    with pytest.raises(HudiError, match=r"java\.lang\.NullPointerException"):
        both.read_by_hudi({})


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
        pa.field("wall", pa.timestamp("us")),
        pa.field("amount", pa.decimal128(20, 4)),
        pa.field("cents", pa.decimal128(5, 2)),
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
        "wall": datetime(1969, 12, 31, 23, 59, 59, 123456),
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


@each_kind_of_files
def test_all_types(hudi: HudiPeer, tmp_path: Path, files: Files) -> None:
    table = new_table(
        tmp_path,
        schema=ALL_TYPES,
        record_key="id",
        table_type=files.table_type,
        buckets=2,
        options=files.options,
    )
    first = [full_row(1), full_row(2), {"id": 3}]
    getattr(table, files.first)(pa.Table.from_pylist(first, schema=ALL_TYPES))
    later = [empty_row(1), full_row(3), {"id": 2**60}]
    table.upsert(pa.Table.from_pylist(later, schema=ALL_TYPES))
    found = without(TwoReaders(hudi, table).check_snapshot("after an upsert"), META)
    assert {row["id"]: row for row in found} == {
        1: empty_row(1),
        2: full_row(2),
        3: full_row(3),
        2**60: {**dict.fromkeys(ALL_TYPES.names), "id": 2**60},
    }


def added(schema: pa.Schema) -> pa.Schema:
    return schema.append(pa.field("extra", pa.struct([("tip", pa.float64())])))


def widened(schema: pa.Schema) -> pa.Schema:
    return schema.set(schema.get_field_index("fare"), pa.field("fare", pa.int64()))


EVOLUTIONS: Mapping[str, tuple[Callable[[pa.Schema], pa.Schema], Row]] = {
    "added-column": (added, {"extra": {"tip": 0.5}}),
    "widened-type": (widened, {"fare": 2**40}),
    "both": (lambda schema: added(widened(schema)), {"extra": {"tip": 0.5}, "fare": 2**40}),
}


@each_kind_of_files
@pytest.mark.parametrize("evolution", EVOLUTIONS)
def test_schema_evolution(hudi: HudiPeer, tmp_path: Path, files: Files, evolution: str) -> None:
    table = new_table(
        tmp_path,
        schema=SCHEMA,
        record_key="id",
        table_type=files.table_type,
        buckets=2,
        options=files.options,
    )
    evolve, values = EVOLUTIONS[evolution]
    before = rows(("a", "sf", "n", 1, 1, "x"), ("b", "ny", "s", 1, 2, "y")).to_pylist()
    getattr(table, files.first)(pa.Table.from_pylist(before, schema=SCHEMA))
    after = [{**before[0], **values}, {**before[1], **values, "id": "c"}]
    table.upsert(pa.Table.from_pylist(after, schema=evolve(SCHEMA)))
    table.upsert(rows(("d", "la", "w", 2, 3, "older columns")))
    found = without(TwoReaders(hudi, table).check_snapshot("after evolving"), META)
    assert {row["id"]: row["fare"] for row in found} == {
        "a": after[0]["fare"], "b": 2, "c": after[1]["fare"], "d": 3,
    }  # fmt: skip
    assert list(found[0]) == evolve(SCHEMA).names


# Time ------------------------------------------------------------------------------------------


@each_type
def test_time_travel(hudi: HudiPeer, tmp_path: Path, table_type: TableType) -> None:
    table = new_table(
        tmp_path,
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        table_type=table_type,
        buckets=2,
    )
    both = TwoReaders(hudi, table)
    first = rows(("a", "sf", "n", 1, 1, "x"), ("b", "ny", "s", 1, 2, "y"))
    commits = [
        table.bulk_insert(first),
        table.upsert(rows(("a", "sf", "n", 1, 10, "x"), ("c", "sf", "s", 1, 3, "y"))),
        table.delete(first.slice(1).select(["id", "city"])),
        table.overwrite_partitions(rows(("d", "sf", "n", 1, 4, None))),
        table.upsert(rows(("d", "sf", "n", 1, 5, None, {"tip": 1.0}), schema=added(SCHEMA))),
        table.overwrite(rows(("e", "la", "n", 1, 6, None))),
    ]
    counts = []
    for commit in commits:
        found = both.check_snapshot(f"as of {commit.completion_time}", as_of=commit.completion_time)
        counts.append(len(found))
    assert counts == [2, 3, 2, 1, 1, 1]


@each_type
def test_base_files_alone(hudi: HudiPeer, tmp_path: Path, table_type: TableType) -> None:
    table = new_table(
        tmp_path, schema=SCHEMA, record_key="id", partition_by="city", table_type=table_type
    )
    table.bulk_insert(rows(("a", "sf", "n", 1, 1, "x"), ("b", "ny", "s", 1, 2, "y")))
    table.upsert(rows(("a", "sf", "n", 1, 10, "x"), ("c", "la", "s", 1, 3, "y")))
    found = TwoReaders(hudi, table).check_snapshot("in base files", read_optimized=True)
    fares = {row["id"]: row["fare"] for row in found}
    assert fares == {"a": 10 if table_type is COW else 1, "b": 2, "c": 3}


BEGINNING = "19700101000000000"


@each_type
def test_incremental_reads(hudi: HudiPeer, tmp_path: Path, table_type: TableType) -> None:
    table = new_table(
        tmp_path,
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
    both = TwoReaders(hudi, table)
    times = [BEGINNING, *(commit.completion_time for commit in commits)]
    found = {}
    for after, until in combinations(range(len(times)), 2):
        changes = both.check_changes(times[after], times[until])
        found[after, until] = "".join(sorted(row["id"] for row in changes))
    assert found == {
        (0, 1): "ab", (0, 2): "abc", (0, 3): "ac", (0, 4): "ad",
        (1, 2): "ac", (1, 3): "ac", (1, 4): "ad",
        (2, 3): "", (2, 4): "d",
        (3, 4): "d",
    }  # fmt: skip


def test_hudi_shows_a_late_update_as_a_change(hudi: HudiPeer, tmp_path: Path) -> None:
    """An incremental read of Hudi looks at the files of the window alone, so a record of a log that
    lost against an older one counts as a change there. No snapshot ever showed it."""
    table = new_table(
        tmp_path, schema=SCHEMA, record_key="id", ordering="ts", table_type=MOR, buckets=1
    )
    first = table.insert(rows(("a", "sf", "n", 10, 1, "kept")))
    late = table.upsert(rows(("a", "sf", "n", 9, 2, "late")))
    both = TwoReaders(hudi, table)
    assert [row["note"] for row in both.check_snapshot("after a late update")] == ["kept"]
    window = (first.completion_time, late.completion_time)
    assert [row["note"] for row in both.changes_by_hudi(*window)] == ["late"]
    assert table.changes_arrow(*window).num_rows == 0
