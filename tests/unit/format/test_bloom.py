"""Bloom filters: the fast hashing against a scalar twin, and Hudi's bytes."""

from __future__ import annotations

import struct
from base64 import b64encode

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import InvalidInputError
from headwater.format.bloom import (
    BloomFilter,
    BloomFilterBuilder,
    BloomType,
    MalformedBloomError,
    parse_bloom_filter,
)

MASK = 0xFFFFFFFF
KEYS = st.lists(st.text(max_size=30), max_size=20)


def signed(value: int) -> int:
    return value - (1 << 32) if value & 0x80000000 else value


def murmur(data: bytes, seed: int) -> int:
    """Murmur 2 as Hadoop has it, one key at a time."""
    m = 0x5BD1E995
    value = seed ^ len(data)
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * m & MASK
        word = (word ^ word >> 24) * m & MASK
        value = value * m & MASK ^ word
    left = len(data) - whole
    if left:
        for back in range(left, 0, -1):
            byte = int.from_bytes(data[-back:][:1], signed=True)
            value ^= (byte << 8 * (back - 1)) & MASK
        value = value * m & MASK
    value ^= value >> 13
    value = value * m & MASK
    return value ^ value >> 15


def positions(key: str, hash_count: int, bit_count: int) -> set[int]:
    found, value = set(), 0
    for _ in range(hash_count):
        value = murmur(key.encode(), value)
        found.add(abs(signed(value)) % bit_count)
    return found


def built(keys: list[str], **options: object) -> BloomFilter:
    builder = BloomFilterBuilder(**options)  # type: ignore[arg-type]
    builder.add(pa.array(keys, pa.string()))
    return builder.build()


@settings(deadline=None)
@given(KEYS)
def test_the_bits_are_those_of_the_scalar_twin(keys: list[str]) -> None:
    bloom = built(keys, keys_per_row=100, false_positive_rate=1e-4)
    (bits,) = bloom.rows
    expected: set[int] = set()
    for key in keys:
        expected |= positions(key, bloom.hash_count, bloom.bit_count)
    assert set(np.flatnonzero(bits).tolist()) == expected


@settings(deadline=None)
@given(KEYS, st.sampled_from(BloomType))
def test_a_filter_comes_back_from_its_text(keys: list[str], kind: BloomType) -> None:
    bloom = built(keys, type=kind, keys_per_row=6, false_positive_rate=1e-4, keys_max=12)
    parsed = parse_bloom_filter(bloom.to_text(), kind)
    assert parsed.to_bytes() == bloom.to_bytes()
    assert parsed.might_contain(pa.array(keys, pa.string())).all()


def test_absent_keys_and_nulls_are_not_found() -> None:
    bloom = built([f"key-{at}" for at in range(500)], keys_per_row=500)
    found = bloom.might_contain(pa.array(["key-7", None, "other", "key-499", ""]))
    assert found.tolist() == [True, False, False, True, False]
    assert bloom.might_contain(pa.array([], pa.string())).tolist() == []


def test_a_slice_of_keys_is_hashed_from_where_it_begins() -> None:
    keys = pa.array(["skipped", "a", "bb", None, "ccc"])
    builder = BloomFilterBuilder(keys_per_row=10)
    builder.add(keys[1:])
    bloom = builder.build()
    assert bloom.might_contain(keys).tolist() == [False, True, True, False, True]
    assert bloom.last_row_keys == 3


def test_the_defaults_are_hudis() -> None:
    bloom = built(["a"])
    assert (bloom.type, bloom.hash_count, bloom.bit_count) == (BloomType.DYNAMIC, 30, 2_587_966)
    assert len(bloom.to_text()) == 431_380
    assert bloom.to_bytes()[:25] == struct.pack(">iibiiii", -1, 30, 1, 2_587_966, 60_000, 1, 1)


def test_rows_are_added_up_to_the_limit_and_then_filled_in_turn() -> None:
    keys = [f"key-{at}" for at in range(13)]

    def rows_of(count: int) -> list[set[str]]:
        bloom = built(keys[:count], keys_per_row=4, false_positive_rate=1e-9, keys_max=6)
        return [
            {
                key
                for key in keys
                if all(bits[at] for at in positions(key, bloom.hash_count, bloom.bit_count))
            }
            for bits in bloom.rows
        ]

    assert rows_of(4) == [set(keys[:4])]
    assert rows_of(5) == [set(keys[:4]), {"key-4"}]
    assert rows_of(8) == [set(keys[:4]), set(keys[4:8])]
    # Both rows are full: the ninth key goes to the first, then they take turns from the first on.
    first, second = rows_of(12)
    assert {"key-8", "key-9", "key-11"} <= first
    assert "key-10" in second


def test_adding_in_parts_is_adding_at_once() -> None:
    keys = [f"key-{at}" for at in range(40)]
    builder = BloomFilterBuilder(keys_per_row=7, keys_max=14)
    for start, end in ((0, 3), (3, 3), (3, 20), (20, 40)):
        builder.add(pa.array(keys[start:end], pa.string()))
    assert builder.build().to_bytes() == built(keys, keys_per_row=7, keys_max=14).to_bytes()


@pytest.mark.parametrize(
    ("text", "type_code"),
    [
        ("", "DYNAMIC_V0"),
        ("AAAA", "SIMPLE"),
        ("not base64!", "SIMPLE"),
        (built(["a"], keys_per_row=5).to_text(), "OTHER"),
        (built(["a"], keys_per_row=5).to_text(), "SIMPLE"),
        (b64encode(struct.pack(">iibi", -1, 3, 1, -8)).decode(), "SIMPLE"),
        (b64encode(struct.pack(">iibi", -1, 3, 0, 8) + b"\x00").decode(), "SIMPLE"),
    ],
)
def test_what_is_no_filter_is_refused(text: str, type_code: str) -> None:
    with pytest.raises(MalformedBloomError):
        parse_bloom_filter(text, type_code)


def test_a_filter_for_nothing_is_refused() -> None:
    with pytest.raises(InvalidInputError):
        BloomFilterBuilder(keys_per_row=0)
    with pytest.raises(InvalidInputError):
        BloomFilterBuilder(false_positive_rate=1.0)


@given(KEYS, KEYS)
@settings(max_examples=50)
def test_keys_that_were_hashed_once_get_the_same_answer(added: list[str], asked: list[str]) -> None:
    builder = BloomFilterBuilder(keys_per_row=5, false_positive_rate=0.1)
    builder.add(pa.array(added, pa.string()))
    filter_ = builder.build()
    keys = pa.array(asked, pa.string())
    hashed = filter_.hash_keys(keys)
    assert filter_.fits(hashed)
    assert filter_.might_contain_any(hashed) == filter_.might_contain(keys).any()
    larger = BloomFilterBuilder(keys_per_row=50, false_positive_rate=0.1).build()
    assert not larger.fits(hashed)
