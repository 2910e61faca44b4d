"""`.hoodie_partition_metadata`: the file by which Hudi knows a folder for a partition."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.errors import CorruptTableError, ErrorKind
from headwater.format.properties import encode_properties, parse_properties
from headwater.model.instant import InstantTime

PARTITION_METADATA_NAME = ".hoodie_partition_metadata"

_COMMIT_TIME = "commitTime"
_DEPTH = "partitionDepth"
_DIGITS_MAX = 9


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """Which instant created the partition, and how many folders deep it lies in the table."""

    commit_time: InstantTime
    depth: int


def partition_metadata_path(partition: str) -> str:
    """Return the path of the file, relative to the table's base."""
    return f"{partition}/{PARTITION_METADATA_NAME}" if partition else PARTITION_METADATA_NAME


def encode_partition_metadata(partition: str, commit_time: InstantTime) -> bytes:
    """Return the content of the file. Equal arguments give equal bytes: it holds no clock time."""
    depth = partition.count("/") + 1 if partition else 0
    values = {_COMMIT_TIME: commit_time, _DEPTH: str(depth)}
    return encode_properties(values, comment="partition metadata")


def parse_partition_metadata(data: bytes, *, path: str) -> PartitionMetadata:
    """Return what the file says; `path` is for errors only.

    Raises:
        CorruptTableError: it is no properties text, or lacks one of its two values.
    """
    values = parse_properties(data, path=path)
    depth = values.get(_DEPTH, "")
    is_number = depth.isascii() and depth.isdigit() and len(depth) <= _DIGITS_MAX
    if _COMMIT_TIME not in values or not is_number:
        raise CorruptTableError(
            f"{path} needs {_COMMIT_TIME} and {_DEPTH}, a number. Delete the file; the next write "
            "to the partition creates it again",
            kind=ErrorKind.CORRUPT_PROPERTIES,
            path=path,
        )
    return PartitionMetadata(InstantTime(values[_COMMIT_TIME]), int(depth))
