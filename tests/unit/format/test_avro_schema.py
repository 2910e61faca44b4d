"""Arrow schemas as Avro JSON and back."""

from __future__ import annotations

import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import InvalidInputError
from headwater.format.avro.schema import encode_avro_schema, parse_avro_schema

names = st.sampled_from(["a", "B", "_c", "a1", "fixed", "element", "value", "t_record"])
plain_types = st.one_of(
    st.sampled_from(
        [
            pa.bool_(),
            pa.int32(),
            pa.int64(),
            pa.float32(),
            pa.float64(),
            pa.string(),
            pa.binary(),
            pa.date32(),
            pa.timestamp("us", tz="UTC"),
            pa.timestamp("ms", tz="UTC"),
            pa.timestamp("us"),
            pa.timestamp("ms"),
        ]
    ),
    st.integers(1, 20).map(pa.binary),
    st.integers(1, 38).flatmap(
        lambda precision: st.integers(0, precision).map(lambda s: pa.decimal128(precision, s))
    ),
)


def fields_of(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[list[pa.Field]]:
    return st.lists(st.tuples(names, types, st.booleans()), min_size=1, max_size=4).map(
        lambda drawn: [
            pa.field(name, arrow, nullable=nullable)
            for name, (arrow, nullable) in {n: (a, b) for n, a, b in drawn}.items()
        ]
    )


arrow_types = st.recursive(
    plain_types,
    lambda inner: st.one_of(
        st.tuples(inner, st.booleans()).map(
            lambda drawn: pa.list_(pa.field("element", drawn[0], nullable=drawn[1]))
        ),
        st.tuples(inner, st.booleans()).map(
            lambda drawn: pa.map_(pa.string(), pa.field("value", drawn[0], nullable=drawn[1]))
        ),
        fields_of(inner).map(pa.struct),
    ),
    max_leaves=6,
)


@given(fields_of(arrow_types).map(pa.schema))
def test_a_schema_survives_avro(schema: pa.Schema) -> None:
    encoded = encode_avro_schema(schema, table="t")
    assert parse_avro_schema(encoded).equals(schema)
    # A second implementation accepts the names and the nesting.
    fastavro.parse_schema(json.loads(encoded))


def one_column(arrow: pa.DataType, *, nullable: bool = False) -> Any:
    schema = pa.schema([pa.field("c", arrow, nullable=nullable)])
    return json.loads(encode_avro_schema(schema, table="t"))["fields"][0]


def test_the_record_is_named_after_the_table() -> None:
    encoded = encode_avro_schema(pa.schema([pa.field("id", pa.int32())]), table="trips")
    assert encoded == (
        '{"type":"record","name":"trips_record","namespace":"hoodie.trips",'
        '"fields":[{"name":"id","type":["null","int"],"default":null}]}'
    )


@pytest.mark.parametrize(
    ("table", "record"), [("my-table", "my__table"), ("9lives", "__lives"), ("a.b c", "a__b__c")]
)
def test_a_tables_name_is_masked_where_avro_forbids_it(table: str, record: str) -> None:
    encoded = json.loads(encode_avro_schema(pa.schema([("id", pa.int32())]), table=table))
    assert encoded["name"] == f"{record}_record"
    assert encoded["namespace"] == f"hoodie.{record}"


def test_a_column_that_is_not_nullable_has_neither_union_nor_default() -> None:
    assert one_column(pa.string()) == {"name": "c", "type": "string"}


@pytest.mark.parametrize(
    ("precision", "size"), [(1, 1), (2, 1), (3, 2), (9, 4), (10, 5), (15, 7), (18, 8), (38, 16)]
)
def test_a_decimal_is_a_fixed_of_the_fewest_bytes(precision: int, size: int) -> None:
    assert one_column(pa.decimal128(precision, 1))["type"] == {
        "type": "fixed",
        "name": "fixed",
        "namespace": "hoodie.t.t_record.c",
        "size": size,
        "logicalType": "decimal",
        "precision": precision,
        "scale": 1,
    }


def test_nested_records_are_named_after_their_columns() -> None:
    inner = pa.struct([pa.field("deep", pa.struct([("x", pa.int64())]))])
    array = one_column(pa.list_(inner), nullable=True)["type"][1]["items"][1]
    assert (array["name"], array["namespace"]) == ("c", "hoodie.t.t_record")
    deep = array["fields"][0]["type"][1]
    assert (deep["name"], deep["namespace"]) == ("deep", "hoodie.t.t_record.c")


@pytest.mark.parametrize(
    ("wide", "stored"),
    [
        (pa.int8(), pa.int32()),
        (pa.uint16(), pa.int32()),
        (pa.uint32(), pa.int64()),
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.large_list(pa.int8()), pa.list_(pa.int32())),
        (pa.dictionary(pa.int32(), pa.string()), pa.string()),
        (pa.timestamp("us", tz="Europe/Paris"), pa.timestamp("us", tz="UTC")),
        (pa.decimal256(20, 3), pa.decimal128(20, 3)),
    ],
)
def test_avro_is_the_narrower_of_the_two(wide: pa.DataType, stored: pa.DataType) -> None:
    encoded = encode_avro_schema(pa.schema([("c", wide)]), table="t")
    assert parse_avro_schema(encoded).field("c").type == stored


@pytest.mark.parametrize(
    ("arrow", "path"),
    [
        (pa.uint64(), "c"),
        (pa.float16(), "c"),
        (pa.null(), "c"),
        (pa.time64("us"), "c"),
        (pa.timestamp("ns"), "c"),
        (pa.timestamp("s", tz="UTC"), "c"),
        (pa.duration("ms"), "c"),
        (pa.decimal256(39, 3), "c"),
        (pa.decimal128(5, -1), "c"),
        (pa.map_(pa.int32(), pa.string()), "c"),
        (pa.list_(pa.struct([("x", pa.uint64())])), "c.element.x"),
        (pa.map_(pa.string(), pa.list_(pa.null())), "c.value.element"),
    ],
)
def test_what_avro_cannot_say_is_refused_with_its_path(arrow: pa.DataType, path: str) -> None:
    with pytest.raises(InvalidInputError, match=f"Column '{path}' has a type that"):
        encode_avro_schema(pa.schema([("c", arrow)]), table="t")


@pytest.mark.parametrize("name", ["", "1st", "naïve", "a.b", "a b", "a\n"])
def test_a_name_that_avro_forbids_is_refused(name: str) -> None:
    schema = pa.schema([("c", pa.struct([pa.field(name, pa.int32())]))])
    with pytest.raises(InvalidInputError, match="Rename the column"):
        encode_avro_schema(schema, table="t")


def test_a_column_that_comes_twice_is_refused() -> None:
    schema = pa.schema([pa.field("c", pa.int32()), pa.field("c", pa.int64())])
    with pytest.raises(InvalidInputError, match="'c' comes twice"):
        encode_avro_schema(schema, table="t")


def avro(column: Any) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": [{"name": "c", "type": column}]}


@pytest.mark.parametrize(
    ("column", "arrow", "nullable"),
    [
        (["string", "null"], pa.string(), True),
        (["null", "string"], pa.string(), True),
        (["string"], pa.string(), False),
        ({"type": "string", "avro.java.string": "String"}, pa.string(), False),
        ({"type": "string", "logicalType": "uuid"}, pa.string(), False),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, pa.string(), False),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            pa.decimal128(9, 2),
            False,
        ),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9}, pa.decimal128(9, 0), False),
        ({"type": "fixed", "name": "f", "size": 3}, pa.binary(3), False),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, pa.timestamp("ms"), False),
    ],
)
def test_avro_of_other_writers_is_read(column: Any, arrow: pa.DataType, nullable: bool) -> None:
    field = parse_avro_schema(avro(column)).field("c")
    assert field.type == arrow
    assert field.nullable is nullable


@pytest.mark.parametrize("reference", ["point", "geo.point"])
def test_a_named_type_may_be_used_again(reference: str) -> None:
    schema = parse_avro_schema(
        {
            "type": "record",
            "name": "r",
            "namespace": "geo",
            "fields": [
                {
                    "name": "start",
                    "type": {
                        "type": "record",
                        "name": "point",
                        "fields": [{"name": "x", "type": "double"}],
                    },
                },
                {"name": "end", "type": ["null", reference]},
            ],
        }
    )
    assert schema.field("end").type == schema.field("start").type


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (["null", "int", "string"], "a union of 2 types"),
        (["null"], "a union of 0 types"),
        ("null", "null"),
        ("unknown", "define each type before its use"),
        ("r", "define each type before its use"),
        ({"type": "int", "logicalType": "time-millis"}, "time-millis"),
        ({"type": "array"}, "None is no type"),
        ({"type": "record", "name": "x"}, "a record needs fields"),
        ({"type": "record", "fields": []}, "a record needs a name"),
        ({"type": "fixed", "name": "f", "size": "3"}, "a fixed of size '3'"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3}, "decimal(2, 3)"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 60}, "decimal(60, 0)"),
        (7, "7 is no type"),
    ],
)
def test_avro_without_counterpart_is_refused_with_its_path(column: Any, reason: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_avro_schema(avro(column))
    assert "'c" in str(caught.value)
    assert reason in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", '"int"', '{"type":"array","items":"int"}'])
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_avro_schema(text)


def test_bottomless_nesting_is_refused_not_suffered() -> None:
    column: Any = "int"
    for _ in range(100):
        column = {"type": "array", "items": column}
    with pytest.raises(InvalidInputError, match="nested too deeply"):
        parse_avro_schema(avro(column))
    with pytest.raises(InvalidInputError):
        parse_avro_schema('{"type":' * 100_000)
