"""UPDATE and DELETE: which rows change, how they are written, and who else may write meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.statements.conftest import SCHEMA, Create, fares_of, rows_of

import headwater as hw
from headwater.expressions.scope import Scope
from headwater.metadata.view import IndexedView
from headwater.operations.plan import Operation
from headwater.statements.target import Target
from headwater.statements.update import assign, compile_assignments
from headwater.table import Table

LOCK = {"hoodie.write.lock.provider": "in_process"}
MODES = {
    "optimistic": {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL", **LOCK},
    "non-blocking": {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL", **LOCK},
}
SHAPES: list[dict[str, Any]] = [
    {"table_type": "COPY_ON_WRITE"},
    {"table_type": "MERGE_ON_READ"},
    {"table_type": "MERGE_ON_READ", "ordering": "ts"},
    {"table_type": "COPY_ON_WRITE", "index": "simple", "ordering": "ts"},
    {"table_type": "MERGE_ON_READ", "index": "record_index"},
    {"table_type": "MERGE_ON_READ", "index": "global_simple"},
    {"table_type": "MERGE_ON_READ", "options": MODES["non-blocking"]},
]


def name_of(shape: dict[str, Any]) -> str:
    return " ".join(str(value) for key, value in shape.items() if key != "options") or "default"


@pytest.mark.parametrize("shape", SHAPES, ids=name_of)
def test_rows_that_satisfy_a_condition_change_in_one_commit(
    shape: dict[str, Any], create: Create
) -> None:
    table = create(**shape)
    table.upsert(rows_of("b sf 20", ts=2))  # In a log, where there are logs.
    before = table.history().num_rows
    table.update({"fare": "fare * 2", "note": "upper(note)"}, where="city = 'sf' OR id = 'e'")
    assert fares_of(table) == {"a": 2.0, "b": 40.0, "c": 3.0, "d": 4.0, "e": 10.0}
    assert table.history().num_rows == before + 1
    assert table.scan(where="note = 'FIRST'").count() == 3
    table.delete(where="fare > 9 AND note LIKE 'F%'")
    assert fares_of(table) == {"a": 2.0, "c": 3.0, "d": 4.0}
    table.update({"note": None})
    assert table.read_arrow()["note"].to_pylist() == [None] * 3
    assert table.history().num_rows == before + 3


def test_an_update_of_a_merge_on_read_table_writes_what_it_sets(create: Create) -> None:
    table = create(table_type="MERGE_ON_READ")
    table.update({"fare": 9}, where="id = 'a'")
    assert table.read_arrow(where="id = 'a'").to_pylist() == [
        {"id": "a", "city": "sf", "fare": 9.0, "note": "first", "ts": 1}
    ]
    (log,) = [path for path in table.inspect.files()["path"].to_pylist() if ".log." in path]
    content = table.storage.read(log)
    assert b"fare" in content
    assert b"IS_PARTIAL" in content or b'"note"' not in content


def test_nothing_that_satisfies_it_is_a_commit_that_changes_nothing(create: Create) -> None:
    table = create()
    commit = table.update({"fare": 0}, where="id = 'x'")
    assert commit.updated == 0
    assert table.delete(where="id = 'x'").deleted == 0
    assert len(fares_of(table)) == 5


def test_values_that_are_no_text_are_taken_as_they_are(create: Create) -> None:
    table = create()
    table.update({"fare": 7, "ts": 2**40, "note": "'it''s'"}, where="id = 'a'")
    (row,) = table.read_arrow(where="id = 'a'").to_pylist()
    assert (row["fare"], row["ts"], row["note"]) == (7.0, 2**40, "it's")


def test_scalars_of_numpy_are_values(create: Create) -> None:
    table = create()
    table.update({"fare": np.float32(1.5), "ts": np.int64(2**40)})
    found = table.read_arrow(where="id = 'a'")
    assert (found["fare"][0].as_py(), found["ts"][0].as_py()) == (1.5, 2**40)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "at least one column"),
        ({"nope": 1}, "no column nope to set; it has id, city"),
        ({"fare": 1, "FARE": 2}, "set twice"),
        ({"fare": "note"}, "string does not go into one of double"),
        ({"ts": 1.5}, "does not fit into column ts"),
        ({"fare": object()}, "got object"),
        ({"fare": "1 / 0"}, "Division by zero"),
        ({"id": "'x'"}, "another id, which is part of their key"),
        ({"city": "'x'"}, "another city, by which the table is partitioned"),
        ({"fare": "nope + 1"}, "nope does not exist"),
    ],
)
def test_what_cannot_be_set_is_refused(
    values: dict[str, Any], message: str, create: Create
) -> None:
    table = create()
    with pytest.raises(hw.InvalidInputError, match=message):
        table.update(values)
    assert set(table.history()["operation"].to_pylist()) == {"UPSERT"}
    assert fares_of(table) == {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0, "e": 5.0}


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_times_in_milliseconds_are_set_and_what_does_not_fit_is_refused(
    zone: str | None, tmp_path: Path
) -> None:
    schema = pa.schema([("id", pa.string()), ("t", pa.timestamp("ms", zone))])
    table = hw.create_table(tmp_path / "t", schema=schema, record_key="id")
    first, second = (datetime(2020, 1, day, tzinfo=UTC if zone else None) for day in (1, 2))
    rows = pa.table({"id": ["a", "b"], "t": [first, first]}, schema=schema)
    table.merge(rows, "id").when_not_matched_insert().execute()
    table.update({"t": "t + INTERVAL 1 DAY"}, where="id = 'a'")
    assert table.read_arrow().sort_by("id")["t"].to_pylist() == [second, first]
    with pytest.raises(hw.InvalidInputError, match=r"Column t .*would lose data"):
        table.update({"t": "TIMESTAMP '2020-01-01 00:00:00.123456'"})
    table.merge(rows, "id").when_matched_update().execute()
    assert table.read_arrow()["t"].to_pylist() == [first, first]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.binary(4), b"four"),
        (pa.list_(pa.timestamp("ms")), [datetime(2020, 1, 1)]),
        (pa.map_(pa.string(), pa.binary(2)), [("a", b"xy")]),
        (pa.struct([("at", pa.timestamp("ms")), ("n", pa.int32())]), {"at": None, "n": 1}),
    ],
    ids=str,
)
def test_values_take_on_the_width_of_their_column(
    kind: pa.DataType, value: object, tmp_path: Path
) -> None:
    schema = pa.schema([("id", pa.string()), ("t", kind)])
    table = hw.create_table(tmp_path / "t", schema=schema, record_key="id")
    rows = pa.table({"id": ["a"], "t": pa.array([value], kind)})
    table.merge(rows, "id").when_not_matched_insert().execute()
    table.update({"t": "t"})
    table.update({"t": None})
    table.merge(rows, "id").when_matched_update().execute()
    assert table.read_arrow()["t"].to_pylist() == [value]


def test_bytes_of_another_number_are_refused(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("t", pa.binary(4))])
    table = hw.create_table(tmp_path / "t", schema=schema, record_key="id")
    table.upsert(pa.table({"id": ["a"], "t": pa.array([b"four"], pa.binary(4))}))
    table.update({"t": "X'00010203'"})
    with pytest.raises(hw.InvalidInputError, match=r"Column t .*fixed_size_binary\[4\]"):
        table.update({"t": "X'0001'"})
    assert table.read_arrow()["t"].to_pylist() == [bytes(range(4))]


def test_bad_arguments_of_delete(create: Create) -> None:
    table = create()
    with pytest.raises(hw.InvalidInputError, match="either keys or where"):
        table.delete()
    with pytest.raises(hw.InvalidInputError, match="position 1"):
        table.delete(where="nope = 1")
    assert table.inspect.timeline().num_rows == 1  # No write was begun.


def test_a_record_moves_where_the_index_lets_it(create: Create) -> None:
    table = create(index="global_simple")
    table.update({"city": "'ny'"}, where="id = 'a'")
    assert table.scan(where="city = 'ny'").count() == 2
    assert len(fares_of(table)) == 5


def test_a_smaller_ordering_value_would_lose_and_is_refused(create: Create) -> None:
    table = create(ordering="ts")
    table.update({"ts": "ts + 1"})
    with pytest.raises(hw.InvalidInputError, match="makes ts smaller"):
        table.update({"ts": "ts - 1"}, where="id = 'a'")


def test_null_is_refused_where_it_means_that_nothing_was_given(create: Create) -> None:
    options = {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}
    table = create(table_type="MERGE_ON_READ", ordering="ts", options=options)
    with pytest.raises(hw.InvalidInputError, match="takes for a value that was not given"):
        table.update({"note": None})
    table.update({"fare": 0})
    assert set(fares_of(table).values()) == {0.0}


def test_a_table_without_keys_has_no_statements(create: Create) -> None:
    table = hw.create_table(create().uri + "2", schema=SCHEMA)
    with pytest.raises(hw.InvalidInputError, match="no record key"):
        table.delete(where="fare > 1")


def doubled_beside(table: Table, rival: Table, rows: pa.Table) -> list[dict[str, Any]]:
    """Double all fares, while another writer commits right after the first look at the table."""
    target = Target.of(table.context, "UTC", table.context.moment())
    assigned = compile_assignments(target, {"fare": "fare * 2"}, Scope(target.schema))
    seen: list[dict[str, Any]] = []

    def make(view: IndexedView) -> Iterator[pa.RecordBatch]:
        old = list(target.read(view, target.schema.names))
        seen.append({row["id"]: row["fare"] for batch in old for row in batch.to_pylist()})
        if len(seen) == 1:
            rival.upsert(rows)
        for batch in old:
            yield assign(batch, batch, assigned)

    target.write(Operation.UPSERT, target.schema, make)
    return seen


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("early", ["true", "false"])
def test_inv_95_rows_that_another_writer_changed_meanwhile_are_read_again(
    mode: str, early: str, create: Create
) -> None:
    options = {**MODES[mode], "hoodie.write.concurrency.early.conflict.detection.enable": early}
    table = create(table_type="MERGE_ON_READ", options=options)
    rival = hw.open_table(table.uri, options)
    looks = doubled_beside(table, rival, rows_of("a sf 100", ts=2))
    assert [look["a"] for look in looks] == [1.0, 100.0]
    assert fares_of(table) == {"a": 200.0, "b": 4.0, "c": 6.0, "d": 8.0, "e": 10.0}


def test_a_copy_on_write_statement_reads_again_too(create: Create) -> None:
    table = create(index="simple", options=MODES["optimistic"])
    rival = hw.open_table(table.uri, MODES["optimistic"])
    looks = doubled_beside(table, rival, rows_of("a sf 100", ts=2))
    assert len(looks) == 2
    assert fares_of(table)["a"] == 200.0


def test_columns_that_another_writer_added_meanwhile_are_kept(create: Create) -> None:
    table = create(options=MODES["optimistic"])
    target = Target.of(table.context, "UTC", table.context.moment())
    wider = rows_of("a sf 1", ts=2).append_column("extra", pa.array(["kept"]))
    hw.open_table(table.uri, MODES["optimistic"]).upsert(wider)
    with pytest.raises(hw.ConflictError, match="columns of table t changed"):
        target.write(Operation.UPSERT, target.schema, lambda _: iter(()))
    table.update({"fare": 5}, where="id = 'a'")
    assert table.read_arrow(where="id = 'a'")["extra"].to_pylist() == ["kept"]
