"""What this process gave up and could not say so, because storage failed just then.

A full disk takes no word that a lock is free or that a write has ended. To others it looks held
until its lease or heartbeat has run out. The process itself knows better and need not wait for
itself: whoever notes something here writes nothing more under it.
"""

from __future__ import annotations

from collections import OrderedDict

_NOTED_MAX = 10_000
"""Far above what a process leaves behind before the oldest have run out."""


class GivenUp:
    """Locks by their acquisition, attempts by their token."""

    def __init__(self) -> None:
        self._noted: OrderedDict[str, None] = OrderedDict()

    def note(self, token: str) -> None:
        self._noted[token] = None
        if len(self._noted) > _NOTED_MAX:
            self._noted.popitem(last=False)

    def __contains__(self, token: object) -> bool:
        return token in self._noted
