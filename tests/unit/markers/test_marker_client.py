"""What a task sees of the marker service: durable markers, or an error that says what to do."""

from __future__ import annotations

import logging
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.support.counting_storage import CountingStorage
from tests.support.manual_clock import ManualClock
from tests.support.memory_storage import MemoryStorage

from headwater.config.markers import MarkerConfig
from headwater.errors import (
    EarlyConflictError,
    ErrorKind,
    InvalidInputError,
    Retry,
    StorageError,
)
from headwater.kernel.txn.markers import Marker, MarkerKind
from headwater.markers import batch_writer, client
from headwater.markers.batches import load_every_marker, marker_type_path
from headwater.markers.client import MarkerClient, MarkerServiceAddress
from headwater.markers.running import start_marker_service
from headwater.markers.service import NoConflictWatch
from headwater.model.files import FileGroupId
from headwater.model.instant import InstantTime
from headwater.seams.clock import Clock
from headwater.seams.ids import SystemIds
from headwater.seams.local import LocalStorage

Serve = Callable[..., MarkerServiceAddress]

T = InstantTime("20260101000000000")
SOON_S = 300  # How long to wait for what comes at once; reached only by a failure.


def marker(name: object) -> Marker:
    return Marker(f"city=sf/{name}_0-1-0_{T}.parquet", MarkerKind.CREATE)


def client_of(address: MarkerServiceAddress, clock: Clock | None = None) -> MarkerClient:
    return MarkerClient(address, clock or ManualClock(), SystemIds())


def test_a_marker_is_durable_when_create_returns(serve: Serve) -> None:
    storage = MemoryStorage()
    with client_of(serve(storage)) as markers:
        markers.create(marker("a"))
        assert load_every_marker(storage, T) == [marker("a")]
        markers.create(marker("a"))
        markers.create(marker("b"))
        assert load_every_marker(storage, T) == [marker("a"), marker("b")]
        assert markers.markers() == [marker("a"), marker("b")]
        assert markers.markers(FileGroupId("city=sf", "b")) == [marker("b")]
        markers.delete_all()
        assert storage.list_tree("") == []


def test_many_markers_go_in_as_many_requests_as_they_need(serve: Serve) -> None:
    storage = CountingStorage(MemoryStorage())
    address = serve(storage)
    storage.reset()
    wide = [Marker(f"{'é' * 490}/{n}_0-1-0_{T}.parquet", MarkerKind.CREATE) for n in range(600)]
    with client_of(address) as markers:
        markers.create_all(wide)
        markers.create_all([])
    assert storage.count("put", "put_if_absent") == 3
    assert load_every_marker(storage, T) == sorted(wide)


def test_the_address_travels_with_the_plan_and_keeps_its_token_to_itself() -> None:
    address = MarkerServiceAddress("driver", 4040, T, "secret")
    assert pickle.loads(pickle.dumps(address)) == address
    assert len(pickle.dumps(address)) < 300
    assert "secret" not in f"{address} {address!r}"


# Connections -----------------------------------------------------------------------------------


class CountedConnections:
    """Passes connections on to a service, counts them, and cuts them on demand."""

    def __init__(self, target: MarkerServiceAddress) -> None:
        self._target = (target.host, target.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = MarkerServiceAddress(
            "127.0.0.1", self._listener.getsockname()[1], target.instant_time, target.token
        )
        self.count = 0
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                inside, _ = self._listener.accept()
            except OSError:
                return
            self.count += 1
            outside = socket.create_connection(self._target, timeout=SOON_S)
            self._open += [inside, outside]
            for source, sink in ((inside, outside), (outside, inside)):
                thread = threading.Thread(target=self._pass_on, args=(source, sink))
                self._threads.append(thread)
                thread.start()

    @staticmethod
    def _pass_on(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def cut(self) -> None:
        for each in self._open:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(SOON_S)
        for each in self._open:
            each.close()


@contextmanager
def counted(target: MarkerServiceAddress) -> Iterator[CountedConnections]:
    connections = CountedConnections(target)
    try:
        yield connections
    finally:
        connections.close()


def test_a_task_keeps_its_connection_and_survives_that_it_is_cut(serve: Serve) -> None:
    storage = MemoryStorage()
    clock = ManualClock()
    with counted(serve(storage)) as connections, client_of(connections.address, clock) as markers:
        for name in "abc":
            markers.create(marker(name))
        assert connections.count == 1
        connections.cut()
        markers.create(marker("d"))
        assert connections.count == 2
        assert clock.monotonic_ms() == 0  # An idle connection may be gone; no reason to wait.
        assert len(load_every_marker(storage, T)) == 4


# Failures --------------------------------------------------------------------------------------


def assert_says_what_to_do(error: StorageError, address: MarkerServiceAddress) -> None:
    assert error.kind is ErrorKind.MARKER_SERVICE
    assert error.retry is Retry.SAME_CALL
    text = str(error)
    assert f"instant {T}" in text
    assert f"{address.host}:{address.port}" in text
    assert "nothing is committed" in text
    assert "start the write again" in text
    assert address.token not in text
    assert str(pickle.loads(pickle.dumps(error))) == text


def test_a_service_that_is_gone(serve: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    address = MarkerServiceAddress("127.0.0.1", port, T, "a-token")
    clock = ManualClock()
    with (
        client_of(address, clock) as markers,
        pytest.raises(StorageError, match="failed 6 times") as caught,
    ):
        markers.create(marker("a"))
    assert_says_what_to_do(caught.value, address)
    assert isinstance(caught.value.__cause__, ConnectionRefusedError)
    assert 3_000 <= clock.monotonic_ms() <= 6_200  # Waits longer each time, and not for ever.


def test_a_service_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ANSWER_S_MAX", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = MarkerServiceAddress("127.0.0.1", silent.getsockname()[1], T, "a-token")
        with client_of(address) as markers, pytest.raises(StorageError, match="TimeoutError"):
            markers.create(marker("a"))


@pytest.mark.parametrize(
    ("token", "time"),
    [("another", T), ("a-token", InstantTime("20260101000000009"))],
    ids=["token", "instant"],
)
def test_a_port_that_was_given_to_another_write(
    serve: Serve, token: str, time: InstantTime
) -> None:
    storage = MemoryStorage()
    served = serve(storage)
    address = MarkerServiceAddress(served.host, served.port, time, token)
    clock = ManualClock()
    with client_of(address, clock) as markers, pytest.raises(StorageError, match="refused"):
        markers.create(marker("a"))
    assert clock.monotonic_ms() == 0
    assert load_every_marker(storage, T) == []


def test_a_port_that_was_given_to_another_program() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nhello")

        other = threading.Thread(target=answer)
        other.start()
        address = MarkerServiceAddress("127.0.0.1", listener.getsockname()[1], T, "a-token")
        with client_of(address) as markers, pytest.raises(StorageError, match="hello") as caught:
            markers.create(marker("a"))
        other.join(SOON_S)
    assert_says_what_to_do(caught.value, address)


def test_a_marker_of_something_else_is_the_callers_mistake(serve: Serve) -> None:
    with client_of(serve(MemoryStorage())) as markers:
        for path in ("../x", "city=sf/x.parquet"):
            with pytest.raises(InvalidInputError, match="refused a marker"):
                markers.create(Marker(path, MarkerKind.CREATE))
        markers.create(marker("a"))


class Known(NoConflictWatch):
    """Has found a conflict."""

    def __init__(self, conflict: EarlyConflictError) -> None:
        self._conflict = conflict

    async def admit(self, markers: Sequence[Marker]) -> EarlyConflictError:
        return self._conflict


def test_a_conflict_ends_the_task_at_once(serve: Serve) -> None:
    conflict = EarlyConflictError("Instant 1 of host/1/x writes city=sf/a", other="1")
    address = serve(MemoryStorage(), conflicts=Known(conflict))
    clock = ManualClock()
    with (
        client_of(address, clock) as markers,
        pytest.raises(EarlyConflictError, match="Instant 1 of host/1/x") as caught,
    ):
        markers.create(marker("a"))
    assert caught.value.kind is ErrorKind.EARLY_CONFLICT
    assert caught.value.retry is Retry.FRESH_VIEW
    assert caught.value.context == {"instant": address.instant_time, "other": "1"}
    assert clock.monotonic_ms() == 0


class FailingStorage(MemoryStorage):
    """Cannot store anything bad, and nothing at all the first `failures` times."""

    failures = 0

    def put_if_absent(self, path: str, data: bytes) -> None:
        if self.failures or b"bad" in data:
            self.failures = max(0, self.failures - 1)
            raise StorageError(f"{path}: the disk is full")
        super().put_if_absent(path, data)


def test_a_store_that_fails_fails_the_task_that_asked(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    storage = FailingStorage()
    address = serve(storage)
    with (
        caplog.at_level(logging.CRITICAL, logger=batch_writer.__name__),
        client_of(address) as markers,
        client_of(address) as others,
    ):
        others.create(marker("a"))
        with pytest.raises(StorageError, match="the disk is full") as caught:
            markers.create(marker("bad"))
        others.create(marker("b"))
    assert_says_what_to_do(caught.value, address)
    assert load_every_marker(storage, T) == [marker("a"), marker("b")]


def test_a_store_that_recovers_costs_a_pause(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    storage = FailingStorage()
    address = serve(storage)
    storage.failures = client.TRIES_MAX - 1
    clock = ManualClock()
    with (
        caplog.at_level(logging.CRITICAL, logger=batch_writer.__name__),
        client_of(address, clock) as markers,
    ):
        markers.create(marker("a"))
    assert load_every_marker(storage, T) == [marker("a")]
    assert clock.monotonic_ms() > 0


# Back-pressure ---------------------------------------------------------------------------------


class SlowStorage(MemoryStorage):
    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def put_if_absent(self, path: str, data: bytes) -> None:
        assert self.gate.wait(SOON_S)
        super().put_if_absent(path, data)


class PatientClock(ManualClock):
    """Whoever sleeps tells so, and goes on when the gate opens."""

    def __init__(self, asleep: threading.Semaphore, gate: threading.Event) -> None:
        super().__init__()
        self._asleep = asleep
        self._gate = gate
        self.slept_ms: list[int] = []

    def sleep_ms(self, duration_ms: int) -> None:
        self.slept_ms.append(duration_ms)
        self._asleep.release()
        assert self._gate.wait(SOON_S)
        super().sleep_ms(duration_ms)


def test_tasks_wait_for_a_service_that_has_too_much_to_do(serve: Serve) -> None:
    storage = SlowStorage()
    address = serve(storage, queue_max=3)
    asleep = threading.Semaphore(0)

    def create(number: int) -> list[int]:
        clock = PatientClock(asleep, storage.gate)
        with client_of(address, clock) as markers:
            markers.create(marker(number))
        return clock.slept_ms

    tasks, taken = 20, batch_writer._WRITERS_MAX + 3
    with ThreadPoolExecutor(tasks) as pool:
        slept = [pool.submit(create, number) for number in range(tasks)]
        for _ in range(tasks - taken):
            assert asleep.acquire(timeout=SOON_S)
        assert load_every_marker(storage, T) == []
        storage.gate.set()
        pauses = [task.result(SOON_S) for task in slept]
    assert sum(1 for each in pauses if each) == tasks - taken
    assert all(pause >= 1_000 for each in pauses for pause in each)  # As the service asked for.
    assert set(load_every_marker(storage, T)) == {marker(number) for number in range(tasks)}


def test_a_service_that_stays_busy_is_given_up() -> None:
    def answer(listener: socket.socket, stop: threading.Event) -> None:
        connection, _ = listener.accept()
        # Who gives up does not read what is on its way.
        with connection, suppress(ConnectionError):
            while not stop.is_set() and connection.recv(1 << 16):
                connection.sendall(
                    b"HTTP/1.1 503 Busy\r\nRetry-After: 30\r\nContent-Length: 0\r\n\r\n"
                )

    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        busy = threading.Thread(target=answer, args=(listener, stop))
        busy.start()
        address = MarkerServiceAddress("127.0.0.1", listener.getsockname()[1], T, "a-token")
        clock = ManualClock()
        with client_of(address, clock) as markers, pytest.raises(StorageError) as caught:
            markers.create(marker("a"))
        stop.set()
        busy.join(SOON_S)
    assert_says_what_to_do(caught.value, address)
    assert clock.monotonic_ms() >= client.BUSY_MS_MAX


# The service as a driver runs it ---------------------------------------------------------------


def test_a_sealed_service_creates_nothing_more() -> None:
    storage = MemoryStorage()
    ids = SystemIds()
    with start_marker_service(storage, ids, T, MarkerConfig(batch_files=1)) as running:
        with client_of(running.address) as markers:
            markers.create(marker("a"))
            running.seal()
            with pytest.raises(StorageError, match="has ended"):
                markers.create(marker("b"))
        running.stop()
        running.stop()
        with client_of(running.address) as markers, pytest.raises(StorageError):
            markers.create(marker("c"))
    assert load_every_marker(storage, T) == [marker("a")]
    assert storage.list_names(f".hoodie/.temp/{T}") == ["MARKERS.type", "MARKERS0"]


def test_each_service_has_a_token_of_its_own() -> None:
    ids = SystemIds()
    with (
        start_marker_service(MemoryStorage(), ids, T, MarkerConfig()) as one,
        start_marker_service(MemoryStorage(), ids, T, MarkerConfig()) as other,
    ):
        assert one.address.token != other.address.token
        assert len(one.address.token) >= 32
        assert one.address.port != other.address.port


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = MarkerConfig(port=taken.getsockname()[1])
        with pytest.raises(InvalidInputError, match=str(config.port)):
            start_marker_service(MemoryStorage(), SystemIds(), T, config)


DRIVER = """
import sys
from headwater.config.markers import MarkerConfig
from headwater.markers.running import start_marker_service
from headwater.seams.ids import SystemIds
from headwater.seams.local import LocalStorage
running = start_marker_service(LocalStorage(sys.argv[1]), SystemIds(), sys.argv[2], MarkerConfig())
print(running.address.port, running.address.token, flush=True)
sys.stdin.read()
"""


def test_what_a_killed_driver_had_answered_is_in_storage(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path), T],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as driver:
        assert driver.stdout is not None
        port, token = driver.stdout.readline().split()
        address = MarkerServiceAddress("127.0.0.1", int(port), T, token)
        with client_of(address) as markers:
            for number in range(50):
                markers.create(marker(number))
            driver.send_signal(signal.SIGKILL)
            driver.wait(SOON_S)
            with pytest.raises(StorageError) as caught:
                markers.create(marker("late"))
    assert_says_what_to_do(caught.value, address)
    assert set(load_every_marker(storage, T)) == {marker(number) for number in range(50)}
    assert storage.read(marker_type_path(T)) == b"TIMELINE_SERVER_BASED"
