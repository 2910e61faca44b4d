"""Keys of the metadata table: Hudi's own examples, scalar twins, and escapes."""

from __future__ import annotations

import hashlib
from base64 import b64encode

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import InvalidInputError
from headwater.metadata.index_keys import (
    bloom_filter_keys,
    column_prefix,
    column_stats_keys,
    h64,
    h64_texts,
    md5_texts,
    partition_id,
    partition_path_of,
    partition_stats_keys,
    secondary_hash_texts,
    secondary_keys,
    secondary_prefix,
    split_secondary_keys,
    xxhash64,
)

MASK = (1 << 64) - 1
PRIMES = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
AWKWARD = st.text(st.sampled_from("ab\\$\0é😀"), max_size=8)


def rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & MASK


def round_of(lane: int, word: int) -> int:
    return rotate((lane + word * PRIMES[1]) & MASK, 31) * PRIMES[0] & MASK


def naive_xxhash64(data: bytes, seed: int) -> int:
    """One text at a time, as the algorithm is published."""
    at = 0
    if len(data) >= 32:
        lanes = [seed + PRIMES[0] + PRIMES[1], seed + PRIMES[1], seed, seed - PRIMES[0]]
        while at + 32 <= len(data):
            for lane in range(4):
                word = int.from_bytes(data[at : at + 8], "little")
                lanes[lane] = round_of(lanes[lane] & MASK, word)
                at += 8
        turned = zip(lanes, (1, 7, 12, 18), strict=True)
        value = sum(rotate(lane, bits) for lane, bits in turned) & MASK
        for lane in lanes:
            value = ((value ^ round_of(0, lane)) * PRIMES[0] + PRIMES[3]) & MASK
    else:
        value = (seed + PRIMES[4]) & MASK
    value = (value + len(data)) & MASK
    while at + 8 <= len(data):
        value ^= round_of(0, int.from_bytes(data[at : at + 8], "little"))
        value = (rotate(value, 27) * PRIMES[0] + PRIMES[3]) & MASK
        at += 8
    if at + 4 <= len(data):
        value ^= int.from_bytes(data[at : at + 4], "little") * PRIMES[0] & MASK
        value = (rotate(value, 23) * PRIMES[1] + PRIMES[2]) & MASK
        at += 4
    for byte in data[at:]:
        value = rotate(value ^ byte * PRIMES[4] & MASK, 11) * PRIMES[0] & MASK
    value = (value ^ value >> 33) * PRIMES[1] & MASK
    value = (value ^ value >> 29) * PRIMES[2] & MASK
    return value ^ value >> 32


@given(st.lists(st.text(max_size=80), max_size=10), st.integers(0, MASK))
@settings(deadline=None)
def test_xxhash64_is_that_of_one_text_at_a_time(texts: list[str], seed: int) -> None:
    expected = [naive_xxhash64(text.encode(), seed) for text in texts]
    assert xxhash64(pa.array(texts, pa.string()), seed).tolist() == expected


def test_few_texts_have_the_hashes_that_many_have() -> None:
    texts = [f"column-{number}" for number in range(200)]
    many = h64_texts(pa.array(texts)).to_pylist()
    assert many == [h64(text) for text in texts]
    assert h64_texts(pa.array([*texts[:3], *texts[:3]])).to_pylist() == many[:3] * 2


def test_xxhash64_has_the_published_values() -> None:
    texts = pa.array(["", "a", "abc"])
    expected = [0xEF46DB3751D8E999, 0xD24EC4F1A98C6E5B, 0x44BC2CF5AD770999]
    assert xxhash64(texts, 0).tolist() == expected


def test_the_examples_of_format_rule_8_3() -> None:
    assert (h64("fee_amount"), h64("region=us")) == ("5RNSbpYG6oU=", "431THTTwO5Q=")
    keys = partition_stats_keys(pa.array(["fee_amount"]), pa.array(["region=us"]))
    assert keys.to_pylist() == ["5RNSbpYG6oU=431THTTwO5Q="]
    assert secondary_keys(
        pa.array(["19737", None]), pa.array(["TXN-001", "TXN-003"])
    ).to_pylist() == [
        "19737$TXN-001",
        "\0$TXN-003",
    ]


def md5(text: str) -> str:
    return b64encode(hashlib.md5(text.encode()).digest()).decode()


@given(st.lists(st.tuples(st.text(), st.text(), st.text()), min_size=1, max_size=6))
@settings(deadline=None)
def test_stats_keys_are_hashes_in_their_order(rows: list[tuple[str, str, str]]) -> None:
    columns, partitions, files = (
        pa.array(list(each), pa.string()) for each in zip(*rows, strict=True)
    )
    places = [h64(partition_id(partition)) for _, partition, _ in rows]
    expected = [
        h64(column) + place + md5(file)
        for place, (column, _, file) in zip(places, rows, strict=True)
    ]
    assert column_stats_keys(columns, partitions, files).to_pylist() == expected
    assert (
        column_stats_keys(
            columns.dictionary_encode(), partitions.dictionary_encode(), pa.chunked_array([files])
        ).to_pylist()
        == expected
    )
    blooms = [place + md5(file) for place, (*_, file) in zip(places, rows, strict=True)]
    assert bloom_filter_keys(partitions, files).to_pylist() == blooms
    for key, (column, partition, _) in zip(expected, rows, strict=True):
        assert key.startswith(column_prefix(column))
        assert key.startswith(column_prefix(column, partition))


def test_a_table_without_partitions_is_a_dot() -> None:
    assert (partition_id(""), partition_id("a=1")) == (".", "a=1")
    assert (partition_path_of("."), partition_path_of("a=1")) == ("", "a=1")
    keys = partition_stats_keys(pa.array(["a"]), pa.array([""]))
    assert keys.to_pylist() == [h64("a") + h64(".")]


def test_no_names_make_no_keys_and_nulls_are_refused() -> None:
    none = pa.array([], pa.string())
    assert column_stats_keys(none, none, none).to_pylist() == []
    with pytest.raises(InvalidInputError):
        md5_texts(pa.array(["a", None]))


# Secondary keys -------------------------------------------------------------------------------


def naive_split(key: str) -> tuple[str, str]:
    """Return what is before and behind the first separator that is not escaped."""
    at = 0
    while key[at] != "$":
        at += 2 if key[at] == "\\" else 1
    return key[:at], key[at + 1 :]


@given(
    st.lists(
        st.tuples(st.none() | AWKWARD | st.text(), AWKWARD | st.text()), min_size=1, max_size=8
    )
)
@settings(deadline=None)
def test_secondary_keys_come_apart_again(rows: list[tuple[str | None, str]]) -> None:
    secondary, records = (pa.array(list(each), pa.string()) for each in zip(*rows, strict=True))
    keys = secondary_keys(secondary, records)
    found = split_secondary_keys(keys)
    assert [each.to_pylist() for each in found] == [secondary.to_pylist(), records.to_pylist()]
    hashed = secondary_hash_texts(keys).to_pylist()
    assert hashed == [naive_split(key)[0] + "$" for key in keys.to_pylist()]
    for key, (value, _) in zip(keys.to_pylist(), rows, strict=True):
        assert key.startswith(secondary_prefix(value))


def test_what_is_escaped() -> None:
    keys = secondary_keys(pa.array(["a$b", "c\\", "\0", ""]), pa.array(["1$", "2\\", "3\0", ""]))
    assert keys.to_pylist() == ["a\\$b$1\\$", "c\\\\$2\\\\", "\\\0$3\\\0", "$"]


def test_a_key_without_separator_is_refused() -> None:
    for key in ("abc", "abc\\$"):
        with pytest.raises(InvalidInputError, match="separator"):
            split_secondary_keys(pa.array([key]))
        with pytest.raises(InvalidInputError, match="separator"):
            secondary_hash_texts(pa.array([key]))
