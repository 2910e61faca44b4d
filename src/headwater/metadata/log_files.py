"""Log files of the metadata table: an HFile block with records, a delete block with keys.

A file group begins with a log that says nothing, an empty delete block, so that its file id exists
before anything is written to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from headwater.arrow.log_parts import DeletePart
from headwater.files.log_files import read_log_blocks
from headwater.format.hfile.blocks import corrupt
from headwater.format.hfile.reader import HFile
from headwater.format.hfile.writer import encode_hfile, sort_entries
from headwater.format.log.blocks import decode_part, encode_delete_block, encode_initial_block
from headwater.format.log.frames import (
    BlockType,
    HeaderKey,
    LogBlock,
    encode_block,
    iter_blocks,
)
from headwater.format.metadata.schema import METADATA_SCHEMA
from headwater.metadata.hfile_records import records_of_hfile
from headwater.metadata.partition_kinds import partition_of
from headwater.metadata.records import MetadataRecords
from headwater.model.files import LogFile
from headwater.model.instant import InstantTime
from headwater.seams.byte_cache import ByteCache
from headwater.seams.storage import Storage

# Every commit asks the logs that the last ones wrote, and a compaction all of them. Blocks are
# remembered, with their partition, by all of their bytes, so that a file that has changed is never
# taken for what it was.
_REMEMBERED_BYTES_MAX = 32 * 1024
_remembered = ByteCache[tuple[str, bytes], MetadataRecords](16 * 1024 * 1024)


def encode_metadata_log(
    entries: MetadataRecords,
    partition: str,
    instant_time: InstantTime,
    *,
    remembers: bool = False,
) -> bytes:
    """Encode what an instant says to one file group of a partition of the metadata table.

    With `remembers` whoever reads it next in this process need not decode it.

    Raises:
        InvalidInputError: a key is doubled, null or too long.
    """
    blocks = []
    if len(entries.keys):
        keys, values = sort_entries(entries.keys, entries.values)
        content = encode_hfile(keys, values, schema=METADATA_SCHEMA, is_base_file=False)
        if remembers and values.type == pa.binary():
            _remember(partition, content, _without_removed(keys, values))
        header = {HeaderKey.SCHEMA: METADATA_SCHEMA, HeaderKey.INSTANT_TIME: instant_time}
        blocks.append(encode_block(BlockType.HFILE_DATA, header, content))
    if len(entries.removed):
        partitions = pa.repeat(pa.scalar(partition, pa.string()), len(entries.removed))
        blocks.append(
            encode_delete_block(
                entries.removed,
                partitions,
                None,
                instant_time=instant_time,
                avro_schema_json=METADATA_SCHEMA,
            )
        )
    return b"".join(blocks) or encode_initial_log(instant_time)


def encode_initial_log(instant_time: InstantTime) -> bytes:
    """Encode the log that a file group begins with."""
    return encode_initial_block(instant_time)


def read_metadata_log(data: bytes | memoryview, path: str) -> list[MetadataRecords]:
    """Decode one log file: what each of its blocks says, in their order.

    Raises:
        CorruptTableError: the log is damaged.
        UnsupportedError: a block of a kind that the metadata table does not have.
    """
    if not len(data):
        raise corrupt(path, "it is empty")
    found = []
    for block in iter_blocks(data, path=path):
        if block.type is BlockType.CORRUPT:
            raise corrupt(path, f"the bytes at offset {block.offset} are no block")
        found.append(_entries_of(block, path))
    return found


def load_metadata_logs(
    storage: Storage,
    logs: Sequence[LogFile],
    *,
    is_visible_instant: Callable[[InstantTime], bool],
) -> list[MetadataRecords]:
    """Load the logs of a file slice, given in merge order: what each of their blocks says.

    Blocks that a command took back, or that a log compaction stands for, are left out.

    Raises:
        CorruptTableError: a log is missing or damaged.
        UnsupportedError: a block of a kind that the metadata table does not have.
    """
    blocks = read_log_blocks(storage, logs, is_visible_instant=is_visible_instant)
    return [_entries_of(block, path) for block, path in blocks]


def _entries_of(block: LogBlock, path: str) -> MetadataRecords:
    if block.type is BlockType.HFILE_DATA:
        return _entries_of_hfile(block.content, path)
    part = decode_part(block, path=path)
    if not isinstance(part, DeletePart):
        raise corrupt(path, f"a {block.type.name} block at offset {block.offset}")
    strange = set(part.partition_paths.to_pylist()) - {partition_of(path)}
    if strange:
        raise corrupt(path, f"it removes keys of {strange.pop()!r}")
    return MetadataRecords(pa.array([], pa.string()), pa.array([], pa.binary()), part.record_keys)


def _entries_of_hfile(content: memoryview, path: str) -> MetadataRecords:
    if len(content) > _REMEMBERED_BYTES_MAX:
        return _decoded(content, path)
    partition, whole = partition_of(path), bytes(content)
    entries = _remembered.get((partition, whole))
    if entries is None:
        entries = _decoded(content, path)
        _remember(partition, whole, entries)
    return entries


def _decoded(content: memoryview, path: str) -> MetadataRecords:
    hfile = HFile.of_bytes(content, path=path)
    return records_of_hfile(hfile, hfile.read_all())


def _remember(partition: str, content: bytes, entries: MetadataRecords) -> None:
    if len(content) <= _REMEMBERED_BYTES_MAX:
        size_bytes = len(content) + entries.keys.nbytes + entries.values.nbytes
        _remembered.put((partition, content), entries, size_bytes)


def _without_removed(keys: pa.StringArray, values: pa.BinaryArray) -> MetadataRecords:
    return MetadataRecords(keys, values, pa.array([], pa.string()))
