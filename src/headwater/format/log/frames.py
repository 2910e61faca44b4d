"""Log files: a plain sequence of framed blocks. All integers are big-endian.

    magic `#HUDI#` | long size of what follows | int format version | int block type
    header map | long content length | content | footer map (empty) | long total length

The total length counts from the magic up to itself, so it is the size plus 6. A map is a count,
then for each entry the ordinal of its key, the length of its value and the value as UTF-8.

A block is corrupt if it ends behind the end of the file, if the two lengths disagree, or if
neither another block nor the end of the file follows it. The next magic ends a corrupt span. These
are the rules of other engines too: a good block before garbage is dropped by all of them alike.

The format has no checksum of a block. Readers of Avro records, deletes and commands take as many
bytes of the content as these need, so blocks of ours have one behind them: a mark and the CRC-32 of
all from the format version to the mark. What Parquet and HFiles have is in their own bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum, unique
from struct import Struct
from zlib import crc32

from headwater.errors import CorruptTableError, ErrorKind, UnsupportedError

MAGIC = b"#HUDI#"
FORMAT_VERSION = 1

_INT = Struct(">i")
_LONG = Struct(">q")
_TWO_INTS = Struct(">ii")
_FRAME_START_BYTES = len(MAGIC) + _LONG.size
_SIZE_BYTES_MIN = 32
"""Version, type, two empty maps, the content length and the total length."""


@unique
class BlockType(IntEnum):
    COMMAND = 0
    DELETE = 1
    CORRUPT = 2  # Never written: a reader's name for bytes that are no block.
    AVRO_DATA = 3
    HFILE_DATA = 4
    PARQUET_DATA = 5
    CDC_DATA = 6


@unique
class HeaderKey(IntEnum):
    INSTANT_TIME = 0
    TARGET_INSTANT_TIME = 1
    SCHEMA = 2
    COMMAND_BLOCK_TYPE = 3
    COMPACTED_BLOCK_TIMES = 4
    RECORD_POSITIONS = 5
    BLOCK_IDENTIFIER = 6
    IS_PARTIAL = 7
    BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS = 8


_CHECKSUM_MARK = b"hw-crc32"
_CHECKSUM = Struct(">8sI")
_CHECKSUM_TYPES = frozenset(
    {BlockType.COMMAND, BlockType.DELETE, BlockType.AVRO_DATA, BlockType.CDC_DATA}
)
_WRITTEN_TYPES = frozenset(BlockType) - {BlockType.CORRUPT}
_HEADER_KEYS = frozenset(HeaderKey)


@dataclass(frozen=True, slots=True)
class LogBlock:
    """One block where it lies: `content` is a view of the file's bytes.

    A corrupt one has no header; its content is the whole span that is no block.
    """

    type: BlockType
    header: Mapping[HeaderKey, str]
    content: memoryview
    offset: int


def encode_block(
    block_type: BlockType,
    header: Mapping[HeaderKey, str],
    content: bytes | memoryview,
    *,
    has_checksum: bool = False,
) -> bytes:
    """Return the bytes of one block; blocks one after the other are a log file.

    Args:
        has_checksum: whether one is put behind the content; not of Parquet files and HFiles, which
            are read from their end.
    """
    encoded_header = encode_header(header)
    checksum_bytes = _CHECKSUM.size if has_checksum else 0
    length = len(content) + checksum_bytes
    start = b"".join(
        (_TWO_INTS.pack(FORMAT_VERSION, block_type), encoded_header, _LONG.pack(length))
    )
    checksum = crc32(content, crc32(start)) if checksum_bytes else 0
    size = len(start) + length + _INT.size + _LONG.size
    return b"".join(
        (
            MAGIC,
            _LONG.pack(size),
            start,
            content,
            _CHECKSUM.pack(_CHECKSUM_MARK, checksum)[:checksum_bytes],
            _INT.pack(0),
            _LONG.pack(size + len(MAGIC)),
        )
    )


def iter_blocks(data: bytes | memoryview, *, path: str) -> Iterator[LogBlock]:
    """Yield the blocks of a log file in order, with a CORRUPT one for each span that is no block.

    Fewer bytes at the end than a magic has do not make the block before them corrupt, but they are
    no block either: the rest of one that was cut. `path` is for errors.

    Raises:
        CorruptTableError: a block that is framed well is malformed inside.
        UnsupportedError: a block of a format version, type or header key of a later release.
    """
    view = memoryview(data)
    whole = b""  # A copy is the price of `find`, paid once and for corrupt files only.
    at = 0
    while len(view) - at >= len(MAGIC):
        end = _block_end(view, at)
        if end is None:
            whole = data if isinstance(data, bytes) else whole or bytes(view)
            end = _next_magic(whole, at)
            yield LogBlock(BlockType.CORRUPT, {}, view[at:end], at)
        else:
            yield _parse_block(view, at, end, path)
        at = end
    if at < len(view):
        yield LogBlock(BlockType.CORRUPT, {}, view[at:], at)


def encode_header(entries: Mapping[HeaderKey, str]) -> bytes:
    """Return the bytes of a header, as they stand in a block."""
    out = bytearray(_INT.pack(len(entries)))
    for key, value in entries.items():
        encoded = value.encode()
        out += _TWO_INTS.pack(key, len(encoded))
        out += encoded
    return bytes(out)


def _block_end(view: memoryview, at: int) -> int | None:
    """Return where the block that begins at an offset ends, or None if it is corrupt."""
    if view[at : at + len(MAGIC)] != MAGIC or len(view) - at < _FRAME_START_BYTES:
        return None
    (size,) = _LONG.unpack_from(view, at + len(MAGIC))
    end: int = at + _FRAME_START_BYTES + size
    if size < _SIZE_BYTES_MIN or end > len(view):
        return None
    (total,) = _LONG.unpack_from(view, end - _LONG.size)
    if total != size + len(MAGIC):
        return None
    is_followed = len(view) - end < len(MAGIC) or view[end : end + len(MAGIC)] == MAGIC
    return end if is_followed else None


def _next_magic(data: bytes, at: int) -> int:
    found = data.find(MAGIC, at + 1)
    return len(data) if found < 0 else found


def _parse_block(view: memoryview, offset: int, end: int, path: str) -> LogBlock:
    version, type_ordinal = _TWO_INTS.unpack_from(view, offset + _FRAME_START_BYTES)
    if version != FORMAT_VERSION:
        raise _unsupported(f"log format version {version}", offset, path)
    if type_ordinal not in _WRITTEN_TYPES:
        raise _unsupported(f"a block of type {type_ordinal}", offset, path)
    header, at = _parse_header(view[: end - _LONG.size], offset, path)
    content_end = end - _LONG.size - _INT.size
    if at + _LONG.size > content_end:
        raise _malformed("its header leaves no room for the content", offset, path)
    (length,) = _LONG.unpack_from(view, at)
    start = at + _LONG.size
    # A footer has no keys that anybody wrote, so the content must end right before an empty one.
    if start + length != content_end or _INT.unpack_from(view, content_end) != (0,):
        raise _malformed(f"its content of {length} bytes does not fill it", offset, path)
    block_type = BlockType(type_ordinal)
    if block_type in _CHECKSUM_TYPES and length >= _CHECKSUM.size:
        checksum_at = content_end - _CHECKSUM.size
        mark, checksum = _CHECKSUM.unpack_from(view, checksum_at)
        if mark == _CHECKSUM_MARK:
            if crc32(view[offset + _FRAME_START_BYTES : checksum_at]) != checksum:
                raise _malformed("it does not match its checksum", offset, path)
            content_end = checksum_at
    return LogBlock(block_type, header, view[start:content_end], offset)


def _parse_header(view: memoryview, offset: int, path: str) -> tuple[dict[HeaderKey, str], int]:
    at = offset + _FRAME_START_BYTES + _TWO_INTS.size
    (count,) = _INT.unpack_from(view, at)
    at += _INT.size
    header: dict[HeaderKey, str] = {}
    for _ in range(count):
        if at + _TWO_INTS.size > len(view):
            raise _malformed("its header is cut short", offset, path)
        ordinal, length = _TWO_INTS.unpack_from(view, at)
        at += _TWO_INTS.size
        if ordinal not in _HEADER_KEYS:
            raise _unsupported(f"a block with the unknown header key {ordinal}", offset, path)
        if length < 0 or at + length > len(view):
            raise _malformed("its header is cut short", offset, path)
        try:
            header[HeaderKey(ordinal)] = str(view[at : at + length], "utf-8")
        except UnicodeDecodeError as error:
            raise _malformed("its header is no UTF-8", offset, path) from error
        at += length
    return header, at


def _malformed(problem: str, offset: int, path: str) -> CorruptTableError:
    return CorruptTableError(
        f"The block at offset {offset} of {path} is malformed: {problem}. "
        "Restore the file from a copy",
        kind=ErrorKind.CORRUPT_LOG,
        path=path,
        offset=offset,
    )


def _unsupported(what: str, offset: int, path: str) -> UnsupportedError:
    return UnsupportedError(
        f"{path} has {what} at offset {offset}, which this release cannot read. "
        "Use a release that knows it",
        path=path,
        offset=offset,
    )
