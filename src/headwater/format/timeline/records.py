"""Timeline records as the bytes of their files: an Avro container file around one record."""

from __future__ import annotations

import struct
from functools import cache, lru_cache
from typing import NamedTuple, TypeVar

from headwater.config.limits import check_object_bytes
from headwater.errors import CorruptTableError, ErrorKind, InvalidInputError, UnsupportedError
from headwater.format.avro.binary import MalformedAvroError
from headwater.format.avro.container import (
    check_block,
    decode_header,
    encode_container,
    encode_header,
    find_block,
    find_header_end,
)
from headwater.format.avro.decoder import Reader, compile_decoder
from headwater.format.avro.encoder import UnwritableValueError, record_writer
from headwater.format.timeline.schemas import RECORD_SCHEMAS, Record, schema_text

RecordT = TypeVar("RecordT", bound=Record)

HEADERS_CACHED_MAX = 256
"""A release of Hudi has one header per kind of record, so a table meets a few dozen at most."""


def encode_record(record: Record) -> bytes:
    """Encode a record as the whole content of its timeline file. Equal records give equal bytes.

    Raises:
        InvalidInputError: a value does not fit its field, such as a number of more than 64 bits.
    """
    cls: type = type(record)
    body = bytearray()
    try:
        record_writer(cls)(record, body)
    except UnwritableValueError as error:
        raise InvalidInputError(f"No Avro record can hold {error}. Correct the value.") from error
    return encode_container(_hudi_format(cls).header, body)


def decode_record(cls: type[RecordT], data: bytes, *, path: str) -> RecordT:
    """Decode the content of a timeline file; `path` is for errors only.

    Fields the record does not know are dropped, fields the file does not have take the default of
    the schema.

    Raises:
        CorruptTableError: the bytes are cut short, are no Avro, hold another record, none or more,
            or are not those that we wrote.
        UnsupportedError: the file is compressed, or too large (kind LIMIT_REACHED).
    """
    check_object_bytes(data, path)
    try:
        record = _decode(cls, data, 0, len(data))
    except (IndexError, struct.error) as error:
        raise _corrupt(cls, path, "it ends in the middle of a value") from error
    except (MalformedAvroError, RecursionError, UnicodeDecodeError, OverflowError) as error:
        raise _corrupt(cls, path, str(error)) from error
    if record is not None:
        return record
    codec = decode_header(data[: find_header_end(data)])["avro.codec"]
    raise UnsupportedError(
        f"{path} is compressed ({codec!r}), which timeline files never are. Write it again without "
        "a codec.",
        path=path,
    )


def decode_record_within(
    cls: type[RecordT], data: bytes, start: int, end: int, *, path: str
) -> RecordT:
    """Decode a timeline file that lies among others in one buffer, without copying it first.

    Raises: as `decode_record`.
    """
    try:
        record = _decode(cls, data, start, end)
    except (
        IndexError,
        struct.error,
        MalformedAvroError,
        RecursionError,
        UnicodeDecodeError,
        OverflowError,
    ):
        record = None
    # By itself it fails in its own words, with offsets that begin where it does.
    return record or decode_record(cls, data[start:end], path=path)


def _decode(cls: type[RecordT], data: bytes, start: int, end: int) -> RecordT | None:
    """Return the record of the file at these offsets; None if it is compressed."""
    record_class: type = cls
    # Comparing with the header Hudi writes today is cheaper than looking one up by its bytes.
    file_format = _hudi_format(record_class)
    if not data.startswith(file_format.header, start):
        file = data[start:end]
        file_format = _format_of(record_class, file[: find_header_end(file)])
    block, block_end = find_block(data, start + len(file_format.header), end)
    if file_format.codec != b"null":
        return None
    check_block(data, file_format.header, block, block_end)
    record, at = file_format.read(data, block)
    if at != block_end:
        raise MalformedAvroError(f"its record ends at offset {at}, its block at {block_end}")
    return record  # type: ignore[no-any-return]


class _FileFormat(NamedTuple):
    """How files of one kind of record, written by one release, begin and are read."""

    header: bytes
    codec: bytes
    read: Reader


@cache
def _hudi_format(cls: type) -> _FileFormat:
    """Return the format of the files that Hudi and we write."""
    return _format_of(cls, encode_header(schema_text(cls)))


# Parsing a schema costs a hundred times as much as reading a small record.
@lru_cache(maxsize=HEADERS_CACHED_MAX)
def _format_of(cls: type, header: bytes) -> _FileFormat:
    metadata = decode_header(header)
    if "avro.schema" not in metadata:
        raise MalformedAvroError("its header has no schema")
    read = compile_decoder(metadata["avro.schema"], cls)
    return _FileFormat(header, metadata.get("avro.codec", b"null"), read)


def _corrupt(cls: type, path: str, reason: str) -> CorruptTableError:
    return CorruptTableError(
        f"{path} is no whole {RECORD_SCHEMAS[cls]['name']} file: {reason}. Restore it from a copy.",
        kind=ErrorKind.CORRUPT_AVRO,
        path=path,
    )
