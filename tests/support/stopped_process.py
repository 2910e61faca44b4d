"""A process that the system stops right before one of its calls of storage, and lets go on later.

It is a fork of this one. Its calls are those that `LocalStorage` gets, whoever makes them, so tasks
count too; a call that another one makes does not, nor do the beats of a heartbeat. Before the one
that is asked for it sends itself SIGSTOP: nothing of it runs, no thread, until `resume`. Time is
what this process and the child's clock say it is. `Leaping` passes time instead of waiting, so
nothing here waits for a lease; a child whose clock does not count the time that it stood still, as
one of a machine that was suspended, believes that its own leases are good.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, BinaryIO, Generic, Self, TypeVar

from headwater import opening
from headwater.seams.clock import SystemClock
from headwater.seams.local import LocalStorage

T = TypeVar("T")
R = TypeVar("R")

_CALLS = (
    *("read", "read_range", "read_many", "open_input", "info", "list_names", "list_tree"),
    *("put", "put_many", "create_many", "put_if_absent", "replace", "delete"),
)
A_DAY_MS = 86_400_000
"""Longer than every lease and heartbeat."""


Stops = Callable[[Sequence[str]], bool]


def before_call(number: int) -> Stops:
    """Stop before the call of this number, from 0."""
    return lambda calls: len(calls) == number + 1


class Leaping(SystemClock):
    """A clock whose sleeps take no time, and that can be set forward."""

    ahead_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.ahead_ms

    def sleep_ms(self, duration_ms: int) -> None:
        self.ahead_ms += duration_ms


@dataclass(frozen=True)
class Told(Generic[R]):
    """What a process came to: its answer or its error, and the calls that it made."""

    answer: R | None
    error: BaseException | None
    calls: list[str]


class StoppedProcess(Generic[T, R]):
    """A child that prepares something, then acts, and stops before a call of the latter.

    Whatever becomes of the test, it is killed and waited for at the end of the `with` block.
    """

    def __init__(
        self,
        prepare: Callable[[], T],
        act: Callable[[T], R],
        *,
        stops: Stops | None = None,
        notices: bool = False,
    ) -> None:
        """Start it.

        Args:
            stops: tells by the calls so far whether to stop before the last one; once.
            notices: whether its clock counts the time that it stood still.
        """
        source, target = os.pipe()
        self._pid: int | None = os.fork()
        if self._pid == 0:
            os.close(source)
            _run_child(prepare, act, target, stops, notices)
        os.close(target)
        self._answers = os.fdopen(source, "rb")
        self.pid = self._pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        self._answers.close()

    def wait_until_stopped(self) -> None:
        """Return when it stands still.

        Raises:
            AssertionError: it made fewer calls than that.
        """
        assert self._pid is not None
        _, status = os.waitpid(self._pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            self._pid = None
            raise AssertionError(f"it ended before it was stopped: {self._read()}")

    def is_stopped_or_done(self) -> bool:
        """Return, once it stands still or has ended, whether it stands still."""
        there = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
        assert there is not None
        return there.si_code == os.CLD_STOPPED

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet. It is not waited for."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def resume(self) -> Told[R]:
        """Let it go on, and return what it came to."""
        assert self._pid is not None
        os.kill(self._pid, signal.SIGCONT)
        return self.wait()

    def wait(self) -> Told[R]:
        told = self._read()
        assert self._pid is not None
        os.waitpid(self._pid, 0)
        self._pid = None
        return told

    def _read(self) -> Told[R]:
        data = self._answers.read()
        assert data, "the child failed"
        told: Told[R] = pickle.loads(data)
        return told


class _Gate:
    """Counts the calls of one thread, and stops the process before one of them."""

    def __init__(self, stops: Stops | None, clock: Leaping | None) -> None:
        self.calls: list[str] = []
        self.is_open = False
        self._stops = stops
        self._clock = clock
        self._depth = 0

    @contextmanager
    def call(self, method: str, path: object) -> Iterator[None]:
        if not self.is_open or threading.current_thread() is not threading.main_thread():
            yield
            return
        if self._depth == 0:
            self.enter(method, path)
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def enter(self, method: str, path: object) -> None:
        self.calls.append(f"{method} {path if isinstance(path, str) else ''}".strip())
        if self._stops is not None and self._stops(self.calls):
            self._stops = None
            os.kill(os.getpid(), signal.SIGSTOP)
            if self._clock is not None:
                self._clock.ahead_ms += A_DAY_MS

    def install(self) -> None:
        """Stand before local storage, for good: the process is a child."""
        for method in _CALLS:
            setattr(LocalStorage, method, self._gated(method, getattr(LocalStorage, method)))
        opened = LocalStorage.open_output

        @contextmanager
        def open_output(storage: LocalStorage, path: str) -> Iterator[BinaryIO]:
            with self.call("open_output", path):
                pass
            with opened(storage, path) as sink:
                yield sink
                with self.call("publish", path):
                    pass

        LocalStorage.open_output = open_output  # type: ignore[assignment, method-assign]

    def _gated(self, method: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def gated(storage: LocalStorage, path: Any, *arguments: Any, **named: Any) -> Any:
            with self.call(method, path):
                return call(storage, path, *arguments, **named)

        return gated


def _run_child(
    prepare: Callable[[], T],
    act: Callable[[T], R],
    target: int,
    stops: Stops | None,
    notices: bool,
) -> None:
    """Do what the child is for; never returns."""
    code = 1
    try:
        logging.disable(logging.CRITICAL)
        clock = Leaping() if notices else None
        if clock is not None:
            setattr(opening, "SystemClock", lambda: clock)  # noqa: B010
        gate = _Gate(stops, clock)
        prepared = prepare()
        gate.install()
        gate.is_open = True
        answer: R | None = None
        error: BaseException | None = None
        try:
            answer = act(prepared)
        except BaseException as raised:  # noqa: BLE001  # The parent is to know all of them.
            error = raised
        gate.is_open = False
        with os.fdopen(target, "wb") as sink:
            pickle.dump(Told(answer, error, gate.calls), sink)
        code = 0
    finally:
        os._exit(code)
