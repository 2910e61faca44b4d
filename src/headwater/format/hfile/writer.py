"""Writer of HFiles, as Hudi's own writer makes them since table version 9 (format rule 9).

Base files carry no bloom filter: it is optional, no reader of the metadata table needs it, and it
would be 72 kB of raw bytes in a file of one entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from struct import Struct

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.key_order import key_order
from headwater.errors import InvalidInputError
from headwater.format.avro.vectors import (
    Longs,
    data_of,
    join_pieces,
    piece_lengths,
    pieces_of,
)
from headwater.format.hfile.blocks import (
    NO_PREVIOUS_BLOCK,
    Codec,
    Magic,
    encode_block,
    encode_vint,
)
from headwater.format.hfile.protobuf import encode_field, encode_with_length
from headwater.format.hfile.reader import (
    INFO_MAGIC,
    KEY_SUFFIX,
    MAJOR_VERSION,
    TRAILER_BYTES,
    HFileEntries,
    TrailerTag,
)

BLOCK_BYTES_MAX = 64 * 1024
"""Hudi's reader looks past as many last bytes of a block as it has checksums. Up to this size those
are fewer than the smallest entry has, so a block is larger only if it has a single entry."""
KEY_BYTES_MAX = 32767 - 12
"""The length of a key, with what is around it, is a short."""

_COMPARATOR = b"org.apache.hudi.io.storage.HoodieHBaseKVComparator"
_INT = Struct(">i")
_LONG = Struct(">q")
_ROW_LENGTH = Struct(">H")
_INDEX_ENTRY = Struct(">qi")
_KEY_VALUE_VERSION = 1
_KEY_END = pa.scalar(KEY_SUFFIX, pa.large_binary())
_ENTRY_END = pa.scalar(b"\x00", pa.large_binary())
_ENTRY_HEAD = np.dtype([("key", ">i4"), ("value", ">i4"), ("row", ">u2")])


def sort_entries(keys: pa.StringArray, values: pa.BinaryArray) -> HFileEntries:
    """Order entries by the bytes of their keys."""
    order = pa.array(key_order(keys))
    return HFileEntries(keys.take(order), values.take(order))


def encode_hfile(
    keys: pa.StringArray,
    values: pa.BinaryArray,
    *,
    schema: str,
    is_base_file: bool,
    create_time_ms: int = 0,
    codec: Codec = Codec.GZ,
    block_bytes_max: int = BLOCK_BYTES_MAX,
) -> bytes:
    """Encode entries, whose keys ascend bytewise, as a base file or the content of a log block.

    `schema` is the Avro schema of the values.

    Raises:
        InvalidInputError: keys are out of order, doubled, null or too long, or the codec is neither
            GZ nor NONE.
    """
    if codec not in (Codec.GZ, Codec.NONE):
        raise InvalidInputError(f"HFiles are written with GZ or NONE, not {codec.name}")
    rows = keys.view(pa.binary())
    row_lengths, value_lengths = piece_lengths(rows), piece_lengths(values)
    _check_input(rows, values, row_lengths)
    out = bytearray()
    index = bytearray()
    entries, sizes = _encode_entries(rows, values, row_lengths, value_lengths)
    previous = first_offset = NO_PREVIOUS_BLOCK
    block_count = 0
    ends = np.cumsum(sizes)
    for start, end in _blocks(ends, block_bytes_max):
        begin = int(ends[start - 1]) if start else 0
        block = encode_block(Magic.DATA, entries[begin : int(ends[end - 1])], codec, previous)
        row = rows[start].as_py()
        previous = len(out)
        first_offset = 0
        index += _INDEX_ENTRY.pack(previous, len(block))
        index += encode_vint(_ROW_LENGTH.size + len(row)) + _with_length(row)
        out += block
        block_count += 1
    load_on_open_offset = len(out)
    out += encode_block(Magic.ROOT_INDEX, bytes(index), codec)
    out += encode_block(Magic.ROOT_INDEX, b"", codec)
    file_info_offset = len(out)
    info = {
        b"schema": schema.encode(),
        b"hfile.AVG_VALUE_LEN": _INT.pack(_average(value_lengths)),
        b"hfile.AVG_KEY_LEN": _INT.pack(_average(row_lengths)),
        b"hfile.CREATE_TIME_TS": _LONG.pack(create_time_ms),
        **_key_info(rows, is_base_file),
    }
    out += encode_block(Magic.FILE_INFO, _encode_info(info), codec)
    out += _trailer(
        {
            TrailerTag.FILE_INFO_OFFSET: file_info_offset,
            TrailerTag.LOAD_ON_OPEN_OFFSET: load_on_open_offset,
            TrailerTag.RAW_BYTES: len(entries),
            TrailerTag.DATA_INDEX_COUNT: block_count,
            TrailerTag.META_INDEX_COUNT: 0,
            TrailerTag.ENTRY_COUNT: len(keys),
            TrailerTag.INDEX_LEVELS: 1,
            TrailerTag.FIRST_DATA_BLOCK: first_offset,
            TrailerTag.LAST_DATA_BLOCK: max(previous, 0),
            TrailerTag.COMPARATOR: _COMPARATOR,
            TrailerTag.CODEC: codec,
        }
    )
    return bytes(out)


def _check_input(rows: pa.BinaryArray, values: pa.BinaryArray, row_lengths: Longs) -> None:
    if len(rows) != len(values) or rows.null_count or values.null_count:
        raise InvalidInputError(
            f"An HFile needs a value for each key and no nulls, got {len(rows)} keys and "
            f"{len(values)} values, with {rows.null_count} and {values.null_count} nulls"
        )
    if len(rows) > 1 and not pc.all(pc.less(rows[:-1], rows[1:])).as_py():
        raise InvalidInputError("The keys of an HFile must ascend bytewise, each once. Sort them")
    longest = row_lengths.max(initial=0)
    if longest > KEY_BYTES_MAX:
        raise InvalidInputError(
            f"A key of the metadata table has at most {KEY_BYTES_MAX} bytes, got {longest}"
        )


def _encode_entries(
    rows: pa.BinaryArray, values: pa.BinaryArray, row_lengths: Longs, value_lengths: Longs
) -> tuple[memoryview, Longs]:
    """Return the bytes of all entries, and how many each of them has."""
    heads = np.empty(len(rows), _ENTRY_HEAD)
    heads["row"] = row_lengths
    heads["key"] = row_lengths + (_ROW_LENGTH.size + len(KEY_SUFFIX))
    heads["value"] = value_lengths
    pieces = [
        pieces_of(heads.view(np.uint8).reshape(len(rows), _ENTRY_HEAD.itemsize)),
        rows,
        _KEY_END,
        values,
        _ENTRY_END,
    ]
    sizes = row_lengths + value_lengths + (_ENTRY_HEAD.itemsize + len(KEY_SUFFIX) + 1)
    return data_of(join_pieces(pieces)), sizes


def _blocks(ends: Longs, bytes_max: int) -> Iterator[tuple[int, int]]:
    """Yield first entry and end of each block: all that fit, but at least one."""
    start, begin = 0, 0
    while start < len(ends):
        fits = int(np.searchsorted(ends, begin + bytes_max, side="right"))
        end = max(fits, start + 1)
        yield start, end
        start, begin = end, int(ends[end - 1])


def _with_length(row: bytes) -> bytes:
    return _ROW_LENGTH.pack(len(row)) + row


def _key_info(rows: pa.BinaryArray, is_base_file: bool) -> dict[bytes, bytes]:
    first, last = (rows[0].as_py(), rows[-1].as_py()) if len(rows) else (b"", b"")
    info = {b"hfile.LASTKEY": _with_length(last) if len(rows) else b""}
    return {**info, b"minRecordKey": first, b"maxRecordKey": last} if is_base_file else info


def _encode_info(info: Mapping[bytes, bytes]) -> bytes:
    info = {
        **info,
        b"KEY_VALUE_VERSION": _INT.pack(_KEY_VALUE_VERSION),
        b"MAX_MEMSTORE_TS_KEY": _LONG.pack(0),
    }
    message = b"".join(
        encode_field(1, encode_field(1, name) + encode_field(2, value))
        for name, value in sorted(info.items())
    )
    return INFO_MAGIC + encode_with_length(message)


def _average(lengths: Longs) -> int:
    return int(lengths.sum()) // max(len(lengths), 1)


def _trailer(fields: Mapping[TrailerTag, int | bytes]) -> bytes:
    message = b"".join(encode_field(tag, value) for tag, value in fields.items())
    start = Magic.TRAILER.encode() + encode_with_length(message)
    version = MAJOR_VERSION.to_bytes(4)  # The first byte of the four is the minor version, 0.
    return start + bytes(TRAILER_BYTES - len(start) - len(version)) + version
