"""Metadata tables that Apache Hudi wrote, checked by our codecs and written again by our writers.

Hudi then reads through them, skips files by them, finds records by them and writes on.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.hudi_peer import HudiPeer
from tests.support.hudi_tables import HudiTable

from headwater.format.bloom import parse_bloom_filter
from headwater.format.hfile.reader import HFile
from headwater.format.hfile.writer import encode_hfile
from headwater.format.metadata.column_stats import (
    decode_column_stats,
    encode_column_stats,
)
from headwater.format.metadata.index_definitions import parse_index_definitions
from headwater.format.metadata.records import (
    decode_bloom_filters,
    decode_files,
    decode_record_locations,
    encode_bloom_filters,
    encode_files,
    encode_record_locations,
    encode_secondary,
)
from headwater.format.metadata.schema import METADATA_SCHEMA, RecordType
from headwater.metadata.index_keys import ALL_PARTITIONS, bloom_filter_keys
from headwater.metadata.log_files import encode_metadata_log, read_metadata_log
from headwater.metadata.partition_kinds import (
    RECORD_INDEX,
    data_partition_of,
    file_id,
    group_count,
    group_number,
    groups_of_keys,
)
from headwater.metadata.records import MetadataRecords
from headwater.model.files import BaseFile, LogFile, parse_data_file

PREFIX = "hoodie.metadata"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("city", pa.string()),
        pa.field("ts", pa.int64()),
        pa.field("fare", pa.float64()),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("day", pa.date32()),
    ]
)
ALL_INDEXES = {
    f"{PREFIX}.enable": "true",
    f"{PREFIX}.index.column.stats.enable": "true",
    f"{PREFIX}.index.bloom.filter.enable": "true",
    f"{PREFIX}.compact.max.delta.commits": "3",
}


def rows(start: int, stop: int, ts: int = 1) -> pa.Table:
    return pa.table(
        {
            "id": [f"id-{number}" for number in range(start, stop)],
            "city": ["s-f/a_b" if number % 2 else "ny" for number in range(start, stop)],
            "ts": pa.array([ts] * (stop - start), pa.int64()),
            "fare": [number + ts / 10 for number in range(start, stop)],
            "price": pa.array(
                [Decimal(f"{number - 5}.25") for number in range(start, stop)],
                pa.decimal128(10, 2),
            ),
            "day": pa.array(range(19_700 + start, 19_700 + stop), pa.date32()),
        },
        schema=SCHEMA,
    )


def a_table(hudi: HudiPeer, path: Path, table_type: str, **options: str) -> HudiTable:
    return HudiTable(
        hudi,
        path,
        {
            "hoodie.datasource.write.table.type": table_type,
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "city",
            "hoodie.datasource.write.partitionpath.urlencode": "true",
            "hoodie.table.ordering.fields": "ts",
            **ALL_INDEXES,
            **options,
        },
    )


def metadata_files(table: Path) -> Iterator[tuple[str, BaseFile | LogFile, Path]]:
    for path in sorted((table / ".hoodie" / "metadata").glob("*/*")):
        file = parse_data_file(f"{path.parent.name}/{path.name}")
        if path.parent.name != ".hoodie" and file is not None:
            yield path.parent.name, file, path


def entries_of(file: BaseFile | LogFile, path: Path) -> list[MetadataRecords]:
    if isinstance(file, LogFile):
        return read_metadata_log(path.read_bytes(), str(path))
    keys, values = HFile.of_bytes(path.read_bytes(), path=str(path)).read_all()
    return [MetadataRecords(keys, values, pa.array([], pa.string()))]


def encoded_again(partition: str, entries: MetadataRecords) -> pa.Array:
    """Return records decoded and encoded by us."""
    values = entries.values
    match partition:
        case "files":
            pairs = zip(entries.keys.to_pylist(), values.to_pylist(), strict=True)
            return pa.array(
                [
                    encode_files(
                        decode_files(value),
                        RecordType.PARTITION_LIST
                        if key == ALL_PARTITIONS
                        else RecordType.FILE_LIST,
                    )
                    for key, value in pairs
                ],
                pa.binary(),
            )
        case "column_stats":
            return encode_column_stats(decode_column_stats(values))
        case "partition_stats":
            return encode_column_stats(decode_column_stats(values), RecordType.PARTITION_STATS)
        case "record_index":
            found = decode_record_locations(values)
            return encode_record_locations(
                found["partition_path"], found["file_id"], found["instant_ms"]
            )
        case "bloom_filters":
            pieces = [
                encode_bloom_filters(
                    pa.array([row["bloom_filter"]]),
                    row["type_code"],
                    row["instant_time"],
                    is_deleted=row["is_deleted"],
                )
                for row in decode_bloom_filters(values).to_pylist()
            ]
            return pa.concat_arrays(pieces) if pieces else values
        case _:
            return encode_secondary(len(values))


def write_again(table: Path) -> dict[str, int]:
    """Write every file of a metadata table by our writers; return how many by partition.

    Records of logs come out as Hudi wrote them, those of compacted files but for the file name.
    """
    written: dict[str, int] = {}
    for partition, file, path in metadata_files(table):
        parts = entries_of(file, path)
        whole = MetadataRecords(
            pa.concat_arrays([part.keys for part in parts]),
            pa.concat_arrays([encoded_again(partition, part) for part in parts]),
            pa.concat_arrays([part.removed for part in parts]),
        )
        if isinstance(file, LogFile):
            assert whole.values.equals(pa.concat_arrays([part.values for part in parts]))
            data = encode_metadata_log(whole, partition, file.instant_time)
        else:
            data = encode_hfile(whole.keys, whole.values, schema=METADATA_SCHEMA, is_base_file=True)
        path.unlink()
        path.write_bytes(data)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        written[partition] = written.get(partition, 0) + 1
    return written


def by_id(found: pa.Table) -> list[dict[str, Any]]:
    return sorted(found.select(SCHEMA.names).to_pylist(), key=lambda row: row["id"])


SKIPPING = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_hudi_goes_on_with_files_that_we_wrote_again(
    hudi: HudiPeer, tmp_path: Path, table_type: str
) -> None:
    table = a_table(
        hudi,
        tmp_path / "table",
        table_type,
        **{
            f"{PREFIX}.global.record.level.index.enable": "true",
            "hoodie.index.type": "GLOBAL_RECORD_LEVEL_INDEX",
        },
    )
    expected = {row["id"]: row for row in rows(0, 20).to_pylist()}
    table.write(rows(0, 20))
    for turn in range(2, 6):
        changed = rows(5 * turn, 5 * turn + 12, ts=turn)
        expected |= {row["id"]: row for row in changed.to_pylist()}
        table.write(changed)
        written = write_again(tmp_path / "table")
        assert {"files", "column_stats", "bloom_filters", "record_index"} <= set(written)
        found = by_id(hudi.read(str(tmp_path / "table"), SKIPPING))
        assert found == sorted(expected.values(), key=lambda row: row["id"])
        some = hudi.read(str(tmp_path / "table"), SKIPPING, where="fare > 30 and price < 40")
        assert by_id(some) == sorted(
            (row for row in expected.values() if row["fare"] > 30 and row["price"] < 40),
            key=lambda row: row["id"],
        )


def test_bloom_filters_are_the_text_of_the_footer_under_our_keys(
    hudi: HudiPeer, tmp_path: Path
) -> None:
    table = a_table(hudi, tmp_path / "table", "COPY_ON_WRITE")
    table.write(rows(0, 20))
    names = {
        path.name: str(path.parent.relative_to(tmp_path / "table"))
        for path in (tmp_path / "table").rglob("*.parquet")
    }
    keys = bloom_filter_keys(pa.array(list(names.values())), pa.array(list(names)))
    found: dict[str, dict[str, Any]] = {}
    for partition, file, path in metadata_files(tmp_path / "table"):
        if partition == "bloom_filters":
            assert file_id(partition, group_number(file.file_id)) == file.file_id
            for part in entries_of(file, path):
                assert set(groups_of_keys(partition, part.keys, 4)) <= {group_number(file.file_id)}
                decoded = decode_bloom_filters(part.values).to_pylist()
                found |= dict(zip(part.keys.to_pylist(), decoded, strict=True))
    assert set(found) == set(keys.to_pylist())
    for row in found.values():
        b64decode(row["bloom_filter"], validate=True)
        bloom = parse_bloom_filter(row["bloom_filter"].decode(), row["type_code"])
        assert bloom.might_contain(pa.array([f"id-{number}" for number in range(20)])).any()


def test_a_record_index_that_is_partitioned(hudi: HudiPeer, tmp_path: Path) -> None:
    table = a_table(
        hudi,
        tmp_path / "table",
        "COPY_ON_WRITE",
        **{
            f"{PREFIX}.record.level.index.enable": "true",
            "hoodie.index.type": "RECORD_LEVEL_INDEX",
            # With partition statistics beside it Hudi fails by itself, with a null pointer.
            f"{PREFIX}.index.column.stats.enable": "false",
        },
    )
    table.write(rows(0, 20))
    table.write(rows(10, 30, ts=2))
    path = tmp_path / "table" / ".hoodie" / ".index_defs" / "index.json"
    definitions = parse_index_definitions(path.read_bytes(), table_version=9, path=str(path))
    assert definitions[RECORD_INDEX].is_partitioned
    ids: dict[str | None, set[str]] = {}
    locations: dict[tuple[str | None, str], str] = {}
    files = [each for each in metadata_files(tmp_path / "table") if each[0] == RECORD_INDEX]
    for _, file, _ in files:
        ids.setdefault(data_partition_of(file.file_id), set()).add(file.file_id)
    for partition, file, where in files:
        place = data_partition_of(file.file_id)
        group = group_number(file.file_id)
        assert file_id(partition, group, place) == file.file_id
        for part in entries_of(file, where):
            groups = groups_of_keys(partition, part.keys, group_count(ids[place]))
            assert set(groups.tolist()) <= {group}
            for key, row in zip(
                part.keys.to_pylist(), decode_record_locations(part.values).to_pylist(), strict=True
            ):
                assert row["partition_path"] == place
                locations[place, key] = row["file_id"]
    assert {key for _, key in locations} == {f"id-{number}" for number in range(30)}
    assert write_again(tmp_path / "table")[RECORD_INDEX] == len(files)
    table.write(rows(0, 5, ts=3))
    found = by_id(hudi.read(str(tmp_path / "table"), SKIPPING))
    assert [row["id"] for row in found] == sorted(f"id-{number}" for number in range(30))
    assert {row["id"]: row["ts"] for row in found}["id-3"] == 3
