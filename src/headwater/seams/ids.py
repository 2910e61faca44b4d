"""The id seam: the only source of randomness and of a process's identity."""

from __future__ import annotations

import os
import random
import socket
import uuid
from dataclasses import dataclass, field
from typing import Protocol


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
        """Whether that process has certainly ended; False where this one cannot tell."""
        ...


def _this_process() -> Owner:
    return Owner(socket.gethostname(), os.getpid(), uuid.uuid4().hex[:12])


@dataclass(frozen=True, slots=True)
class SystemIds:
    """Random ids; the owner is this host and process, with a writer id of its own."""

    owner: Owner = field(default_factory=_this_process)

    def new_uuid(self) -> str:
        return str(uuid.uuid4())

    def jitter(self, bound: int) -> int:
        return random.randrange(bound)

    def is_gone(self, owner: Owner) -> bool:
        """Ask the system about processes of this host.

        A number given to a new process only makes a dead owner look alive. Hosts that share a name
        but not their processes make a live one look dead: it is taken over, and fenced.
        """
        if owner.host != self.owner.host:
            return False
        try:
            os.kill(owner.pid, 0)
        except ProcessLookupError:
            return True
        except (PermissionError, OverflowError):
            return False
        return False
