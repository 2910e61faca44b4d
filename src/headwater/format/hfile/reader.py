"""Reader of HFiles, in which the metadata table keeps its records sorted by key (format rule 9).

    data blocks | meta blocks | root data index | meta index | file info | trailer (4096 bytes)

An entry is `int key length | int value length | key | value | 00`, and a key `short row length |
row | 10 bytes that are always the same`. What we call keys are the rows. The index has the first
key of each data block, or one between it and the block before.

Records have no fixed size, so where one begins is known when the one before it was measured. With
many blocks all of them are walked at once; what is in the entries is then read for all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, unique
from functools import lru_cache, partial
from itertools import pairwise
from struct import Struct
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.arrow.few_values import binary_of, text_of
from headwater.errors import NotFoundError, UnsupportedError
from headwater.format.avro.vectors import Bytes, Longs, bytes_of, take_spans
from headwater.format.hfile.blocks import (
    Codec,
    Magic,
    corrupt,
    decode_block,
    read_vint,
)
from headwater.format.hfile.protobuf import (
    MalformedProtobufError,
    Value,
    parse_message,
    read_varint,
    read_with_length,
)
from headwater.seams.parallel_stream import parallel_stream

KEY_SUFFIX = b"\x00\x7f\xff\xff\xff\xff\xff\xff\xff\x04"
"""No column family, the latest time, and the kind of entry that puts a value."""
TRAILER_BYTES = 4096
MAJOR_VERSION = 3
MINOR_VERSIONS = (0, 3)
INFO_MAGIC = b"PBUF"

GAP_BYTES_MAX = 128 * 1024
"""Blocks nearer to each other than this are read in one request."""
RANGES_MAX = 16
"""Requests of one look-up. Beyond that, reading what lies between is faster than asking again."""
RUN_BLOCKS = 256
"""So many blocks or up to twice as many, 16 to 32 MB of entries, are unpacked and looked through
at a time: enough to walk them all at once."""
LOCK_STEP_BLOCKS_MIN = 192
"""From so many blocks on, walking all at once beats a loop over entries, measured."""

_FEW = 64
"""Up to so many entries of one block a loop over them beats Arrow's kernels, measured."""
_PAIRS_REMEMBERED = 256

_TWO_INTS = Struct(">ii")
_OFFSET_AND_SIZE = Struct(">qi")
_INDEX_HEAD = np.dtype([("offset", ">i8"), ("size", ">i4")])
_ROW_LENGTH = np.dtype(">u2")
_SUFFIX = np.dtype((np.void, len(KEY_SUFFIX)))
_ENTRY_HEAD = np.dtype([("key", ">i4"), ("value", ">i4"), ("row", ">u2")])
_INT32_MAX = 2**31 - 1
_VERSION_BYTES = 4
_ONE_BYTE_MAX = 127


@unique
class TrailerTag(IntEnum):
    """Fields of the trailer that matter."""

    FILE_INFO_OFFSET = 1
    LOAD_ON_OPEN_OFFSET = 2
    RAW_BYTES = 3
    DATA_INDEX_COUNT = 5
    META_INDEX_COUNT = 6
    ENTRY_COUNT = 7
    INDEX_LEVELS = 8
    FIRST_DATA_BLOCK = 9
    LAST_DATA_BLOCK = 10
    COMPARATOR = 11
    CODEC = 12


class HFileEntries(NamedTuple):
    """Keys in bytewise order, and the value of each."""

    keys: pa.StringArray
    values: pa.BinaryArray


class HFileSource(Protocol):
    """The bytes of one file."""

    def read(self, start: int, end: int) -> memoryview: ...


@dataclass(frozen=True, slots=True)
class _InMemory:
    data: memoryview

    def read(self, start: int, end: int) -> memoryview:
        return self.data[start:end]


@dataclass(frozen=True, slots=True)
class _Trailer:
    file_info_offset: int
    load_on_open_offset: int
    data_index_count: int
    entry_count: int
    codec: Codec


@dataclass(frozen=True, slots=True)
class _Index:
    """Where the data blocks are; `first_keys` are no greater than the first key of each."""

    first_keys: pa.BinaryArray
    offsets: Longs
    sizes: Longs


class _Run(NamedTuple):
    """Some blocks, and bytes of the file from `start` on that they are in."""

    blocks: Longs
    data: memoryview
    start: int


class _Parsed(NamedTuple):
    """The entries of some blocks, their values where they lie."""

    keys: pa.StringArray
    firsts: Longs
    """Which entry is the first of each block."""
    data: bytes | memoryview
    values_at: Longs
    value_lengths: Longs

    def values(self, places: Longs | None = None) -> pa.BinaryArray:
        """Copy the values of all entries, or of some that are in order."""
        at, lengths = self.values_at, self.value_lengths
        if places is not None:
            at, lengths = at[places], lengths[places]
        return take_spans(self.data, at, lengths, np.ones(len(at), np.bool_))


class HFile:
    """An HFile whose index is at hand; blocks are read when they are asked for."""

    def __init__(self, source: HFileSource, size_bytes: int, path: str) -> None:
        self._source = source
        self.path = path
        self._trailer_offset = size_bytes - TRAILER_BYTES
        if self._trailer_offset < 0:
            raise corrupt(path, f"{size_bytes} bytes are too few for an HFile")
        self._trailer = _parse_trailer(self._read(self._trailer_offset, size_bytes), path)
        start = self._trailer.load_on_open_offset
        if not start <= self._trailer.file_info_offset < self._trailer_offset:
            raise corrupt(path, "its trailer points outside of the file")
        self._index, self.info = self._load_index(start)

    @classmethod
    def of_bytes(cls, data: bytes | memoryview, *, path: str) -> Self:
        """Return a file that is in memory; `path` is for errors.

        Raises:
            CorruptTableError: the bytes are no HFile.
            UnsupportedError: it has a version, compression or index that this release cannot read.
        """
        return cls(_InMemory(memoryview(data)), len(data), path)

    @property
    def entry_count(self) -> int:
        return self._trailer.entry_count

    @property
    def schema(self) -> str | None:
        """The Avro schema of the values."""
        text = self.info.get("schema")
        try:
            return None if text is None else text.decode()
        except UnicodeDecodeError as error:
            raise corrupt(self.path, "its schema is no UTF-8") from error

    def read_all(self) -> HFileEntries:
        """Load all entries.

        Raises:
            CorruptTableError: the file is damaged.
            UnsupportedError: it has more than 2 GiB of entries.
        """
        is_small = len(self._index.offsets) == 1 and self.entry_count <= _FEW
        entries = (
            self._read_few() if is_small else self._read_blocks(np.arange(len(self._index.offsets)))
        )
        if len(entries.keys) != self.entry_count:
            raise corrupt(
                self.path,
                f"it has {len(entries.keys)} entries, its trailer says {self.entry_count}",
            )
        return entries

    def first_values(self) -> pa.BinaryArray:
        """Load the values of the first block, those of the smallest keys."""
        return self._read_blocks(np.arange(len(self._index.offsets))[:1]).values

    def look_up(self, keys: Sequence[str] | pa.StringArray) -> HFileEntries:
        """Load the entries of some keys, those that are there.

        Raises:
            CorruptTableError: a block that is needed is damaged.
        """
        wanted = keys if isinstance(keys, pa.Array) else pa.array(keys, pa.string())
        wanted = wanted.cast(pa.string()).drop_null()
        places = np.unique(self._places(wanted.cast(pa.binary())))
        return self._read_some(places[places >= 0], partial(pc.is_in, value_set=wanted))

    def scan_prefixes(self, prefixes: Sequence[str]) -> HFileEntries:
        """Load the entries whose keys begin with any of some texts.

        Raises:
            CorruptTableError: a block that is needed is damaged.
        """
        if "" in prefixes:
            return self.read_all()
        starts = [prefix.encode() for prefix in prefixes]
        # UTF-8 has no byte 255, so the last byte can be raised.
        ends = [start[:-1] + bytes([start[-1] + 1]) for start in starts]
        first = np.maximum(self._places(pa.array(starts, pa.binary())), 0)
        # A block that begins exactly at an end holds nothing of it; that it is read is rare.
        last = self._places(pa.array(ends, pa.binary()))
        is_meant = np.zeros(len(self._index.offsets) + 1, np.int64)
        np.add.at(is_meant, first, 1)
        np.add.at(is_meant, last + 1, -1)
        blocks = np.flatnonzero(np.cumsum(is_meant)[:-1] > 0)
        return self._read_some(blocks, partial(_has_prefix, prefixes=starts))

    def _read(self, start: int, end: int) -> memoryview:
        try:
            data = self._source.read(start, end)
        except NotFoundError as error:
            raise corrupt(self.path, "it was deleted while it was read") from error
        if len(data) != end - start:
            raise corrupt(self.path, f"it ends before offset {end}")
        return data

    def _load_index(self, start: int) -> tuple[_Index, Mapping[str, bytes]]:
        trailer, path = self._trailer, self.path
        section = self._read(start, self._trailer_offset)
        root = decode_block(section, Magic.ROOT_INDEX, trailer.codec, path=path, offset=start)
        index = _parse_index(root.data, trailer.data_index_count, path)
        if len(index.offsets) and not _lies_before(index, start):
            raise corrupt(path, "its index points outside of the data blocks")
        at = trailer.file_info_offset
        info = decode_block(
            section[at - start :], Magic.FILE_INFO, trailer.codec, path=path, offset=at
        )
        return index, MappingProxyType(_parse_info(bytes(info.data), path))

    def _places(self, keys: pa.BinaryArray) -> Longs:
        """Return the last block that does not begin behind each key, -1 if all of them do."""
        blocks = len(self._index.first_keys)
        # Sorting keeps the order of equals, so a block comes before a key that it begins with.
        order = pc.sort_indices(pa.concat_arrays([self._index.first_keys, keys])).to_numpy()
        is_block = order < blocks
        places = np.empty(len(order), np.int64)
        places[order] = np.cumsum(is_block) - 1
        return places[blocks:]

    def _read_blocks(self, blocks: Longs) -> HFileEntries:
        """Load the entries of some blocks, which are in order."""
        if not len(blocks):
            return HFileEntries(pa.array([], pa.string()), pa.array([], pa.binary()))
        raw = [data for run in self._load_runs(blocks, len(blocks)) for data in self._unpack(run)]
        parsed = _parse_entries(raw, self.path)
        self._check_order(parsed.keys, parsed.firsts, blocks)
        return HFileEntries(parsed.keys, parsed.values())

    def _read_few(self) -> HFileEntries:
        """Load the entries of the only block: few of them are faster looked at one by one.

        Every commit leaves such a file in the metadata table, and every other writer reads it.
        """
        start, size = int(self._index.offsets[0]), int(self._index.sizes[0])
        data = bytes(self._data_of(self._read(start, start + size), start, 0))
        found = list(_iter_entries(data, self.path))
        keys = [key for key, _ in found]
        if any(key >= following for key, following in pairwise(keys)):
            raise self._unordered()
        if not keys or self._index.first_keys[0].as_py() > keys[0]:
            raise self._unfit()
        try:
            for key in keys:
                key.decode()
        except UnicodeDecodeError as error:
            raise corrupt(self.path, "a key is no UTF-8") from error
        return HFileEntries(text_of(keys), binary_of([value for _, value in found]))

    def _read_some(
        self, blocks: Longs, is_meant: Callable[[pa.StringArray], pa.BooleanArray]
    ) -> HFileEntries:
        """Load those entries of some blocks, which are in order, whose keys are meant.

        Of many keys all blocks may be needed, so what is unpacked at a time is bounded.
        """

        def meant_of(run: _Run) -> HFileEntries:
            parsed = _parse_entries(self._unpack(run), self.path)
            self._check_order(parsed.keys, parsed.firsts, run.blocks)
            mask = is_meant(parsed.keys)
            places = np.flatnonzero(mask.to_numpy(zero_copy_only=False))
            return HFileEntries(parsed.keys.filter(mask), parsed.values(places))

        found = list(parallel_stream(meant_of, self._load_runs(blocks, RUN_BLOCKS)))
        if not found:
            return HFileEntries(pa.array([], pa.string()), pa.array([], pa.binary()))
        return HFileEntries(
            pa.concat_arrays([one.keys for one in found]),
            pa.concat_arrays([one.values for one in found]),
        )

    def _load_runs(self, blocks: Longs, run_blocks: int) -> Iterator[_Run]:
        """Load blocks, which are in order, and give them still packed.

        At least `run_blocks` come at a time, unless all of them are fewer, and less than twice as
        many.
        """
        if not len(blocks):
            return
        for group in _grouped(self._index, blocks):
            start = int(self._index.offsets[group[0]])
            end = int(self._index.offsets[group[-1]] + self._index.sizes[group[-1]])
            data = self._read(start, end)
            for some in np.array_split(group, max(1, len(group) // run_blocks)):
                yield _Run(some, data, start)

    def _unpack(self, run: _Run) -> list[bytes | memoryview]:
        return [self._data_of(run.data, run.start, int(block)) for block in run.blocks]

    def _data_of(self, data: memoryview, start: int, block: int) -> bytes | memoryview:
        offset, size = int(self._index.offsets[block]), int(self._index.sizes[block])
        view = data[offset - start : offset - start + size]
        decoded = decode_block(view, Magic.DATA, self._trailer.codec, path=self.path, offset=offset)
        if decoded.size != size:
            raise corrupt(self.path, f"the block at offset {offset} differs from its index entry")
        return decoded.data

    def _check_order(self, keys: pa.StringArray, firsts: Longs, blocks: Longs) -> None:
        """Check that keys ascend, and that each block has the keys that the index says."""
        rows = keys.cast(pa.binary())
        if not _all(pc.less(rows[:-1], rows[1:])):
            raise self._unordered()
        index_keys = self._index.first_keys
        is_right = pc.less_equal(index_keys.take(blocks), rows.take(firsts))
        has_next = blocks + 1 < len(index_keys)
        lasts = np.append(firsts[1:], len(rows)) - 1
        is_before_next = pc.less(
            rows.take(lasts[has_next]), index_keys.take((blocks + 1)[has_next])
        )
        if not (_all(is_right) and _all(is_before_next)):
            raise self._unfit()

    def _unordered(self) -> Exception:
        return corrupt(self.path, "its keys are out of order")

    def _unfit(self) -> Exception:
        return corrupt(self.path, "its index does not fit its blocks")


def _all(claims: pa.BooleanArray) -> bool:
    return bool(claims.false_count == 0)


def _has_prefix(keys: pa.StringArray, prefixes: Iterable[bytes]) -> pa.BooleanArray:
    rows = keys.cast(pa.binary())
    by_length: dict[int, list[bytes]] = {}
    for prefix in prefixes:
        by_length.setdefault(len(prefix), []).append(prefix)
    mask = pa.array(np.zeros(len(rows), np.bool_))
    for length, alike in by_length.items():
        is_alike = pc.is_in(pc.binary_slice(rows, 0, length), pa.array(alike, pa.binary()))
        mask = pc.or_(mask, is_alike)
    return mask


def _grouped(index: _Index, blocks: Longs) -> list[Longs]:
    """Split blocks, which are in order, into those that are read in one request each."""
    starts, ends = index.offsets[blocks], index.offsets[blocks] + index.sizes[blocks]
    gaps = starts[1:] - ends[:-1]
    largest = np.argsort(gaps, kind="stable")[::-1][: RANGES_MAX - 1]
    splits = np.sort(largest[gaps[largest] > GAP_BYTES_MAX]) + 1
    return np.split(blocks, splits)


def _lies_before(index: _Index, end: int) -> bool:
    ends = index.offsets + index.sizes
    is_ascending = (index.offsets[1:] >= ends[:-1]).all()
    return bool(
        index.offsets[0] >= 0 and (index.sizes > 0).all() and is_ascending and ends[-1] <= end
    )


def _parse_entries(raw: Sequence[bytes | memoryview], path: str) -> _Parsed:
    """Return the entries of blocks."""
    sizes = np.fromiter(map(len, raw), np.int64, len(raw))
    data = raw[0] if len(raw) == 1 else b"".join(raw)
    if len(data) > _INT32_MAX:
        raise UnsupportedError(
            f"{path} has more than 2 GiB of entries, which are not read at once. Look keys up",
            path=path,
        )
    ends = np.cumsum(sizes)
    begins = ends - sizes
    if (sizes == 0).any():
        raise _empty_block(path)
    if len(raw) >= LOCK_STEP_BLOCKS_MIN:
        starts = _walk_in_step(bytes_of(data), begins, ends, path)
    else:
        starts = _walk(data, begins, ends, path)
    return _entries_at(data, starts, np.searchsorted(starts, begins), path)


def _iter_entries(data: bytes, path: str) -> Iterator[tuple[bytes, bytes]]:
    """Give the key and the value of each entry of a block."""
    unpack, width = _TWO_INTS.unpack_from, _TWO_INTS.size
    at, size = 0, len(data)
    if not size:
        raise _empty_block(path)
    while at < size:
        if at > size - width:
            raise _cut_entry(path)
        key_length, value_length = unpack(data, at)
        row_at = at + width + _ROW_LENGTH.itemsize
        value_at = at + width + key_length
        at = value_at + value_length + 1
        if key_length < 0 or value_length < 0 or at > size:
            raise _cut_entry(path)
        row_end = row_at + int.from_bytes(data[row_at - _ROW_LENGTH.itemsize : row_at])
        if row_end + len(KEY_SUFFIX) != value_at:
            raise _impossible_length(path)
        if data[row_end:value_at] != KEY_SUFFIX or data[at - 1]:
            raise _strange_entry(path)
        yield data[row_at:row_end], data[value_at : at - 1]


def _walk(data: bytes | memoryview, begins: Longs, ends: Longs, path: str) -> Longs:
    """Return where each entry begins; the only loop over entries, for few of them."""
    unpack, width = _TWO_INTS.unpack_from, _TWO_INTS.size
    starts = []
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        at = begin
        while at < end:
            if at > end - width:
                raise _cut_entry(path)
            key_length, value_length = unpack(data, at)
            if key_length < 0 or value_length < 0:
                raise _cut_entry(path)
            starts.append(at)
            at += width + key_length + value_length + 1
        if at != end:
            raise _cut_entry(path)
    return np.array(starts, np.int64)


def _walk_in_step(data: Bytes, begins: Longs, ends: Longs, path: str) -> Longs:
    """Return where each entry begins, one entry of every block at a time."""
    width = _TWO_INTS.size
    windows = np.lib.stride_tricks.sliding_window_view(data, width)
    starts = []
    at = begins
    while len(at):
        if (at > ends - width).any():
            raise _cut_entry(path)
        starts.append(at)
        lengths = windows[at].view(">i4").astype(np.int64)
        if (lengths < 0).any():
            raise _cut_entry(path)
        at = at + lengths.sum(axis=1) + (width + 1)
        if (at > ends).any():
            raise _cut_entry(path)
        is_inside = at < ends
        at, ends = at[is_inside], ends[is_inside]
    return np.sort(np.concatenate(starts))


def _entries_at(data: bytes | memoryview, starts: Longs, firsts: Longs, path: str) -> _Parsed:
    view = bytes_of(data)
    ends = np.append(starts[1:], len(view))
    heads = _read_at(view, starts, _ENTRY_HEAD, path)
    key_lengths = heads["key"].astype(np.int64)
    row_lengths = heads["row"].astype(np.int64)
    value_lengths = heads["value"].astype(np.int64)
    if (key_lengths != row_lengths + _ROW_LENGTH.itemsize + len(KEY_SUFFIX)).any():
        raise _impossible_length(path)
    rows_at = starts + _ENTRY_HEAD.itemsize
    suffixes = _read_at(view, rows_at + row_lengths, _SUFFIX, path)
    if (suffixes != np.void(KEY_SUFFIX)).any() or view[ends - 1].any():
        raise _strange_entry(path)
    every = np.ones(len(starts), np.bool_)
    values_at = starts + _TWO_INTS.size + key_lengths
    try:
        keys = take_spans(data, rows_at, row_lengths, every).cast(pa.string())
    except pa.ArrowInvalid as error:
        raise corrupt(path, "a key is no UTF-8") from error
    return _Parsed(keys, firsts, data, values_at, value_lengths)


def _read_at(data: Bytes, at: Longs, kind: np.dtype[Any], path: str) -> npt.NDArray[Any]:
    """Return the values of a type that lie at some places."""
    places = len(data) - kind.itemsize + 1
    if (at >= places).any():
        raise _cut_entry(path)
    # Bytes without a meaning are gathered twice as fast as fields.
    everywhere = np.ndarray(max(places, 0), (np.void, kind.itemsize), data, strides=(1,))
    return everywhere[at].view(kind)


def _cut_entry(path: str) -> Exception:
    return corrupt(path, "an entry goes beyond the end of its block")


def _empty_block(path: str) -> Exception:
    return corrupt(path, "a data block is empty")


def _impossible_length(path: str) -> Exception:
    return corrupt(path, "a key has an impossible length")


def _strange_entry(path: str) -> Exception:
    return corrupt(path, "an entry is of another kind than the metadata table has")


def _parse_trailer(data: memoryview, path: str) -> _Trailer:
    magic = Magic.TRAILER.encode()
    if data[: len(magic)] != magic:
        raise corrupt(path, "it has no trailer")
    minor, major = data[-_VERSION_BYTES], int.from_bytes(data[1 - _VERSION_BYTES :])
    if major != MAJOR_VERSION or minor not in MINOR_VERSIONS:
        raise corrupt(path, f"its trailer says version {major}.{minor}")
    try:
        message, _ = read_with_length(bytes(data[:-_VERSION_BYTES]), len(magic))
        fields = parse_message(message)
        numbers = {tag: value for tag, value in fields if isinstance(value, int)}
        trailer = _Trailer(
            file_info_offset=numbers[TrailerTag.FILE_INFO_OFFSET],
            load_on_open_offset=numbers[TrailerTag.LOAD_ON_OPEN_OFFSET],
            data_index_count=numbers[TrailerTag.DATA_INDEX_COUNT],
            entry_count=numbers[TrailerTag.ENTRY_COUNT],
            codec=Codec(numbers[TrailerTag.CODEC]),
        )
    except (MalformedProtobufError, KeyError, ValueError) as error:
        raise corrupt(path, f"its trailer is not understood ({error})") from error
    levels = numbers.get(TrailerTag.INDEX_LEVELS, 1)
    if levels != 1:
        raise UnsupportedError(
            f"{path} has an index of {levels} levels, which this release cannot read. Let Apache "
            "Hudi 1.1 or later compact the metadata table",
            path=path,
        )
    return trailer


def _parse_index(data: bytes | memoryview, count: int, path: str) -> _Index:
    keys_at, ends = _walk_index(bytes(data), path)
    if len(ends) != count:
        raise corrupt(path, f"its index has {len(ends)} blocks, its trailer says {count}")
    if count == 1:
        return _index_of_one(bytes(data), int(keys_at[0]), path)
    view = bytes_of(data)
    heads = _read_at(view, np.append(0, ends)[:-1], _INDEX_HEAD, path)
    row_lengths = _read_at(view, keys_at, _ROW_LENGTH, path).astype(np.int64)
    rows_at = keys_at + _ROW_LENGTH.itemsize
    behind = ends - rows_at - row_lengths
    if ((behind != 0) & (behind != len(KEY_SUFFIX))).any():
        raise _impossible_key(path)
    first_keys = take_spans(data, rows_at, row_lengths, np.ones(count, np.bool_))
    if not _all(pc.less(first_keys[:-1], first_keys[1:])):
        raise corrupt(path, "its index is out of order")
    return _Index(first_keys, heads["offset"].astype(np.int64), heads["size"].astype(np.int64))


def _index_of_one(data: bytes, key_at: int, path: str) -> _Index:
    offset, size = _OFFSET_AND_SIZE.unpack_from(data)
    row_at = key_at + _ROW_LENGTH.itemsize
    if row_at > len(data):
        raise _cut_entry(path)
    end = row_at + int.from_bytes(data[key_at:row_at])
    if len(data) - end not in (0, len(KEY_SUFFIX)):
        raise _impossible_key(path)
    first_keys = binary_of([data[row_at:end]])
    return _Index(first_keys, np.array([offset], np.int64), np.array([size], np.int64))


def _walk_index(data: bytes, path: str) -> tuple[Longs, Longs]:
    """Return where the key of each entry begins, with the length of its row, and where it ends."""
    keys_at, ends = [], []
    size, head_size = len(data), _INDEX_HEAD.itemsize
    at = 0
    while at + head_size < size:
        at += head_size
        length = data[at]
        if length <= _ONE_BYTE_MAX:
            at += 1
        else:
            length, at = _long_length(data, at, path)
        keys_at.append(at)
        at += length
        ends.append(at)
    if at != size:
        raise corrupt(path, "its index is cut short")
    return np.array(keys_at, np.int64), np.array(ends, np.int64)


def _long_length(data: bytes, at: int, path: str) -> tuple[int, int]:
    """Read a length of several bytes, and return where it ends."""
    # The first native writers had the lengths as protobuf has them; the row length tells.
    for read in (read_vint, read_varint):
        try:
            length, start = read(data, at)
        except MalformedProtobufError:
            continue
        row_at = start + _ROW_LENGTH.itemsize
        if row_at <= start + length <= len(data):
            row_length = int.from_bytes(data[start:row_at])
            if start + length - row_at - row_length in (0, len(KEY_SUFFIX)):
                return length, start
    raise _impossible_key(path)


def _impossible_key(path: str) -> Exception:
    return corrupt(path, "its index has an impossible key")


def _parse_info(data: bytes, path: str) -> dict[str, bytes]:
    if not data.startswith(INFO_MAGIC):
        raise corrupt(path, "its file info is not understood")
    info = {}
    try:
        message, _ = read_with_length(data, len(INFO_MAGIC))
        for _, entry in parse_message(message):
            pair = _parse_pair(entry if isinstance(entry, bytes) else b"")
            name, value = pair.get(1), pair.get(2)
            if isinstance(name, bytes) and isinstance(value, bytes):
                info[name.decode()] = value
    except (MalformedProtobufError, UnicodeDecodeError) as error:
        raise corrupt(path, f"its file info is not understood ({error})") from error
    return info


@lru_cache(_PAIRS_REMEMBERED)
def _parse_pair(entry: bytes) -> Mapping[int, Value]:
    return dict(parse_message(entry))  # Most are the same in every file, the schema above all.
