"""Simulated processes: product code that stops at every seam call.

A process is a deterministic function of the answers its calls get. `Program` uses that: it keeps
a tree of all answers seen so far, each node a `Local` state with the calls the process makes
next. Walking the tree costs a dictionary look-up; product code runs only to grow it. A process
that must go on from an older node is started again and fed the recorded answers.

A crash throws `Crashed` into the code. It is a `BaseException`, so that no `except Exception` can
swallow it; `finally` blocks run, but every seam call they make raises `Crashed` again. A dead
process leaves exactly the storage it had.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from headwater.errors import InternalError
from headwater.kernel.journal.journal import Journal
from headwater.kernel.journal.state import Areas
from headwater.kernel.journal.storage import JournaledStorage
from headwater.kernel.layout import TableLayout
from headwater.seams.clock import Clock, Timer
from headwater.seams.ids import Ids
from headwater.seams.lock import LockProvider
from headwater.seams.storage import Storage
from headwater.testing.baton import Baton, BatonFactory, GreenletBaton
from headwater.testing.operation import Failure, Kind, Op
from headwater.testing.seams import SimClock, SimIds, SimLock, SimStorage

MAIN = 0  # The thread a process starts with; timers are 1, 2, ...
DEAD_CALLS_MAX = 1000  # A dead process that calls more often swallows its own death.
LIVE_MAX = 64  # Suspended processes kept per program; each holds a stack.


class Crashed(BaseException):
    """The process is dead. Nothing it does reaches the world any more."""


class Nondeterminism(Exception):
    """A process made another call although it got the same answers."""


class Note(NamedTuple):
    """Something a process tells the checker, such as an acknowledgement it gave its client."""

    name: str
    values: tuple[Any, ...]


class Outcome(NamedTuple):
    """How the main thread ended: a value, or the text of an error nobody expected."""

    value: Any
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Process:
    """What the body of an actor gets: seams of its own, and a way to leave notes."""

    name: str
    storage: Storage
    clock: Clock
    ids: Ids
    lock: LockProvider
    note: Callable[..., None]


Body = Callable[[Process], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRules:
    """How processes of a scenario run."""

    page_size: int = 1000
    is_distant: bool = False
    """Whether they read ahead, and at once what does not depend on each other, as from a store."""
    has_tickers: bool = False  # False: timers never fire, which is a ticker that failed (F8).
    baton: BatonFactory = GreenletBaton
    checkpoint_every: int | None = None
    """On a fenced table: after how many slots a checkpoint comes."""


class Defect(BaseException):
    """The product calls something a bug of its own; no scenario takes that for a way to end."""


class _StrictJournaled(JournaledStorage):
    """A fenced table on which a write past the journal is a finding, whoever catches errors."""

    def _check_free(self, path: str) -> None:
        try:
            super()._check_free(path)
        except InternalError as error:
            raise Defect(str(error)) from error


class _Live:
    """A process suspended at its calls."""

    def __init__(self, name: str, incarnation: int, body: Body, rules: ProcessRules) -> None:
        self.pending: dict[int, Op] = {}
        self.outcome: Outcome | None = None
        self.notes: list[Note] = []
        self.dead_call_count = 0
        self._rules = rules
        self._is_dead = False
        self._ended: set[int] = set()
        self._batons: dict[int, Baton] = {}
        self._thread = MAIN
        self._thread_count = 1
        storage: Storage = SimStorage(
            self.call, page_size=rules.page_size, is_distant=rules.is_distant
        )
        clock, ids = SimClock(self.call, self.start_timer), SimIds(name, incarnation)
        if rules.checkpoint_every is not None:
            areas = Areas(TableLayout().timeline)
            journal = Journal(storage, clock, ids, areas, every=rules.checkpoint_every)
            storage = _StrictJournaled(journal)
        process = Process(
            name=name,
            storage=storage,
            clock=clock,
            ids=ids,
            lock=SimLock(self.call),
            note=self._take_note,
        )
        self._batons[MAIN] = rules.baton(lambda: self._run_main(body, process))
        self._batons[MAIN].resume(None)

    # Inside the process.

    def call(self, op: Op) -> Any:
        thread = self._thread
        if self._is_dead or thread in self._ended:
            self.dead_call_count += 1
            while self.dead_call_count > DEAD_CALLS_MAX:
                self._batons[thread].park()
            raise Crashed
        self.pending[thread] = op
        answer = self._batons[thread].park()
        if self._is_dead or thread in self._ended:
            raise Crashed
        if isinstance(answer, Failure):
            raise answer.to_error()
        return answer

    def _take_note(self, name: str, *values: Any) -> None:
        if not self._is_dead:
            self.notes.append(Note(name, values))

    def start_timer(self, interval_ms: int, call: Callable[[], bool], name: str) -> Timer:
        if self._is_dead:
            raise Crashed
        timer = _SimTimer(self, self._thread_count)
        self._thread_count += 1
        if self._rules.has_tickers:
            wait = Op(Kind.WAIT, name, number=interval_ms)
            self._batons[timer.thread] = self._rules.baton(lambda: timer.run(wait, call))
            self.pending[timer.thread] = wait
        return timer

    def _run_main(self, body: Body, process: Process) -> None:
        try:
            self.outcome = Outcome(body(process))
        except Crashed:
            pass
        except BaseException:  # noqa: BLE001
            # Whatever a scenario does not turn into a result is a finding, not a crash of ours.
            self.outcome = Outcome(None, traceback.format_exc(limit=-4))

    # Outside, in the scheduler.

    def answer(self, thread: int, answer: Any) -> None:
        """Answer the pending call of a thread and run it to its next one."""
        del self.pending[thread]
        self._thread = thread
        self._batons[thread].resume(answer)
        if self.outcome is not None and self.pending:
            # A timer left running would beat for ever on behalf of nobody.
            self.outcome = Outcome(None, f"ended with timers running: {_show_all(self.pending)}")
            self.kill()

    def end_thread(self, thread: int) -> None:
        """End one timer in the middle of whatever it does (F8)."""
        del self.pending[thread]
        self._ended.add(thread)
        if self._batons[thread].has_started:
            caller, self._thread = self._thread, thread
            self._batons[thread].resume(None)
            self._thread = caller

    def kill(self) -> None:
        """Throw `Crashed` into every thread that is still suspended."""
        self._is_dead = True
        for thread in list(self.pending):
            baton = self._batons[thread]
            self._thread = thread
            if baton.has_started:
                baton.resume(None)
        self.pending.clear()

    @property
    def thread(self) -> int:
        return self._thread


class _SimTimer:
    def __init__(self, live: _Live, thread: int) -> None:
        self.thread = thread
        self._live = live
        self._is_cancelled = False

    def run(self, wait: Op, call: Callable[[], bool]) -> None:
        try:
            while not self._is_cancelled and call() and not self._is_cancelled:
                self._live.call(wait)
        except Crashed:
            pass
        except Exception as error:  # noqa: BLE001
            # As with real timers an error ends it, and nobody is told but the log.
            self._live.notes.append(Note("timer_failed", (str(error),)))

    def cancel(self) -> None:
        self._is_cancelled = True
        pending = self._live.pending.get(self.thread)
        if pending is not None and pending.kind is Kind.WAIT:
            self._live.end_thread(self.thread)
        elif pending is not None and self._live.thread != self.thread:
            self._live.call(Op(Kind.JOIN, number=self.thread))


class Local:
    """One state of a process: what it asks next, or how it ended."""

    __slots__ = ("answer", "children", "index", "live", "notes", "outcome", "parent", "pending")

    def __init__(
        self, index: int, parent: Local | None, answer: tuple[int, Any] | None, live: _Live
    ) -> None:
        self.index = index
        self.parent = parent
        self.answer = answer
        self.children: dict[tuple[int, Any], Local] = {}
        self.pending: tuple[tuple[int, Op], ...] = tuple(sorted(live.pending.items()))
        self.outcome = live.outcome
        self.notes = tuple(live.notes)
        self.live: _Live | None = live
        live.notes.clear()

    def op_of(self, thread: int) -> Op | None:
        for candidate, op in self.pending:
            if candidate == thread:
                return op
        return None


_END_THREAD = "the thread ends here"  # The answer that stands for a timer's failure.


class Program:
    """All states of one process seen so far."""

    def __init__(self, name: str, body: Body, rules: ProcessRules, incarnation: int = 1) -> None:
        self.name = name
        self.incarnation = incarnation
        self.body = body
        self._rules = rules
        self._count = 0
        self._live: deque[Local] = deque()
        self.problems: list[str] = []  # What processes did wrong when they were told to die.
        self._crashed_at: set[tuple[tuple[int, Op], ...]] = set()
        self.root = self._local(None, None, self._start())

    def _start(self) -> _Live:
        return _Live(self.name, self.incarnation, self.body, self._rules)

    def _local(self, parent: Local | None, answer: tuple[int, Any] | None, live: _Live) -> Local:
        local = Local(self._count, parent, answer, live)
        self._count += 1
        if live.outcome is not None:
            local.live = None
            return local
        self._live.append(local)
        if len(self._live) > LIVE_MAX:
            self._retire(self._live.popleft())
        return local

    def after(self, local: Local, thread: int, answer: Any) -> Local:
        """Return the state after `answer` to the pending call of `thread`."""
        edge = (thread, answer)
        known = local.children.get(edge)
        if known is None:
            live = self._revive(local)
            _deliver(live, thread, answer)
            known = local.children[edge] = self._local(local, edge, live)
        return known

    def after_end_of(self, local: Local, thread: int) -> Local:
        """Return the state after the failure of a timer."""
        return self.after(local, thread, _END_THREAD)

    def crash(self, local: Local) -> None:
        """Let the code unwind from a crash in this state, once for every place it can be at."""
        if local.pending not in self._crashed_at:
            self._crashed_at.add(local.pending)
            local.live = self._revive(local)
            self._retire(local)

    def close(self) -> None:
        """Unwind every suspended process."""
        while self._live:
            self._retire(self._live.popleft())

    def _retire(self, local: Local) -> None:
        live, local.live = local.live, None
        if live is None:
            return
        live.kill()
        asked = _show_all(dict(local.pending))
        if live.dead_call_count > DEAD_CALLS_MAX:
            self.problems.append(f"{self.name} swallows its own crash at {asked} and goes on")
        elif live.outcome is not None:
            self.problems.append(f"{self.name} makes {live.outcome} of its own crash at {asked}")

    def _revive(self, local: Local) -> _Live:
        live, local.live = local.live, None
        if live is not None:
            return live
        edges = []
        node = local
        while node.parent is not None and node.answer is not None:
            edges.append((node.parent, node.answer))
            node = node.parent
        live = self._start()
        for before, (thread, answer) in reversed(edges):
            self._compare(live, before)
            _deliver(live, thread, answer)
        self._compare(live, local)
        live.notes.clear()
        return live

    def _compare(self, live: _Live, local: Local) -> None:
        found = tuple(sorted(live.pending.items()))
        if found != local.pending:
            raise Nondeterminism(
                f"{self.name} asked {_show_all(dict(local.pending))} the first time and "
                f"{_show_all(live.pending)} the second time, after the same answers. Look for "
                "global state, the order of sets and real clocks."
            )


def _deliver(live: _Live, thread: int, answer: Any) -> None:
    if answer is _END_THREAD:
        live.end_thread(thread)
    else:
        live.answer(thread, answer)


def _show_all(pending: dict[int, Op]) -> str:
    return ", ".join(str(op) for op in pending.values()) or "nothing"
