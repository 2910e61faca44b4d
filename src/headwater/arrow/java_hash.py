"""Java's `String.hashCode` over Arrow text, many rows at once.

The hash of the UTF-16 units `u[0..n)` is the sum of `u[i] * 31**(n-1-i)` mod 2^32. As 31 is odd it
has an inverse mod 2^32, so one running sum `P` of `u[i] * 31**-i` over all rows of a piece gives
the hash of any span of units: `(P[end] - P[start]) * 31**(end-1)`. All of it in uint32, which
wraps the way Java does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import InvalidInputError

Int32s: TypeAlias = npt.NDArray[np.int32]
Int64s: TypeAlias = npt.NDArray[np.int64]
UInt32s: TypeAlias = npt.NDArray[np.uint32]

PIECE_ROWS_MAX = 32 * 1024
"""Pieces of 16k to 64k rows keep the running sum in the cache, measured."""
PIECE_BYTES_MAX = 4 * 1024 * 1024
"""Bounds the memory of a piece whose rows are long."""

_BASE = 31
_INVERSE = pow(_BASE, -1, 1 << 32)


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Some rows as UTF-16 units in one array, bytes where all are ASCII.

    Row `i` is `units[starts[i]:ends[i]]`; a null row is empty.
    """

    units: npt.NDArray[Any]
    starts: Int64s
    ends: Int64s


class SpanHasher:
    """Hashes any spans of one piece, after one pass over its units."""

    def __init__(self, piece: TextPiece) -> None:
        size = len(piece.units)
        rising, falling = _power_tables(size.bit_length())
        self._rising, falling = rising[:size], falling[:size]
        self._sums = np.zeros(size + 1, dtype=np.uint32)
        np.cumsum(piece.units * falling, dtype=np.uint32, out=self._sums[1:])

    def hashes(self, starts: Int64s, ends: Int64s) -> UInt32s:
        """Return the hash of each span of units; an empty one has 0."""
        if len(self._rising) == 0:
            return np.zeros(len(starts), dtype=np.uint32)
        # An empty span at the very beginning would ask for 31**-1; its sum is 0 whatever the scale.
        scale = self._rising[np.maximum(ends - 1, 0)]
        return (self._sums[ends] - self._sums[starts]) * scale


def string_hashes(text: pa.Array | pa.ChunkedArray) -> Int32s:
    """Return `String.hashCode` of every row; a null row has 0, like `Objects.hashCode`.

    Raises:
        InvalidInputError: it is not text, or not UTF-8.
    """
    hashes = [SpanHasher(piece).hashes(piece.starts, piece.ends) for piece in text_pieces(text)]
    return np.concatenate([np.zeros(0, dtype=np.uint32), *hashes]).view(np.int32)


@lru_cache(maxsize=2)
def _power_tables(bits: int) -> tuple[UInt32s, UInt32s]:
    """Return the powers of 31 and of its inverse for sizes of so many bits.

    They are kept, since every batch of a write asks for about as many.
    """
    return powers(_BASE, 1 << bits), powers(_INVERSE, 1 << bits)


def powers(base: int, count: int) -> UInt32s:
    """Return `base**0 .. base**(count-1)` mod 2^32."""
    factors = np.full(count, base, dtype=np.uint32)
    factors[:1] = 1
    return np.multiply.accumulate(factors, dtype=np.uint32)


def text_pieces(text: pa.Array | pa.ChunkedArray) -> Iterator[TextPiece]:
    """Yield the rows in pieces, in order.

    Raises:
        InvalidInputError: it is not text, or not UTF-8.
    """
    chunks = text.chunks if isinstance(text, pa.ChunkedArray) else [text]
    for chunk in chunks:
        yield from _chunk_pieces(_plain_text(chunk))


def _plain_text(chunk: pa.Array) -> pa.Array:
    arrow = chunk.type
    if pa.types.is_string(arrow) or pa.types.is_large_string(arrow):
        return chunk
    is_encoded = pa.types.is_dictionary(arrow) and (
        pa.types.is_string(arrow.value_type) or pa.types.is_large_string(arrow.value_type)
    )
    if is_encoded or pa.types.is_string_view(arrow) or pa.types.is_null(arrow):
        return pc.cast(chunk, pa.large_string())
    raise InvalidInputError(f"Record keys are text, got {arrow}. Cast the column to string")


def _chunk_pieces(chunk: pa.Array) -> Iterator[TextPiece]:
    if len(chunk) == 0:
        return
    _, offset_buffer, data = chunk.buffers()
    width = np.int64 if pa.types.is_large_string(chunk.type) else np.int32
    every = np.frombuffer(offset_buffer, dtype=width)
    offsets = every[chunk.offset : chunk.offset + len(chunk) + 1].astype(np.int64)
    units = np.frombuffer(data, dtype=np.uint8) if data else np.zeros(0, dtype=np.uint8)
    is_valid = None
    if chunk.null_count:
        is_valid = pc.is_valid(chunk).to_numpy(zero_copy_only=False)
    row = 0
    while row < len(chunk):
        fits = int(np.searchsorted(offsets, offsets[row] + PIECE_BYTES_MAX, side="right")) - 1
        end = min(max(fits, row + 1), row + PIECE_ROWS_MAX, len(chunk))
        bounds = offsets[row : end + 1]
        piece_units: npt.NDArray[Any] = units[bounds[0] : bounds[-1]]
        bounds = bounds - bounds[0]
        if len(piece_units) and piece_units.view(np.int8).min() < 0:
            piece_units, bounds = _utf16(piece_units, bounds)
        starts, ends = bounds[:-1], bounds[1:]
        if is_valid is not None:
            # The bytes behind a null are undefined.
            ends = np.where(is_valid[row:end], ends, starts)
        yield TextPiece(piece_units, starts, ends)
        row = end


def _utf16(utf8: npt.NDArray[np.uint8], bounds: Int64s) -> tuple[npt.NDArray[np.uint16], Int64s]:
    """Return the units of some UTF-8, and the same bounds counted in units."""
    try:
        encoded = utf8.tobytes().decode("utf-8").encode("utf-16-le")
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"A record key is not valid UTF-8 ({error.reason}). Correct the column's text"
        ) from error
    # A character has one unit, counted at its first byte; one of four bytes is a surrogate pair.
    units_of_byte = ((utf8 & 0xC0) != 0x80).astype(np.int64) + (utf8 >= 0xF0)
    units_before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(units_of_byte)])
    return np.frombuffer(encoded, dtype="<u2"), units_before[bounds]
