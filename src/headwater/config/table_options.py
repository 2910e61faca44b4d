"""The keys of `hoodie.properties`, declared as options.

The defaults are what an *absent* key means in a table that exists, not what `create_table` writes:
a new table states every choice. Hudi has no key for the index of a table, since its writers bring
theirs along; a Headwater table remembers it under Hudi's own writer keys `hoodie.index.type` and
`hoodie.bucket.index.num.buckets`. Stock Hudi keeps keys it does not know when it updates the file.
"""

from __future__ import annotations

from enum import StrEnum, unique

from headwater.config.option import NON_BLANK, TEXT_LIST, Option, OptionPrefix, integer


@unique
class TableType(StrEnum):
    COPY_ON_WRITE = "COPY_ON_WRITE"
    MERGE_ON_READ = "MERGE_ON_READ"


@unique
class MergeMode(StrEnum):
    COMMIT_TIME_ORDERING = "COMMIT_TIME_ORDERING"
    EVENT_TIME_ORDERING = "EVENT_TIME_ORDERING"
    CUSTOM = "CUSTOM"


@unique
class TimelineTimezone(StrEnum):
    UTC = "UTC"
    LOCAL = "LOCAL"


@unique
class BaseFileFormat(StrEnum):
    PARQUET = "PARQUET"
    ORC = "ORC"
    HFILE = "HFILE"
    LANCE = "LANCE"


@unique
class IndexType(StrEnum):
    BUCKET = "BUCKET"
    SIMPLE = "SIMPLE"
    GLOBAL_SIMPLE = "GLOBAL_SIMPLE"
    BLOOM = "BLOOM"
    GLOBAL_BLOOM = "GLOBAL_BLOOM"
    RECORD_INDEX = "RECORD_INDEX"
    RECORD_LEVEL_INDEX = "RECORD_LEVEL_INDEX"
    GLOBAL_RECORD_LEVEL_INDEX = "GLOBAL_RECORD_LEVEL_INDEX"
    INMEMORY = "INMEMORY"
    FLINK_STATE = "FLINK_STATE"


RECORD_INDEXES = (IndexType.RECORD_INDEX, IndexType.GLOBAL_RECORD_LEVEL_INDEX)
"""Two names for looking a key up in the record index of the metadata table."""

GLOBAL_INDEXES = (IndexType.GLOBAL_SIMPLE, IndexType.GLOBAL_BLOOM, *RECORD_INDEXES)
"""Those that look a key up in the whole table, whatever partition its row claims: a key is there
once in the whole table."""

BLOOM_INDEXES = (IndexType.BLOOM, IndexType.GLOBAL_BLOOM)
"""Those that want a bloom filter over the keys of each base file."""

UNIQUE_KEY_INDEXES = (IndexType.RECORD_LEVEL_INDEX, *GLOBAL_INDEXES)
"""Those that know one place for each key, of its partition or of the whole table. Inserts look keys
up as well then, or a key would be there twice."""

LOOKUP_INDEXES = (IndexType.SIMPLE, IndexType.BLOOM, *UNIQUE_KEY_INDEXES)
"""Those that find a record by looking its key up, in files or in an index."""


@unique
class PartialUpdateMode(StrEnum):
    NONE = "NONE"
    IGNORE_DEFAULTS = "IGNORE_DEFAULTS"
    FILL_UNAVAILABLE = "FILL_UNAVAILABLE"


@unique
class CdcLoggingMode(StrEnum):
    OP_KEY_ONLY = "OP_KEY_ONLY"
    DATA_BEFORE = "DATA_BEFORE"
    DATA_BEFORE_AFTER = "DATA_BEFORE_AFTER"


NAME = Option("hoodie.table.name", NON_BLANK, default=None, doc="Name of the table.")
DATABASE = Option("hoodie.database.name", str, default=None, doc="Database of the table, if any.")
TYPE = Option(
    "hoodie.table.type",
    TableType,
    default=None,
    doc="Whether updates rewrite base files or go to log files that reads merge.",
)
VERSION = Option(
    "hoodie.table.version",
    int,
    default=None,
    is_managed=True,
    doc="Version of the table format. Headwater reads 6, 8 and 9 and writes 9.",
)
INITIAL_VERSION = Option(
    "hoodie.table.initial.version",
    int,
    default=None,
    is_managed=True,
    doc="Version of the table format when the table was created; it never changes.",
)
TIMELINE_LAYOUT_VERSION = Option(
    "hoodie.timeline.layout.version",
    int,
    default=2,
    is_managed=True,
    doc="Layout of the timeline; 2 for table versions 8 and 9, 1 before.",
)
TIMELINE_PATH = Option(
    "hoodie.timeline.path",
    str,
    default="timeline",
    is_managed=True,
    doc="Folder of the active timeline, relative to `.hoodie`.",
)
TIMELINE_HISTORY_PATH = Option(
    "hoodie.timeline.history.path",
    str,
    default="history",
    is_managed=True,
    doc="Folder of the archived timeline, relative to the active one.",
)
ARCHIVE_FOLDER = Option(
    "hoodie.archivelog.folder",
    str,
    default="archived",
    is_managed=True,
    doc="Archive folder of older table versions; still written, read by an upgrade only.",
)
TIMELINE_TIMEZONE = Option(
    "hoodie.table.timeline.timezone",
    TimelineTimezone,
    default=TimelineTimezone.LOCAL,
    doc="Zone of the digits in instant times. New tables say UTC.",
)
TABLE_FORMAT = Option(
    "hoodie.table.format",
    str,
    default="native",
    is_managed=True,
    doc="Format of the table's metadata; only Hudi's own.",
)
KEY_GENERATOR_TYPE = Option(
    "hoodie.table.keygenerator.type",
    str,
    default=None,
    doc="How record keys and partition paths are made of columns: SIMPLE, COMPLEX, "
    "NON_PARTITION, ... Inferred from the record key and partition fields.",
)
RECORD_KEY_FIELDS = Option(
    "hoodie.table.recordkey.fields",
    TEXT_LIST,
    default=(),
    doc="Columns of the record key. Absent: keys are generated.",
)
PARTITION_FIELDS = Option(
    "hoodie.table.partition.fields",
    TEXT_LIST,
    default=(),
    doc="Columns of the partition path. Absent: the table is not partitioned.",
)
ORDERING_FIELDS = Option(
    "hoodie.table.ordering.fields",
    TEXT_LIST,
    default=(),
    aliases=("hoodie.table.precombine.field",),
    doc="Columns whose larger value wins when two records share a key.",
)
MERGE_MODE = Option(
    "hoodie.record.merge.mode",
    MergeMode,
    default=None,
    doc="Which of two records with one key wins. Inferred: EVENT_TIME_ORDERING with ordering "
    "fields, else COMMIT_TIME_ORDERING.",
)
MERGE_STRATEGY_ID = Option(
    "hoodie.record.merge.strategy.id",
    str,
    default=None,
    is_managed=True,
    aliases=("hoodie.compaction.record.merger.strategy",),
    doc="Id of the merge strategy; version 9 tables state it for CUSTOM only.",
)
PAYLOAD_CLASS = Option(
    "hoodie.compaction.payload.class",
    str,
    default=None,
    is_managed=True,
    doc="Java class that merges records in tables with merge mode CUSTOM.",
)
LEGACY_PAYLOAD_CLASS = Option(
    "hoodie.table.legacy.payload.class",
    str,
    default=None,
    is_managed=True,
    doc="Payload class that a version 9 table had before its merge mode replaced it.",
)
PARTIAL_UPDATE_MODE = Option(
    "hoodie.table.partial.update.mode",
    PartialUpdateMode,
    default=PartialUpdateMode.NONE,
    doc="Which fields of an update keep the older value.",
)
CREATE_SCHEMA = Option(
    "hoodie.table.create.schema",
    str,
    default=None,
    is_managed=True,
    doc="Avro schema of the data columns at creation, as JSON.",
)
HIVE_STYLE_PARTITIONING = Option(
    "hoodie.datasource.write.hive_style_partitioning",
    bool,
    default=False,
    doc="Whether partition folders are named `column=value`. New tables say true.",
)
URL_ENCODE_PARTITIONING = Option(
    "hoodie.datasource.write.partitionpath.urlencode",
    bool,
    default=False,
    doc="Whether special characters in partition values are escaped as %XX.",
)
DROP_PARTITION_COLUMNS = Option(
    "hoodie.datasource.write.drop.partition.columns",
    bool,
    default=False,
    doc="Whether data files leave the partition columns out. Only false is supported.",
)
BASE_FILE_FORMAT = Option(
    "hoodie.table.base.file.format",
    BaseFileFormat,
    default=BaseFileFormat.PARQUET,
    doc="Format of base files: PARQUET, or HFILE for the metadata table.",
)
POPULATE_META_FIELDS = Option(
    "hoodie.populate.meta.fields",
    bool,
    default=True,
    doc="Whether the five meta columns are filled.",
)
FENCED = Option(
    "headwater.timeline.fenced",
    bool,
    default=False,
    doc="Whether decisions are put into a journal in the table's own folder, so that writers and "
    "services need no lock. New tables have one unless their options name the lock by its Java "
    "class, as jobs of Hudi's do: where Hudi writes at the same time, both need a lock that both "
    "know. `headwater table upgrade --fenced` or `--no-fenced` switches tables that are there.",
)
METADATA_PARTITIONS = Option(
    "hoodie.table.metadata.partitions",
    TEXT_LIST,
    default=(),
    is_managed=True,
    doc="Partitions of the metadata table that readers may use.",
)
METADATA_PARTITIONS_INFLIGHT = Option(
    "hoodie.table.metadata.partitions.inflight",
    TEXT_LIST,
    default=(),
    is_managed=True,
    doc="Partitions of the metadata table that are being built.",
)
INDEXES_TO_REBUILD = Option(
    "headwater.indexes.to.rebuild",
    TEXT_LIST,
    default=(),
    is_managed=True,
    doc="Partitions of the metadata table that were dropped because an instant in them was taken "
    "back, and that the next service builds again.",
)
INDEXES_PLANNED = Option(
    "headwater.indexes.planned",
    TEXT_LIST,
    default=(),
    is_managed=True,
    doc="Of indexes of a fenced table, the plan that each is of and the number of its file groups, "
    "as `index:instant:groups`. Files of earlier indexes of the same name count for nothing.",
)
CONFIG_SLOT = Option(
    "headwater.timeline.config_slot",
    integer(minimum=0),
    default=0,
    is_managed=True,
    doc="Of a fenced table, the decision that changed table config last. Another engine carries it "
    "along, so it tells whether what that engine wrote is made of the newest.",
)
INDEX_DEFS_PATH = Option(
    "hoodie.table.index.defs.path",
    str,
    default=None,
    is_managed=True,
    doc="File of the index definitions, relative to the table's base.",
)
CDC_ENABLED = Option(
    "hoodie.table.cdc.enabled",
    bool,
    default=False,
    doc="Whether writes keep change data beside the files.",
)
CDC_LOGGING_MODE = Option(
    "hoodie.table.cdc.supplemental.logging.mode",
    CdcLoggingMode,
    default=CdcLoggingMode.DATA_BEFORE_AFTER,
    doc="How much of a changed record the change data holds.",
)
MULTIPLE_BASE_FILE_FORMATS = Option(
    "hoodie.table.multiple.base.file.formats.enable",
    bool,
    default=False,
    doc="Whether base files may have several formats. Only false is supported.",
)
PARTITION_METAFILE_USE_BASE_FORMAT = Option(
    "hoodie.partition.metafile.use.base.format",
    bool,
    default=False,
    doc="Whether partition metafiles have the format of base files. Only false is supported.",
)
BOOTSTRAP_BASE_PATH = Option(
    "hoodie.bootstrap.base.path",
    str,
    default=None,
    doc="Location of data that a bootstrapped table refers to. Not supported.",
)
INDEX_TYPE = Option(
    "hoodie.index.type",
    IndexType,
    default=None,
    doc="How a record finds its file group: by the hash of its key (BUCKET), or by looking the key "
    "up in the base files of its partition (SIMPLE; BLOOM asks their bloom filters first), in all "
    "base files (GLOBAL_SIMPLE, GLOBAL_BLOOM), in the record index of the whole table "
    "(RECORD_INDEX, also named GLOBAL_RECORD_LEVEL_INDEX), or in one that is kept apart by "
    "partitions (RECORD_LEVEL_INDEX).",
)
BUCKET_COUNT = Option(
    "hoodie.bucket.index.num.buckets",
    integer(minimum=1),
    default=None,
    doc="File groups per partition of a table with a bucket index.",
)
CHECKSUM = Option(
    "hoodie.table.checksum",
    integer(minimum=0),
    default=None,
    is_managed=True,
    doc="CRC-32 of the database and table name; a torn file betrays itself by it.",
)

KEYGEN_TIMEBASED = OptionPrefix(
    "hoodie.keygen.timebased.", "Settings of the TIMESTAMP key generator."
)
MERGE_PROPERTY = OptionPrefix(
    "hoodie.record.merge.property.", "Settings that the table's merge rule needs."
)

TABLE_OPTIONS = tuple(each for each in list(globals().values()) if isinstance(each, Option))
"""All that are declared above; a few have no field in `TableConfig`, which only refuses them."""
TABLE_PREFIXES = (KEYGEN_TIMEBASED, MERGE_PROPERTY)
