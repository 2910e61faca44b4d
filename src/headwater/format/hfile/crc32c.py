"""CRC32C in numpy, which neither Python nor its zlib has.

A CRC without its first and last inversion is linear: it is the XOR of what each byte contributes,
which depends on the byte and on how many bytes follow it. So the bytes of short pieces look their
contribution up, all at once, and so do the CRCs of the pieces in what follows those.
"""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np
import numpy.typing as npt

_POLYNOMIAL = 0x82F63B78
_PIECE_BYTES = 64
_WORD_BYTES = 4
_ALL_ONES = 0xFFFFFFFF
_LENGTHS_CACHED_MAX = 1024


def crc32c_of_chunks(data: bytes | memoryview, chunk_bytes: int) -> npt.NDArray[np.uint32]:
    """Return the CRC32C of each chunk of some bytes; the last one may be shorter."""
    size = len(data)
    count = -(-size // chunk_bytes)
    if count == 0:
        return np.zeros(0, np.uint32)
    flat = np.frombuffer(data, np.uint8)
    whole = (size // chunk_bytes) * chunk_bytes
    found = [_crcs(flat[:whole].reshape(-1, chunk_bytes))] if whole else []
    if whole < size:
        found.append(_crcs(flat[whole:].reshape(1, -1)))
    return np.concatenate(found)


def _crcs(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Return the CRC32C of the rows of a matrix."""
    count, length = rows.shape
    pieces = -(-length // _PIECE_BYTES)
    # Zeros in front contribute nothing.
    padded = np.zeros((count, pieces * _PIECE_BYTES), np.uint8)
    padded[:, padded.shape[1] - length :] = rows
    by_place = _contributions()[np.arange(_PIECE_BYTES), padded.reshape(-1, _PIECE_BYTES)]
    words = np.bitwise_xor.reduce(by_place, axis=1).reshape(count, pieces)
    crcs = np.zeros(count, np.uint32)
    for at in range(pieces):
        crcs = _shifted(crcs) ^ words[:, at]
    return crcs ^ np.uint32(_shifted_ones(length)) ^ np.uint32(_ALL_ONES)


def _shifted(crcs: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Return the CRCs after as many zero bytes as a piece has."""
    tables = _shift_tables()
    out: npt.NDArray[np.uint32] = tables[0][crcs & np.uint32(0xFF)]
    for byte in range(1, _WORD_BYTES):
        out = out ^ tables[byte][(crcs >> np.uint32(8 * byte)) & np.uint32(0xFF)]
    return out


@cache
def _byte_table() -> npt.NDArray[np.uint32]:
    """Return the CRC of each single byte."""
    crcs = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crcs = np.where(crcs & 1, (crcs >> 1) ^ np.uint32(_POLYNOMIAL), crcs >> 1)
    return crcs.astype(np.uint32)


def _after_zero_byte(crcs: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    low: npt.NDArray[np.uint32] = _byte_table()[crcs & np.uint32(0xFF)]
    return low ^ (crcs >> np.uint32(8))


@cache
def _contributions() -> npt.NDArray[np.uint32]:
    """Return what a byte contributes, by its place in a piece and its value."""
    table = np.empty((_PIECE_BYTES, 256), np.uint32)
    crcs = _byte_table()
    for place in range(_PIECE_BYTES - 1, -1, -1):
        table[place] = crcs
        crcs = _after_zero_byte(crcs)
    return table


@cache
def _shift_tables() -> npt.NDArray[np.uint32]:
    """Return, by place and value of each byte of a CRC, what it becomes behind a piece of zeros."""
    table = np.empty((_WORD_BYTES, 256), np.uint32)
    for byte in range(_WORD_BYTES):
        crcs = np.arange(256, dtype=np.uint32) << np.uint32(8 * byte)
        for _ in range(_PIECE_BYTES):
            crcs = _after_zero_byte(crcs)
        table[byte] = crcs
    return table


@lru_cache(maxsize=_LENGTHS_CACHED_MAX)
def _shifted_ones(length: int) -> int:
    """Return what the inverted start of a CRC contributes behind so many bytes."""
    crc = np.array([_ALL_ONES], np.uint32)
    for _ in range(length // _PIECE_BYTES):
        crc = _shifted(crc)
    for _ in range(length % _PIECE_BYTES):
        crc = _after_zero_byte(crc)
    return int(crc[0])
