"""Log files of the metadata table: what is written is read, and damage is noticed."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.memory_storage import MemoryStorage

from headwater.errors import CorruptTableError, ErrorKind
from headwater.format.hfile.reader import HFile
from headwater.format.log.frames import BlockType, HeaderKey, encode_block, iter_blocks
from headwater.format.metadata.records import encode_secondary
from headwater.format.metadata.schema import METADATA_SCHEMA
from headwater.metadata.hfile_records import records_of_hfile
from headwater.metadata.log_files import (
    encode_initial_log,
    encode_metadata_log,
    load_metadata_logs,
    read_metadata_log,
)
from headwater.metadata.records import MetadataRecords
from headwater.model.files import LogFile, parse_data_file
from headwater.model.instant import InstantTime

PATH = "secondary_index_a/.secondary-index-a-0000-0_20240101000000000.log.1_0-0-0"
PARTITION = "secondary_index_a"
INSTANT = InstantTime("20240101000000000")
KEYS = st.lists(st.text(max_size=10), unique=True, max_size=8)


def entries_of(keys: list[str], removed: list[str]) -> MetadataRecords:
    return MetadataRecords(
        pa.array(keys, pa.string()), encode_secondary(len(keys)), pa.array(removed, pa.string())
    )


def encode(entries: MetadataRecords) -> bytes:
    return encode_metadata_log(entries, PARTITION, INSTANT)


@given(KEYS, KEYS)
@settings(deadline=None)
def test_entries_come_back_in_the_order_of_blocks(keys: list[str], removed: list[str]) -> None:
    found = read_metadata_log(encode(entries_of(keys, removed)), PATH)
    assert sorted(key for part in found for key in part.keys.to_pylist()) == sorted(keys)
    assert [key for part in found for key in part.removed.to_pylist()] == removed
    for part in found:
        assert part.values.equals(encode_secondary(len(part.keys)))
    if keys and removed:
        assert [len(part.keys) > 0 for part in found] == [True, False]


@given(KEYS.filter(bool))
@settings(deadline=None)
def test_what_is_remembered_is_what_would_be_decoded(keys: list[str]) -> None:
    data = encode_metadata_log(entries_of(keys, []), PARTITION, INSTANT, remembers=True)
    (remembered,) = read_metadata_log(data, PATH)
    (block,) = iter_blocks(data, path=PATH)
    hfile = HFile.of_bytes(block.content, path=PATH)
    decoded = records_of_hfile(hfile, hfile.read_all())
    assert remembered.keys.equals(decoded.keys)
    assert remembered.values.equals(decoded.values)


def test_what_is_remembered_of_one_partition_is_damage_in_another() -> None:
    data = encode_metadata_log(entries_of(["a"], []), PARTITION, INSTANT, remembers=True)
    with pytest.raises(CorruptTableError):
        read_metadata_log(data, PATH.replace(PARTITION, "record_index"))


def test_the_initial_log_is_that_of_format_rule_5_4() -> None:
    data = encode_initial_log(InstantTime("0" * 17))
    assert data.hex() == (
        "23485544492300000000000000420000000100000001000000010000000000000011"
        + "30" * 17
        + "0000000000000009000000030000000100000000000000000000000048"
    )
    (found,) = read_metadata_log(data, PATH)
    assert len(found) == 0
    assert encode(MetadataRecords.none()) == encode_initial_log(INSTANT)


def test_blocks_have_the_headers_of_hudi() -> None:
    blocks = list(iter_blocks(encode(entries_of(["a"], ["b"])), path=PATH))
    assert [block.type for block in blocks] == [BlockType.HFILE_DATA, BlockType.DELETE]
    for block in blocks:
        assert block.header == {
            HeaderKey.INSTANT_TIME: INSTANT,
            HeaderKey.SCHEMA: METADATA_SCHEMA,
        }


def test_a_damaged_log_is_an_error_wherever_it_was_cut() -> None:
    data = encode(entries_of(["a", "b"], ["c"]))
    sizes = {len(read_metadata_log(data[:size], PATH)) for size in whole_blocks(data)}
    assert sizes == {1, 2}
    ends = whole_blocks(data)
    for size in [*range(8), *range(min(ends), min(ends) + 8), *range(0, len(data), 101)]:
        if size not in ends:
            with pytest.raises(CorruptTableError) as caught:
                read_metadata_log(data[:size], PATH)
            assert caught.value.kind is ErrorKind.CORRUPT_METADATA_TABLE


def whole_blocks(data: bytes) -> set[int]:
    starts = {block.offset for block in iter_blocks(data, path=PATH)}
    return (starts - {0}) | {len(data)}


def test_a_flipped_bit_in_the_records_is_an_error() -> None:
    data = bytearray(encode(entries_of(["a", "b"], [])))
    data[data.index(b"DATABLK*") + 60] ^= 1
    with pytest.raises(CorruptTableError) as caught:
        read_metadata_log(bytes(data), PATH)
    assert caught.value.kind is ErrorKind.CORRUPT_METADATA_TABLE


def test_rows_of_a_table_are_no_records_of_the_metadata_table() -> None:
    header = {
        HeaderKey.INSTANT_TIME: INSTANT,
        HeaderKey.SCHEMA: '{"type":"record","name":"r","fields":[]}',
    }
    block = encode_block(BlockType.AVRO_DATA, header, bytes([0, 0, 0, 3, 0, 0, 0, 0]))
    with pytest.raises(CorruptTableError, match="AVRO_DATA"):
        read_metadata_log(block, PATH)


def log(time: str) -> LogFile:
    name = f".secondary-index-a-0000-0_{time}.log.1_0-0-0"
    found = parse_data_file(f"secondary_index_a/{name}")
    assert isinstance(found, LogFile)
    return found


def test_the_logs_of_a_slice_are_loaded_in_order_without_those_that_do_not_count() -> None:
    storage = MemoryStorage()
    times = [f"2024010100000000{number}" for number in range(3)]
    for number, time in enumerate(times):
        entries = entries_of([f"key-{number}"], [])
        data = encode_metadata_log(entries, "secondary_index_a", InstantTime(time))
        storage.put(log(time).path, data)
    logs = [log(time) for time in times]
    found = load_metadata_logs(storage, logs, is_visible_instant=lambda time: time != times[1])
    assert [part.keys.to_pylist() for part in found] == [["key-0"], ["key-2"]]
    storage.delete(logs[2].path)
    with pytest.raises(CorruptTableError, match="does not exist"):
        load_metadata_logs(storage, logs, is_visible_instant=lambda _: True)
