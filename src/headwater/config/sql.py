"""Options of SQL statements."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, unique

from headwater.config.option import Option
from headwater.config.option_config import OptionConfig, setting


@unique
class InsertOperation(StrEnum):
    INSERT = "insert"
    UPSERT = "upsert"
    BULK_INSERT = "bulk_insert"


@unique
class OverwriteMode(StrEnum):
    STATIC = "STATIC"
    DYNAMIC = "DYNAMIC"


INSERT_OPERATION = Option(
    "hoodie.spark.sql.insert.into.operation",
    InsertOperation,
    default=InsertOperation.INSERT,
    doc="What INSERT INTO does with its rows.",
)
OVERWRITE_MODE = Option(
    "hoodie.datasource.overwrite.mode",
    OverwriteMode,
    default=None,
    doc="Whether INSERT OVERWRITE without PARTITION replaces the whole table, or the partitions "
    "that get rows. Default: what `spark.sql.sources.partitionOverwriteMode` says.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlConfig(OptionConfig):
    insert_operation: InsertOperation = setting(INSERT_OPERATION)
    overwrite_mode: OverwriteMode | None = setting(OVERWRITE_MODE)
