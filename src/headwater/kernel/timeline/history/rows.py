"""Rows of the archived timeline: one Parquet row per completed instant (format rule 3).

A row is the Avro record HoodieLSMTimelineInstant, and stock Hudi reads it through parquet-avro,
which takes the record's schema from the footer. `action` is the completed action, so a compaction
is archived as a commit; `metadata` holds the bytes of the completed file, `plan` those of the
requested one. Both are null where the file was empty. We order rows by instant time; files that
stock Hudi merged are ordered only in parts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.config.limits import memory_reached
from headwater.errors import CorruptTableError, ErrorKind, check
from headwater.format.parquet.footer import (
    DAMAGE,
    UNKNOWN_CHECKSUM,
    parse_file_end,
    read_file_end,
    stamp_checksum,
)
from headwater.format.timeline.records import RecordT, decode_record_within
from headwater.kernel.timeline.names import COMPLETED_SUFFIXES, TIME_LENGTH, is_instant_time
from headwater.model.instant import Instant, InstantTime, State
from headwater.seams.prefetch import prefetched

INSTANT_COLUMNS = ("instantTime", "completionTime", "action")
CONTENT_COLUMNS = ("instantTime", "metadata", "plan")
METADATA_COLUMNS = ("instantTime", "metadata")

_ROW_VERSION = 1

ROW_GROUP_ROWS_MAX = 1_000
"""Bounds what a merge holds uncompressed, at some kilobytes a row and megabytes at worst."""

_BUFFERED_ROWS = 64
"""Rows whose metadata is copied at once: few enough to be still in a processor's cache when they
are decoded."""

_STRING = {"type": "string", "avro.java.string": "String"}
_AVRO_SCHEMA = {
    "type": "record",
    "name": "HoodieLSMTimelineInstant",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        {"name": "instantTime", "type": ["null", _STRING], "default": None},
        {"name": "completionTime", "type": ["null", _STRING], "default": None},
        {"name": "action", "type": ["null", _STRING], "default": None},
        {"name": "metadata", "type": ["null", "bytes"], "default": None},
        {"name": "plan", "type": ["null", "bytes"], "default": None},
        {"name": "version", "type": "int", "default": _ROW_VERSION},
    ],
}
_SCHEMA = pa.schema(
    [
        pa.field("instantTime", pa.string()),
        pa.field("completionTime", pa.string()),
        pa.field("action", pa.string()),
        pa.field("metadata", pa.binary()),
        pa.field("plan", pa.binary()),
        pa.field("version", pa.int32(), nullable=False),
    ]
)


class HistoryRow(NamedTuple):
    """A completed instant with what its files said; empty bytes stand for an empty file."""

    instant: Instant
    metadata: bytes
    plan: bytes


class ArchivedContents(NamedTuple):
    """What the files of an archived instant said, and the data file that says so now."""

    metadata: bytes
    plan: bytes
    path: str


class ArchivedMetadata(NamedTuple):
    """Where the metadata of an archived instant lies; empty for an empty file."""

    data: bytes
    start: int
    end: int
    path: str

    def decode(self, cls: type[RecordT]) -> RecordT:
        """Decode the metadata.

        Raises:
            CorruptTableError: it is damaged.
        """
        return decode_record_within(cls, self.data, self.start, self.end, path=self.path)


def encode_rows(rows: Sequence[HistoryRow]) -> bytes:
    """Encode rows that are ordered by instant time as a data file."""
    times = [row.instant.requested_time for row in rows]
    check(times == sorted(set(times)), "Archived rows are ordered and distinct")
    columns = [
        times,
        [row.instant.completion_time for row in rows],
        [row.instant.action.completed_name.value for row in rows],
        [row.metadata or None for row in rows],
        [row.plan or None for row in rows],
        [_ROW_VERSION] * len(rows),
    ]
    return encode_tables([pa.table(columns, schema=_SCHEMA)])


def encode_tables(tables: Iterable[pa.Table]) -> bytes:
    """Encode tables of rows, one after the other, as one data file."""
    sink = pa.BufferOutputStream()
    # Contents begin with kilobytes of the same schema, which Zstandard takes to almost nothing.
    # Checksums let a reader tell damage from data.
    with pq.ParquetWriter(
        sink,
        _SCHEMA,
        compression="zstd",
        use_dictionary=["action"],
        write_statistics=["instantTime", "completionTime"],
        write_page_checksum=True,
        store_schema=False,
    ) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=ROW_GROUP_ROWS_MAX)
        entries = {"parquet.avro.schema": json.dumps(_AVRO_SCHEMA), **UNKNOWN_CHECKSUM}
        writer.add_key_value_metadata(entries)
    data = sink.getvalue()
    stamp_checksum(memoryview(data))
    encoded: bytes = data.to_pybytes()
    return encoded


def open_data_file(data: bytes | bytearray, path: str) -> pq.ParquetFile:
    """Parse the footer of a data file.

    Raises:
        CorruptTableError: it is no data file, or a column is missing.
    """
    with _naming_damage(path):
        source = pa.BufferReader(data)
        footer = parse_file_end(read_file_end(source))
        file = pq.ParquetFile(source, metadata=footer, page_checksum_verification=True)
    missing = set(_SCHEMA.names).difference(file.schema_arrow.names)
    if missing:
        raise _corrupt(path, f"it has no column {', '.join(sorted(missing))}")
    return file


def decode_table(data: bytes | bytearray, path: str, columns: Sequence[str]) -> pa.Table:
    """Return some columns of a data file.

    Only the footer and these columns are looked at, so the other bytes may be missing.

    Raises:
        CorruptTableError: the file is damaged.
    """
    file = open_data_file(data, path)
    with _naming_damage(path):
        return file.read(columns=list(columns), use_threads=False)


def decode_portions(
    data: bytes | bytearray, path: str, columns: Sequence[str]
) -> Iterator[pa.Table]:
    """Give some columns of a data file, one row group after the other; else as `decode_table`.

    The next row group is decompressed while the one before is in use.
    """
    file = open_data_file(data, path)

    def portions() -> Iterator[pa.Table]:
        with _naming_damage(path):
            for group in range(file.num_row_groups):
                yield file.read_row_group(group, columns=list(columns), use_threads=False)

    return prefetched(portions()) if file.num_row_groups > 1 else portions()


def decode_ordered(data: bytes, path: str) -> Iterator[pa.Table]:
    """Give all rows of a data file, ordered by instant time, in portions.

    Raises:
        CorruptTableError: the file is damaged.
    """
    file = open_data_file(data, path)
    with _naming_damage(path):
        times = file.read(columns=["instantTime"], use_threads=False).column(0)
        is_ordered = pc.all(pc.less_equal(times[:-1], times[1:]), min_count=0).as_py()
    for group in range(file.num_row_groups) if is_ordered else ():
        with _naming_damage(path):
            table = file.read_row_group(group, columns=_SCHEMA.names, use_threads=False)
            table = table.cast(_SCHEMA)
        yield table
    if not is_ordered:
        with _naming_damage(path):
            table = decode_table(data, path, _SCHEMA.names).cast(_SCHEMA).sort_by("instantTime")
        yield table


def decode_instants(table: pa.Table, path: str) -> list[Instant]:
    """Return the instants of rows that have the `INSTANT_COLUMNS`.

    A row without completion time was archived by a release that had none; it counts as completed
    at its requested time, as in stock Hudi.

    Raises:
        CorruptTableError: a row has no instant times, or an action that nobody knows.
    """
    times, completions, names = _lists(table, INSTANT_COLUMNS)
    if None in completions:
        completions = [at or time for at, time in zip(completions, times, strict=True)]
    if not (_are_usual(table, "instantTime") and _are_usual(table, "completionTime")):
        for time in (*times, *completions):
            if time is None or not is_instant_time(time):
                raise _corrupt(path, f"it has {time!r} where an instant time belongs")
    for name in set(names).difference(COMPLETED_SUFFIXES):
        time = times[names.index(name)]
        raise _corrupt(path, f"its instant {time} is a {name!r}, which is no completed action")
    actions = map(COMPLETED_SUFFIXES.__getitem__, names)
    return list(map(Instant, times, actions, repeat(State.COMPLETED), completions))


def decode_contents(table: pa.Table, path: str) -> Iterator[tuple[InstantTime, ArchivedContents]]:
    """Give the instants of rows that have the `CONTENT_COLUMNS`, and their contents."""
    for time, metadata, plan in zip(*_lists(table, CONTENT_COLUMNS), strict=True):
        yield time, ArchivedContents(metadata or b"", plan or b"", path)


def decode_metadata(table: pa.Table, path: str) -> Iterator[tuple[InstantTime, ArchivedMetadata]]:
    """Give the instants of rows that have the `METADATA_COLUMNS`, and where their metadata lies.

    The metadata of some rows stays in one buffer: copying each out costs as much as reading it.
    """
    for batch in table.to_batches(max_chunksize=_BUFFERED_ROWS):
        times, column = batch.column("instantTime").to_pylist(), batch.column("metadata")
        _, offsets, values = column.buffers()
        bounds = np.frombuffer(offsets, np.int32)[column.offset :][: len(column) + 1]
        first, last = int(bounds[0]), int(bounds[-1])
        data = values.slice(first, last - first).to_pybytes() if last > first else b""
        spans = (bounds - first).tolist()
        for time, start, end in zip(times, spans, spans[1:], strict=False):
            yield time, ArchivedMetadata(data, start, end, path)


def check_agreement(one: Instant, other: Instant, path: str) -> None:
    """Check that two rows of one instant say the same, as the rows of a final outcome must.

    Raises:
        CorruptTableError: they do not.
    """
    if one != other:
        raise CorruptTableError(
            f"The archived timeline has instant {one.requested_time} both as a {one.action} "
            f"completed at {one.completion_time} and as a {other.action} completed at "
            f"{other.completion_time}. Find out which one is right, and move the other away",
            kind=ErrorKind.CORRUPT_TIMELINE,
            instant=one.requested_time,
            path=path,
        )


def _are_usual(table: pa.Table, column: str) -> bool:
    """Whether all times of a column are 17 digits, none missing; asked of all of them at once."""
    times = table.column(column)
    if times.null_count:
        return False
    # Comparing with a number makes a scalar of it, and for the first one pyarrow imports pandas,
    # which takes longer than reading ten thousand instants.
    lengths = pc.min_max(pc.binary_length(times)).as_py()
    is_usual = set(lengths.values()) <= {TIME_LENGTH, None}
    return is_usual and bool(pc.all(pc.ascii_is_decimal(times), min_count=0).as_py())


def _lists(table: pa.Table, columns: Sequence[str]) -> list[list[Any]]:
    return [table.column(column).to_pylist() for column in columns]


@contextmanager
def _naming_damage(path: str) -> Iterator[None]:
    try:
        yield
    except MemoryError as error:
        raise memory_reached(path, error) from error
    except (*DAMAGE, OSError) as error:
        # Arrow reports damage found by the Parquet reader as an OSError; the bytes are in memory.
        raise _corrupt(path, str(error).strip()) from error


def _corrupt(path: str, reason: str) -> CorruptTableError:
    return CorruptTableError(
        f"{path} of the archived timeline is damaged: {reason}. Restore it from a copy; without "
        "it the instants in it count as never committed",
        kind=ErrorKind.CORRUPT_TIMELINE,
        path=path,
    )
