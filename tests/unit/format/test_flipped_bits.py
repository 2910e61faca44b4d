"""Every single bit of a small file of each kind: the rows as they were, or an error that names it.

Checksums are Parquet's own of pages, and ours of footers, headers and blocks of Avro records.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.memory_storage import MemoryStorage

from headwater.arrow.log_parts import DataPart
from headwater.config.files import Compression, LogBlockFormat
from headwater.errors import CorruptTableError, UnsupportedError
from headwater.files.base_files import open_base_file
from headwater.files.log_files import read_log_parts
from headwater.format.avro.container import SYNC_SIZE_BYTES
from headwater.format.avro.schema import encode_avro_schema
from headwater.format.log.blocks import encode_data_block, encode_delete_block
from headwater.format.parquet.base_file import read_base_file, write_base_file
from headwater.format.parquet.row_group_copy import SourceGroup, copy_row_groups, read_raw_footer
from headwater.format.timeline.records import decode_record, encode_record
from headwater.format.timeline.schemas import Record
from headwater.model.commit_metadata import CommitMetadata, WriteStat
from headwater.model.files import BaseFile, LogFile
from headwater.model.instant import InstantTime
from headwater.model.plans import CompactionOperation, CompactionPlan

TIME = InstantTime("20260101000000000")
BASE = BaseFile("", "group-0", "0-1-0", TIME)
LOG = LogFile("", "group-0", TIME, 1, "0-1-0")
KEY = "_hoodie_record_key"
ROWS = pa.table(
    {
        "_hoodie_commit_time": [TIME] * 6,
        KEY: [f"key-{number}" for number in range(6)],
        "city": ["rome", None, "oslo", "rome", "oslo", "rome"],
        "price": [1.5, 2.0, None, 0.0, -3.25, 9.0],
    }
)
SCHEMA_JSON = encode_avro_schema(ROWS.schema, table="t")

Read = Callable[[bytes], pa.Table]


def base_file(codec: Compression = Compression.ZSTD) -> bytes:
    sink = BytesIO()
    write_base_file(
        [ROWS], ROWS.schema, sink=sink, codec=codec, row_group_rows=3, avro_schema_json=SCHEMA_JSON
    )
    return sink.getvalue()


def copied_file() -> bytes:
    source, sink = BytesIO(base_file()), BytesIO()
    footer = read_raw_footer(source, path="")
    groups = [SourceGroup(source, "", footer, number) for number in range(2)]
    entries = {"parquet.avro.schema": SCHEMA_JSON}
    copy_row_groups(groups, sink, constants={"city": "rome"}, entries=entries, codec="zstd")
    return sink.getvalue()


def log_file(block_format: LogBlockFormat) -> bytes:
    return encode_data_block(
        ROWS,
        instant_time=TIME,
        avro_schema_json=SCHEMA_JSON,
        block_format=block_format,
        compacted_block_times=[InstantTime("20250101000000000")],
    )


def delete_log() -> bytes:
    return encode_delete_block(
        pa.array(["key-1", "key-2"]),
        pa.array(["", ""]),
        [pa.array([7, 8], pa.int64())],
        instant_time=TIME,
        avro_schema_json=SCHEMA_JSON,
    )


def read_base(data: bytes) -> pa.Table:
    storage = MemoryStorage()
    storage.put(BASE.path, data)
    with open_base_file(storage, BASE) as reader:
        # By bounds, too: a group that a damaged bound rules out would be missing in silence.
        groups = reader.row_groups_overlapping(KEY, "key-0", "key-5")
        return reader.read(row_groups=groups)


def read_log(data: bytes) -> pa.Table:
    storage = MemoryStorage()
    storage.put(LOG.path, data)
    (part,) = read_log_parts(storage, [LOG])
    if isinstance(part, DataPart):
        return part.rows.append_column("is_partial", [[part.is_partial] * part.rows.num_rows])
    ordering = {str(at): column for at, column in enumerate(part.ordering or ())}
    return pa.table({"key": part.record_keys, "path": part.partition_paths, **ordering})


FILES: dict[str, tuple[bytes, Read]] = {
    "base file": (base_file(), read_base),
    "base file without compression": (base_file(Compression.UNCOMPRESSED), read_base),
    "copied base file": (copied_file(), read_base),
    "log of Parquet": (log_file(LogBlockFormat.PARQUET), read_log),
    "log of Avro": (log_file(LogBlockFormat.AVRO), read_log),
    "log of deletes": (delete_log(), read_log),
}


def flipped(data: bytes, *, every: int) -> Iterator[tuple[int, bytes]]:
    for place in range(0, len(data) * 8, every):
        damaged = bytearray(data)
        damaged[place // 8] ^= 1 << place % 8
        yield place, bytes(damaged)


def other_rows(data: bytes, read: Read, *, every: int) -> list[int]:
    """Return the bits that change what is read in silence; another error than ours is raised."""
    expected = read(data)
    silent = []
    unnamed = []
    for place, damaged in flipped(data, every=every):
        try:
            rows = read(damaged)
        except (CorruptTableError, UnsupportedError) as error:
            if BASE.name not in str(error) and LOG.name not in str(error):
                unnamed.append(place)
        else:
            if not rows.equals(expected):
                silent.append(place)
    assert unnamed == []
    return silent


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.some(3)
def test_no_bit_of_a_file_changes_rows_in_silence(kind: str) -> None:
    # Seven is prime to eight, so every bit of a byte has its turn.
    assert other_rows(*FILES[kind], every=7) == []


@pytest.mark.long
@pytest.mark.parametrize("kind", FILES)
def test_not_one_of_all_bits_of_a_file_changes_rows_in_silence(kind: str) -> None:
    assert other_rows(*FILES[kind], every=1) == []


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_was_cut_is_named(kind: str) -> None:
    data, read = FILES[kind]
    for length in range(0, len(data), 5):
        with pytest.raises((CorruptTableError, UnsupportedError)):
            read(data[:length])


_READ_WHAT_SHRINKS = """
import os, sys
from headwater.errors import CorruptTableError
from headwater.files.base_files import open_base_file
from headwater.model.files import parse_data_file
from headwater.seams.local import LocalStorage

folder, name = sys.argv[1:]
with open_base_file(LocalStorage(folder), parse_data_file(name, 0)) as reader:
    os.truncate(os.path.join(folder, name), 100)
    try:
        reader.read()
    except CorruptTableError:
        print("named")
"""


def test_a_file_that_shrinks_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    # In a process of its own, which a file that is mapped into memory kills.
    sink = BytesIO()
    keys = pa.table({KEY: [f"key-{number * 7919 % 65537:05d}" for number in range(65_537)]})
    write_base_file([keys], keys.schema, sink=sink, codec=Compression.UNCOMPRESSED)
    (tmp_path / BASE.name).write_bytes(sink.getvalue())
    command = [sys.executable, "-c", _READ_WHAT_SHRINKS, str(tmp_path), BASE.name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "named\n"), done.stderr


def test_checksums_are_looked_at_only_if_asked() -> None:
    data = bytearray(base_file(Compression.UNCOMPRESSED))
    data[data.index(b"key-1")] ^= 1  # No bound of its row group, so it is there once.
    with read_base_file(BytesIO(bytes(data)), "a", verifies=False) as reader:
        assert "jey-1" in reader.read()[KEY].to_pylist()
    with (
        read_base_file(BytesIO(bytes(data)), "a") as reader,
        pytest.raises(CorruptTableError, match="CRC checksum verification failed"),
    ):
        reader.read()


def test_files_of_others_without_checksums_are_read_as_they_are() -> None:
    sink = BytesIO()
    pq.write_table(ROWS, sink, store_schema=False)
    assert read_base(sink.getvalue()).equals(ROWS)


def test_the_footer_of_others_that_is_no_text_is_named() -> None:
    sink = BytesIO()
    pq.write_table(ROWS, sink, store_schema=False)
    data = bytearray(sink.getvalue())
    data[data.index(b"city")] ^= 0x80
    with pytest.raises(CorruptTableError, match=BASE.name):
        read_base(bytes(data))


PLAN = CompactionPlan(operations=(CompactionOperation(base_instant_time=TIME, file_id="group-0"),))
COMMIT = CommitMetadata(
    operation_type="UPSERT",
    partition_to_write_stats={
        "rome": (WriteStat(file_id="group-0", path=BASE.path, num_writes=6, num_deletes=1),)
    },
    extra_metadata={"schema": SCHEMA_JSON},
)
RECORDS: dict[str, Record] = {"commit": COMMIT, "plan": PLAN}


@pytest.mark.parametrize("every", [97, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", RECORDS)
def test_no_bit_of_a_timeline_file_changes_what_it_says(kind: str, every: int) -> None:
    record = RECORDS[kind]
    data = encode_record(record)
    for position in range(0, len(data) * 8, every):
        damaged = bytearray(data)
        damaged[position // 8] ^= 1 << position % 8
        with suppress(CorruptTableError, UnsupportedError):
            assert decode_record(type(record), bytes(damaged), path="p") == record, position


def test_timeline_files_of_others_are_read_as_they_are() -> None:
    data = encode_record(COMMIT)
    theirs = data.replace(data[-SYNC_SIZE_BYTES:], b"any other marker")
    assert decode_record(CommitMetadata, theirs, path="p") == COMMIT
