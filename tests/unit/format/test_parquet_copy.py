"""Row groups copied from file to file, and the footers that say where they are."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import CorruptTableError, ErrorKind
from headwater.format.parquet.footer import FOOTER_CHECKSUM
from headwater.format.parquet.row_group_copy import (
    SourceGroup,
    common_entries,
    copy_row_groups,
    read_raw_footer,
)
from headwater.format.parquet.thrift_compact import (
    Kind,
    MalformedThriftError,
    Value,
    encode_struct,
    parse_struct,
)

PLAIN = st.one_of(
    st.builds(Value, st.sampled_from([Kind.I32, Kind.I64]), st.integers(-(2**63), 2**63 - 1)),
    st.builds(Value, st.just(Kind.BINARY), st.binary(max_size=200)),
    st.builds(Value, st.just(Kind.DOUBLE), st.floats(allow_nan=False)),
    st.builds(lambda claim: Value(Kind.TRUE if claim else Kind.FALSE, claim), st.booleans()),
    st.builds(
        lambda elements: Value(Kind.LIST, (Kind.I64, elements)),
        st.lists(st.integers(-(2**40), 2**40), max_size=20),
    ),
)
STRUCTS = st.recursive(
    st.dictionaries(st.integers(1, 100), PLAIN, max_size=5),
    lambda inner: st.dictionaries(
        st.integers(1, 100),
        st.one_of(
            PLAIN,
            st.builds(Value, st.just(Kind.STRUCT), inner),
            st.builds(
                lambda elements: Value(Kind.LIST, (Kind.STRUCT, elements)),
                st.lists(inner, max_size=3),
            ),
        ),
        max_size=4,
    ),
    max_leaves=5,
)


SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("key", pa.string()),
        ("maybe", pa.int64()),
        ("list", pa.list_(pa.int64())),
        ("struct", pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))])),
    ]
)


def rows(seed: int, count: int) -> pa.Table:
    numbers = range(seed, seed + count)
    return pa.table(
        {
            "file": [f"old-{seed}"] * count,
            "key": [f"key-{number:05d}" for number in numbers],
            "maybe": [None if number % 3 else number for number in numbers],
            "list": [list(range(number % 4)) for number in numbers],
            "struct": [{"x": number, "y": [str(number)]} for number in numbers],
        },
        SCHEMA,
    )


def file_of(table: pa.Table, **arguments: Any) -> io.BytesIO:
    sink = io.BytesIO()
    pq.write_table(table, sink, **{"row_group_size": 40, **arguments})
    return sink


def groups_of(*files: io.BytesIO) -> list[SourceGroup]:
    found = []
    for file in files:
        footer = read_raw_footer(file, path="old")
        assert footer.is_copyable
        found += [SourceGroup(file, "old", footer, n) for n in range(len(footer.groups))]
    return found


def copied(*files: io.BytesIO, entries: dict[str, str] | None = None) -> io.BytesIO:
    sink = io.BytesIO()
    done = copy_row_groups(
        groups_of(*files), sink, constants={"file": "new"}, entries=entries or {}, codec="zstd"
    )
    assert done.size_bytes == len(sink.getvalue())
    assert done.row_count == pq.read_metadata(sink).num_rows
    return sink


def test_the_rows_of_all_files_come_one_behind_the_other_but_for_the_constant() -> None:
    tables = [rows(0, 100), rows(500, 70), rows(900, 1)]
    found = pq.read_table(
        copied(
            file_of(tables[0], compression="snappy", write_page_index=True),
            file_of(tables[1], compression="zstd", data_page_version="2.0"),
            file_of(tables[2], compression="none", use_dictionary=False),
        )
    )
    expected = pa.concat_tables(tables)
    assert found.drop_columns(["file"]).equals(expected.drop_columns(["file"]))
    assert set(found["file"].to_pylist()) == {"new"}


def test_row_groups_and_their_statistics_stay() -> None:
    metadata = pq.read_metadata(copied(file_of(rows(0, 100)), file_of(rows(500, 10))))
    assert [metadata.row_group(n).num_rows for n in range(4)] == [40, 40, 20, 10]
    keys = [metadata.row_group(n).column(1).statistics for n in range(4)]
    assert [one.min for one in keys] == ["key-00000", "key-00040", "key-00080", "key-00500"]
    assert metadata.row_group(2).column(0).statistics.min == "new"
    assert metadata.row_group(3).column(2).statistics.null_count == 7


def test_what_lies_outside_of_the_chunks_is_left_out() -> None:
    found = pq.ParquetFile(copied(file_of(rows(0, 100), write_page_index=True)))
    assert not found.metadata.row_group(0).column(1).has_offset_index
    assert not found.metadata.row_group(0).column(1).has_column_index
    assert found.read_row_group(1, columns=["key"])["key"][0].as_py() == "key-00040"


def test_a_column_that_must_not_be_null_stays_so() -> None:
    schema = pa.schema([pa.field("file", pa.string(), nullable=False), ("n", pa.int64())])
    table = pa.table([["old"] * 3, [1, 2, 3]], schema=schema)
    found = pq.read_table(copied(file_of(table, store_schema=False)))
    assert not found.schema.field("file").nullable
    assert found["file"].to_pylist() == ["new"] * 3


def test_entries_are_those_that_the_files_share_and_those_that_are_given() -> None:
    one = rows(0, 1).replace_schema_metadata({"a": "1", "b": "2"})
    two = rows(1, 1).replace_schema_metadata({"a": "1", "b": "3"})
    files = [file_of(one), file_of(two)]
    footers = [read_raw_footer(file, path="") for file in files]
    assert common_entries(footers) == {"a": "1"}
    copy = pq.read_metadata(copied(*files, entries={**common_entries(footers), "c": "4"}))
    entries = copy.metadata
    assert entries.pop(FOOTER_CHECKSUM.encode())
    assert entries == {b"a": b"1", b"c": b"4"}


def test_files_of_other_columns_are_told_apart() -> None:
    whole, part = file_of(rows(0, 1)), file_of(rows(0, 1).drop_columns(["maybe"]))
    one, other = read_raw_footer(whole, path=""), read_raw_footer(part, path="")
    assert one.columns != other.columns
    assert one.columns == read_raw_footer(file_of(rows(9, 100)), path="").columns


def test_a_footer_of_any_length_is_read() -> None:
    wide = pa.table({f"column-{number}": [number] for number in range(800)})
    footer = read_raw_footer(file_of(wide), path="wide")
    assert len(footer.groups) == 1
    assert len(footer.columns[1]) == 801


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "does not end as one"),
        (b"PAR1" + b"x" * 20, "does not end as one"),
        (b"PAR1" + (100).to_bytes(4, "little") + b"PAR1", "longer than the file"),
        (b"PAR1\xff\xff" + (2).to_bytes(4, "little") + b"PAR1", "does not parse"),
    ],
)
def test_what_is_no_parquet_file_is_named(data: bytes, problem: str) -> None:
    with pytest.raises(CorruptTableError, match=f"some/path.*{problem}") as caught:
        read_raw_footer(io.BytesIO(data), path="some/path")
    assert caught.value.kind is ErrorKind.CORRUPT_BASE_FILE


def test_a_file_that_was_cut_in_the_middle_is_named() -> None:
    whole = file_of(rows(0, 100))
    groups = groups_of(whole)
    cut = io.BytesIO(whole.getvalue()[:100])
    short = [SourceGroup(cut, "some/path", group.footer, group.number) for group in groups]
    with pytest.raises(CorruptTableError, match=r"some/path.*shorter than its footer says"):
        copy_row_groups(short, io.BytesIO(), constants={}, entries={}, codec="zstd")


@given(STRUCTS)
def test_thrift_structs_round_trip(struct: Any) -> None:
    data = encode_struct(struct)
    assert parse_struct(data) == struct
    assert parse_struct(data + b"more") == struct


@given(STRUCTS, st.data())
def test_thrift_that_is_cut_short_is_malformed(struct: Any, data: st.DataObject) -> None:
    whole = encode_struct(struct)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(MalformedThriftError):
        parse_struct(whole[:cut])


@given(st.binary(max_size=60))
def test_any_bytes_are_a_thrift_struct_or_malformed(data: bytes) -> None:
    try:
        parse_struct(data)
    except MalformedThriftError:
        return


def test_thrift_that_is_nested_without_end_is_malformed() -> None:
    with pytest.raises(MalformedThriftError, match="DEPTH_MAX"):
        parse_struct(b"\x1c" * 100_000)
