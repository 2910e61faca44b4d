"""The Avro schemas of the timeline's records, equal to the ones Hudi puts into its files.

Each schema is declared once and bound to the dataclass that holds its values. Avro's `fileId` is
Python's `file_id`; that rule has no exceptions, so names are written down only here.

Equal means the same text: attribute order, `avro.java.string`, docs, and a few attributes that
mean nothing in Avro (a `default` inside an array or map type) but stand in Hudi's files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, TypeAlias

from headwater.model.commit_metadata import (
    CommitMetadata,
    ReplaceCommitMetadata,
    RuntimeStats,
    WriteStat,
)
from headwater.model.plans import (
    ActionInstant,
    CleanerPlan,
    CleanFileInfo,
    ClusteringGroup,
    ClusteringPlan,
    ClusteringStrategy,
    CompactionOperation,
    CompactionPlan,
    CompactionStrategy,
    IndexPartitionInfo,
    IndexPlan,
    InstantInfo,
    RequestedReplace,
    RestorePlan,
    RollbackPlan,
    RollbackRequest,
    SliceInfo,
)
from headwater.model.service_metadata import (
    CleanMetadata,
    CleanPartitionMetadata,
    IndexCommitMetadata,
    RestoreMetadata,
    RollbackMetadata,
    RollbackPartitionMetadata,
    SavepointMetadata,
    SavepointPartitionMetadata,
)

NAMESPACE = "org.apache.hudi.avro.model"

Record: TypeAlias = (
    CommitMetadata
    | ReplaceCommitMetadata
    | CompactionPlan
    | RequestedReplace
    | RollbackPlan
    | RollbackMetadata
    | CleanerPlan
    | CleanMetadata
    | SavepointMetadata
    | RestorePlan
    | RestoreMetadata
    | IndexPlan
    | IndexCommitMetadata
)
"""A record that fills a timeline file of its own."""

Schema: TypeAlias = str | list[Any] | dict[str, Any]
"""An Avro schema as JSON has it, except that a named type stands in full wherever it is used."""

STRING: Schema = {"type": "string", "avro.java.string": "String"}


def _array(items: Schema, **attributes: Any) -> Schema:
    return {"type": "array", "items": items, **attributes}


def _map(values: Schema, **attributes: Any) -> Schema:
    return {"type": "map", "values": values, "avro.java.string": "String", **attributes}


def _record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def _field(name: str, type_: Schema, doc: str | None = None, **default: Any) -> dict[str, Any]:
    documented = {} if doc is None else {"doc": doc}
    return {"name": name, "type": type_, **documented, **default}


def _optional(name: str, type_: Schema, doc: str | None = None) -> dict[str, Any]:
    return _field(name, ["null", type_], doc, default=None)


def _version(default: int = 1, doc: str | None = None) -> dict[str, Any]:
    return _field("version", ["int", "null"], doc, default=default)


_RUNTIME_STATS = _record(
    "HoodieRuntimeStats",
    _optional("totalScanTime", "long"),
    _optional("totalCreateTime", "long"),
    _optional("totalUpsertTime", "long"),
)

_WRITE_STAT = _record(
    "HoodieWriteStat",
    _optional("fileId", STRING),
    _optional("path", STRING),
    _optional("prevCommit", STRING),
    _optional("numWrites", "long"),
    _optional("numDeletes", "long"),
    _optional("numUpdateWrites", "long"),
    _optional("totalWriteBytes", "long"),
    _optional("totalWriteErrors", "long"),
    _optional("partitionPath", STRING),
    _optional("totalLogRecords", "long"),
    _optional("totalLogFiles", "long"),
    _optional("totalUpdatedRecordsCompacted", "long"),
    _optional("numInserts", "long"),
    _optional("totalLogBlocks", "long"),
    _optional("totalCorruptLogBlock", "long"),
    _optional("totalRollbackBlocks", "long"),
    _optional("fileSizeInBytes", "long"),
    _optional("logVersion", "int"),
    _optional("logOffset", "long"),
    _optional("baseFile", STRING),
    _optional("logFiles", _array(STRING, default=None)),
    _optional("cdcStats", _map("long", default=None)),
    _optional("prevBaseFile", STRING),
    _optional("minEventTime", "long"),
    _optional("maxEventTime", "long"),
    _optional("runtimeStats", _RUNTIME_STATS),
    _optional("totalLogFilesCompacted", "long"),
    _optional("totalLogReadTimeMs", "long"),
    _optional("totalLogSizeCompacted", "long"),
    _optional("tempPath", STRING),
    _optional("numUpdates", "long"),
)

_COMMIT_METADATA = _record(
    "HoodieCommitMetadata",
    _optional("partitionToWriteStats", _map(_array(_WRITE_STAT))),
    _optional("compacted", "boolean"),
    _optional("extraMetadata", _map(STRING, default=None)),
    _version(),
    _optional("operationType", STRING),
)

_REPLACE_COMMIT_METADATA = _record(
    "HoodieReplaceCommitMetadata",
    _optional("partitionToWriteStats", _map(_array(_WRITE_STAT))),
    _optional("compacted", "boolean"),
    _optional("extraMetadata", _map(STRING)),
    _version(),
    _optional("operationType", STRING),
    _optional("partitionToReplaceFileIds", _map(_array(STRING))),
)

_COMPACTION_OPERATION = _record(
    "HoodieCompactionOperation",
    _field("baseInstantTime", ["null", STRING]),
    _optional("deltaFilePaths", _array(STRING)),
    _optional("dataFilePath", STRING),
    _field("fileId", ["null", STRING]),
    _optional("partitionPath", STRING),
    _optional("metrics", _map("double")),
    _optional("bootstrapFilePath", STRING),
)

_COMPACTION_STRATEGY = _record(
    "HoodieCompactionStrategy",
    _optional(
        "compactorClassName",
        STRING,
        doc="The class name that is provided here should extend CompactionExecutionStrategy "
        "abstract class, idea is that the plan generator will also provide the execution strategy "
        "to use.",
    ),
    _optional(
        "strategyParams",
        _map(STRING),
        doc="These parameters play a key role in determining which action type it is i.e. "
        "compaction or logcompaction and it will also include configs that determine how "
        "compaction needs to be executed.",
    ),
    _version(),
)

_COMPACTION_PLAN = _record(
    "HoodieCompactionPlan",
    _optional("operations", _array(_COMPACTION_OPERATION)),
    _optional("extraMetadata", _map(STRING)),
    _version(),
    _optional("strategy", _COMPACTION_STRATEGY),
    _field("preserveHoodieMetadata", ["boolean", "null"], default=False),
    _optional("missingSchedulePartitions", _array(STRING)),
)

_SLICE_INFO = _record(
    "HoodieSliceInfo",
    _optional("dataFilePath", STRING),
    _optional("deltaFilePaths", _array(STRING)),
    _field("fileId", ["null", STRING]),
    _optional("partitionPath", STRING),
    _optional("bootstrapFilePath", STRING),
    _version(),
)

_CLUSTERING_GROUP = _record(
    "HoodieClusteringGroup",
    _optional("slices", _array(_SLICE_INFO)),
    _optional("metrics", _map("double")),
    _field("numOutputFileGroups", ["int", "null"], default=1),
    _optional("extraMetadata", _map(STRING)),
    _version(),
)

_CLUSTERING_STRATEGY = _record(
    "HoodieClusteringStrategy",
    _optional("strategyClassName", STRING),
    _optional("strategyParams", _map(STRING)),
    _version(),
)

_CLUSTERING_PLAN = _record(
    "HoodieClusteringPlan",
    _optional("inputGroups", _array(_CLUSTERING_GROUP)),
    _optional("strategy", _CLUSTERING_STRATEGY),
    _optional("extraMetadata", _map(STRING)),
    _version(),
    _optional("preserveHoodieMetadata", "boolean"),
    _optional("missingSchedulePartitions", _array(STRING)),
)

_REQUESTED_REPLACE = _record(
    "HoodieRequestedReplaceMetadata",
    _optional("operationType", STRING),
    _optional("clusteringPlan", _CLUSTERING_PLAN),
    _optional("extraMetadata", _map(STRING)),
    _version(),
)

_INSTANT_INFO = _record(
    "HoodieInstantInfo",
    _field("commitTime", STRING),
    _field("action", STRING),
)

_ROLLBACK_REQUEST = _record(
    "HoodieRollbackRequest",
    _field("partitionPath", STRING),
    _optional("fileId", STRING),
    _optional("latestBaseInstant", STRING),
    _field("filesToBeDeleted", _array(STRING, default=[]), default=[]),
    _optional("logBlocksToBeDeleted", _map("long")),
)

_ROLLBACK_PLAN = _record(
    "HoodieRollbackPlan",
    _optional(
        "instantToRollback", _INSTANT_INFO, doc="Hoodie instant that needs to be rolled back"
    ),
    _optional("RollbackRequests", _array(_ROLLBACK_REQUEST)),
    _version(),
)

_ROLLBACK_PARTITION_METADATA = _record(
    "HoodieRollbackPartitionMetadata",
    _field("partitionPath", STRING),
    _field("successDeleteFiles", _array(STRING)),
    _field("failedDeleteFiles", _array(STRING)),
    _optional("rollbackLogFiles", _map("long")),
    _optional("logFilesFromFailedCommit", _map("long")),
)

_ROLLBACK_METADATA = _record(
    "HoodieRollbackMetadata",
    _field("startRollbackTime", STRING),
    _field("timeTakenInMillis", "long"),
    _field("totalFilesDeleted", "int"),
    _field("commitsRollback", _array(STRING)),
    _field("partitionMetadata", _map(_ROLLBACK_PARTITION_METADATA)),
    _version(),
    _field("instantsRollback", _array(_INSTANT_INFO, default=[]), default=[]),
)

_ACTION_INSTANT = _record(
    "HoodieActionInstant",
    _field("timestamp", STRING),
    _field("action", STRING),
    _field("state", STRING),
)

_CLEAN_FILE_INFO = _record(
    "HoodieCleanFileInfo",
    _optional("filePath", STRING),
    _optional("isBootstrapBaseFile", "boolean"),
)

_CLEANER_PLAN = _record(
    "HoodieCleanerPlan",
    _optional("earliestInstantToRetain", _ACTION_INSTANT),
    _field("lastCompletedCommitTimestamp", STRING, default=""),
    _field("policy", STRING),
    _optional("filesToBeDeletedPerPartition", _map(_array(STRING))),
    _version(),
    _optional(
        "filePathsToBeDeletedPerPartition",
        _map(_array(_CLEAN_FILE_INFO)),
        doc="This field replaces the field filesToBeDeletedPerPartition",
    ),
    _optional("partitionsToBeDeleted", _array(STRING), doc="partitions to be deleted"),
    _optional("extraMetadata", _map(STRING, default=None)),
)

_CLEAN_PARTITION_METADATA = _record(
    "HoodieCleanPartitionMetadata",
    _field("partitionPath", STRING),
    _field("policy", STRING),
    _field("deletePathPatterns", _array(STRING)),
    _field("successDeleteFiles", _array(STRING)),
    _field("failedDeleteFiles", _array(STRING)),
    _optional("isPartitionDeleted", "boolean"),
)

_CLEAN_METADATA = _record(
    "HoodieCleanMetadata",
    _field("startCleanTime", STRING),
    _field("timeTakenInMillis", "long"),
    _field("totalFilesDeleted", "int"),
    _field("earliestCommitToRetain", STRING),
    _field("lastCompletedCommitTimestamp", STRING, default=""),
    _field("partitionMetadata", _map(_CLEAN_PARTITION_METADATA)),
    _version(),
    _optional("bootstrapPartitionMetadata", _map(_CLEAN_PARTITION_METADATA, default=None)),
    _optional("extraMetadata", _map(STRING, default=None)),
)

_SAVEPOINT_PARTITION_METADATA = _record(
    "HoodieSavepointPartitionMetadata",
    _field("partitionPath", STRING),
    _field("savepointDataFile", _array(STRING)),
)

_SAVEPOINT_METADATA = _record(
    "HoodieSavepointMetadata",
    _field("savepointedBy", STRING),
    _field("savepointedAt", "long"),
    _field("comments", STRING),
    _field("partitionMetadata", _map(_SAVEPOINT_PARTITION_METADATA)),
    _version(),
)

_RESTORE_PLAN = _record(
    "HoodieRestorePlan",
    _field("instantsToRollback", _array(_INSTANT_INFO, default=None), default=[]),
    _version(2),
    _field("savepointToRestoreTimestamp", ["null", STRING], default=None),
)

_RESTORE_METADATA = _record(
    "HoodieRestoreMetadata",
    _field("startRestoreTime", STRING),
    _field("timeTakenInMillis", "long"),
    _field("instantsToRollback", _array(STRING)),
    _field("hoodieRestoreMetadata", _map(_array(["null", _ROLLBACK_METADATA], default=None))),
    _version(),
    _field("restoreInstantInfo", _array(_INSTANT_INFO, default=None), default=[]),
)

_INDEX_PARTITION_INFO = _record(
    "HoodieIndexPartitionInfo",
    _version(),
    _optional("metadataPartitionPath", STRING),
    _optional("indexUptoInstant", STRING),
    _optional("extraMetadata", _map(STRING)),
)

_INDEX_PLAN = _record(
    "HoodieIndexPlan",
    _version(),
    _optional("indexPartitionInfos", _array(_INDEX_PARTITION_INFO)),
)

# The docs of the first two fields make no sense, but Hudi's files have them.
_INDEX_COMMIT_METADATA = _record(
    "HoodieIndexCommitMetadata",
    _version(doc="This field replaces the field filesToBeDeletedPerPartition"),
    _optional(
        "operationType", STRING, doc="This field replaces the field filesToBeDeletedPerPartition"
    ),
    _optional(
        "indexPartitionInfos",
        _array(_INDEX_PARTITION_INFO),
        doc="This field contains the info for each partition that got indexed",
    ),
)

RECORD_SCHEMAS: Mapping[type, dict[str, Any]] = MappingProxyType(
    {
        RuntimeStats: _RUNTIME_STATS,
        WriteStat: _WRITE_STAT,
        CommitMetadata: _COMMIT_METADATA,
        ReplaceCommitMetadata: _REPLACE_COMMIT_METADATA,
        CompactionOperation: _COMPACTION_OPERATION,
        CompactionStrategy: _COMPACTION_STRATEGY,
        CompactionPlan: _COMPACTION_PLAN,
        SliceInfo: _SLICE_INFO,
        ClusteringGroup: _CLUSTERING_GROUP,
        ClusteringStrategy: _CLUSTERING_STRATEGY,
        ClusteringPlan: _CLUSTERING_PLAN,
        RequestedReplace: _REQUESTED_REPLACE,
        InstantInfo: _INSTANT_INFO,
        RollbackRequest: _ROLLBACK_REQUEST,
        RollbackPlan: _ROLLBACK_PLAN,
        RollbackPartitionMetadata: _ROLLBACK_PARTITION_METADATA,
        RollbackMetadata: _ROLLBACK_METADATA,
        ActionInstant: _ACTION_INSTANT,
        CleanFileInfo: _CLEAN_FILE_INFO,
        CleanerPlan: _CLEANER_PLAN,
        CleanPartitionMetadata: _CLEAN_PARTITION_METADATA,
        CleanMetadata: _CLEAN_METADATA,
        SavepointPartitionMetadata: _SAVEPOINT_PARTITION_METADATA,
        SavepointMetadata: _SAVEPOINT_METADATA,
        RestorePlan: _RESTORE_PLAN,
        RestoreMetadata: _RESTORE_METADATA,
        IndexPartitionInfo: _INDEX_PARTITION_INFO,
        IndexPlan: _INDEX_PLAN,
        IndexCommitMetadata: _INDEX_COMMIT_METADATA,
    }
)
"""The schema of every record, nested ones too, by the dataclass that holds its values."""

RECORD_CLASSES: Mapping[str, type] = MappingProxyType(
    {schema["name"]: cls for cls, schema in RECORD_SCHEMAS.items()}
)
"""The dataclass of every record by its Avro name without the namespace."""

_INNER_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


@cache
def python_name(avro_name: str) -> str:
    """Return the attribute that holds an Avro field: `fileId` becomes `file_id`."""
    return _INNER_CAPITAL.sub("_", avro_name).lower()


def schema_text(cls: type) -> str:
    """Return the schema of a record as Hudi writes it into the header of a file."""
    schema = _define_names_once(RECORD_SCHEMAS[cls], set())
    rooted = {"type": "record", "name": schema["name"], "namespace": NAMESPACE, **schema}
    return json.dumps(rooted, separators=(",", ":"))


def _define_names_once(schema: Any, defined: set[str]) -> Any:
    """Replace every use of a named type after its first by the bare name."""
    if isinstance(schema, list):
        return [_define_names_once(branch, defined) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    if schema["type"] == "record":
        if schema["name"] in defined:
            return schema["name"]
        defined.add(schema["name"])
        fields = [
            {**field, "type": _define_names_once(field["type"], defined)}
            for field in schema["fields"]
        ]
        return {**schema, "fields": fields}
    for part in ("items", "values"):
        if part in schema:
            return {**schema, part: _define_names_once(schema[part], defined)}
    return schema
