"""Schemas as Spark writes them: DDL text and JSON."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as spark

from headwater.arrow.spark_schema import (
    COMMENT,
    ddl_of_schema,
    schema_from_ddl,
    schema_from_spark_json,
)
from headwater.errors import InvalidInputError


def test_a_schema_of_every_type() -> None:
    found = schema_from_ddl(
        "a boolean, b BYTE, c smallint, d int, e LONG, f float, g double, h string, i binary,"
        "j date, k timestamp, l timestamp_ntz, m decimal, n decimal(5), o decimal( 20 , 3 ),"
        "p varchar(10), q array<int>, r map<string, array<double>>,"
        "s struct<x:int, y: string NOT NULL COMMENT 'in', `z z` struct<w bigint>>"
    )
    assert found.equals(
        pa.schema(
            [
                ("a", pa.bool_()),
                ("b", pa.int32()),
                ("c", pa.int32()),
                ("d", pa.int32()),
                ("e", pa.int64()),
                ("f", pa.float32()),
                ("g", pa.float64()),
                ("h", pa.string()),
                ("i", pa.binary()),
                ("j", pa.date32()),
                ("k", pa.timestamp("us", tz="UTC")),
                ("l", pa.timestamp("us")),
                ("m", pa.decimal128(10, 0)),
                ("n", pa.decimal128(5, 0)),
                ("o", pa.decimal128(20, 3)),
                ("p", pa.string()),
                ("q", pa.list_(pa.int32())),
                ("r", pa.map_(pa.string(), pa.list_(pa.float64()))),
                (
                    "s",
                    pa.struct(
                        [
                            ("x", pa.int32()),
                            pa.field("y", pa.string(), nullable=False),
                            ("z z", pa.struct([("w", pa.int64())])),
                        ]
                    ),
                ),
            ]
        )
    )


def test_not_null_and_comments() -> None:
    found = schema_from_ddl("""id: long not null comment 'it\\'s', `a``b` int COMMENT "x, y" """)
    assert found.names == ["id", "a`b"]
    assert not found.field("id").nullable
    assert found.field("id").metadata == {COMMENT: b"it's"}
    assert found.field("a`b").metadata == {COMMENT: b"x, y"}


def test_a_struct_around_the_columns_is_taken_off() -> None:
    assert schema_from_ddl("struct<id:bigint,s:string>").names == ["id", "s"]
    assert schema_from_ddl("struct int").names == ["struct"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the name of a column at character 0, got the end"),
        ("id", "a type at character 2, got the end"),
        ("id long,", "the name of a column at character 8"),
        ("id long name string", "a comma or the end at character 8"),
        ("id array<int", "'>' at character 12"),
        ("id array<>", "a type at character 9"),
        ("id map<string>", "',' at character 13"),
        ("id list<int>", "array<, map< or struct<"),
        ("id decimal(x)", "a number"),
        (f"id decimal({'9' * 5000})", "a number of at most ten digits"),
        ("id int NOT", "NULL after NOT"),
        ("id int COMMENT x", "a quoted comment"),
        ("id int; drop", "a name or a type"),
        ("id struct<>", "the name of a column"),
        ("id int, id long", "Column id comes twice"),
        ("s struct<a:int,a:int>", "Column s.a comes twice"),
        ("id uuid", "Column id .* uuid; use one of"),
        ("id int(3)", r"Column id .* int\(3\)"),
        ("id interval", "Column id .* interval"),
        ("s struct<a:array<void>>", r"Column s\.a\.element .* void"),
        ("d decimal(39,1)", r"Column d .* decimal\(39,1\)"),
        ("d decimal(3,4)", r"Column d .* decimal\(3,4\)"),
        ("m map<int,int>", "Column m .* string keys"),
        ("a " + "array<" * 100 + "int" + ">" * 100, "nested too deeply"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        schema_from_ddl(text)


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
            pa.timestamp("us"),
        ]
    ),
    st.integers(1, 38).flatmap(
        lambda precision: st.integers(0, precision).map(lambda s: pa.decimal128(precision, s))
    ),
)
comments = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


def fields_of(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[list[pa.Field]]:
    names = st.text(st.sampled_from("aB_1 `<,:é'"), min_size=1, max_size=4)
    return st.lists(
        st.tuples(names, types, st.booleans(), comments),
        min_size=1,
        max_size=4,
        unique_by=lambda drawn: drawn[0],
    ).map(
        lambda drawn: [
            pa.field(
                name,
                arrow,
                nullable=nullable,
                metadata=None if comment is None else {COMMENT: comment.encode()},
            )
            for name, arrow, nullable, comment in drawn
        ]
    )


arrow_types = st.recursive(
    plain_types,
    lambda inner: st.one_of(
        inner.map(lambda arrow: pa.list_(pa.field("element", arrow))),
        inner.map(lambda arrow: pa.map_(pa.string(), pa.field("value", arrow))),
        fields_of(inner).map(pa.struct),
    ),
    max_leaves=5,
)


@given(fields_of(arrow_types).map(pa.schema))
def test_a_schema_survives_ddl(schema: pa.Schema) -> None:
    assert schema_from_ddl(ddl_of_schema(schema)).equals(schema, check_metadata=True)


def test_ddl_of_types_that_spark_has_one_name_for() -> None:
    schema = pa.schema([("a", pa.timestamp("ms", tz="UTC")), ("b", pa.binary(3))])
    assert ddl_of_schema(schema) == "`a` timestamp, `b` binary"
    with pytest.raises(InvalidInputError, match="Column t has the type time64"):
        ddl_of_schema(pa.schema([("t", pa.time64("us"))]))


SPARK_TYPE = spark.StructType(
    [
        spark.StructField("a", spark.ByteType()),
        spark.StructField("b", spark.LongType(), nullable=False, metadata={"comment": "key"}),
        spark.StructField("c", spark.DecimalType(12, 3)),
        spark.StructField("d", spark.ArrayType(spark.StringType(), containsNull=False)),
        spark.StructField("e", spark.MapType(spark.StringType(), spark.TimestampType())),
        spark.StructField("f", spark.StructType([spark.StructField("g", spark.VarcharType(3))])),
        spark.StructField("h", spark.TimestampNTZType()),
    ]
)


def test_json_of_spark_itself() -> None:
    found = schema_from_spark_json(SPARK_TYPE.json())
    expected = pa.schema(
        [
            pa.field("a", pa.int32()),
            pa.field("b", pa.int64(), nullable=False),
            pa.field("c", pa.decimal128(12, 3)),
            pa.field("d", pa.list_(pa.field("element", pa.string(), nullable=False))),
            pa.field("e", pa.map_(pa.string(), pa.timestamp("us", tz="UTC"))),
            pa.field("f", pa.struct([("g", pa.string())])),
            pa.field("h", pa.timestamp("us")),
        ]
    )
    assert found.equals(expected)
    assert found.field("b").metadata == {COMMENT: b"key"}


def test_ddl_of_spark_itself() -> None:
    assert schema_from_ddl(SPARK_TYPE.simpleString()).names == list("abcdefh")


@pytest.mark.parametrize(
    ("parsed", "problem"),
    [
        ("long", "must be a struct"),
        ({"type": "struct"}, "the schema has no type"),
        ({"type": "struct", "fields": [{"name": "a"}]}, "without a name or type"),
        ({"type": "struct", "fields": [{"name": "a", "type": "void"}]}, "Column a .* void"),
        ({"type": "struct", "fields": [{"name": "a", "type": {"type": "udt"}}]}, "user-defined"),
        ({"type": "struct", "fields": [{"name": "a", "type": 3}]}, "Column a has no type"),
        (
            {"type": "struct", "fields": [{"name": "a", "type": f"decimal({'9' * 5000},2)"}]},
            "Column a .* decimal",
        ),
        ({"type": "struct", "fields": [{"name": "a", "type": "int"}] * 2}, "Column a comes twice"),
    ],
)
def test_other_json_is_refused(parsed: Any, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        schema_from_spark_json(json.dumps(parsed))


def test_text_that_is_no_json_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="not JSON"):
        schema_from_spark_json("{")
