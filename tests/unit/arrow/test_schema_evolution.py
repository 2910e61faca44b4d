"""How a table's columns follow those of the rows that are written."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.arrow.schema_evolution import evolve_schema, project_batch
from headwater.errors import InvalidInputError

US = pa.timestamp("us", tz="UTC")
MS = pa.timestamp("ms", tz="UTC")


def column(arrow: pa.DataType, name: str = "c", *, nullable: bool = True) -> pa.Schema:
    return pa.schema([pa.field(name, arrow, nullable=nullable)])


def evolved(stored: pa.DataType, written: pa.DataType, *, allows_loss: bool = False) -> pa.DataType:
    schema = evolve_schema(column(stored), column(written), allows_loss=allows_loss)
    return schema.field("c").type


def elements(arrow: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", arrow))


def struct(arrow: pa.DataType) -> pa.DataType:
    return pa.struct([("f", arrow)])


def plain(arrow: pa.DataType) -> pa.DataType:
    return arrow


def values(arrow: pa.DataType) -> pa.DataType:
    return pa.map_(pa.string(), pa.field("value", arrow))


LOSSY_GROWTH = [
    (pa.int32(), pa.float32(), pa.float64()),
    (pa.int64(), pa.float32(), pa.float64()),
    (pa.int64(), pa.float64(), pa.float64()),
]
GROWTH = [
    (pa.int32(), pa.int64(), pa.int64()),
    (pa.float32(), pa.float64(), pa.float64()),
    (pa.decimal128(5, 2), pa.decimal128(9, 2), pa.decimal128(9, 2)),
]


@pytest.mark.parametrize(("narrow", "wide", "expected"), GROWTH)
def test_types_grow_whoever_is_narrower(
    narrow: pa.DataType, wide: pa.DataType, expected: pa.DataType
) -> None:
    for wrapped in (plain, elements, values, struct):
        assert evolved(wrapped(narrow), wrapped(wide)) == wrapped(expected)
        assert evolved(wrapped(wide), wrapped(narrow)) == wrapped(expected)
        assert evolved(wrapped(narrow), wrapped(narrow)) == wrapped(narrow)


@pytest.mark.parametrize(("integers", "floats", "expected"), LOSSY_GROWTH)
def test_integers_become_doubles_only_if_that_is_asked_for(
    integers: pa.DataType, floats: pa.DataType, expected: pa.DataType
) -> None:
    for wrapped in (plain, elements, values, struct):
        assert evolved(wrapped(integers), wrapped(floats)) == wrapped(integers)
        assert evolved(wrapped(floats), wrapped(integers)) == wrapped(expected)
        assert evolved(wrapped(integers), wrapped(floats), allows_loss=True) == wrapped(expected)


@pytest.mark.parametrize("wrapped", [plain, elements, values, struct])
def test_whole_numbers_and_nulls_become_the_integers_of_the_column(wrapped: Any) -> None:
    def wrap(value: int | None) -> Any:
        if wrapped is plain:
            return value
        if wrapped is struct:
            return {"f": value}
        return [value] if wrapped is elements else [("k", value)]

    numbers = [5, None, -(2**53) + 1, 0]
    rows = pa.table({"c": pa.array([wrap(n) for n in numbers], wrapped(pa.float64()))})
    found = project_batch(rows, column(wrapped(pa.int64())), rounds=False).column("c")
    assert found.to_pylist() == [wrap(n) for n in numbers]


@pytest.mark.parametrize("target", [pa.float32(), pa.float64()])
@pytest.mark.parametrize(
    "written",
    [
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.uint8(),
        pa.uint16(),
        pa.uint32(),
        pa.uint64(),
    ],
)
def test_integers_of_any_width_become_floating_numbers(
    written: pa.DataType, target: pa.DataType
) -> None:
    most = min(2**24 - 1, 2 ** (written.bit_width - 1) - 1)
    numbers = [most, None, 0 if pa.types.is_unsigned_integer(written) else -most]
    rows = pa.table({"c": pa.array(numbers, written)})
    found = project_batch(rows, column(target), rounds=False).column("c")
    assert found.to_pylist() == numbers


@pytest.mark.parametrize(
    ("value", "written", "target"),
    [
        (1.5, pa.float64(), pa.int64()),
        (float("nan"), pa.float64(), pa.int64()),
        (float("inf"), pa.float64(), pa.int32()),
        (2.0**53, pa.float64(), pa.int64()),
        (2.0**24, pa.float32(), pa.int64()),
        (2**53 + 1, pa.int64(), pa.float64()),
        (-(2**63), pa.int64(), pa.float64()),
        (2**24, pa.int32(), pa.float32()),
        (2**24, pa.uint32(), pa.float32()),
        (2**64 - 1, pa.uint64(), pa.float64()),
    ],
)
def test_a_number_that_may_change_is_refused(
    value: float, written: pa.DataType, target: pa.DataType
) -> None:
    rows = pa.table({"c": pa.array([None, 1, value], written)})
    with pytest.raises(InvalidInputError) as caught:
        project_batch(rows, column(target), rounds=False)
    text = str(caught.value)
    assert f"Column c is {target} in the table but {written} in the rows" in text
    assert f"the value {value} at position 2" in text
    assert "headwater.schema.allow.lossy.widening" in text


@pytest.mark.parametrize(
    ("stored", "written"),
    [(MS, US), (US, MS), (pa.binary(4), pa.binary()), (pa.int32(), pa.null())],
)
def test_types_whose_values_may_fit_leave_the_column_as_it_is(
    stored: pa.DataType, written: pa.DataType
) -> None:
    assert evolved(stored, written) == stored


@pytest.mark.parametrize(
    ("stored", "written"),
    [
        (pa.string(), pa.binary()),
        (pa.binary(), pa.string()),
        (pa.int32(), pa.string()),
        (pa.string(), pa.int32()),
        (pa.bool_(), pa.int32()),
        (pa.date32(), US),
        (US, pa.timestamp("us")),
        (pa.decimal128(5, 2), pa.decimal128(5, 3)),
        (pa.decimal128(5, 2), pa.int32()),
        (elements(pa.int32()), pa.int32()),
        (pa.struct([("f", pa.int32())]), values(pa.int32())),
    ],
)
def test_what_cannot_grow_is_refused(stored: pa.DataType, written: pa.DataType) -> None:
    outer = pa.struct([("inner", elements(stored))])
    with pytest.raises(InvalidInputError) as caught:
        evolved(outer, pa.struct([("inner", elements(written))]))
    text = str(caught.value)
    assert "Column c.inner.element " in text
    assert f"is {stored} in the table but {written} in the rows" in text
    assert f"Cast it to {stored}" in text


def test_new_columns_come_last_and_are_nullable() -> None:
    table = pa.schema(
        [pa.field("a", pa.int32(), nullable=False), ("s", pa.struct([("x", pa.int32())]))]
    )
    rows = pa.schema(
        [
            pa.field("z", pa.string(), nullable=False),
            ("s", pa.struct([pa.field("y", pa.string(), nullable=False), ("x", pa.int64())])),
        ]
    )
    assert evolve_schema(table, rows).equals(
        pa.schema(
            [
                pa.field("a", pa.int32(), nullable=False),
                ("s", pa.struct([("x", pa.int64()), ("y", pa.string())])),
                ("z", pa.string()),
            ]
        )
    )


def test_what_is_inside_of_new_columns_is_nullable() -> None:
    def nested(*, nullable: bool) -> pa.DataType:
        number = pa.field("n", pa.int32(), nullable=nullable)
        each = pa.field("element", pa.struct([number]), nullable=nullable)
        item = pa.field("value", pa.list_(each), nullable=nullable)
        return pa.struct([pa.field("m", pa.map_(pa.string(), item), nullable=nullable)])

    evolved = evolve_schema(
        column(pa.int32(), "id"), column(nested(nullable=False), nullable=False)
    )
    assert evolved.field("c").equals(pa.field("c", nested(nullable=True)))


@pytest.mark.parametrize("arrow", [pa.null(), elements(pa.null()), pa.struct([("f", pa.null())])])
def test_a_new_column_needs_a_type(arrow: pa.DataType) -> None:
    with pytest.raises(InvalidInputError, match=r"Column n is new .* only nulls"):
        evolve_schema(column(pa.int32()), column(arrow, "n"))


def test_names_that_differ_by_case_only_are_refused() -> None:
    table = column(pa.struct([("Inner", pa.int32())]), "Id")
    with pytest.raises(InvalidInputError, match="Column ID differs from Id by case"):
        evolve_schema(table, column(pa.int32(), "ID"))
    with pytest.raises(InvalidInputError, match=r"Column Id\.inner differs from Id\.Inner by case"):
        evolve_schema(table, column(pa.struct([("inner", pa.int32())]), "Id"))
    with pytest.raises(InvalidInputError, match="Column n differs from N by case"):
        evolve_schema(table, pa.schema([("N", pa.int32()), ("n", pa.int32())]))
    with pytest.raises(InvalidInputError, match="Column Id comes twice"):
        evolve_schema(table, pa.schema([("Id", pa.int32()), ("Id", pa.int32())]))
    with pytest.raises(InvalidInputError, match="Column ID differs from Id by case"):
        project_batch(pa.table({"ID": [1]}), table)


def test_a_table_that_has_both_cases_keeps_them() -> None:
    both = pa.schema([("n", pa.int32()), ("N", pa.int32())])
    assert evolve_schema(both, both).equals(both)


# Projecting rows.

NESTED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("s", pa.struct([("a", pa.float64()), ("b", pa.string())])),
        ("l", elements(pa.struct([("x", pa.int64()), ("y", pa.string())]))),
        ("m", values(elements(pa.int64()))),
        ("new", pa.decimal128(10, 2)),
    ]
)
OLD = pa.schema(
    [
        ("m", pa.map_(pa.string(), pa.list_(pa.int32()))),
        ("l", pa.list_(pa.struct([("x", pa.int32())]))),
        ("s", pa.struct([("a", pa.int32())])),
        ("id", pa.int32()),
        ("gone", pa.string()),
    ]
)
small = st.integers(-9, 9)
old_rows = st.fixed_dictionaries(
    {
        "m": st.none()
        | st.dictionaries(st.sampled_from("ab"), st.none() | st.lists(st.none() | small)).map(
            lambda drawn: list(drawn.items())
        ),
        "l": st.none() | st.lists(st.none() | st.fixed_dictionaries({"x": st.none() | small})),
        "s": st.none() | st.fixed_dictionaries({"a": st.none() | small}),
        "id": small,
        "gone": st.text(max_size=2),
    }
)


def naive(row: dict[str, Any]) -> dict[str, Any]:
    struct, items = row["s"], row["l"]
    return {
        "id": row["id"],
        "s": None if struct is None else {"a": struct["a"], "b": None},
        "l": None if items is None else [item and {"x": item["x"], "y": None} for item in items],
        "m": row["m"],
        "new": None,
    }


@given(st.lists(old_rows, max_size=6), st.integers(0, 3), st.integers(0, 3), st.booleans())
def test_old_rows_get_the_new_shape(
    rows: list[dict[str, Any]], skipped: int, dropped: int, is_table: bool
) -> None:
    whole = pa.RecordBatch.from_pylist(rows, schema=OLD)
    end = max(skipped, len(rows) - dropped)
    part = whole.slice(skipped, end - skipped)
    given_rows = pa.Table.from_batches([part.slice(0, 1), part.slice(1)]) if is_table else part
    found = project_batch(given_rows, NESTED)
    assert type(found) is type(given_rows)
    assert found.schema.equals(NESTED)
    found.validate(full=True)
    assert found.to_pylist() == [naive(row) for row in rows[skipped:end]]


@given(st.sampled_from(GROWTH), st.lists(st.none() | small, max_size=5), st.booleans())
def test_rows_and_older_files_fit_the_evolved_schema(
    types: tuple[pa.DataType, pa.DataType, pa.DataType], drawn: list[int | None], swaps: bool
) -> None:
    stored, written, _ = types
    if swaps:
        stored, written = written, stored
    schema = evolve_schema(column(stored), column(written))
    for arrow in (stored, written):
        exact = [None if number is None else Decimal(number) for number in drawn]
        numbers = exact if pa.types.is_decimal(arrow) else drawn
        rows = pa.table({"c": pa.array(numbers, arrow)})
        assert project_batch(rows, schema).column("c").to_pylist() == drawn


def test_equal_rows_are_not_touched() -> None:
    rows = pa.table({"a": [1]})
    assert project_batch(rows, rows.schema) is rows


def test_a_missing_column_must_be_nullable() -> None:
    with pytest.raises(InvalidInputError, match="Column c is missing"):
        project_batch(pa.table({"x": [1]}), column(pa.int32(), nullable=False))
    inner = pa.struct([pa.field("f", pa.int32(), nullable=False)])
    with pytest.raises(InvalidInputError, match=r"Column c\.f is missing"):
        project_batch(pa.table({"c": [{"g": 1}]}), column(inner))


def test_nulls_are_refused_where_they_must_not_be() -> None:
    with pytest.raises(InvalidInputError, match=r"Column c .* 2 of 4 value\(s\).* position 1"):
        project_batch(pa.table({"c": [1, None, 2, None]}), column(pa.int64(), nullable=False))
    inner = pa.struct([pa.field("f", pa.int64(), nullable=False)])
    nulls = pa.array([{"f": 1}, None], pa.struct([("f", pa.int32())]))
    assert project_batch(pa.table({"c": nulls}), column(inner)).to_pylist() == [
        {"c": {"f": 1}},
        {"c": None},
    ]
    with pytest.raises(InvalidInputError, match=r"Column c\.f must not be null"):
        project_batch(pa.table({"c": [{"f": 1}, {"f": None}]}), column(inner))


@pytest.mark.parametrize(
    ("given_values", "target"),
    [
        (pa.array([datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC)], US), MS),
        (pa.array([b"abc"]), pa.binary(4)),
        (pa.array(["x"]), pa.int32()),
        (pa.array([2**40]), pa.int32()),
        (pa.array([Decimal("123.45")], pa.decimal128(9, 2)), pa.decimal128(4, 2)),
    ],
)
def test_a_value_that_does_not_fit_is_refused(given_values: pa.Array, target: pa.DataType) -> None:
    with pytest.raises(InvalidInputError, match="Column c cannot be turned from"):
        project_batch(pa.table({"c": given_values}), column(target))


def test_a_large_integer_is_rounded_to_a_double_as_avro_reads_it() -> None:
    rows = project_batch(pa.table({"c": [2**53 + 1]}), column(pa.float64()))
    assert rows.column("c").to_pylist() == [float(2**53)]
