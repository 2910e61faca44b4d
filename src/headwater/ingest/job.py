"""A job: where rows come from, what becomes of them, and where they go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique
from typing import TypeAlias

import pyarrow as pa

from headwater.config.write import ConcurrencyMode
from headwater.model.operation import Operation


@unique
class FileFormat(StrEnum):
    PARQUET = "parquet"
    JSON = "json"  # An object a line.
    CSV = "csv"
    AVRO = "avro"


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderSource:
    """Files that come into a folder, and do not change afterwards."""

    path: str
    format: FileFormat
    columns: pa.Schema | None = None
    """What the rows are read as; the target's columns unless given."""
    patterns: tuple[str, ...]
    min_age_ms: int = 0
    files_max: int = 1000
    bytes_max: int = 1 << 30
    delimiter: str = ","
    has_header: bool = True
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    """What is written to another table."""

    path: str
    is_feed: bool = False
    """Whether to read every change, deletes too, and not the newest version of each record."""
    after: str | None = None
    """The completion time after which to begin; the table's beginning unless given."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSource:
    """Records of Kafka, by the package of the user's Spark."""

    servers: str
    topic: str
    columns: pa.Schema | None = None
    """What the JSON in the records' values is read as; the target's columns unless given."""
    partitions: int = 0
    """How many there are at least, so that one that came later is read from its beginning."""
    records_max: int = 100_000
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Kafka's own, such as `kafka.security.protocol`."""


Source: TypeAlias = FolderSource | TableSource | KafkaSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    path: str
    operation: Operation = Operation.UPSERT
    mode: ConcurrencyMode = ConcurrencyMode.OPTIMISTIC
    is_partial: bool = False
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineRule:
    """Where bad rows go, and how many of a batch may be bad."""

    path: str
    rows_max: int = 1000
    share_max: float = 0.1
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    name: str
    source: Source
    target: Target
    select: str | None = None
    """A SELECT of each row of `source`."""
    quarantine: QuarantineRule | None = None
    """Without one the first bad row stops the job."""
    zone: str = "UTC"
    """That of times which do not say theirs."""
