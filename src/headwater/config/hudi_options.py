"""What becomes of Hudi's own options, those beside the ones that are declared here.

    honoured     read, and means what it means to Hudi
    mapped       becomes another option, with the same effect
    harmless     has no effect here and changes no row; said once
    refused      would change what happens, and is not implemented (`unsupported`)
    unread       nothing here reads it: kept, and warned about

`registry.fate_of` tells which; the reference page lists the middle three.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum, unique
from fnmatch import fnmatchcase

from headwater.config.table_options import (
    MERGE_MODE,
    PARTIAL_UPDATE_MODE,
    MergeMode,
    PartialUpdateMode,
)


@unique
class Fate(StrEnum):
    HONOURED = "honoured"
    MAPPED = "mapped"
    HARMLESS = "harmless"
    REFUSED = "refused"
    UNREAD = "unread"


@dataclass(frozen=True, slots=True)
class HarmlessOptions:
    """Keys that change no row, whatever their value."""

    pattern: str
    """With `*` for any text."""
    why: str


HARMLESS_OPTIONS = (
    HarmlessOptions(
        "hoodie.datasource.hive_sync.*",
        "tables are not registered with a metastore; readers find them by their path",
    ),
    HarmlessOptions(
        "hoodie.datasource.meta*sync.*",
        "tables are not registered with a metastore; readers find them by their path",
    ),
    HarmlessOptions(
        "hoodie.meta.sync.*",
        "tables are not registered with a metastore; readers find them by their path",
    ),
    HarmlessOptions(
        "hoodie.gcp.bigquery.sync.*",
        "tables are not registered with a catalog; readers find them by their path",
    ),
    HarmlessOptions("hoodie.metrics.*", "Hudi's own metrics are not published"),
    HarmlessOptions("hoodie.metrics", "Hudi's own metrics are not published"),
    HarmlessOptions("hoodie.memory.*", "memory is bounded by headwater.write.task.memory.bytes"),
    HarmlessOptions(
        "hoodie.*parallelism",
        "Spark's cores and headwater.write.tasks say how many tasks there are",
    ),
    HarmlessOptions("hoodie.embed.timeline.server", "there is no timeline server"),
    HarmlessOptions("hoodie.embed.timeline.server.async", "there is no timeline server"),
    HarmlessOptions("hoodie.embed.timeline.server.gzip", "there is no timeline server"),
    HarmlessOptions("hoodie.embed.timeline.server.threads", "there is no timeline server"),
    HarmlessOptions("hoodie.embed.timeline.server.reuse.*", "there is no timeline server"),
    HarmlessOptions("hoodie.filesystem.view.*", "there is no timeline server"),
    HarmlessOptions("hoodie.write.executor.*", "rows are not handed over between threads"),
    HarmlessOptions("hoodie.write.buffer.*", "rows are not handed over between threads"),
    HarmlessOptions(
        "hoodie.datasource.write.row.writer.enable", "rows are Arrow batches in every write"
    ),
    HarmlessOptions("hoodie.consistency.check.*", "stores list what was written to them"),
    HarmlessOptions("hoodie.rollback.using.markers", "rollbacks always go by markers"),
    HarmlessOptions("hoodie.common.spillable.diskmap.*", "sorted files are spilled instead"),
    HarmlessOptions("hoodie.common.diskmap.*", "sorted files are spilled instead"),
    HarmlessOptions("hoodie.file.index.enable", "files are always found by the metadata table"),
    HarmlessOptions("hoodie.enable.data.skipping", "files are always skipped where indexes allow"),
    HarmlessOptions("hoodie.avro.schema.*", "schemas are always checked before they change"),
)

PAYLOAD_CLASS = "hoodie.datasource.write.payload.class"
PAYLOAD_KEYS = (PAYLOAD_CLASS,)

_LATEST = {MERGE_MODE.key: MergeMode.COMMIT_TIME_ORDERING.value}
_NEWEST = {MERGE_MODE.key: MergeMode.EVENT_TIME_ORDERING.value}
_NO_DEFAULTS = {PARTIAL_UPDATE_MODE.key: PartialUpdateMode.IGNORE_DEFAULTS.value}

PAYLOADS: Mapping[str, Mapping[str, str]] = {
    "OverwriteWithLatestAvroPayload": _LATEST,
    "DefaultHoodieRecordPayload": _NEWEST,
    "EventTimeAvroPayload": _NEWEST,
    "OverwriteNonDefaultsWithLatestAvroPayload": {**_LATEST, **_NO_DEFAULTS},
    "PartialUpdateAvroPayload": {**_NEWEST, **_NO_DEFAULTS},
}
"""The payload classes that do no more than what a merge mode says."""


def mapped_option(key: str, text: str) -> Mapping[str, str] | None:
    """Return the options that a key and value of Hudi's stand for; None if for nothing else."""
    if key not in PAYLOAD_KEYS:
        return None
    return PAYLOADS.get(text.strip().rpartition(".")[2])


def harmless_reason(key: str) -> str | None:
    """Return why a key has no effect here; None if it may have one."""
    found = (each.why for each in HARMLESS_OPTIONS if fnmatchcase(key, each.pattern))
    return next(found, None)
