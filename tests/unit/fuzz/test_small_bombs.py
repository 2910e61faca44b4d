"""A few bytes that stand for endless work: refused by a limit that the error names.

Without the limits each of these runs for minutes or takes all memory.
"""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest
from tests.support.memory_storage import MemoryStorage

from headwater.errors import CorruptTableError, InvalidInputError
from headwater.files.log_files import read_log_parts
from headwater.format.avro.binary import append_long
from headwater.format.avro.container import encode_container, encode_header
from headwater.format.avro.schema import parse_avro_schema
from headwater.format.bloom import MalformedBloomError, parse_bloom_filter
from headwater.format.log.frames import BlockType, HeaderKey, encode_block, iter_blocks
from headwater.format.timeline.records import decode_record
from headwater.format.timeline.schemas import schema_text
from headwater.model.commit_metadata import CommitMetadata
from headwater.model.files import LogFile
from headwater.model.instant import InstantTime

TIME = InstantTime("20260101000000000")
LOG = LogFile("", "group-0", TIME, 1, "0-1-0")


def nested_array(depth: int) -> Any:
    found: Any = "string"
    for _ in range(depth):
        found = ["null", {"type": "array", "items": found}]
    return found


def doubling(depth: int) -> Any:
    found: Any = {"type": "record", "name": "R0", "fields": []}
    for at in range(1, depth + 1):
        fields = [{"name": "a", "type": found}, {"name": "b", "type": f"R{at - 1}"}]
        found = {"type": "record", "name": f"R{at}", "fields": fields}
    return found


BOMBS = {
    "records that contain each other twice": (doubling(40), "VALUES_MAX"),
    "arrays in arrays": (nested_array(240), "DEPTH_MAX"),
    "an array of nulls": ({"type": "array", "items": "null"}, "no bytes"),
    "an array of empty records": ({"type": "array", "items": doubling(0)}, "no bytes"),
    "an array of fixed of no bytes": (
        {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}},
        "no bytes",
    ),
    "a fixed of gigabytes": (
        {"type": "fixed", "name": "F", "size": 2**31 - 1},
        "FIXED_BYTES_MAX",
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_an_instant_whose_schema_stands_for_too_much_is_refused(name: str) -> None:
    bomb, limit = BOMBS[name]
    schema = json.loads(schema_text(CommitMetadata))
    schema["fields"].append({"name": "more", "type": bomb})
    data = encode_container(encode_header(json.dumps(schema)), bytes(40))
    with pytest.raises(CorruptTableError, match=limit):
        decode_record(CommitMetadata, data, path="p")


@pytest.mark.parametrize("name", BOMBS)
def test_a_log_whose_schema_stands_for_too_much_is_refused(name: str) -> None:
    bomb, limit = BOMBS[name]
    schema = {"type": "record", "name": "t", "fields": [{"name": "a", "type": bomb}]}
    with pytest.raises(InvalidInputError, match=limit):
        parse_avro_schema(json.dumps(schema))
    record = bytearray()
    append_long(10**10, record)
    content = struct.pack(">iii", 3, 1, len(record)) + record
    header = {HeaderKey.INSTANT_TIME: TIME, HeaderKey.SCHEMA: json.dumps(schema)}
    storage = MemoryStorage()
    storage.put(LOG.path, encode_block(BlockType.AVRO_DATA, header, content))
    with pytest.raises(CorruptTableError, match=limit):
        read_log_parts(storage, [LOG])


def test_a_record_that_is_itself_is_refused() -> None:
    schema = json.loads(schema_text(CommitMetadata))
    itself = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "R"}]}
    schema["fields"].insert(0, {"name": "more", "type": itself})
    data = encode_container(encode_header(json.dumps(schema)), bytes(40))
    with pytest.raises(CorruptTableError):
        decode_record(CommitMetadata, data, path="p")


def test_a_record_may_contain_itself_where_data_says_how_often() -> None:
    schema = json.loads(schema_text(CommitMetadata))
    fields = [{"name": "a", "type": ["null", "R"]}]
    itself = {"type": "record", "name": "R", "fields": fields}
    schema["fields"].insert(0, {"name": "more", "type": itself})
    data = encode_container(encode_header(json.dumps(schema)), b"\x02\x02\x00" + bytes(3))
    with pytest.raises(CorruptTableError, match="offset"):
        decode_record(CommitMetadata, data, path="p")


def test_a_bloom_filter_of_endless_hashes_is_refused() -> None:
    data = struct.pack(">iibi", -1, 2**31 - 1, 1, 8) + b"\xff"
    with pytest.raises(MalformedBloomError, match="HASHES_MAX"):
        parse_bloom_filter(base64.b64encode(data).decode(), "SIMPLE")


def test_a_log_of_nothing_but_magics_is_read_once() -> None:
    # Each magic once began a copy of all the bytes behind it.
    assert sum(1 for _ in iter_blocks(b"#HUDI#" * 50_000, path="p")) == 50_000
