"""Records that are merged: deletes among upserts, partial updates, orderings and functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
from tests.readers.history import Step, history
from tests.readers.readers import Omits, Refuses
from tests.readers.shapes import (
    FILES,
    NOT_TRIED,
    ON_BASE,
    ORDERINGS,
    SCHEMA,
    TYPES,
    Files,
    found_in,
    rows,
)
from tests.support.tables import MOR, a_table, rows_of, with_properties
from tests.support.two_readers import META

DELETE_MARK = {
    "hoodie.record.merge.property.hoodie.payload.delete.field": "op",
    "hoodie.record.merge.property.hoodie.payload.delete.marker": "D",
}


@history(
    long=[f"{files}-commit-time-op" for files in FILES],
    spark=["parquet-logs-event-time-op", "avro-logs-on-base-commit-time-_hoodie_is_deleted"],
    files=FILES,
    ordering=ORDERINGS,
    mark={"_hoodie_is_deleted": "_hoodie_is_deleted", "op": "op"},
)
def deletes_among_upserts(
    path: Path, files: Files, ordering: str | None, mark: str
) -> Iterator[Step]:
    is_flag = mark == "_hoodie_is_deleted"
    schema = SCHEMA.append(pa.field(mark, pa.bool_() if is_flag else pa.string()))
    kept, gone = (False, True) if is_flag else ("I", "D")
    marked = rows_of(schema)
    shape = files.on(path, schema, ordering=ordering, buckets=2)
    table = shape.with_options({} if is_flag else DELETE_MARK).create()
    getattr(table, files.first)(
        marked(
            ("a", "sf", "n", 10, 1, "x", kept),
            ("b", "sf", "n", 10, 2, "x", None),
            ("c", "sf", "n", 10, 3, "x", gone),
            ("d", "sf", "n", 10, 4, "x", kept),
        )
    )
    assert set(found_in(table, "fare")) == {"a", "b", "d"}
    yield Step(files.first, table, is_milestone=False)
    table.upsert(
        marked(
            ("a", "sf", "n", 11, 10, "y", gone),
            ("b", "sf", "n", 9, 20, "y", gone),
            ("e", "sf", "n", 10, 50, "y", kept),
        )
    )
    survivors = {"d", "e"} if ordering is None else {"b", "d", "e"}
    assert set(found_in(table, "fare")) == survivors
    yield Step("upsert with deletes", table)
    again, late = ("a", "sf", "n", 12, 100, "z", kept), ("e", "sf", "n", 9, 60, "late", gone)
    table.upsert(marked(again, late))
    yield Step("insert again", table, is_milestone=False)
    table.delete(pa.table({"id": ["d"]}))
    dropped = {"d", "e"} if ordering is None else {"d"}
    assert set(found_in(table, "fare")) == (survivors | {"a"}) - dropped
    yield Step("delete", table)


@history(table_type=TYPES, spark=["mor"])
def several_ordering_fields(path: Path, table_type: str) -> Iterator[Step]:
    shape = {"ordering": ("ts", "fare"), "table_type": table_type, "buckets": 1}
    table = a_table(path, SCHEMA).having(**shape).create()
    table.insert(rows(("a", "sf", "n", 1, 2, "kept"), ("b", "sf", "n", 1, 1, "old")))
    table.upsert(rows(("a", "sf", "n", 1, 1, "late"), ("b", "sf", "n", 1, 2, "newer")))
    assert found_in(table, "note") == {"a": "kept", "b": "newer"}
    refuses = Refuses("Multiple ordering fields", "it refuses tables with two ordering fields")
    yield Step("a late update and a newer one", table, {"hudi-rs": refuses})


def keep_old(old: pa.Table, new: pa.Table) -> pa.Table:
    """A merge function that changes nothing."""
    return old


@history(table_type=TYPES, spark=["mor"])
def records_merged_by_a_function(path: Path, table_type: str) -> Iterator[Step]:
    """Others read what the function made of base files; logs they would have to merge by it."""
    options = {
        "hoodie.record.merge.mode": "CUSTOM",
        "headwater.merge.function": f"{keep_old.__module__}:{keep_old.__name__}",
    }
    shape = a_table(path, SCHEMA, table_type=table_type, buckets=1)
    table = shape.with_options(options).create()
    table.bulk_insert(rows(("a", "sf", "n", 1, 1, "kept")))
    yield Step("before anything is merged", table)
    table.upsert(rows(("a", "sf", "n", 1, 2, "new"), ("b", "sf", "n", 1, 1, "added")))
    assert found_in(table, "note") == {"a": "kept", "b": "added"}
    why = "it does not know the function that merges the log"
    limits = {
        "hudi": Refuses("No valid spark merger implementation set", why),
        "hudi-rs": Refuses("needs its own merger", why),
    }
    yield Step("a merge by the function", table, limits if table_type == MOR else {})


PARTIAL_MODES: Mapping[str, tuple[Mapping[str, str], str | None]] = {
    "ignore-defaults": ({"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}, None),
    "fill-unavailable": (
        {
            "hoodie.table.partial.update.mode": "FILL_UNAVAILABLE",
            # Hudi looks for the one, hudi-rs for the other.
            "hoodie.record.merge.property.hoodie.write.partial.update.unavailable.value": "?",
            "hoodie.record.merge.property.partial.update.unavailable.value": "?",
        },
        "?",
    ),
}
WRITTEN = ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_file_name")
WHO_WROTE = (
    "of a late record that may have filled gaps we show when it was written, so that incremental "
    "reads find the row; it shows the record that won"
)
LATE = {"hudi-rs": Omits(META, WHO_WROTE), "hudi": Omits(WRITTEN, WHO_WROTE)}


@history(
    spark=["avro-logs-event-time-ignore-defaults"],
    files=FILES,
    ordering=ORDERINGS,
    mode=PARTIAL_MODES,
)
def partial_update_modes(
    path: Path, files: Files, ordering: str | None, mode: tuple[Mapping[str, str], str | None]
) -> Iterator[Step]:
    changes, absent = mode
    limits = {} if ordering is None else LATE
    table = with_properties(files.on(path, ordering=ordering, buckets=1).create(), changes)
    getattr(table, files.first)(
        rows(("a", "sf", "n", 10, 1, "old"), ("b", "ny", "s", 10, 2, "old"))
    )
    yield Step(files.first, table, is_milestone=False)
    table.upsert(rows(("a", absent, "w", 11, 10, absent), ("b", "la", absent, 9, 20, "late")))
    yield Step("upsert", table, limits, is_milestone=False)
    table.upsert(rows(("a", "kl", absent, 12, 11, absent), ("c", "pa", "e", 1, 3, "new")))
    found = {row["id"]: row for row in table.read_arrow().to_pylist()}
    assert tuple(found["a"].values()) == ("a", "kl", "w", 12, 11, "old")
    assert found["b"]["city"] == ("la" if ordering is None else "ny")
    yield Step("second upsert", table, limits)


@history(spark=["parquet-logs-on-base-event-time"], files=ON_BASE, ordering=ORDERINGS)
def updates_that_bring_some_columns(
    path: Path, files: Files, ordering: str | None
) -> Iterator[Step]:
    table = files.on(path, ordering=ordering, buckets=1).create()
    getattr(table, files.first)(
        rows(
            ("a", "sf", "n", 10, 1, "old"),
            ("b", "ny", "s", 10, 2, "old"),
            ("d", "la", "w", 10, 4, "old"),
        )
    )
    yield Step(files.first, table, is_milestone=False)
    table.delete(pa.table({"id": ["d"]}))
    fares = {"id": ["a", "c", "d"], "ts": [11, 1, 11], "fare": pa.array([10, 30, 40], pa.int32())}
    table.upsert(pa.table(fares), partial=True)
    yield Step("partial update of the fare", table)
    table.upsert(pa.table({"id": ["a", "b"], "ts": [12, 9], "note": ["n", "m"]}), partial=True)
    assert {
        row["id"]: (row["city"], row["fare"], row["note"]) for row in table.read_arrow().to_pylist()
    } == {
        "a": ("sf", 10, "n"),
        "b": ("ny", 2, "m" if ordering is None else "old"),
        "c": (None, 30, None),
        "d": (None, 40, None),
    }
    yield Step("partial update of the note", table, {} if ordering is None else LATE)


@history(spark=[""])
def a_record_that_comes_back_beside_partial_updates(path: Path) -> Iterator[Step]:
    table = a_table(path, SCHEMA, table_type=MOR, buckets=1).create()
    table.insert(rows(("a", "sf", "n", 10, 1, "old"), ("b", "ny", "s", 10, 2, "old")))
    table.upsert(pa.table({"id": ["a"], "note": ["new"]}), partial=True)
    table.delete(pa.table({"id": ["b"]}))
    yield Step("a partial update and a delete", table)
    table.upsert(rows(("b", "ny", "s", 10, 3, "back")))
    assert found_in(table, "note") == {"a": "new", "b": "back"}
    why = (
        "once it met a block of partial updates in a slice of a table without ordering, a record "
        "that follows a delete makes it look for the schema of the delete, which has none"
    )
    yield Step("a record back", table, {"hudi": Refuses(r"java\.lang\.NullPointerException", why)})


@history(spark=[""])
def an_insert_with_the_unavailable_marker(path: Path) -> Iterator[Step]:
    changes, marker = PARTIAL_MODES["fill-unavailable"]
    table = with_properties(a_table(path, SCHEMA, table_type=MOR, buckets=1).create(), changes)
    table.insert(rows(("a", marker, "n", 1, 1, "x")))
    assert found_in(table, "city") == {"a": marker}
    yield Step("into a base file", table, is_milestone=False)
    table.insert(rows(("b", marker, "n", 1, 1, "x")))
    assert found_in(table, "city") == {"a": marker, "b": marker}
    why = "it refuses a record of a log that has the marker and no older value"
    refuses = Refuses("no prior value to fill from", why)
    yield Step("into a log", table, {"hudi-rs": refuses, **NOT_TRIED})
