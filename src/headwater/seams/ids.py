"""The id seam: the only source of randomness and of a process's identity."""

from __future__ import annotations

import os
import random
import socket
import uuid
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from headwater.seams.given_up import GivenUp

_PROC = Path("/proc")
_BOOT_ID = _PROC / "sys/kernel/random/boot_id"
_NAMESPACES = _PROC / "self/ns"


@dataclass(frozen=True, slots=True)
class Owner:
    """Who does something: shown to people, compared by processes."""

    host: str
    pid: int
    writer_id: str
    process_space: str = ""
    """The system that knows the process by this number; empty if that is unknown."""
    started: int = 0
    """When the process began, in ticks of that system; 0 if that is unknown."""

    def __str__(self) -> str:
        return f"{self.host}/{self.pid}/{self.writer_id}"


class Ids(Protocol):
    @property
    def owner(self) -> Owner:
        """This process, as others see it in heartbeats and locks."""
        ...

    def new_uuid(self) -> str:
        """A fresh random UUID in its 36-character form."""
        ...

    def jitter(self, bound: int) -> int:
        """A random integer from 0 to `bound` - 1, for back-off."""
        ...

    def is_gone(self, owner: Owner) -> bool:
        """Whether that process has certainly ended; False where this one cannot tell."""
        ...

    @property
    def given_up(self) -> GivenUp:
        """What this process has given up, whatever storage says of it."""
        ...


_GIVEN_UP = GivenUp()
"""One for the process: a table that is opened again knows what was left behind before."""


class _Forks:
    """Which process this is, for what a forked child finds in its memory."""

    def __init__(self) -> None:
        self.process = ""
        self.begin()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.begin)

    def begin(self) -> None:
        self.process = uuid.uuid4().hex


_FORKS = _Forks()


def this_process() -> str:
    """Name the process that runs this: a forked child has another name than its parent."""
    return _FORKS.process


def _new_owner() -> Owner:
    space, started = _place_of(this_process())
    return Owner(socket.gethostname(), os.getpid(), uuid.uuid4().hex[:12], space, started)


@lru_cache(maxsize=2)
def _place_of(process: str) -> tuple[str, int]:
    """Return where this process has its number, and since when; remembered by its name."""
    pid = os.getpid()
    return _this_process_space(), _started_at(pid) or 0


def _this_process_space() -> str:
    """Return the boot of this kernel and the namespaces of process numbers and times, on Linux.

    Containers may share a name, and machines a number, but no two share all of these.
    """
    try:
        boot = _BOOT_ID.read_text().strip()
        return f"{boot} {os.readlink(_NAMESPACES / 'pid')}{_time_namespace()}"
    except OSError:
        return ""


def _time_namespace() -> str:
    """Return the namespace that the start of a process is told in; kernels before 5.6 have one."""
    try:
        return f" {os.readlink(_NAMESPACES / 'time')}"
    except OSError:
        return ""


class SystemIds:
    """Random ids; the owner is this host and process, with a writer id of its own.

    A forked child that goes on with its parent's ids is an owner of its own, named after it.
    """

    __slots__ = ("_made_in", "_owner")

    def __init__(self, owner: Owner | None = None) -> None:
        self._made_in = this_process()
        self._owner = owner or _new_owner()

    @property
    def owner(self) -> Owner:
        if self._made_in == this_process():
            return self._owner
        pid = os.getpid()
        space, started = _place_of(this_process())
        return replace(
            self._owner,
            host=socket.gethostname(),
            pid=pid,
            writer_id=f"{self._owner.writer_id}-{pid}",
            process_space=space,
            started=started,
        )

    @property
    def given_up(self) -> GivenUp:
        return _GIVEN_UP

    def new_uuid(self) -> str:
        return str(uuid.uuid4())

    def jitter(self, bound: int) -> int:
        return random.randrange(bound)

    def is_gone(self, owner: Owner) -> bool:
        """Ask the system about processes that it knows by the numbers of this one.

        Names of hosts say nothing: containers may share one and not see each other's processes.
        """
        space, _ = _place_of(this_process())
        return bool(space) and owner.process_space == space and _has_ended(owner)


def _has_ended(owner: Owner) -> bool:
    """Whether no process has the number any more, or another one has, or only its rest is left."""
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        pass
    stat = _load_stat(owner.pid)
    if stat is None:
        return False
    is_another = bool(owner.started) and stat.started != owner.started
    # The first thread of a process may have ended before the others: that is no end.
    is_zombie = stat.state in "ZX" and stat.thread_count <= 1
    return is_another or is_zombie


@dataclass(frozen=True, slots=True)
class _ProcessStat:
    state: str
    thread_count: int
    started: int


def _started_at(pid: int) -> int | None:
    stat = _load_stat(pid)
    return None if stat is None else stat.started


def _load_stat(pid: int) -> _ProcessStat | None:
    """Return what the system says of a process; None where it does not, or hides it from us."""
    try:
        # What is mounted there may be about another namespace, where numbers mean others.
        if os.readlink(_PROC / "self") != str(os.getpid()):
            return None
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
        # proc(5): the name, in parentheses, may have any character; fields are counted after it.
        fields = text.rpartition(")")[2].split()
        return _ProcessStat(fields[0], int(fields[17]), int(fields[19]))
    except (OSError, ValueError, IndexError):
        return None
