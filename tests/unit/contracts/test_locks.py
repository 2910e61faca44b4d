"""The guarantees L1 to L5 of the lock seam, for every provider.

Leases run on virtual time. ZooKeeper is a real server, started from the jars of PySpark. What only
ZooKeeper does comes last; what only another provider does is in `tests/unit/kernel/txn/locks/`.
"""

from __future__ import annotations

import gc
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.support.forks import in_a_child
from tests.support.manual_clock import ManualClock
from tests.support.memory_storage import MemoryStorage
from tests.support.server_processes import CannotRunServer, find_java
from tests.support.zookeeper_server import find_spark_jars, run_zookeeper

from headwater.errors import (
    ConflictError,
    ErrorKind,
    FencedError,
    InvalidInputError,
    StorageError,
)
from headwater.kernel.txn.locks.file_system import FileSystemLockProvider
from headwater.kernel.txn.locks.in_process import InProcessLockProvider, InProcessLocks
from headwater.kernel.txn.locks.lease import Lease, OnLost
from headwater.kernel.txn.locks.storage_based import StorageBasedLockProvider
from headwater.kernel.txn.locks.zookeeper import ZookeeperLockProvider
from headwater.seams.clock import Clock, SystemClock, Timer
from headwater.seams.ids import SystemIds
from headwater.seams.local import LocalStorage
from headwater.seams.lock import TABLE, HeldLock, LockProvider
from headwater.seams.open_storage import open_storage

LEASE_MS = 30_000
RENEW_MS = 3_000
SOON_MS = 600_000  # How long to wait for what comes at once; reached only by a failure.
FILE_GROUP = "city=san francisco/00000003-1f2e-4c5d-8a9b-0123456789ab-0"
KEYS = [TABLE, FILE_GROUP]


class MemoryWithoutReplace(MemoryStorage):
    """A store like HDFS: it creates atomically, and overwrites without asking."""

    @property
    def can_replace(self) -> bool:
        return False


@dataclass
class Bench:
    """One provider, in as many processes as a test wants."""

    name: str
    clock: Clock
    new_provider: Callable[[Clock, OnLost | None], LockProvider]
    providers: list[LockProvider] = field(default_factory=list)

    def process(self, *, clock: Clock | None = None, on_lost: OnLost | None = None) -> LockProvider:
        """A provider such as another process would have."""
        provider = self.new_provider(clock or self.clock, on_lost)
        self.providers.append(provider)
        return provider

    def close(self) -> None:
        for provider in self.providers:
            provider.close()


@dataclass
class LeaseBench(Bench):
    """A bench whose locks have leases, on virtual time."""

    time: ManualClock = field(default_factory=ManualClock)

    def hold(
        self, key: str = TABLE, *, clock: Clock | None = None, on_lost: OnLost | None = None
    ) -> Lease:
        held = self.process(clock=clock, on_lost=on_lost).acquire(key, timeout_ms=0)
        assert isinstance(held, Lease)
        return held


def file_system_bench(name: str, storage: Any, time: ManualClock) -> LeaseBench:
    def new_provider(clock: Clock, on_lost: OnLost | None) -> LockProvider:
        return FileSystemLockProvider(
            storage, clock, SystemIds(), expire_ms=LEASE_MS, renew_ms=RENEW_MS, on_lost=on_lost
        )

    return LeaseBench(name, time, new_provider, time=time)


def storage_based_bench(name: str, storage: Any, time: ManualClock) -> LeaseBench:
    def new_provider(clock: Clock, on_lost: OnLost | None) -> LockProvider:
        return StorageBasedLockProvider(
            storage, clock, SystemIds(), validity_ms=LEASE_MS, renew_ms=RENEW_MS, on_lost=on_lost
        )

    return LeaseBench(name, time, new_provider, time=time)


def in_process_bench() -> Bench:
    locks = InProcessLocks()

    def new_provider(clock: Clock, on_lost: OnLost | None) -> LockProvider:
        return InProcessLockProvider(locks, clock, SystemIds(), table="memory://t")

    return Bench("in_process", ManualClock(), new_provider)


def zookeeper_bench(url: str, base_path: str) -> Bench:
    def new_provider(clock: Clock, on_lost: OnLost | None) -> LockProvider:
        return ZookeeperLockProvider(
            clock, SystemIds(), url=url, base_path=base_path, lock_key="t", on_lost=on_lost
        )

    return Bench("zookeeper", SystemClock(), new_provider)


LEASE_BENCHES = (
    "filesystem-memory",
    "filesystem-without-replace",
    "filesystem-local",
    "storage-memory",
    "storage-local",
    "storage-s3",
)
BENCHES = (*LEASE_BENCHES, "in_process", "zookeeper")


@pytest.fixture(scope="session")
def zookeeper_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("kazoo", reason="the zookeeper extra is not installed")
    try:
        with run_zookeeper(tmp_path_factory.mktemp("zookeeper")) as url:
            yield url
    except CannotRunServer as error:
        pytest.skip(f"no ZooKeeper server: {error}")


def build_lease_bench(name: str, request: pytest.FixtureRequest) -> LeaseBench:
    time = ManualClock()
    folder: Path = request.getfixturevalue("tmp_path")
    match name:
        case "filesystem-memory":
            return file_system_bench(name, MemoryStorage(clock=time), time)
        case "filesystem-without-replace":
            return file_system_bench(name, MemoryWithoutReplace(clock=time), time)
        case "filesystem-local":
            return file_system_bench(name, LocalStorage(folder, fsync=False), time)
        case "storage-memory":
            return storage_based_bench(name, MemoryStorage(clock=time), time)
        case "storage-local":
            return storage_based_bench(name, LocalStorage(folder, fsync=False), time)
        case _:
            server = request.getfixturevalue("s3_server")
            storage = open_storage(f"s3://contract/{folder.name}", server.options)
            return storage_based_bench(name, storage, time)


@pytest.fixture(params=LEASE_BENCHES)
def leases(request: pytest.FixtureRequest) -> Iterator[LeaseBench]:
    bench = build_lease_bench(request.param, request)
    yield bench
    bench.close()


@pytest.fixture(params=BENCHES)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    name: str = request.param
    built: Bench
    if name == "in_process":
        built = in_process_bench()
    elif name == "zookeeper":
        folder: Path = request.getfixturevalue("tmp_path")
        built = zookeeper_bench(request.getfixturevalue("zookeeper_url"), f"/{folder.name}")
    else:
        built = build_lease_bench(name, request)
    yield built
    built.close()


def assert_free(provider: LockProvider, key: str = TABLE) -> None:
    assert provider.inspect(key) is None
    provider.acquire(key, timeout_ms=0).release()


def assert_held(provider: LockProvider) -> None:
    with pytest.raises(ConflictError):
        provider.acquire(timeout_ms=0)


def assert_fenced(held: HeldLock) -> FencedError:
    with pytest.raises(FencedError) as fenced:
        held.check()
    assert fenced.value.kind is ErrorKind.LOCK_LOST
    return fenced.value


@pytest.mark.parametrize("key", KEYS)
class TestEveryProvider:
    def test_l1_a_held_lock_is_refused_to_others(self, bench: Bench, key: str) -> None:
        held = bench.process().acquire(key, timeout_ms=0)
        with pytest.raises(ConflictError) as refused:
            bench.process().acquire(key, timeout_ms=30)
        assert refused.value.kind is ErrorKind.LOCK_TIMEOUT
        held.check()

    def test_l1_a_process_does_not_get_its_own_lock_twice(self, bench: Bench, key: str) -> None:
        provider = bench.process()
        provider.acquire(key, timeout_ms=0)
        with pytest.raises(ConflictError):
            provider.acquire(key, timeout_ms=30)

    def test_l1_a_released_lock_is_taken_by_the_next(self, bench: Bench, key: str) -> None:
        bench.process().acquire(key, timeout_ms=0).release()
        bench.process().acquire(key, timeout_ms=0).check()

    def test_l2_tokens_grow_across_holders_and_processes(self, bench: Bench, key: str) -> None:
        processes = [bench.process(), bench.process()]
        tokens = []
        for number in range(6):
            held = processes[number % 2].acquire(key, timeout_ms=0)
            tokens.append(held.token)
            held.release()
        assert tokens == sorted(set(tokens))

    def test_l4_release_is_idempotent(self, bench: Bench, key: str) -> None:
        first, second = bench.process(), bench.process()
        held = first.acquire(key, timeout_ms=0)
        held.release()
        held.release()
        successor = second.acquire(key, timeout_ms=0)
        held.release()
        successor.check()
        assert second.inspect(key) is not None

    def test_l4_a_released_hold_is_fenced(self, bench: Bench, key: str) -> None:
        held = bench.process().acquire(key, timeout_ms=0)
        held.release()
        assert_fenced(held)

    def test_l5_a_live_lock_cannot_be_broken(self, bench: Bench, key: str) -> None:
        held = bench.process().acquire(key, timeout_ms=0)
        with pytest.raises(ConflictError, match="cannot be broken"):
            bench.process().break_expired(key)
        held.check()

    def test_l5_breaking_a_free_lock_does_nothing(self, bench: Bench, key: str) -> None:
        provider = bench.process()
        assert provider.break_expired(key) is None
        provider.acquire(key, timeout_ms=0).release()
        assert provider.break_expired(key) is None

    def test_inspect_shows_the_holder(self, bench: Bench, key: str) -> None:
        holder, observer = bench.process(), bench.process()
        assert observer.inspect(key) is None
        held = holder.acquire(key, timeout_ms=0)
        info = observer.inspect(key)
        assert info is not None
        assert (info.key, info.provider, info.token) == (key, holder.name, held.token)
        assert info.owner == str(holder.ids.owner)  # type: ignore[attr-defined]
        assert info.acquired_ms is not None
        assert abs(info.acquired_ms - bench.clock.now_ms()) < 60_000
        assert not info.is_expired
        held.release()
        assert_free(observer, key)

    def test_a_timeout_names_the_lock_and_its_holder(self, bench: Bench, key: str) -> None:
        holder = bench.process()
        held = holder.acquire(key, timeout_ms=0)
        with pytest.raises(ConflictError) as refused:
            bench.process().acquire(key, timeout_ms=20)
        message = str(refused.value)
        assert repr(key) in message
        assert str(holder.ids.owner) in message  # type: ignore[attr-defined]
        assert "since 20" in message
        assert refused.value.context["token"] == held.token


class TestKeys:
    def test_different_keys_are_different_locks(self, bench: Bench) -> None:
        provider = bench.process()
        keys = [TABLE, FILE_GROUP, "p/f", "p%2Ff", "p", "P.lock", "table_lock", "x" * 400, "größe"]
        held = [provider.acquire(key, timeout_ms=0) for key in keys]
        for lock in held:
            lock.check()
            lock.release()

    def test_an_empty_key_is_refused(self, bench: Bench) -> None:
        with pytest.raises(InvalidInputError, match="key"):
            bench.process().acquire("", timeout_ms=0)


def test_threads_exclude_each_other(bench: Bench) -> None:
    counter = 0

    def add(provider: LockProvider) -> None:
        nonlocal counter
        for _ in range(5):
            held = provider.acquire(timeout_ms=SOON_MS)
            seen = counter
            time.sleep(0.0005)
            counter = seen + 1
            held.release()

    clock = SystemClock()
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(add, [bench.process(clock=clock) for _ in range(3)]))
    assert counter == 15


INCREMENT = """
import sys, time
from pathlib import Path
from headwater.kernel.txn.locks.file_system import FileSystemLockProvider
from headwater.kernel.txn.locks.storage_based import StorageBasedLockProvider
from headwater.seams.clock import SystemClock
from headwater.seams.ids import SystemIds
from headwater.seams.local import LocalStorage

class LocalWithoutReplace(LocalStorage):
    can_replace = property(lambda self: False)

kind, base, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
storage = (LocalWithoutReplace if kind == "filesystem-without-replace" else LocalStorage)(base)
provider_class = StorageBasedLockProvider if kind == "storage" else FileSystemLockProvider
provider = provider_class(storage, SystemClock(), SystemIds())
counter = Path(base) / "counter"
for _ in range(count):
    held = provider.acquire(timeout_ms=600_000)
    seen = int(counter.read_text())
    time.sleep(0.001)
    counter.write_text(str(seen + 1))
    held.release()
"""


@pytest.mark.parametrize("kind", ["filesystem", "filesystem-without-replace", "storage"])
def test_processes_exclude_each_other_on_local_disk(kind: str, tmp_path: Path) -> None:
    (tmp_path / "counter").write_text("0")
    command = [sys.executable, "-c", INCREMENT, kind, str(tmp_path), "12"]
    with ExitStack() as stack:
        processes = [stack.enter_context(subprocess.Popen(command)) for _ in range(3)]
        for process in processes:
            stack.callback(process.kill)  # Before it is waited for, in case one took too long.
        assert [process.wait() for process in processes] == [0, 0, 0]
    assert (tmp_path / "counter").read_text() == "36"


class TestLeases:
    def test_l3_renewal_keeps_a_lock_alive(self, leases: LeaseBench) -> None:
        held = leases.hold()
        with pytest.raises(ConflictError):
            leases.process().acquire(timeout_ms=4 * LEASE_MS)
        held.check()
        assert not held.is_lost

    def test_l3_a_released_lock_is_not_renewed(self, leases: LeaseBench) -> None:
        leases.hold().release()
        assert leases.time.timer_count == 0
        leases.time.advance_ms(2 * RENEW_MS)
        assert leases.process().inspect() is None

    def test_l5_an_expired_lock_is_taken_by_a_waiter(self, leases: LeaseBench) -> None:
        stalled = leases.hold()
        with leases.time.timers_stalled():
            successor = leases.process().acquire(timeout_ms=2 * LEASE_MS)
        assert successor.token > stalled.token
        successor.check()

    def test_l5_a_lock_is_not_taken_before_its_lease_ran_out(self, leases: LeaseBench) -> None:
        stalled = leases.hold()
        with leases.time.timers_stalled():
            with pytest.raises(ConflictError):
                leases.process().acquire(timeout_ms=LEASE_MS - RENEW_MS)
            stalled.check()

    def test_l3_a_lost_holder_is_told_who_has_the_lock(self, leases: LeaseBench) -> None:
        stalled = leases.hold()
        successor = leases.process()
        with leases.time.timers_stalled():
            successor.acquire(timeout_ms=2 * LEASE_MS)
        assert stalled.is_lost
        message = str(assert_fenced(stalled))
        assert repr(TABLE) in message
        assert str(successor.ids.owner) in message  # type: ignore[attr-defined]

    def test_l3_a_lost_holder_neither_renews_nor_releases(self, leases: LeaseBench) -> None:
        stalled = leases.hold()
        with leases.time.timers_stalled():
            successor = leases.process().acquire(timeout_ms=2 * LEASE_MS)
        leases.time.advance_ms(4 * LEASE_MS)
        stalled.release()
        successor.check()
        assert_fenced(stalled)
        successor.release()
        assert_free(leases.process())

    def test_l3_a_lease_that_ran_out_never_comes_back(self, leases: LeaseBench) -> None:
        """Nobody took the lock, and yet its holder must not have it again."""
        held = leases.hold()
        with leases.time.timers_stalled():
            leases.time.advance_ms(LEASE_MS)
        leases.time.advance_ms(2 * RENEW_MS)
        assert held.is_lost
        assert_fenced(held)
        info = leases.process().inspect()
        assert info is not None
        assert info.is_expired
        assert leases.time.timer_count == 0

    def test_l3_a_holder_counts_on_its_own_monotonic_clock(self, leases: LeaseBench) -> None:
        held = leases.hold()
        leases.time.step_wall_ms(-100 * LEASE_MS)
        with leases.time.timers_stalled():
            leases.time.advance_ms(LEASE_MS)
            assert held.is_lost

    def test_l3_a_wall_clock_set_back_does_not_lose_the_lock(self, leases: LeaseBench) -> None:
        held = leases.hold()
        leases.time.step_wall_ms(-100 * LEASE_MS)
        leases.time.advance_ms(4 * LEASE_MS)
        held.check()

    def test_the_loss_is_reported_once(self, leases: LeaseBench) -> None:
        reports: list[FencedError] = []
        held = leases.hold(on_lost=reports.append)
        with leases.time.timers_stalled():
            leases.process().acquire(timeout_ms=2 * LEASE_MS)
        leases.time.advance_ms(2 * RENEW_MS)
        assert_fenced(held)
        assert [report.kind for report in reports] == [ErrorKind.LOCK_LOST]

    def test_a_holder_that_is_never_lost_reports_nothing(self, leases: LeaseBench) -> None:
        reports: list[FencedError] = []
        held = leases.hold(on_lost=reports.append)
        leases.time.advance_ms(2 * LEASE_MS)
        held.release()
        leases.time.advance_ms(2 * LEASE_MS)
        assert reports == []

    @pytest.mark.parametrize("key", KEYS)
    def test_l5_an_expired_lock_can_be_broken(self, leases: LeaseBench, key: str) -> None:
        dead = leases.hold(key)
        observer = leases.process()
        with leases.time.timers_stalled():
            leases.time.advance_ms(2 * LEASE_MS)
            seen = observer.inspect(key)
            broken = observer.break_expired(key)
        assert seen is not None
        assert seen.is_expired
        assert broken == seen
        assert_free(observer, key)
        assert_fenced(dead)

    def test_l2_tokens_grow_across_a_broken_lock(self, leases: LeaseBench) -> None:
        dead = leases.hold()
        observer = leases.process()
        with leases.time.timers_stalled():
            leases.time.advance_ms(2 * LEASE_MS)
            observer.break_expired()
        assert observer.acquire(timeout_ms=0).token > dead.token


def test_the_timer_of_the_real_clock_renews() -> None:
    renewed = threading.Event()

    class Watched(MemoryStorage):
        def replace(self, path: str, data: bytes, *, version: str) -> str:
            new_version = super().replace(path, data, version=version)
            renewed.set()
            return new_version

    provider = FileSystemLockProvider(
        Watched(), SystemClock(), SystemIds(), expire_ms=60_000, renew_ms=10
    )
    held = provider.acquire(timeout_ms=0)
    assert renewed.wait(SOON_MS / 1_000)
    held.check()
    held.release()
    assert_free(provider)


CURATOR_CONTENDER = """
import java.io.*;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.*;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

public class Contender {
  public static void main(String[] args) throws Exception {
    BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
    try (CuratorFramework client =
        CuratorFrameworkFactory.newClient(args[0], new RetryOneTime(100))) {
      client.start();
      InterProcessMutex mutex = new InterProcessMutex(client, args[1]);
      for (String order; (order = orders.readLine()) != null; ) {
        String answer = "released";
        if (order.equals("release")) {
          mutex.release();
        } else {
          boolean held = mutex.acquire(Long.parseLong(order), TimeUnit.MILLISECONDS);
          answer = held ? "held" : "refused";
        }
        System.out.println("> " + answer);
      }
    }
  }
}
"""


class CuratorContender:
    """A process with the lock that stock Hudi uses, driven by lines on its standard input."""

    def __init__(self, url: str, path: str, folder: Path) -> None:
        source = folder / "Contender.java"
        source.write_text(CURATOR_CONTENDER)
        self._process = subprocess.Popen(
            [find_java(), "-cp", f"{find_spark_jars()}/*", str(source), url, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def order(self, order: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{order}\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("> "):
                return line.removeprefix("> ").strip()
        raise AssertionError("the contender ended")

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Cable:
    """A connection to a server that can be cut."""

    def __init__(self, url: str) -> None:
        host, _, port = url.partition(":")
        self._server = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self) -> None:
        for end in [self._listener, *self._ends]:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._server)
                self._ends += [near, far]
                for one, other in ((near, far), (far, near)):
                    thread = threading.Thread(target=self._pump, args=(one, other), daemon=True)
                    self._threads.append(thread)
                    thread.start()

    def _pump(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65_536):
                other.sendall(data)


class InterruptedClock(ManualClock):
    """Ctrl-C comes while a timer is started."""

    is_interrupted = True

    def every_ms(self, interval_ms: int, call: Callable[[], bool], name: str) -> Timer:
        if self.is_interrupted:
            raise KeyboardInterrupt
        return super().every_ms(interval_ms, call, name)


class TestInterrupts:
    """N-194: who is interrupted, wherever that is, does not hold a lock until its process ends."""

    def test_one_that_is_being_taken_is_free(self, leases: LeaseBench) -> None:
        with pytest.raises(KeyboardInterrupt):
            leases.process(clock=InterruptedClock()).acquire(timeout_ms=0)
        assert_free(leases.process())

    def test_one_that_was_taken_in_process_is_free(self, monkeypatch: pytest.MonkeyPatch) -> None:
        bench, take = in_process_bench(), InProcessLocks.take

        def take_and_interrupt(*asked: Any, **named: Any) -> None:
            take(*asked, **named)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(InProcessLocks, "take", take_and_interrupt)
            with pytest.raises(KeyboardInterrupt):
                bench.process().acquire(timeout_ms=0)
        assert_free(bench.process())

    def test_one_that_nobody_has_is_given_up_by_its_timer(self, leases: LeaseBench) -> None:
        held = leases.hold()
        leases.time.advance_ms(RENEW_MS)
        assert_held(leases.process())
        del held
        gc.collect()  # Errors of a store on the way may have kept what they passed through.
        leases.time.advance_ms(RENEW_MS)
        assert_free(leases.process())
        assert leases.time.timer_count == 0

    @pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, TimeoutError])
    def test_one_whose_release_is_interrupted_is_free(
        self, leases: LeaseBench, monkeypatch: pytest.MonkeyPatch, interrupt: type[BaseException]
    ) -> None:
        held = leases.hold()
        interrupted_once(monkeypatch, held._timer, "cancel", interrupt)
        with pytest.raises(interrupt):
            held.release()
        assert_free(leases.process())
        assert_fenced(held)

    def test_one_of_this_process_whose_release_is_interrupted_is_free(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench = in_process_bench()
        held = bench.process().acquire(timeout_ms=0)
        interrupted_once(monkeypatch, InProcessLocks, "give_up", KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            held.release()
        assert_free(bench.process())


def interrupted_once(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, interrupt: type[BaseException]
) -> None:
    """Have the next call of something be interrupted before it does anything."""

    def interrupted(*_: object) -> None:
        monkeypatch.undo()
        raise interrupt

    monkeypatch.setattr(owner, name, interrupted)


class TestZookeeper:
    @pytest.fixture
    def zookeeper(self, zookeeper_url: str, tmp_path: Path) -> Iterator[Bench]:
        bench = zookeeper_bench(zookeeper_url, f"/{tmp_path.name}")
        yield bench
        bench.close()

    def provider(self, bench: Bench, on_lost: OnLost | None = None) -> ZookeeperLockProvider:
        provider = bench.process(on_lost=on_lost)
        assert isinstance(provider, ZookeeperLockProvider)
        return provider

    def end_session_of(self, provider: ZookeeperLockProvider) -> None:
        """End the session as ZooKeeper does when it has not heard from a client for too long."""
        from kazoo.client import KazooClient

        client = provider.session._client
        twin = KazooClient(hosts=client.hosts[0][0] + f":{client.hosts[0][1]}")
        twin._session_id, twin._session_passwd = client._session_id, client._session_passwd
        twin.start()
        twin.stop()
        twin.close()

    def hold_for_a_moment(self, provider: ZookeeperLockProvider) -> HeldLock:
        """Take the lock, again if a machine is too busy to keep a short session alive."""
        while True:
            held = provider.acquire(timeout_ms=SOON_MS)
            with suppress(FencedError):
                held.check()
                return held

    def test_a_holder_is_told_that_its_session_ended(self, zookeeper: Bench) -> None:
        reports: list[FencedError] = []
        told = threading.Event()

        def on_lost(error: FencedError) -> None:
            reports.append(error)
            told.set()

        holder = self.provider(zookeeper, on_lost)
        held = holder.acquire(timeout_ms=0)
        self.end_session_of(holder)
        assert told.wait(SOON_MS / 1_000)
        assert held.is_lost
        successor = self.provider(zookeeper).acquire(timeout_ms=SOON_MS)
        assert successor.token > held.token
        assert_fenced(held)
        held.release()
        successor.check()
        assert [report.kind for report in reports] == [ErrorKind.LOCK_LOST]

    def test_a_provider_works_on_after_its_session_ended(self, zookeeper: Bench) -> None:
        provider = self.provider(zookeeper)
        first = provider.acquire(timeout_ms=0)
        self.end_session_of(provider)
        second = provider.acquire(timeout_ms=SOON_MS)
        second.check()
        assert second.token > first.token

    def test_a_holder_that_is_cut_off_is_fenced(
        self, zookeeper: Bench, zookeeper_url: str, tmp_path: Path
    ) -> None:
        cable = Cable(zookeeper_url)
        provider = ZookeeperLockProvider(
            SystemClock(),
            SystemIds(),
            url=cable.url,
            base_path=tmp_path.name,
            lock_key="t",
            session_timeout_ms=2_000,
        )
        zookeeper.providers.append(provider)
        held = self.hold_for_a_moment(provider)
        cable.cut()
        assert_fenced(held)
        successor = self.provider(zookeeper).acquire(timeout_ms=SOON_MS)
        assert successor.token > held.token
        assert_fenced(held)

    def test_a_forked_child_has_a_session_of_its_own(self, zookeeper: Bench) -> None:
        provider = self.provider(zookeeper)
        mine = self.hold_for_a_moment(provider)

        def use_it() -> tuple[str, int]:
            with pytest.raises(FencedError) as lost:
                mine.check()
            mine.release()
            with pytest.raises(ConflictError):
                provider.acquire(timeout_ms=0)
            own = provider.acquire("another", timeout_ms=SOON_MS)
            own.check()
            provider.close()
            return lost.value.message, own.token

        message, token = in_a_child(use_it)
        assert "forked" in message
        assert token > mine.token
        mine.check()
        mine.release()
        # What the child held has ended with its session.
        provider.acquire("another", timeout_ms=SOON_MS).check()

    def test_n_194_one_whose_release_is_interrupted_is_free(
        self, zookeeper: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        provider = self.provider(zookeeper)
        held = self.hold_for_a_moment(provider)
        interrupted_once(monkeypatch, provider.session, "delete", KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            held.release()
        self.provider(zookeeper).acquire(timeout_ms=0).check()

    def test_a_waiter_that_gave_up_has_left_the_queue(self, zookeeper: Bench) -> None:
        holder, waiter = self.provider(zookeeper), self.provider(zookeeper)
        held = holder.acquire(timeout_ms=0)
        with pytest.raises(ConflictError):
            waiter.acquire(timeout_ms=0)
        assert len(holder.contenders(TABLE)) == 1
        held.release()
        assert holder.contenders(TABLE) == []

    def test_closing_frees_what_is_held(self, zookeeper: Bench) -> None:
        holder = self.provider(zookeeper)
        holder.acquire(timeout_ms=0)
        holder.close()
        self.provider(zookeeper).acquire(timeout_ms=0).check()

    def test_the_lock_of_hudi_and_ours_exclude_each_other(
        self, zookeeper: Bench, zookeeper_url: str, tmp_path: Path
    ) -> None:
        provider = self.provider(zookeeper)
        hudi = CuratorContender(zookeeper_url, provider.folder_of(TABLE), tmp_path)
        try:
            for _ in range(3):  # Curator sorts a wrong name right by chance, now and then.
                assert hudi.order(str(SOON_MS)) == "held"
                with pytest.raises(ConflictError):
                    provider.acquire(timeout_ms=0)
                assert hudi.order("release") == "released"
                held = provider.acquire(timeout_ms=SOON_MS)
                assert hudi.order("50") == "refused"
                held.check()
                held.release()
        finally:
            hudi.close()

    def test_no_server_is_an_error_that_names_the_option(self) -> None:
        pytest.importorskip("kazoo", reason="the zookeeper extra is not installed")
        with pytest.raises(StorageError, match=r"hoodie\.write\.lock\.zookeeper\.url"):
            ZookeeperLockProvider(
                SystemClock(),
                SystemIds(),
                url="127.0.0.1",
                port=1,
                base_path="/b",
                lock_key="t",
                connection_timeout_ms=50,
            )


def test_zookeeper_without_kazoo_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kazoo.client", None)
    with pytest.raises(InvalidInputError, match=r"pip install \"headwater\[zookeeper\]\""):
        zookeeper_bench("127.0.0.1:1", "/b").process()
