"""Avro's binary encoding for whole columns at once, in numpy and Arrow.

Writing: each field of a record gives one or two *pieces*, arrays of byte strings with one entry per
row; joining the pieces of all fields row by row gives the records. Reading: a cursor array holds
where the next field of each row begins, and every reader returns the cursors behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.format.avro.binary import MalformedAvroError

Bytes: TypeAlias = npt.NDArray[np.uint8]
Longs: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

_VARINT_BYTES_MAX = 10
_DECIMAL_BYTES = 16
_INT32_MAX = 2**31 - 1


def varint_matrix(values: Longs) -> tuple[Bytes, Longs]:
    """Return zigzag varints as rows of a matrix, and how many bytes of each row count."""
    zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
    largest = int(zigzag.max(initial=0))
    width = max(1, -(-largest.bit_length() // 7))
    matrix = np.empty((len(values), width), np.uint8)
    lengths = np.ones(len(values), np.int64)
    for at in range(width):
        rest = zigzag >> np.uint64(7 * at)
        has_more = rest > 0x7F
        matrix[:, at] = (rest & np.uint64(0x7F)).astype(np.uint8) | (has_more * np.uint8(0x80))
        lengths += has_more
    return matrix, lengths


def constant_column(byte: int, count: int) -> Bytes:
    """Return a matrix of one column with the same byte in every row."""
    return np.full((count, 1), byte, np.uint8)


def pieces_of(matrix: Bytes, lengths: Longs | None = None) -> pa.Array:
    """Return the first bytes of each row of a matrix as byte strings; whole rows by default."""
    count, width = matrix.shape
    if lengths is None:
        offsets = np.arange(count + 1, dtype=np.int64) * width
        data = np.ascontiguousarray(matrix)
    else:
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        data = matrix[np.arange(width) < lengths[:, None]]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), count, buffers)


def without_nulls(values: pa.Array, instead: int | bool) -> pa.Array:
    """Return values with another one for null; most have none, and Arrow would copy them."""
    return values.fill_null(instead) if values.null_count else values


def piece_lengths(pieces: pa.Array) -> Longs:
    """Return the length of each byte string or text, 0 where it is null."""
    return np.asarray(without_nulls(pc.binary_length(pieces), 0)).astype(np.int64)


def join_pieces(pieces: Sequence[pa.Array | pa.Scalar]) -> pa.Array:
    """Concatenate pieces row by row; a null piece adds nothing to its row."""
    wanted = pa.large_binary()
    wide = [piece if piece.type == wanted else piece.cast(wanted) for piece in pieces]
    return pc.binary_join_element_wise(*wide, pa.scalar(b"", wanted), null_handling="skip")


def data_of(joined: pa.Array) -> memoryview:
    """Return the bytes of all rows, one after the other, without copying them."""
    if len(joined) == 0:
        return memoryview(b"")
    offsets = np.frombuffer(joined.buffers()[1], np.int64)[joined.offset :][: len(joined) + 1]
    return memoryview(joined.buffers()[2])[int(offsets[0]) : int(offsets[-1])]


def decimal_matrix(decimals: pa.Array) -> Bytes:
    """Return the unscaled values of decimals, 16 bytes each, least significant first."""
    data = np.frombuffer(decimals.buffers()[1], np.uint8)
    start = decimals.offset * _DECIMAL_BYTES
    used = data[start : start + len(decimals) * _DECIMAL_BYTES]
    return used.reshape(len(decimals), _DECIMAL_BYTES)


def twos_complement_lengths(matrix: Bytes) -> Longs:
    """Return the fewest bytes that hold each number of a matrix as `decimal_matrix` returns."""
    lengths = np.ones(len(matrix), np.int64)
    sign = np.where(matrix[:, -1] >= 0x80, 0xFF, 0).astype(np.uint8)
    for at in range(1, matrix.shape[1]):
        # Byte `at` counts if it says more than the sign bit of the byte below it.
        says_more = (matrix[:, at] != sign) | ((matrix[:, at - 1] ^ sign) >= 0x80)
        lengths[says_more] = at + 1
    return lengths


def bytes_of(data: bytes | memoryview) -> Bytes:
    return np.frombuffer(data, np.uint8)


def read_bytes(data: Bytes, at: Longs) -> tuple[Bytes, Longs]:
    """Read one byte per row."""
    _check_inside(data, at, 1)
    return data[at], at + 1


def read_longs(data: Bytes, at: Longs) -> tuple[Longs, Longs]:
    """Read one zigzag varint per row."""
    found, at = read_bytes(data, at)
    zigzag = (found & 0x7F).astype(np.uint64)
    rows = np.flatnonzero(found > 0x7F)
    shift = 7
    while len(rows):
        if shift >= 7 * _VARINT_BYTES_MAX:
            raise MalformedAvroError("a number of more than 64 bits")
        found, after = read_bytes(data, at[rows])
        # The tenth byte has room for a single bit.
        if shift == 63 and (found > 1).any():
            raise MalformedAvroError("a number of more than 64 bits")
        at[rows] = after
        zigzag[rows] |= (found & 0x7F).astype(np.uint64) << np.uint64(shift)
        rows = rows[found > 0x7F]
        shift += 7
    values = (zigzag >> np.uint64(1)) ^ (np.uint64(0) - (zigzag & np.uint64(1)))
    return values.view(np.int64), at


def read_fixed(data: Bytes, at: Longs, size: int) -> tuple[Bytes, Longs]:
    """Read `size` bytes per row, as the rows of a matrix."""
    _check_inside(data, at, size)
    if len(at) == 0:
        return np.empty((0, size), np.uint8), at
    return np.lib.stride_tricks.sliding_window_view(data, size)[at], at + size


def read_lengths(data: Bytes, at: Longs) -> tuple[Longs, Longs]:
    """Read the length before a byte sequence; return it and where the bytes begin."""
    lengths, starts = read_longs(data, at)
    # The first comparison keeps the sum from overflowing.
    if ((lengths < 0) | (lengths > len(data))).any() or (starts + lengths > len(data)).any():
        raise MalformedAvroError("a length that goes beyond the end")
    return lengths, starts


def take_spans(data: bytes | memoryview, starts: Longs, lengths: Longs, valid: Mask) -> pa.Array:
    """Return spans of `data`, which lie in it one behind the other, as binary values.

    `starts` and `lengths` are those of the valid rows; the others become null.
    """
    offset_type = np.int32 if len(data) <= _INT32_MAX else np.int64
    arrow = pa.binary() if offset_type is np.int32 else pa.large_binary()
    if len(starts) == 0:
        return pa.nulls(len(valid), arrow)
    # Spans and the gaps between them in turn are an array on the bytes as they are; Arrow then
    # copies every second entry, ten times as fast as numpy gathers single bytes.
    offsets = np.empty(2 * len(starts), offset_type)
    offsets[0::2] = starts
    offsets[1::2] = starts + lengths
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    in_turn = pa.Array.from_buffers(arrow, len(offsets) - 1, buffers)
    indices = np.zeros(len(valid), np.int64)
    indices[valid] = np.arange(0, len(offsets), 2)
    return in_turn.take(pa.array(indices, mask=~valid))


def decimals_of(matrix: Bytes, valid: Mask, arrow: pa.DataType) -> pa.Array:
    """Return decimals from big-endian two's complements, one row per valid entry."""
    size = matrix.shape[1]
    if size > _DECIMAL_BYTES:
        raise MalformedAvroError(f"a decimal of {size} bytes")
    wide = np.zeros((len(valid), _DECIMAL_BYTES), np.uint8)
    is_negative = matrix[:, 0] >= 0x80
    extended = np.where(is_negative, 0xFF, 0).astype(np.uint8)[:, None]
    rows = np.repeat(extended, _DECIMAL_BYTES, axis=1)
    rows[:, :size] = matrix[:, ::-1]
    wide[valid] = rows
    return pa.Array.from_buffers(arrow, len(valid), [bitmap_of(valid), pa.py_buffer(wide)])


def right_aligned(data: Bytes, starts: Longs, lengths: Longs) -> Bytes:
    """Return byte sequences of 1 to 16 bytes as 16 byte numbers with their sign extended."""
    if ((lengths < 1) | (lengths > _DECIMAL_BYTES)).any():
        raise MalformedAvroError("a decimal that is empty or has more than 16 bytes")
    sign = np.where(data[starts] >= 0x80, 0xFF, 0).astype(np.uint8)
    matrix = np.repeat(sign[:, None], _DECIMAL_BYTES, axis=1)
    for at in range(_DECIMAL_BYTES):
        rows = np.flatnonzero(lengths > at)
        matrix[rows, _DECIMAL_BYTES - 1 - at] = data[starts[rows] + lengths[rows] - 1 - at]
    return matrix


def bitmap_of(valid: Mask) -> pa.Buffer | None:
    """Return the validity bitmap of an Arrow array, None if every row is valid."""
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _check_inside(data: Bytes, at: Longs, size: int) -> None:
    if len(at) and int(at.max()) > len(data) - size:
        raise MalformedAvroError("a value that goes beyond the end")
