"""What the folder of a partition of the metadata table tells."""

from __future__ import annotations

from tests.support.memory_storage import MemoryStorage

from headwater.kernel.layout import METADATA
from headwater.metadata.partition_files import list_groups
from headwater.metadata.partition_kinds import file_id

T = "20260101000000000"


def test_the_file_groups_of_a_partition_are_found_by_the_names_of_their_files() -> None:
    storage = MemoryStorage()
    names = [file_id("record_index", number) for number in range(11)]
    apart = file_id("record_index", 0, "city=a_b/day=1_2")
    for name in (*reversed(names), apart):
        for version in (1, 2):
            storage.put(f"{METADATA}/record_index/.{name}_{T}.log.{version}_0-1-0", b"")
        storage.put(f"{METADATA}/record_index/{name}_0-1-0_{T}.hfile", b"")
    storage.put(f"{METADATA}/record_index/.hoodie_partition_metadata", b"")
    found = list_groups(storage, "record_index")
    assert sorted(found) == sorted([*names, apart])
    assert [one for one in found if one != apart] == names
    assert list_groups(storage, "column_stats") == []
