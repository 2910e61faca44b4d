"""The footer of a Parquet file as bytes, and the checksum that it has of itself.

Parquet has checksums of pages, and none of the footer: a bit of it that falls over can move a bound
by which row groups are passed over, or change a type. So a footer of ours has one more entry, the
CRC-32 of all its bytes, with the digits of the entry taken as zeros. Others do not know the entry.

The entry is written last, so that no text of the table's can be taken for it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.config.limits import ROWS_MAX, memory_reached
from headwater.errors import CorruptTableError, ErrorKind, StorageError


class MalformedParquetError(ValueError):
    """The bytes are no Parquet file, or not those that were written."""


MAGIC = b"PAR1"
TAIL_BYTES = 8
"""The length of the footer and the magic, with which a file ends."""
FOOTER_CHECKSUM = "headwater.footer.crc32"
_UNKNOWN = "0" * 8
UNKNOWN_CHECKSUM = {FOOTER_CHECKSUM: _UNKNOWN}
"""The entry as a footer is written with it; `stamp_checksum` puts the digits in."""

DAMAGE = (MalformedParquetError, pa.ArrowException, UnicodeDecodeError, OverflowError, IndexError)
"""What comes of malformed bytes, beside an `OSError` without a number."""

# Thrift's compact protocol: a binary field right behind the one of the key, then its length.
_BEFORE_VALUE = bytes((0x18, len(_UNKNOWN)))
_BEFORE_DIGITS = FOOTER_CHECKSUM.encode() + _BEFORE_VALUE
_OUR_WRITER = b"parquet-cpp-arrow"
"""How the name of the writer begins in footers that Arrow makes."""
# What Arrow reads at first, too: most footers are shorter.
_GUESS_BYTES = 64 * 1024


def stamp_checksum(file_end: bytearray | memoryview) -> None:
    """Put the checksum in its place at the end of a file, whose whole footer is given."""
    length = int.from_bytes(file_end[-TAIL_BYTES : -len(MAGIC)], "little")
    footer = memoryview(file_end).cast("B")[-TAIL_BYTES - length : -TAIL_BYTES]
    at = bytes(footer).rfind(_BEFORE_DIGITS) + len(_BEFORE_DIGITS)
    footer[at : at + len(_UNKNOWN)] = f"{zlib.crc32(footer):08x}".encode()


def parse_file_end(file_end: bytes | bytearray) -> pq.FileMetaData:
    """Parse a footer with what stands behind it.

    Raises:
        pa.ArrowException: it is malformed.
        OSError: the same.
    """
    footer = pq.read_metadata(pa.BufferReader(MAGIC + file_end))
    check_limits(footer)
    return footer


def check_limits(footer: pq.FileMetaData) -> None:
    """Check what a footer says before memory is taken for it.

    Raises:
        MalformedParquetError: a row group is too large to be one.
    """
    rows = max((footer.row_group(at).num_rows for at in range(footer.num_row_groups)), default=0)
    if rows > ROWS_MAX.value:
        raise MalformedParquetError(f"a row group has {rows} rows, more than {ROWS_MAX}")


def read_file_end(source: BinaryIO, *, verifies: bool = True) -> bytes:
    """Read the footer of an open file, with the length and the magic behind it.

    Raises:
        MalformedParquetError: it is no Parquet file, or an encrypted one, or its footer has another
            checksum than it says.
    """
    size = source.seek(0, 2)
    tail = _read(source, max(0, size - _GUESS_BYTES), min(size, _GUESS_BYTES))
    if size < TAIL_BYTES + len(MAGIC) or tail[-len(MAGIC) :] != MAGIC:
        raise MalformedParquetError("it does not end as one")
    length = int.from_bytes(tail[-TAIL_BYTES : -len(MAGIC)], "little")
    if length > size - TAIL_BYTES - len(MAGIC):
        raise MalformedParquetError("its footer is longer than the file")
    if length + TAIL_BYTES > len(tail):
        tail = _read(source, size - TAIL_BYTES - length, length + TAIL_BYTES)
    if len(tail) < length + TAIL_BYTES:
        raise MalformedParquetError("it became shorter while it was read")
    file_end = tail[len(tail) - TAIL_BYTES - length :]
    # Another engine that rewrites a file may carry entries along that were true of the old one.
    is_checked = verifies and _OUR_WRITER in file_end
    if is_checked and not _matches_checksum(file_end[:-TAIL_BYTES]):
        raise MalformedParquetError("its footer does not match its checksum")
    return file_end


def checksum_entry(file_end: bytes | memoryview, key: str) -> str | None:
    """Find another checksum of eight digits among the entries, without parsing the footer."""
    length = int.from_bytes(file_end[-TAIL_BYTES : -len(MAGIC)], "little")
    footer = bytes(file_end[-TAIL_BYTES - length :])
    before = key.encode() + _BEFORE_VALUE
    found = footer.rfind(before)
    if found < 0:
        return None
    start = found + len(before)
    return footer[start : start + len(_UNKNOWN)].decode("latin-1")


def check_row_count(read: int, expected: int) -> None:
    """Check that all rows came: Arrow passes over a page whose header names a kind it ignores.

    Raises:
        MalformedParquetError: they did not.
    """
    if read != expected:
        raise MalformedParquetError(f"of {expected} rows of a row group {read} can be read")


@contextmanager
def naming_damage(path: str) -> Iterator[None]:
    """Turn what Arrow raises about the bytes of a base file into an error that names the file.

    Raises:
        CorruptTableError: kind CORRUPT_BASE_FILE; the bytes break the format.
        UnsupportedError: kind LIMIT_REACHED; there is too little memory.
        StorageError: the bytes could not be read.
    """
    try:
        yield
    except MemoryError as error:  # Arrow's is one of its exceptions, too.
        raise memory_reached(path, error) from error
    except OSError as error:
        if error.errno is None:  # Arrow's way to say that a Parquet file is malformed.
            raise corrupt_base_file(path, str(error).strip()) from error
        raise StorageError(f"Cannot read {path}: {error.strerror}. Try again", path=path) from error
    except DAMAGE as error:
        raise corrupt_base_file(path, str(error).strip()) from error


def corrupt_base_file(path: str, problem: str) -> CorruptTableError:
    return CorruptTableError(
        f"The base file {path} is no whole Parquet file: {problem}. Restore it from a copy",
        kind=ErrorKind.CORRUPT_BASE_FILE,
        path=path,
    )


def _read(source: BinaryIO, start: int, length: int) -> bytes:
    source.seek(start)
    return source.read(length)


def _matches_checksum(footer: bytes) -> bool:
    """Whether a footer has the checksum that it says, or says none."""
    found = footer.rfind(_BEFORE_DIGITS)
    if found < 0:
        return True
    start = found + len(_BEFORE_DIGITS)
    end = start + len(_UNKNOWN)
    before = zlib.crc32(footer[:start])
    expected = zlib.crc32(footer[end:], zlib.crc32(_UNKNOWN.encode(), before))
    return footer[start:end] == f"{expected:08x}".encode()
