"""Records of the metadata table: lists of files, bloom filters, record locations, secondary keys.

A record is an Avro datum of `METADATA_SCHEMA`. Its key is empty inside, since the HFile has it, and
its meta columns are null, except that a compaction of Hudi fills in the file name. All but one of
its last five fields are null. Lists of files are few and read one by one; the others are encoded
and decoded for all rows at once. Column statistics are in `column_stats_records`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import InvalidInputError
from headwater.format.avro.binary import (
    MalformedAvroError,
    append_long,
    long_bytes,
    read_count,
    read_long,
    read_span,
)
from headwater.format.avro.rows import RowReader
from headwater.format.avro.vectors import (
    bytes_of,
    join_pieces,
    piece_lengths,
    pieces_of,
    read_bytes,
    read_longs,
    varint_matrix,
)
from headwater.format.metadata.schema import META_COLUMNS, RecordType

ONE_BY_ONE_MAX = 64
"""Up to so many locations, reading one after the other beats reading all at once, measured."""
NO_FIELDS = b"\x00" * 5
"""The branches of the last five fields when all are null."""
_NULL = b"\x00"
_VALUE = b"\x02"
_UUID_FILE_ID = re.compile(
    r"([0-9a-f]{8})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{12})(?:-(0|[1-9]\d{0,8}))?"
)
_UUID_ENCODING = 0
_TEXT_ENCODING = 1
_NO_FILE_INDEX = -1
_UUID_GROUPS = (4, 2, 2, 2, 6)
"""Bytes between the dashes of a UUID."""
_LOCATION_SCHEMA = pa.schema(
    [
        ("partition_path", pa.string()),
        ("file_id", pa.string()),
        ("instant_ms", pa.int64()),
        ("position", pa.int64()),
    ]
)


class FileInfo(NamedTuple):
    """What a list says about one file, or about one partition."""

    size_bytes: int
    is_deleted: bool = False


def record_start(record_type: RecordType) -> bytes:
    """Return the bytes before the last five fields: no meta columns, no key, the type."""
    return _NULL * (len(META_COLUMNS) + 1) + bytes([record_type << 1])


def read_record_start(value: bytes) -> tuple[int, int]:
    """Read the type of a record, and return where its last five fields begin.

    Raises:
        MalformedAvroError: it is no record.
    """
    at = 0
    try:
        for _ in META_COLUMNS:
            _, at = _read_optional_text(value, at)
        _, at = _read_text(value, at)
        return read_long(value, at)
    except (IndexError, UnicodeDecodeError) as error:
        raise MalformedAvroError(f"a record that is cut short: {error}") from error


def encode_files(files: Mapping[str, FileInfo], record_type: RecordType) -> bytes:
    """Encode a list of files by name, or of partitions by path."""
    out = bytearray(record_start(record_type))
    out += _VALUE
    if files:
        append_long(len(files), out)
        for name, (size_bytes, is_deleted) in files.items():
            encoded = name.encode()
            out += long_bytes(len(encoded))
            out += encoded
            out += long_bytes(size_bytes)
            out.append(is_deleted)
    out += _NULL
    out += NO_FIELDS[1:]
    return bytes(out)


def decode_files(value: bytes) -> dict[str, FileInfo]:
    """Decode a list of files or partitions.

    Raises:
        MalformedAvroError: it is no such record.
    """
    try:
        record_type, at = read_record_start(value)
        if record_type not in (RecordType.PARTITION_LIST, RecordType.FILE_LIST):
            raise MalformedAvroError(f"a record of type {record_type}, not a list of files")
        files: dict[str, FileInfo] = {}
        branch, at = read_long(value, at)
        if branch == 1:
            at = _read_map(value, at, files)
        if value[at:] != NO_FIELDS[1:]:
            raise MalformedAvroError("a list of files with something behind it")
    # A name may be cut by the end of the value; then there is no size behind it.
    except (IndexError, UnicodeDecodeError) as error:
        raise MalformedAvroError(f"a list of files that is cut short: {error}") from error
    return files


def _read_map(value: bytes, at: int, files: dict[str, FileInfo]) -> int:
    """Read names with their sizes, of which one partition may have a hundred thousand.

    So the names are cut out by a loop that does little else, and the sizes are read at once.
    """
    count, at = read_count(value, at)
    while count:
        names, sizes_at = [], []
        for _ in range(count):
            # The length of a file name takes one byte, or two.
            byte = value[at]
            if byte < 0x80:
                start, length = at + 1, byte
            elif value[at + 1] < 0x80:
                start, length = at + 2, byte - 0x80 + (value[at + 1] << 7)
            else:
                raise MalformedAvroError(f"a name of more than 8 kB at offset {at}")
            if length & 1:
                raise MalformedAvroError(f"a name of negative length at offset {at}")
            at = start + (length >> 1)
            names.append(value[start:at])
            sizes_at.append(at)
            while value[at] > 0x7F:
                at += 1
            at += 2
        sizes, ends = read_longs(bytes_of(value), np.array(sizes_at, np.int64))
        flags, _ = read_bytes(bytes_of(value), ends)
        infos = map(FileInfo._make, zip(sizes.tolist(), (flags == 1).tolist(), strict=True))
        files.update(zip(map(bytes.decode, names), infos, strict=True))
        count, at = read_count(value, at)
    return at


def fold_files(merged: dict[str, FileInfo], newer: Mapping[str, FileInfo]) -> None:
    """Fold a newer list into what all older ones made; it is changed, for it may be long.

    A file that grew, as logs of old table versions did, has its largest size.
    """
    for name, info in newer.items():
        before = merged.get(name)
        if info.is_deleted:
            if before is not None and not before.is_deleted:
                del merged[name]
            else:
                merged[name] = info
        elif before is None or before.is_deleted:
            merged[name] = info
        else:
            merged[name] = FileInfo(max(before.size_bytes, info.size_bytes))


def encode_record_locations(
    partition_paths: pa.Array | str, file_ids: pa.Array | str, instant_ms: pa.Array | int
) -> pa.BinaryArray:
    """Encode where records are: partition, file group, and the time they came there.

    Rows that say the same share their bytes, so it costs little more than finding those. What is
    the same in all rows may be given once, but not all three.

    Raises:
        InvalidInputError: lengths differ, or a value is null.
    """
    given = (partition_paths, file_ids, instant_ms)
    counts = {len(each) for each in given if isinstance(each, (pa.Array, pa.ChunkedArray))}
    if len(counts) != 1:
        raise InvalidInputError(f"Record locations need columns of one length, got {counts}")
    count = counts.pop()
    codes, columns = np.zeros(count, np.int64), []
    for each in given:
        encoded = _dictionary(each, count)
        columns.append(encoded.dictionary.to_pylist())
        codes = codes * max(len(columns[-1]), 1) + np.asarray(encoded.indices)
    distinct = pa.array(codes).dictionary_encode()
    values = []
    for code in distinct.dictionary.to_pylist():
        rest, instant = divmod(code, len(columns[2]))
        partition, file_id = divmod(rest, len(columns[1]))
        values.append(_location(columns[0][partition], columns[1][file_id], columns[2][instant]))
    return pa.array(values, pa.binary()).take(distinct.indices)


def _dictionary(column: pa.Array | str | int, count: int) -> pa.DictionaryArray:
    if isinstance(column, (str, int)):
        return pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), pa.array([column]))
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if column.null_count:
        raise InvalidInputError("A record location has no nulls")
    return column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode()


def _location(partition: str, file_id: str, instant_ms: int) -> bytes:
    out = bytearray(record_start(RecordType.RECORD_INDEX) + _NULL * 3 + _VALUE)
    high, low, index, text, encoding = -1, -1, _NO_FILE_INDEX, file_id, _TEXT_ENCODING
    match = _UUID_FILE_ID.fullmatch(file_id)
    if match is not None:
        bits = bytes.fromhex("".join(match.groups()[:5]))
        high = int.from_bytes(bits[:8], signed=True)
        low = int.from_bytes(bits[8:], signed=True)
        index = _NO_FILE_INDEX if match[6] is None else int(match[6])
        text, encoding = "", _UUID_ENCODING
    _append_optional_text(partition, out)
    for number in (high, low, index):
        out += _VALUE
        append_long(number, out)
    _append_optional_text(text, out)
    out += _VALUE
    append_long(instant_ms, out)
    append_long(encoding, out)
    # No position, and no secondary index.
    return bytes(out + _NULL * 2)


def _append_optional_text(text: str, out: bytearray) -> None:
    encoded = text.encode()
    out += _VALUE
    append_long(len(encoded), out)
    out += encoded


def decode_record_locations(values: pa.BinaryArray) -> pa.Table:
    """Decode record locations: `partition_path`, `file_id`, `instant_ms`, `position`.

    Records that came to a file group at one time have one location, which is decoded once.

    Raises:
        MalformedAvroError: a value is no such record.
    """
    encoded = values.dictionary_encode()
    is_few = len(encoded.dictionary) <= ONE_BY_ONE_MAX
    read = _read_locations if is_few else _read_locations_at_once
    return read(encoded.dictionary).take(encoded.indices)


def _read_locations(values: pa.BinaryArray) -> pa.Table:
    try:
        locations = [_read_location(value) for value in values.to_pylist()]
    except (IndexError, UnicodeDecodeError) as error:
        raise MalformedAvroError(f"a record location that is cut short: {error}") from error
    return pa.Table.from_pylist(locations, _LOCATION_SCHEMA)


def _read_location(value: bytes) -> dict[str, str | int | None]:
    record_type, at = read_record_start(value)
    before = _NULL * 3 + _VALUE
    if record_type != RecordType.RECORD_INDEX or not value.startswith(before, at):
        raise MalformedAvroError(f"a record of type {record_type}, not a record location")
    partition, at = _read_optional_text(value, at + len(before))
    high, at = _read_optional_long(value, at)
    low, at = _read_optional_long(value, at)
    index, at = _read_optional_long(value, at)
    text, at = _read_optional_text(value, at)
    instant_ms, at = _read_optional_long(value, at)
    encoding, at = read_long(value, at)
    position, at = _read_optional_long(value, at)
    if value[at:] != _NULL:
        raise MalformedAvroError("a record location with something behind it")
    if encoding not in (_UUID_ENCODING, _TEXT_ENCODING):
        raise MalformedAvroError("a file id in an unknown encoding")
    file_id = text if encoding == _TEXT_ENCODING else _uuid_file_id(high, low, index)
    if partition is None or file_id is None or instant_ms is None:
        raise MalformedAvroError("a record location without partition, file id or time")
    columns = (partition, file_id, instant_ms, position)
    return dict(zip(_LOCATION_SCHEMA.names, columns, strict=True))


def _read_locations_at_once(values: pa.BinaryArray) -> pa.Table:
    reader = open_records(values, [RecordType.RECORD_INDEX], nulls_before=3)
    partitions = reader.optional_texts()
    high, low = reader.optional_longs(), reader.optional_longs()
    indexes = reader.optional_longs()
    texts = reader.optional_texts()
    instants = reader.optional_longs()
    encodings = reader.longs()
    positions = reader.optional_longs()
    reader.check_null()
    reader.check_end()
    is_uuid = encodings == _UUID_ENCODING
    if (~is_uuid & (encodings != _TEXT_ENCODING)).any():
        raise MalformedAvroError("a file id in an unknown encoding")
    file_ids = pc.if_else(pa.array(is_uuid), _uuid_file_ids(high, low, indexes), texts)
    if partitions.null_count or file_ids.null_count or instants.null_count:
        raise MalformedAvroError("a record location without partition, file id or time")
    return pa.table([partitions, file_ids, instants, positions], schema=_LOCATION_SCHEMA)


def _uuid_file_ids(high: pa.Array, low: pa.Array, indexes: pa.Array) -> pa.StringArray:
    """Return `<uuid>-<index>`, or the UUID alone where there is no index."""
    count = len(high)
    bits = np.empty((count, 2), ">i8")
    bits[:, 0] = high.fill_null(0)
    bits[:, 1] = low.fill_null(0)
    digits = np.frombuffer(bits.tobytes().hex().encode(), np.uint8).reshape(count, 32)
    dash = np.full((count, 1), ord("-"), np.uint8)
    parts, at = [], 0
    for size in _UUID_GROUPS:
        parts += [digits[:, at : at + 2 * size], dash]
        at += 2 * size
    uuids = pieces_of(np.concatenate(parts[:-1], axis=1)).cast(pa.string())
    uuids = pc.if_else(pc.is_valid(high), uuids, None)
    with_index = pc.binary_join_element_wise(uuids, indexes.cast(pa.string()), "-")
    return pc.if_else(pc.equal(indexes, _NO_FILE_INDEX), uuids, with_index)


def _uuid_file_id(high: int | None, low: int | None, index: int | None) -> str | None:
    """Return the same of one location."""
    if high is None or low is None or index is None:
        return None
    digits = f"{high % 2**64:016x}{low % 2**64:016x}"
    uuid = f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
    return uuid if index == _NO_FILE_INDEX else f"{uuid}-{index}"


def _read_optional_long(value: bytes, at: int) -> tuple[int | None, int]:
    return read_long(value, at + 1) if _has_value(value, at) else (None, at + 1)


def _read_optional_text(value: bytes, at: int) -> tuple[str | None, int]:
    return _read_text(value, at + 1) if _has_value(value, at) else (None, at + 1)


def _read_text(value: bytes, at: int) -> tuple[str, int]:
    start, end = read_span(value, at)
    return value[start:end].decode(), end


def _has_value(value: bytes, at: int) -> bool:
    branch = value[at : at + 1]
    if branch not in (_NULL, _VALUE):
        raise MalformedAvroError(f"a branch that no union has at offset {at}")
    return branch == _VALUE


def encode_bloom_filters(
    filters: pa.Array, type_code: str, instant_time: str, *, is_deleted: bool = False
) -> pa.BinaryArray:
    """Encode the bloom filters of base files, given as the base64 text that Hudi keeps them as.

    The record of a deleted file has empty bytes and an empty type.
    """
    head = bytearray(record_start(RecordType.BLOOM_FILTER) + _NULL + _VALUE)
    for text in (type_code, instant_time):
        encoded = text.encode()
        append_long(len(encoded), head)
        head += encoded
    matrix, lengths = varint_matrix(piece_lengths(filters))
    tail = bytes([is_deleted]) + _NULL * 3
    pieces = [pa.scalar(bytes(head)), pieces_of(matrix, lengths), filters, pa.scalar(tail)]
    return join_pieces(pieces).cast(pa.binary())


def decode_bloom_filters(values: pa.BinaryArray) -> pa.Table:
    """Decode bloom filters: `type_code`, `instant_time`, `bloom_filter`, `is_deleted`.

    Raises:
        MalformedAvroError: a value is no such record.
    """
    reader = open_records(values, [RecordType.BLOOM_FILTER], nulls_before=1)
    columns = {
        "type_code": reader.texts(),
        "instant_time": reader.texts(),
        "bloom_filter": reader.spans(np.ones(len(values), np.bool_)),
        "is_deleted": reader.booleans(),
    }
    for _ in range(3):
        reader.check_null()
    reader.check_end()
    return pa.table(columns)


def encode_secondary(count: int, *, is_deleted: bool = False) -> pa.BinaryArray:
    """Encode records of a secondary index, which are all alike."""
    record = record_start(RecordType.SECONDARY_INDEX) + _NULL * 4 + _VALUE + bytes([is_deleted])
    return pa.repeat(pa.scalar(record, pa.binary()), count)


def decode_secondary(values: pa.BinaryArray) -> pa.BooleanArray:
    """Decode records of a secondary index: whether each entry is deleted.

    Raises:
        MalformedAvroError: a value is no such record.
    """
    reader = open_records(values, [RecordType.SECONDARY_INDEX], nulls_before=4)
    is_deleted = reader.booleans()
    reader.check_end()
    return is_deleted


def open_records(
    values: pa.BinaryArray, record_types: Collection[RecordType], *, nulls_before: int
) -> RowReader:
    """Return a reader of records behind the branch of their only field that is not null.

    Raises:
        MalformedAvroError: a value is no such record.
    """
    reader = RowReader(values)
    for _ in META_COLUMNS:
        reader.optional_texts()
    reader.texts()
    if not np.isin(reader.longs(), [*record_types]).all():
        raise MalformedAvroError(f"a record of another type than {[*record_types]}")
    for _ in range(nulls_before):
        reader.check_null()
    if not reader.has_value().all():
        raise MalformedAvroError("a record without its content")
    return reader
