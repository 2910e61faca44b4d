"""Properties of tables before version 9: what they mean, and what they become by an upgrade.

Version 6 names Java classes where later versions have types and modes. Which of two records counts
is told by the payload class, else by the merge strategy, else by whether there are ordering fields;
that is how Hudi 1.2 reads such tables. Hudi's own upgrade then gives every merge-on-read table that
has ordering fields the mode EVENT_TIME_ORDERING, whatever its payload class said, after everything
was compacted by the older rule (N-114). An upgrade of ours leaves the same properties, as Hudi
1.2.0 leaves them.

Everything here is pure: properties in, properties out.
"""

from __future__ import annotations

from collections.abc import Mapping

from headwater.config.table_options import (
    INDEX_DEFS_PATH,
    INITIAL_VERSION,
    KEY_GENERATOR_TYPE,
    LEGACY_PAYLOAD_CLASS,
    MERGE_MODE,
    MERGE_PROPERTY,
    MERGE_STRATEGY_ID,
    METADATA_PARTITIONS,
    METADATA_PARTITIONS_INFLIGHT,
    ORDERING_FIELDS,
    PARTIAL_UPDATE_MODE,
    PAYLOAD_CLASS,
    TIMELINE_HISTORY_PATH,
    TIMELINE_LAYOUT_VERSION,
    TIMELINE_PATH,
    TYPE,
    VERSION,
    MergeMode,
    PartialUpdateMode,
    TableType,
)

FIRST_OF_LAYOUT_TWO = 8
"""The first version whose timeline has completion times, and whose logs bear their own times."""

KEY_GENERATOR_CLASS = "hoodie.table.keygenerator.class"

EVENT_TIME_STRATEGY = "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"
COMMIT_TIME_STRATEGY = "ce9acb64-bde0-424c-9b91-f6ebba25356d"
PAYLOAD_STRATEGY = "00000000-0000-0000-0000-000000000000"
CUSTOM_STRATEGY = "1897ef5f-18bc-4557-939c-9d6a8afd1519"
_BUILT_IN = ("", EVENT_TIME_STRATEGY, COMMIT_TIME_STRATEGY, PAYLOAD_STRATEGY, CUSTOM_STRATEGY)
_STRATEGIES = {
    MergeMode.EVENT_TIME_ORDERING: EVENT_TIME_STRATEGY,
    MergeMode.COMMIT_TIME_ORDERING: COMMIT_TIME_STRATEGY,
}

_KEY_GENERATORS = {
    "SimpleKeyGenerator": "SIMPLE",
    "SimpleAvroKeyGenerator": "SIMPLE_AVRO",
    "ComplexKeyGenerator": "COMPLEX",
    "ComplexAvroKeyGenerator": "COMPLEX_AVRO",
    "TimestampBasedKeyGenerator": "TIMESTAMP",
    "TimestampBasedAvroKeyGenerator": "TIMESTAMP_AVRO",
    "CustomKeyGenerator": "CUSTOM",
    "CustomAvroKeyGenerator": "CUSTOM_AVRO",
    "NonpartitionedKeyGenerator": "NON_PARTITION",
    "NonpartitionedAvroKeyGenerator": "NON_PARTITION_AVRO",
    "GlobalDeleteKeyGenerator": "GLOBAL_DELETE",
    "GlobalAvroDeleteKeyGenerator": "GLOBAL_DELETE_AVRO",
    "SqlKeyGenerator": "SPARK_SQL",
    "UuidKeyGenerator": "SPARK_SQL_UUID",
    "MergeIntoKeyGenerator": "SPARK_SQL_MERGE_INTO",
}
_UNKNOWN_KEY_GENERATOR = "USER_PROVIDED"

_LATEST = "OverwriteWithLatestAvroPayload"
_DEFAULT = "DefaultHoodieRecordPayload"
_EVENT_TIME = "EventTimeAvroPayload"
_NON_DEFAULTS = "OverwriteNonDefaultsWithLatestAvroPayload"
_PARTIAL = "PartialUpdateAvroPayload"
_DMS = "AWSDmsAvroPayload"
_POSTGRES = "PostgresDebeziumAvroPayload"
_MYSQL = "MySqlDebeziumAvroPayload"
_MODES_IN_NINE = {
    _LATEST: None,
    _DEFAULT: None,
    _EVENT_TIME: MergeMode.EVENT_TIME_ORDERING,
    _PARTIAL: MergeMode.EVENT_TIME_ORDERING,
    _POSTGRES: MergeMode.EVENT_TIME_ORDERING,
    _MYSQL: MergeMode.EVENT_TIME_ORDERING,
    _NON_DEFAULTS: MergeMode.COMMIT_TIME_ORDERING,
    _DMS: MergeMode.COMMIT_TIME_ORDERING,
}
"""The payload classes that version 9 does without, with the mode that each of them stands for; the
first two keep the mode that the table has."""

_MERGE_PROPERTIES = {
    _DMS: {"hoodie.payload.delete.field": "Op", "hoodie.payload.delete.marker": "D"},
    _POSTGRES: {
        "hoodie.write.partial.update.unavailable.value": "__debezium_unavailable_value",
    },
}


def as_read(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a version 6 table under the names and with the meaning of now.

    It has no metadata table to be asked: that of version 6 is not read.
    """
    modern = _renamed(properties)
    _drop_metadata(modern)
    if MERGE_MODE.key not in modern:
        modern[MERGE_MODE.key] = MERGE_MODE.encode(_mode_of_six(modern))
    return modern


def upgraded(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that a table of version 6 or 8 has after its upgrade to version 9."""
    version = int(properties[VERSION.key])
    modern = _renamed(properties)
    _drop_metadata(modern)
    if version < FIRST_OF_LAYOUT_TWO:
        modern[INITIAL_VERSION.key] = properties.get(INITIAL_VERSION.key, str(version))
        modern[TIMELINE_LAYOUT_VERSION.key] = str(TIMELINE_LAYOUT_VERSION.default)
        modern[TIMELINE_PATH.key] = TIMELINE_PATH.default
        modern[TIMELINE_HISTORY_PATH.key] = TIMELINE_HISTORY_PATH.default
        modern |= _merging_in_eight(modern)
    _merge_in_nine(modern, properties.get(PAYLOAD_CLASS.key) or modern.get(PAYLOAD_CLASS.key))
    modern[VERSION.key] = "9"
    return modern


def _renamed(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties under the names of version 9."""
    modern = dict(properties)
    for option in (ORDERING_FIELDS, MERGE_STRATEGY_ID):
        found = option.find(modern)
        for alias in option.aliases:
            modern.pop(alias, None)
        if found is not None:
            modern[option.key] = found[1]
    made_by = modern.get(KEY_GENERATOR_CLASS, "").strip().rpartition(".")[2]
    if made_by and KEY_GENERATOR_TYPE.key not in modern:
        modern[KEY_GENERATOR_TYPE.key] = _KEY_GENERATORS.get(made_by, _UNKNOWN_KEY_GENERATOR)
    return modern


def _drop_metadata(modern: dict[str, str]) -> None:
    for option in (METADATA_PARTITIONS, METADATA_PARTITIONS_INFLIGHT, INDEX_DEFS_PATH):
        modern.pop(option.key, None)


def _payload(properties: Mapping[str, str]) -> str:
    """Return the simple name of the payload class."""
    return properties.get(PAYLOAD_CLASS.key, "").strip().rpartition(".")[2]


def _mode_of_six(modern: Mapping[str, str]) -> MergeMode:
    payload, strategy = _payload(modern), modern.get(MERGE_STRATEGY_ID.key)
    if payload:
        if payload in (_DEFAULT, _EVENT_TIME):
            return MergeMode.EVENT_TIME_ORDERING
        return MergeMode.COMMIT_TIME_ORDERING if payload == _LATEST else MergeMode.CUSTOM
    if strategy:
        known = {strategy_id: mode for mode, strategy_id in _STRATEGIES.items()}
        return known.get(strategy, MergeMode.CUSTOM)
    has_ordering = bool(modern.get(ORDERING_FIELDS.key))
    return MergeMode.EVENT_TIME_ORDERING if has_ordering else MergeMode.COMMIT_TIME_ORDERING


def _merging_in_eight(modern: Mapping[str, str]) -> dict[str, str]:
    """Return how records are merged after the upgrade of a version 6 table to version 8."""
    payload = _payload(modern)
    if payload not in ("", _LATEST, _DEFAULT, _EVENT_TIME):
        return {
            MERGE_MODE.key: MergeMode.CUSTOM.value,
            MERGE_STRATEGY_ID.key: PAYLOAD_STRATEGY,
        }
    is_merge_on_read = TYPE.parse(modern[TYPE.key]) is TableType.MERGE_ON_READ
    has_ordering = bool(modern.get(ORDERING_FIELDS.key))
    if payload == _DEFAULT or (is_merge_on_read and has_ordering):
        mode, payload = MergeMode.EVENT_TIME_ORDERING, _DEFAULT
    else:
        mode, payload = MergeMode.COMMIT_TIME_ORDERING, _LATEST
    return {
        MERGE_MODE.key: mode.value,
        MERGE_STRATEGY_ID.key: _STRATEGIES[mode],
        PAYLOAD_CLASS.key: f"org.apache.hudi.common.model.{payload}",
    }


def _merge_in_nine(modern: dict[str, str], payload_class: str | None) -> None:
    """Put a mode in the place of a payload class, the one that was there before the upgrade."""
    payload = (payload_class or "").strip().rpartition(".")[2]
    is_built_in = modern.get(MERGE_STRATEGY_ID.key, "") in _BUILT_IN
    if payload_class is None or payload not in _MODES_IN_NINE or not is_built_in:
        return
    modern[LEGACY_PAYLOAD_CLASS.key] = payload_class
    modern.pop(PAYLOAD_CLASS.key, None)
    mode = _MODES_IN_NINE[payload]
    if mode is not None:
        modern[MERGE_MODE.key] = mode.value
    modern.pop(MERGE_STRATEGY_ID.key, None)  # Version 9 has it beside merge mode CUSTOM only.
    if payload in (_NON_DEFAULTS, _PARTIAL):
        modern[PARTIAL_UPDATE_MODE.key] = PartialUpdateMode.IGNORE_DEFAULTS.value
    elif payload == _POSTGRES:
        modern[PARTIAL_UPDATE_MODE.key] = PartialUpdateMode.FILL_UNAVAILABLE.value
    for key, text in _MERGE_PROPERTIES.get(payload, {}).items():
        modern[f"{MERGE_PROPERTY.prefix}{key}"] = text
