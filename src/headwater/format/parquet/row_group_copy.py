"""Parquet files put together row group by row group, without decoding a value.

A Parquet file is its column chunks, and a footer that says where they are. So the chunks of several
files with the same columns can be copied one behind the other, and a new footer written that gives
their new places. All that is encoded anew is a column that has one text for all rows of the new
file, such as the name of the file itself.

What footers say beside the places is kept: statistics, encodings, codecs. Page indexes and bloom
filters of columns lie outside of the chunks, and readers do without them; they are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.format.parquet.footer import (
    FOOTER_CHECKSUM,
    MAGIC,
    TAIL_BYTES,
    UNKNOWN_CHECKSUM,
    corrupt_base_file,
    naming_damage,
    read_file_end,
    stamp_checksum,
)
from headwater.format.parquet.thrift_compact import (
    Kind,
    MalformedThriftError,
    ThriftStruct,
    Value,
    encode_struct,
    parse_struct,
)

# Numbers of fields in Parquet's structs.
_FILE_SCHEMA, _FILE_ROWS, _FILE_GROUPS, _FILE_ENTRIES = 2, 3, 4, 5
_GROUP_CHUNKS, _GROUP_BYTES, _GROUP_ROWS, _GROUP_PLACE, _GROUP_COMPRESSED = 1, 2, 3, 5, 6
_GROUP_NUMBER = 7
_CHUNK_FILE, _CHUNK_PLACE, _CHUNK_COLUMN = 1, 2, 3
_CHUNK_ENCRYPTION = (8, 9)
_COLUMN_PATH, _COLUMN_BYTES, _COLUMN_COMPRESSED = 3, 6, 7
_COLUMN_DATA, _COLUMN_INDEX, _COLUMN_DICTIONARY = 9, 10, 11
_COLUMN_OUTSIDE = (14, 15)
_COLUMN_STATISTICS = 12
_STATISTICS_BOUNDS = (1, 2, 5, 6, 7, 8)
_ENTRY_KEY, _ENTRY_VALUE = 1, 2
_ELEMENT_REPETITION, _ELEMENT_NAME = 3, 4
_REQUIRED = 0

_OWN_ENTRIES = ("ARROW:schema", FOOTER_CHECKSUM)
"""What a footer says of itself alone."""


@dataclass(frozen=True, slots=True)
class RawFooter:
    """The footer of a Parquet file, as its bytes say."""

    fields: ThriftStruct

    @property
    def columns(self) -> Any:
        """What two files must have in common for one to go behind the other."""
        return self.fields[_FILE_SCHEMA].plain

    @property
    def groups(self) -> list[ThriftStruct]:
        if _FILE_GROUPS not in self.fields:
            return []
        groups: list[ThriftStruct] = self.fields[_FILE_GROUPS].plain[1]
        return groups

    @property
    def entries(self) -> dict[str, str]:
        """The key-value pairs that writers left."""
        if _FILE_ENTRIES not in self.fields:
            return {}
        return {
            _text(entry[_ENTRY_KEY]): _text(entry[_ENTRY_VALUE])
            for entry in self.fields[_FILE_ENTRIES].plain[1]
            if _ENTRY_VALUE in entry
        }

    def check(self) -> None:
        """Look at all that a copy looks at; what is missing raises whatever it raises."""
        for element in self.columns[1]:
            _text(element[_ELEMENT_NAME])
        _ = self.entries
        for group in self.groups:
            int(group[_GROUP_ROWS].plain)
            for chunk in group[_GROUP_CHUNKS].plain[1]:
                if _CHUNK_COLUMN in chunk:
                    _column_name(chunk)
                    _start(chunk)
                    int(chunk[_CHUNK_COLUMN].plain[_COLUMN_BYTES].plain)
                    _compressed_bytes(chunk)

    @property
    def is_copyable(self) -> bool:
        """Whether its chunks are plain bytes of its own."""
        chunks = [chunk for group in self.groups for chunk in group[_GROUP_CHUNKS].plain[1]]
        return all(
            _CHUNK_COLUMN in chunk
            and _CHUNK_FILE not in chunk
            and not any(number in chunk for number in _CHUNK_ENCRYPTION)
            for chunk in chunks
        )


@dataclass(frozen=True, slots=True)
class SourceGroup:
    """One row group of an open file."""

    source: BinaryIO
    path: str
    footer: RawFooter
    number: int

    @property
    def row_count(self) -> int:
        return int(self._fields[_GROUP_ROWS].plain)

    @property
    def size_bytes(self) -> int:
        return sum(_compressed_bytes(chunk) for chunk in self.chunks)

    @property
    def chunks(self) -> list[ThriftStruct]:
        chunks: list[ThriftStruct] = self._fields[_GROUP_CHUNKS].plain[1]
        return chunks

    @property
    def _fields(self) -> ThriftStruct:
        return self.footer.groups[self.number]


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """What is known of a file that was just put together."""

    row_count: int
    size_bytes: int


def read_raw_footer(source: BinaryIO, *, path: str) -> RawFooter:
    """Read the footer of an open file.

    Raises:
        CorruptTableError: kind CORRUPT_BASE_FILE; it is no Parquet file, or an encrypted one.
    """
    with naming_damage(path):
        file_end = read_file_end(source)
    try:
        footer = RawFooter(parse_struct(file_end[:-TAIL_BYTES]))
        footer.check()
    # A struct that is whole may still lack fields, or have others in their place.
    except (MalformedThriftError, LookupError, TypeError, AttributeError, ValueError) as error:
        raise corrupt_base_file(path, f"its footer does not parse, {error}") from error
    return footer


def copy_row_groups(
    groups: Iterable[SourceGroup],
    sink: BinaryIO,
    *,
    constants: Mapping[str, str],
    entries: Mapping[str, str],
    codec: str,
) -> CopiedFile:
    """Write a file of row groups whose footers have the same `columns`.

    Args:
        groups: at least one.
        constants: top-level text columns that have one value in the whole file.
        entries: key-value pairs for the footer.
        codec: the compression of the constant columns.

    Raises:
        CorruptTableError: a file is shorter than its footer says.
    """
    output = _Output(sink)
    output.put(MAGIC)
    written: list[ThriftStruct] = []
    first: RawFooter | None = None
    for group in groups:
        first = first or group.footer
        written.append(_copy_group(group, output, len(written), constants, codec))
    assert first is not None
    row_count = sum(int(group[_GROUP_ROWS].plain) for group in written)
    stored_entries = [_entry(*pair) for pair in {**entries, **UNKNOWN_CHECKSUM}.items()]
    footer = encode_struct(
        {
            **first.fields,
            _FILE_ROWS: Value(Kind.I64, row_count),
            _FILE_GROUPS: Value(Kind.LIST, (Kind.STRUCT, written)),
            _FILE_ENTRIES: Value(Kind.LIST, (Kind.STRUCT, stored_entries)),
        }
    )
    file_end = bytearray(footer + len(footer).to_bytes(4, "little") + MAGIC)
    stamp_checksum(file_end)
    output.put(file_end)
    return CopiedFile(row_count, output.size_bytes)


def common_entries(footers: Iterable[RawFooter]) -> dict[str, str]:
    """Return the key-value pairs in which all footers agree and that hold for another file too."""
    common: dict[str, str] | None = None
    for footer in footers:
        entries = footer.entries
        common = entries if common is None else dict(common.items() & entries.items())
    return {key: value for key, value in (common or {}).items() if key not in _OWN_ENTRIES}


def without_bounds(tail: bytearray, chunks: Collection[tuple[int, str]]) -> bytearray:
    """Return the end of a file, from somewhere before its footer, with fewer statistics.

    Args:
        chunks: number of the row group and dotted column, of those whose smallest and largest
            values are left out. Their counts of nulls stay.
    """
    length = int.from_bytes(tail[-TAIL_BYTES : -len(MAGIC)], "little")
    start = len(tail) - TAIL_BYTES - length
    footer = RawFooter(parse_struct(memoryview(tail)[start:-TAIL_BYTES]))
    for number, group in enumerate(footer.groups):
        for chunk in group[_GROUP_CHUNKS].plain[1]:
            column: ThriftStruct = chunk[_CHUNK_COLUMN].plain
            if (number, _column_name(chunk)) in chunks and _COLUMN_STATISTICS in column:
                statistics: ThriftStruct = column[_COLUMN_STATISTICS].plain
                for bound in _STATISTICS_BOUNDS:
                    statistics.pop(bound, None)
    changed = encode_struct(footer.fields)
    return tail[:start] + changed + len(changed).to_bytes(4, "little") + MAGIC


class _Output:
    """A sink that knows how far it is."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self.size_bytes = 0

    def put(self, data: bytes | bytearray | memoryview) -> None:
        self._sink.write(data)
        self.size_bytes += len(data)


def _copy_group(
    group: SourceGroup,
    output: _Output,
    number: int,
    constants: Mapping[str, str],
    codec: str,
) -> ThriftStruct:
    starts = [_start(chunk) for chunk in group.chunks]
    ends = [
        start + _compressed_bytes(chunk) for start, chunk in zip(starts, group.chunks, strict=True)
    ]
    # One read for the whole group: its chunks lie one behind the other.
    first, last = min(starts), max(ends)
    data = memoryview(_read(group.source, first, last - first))
    if len(data) < last - first:
        raise corrupt_base_file(group.path, "it is shorter than its footer says")
    place = output.size_bytes
    chunks = []
    for chunk, start, end in zip(group.chunks, starts, ends, strict=True):
        name = _column_name(chunk)
        content = data[start - first : end - first]
        if name in constants:
            is_required = _is_required(group.footer, name)
            text = constants[name]
            chunk, content = _constant_chunk(text, name, group.row_count, codec, is_required)
        chunks.append(_moved(chunk, output.size_bytes - _start(chunk)))
        output.put(content)
    columns = [chunk[_CHUNK_COLUMN].plain for chunk in chunks]
    fields = group.footer.groups[group.number]
    return {
        **fields,
        _GROUP_CHUNKS: Value(Kind.LIST, (Kind.STRUCT, chunks)),
        _GROUP_BYTES: Value(Kind.I64, sum(int(one[_COLUMN_BYTES].plain) for one in columns)),
        _GROUP_PLACE: Value(Kind.I64, place),
        _GROUP_COMPRESSED: Value(Kind.I64, sum(map(_compressed_bytes, chunks))),
        _GROUP_NUMBER: Value(Kind.I16, number),
    }


def _moved(chunk: ThriftStruct, by: int) -> ThriftStruct:
    """Return what a footer says of a chunk that was moved, without what lies outside of it."""
    column = {
        number: value
        for number, value in chunk[_CHUNK_COLUMN].plain.items()
        if number not in _COLUMN_OUTSIDE
    }
    for number in (_COLUMN_DATA, _COLUMN_INDEX, _COLUMN_DICTIONARY):
        # Some writers say 0 where there is no dictionary.
        if number in column and column[number].plain > 0:
            column[number] = Value(Kind.I64, column[number].plain + by)
    start = _start(chunk) + by
    return {
        _CHUNK_PLACE: Value(Kind.I64, start),
        _CHUNK_COLUMN: Value(Kind.STRUCT, column),
    }


def _constant_chunk(
    text: str, name: str, row_count: int, codec: str, is_required: bool
) -> tuple[ThriftStruct, memoryview]:
    """Return a column chunk that says one text for every row."""
    field = pa.field(name, pa.string(), nullable=not is_required)
    rows = pa.table([pa.repeat(pa.scalar(text, pa.string()), row_count)], schema=pa.schema([field]))
    sink = pa.BufferOutputStream()
    pq.write_table(
        rows,
        sink,
        compression=codec,
        use_dictionary=True,
        row_group_size=row_count,
        write_page_checksum=True,
        store_schema=False,
    )
    data = sink.getvalue()
    footer = read_raw_footer(pa.BufferReader(data), path=name)
    (group,) = footer.groups
    (chunk,) = group[_GROUP_CHUNKS].plain[1]
    start = _start(chunk)
    return chunk, memoryview(data)[start : start + _compressed_bytes(chunk)]


def _start(chunk: ThriftStruct) -> int:
    """Return where the first page of a chunk begins: that of its dictionary, if it has one."""
    column: ThriftStruct = chunk[_CHUNK_COLUMN].plain
    data = int(column[_COLUMN_DATA].plain)
    dictionary = column.get(_COLUMN_DICTIONARY)
    has_dictionary = dictionary is not None and 0 < dictionary.plain < data
    return int(dictionary.plain) if dictionary is not None and has_dictionary else data


def _compressed_bytes(chunk: ThriftStruct) -> int:
    return int(chunk[_CHUNK_COLUMN].plain[_COLUMN_COMPRESSED].plain)


def _column_name(chunk: ThriftStruct) -> str:
    parts = chunk[_CHUNK_COLUMN].plain[_COLUMN_PATH].plain[1]
    return ".".join(part.decode() for part in parts)


def _is_required(footer: RawFooter, name: str) -> bool:
    for element in footer.columns[1]:
        if _text(element[_ELEMENT_NAME]) == name and _ELEMENT_REPETITION in element:
            return bool(element[_ELEMENT_REPETITION].plain == _REQUIRED)
    return False


def _entry(key: str, value: str) -> ThriftStruct:
    return {
        _ENTRY_KEY: Value(Kind.BINARY, key.encode()),
        _ENTRY_VALUE: Value(Kind.BINARY, value.encode()),
    }


def _text(value: Value) -> str:
    text: str = value.plain.decode()
    return text


def _read(source: BinaryIO, start: int, length: int) -> bytes:
    source.seek(start)
    return source.read(length)
