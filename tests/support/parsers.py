"""Every parser of bytes, with contents that it takes: what a fuzzer begins with."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
from tests.support.memory_storage import MemoryStorage

from headwater.arrow.spark_schema import schema_from_ddl
from headwater.config.files import LogBlockFormat
from headwater.errors import HeadwaterError
from headwater.expressions.compile import compile_condition
from headwater.expressions.scope import Scope
from headwater.files.log_files import read_log_parts
from headwater.format.avro.binary import MalformedAvroError
from headwater.format.avro.container import MAGIC as AVRO_MAGIC
from headwater.format.avro.container import SYNC_SIZE_BYTES
from headwater.format.avro.schema import encode_avro_schema, parse_avro_schema
from headwater.format.bloom import BloomFilterBuilder, MalformedBloomError, parse_bloom_filter
from headwater.format.hfile.reader import HFile
from headwater.format.hfile.writer import encode_hfile
from headwater.format.log.blocks import encode_data_block, encode_delete_block
from headwater.format.metadata.index_definitions import (
    IndexDefinition,
    encode_index_definitions,
    parse_index_definitions,
)
from headwater.format.metadata.records import (
    FileInfo,
    decode_files,
    decode_secondary,
    encode_files,
    encode_secondary,
)
from headwater.format.metadata.schema import RecordType
from headwater.format.own_json import CHECKSUM_FIELD
from headwater.format.parquet.base_file import read_base_file, write_base_file
from headwater.format.parquet.footer import FOOTER_CHECKSUM
from headwater.format.parquet.row_group_copy import common_entries, read_raw_footer
from headwater.format.partition_metadata import encode_partition_metadata, parse_partition_metadata
from headwater.format.properties import encode_properties, parse_properties
from headwater.format.timeline.commit_json import decode_commit_json
from headwater.format.timeline.records import decode_record, encode_record
from headwater.kernel.timeline.active import parse_timeline
from headwater.kernel.timeline.history.archived_files import parse_manifest
from headwater.kernel.timeline.history.rows import (
    INSTANT_COLUMNS,
    HistoryRow,
    decode_instants,
    decode_table,
    encode_rows,
)
from headwater.kernel.txn.attempts import Attempt, Purpose, decode_attempt, encode_attempt
from headwater.kernel.txn.cancel_records import (
    AbortRecord,
    CancelCount,
    CancelEntry,
    decode_abort,
    decode_count,
    decode_entry,
    encode_abort,
    encode_count,
    encode_entry,
)
from headwater.kernel.txn.locks.lock_file import (
    Epoch,
    parse_epoch,
    parse_foreign_owner,
    parse_lock_file,
)
from headwater.kernel.txn.locks.storage_based import StorageLock, parse_storage_lock
from headwater.kernel.view.as_of import parse_as_of
from headwater.markers.batches import parse_markers
from headwater.model.commit_metadata import CommitMetadata, WriteStat
from headwater.model.files import LogFile, parse_data_file
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.seams.ids import Owner

TIME = InstantTime("20260101000000000")
LOG = LogFile("", "group-0", TIME, 1, "0-1-0")
KEY = "_hoodie_record_key"
_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_COLUMNS = pa.schema(
    {
        "id": pa.string(),
        "name": pa.string(),
        "price": pa.decimal128(10, 2),
        "tags": pa.list_(pa.string()),
        "ts": pa.timestamp("us", "UTC"),
    }
)
ROWS = pa.table(
    {
        "_hoodie_commit_time": [TIME] * 4,
        KEY: ["a", "b", "c", "d"],
        "price": [1.5, None, 0.0, 9.0],
        "tags": pa.array([["x"], [], None, ["y", "z"]], pa.list_(pa.string())),
    }
)
SCHEMA_JSON = encode_avro_schema(ROWS.schema, table="t")

TYPED_ERRORS = (HeadwaterError, MalformedAvroError, MalformedBloomError)
"""What may leave a parser; the malformed ones get their path from who called it."""


@dataclass(frozen=True, slots=True)
class Parser:
    """What is done with bytes, and some that are whole."""

    parse: Callable[[bytes], object]
    seeds: tuple[bytes, ...]


def _base_file() -> bytes:
    sink = BytesIO()
    bloom = BloomFilterBuilder(keys_per_row=4)
    write_base_file([ROWS], ROWS.schema, sink=sink, avro_schema_json=SCHEMA_JSON, bloom=bloom)
    return sink.getvalue()


def _foreign_base_file() -> bytes:
    sink = BytesIO()
    pq.write_table(ROWS.replace_schema_metadata({"hoodie_min_record_key": "a"}), sink)
    return sink.getvalue()


def _read_base_file(data: bytes) -> None:
    with read_base_file(BytesIO(data), "p") as reader:
        # Arrow ends the process over some chunks of a footer, so those of a damaged one are not
        # looked at here. In files of ours the checksum comes first.
        if FOOTER_CHECKSUM.encode() in data:
            reader.row_groups_overlapping(KEY, "a", "b")
        reader.bloom_filter()
        _ = reader.key_range, reader.nan_columns()
        reader.read()


def _read_raw_footer(data: bytes) -> None:
    footer = read_raw_footer(BytesIO(data), path="p")
    _ = footer.columns, footer.groups, footer.is_copyable
    common_entries([footer])


def _log_file(block_format: LogBlockFormat) -> bytes:
    return encode_data_block(
        ROWS, instant_time=TIME, avro_schema_json=SCHEMA_JSON, block_format=block_format
    )


def _deletes(ordering: list[pa.Array] | None) -> bytes:
    keys, partitions = pa.array(["a", "b"]), pa.array(["", ""])
    return encode_delete_block(
        keys, partitions, ordering, instant_time=TIME, avro_schema_json=SCHEMA_JSON
    )


def _read_log(data: bytes) -> None:
    storage = MemoryStorage()
    storage.put(LOG.path, data)
    read_log_parts(storage, [LOG])


def _hfile() -> bytes:
    values = pa.array([b"1", b"22", b"333"], pa.binary())
    keys = pa.array(["a", "b", "c"])
    return bytes(
        encode_hfile(keys, values, schema=SCHEMA_JSON, is_base_file=True, create_time_ms=0)
    )


def _read_hfile(data: bytes) -> None:
    HFile.of_bytes(data, path="p").read_all()


def _bloom_filter() -> bytes:
    bloom = BloomFilterBuilder(keys_per_row=4)
    bloom.add(pa.array(["a", "b"]))
    return bloom.build().to_text().encode()


def _read_bloom_filter(data: bytes) -> None:
    parse_bloom_filter(data.decode("latin-1"), "DYNAMIC_V0")


COMMIT = CommitMetadata(
    partition_to_write_stats={"p": (WriteStat(file_id="f", path="p/f"),)},
    extra_metadata={"schema": SCHEMA_JSON},
    operation_type="UPSERT",
)
ARCHIVED = HistoryRow(
    Instant(TIME, Action.COMMIT, State.COMPLETED, TIME), encode_record(COMMIT), b""
)


def _read_archive(data: bytes) -> None:
    decode_instants(decode_table(data, "p", INSTANT_COLUMNS), "p")


ATTEMPT = Attempt(
    instant=TIME,
    attempt=1,
    token="t",
    owner=Owner("host", 1, "writer"),
    purpose=Purpose.WRITE,
    started_ms=1,
    interval_ms=1,
    tolerable_misses=2,
)
ENTRY = CancelEntry(owner="o", requested_ms=1, reason="r")
ABORT = AbortRecord(entry=ENTRY, owner="o", aborted_ms=1, token="t", plan=b"plan")
LOCK_FILE = (
    b'{"owner": "o", "acquisition": "a", "token": 1, "acquiredMs": 1, "writtenMs": 1, '
    b'"leaseMs": 1, "write": 1}'
)


def _names(data: bytes) -> None:
    texts = data.decode("latin-1").split("\n")
    parse_timeline(texts)
    for text in texts:
        parse_data_file(text)


def _and_foreign(data: bytes) -> tuple[bytes, bytes]:
    """Return a file of ours, and the same without its checksum, so that all of it is parsed."""
    if data.startswith(b"#"):
        kept = [line for line in data.splitlines(keepends=True) if b"headwater.crc32" not in line]
        return data, b"".join(kept)
    if data.startswith(AVRO_MAGIC):
        return data, data.replace(data[-SYNC_SIZE_BYTES:], b"any other marker")
    fields = json.loads(data)
    del fields[CHECKSUM_FIELD]
    return data, json.dumps(fields).encode()


DEFINITIONS = {"i": IndexDefinition(index_name="i", index_type="secondary_index")}

PARSERS: dict[str, Parser] = {
    "properties": Parser(
        lambda data: parse_properties(data, path="p"),
        _and_foreign(encode_properties({"a.b": "c \u20ac", "d": "e=f"}, comment="x")),
    ),
    "partition metadata": Parser(
        lambda data: parse_partition_metadata(data, path="p"),
        _and_foreign(encode_partition_metadata("a/b", TIME)),
    ),
    "index definitions": Parser(
        lambda data: parse_index_definitions(data, table_version=9, path="p"),
        (encode_index_definitions(DEFINITIONS),),
    ),
    "commit": Parser(
        lambda data: decode_record(CommitMetadata, data, path="p"),
        _and_foreign(encode_record(COMMIT)),
    ),
    "commit in JSON": Parser(
        lambda data: decode_commit_json(CommitMetadata, data, path="p"),
        (b'{"partitionToWriteStats": {"p": [{"fileId": "f"}]}, "operationType": "UPSERT"}',),
    ),
    "Avro schema": Parser(
        lambda data: parse_avro_schema(data.decode("latin-1")), (SCHEMA_JSON.encode(),)
    ),
    "archived timeline": Parser(_read_archive, (encode_rows([ARCHIVED]),)),
    "manifest": Parser(
        lambda data: parse_manifest(data, "p"),
        (b'{"files":[{"fileName":"20260101000000000_20260101000000001_0.parquet","fileLen":5}]}',),
    ),
    "base file": Parser(_read_base_file, (_base_file(), _foreign_base_file())),
    "raw footer": Parser(_read_raw_footer, (_base_file(), _foreign_base_file())),
    "log file": Parser(
        _read_log,
        (
            _log_file(LogBlockFormat.PARQUET),
            _log_file(LogBlockFormat.AVRO),
            _deletes(None),
            _deletes([pa.array([1, 2], pa.int64())]),
        ),
    ),
    "HFile": Parser(_read_hfile, (_hfile(),)),
    "bloom filter": Parser(_read_bloom_filter, (_bloom_filter(),)),
    "files of the metadata table": Parser(
        decode_files, (encode_files({"a": FileInfo(5, False)}, RecordType.FILE_LIST),)
    ),
    "tombstones of the metadata table": Parser(
        lambda data: decode_secondary(pa.array([data], pa.binary())),
        (encode_secondary(1)[0].as_py(),),
    ),
    "markers": Parser(lambda data: parse_markers(data, "p"), (b"a/f.parquet.marker.CREATE\n",)),
    "attempt": Parser(
        lambda data: decode_attempt(data, path="p"),
        _and_foreign(encode_attempt(ATTEMPT)),
    ),
    "cancel entry": Parser(decode_entry, _and_foreign(encode_entry(ENTRY))),
    "abort": Parser(lambda data: decode_abort(data, path="p"), _and_foreign(encode_abort(ABORT))),
    "cancel count": Parser(
        decode_count, _and_foreign(encode_count(CancelCount(times=3, counted=(TIME,))))
    ),
    "lock file": Parser(lambda data: parse_lock_file(data, "p"), (LOCK_FILE,)),
    "lock of another engine": Parser(parse_foreign_owner, (b'{"ownerId": "x"}',)),
    "epoch": Parser(lambda data: parse_epoch(data, "p"), _and_foreign(Epoch(3, "a").encode())),
    "lock in storage": Parser(
        lambda data: parse_storage_lock(data, "p"),
        _and_foreign(StorageLock(expired=False, valid_until_ms=1, owner="o", token=3).encode()),
    ),
    "condition": Parser(
        lambda data: compile_condition(data.decode("latin-1"), Scope(_COLUMNS), "UTC", _NOW),
        (
            b"ts > now() - INTERVAL '7' DAYS AND price + 1 < cast('2' as decimal(10, 2))",
            b"price > 1.5 AND (id IN ('a', 'b') OR tags IS NULL)",
            b"cast(ts as date) BETWEEN DATE '2026-01-01' AND current_date() AND name LIKE 'a%'",
        ),
    ),
    "columns in DDL": Parser(
        lambda data: schema_from_ddl(data.decode("latin-1")),
        (b"id string not null, price decimal(10, 2), tags array<struct<a: map<string, int>>>",),
    ),
    "time to read as of": Parser(
        lambda data: parse_as_of(data.decode("latin-1")),
        (TIME.encode(), b"2026-01-01T00:00:00.000+02:00", b"2026-01-01"),
    ),
    "names": Parser(_names, (f"{TIME}.commit\n{TIME}_{TIME}.commit\n{LOG.name}".encode(),)),
}
