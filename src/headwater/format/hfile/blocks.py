"""Blocks of an HFile: a header of 33 bytes, data that may be compressed, checksums.

    magic | int size behind the header | int raw size | long previous block of its kind, or -1
    byte checksum type | int bytes per checksum | int size of header and data | data | checksums

Hudi's own writer fills the checksums with zeros and says so by type 0; the gzip stream inside has
one of its own. HBase's, which tables of version 8 have, are CRC32C.
"""

from __future__ import annotations

import zlib
from enum import IntEnum, StrEnum, unique
from struct import Struct
from typing import NamedTuple

import numpy as np

from headwater.config.limits import BLOCK_BYTES_MAX
from headwater.errors import CorruptTableError, ErrorKind, UnsupportedError
from headwater.format.hfile.crc32c import crc32c_of_chunks

HEADER = Struct(">8siiqbii")
BYTES_PER_CHECKSUM = 16 * 1024
NO_PREVIOUS_BLOCK = -1
CHECKSUM_BYTES = 4
COMPRESSION_LEVEL = 1
"""Java's gzip streams use 6, whose files are 7 % smaller and take more than twice as long: packing
is most of what writing record locations costs, 0.55 us each with level 1 and 1.4 with 6."""

_GZIP_WINDOW = 31
_INT_BYTES_MAX = 4
_ONE_BYTE_MIN = -112
_ONE_BYTE_MAX = 127


@unique
class Magic(StrEnum):
    DATA = "DATABLK*"
    META = "METABLKc"
    ROOT_INDEX = "IDXROOT2"
    FILE_INFO = "FILEINF2"
    TRAILER = 'TRABLK"$'


@unique
class Codec(IntEnum):
    """Compression of all blocks of a file, by the number that the trailer has."""

    LZO = 0
    GZ = 1
    NONE = 2
    SNAPPY = 3
    LZ4 = 4
    BZIP2 = 5
    ZSTD = 6


@unique
class Checksum(IntEnum):
    NULL = 0
    CRC32 = 1
    CRC32C = 2


class Block(NamedTuple):
    """The raw data of a block, and how many bytes it takes in the file."""

    data: bytes | memoryview
    size: int


def encode_block(
    magic: Magic, data: bytes | memoryview, codec: Codec, previous: int = NO_PREVIOUS_BLOCK
) -> bytes:
    """Encode a block as Hudi's own writer does, with checksums that say nothing."""
    return frame_block(magic, pack(data, codec), len(data), previous)


def pack(data: bytes | memoryview, codec: Codec) -> bytes | memoryview:
    """Compress what a block holds, without the interpreter's lock."""
    return _gzip(data) if codec is Codec.GZ else data


def frame_block(
    magic: Magic, packed: bytes | memoryview, raw_size: int, previous: int = NO_PREVIOUS_BLOCK
) -> bytes:
    """Put the header before packed data of `raw_size` bytes, and the checksums behind it."""
    with_header = HEADER.size + len(packed)
    checksums = CHECKSUM_BYTES * -(-with_header // BYTES_PER_CHECKSUM)
    header = HEADER.pack(
        magic.encode(),
        len(packed) + checksums,
        raw_size,
        previous,
        Checksum.NULL,
        BYTES_PER_CHECKSUM,
        with_header,
    )
    return b"".join((header, packed, bytes(checksums)))


def decode_block(view: memoryview, magic: Magic, codec: Codec, *, path: str, offset: int) -> Block:
    """Decode the block at the start of `view`, which lies at `offset` of the file.

    Raises:
        CorruptTableError: it is no such block, or it is damaged.
        UnsupportedError: it is compressed in a way that this release cannot read.
    """
    if len(view) < HEADER.size:
        raise corrupt(path, f"it ends inside of a block at offset {offset}")
    found, behind, raw_size, _, kind, chunk, with_header = HEADER.unpack_from(view)
    if found != magic.encode():
        raise corrupt(path, f"{found!r} at offset {offset} is no {magic} block")
    checksums = behind + HEADER.size - with_header
    is_sound = (
        raw_size >= 0
        and chunk > 0
        and with_header >= HEADER.size
        and checksums == CHECKSUM_BYTES * -(-with_header // chunk)
    )
    size = HEADER.size + behind
    if raw_size > BLOCK_BYTES_MAX.value:
        raise corrupt(
            path,
            f"the block at offset {offset} unpacks to {raw_size} bytes, over {BLOCK_BYTES_MAX}",
        )
    if not is_sound or size > len(view):
        raise corrupt(path, f"the block at offset {offset} has impossible sizes")
    if kind not in tuple(Checksum):
        raise corrupt(path, f"the block at offset {offset} has checksums of type {kind}")
    _check(view[:size], with_header, chunk, Checksum(kind), path=path, offset=offset)
    packed = view[HEADER.size : with_header]
    match codec:
        case Codec.NONE:
            data: bytes | memoryview = packed
        case Codec.GZ:
            data = _gunzip(packed, raw_size, path=path, offset=offset)
        case _:
            raise UnsupportedError(
                f"{path} is compressed by {codec.name}, which this release cannot read. Write it "
                "again with GZ or NONE",
                path=path,
            )
    if len(data) != raw_size:
        raise corrupt(path, f"the block at offset {offset} has {len(data)} bytes, not {raw_size}")
    return Block(data, size)


def encode_vint(value: int) -> bytes:
    """Encode a length of at most 32 bits as Hadoop does."""
    if _ONE_BYTE_MIN <= value <= _ONE_BYTE_MAX:
        return value.to_bytes(1, signed=True)
    size = (value.bit_length() + 7) // 8
    return (_ONE_BYTE_MIN - size).to_bytes(1, signed=True) + value.to_bytes(size)


def read_vint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Read a length and return where it ends; -1 if it is none."""
    first = data[at] - 256 if data[at] > _ONE_BYTE_MAX else data[at]
    if first >= _ONE_BYTE_MIN:
        return first, at + 1
    size = _ONE_BYTE_MIN - first
    if size > _INT_BYTES_MAX:
        return -1, at
    return int.from_bytes(data[at + 1 : at + 1 + size]), at + 1 + size


def corrupt(path: str, problem: str) -> CorruptTableError:
    """Return the error for a file of the metadata table that breaks the format."""
    return CorruptTableError(
        f"{path} is damaged: {problem}. Rebuild this partition of the metadata table",
        kind=ErrorKind.CORRUPT_METADATA_TABLE,
        path=path,
    )


def _gzip(data: bytes | memoryview) -> bytes:
    return zlib.compress(data, COMPRESSION_LEVEL, _GZIP_WINDOW)


def _gunzip(packed: memoryview, raw_size: int, *, path: str, offset: int) -> bytes:
    stream = zlib.decompressobj(_GZIP_WINDOW)
    try:
        # One byte more than expected is enough to see that there are too many.
        data = stream.decompress(packed, raw_size + 1)
    except zlib.error as error:
        raise corrupt(path, f"the block at offset {offset} does not unpack ({error})") from error
    if not stream.eof or stream.unused_data:
        raise corrupt(path, f"the block at offset {offset} is no whole gzip stream")
    return data


def _check(
    block: memoryview, with_header: int, chunk: int, kind: Checksum, *, path: str, offset: int
) -> None:
    if kind is Checksum.NULL:
        return
    covered = block[:with_header]
    if kind is Checksum.CRC32C:
        found = crc32c_of_chunks(covered, chunk)
    else:
        parts = (covered[at : at + chunk] for at in range(0, with_header, chunk))
        found = np.array([zlib.crc32(part) for part in parts], np.uint32)
    if found.astype(">u4").tobytes() != block[with_header:]:
        raise corrupt(path, f"the block at offset {offset} does not match its checksums")
