"""Objects that are put together."""

from __future__ import annotations

from tests.support.counting_storage import CountingStorage
from tests.support.memory_storage import MemoryStorage

from headwater.seams.batched_puts import BatchedPuts


def test_objects_wait_for_each_other_up_to_a_number_of_bytes() -> None:
    storage = CountingStorage(MemoryStorage())
    puts = BatchedPuts(storage, bytes_max=3)
    puts.add("a", b"1")
    puts.add("b", b"2")
    assert storage.list_names("") == []
    puts.add("c", b"34")
    assert sorted(storage.list_names("")) == ["a", "b", "c"]
    puts.add("d", b"5")
    assert storage.count("put_many") == 3
    puts.flush()
    assert storage.read_many("abcd") == [b"1", b"2", b"34", b"5"]
    assert storage.count("put_many") == 4
