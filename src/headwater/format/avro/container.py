"""The frame around a timeline record: an Avro object container file with one block of one record.

    magic `Obj` 0x01 | map of metadata | sync marker (16 bytes)
    record count | byte size | record | sync marker

Hudi writes one metadata entry, `avro.schema`, and no codec. The marker only has to be unlikely
inside the data, and be the same in both places. So ours is a checksum, where Hudi's format has room
for none: a tag that says so, and a digest of metadata and record. Others take it for any marker; we
find by it that a file is not what was written. Besides, equal records give equal files, by which a
writer may recognise its own file after a lost reply.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

from headwater.format.avro.binary import (
    MalformedAvroError,
    append_long,
    read_count,
    read_long,
    read_span,
)

MAGIC = b"Obj\x01"
SYNC_SIZE_BYTES = 16
CHECKSUM_TAG = b"hwck"
"""What sync markers begin with that are checksums."""

_ONE = 2
"""The number one as Avro writes it."""


def encode_header(schema_text: str) -> bytes:
    """Encode magic and metadata of a file with a schema."""
    out = bytearray(MAGIC)
    append_long(1, out)
    for text in ("avro.schema", schema_text):
        encoded = text.encode()
        append_long(len(encoded), out)
        out += encoded
    append_long(0, out)
    return bytes(out)


def encode_container(header: bytes, record: bytes | bytearray) -> bytes:
    """Put an encoded record behind a header."""
    marker = _checksum(header, record)
    out = bytearray(header + marker)
    append_long(1, out)
    append_long(len(record), out)
    return bytes(out + record + marker)


def check_block(data: bytes, header: bytes, start: int, end: int) -> None:
    """Compare a record, between these offsets, with the checksum behind it, if there is one.

    Raises:
        MalformedAvroError: these are not the bytes that were written.
    """
    if data.startswith(CHECKSUM_TAG, end) and not data.startswith(
        _checksum(header, data[start:end]), end
    ):
        raise MalformedAvroError("its bytes are not those that were written, by their checksum")


def _checksum(header: bytes, record: bytes | bytearray) -> bytes:
    digest = _header_digest(header).copy()
    digest.update(record)
    return CHECKSUM_TAG + digest.digest()


# A release has one header per kind of record; it is longer than most records.
@lru_cache(maxsize=64)
def _header_digest(header: bytes) -> blake2b:
    return blake2b(header, digest_size=SYNC_SIZE_BYTES - len(CHECKSUM_TAG))


def find_header_end(data: bytes) -> int:
    """Return the offset of the sync marker behind the metadata, without decoding the metadata."""
    if not data.startswith(MAGIC):
        raise MalformedAvroError("it does not start like an Avro file")
    count, at = read_count(data, len(MAGIC))
    while count:
        for _ in range(count):
            _, at = read_span(data, at)
            _, at = read_span(data, at)
        count, at = read_count(data, at)
    return at


def decode_header(header: bytes) -> dict[str, bytes]:
    """Decode the metadata of a header that ends where `find_header_end` says."""
    metadata = {}
    count, at = read_count(header, len(MAGIC))
    while count:
        for _ in range(count):
            key_start, key_end = read_span(header, at)
            value_start, at = read_span(header, key_end)
            metadata[header[key_start:key_end].decode()] = header[value_start:at]
        count, at = read_count(header, at)
    return metadata


def find_block(data: bytes, header_end: int, file_end: int) -> tuple[int, int]:
    """Return start and end of the record, once the frame is whole and the record the only one.

    `file_end` is where the file ends: `data` may go on behind it.
    """
    body = header_end + SYNC_SIZE_BYTES
    if file_end == body:
        raise MalformedAvroError("it holds no record")
    if data[body] != _ONE:
        count, _ = read_long(data, body)
        raise MalformedAvroError(f"its first block holds {count} records where one is expected")
    size, start = read_long(data, body + 1)
    end = start + size
    if size < 0 or file_end < end + SYNC_SIZE_BYTES:
        raise MalformedAvroError(f"its block of {size} bytes at offset {start} is cut short")
    if file_end > end + SYNC_SIZE_BYTES:
        raise MalformedAvroError(f"its only block should end at offset {end + SYNC_SIZE_BYTES}")
    if not data.startswith(data[header_end:body], end):
        raise MalformedAvroError(f"the sync marker at offset {end} is not that of the header")
    return start, end
