"""A small table of rows: what the scenarios of many writers write, and what their checks read.

Rows lie as JSON in files that have the names of real ones; commit metadata, plans and views are the
product's. A row says which instant wrote it, so that whoever reads it can tell whose it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from headwater.config.table import TableConfig, table_checksum
from headwater.errors import CorruptTableError
from headwater.format.timeline.records import decode_record
from headwater.kernel.txn.changes import WRITER_KEY
from headwater.kernel.view.commits import CompletedCommit
from headwater.model.commit_metadata import CommitMetadata, ReplaceCommitMetadata, WriteStat
from headwater.model.files import (
    BaseFile,
    DataFile,
    FileGroupId,
    FileSlice,
    LogFile,
    parse_data_file,
    write_token,
)
from headwater.model.instant import Action, Instant, InstantTime, State
from headwater.seams.storage import Storage

PARTITION = "city=sf"


class Row(NamedTuple):
    """A record. Of two with one key the larger ordering value wins, of equals the later one."""

    key: str
    order: int
    by: str  # The instant that wrote it.


Rows = Mapping[str, Row]


def config_of(table_type: str, properties: Mapping[str, str] | None = None) -> TableConfig:
    """Return the config of a small table."""
    return TableConfig.from_properties(
        {
            "hoodie.table.name": "rows",
            "hoodie.table.version": "9",
            "hoodie.table.type": table_type,
            "hoodie.table.checksum": str(table_checksum(None, "rows")),
            **(properties or {}),
        },
        path="",
    )


def encode_rows(rows: Iterable[Row]) -> bytes:
    return json.dumps(sorted(rows)).encode()


@lru_cache(maxsize=10_000)
def decode_rows(data: bytes) -> tuple[Row, ...]:
    return tuple(Row(*row) for row in json.loads(data))


def merge_rows(parts: Iterable[Iterable[Row]]) -> dict[str, Row]:
    """Merge what the files of a slice say, given in merge order (M8)."""
    merged: dict[str, Row] = {}
    for part in parts:
        for row in part:
            if row.key not in merged or merged[row.key].order <= row.order:
                merged[row.key] = row
    return merged


def read_slice(storage: Storage, file_slice: FileSlice) -> dict[str, Row]:
    return merge_rows(decode_rows(storage.read(file.path)) for file in file_slice.files())


def base_file(group: FileGroupId, time: InstantTime, attempt: int) -> BaseFile:
    return BaseFile(group.partition, group.file_id, write_token(0, attempt, 0), time)


def log_file(group: FileGroupId, time: InstantTime, attempt: int) -> LogFile:
    return LogFile(group.partition, group.file_id, time, 1, write_token(0, attempt, 0))


def attempt_of(path: str) -> tuple[str, int] | None:
    """Return the instant and attempt that a data file's name tells."""
    file = parse_data_file(path)
    return None if file is None else (file.instant_time, int(file.write_token.split("-")[1]))


def put_rows(storage: Storage, file: DataFile, rows: Iterable[Row]) -> WriteStat:
    """Write a data file and return what the commit says of it."""
    data = encode_rows(rows)
    storage.put(file.path, data)
    return stat_of(file, data)


def stat_of(file: DataFile, data: bytes) -> WriteStat:
    return WriteStat(
        file_id=file.file_id,
        path=file.path,
        partition_path=file.partition,
        log_version=file.version if isinstance(file, LogFile) else None,
        file_size_in_bytes=len(data),
    )


def metadata_of(
    operation: str, stats: Iterable[WriteStat], replaced: Iterable[FileGroupId] | None = None
) -> CommitMetadata:
    """Return what a commit says; a replacing one if the groups it replaces are given."""
    by_partition = {PARTITION: tuple(stats)}
    extra = {WRITER_KEY: "simulated"}  # Sweeping leaves alone what another engine left.
    if replaced is None:
        return CommitMetadata(
            partition_to_write_stats=by_partition, operation_type=operation, extra_metadata=extra
        )
    ids = tuple(sorted(group.file_id for group in replaced))
    return ReplaceCommitMetadata(
        partition_to_write_stats=by_partition,
        operation_type=operation,
        partition_to_replace_file_ids={PARTITION: ids},
        extra_metadata=extra,
    )


@lru_cache(maxsize=10_000)
def decode_any_commit(instant: Instant, data: bytes) -> CompletedCommit:
    """Return the commit that a completed file describes, without trust in its action's name."""
    try:
        return CompletedCommit(instant, decode_record(ReplaceCommitMetadata, data, path=""))
    except CorruptTableError:
        return CompletedCommit(instant, decode_record(CommitMetadata, data, path=""))


def files_of(content: bytes) -> list[str]:
    """Return the data files that a completed file lists."""
    nobody = Instant(InstantTime(""), Action.COMMIT, State.COMPLETED)
    stats = decode_any_commit(nobody, content).metadata.write_stats()
    return [stat.path for stat in stats if stat.path is not None]
