"""How data files are written: formats, sizes, and how much a task may hold in memory."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, unique

from headwater.config.option import NON_BLANK, RATE, TEXT_LIST, Option, integer
from headwater.config.option_config import OptionConfig, setting
from headwater.config.table_options import IndexType


@unique
class LogBlockFormat(StrEnum):
    PARQUET = "parquet"
    AVRO = "avro"


@unique
class Compression(StrEnum):
    UNCOMPRESSED = "uncompressed"
    SNAPPY = "snappy"
    GZIP = "gzip"
    ZSTD = "zstd"


@unique
class DuplicatePolicy(StrEnum):
    """What an insert does with a row whose key the table has."""

    NONE = "none"
    DROP = "drop"
    FAIL = "fail"


LOG_BLOCK_FORMAT = Option(
    "hoodie.logfile.data.block.format",
    LogBlockFormat,
    default=LogBlockFormat.PARQUET,
    doc="Format of the data blocks in new log files. Parquet blocks are written and read faster.",
)
COMPRESSION = Option(
    "hoodie.parquet.compression.codec",
    Compression,
    default=Compression.ZSTD,
    doc="Compression of new Parquet files and blocks. Hudi's own default, gzip, costs several "
    "times as much for files of about the same size as zstd.",
)
FILE_SIZE_MAX = Option(
    "hoodie.parquet.max.file.size",
    integer(minimum=1),
    default=120 * 1024 * 1024,
    doc="Bytes at which a base file is full. A bucket is one file group and may grow beyond it.",
)
SMALL_FILE_LIMIT = Option(
    "hoodie.parquet.small.file.limit",
    integer(minimum=0),
    default=100 * 1024 * 1024,
    doc="Base files below this many bytes are filled up by inserts. 0 never fills a file up.",
)
RECORD_SIZE_ESTIMATE = Option(
    "hoodie.copyonwrite.record.size.estimate",
    integer(minimum=1),
    default=None,
    doc="Bytes of a record in a base file, until earlier commits of the table tell. Default: as "
    "many as the rows take in memory, so that new files rather stay below their maximum.",
)
BLOOM_KEYS = Option(
    "hoodie.index.bloom.num_entries",
    integer(minimum=1),
    default=None,
    doc="Keys that the bloom filter of a base file is made for, in tables with a BLOOM or "
    "GLOBAL_BLOOM index. Default: as many as the file has, which makes filters small and never "
    "overfills them.",
)
BLOOM_FALSE_POSITIVE_RATE = Option(
    "hoodie.index.bloom.fpp",
    RATE,
    default=1e-9,
    doc="How often a bloom filter takes a key that is not there for one that may be. A file is "
    "read if any key of a write may be in it, so the rate is far below one in a write's keys.",
)
BLOOM_KEYS_MAX = Option(
    "hoodie.bloom.index.filter.dynamic.max.entries",
    integer(minimum=1),
    default=100_000,
    doc="Keys up to which a bloom filter of a given number of entries grows with its file.",
)
BLOOM_USES_METADATA = Option(
    "hoodie.bloom.index.use.metadata",
    bool,
    default=False,
    doc="Whether writes to tables with a BLOOM or GLOBAL_BLOOM index take bloom filters and key "
    "ranges from the metadata table, where it has them, instead of the footers of the base files.",
)
SIMPLE_MOVES_RECORDS = Option(
    "hoodie.simple.index.update.partition.path",
    bool,
    default=True,
    doc="Whether a record of a table with a GLOBAL_SIMPLE index moves to the partition that a new "
    "row of its key names, if that row wins. If not, it stays where it was first written.",
)
BLOOM_MOVES_RECORDS = Option(
    "hoodie.bloom.index.update.partition.path",
    bool,
    default=True,
    doc="The same for tables with a GLOBAL_BLOOM index.",
)
RECORD_INDEX_MOVES_RECORDS = Option(
    "hoodie.record.index.update.partition.path",
    bool,
    default=False,
    doc="The same for tables with a RECORD_INDEX or GLOBAL_RECORD_LEVEL_INDEX.",
)
BULK_INSERT_SORT_COLUMNS: Option[tuple[str, ...], tuple[str, ...]] = Option(
    "hoodie.bulkinsert.user.defined.partitioner.sort.columns",
    TEXT_LIST,
    default=(),
    doc="Columns by which bulk_insert sorts the rows that it brings to each file.",
)
INSERT_DUPLICATES = Option(
    "hoodie.datasource.insert.dup.policy",
    DuplicatePolicy,
    default=DuplicatePolicy.NONE,
    doc="What an insert does with rows whose keys the table has: none takes them like any others, "
    "drop leaves them out, fail refuses the insert. With drop and fail every index is asked, and "
    "of several rows of one key in a batch one counts, as in an upsert.",
)
PARALLELISM = Option(
    "headwater.write.tasks",
    integer(minimum=1),
    default=None,
    doc="Tasks of a distributed write. Default: three for each core of the cluster.",
)
TASK_MEMORY = Option(
    "headwater.write.task.memory.bytes",
    integer(minimum=1024 * 1024),
    default=256 * 1024 * 1024,
    doc="Bytes of incoming rows that a task holds before it moves them to local disk.",
)
INLINE_BYTES = Option(
    "headwater.write.inline.bytes",
    integer(minimum=0),
    default=64 * 1024 * 1024,
    doc="A DataFrame of at most this many bytes is written by the driver, without a Spark job. 0 "
    "sends every DataFrame through Spark.",
)
ALLOW_LOSSY_WIDENING = Option(
    "headwater.schema.allow.lossy.widening",
    bool,
    default=False,
    doc="Whether a column of integers becomes one of doubles when rows have floating point numbers "
    "for it, and integers are rounded to fit into such a column. That changes large integers, also "
    "those of older rows. If not, such values are refused; whole numbers are stored as integers.",
)
VERIFY_CHECKSUMS = Option(
    "headwater.read.verify.checksums",
    bool,
    default=True,
    doc="Whether reads compare the checksums of base files, so that a bit that fell over on a disk "
    "is an error and not another value. It costs two hundredths of a read. What is written anew "
    "is always compared. Files of other engines are compared as far as they have checksums.",
)
MERGE_FUNCTION = Option(
    "headwater.merge.function",
    NON_BLANK,
    default=None,
    doc="`module:function` that merges records of a table with merge mode CUSTOM. It is taken from "
    "the options of whoever opens the table and never from the table itself.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileConfig(OptionConfig):
    log_block_format: LogBlockFormat = setting(LOG_BLOCK_FORMAT)
    compression: Compression = setting(COMPRESSION)
    file_size_max: int = setting(FILE_SIZE_MAX)
    small_file_limit: int = setting(SMALL_FILE_LIMIT)
    record_size_estimate: int | None = setting(RECORD_SIZE_ESTIMATE)
    bloom_keys: int | None = setting(BLOOM_KEYS)
    bloom_false_positive_rate: float = setting(BLOOM_FALSE_POSITIVE_RATE)
    bloom_keys_max: int = setting(BLOOM_KEYS_MAX)
    bloom_uses_metadata: bool = setting(BLOOM_USES_METADATA)
    simple_moves_records: bool = setting(SIMPLE_MOVES_RECORDS)
    bloom_moves_records: bool = setting(BLOOM_MOVES_RECORDS)
    record_index_moves_records: bool = setting(RECORD_INDEX_MOVES_RECORDS)
    sort_columns: tuple[str, ...] = setting(BULK_INSERT_SORT_COLUMNS)
    duplicates: DuplicatePolicy = setting(INSERT_DUPLICATES)
    task_count: int | None = setting(PARALLELISM)
    task_memory_bytes: int = setting(TASK_MEMORY)
    inline_bytes: int = setting(INLINE_BYTES)
    allows_lossy_widening: bool = setting(ALLOW_LOSSY_WIDENING)
    verifies_checksums: bool = setting(VERIFY_CHECKSUMS)
    merge_function: str | None = setting(MERGE_FUNCTION)

    def moves_records(self, index: IndexType | None) -> bool:
        """Whether a record goes to the partition that a new row of its key names.

        Asked of an index of the whole table; with others keys are apart by partitions.
        """
        match index:
            case IndexType.GLOBAL_SIMPLE:
                return self.simple_moves_records
            case IndexType.GLOBAL_BLOOM:
                return self.bloom_moves_records
            case IndexType.RECORD_INDEX | IndexType.GLOBAL_RECORD_LEVEL_INDEX:
                return self.record_index_moves_records
            case _:
                return False
