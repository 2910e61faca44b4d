"""The little of protobuf that HFiles have: numbers and byte sequences, by tag."""

from __future__ import annotations

from typing import TypeAlias

Value: TypeAlias = int | bytes

_NUMBER = 0
_BYTES = 2
_VARINT_BYTES_MAX = 10
_LONG = 1 << 64
_LONG_MAX = (1 << 63) - 1


class MalformedProtobufError(ValueError):
    """Bytes that are no such message. Callers add the path."""


def encode_varint(value: int) -> bytes:
    """Encode a number of at most 64 bits; a negative one takes ten bytes."""
    rest = value % _LONG
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a number and return where it ends.

    Raises:
        MalformedProtobufError: it does not end, or has more than 64 bits.
    """
    value = 0
    for place, byte in enumerate(data[at : at + _VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << 7 * place
        if byte <= 0x7F:
            if value >= _LONG:
                break
            return value - _LONG if value > _LONG_MAX else value, at + place + 1
    raise MalformedProtobufError(f"no number at {at}")


def encode_field(tag: int, value: Value) -> bytes:
    if isinstance(value, int):
        return encode_varint(tag << 3 | _NUMBER) + encode_varint(value)
    return encode_varint(tag << 3 | _BYTES) + encode_varint(len(value)) + value


def encode_with_length(message: bytes) -> bytes:
    """Put the length of a message before it."""
    return encode_varint(len(message)) + message


def read_with_length(data: bytes, at: int) -> tuple[bytes, int]:
    """Read a message behind its length, and return where it ends.

    Raises:
        MalformedProtobufError: it goes beyond the end.
    """
    length, start = read_varint(data, at)
    if length < 0 or start + length > len(data):
        raise MalformedProtobufError(f"a length of {length} bytes at {at}")
    return data[start : start + length], start + length


def parse_message(data: bytes) -> list[tuple[int, Value]]:
    """Return the fields of a message in their order.

    Raises:
        MalformedProtobufError: it is malformed, or has fields of other types.
    """
    fields: list[tuple[int, Value]] = []
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        value: Value
        match key & 7:
            case 0:
                value, at = read_varint(data, at)
            case 2:
                value, at = read_with_length(data, at)
            case other:
                raise MalformedProtobufError(f"a field of wire type {other}")
        fields.append((key >> 3, value))
    return fields
