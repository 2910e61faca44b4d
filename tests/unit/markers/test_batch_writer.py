"""Batching: many markers in few writes, and what becomes of them when a write fails."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from tests.support.counting_storage import CountingStorage
from tests.support.memory_storage import MemoryStorage

from headwater.errors import StorageError
from headwater.kernel.txn.markers import Marker, MarkerKind
from headwater.markers import batch_writer
from headwater.markers.batch_writer import Added, BatchWriter
from headwater.markers.batches import batch_path, load_every_marker, marker_type_path
from headwater.model.instant import InstantTime

T = InstantTime("20260101000000000")
WRITERS = batch_writer._WRITERS_MAX
R = TypeVar("R")


def marker(name: object) -> Marker:
    return Marker(f"p/{name}_0-1-0_{T}.parquet", MarkerKind.CREATE)


class SlowStorage(MemoryStorage):
    """Writes of batches wait until the test lets them go; those that hold "bad" fail then."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.lost: list[tuple[str, bytes]] = []

    def put(self, path: str, data: bytes) -> None:
        self._wait(path, data)
        super().put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._wait(path, data)
        super().put_if_absent(path, data)

    def _wait(self, path: str, data: bytes) -> None:
        if path == marker_type_path(T):
            return
        assert self.gate.wait(300)
        if b"bad" in data:
            self.lost.append((path, data))
            raise StorageError(f"{path}: the disk is full")


async def begin(work: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
    """Let a call run until it waits for something."""
    task = asyncio.create_task(work)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return task


async def occupy(writer: BatchWriter) -> list[asyncio.Task[Added]]:
    """Give each writer something to do."""
    return [await begin(writer.add([marker(f"busy{n}")])) for n in range(WRITERS)]


def test_a_lone_marker_is_written_at_once() -> None:
    async def scenario() -> None:
        storage = CountingStorage(MemoryStorage())
        writer = BatchWriter(storage, T, file_count=3)
        storage.reset()
        assert await writer.add([marker("a")]) is Added.DURABLE
        assert storage.counts == {"put_if_absent": 1}
        assert load_every_marker(storage, T) == writer.markers() == [marker("a")]

    asyncio.run(scenario())


def test_all_that_arrive_while_the_writers_are_busy_are_one_write() -> None:
    async def scenario() -> None:
        slow = SlowStorage()
        storage = CountingStorage(slow)
        writer = BatchWriter(storage, T, file_count=WRITERS + 1)
        storage.reset()
        calls = await occupy(writer)
        calls += [await begin(writer.add([marker(n)])) for n in range(100)]
        assert not any(call.done() for call in calls)
        assert writer.markers() == []
        slow.gate.set()
        assert set(await asyncio.gather(*calls)) == {Added.DURABLE}
        assert storage.count("put", "put_if_absent") == WRITERS + 1
        assert len(load_every_marker(storage, T)) == 100 + WRITERS

    asyncio.run(scenario())


def test_batches_go_round_over_the_files() -> None:
    async def scenario() -> None:
        storage = CountingStorage(MemoryStorage(), keep_trace=True)
        writer = BatchWriter(storage, T, file_count=3)
        storage.reset()
        for n in range(7):
            await writer.add([marker(n)])
        numbers = [path.removeprefix(batch_path(T, 0)[:-1]) for _, path in storage.trace]
        assert numbers == ["0", "1", "2", "0", "1", "2", "0"]
        assert len(load_every_marker(storage, T)) == 7

    asyncio.run(scenario())


def test_a_marker_is_stored_once_however_often_it_is_created() -> None:
    async def scenario() -> None:
        slow = SlowStorage()
        writer = BatchWriter(slow, T, file_count=5)
        twice = [marker("a"), marker("a")]
        calls = [await begin(writer.add(twice)) for _ in range(3)]
        slow.gate.set()
        await asyncio.gather(*calls)
        await writer.add([marker("a")])
        (name,) = set(slow.list_names(f".hoodie/.temp/{T}")) - {"MARKERS.type"}
        assert slow.read(f".hoodie/.temp/{T}/{name}").count(b"\n") == 1

    asyncio.run(scenario())


def test_nothing_to_add_is_durable() -> None:
    writer = BatchWriter(MemoryStorage(), T, file_count=1)
    assert asyncio.run(writer.add([])) is Added.DURABLE


def test_a_full_queue_takes_no_more_until_it_is_written() -> None:
    async def scenario() -> None:
        slow = SlowStorage()
        writer = BatchWriter(slow, T, file_count=20, queue_max=2)
        calls = await occupy(writer)
        calls.append(await begin(writer.add([marker("a"), marker("b")])))
        assert await writer.add([marker("c")]) is Added.BUSY
        # What is on its way already needs no room.
        calls.append(await begin(writer.add([marker("a")])))
        slow.gate.set()
        assert set(await asyncio.gather(*calls)) == {Added.DURABLE}
        assert marker("c") not in load_every_marker(slow, T)
        assert await writer.add([marker("c")]) is Added.DURABLE

    asyncio.run(scenario())


def test_a_request_larger_than_the_queue_is_taken_by_an_empty_one() -> None:
    async def scenario() -> None:
        writer = BatchWriter(MemoryStorage(), T, file_count=1, queue_max=1)
        assert await writer.add([marker(n) for n in range(5)]) is Added.DURABLE

    asyncio.run(scenario())


def test_a_failed_write_fails_those_that_were_in_it_and_nobody_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        slow = SlowStorage()
        writer = BatchWriter(slow, T, file_count=WRITERS)
        before = await occupy(writer)
        together = [await begin(writer.add([marker(name)])) for name in ("a", "bad", "b")]
        slow.gate.set()
        assert set(await asyncio.gather(*before)) == {Added.DURABLE}
        errors = await asyncio.gather(*together, return_exceptions=True)
        assert [type(error) for error in errors] == [StorageError] * 3
        assert all("the disk is full" in str(error) and T in str(error) for error in errors)
        # Nothing of the failed batch counts as durable, and it may be tried again.
        assert len(writer.markers()) == WRITERS
        assert await writer.add([marker("a"), marker("b")]) is Added.DURABLE
        with pytest.raises(StorageError):
            await writer.add([marker("bad")])
        assert load_every_marker(slow, T) == writer.markers()

    with caplog.at_level(logging.CRITICAL, logger=batch_writer.__name__):
        asyncio.run(scenario())


def test_a_failed_write_that_lands_late_takes_nothing_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Stores may apply a write after they reported its failure; it replaces a whole file."""

    async def scenario() -> None:
        slow = SlowStorage()
        slow.gate.set()
        writer = BatchWriter(slow, T, file_count=1)
        await writer.add([marker("a")])
        with pytest.raises(StorageError):
            await writer.add([marker("bad")])
        for name in ("b", "c"):
            await writer.add([marker(name)])
        durable = set(writer.markers())
        assert durable == {marker("a"), marker("b"), marker("c")}
        ((path, data),) = slow.lost
        MemoryStorage.put(slow, path, data)
        assert durable <= set(load_every_marker(slow, T))

    with caplog.at_level(logging.CRITICAL, logger=batch_writer.__name__):
        asyncio.run(scenario())


def test_a_store_that_keeps_failing_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        slow = SlowStorage()
        slow.gate.set()
        writer = BatchWriter(slow, T, file_count=2)
        for n in range(batch_writer._FAILURES_MAX):
            with pytest.raises(StorageError):
                await writer.add([marker(f"bad{n}")])
        with pytest.raises(StorageError, match="failed 100 times"):
            await writer.add([marker("good")])
        assert len(slow.lost) == batch_writer._FAILURES_MAX

    with caplog.at_level(logging.CRITICAL, logger=batch_writer.__name__):
        asyncio.run(scenario())


def test_sealing_waits_for_what_is_on_its_way_and_lets_nothing_in() -> None:
    async def scenario() -> None:
        slow = SlowStorage()
        writer = BatchWriter(slow, T, file_count=20)
        calls = await occupy(writer)
        calls.append(await begin(writer.add([marker("last")])))
        sealing = await begin(writer.seal())
        assert await writer.add([marker("late")]) is Added.SEALED
        assert not sealing.done()
        slow.gate.set()
        await sealing
        assert marker("last") in load_every_marker(slow, T)
        assert set(await asyncio.gather(*calls)) == {Added.DURABLE}
        assert await writer.add([marker("a")]) is Added.SEALED
        assert len(load_every_marker(slow, T)) == WRITERS + 1

    asyncio.run(scenario())


def test_a_second_service_of_an_instant_leaves_the_files_of_the_first() -> None:
    storage = MemoryStorage()

    async def serve(*names: str) -> None:
        writer = BatchWriter(storage, T, file_count=2)
        for name in names:
            await writer.add([marker(name)])
        assert len(writer.markers()) == len(names)

    asyncio.run(serve("a", "b", "c"))
    asyncio.run(serve("d", "e", "f"))
    assert load_every_marker(storage, T) == [marker(name) for name in "abcdef"]


def test_two_services_that_start_together_overwrite_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One of them is a stalled driver that somebody took over from."""

    async def scenario() -> None:
        storage = MemoryStorage()
        stalled = BatchWriter(storage, T, file_count=1)
        heir = BatchWriter(storage, T, file_count=1)
        assert await stalled.add([marker("a")]) is Added.DURABLE
        with pytest.raises(StorageError, match="exists already"):
            await heir.add([marker("b")])
        # The client tries again.
        assert await heir.add([marker("b")]) is Added.DURABLE
        await stalled.add([marker("c")])
        await heir.add([marker("d")])
        assert load_every_marker(storage, T) == [marker(name) for name in "abcd"]

    with caplog.at_level(logging.CRITICAL, logger=batch_writer.__name__):
        asyncio.run(scenario())
