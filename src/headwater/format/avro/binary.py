"""Numbers, lengths and counts in Avro's binary encoding.

A reader takes an offset and returns what it read with the offset behind it.
"""

from __future__ import annotations

from functools import lru_cache


class MalformedAvroError(ValueError):
    """Bytes that are no Avro, or not the Avro expected. Callers add the path."""


DECODING_ERRORS = (EOFError, LookupError, ValueError, OverflowError, RecursionError, TypeError)
"""How fastavro says that bytes are not what a schema says."""


def append_long(value: int, out: bytearray) -> None:
    """Append a number of at most 64 bits as zigzag varint."""
    zigzag = (value << 1) ^ (value >> 63)
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)


@lru_cache(4_096)
def long_bytes(value: int) -> bytes:
    """Return the same as bytes: lengths of names and sizes of small files come again and again."""
    out = bytearray()
    append_long(value, out)
    return bytes(out)


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """Read a zigzag varint."""
    zigzag = data[at]
    if zigzag < 128:
        return (zigzag >> 1) ^ -(zigzag & 1), at + 1
    # Sizes of files take three or four bytes; here they need no loop. Each byte but the last has
    # its highest bit set, which the subtraction takes away.
    if (byte := data[at + 1]) < 128:
        zigzag += (byte << 7) - 0x80
        return (zigzag >> 1) ^ -(zigzag & 1), at + 2
    zigzag += byte << 7
    if (byte := data[at + 2]) < 128:
        zigzag += (byte << 14) - 0x4080
        return (zigzag >> 1) ^ -(zigzag & 1), at + 3
    zigzag += byte << 14
    if (byte := data[at + 3]) < 128:
        zigzag += (byte << 21) - 0x204080
        return (zigzag >> 1) ^ -(zigzag & 1), at + 4
    return _read_long_number(data, at)


def _read_long_number(data: bytes, at: int) -> tuple[int, int]:
    start = at
    zigzag = shift = 0
    while (byte := data[at]) > 0x7F:
        zigzag |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if shift > 63:
            break
    zigzag |= (data[at] & 0x7F) << shift
    if zigzag >> 64 or data[at] > 0x7F:
        raise MalformedAvroError(f"a number of more than 64 bits at offset {start}")
    return (zigzag >> 1) ^ -(zigzag & 1), at + 1


def read_span(data: bytes, at: int) -> tuple[int, int]:
    """Read the length before a string or byte sequence; return start and end of its bytes."""
    length, start = read_long(data, at)
    end = start + length
    if not start <= end <= len(data):
        raise MalformedAvroError(f"a length of {length} bytes at offset {at}")
    return start, end


def read_count(data: bytes, at: int) -> tuple[int, int]:
    """Read the number of items in the next block of an array or map; 0 ends the collection."""
    byte = data[at]
    if byte <= 0x7F and not byte & 1:
        return byte >> 1, at + 1
    count, after = read_long(data, at)
    if count < 0:
        # A negative count announces the size of the block too, for readers that skip it.
        count = -count
        _, after = read_long(data, after)
    # Bounds the loop over items that take no bytes, which only a damaged file has so many of.
    if count > len(data):
        raise MalformedAvroError(f"a count of {count} items at offset {at}")
    return count, after
