"""What tasks that write file groups anew share: what they are told, and how they write files.

A task may run twice, also at the same time on two machines. So every file carries the attempt and
the task in its name and is announced by a marker first, and only what its returned stats list
counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from headwater.arrow.fold import Tombstones
from headwater.arrow.meta_columns import schema_with_meta_columns
from headwater.config.files import FileConfig
from headwater.config.table import TableConfig
from headwater.engine.engine import TaskContext
from headwater.errors import CorruptTableError, ErrorKind
from headwater.files.base_files import new_bloom_filter
from headwater.format.avro.schema import encode_avro_schema
from headwater.format.log.blocks import encode_delete_blocks, log_file_bytes
from headwater.format.parquet.base_file import BaseFileStats, write_base_file
from headwater.kernel.txn.attempts import Attempt
from headwater.kernel.txn.changes import WRITER_KEY
from headwater.kernel.txn.markers import DirectMarkers, Marker, MarkerKind
from headwater.model.commit_metadata import WriteStat
from headwater.model.files import (
    BaseFile,
    FileGroupId,
    FileSlice,
    LogFile,
    parse_data_file,
    write_token,
)
from headwater.model.instant import InstantTime
from headwater.model.plans import CompactionOperation
from headwater.operations.committing import SCHEMA_KEY, TOKEN_KEY
from headwater.operations.tasks.group_writer import NO_PREVIOUS_COMMIT
from headwater.seams.open_storage import open_storage
from headwater.seams.prefetched_storage import PrefetchedStorage
from headwater.seams.storage import Storage
from headwater.slice.reader import SliceReader

MEGABYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteJob:
    """What all tasks of one execution share: frozen and picklable, so that any engine runs them."""

    storage_uri: str
    storage_options: Mapping[str, str] = field(repr=False)
    config: TableConfig
    files: FileConfig
    schema: pa.Schema
    """The table's data columns."""
    instant_time: InstantTime
    attempt: int

    @property
    def file_schema(self) -> pa.Schema:
        """The columns of files: meta columns first."""
        return schema_with_meta_columns(self.schema)

    @property
    def avro_schema(self) -> str:
        return encode_avro_schema(self.file_schema, table=self.config.name)

    def slice_reader(self, storage: Storage) -> SliceReader:
        """Return what reads the slices that the tasks write anew."""
        return SliceReader.of_table(
            storage, self.config, self.schema, merge_function=self.files.merge_function
        )


class RewriteOutput:
    """Where one task writes, and how it reads what it writes anew."""

    def __init__(self, job: RewriteJob, context: TaskContext, small: Iterable[str] = ()) -> None:
        """`small` are files that the task reads, and that are fetched together from far away."""
        self.storage = open_storage(job.storage_uri, job.storage_options)
        near = PrefetchedStorage(self.storage, small) if self.storage.is_distant else self.storage
        self.slice_reader = job.slice_reader(near)
        self._job = job
        self._token = write_token(context.task, job.attempt, context.task_attempt)
        self._markers = DirectMarkers(self.storage, job.instant_time)

    def base_file(self, group: FileGroupId) -> BaseFile:
        return BaseFile(*group, self._token, self._job.instant_time)

    def log_file(self, group: FileGroupId) -> LogFile:
        return LogFile(*group, self._job.instant_time, 1, self._token)

    def announce(self, file: BaseFile | LogFile, kind: MarkerKind) -> None:
        """Say that a file is about to be written."""
        self._markers.create(Marker(file.path, kind))

    def write_base(
        self,
        base: BaseFile,
        kind: MarkerKind,
        batches: Iterable[pa.RecordBatch | pa.Table],
        *,
        row_count_max: int,
    ) -> BaseFileStats:
        """Write a base file of at most so many rows."""
        self.announce(base, kind)
        with self.storage.open_output(base.path) as sink:
            return write_base_file(
                batches,
                self._job.file_schema,
                sink=sink,
                avro_schema_json=self._job.avro_schema,
                codec=self._job.files.compression,
                bloom=new_bloom_filter(self._job.config, self._job.files, row_count_max),
            )

    def put_log(self, file: LogFile, data: bytes) -> None:
        self.announce(file, MarkerKind.CREATE)
        self.storage.create_many({file.path: data})


def put_kept_deletes(
    output: RewriteOutput, job: RewriteJob, group: FileGroupId, deletes: Tombstones
) -> WriteStat:
    """Write deletes that still count into a log file beside a new base file (H-39)."""
    blocks = encode_delete_blocks(
        deletes.record_keys,
        deletes.partition_paths,
        deletes.ordering,
        instant_time=job.instant_time,
        avro_schema_json=job.avro_schema,
    )
    file = output.log_file(group)
    data = log_file_bytes(blocks)
    output.put_log(file, data)
    return replace(log_stat(file, len(data)), num_deletes=len(deletes.record_keys))


def base_stat(base: BaseFile, *, row_count: int, size_bytes: int) -> WriteStat:
    """Return what a commit says of a base file; of a new group, as far as this tells."""
    return WriteStat(
        file_id=base.file_id,
        path=base.path,
        partition_path=base.partition,
        prev_commit=NO_PREVIOUS_COMMIT,
        num_writes=row_count,
        num_inserts=row_count,
        total_write_bytes=size_bytes,
        file_size_in_bytes=size_bytes,
    )


def log_stat(file: LogFile, size_bytes: int) -> WriteStat:
    """Return what a commit says of a log file."""
    return WriteStat(
        file_id=file.file_id,
        path=file.path,
        partition_path=file.partition,
        prev_commit=file.instant_time,
        total_write_bytes=size_bytes,
        file_size_in_bytes=size_bytes,
        log_version=file.version,
        log_offset=0,
        base_file="",
        log_files=(file.name,),
    )


def by_partition(stats: Iterable[WriteStat]) -> dict[str, tuple[WriteStat, ...]]:
    found: dict[str, list[WriteStat]] = {}
    for stat in stats:
        found.setdefault(stat.partition_path or "", []).append(stat)
    return {partition: tuple(some) for partition, some in found.items()}


def commit_extra(job: RewriteJob, attempt: Attempt) -> dict[str, str]:
    """Return what a commit says beside its stats: the columns, and whose it is."""
    return {
        SCHEMA_KEY: encode_avro_schema(job.schema, table=job.config.name),
        WRITER_KEY: str(attempt.owner),
        TOKEN_KEY: attempt.token,
    }


def io_metrics(slices: Collection[FileSlice]) -> dict[str, float]:
    """Return what reading slices and writing them anew costs, under the names Hudi gives it."""
    logs = [file for one in slices for file in one.logs]
    log_bytes = sum(file.size_bytes for file in logs)
    base_bytes = sum(one.base.size_bytes for one in slices if one.base is not None)
    read_mb = (base_bytes + log_bytes) // MEGABYTE
    # What the new files will have is not known: about what the old ones have, or else the logs.
    write_mb = (base_bytes or log_bytes) // MEGABYTE
    return {
        "TOTAL_LOG_FILES": float(len(logs)),
        "TOTAL_LOG_FILES_SIZE": float(log_bytes),
        "TOTAL_IO_READ_MB": float(read_mb),
        "TOTAL_IO_WRITE_MB": float(write_mb),
        "TOTAL_IO_MB": float(read_mb + write_mb),
    }


def planned_bytes(metrics: Iterable[Mapping[str, float] | None]) -> int:
    """Return about how many bytes of files a plan reads, by its metrics.

    They are in whole megabytes, so each counts for half a megabyte more than it says.
    """
    megabytes = sum((one or {}).get("TOTAL_IO_READ_MB", 0.0) + 0.5 for one in metrics)
    return int(megabytes * MEGABYTE)


def operation_of_slice(one: FileSlice) -> CompactionOperation:
    """Return what a compaction plan says of a slice; its files by bare name, in merge order."""
    return CompactionOperation(
        base_instant_time=one.base_instant,
        delta_file_paths=tuple(log.name for log in one.logs),
        data_file_path=None if one.base is None else one.base.name,
        file_id=one.group.file_id,
        partition_path=one.group.partition,
        metrics=io_metrics([one]),
    )


def slice_of_operation(operation: CompactionOperation) -> FileSlice:
    """Return the slice that a compaction plan names.

    Raises:
        CorruptTableError: kind CORRUPT_TIMELINE; it names a file of another group.
    """
    group = FileGroupId(operation.partition_path or "", operation.file_id or "")
    return slice_of_names(group, operation.data_file_path, operation.delta_file_paths or ())


def slice_of_names(group: FileGroupId, base: str | None, logs: Iterable[str]) -> FileSlice:
    """Return the slice of some files, given by bare name or whole path, in their order.

    Raises:
        CorruptTableError: kind CORRUPT_TIMELINE; a name is not that of such a file of the group.
    """
    named = _named(group, base) if base else None
    above = tuple(_named(group, name) for name in logs)
    files = [file for file in (named, *above) if file is not None]
    is_base_first = all(isinstance(file, LogFile) for file in above)
    if not files or isinstance(named, LogFile) or not is_base_first:
        raise _not_a_slice(group, ", ".join(file.name for file in files))
    instant = files[0].instant_time if named else min(file.instant_time for file in files)
    return FileSlice(
        group, instant, named, tuple(file for file in above if isinstance(file, LogFile))
    )


def _named(group: FileGroupId, path: str) -> BaseFile | LogFile:
    name = path.rpartition("/")[2]
    file = parse_data_file(f"{group.partition}/{name}" if group.partition else name)
    if file is None or file.group != group:
        raise _not_a_slice(group, path)
    return file


def _not_a_slice(group: FileGroupId, named: str) -> CorruptTableError:
    return CorruptTableError(
        f"A plan names {named!r} as a slice of file group {group}, which it is not. Find out who "
        "made the plan before anything is written",
        kind=ErrorKind.CORRUPT_TIMELINE,
        file_group=str(group),
    )
