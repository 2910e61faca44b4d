"""Plans of writes: frozen values that say where each row goes, run by any engine.

A write sends every row to a file group. How the group is found depends on the index:

    bucket      the hash of the record key names the group; no look-up
    none        rows have no key of their own and go to files with room, or to new ones

A plan holds the file slices that exist as of the writer's snapshot, so that a task needs nothing
but the plan, its rows and storage.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum, unique

import pyarrow as pa

from headwater.config.files import FileConfig
from headwater.config.table import TableConfig
from headwater.config.table_options import IndexType, TableType
from headwater.model.files import FileGroupId, FileSlice
from headwater.model.instant import InstantTime

BUCKET_COUNT_DEFAULT = 4
"""Hudi's default, for a table whose config does not say."""


@unique
class Operation(StrEnum):
    """A kind of write, under the name it has in commit metadata."""

    UPSERT = "UPSERT"
    INSERT = "INSERT"
    BULK_INSERT = "BULK_INSERT"
    DELETE = "DELETE"
    OVERWRITE = "INSERT_OVERWRITE_TABLE"
    OVERWRITE_PARTITIONS = "INSERT_OVERWRITE"
    DELETE_PARTITIONS = "DELETE_PARTITION"

    @property
    def is_replacing(self) -> bool:
        """Whether the write hides file groups that exist and starts new ones instead."""
        return self in (
            Operation.OVERWRITE,
            Operation.OVERWRITE_PARTITIONS,
            Operation.DELETE_PARTITIONS,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """One write, as its tasks see it."""

    storage_uri: str
    storage_options: Mapping[str, str]
    config: TableConfig
    schema: pa.Schema
    """The data columns after this write."""
    avro_schema: str
    """The columns of the files, as Avro JSON: meta columns first, and in a partial write only those
    that the rows bring."""
    instant_time: InstantTime
    attempt: int
    operation: Operation
    files: FileConfig
    is_partial: bool = False
    """Whether columns that the rows lack keep their older values."""
    slices: Mapping[str, Mapping[int, FileSlice]]
    """Partition -> bucket, or running number, -> the slice that rows are written to."""
    known_partitions: frozenset[str]
    record_size_bytes: int

    @property
    def is_bucketed(self) -> bool:
        return self.config.index_type is IndexType.BUCKET

    @property
    def bucket_count(self) -> int:
        return self.config.bucket_count or BUCKET_COUNT_DEFAULT

    @property
    def is_bulk(self) -> bool:
        """Whether rows that start a file group go to a base file in any type of table."""
        return self.operation is Operation.BULK_INSERT or self.operation.is_replacing

    @property
    def is_merge_on_read(self) -> bool:
        return self.config.table_type is TableType.MERGE_ON_READ

    def new_group(self, partition: str, number: int, serial: int = 0) -> FileGroupId:
        """Name a new file group.

        The id is a digest of what makes it unique, so it needs no randomness and a retried task
        names the same group. The first eight characters of a bucket's id are its number.
        """
        seed = f"{self.instant_time}/{self.attempt}/{partition}/{number}/{serial}".encode()
        digest = hashlib.blake2b(seed, digest_size=16).hexdigest()
        head = f"{number:08d}" if self.is_bucketed else digest[:8]
        tail = f"{digest[8:12]}-4{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"
        return FileGroupId(partition, f"{head}-{tail}-0")


def slices_by_bucket(slices: list[FileSlice]) -> dict[str, dict[int, FileSlice]]:
    """Return partition -> bucket -> slice; the bucket is the head of the file id."""
    found: dict[str, dict[int, FileSlice]] = {}
    for file_slice in slices:
        bucket = int(file_slice.group.file_id[:8])
        found.setdefault(file_slice.group.partition, {})[bucket] = file_slice
    return found


def slices_with_room(
    slices: list[FileSlice], *, small_file_limit: int
) -> dict[str, dict[int, FileSlice]]:
    """Return partition -> running number -> slice for base files that inserts may fill up."""
    found: dict[str, dict[int, FileSlice]] = {}
    for file_slice in slices:
        base = file_slice.base
        if base is not None and not file_slice.logs and base.size_bytes < small_file_limit:
            in_partition = found.setdefault(base.partition, {})
            in_partition[len(in_partition)] = file_slice
    return found
