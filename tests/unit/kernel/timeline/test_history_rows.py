"""Data files of the archived timeline: exact schema, round trip, damage."""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import CorruptTableError, ErrorKind, InternalError
from headwater.format.parquet.footer import FOOTER_CHECKSUM
from headwater.kernel.timeline.history.rows import (
    CONTENT_COLUMNS,
    INSTANT_COLUMNS,
    ArchivedContents,
    HistoryRow,
    decode_contents,
    decode_instants,
    decode_ordered,
    decode_table,
    encode_rows,
)
from headwater.model.instant import Action, Instant, InstantTime, State

T1, T2, T3 = (InstantTime(f"2024010100000000{digit}") for digit in "123")
ROWS = [
    HistoryRow(Instant(T1, Action.COMPACTION, State.COMPLETED, T3), b"metadata", b"plan"),
    HistoryRow(Instant(T2, Action.DELTA_COMMIT, State.COMPLETED, T3), b"", b""),
]


def test_the_parquet_schema_is_that_of_an_avro_written_hoodie_lsm_timeline_instant() -> None:
    file = pq.ParquetFile(io.BytesIO(encode_rows(ROWS)))
    lines = [line.strip() for line in str(file.schema).splitlines()[2:-1]]
    assert [line.replace(" field_id=-1", "") for line in lines] == [
        "optional binary instantTime (String);",
        "optional binary completionTime (String);",
        "optional binary action (String);",
        "optional binary metadata;",
        "optional binary plan;",
        "required int32 version;",
    ]
    footer = file.metadata.metadata
    assert set(footer) == {b"parquet.avro.schema", FOOTER_CHECKSUM.encode()}
    avro = json.loads(footer[b"parquet.avro.schema"])
    assert (avro["namespace"], avro["name"]) == (
        "org.apache.hudi.avro.model",
        "HoodieLSMTimelineInstant",
    )
    assert [field["name"] for field in avro["fields"]] == file.schema_arrow.names
    assert avro["fields"][-1] == {"name": "version", "type": "int", "default": 1}


def test_rows_hold_the_completed_action_and_null_for_empty_files() -> None:
    assert pq.read_table(io.BytesIO(encode_rows(ROWS))).to_pylist() == [
        {
            "instantTime": T1,
            "completionTime": T3,
            "action": "commit",
            "metadata": b"metadata",
            "plan": b"plan",
            "version": 1,
        },
        {
            "instantTime": T2,
            "completionTime": T3,
            "action": "deltacommit",
            "metadata": None,
            "plan": None,
            "version": 1,
        },
    ]


actions = st.sampled_from([action for action in Action if action is not Action.SAVEPOINT])
contents = st.binary(max_size=20)
rows = st.dictionaries(
    st.integers(0, 10**9 - 1).map(lambda number: InstantTime(f"20240101{number:09d}")),
    st.tuples(actions, contents, contents),
).map(
    lambda found: [
        HistoryRow(Instant(time, action, State.COMPLETED, T3), metadata, plan)
        for time, (action, metadata, plan) in sorted(found.items())
    ]
)


@settings(deadline=None, max_examples=50)
@given(rows)
def test_rows_survive_the_round_trip(rows: list[HistoryRow]) -> None:
    data = encode_rows(rows)
    instants = decode_instants(decode_table(data, "f", INSTANT_COLUMNS), "f")
    assert instants == [
        row.instant._replace(action=row.instant.action.completed_name) for row in rows
    ]
    assert dict(decode_contents(decode_table(data, "f", CONTENT_COLUMNS), "f")) == {
        row.instant.requested_time: ArchivedContents(row.metadata, row.plan, "f") for row in rows
    }


def test_equal_rows_give_equal_files() -> None:
    assert encode_rows(ROWS) == encode_rows(list(ROWS))


def test_unordered_rows_are_a_bug() -> None:
    with pytest.raises(InternalError, match="ordered and distinct"):
        encode_rows(ROWS[::-1])
    with pytest.raises(InternalError, match="ordered and distinct"):
        encode_rows([ROWS[0], ROWS[0]])


def foreign_file(**columns: list[object]) -> bytes:
    rows_count = len(next(iter(columns.values())))
    table = pa.table(
        {
            "instantTime": pa.array(columns.get("instantTime", [T1] * rows_count), pa.string()),
            "completionTime": pa.array(
                columns.get("completionTime", [T3] * rows_count), pa.string()
            ),
            "action": pa.array(columns.get("action", ["commit"] * rows_count), pa.string()),
            "metadata": pa.array([None] * rows_count, pa.binary()),
            "plan": pa.array([None] * rows_count, pa.binary()),
            "version": pa.array([1] * rows_count, pa.int32()),
        }
    )
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=2, compression="gzip")
    return sink.getvalue()


def test_an_instant_without_completion_time_completed_when_it_was_requested() -> None:
    data = foreign_file(completionTime=[None])
    (instant,) = decode_instants(decode_table(data, "f", INSTANT_COLUMNS), "f")
    assert instant == Instant(T1, Action.COMMIT, State.COMPLETED, T1)


def test_files_that_stock_hudi_merged_are_put_in_order() -> None:
    data = foreign_file(instantTime=[T2, T3, T1])
    (table,) = decode_ordered(data, "f")
    assert table.column("instantTime").to_pylist() == [T1, T2, T3]


def test_ordered_files_come_in_portions() -> None:
    data = foreign_file(instantTime=[T1, T2, T3])
    assert [table.num_rows for table in decode_ordered(data, "f")] == [2, 1]


@pytest.mark.parametrize(
    "data",
    [
        foreign_file(instantTime=[None]),
        foreign_file(instantTime=["2024"]),
        foreign_file(completionTime=["2024"]),
        foreign_file(action=["compaction"]),
        foreign_file(action=[None]),
    ],
)
def test_rows_that_are_no_completed_instants_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptTableError) as raised:
        decode_instants(decode_table(data, "h/f", INSTANT_COLUMNS), "h/f")
    assert raised.value.context["path"] == "h/f"


def without_action() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(encode_rows(ROWS))).drop_columns("action"), sink)
    return sink.getvalue()


@pytest.mark.parametrize(
    "data", [b"", b"PAR1", b"no parquet at all", encode_rows(ROWS)[:-1], without_action()]
)
def test_a_damaged_file_is_corrupt_and_named(data: bytes) -> None:
    with pytest.raises(CorruptTableError, match="is damaged") as raised:
        decode_table(data, "h/f", INSTANT_COLUMNS)
    assert raised.value.context["path"] == "h/f"
    assert raised.value.kind is ErrorKind.CORRUPT_TIMELINE


@pytest.mark.parametrize("damage", range(4, 300, 7))
def test_a_damaged_byte_is_noticed_or_changes_nothing(damage: int) -> None:
    data = bytearray(encode_rows(ROWS))
    before = decode_table(data, "f", CONTENT_COLUMNS)
    data[damage] ^= 0xFF
    assert decode_or_none(data) in (before, None)


def decode_or_none(data: bytearray) -> pa.Table | None:
    try:
        return decode_table(data, "f", CONTENT_COLUMNS)
    except CorruptTableError:
        return None
