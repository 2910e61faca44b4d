"""Files of the metadata table: what they are called, and what its commits say about them.

A partition of the metadata table is a folder of file groups, numbered from 0 (format rules 8.2 and
8.5). Paths here are relative to the metadata table's own base unless a function says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.format.metadata.schema import METADATA_SCHEMA
from headwater.format.timeline.records import encode_record
from headwater.kernel.layout import METADATA
from headwater.kernel.txn.attempts import Attempt
from headwater.kernel.txn.index_births import IndexBirth
from headwater.kernel.txn.metadata_commit import COVERED_KEY
from headwater.metadata.partition_kinds import FILES, file_id, group_number
from headwater.model.commit_metadata import CommitMetadata, RuntimeStats, WriteStat
from headwater.model.files import BaseFile, DataFile, LogFile, parse_data_file, write_token
from headwater.model.instant import Action, Instant, InstantTime
from headwater.seams.storage import Storage

UPSERT = "UPSERT_PREPPED"
BULK_INSERT = "BULK_INSERT_PREPPED"
COMPACT = "COMPACT"

FIRST_LOG_VERSION = 1
INITIAL_TOKEN = write_token(0, 0, 0)
"""Of the log with which a file group begins. Attempts count from 1."""

_CATCHUP = 1
_ATTEMPTS_TOLD_APART = 1024
_PLANS_TOLD_APART = 1_048_573
"""A prime; a token's numbers are below 2 ** 31."""

FIRST_BOOTSTRAP_TIME = InstantTime("0" * 17)
_BOOTSTRAP_PREFIX = "0" * 8
"""No data instant is of the year 0."""


def is_bootstrap_time(time: InstantTime) -> bool:
    """Whether an instant of the metadata table built a partition, and is none of the table's."""
    return time.startswith(_BOOTSTRAP_PREFIX)


def is_own(instant: Instant) -> bool:
    """Whether an instant is the metadata table's own, of which the data table knows nothing.

    All others are delta commits with the time of an instant of the data table.
    """
    is_delta = instant.action is Action.DELTA_COMMIT
    return not is_delta or is_bootstrap_time(instant.requested_time)


def is_initial_log(file: DataFile) -> bool:
    """Whether a file is the log with which a file group begins, and says nothing."""
    return isinstance(file, LogFile) and file.write_token == INITIAL_TOKEN


def catchup_token(group: int, attempt: Attempt | None = None) -> str:
    """Return the write token of a log that the builder of an index writes in an instant's place.

    It completed before the index was announced, or its engine did not look in time.

    Args:
        attempt: that of the plan, on a fenced table: two builders of which one stood still must
            not write to the same name. Without it the lock keeps them apart.
    """
    if attempt is None:
        return write_token(group, 0, _CATCHUP)
    number = _plan_number(attempt.instant) * _ATTEMPTS_TOLD_APART
    return write_token(group, 0, number + attempt.attempt % _ATTEMPTS_TOLD_APART)


def is_catchup_log(file: DataFile) -> bool:
    """Whether a log was written in its instant's place: its commit lacks it, and it counts."""
    return _catchup_number(file) > 0


def _catchup_number(file: DataFile) -> int:
    parts = file.write_token.split("-")
    if len(parts) != 3:
        return 0
    _, stage, number = parts
    is_number = isinstance(file, LogFile) and stage == "0" and number.isdecimal()
    return int(number) if is_number else 0


def _plan_number(plan: InstantTime) -> int:
    """Return what tells plans of one index apart, so small that Hudi reads it as a number."""
    return 1 + int(plan) % _PLANS_TOLD_APART


def is_of_birth(file: DataFile, birth: IndexBirth) -> bool:
    """Whether a file belongs to the index of a plan, and not to one that had its name before.

    Who stood still may add such a file at any time. Logs of writers need no look: those from before
    the plan lie below its base files, and later ones are for it.
    """
    if birth.group_count and group_number(file.file_id) >= birth.group_count:
        return False
    return not is_of_earlier_plan(file, birth)


def is_of_earlier_plan(file: DataFile, birth: IndexBirth) -> bool:
    """Whether a file was written for an index that had the name before, and never counts again.

    One of a group that the index does not have may as well be of a plan that comes after it.
    """
    if isinstance(file, BaseFile) or is_initial_log(file):
        return file.instant_time < birth.plan
    number = _catchup_number(file)
    return number != 0 and number // _ATTEMPTS_TOLD_APART != _plan_number(birth.plan)


def log_stat(file: LogFile, *, written: int, deleted: int) -> WriteStat:
    """Return what a delta commit says about a log file."""
    return WriteStat(
        file_id=file.file_id,
        path=file.path,
        prev_commit=file.instant_time,
        num_writes=written,
        num_deletes=deleted,
        num_update_writes=written,
        total_write_bytes=file.size_bytes,
        partition_path=file.partition,
        file_size_in_bytes=file.size_bytes,
        log_version=file.version,
        log_offset=0,
        base_file="",
        log_files=(file.name,),
        runtime_stats=RuntimeStats(),
    )


def base_stat(
    file: BaseFile, *, written: int, before: BaseFile | None = None, logs: Iterable[LogFile] = ()
) -> WriteStat:
    """Return what a commit says about a base file, made of the one before and of its logs."""
    taken = tuple(logs)
    return WriteStat(
        file_id=file.file_id,
        path=file.path,
        prev_commit="null" if before is None else before.instant_time,
        num_writes=written,
        num_inserts=written,
        total_write_bytes=file.size_bytes,
        partition_path=file.partition,
        total_log_blocks=len(taken),
        file_size_in_bytes=file.size_bytes,
        prev_base_file=None if before is None else before.name,
        runtime_stats=RuntimeStats(),
        total_log_files_compacted=len(taken),
        total_log_size_compacted=sum(log.size_bytes for log in taken),
    )


def encode_metadata_commit(
    stats: Iterable[WriteStat], operation: str, *, covered: Iterable[str] = ()
) -> bytes:
    """Encode the content of a completed instant of the metadata table.

    `covered` are the partitions that the instant has told all there is to tell (H-48).
    """
    by_partition: dict[str, list[WriteStat]] = {}
    for stat in stats:
        by_partition.setdefault(stat.partition_path or "", []).append(stat)
    names = ",".join(sorted(covered))
    return encode_record(
        CommitMetadata(
            partition_to_write_stats={name: tuple(by_partition[name]) for name in by_partition},
            compacted=operation == COMPACT,
            extra_metadata={"schema": METADATA_SCHEMA, **({COVERED_KEY: names} if names else {})},
            operation_type=operation,
        )
    )


def covered_partitions(metadata: CommitMetadata) -> frozenset[str]:
    """Return which partitions a delta commit of the metadata table has covered.

    Stock Hudi does not say; there it is the partitions that it wrote to.
    """
    names = (metadata.extra_metadata or {}).get(COVERED_KEY)
    if names is None:
        return frozenset(metadata.partition_to_write_stats or {})
    return frozenset(name for name in names.split(",") if name)


def list_groups(storage: Storage, partition: str, birth: IndexBirth | None = None) -> list[str]:
    """Return the file ids of a partition's file groups, by their numbers; [] if it is not there.

    `storage` is the data table's. The files partition has one group always, and of an index that
    has a birth the groups were made before it, so nobody looks.
    """
    if partition == FILES:
        return [file_id(FILES, 0)]
    if birth is not None and birth.group_count:
        return [file_id(partition, group) for group in range(birth.group_count)]
    found: set[str] = set()
    for name in storage.list_names(f"{METADATA}/{partition}"):
        # The names of a group's dozens of files all begin with its id, so one of them is parsed.
        if name.rsplit("_", 2)[0].removeprefix(".") in found:
            continue
        file = parse_data_file(name)
        if file is not None:
            found.add(file.file_id)
    return sorted(found, key=group_number)
