"""Readers of files: rows and their places, bad rows alone, damage as what it is."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, BinaryIO

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.tables import columns

from headwater.errors import ErrorKind, InvalidInputError, StorageError
from headwater.ingest.bad_rows import BadRow, BadRows
from headwater.ingest.formats import avro_rows, csv_rows, json_rows
from headwater.ingest.formats.avro_rows import read_avro
from headwater.ingest.formats.csv_rows import read_csv
from headwater.ingest.formats.json_rows import read_json
from headwater.ingest.formats.parquet_rows import read_parquet
from headwater.ingest.formats.reading import Reading
from headwater.ingest.job import QuarantineRule
from headwater.ingest.rows import SourceRows

PLAIN = columns("id string, value long")
Read = Callable[[BinaryIO, Reading], Iterator[SourceRows]]


def reading(schema: pa.Schema = PLAIN, rows_max: int = 100, **more: Any) -> Reading:
    bad = BadRows("job", QuarantineRule(path="bad", rows_max=rows_max))
    return Reading(origin="file", columns=schema, bad=bad, **more)


def rows_of(read: Read, data: bytes, given: Reading) -> dict[int, dict[str, Any]]:
    """Return rows by their places."""
    found: dict[int, dict[str, Any]] = {}
    for some in read(io.BytesIO(data), given):
        assert some.origin == "file"
        found |= dict(zip(some.positions.to_pylist(), some.rows.to_pylist(), strict=True))
    return found


def bad_of(given: Reading) -> dict[int | str, str | None]:
    return {row.position: row.raw for row in given.bad.rows}


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def avro(records: list[dict[str, Any]], *fields: tuple[str, Any], **more: Any) -> bytes:
    schema = {
        "type": "record",
        "name": "row",
        "fields": [{"name": name, "type": kind} for name, kind in fields],
    }
    sink = io.BytesIO()
    fastavro.writer(sink, fastavro.parse_schema(schema), records, **more)
    return sink.getvalue()


def test_json_lines_that_are_none_cost_their_rows_alone() -> None:
    lines = [
        b'{"id": "a", "value": 1, "more": [1]}',
        b"",
        b"  \t",
        b'{"id": "b", "value": ',
        b'{"id": "c"}{"id": "d"}',
        b'{"id": "e", "value": "x"}',
        b'{"id": "\xff", "value": 1}',
        b"[1]",
        b'{"value": 2, "id": "f"}\r',
        b'{"a":{}}',
        b'{"id": "g", "value": 3}',
    ]
    given = reading()

    rows = rows_of(read_json, b"\n".join(lines), given)

    assert rows == {
        1: {"id": "a", "value": 1},
        9: {"id": "f", "value": 2},
        10: {"id": None, "value": None},
        11: {"id": "g", "value": 3},
    }
    assert sorted(bad_of(given)) == [4, 5, 6, 7, 8]
    assert bad_of(given)[4] == '{"id": "b", "value": '
    reasons = {row.position: row.reason for row in given.bad.rows}
    assert "does not begin with { and end with }" in reasons[4]
    assert "more than one object" in reasons[5]


def test_an_object_over_two_lines_does_not_hide_a_line_with_two() -> None:
    given = reading()

    rows = rows_of(read_json, b'{"id":\n"a"}\n{"id":"b"}{"id":"c"}\n{"id":"d"}\n', given)

    assert rows == {4: {"id": "d", "value": None}}
    assert sorted(bad_of(given)) == [1, 2, 3]


def test_json_of_many_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_rows, "_CHUNK_BYTES", 64)
    lines = [f'{{"id": "{n}", "value": {n}}}' for n in range(1, 301)]
    lines[149] = "no"
    given = reading()

    rows = rows_of(read_json, "\n".join(lines).encode(), given)

    assert rows == {n: {"id": str(n), "value": n} for n in range(1, 301) if n != 150}
    assert bad_of(given) == {150: "no"}


def test_a_line_without_end_is_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_rows, "_CHUNK_BYTES", 64)
    monkeypatch.setattr(json_rows, "_LINE_BYTES_MAX", 1000)
    with pytest.raises(InvalidInputError, match="a line of more than 1000 bytes"):
        rows_of(read_json, b"x" * 2000, reading())


def test_a_byte_order_mark_is_no_part_of_the_first_line() -> None:
    given = reading()
    line = b'\xef\xbb\xbf{"id": "a"}'
    assert rows_of(read_json, line, given)[1]["id"] == "a"
    assert bad_of(given) == {}


def test_maps_and_dates_within_json() -> None:
    given = reading(columns("m map<string, map<string, date>>, s struct<d: date>"))
    lines = (
        b'{"m": [{"key": "k", "value": [{"key": "l", "value": "2024-02-03"}]}]}',
        b'{"m": [], "s": {"d": "2024-02-03"}}',
        b'{"m": [{"value": []}]}',
        b'{"m": {"k": []}}',
        b'{"s": {"d": "soon"}}',
        b'{"s": {}}',
    )
    day = date(2024, 2, 3)
    assert rows_of(read_json, b"\n".join(lines), given) == {
        1: {"m": [("k", [("l", day)])], "s": None},
        2: {"m": [], "s": {"d": day}},
        6: {"m": None, "s": {"d": None}},
    }
    assert sorted(bad_of(given)) == [3, 4, 5]


def test_types_of_json() -> None:
    schema = columns(
        "d date, t timestamp, n decimal(10,2), f double, b boolean, s struct<x: int>, a array<int>"
    )
    line = (
        b'{"d": "2024-02-03", "t": "2024-02-03T04:05:06Z", "n": 1.25, "f": 1, "b": true, '
        b'"s": {"x": 1}, "a": [1, 2]}'
    )
    assert rows_of(read_json, line, reading(schema)) == {
        1: {
            "d": date(2024, 2, 3),
            "t": datetime(2024, 2, 3, 4, 5, 6, tzinfo=UTC),
            "n": Decimal("1.25"),
            "f": 1.0,
            "b": True,
            "s": {"x": 1},
            "a": [1, 2],
        }
    }


def test_decimals_that_do_not_fit_cost_their_rows_alone() -> None:
    given = reading(columns("d decimal(5,2), s struct<x: decimal(5,2)>"))
    lines = [b'{"d": 123.45, "s": {"x": 1.5}}', b'{"d": 1234.5}', b'{"s": {"x": 1234.5}}']
    assert rows_of(read_json, b"\n".join(lines), given) == {
        1: {"d": Decimal("123.45"), "s": {"x": Decimal("1.50")}}
    }
    assert bad_of(given) == {2: lines[1].decode(), 3: lines[2].decode()}


def test_text_that_is_no_utf8_costs_its_row_alone() -> None:
    bad = pa.array([b"a", b"b\xff"], pa.binary()).view(pa.string())
    rows = pa.table({"id": bad, "value": pa.array([1, 2])})
    given = reading()
    assert rows_of(read_parquet, parquet(rows), given) == {1: {"id": "a", "value": 1}}
    assert bad_of(given) == {2: '{"id": "b\ufffd", "value": 2}'}


def test_csv_rows_and_their_numbers() -> None:
    data = (
        b'value,id,more\n1,a,x\n\n2,"b\nc",y\n3,d\nno,e,z\n,f,""\n4,"",w\n99999999999999999999,g,\n'
    )
    given = reading()

    rows = rows_of(read_csv, data, given)

    assert rows == {
        1: {"id": "a", "value": 1},
        2: {"id": "b\nc", "value": 2},
        5: {"id": "f", "value": None},
        6: {"id": "", "value": 4},
    }
    assert bad_of(given) == {
        3: "3,d",
        4: '{"id": "e", "value": "no"}',
        7: '{"id": "g", "value": "99999999999999999999"}',
    }


def test_csv_of_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_rows, "_BLOCK_BYTES", 200)
    lines = [f"{n},{n}" for n in range(1, 301)]
    for bad in (10, 11, 150, 300):
        lines[bad - 1] = "one,two,three"
    lines[199] = "200,bad"
    given = reading(delimiter=",", has_header=False)

    rows = rows_of(read_csv, "\n".join(lines).encode(), given)

    assert set(rows) == set(range(1, 301)) - {10, 11, 150, 200, 300}
    assert all(row == {"id": str(n), "value": n} for n, row in rows.items())
    assert sorted(bad_of(given)) == [10, 11, 150, 200, 300]


def test_csv_that_is_no_utf8_costs_its_rows_alone() -> None:
    data = b"id,value\na,1\n\xff,2\nc,3\nd,\xe9\n"
    given = reading()

    rows = rows_of(read_csv, data, given)

    assert rows == {1: {"id": "a", "value": 1}, 3: {"id": "c", "value": 3}}
    assert list(bad_of(given)) == [2, 4]


def test_a_quotation_mark_that_is_not_closed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_rows, "_BLOCK_BYTES", 1000)
    data = b'id,value\n"a,1\n' + b"b,2\n" * 1000

    with pytest.raises(InvalidInputError, match="a quotation mark is not closed"):
        rows_of(read_csv, data, reading())


def test_csv_of_other_columns_is_damage() -> None:
    with pytest.raises(InvalidInputError, match="none of the columns id, value, but a;b"):
        rows_of(read_csv, b"a;b\n1;2\n", reading())


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["1", "2"], pa.large_string()),
        pa.array(["1", "2"], pa.string_view()),
        pa.array(["1", "2"]).dictionary_encode(),
        pa.array([b"1", b"2"], pa.large_binary()),
        pa.array([b"1", b"2"], pa.binary(1)),
    ],
    ids=lambda values: str(values.type),
)
@pytest.mark.parametrize("wanted", ["string", "binary"])
def test_parquet_of_other_programs_has_text_in_other_layouts(values: pa.Array, wanted: str) -> None:
    table = pa.table({"id": values, "value": values})
    given = reading(columns(f"id string, value {wanted}"))

    rows = rows_of(read_parquet, parquet(table), given)

    one, two = ("1", "2") if wanted == "string" else (b"1", b"2")
    assert rows == {1: {"id": "1", "value": one}, 2: {"id": "2", "value": two}}
    assert bad_of(given) == {}


def test_parquet_takes_on_the_types_that_are_wanted() -> None:
    table = pa.table({"value": ["1", "x", "3"], "id": ["a", "b", "c"], "more": [1, 2, 3]})
    given = reading()

    rows = rows_of(read_parquet, parquet(table), given)

    assert rows == {1: {"id": "a", "value": 1}, 3: {"id": "c", "value": 3}}
    assert bad_of(given) == {2: '{"id": "b", "value": "x"}'}
    assert "column value does not fit into int64" in given.bad.rows[0].reason


def test_a_column_that_a_file_lacks_is_null() -> None:
    assert rows_of(read_parquet, parquet(pa.table({"id": ["a"]})), reading()) == {
        1: {"id": "a", "value": None}
    }


def test_avro_rows() -> None:
    when = datetime(2024, 1, 1, tzinfo=UTC)
    data = avro(
        [{"id": "a", "value": 1, "at": when}, {"id": None, "value": 2**40, "at": when}],
        ("id", ["null", "string"]),
        ("value", "long"),
        ("at", {"type": "long", "logicalType": "timestamp-micros"}),
    )
    given = reading(columns("id string, value int, at timestamp"))

    rows = rows_of(read_avro, data, given)

    assert rows == {1: {"id": "a", "value": 1, "at": when}}
    assert list(bad_of(given)) == [2]


@pytest.mark.parametrize("codec", ["deflate", "snappy", "zstandard", "bzip2", "xz"])
def test_avro_of_every_codec_that_spark_writes(codec: str) -> None:
    data = avro([{"id": "a", "value": 1}], ("id", "string"), ("value", "long"), codec=codec)

    assert rows_of(read_avro, data, reading()) == {1: {"id": "a", "value": 1}}


def test_avro_columns_that_are_left_out_may_have_any_type() -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}
    data = avro(
        [{"first": {"x": 1}, "time": 5, "either": "b", "id": "a", "value": {"x": 7}}],
        ("first", inner),  # A name that a wanted column refers to.
        ("time", {"type": "int", "logicalType": "time-millis"}),
        ("either", ["int", "string"]),
        ("id", "string"),
        ("value", "Inner"),
    )

    rows = rows_of(read_avro, data, reading(columns("id string, value struct<x:int>")))

    assert rows == {1: {"id": "a", "value": {"x": 7}}}


def test_avro_uuids_are_text() -> None:
    uuid = {"type": "string", "logicalType": "uuid"}
    one = "00000000-0000-0000-0000-00000000000a"
    data = avro(
        [{"id": one, "value": [one, None]}],
        ("id", uuid),
        ("value", {"type": "array", "items": ["null", uuid]}),
    )

    rows = rows_of(read_avro, data, reading(columns("id string, value array<string>")))

    assert rows == {1: {"id": one, "value": [one, None]}}


def test_avro_times_that_no_calendar_has_end_their_file() -> None:
    when = {"type": "long", "logicalType": "timestamp-millis"}
    data = avro([{"id": "a", "at": 1}, {"id": "b", "at": 10**17}], ("id", "string"), ("at", when))

    with pytest.raises(InvalidInputError, match="cannot be read as Avro"):
        rows_of(read_avro, data, reading(columns("id string, at timestamp")))


def test_what_comes_before_damage_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_rows, "_RECORDS", 7)
    records = [{"id": str(n), "value": n} for n in range(100)]
    data = avro(records, ("id", "string"), ("value", "long"), sync_interval=100)
    found: list[int] = []

    def read_all() -> None:
        for some in read_avro(io.BytesIO(data[:-30]), reading()):
            found.extend(some.positions.to_pylist())

    with pytest.raises(InvalidInputError, match="cannot be read as Avro"):
        read_all()
    assert len(found) > 50
    assert found == list(range(1, len(found) + 1))


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (read_parquet, b""),
        (read_parquet, b"PAR1 no PAR1"),
        (read_parquet, parquet(pa.table({"id": ["a"]}))[:-10]),
        (read_avro, b""),
        (read_avro, b"Obj\x01no"),
        (read_avro, avro([{"id": {"x": 1}}], ("id", {"type": "map", "values": "int"}))),
        (read_csv, b"\n\n"),
        (read_csv, b"id,id\na,b\n"),
        (read_parquet, parquet(pa.table({"id": [True], "value": [date(2024, 1, 1)]}))),
    ],
)
def test_damage_is_said(read: Read, data: bytes) -> None:
    with pytest.raises(InvalidInputError) as caught:
        rows_of(read, data, reading())
    assert caught.value.kind is ErrorKind.INVALID_INPUT


@pytest.mark.parametrize("read", [read_parquet, read_json, read_csv, read_avro])
def test_errors_of_storage_are_no_damage(read: Read) -> None:
    class Broken(io.BytesIO):
        def read(self, *_: Any) -> bytes:
            raise StorageError("the disk is gone")

        def readinto(self, *_: Any) -> int:
            raise StorageError("the disk is gone")

    with pytest.raises(StorageError, match="the disk is gone"):
        list(read(Broken(b"x" * 1000), reading()))


def test_damaged_compression_is_damage() -> None:
    data = gzip.compress(b'{"id": "a"}\n' * 1000)[:-20]
    file = pa.CompressedInputStream(pa.BufferReader(data), "gzip")
    with pytest.raises(InvalidInputError, match="cannot be read as JSON"):
        list(read_json(file, reading()))


@pytest.mark.parametrize(
    ("read", "data"),
    [(read_json, b"no\n" * 10), (read_csv, b"id,value\n" + b"a\n" * 10)],
)
def test_more_bad_rows_than_allowed_stop_the_reader(read: Read, data: bytes) -> None:
    with pytest.raises(InvalidInputError, match="4 bad rows, more than") as caught:
        rows_of(read, data, reading(rows_max=3))
    assert caught.value.kind is ErrorKind.BAD_ROWS
    assert "file row 1" in caught.value.message


def test_without_a_quarantine_the_first_bad_row_stops() -> None:
    with pytest.raises(InvalidInputError, match="has 1 bad row, and there is no"):
        BadRows("job", None).add(BadRow("file", 1, "why", "raw"))


def test_the_share_of_bad_rows() -> None:
    bad = BadRows("job", QuarantineRule(path="bad", share_max=0.5))
    for position in range(60):
        bad.add(BadRow("file", position, "why", None))
    bad.check_share(120)
    bad.check_share(99)  # Too few to judge by.
    with pytest.raises(InvalidInputError, match="60 bad rows, of 119 rows, more than"):
        bad.check_share(119)


def test_many_bad_values_of_json_cost_few_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = 0
    parse = json_rows._Parser.parse

    def counted(self: Any, given: pa.RecordBatch) -> pa.RecordBatch:
        nonlocal tries
        tries += 1
        return parse(self, given)

    monkeypatch.setattr(json_rows._Parser, "parse", counted)
    bad = set(range(5, 2000, 40))
    values: dict[int, Any] = {n: str(n) if n in bad else n for n in range(1, 2001)}
    lines = [json.dumps({"id": str(n), "value": value}) for n, value in values.items()]
    given = reading()

    rows = rows_of(read_json, "\n".join(lines).encode(), given)

    assert set(bad_of(given)) == bad
    assert rows == {n: {"id": str(n), "value": n} for n in range(1, 2001) if n not in bad}
    assert tries <= 3 * len(bad) + 2
