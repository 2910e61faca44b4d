"""Bucket of a record key, against a naive twin and against a JVM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.arrow import java_hash
from headwater.arrow.buckets import bucket_ids, list_hashes
from headwater.arrow.java_hash import string_hashes
from headwater.errors import InvalidInputError

VECTORS = json.loads(Path(__file__).with_name("java_hash_vectors.json").read_text("ascii"))


def wrapped(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31


def naive_string_hash(text: str | None) -> int:
    units = (text or "").encode("utf-16-le")
    result = 0
    for place in range(0, len(units), 2):
        result = wrapped(31 * result + int.from_bytes(units[place : place + 2], "little"))
    return result


def naive_values(key: str, fields: list[str]) -> list[str | None]:
    """Read pairs from left to right, one character class at a time."""
    if "," not in key or ":" not in key:
        return [key]
    values: list[str | None] = []
    rest = key
    while True:
        name, _, rest = rest.partition(":")
        parts = rest.split(":")
        taken, found_next = parts[0], False
        for part in parts[1:]:
            if "," in taken.rpartition(":")[2]:
                found_next = True
                break
            taken += ":" + part
        value = taken.rpartition(",")[0] if found_next else taken
        if not fields or name in fields:
            values.append({"__null__": None, "__empty__": ""}.get(value, value))
        if not found_next:
            return values or [key]
        rest = rest[len(value) + 1 :]


def naive_list_hash(values: list[str | None]) -> int:
    result = 1
    for value in values:
        result = wrapped(31 * result + naive_string_hash(value))
    return result


def naive_hash(key: str | None, fields: list[str]) -> int:
    return naive_list_hash([None] if key is None else naive_values(key, fields))


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
pieces = st.one_of(
    st.sampled_from(
        ["a", "b", ":", ",", "a:", ",b:", "__null__", "__empty__", "é", "\U0001f600", "\x00", "x"]
    ),
    texts,
)
keys = st.lists(pieces, max_size=8).map("".join)
string_types = st.sampled_from(
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int32(), pa.string()),
        pa.dictionary(pa.int8(), pa.large_string()),
    ]
)


@given(st.lists(st.none() | keys, max_size=12), string_types, st.integers(0, 4), st.integers(0, 4))
def test_every_hash_equals_the_naive_one(
    rows: list[str | None], arrow: pa.DataType, skipped: int, dropped: int
) -> None:
    array = pa.array(rows, pa.string()).cast(arrow)
    part = array[skipped : max(skipped, len(rows) - dropped)]
    expected = rows[skipped : max(skipped, len(rows) - dropped)]
    assert string_hashes(part).tolist() == [naive_string_hash(row) for row in expected]
    assert list_hashes(part).tolist() == [naive_hash(row, []) for row in expected]


@given(
    st.lists(st.none() | keys, max_size=12),
    st.lists(st.sampled_from(["a", "b", "é", "", "xx"]), max_size=3),
)
def test_hash_fields_choose_values_in_key_order(rows: list[str | None], fields: list[str]) -> None:
    chosen = [field for field in fields if field]
    found = list_hashes(pa.array(rows, pa.string()), hash_fields=fields)
    assert found.tolist() == [naive_hash(row, chosen) for row in rows]


@given(st.lists(st.lists(st.none() | keys, max_size=5), max_size=4), st.integers(1, 300))
def test_chunked_keys_give_one_array(chunks: list[list[str | None]], bucket_count: int) -> None:
    found = bucket_ids(pa.chunked_array(chunks, type=pa.string()), bucket_count)
    assert found.dtype == np.int32
    assert found.tolist() == [
        (naive_hash(row, []) & 0x7FFFFFFF) % bucket_count for chunk in chunks for row in chunk
    ]


def test_pieces_end_within_limits_and_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_hash, "PIECE_ROWS_MAX", 3)
    monkeypatch.setattr(java_hash, "PIECE_BYTES_MAX", 10)
    rows = ["a", "", "bé", None, "a long row that fills a piece", "a:1,b:2", "c", "d", "e", "f"]
    lengths = [len(piece.starts) for piece in java_hash.text_pieces(pa.array(rows))]
    assert lengths == [3, 1, 1, 3, 2]
    assert list_hashes(pa.array(rows)).tolist() == [naive_hash(row, []) for row in rows]


def test_bytes_behind_a_null_do_not_count() -> None:
    data = b"a:1,b:2" * 3
    offsets = np.array([0, 7, 14, 21], dtype=np.int32)
    only_middle = pa.py_buffer(bytes([0b010]))
    array = pa.StringArray.from_buffers(3, pa.py_buffer(offsets), pa.py_buffer(data), only_middle)
    assert list_hashes(array).tolist() == [31, naive_list_hash(["1", "2"]), 31]


@pytest.mark.parametrize(("text", "expected"), VECTORS["strings"])
def test_a_jvm_gives_the_same_string_hash(text: str, expected: int) -> None:
    assert string_hashes(pa.array([text])).tolist() == [expected]


@pytest.mark.parametrize(("values", "expected"), VECTORS["lists"])
def test_a_jvm_gives_the_same_list_hash(values: list[Any], expected: int) -> None:
    assert naive_list_hash(values) == expected
    if not any(sign in (value or "") for value in values for sign in ":,"):
        names = {None: "__null__", "": "__empty__"}
        pairs = [f"f{n}:{names.get(value, value)}" for n, value in enumerate(values)]
        key = ",".join(pairs) if len(values) > 1 else values[0]
        assert list_hashes(pa.array([key], pa.string())).tolist() == [expected]


@pytest.mark.parametrize(
    ("key", "expected", "of_4", "of_256"),
    [
        ("a", 128, 0, 128),
        ("TXN-001", -166313907, 1, 77),
        ("uuid-0001", -1663838478, 2, 242),
        ("id:1,name:Alice", 63352848, 0, 16),
        ("id:__null__,name:Alice", 63351329, 1, 33),
    ],
)
def test_format_rule_4_3(key: str, expected: int, of_4: int, of_256: int) -> None:
    keys = pa.array([key])
    assert list_hashes(keys).tolist() == [expected]
    assert bucket_ids(keys, 4).tolist() == [of_4]
    assert bucket_ids(keys, 256).tolist() == [of_256]


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("id:7", ["id:7"]),
        ("a:1,b:2", ["1", "2"]),
        ("a:1,2,b:3", ["1,2", "3"]),
        ("t:2014-10-22 13:50:42,b:x", ["2014-10-22 13:50:42", "x"]),
        ("a:1,t:13:50:42", ["1", "13:50:42"]),
        ("a:1,b:", ["1", ""]),
        ("a:1,", ["1,"]),
        (",a:1", ["1"]),
        ("a:__null__,b:__empty__", [None, ""]),
    ],
)
def test_values_of_a_complex_key(key: str, values: list[str | None]) -> None:
    assert list_hashes(pa.array([key])).tolist() == [naive_list_hash(values)]


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="int64"):
        bucket_ids(pa.array([1]), 4)
    with pytest.raises(InvalidInputError, match="at least one bucket"):
        bucket_ids(pa.array(["a"]), 0)
    broken = pa.array([b"\xff\xfe"]).view(pa.string())
    with pytest.raises(InvalidInputError, match="not valid UTF-8"):
        bucket_ids(broken, 4)
