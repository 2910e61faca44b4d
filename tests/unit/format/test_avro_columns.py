"""Columns as Avro records: the same bytes as fastavro writes, and the same rows back."""

from __future__ import annotations

import json
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.errors import InvalidInputError
from headwater.format.avro.binary import MalformedAvroError
from headwater.format.avro.columns import decode_records, encode_records
from headwater.format.avro.schema import encode_avro_schema, parse_avro_schema

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Inside the years that Python's datetime has, which is what fastavro works with.
MICROS = st.integers(-62_000_000_000_000_000, 250_000_000_000_000_000)

AVRO_TYPES: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "boolean": ("boolean", st.booleans()),
    "int": ("int", st.integers(-(2**31), 2**31 - 1)),
    "long": ("long", st.integers(-(2**63), 2**63 - 1)),
    "float": ("float", st.floats(width=32, allow_nan=False)),
    "double": ("double", st.floats(allow_nan=False)),
    "string": ({"type": "string", "avro.java.string": "String"}, st.text(max_size=200)),
    "bytes": ("bytes", st.binary(max_size=200)),
    "date": (
        {"type": "int", "logicalType": "date"},
        st.dates(date(1, 1, 1), date(9999, 12, 31)),
    ),
    "micros": (
        {"type": "long", "logicalType": "timestamp-micros"},
        MICROS.map(lambda micros: EPOCH + timedelta(microseconds=micros)),
    ),
    "millis": (
        {"type": "long", "logicalType": "timestamp-millis"},
        MICROS.map(lambda micros: EPOCH + timedelta(milliseconds=micros // 1000)),
    ),
    "local_micros": (
        {"type": "long", "logicalType": "local-timestamp-micros"},
        MICROS.map(lambda micros: datetime(1970, 1, 1) + timedelta(microseconds=micros)),
    ),
    "fixed": ({"type": "fixed", "name": "f3", "size": 3}, st.binary(min_size=3, max_size=3)),
    "decimal_fixed": (
        {
            "type": "fixed",
            "name": "d7",
            "size": 7,
            "logicalType": "decimal",
            "precision": 15,
            "scale": 2,
        },
        st.integers(-(10**15) + 1, 10**15 - 1).map(lambda value: Decimal(value).scaleb(-2)),
    ),
    "decimal_bytes": (
        {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 4},
        st.integers(-(10**18) + 1, 10**18 - 1).map(lambda value: Decimal(value).scaleb(-4)),
    ),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Draw an Avro schema of flat fields and rows that fit it."""
    names = draw(st.lists(st.sampled_from(sorted(AVRO_TYPES)), min_size=1, unique=True))
    fields: list[dict[str, Any]] = []
    values: dict[str, st.SearchStrategy[Any]] = {}
    for name in names:
        avro, strategy = AVRO_TYPES[name]
        shape = draw(st.sampled_from(["plain", "null first", "null last", "alone"]))
        union = {"null first": ["null", avro], "null last": [avro, "null"], "alone": [avro]}
        fields.append({"name": name, "type": union.get(shape, avro)})
        values[name] = strategy if shape in ("plain", "alone") else st.none() | strategy
    rows = draw(st.lists(st.fixed_dictionaries(values), max_size=8))
    return {"type": "record", "name": "r", "fields": fields}, rows


def by_fastavro(schema: dict[str, Any], rows: list[dict[str, Any]]) -> bytes:
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    out = b""
    for row in rows:
        record = BytesIO()
        fastavro.schemaless_writer(record, parsed, row)
        out += struct.pack(">i", len(record.getvalue())) + record.getvalue()
    return out


# The first example imports fastavro's writer and Arrow's kernels, which takes longer than the rest.
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(tables())
def test_flat_columns_have_the_bytes_of_fastavro(
    drawn: tuple[dict[str, Any], list[dict[str, Any]]],
) -> None:
    schema, rows = drawn
    text = json.dumps(schema)
    table = pa.Table.from_pylist(rows, schema=parse_avro_schema(text))
    expected = by_fastavro(schema, rows)
    assert bytes(encode_records(table, text)) == expected
    decoded = decode_records(expected, len(rows), text)
    decoded.validate(full=True)
    assert decoded.schema.equals(table.schema)
    assert decoded.to_pylist() == table.to_pylist()


@settings(deadline=None, max_examples=50)
@given(tables(), st.data())
def test_damaged_records_are_refused_or_decode_to_as_many_rows(
    drawn: tuple[dict[str, Any], list[dict[str, Any]]], data: st.DataObject
) -> None:
    schema, rows = drawn
    encoded = bytearray(by_fastavro(schema, rows))
    if not encoded:
        return
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(encoded)))
    for damaged in (bytes(encoded), bytes(encoded[:cut])):
        try:
            decoded = decode_records(damaged, len(rows), json.dumps(schema))
        except MalformedAvroError:
            continue
        decoded.validate(full=False)
        assert len(decoded) == len(rows)


NESTED = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "tags", "type": ["null", {"type": "array", "items": ["null", "string"]}]},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {
            "name": "place",
            "type": [
                "null",
                {"type": "record", "name": "p", "fields": [{"name": "x", "type": "double"}]},
            ],
        },
        {"name": "kind", "type": {"type": "enum", "name": "k", "symbols": ["A", "B"]}},
    ],
}


def test_nested_columns_go_through_fastavro() -> None:
    rows: list[dict[str, Any]] = [
        {"id": 1, "tags": ["a", None], "counts": {"x": 1}, "place": {"x": 0.5}, "kind": "B"},
        {"id": 2, "tags": None, "counts": {}, "place": None, "kind": "A"},
    ]
    text = json.dumps(NESTED)
    expected = by_fastavro(NESTED, rows)
    decoded = decode_records(expected, 2, text)
    assert decoded.to_pylist(maps_as_pydicts="strict") == rows
    assert bytes(encode_records(decoded, text)) == expected
    assert decode_records(expected, 2, text, ["kind", "id"]).column_names == ["id", "kind"]


def test_times_beside_nested_columns_may_have_any_year() -> None:
    moment, local = pa.timestamp("us", "UTC"), pa.timestamp("ms")
    inside = pa.struct([("days", pa.list_(pa.date32())), ("at", pa.map_(pa.string(), local))])
    least, most = -(2**63), 2**63 - 1
    days = pa.array([-(2**31), 2**31 - 1], pa.int32()).cast(pa.date32())
    parts = [
        pa.ListArray.from_arrays([0, 1, 2], days),
        pa.MapArray.from_arrays([0, 1, 2], ["k", "k"], pa.array([most, least]).cast(local)),
    ]
    nested = pa.StructArray.from_arrays(parts, ["days", "at"]).cast(inside)
    schema = pa.schema([("at", moment), ("day", pa.date32()), ("inside", inside)])
    rows = pa.table([pa.array([least, most]).cast(moment), days, nested], schema=schema)
    text = encode_avro_schema(schema, table="t")
    assert decode_records(encode_records(rows, text), 2, text).equals(rows)


def test_a_map_with_a_key_twice_is_refused() -> None:
    twice = pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int32()))
    schema = pa.schema([("m", twice.type)])
    with pytest.raises(InvalidInputError, match=r"A map has a key twice.*'k'"):
        encode_records(pa.table([twice], schema=schema), encode_avro_schema(schema, table="t"))


def test_only_the_columns_asked_for_are_returned_in_the_order_of_the_schema() -> None:
    table = pa.table({"a": ["x", "yy"], "b": [1, 2], "c": ["zzz", None]})
    text = encode_avro_schema(table.schema, table="t")
    encoded = encode_records(table, text)
    assert decode_records(encoded, 2, text, ["c", "a", "absent"]).to_pylist() == [
        {"a": "x", "c": "zzz"},
        {"a": "yy", "c": None},
    ]
    assert decode_records(encoded, 2, text, []).num_rows == 2


def test_columns_are_matched_by_name_and_widened() -> None:
    text = encode_avro_schema(pa.schema({"a": pa.string(), "b": pa.int64()}), table="t")
    table = pa.table(
        {"b": pa.array([1, 2], pa.int32()), "a": pa.array(["x", "y"]).dictionary_encode()}
    )
    assert decode_records(encode_records(table, text), 2, text).to_pylist() == [
        {"a": "x", "b": 1},
        {"a": "y", "b": 2},
    ]


def test_slices_of_a_table_are_encoded_from_where_they_begin() -> None:
    table = pa.table(
        {
            "s": ["a", "bb", None, "dddd"],
            "d": pa.array([Decimal(n) for n in range(4)], pa.decimal128(9, 0)),
            "b": [True, None, False, True],
        }
    )
    text = encode_avro_schema(table.schema, table="t")
    assert decode_records(encode_records(table[2:], text), 2, text).equals(table[2:])


def test_rows_that_do_not_fit_the_schema_are_refused() -> None:
    required = json.dumps(
        {"type": "record", "name": "r", "fields": [{"name": "a", "type": "string"}]}
    )
    with pytest.raises(InvalidInputError, match="lack the columns a"):
        encode_records(pa.table({"b": [1]}), required)
    with pytest.raises(InvalidInputError):
        encode_records(pa.table({"a": pa.array([None], pa.string())}), required)
    narrow = encode_avro_schema(pa.schema({"a": pa.int32()}), table="t")
    with pytest.raises(InvalidInputError, match="do not fit the schema"):
        encode_records(pa.table({"a": [2**40]}), narrow)


@pytest.mark.parametrize(
    ("data", "row_count", "problem"),
    [
        (b"\x00\x00\x00\x02\x02\x00", 2, "records"),
        (b"\x00\x00\x00\x02\x02\x00", 0, "end at offset 0 of 6"),
        (b"\xff\xff\xff\xff", 1, "a record of -1 bytes"),
        (b"\x00\x00\x00\x02\x04\x00", 1, "no branch"),
        (b"\x00\x00\x00\x02\x02\x08", 1, "beyond the end"),
        (b"\x00\x00\x00\x02\x02\x01", 1, "beyond the end"),
        (b"\x00\x00\x00\x03\x02\x00\x00", 1, "elsewhere"),
        (b"\x00\x00\x00\x03\x02\x02\xff", 1, "no UTF-8"),
        (b"\x00\x00\x00\x0c\x02" + b"\xff" * 10 + b"\x00", 1, "more than 64 bits"),
    ],
)
def test_malformed_records_are_refused(data: bytes, row_count: int, problem: str) -> None:
    text = encode_avro_schema(pa.schema({"a": pa.string()}), table="t")
    with pytest.raises(MalformedAvroError, match=problem):
        decode_records(data, row_count, text)
