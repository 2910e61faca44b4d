"""Every log block, base file and partition mark of tables that Hudi wrote (versions 6, 8 and 9)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.arrow.log_parts import DataPart, DeletePart
from headwater.files.base_files import open_base_file
from headwater.files.log_files import read_log_parts
from headwater.format.avro.columns import encode_records
from headwater.format.bloom import BloomFilterBuilder
from headwater.format.log.blocks import decode_part
from headwater.format.log.delete_records import encode_delete_records
from headwater.format.log.frames import (
    BlockType,
    HeaderKey,
    LogBlock,
    encode_block,
    iter_blocks,
)
from headwater.format.partition_metadata import parse_partition_metadata
from headwater.model.files import BaseFile, LogFile, parse_data_file
from headwater.seams.local import LocalStorage

TABLES = [
    "cow-v8_nonpartitioned",
    "cow-v8_simplekeygen_hivestyle_no_metafields",
    "cow-v9_txns_nonpart_meta",
    "cow-v9_txns_nonpart_nometa",
    "cow-v9_txns_simple_meta",
    "cow-v9_txns_simple_nometa",
    "mor-avro-v8_trips_8i3u1d",
    "mor-avro-v9_nonpartitioned_rollback",
    "mor-avro-v9_txns_nonpart_meta",
    "mor-avro-v9_txns_simple_meta",
    "mor-avro-v9_txns_simple_nometa",
    "mor-parquet-v6_nonpartitioned",
]
HudiTable = Callable[[str], Path]


@pytest.fixture(params=TABLES)
def table(request: pytest.FixtureRequest, hudi_table: HudiTable) -> Path:
    return hudi_table(request.param)


def log_blocks(table: Path) -> Iterator[LogBlock]:
    """Yield the blocks of all logs, those of the metadata table included."""
    for path in sorted(table.rglob(".*.log.*")):
        yield from iter_blocks(path.read_bytes(), path=str(path))


def data_files(table: Path) -> Iterator[BaseFile | LogFile]:
    for path in sorted(table.rglob("*")):
        relative = path.relative_to(table).as_posix()
        if path.is_file() and not relative.startswith(".hoodie/"):
            file = parse_data_file(relative, path.stat().st_size)
            if file is not None:
                yield file


def record_bytes(block: LogBlock) -> list[bytes]:
    """Cut the content of an Avro block at the lengths before its records."""
    content, at, records = block.content, 8, []
    for _ in range(int.from_bytes(content[4:8])):
        end = at + 4 + int.from_bytes(content[at : at + 4])
        records.append(bytes(content[at + 4 : end]))
        at = end
    return records


def test_every_block_is_framed_as_we_frame_it(table: Path) -> None:
    for path in sorted(table.rglob(".*.log.*")):
        data = path.read_bytes()
        blocks = list(iter_blocks(data, path=path.name))
        assert blocks
        assert BlockType.CORRUPT not in [block.type for block in blocks]
        again = [encode_block(block.type, block.header, block.content) for block in blocks]
        assert b"".join(again) == data


def test_avro_blocks_decode_as_fastavro_decodes_them_and_encode_to_the_same_bytes(
    table: Path,
) -> None:
    for block in log_blocks(table):
        if block.type is not BlockType.AVRO_DATA:
            continue
        text = block.header[HeaderKey.SCHEMA]
        schema = fastavro.parse_schema(json.loads(text))
        records = record_bytes(block)
        expected = [fastavro.schemaless_reader(BytesIO(record), schema, None) for record in records]
        part = decode_part(block, path=table.name)
        assert isinstance(part, DataPart)
        assert part.rows.num_rows == len(records) > 0
        assert part.rows.to_pylist(maps_as_pydicts="strict") == expected
        assert bytes(encode_records(part.rows, text)) == bytes(block.content[8:])


def test_parquet_blocks_decode_to_the_types_of_their_schema(table: Path) -> None:
    for block in log_blocks(table):
        if block.type is not BlockType.PARQUET_DATA:
            continue
        part = decode_part(block, path=table.name)
        footer = pq.read_metadata(pa.BufferReader(block.content))
        assert isinstance(part, DataPart)
        assert part.rows.num_rows == footer.num_rows > 0
        names = [field["name"] for field in json.loads(block.header[HeaderKey.SCHEMA])["fields"]]
        assert part.rows.column_names == names


def test_delete_blocks_decode_and_encode_to_the_same_bytes(table: Path) -> None:
    for block in log_blocks(table):
        if block.type is not BlockType.DELETE:
            continue
        part = decode_part(block, path=table.name)
        assert isinstance(part, DeletePart)
        # No delete of the fixtures has an ordering value of its own.
        assert part.ordering is None
        payload = encode_delete_records(part.record_keys, part.partition_paths, None)
        assert payload == bytes(block.content[8:])


def test_the_fixtures_have_all_kinds_of_blocks(hudi_table: HudiTable) -> None:
    found = Counter(block.type for name in TABLES for block in log_blocks(hudi_table(name)))
    assert found[BlockType.AVRO_DATA] >= 12
    assert found[BlockType.PARQUET_DATA] >= 1
    assert found[BlockType.DELETE] >= 100
    assert found[BlockType.HFILE_DATA] >= 100


def test_the_logs_of_a_file_group_are_read_in_order(hudi_table: HudiTable) -> None:
    table = hudi_table("mor-avro-v9_txns_nonpart_meta")
    logs = sorted(
        (file for file in data_files(table) if isinstance(file, LogFile)),
        key=lambda log: log.instant_time,
    )
    parts = read_log_parts(
        LocalStorage(table),
        logs,
        columns=["_hoodie_record_key", "txn_ts"],
    )
    assert [part.instant_time for part in parts] == [log.instant_time for log in logs]
    kept = [part.rows.column_names for part in parts if isinstance(part, DataPart)]
    assert kept
    assert all(names == ["_hoodie_record_key", "txn_ts"] for names in kept)


def test_base_files_are_read_and_their_bloom_filters_recomputed(table: Path) -> None:
    storage = LocalStorage(table)
    for file in data_files(table):
        if not isinstance(file, BaseFile):
            continue
        with open_base_file(storage, file) as reader:
            rows = reader.read()
            key_range, bloom = reader.key_range, reader.bloom_filter()
        rows.validate(full=True)
        assert rows.num_rows == reader.row_count > 0
        assert set(rows["_hoodie_file_name"].to_pylist()) == {file.name}
        if bloom is None:
            assert "no_metafields" in table.name
            continue
        keys = rows["_hoodie_record_key"].combine_chunks()
        assert key_range == (min(keys.to_pylist()), max(keys.to_pylist()))
        assert bloom.might_contain(keys).all()
        assert not bloom.might_contain(pa.array(["absent", "", "TXN"])).any()
        builder = BloomFilterBuilder(bloom.type)
        builder.add(keys)
        assert builder.build().to_text() == bloom.to_text()


def test_partitions_are_marked_with_their_depth(table: Path) -> None:
    marks = [
        path
        for path in table.rglob(".hoodie_partition_metadata")
        if ".hoodie" not in path.relative_to(table).parts
    ]
    assert marks
    for path in marks:
        found = parse_partition_metadata(path.read_bytes(), path=str(path))
        assert found.depth == len(path.relative_to(table).parent.parts)
        assert len(found.commit_time) == 17
