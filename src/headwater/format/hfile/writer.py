"""Writer of HFiles, as Hudi's own writer makes them since table version 9 (format rule 9).

Base files carry no bloom filter: it is optional, no reader of the metadata table needs it, and it
would be 72 kB of raw bytes in a file of one entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

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
    frame_block,
    pack,
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
_ENTRY_END = b"\x00"
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
    file = HFileAssembly(
        schema=schema, is_base_file=is_base_file, create_time_ms=create_time_ms, codec=codec
    )
    part = encode_part(keys, values, codec=codec, block_bytes_max=block_bytes_max)
    return b"".join([*file.add(part), file.end()])


class PackedBlock(NamedTuple):
    first_row: bytes
    packed: bytes | memoryview
    raw_size: int


@dataclass(frozen=True, slots=True)
class HFilePart:
    """Some entries of a file, packed into blocks of their own."""

    blocks: Sequence[PackedBlock]
    last_row: bytes
    count: int
    row_bytes: int
    value_bytes: int


def encode_part(
    keys: pa.StringArray,
    values: pa.BinaryArray | pa.DictionaryArray,
    *,
    codec: Codec = Codec.GZ,
    block_bytes_max: int = BLOCK_BYTES_MAX,
) -> HFilePart:
    """Encode entries, whose keys ascend bytewise, for an `HFileAssembly`.

    That is nearly all the work of writing a file, and parts do not depend on each other: threads
    can encode several.

    Raises: as `encode_hfile`.
    """
    if codec not in (Codec.GZ, Codec.NONE):
        raise InvalidInputError(f"HFiles are written with GZ or NONE, not {codec.name}")
    rows = keys.view(pa.binary())
    row_lengths, value_lengths = piece_lengths(rows), _value_lengths(values)
    _check_input(rows, values, row_lengths)
    entries, sizes = _encode_entries(rows, values, row_lengths, value_lengths)
    ends = np.cumsum(sizes)
    blocks = []
    for start, end in _blocks(ends, block_bytes_max):
        raw = entries[int(ends[start - 1]) if start else 0 : int(ends[end - 1])]
        blocks.append(PackedBlock(rows[start].as_py(), pack(raw, codec), len(raw)))
    return HFilePart(
        blocks=blocks,
        last_row=rows[-1].as_py() if len(rows) else b"",
        count=len(rows),
        row_bytes=int(row_lengths.sum()),
        value_bytes=int(value_lengths.sum()),
    )


class HFileAssembly:
    """Makes a file of parts, which come in the order of their keys; of the bytes it keeps none."""

    def __init__(
        self, *, schema: str, is_base_file: bool, create_time_ms: int = 0, codec: Codec = Codec.GZ
    ) -> None:
        self._schema = schema
        self._is_base_file = is_base_file
        self._create_time_ms = create_time_ms
        self._codec = codec
        self._index = bytearray()
        self._block_count = 0
        self.size_bytes = 0
        """Of what was given so far."""
        self._previous = NO_PREVIOUS_BLOCK
        self._raw_bytes = 0
        self._first_row: bytes | None = None
        self._last_row = b""
        self.entry_count = 0
        self._row_bytes = 0
        self._value_bytes = 0

    def add(self, part: HFilePart) -> Iterator[bytes]:
        """Give the next bytes of the file.

        Raises:
            InvalidInputError: the part does not begin behind the one before.
        """
        if part.blocks and self.entry_count and part.blocks[0].first_row <= self._last_row:
            raise _out_of_order()
        for first_row, packed, raw_size in part.blocks:
            if self._first_row is None:
                self._first_row = first_row
            block = frame_block(Magic.DATA, packed, raw_size, self._previous)
            self._index += _INDEX_ENTRY.pack(self.size_bytes, len(block))
            self._index += encode_vint(_ROW_LENGTH.size + len(first_row)) + _with_length(first_row)
            self._previous = self.size_bytes
            self.size_bytes += len(block)
            self._block_count += 1
            self._raw_bytes += raw_size
            yield block
        if part.count:
            self._last_row = part.last_row
        self.entry_count += part.count
        self._row_bytes += part.row_bytes
        self._value_bytes += part.value_bytes

    def end(self) -> bytes:
        """Return the last bytes of the file: index, file info and trailer."""
        load_on_open_offset = self.size_bytes
        out = bytearray(encode_block(Magic.ROOT_INDEX, bytes(self._index), self._codec))
        out += encode_block(Magic.ROOT_INDEX, b"", self._codec)
        file_info_offset = load_on_open_offset + len(out)
        count = max(self.entry_count, 1)
        info = {
            b"schema": self._schema.encode(),
            b"hfile.AVG_VALUE_LEN": _INT.pack(self._value_bytes // count),
            b"hfile.AVG_KEY_LEN": _INT.pack(self._row_bytes // count),
            b"hfile.CREATE_TIME_TS": _LONG.pack(self._create_time_ms),
            **self._key_info(),
        }
        out += encode_block(Magic.FILE_INFO, _encode_info(info), self._codec)
        out += _trailer(
            {
                TrailerTag.FILE_INFO_OFFSET: file_info_offset,
                TrailerTag.LOAD_ON_OPEN_OFFSET: load_on_open_offset,
                TrailerTag.RAW_BYTES: self._raw_bytes,
                TrailerTag.DATA_INDEX_COUNT: self._block_count,
                TrailerTag.META_INDEX_COUNT: 0,
                TrailerTag.ENTRY_COUNT: self.entry_count,
                TrailerTag.INDEX_LEVELS: 1,
                TrailerTag.FIRST_DATA_BLOCK: 0 if self._block_count else NO_PREVIOUS_BLOCK,
                TrailerTag.LAST_DATA_BLOCK: max(self._previous, 0),
                TrailerTag.COMPARATOR: _COMPARATOR,
                TrailerTag.CODEC: self._codec,
            }
        )
        self.size_bytes += len(out)
        return bytes(out)

    def _key_info(self) -> dict[bytes, bytes]:
        has_rows = self._first_row is not None
        info = {b"hfile.LASTKEY": _with_length(self._last_row) if has_rows else b""}
        if not self._is_base_file:
            return info
        return {**info, b"minRecordKey": self._first_row or b"", b"maxRecordKey": self._last_row}


def _out_of_order() -> InvalidInputError:
    return InvalidInputError("The keys of an HFile must ascend bytewise, each once. Sort them")


def _value_lengths(values: pa.BinaryArray | pa.DictionaryArray) -> Longs:
    if not isinstance(values, pa.DictionaryArray):
        return piece_lengths(values)
    lengths: Longs = piece_lengths(values.dictionary)[np.asarray(values.indices)]
    return lengths


def _check_input(
    rows: pa.BinaryArray, values: pa.BinaryArray | pa.DictionaryArray, row_lengths: Longs
) -> None:
    if len(rows) != len(values) or rows.null_count or values.null_count:
        raise InvalidInputError(
            f"An HFile needs a value for each key and no nulls, got {len(rows)} keys and "
            f"{len(values)} values, with {rows.null_count} and {values.null_count} nulls"
        )
    if len(rows) > 1 and not pc.all(pc.less(rows[:-1], rows[1:])).as_py():
        raise _out_of_order()
    longest = row_lengths.max(initial=0)
    if longest > KEY_BYTES_MAX:
        raise InvalidInputError(
            f"A key of the metadata table has at most {KEY_BYTES_MAX} bytes, got {longest}"
        )


def _encode_entries(
    rows: pa.BinaryArray,
    values: pa.BinaryArray | pa.DictionaryArray,
    row_lengths: Longs,
    value_lengths: Longs,
) -> tuple[memoryview, Longs]:
    """Return the bytes of all entries, and how many each of them has."""
    heads = np.empty(len(rows), _ENTRY_HEAD)
    heads["row"] = row_lengths
    heads["key"] = row_lengths + (_ROW_LENGTH.size + len(KEY_SUFFIX))
    heads["value"] = value_lengths
    pieces = [
        pieces_of(heads.view(np.uint8).reshape(len(rows), _ENTRY_HEAD.itemsize)),
        rows,
        *_tails(values),
    ]
    sizes = row_lengths + value_lengths + (_ENTRY_HEAD.itemsize + len(KEY_SUFFIX) + 1)
    return data_of(join_pieces(pieces)), sizes


def _tails(values: pa.BinaryArray | pa.DictionaryArray) -> list[pa.Array | pa.Scalar]:
    """Return the pieces behind the rows; where values are few, what is around them is put once."""
    key_end, entry_end = (pa.scalar(end, pa.large_binary()) for end in (KEY_SUFFIX, _ENTRY_END))
    if not isinstance(values, pa.DictionaryArray):
        return [key_end, values, entry_end]
    whole = join_pieces([key_end, values.dictionary, entry_end])
    return [whole.take(values.indices)]


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


def _trailer(fields: Mapping[TrailerTag, int | bytes]) -> bytes:
    message = b"".join(encode_field(tag, value) for tag, value in fields.items())
    start = Magic.TRAILER.encode() + encode_with_length(message)
    version = MAJOR_VERSION.to_bytes(4)  # The first byte of the four is the minor version, 0.
    return start + bytes(TRAILER_BYTES - len(start) - len(version)) + version
