"""Plans: what a service intends to do, written into its requested file before it starts.

Field defaults are the values Hudi itself writes when a planner has nothing to say; what Avro
demands has none. Maps are plain dicts behind a read-only type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOperation:
    """Compact one file slice. Since plan version 2 the paths are bare file names.

    `data_file_path` is null for a slice without base file; `base_instant_time` is then the instant
    of its first log file.
    """

    base_instant_time: str | None
    delta_file_paths: tuple[str, ...] | None = ()
    data_file_path: str | None = None
    file_id: str | None
    partition_path: str | None = None
    metrics: Mapping[str, float] | None = field(default_factory=dict)
    bootstrap_file_path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionStrategy:
    compactor_class_name: str | None = None
    strategy_params: Mapping[str, str] | None = field(default_factory=dict)
    version: int | None = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """The plan of a compaction or a log compaction."""

    operations: tuple[CompactionOperation, ...] | None = ()
    extra_metadata: Mapping[str, str] | None = field(default_factory=dict)
    version: int | None = 2
    strategy: CompactionStrategy | None = None
    preserve_hoodie_metadata: bool | None = False
    missing_schedule_partitions: tuple[str, ...] | None = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceInfo:
    """One file slice to cluster; its paths are full URIs."""

    data_file_path: str | None = None
    delta_file_paths: tuple[str, ...] | None = ()
    file_id: str | None
    partition_path: str | None = None
    bootstrap_file_path: str | None = ""
    version: int | None = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringGroup:
    """Slices that are rewritten together by one task."""

    slices: tuple[SliceInfo, ...] | None = ()
    metrics: Mapping[str, float] | None = field(default_factory=dict)
    num_output_file_groups: int | None = 1
    extra_metadata: Mapping[str, str] | None = None
    version: int | None = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringStrategy:
    strategy_class_name: str | None = None
    strategy_params: Mapping[str, str] | None = field(default_factory=dict)
    version: int | None = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringPlan:
    input_groups: tuple[ClusteringGroup, ...] | None = ()
    strategy: ClusteringStrategy | None = None
    extra_metadata: Mapping[str, str] | None = field(default_factory=dict)
    version: int | None = 1
    preserve_hoodie_metadata: bool | None = True
    missing_schedule_partitions: tuple[str, ...] | None = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedReplace:
    """The request of a clustering, or of an overwrite, where all four fields stay null."""

    operation_type: str | None = None
    clustering_plan: ClusteringPlan | None = None
    extra_metadata: Mapping[str, str] | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstantInfo:
    """An instant as rollbacks and restores name it."""

    commit_time: str
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackRequest:
    """Files of one partition to delete, by full path."""

    partition_path: str
    file_id: str | None = ""
    latest_base_instant: str | None = ""
    files_to_be_deleted: tuple[str, ...] = ()
    log_blocks_to_be_deleted: Mapping[str, int] | None = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackPlan:
    instant_to_rollback: InstantInfo | None = None
    rollback_requests: tuple[RollbackRequest, ...] | None = ()
    version: int | None = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionInstant:
    """An instant as the cleaner names it. `state` is in capitals, as in `COMPLETED`."""

    timestamp: str
    action: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanFileInfo:
    file_path: str | None = None
    is_bootstrap_base_file: bool | None = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerPlan:
    """Files to clean by partition path. The first of the two maps is the deprecated form."""

    earliest_instant_to_retain: ActionInstant | None = None
    last_completed_commit_timestamp: str = ""
    policy: str
    files_to_be_deleted_per_partition: Mapping[str, tuple[str, ...]] | None = field(
        default_factory=dict
    )
    version: int | None = 2
    file_paths_to_be_deleted_per_partition: Mapping[str, tuple[CleanFileInfo, ...]] | None = field(
        default_factory=dict
    )
    partitions_to_be_deleted: tuple[str, ...] | None = ()
    extra_metadata: Mapping[str, str] | None = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """Instants to roll back until the table is as it was at the savepoint."""

    instants_to_rollback: tuple[InstantInfo, ...] = ()
    version: int | None = 2
    savepoint_to_restore_timestamp: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPartitionInfo:
    """A metadata-table partition and the last instant its building covers."""

    version: int | None = 1
    metadata_partition_path: str | None = None
    index_upto_instant: str | None = None
    extra_metadata: Mapping[str, str] | None = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPlan:
    version: int | None = 1
    index_partition_infos: tuple[IndexPartitionInfo, ...] | None = ()
