"""The kinds of writes."""

from __future__ import annotations

from enum import StrEnum, unique


@unique
class Operation(StrEnum):
    """A kind of write, under the name it has in commit metadata."""

    UPSERT = "UPSERT"
    INSERT = "INSERT"
    BULK_INSERT = "BULK_INSERT"
    DELETE = "DELETE"
    OVERWRITE = "INSERT_OVERWRITE_TABLE"
    OVERWRITE_PARTITIONS = "INSERT_OVERWRITE"
    DELETE_PARTITIONS = "DELETE_PARTITION"

    @property
    def is_replacing(self) -> bool:
        """Whether the write hides file groups that exist and starts new ones instead."""
        return self in (
            Operation.OVERWRITE,
            Operation.OVERWRITE_PARTITIONS,
            Operation.DELETE_PARTITIONS,
        )
