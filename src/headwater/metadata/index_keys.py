"""Keys of the metadata table's records (format rule 8.3), for whole columns at once.

    column_stats       h64(column) + h64(partition) + md5(file name)
    partition_stats    h64(column) + h64(partition)
    bloom_filters      h64(partition) + md5(file name)
    secondary_index_*  escaped secondary key + `$` + escaped record key

`h64` is base64 of xxHash64, `md5` base64 of MD5. The partition of a table without partitions is
`.` here, as it is in `files`. A key of the record index is the record key itself.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import InvalidInputError

ALL_PARTITIONS = "__all_partitions__"
NON_PARTITIONED = "."
SEPARATOR = "$"
NULL_SECONDARY = "\0"
SEED = 0xFFFFFFFFDABADABA

_HASHES_CACHED_MAX = 4096
_FEW_TEXTS = 64
_MASK = (1 << 64) - 1
_PRIMES = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_STRIPE_BYTES = 32
_LANES = 4
# An escaped text up to its separator: no backslash or dollar but behind a backslash.
_SECONDARY_PATTERN = r"(?s)^(?P<secondary>(?:[^\\$]|\\.)*)\$(?P<record>(?:[^\\$]|\\.)*)$"


def partition_id(partition_path: str) -> str:
    """Return the name of a partition in the metadata table."""
    return partition_path or NON_PARTITIONED


def partition_path_of(partition: str) -> str:
    """Return the path of a partition from its name in the metadata table."""
    return "" if partition == NON_PARTITIONED else partition


def column_stats_keys(
    columns: pa.Array, partition_paths: pa.Array, file_names: pa.Array
) -> pa.StringArray:
    """Return the keys of column stats records, row by row."""
    return _joined(h64_texts(columns), _partition_hashes(partition_paths), md5_texts(file_names))


def partition_stats_keys(columns: pa.Array, partition_paths: pa.Array) -> pa.StringArray:
    """Return the keys of partition stats records, row by row."""
    return _joined(h64_texts(columns), _partition_hashes(partition_paths))


def bloom_filter_keys(partition_paths: pa.Array, file_names: pa.Array) -> pa.StringArray:
    """Return the keys of bloom filter records, row by row."""
    return _joined(_partition_hashes(partition_paths), md5_texts(file_names))


def column_prefix(column: str, partition_path: str | None = None) -> str:
    """Return what the stats keys of a column begin with, in one partition or in all."""
    return h64(column) + ("" if partition_path is None else h64(partition_id(partition_path)))


def secondary_keys(secondary: pa.StringArray, record_keys: pa.StringArray) -> pa.StringArray:
    """Return the keys of secondary index records, row by row; a null secondary is a char 0."""
    escaped = _escaped(secondary).fill_null(NULL_SECONDARY)
    return pc.binary_join_element_wise(escaped, _escaped(record_keys), SEPARATOR)


def secondary_prefix(secondary: str | None) -> str:
    """Return what the keys of one secondary value begin with, its separator included."""
    value = pa.array([secondary], pa.string())
    escaped: str = _escaped(value).fill_null(NULL_SECONDARY)[0].as_py()
    return escaped + SEPARATOR


def split_secondary_keys(keys: pa.StringArray) -> tuple[pa.StringArray, pa.StringArray]:
    """Return secondary values, null for null, and record keys.

    Raises:
        InvalidInputError: a key has no separator, or a second one.
    """
    parts = _parts(keys)
    secondary, records = parts.field("secondary"), parts.field("record")
    is_null = pc.equal(secondary, NULL_SECONDARY)
    return pc.if_else(is_null, None, _unescaped(secondary)), _unescaped(records)


def secondary_hash_texts(keys: pa.StringArray) -> pa.StringArray:
    """Return what the file group of each key depends on since index version 2.

    That is the escaped secondary value with its separator.

    Raises:
        InvalidInputError: a key has no separator, or a second one.
    """
    return pc.binary_join_element_wise(_parts(keys).field("secondary"), SEPARATOR, "")


@lru_cache(maxsize=_HASHES_CACHED_MAX)
def h64(text: str) -> str:
    """Return the base64 text of the xxHash64 of one text."""
    hashed: str = _h64_of_distinct(pa.array([text], pa.string()))[0].as_py()
    return hashed


def h64_texts(texts: pa.Array) -> pa.StringArray:
    """Return the base64 text of the xxHash64 of each text."""
    encoded = _dictionary(texts)
    distinct = encoded.dictionary
    if len(distinct) <= _FEW_TEXTS:
        # Columns and partitions of a small commit, mostly those of the commit before.
        hashed = pa.array([h64(text) for text in distinct.to_pylist()], pa.string())
    else:
        hashed = _h64_of_distinct(distinct)
    return hashed.take(encoded.indices)


def _h64_of_distinct(texts: pa.StringArray) -> pa.StringArray:
    hashes = xxhash64(texts).astype(">u8").view(np.uint8)
    return _base64(hashes.reshape(len(texts), 8))


def md5_texts(texts: pa.Array) -> pa.StringArray:
    """Return the base64 text of the MD5 of each text."""
    encoded = _dictionary(texts)
    values = encoded.dictionary.cast(pa.binary()).to_pylist()
    # No vectors here: a digest takes less than a microsecond.
    digests = b"".join(hashlib.md5(value, usedforsecurity=False).digest() for value in values)
    matrix = np.frombuffer(digests, np.uint8).reshape(len(values), 16)
    return _base64(matrix).take(encoded.indices)


def xxhash64(texts: pa.StringArray, seed: int = SEED) -> npt.NDArray[np.uint64]:
    """Return the xxHash64 of each text, with the seed that Hudi has by default."""
    wide = texts.cast(pa.large_string())
    hashes = np.zeros(len(wide), np.uint64)
    if len(wide) == 0:
        return hashes
    offsets = np.frombuffer(wide.buffers()[1], np.int64)[wide.offset :][: len(wide) + 1]
    data = np.frombuffer(wide.buffers()[2] or b"", np.uint8)
    lengths = np.diff(offsets)
    for length in np.unique(lengths):
        at = np.flatnonzero(lengths == length)
        hashes[at] = _xxhash64_of_rows(data[offsets[at][:, None] + np.arange(length)], seed)
    return hashes


def _xxhash64_of_rows(rows: npt.NDArray[np.uint8], seed: int) -> npt.NDArray[np.uint64]:
    """Return the hash of each row of a matrix."""
    first, second, third, fourth, fifth = map(np.uint64, _PRIMES)
    count, length = rows.shape
    at = 0
    if length >= _STRIPE_BYTES:
        starts = (seed + _PRIMES[0] + _PRIMES[1], seed + _PRIMES[1], seed, seed - _PRIMES[0])
        lanes = [np.full(count, start & _MASK, np.uint64) for start in starts]
        while at + _STRIPE_BYTES <= length:
            for lane in range(_LANES):
                lanes[lane] = _round(lanes[lane], _words(rows, at + 8 * lane, "<u8"))
            at += _STRIPE_BYTES
        turns = zip(lanes, (1, 7, 12, 18), strict=True)
        hashes = np.zeros(count, np.uint64)
        for lane_hashes, bits in turns:
            hashes = hashes + _rotated(lane_hashes, bits)
        for lane_hashes in lanes:
            hashes = (hashes ^ _round(np.zeros(count, np.uint64), lane_hashes)) * first + fourth
    else:
        hashes = np.full(count, (seed + _PRIMES[4]) & _MASK, np.uint64)
    hashes = hashes + np.uint64(length)
    while at + 8 <= length:
        word = _round(np.zeros(count, np.uint64), _words(rows, at, "<u8"))
        hashes = _rotated(hashes ^ word, 27) * first + fourth
        at += 8
    if at + 4 <= length:
        hashes = _rotated(hashes ^ (_words(rows, at, "<u4") * first), 23) * second + third
        at += 4
    for place in range(at, length):
        hashes = _rotated(hashes ^ (rows[:, place].astype(np.uint64) * fifth), 11) * first
    hashes = (hashes ^ (hashes >> np.uint64(33))) * second
    hashes = (hashes ^ (hashes >> np.uint64(29))) * third
    return hashes ^ (hashes >> np.uint64(32))


def _words(rows: npt.NDArray[np.uint8], at: int, word: str) -> npt.NDArray[np.uint64]:
    size = np.dtype(word).itemsize
    return np.ascontiguousarray(rows[:, at : at + size]).view(word)[:, 0].astype(np.uint64)


def _round(hashes: npt.NDArray[np.uint64], words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    mixed = hashes + words * np.uint64(_PRIMES[1])
    return _rotated(mixed, 31) * np.uint64(_PRIMES[0])


def _rotated(words: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.uint64]:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def _dictionary(texts: pa.Array) -> pa.DictionaryArray:
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    encoded = texts if isinstance(texts, pa.DictionaryArray) else texts.dictionary_encode()
    if encoded.null_count:
        raise InvalidInputError("Names that make up keys of the metadata table cannot be null")
    return encoded


def _base64(rows: npt.NDArray[np.uint8]) -> pa.StringArray:
    """Return the padded base64 text of each row of a matrix."""
    count, size = rows.shape
    padding = -size % 3
    padded = np.zeros((count, size + padding), np.uint8)
    padded[:, :size] = rows
    width = padded.shape[1] // 3 * 4
    texts = np.frombuffer(b64encode(padded.tobytes()), np.uint8).reshape(count, width).copy()
    # Encoded zeros stand where the padding of each row belongs.
    texts[:, width - padding :] = ord("=")
    offsets = np.arange(count + 1, dtype=np.int32) * width
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(texts)]
    return pa.StringArray.from_buffers(count, buffers[1], buffers[2])


def _partition_hashes(partition_paths: pa.Array) -> pa.StringArray:
    encoded = _dictionary(partition_paths)
    names = pc.if_else(pc.equal(encoded.dictionary, ""), NON_PARTITIONED, encoded.dictionary)
    return h64_texts(names).take(encoded.indices)


def _joined(*parts: pa.StringArray) -> pa.StringArray:
    return pc.binary_join_element_wise(*parts, "")


def _escaped(texts: pa.StringArray) -> pa.StringArray:
    escaped = pc.replace_substring(texts, "\\", "\\\\")
    escaped = pc.replace_substring(escaped, SEPARATOR, "\\" + SEPARATOR)
    return pc.replace_substring(escaped, "\0", "\\\0")


def _unescaped(texts: pa.StringArray) -> pa.StringArray:
    return pc.replace_substring_regex(texts, r"(?s)\\(.)", r"\1")


def _parts(keys: pa.StringArray) -> pa.StructArray:
    parts = pc.extract_regex(keys, _SECONDARY_PATTERN)
    if parts.null_count > keys.null_count:
        raise InvalidInputError(
            "A key of a secondary index is a secondary value and a record key with one separator "
            f"between them, got {keys.filter(pc.is_null(parts))[0].as_py()!r}"
        )
    return parts
