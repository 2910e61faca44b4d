"""Hudi's `ZookeeperBasedLockProvider`: the lock is a queue of nodes in ZooKeeper.

    <base_path>/<lock_key>                  the table lock, where stock Hudi writers queue too
    <base_path>/<lock_key>.keys/<key>       any other key

Each contender adds an ephemeral, numbered node; the lowest number has the lock. The nodes are named
as Curator names them, `_c_<uuid>-lock-<number>`: Curator sorts by what follows `lock-`, so that
writers of both kinds stand in one queue. Kazoo's own recipe names its nodes differently, and
Curator would sort those among the numbers by their random first letter.

A node lives as long as the session of its holder, and a session that ended never comes back, so
there is no lease to renew and nothing to break. The fencing token is the transaction id in which
ZooKeeper created the node: it grows with every change of the whole ensemble, and nodes created
later stand further back in the queue.

A connection that breaks during the creation of a node leaves the outcome unknown; the uuid in the
name finds the node again (M4). Nobody but its owner deletes a node, so releasing is always safe.

The threads that keep a session alive do not survive a fork, so a forked child begins one of its own
when it asks for the first time; its parent's goes on with the parent.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

from headwater.errors import (
    ErrorKind,
    FencedError,
    InvalidInputError,
    NotFoundError,
    Retry,
    StorageError,
)
from headwater.kernel.txn.locks.lease import (
    HELD_BY_PARENT,
    AskHolder,
    OnLost,
    give_up_surely,
    lock_lost_error,
)
from headwater.kernel.txn.locks.names import quote_lock_key
from headwater.kernel.txn.locks.waiting import NEAR, live_lock_error, wait_for_lock
from headwater.seams.clock import Clock
from headwater.seams.ids import Ids, this_process
from headwater.seams.lock import TABLE, LockInfo
from headwater.seams.mutex import new_mutex

log = logging.getLogger(__name__)

RECONNECT_PAUSE_MS = 100
_SEQUENCE = re.compile(r"-?[0-9]{10}$", re.ASCII)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ZookeeperNode:
    """A node of a lock's queue."""

    data: bytes
    created_zxid: int
    created_ms: int


class ZookeeperSession:
    """A connection to ZooKeeper, in the errors and types of this project.

    Every question is bounded by the session timeout: whoever had no answer for that long has lost
    its session as well.
    """

    def __init__(
        self, clock: Clock, *, hosts: str, session_timeout_ms: int, connection_timeout_ms: int
    ) -> None:
        """Connect to `hosts`, `host:port` pairs separated by commas.

        Raises:
            InvalidInputError: kazoo is not installed.
            StorageError: no server answered within `connection_timeout_ms`.
        """
        try:
            import kazoo.client
            import kazoo.exceptions
            import kazoo.protocol.states
        except ImportError as error:
            raise InvalidInputError(
                "The ZooKeeper lock provider needs kazoo, which is not installed. Run "
                '`pip install "headwater[zookeeper]"`, or choose another '
                "hoodie.write.lock.provider.",
                kind=ErrorKind.INVALID_OPTION,
            ) from error
        self._clock = clock
        self._hosts = hosts
        self._timeout_ms = session_timeout_ms
        self._connection_timeout_ms = connection_timeout_ms
        self._errors: Any = kazoo.exceptions
        self._lost_state: str = kazoo.protocol.states.KazooState.LOST
        self._client_class: Any = kazoo.client.KazooClient
        self._on_lost: list[Callable[[], None]] = []
        self._mutex = new_mutex()
        self._is_closed = False
        self._connect()

    def _connect(self) -> None:
        client = self._client_class(hosts=self._hosts, timeout=self._timeout_ms / 1000)
        client.add_listener(self._listen)
        with ExitStack() as stack:
            stack.callback(_end, client)
            try:
                client.start(timeout=self._connection_timeout_ms / 1000)
            except client.handler.timeout_exception as error:
                raise StorageError(
                    f"Could not connect to ZooKeeper at {self._hosts} within "
                    f"{self._connection_timeout_ms} ms. Check hoodie.write.lock.zookeeper.url and "
                    "that the server is reachable."
                ) from error
            stack.pop_all()
        self._client: Any = client
        self._timed_out: type[Exception] = client.handler.timeout_exception
        self._connected_in = this_process()

    def _listen(self, state: str) -> None:
        if state == self._lost_state:
            for call in self._on_lost:
                call()

    def on_session_lost(self, call: Callable[[], None]) -> None:
        """Call back, on a thread of the client, whenever the session has ended."""
        self._on_lost.append(call)

    def create(self, folder: str, prefix: str, data: bytes) -> str:
        """Add an ephemeral, numbered node and return its name.

        `prefix` must be unique: after a broken connection, a node that bears it is the one that
        the broken request made. Requests of one session are answered in order, so a listing that
        does not show the node proves that it will not come.
        """
        was_sent = False

        def create_or_find() -> str:
            nonlocal was_sent
            if was_sent:
                found = [name for name in self._children(folder) if name.startswith(prefix)]
                if found:
                    return found[0]
            was_sent = True
            path: str = self._wait(
                self._client.create_async(
                    f"{folder}/{prefix}", data, ephemeral=True, sequence=True, makepath=True
                )
            )
            return path.rpartition("/")[2]

        return self._ask(create_or_find)

    def list_names(self, folder: str) -> list[str]:
        """Return the names of the nodes in `folder`; [] if it is absent."""
        return self._ask(lambda: self._children(folder))

    def read(self, path: str) -> ZookeeperNode:
        """Return a node.

        Raises:
            NotFoundError: it does not exist.
        """
        data, stat = self._ask(lambda: self._wait(self._client.get_async(path)))
        return ZookeeperNode(data, stat.czxid, stat.ctime)

    def delete(self, path: str) -> None:
        """Delete a node; succeed also when it does not exist."""
        try:
            self._ask(lambda: self._wait(self._client.delete_async(path)))
        except NotFoundError:
            return

    def close(self) -> None:
        """End the session, and with it every lock it holds. It cannot be used any more."""
        self._is_closed = True
        if self._connected_in == this_process():  # Else it is the parent's.
            _end(self._client)

    def _children(self, folder: str) -> list[str]:
        try:
            return list(self._wait(self._client.get_children_async(folder)))
        except self._errors.NoNodeError:
            return []

    def _wait(self, result: Any) -> Any:
        return result.get(timeout=self._timeout_ms / 1000)

    def _ask(self, question: Callable[[], T]) -> T:
        """Run an idempotent question, again if the connection breaks, within the session timeout.

        Raises:
            NotFoundError: the node does not exist.
            StorageError: there was no answer.
        """
        with self._mutex:
            if self._connected_in != this_process() and not self._is_closed:
                self._connect()
        deadline_ms = self._clock.monotonic_ms() + self._timeout_ms
        while True:
            try:
                return question()
            except self._errors.NoNodeError as error:
                raise NotFoundError(
                    f"ZooKeeper at {self._hosts} has no such node: {error}"
                ) from error
            except (
                self._errors.ConnectionLoss,
                self._errors.ConnectionClosedError,
                self._errors.SessionExpiredError,
                self._timed_out,
            ) as error:
                if self._is_closed or self._clock.monotonic_ms() >= deadline_ms:
                    raise StorageError(
                        f"ZooKeeper at {self._hosts} did not answer for {self._timeout_ms} ms: "
                        f"{type(error).__name__}. Check that it is reachable, and try again."
                    ) from error
                self._clock.sleep_ms(RECONNECT_PAUSE_MS)
            except self._errors.KazooException as error:
                raise StorageError(
                    f"ZooKeeper at {self._hosts} refused: {type(error).__name__} {error}. Check "
                    "the permissions of this client.",
                    retry=Retry.NEVER,
                ) from error


def _end(client: Any) -> None:
    client.stop()
    client.close()


class ZookeeperLockProvider:
    """Locks in ZooKeeper, through kazoo. `close` ends the session and frees what it holds."""

    def __init__(
        self,
        clock: Clock,
        ids: Ids,
        *,
        url: str,
        base_path: str,
        lock_key: str,
        port: int | None = None,
        session_timeout_ms: int = 60_000,
        connection_timeout_ms: int = 15_000,
        on_lost: OnLost | None = None,
    ) -> None:
        """Connect, and keep locks at `base_path`/`lock_key`.

        Raises:
            InvalidInputError: kazoo is not installed.
            StorageError: no server answered within `connection_timeout_ms`.
        """
        hosts = ",".join(_with_port(host.strip(), port) for host in url.split(","))
        self.session = ZookeeperSession(
            clock,
            hosts=hosts,
            session_timeout_ms=session_timeout_ms,
            connection_timeout_ms=connection_timeout_ms,
        )
        self.clock = clock
        self.ids = ids
        self.on_lost = on_lost
        self._hosts = hosts
        self._root = f"/{base_path.strip('/')}/{lock_key.strip('/')}"
        self._mutex = new_mutex()
        self._held: set[ZookeeperLock] = set()
        self.session.on_session_lost(self._lose_all)

    @property
    def name(self) -> str:
        return "zookeeper"

    def folder_of(self, key: str) -> str:
        return self._root if key == TABLE else f"{self._root}.keys/{quote_lock_key(key)}"

    def place_of(self, key: str) -> str:
        return f"zookeeper://{self._hosts}{self.folder_of(key)}"

    def acquire(self, key: str = TABLE, *, timeout_ms: int) -> ZookeeperLock:
        """Queue for the lock, waiting at most `timeout_ms`.

        Raises:
            ConflictError: kind LOCK_TIMEOUT, naming the holder.
            StorageError: ZooKeeper did not answer.
        """
        return wait_for_lock(
            _Attempt(self, key),
            key=key,
            home=self.place_of(key),
            remedy="it is freed when the session of its holder ends",
            timeout_ms=timeout_ms,
            clock=self.clock,
            ids=self.ids,
            pace=NEAR,
        )

    def inspect(self, key: str = TABLE) -> LockInfo | None:
        """Who holds the lock, or None when it is free.

        The time given is when the holder joined the queue.
        """
        for name in self.contenders(key):
            try:
                node = self.session.read(f"{self.folder_of(key)}/{name}")
            except NotFoundError:
                continue  # It left the queue; the next one has the lock.
            return LockInfo(
                key=key,
                provider=self.name,
                owner=node.data.decode(errors="replace") or "another engine",
                token=node.created_zxid,
                acquired_ms=node.created_ms,
                expires_ms=None,
                is_expired=False,
            )
        return None

    def break_expired(self, key: str = TABLE) -> LockInfo | None:
        """Return None when the lock is free.

        Raises:
            ConflictError: the lock is held; it ends with the session of its holder.
            StorageError: ZooKeeper did not answer.
        """
        holder = self.inspect(key)
        if holder is not None:
            raise live_lock_error(holder, key=key, home=self.place_of(key))
        return None

    def contenders(self, key: str) -> list[str]:
        """Return the names in the queue, the holder first."""
        return sort_contenders(self.session.list_names(self.folder_of(key)))

    def close(self) -> None:
        self.session.close()

    def add_held(self, lock: ZookeeperLock) -> None:
        with self._mutex:
            self._held.add(lock)

    def drop_held(self, lock: ZookeeperLock) -> None:
        with self._mutex:
            self._held.discard(lock)

    def _lose_all(self) -> None:
        with self._mutex:
            lost, self._held = self._held, set()
        for lock in lost:
            lock.lose("the ZooKeeper session that held it ended")


class ZookeeperLock:
    """A place at the head of the queue."""

    def __init__(self, provider: ZookeeperLockProvider, key: str, path: str, token: int) -> None:
        self._provider = provider
        self._key = key
        self._path = path
        self._token = token
        self._held_by = this_process()
        self._mutex = new_mutex()
        self._lost_because: str | None = None
        self._is_released = False

    @property
    def token(self) -> int:
        return self._token

    @property
    def is_lost(self) -> bool:
        """Whether this holder may no longer act, as far as its session told."""
        return self._lost_because is not None or self._held_by != this_process()

    def check(self) -> None:
        """Ask ZooKeeper who holds the lock.

        Raises:
            FencedError: this holder lost the lock, or ZooKeeper did not answer for as long as a
                session lasts, which comes to the same.
        """
        if self._is_released:
            raise self._fenced("this holder released it")
        if self._held_by != this_process():
            raise self._lost_error(HELD_BY_PARENT, None)  # The session is the parent's too.
        if not self.is_lost:
            self._look()
        if self._lost_because is not None:
            raise self._fenced(self._lost_because)

    def release(self) -> None:
        """Leave the queue; do nothing when this was done already.

        Raises:
            StorageError: ZooKeeper did not answer. The lock ends with the session.
        """
        if not self._is_released and self._held_by == this_process():
            give_up_surely(self._give_up)

    def _give_up(self) -> None:
        self._provider.drop_held(self)
        # The node is this holder's own even after its session ended, so deleting it hurts nobody.
        self._provider.session.delete(self._path)
        self._is_released = True

    def lose(self, reason: str) -> None:
        """Note that the lock is lost, once."""
        with self._mutex:
            is_mine = self._held_by == this_process()
            is_first = is_mine and self._lost_because is None and not self._is_released
            if is_first:
                self._lost_because = reason
        if not is_first:
            return
        self._provider.drop_held(self)
        log.warning("lock lost key=%s token=%d reason=%s", self._key, self._token, reason)
        if self._provider.on_lost is not None:
            # On the client's own thread no question can be asked, so nobody is named here.
            self._provider.on_lost(self._lost_error(reason, None))

    def _look(self) -> None:
        try:
            node = self._provider.session.read(self._path)
        except NotFoundError:
            self.lose("its node is gone")
        except StorageError as error:
            self.lose(f"ZooKeeper did not answer ({error})")
        else:
            if node.created_zxid != self._token:
                self.lose("its node is another's")

    def _fenced(self, reason: str) -> FencedError:
        return self._lost_error(reason, lambda: self._provider.inspect(self._key))

    def _lost_error(self, reason: str, ask_holder: AskHolder | None) -> FencedError:
        return lock_lost_error(
            reason,
            ask_holder,
            key=self._key,
            place=self._provider.place_of(self._key),
            token=self._token,
        )


class _Attempt:
    """Queueing for one lock: implements `LockAttempt`."""

    def __init__(self, provider: ZookeeperLockProvider, key: str) -> None:
        self._provider = provider
        self._key = key
        self._folder = provider.folder_of(key)
        self._prefix = f"_c_{provider.ids.new_uuid()}-lock-"
        self._name: str | None = None

    def take(self) -> ZookeeperLock | None:
        session = self._provider.session
        if self._name is None:
            owner = str(self._provider.ids.owner).encode()
            self._name = session.create(self._folder, self._prefix, owner)
        queue = self._provider.contenders(self._key)
        if self._name not in queue:
            self._name = None  # The session ended meanwhile; the next try queues anew.
            return None
        if self._name != queue[0]:
            return None
        path = f"{self._folder}/{self._name}"
        try:
            node = session.read(path)
        except NotFoundError:
            self._name = None
            return None
        lock = ZookeeperLock(self._provider, self._key, path, node.created_zxid)
        self._provider.add_held(lock)
        return lock

    def holder(self) -> LockInfo | None:
        return self._provider.inspect(self._key)

    def abandon(self) -> None:
        session = self._provider.session
        for name in session.list_names(self._folder):
            if name.startswith(self._prefix):
                session.delete(f"{self._folder}/{name}")


def sort_contenders(names: list[str]) -> list[str]:
    """Order the nodes of a queue by their number, whichever client named them."""
    numbered = [(match.group(), name) for name in names if (match := _SEQUENCE.search(name))]
    return [name for _, name in sorted(numbered)]


def _with_port(host: str, port: int | None) -> str:
    return host if port is None or ":" in host else f"{host}:{port}"
