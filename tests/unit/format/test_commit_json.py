"""Commit metadata of tables of version 6."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headwater.errors import CorruptTableError, ErrorKind
from headwater.format.timeline.commit_json import decode_commit_json
from headwater.format.timeline.records import decode_record, encode_record
from headwater.model.commit_metadata import (
    CommitMetadata,
    ReplaceCommitMetadata,
    RuntimeStats,
    WriteStat,
)

PATH = "t/.hoodie/20240418173551906.commit"


def as_json(content: Any) -> bytes:
    return json.dumps(content).encode()


def test_absent_names_are_null_and_unknown_ones_dropped() -> None:
    stat = {
        "fileId": "f-0",
        "numWrites": 4,
        "cdcStats": None,
        "logFiles": ["l"],
        "runtimeStats": {"totalScanTime": 0, "totalUpsertTime": 105},
        "recordsStats": {"val": None},
    }
    content = {"partitionToWriteStats": {"p": [stat]}, "extraMetadata": {"schema": "s"}}
    commit = decode_commit_json(CommitMetadata, as_json(content), path=PATH)
    assert commit.compacted is None
    assert commit.version is None
    assert commit.extra_metadata == {"schema": "s"}
    (decoded,) = commit.write_stats()
    values = {name: getattr(decoded, name) for name in WriteStat.__slots__}
    assert {name: value for name, value in values.items() if value is not None} == {
        "file_id": "f-0",
        "num_writes": 4,
        "log_files": ("l",),
        "runtime_stats": RuntimeStats(
            total_scan_time=0, total_create_time=None, total_upsert_time=105
        ),
    }


def test_what_json_gives_can_be_written_as_avro() -> None:
    content = {"partitionToReplaceFileIds": {"p": ["a", "b"]}, "operationType": "CLUSTER"}
    replaced = decode_commit_json(ReplaceCommitMetadata, as_json(content), path=PATH)
    assert replaced.partition_to_replace_file_ids == {"p": ("a", "b")}
    assert decode_record(ReplaceCommitMetadata, encode_record(replaced), path=PATH) == replaced


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property"),
        (b"\xff", "decode"),
        (b"[]", "the file is [] where record"),
        (as_json({"compacted": 1}), "compacted is 1 where boolean"),
        (as_json({"partitionToWriteStats": {"p": {}}}), "p is {} where array"),
        (as_json({"partitionToWriteStats": {"p": [{"numWrites": True}]}}), "numWrites is True"),
        (as_json({"extraMetadata": {"schema": None}}), "schema is None where string"),
        (b"[" * 100_000, "nested"),
    ],
)
def test_ill_formed_content_is_corrupt(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptTableError) as raised:
        decode_commit_json(CommitMetadata, data, path=PATH)
    assert raised.value.kind is ErrorKind.CORRUPT_TIMELINE
    assert reason in raised.value.message
    assert PATH in raised.value.message
