"""Every HFile and log of the metadata tables that Hudi wrote, read and written again by us."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa
import pytest

from headwater.format.hfile.reader import HFile
from headwater.format.hfile.writer import encode_hfile
from headwater.format.log.frames import iter_blocks
from headwater.format.metadata.column_stats import (
    decode_column_stats,
    encode_column_stats,
)
from headwater.format.metadata.index_definitions import (
    IndexVersion,
    encode_index_definitions,
    parse_index_definitions,
)
from headwater.format.metadata.records import (
    decode_files,
    decode_record_locations,
    encode_files,
    encode_record_locations,
    encode_secondary,
)
from headwater.format.metadata.schema import (
    METADATA_SCHEMA,
    METADATA_SCHEMA_V8,
    RecordType,
    as_current,
)
from headwater.metadata.index_keys import (
    ALL_PARTITIONS,
    column_stats_keys,
    partition_path_of,
    partition_stats_keys,
)
from headwater.metadata.log_files import encode_metadata_log, read_metadata_log
from headwater.metadata.partition_kinds import (
    file_id,
    group_count,
    group_number,
    groups_of_keys,
)
from headwater.metadata.records import MetadataRecords
from headwater.model.files import BaseFile, LogFile, parse_data_file

hudi = pytest.importorskip("hudi", reason="hudi-rs is not installed")

TABLES = [
    "cow-v9_txns_nonpart_meta",
    "cow-v9_txns_simple_meta",
    "mor-avro-v8_trips_8i3u1d",
    "mor-avro-v9_nonpartitioned_rollback",
    "mor-avro-v9_txns_nonpart_meta",
    "mor-avro-v9_txns_simple_meta",
]
AVRO = fastavro.parse_schema(json.loads(METADATA_SCHEMA))
HudiTable = Callable[[str], Path]


@pytest.fixture(params=TABLES)
def table(request: pytest.FixtureRequest, hudi_table: HudiTable) -> Path:
    return hudi_table(request.param)


class Found(NamedTuple):
    """What one block of a log, or a base file, says."""

    partition: str
    file: BaseFile | LogFile
    path: Path
    entries: MetadataRecords


def is_version_8(table: Path) -> bool:
    return "v8" in table.name


def without_docs(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {name: without_docs(each) for name, each in schema.items() if name != "doc"}
    return [without_docs(each) for each in schema] if isinstance(schema, list) else schema


def metadata_files(table: Path) -> Iterator[tuple[str, BaseFile | LogFile, Path]]:
    folder = table / ".hoodie" / "metadata"
    for path in sorted(folder.glob("*/*")):
        file = parse_data_file(f"{path.parent.name}/{path.name}")
        if path.parent.name != ".hoodie" and file is not None:
            yield path.parent.name, file, path


def everything(table: Path) -> Iterator[Found]:
    for partition, file, path in metadata_files(table):
        if isinstance(file, LogFile):
            for entries in read_metadata_log(path.read_bytes(), str(path)):
                yield Found(partition, file, path, entries)
        else:
            hfile = HFile.of_bytes(path.read_bytes(), path=str(path))
            keys, values = hfile.read_all()
            values = as_current(values, hfile.schema)
            yield Found(
                partition, file, path, MetadataRecords(keys, values, pa.array([], pa.string()))
            )


def parsed(value: bytes) -> dict[str, Any]:
    stream = BytesIO(value)
    record: Any = fastavro.schemaless_reader(stream, AVRO, None)
    assert stream.tell() == len(value)
    return dict(record)


def test_the_schema_is_that_of_hudi_without_its_comments(table: Path) -> None:
    expected = METADATA_SCHEMA_V8 if is_version_8(table) else METADATA_SCHEMA
    schemas = {
        HFile.of_bytes(path.read_bytes(), path=str(path)).schema
        for _, file, path in metadata_files(table)
        if isinstance(file, BaseFile)
    }
    assert [without_docs(json.loads(schema or "")) for schema in schemas] == [json.loads(expected)]


def test_every_record_is_one_of_the_schema(table: Path) -> None:
    records = [
        parsed(value) for found in everything(table) for value in found.entries.values.to_pylist()
    ]
    assert len(records) > 30
    assert {record["key"] for record in records} == {""}


def test_every_key_is_in_the_file_group_of_its_hash(table: Path) -> None:
    ids: dict[str, set[str]] = {}
    for partition, file, _ in metadata_files(table):
        ids.setdefault(partition, set()).add(file.file_id)
    version = IndexVersion.V1 if is_version_8(table) else IndexVersion.V2
    for found in everything(table):
        count = group_count(ids[found.partition])
        group = group_number(found.file.file_id)
        assert file_id(found.partition, group) == found.file.file_id
        for keys in (found.entries.keys, found.entries.removed):
            groups = groups_of_keys(found.partition, keys, count, version)
            assert set(groups.tolist()) <= {group}


@pytest.mark.some(2)
def test_keys_of_statistics_follow_from_their_records(table: Path) -> None:
    count = 0
    for found in everything(table):
        if found.partition in ("column_stats", "partition_stats") and len(found.entries.keys):
            stats = decode_column_stats(found.entries.values)
            if found.partition == "partition_stats":
                places = pa.array(map(partition_path_of, stats["file_name"].to_pylist()))
                keys = partition_stats_keys(stats["column_name"], places)
            else:
                folders = {
                    path.name: str(path.parent.relative_to(table)).strip(".")
                    for path in table.rglob("*")
                    if ".hoodie" not in path.parts
                }
                names = stats["file_name"].to_pylist()
                places = pa.array([folders.get(name) for name in names], pa.string())
                # Files that were cleaned or rolled back are not there to tell their folder.
                is_there = places.is_valid()
                keys = column_stats_keys(
                    stats["column_name"].filter(is_there),
                    places.drop_null(),
                    stats["file_name"].filter(is_there),
                )
                assert keys.equals(found.entries.keys.filter(is_there))
                count += len(keys)
                continue
            assert keys.equals(found.entries.keys)
            count += len(keys)
    assert count > 20


def encoded_again(found: Found) -> pa.Array:
    values = found.entries.values
    match found.partition:
        case "files":
            types = [
                RecordType.PARTITION_LIST if key == ALL_PARTITIONS else RecordType.FILE_LIST
                for key in found.entries.keys.to_pylist()
            ]
            pairs = zip(values.to_pylist(), types, strict=True)
            return pa.array([encode_files(decode_files(value), kind) for value, kind in pairs])
        case "column_stats":
            return encode_column_stats(decode_column_stats(values))
        case "partition_stats":
            return encode_column_stats(decode_column_stats(values), RecordType.PARTITION_STATS)
        case "record_index":
            rows = decode_record_locations(values)
            return encode_record_locations(
                rows["partition_path"], rows["file_id"], rows["instant_ms"]
            )
        case _:
            return encode_secondary(len(values))


@pytest.mark.some(3)
def test_records_are_encoded_to_the_bytes_that_hudi_wrote(table: Path) -> None:
    count = 0
    for found in everything(table):
        # Compaction fills in the file name, which says nothing new.
        if isinstance(found.file, LogFile) and len(found.entries.keys):
            assert encoded_again(found).equals(found.entries.values)
            count += len(found.entries.keys)
    assert count > 20


def test_logs_are_encoded_to_the_same_blocks(table: Path) -> None:
    for partition, file, path in metadata_files(table):
        if isinstance(file, LogFile):
            parts = read_metadata_log(path.read_bytes(), str(path))
            whole = MetadataRecords(
                pa.concat_arrays([part.keys for part in parts]),
                pa.concat_arrays([part.values for part in parts]),
                pa.concat_arrays([part.removed for part in parts]),
            )
            again = encode_metadata_log(whole, partition, file.instant_time)
            theirs, ours = (
                [(block.type, sorted(block.header)) for block in iter_blocks(data, path=str(path))]
                for data in (path.read_bytes(), again)
            )
            assert theirs == ours


def test_keys_are_looked_up_and_scanned(table: Path) -> None:
    for _, file, path in metadata_files(table):
        if isinstance(file, BaseFile):
            hfile = HFile.of_bytes(path.read_bytes(), path=str(path))
            keys, values = hfile.read_all()
            for row in range(0, len(keys), 7):
                key = keys[row].as_py()
                found = hfile.look_up([key, "absent"])
                assert found.keys.to_pylist() == [key]
                assert found.values[0].equals(values[row])
                assert key in hfile.scan_prefixes([key[:3]]).keys.to_pylist()


def test_index_definitions_are_read(table: Path) -> None:
    path = table / ".hoodie" / ".index_defs" / "index.json"
    version = 8 if is_version_8(table) else 9
    found = parse_index_definitions(path.read_bytes(), table_version=version, path=str(path))
    assert found["column_stats"].source_fields[0] == "_hoodie_commit_time"
    again = encode_index_definitions(found)
    if not is_version_8(table):
        assert json.loads(again) == json.loads(path.read_bytes())


def rewrite(table: Path) -> int:
    """Write every HFile and log of a metadata table again, under the same names."""
    count = 0
    for partition, file, path in metadata_files(table):
        if isinstance(file, BaseFile):
            keys, values = HFile.of_bytes(path.read_bytes(), path=str(path)).read_all()
            data = encode_hfile(keys, values, schema=METADATA_SCHEMA, is_base_file=True)
        else:
            parts = read_metadata_log(path.read_bytes(), str(path))
            whole = MetadataRecords(
                pa.concat_arrays([part.keys for part in parts]),
                pa.concat_arrays([part.values for part in parts]),
                pa.concat_arrays([part.removed for part in parts]),
            )
            data = encode_metadata_log(whole, partition, file.instant_time)
        path.unlink()
        path.write_bytes(data)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        count += 1
    return count


@pytest.mark.parametrize("name", [name for name in TABLES if "v9" in name])
def test_hudi_rs_reads_what_we_wrote_again(
    name: str, hudi_table: HudiTable, tmp_path: Path
) -> None:
    def rows(uri: Path) -> list[Any]:
        batches = hudi.HudiTableBuilder.from_base_uri(str(uri)).build().read(None)
        table = pa.Table.from_batches(batches)
        return sorted(table.to_pylist(), key=str)

    original = hudi_table(name)
    copy = tmp_path / name
    shutil.copytree(original, copy)
    assert rewrite(copy) > 10
    assert rows(copy) == rows(original)
    # It does read them: with damaged files it fails.
    for _, _, path in metadata_files(copy):
        path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(Exception, match=r"."):
        rows(copy)
