"""Column statistics: every type there and back, fastavro as witness, and the rule of merging."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.statistics import encode_typed_stats

from headwater.errors import InvalidInputError
from headwater.format.avro.binary import MalformedAvroError
from headwater.format.metadata.column_stats import (
    STATS_SCHEMA,
    decode_column_stats,
    encode_column_stats,
    typed_bounds,
)
from headwater.format.metadata.schema import METADATA_SCHEMA, RecordType
from headwater.format.metadata.wrapped_values import ValueType, value_kind

AVRO = fastavro.parse_schema(json.loads(METADATA_SCHEMA))
NOON = datetime(2024, 1, 15, 12, 30, 1, 250_000)

# Arrow type, smaller value, larger value, name of the wrapper, the larger as Avro has it.
TYPES: list[tuple[pa.DataType, Any, Any, str, Any]] = [
    (pa.bool_(), False, True, "BooleanWrapper", True),
    (pa.int32(), -5, 2**31 - 1, "IntWrapper", 2**31 - 1),
    (pa.int64(), -(2**63), 7, "LongWrapper", 7),
    (pa.float32(), -1.5, 0.25, "FloatWrapper", 0.25),
    (pa.float64(), -1e300, 0.1, "DoubleWrapper", 0.1),
    (pa.string(), "Amazon", "Zürich", "StringWrapper", "Zürich"),
    (pa.binary(), b"", b"\xff\x00", "BytesWrapper", b"\xff\x00"),
    (pa.binary(2), b"aa", b"\xff\x00", "BytesWrapper", b"\xff\x00"),
    (pa.decimal128(10, 2), Decimal("-1.28"), Decimal("12.50"), "BytesWrapper", b"\x04\xe2"),
    (pa.date32(), date(1960, 1, 1), date(2024, 1, 15), "IntWrapper", 19737),
    (pa.time32("ms"), time(1, 2, 3), time(12, 30), "IntWrapper", 45_000_000),
    (pa.time64("us"), time(1, 2, 3), time(12, 30), "LongWrapper", 45_000_000_000),
    (
        pa.timestamp("ms", "UTC"),
        NOON.replace(tzinfo=UTC, year=1960),
        NOON.replace(tzinfo=UTC),
        "LongWrapper",
        1705321801250,
    ),
    (
        pa.timestamp("us", "UTC"),
        NOON.replace(tzinfo=UTC, year=1960),
        NOON.replace(tzinfo=UTC),
        "LongWrapper",
        1705321801250000,
    ),
    (pa.timestamp("us"), NOON.replace(year=1960), NOON, "LongWrapper", 1705321801250000),
    (pa.timestamp("ms"), NOON.replace(year=1960), NOON, "LongWrapper", 1705321801250),
]
VALUE_TYPES = [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 19, 18]


def stats(lower: pa.Array, upper: pa.Array, **columns: Any) -> pa.Table:
    count = len(lower)
    rows: dict[str, Any] = {
        "file_name": pa.array([f"file-{row}" for row in range(count)], pa.string()),
        "column_name": pa.array(["fare"] * count, pa.string()),
        "min": lower,
        "max": upper,
        "value_count": pa.array([10] * count, pa.int64()),
        "null_count": pa.array([1] * count, pa.int64()),
        "total_size": pa.array([100] * count, pa.int64()),
        "total_uncompressed_size": pa.array([200] * count, pa.int64()),
        "is_deleted": pa.array([False] * count, pa.bool_()),
        "is_tight_bound": pa.array([False] * count, pa.bool_()),
    }
    for name, values in columns.items():
        rows[name] = pa.array(values, rows[name].type)
    return pa.table(rows)


def parsed(value: bytes) -> Any:
    stream = BytesIO(value)
    record: Any = fastavro.schemaless_reader(stream, AVRO, None, return_record_name=True)
    assert stream.tell() == len(value)
    return record


@pytest.mark.parametrize(
    ("row", "value_type"), list(zip(TYPES, VALUE_TYPES, strict=True)), ids=lambda each: str(each)
)
def test_every_type_there_and_back(row: tuple[Any, ...], value_type: int) -> None:
    arrow, smaller, larger, wrapper, in_avro = row
    lower, upper = pa.array([smaller, None], arrow), pa.array([larger, None], arrow)
    values = encode_typed_stats(stats(lower, upper))
    record = parsed(values[0].as_py())["ColumnStatsMetadata"][1]
    name, value = record["maxValue"]
    assert (name.rpartition(".")[2], value["value"]) == (wrapper, in_avro)
    assert record["valueType"][1]["typeOrdinal"] == value_type
    assert (record["fileName"], record["columnName"]) == ("file-0", "fare")
    assert (record["valueCount"], record["nullCount"]) == (10, 1)
    assert parsed(values[1].as_py())["ColumnStatsMetadata"][1]["maxValue"] is None
    found = decode_column_stats(values)
    expected = pa.binary() if arrow == pa.binary(2) else arrow
    assert typed_bounds(found, expected)[0].to_pylist() == lower.to_pylist()
    assert typed_bounds(found, expected)[1].to_pylist() == upper.to_pylist()
    assert encode_column_stats(found).equals(values)


def test_rows_of_many_types_are_decoded_at_once() -> None:
    pieces = [
        encode_typed_stats(stats(pa.array([row[1]], row[0]), pa.array([row[2]], row[0])))
        for row in TYPES
    ]
    values = pa.concat_arrays([*pieces, *reversed(pieces)])
    found = decode_column_stats(values)
    assert found.schema.equals(STATS_SCHEMA)
    assert encode_column_stats(found).equals(values)


def test_a_decimal_names_precision_and_scale() -> None:
    assert value_kind(pa.decimal128(12, 3)).info == "12,3"
    one = pa.array([Decimal("1.00")], pa.decimal128(5, 2))
    found = decode_column_stats(encode_typed_stats(stats(one, one)))
    assert found["type_info"].to_pylist() == ["5,2"]
    lower, _ = typed_bounds(found, pa.decimal128(9, 4))
    assert lower.to_pylist() == [Decimal("1.0000")]


def test_partition_statistics_are_of_type_6() -> None:
    one = pa.array([1], pa.int32())
    values = encode_typed_stats(stats(one, one), RecordType.PARTITION_STATS)
    assert parsed(values[0].as_py())["type"] == 6
    assert decode_column_stats(values)["min"].to_pylist()[0]["number"] == 1


def test_a_column_of_nulls_has_the_type_null() -> None:
    nothing = pa.nulls(1)
    found = decode_column_stats(encode_typed_stats(stats(nothing, nothing)))
    assert found["value_type"].to_pylist() == [ValueType.NULL]
    assert typed_bounds(found, pa.string())[0].to_pylist() == [None]


def test_no_rows_are_no_values() -> None:
    nothing = decode_column_stats(pa.array([], pa.binary()))
    assert nothing.num_rows == 0
    assert encode_column_stats(nothing).to_pylist() == []


@pytest.mark.parametrize(
    ("written", "value", "now", "told"),
    [
        (pa.int32(), 7, pa.int64(), 7),
        (pa.int32(), 7, pa.float64(), 7.0),
        (pa.float32(), 0.5, pa.float64(), 0.5),
        (pa.int64(), 2**40, pa.int32(), None),  # Does not fit.
        (pa.int32(), 7, pa.string(), None),  # Texts have another order than numbers.
        (pa.int32(), 7, pa.decimal128(10, 2), Decimal("7.00")),
        (pa.timestamp("ms", "UTC"), NOON, pa.timestamp("us", "UTC"), NOON.replace(tzinfo=UTC)),
        (pa.timestamp("us", "UTC"), NOON, pa.timestamp("us"), None),
        (pa.date32(), date(2024, 1, 1), pa.int32(), None),
        (pa.int64(), 5, pa.timestamp("us", "UTC"), None),
        (pa.string(), "a", pa.binary(), None),
        (pa.string(), "a", pa.large_string(), "a"),
    ],
)
def test_bounds_are_told_in_the_type_of_today_or_not_at_all(
    written: pa.DataType, value: Any, now: pa.DataType, told: Any
) -> None:
    bound = pa.array([value], written)
    found = decode_column_stats(encode_typed_stats(stats(bound, bound)))
    assert typed_bounds(found, now)[0].to_pylist() == [told]


def test_bounds_of_version_8_follow_from_their_wrappers() -> None:
    one = pa.array([1], pa.int64())
    rows = decode_column_stats(encode_typed_stats(stats(one, one)))
    untyped = rows.set_column(
        rows.column_names.index("value_type"), "value_type", pa.nulls(1, pa.int32())
    )
    assert typed_bounds(untyped, pa.int64())[0].to_pylist() == [1]
    # A long without value type may be a time of any unit.
    assert typed_bounds(untyped, pa.timestamp("us", "UTC"))[0].to_pylist() == [None]
    assert encode_column_stats(untyped)[0].as_py().endswith(b"\0\0\0")


def test_nan_is_kept_but_bounds_nothing() -> None:
    bound = pa.array([float("nan")])
    found = decode_column_stats(encode_typed_stats(stats(pa.array([1.0]), bound)))
    assert np.isnan(found["max"].to_pylist()[0]["real"])
    lower, upper = typed_bounds(found, pa.float64())
    assert (lower.to_pylist(), upper.to_pylist()) == ([1.0], [None])


def test_types_without_statistics_are_refused() -> None:
    for arrow in (pa.list_(pa.int32()), pa.struct([("a", pa.int32())]), pa.uint64()):
        with pytest.raises(InvalidInputError, match="no statistics"):
            value_kind(arrow)


@given(st.data())
@settings(deadline=None)
def test_cut_statistics_are_malformed(data: st.DataObject) -> None:
    arrow, smaller, larger, *_ = data.draw(st.sampled_from(TYPES))
    (value,) = encode_typed_stats(
        stats(pa.array([smaller], arrow), pa.array([larger], arrow))
    ).to_pylist()
    size = data.draw(st.integers(0, len(value) - 1))
    with pytest.raises(MalformedAvroError):
        decode_column_stats(pa.array([value[:size], value], pa.binary()))


@given(st.binary(max_size=60))
@settings(deadline=None)
def test_arbitrary_bytes_are_malformed(tail: bytes) -> None:
    head = bytes([0] * 6 + [6, 0, 0, 2])
    try:
        decode_column_stats(pa.array([head + tail]))
    except MalformedAvroError:
        return
    assert parsed(head + tail)["type"] == 3
