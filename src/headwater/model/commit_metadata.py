"""What a write did: the record inside commit, delta commit and replace commit files.

Field defaults are the values Hudi itself writes when it has nothing to say: counters are 0, the
version is null. Maps are plain dicts behind a read-only type; nobody changes them after creation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeStats:
    """Milliseconds spent on the parts of writing one file."""

    total_scan_time: int | None = 0
    total_create_time: int | None = 0
    total_upsert_time: int | None = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStat:
    """What happened to one file.

    `path` is relative to the table's base. `prev_commit` is the text `null` for a new file group,
    otherwise the instant of the slice before; a log file names its own instant.
    """

    file_id: str | None = None
    path: str | None = None
    prev_commit: str | None = None
    num_writes: int | None = 0
    num_deletes: int | None = 0
    num_update_writes: int | None = 0
    total_write_bytes: int | None = 0
    total_write_errors: int | None = 0
    partition_path: str | None = None
    total_log_records: int | None = 0
    total_log_files: int | None = None
    total_updated_records_compacted: int | None = 0
    num_inserts: int | None = 0
    total_log_blocks: int | None = 0
    total_corrupt_log_block: int | None = 0
    total_rollback_blocks: int | None = 0
    file_size_in_bytes: int | None = 0
    log_version: int | None = None
    log_offset: int | None = None
    base_file: str | None = None
    log_files: tuple[str, ...] | None = None
    cdc_stats: Mapping[str, int] | None = None
    prev_base_file: str | None = None
    min_event_time: int | None = None
    max_event_time: int | None = None
    runtime_stats: RuntimeStats | None = None
    total_log_files_compacted: int | None = 0
    total_log_read_time_ms: int | None = 0
    total_log_size_compacted: int | None = 0
    temp_path: str | None = None
    num_updates: int | None = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitMetadata:
    """The write stats of a commit by partition path, and what the writer added for others."""

    partition_to_write_stats: Mapping[str, tuple[WriteStat, ...]] | None = field(
        default_factory=dict
    )
    compacted: bool | None = False
    extra_metadata: Mapping[str, str] | None = field(default_factory=dict)
    version: int | None = None
    operation_type: str | None = None

    def write_stats(self) -> Iterator[WriteStat]:
        """Give the write stats of all partitions, in the order of the file."""
        for stats in (self.partition_to_write_stats or {}).values():
            yield from stats


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceCommitMetadata(CommitMetadata):
    """A commit that also hides file groups: the ids it replaced, by partition path."""

    partition_to_replace_file_ids: Mapping[str, tuple[str, ...]] | None = field(
        default_factory=dict
    )
