"""Delete records: the bytes of rule 5.3, by columns and through fastavro alike."""

from __future__ import annotations

import datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import InvalidInputError
from headwater.format.avro.binary import MalformedAvroError
from headwater.format.log import delete_records
from headwater.format.log.delete_records import (
    DeleteRecords,
    decode_delete_records,
    encode_delete_records,
)

WRAPPER_NAMES = [
    "BooleanWrapper",
    "IntWrapper",
    "LongWrapper",
    "FloatWrapper",
    "DoubleWrapper",
    "BytesWrapper",
    "StringWrapper",
    "DateWrapper",
    "DecimalWrapper",
    "TimeMicrosWrapper",
    "TimestampMicrosWrapper",
]
WRAPPER_TYPES = [
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "bytes",
    "string",
    {"type": "int", "logicalType": "date"},
    {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-micros"},
]


def hudi_schema() -> Any:
    """Return the schema as Hudi has it, logical types included."""

    def record(name: str, field: str, avro: Any) -> dict[str, Any]:
        return {"type": "record", "name": name, "fields": [{"name": field, "type": avro}]}

    wrappers = [
        record(name, "value", avro) for name, avro in zip(WRAPPER_NAMES, WRAPPER_TYPES, strict=True)
    ]
    local_date = record("LocalDateWrapper", "value", "int")
    items = {"type": "array", "items": ["null", *WRAPPER_NAMES, local_date]}
    ordering = ["null", *wrappers, record("ArrayWrapper", "wrappedValues", ["null", items])]
    deleted = {
        "type": "record",
        "name": "HoodieDeleteRecord",
        "fields": [
            {"name": "recordKey", "type": ["null", "string"], "default": None},
            {"name": "partitionPath", "type": ["null", "string"], "default": None},
            {"name": "orderingVal", "type": ordering, "default": None},
        ],
    }
    whole = record(
        "HoodieDeleteRecordList", "deleteRecordList", {"type": "array", "items": deleted}
    )
    return fastavro.parse_schema(whole)


SCHEMA = hudi_schema()


def by_fastavro(records: list[tuple[str | None, str | None, Any]]) -> bytes:
    out = BytesIO()
    listed = [
        {"recordKey": key, "partitionPath": partition, "orderingVal": ordering}
        for key, partition, ordering in records
    ]
    fastavro.schemaless_writer(out, SCHEMA, {"deleteRecordList": listed})
    return out.getvalue()


def texts(values: list[str]) -> pa.Array:
    return pa.array(values, pa.string())


def decode(payload: bytes) -> DeleteRecords:
    return decode_delete_records(memoryview(payload))


KEYS = st.lists(st.text(max_size=20) | st.sampled_from(["a", "\x02\x00\x04"]), max_size=8)


def test_the_example_of_rule_5_3() -> None:
    payload = encode_delete_records(texts(["TXN-005"]), texts(["region=eu"]), None)
    assert payload == b"\x02\x02\x0eTXN-005\x02\x12region=eu\x04\x00\x00"
    assert encode_delete_records(texts([]), texts([]), None) == b"\x00"


@settings(deadline=None)
@given(KEYS, st.text(max_size=8))
def test_deletes_without_ordering(keys: list[str], partition: str) -> None:
    partitions = [partition] * len(keys)
    payload = encode_delete_records(texts(keys), texts(partitions), None)
    default = ("IntWrapper", {"value": 0})
    assert payload == by_fastavro([(key, partition, default) for key in keys])
    assert decode(payload) == (texts(keys), texts(partitions), None)


ORDERINGS: list[tuple[pa.DataType, str, list[Any]]] = [
    (pa.bool_(), "BooleanWrapper", [True, False, True]),
    (pa.int32(), "IntWrapper", [1, -(2**31), 2**31 - 1]),
    (pa.int64(), "LongWrapper", [0, -(2**63), 2**63 - 1]),
    (pa.float32(), "FloatWrapper", [0.5, -1.0, 1024.0]),
    (pa.float64(), "DoubleWrapper", [0.1, -1e300, 0.0]),
    (pa.binary(), "BytesWrapper", [b"", b"\x00\xff", b"x" * 200]),
    (pa.string(), "StringWrapper", ["", "ä", "x" * 200]),
    (pa.date32(), "DateWrapper", [datetime.date(1970, 1, 1), datetime.date(2026, 1, 1)] * 2),
    (
        pa.decimal128(30, 15),
        "DecimalWrapper",
        [Decimal("0.000000000000000"), Decimal("-123456789012345.123456789012345")],
    ),
    (pa.time64("us"), "TimeMicrosWrapper", [datetime.time(1, 2, 3, 4), datetime.time(0)]),
]


@pytest.mark.parametrize(("arrow", "wrapper", "values"), ORDERINGS, ids=lambda value: str(value))
def test_every_ordering_type_has_its_wrapper(
    arrow: pa.DataType, wrapper: str, values: list[Any]
) -> None:
    keys = texts([f"key-{at}" for at in range(len(values))])
    partitions = texts(["p"] * len(values))
    ordering = pa.array(values, arrow)
    payload = encode_delete_records(keys, partitions, [ordering])
    assert payload == by_fastavro(
        [(f"key-{at}", "p", (wrapper, {"value": value})) for at, value in enumerate(values)]
    )
    assert decode(payload) == (keys, partitions, (ordering,))
    # The fallback must agree with the columnar way.
    assert delete_records._decode_any(memoryview(payload)) == (keys, partitions, (ordering,))


def test_common_shapes_never_take_the_slow_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: memoryview) -> DeleteRecords:
        raise AssertionError("fastavro was asked")

    monkeypatch.setattr(delete_records, "_decode_any", refuse)
    keys = texts([f"key-{at}" * (at % 5 + 1) for at in range(3000)])
    for partition in ("", "region=eu/day=1"):
        partitions = texts([partition] * 3000)
        for ordering in (None, pa.array(np.arange(3000) - 1500), texts(keys.to_pylist())):
            payload = encode_delete_records(keys, partitions, ordering and [ordering])
            assert decode(payload) == (keys, partitions, ordering and (ordering,))


def test_timestamps_are_written_as_the_number_their_column_stores() -> None:
    for unit in ("us", "ms"):
        values = pa.array([1_700_000_000_000, 5], pa.timestamp(unit, tz="UTC"))
        payload = encode_delete_records(texts(["a", "b"]), texts(["", ""]), [values])
        assert payload == by_fastavro(
            [
                ("a", "", ("LongWrapper", {"value": 1_700_000_000_000})),
                ("b", "", ("LongWrapper", {"value": 5})),
            ]
        )
        found = decode(payload).ordering
        assert found is not None
        assert found[0].cast(values.type) == values


def test_a_timestamp_wrapper_is_read() -> None:
    moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    found = decode(by_fastavro([("a", "", ("TimestampMicrosWrapper", {"value": moment}))]))
    assert found.ordering == (pa.array([moment], pa.timestamp("us", tz="UTC")),)


def test_a_row_without_ordering_value_is_a_commit_time_delete() -> None:
    ordering = pa.array([5, None, 0], pa.int64())
    keys, partitions = texts(["a", "b", "c"]), texts(["p"] * 3)
    payload = encode_delete_records(keys, partitions, [ordering])
    assert payload == by_fastavro(
        [
            ("a", "p", ("LongWrapper", {"value": 5})),
            ("b", "p", ("IntWrapper", {"value": 0})),
            ("c", "p", ("LongWrapper", {"value": 0})),
        ]
    )
    assert decode(payload) == (keys, partitions, (ordering,))


def test_int_zero_is_the_default_whatever_was_meant() -> None:
    ordering = pa.array([3, 0], pa.int32())
    payload = encode_delete_records(texts(["a", "b"]), texts(["", ""]), [ordering])
    assert decode(payload).ordering == (pa.array([3, None], pa.int32()),)


def test_several_ordering_fields_are_an_array() -> None:
    first = pa.array([5, None, 7], pa.int64())
    second = texts(["x", "y", "z"]).take(pa.array([0, None, None]))
    keys, partitions = texts(["a", "b", "c"]), texts(["p"] * 3)
    payload = encode_delete_records(keys, partitions, [first, second])

    def listed(*items: Any) -> Any:
        return ("ArrayWrapper", {"wrappedValues": list(items)})

    assert payload == by_fastavro(
        [
            ("a", "p", listed(("LongWrapper", {"value": 5}), ("StringWrapper", {"value": "x"}))),
            ("b", "p", ("IntWrapper", {"value": 0})),
            ("c", "p", listed(("LongWrapper", {"value": 7}), None)),
        ]
    )
    assert decode(payload) == (keys, partitions, (first, second))


def test_mixed_partitions_and_widths_are_read() -> None:
    found = decode(
        by_fastavro(
            [
                ("a", "p", ("IntWrapper", {"value": 5})),
                ("b", "q", ("LongWrapper", {"value": 2**40})),
                ("c", None, None),
            ]
        )
    )
    assert found.record_keys == texts(["a", "b", "c"])
    assert found.partition_paths == texts(["p", "q", ""])
    assert found.ordering == (pa.array([5, 2**40, None], pa.int64()),)


@given(KEYS, st.lists(st.binary(max_size=3), max_size=3), st.integers(0, 60))
def test_damaged_payloads_are_refused_or_decode(
    keys: list[str], noise: list[bytes], at: int
) -> None:
    payload = encode_delete_records(texts(keys), texts(["p"] * len(keys)), None)
    damaged = payload[:at] + b"".join(noise) + payload[at + 1 :]
    try:
        found = decode(damaged)
    except MalformedAvroError:
        return
    assert len(found.record_keys) == len(found.partition_paths)


@pytest.mark.parametrize("wrapper", ["IntWrapper", "DateWrapper"])
def test_a_number_that_its_type_does_not_have_is_refused(wrapper: str) -> None:
    """Records that differ are read one by one, and Avro's numbers have no end of their own."""
    fits: list[Any] = [("a", "p", (wrapper, {"value": 1})), ("b", "q", (wrapper, {"value": 2}))]
    payload = by_fastavro(fits)
    assert decode(payload).record_keys == texts(["a", "b"])
    at = payload.rindex(b"\x04")  # The 2, in zigzag.
    too_large = b"\x80\x80\x80\x80\x10"  # 2 ** 31
    with pytest.raises(MalformedAvroError, match="that its type does not have"):
        decode(payload[:at] + too_large + payload[at + 1 :])


def test_what_cannot_be_written_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="got null"):
        encode_delete_records(pa.array([None], pa.string()), texts([""]), None)
    with pytest.raises(InvalidInputError, match="differ in number"):
        encode_delete_records(texts(["a"]), texts([]), None)
    with pytest.raises(InvalidInputError, match="cannot order deletes"):
        encode_delete_records(texts(["a"]), texts([""]), [pa.array([[1]])])
    wide = pa.array([Decimal(10**20)], pa.decimal128(38, 0))
    with pytest.raises(InvalidInputError, match="does not fit"):
        encode_delete_records(texts(["a"]), texts([""]), [wide])
