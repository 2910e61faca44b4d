"""The id seam: the only source of randomness and of a process's identity."""

from __future__ import annotations

import os
import random
import socket
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PID_NAMESPACE = "/proc/self/ns/pid"


@dataclass(frozen=True, slots=True)
class Owner:
    """Who does something: shown to people, compared by processes."""

    host: str
    pid: int
    writer_id: str

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
        """Whether that process has ended, as far as names of hosts tell; else False.

        Good enough for who is fenced if it was a mistake.
        """
        ...

    @property
    def process_space(self) -> str:
        """Names the system in which this process has its number; empty if that is unknown."""
        ...

    def has_ended(self, pid: int, process_space: str) -> bool:
        """Whether a process has certainly ended; False where this one cannot tell."""
        ...


def _this_process() -> Owner:
    return Owner(socket.gethostname(), os.getpid(), uuid.uuid4().hex[:12])


def _this_process_space() -> str:
    """Return the boot of this kernel and the namespace of process numbers, on Linux.

    Containers may share a name, and machines a number, but no two share both of these.
    """
    try:
        return f"{_BOOT_ID.read_text().strip()} {os.readlink(_PID_NAMESPACE)}"
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class SystemIds:
    """Random ids; the owner is this host and process, with a writer id of its own."""

    owner: Owner = field(default_factory=_this_process)
    process_space: str = field(default_factory=_this_process_space)

    def new_uuid(self) -> str:
        return str(uuid.uuid4())

    def jitter(self, bound: int) -> int:
        return random.randrange(bound)

    def is_gone(self, owner: Owner) -> bool:
        """Ask the system about processes of this host.

        A number given to a new process only makes a dead owner look alive. Hosts that share a name
        but not their processes make a live one look dead: it is taken over, and fenced.
        """
        return owner.host == self.owner.host and _is_free(owner.pid)

    def has_ended(self, pid: int, process_space: str) -> bool:
        return bool(process_space) and process_space == self.process_space and _is_free(pid)


def _is_free(pid: int) -> bool:
    """Whether no process has this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False
