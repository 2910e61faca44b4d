"""Records of the metadata table, against fastavro with the same schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BytesIO
from itertools import product
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import InvalidInputError
from headwater.format.avro.binary import MalformedAvroError
from headwater.format.metadata import records as metadata_records
from headwater.format.metadata.records import (
    FileInfo,
    decode_bloom_filters,
    decode_files,
    decode_record_locations,
    decode_secondary,
    encode_bloom_filters,
    encode_files,
    encode_record_locations,
    encode_secondary,
    fold_files,
)
from headwater.format.metadata.schema import (
    METADATA_SCHEMA,
    METADATA_SCHEMA_V8,
    RecordType,
    as_current,
    read_record_types,
)

AVRO = fastavro.parse_schema(json.loads(METADATA_SCHEMA))
AVRO_V8 = fastavro.parse_schema(json.loads(METADATA_SCHEMA_V8))
LONGS = st.integers(-(2**63), 2**63 - 1)
INFOS = st.builds(FileInfo, st.integers(0, 2**60), st.booleans())
FILES = st.dictionaries(st.text(max_size=20), INFOS, max_size=5)


def parsed(value: bytes) -> dict[str, Any]:
    stream = BytesIO(value)
    record: Any = fastavro.schemaless_reader(stream, AVRO, None)
    assert stream.tell() == len(value)
    return dict(record)


def encoded(record: dict[str, Any], schema: Any = AVRO) -> bytes:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, schema, {"key": "", "filesystemMetadata": None, **record})
    return stream.getvalue()


# Lists of files -------------------------------------------------------------------------------


@given(FILES, st.sampled_from([RecordType.FILE_LIST, RecordType.PARTITION_LIST]))
@settings(deadline=None)
def test_lists_of_files_are_as_fastavro_has_them(
    files: dict[str, FileInfo], record_type: RecordType
) -> None:
    plain = {
        name: {"size": info.size_bytes, "isDeleted": info.is_deleted}
        for name, info in files.items()
    }
    value = encode_files(files, record_type)
    assert value == encoded({"type": record_type, "filesystemMetadata": plain})
    assert decode_files(value) == files


def test_the_empty_list_of_format_rule_9_8() -> None:
    expected = "00000000000002020000000000"
    assert encode_files({}, RecordType.PARTITION_LIST).hex() == expected


def test_a_compacted_record_with_its_file_name_is_read() -> None:
    value = encoded({"type": 2, "filesystemMetadata": {}, "_hoodie_file_name": "files-0000-0"})
    assert decode_files(value) == {}
    assert read_record_types(pa.array([value])).tolist() == [2]


@given(FILES, st.data())
@settings(deadline=None)
def test_a_cut_list_of_files_is_malformed(files: dict[str, FileInfo], data: st.DataObject) -> None:
    value = encode_files(files, RecordType.FILE_LIST)
    size = data.draw(st.integers(0, len(value) - 1))
    with pytest.raises(MalformedAvroError):
        decode_files(value[:size])


def test_another_record_is_no_list_of_files() -> None:
    with pytest.raises(MalformedAvroError, match="type 7"):
        decode_files(encode_secondary(1)[0].as_py())


def test_file_maps_merge_by_format_rule_8_6() -> None:
    old = {"a": FileInfo(1), "b": FileInfo(5), "c": FileInfo(0, True), "d": FileInfo(0, True)}
    new = {
        "a": FileInfo(0, True),
        "b": FileInfo(3),
        "c": FileInfo(4),
        "d": FileInfo(0, True),
        "e": FileInfo(0, True),
        "f": FileInfo(6),
    }
    merged = dict(old)
    fold_files(merged, new)
    assert "a" not in merged
    assert merged["d"].is_deleted
    assert merged["e"].is_deleted
    living = {name: info.size_bytes for name, info in merged.items() if not info.is_deleted}
    assert living == {"b": 5, "c": 4, "f": 6}


# Record locations -----------------------------------------------------------------------------

Decode = Callable[[pa.BinaryArray], pa.Table]

UUIDS = st.uuids().map(str)
FILE_IDS = st.one_of(
    UUIDS,
    st.builds("{}-{}".format, UUIDS, st.integers(0, 999_999_999)),
    st.builds("{}-0{}".format, UUIDS, st.integers(0, 9)),
    UUIDS.map(str.upper),
    st.text(max_size=40),
)
LOCATIONS = st.lists(st.tuples(st.text(max_size=9), FILE_IDS, LONGS), min_size=1, max_size=12)


def decode_at_once(values: pa.BinaryArray) -> pa.Table:
    """Decode few locations as many are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metadata_records, "ONE_BY_ONE_MAX", -1)
        return decode_record_locations(values)


both_ways = pytest.mark.parametrize("decode", [decode_record_locations, decode_at_once])


@both_ways
@given(rows=LOCATIONS)
@settings(deadline=None)
def test_record_locations_come_back(decode: Decode, rows: list[tuple[str, str, int]]) -> None:
    partitions, file_ids, times = (list(column) for column in zip(*rows, strict=True))
    values = encode_record_locations(
        pa.array(partitions, pa.string()),
        pa.array(file_ids, pa.string()).dictionary_encode(),
        pa.array(times, pa.int64()),
    )
    found = decode(values)
    assert found["partition_path"].to_pylist() == partitions
    assert found["file_id"].to_pylist() == file_ids
    assert found["instant_ms"].to_pylist() == times
    assert found["position"].null_count == len(rows)
    for value, (partition, _, time) in zip(values.to_pylist(), rows, strict=True):
        record = parsed(value)
        assert record["type"] == RecordType.RECORD_INDEX
        assert record["recordIndexMetadata"]["partitionName"] == partition
        assert record["recordIndexMetadata"]["instantTime"] == time


def test_a_uuid_file_id_is_two_numbers_and_an_index() -> None:
    file_id = "8aa68f7e-afd6-4c94-b86c-8a886552e08d-3"
    (value,) = encode_record_locations("p", pa.array([file_id]), 7).to_pylist()
    info = parsed(value)["recordIndexMetadata"]
    assert info["fileIdHighBits"] == 0x8AA68F7EAFD64C94 - 2**64
    assert info["fileIdLowBits"] == 0xB86C8A886552E08D - 2**64
    assert (info["fileIndex"], info["fileId"], info["fileIdEncoding"]) == (3, "", 0)
    (value,) = encode_record_locations("p", pa.array(["00000003-bucket"]), 7).to_pylist()
    info = parsed(value)["recordIndexMetadata"]
    bits = (info["fileIdHighBits"], info["fileIdLowBits"], info["fileIndex"])
    assert bits == (-1, -1, -1)
    assert (info["fileId"], info["fileIdEncoding"]) == ("00000003-bucket", 1)


@both_ways
def test_a_position_is_read(decode: Decode) -> None:
    info = {"partitionName": "p", "fileId": "x", "fileIdEncoding": 1, "instantTime": 5}
    value = encoded({"type": 5, "recordIndexMetadata": {**info, "position": 9}})
    (row,) = decode(pa.array([value])).to_pylist()
    assert row == {"partition_path": "p", "file_id": "x", "instant_ms": 5, "position": 9}


@both_ways
@pytest.mark.parametrize(
    "info",
    [
        {"partitionName": "p", "fileId": "x", "fileIdEncoding": 2, "instantTime": 5},
        {"fileId": "x", "fileIdEncoding": 1, "instantTime": 5},
        {"partitionName": "p", "fileIdEncoding": 1, "instantTime": 5},
        {"partitionName": "p", "fileIdEncoding": 0, "instantTime": 5},
        {"partitionName": "p", "fileId": "x", "fileIdEncoding": 1},
    ],
)
def test_a_location_that_leads_nowhere_is_malformed(decode: Decode, info: dict[str, Any]) -> None:
    value = encoded({"type": 5, "recordIndexMetadata": info})
    with pytest.raises(MalformedAvroError):
        decode(pa.array([value]))


@both_ways
def test_no_changed_byte_of_a_location_raises_anything_else(decode: Decode) -> None:
    file_id = "8aa68f7e-afd6-4c94-b86c-8a886552e08d-3"
    (value,) = encode_record_locations("p", pa.array([file_id]), 7).to_pylist()
    outcomes = set()
    for at, byte in product(range(len(value)), (0, 1, 2, 3, 0x7F, 0x80, 0xFF)):
        changed = value[:at] + bytes([byte]) + value[at + 1 :]
        try:
            outcomes.add(decode(pa.array([changed])).num_rows)
        except MalformedAvroError:
            outcomes.add(0)
    assert outcomes == {0, 1}


def test_other_records_are_no_locations() -> None:
    for value in (encode_secondary(1)[0].as_py(), encode_files({}, RecordType.FILE_LIST), b"\6"):
        with pytest.raises(MalformedAvroError):
            decode_record_locations(pa.array([value]))


def test_locations_need_columns_of_one_length_without_nulls() -> None:
    with pytest.raises(InvalidInputError):
        encode_record_locations(pa.array(["a", "b"]), pa.array(["c"]), 1)
    with pytest.raises(InvalidInputError):
        encode_record_locations("a", "b", 1)
    with pytest.raises(InvalidInputError):
        encode_record_locations("a", pa.array(["b", None]), 1)


def test_no_locations_are_no_values() -> None:
    assert encode_record_locations("a", pa.array([], pa.string()), 1).to_pylist() == []
    assert decode_record_locations(pa.array([], pa.binary())).num_rows == 0


# Bloom filters and secondary keys -------------------------------------------------------------


@given(st.lists(st.binary(max_size=200), max_size=5), st.booleans())
@settings(deadline=None)
def test_bloom_filters_come_back(filters: list[bytes], is_deleted: bool) -> None:
    values = encode_bloom_filters(
        pa.array(filters, pa.binary()), "DYNAMIC_V0", "20240101000000000", is_deleted=is_deleted
    )
    found = decode_bloom_filters(values).to_pylist()
    assert [row["bloom_filter"] for row in found] == filters
    for value in values.to_pylist():
        assert parsed(value)["BloomFilterMetadata"] == {
            "type": "DYNAMIC_V0",
            "timestamp": "20240101000000000",
            "bloomFilter": parsed(value)["BloomFilterMetadata"]["bloomFilter"],
            "isDeleted": is_deleted,
        }


def test_secondary_records_are_all_alike() -> None:
    values = encode_secondary(3)
    assert decode_secondary(values).to_pylist() == [False] * 3
    assert values[0].as_py() == encoded({"type": 7, "SecondaryIndexMetadata": {"isDeleted": False}})
    assert decode_secondary(encode_secondary(1, is_deleted=True)).to_pylist() == [True]


@given(st.data())
@settings(deadline=None)
def test_cut_records_are_malformed(data: st.DataObject) -> None:
    values = {
        decode_bloom_filters: encode_bloom_filters(pa.array([b"abc"]), "SIMPLE", "1"),
        decode_record_locations: encode_record_locations("p", pa.array(["file"]), 1),
        decode_at_once: encode_record_locations("p", pa.array(["file"]), 1),
        decode_secondary: encode_secondary(1),
    }
    decode = data.draw(st.sampled_from(list(values)))
    (value,) = values[decode].to_pylist()
    size = data.draw(st.integers(0, len(value) - 1))
    # A whole record behind it must not lend the cut one its bytes.
    with pytest.raises(MalformedAvroError):
        decode(pa.array([value[:size], value], pa.binary()))
    with pytest.raises(MalformedAvroError):
        decode(pa.array([value + b"\0"]))


# Records of table version 8 -------------------------------------------------------------------


def test_records_of_version_8_become_ours() -> None:
    stats = {
        "columnName": "c",
        "minValue": ("org.apache.hudi.avro.model.LongWrapper", {"value": 3}),
        "isDeleted": False,
        "isTightBound": True,
    }
    records = [
        {"type": 3, "ColumnStatsMetadata": stats},
        {"type": 2, "filesystemMetadata": {"f": {"size": 1, "isDeleted": False}}},
        {"type": 6, "ColumnStatsMetadata": stats, "_hoodie_file_name": "x"},
        {"type": 7, "SecondaryIndexMetadata": {"isDeleted": False}},
    ]
    values = pa.array([encoded(record, AVRO_V8) for record in records])
    current = as_current(values, METADATA_SCHEMA_V8)
    assert [parsed(value)["type"] for value in current.to_pylist()] == [3, 2, 6, 7]
    assert parsed(current[0].as_py())["ColumnStatsMetadata"]["minValue"] == {"value": 3}
    assert as_current(current, METADATA_SCHEMA) is current
