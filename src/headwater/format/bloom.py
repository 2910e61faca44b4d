"""Bloom filters over record keys, as base files carry them (format rule 6.2).

A filter of type SIMPLE is one row of bits; one of type DYNAMIC_V0 starts a new row whenever the
last one holds as many keys as it was made for, up to a limit, and then fills all rows in turn. A
key is in the filter if any row has all of its bits.

    row      int -1 | int hash count | byte 1 (murmur) | int bit count | bits
    dynamic  int -1 | int hash count | byte 1 | int bit count | int keys per row | int keys in the
             last row | int row count | rows

The bits of a key are a chain of murmur hashes, each the seed of the next. Hashing is done for all
keys of one length at once: scalar code takes seven hundred times as long.
"""

from __future__ import annotations

import math
import struct
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.config.limits import HASHES_MAX
from headwater.errors import InvalidInputError

Words: TypeAlias = npt.NDArray[np.uint32]
Bits: TypeAlias = npt.NDArray[np.bool_]

KEYS_PER_ROW = 60_000
FALSE_POSITIVE_RATE = 1e-9
KEYS_MAX = 100_000

_ROW_HEADER = struct.Struct(">iibi")
_COUNTS = struct.Struct(">iii")
_VERSION = -1
_MURMUR = 1
_MULTIPLIER = np.uint32(0x5BD1E995)
# Small enough for the caches of a core while a chain of thirty hashes runs over them.
_PIECE_KEYS = 8192


class MalformedBloomError(ValueError):
    """Bytes that are no bloom filter. Callers add the path."""


@unique
class BloomType(StrEnum):
    SIMPLE = "SIMPLE"
    DYNAMIC = "DYNAMIC_V0"


@dataclass(frozen=True, slots=True)
class HashedKeys:
    """The bits of keys in filters of one size. To hash is most of the work of asking a filter."""

    hash_count: int
    bit_count: int
    pieces: tuple[npt.NDArray[np.int64], ...]
    """Bits, hash by key."""


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """A filter that is complete. `rows` are bits, one element each."""

    type: BloomType
    hash_count: int
    bit_count: int
    keys_per_row: int
    last_row_keys: int
    rows: tuple[Bits, ...]

    def might_contain(self, keys: pa.Array) -> Bits:
        """Return a mask of the keys that may be in the filter; a null key is not."""
        found = np.zeros(len(keys), np.bool_)
        for positions, at in _bit_positions(keys, self.hash_count, self.bit_count):
            for bits in self.rows:
                found[at] |= bits[positions].all(axis=0)
        return found

    def hash_keys(self, keys: pa.Array) -> HashedKeys:
        """Hash keys for this filter, and for all others of its size."""
        pieces = _bit_positions(keys, self.hash_count, self.bit_count)
        return HashedKeys(
            self.hash_count, self.bit_count, tuple(positions for positions, _ in pieces)
        )

    def fits(self, keys: HashedKeys) -> bool:
        """Whether keys were hashed for filters of this size."""
        return (keys.hash_count, keys.bit_count) == (self.hash_count, self.bit_count)

    def might_contain_any(self, keys: HashedKeys) -> bool:
        """Whether one of the keys may be in the filter."""
        return any(_has_all_bits(bits, piece) for piece in keys.pieces for bits in self.rows)

    def to_bytes(self) -> bytes:
        header = _ROW_HEADER.pack(_VERSION, self.hash_count, _MURMUR, self.bit_count)
        rows = b"".join(
            header + np.packbits(bits, bitorder="little").tobytes() for bits in self.rows
        )
        if self.type is BloomType.SIMPLE:
            return rows
        counts = _COUNTS.pack(self.keys_per_row, self.last_row_keys, len(self.rows))
        return header + counts + rows

    def to_text(self) -> str:
        """Return the filter as the footer of a base file has it."""
        return b64encode(self.to_bytes()).decode("ascii")


class BloomFilterBuilder:
    """Collects keys in order. With the defaults it makes the filters that Hudi makes."""

    def __init__(
        self,
        type: BloomType = BloomType.DYNAMIC,
        *,
        keys_per_row: int = KEYS_PER_ROW,
        false_positive_rate: float = FALSE_POSITIVE_RATE,
        keys_max: int = KEYS_MAX,
    ) -> None:
        if keys_per_row < 1 or not 0 < false_positive_rate < 1:
            raise InvalidInputError(
                "A bloom filter is made for at least one key and a rate of false positives between "
                f"0 and 1, got {keys_per_row} and {false_positive_rate}"
            )
        self._type = type
        self._keys_per_row = keys_per_row
        self._keys_max = keys_max
        self._bit_count = math.ceil(
            keys_per_row * -math.log(false_positive_rate) / math.log(2) ** 2
        )
        self._hash_count = math.ceil(math.log(2) * self._bit_count / keys_per_row)
        self._rows = [np.zeros(self._bit_count, np.bool_)]
        self._last_row_keys = 0
        self._turn = -1  # Which row the next key goes to once no row may be added.

    def add(self, keys: pa.Array) -> None:
        """Add keys; nulls are passed over."""
        rest = keys.drop_null()
        while len(rest):
            taken = self._add_some(rest)
            rest = rest[taken:]

    def build(self) -> BloomFilter:
        return BloomFilter(
            self._type,
            self._hash_count,
            self._bit_count,
            self._keys_per_row,
            self._last_row_keys,
            tuple(self._rows),
        )

    def _add_some(self, keys: pa.Array) -> int:
        """Add the keys that go the same way; return how many they were."""
        if self._type is BloomType.SIMPLE:
            return self._set_bits(self._rows[0], keys)
        if self._turn >= 0:
            return self._add_in_turn(keys)
        room = self._keys_per_row - self._last_row_keys
        if room > 0:
            return self._set_bits(self._rows[-1], keys[:room])
        if len(self._rows) * self._keys_per_row < self._keys_max:
            self._rows.append(np.zeros(self._bit_count, np.bool_))
            self._last_row_keys = 0
            return 0
        # The key that finds the filter full goes to the first row, and so does the one after it.
        self._turn = 0
        return self._set_bits(self._rows[0], keys[:1])

    def _add_in_turn(self, keys: pa.Array) -> int:
        rows = (np.arange(len(keys)) + self._turn) % len(self._rows)
        for row, bits in enumerate(self._rows):
            self._set_bits(bits, keys.take(pa.array(np.flatnonzero(rows == row))))
        self._turn = (self._turn + len(keys)) % len(self._rows)
        return len(keys)

    def _set_bits(self, bits: Bits, keys: pa.Array) -> int:
        for positions, _ in _bit_positions(keys, self._hash_count, self._bit_count):
            bits[positions] = True
        self._last_row_keys += len(keys)
        return len(keys)


def parse_bloom_filter(text: str, type_code: str) -> BloomFilter:
    """Return the filter in the footer of a base file.

    Raises:
        MalformedBloomError: the text is no filter of that type.
    """
    try:
        kind = BloomType(type_code)
        data = b64decode(text, validate=True)
        _, hash_count, hash_type, bit_count = _ROW_HEADER.unpack_from(data)
        at = 0
        keys_per_row, last_row_keys, row_count = 0, 0, 1
        if kind is BloomType.DYNAMIC:
            keys_per_row, last_row_keys, row_count = _COUNTS.unpack_from(data, _ROW_HEADER.size)
            at = _ROW_HEADER.size + _COUNTS.size
    except (ValueError, Base64Error, struct.error) as error:
        raise MalformedBloomError(f"no bloom filter of type {type_code}: {error}") from error
    row_bytes = _ROW_HEADER.size + -(-bit_count // 8)
    is_whole = (
        0 < hash_count <= HASHES_MAX.value
        and bit_count > 0
        and len(data) == at + row_count * row_bytes
    )
    if not is_whole or hash_type != _MURMUR:
        raise MalformedBloomError(
            f"a bloom filter of {row_count} rows of {bit_count} bits in {len(data)} bytes, with "
            f"{hash_count} hashes of at most {HASHES_MAX}"
        )
    rows = []
    for row in range(row_count):
        start = at + row * row_bytes + _ROW_HEADER.size
        packed = np.frombuffer(data, np.uint8, row_bytes - _ROW_HEADER.size, start)
        unpacked = np.unpackbits(packed, count=bit_count, bitorder="little")
        rows.append(unpacked.view(np.bool_))
    return BloomFilter(kind, hash_count, bit_count, keys_per_row, last_row_keys, tuple(rows))


def _has_all_bits(bits: Bits, positions: npt.NDArray[np.int64]) -> bool:
    """Whether a row has all bits of some key. Each hash leaves about half of the others to ask."""
    left = np.arange(positions.shape[1])
    for of_hash in positions:
        left = left[bits[of_hash[left]]]
        if not len(left):
            return False
    return True


def _bit_positions(
    keys: pa.Array, hash_count: int, bit_count: int
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Yield, for keys of one length at a time, their bits (hash by key) and where the keys are."""
    for length, matrix, at in _by_length(keys):
        for start in range(0, len(at), _PIECE_KEYS):
            piece = matrix[start : start + _PIECE_KEYS]
            words, tail = _premixed(piece)
            positions = np.empty((hash_count, len(piece)), np.int64)
            hashes = np.zeros(len(piece), np.uint32)
            for step in range(hash_count):
                hashes = _murmur(words, tail, length, hashes)
                # Java's remainder keeps the sign, which the absolute value then drops.
                positions[step] = np.abs(hashes.view(np.int32).astype(np.int64)) % bit_count
            yield positions, at[start : start + _PIECE_KEYS]


def _by_length(
    keys: pa.Array,
) -> Iterator[tuple[int, npt.NDArray[np.uint8], npt.NDArray[np.int64]]]:
    """Yield the keys of each length as a matrix of bytes, and their places among all keys."""
    texts = keys.cast(pa.large_string())
    if len(texts) == 0:
        return
    _, offsets_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[texts.offset :][: len(texts) + 1]
    data = np.frombuffer(data_buffer or b"", np.uint8)
    lengths = np.diff(offsets)
    lengths[~np.asarray(texts.is_valid())] = -1
    for length in np.unique(lengths):
        if length < 0:
            continue
        at = np.flatnonzero(lengths == length)
        matrix = data[offsets[at][:, None] + np.arange(length)]
        yield int(length), matrix, at


def _premixed(matrix: npt.NDArray[np.uint8]) -> tuple[list[Words], Words | None]:
    """Return what does not depend on the seed: the mixed words, and the bytes behind them."""
    count, length = matrix.shape
    whole = length - length % 4
    words = []
    for start in range(0, whole, 4):
        word = np.ascontiguousarray(matrix[:, start : start + 4]).view("<u4")[:, 0]
        word = word.astype(np.uint32) * _MULTIPLIER
        words.append((word ^ (word >> np.uint32(24))) * _MULTIPLIER)
    if whole == length:
        return words, None
    # The last bytes are signed, and the very last one is the lowest, unlike in other murmurs.
    tail = np.zeros(count, np.uint32)
    signed = matrix[:, whole:].view(np.int8).astype(np.int32).view(np.uint32)
    for back in range(1, length - whole + 1):
        tail ^= signed[:, -back] << np.uint32(8 * (back - 1))
    return words, tail


def _murmur(words: list[Words], tail: Words | None, length: int, seeds: Words) -> Words:
    hashes = seeds ^ np.uint32(length)
    for word in words:
        hashes = hashes * _MULTIPLIER ^ word
    if tail is not None:
        hashes = (hashes ^ tail) * _MULTIPLIER
    hashes ^= hashes >> np.uint32(13)
    hashes = hashes * _MULTIPLIER
    return hashes ^ (hashes >> np.uint32(15))
