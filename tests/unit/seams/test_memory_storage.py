from __future__ import annotations

from tests.support.memory_storage import MemoryStorage

from headwater.seams.clock import SystemClock


class StoppedClock(SystemClock):
    def __init__(self, now_ms: int) -> None:
        self.stands_at_ms = now_ms

    def now_ms(self) -> int:
        return self.stands_at_ms


def test_modified_ms_comes_from_the_clock() -> None:
    clock = StoppedClock(1_000)
    storage = MemoryStorage(clock=clock)
    storage.put("a", b"1")
    clock.stands_at_ms = 2_000
    storage.put("b", b"1")
    assert storage.info("a").modified_ms == 1_000
    assert [info.modified_ms for info in storage.list_tree("")] == [1_000, 2_000]


def test_a_buffer_that_its_owner_reuses_does_not_change_the_object() -> None:
    storage = MemoryStorage()
    buffer = bytearray(b"first")
    storage.put("a", buffer)  # type: ignore[arg-type]
    buffer[:] = b"other"
    assert storage.read("a") == b"first"


def test_two_storages_share_nothing() -> None:
    MemoryStorage().put("a", b"1")
    assert MemoryStorage().list_names("") == []
