"""The file that marks a partition (format rule 1.5)."""

from __future__ import annotations

import pytest

from headwater.errors import CorruptTableError
from headwater.format.partition_metadata import (
    PartitionMetadata,
    encode_partition_metadata,
    parse_partition_metadata,
    partition_metadata_path,
)
from headwater.model.instant import InstantTime

TIME = InstantTime("20260307135657661")


def test_the_bytes() -> None:
    first, checksum, *rest = encode_partition_metadata("region=eu", TIME).splitlines()
    assert first == b"#partition metadata"
    assert checksum.startswith(b"#headwater.crc32")
    assert rest == [b"commitTime=20260307135657661", b"partitionDepth=1"]


@pytest.mark.parametrize(
    ("partition", "depth", "path"),
    [
        ("", 0, ".hoodie_partition_metadata"),
        ("2024/01/15/10", 4, "2024/01/15/10/.hoodie_partition_metadata"),
    ],
)
def test_the_depth_counts_folders(partition: str, depth: int, path: str) -> None:
    data = encode_partition_metadata(partition, TIME)
    assert parse_partition_metadata(data, path="p") == PartitionMetadata(TIME, depth)
    assert partition_metadata_path(partition) == path


@pytest.mark.parametrize(
    "data", [b"", b"commitTime=1\n", b"partitionDepth=1\n", b"commitTime=1\npartitionDepth=x\n"]
)
def test_a_file_that_lacks_a_value_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptTableError, match=r"region=eu/\.hoodie_partition_metadata"):
        parse_partition_metadata(data, path="region=eu/.hoodie_partition_metadata")
