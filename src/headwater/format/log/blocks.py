"""What log blocks hold: rows, deletes, and commands about other blocks.

Data blocks are Parquet files or Avro records. HFile blocks belong to the metadata table; see
`metadata.log_files`. Record positions are not used: merging by key is always right.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from struct import Struct
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.arrow.log_parts import DataPart, DeletePart, LogPart
from headwater.config.files import Compression, LogBlockFormat
from headwater.config.limits import memory_reached
from headwater.errors import CorruptTableError, ErrorKind, InvalidInputError, UnsupportedError
from headwater.format.avro.binary import MalformedAvroError
from headwater.format.avro.columns import conform, decode_records, encode_records
from headwater.format.avro.schema import parse_avro_schema
from headwater.format.log.delete_records import decode_delete_records, encode_delete_records
from headwater.format.log.frames import (
    BlockType,
    HeaderKey,
    LogBlock,
    encode_block,
    encode_header,
    iter_blocks,
)
from headwater.format.parquet.base_file import BaseFileReader, read_base_file
from headwater.format.parquet.columns import (
    codec_name,
    compression_level,
    encoded_as,
    low_cardinality_columns,
    with_dictionaries,
)
from headwater.format.parquet.footer import (
    DAMAGE,
    UNKNOWN_CHECKSUM,
    check_limits,
    check_row_count,
    checksum_entry,
    read_file_end,
    stamp_checksum,
)
from headwater.format.parquet.nan_columns import columns_with_nan, nan_entries, real_columns
from headwater.model.instant import InstantTime

DATA_VERSION = 3
DELETE_VERSION = 3
ROLLBACK = "0"

_TWO_INTS = Struct(">ii")
_HEADER_CHECKSUM = "headwater.block.header.crc32"
_THREADS_FROM_BYTES = 1024 * 1024
"""A smaller block is decoded before other threads have taken up their work."""
# Version 2 differs in how its footer was meant to be used, not in its records.
_READABLE_DATA_VERSIONS = (2, 3)


BLOCK_BYTES = 64 * 1024 * 1024
"""About how many bytes of rows are in one data block. To write it takes some times as much, and so
does to read it, because it is encoded and decoded as a whole."""


def encode_data_block(
    table: pa.Table,
    *,
    instant_time: InstantTime,
    avro_schema_json: str,
    block_format: LogBlockFormat = LogBlockFormat.PARQUET,
    is_partial: bool = False,
    compacted_block_times: Sequence[InstantTime] = (),
    compression: Compression = Compression.ZSTD,
) -> bytes:
    """Encode rows, whose meta columns are filled in, as one data block.

    `avro_schema_json` names the columns of the block, meta columns first; in a partial block it
    has the changed columns only. `compacted_block_times` are the instants whose blocks this one
    stands for, after log compaction.

    Raises:
        InvalidInputError: the rows do not fit the schema.
    """
    header = _header(instant_time, avro_schema_json)
    if is_partial:
        header[HeaderKey.IS_PARTIAL] = "true"
    if compacted_block_times:
        header[HeaderKey.COMPACTED_BLOCK_TIMES] = ",".join(compacted_block_times)
    if block_format is LogBlockFormat.AVRO:
        prefix = _TWO_INTS.pack(DATA_VERSION, table.num_rows)
        content = b"".join((prefix, encode_records(table, avro_schema_json)))
        return encode_block(BlockType.AVRO_DATA, header, content, has_checksum=True)
    rows = encoded_as(table, with_dictionaries(parse_avro_schema(avro_schema_json), table))
    file = _parquet_bytes(rows, compression, _checksum_of(header))
    return encode_block(BlockType.PARQUET_DATA, header, file)


def encode_data_blocks(
    table: pa.Table,
    *,
    instant_time: InstantTime,
    avro_schema_json: str,
    block_format: LogBlockFormat,
    compression: Compression,
    is_partial: bool = False,
    compacted_block_times: Sequence[InstantTime] = (),
) -> Iterator[bytes]:
    """Encode rows as data blocks, of which none is large; for the rest see `encode_data_block`."""
    count = max(1, round(table.nbytes / BLOCK_BYTES))
    rows_max = max(1, -(-table.num_rows // count))
    for start in range(0, table.num_rows, rows_max):
        yield encode_data_block(
            table.slice(start, rows_max),
            instant_time=instant_time,
            avro_schema_json=avro_schema_json,
            block_format=block_format,
            is_partial=is_partial,
            compacted_block_times=compacted_block_times,
            compression=compression,
        )


def encode_delete_blocks(
    record_keys: pa.Array,
    partition_paths: pa.Array,
    ordering: Sequence[pa.Array] | None,
    *,
    instant_time: InstantTime,
    avro_schema_json: str,
    compacted_block_times: Sequence[InstantTime] = (),
) -> list[bytes]:
    """Encode deletes as one block, or as two if only some of them have ordering values.

    hudi-rs does not read a block that has both kinds. For the rest see `encode_delete_block`.
    """
    encode = partial(
        encode_delete_block,
        instant_time=instant_time,
        avro_schema_json=avro_schema_json,
        compacted_block_times=compacted_block_times,
    )
    if not ordering:
        return [encode(record_keys, partition_paths, None)]
    has_value = reduce(pc.or_, [column.is_valid() for column in ordering])
    return [
        encode(
            record_keys.filter(is_meant),
            partition_paths.filter(is_meant),
            [column.filter(is_meant) for column in ordering],
        )
        for is_meant in (has_value, pc.invert(has_value))
        if is_meant.true_count
    ]


def encode_delete_block(
    record_keys: pa.Array,
    partition_paths: pa.Array,
    ordering: Sequence[pa.Array] | None,
    *,
    instant_time: InstantTime,
    avro_schema_json: str,
    compacted_block_times: Sequence[InstantTime] = (),
) -> bytes:
    """Encode deletes as one block; without ordering values they remove whatever came before.

    Raises:
        InvalidInputError: as `encode_delete_records`.
    """
    payload = encode_delete_records(record_keys, partition_paths, ordering)
    header = _header(instant_time, avro_schema_json)
    if compacted_block_times:
        header[HeaderKey.COMPACTED_BLOCK_TIMES] = ",".join(compacted_block_times)
    prefix = _TWO_INTS.pack(DELETE_VERSION, len(payload))
    return encode_block(BlockType.DELETE, header, prefix + payload, has_checksum=True)


def encode_initial_block(instant_time: InstantTime) -> bytes:
    """Encode the block that deletes nothing, with which a file group of the metadata table begins.

    It is written before there are records, so it has no schema.
    """
    payload = encode_delete_records(pa.array([], pa.string()), pa.array([], pa.string()), None)
    prefix = _TWO_INTS.pack(DELETE_VERSION, len(payload))
    return encode_block(BlockType.DELETE, {HeaderKey.INSTANT_TIME: instant_time}, prefix + payload)


def log_file_bytes(blocks: Iterable[bytes]) -> bytes:
    """Return the whole content of a log file."""
    return b"".join(blocks)


def select_blocks(
    contents: Iterable[tuple[str, InstantTime | None, bytes]],
    *,
    is_visible_instant: Callable[[InstantTime], bool] | None = None,
    skip_corrupt: bool = False,
) -> list[tuple[LogBlock, str]]:
    """Return the blocks that count of logs of a file slice, each with the path of its log.

    A log of a completed instant is complete, so bytes in it that are no block are an error unless
    `skip_corrupt` is set. It is of one instant (format rule 5.5), so a block of another one is
    damaged, or came here with the bytes of another log. Before table version 8 several instants
    may have appended to a log, and what one of them left unfinished when it died is no block.

    Args:
        contents: paths, instants and bytes of the logs, in merge order; no instant stands for a
            log that may be of several.
        is_visible_instant: whose blocks count; None: all, because a view has chosen the logs.

    Raises:
        CorruptTableError: bytes of a log break the format.
        UnsupportedError: a block of a kind this release does not read.
    """
    found: list[_FoundBlock] = []
    for path, instant_time, data in contents:
        blocks = list(iter_blocks(data, path=path))
        skips = skip_corrupt or instant_time is None
        if not blocks and not skips:
            raise _empty(path)
        for block in blocks:
            if block.type is not BlockType.CORRUPT:
                _check_header(block, instant_time, path)
                found.append(_FoundBlock(block, path))
            elif not skips:
                raise _corrupt_span(block, path, len(data))
    kept = _without_retries(_after_rollbacks(found, is_visible_instant))
    return [(each.block, each.path) for each in _stand_ins(kept)]


def decode_part(block: LogBlock, columns: Collection[str] | None = None, *, path: str) -> LogPart:
    """Decode a data or delete block.

    Raises:
        CorruptTableError: its content is malformed.
        UnsupportedError: it is no data or delete block, or one of a version that is not read.
    """
    if block.type is BlockType.DELETE:
        return _decode_delete_block(block, path)
    rows = decode_rows(block, columns, path=path)
    return DataPart(instant_time_of(block, path=path), rows, is_partial_block(block))


def is_partial_block(block: LogBlock) -> bool:
    """Whether rows of a data block have the changed columns only."""
    return block.header.get(HeaderKey.IS_PARTIAL, "").lower() == "true"


def open_rows(block: LogBlock, *, path: str) -> BaseFileReader:
    """Open a Parquet block, which is a file of its own, as base files are opened.

    Raises:
        CorruptTableError: its content is malformed.
    """
    return read_base_file(pa.BufferReader(pa.py_buffer(block.content)), path)


def decode_rows(block: LogBlock, columns: Collection[str] | None = None, *, path: str) -> pa.Table:
    """Decode the rows of a Parquet, Avro or CDC block: the columns asked for, if it has them.

    Raises:
        CorruptTableError: its content is malformed.
        UnsupportedError: it is another kind of block.
    """
    try:
        match block.type:
            case BlockType.PARQUET_DATA:
                return _decode_parquet(block, columns)
            case BlockType.AVRO_DATA | BlockType.CDC_DATA:
                return _decode_avro(block, columns, path)
            case _:
                raise UnsupportedError(
                    f"The block at offset {block.offset} of {path} is of type {block.type.name}, "
                    "which holds no rows of a table",
                    path=path,
                    offset=block.offset,
                )
    except MemoryError as error:
        raise memory_reached(path, error) from error
    except (*DAMAGE, MalformedAvroError, InvalidInputError, OSError) as error:
        raise _malformed(block, path, str(error)) from error


def instant_time_of(block: LogBlock, *, path: str) -> InstantTime:
    """Return the instant that wrote a block.

    Raises:
        CorruptTableError: the header does not tell.
    """
    return InstantTime(_required(block, HeaderKey.INSTANT_TIME, path))


def _header(instant_time: InstantTime, avro_schema_json: str) -> dict[HeaderKey, str]:
    return {HeaderKey.INSTANT_TIME: instant_time, HeaderKey.SCHEMA: avro_schema_json}


def _checksum_of(header: Mapping[HeaderKey, str]) -> str:
    return f"{crc32(encode_header(header)):08x}"


def _parquet_bytes(rows: pa.Table, compression: Compression, header_checksum: str) -> memoryview:
    sink = pa.BufferOutputStream()
    real = list(real_columns(rows.schema))
    with pq.ParquetWriter(
        sink,
        rows.schema,
        compression=codec_name(compression),
        compression_level=compression_level(compression),
        use_dictionary=low_cardinality_columns(rows),
        write_page_checksum=True,
        store_schema=False,
    ) as writer:
        writer.write_table(rows.unify_dictionaries())
        noted = nan_entries(real, columns_with_nan(rows, real))
        writer.add_key_value_metadata(
            {_HEADER_CHECKSUM: header_checksum, **noted, **UNKNOWN_CHECKSUM}
        )
    content = memoryview(sink.getvalue())
    stamp_checksum(content)
    return content


def _check_header(block: LogBlock, instant_time: InstantTime | None, path: str) -> None:
    """Check a header before anything is decided by it: which blocks count, and for what.

    The checksum of that of a Parquet block is inside of the content.
    """
    if block.type is BlockType.PARQUET_DATA:
        expected = checksum_entry(block.content, _HEADER_CHECKSUM)
        if expected is not None and expected != _checksum_of(block.header):
            raise _malformed(block, path, "its header does not match its checksum")
    found = instant_time_of(block, path=path)
    is_another = instant_time is not None and found != instant_time
    if is_another and block.type is not BlockType.COMMAND:
        raise _malformed(block, path, f"it says that instant {found} wrote it")


def _decode_parquet(block: LogBlock, columns: Collection[str] | None) -> pa.Table:
    source = pa.BufferReader(pa.py_buffer(block.content))
    read_file_end(source)  # Which checks it.
    with pq.ParquetFile(source, page_checksum_verification=True) as file:
        check_limits(file.metadata)
        names = [name for name in file.schema_arrow.names if columns is None or name in columns]
        rows = file.read(names, use_threads=len(block.content) >= _THREADS_FROM_BYTES)
        check_row_count(rows.num_rows, file.metadata.num_rows)
    text = block.header.get(HeaderKey.SCHEMA)
    if text is None:
        return rows
    # Other writers name the elements of lists differently, or keep wider types than the schema.
    schema = parse_avro_schema(text)
    typed = pa.schema(
        [schema.field(name) if name in schema.names else rows.field(name) for name in names]
    )
    return conform(rows, typed)


def _decode_avro(block: LogBlock, columns: Collection[str] | None, path: str) -> pa.Table:
    version, row_count = _content_start(block, path)
    if version not in _READABLE_DATA_VERSIONS:
        raise _old_version(block, path, version)
    schema = _required(block, HeaderKey.SCHEMA, path)
    return decode_records(block.content[_TWO_INTS.size :], row_count, schema, columns)


def _decode_delete_block(block: LogBlock, path: str) -> DeletePart:
    version, length = _content_start(block, path)
    if version != DELETE_VERSION:
        raise _old_version(block, path, version)
    payload = block.content[_TWO_INTS.size :]
    if length != len(payload):
        raise _malformed(block, path, f"its payload should have {length} bytes")
    try:
        keys, partitions, ordering = decode_delete_records(payload)
    except MalformedAvroError as error:
        raise _malformed(block, path, str(error)) from error
    return DeletePart(instant_time_of(block, path=path), keys, partitions, ordering)


def _content_start(block: LogBlock, path: str) -> tuple[int, int]:
    if len(block.content) < _TWO_INTS.size:
        raise _malformed(block, path, "its content is cut short")
    first, second = _TWO_INTS.unpack_from(block.content)
    return first, second


def _required(block: LogBlock, key: HeaderKey, path: str) -> str:
    value = block.header.get(key)
    if value is None:
        raise _malformed(block, path, f"its header has no {key.name}")
    return value


@dataclass(frozen=True, slots=True)
class _FoundBlock:
    """A block and the log it was found in."""

    block: LogBlock
    path: str

    @property
    def instant_time(self) -> InstantTime:
        return instant_time_of(self.block, path=self.path)

    @property
    def compacted_block_times(self) -> list[InstantTime]:
        text = self.block.header.get(HeaderKey.COMPACTED_BLOCK_TIMES, "")
        return [InstantTime(time) for time in text.split(",") if time]


def _after_rollbacks(
    found: Iterable[_FoundBlock], is_visible_instant: Callable[[InstantTime], bool] | None
) -> list[_FoundBlock]:
    """Keep the visible blocks that no later command rolls back."""
    kept: list[_FoundBlock] = []
    for each in found:
        if each.block.type is BlockType.COMMAND:
            target = _rollback_target(each)
            kept = [earlier for earlier in kept if earlier.instant_time != target]
        elif is_visible_instant is None or is_visible_instant(each.instant_time):
            kept.append(each)
    return kept


def _rollback_target(command: _FoundBlock) -> str:
    kind = _required(command.block, HeaderKey.COMMAND_BLOCK_TYPE, command.path)
    if kind != ROLLBACK:
        raise UnsupportedError(
            f"The command {kind!r} at offset {command.block.offset} of {command.path} is unknown",
            path=command.path,
            offset=command.block.offset,
        )
    return _required(command.block, HeaderKey.TARGET_INSTANT_TIME, command.path)


def _without_retries(found: list[_FoundBlock]) -> list[_FoundBlock]:
    """Keep one set of the blocks that a retried append wrote more than once.

    An identifier is `<attempt>,<number of the block>`. Of several attempts in one instant the one
    with the most blocks is complete; among equals the last one is taken.
    """
    counts: dict[InstantTime, dict[str, int]] = {}
    for each in found:
        identifier = each.block.header.get(HeaderKey.BLOCK_IDENTIFIER)
        if identifier is not None:
            attempts = counts.setdefault(each.instant_time, {})
            attempt = identifier.partition(",")[0]
            attempts[attempt] = attempts.get(attempt, 0) + 1
    chosen = {
        time: max(reversed(attempts), key=lambda attempt: attempts[attempt])
        for time, attempts in counts.items()
    }
    kept = []
    seen: set[tuple[InstantTime, str]] = set()
    for each in found:
        identifier = each.block.header.get(HeaderKey.BLOCK_IDENTIFIER)
        if identifier is not None:
            time = each.instant_time
            if identifier.partition(",")[0] != chosen[time] or (time, identifier) in seen:
                continue
            seen.add((time, identifier))
        kept.append(each)
    return kept


def _stand_ins(found: list[_FoundBlock]) -> list[_FoundBlock]:
    """Put log-compacted blocks in the place of the blocks they stand for, also transitively.

    That is before the first block that is newer than all of these, since a log written while they
    were compacted comes after them; but never behind where the block was given: a log that was
    requested long ago and completed late comes after it, too.
    """
    replaced = {time for each in found for time in each.compacted_block_times}
    newest_input = _newest_inputs(found)
    placed: list[_FoundBlock] = []
    for each in found:
        if each.instant_time in replaced:
            continue
        place = len(placed)
        if each.compacted_block_times:
            newest = newest_input[each.instant_time]
            newer = (
                at
                for at, other in enumerate(placed)
                if newest_input.get(other.instant_time, other.instant_time) > newest
            )
            place = next(newer, place)
        placed.insert(place, each)
    return placed


def _newest_inputs(found: list[_FoundBlock]) -> dict[InstantTime, InstantTime]:
    """Return, for each log compaction, the newest instant that it stands for in the end."""
    inputs = {each.instant_time: each.compacted_block_times for each in found}
    newest: dict[InstantTime, InstantTime] = {}
    # A log compaction comes after its inputs, so those are resolved when it is met.
    for time in sorted(time for time, times in inputs.items() if times):
        newest[time] = max(newest.get(input_time, input_time) for input_time in inputs[time])
    return newest


def _empty(path: str) -> CorruptTableError:
    return CorruptTableError(
        f"The log file {path} of a completed instant is empty, so rows are lost: restore it from a "
        "copy, or read without it by setting skip_corrupt",
        kind=ErrorKind.CORRUPT_LOG,
        path=path,
    )


def _corrupt_span(block: LogBlock, path: str, file_size: int) -> CorruptTableError:
    end = block.offset + len(block.content)
    what = (
        f"{path} ends with {len(block.content)} bytes at offset {block.offset} that are no block"
        if end == file_size
        else f"{path} has no block at offset {block.offset}; the next one begins at {end}"
    )
    return CorruptTableError(
        f"{what}. The log of a completed instant is complete, so rows may be lost: restore the "
        "file from a copy, or read without what is damaged by setting skip_corrupt",
        kind=ErrorKind.CORRUPT_LOG,
        path=path,
        offset=block.offset,
    )


def _malformed(block: LogBlock, path: str, problem: str) -> CorruptTableError:
    return CorruptTableError(
        f"The {block.type.name} block at offset {block.offset} of {path} is malformed: {problem}. "
        "Restore the file from a copy",
        kind=ErrorKind.CORRUPT_LOG,
        path=path,
        offset=block.offset,
    )


def _old_version(block: LogBlock, path: str, version: int) -> UnsupportedError:
    return UnsupportedError(
        f"The {block.type.name} block at offset {block.offset} of {path} has version {version}, "
        "which releases of Hudi before 0.14 wrote. Compact the table with such a release first",
        path=path,
        offset=block.offset,
    )
