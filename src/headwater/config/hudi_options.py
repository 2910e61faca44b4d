"""What becomes of Hudi's own options, those beside the ones that are declared here.

    honoured     read, and means what it means to Hudi
    mapped       becomes another option, with the same effect
    harmless     has no effect here and changes no row; said once (`harmless`)
    refused      would change what happens, and is not implemented (`unsupported`)
    unread       nothing here knows it: kept, and warned about

`registry.fate_of` tells which. `hudi_keys.txt` lists all options of Hudi 1.2; each of them has one
of the first four fates, and the page docs/reference/hudi-options.md says which.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum, unique

from headwater.config.files import INSERT_DUPLICATES, DuplicatePolicy
from headwater.config.sql import INSERT_OPERATION, InsertOperation
from headwater.config.table_options import (
    KEY_GENERATOR_TYPE,
    MERGE_MODE,
    NAME,
    ORDERING_FIELDS,
    PARTIAL_UPDATE_MODE,
    PARTITION_FIELDS,
    RECORD_KEY_FIELDS,
    TYPE,
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


RENAMED_OPTIONS: Mapping[str, str] = {
    "hoodie.datasource.write.table.name": NAME.key,
    "hoodie.datasource.write.table.type": TYPE.key,
    "hoodie.datasource.write.storage.type": TYPE.key,
    "hoodie.datasource.write.recordkey.field": RECORD_KEY_FIELDS.key,
    "hoodie.bucket.index.hash.field": RECORD_KEY_FIELDS.key,
    "hoodie.datasource.write.partitionpath.field": PARTITION_FIELDS.key,
    "hoodie.datasource.write.precombine.field": ORDERING_FIELDS.key,
    "hoodie.payload.ordering.field": ORDERING_FIELDS.key,
    "hoodie.datasource.write.keygenerator.type": KEY_GENERATOR_TYPE.key,
    "hoodie.datasource.write.keygenerator.class": KEY_GENERATOR_TYPE.key,
    "hoodie.table.keygenerator.class": KEY_GENERATOR_TYPE.key,
    "hoodie.write.record.merge.mode": MERGE_MODE.key,
    **{
        f"hoodie.deltastreamer.keygen.timebased.{setting}": f"hoodie.keygen.timebased.{setting}"
        for setting in (
            "input.dateformat",
            "input.dateformat.list.delimiter.regex",
            "input.timezone",
            "output.dateformat",
            "output.timezone",
            "timestamp.scalar.time.unit",
            "timestamp.type",
            "timezone",
        )
    },
}
"""What Hudi's writers call the options of a table. The hash field of a bucket index is the record
key here, and so has to agree with it."""

_KEY_GENERATORS = {
    "SimpleKeyGenerator": "SIMPLE",
    "ComplexKeyGenerator": "COMPLEX",
    "NonpartitionedKeyGenerator": "NON_PARTITION",
    "TimestampBasedKeyGenerator": "TIMESTAMP",
    "CustomKeyGenerator": "CUSTOM",
}
_PACKAGE = "org.apache.hudi.keygen."
SPELLINGS: Mapping[str, Mapping[str, str]] = {
    KEY_GENERATOR_TYPE.key: {
        f"{package}{name}": kind
        for name, kind in _KEY_GENERATORS.items()
        for package in ("", _PACKAGE)
    },
    TYPE.key: {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"},
}
"""Values that Hudi's writers and SQL take for those of table config."""

PAYLOAD_CLASS = "hoodie.datasource.write.payload.class"
PAYLOAD_KEYS = (PAYLOAD_CLASS, "hoodie.compaction.payload.class")

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

MAPPED_VALUES: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "hoodie.datasource.write.insert.drop.duplicates": {
        "true": {INSERT_DUPLICATES.key: DuplicatePolicy.DROP.value},
        "false": {},
    },
    "hoodie.sql.bulk.insert.enable": {
        "true": {INSERT_OPERATION.key: InsertOperation.BULK_INSERT.value},
        "false": {},
    },
    "hoodie.sql.insert.mode": {
        "upsert": {INSERT_OPERATION.key: InsertOperation.UPSERT.value},
        "strict": {INSERT_DUPLICATES.key: DuplicatePolicy.FAIL.value},
        "non-strict": {INSERT_OPERATION.key: InsertOperation.INSERT.value},
    },
}
"""By key and value the options that stand for them."""


def mapped_option(key: str, text: str) -> Mapping[str, str] | None:
    """Return the options that a key and value of Hudi's stand for; None if for nothing else."""
    if key in RENAMED_OPTIONS:
        own = RENAMED_OPTIONS[key]
        return {own: spelled(own, text)}
    if key in PAYLOAD_KEYS:
        return PAYLOADS.get(text.strip().rpartition(".")[2])
    return MAPPED_VALUES.get(key, {}).get(text.strip().lower())


def spelled(key: str, text: str) -> str:
    """Return a value of a table's option as table config has it."""
    spellings = SPELLINGS.get(key, {})
    return spellings.get(text, spellings.get(text.lower(), text))
