"""What a table service did: the records inside its completed file.

Field defaults are the values Hudi itself writes when a service has nothing to say; what Avro
demands has none. Maps are plain dicts behind a read-only type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.model.plans import IndexPartitionInfo, InstantInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackPartitionMetadata:
    """Files of one partition that a rollback deleted, by full path."""

    partition_path: str
    success_delete_files: tuple[str, ...]
    failed_delete_files: tuple[str, ...]
    rollback_log_files: Mapping[str, int] | None = field(default_factory=dict)
    log_files_from_failed_commit: Mapping[str, int] | None = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackMetadata:
    """A finished rollback. Partition paths are keys; a table without partitions has one, empty."""

    start_rollback_time: str
    time_taken_in_millis: int
    total_files_deleted: int
    commits_rollback: tuple[str, ...]
    partition_metadata: Mapping[str, RollbackPartitionMetadata]
    version: int | None = 1
    instants_rollback: tuple[InstantInfo, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanPartitionMetadata:
    partition_path: str
    policy: str
    delete_path_patterns: tuple[str, ...]
    success_delete_files: tuple[str, ...]
    failed_delete_files: tuple[str, ...]
    is_partition_deleted: bool | None = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanMetadata:
    """A finished clean."""

    start_clean_time: str
    time_taken_in_millis: int
    total_files_deleted: int
    earliest_commit_to_retain: str
    last_completed_commit_timestamp: str = ""
    partition_metadata: Mapping[str, CleanPartitionMetadata]
    version: int | None = 2
    bootstrap_partition_metadata: Mapping[str, CleanPartitionMetadata] | None = field(
        default_factory=dict
    )
    extra_metadata: Mapping[str, str] | None = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavepointPartitionMetadata:
    partition_path: str
    savepoint_data_file: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavepointMetadata:
    """The files that belong to a savepoint; `savepointed_at` is in milliseconds."""

    savepointed_by: str
    savepointed_at: int
    comments: str
    partition_metadata: Mapping[str, SavepointPartitionMetadata]
    version: int | None = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreMetadata:
    """A finished restore: the rollbacks it made, by the instant each one rolled back."""

    start_restore_time: str
    time_taken_in_millis: int
    instants_to_rollback: tuple[str, ...]
    hoodie_restore_metadata: Mapping[str, tuple[RollbackMetadata | None, ...]]
    version: int | None = 1
    restore_instant_info: tuple[InstantInfo, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexCommitMetadata:
    """A finished index build."""

    version: int | None = 1
    operation_type: str | None = None
    index_partition_infos: tuple[IndexPartitionInfo, ...] | None = ()
