"""Every timeline file of the tables real Hudi wrote: decoded, encoded again, compared."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

import fastavro
import pytest
from tests.support.record_types import record_type

from headwater.format.timeline.commit_json import decode_commit_json
from headwater.format.timeline.records import decode_record, encode_record
from headwater.format.timeline.schemas import RECORD_SCHEMAS, schema_text
from headwater.model.commit_metadata import CommitMetadata, ReplaceCommitMetadata
from headwater.model.instant import Action, State

FIXTURES = Path(__file__).resolve().parents[3] / "shared" / "fixtures"
pytestmark = pytest.mark.skipif(
    not FIXTURES.is_dir(), reason="the shared folder with Hudi's tables is not beside the project"
)

# Version 6 keeps its timeline in `.hoodie` itself, later ones in a folder of their own. The
# metadata table is a table inside `.hoodie/metadata`.
TIMELINE_FOLDER = re.compile(r"(?:\.hoodie/metadata/)?\.hoodie/(?:timeline/)?")
INSTANT_FILE = re.compile(
    r"\d{17}(?P<completion>_\d{17})?(?:\.(?P<action>[a-z]+))??(?:\.(?P<state>requested|inflight))?"
)
SIDE_FILE = re.compile(r"\..+\.crc|hoodie\.properties")


class TimelineFile(NamedTuple):
    """A file of a timeline: its table, its path below the table's base, and what its name says."""

    table: str
    path: str
    action: Action
    state: State
    is_empty: bool

    @property
    def is_json(self) -> bool:
        """Version 6 has its commits in JSON and everything else in Avro."""
        is_version_6 = "/timeline/" not in self.path
        return is_version_6 and self.action.is_ingestion and not self.is_empty

    def __str__(self) -> str:
        return f"{self.table}/{self.path}"


def timeline_files() -> list[TimelineFile]:
    files = []
    for archive_path in sorted(FIXTURES.glob("*.zip")):
        with ZipFile(archive_path) as archive:
            for entry in archive.infolist():
                path = entry.filename.removeprefix(f"{archive_path.stem}/")
                folder, _, name = path.rpartition("/")
                if entry.is_dir() or not TIMELINE_FOLDER.fullmatch(f"{folder}/"):
                    continue
                if SIDE_FILE.fullmatch(name):
                    continue
                match = INSTANT_FILE.fullmatch(name)
                assert match, f"{archive_path.name} has a timeline file of an unknown kind: {path}"
                action = Action(match["action"] or "commit")
                state = State(match["state"] or "completed")
                size = entry.file_size
                files.append(TimelineFile(archive_path.stem, path, action, state, size == 0))
    return files


ALL_FILES = timeline_files()
each_avro_file = pytest.mark.parametrize(
    "file", [file for file in ALL_FILES if not file.is_empty and not file.is_json], ids=str
)
each_json_file = pytest.mark.parametrize(
    "file", [file for file in ALL_FILES if file.is_json], ids=str
)
each_empty_file = pytest.mark.parametrize(
    "file", [file for file in ALL_FILES if file.is_empty], ids=str
)

HudiTable = Callable[[str], Path]


def record_class(file: TimelineFile) -> type[Any]:
    cls = record_type(file.action, file.state)
    assert cls is not None, f"{file} holds something"
    return cls


@each_avro_file
def test_decoded_and_encoded_again_the_file_is_the_same(
    file: TimelineFile, hudi_table: HudiTable
) -> None:
    """Not only the record and the datum: all bytes but the random sync marker."""
    cls = record_class(file)
    theirs = (hudi_table(file.table) / file.path).read_bytes()
    record = decode_record(cls, theirs, path=file.path)
    ours = encode_record(record)
    assert decode_record(cls, ours, path=file.path) == record
    assert list(fastavro.reader(BytesIO(ours))) == list(fastavro.reader(BytesIO(theirs)))
    assert ours == theirs.replace(theirs[-16:], ours[-16:])


@each_avro_file
def test_schema_is_the_one_in_the_file(file: TimelineFile, hudi_table: HudiTable) -> None:
    with (hudi_table(file.table) / file.path).open("rb") as stream:
        metadata = fastavro.reader(stream).metadata
    assert metadata == {"avro.schema": schema_text(record_class(file))}


@each_avro_file
def test_values_are_those_fastavro_reads(file: TimelineFile, hudi_table: HudiTable) -> None:
    data = (hudi_table(file.table) / file.path).read_bytes()
    record = decode_record(record_class(file), data, path=file.path)
    (datum,) = fastavro.reader(BytesIO(data))
    assert_same_values(RECORD_SCHEMAS[type(record)], record, datum)


def assert_same_values(schema: Any, value: Any, datum: Any) -> None:
    """Compare by position, so that the rule that names fields is tested and not used."""
    if isinstance(schema, list) and value is not None:
        schema = next(branch for branch in schema if branch != "null")
    match schema["type"] if isinstance(schema, dict) else "":
        case "record":
            slots = [slot for cls in reversed(type(value).__mro__) for slot in slots_of(cls)]
            assert len(slots) == len(schema["fields"])
            for slot, field in zip(slots, schema["fields"], strict=True):
                assert_same_values(field["type"], getattr(value, slot), datum[field["name"]])
        case "array":
            assert len(value) == len(datum)
            for item, expected in zip(value, datum, strict=True):
                assert_same_values(schema["items"], item, expected)
        case "map":
            assert list(value) == list(datum)
            for key, item in value.items():
                assert_same_values(schema["values"], item, datum[key])
        case _:
            assert value == datum


def slots_of(cls: type) -> tuple[str, ...]:
    slots: tuple[str, ...] = cls.__dict__.get("__slots__", ())
    return slots


@each_empty_file
def test_files_without_content_are_the_ones_that_may_be_empty(file: TimelineFile) -> None:
    """The metadata table builds an index in a delta commit whose inflight file stays empty."""
    is_metadata_table = file.path.startswith(".hoodie/metadata/")
    is_inflight_delta = (file.action, file.state) == (Action.DELTA_COMMIT, State.INFLIGHT)
    may_be_empty = is_metadata_table and is_inflight_delta
    assert record_type(file.action, file.state) is None or may_be_empty


@each_json_file
def test_json_of_version_6_decodes_and_becomes_avro(
    file: TimelineFile, hudi_table: HudiTable
) -> None:
    cls = record_class(file)
    assert cls in (CommitMetadata, ReplaceCommitMetadata)
    data = (hudi_table(file.table) / file.path).read_bytes()
    commit = decode_commit_json(cls, data, path=file.path)
    (datum,) = fastavro.reader(BytesIO(encode_record(commit)))
    written = without_nulls(json.loads(data))
    for stats in written["partitionToWriteStats"].values():
        for stat in stats:
            stat.pop("recordsStats", None)
    assert without_nulls(datum) == written


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_nulls(item) for k, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def test_the_fixtures_hold_every_kind_of_file() -> None:
    """Guards against a parametrisation that silently finds nothing."""
    kinds = {record_class(file).__name__ for file in ALL_FILES if not file.is_empty}
    assert kinds == {
        "CommitMetadata",
        "CompactionPlan",
        "IndexCommitMetadata",
        "IndexPlan",
        "ReplaceCommitMetadata",
        "RequestedReplace",
        "RollbackMetadata",
        "RollbackPlan",
    }
    assert {file.table for file in ALL_FILES} == {
        path.stem for path in FIXTURES.glob("*.zip") if path.stem != "cow-v8_empty"
    }
