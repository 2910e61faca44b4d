"""Records to bytes and back, against fastavro as the independent implementation."""

from __future__ import annotations

import dataclasses
import json
import pickle
import types
from collections.abc import Mapping
from functools import reduce
from io import BytesIO
from operator import or_
from typing import Any, get_args, get_type_hints

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import CorruptTableError, ErrorKind, InvalidInputError, UnsupportedError
from headwater.format.avro.binary import append_long
from headwater.format.avro.container import encode_container, encode_header
from headwater.format.timeline.records import decode_record, encode_record
from headwater.format.timeline.schemas import (
    RECORD_CLASSES,
    RECORD_SCHEMAS,
    Record,
    python_name,
    schema_text,
)
from headwater.model.commit_metadata import (
    CommitMetadata,
    ReplaceCommitMetadata,
    RuntimeStats,
    WriteStat,
)
from headwater.model.plans import (
    CleanerPlan,
    CompactionOperation,
    CompactionPlan,
    IndexPartitionInfo,
    IndexPlan,
    RequestedReplace,
    RestorePlan,
)
from headwater.model.service_metadata import (
    RollbackMetadata,
    RollbackPartitionMetadata,
    SavepointMetadata,
)

PATH = "t/.hoodie/timeline/20260101000000000.indexing.requested"

FILE_RECORDS: list[type[Any]] = list(get_args(Record))
each_file_record = pytest.mark.parametrize("cls", FILE_RECORDS, ids=lambda cls: cls.__name__)
quick = settings(max_examples=20, deadline=None, derandomize=True)


def values_of(schema: Any) -> st.SearchStrategy[Any]:
    """Return values that fit a declared schema."""
    if isinstance(schema, list):
        return st.none() | values_of(next(branch for branch in schema if branch != "null"))
    match schema["type"] if isinstance(schema, dict) else schema:
        case "string":
            return st.text(max_size=80)
        case "long":
            return st.integers(-(2**63), 2**63 - 1)
        case "int":
            return st.integers(-(2**31), 2**31 - 1)
        case "boolean":
            return st.booleans()
        case "double":
            return st.floats(allow_nan=False)
        case "array":
            return st.lists(values_of(schema["items"]), max_size=2).map(tuple)
        case "map":
            return st.dictionaries(st.text(max_size=80), values_of(schema["values"]), max_size=2)
        case "record":
            fields = {python_name(f["name"]): values_of(f["type"]) for f in schema["fields"]}
            return st.builds(RECORD_CLASSES[schema["name"]], **fields)
        case other:
            raise AssertionError(f"no strategy for {other}")


def datum_of(value: Any) -> Any:
    """Return a record as fastavro reads it, by the names of the declared schemas."""
    if dataclasses.is_dataclass(value):
        return {
            field["name"]: datum_of(getattr(value, python_name(field["name"])))
            for field in RECORD_SCHEMAS[type(value)]["fields"]
        }
    if isinstance(value, tuple):
        return [datum_of(item) for item in value]
    if isinstance(value, Mapping):
        return {key: datum_of(item) for key, item in value.items()}
    return value


def file_with(schema: Any, *data: Any, codec: str = "null", block_size: int = 16000) -> bytes:
    """Let fastavro write a file, with any schema and any number of records."""
    out = BytesIO()
    fastavro.writer(out, schema, data, codec=codec, sync_interval=block_size)
    return out.getvalue()


def hudi_schema(cls: type) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(schema_text(cls))
    return schema


def a_commit() -> CommitMetadata:
    stat = WriteStat(
        file_id="f-0",
        path="region=eu/f-0_0-1-2_20260101000000000.parquet",
        prev_commit="null",
        num_writes=200,
        file_size_in_bytes=435_123,
        log_files=("a", "b"),
        cdc_stats={"c": -3},
        runtime_stats=RuntimeStats(total_create_time=87),
    )
    return CommitMetadata(
        partition_to_write_stats={"region=eu": (stat,)},
        extra_metadata={"schema": "x" * 100},
        operation_type="UPSERT",
    )


def an_index_plan() -> IndexPlan:
    info = IndexPartitionInfo(metadata_partition_path="column_stats", index_upto_instant="2026")
    return IndexPlan(index_partition_infos=(info,))


# Round trips


@each_file_record
def test_record_survives_the_round_trip(cls: type[Any]) -> None:
    @quick
    @given(record=values_of(RECORD_SCHEMAS[cls]))
    def check(record: Any) -> None:
        data = encode_record(record)
        decoded = decode_record(cls, data, path=PATH)
        assert decoded == record
        assert type(decoded) is cls
        copy = pickle.loads(pickle.dumps(decoded))
        assert copy == record
        assert encode_record(copy) == data

    check()


@each_file_record
def test_fastavro_reads_what_is_encoded_and_writes_what_is_decoded(cls: type[Any]) -> None:
    @quick
    @given(record=values_of(RECORD_SCHEMAS[cls]))
    def check(record: Any) -> None:
        datum = datum_of(record)
        assert list(fastavro.reader(BytesIO(encode_record(record)))) == [datum]
        assert decode_record(cls, file_with(hudi_schema(cls), datum), path=PATH) == record

    check()


def test_sync_marker_depends_on_the_record() -> None:
    one, other = encode_record(IndexPlan(version=1)), encode_record(IndexPlan(version=2))
    assert one[-16:] != other[-16:]


def test_header_has_the_schema_and_nothing_else() -> None:
    metadata = fastavro.reader(BytesIO(encode_record(an_index_plan()))).metadata
    assert metadata == {"avro.schema": schema_text(IndexPlan)}


def test_decoded_records_are_frozen() -> None:
    decoded = decode_record(CommitMetadata, encode_record(a_commit()), path=PATH)
    (stat,) = decoded.write_stats()
    with pytest.raises(dataclasses.FrozenInstanceError):
        decoded.version = 1  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        stat.num_writes = 1  # type: ignore[misc]


def test_write_stats_of_all_partitions_in_file_order() -> None:
    one, two, three = (WriteStat(file_id=name) for name in "123")
    commit = CommitMetadata(partition_to_write_stats={"b": (one, two), "a": (three,)})
    assert list(commit.write_stats()) == [one, two, three]
    assert list(CommitMetadata(partition_to_write_stats=None).write_stats()) == []


# Declarations


def annotation_of(schema: Any) -> Any:
    """Return the Python type a declared schema asks for."""
    if isinstance(schema, list):
        branches = [annotation_of(branch) for branch in schema if branch != "null"]
        return reduce(or_, [*branches, types.NoneType])
    match schema["type"] if isinstance(schema, dict) else schema:
        case "array":
            return tuple[annotation_of(schema["items"]), ...]  # type: ignore[misc]
        case "map":
            return Mapping[str, annotation_of(schema["values"])]  # type: ignore[misc]
        case "record":
            return RECORD_CLASSES[schema["name"]]
        case primitive:
            primitives = {"string": str, "int": int, "long": int, "double": float, "boolean": bool}
            return primitives[primitive]


@pytest.mark.parametrize("cls", RECORD_SCHEMAS, ids=lambda cls: cls.__name__)
def test_dataclass_has_the_fields_of_its_schema(cls: type[Any]) -> None:
    declared = {
        python_name(f["name"]): annotation_of(f["type"]) for f in RECORD_SCHEMAS[cls]["fields"]
    }
    hints = get_type_hints(cls)
    assert [(f.name, hints[f.name]) for f in dataclasses.fields(cls)] == list(declared.items())


@pytest.mark.parametrize(
    ("avro", "python"),
    [
        ("fileId", "file_id"),
        ("RollbackRequests", "rollback_requests"),
        ("hoodieRestoreMetadata", "hoodie_restore_metadata"),
        ("totalLogReadTimeMs", "total_log_read_time_ms"),
        ("version", "version"),
    ],
)
def test_names_follow_one_rule(avro: str, python: str) -> None:
    assert python_name(avro) == python


@each_file_record
def test_schema_names_every_type_once(cls: type[Any]) -> None:
    text = schema_text(cls)
    for name in RECORD_CLASSES:
        assert text.count(f'"type":"record","name":"{name}"') <= 1
    fastavro.parse_schema(json.loads(text))


# Damage


def assert_corrupt(cls: type[Any], data: bytes, *reasons: str) -> None:
    with pytest.raises(CorruptTableError) as raised:
        decode_record(cls, data, path=PATH)
    assert raised.value.kind is ErrorKind.CORRUPT_AVRO
    assert raised.value.context == {"path": PATH}
    for reason in (PATH, *reasons):
        assert reason in raised.value.message


def record_or_error(cls: type[Any], data: bytes) -> Any:
    try:
        return decode_record(cls, data, path=PATH)
    except (CorruptTableError, UnsupportedError) as error:
        return error


@pytest.mark.parametrize("record", [a_commit(), an_index_plan()], ids=lambda r: type(r).__name__)
@pytest.mark.parametrize("is_hudis", [True, False])
def test_truncation_is_found_at_every_offset(record: Any, is_hudis: bool) -> None:
    cls = type(record)
    data = encode_record(record) if is_hudis else file_with(hudi_schema(cls), datum_of(record))
    for length in range(len(data)):
        assert_corrupt(cls, data[:length])


def test_damaged_bytes_never_raise_anything_else() -> None:
    data = encode_record(an_index_plan())
    body = data.index(b"column_stats") - 10
    # The header takes a compilation for every variant, so not all its bytes are tried.
    for offset in [*range(0, body, 11), *range(body, len(data))]:
        for mask in (0x01, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[offset] ^= mask
            result = record_or_error(IndexPlan, bytes(damaged))
            assert isinstance(result, IndexPlan) or PATH in result.message


@quick
@given(garbage=st.binary(max_size=200))
def test_garbage_is_corrupt(garbage: bytes) -> None:
    assert_corrupt(CommitMetadata, garbage)
    assert_corrupt(CommitMetadata, b"Obj\x01" + garbage)


@quick
@given(garbage=st.binary(max_size=60))
def test_garbage_in_a_whole_frame_decodes_or_is_corrupt(garbage: bytes) -> None:
    data = encode_container(encode_header(schema_text(CommitMetadata)), garbage)
    result = record_or_error(CommitMetadata, data)
    if isinstance(result, CommitMetadata):
        assert decode_record(CommitMetadata, encode_record(result), path=PATH) == result
    else:
        assert result.kind is ErrorKind.CORRUPT_AVRO


def test_another_record_is_refused_although_all_fields_have_defaults() -> None:
    data = encode_record(CompactionPlan())
    assert_corrupt(CommitMetadata, data, "HoodieCompactionPlan", "HoodieCommitMetadata")
    assert_corrupt(CommitMetadata, encode_record(ReplaceCommitMetadata()), "HoodieReplaceCommit")


@pytest.mark.parametrize(
    ("records", "reason"), [(0, "no record"), (2, "2 records")], ids=["none", "two"]
)
def test_exactly_one_record(records: int, reason: str) -> None:
    data = file_with(hudi_schema(IndexPlan), *[datum_of(IndexPlan())] * records)
    assert_corrupt(IndexPlan, data, reason)


def test_one_block_only() -> None:
    data = file_with(hudi_schema(IndexPlan), *[datum_of(IndexPlan())] * 2, block_size=1)
    assert_corrupt(IndexPlan, data, "only block")


def test_trailing_junk() -> None:
    assert_corrupt(IndexPlan, encode_record(IndexPlan()) + b"\x00", "only block")


def test_foreign_sync_marker() -> None:
    assert_corrupt(IndexPlan, encode_record(IndexPlan())[:-16] + b"x" * 16, "sync marker")


def test_record_that_ends_before_its_block() -> None:
    whole = bytearray.fromhex("0002 00 ff")
    data = encode_container(encode_header(schema_text(IndexPlan)), whole)
    assert_corrupt(IndexPlan, data, "its record ends")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("04 00", "union branch"),  # The first union has two branches.
        ("0002 02 ffffffffffffffffff01", "a count of"),  # As many items as a long can say.
        ("0002 02 02 02 02 03", "a length of -2"),  # A metadata partition path.
        ("0002 02 02 02 02 04 c328", "utf-8"),
        ("00 ffffffffffffffffffff01", "more than 64 bits"),
    ],
)
def test_ill_formed_values(body: str, reason: str) -> None:
    data = encode_container(encode_header(schema_text(IndexPlan)), bytes.fromhex(body))
    assert_corrupt(IndexPlan, data, reason)


def test_boolean_that_is_none() -> None:
    body = bytes.fromhex("00 02 02")
    assert_corrupt(
        CommitMetadata,
        encode_container(encode_header(schema_text(CommitMetadata)), body),
        "boolean",
    )


@pytest.mark.parametrize(
    "schema",
    [
        "{",
        "5",
        "null",
        '"string"',
        '"HoodieIndexPlan"',
        '["null"]',
        "{}",
        '{"type":"record","name":"HoodieIndexPlan"}',
        '{"type":"record","name":"HoodieIndexPlan","fields":3}',
        '{"type":"record","name":"HoodieIndexPlan","fields":[{"name":"x","type":"y"}]}',
        '{"type":"record","name":"HoodieIndexPlan","fields":[{"type":"int"}],"__fastavro_parsed":1}',
        '{"type":"record","name":"HoodieIndexPlan","fields":[{"name":"x","type":'
        '{"type":"fixed","name":"F","size":-1}}]}',
        "[" * 100_000,
    ],
)
def test_schema_that_is_none(schema: str) -> None:
    assert_corrupt(IndexPlan, encode_container(encode_header(schema), b"\x00\x02\x00"))


def test_header_without_schema() -> None:
    assert_corrupt(IndexPlan, encode_container(b"Obj\x01\x00", b"\x00\x02\x00"), "no schema")


def test_compressed_files_are_not_supported() -> None:
    data = file_with(hudi_schema(IndexPlan), datum_of(IndexPlan()), codec="deflate")
    with pytest.raises(UnsupportedError, match="deflate") as raised:
        decode_record(IndexPlan, data, path=PATH)
    assert raised.value.context == {"path": PATH}


# Files of other releases


FOREIGN_TYPES: list[tuple[Any, Any]] = [
    ("null", None),
    ("bytes", b"\xff\x00"),
    ("float", 0.5),
    (["null", "string", "long"], "three branches"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B"),
    ({"type": "fixed", "name": "F", "size": 3}, b"abc"),
    ({"type": "map", "values": {"type": "array", "items": "double"}}, {"k": [0.25]}),
    (
        {
            "type": "record",
            "name": "Node",
            "fields": [
                {"name": "label", "type": "string"},
                {"name": "children", "type": {"type": "array", "items": "Node"}},
            ],
        },
        {"label": "root", "children": [{"label": "leaf", "children": []}]},
    ),
]


@pytest.mark.parametrize(("type_", "value"), FOREIGN_TYPES, ids=lambda x: str(x)[:24])
def test_unknown_fields_are_dropped(type_: Any, value: Any) -> None:
    schema = hudi_schema(IndexPlan)
    schema["fields"].insert(1, {"name": "first", "type": type_})
    again = type_["name"] if isinstance(type_, dict) and "name" in type_ else type_
    schema["fields"].append({"name": "last", "type": ["null", again]})
    datum = datum_of(an_index_plan()) | {"first": value, "last": value}
    assert decode_record(IndexPlan, file_with(schema, datum), path=PATH) == an_index_plan()


def without(cls: type, *names: str) -> dict[str, Any]:
    schema = hudi_schema(cls)
    schema["fields"] = [field for field in schema["fields"] if field["name"] not in names]
    return schema


def test_missing_fields_take_the_default_of_the_schema() -> None:
    """A plan without version is one of version 1, whatever version we write ourselves."""
    data = file_with(without(CompactionPlan, "version", "preserveHoodieMetadata"), {})
    assert decode_record(CompactionPlan, data, path=PATH) == CompactionPlan(
        operations=None,
        extra_metadata=None,
        version=1,
        preserve_hoodie_metadata=False,
        missing_schedule_partitions=None,
    )


def test_missing_array_takes_an_empty_tuple() -> None:
    record = RollbackMetadata(
        start_rollback_time="1",
        time_taken_in_millis=2,
        total_files_deleted=3,
        commits_rollback=("0",),
        partition_metadata={},
    )
    data = file_with(without(RollbackMetadata, "instantsRollback"), datum_of(record))
    assert decode_record(RollbackMetadata, data, path=PATH) == record


def test_missing_field_without_default_is_corrupt() -> None:
    data = file_with(without(CleanerPlan, "policy"), datum_of(CleanerPlan(policy="p")))
    assert_corrupt(CleanerPlan, data, "policy")


def test_renamed_field_of_older_rollbacks() -> None:
    """Before Hudi 1.0 the last field of a partition was `writtenLogFiles`."""
    text = schema_text(RollbackMetadata).replace("logFilesFromFailedCommit", "writtenLogFiles")
    partition = RollbackPartitionMetadata(
        partition_path="p", success_delete_files=("a",), failed_delete_files=()
    )
    record = RollbackMetadata(
        start_rollback_time="1",
        time_taken_in_millis=2,
        total_files_deleted=3,
        commits_rollback=("0",),
        partition_metadata={"p": partition},
    )
    datum = datum_of(record)
    datum["partitionMetadata"]["p"]["writtenLogFiles"] = {"l": 1}
    decoded = decode_record(RollbackMetadata, file_with(json.loads(text), datum), path=PATH)
    forgotten = dataclasses.replace(partition, log_files_from_failed_commit=None)
    assert decoded == dataclasses.replace(record, partition_metadata={"p": forgotten})


def savepoint_schema(savepointed_at: Any) -> Any:
    text = schema_text(SavepointMetadata)
    return json.loads(text.replace('"long"', json.dumps(savepointed_at)))


SAVEPOINT = SavepointMetadata(
    savepointed_by="me", savepointed_at=5, comments="", partition_metadata={}
)


@pytest.mark.parametrize("type_", ["int", ["null", "long"], ["string", "int", "null"]])
def test_narrower_or_nullable_types_are_read(type_: Any) -> None:
    data = file_with(savepoint_schema(type_), datum_of(SAVEPOINT))
    assert decode_record(SavepointMetadata, data, path=PATH) == SAVEPOINT


@pytest.mark.parametrize(
    ("type_", "value", "reason"),
    [
        ("string", "5", "string where long"),
        (["null", "long"], None, "null where long"),
        (["null", "string"], "5", "string where long"),
        ({"type": "array", "items": "long"}, [5], "array where long"),
    ],
)
def test_values_of_another_type_are_corrupt(type_: Any, value: Any, reason: str) -> None:
    datum = datum_of(SAVEPOINT) | {"savepointedAt": value}
    assert_corrupt(SavepointMetadata, file_with(savepoint_schema(type_), datum), reason)


def test_optional_field_of_another_type_is_corrupt_only_when_set() -> None:
    text = schema_text(IndexPlan).replace('["int","null"]', '["null","string"]')
    schema = json.loads(text.replace('"default":1', '"default":null'))
    unset = decode_record(IndexPlan, file_with(schema, {}), path=PATH)
    assert unset == IndexPlan(version=None, index_partition_infos=None)
    assert_corrupt(IndexPlan, file_with(schema, {"version": "1"}), "string where int or null")


def test_blocks_of_arrays_and_maps_may_announce_their_size() -> None:
    item = bytearray.fromhex("0002 02 0c") + b"column" + bytes.fromhex("00 02")
    item += bytes.fromhex("01 0c 02") + b"k" + bytes.fromhex("06") + b"val" + b"\x00"
    body = bytearray.fromhex("0002 02")
    for _ in range(2):
        append_long(-1, body)
        append_long(len(item), body)
        body += item
    body.append(0)
    data = encode_container(encode_header(schema_text(IndexPlan)), body)
    info = IndexPartitionInfo(metadata_partition_path="column", extra_metadata={"k": "val"})
    expected = IndexPlan(index_partition_infos=(info, info))
    assert decode_record(IndexPlan, data, path=PATH) == expected
    assert list(fastavro.reader(BytesIO(data))) == [datum_of(expected)]


# Values that cannot be written


@pytest.mark.parametrize(
    ("record", "field"),
    [
        (IndexPlan(version=2**31), "IndexPlan.version"),
        (IndexPlan(version=True), "IndexPlan.version"),
        (IndexPlan(index_partition_infos=[]), "IndexPlan.index_partition_infos"),  # type: ignore[arg-type]
        (IndexPlan(index_partition_infos=("x",)), "IndexPartitionInfo"),  # type: ignore[arg-type]
        (CleanerPlan(policy=None), "CleanerPlan.policy"),  # type: ignore[arg-type]
        (CleanerPlan(policy="\ud800"), "CleanerPlan.policy"),
        (CommitMetadata(compacted=0), "CommitMetadata.compacted"),  # type: ignore[arg-type]
        (CommitMetadata(extra_metadata=()), "CommitMetadata.extra_metadata"),  # type: ignore[arg-type]
        (CommitMetadata(extra_metadata={1: "x"}), "CommitMetadata.extra_metadata"),  # type: ignore[dict-item]
        (
            CommitMetadata(partition_to_write_stats={"": (WriteStat(num_writes=2**63),)}),
            "WriteStat.num_writes",
        ),
        (
            CompactionPlan(
                operations=(
                    CompactionOperation(base_instant_time="", file_id="", metrics={"m": 10**400}),
                )
            ),
            "CompactionOperation.metrics",
        ),
    ],
)
def test_unwritable_values_name_their_field(record: Any, field: str) -> None:
    with pytest.raises(InvalidInputError, match=field):
        encode_record(record)


def test_defaults_are_what_hudi_writes() -> None:
    """The values the fixtures have wherever the writer had nothing to say."""
    assert datum_of(CommitMetadata()) == {
        "partitionToWriteStats": {},
        "compacted": False,
        "extraMetadata": {},
        "version": None,
        "operationType": None,
    }
    assert set(datum_of(RequestedReplace()).values()) == {None}
    assert CompactionPlan().version == 2


def test_a_restore_plan_names_its_savepoint_in_the_second_branch() -> None:
    """As Hudi 1.2.0 writes it: no instants, version 2, then branch 1 with the text."""
    data = encode_record(RestorePlan(savepoint_to_restore_timestamp="2024"))
    assert b"\x00" + b"\x00\x04" + b"\x02\x082024" in data
