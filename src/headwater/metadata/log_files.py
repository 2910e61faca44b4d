"""Log files of the metadata table: an HFile block with records, a delete block with keys.

A file group begins with a log that says nothing, an empty delete block, so that its file id exists
before anything is written to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import pyarrow as pa

from headwater.arrow.log_parts import DeletePart
from headwater.files.log_files import read_log_blocks
from headwater.format.hfile.blocks import Codec, corrupt
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
from headwater.metadata.hfile_records import records_of_hfile
from headwater.metadata.partition_kinds import partition_of
from headwater.metadata.records import MetadataRecords
from headwater.model.files import LogFile
from headwater.model.instant import InstantTime
from headwater.seams.storage import Storage

# Every commit asks the logs that the last ones wrote. Blocks are remembered by all of their bytes,
# so that a file that has changed is never taken for what it was.
_REMEMBERED_COUNT = 256
_REMEMBERED_BYTES_MAX = 32 * 1024


def encode_metadata_log(
    entries: MetadataRecords,
    partition: str,
    instant_time: InstantTime,
    schema: str,
    *,
    create_time_ms: int = 0,
    codec: Codec = Codec.GZ,
) -> bytes:
    """Encode what an instant says to one file group of a partition of the metadata table.

    Raises:
        InvalidInputError: a key is doubled, null or too long.
    """
    blocks = []
    if len(entries.keys):
        keys, values = sort_entries(entries.keys, entries.values)
        content = encode_hfile(
            keys,
            values,
            schema=schema,
            is_base_file=False,
            create_time_ms=create_time_ms,
            codec=codec,
        )
        header = {HeaderKey.SCHEMA: schema, HeaderKey.INSTANT_TIME: instant_time}
        blocks.append(encode_block(BlockType.HFILE_DATA, header, content))
    if len(entries.removed):
        partitions = pa.repeat(pa.scalar(partition, pa.string()), len(entries.removed))
        blocks.append(
            encode_delete_block(
                entries.removed,
                partitions,
                None,
                instant_time=instant_time,
                avro_schema_json=schema,
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
        is_small = len(block.content) <= _REMEMBERED_BYTES_MAX
        return _remembered(bytes(block.content), path) if is_small else _of(block.content, path)
    part = decode_part(block, path=path)
    if not isinstance(part, DeletePart):
        raise corrupt(path, f"a {block.type.name} block at offset {block.offset}")
    strange = set(part.partition_paths.to_pylist()) - {partition_of(path)}
    if strange:
        raise corrupt(path, f"it removes keys of {strange.pop()!r}")
    return MetadataRecords(pa.array([], pa.string()), pa.array([], pa.binary()), part.record_keys)


@lru_cache(_REMEMBERED_COUNT)
def _remembered(content: bytes, path: str) -> MetadataRecords:
    return _of(content, path)


def _of(content: bytes | memoryview, path: str) -> MetadataRecords:
    hfile = HFile.of_bytes(content, path=path)
    return records_of_hfile(hfile, hfile.read_all())
