"""Ranges of columns, from footers and log rows, against the values themselves."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.memory_storage import MemoryStorage

from headwater.arrow.log_parts import DataPart
from headwater.arrow.meta_columns import META_COLUMNS
from headwater.config.files import LogBlockFormat
from headwater.files.base_files import open_base_file
from headwater.format.avro.schema import encode_avro_schema
from headwater.format.log.blocks import encode_data_block
from headwater.format.log.frames import LogBlock, iter_blocks
from headwater.format.metadata.column_stats import decode_column_stats, typed_bounds
from headwater.format.parquet.base_file import write_base_file
from headwater.metadata import column_ranges
from headwater.metadata.column_ranges import (
    ColumnRange,
    LogColumns,
    indexed_columns,
    join_ranges,
    leaf_type,
    ranges_of_base_file,
    ranges_of_log,
)
from headwater.metadata.column_stats import column_stats_records
from headwater.model.files import BaseFile
from headwater.model.instant import InstantTime

T = InstantTime("20260101000000000")
FILE = BaseFile("", "f-0", "0-0-0", T)

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, False]),
    "int": (pa.int32(), [3, -7, 5]),
    "long": (pa.int64(), [2**62, -(2**62)]),
    "float": (pa.float32(), [1.5, -2.25]),
    "double": (pa.float64(), [1e300, -1e300]),
    "text": (pa.string(), ["b", "ä", "\U0001f600", ""]),
    "bytes": (pa.binary(), [b"\xff", b"\x00\x01"]),
    "fixed": (pa.binary(3), [b"abc", b"\xffbc"]),
    "small_decimal": (pa.decimal128(9, 2), [Decimal("1.50"), Decimal("-2.25")]),
    "decimal": (pa.decimal128(38, 4), [Decimal("1.5000"), Decimal(f"-{10**33}.0001")]),
    "date": (pa.date32(), [date(2020, 2, 29), date(1, 1, 1)]),
    "millis": (pa.timestamp("ms", "UTC"), [1, -1]),
    "micros": (pa.timestamp("us", "UTC"), [datetime(2020, 1, 1), -(2**61)]),
    "local": (pa.timestamp("us"), [datetime(2020, 1, 1), datetime(1970, 1, 1)]),
    "time": (pa.time64("us"), [time(1, 2, 3), time(0)]),
}


def rows_of(columns: dict[str, tuple[pa.DataType, list[Any]]]) -> pa.Table:
    longest = max(len(values) for _, values in columns.values())
    return pa.table(
        {
            name: pa.array([*values, *[None] * (longest - len(values))], kind)
            for name, (kind, values) in columns.items()
        }
    )


def stored(rows: pa.Table, **options: Any) -> list[ColumnRange]:
    """Write a file as Parquet does, and return the ranges of all its columns."""
    storage = MemoryStorage()
    with storage.open_output(FILE.path) as sink:
        pq.write_table(rows, sink, store_schema=False, **options)
    with open_base_file(storage, FILE) as reader:
        return ranges_of_base_file(reader, dotted(rows.schema))


def dotted(schema: pa.Schema) -> list[str]:
    names = []
    for field in schema:
        inner = [field.type.field(at).name for at in range(field.type.num_fields)]
        is_struct = pa.types.is_struct(field.type)
        names += [f"{field.name}.{name}" for name in inner] if is_struct else [field.name]
    return names


def logged(*parts: DataPart, schema: pa.Schema, columns: list[str]) -> list[ColumnRange]:
    """Return the ranges that the footers of blocks tell, after those of their rows are the same."""
    found = [
        ranges_of_log(
            [*chain.from_iterable(blocks(part, kind) for part in parts)],
            LogColumns(columns, schema),
        )
        for kind in LogBlockFormat
    ]
    of_rows, of_footers = (repr(found[at]) for at in range(2))  # By which NaN equals itself.
    assert of_rows == of_footers
    return found[0]


def blocks(part: DataPart, kind: LogBlockFormat) -> list[tuple[LogBlock, str]]:
    data = encode_data_block(
        part.rows,
        instant_time=part.instant_time,
        avro_schema_json=encode_avro_schema(part.rows.schema, table="t"),
        block_format=kind,
        is_partial=part.is_partial,
    )
    return [(block, "t.log") for block in iter_blocks(data, path="t.log")]


def bounds(one: ColumnRange) -> tuple[Any, Any]:
    """Return the bounds in the type of their column, as readers of the index get them."""
    record = column_stats_records([(FILE, [one])]).values
    lower, upper = typed_bounds(decode_column_stats(record), one.type)
    return lower[0], upper[0]


@pytest.mark.parametrize("name", sorted(VALUES.keys() - {"time"}))  # No table of ours has one.
def test_a_footer_and_the_rows_of_a_log_tell_the_same_range(name: str) -> None:
    kind, values = VALUES[name]
    array = pa.array([values[0], None, *values[1:]], kind)
    rows = pa.table({name: array})
    (base,) = stored(rows)
    (log,) = logged(DataPart(T, rows), schema=rows.schema, columns=[name])
    smallest, largest = pa.compute.min_max(array).values()
    for one in (base, log):
        assert (one.type, one.value_count, one.null_count) == (kind, len(array), 1)
        assert bounds(one) == (smallest, largest)
    assert base.size_bytes > 0
    assert base.uncompressed_bytes > 0
    assert (log.size_bytes, log.uncompressed_bytes) == (0, 0)


def test_row_groups_are_joined() -> None:
    rows = pa.table({"n": [5, 1, None, 9, 2], "t": ["x", None, None, None, "a"]})
    n, t = stored(rows, row_group_size=2)
    assert (n.low, n.high, n.value_count, n.null_count) == (1, 9, 5, 1)
    assert (t.low, t.high, t.value_count, t.null_count) == (b"a", b"x", 5, 3)


@pytest.mark.parametrize("statistics", [True, False])
def test_a_column_of_nulls_has_no_bounds(statistics: bool) -> None:
    (one,) = stored(pa.table({"t": pa.nulls(3, pa.string())}), write_statistics=statistics)
    assert (one.type, one.low, one.high) == (pa.string(), None, None)
    assert (one.value_count, one.null_count) == (3, 3)


@pytest.mark.parametrize("name", VALUES)
def test_a_file_without_statistics_is_read(name: str) -> None:
    rows = rows_of({name: VALUES[name]})
    (with_statistics,), (without,) = stored(rows), stored(rows, write_statistics=False)
    assert bounds(with_statistics) == bounds(without)
    assert (without.value_count, without.null_count) == (rows.num_rows, 0)


def test_decimals_that_are_stored_as_numbers() -> None:
    values = [Decimal("1.50"), Decimal("-2.25")]
    for precision in (9, 18):
        rows = pa.table({"d": pa.array(values, pa.decimal128(precision, 2))})
        (one,) = stored(rows, store_decimal_as_integer=True)
        assert (one.low, one.high) == (-225, 150)


def test_texts_too_long_for_a_footer_are_read() -> None:
    rows = pa.table({"t": ["m" * 5000, "a", None, "z" * 5000]})
    assert pq.ParquetFile(parquet(rows)).metadata.row_group(0).column(0).statistics.has_min_max is (
        False
    )
    (one,) = stored(rows)
    assert (one.low, one.high, one.null_count) == (b"a", b"z" * 5000, 1)


def parquet(rows: pa.Table) -> pa.BufferReader:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    return pa.BufferReader(sink.getvalue())


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
@pytest.mark.parametrize("row_group_size", [1, 2, 100])
def test_nan_is_the_largest_value(kind: pa.DataType, row_group_size: int) -> None:
    rows = pa.table({"x": pa.array([1.5, float("nan"), -1.0, None, 3.0], kind)})
    (read,) = stored(rows, row_group_size=row_group_size)
    (log,) = logged(DataPart(T, rows), schema=rows.schema, columns=["x"])
    (noted,) = written_by_us(rows)
    for one in (read, log, noted):
        assert one.low == -1.0
        assert one.high != one.high
        assert (one.value_count, one.null_count) == (5, 1)
    (only,) = stored(pa.table({"x": pa.array([float("nan"), None], kind)}))
    assert only.is_known
    assert only.low != only.low


def test_our_footers_note_nan_also_inside_of_structs() -> None:
    kind = pa.struct([("x", pa.float64()), ("y", pa.float32())])
    rows = pa.table(
        {
            "s": pa.array([{"x": float("nan"), "y": 1.0}, None, {"x": 2.0, "y": None}], kind),
            "z": [1.0, 2.0, 3.0],
        }
    )
    x, y, z = written_by_us(rows)
    assert (x.low, x.high != x.high) == (2.0, True)
    assert (y.low, y.high, z.low, z.high) == (1.0, 1.0, 1.0, 3.0)


def test_a_footer_of_ours_spares_reading_real_numbers() -> None:
    """Nothing but the footer is read: the pages before it are not even there."""
    storage = MemoryStorage()
    rows = pa.table({"x": [1.0, 2.0], "n": [1, 2]})
    with storage.open_output(FILE.path) as sink:
        write_base_file([rows], rows.schema, sink=sink)
    data = storage.read(FILE.path)
    footer_at = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    storage.put(FILE.path, bytes(footer_at) + data[footer_at:])
    with open_base_file(storage, FILE) as reader:
        x, n = ranges_of_base_file(reader, ["x", "n"])
    assert (x.low, x.high, n.low, n.high) == (1.0, 2.0, 1, 2)


def written_by_us(rows: pa.Table) -> list[ColumnRange]:
    storage = MemoryStorage()
    with storage.open_output(FILE.path) as sink:
        write_base_file([rows], rows.schema, sink=sink)
    with open_base_file(storage, FILE) as reader:
        return ranges_of_base_file(reader, dotted(rows.schema))


def test_columns_inside_of_structs_have_dotted_names_and_their_nulls() -> None:
    kind = pa.struct([("x", pa.int32()), ("t", pa.string())])
    rows = pa.table({"s": pa.array([{"x": 1, "t": "b"}, None, {"x": None, "t": "a"}], kind)})
    x, t = stored(rows)
    assert (x.column, x.low, x.high, x.value_count, x.null_count) == ("s.x", 1, 1, 3, 2)
    assert (t.column, t.low, t.high, t.null_count) == ("s.t", b"a", b"b", 1)
    ranges = logged(DataPart(T, rows), schema=rows.schema, columns=["s.x", "s.t"])
    assert [(one.low, one.high, one.null_count) for one in ranges] == [
        (x.low, x.high, x.null_count),
        (t.low, t.high, t.null_count),
    ]


def test_lists_maps_and_unknown_columns_have_no_range() -> None:
    rows = pa.table({"l": [[1], [2]], "n": [1, 2]})
    storage = MemoryStorage()
    with storage.open_output(FILE.path) as sink:
        pq.write_table(rows, sink)
    with open_base_file(storage, FILE) as reader:
        found = ranges_of_base_file(reader, ["l", "l.list.element", "n", "absent", "n.inner"])
    assert [one.column for one in found] == ["n"]


def test_a_log_of_deletes_has_ranges_over_nothing() -> None:
    (one,) = logged(schema=pa.schema([("n", pa.int32())]), columns=["n"])
    assert one == ColumnRange("n", pa.null(), None, None, 0, 0)


def test_rows_of_an_older_schema_are_null_and_partial_ones_say_nothing() -> None:
    schema = pa.schema([("n", pa.int64()), ("new", pa.string())])
    older = DataPart(T, pa.table({"n": pa.array([1, 2], pa.int32())}))
    partial = DataPart(T, pa.table({"new": ["x"]}), is_partial=True)
    n, new = logged(older, partial, schema=schema, columns=["n", "new"])
    assert (n.type, n.low, n.high, n.value_count) == (pa.int64(), 1, 2, 2)
    assert (new.low, new.value_count, new.null_count) == (b"x", 3, 2)


def test_rows_of_a_block_are_not_decoded_for_what_its_footer_tells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("rows were decoded")

    real = pa.array([float("nan"), 1.0, None])
    text = pa.array(["b", None, "a"])
    rows = pa.table({"x": real, "t": text, "s": pa.StructArray.from_arrays([real], ["x"])})
    schema = pa.schema([*rows.schema, ("new", pa.int64())])
    made = blocks(DataPart(T, rows), LogBlockFormat.PARQUET)
    monkeypatch.setattr(column_ranges, "decode_part", refused)
    x, t, inner, new = ranges_of_log(made, LogColumns(["x", "t", "s.x", "new"], schema))
    for one in (x, inner):
        assert (one.low, one.value_count, one.null_count) == (1.0, 3, 1)
        assert one.high != one.high
    assert (t.low, t.high) == (b"a", b"b")
    assert (new.low, new.value_count, new.null_count) == (None, 3, 3)


def test_files_of_narrower_types_are_joined_in_the_type_of_the_table() -> None:
    narrow = ColumnRange("n", pa.int32(), -5, 7, 2, 0, 10, 20)
    wide = ColumnRange("n", pa.int64(), 0, 2**40, 3, 1, 1, 2)
    nothing = ColumnRange("n", pa.null(), None, None, 0, 0)
    (whole,) = join_ranges([narrow, nothing, wide], pa.schema([("n", pa.int64())]))
    assert whole == ColumnRange("n", pa.int64(), -5, 2**40, 5, 1, 11, 22)
    (real,) = join_ranges([narrow, wide], pa.schema([("n", pa.float64())]))
    assert (real.low, real.high, real.type) == (-5.0, float(2**40), pa.float64())
    (text,) = join_ranges([narrow], pa.schema([("n", pa.string())]))
    assert not text.is_known
    (empty,) = join_ranges([nothing, nothing], pa.schema([("n", pa.int64())]))
    assert empty == nothing._replace(type=pa.int64())


def test_what_is_not_known_stays_unknown_when_joined() -> None:
    unknown = ColumnRange("n", pa.int64(), None, None, 3, 0)
    known = ColumnRange("n", pa.int64(), 1, 2, 2, 0)
    nulls = ColumnRange("n", pa.int64(), None, None, 4, 4)
    schema = pa.schema([("n", pa.int64())])
    (whole,) = join_ranges([known, unknown, known], schema)
    assert (whole.low, whole.high, whole.is_known) == (None, None, False)
    (whole,) = join_ranges([nulls, known], schema)
    assert (whole.low, whole.high, whole.value_count, whole.null_count) == (1, 2, 6, 4)


def test_the_first_columns_are_indexed_or_those_that_are_named() -> None:
    kinds = [pa.field(f"c{n}", pa.int32()) for n in range(40)]
    schema = pa.schema([pa.field("tags", pa.list_(pa.string())), *kinds])
    metas = ("_hoodie_commit_time", "_hoodie_partition_path", "_hoodie_record_key")
    first = indexed_columns(schema)
    assert first == (*metas, *(f"c{n}" for n in range(32)))
    assert indexed_columns(schema, columns_max=2, has_meta_fields=False) == ("c0", "c1")
    named = ["c35", "_hoodie_record_key", "tags", "gone"]
    assert indexed_columns(schema, named=named) == (*metas, "c35")


def test_leaf_types() -> None:
    schema = pa.schema([("s", pa.struct([("x", pa.struct([("y", pa.int32())]))]))])
    assert leaf_type(schema, "s.x.y") == pa.int32()
    assert leaf_type(schema, "s.x") is None
    assert leaf_type(schema, "s.z") is None
    assert leaf_type(schema, "t") is None
    assert set(META_COLUMNS)


def thousandths(value: int | None) -> Decimal | None:
    return None if value is None else Decimal(value).scaleb(-3)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.lists(st.one_of(st.none(), st.integers(-(10**12), 10**12)), max_size=5),
        min_size=1,
        max_size=4,
    )
)
def test_any_split_into_files_has_the_range_of_the_whole(files: list[list[int | None]]) -> None:
    schema = pa.schema([("d", pa.decimal128(20, 3))])
    typed = [
        pa.table({"d": pa.array([thousandths(value) for value in some], schema.field("d").type)})
        for some in files
    ]
    pieces = [one for table in typed for one in stored(table)]
    (whole,) = join_ranges(pieces, schema)
    values = [value for some in files for value in some if value is not None]
    assert whole.low == (min(values) if values else None)
    assert whole.high == (max(values) if values else None)
    assert whole.value_count == sum(map(len, files))
    assert whole.null_count == whole.value_count - len(values)
