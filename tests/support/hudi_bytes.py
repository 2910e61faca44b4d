"""Files that Apache Hudi wrote, decoded by our models and encoded again: the bytes must be Hudi's.

Sync markers of Avro files are random and left out. Whatever is found is also counted, so that a
test can say which kinds of files it has really seen.
"""

from __future__ import annotations

import base64
import re
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.support.record_types import record_type

from headwater.arrow.log_parts import DataPart, DeletePart
from headwater.format.avro.columns import encode_records
from headwater.format.log.blocks import decode_part, decode_rows
from headwater.format.log.delete_records import encode_delete_records
from headwater.format.log.frames import (
    BlockType,
    HeaderKey,
    LogBlock,
    encode_block,
    iter_blocks,
)
from headwater.format.timeline.records import decode_record, encode_record
from headwater.model.instant import Action, State

SYNC_BYTES = 16

_INSTANT_FILE = re.compile(
    r"\d{17}(?P<completion>_\d{17})?(?:\.(?P<action>[a-z]+))??(?:\.(?P<state>requested|inflight))?"
)
_ROARING_COOKIE_WITHOUT_RUNS = 12346


def check_timeline_bytes(folder: Path) -> Counter[str]:
    """Check every file of an active timeline; count `action.state=record` with "" for empty."""
    found: Counter[str] = Counter()
    for path in sorted(folder.iterdir()):
        if path.is_dir() or path.name.endswith(".crc"):
            continue
        match = _INSTANT_FILE.fullmatch(path.name)
        assert match is not None, f"the timeline has a file of an unknown kind: {path.name}"
        action, state = Action(match["action"] or "commit"), State(match["state"] or "completed")
        data = path.read_bytes()
        record = record_bytes_checked(action, state, data, path.name) if data else ""
        found[f"{action}.{state}={record}"] += 1
    return found


def record_bytes_checked(action: Action, state: State, data: bytes, name: str) -> str:
    """Check one record; return the name of its class."""
    cls = record_type(action, state)
    assert cls is not None, f"{name} holds something, but such files should be empty"
    ours = encode_record(decode_record(cls, data, path=name))
    theirs = data.replace(data[-SYNC_BYTES:], ours[-SYNC_BYTES:])
    assert ours == theirs, f"{name} encodes to other bytes than Hudi's"
    return cls.__name__


def log_blocks(table: Path) -> Iterator[tuple[Path, LogBlock]]:
    """Give the blocks of all log files outside `.hoodie`."""
    for path in sorted(table.rglob(".*.log.*")):
        if not path.name.endswith(".crc") and ".hoodie" not in path.relative_to(table).parts:
            for block in iter_blocks(path.read_bytes(), path=path.name):
                yield path, block


def check_log_bytes(table: Path) -> Counter[BlockType]:
    """Check the frames of all log blocks, and the contents of those with Avro inside."""
    found: Counter[BlockType] = Counter()
    frames: dict[Path, list[bytes]] = {}
    for path, block in log_blocks(table):
        frames.setdefault(path, []).append(encode_block(block.type, block.header, block.content))
        content = bytes(block.content[8:])
        if block.type is BlockType.DELETE:
            part = decode_part(block, path=path.name)
            assert isinstance(part, DeletePart)
            ours = encode_delete_records(part.record_keys, part.partition_paths, part.ordering)
            assert ours == content, f"the deletes of {path.name} encode to other bytes"
        elif block.type in (BlockType.AVRO_DATA, BlockType.CDC_DATA):
            rows = decode_rows(block, path=path.name)
            records = encode_records(rows, block.header[HeaderKey.SCHEMA])
            assert bytes(records) == content, f"the rows of {path.name} encode to other bytes"
        found[block.type] += 1
    for path, blocks in frames.items():
        assert b"".join(blocks) == path.read_bytes(), f"{path.name} is framed differently"
    return found


def record_positions(block: LogBlock) -> list[int] | None:
    """Return the rows of the base file that a block says its records belong to."""
    text = block.header.get(HeaderKey.RECORD_POSITIONS)
    return None if text is None else decode_positions(base64.b64decode(text, validate=True))


def decode_positions(data: bytes) -> list[int]:
    """Return the numbers in a 64-bit Roaring bitmap of array containers, in the portable format."""
    (buckets,) = struct.unpack_from("<Q", data)
    at = 8
    positions = []
    for _ in range(buckets):
        high, cookie, count = struct.unpack_from("<III", data, at)
        assert cookie == _ROARING_COOKIE_WITHOUT_RUNS, "only array containers are understood"
        keys = struct.unpack_from(f"<{2 * count}H", data, at + 12)
        at += 12 + 4 * count + 4 * count  # Keys with cardinalities, then offsets.
        for key, cardinality in zip(keys[::2], keys[1::2], strict=True):
            values = struct.unpack_from(f"<{cardinality + 1}H", data, at)
            at += 2 * len(values)
            positions += [(high << 32) | (key << 16) | value for value in values]
    assert at == len(data), "the bitmap has bytes after its end"
    return positions


def row_count(block: LogBlock) -> int:
    """Return how many records or deletes a block holds."""
    part = decode_part(block, path="")
    return part.rows.num_rows if isinstance(part, DataPart) else len(part.record_keys)
