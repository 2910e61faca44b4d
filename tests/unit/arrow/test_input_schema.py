"""Rows as people have them, brought to the types that tables store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headwater.arrow.input_schema import check_values, normalise_rows, stored_schema
from headwater.errors import InvalidInputError
from headwater.format.avro.schema import encode_avro_schema, parse_avro_schema

NOON = datetime(2024, 1, 2, 12, 0, 0, 5000)
UTC_NOON = NOON.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "values", "expected", "shown"),
    [
        (pa.int8(), [-1], pa.int32(), [-1]),
        (pa.uint16(), [65535], pa.int32(), [65535]),
        (pa.uint32(), [2**32 - 1], pa.int64(), [2**32 - 1]),
        (pa.float16(), [1.5], pa.float32(), [1.5]),
        (pa.large_string(), ["é"], pa.string(), ["é"]),
        (pa.string_view(), ["é", None], pa.string(), ["é", None]),
        (pa.dictionary(pa.int8(), pa.large_string()), ["a", None], pa.string(), ["a", None]),
        (pa.large_binary(), [b"x"], pa.binary(), [b"x"]),
        (pa.binary_view(), [b"x"], pa.binary(), [b"x"]),
        (pa.binary(2), [b"xy"], pa.binary(), [b"xy"]),
        (pa.uuid(), [b"0123456789abcdef"], pa.binary(), [b"0123456789abcdef"]),
        (pa.date64(), [date(2024, 1, 2)], pa.date32(), [date(2024, 1, 2)]),
        (pa.timestamp("s"), [datetime(2024, 1, 2)], pa.timestamp("us"), [datetime(2024, 1, 2)]),
        (pa.timestamp("ms"), [NOON], pa.timestamp("us"), [NOON]),
        (pa.timestamp("ns", tz="UTC"), [UTC_NOON], pa.timestamp("us", tz="UTC"), [UTC_NOON]),
        (pa.timestamp("us", tz="Asia/Tokyo"), [UTC_NOON], pa.timestamp("us", tz="UTC"), [UTC_NOON]),
        (pa.decimal64(9, 2), [Decimal("1.50")], pa.decimal128(9, 2), [Decimal("1.50")]),
        (pa.decimal256(38, 2), [Decimal("1.50")], pa.decimal128(38, 2), [Decimal("1.50")]),
        (pa.large_list(pa.int8()), [[1], None], pa.list_(pa.int32()), [[1], None]),
        (pa.list_(pa.uint8(), 2), [[1, 2]], pa.list_(pa.int32()), [[1, 2]]),
        (pa.map_(pa.large_string(), pa.int16()), [[("a", 1)]], pa.map_(pa.string(), pa.int32()),
         [[("a", 1)]]),
        (pa.struct([("f", pa.large_string())]), [{"f": "a"}, None],
         pa.struct([("f", pa.string())]), [{"f": "a"}, None]),
    ],
    ids=str,
)  # fmt: skip
def test_types_are_brought_to_those_of_tables(
    given: pa.DataType, values: list[Any], expected: pa.DataType, shown: list[Any]
) -> None:
    rows = pa.table({"c": pa.array(values, given)})
    found = normalise_rows(rows)
    assert found.schema.field("c").type == expected
    assert found.column("c").to_pylist() == shown
    batch = normalise_rows(rows.to_batches()[0])
    assert isinstance(batch, pa.RecordBatch)
    assert batch.schema.equals(found.schema)
    encoded = encode_avro_schema(found.schema, table="t")
    assert parse_avro_schema(encoded).equals(found.schema)


def test_run_ends_are_decoded() -> None:
    runs = pa.RunEndEncodedArray.from_arrays([2, 3], pa.array(["a", "b"], pa.large_string()))
    found = normalise_rows(pa.table({"c": runs}))
    assert found.schema.field("c").type == pa.string()
    assert found.column("c").to_pylist() == ["a", "a", "b"]


@pytest.mark.parametrize(
    ("arrow", "advice"),
    [
        (pa.uint64(), "int64 or decimal"),
        (pa.time32("ms"), "number or as text"),
        (pa.time64("us"), "number or as text"),
        (pa.duration("us"), "number or as text"),
        (pa.decimal256(50, 2), "decimal"),
        (pa.decimal128(5, -2), "decimal"),
        (pa.map_(pa.int32(), pa.int32()), "string keys"),
        (pa.struct([]), "give it a field"),
        (pa.month_day_nano_interval(), "type of Avro"),
        (pa.list_view(pa.int32()), "type of Avro"),
    ],
    ids=str,
)
def test_other_types_are_refused_with_their_path(arrow: pa.DataType, advice: str) -> None:
    schema = pa.schema([("c", pa.struct([("f", pa.list_(arrow))]))])
    with pytest.raises(InvalidInputError, match=rf"Column c\.f\.element has the type .*{advice}"):
        stored_schema(schema)


def test_digits_are_not_dropped() -> None:
    exact = pa.array([1001], pa.timestamp("ns"))
    with pytest.raises(InvalidInputError, match=r"Column c cannot be turned from .* lose data"):
        normalise_rows(pa.table({"c": exact}))


def test_a_column_without_values_takes_the_type_of_the_table() -> None:
    table = pa.schema(
        [("a", pa.date32()), ("l", pa.list_(pa.int32())), ("s", pa.struct([("f", pa.string())]))]
    )
    rows = pa.table({"a": pa.nulls(2), "l": [[], [None]], "s": [{"f": None}, None]})
    found = normalise_rows(rows, table)
    assert found.schema.equals(table)
    assert found.to_pylist() == rows.to_pylist()
    assert stored_schema(rows.schema).field("a").type == pa.null()


def test_rows_that_fit_are_not_touched() -> None:
    rows = pa.table({"a": [1], "b": ["x"]})
    assert normalise_rows(rows) is rows


def test_nullability_stays_and_metadata_goes() -> None:
    field = pa.field("a", pa.int16(), nullable=False, metadata={"made": "elsewhere"})
    found = stored_schema(pa.schema([field], metadata={"pandas": "{}"}))
    assert found.equals(pa.schema([pa.field("a", pa.int32(), nullable=False)]), check_metadata=True)


def test_a_column_that_comes_twice_is_refused() -> None:
    twice = pa.table([pa.array([1], pa.int8()), pa.array([2], pa.int8())], names=["a", "a"])
    with pytest.raises(InvalidInputError, match="Column a comes twice"):
        normalise_rows(twice)


def test_times_of_day_and_durations_from_python_are_refused_by_name() -> None:
    for value in (time(1, 2), timedelta(seconds=1)):
        with pytest.raises(InvalidInputError, match="Column c has the type"):
            normalise_rows(pa.table({"c": [value]}))


NO_TEXT = pa.array([b"\xff"], pa.binary()).view(pa.string())
TOO_LARGE = pa.array([Decimal("1234.50")], pa.decimal128(6, 2)).view(pa.decimal128(5, 2))
ONE = pa.array([0, 1], pa.int32())


@pytest.mark.parametrize("inner", [NO_TEXT, TOO_LARGE])
@pytest.mark.parametrize(
    "wrapped",
    [
        lambda values: values,
        lambda values: pa.DictionaryArray.from_arrays(pa.array([0]), values, safe=False),
        lambda values: pa.ListArray.from_arrays(ONE, values),
        lambda values: pa.StructArray.from_arrays([pa.ListArray.from_arrays(ONE, values)], ["x"]),
        lambda values: pa.MapArray.from_arrays(ONE, pa.array(["k"]), values),
    ],
)
def test_what_is_no_value_of_its_type_is_refused(
    wrapped: Callable[[pa.Array], pa.Array], inner: pa.Array
) -> None:
    rows = pa.table({"id": ["a"], "v": wrapped(inner)})
    for given in (rows, rows.to_batches()[0]):
        with pytest.raises(
            InvalidInputError, match=r"Column v holds .* (UTF8|does not fit in prec)"
        ):
            check_values(given)


def test_bytes_of_any_layout_are_values_and_so_is_what_no_slice_shows() -> None:
    check_values(pa.table({"v": [b"\xff"]}))
    check_values(pa.table({"v": pa.concat_arrays([pa.array(["a"]), NO_TEXT])}).slice(0, 1))
