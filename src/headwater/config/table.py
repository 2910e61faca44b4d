"""Table config: what `hoodie.properties` says, typed.

A loaded config keeps the stored text in `raw`. Whatever has no field here is kept verbatim, and a
field that did not change keeps its very text, so that reading and writing a config gives the same
keys and values.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn, Self

from headwater.config.older_versions import FIRST_OF_LAYOUT_TWO, as_read
from headwater.config.option import OptionReader, problem_list
from headwater.config.option_config import option_fields, read_fields, stored
from headwater.config.table_options import (
    ARCHIVE_FOLDER,
    BASE_FILE_FORMAT,
    BOOTSTRAP_BASE_PATH,
    BUCKET_COUNT,
    CDC_ENABLED,
    CDC_LOGGING_MODE,
    CHECKSUM,
    CONFIG_SLOT,
    CREATE_SCHEMA,
    DATABASE,
    DROP_PARTITION_COLUMNS,
    FENCED,
    HIVE_STYLE_PARTITIONING,
    INDEX_DEFS_PATH,
    INDEX_TYPE,
    INDEXES_PLANNED,
    INDEXES_TO_REBUILD,
    INITIAL_VERSION,
    KEY_GENERATOR_TYPE,
    LEGACY_PAYLOAD_CLASS,
    MERGE_MODE,
    MERGE_STRATEGY_ID,
    METADATA_PARTITIONS,
    METADATA_PARTITIONS_INFLIGHT,
    MULTIPLE_BASE_FILE_FORMATS,
    NAME,
    ORDERING_FIELDS,
    PARTIAL_UPDATE_MODE,
    PARTITION_FIELDS,
    PARTITION_METAFILE_USE_BASE_FORMAT,
    PAYLOAD_CLASS,
    POPULATE_META_FIELDS,
    RECORD_KEY_FIELDS,
    TABLE_FORMAT,
    TIMELINE_HISTORY_PATH,
    TIMELINE_LAYOUT_VERSION,
    TIMELINE_PATH,
    TIMELINE_TIMEZONE,
    TYPE,
    URL_ENCODE_PARTITIONING,
    VERSION,
    BaseFileFormat,
    CdcLoggingMode,
    IndexType,
    MergeMode,
    PartialUpdateMode,
    TableType,
    TimelineTimezone,
)
from headwater.errors import CorruptTableError, ErrorKind, UnsupportedError

READABLE_VERSIONS = (6, 8, 9)
WRITTEN_VERSION = 9

_REQUIRED = (TYPE, CHECKSUM)
"""Keys that every writer of versions 6, 8 and 9 states, beside the name and the version. A file
without them was cut short: a missing checksum is no proof to stock Hudi, but a table whose other
keys may be missing too must not be taken for a table without partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableConfig:
    """One table's config. Change it with `dataclasses.replace`; `to_properties` notices."""

    name: str = field(metadata=stored(NAME))
    database: str | None = field(metadata=stored(DATABASE))
    table_type: TableType = field(metadata=stored(TYPE))
    version: int = field(metadata=stored(VERSION))
    initial_version: int | None = field(metadata=stored(INITIAL_VERSION))
    timeline_layout_version: int = field(metadata=stored(TIMELINE_LAYOUT_VERSION))
    timeline_path: str = field(metadata=stored(TIMELINE_PATH))
    timeline_history_path: str = field(metadata=stored(TIMELINE_HISTORY_PATH))
    archive_folder: str = field(metadata=stored(ARCHIVE_FOLDER))
    timeline_timezone: TimelineTimezone = field(metadata=stored(TIMELINE_TIMEZONE))
    table_format: str = field(metadata=stored(TABLE_FORMAT))
    key_generator_type: str | None = field(metadata=stored(KEY_GENERATOR_TYPE))
    record_key_fields: tuple[str, ...] = field(metadata=stored(RECORD_KEY_FIELDS))
    partition_fields: tuple[str, ...] = field(metadata=stored(PARTITION_FIELDS))
    """As stored: a CUSTOM key generator's fields read `column:SIMPLE`. See `partition_columns`."""
    ordering_fields: tuple[str, ...] = field(metadata=stored(ORDERING_FIELDS))
    stored_merge_mode: MergeMode | None = field(metadata=stored(MERGE_MODE))
    merge_strategy_id: str | None = field(metadata=stored(MERGE_STRATEGY_ID))
    payload_class: str | None = field(metadata=stored(PAYLOAD_CLASS))
    legacy_payload_class: str | None = field(metadata=stored(LEGACY_PAYLOAD_CLASS))
    partial_update_mode: PartialUpdateMode = field(metadata=stored(PARTIAL_UPDATE_MODE))
    create_schema: str | None = field(metadata=stored(CREATE_SCHEMA))
    is_hive_style: bool = field(metadata=stored(HIVE_STYLE_PARTITIONING))
    is_url_encoded: bool = field(metadata=stored(URL_ENCODE_PARTITIONING))
    base_file_format: BaseFileFormat = field(metadata=stored(BASE_FILE_FORMAT))
    has_meta_fields: bool = field(metadata=stored(POPULATE_META_FIELDS))
    is_fenced: bool = field(metadata=stored(FENCED))
    metadata_partitions: tuple[str, ...] = field(metadata=stored(METADATA_PARTITIONS))
    metadata_partitions_inflight: tuple[str, ...] = field(
        metadata=stored(METADATA_PARTITIONS_INFLIGHT)
    )
    indexes_to_rebuild: tuple[str, ...] = field(metadata=stored(INDEXES_TO_REBUILD))
    indexes_planned: tuple[str, ...] = field(metadata=stored(INDEXES_PLANNED))
    config_slot: int = field(metadata=stored(CONFIG_SLOT))
    index_defs_path: str | None = field(metadata=stored(INDEX_DEFS_PATH))
    is_cdc_enabled: bool = field(metadata=stored(CDC_ENABLED))
    cdc_logging_mode: CdcLoggingMode = field(metadata=stored(CDC_LOGGING_MODE))
    index_type: IndexType | None = field(metadata=stored(INDEX_TYPE))
    bucket_count: int | None = field(metadata=stored(BUCKET_COUNT))
    checksum: int = field(metadata=stored(CHECKSUM))
    raw: Mapping[str, str] = field(repr=False)
    """The properties as stored, with the keys that have no field of their own."""

    @property
    def merge_mode(self) -> MergeMode:
        """The stored merge mode, or the one the format infers for a table without."""
        if self.stored_merge_mode is not None:
            return self.stored_merge_mode
        if self.ordering_fields:
            return MergeMode.EVENT_TIME_ORDERING
        return MergeMode.COMMIT_TIME_ORDERING

    def places_rows_as(self, other: TableConfig) -> bool:
        """Whether a table with another config has the same records in the same places.

        Of one table it does for ever, but for what was not said at first.
        """
        return all(
            mine == theirs or None in (mine, theirs)
            for mine, theirs in (
                (self.table_type, other.table_type),
                (self.record_key_fields, other.record_key_fields),
                (self.partition_columns, other.partition_columns),
                (self.key_generator_type, other.key_generator_type),
                (self.is_hive_style, other.is_hive_style),
                (self.is_url_encoded, other.is_url_encoded),
                (self.has_meta_fields, other.has_meta_fields),
                (self.bucket_count, other.bucket_count),
            )
        )

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The partition fields without the types a CUSTOM key generator attaches to them."""
        return tuple(name.split(":", 1)[0] for name in self.partition_fields)

    @property
    def is_utc(self) -> bool:
        """Whether the digits of instant times are UTC, or each writer's local time."""
        return self.timeline_timezone is TimelineTimezone.UTC

    @property
    def has_layout_two(self) -> bool:
        """Whether the timeline has completion times, and log files bear their own times."""
        return self.version >= FIRST_OF_LAYOUT_TWO

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], *, path: str) -> Self:
        """Return the config that `properties`, read from `path`, describe.

        Raises:
            CorruptTableError: kind CORRUPT_PROPERTIES, if keys are missing or malformed.
            UnsupportedError: kind UNSUPPORTED_TABLE_VERSION for a version other than 6, 8 and 9,
                kind UNSUPPORTED_OPTION for a feature that this release cannot honour.
        """
        reader = OptionReader(properties, warns_about_aliases=False)
        reader.require(NAME.key in properties, f"{NAME.key} is missing")
        reader.require(VERSION.key in properties, f"{VERSION.key} is missing")
        version = reader.read(VERSION)
        _raise_if_corrupt(reader, path)
        if version is None or version not in READABLE_VERSIONS:
            _raise_unsupported_version(version, properties[NAME.key], path)
        for option in _REQUIRED:
            reader.require(option.key in properties, f"{option.key} is missing")
        _raise_if_corrupt(reader, path)
        if version < FIRST_OF_LAYOUT_TWO:
            reader = OptionReader(as_read(properties), warns_about_aliases=False)
        values = read_fields(cls, reader)
        _raise_if_corrupt(reader, path)
        _check_features(properties, path)
        return cls(**values, raw=dict(properties))

    def to_properties(self) -> dict[str, str]:
        """Return all keys and values, with the checksum that belongs to the name."""
        properties = dict(self.raw)
        for name, option in option_fields(TableConfig).items():
            value = getattr(self, name)
            found = option.find(self.raw)
            stored = option.default if found is None else option.parse(found[1])
            if value == stored:
                continue
            for key in (option.key, *option.aliases):
                properties.pop(key, None)
            if value is not None and value != ():
                properties[option.key] = option.encode(value)
        properties[CHECKSUM.key] = str(table_checksum(self.database, self.name))
        return properties

    def check_writable(self, path: str) -> None:
        """Raise unless this release may write to the table.

        Raises:
            UnsupportedError: kind UNSUPPORTED_TABLE_VERSION.
        """
        if self.version != WRITTEN_VERSION:
            raise UnsupportedError(
                f"Table {self.name} has version {self.version}, which Headwater reads but does not "
                f"write. `headwater table upgrade` makes it a table of version {WRITTEN_VERSION}, "
                "which Hudi 1.1 and later write as well",
                kind=ErrorKind.UNSUPPORTED_TABLE_VERSION,
                path=path,
            )


def table_checksum(database: str | None, name: str) -> int:
    """Return the checksum of format rule 1.3; a missing database counts as empty."""
    return zlib.crc32(f"{database or ''}.{name}".encode())


def _raise_if_corrupt(reader: OptionReader, path: str) -> None:
    if reader.problems:
        raise CorruptTableError(
            problem_list(
                "The table config breaks the format, so the file is damaged or was cut short; "
                "restore it from a copy, or repair it by hand",
                reader.problems,
            ),
            kind=ErrorKind.CORRUPT_PROPERTIES,
            path=path,
        )


def _raise_unsupported_version(version: int | None, name: str, path: str) -> NoReturn:
    if version is not None and version < READABLE_VERSIONS[0]:
        advice = f"Upgrade the table to version {READABLE_VERSIONS[0]} with Apache Hudi 0.14 first"
    elif version is not None and version < WRITTEN_VERSION:
        advice = "Upgrade the table with Apache Hudi 1.1 or later first"
    else:
        advice = "Use a newer release of Headwater"
    raise UnsupportedError(
        f"Table {name} has version {version}; this release reads versions "
        f"{', '.join(map(str, READABLE_VERSIONS))}. {advice}",
        kind=ErrorKind.UNSUPPORTED_TABLE_VERSION,
        path=path,
    )


def _check_features(properties: Mapping[str, str], path: str) -> None:
    """Refuse a table whose files this release would read wrongly."""
    reader = OptionReader(properties, warns_about_aliases=False)
    file_format = reader.read(BASE_FILE_FORMAT)
    reader.require(
        file_format in (BaseFileFormat.PARQUET, BaseFileFormat.HFILE),
        f"{BASE_FILE_FORMAT.key}={file_format}",
    )
    for option in (
        DROP_PARTITION_COLUMNS,
        MULTIPLE_BASE_FILE_FORMATS,
        PARTITION_METAFILE_USE_BASE_FORMAT,
    ):
        reader.require(not reader.read(option), f"{option.key}=true")
    reader.require(
        reader.read(BOOTSTRAP_BASE_PATH) is None,
        f"{BOOTSTRAP_BASE_PATH.key} (a bootstrapped table)",
    )
    table_format = reader.read(TABLE_FORMAT)
    reader.require(table_format == TABLE_FORMAT.default, f"{TABLE_FORMAT.key}={table_format}")
    if reader.problems:
        raise UnsupportedError(
            problem_list(
                f"Table {properties[NAME.key]} uses what this release cannot read", reader.problems
            ),
            kind=ErrorKind.UNSUPPORTED_OPTION,
            path=path,
        )
