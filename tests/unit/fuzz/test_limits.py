"""Every limit of a parser: what is beyond is an error that names it and its option.

With the option it is taken, and so it is in tasks, which open the storage with the options of the
table.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.parsers import PARSERS
from tests.support.tables import a_table

import headwater as hw
from headwater.config import limits
from headwater.config.limits import (
    BLOCK_BYTES_MAX,
    BRACKETS_MAX,
    CHARACTERS_MAX,
    DEPTH_MAX,
    DIGITS_MAX,
    FIXED_BYTES_MAX,
    HASHES_MAX,
    LEVELS_MAX,
    OBJECT_BYTES_MAX,
    OPERATIONS_MAX,
    ROWS_MAX,
    VALUES_MAX,
    Limit,
    LimitConfig,
    raise_limits,
)
from headwater.errors import ErrorKind, HeadwaterError, InvalidInputError, UnsupportedError
from headwater.expressions.compile import compile_condition
from headwater.expressions.parse import parse_expression
from headwater.expressions.scope import Scope
from headwater.format.avro.schema import parse_avro_schema
from headwater.format.bloom import MalformedBloomError, parse_bloom_filter
from headwater.format.hfile.reader import HFile
from headwater.format.hfile.writer import encode_hfile
from headwater.format.parquet.base_file import read_base_file
from headwater.format.parquet.thrift_compact import MalformedThriftError, parse_struct
from headwater.format.properties import parse_properties


@pytest.fixture(autouse=True)
def _usual_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test raises holds for the process, so it is taken back."""
    monkeypatch.setattr(limits, "_raised", {})


def avro(columns: list[object]) -> str:
    fields = [{"name": f"c{at}", "type": one} for at, one in enumerate(columns)]
    return json.dumps({"type": "record", "name": "t", "fields": fields})


def nested(depth: int) -> object:
    found: object = "string"
    for _ in range(depth):
        found = {"type": "array", "items": found}
    return found


def parse_bloom(hashes: int) -> None:
    data = struct.pack(">iibi", -1, hashes, 1, 8) + b"\xff"
    parse_bloom_filter(base64.b64encode(data).decode(), "SIMPLE")


def parse_hfile(value_bytes: int) -> None:
    keys, values = pa.array(["a"]), pa.array([bytes(value_bytes)], pa.binary())
    data = encode_hfile(keys, values, schema="{}", is_base_file=True, create_time_ms=0)
    HFile.of_bytes(bytes(data), path="p").read_all()


def parse_rows(count: int) -> None:
    sink = BytesIO()
    pq.write_table(pa.table({"a": pa.nulls(count, pa.int8())}), sink)
    sink.seek(0)
    read_base_file(sink, "p").close()


def parse_thrift(depth: int) -> None:
    # A struct whose only field is a list of lists of lists, of which the last is empty.
    parse_struct(b"\x19" + b"\x19" * (depth - 1) + b"\x05" + b"\x00")


def compile_operations(count: int) -> None:
    one_of_two = " OR ".join(["a > 1"] * (count - 1))
    compile_condition(one_of_two, Scope(pa.schema({"a": pa.int64()})))


CASES: dict[str, tuple[Limit, int, Callable[[int], object]]] = {
    "levels of a schema": (DEPTH_MAX, 60, lambda n: parse_avro_schema(avro([nested(n // 2)]))),
    "levels of a footer": (DEPTH_MAX, 60, parse_thrift),
    "values of a schema": (VALUES_MAX, 50, lambda n: parse_avro_schema(avro(["int"] * n))),
    "bytes of a fixed type": (
        FIXED_BYTES_MAX,
        40,
        lambda n: parse_avro_schema(avro([{"type": "fixed", "name": "f", "size": n}])),
    ),
    "hashes of a bloom filter": (HASHES_MAX, 20, parse_bloom),
    "bytes of a block": (BLOCK_BYTES_MAX, 5_000, parse_hfile),
    "rows of a row group": (ROWS_MAX, 200, parse_rows),
    "bytes of a file": (
        OBJECT_BYTES_MAX,
        50,
        lambda n: parse_properties(b"a=" + b"b" * n + b"\n", path="p"),
    ),
    "levels of an expression": (
        LEVELS_MAX,
        30,
        lambda n: parse_expression("- " * (n - 2) + "a > 1"),
    ),
    "open brackets": (BRACKETS_MAX, 30, lambda n: parse_expression("(" * n + "a" + ")" * n)),
    "operations": (OPERATIONS_MAX, 40, compile_operations),
    "characters": (CHARACTERS_MAX, 100, lambda n: parse_expression("a = 1" + " " * n)),
    "digits": (DIGITS_MAX, 90, lambda n: parse_expression("a = " + "9" * n)),
}
REFUSED = (HeadwaterError, MalformedBloomError, MalformedThriftError)


@pytest.mark.parametrize("name", CASES)
def test_a_limit_is_named_with_the_option_that_raises_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, count, parse = CASES[name]
    monkeypatch.setitem(limits._raised, limit.option.key, count // 2)
    with pytest.raises(REFUSED) as caught:
        parse(count)
    assert f"{limit.name}, {count // 2}; the option {limit.option.key} raises it" in str(
        caught.value
    )
    raise_limits({limit.option.key: str(4 * count)})
    parse(count)


def test_every_limit_has_a_case() -> None:
    every = {each.key for each in LimitConfig.options()}
    assert {limit.option.key for limit, _, _ in CASES.values()} == every


WHOLE_FILES = (
    "properties",
    "index definitions",
    "commit",
    "commit in JSON",
    "manifest",
    "markers",
    "attempt",
    "abort",
    "cancel count",
    "lock file",
    "epoch",
    "lock in storage",
)


@pytest.mark.parametrize("name", WHOLE_FILES)
def test_no_file_is_parsed_that_is_too_large(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parser = PARSERS[name]
    monkeypatch.setitem(limits._raised, OBJECT_BYTES_MAX.option.key, 10)
    for seed in parser.seeds:
        with pytest.raises(UnsupportedError, match="OBJECT_BYTES_MAX") as caught:
            parser.parse(seed)
        assert caught.value.kind is ErrorKind.LIMIT_REACHED


def test_an_option_of_a_table_raises_a_limit_and_nothing_lowers_it(tmp_path: Path) -> None:
    key = DIGITS_MAX.option.key
    table = a_table(tmp_path).create()
    where = "value = " + "0" * 1_500
    with pytest.raises(InvalidInputError, match=key):
        table.read_arrow(where=where)
    hw.open_table(table.uri, {key: "2000"})
    hw.open_table(table.uri, {key: "3"})
    assert DIGITS_MAX.value == 2_000
    parse_expression(where)


def test_digits_inside_of_a_text_are_no_number() -> None:
    digits = "9" * 5_000
    for quote in "'\"`":
        parse_expression(f"a = {quote}{digits}{quote}")
    with pytest.raises(InvalidInputError, match="DIGITS_MAX"):
        parse_expression(f"a = 'it''s' and b = {digits}")


def test_a_limit_that_is_no_number_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"headwater\.limit\.depth"):
        raise_limits({"headwater.limit.depth": "many"})
