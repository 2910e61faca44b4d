"""Records of one partition of the metadata table, as Arrow arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class MetadataRecords:
    """Keys with their records, and keys that are gone. No key is in both."""

    keys: pa.StringArray
    """In any order, each once."""
    values: pa.BinaryArray | pa.DictionaryArray
    """The records as Avro datums of `HoodieMetadataRecord`, one for each key. Those of builds may
    be dictionaries, where many keys have few values."""
    removed: pa.StringArray

    @classmethod
    def none(cls) -> Self:
        return cls(pa.array([], pa.string()), pa.array([], pa.binary()), pa.array([], pa.string()))

    def __len__(self) -> int:
        return len(self.keys) + len(self.removed)


@dataclass(frozen=True, slots=True)
class PartitionedRecords:
    """Records of a record index that is kept apart by partitions of the table.

    The same key may be there in several of them, so what is said about it names the partition.
    """

    by_partition: Mapping[str, MetadataRecords]
