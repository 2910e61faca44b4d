"""The config of a table that does not exist yet: from what its creator says to what is stored.

Pure: nothing here touches storage. A new table has version 9, states every choice that the format
would otherwise infer, and remembers its index (see `config.table_options`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headwater.arrow.keys import KeyGenerator
from headwater.arrow.merge_rule import check_meaningful, merge_rule_of
from headwater.arrow.meta_columns import META_COLUMNS, OPERATION
from headwater.arrow.spark_schema import schema_from_ddl
from headwater.config.lock import PROVIDER
from headwater.config.option import Option, problem_list
from headwater.config.registry import check_supported
from headwater.config.table import WRITTEN_VERSION, TableConfig, table_checksum
from headwater.config.table_options import (
    ARCHIVE_FOLDER,
    BUCKET_COUNT,
    CHECKSUM,
    CREATE_SCHEMA,
    DATABASE,
    DROP_PARTITION_COLUMNS,
    FENCED,
    HIVE_STYLE_PARTITIONING,
    INDEX_TYPE,
    INITIAL_VERSION,
    KEY_GENERATOR_TYPE,
    MERGE_MODE,
    MERGE_STRATEGY_ID,
    NAME,
    ORDERING_FIELDS,
    PARTITION_FIELDS,
    RECORD_KEY_FIELDS,
    TABLE_FORMAT,
    TABLE_OPTIONS,
    TABLE_PREFIXES,
    TIMELINE_HISTORY_PATH,
    TIMELINE_LAYOUT_VERSION,
    TIMELINE_PATH,
    TIMELINE_TIMEZONE,
    TYPE,
    URL_ENCODE_PARTITIONING,
    VERSION,
    IndexType,
    MergeMode,
    TableType,
    TimelineTimezone,
)
from headwater.errors import ErrorKind, InvalidInputError
from headwater.format.avro.schema import encode_avro_schema, parse_avro_schema
from headwater.format.parquet.nesting import check_nesting
from headwater.kernel.layout import PROPERTIES
from headwater.model.column_names import OWN_PREFIX

DEFAULT_BUCKET_COUNT = 4

_CHOSEN_KEY_GENERATORS = ("COMPLEX", "TIMESTAMP", "CUSTOM")
"""Types that columns alone do not tell; the others follow from them."""

_RECORD_KEY_OF_HUDI_WRITERS = "hoodie.datasource.write.recordkey.field"
"""Hudi takes the index from the table's config, but for a bucket index it looks for the record key
under this name only. Its writers put it there; its table services would fail without."""

_CUSTOM_MERGER_STRATEGY = "1897ef5f-18bc-4557-939c-9d6a8afd1519"
"""Tells other engines that records are merged by something that they do not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTable:
    """What its creator says about a table. None leaves the choice to options and defaults."""

    location: str
    """Where the table goes; its last part is the table's name unless one is given."""
    schema: pa.Schema | str | Mapping[str, Any]
    """An Arrow schema, Spark's DDL, or an Avro record as JSON text or parsed JSON."""
    name: str | None = None
    database: str | None = None
    table_type: str | None = None
    record_key: Sequence[str] | None = None
    partition_by: Sequence[str] | None = None
    ordering: Sequence[str] | None = None
    index: str | None = None
    """Default: a bucket index if there is a record key, else none."""
    bucket_count: int | None = None


def plan_table_config(new: NewTable, options: Mapping[str, str]) -> TableConfig:
    """Return the config to store for a new table.

    Args:
        options: checked options; those of tables are stored, all others are left alone.

    Raises:
        InvalidInputError: with every problem in one message, or with the path of the column that
            Hudi tables cannot store.
        UnsupportedError: the table would use what this release cannot honour.
    """
    problems: list[str] = []
    given = _merged(new, options, problems)
    check_supported(given)
    name = given.setdefault(NAME.key, _last_part(new.location))
    if not name:
        raise InvalidInputError(
            f"The location {new.location!r} does not give the table a name: pass name=..."
        )
    columns, create_schema = _columns(new.schema, name)
    check_nesting(columns)
    record_key = RECORD_KEY_FIELDS.parse(given.get(RECORD_KEY_FIELDS.key, ""))
    partition_by = PARTITION_FIELDS.parse(given.get(PARTITION_FIELDS.key, ""))
    ordering = ORDERING_FIELDS.parse(given.get(ORDERING_FIELDS.key, ""))
    key_generator = _key_generator_type(given, record_key, partition_by)
    # A CUSTOM key generator's partition fields read `column:SIMPLE` or `column:TIMESTAMP`.
    partition_columns = tuple(field.split(":", 1)[0] for field in partition_by)
    problems += _column_problems(columns, record_key, partition_columns, ordering)
    stated = {
        TYPE.key: TYPE.encode(TableType.COPY_ON_WRITE),
        TIMELINE_TIMEZONE.key: TIMELINE_TIMEZONE.encode(TimelineTimezone.UTC),
        MERGE_MODE.key: MERGE_MODE.encode(_default_merge_mode(ordering)),
        HIVE_STYLE_PARTITIONING.key: "true",
        URL_ENCODE_PARTITIONING.key: "false",
        DROP_PARTITION_COLUMNS.key: "false",
        FENCED.key: FENCED.encode(has_journal(options)),
        **_default_index(given, has_record_key=bool(record_key)),
        **_strategy_of(given),
        **given,
        **_bucket_keys(given, record_key),
        KEY_GENERATOR_TYPE.key: key_generator,
        VERSION.key: str(WRITTEN_VERSION),
        INITIAL_VERSION.key: str(WRITTEN_VERSION),
        TIMELINE_LAYOUT_VERSION.key: str(TIMELINE_LAYOUT_VERSION.default),
        TIMELINE_PATH.key: TIMELINE_PATH.default,
        TIMELINE_HISTORY_PATH.key: TIMELINE_HISTORY_PATH.default,
        ARCHIVE_FOLDER.key: ARCHIVE_FOLDER.default,
        TABLE_FORMAT.key: TABLE_FORMAT.default,
        CREATE_SCHEMA.key: create_schema,
        CHECKSUM.key: str(table_checksum(given.get(DATABASE.key), name)),
    }
    problems += _choice_problems(given, stated, record_key, ordering)
    if problems:
        raise InvalidInputError(
            problem_list("The table cannot be created", problems), kind=ErrorKind.INVALID_INPUT
        )
    config = TableConfig.from_properties(stated, path=PROPERTIES)
    # Both say what does not fit together while nothing is stored.
    KeyGenerator.from_config(config)
    check_meaningful(merge_rule_of(config))
    return config


def has_journal(options: Mapping[str, str]) -> bool:
    """Return whether a new table has a journal if its creator does not say.

    Who names a lock by its Java class has the options of Hudi's jobs, which will write to the table
    too: they know nothing of a journal, and can share a lock.
    """
    return "." not in options.get(PROVIDER.key, "")


def _merged(new: NewTable, options: Mapping[str, str], problems: list[str]) -> dict[str, str]:
    """Return the table options given as options or as arguments, which must not contradict."""
    # Stock Hudi reads enums in upper case only, so options are stored as we write them.
    families = tuple(family.prefix for family in TABLE_PREFIXES)
    merged = {
        option.key: option.encode(option.parse(options[option.key]))
        for option in TABLE_OPTIONS
        if option.key in options
    } | {key: text for key, text in options.items() if key.startswith(families)}
    arguments: tuple[tuple[str, Option[Any, Any], str | None], ...] = (
        ("name", NAME, new.name),
        ("database", DATABASE, new.database),
        ("table_type", TYPE, new.table_type),
        ("record_key", RECORD_KEY_FIELDS, _joined(new.record_key)),
        ("partition_by", PARTITION_FIELDS, _joined(new.partition_by)),
        ("ordering", ORDERING_FIELDS, _joined(new.ordering)),
        ("index", INDEX_TYPE, new.index),
        ("buckets", BUCKET_COUNT, None if new.bucket_count is None else str(new.bucket_count)),
    )
    for argument, option, text in arguments:
        if text is None:
            continue
        try:
            value = option.parse(text)
        except InvalidInputError:
            problems.append(f"{argument} must be {option.expectation}, got {text!r}")
            continue
        if option.key in merged and option.parse(merged[option.key]) != value:
            problems.append(
                f"{argument} is {text!r}, but the option {option.key} says {merged[option.key]!r}"
            )
        if value != ():
            merged[option.key] = option.encode(value)
    return merged


def _last_part(location: str) -> str:
    _, _, path = location.rpartition("://")
    return path.rstrip("/").rpartition("/")[2].strip()


def _joined(columns: Sequence[str] | None) -> str | None:
    return None if columns is None else ",".join(columns)


def _columns(schema: pa.Schema | str | Mapping[str, Any], name: str) -> tuple[pa.Schema, str]:
    """Return the table's columns and their Avro JSON; the creator's own Avro is kept as it is."""
    if isinstance(schema, pa.Schema):
        encoded = encode_avro_schema(schema, table=name)
        return parse_avro_schema(encoded), encoded
    if not isinstance(schema, str | Mapping):
        raise InvalidInputError(
            f"schema must be a pyarrow.Schema, a Spark StructType, DDL text or an Avro record as "
            f"JSON, got {type(schema).__module__}.{type(schema).__qualname__}. Convert it to a "
            "pyarrow.Schema"
        )
    if isinstance(schema, str) and not schema.lstrip().startswith("{"):
        return _columns(schema_from_ddl(schema), name)
    columns = parse_avro_schema(schema)
    parsed = json.loads(schema) if isinstance(schema, str) else dict(schema)
    return columns, json.dumps(parsed, separators=(",", ":"))


def _column_problems(
    columns: pa.Schema,
    record_key: tuple[str, ...],
    partition_by: tuple[str, ...],
    ordering: tuple[str, ...],
) -> list[str]:
    problems = []
    if not columns.names:
        problems.append("the schema has no columns")
    folded = [name.casefold() for name in columns.names]
    for name in columns.names:
        if name in (*META_COLUMNS, OPERATION) or name.startswith(OWN_PREFIX):
            problems.append(f"column {name} is one that the table adds by itself")
        elif folded.count(name.casefold()) > 1:
            problems.append(f"column {name} differs from another one by case only")
    for role, fields in (
        ("record_key", record_key),
        ("partition_by", partition_by),
        ("ordering", ordering),
    ):
        for field in fields:
            if field not in columns.names:
                known = ", ".join(columns.names)
                problems.append(f"{role} names the column {field}, but the columns are {known}")
            elif pa.types.is_nested(columns.field(field).type):
                problems.append(
                    f"{role} names the column {field}, which has the nested type "
                    f"{columns.field(field).type}"
                )
        if len(set(fields)) != len(fields):
            problems.append(f"{role} names a column twice: {', '.join(fields)}")
    return problems


def _choice_problems(
    given: Mapping[str, str],
    stated: Mapping[str, str],
    record_key: tuple[str, ...],
    ordering: tuple[str, ...],
) -> list[str]:
    problems = []
    wanted, key_generator = given.get(KEY_GENERATOR_TYPE.key), stated[KEY_GENERATOR_TYPE.key]
    if wanted is not None and wanted.strip().upper() != key_generator:
        problems.append(
            f"{KEY_GENERATOR_TYPE.key} is {wanted}, but the record key and partition columns make "
            f"it {key_generator}"
        )
    if MERGE_MODE.parse(stated[MERGE_MODE.key]) is MergeMode.EVENT_TIME_ORDERING and not ordering:
        problems.append(f"{MERGE_MODE.key}=EVENT_TIME_ORDERING needs ordering columns")
    index = INDEX_TYPE.parse(stated[INDEX_TYPE.key]) if INDEX_TYPE.key in stated else None
    if index is IndexType.BUCKET and not record_key:
        problems.append("a bucket index needs a record_key, whose hash chooses the bucket")
    elif index is not None and not record_key:
        problems.append(f"a {index.lower()} index needs a record_key to look records up by")
    if BUCKET_COUNT.key in stated and index is not IndexType.BUCKET:
        problems.append("buckets are of no use without a bucket index, which needs a record_key")
    return problems


def _key_generator_type(
    given: Mapping[str, str], record_key: tuple[str, ...], partition_by: tuple[str, ...]
) -> str:
    if not partition_by:
        return "NON_PARTITION"
    wanted = given.get(KEY_GENERATOR_TYPE.key, "").strip().upper()
    if wanted in _CHOSEN_KEY_GENERATORS:
        return wanted
    return "SIMPLE" if len(record_key) <= 1 and len(partition_by) == 1 else "COMPLEX"


def _default_merge_mode(ordering: tuple[str, ...]) -> MergeMode:
    return MergeMode.EVENT_TIME_ORDERING if ordering else MergeMode.COMMIT_TIME_ORDERING


def _strategy_of(given: Mapping[str, str]) -> dict[str, str]:
    """Only a table with merge mode CUSTOM states a strategy (format rule 7.1)."""
    if (
        MERGE_MODE.key not in given
        or MERGE_MODE.parse(given[MERGE_MODE.key]) is not MergeMode.CUSTOM
    ):
        return {}
    return {MERGE_STRATEGY_ID.key: _CUSTOM_MERGER_STRATEGY}


def _default_index(given: Mapping[str, str], *, has_record_key: bool) -> dict[str, str]:
    bucket = INDEX_TYPE.encode(IndexType.BUCKET)
    if given.get(INDEX_TYPE.key, bucket) != bucket:
        return {}
    if INDEX_TYPE.key not in given and not has_record_key:
        return {}
    return {INDEX_TYPE.key: bucket, BUCKET_COUNT.key: str(DEFAULT_BUCKET_COUNT)}


def _bucket_keys(given: Mapping[str, str], record_key: tuple[str, ...]) -> dict[str, str]:
    index = _default_index(given, has_record_key=bool(record_key))
    return {_RECORD_KEY_OF_HUDI_WRITERS: ",".join(record_key)} if index else {}
