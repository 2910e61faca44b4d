"""Options of the Spark data source: Hudi's own keys, and what they mean for a table.

Keys about the table that Hudi's data source spells in its own way become those of table config. All
keys are in lower case: Spark hands them over like that, whatever the user wrote.

A table of Spark's catalog comes with more: what the catalog says of it (`SPARK_KEYS`), and
properties that mean something to whoever wrote them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Self

from headwater.config.hudi_options import RENAMED_OPTIONS, spelled
from headwater.config.option import NON_BLANK, TEXT_LIST, Option, OptionReader, integer
from headwater.config.option_config import option_fields, read_fields, setting
from headwater.config.table_options import ORDERING_FIELDS, RECORD_KEY_FIELDS, TYPE

EARLIEST = "earliest"
LATEST = "latest"


@unique
class QueryType(StrEnum):
    SNAPSHOT = "snapshot"
    READ_OPTIMIZED = "read_optimized"
    INCREMENTAL = "incremental"


@unique
class IncrementalFormat(StrEnum):
    LATEST_STATE = "latest_state"
    CDC = "cdc"


@unique
class SourceOperation(StrEnum):
    UPSERT = "upsert"
    INSERT = "insert"
    BULK_INSERT = "bulk_insert"
    DELETE = "delete"
    DELETE_PARTITION = "delete_partition"
    INSERT_OVERWRITE = "insert_overwrite"
    INSERT_OVERWRITE_TABLE = "insert_overwrite_table"


QUERY_TYPE = Option(
    "hoodie.datasource.query.type",
    QueryType,
    default=QueryType.SNAPSHOT,
    aliases=("hoodie.datasource.view.type",),
    doc="What a read gives: the newest rows, those of base files alone, or the rows of a window.",
)
AS_OF = Option(
    "as.of.instant",
    NON_BLANK,
    default=None,
    doc="Read the table as it was at this completion time, at this date, or when the instant of "
    "this time, which rows carry as `_hoodie_commit_time`, had completed.",
)
BEGIN_INSTANT = Option(
    "hoodie.datasource.read.begin.instanttime",
    NON_BLANK,
    default=None,
    aliases=("hoodie.datasource.read.start.commit",),
    doc="An incremental query gives rows of writes that completed after this time; 0 for all.",
)
END_INSTANT = Option(
    "hoodie.datasource.read.end.instanttime",
    NON_BLANK,
    default=None,
    aliases=("hoodie.datasource.read.end.commit",),
    doc="An incremental query gives rows of writes that completed up to this time. Default: now.",
)
INCREMENTAL_FORMAT = Option(
    "hoodie.datasource.query.incremental.format",
    IncrementalFormat,
    default=IncrementalFormat.LATEST_STATE,
    doc="Whether an incremental query or a stream gives the rows that were written, or every "
    "change with the record before and after it.",
)
START_OFFSET = Option(
    "hoodie.datasource.streaming.startoffset",
    NON_BLANK,
    default=EARLIEST,
    doc="Where a new stream starts: earliest, latest, or after a completion time.",
)
OPERATION = Option(
    "hoodie.datasource.write.operation",
    SourceOperation,
    default=None,
    doc="What a write does. Default: upsert, or insert if the table has no record key.",
)
PARTITIONS_TO_DELETE: Option[tuple[str, ...], tuple[str, ...]] = Option(
    "hoodie.datasource.write.partitions.to.delete",
    TEXT_LIST,
    default=(),
    doc="Paths of the partitions that the operation delete_partition deletes, with `*` for any "
    "text. The rows of the DataFrame are not looked at.",
)
SINK_IDENTIFIER = Option(
    "hoodie.datasource.write.streaming.checkpoint.identifier",
    NON_BLANK,
    default=None,
    doc="Name under which a streaming query notes the batches that it has committed. Default: made "
    "of the query's id, which is in its checkpoint.",
)
META_COLUMNS_SHOWN = Option(
    "headwater.read.meta.columns",
    bool,
    default=None,
    doc="Whether a read shows the columns `_hoodie_*` that no schema asked for. Default: false; "
    "true for the source that was registered under the name `hudi`, as Hudi's own shows them.",
)
PUSHED_FILTERS = Option(
    "headwater.read.pushed.filters",
    bool,
    default=False,
    doc="Whether Spark may push filters down into this DataFrame, so that files that cannot match "
    "are not read; the session needs `spark.sql.python.filterPushdown.enabled=true` too. Spark up "
    "to 4.3 gives the files found for one filter to every other use of the same DataFrame, and "
    "then rows are missing: load one for each filter.",
)
COMMITS_PER_TRIGGER = Option(
    "headwater.stream.commits.per.trigger",
    integer(minimum=1),
    default=None,
    doc="Writes of the table that one micro-batch of a stream reads at most. Needs Spark 4.2. "
    "Default: all there are.",
)

PATH = "path"
CHECKPOINT_LOCATION = "checkpointlocation"
LOCATION = "location"
MERGE_SCHEMA = "mergeschema"
PROVIDER = "provider"

SPARK_KEYS = frozenset(
    {
        CHECKPOINT_LOCATION,
        LOCATION,
        PATH,
        PROVIDER,
        "collation",
        "comment",
        "external",
        "is_managed_location",
        "owner",
        "queryname",
        "table_type",
    }
)
"""What Spark and its catalog say of a table, in words of their own."""

_FAMILIES = ("hoodie.", "headwater.")
"""How options begin. Among properties of the catalog, all others are somebody else's."""

_NO_PATH = (
    "the path of the table is missing: use load(path). For a table of Spark's catalog, Spark tells "
    "a Python data source neither its location nor its options: add WITH (path = '...') to its "
    "name in the statement, or make a temporary view with OPTIONS (path '...'), which is told"
)

TABLE_KEYS: Mapping[str, str] = {
    **RENAMED_OPTIONS,
    "primarykey": RECORD_KEY_FIELDS.key,
    "precombinefield": ORDERING_FIELDS.key,
    "orderingfields": ORDERING_FIELDS.key,
    "type": TYPE.key,
}
"""What Hudi's data source, and CREATE TABLE of Hudi's SQL, call the options of a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig:
    """One use of the data source."""

    path: str
    table_options: Mapping[str, str]
    """What is left for the table and its writers, under the names it has there; unchecked."""
    query_type: QueryType = setting(QUERY_TYPE)
    as_of: str | None = setting(AS_OF)
    after: str | None = setting(BEGIN_INSTANT)
    until: str | None = setting(END_INSTANT)
    incremental_format: IncrementalFormat = setting(INCREMENTAL_FORMAT)
    start_offset: str = setting(START_OFFSET)
    operation: SourceOperation | None = setting(OPERATION)
    partitions_to_delete: tuple[str, ...] = setting(PARTITIONS_TO_DELETE)
    sink_identifier: str | None = setting(SINK_IDENTIFIER)
    shows_meta_columns: bool | None = setting(META_COLUMNS_SHOWN)
    takes_filters: bool = setting(PUSHED_FILTERS)
    commits_per_trigger: int | None = setting(COMMITS_PER_TRIGGER)
    checkpoint_location: str | None = None

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Return the config that the options of a reader or writer describe.

        Raises:
            InvalidInputError: kind INVALID_OPTION, naming every problem.
        """
        reader = OptionReader(options)
        config = cls(
            path=options.get(PATH) or options.get(LOCATION, ""),
            table_options=_table_options(options, reader),
            checkpoint_location=options.get(CHECKPOINT_LOCATION),
            **read_fields(cls, reader),
        )
        is_incremental = config.query_type is QueryType.INCREMENTAL
        reader.require(bool(config.path), _NO_PATH)
        reader.require(
            not (is_incremental and config.as_of is not None),
            f"{AS_OF.key} reads one moment and {QUERY_TYPE.key}=incremental a window; use one",
        )
        reader.require(
            is_incremental or (config.after is None and config.until is None),
            f"{BEGIN_INSTANT.key} and {END_INSTANT.key} need {QUERY_TYPE.key}=incremental",
        )
        reader.require(
            bool(config.partitions_to_delete)
            is (config.operation is SourceOperation.DELETE_PARTITION),
            f"{PARTITIONS_TO_DELETE.key} and {OPERATION.key}=delete_partition go together",
        )
        reader.finish()
        return config

    @property
    def is_change_feed(self) -> bool:
        return self.incremental_format is IncrementalFormat.CDC


SOURCE_OPTIONS = tuple(option_fields(SourceConfig).values())


def _table_options(options: Mapping[str, str], reader: OptionReader) -> dict[str, str]:
    own = {name for option in SOURCE_OPTIONS for name in (option.key, *option.aliases)}
    is_of_catalog = PROVIDER in options
    found: dict[str, str] = {}
    for given, text in options.items():
        if given in own or given in SPARK_KEYS:
            continue
        if given == MERGE_SCHEMA:
            reader.require(
                text.strip().lower() == "true",
                "mergeSchema=false is not supported: columns that the table lacks are added to it",
            )
            continue
        key = TABLE_KEYS.get(given, given)
        if is_of_catalog and not key.startswith(_FAMILIES):
            continue
        value = spelled(key, text)
        reader.require(
            found.setdefault(key, value) == value,
            f"{given} is {text!r}, but another name of the same option says {found[key]!r}",
        )
    return found
