"""Partitions of the metadata table: their names, file groups, and which group a key is in.

A file id is the prefix of the partition, a number of four digits and `-0`. Secondary and expression
indexes have a partition each, whose name makes the prefix. A record index that is partitioned keeps
file groups of its own for each partition of the table, with the escaped path behind the prefix; the
same record key may then be in several of them. The facts are in `docs/protocol/format-notes.md`;
how many groups a new partition gets, `config.metadata` says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum, unique
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.arrow.java_hash import string_hashes
from headwater.errors import CorruptTableError, ErrorKind, InvalidInputError
from headwater.format.metadata.index_definitions import IndexVersion
from headwater.format.metadata.schema import RecordType
from headwater.metadata.index_keys import secondary_hash_texts

FILES = "files"
COLUMN_STATS = "column_stats"
BLOOM_FILTERS = "bloom_filters"
RECORD_INDEX = "record_index"
PARTITION_STATS = "partition_stats"
SECONDARY_INDEX_PREFIX = "secondary_index_"
EXPRESSION_INDEX_PREFIX = "expr_index_"

_ESCAPED_IN_FILE_NAMES = frozenset([*map(chr, range(1, 32)), *"\"#%'*/:=?\\{[]^_-", "\x7f"])
_FILE_ID = re.compile(r"(?P<prefix>.+-)(?P<number>\d{4,})(?:-0)?")


@unique
class PartitionKind(StrEnum):
    FILES = FILES
    COLUMN_STATS = COLUMN_STATS
    BLOOM_FILTERS = BLOOM_FILTERS
    RECORD_INDEX = RECORD_INDEX
    PARTITION_STATS = PARTITION_STATS
    SECONDARY_INDEX = "secondary_index"
    EXPRESSION_INDEX = "expr_index"


_FILE_ID_PREFIXES: Mapping[PartitionKind, str] = MappingProxyType(
    {
        PartitionKind.FILES: "files-",
        PartitionKind.COLUMN_STATS: "col-stats-",
        PartitionKind.BLOOM_FILTERS: "bloom-filters-",
        PartitionKind.RECORD_INDEX: "record-index-",
        PartitionKind.PARTITION_STATS: "partition-stats-",
    }
)

_RECORD_TYPES: Mapping[PartitionKind, frozenset[RecordType]] = MappingProxyType(
    {
        PartitionKind.FILES: frozenset([RecordType.PARTITION_LIST, RecordType.FILE_LIST]),
        PartitionKind.COLUMN_STATS: frozenset([RecordType.COLUMN_STATS]),
        PartitionKind.BLOOM_FILTERS: frozenset([RecordType.BLOOM_FILTER]),
        PartitionKind.RECORD_INDEX: frozenset([RecordType.RECORD_INDEX]),
        PartitionKind.PARTITION_STATS: frozenset([RecordType.PARTITION_STATS]),
        PartitionKind.SECONDARY_INDEX: frozenset([RecordType.SECONDARY_INDEX]),
        PartitionKind.EXPRESSION_INDEX: frozenset(
            [RecordType.COLUMN_STATS, RecordType.PARTITION_STATS, RecordType.BLOOM_FILTER]
        ),
    }
)


def kind_of(partition: str) -> PartitionKind:
    """Return what kind of index a partition of the metadata table is.

    Raises:
        InvalidInputError: no index has such a name.
    """
    if partition.startswith(SECONDARY_INDEX_PREFIX):
        return PartitionKind.SECONDARY_INDEX
    if partition.startswith(EXPRESSION_INDEX_PREFIX):
        return PartitionKind.EXPRESSION_INDEX
    for kind in _FILE_ID_PREFIXES:
        if partition == kind.value:
            return kind
    raise InvalidInputError(
        f"{partition!r} is no partition of a metadata table. There are "
        f"{', '.join(_FILE_ID_PREFIXES)}, {SECONDARY_INDEX_PREFIX}<name> and "
        f"{EXPRESSION_INDEX_PREFIX}<name>",
        partition=partition,
    )


def file_id_prefix(partition: str, data_partition: str | None = None) -> str:
    """Return what the file ids of a partition begin with.

    `data_partition` is for a record index that is partitioned: a partition of the table.
    """
    prefix = _FILE_ID_PREFIXES.get(kind_of(partition), partition.replace("_", "-") + "-")
    return prefix if data_partition is None else f"{prefix}{_escaped(data_partition)}-"


def file_id(partition: str, group: int, data_partition: str | None = None) -> str:
    """Return the file id of one file group of a partition."""
    return f"{file_id_prefix(partition, data_partition)}{group:04d}-0"


def needs_of(partition: str) -> frozenset[str]:
    """Return the partitions beside `files` without which this one says nothing."""
    match kind_of(partition):
        case PartitionKind.SECONDARY_INDEX:
            return frozenset({RECORD_INDEX})
        case PartitionKind.PARTITION_STATS:
            return frozenset({COLUMN_STATS})
        case _:
            return frozenset()


def partition_of(path: str) -> str:
    """Return the partition that a file is in: the name of its folder."""
    return path.rpartition("/")[0].rpartition("/")[2]


def record_types(partition: str) -> frozenset[RecordType]:
    """Return which types the records of a partition may have."""
    return _RECORD_TYPES[kind_of(partition)]


def group_number(file_id: str) -> int:
    """Return the number of a file group.

    Raises:
        InvalidInputError: it is no file id of a metadata table.
    """
    return int(_parsed(file_id)["number"])


def data_partition_of(file_id: str) -> str | None:
    """Return the partition of the table whose keys a group of the record index has.

    None stands for an index that is not partitioned.
    """
    rest = _parsed(file_id)["prefix"].removeprefix(_FILE_ID_PREFIXES[PartitionKind.RECORD_INDEX])
    return _unescaped(rest.removesuffix("-")) if rest else None


def group_count(file_ids: Iterable[str]) -> int:
    """Return how many file groups a partition has, from the file ids in its folder.

    Those of a record index that is partitioned are counted for each partition of the table.

    Raises:
        CorruptTableError: some group is missing, so keys cannot be found.
    """
    numbers = {group_number(file_id) for file_id in file_ids}
    if numbers != set(range(len(numbers))):
        raise CorruptTableError(
            f"The file groups {sorted(numbers)} of the metadata table have gaps. Rebuild the "
            "partition",
            kind=ErrorKind.CORRUPT_METADATA_TABLE,
        )
    return len(numbers)


def groups_of_keys(
    partition: str,
    keys: pa.StringArray,
    group_count: int,
    version: IndexVersion = IndexVersion.V2,
) -> npt.NDArray[np.int64]:
    """Return the file group of each key.

    `version` is that of a secondary index: since version 2 all keys of one secondary value are in
    one group. In a record index that is partitioned, `group_count` is that of the partition.
    """
    if group_count == 1:
        return np.zeros(len(keys), np.int64)
    is_secondary = kind_of(partition) is PartitionKind.SECONDARY_INDEX
    texts = secondary_hash_texts(keys) if is_secondary and version >= IndexVersion.V2 else keys
    return np.abs(string_hashes(texts).astype(np.int64)) % group_count


def _parsed(file_id: str) -> re.Match[str]:
    match = _FILE_ID.fullmatch(file_id)
    if match is None:
        raise InvalidInputError(f"{file_id!r} is no file id of a metadata table", file_id=file_id)
    return match


def _escaped(text: str) -> str:
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED_IN_FILE_NAMES else char for char in text)


def _unescaped(text: str) -> str:
    return re.sub(r"%([0-9A-Fa-f]{2})", lambda match: chr(int(match[1], 16)), text)
