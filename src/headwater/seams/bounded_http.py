"""HTTP connections that cannot starve the process they are made to.

A connection takes a descriptor, and those are the process's own: a driver that has none left cannot
write to its storage. So there are at most so many connections, and one whose request does not come
to its end is closed; the server itself waits for ever.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

_CONNECTIONS_MAX = 4_096
"""Every task of a large cluster may hold one connection; more than this is something else."""
_CONNECTIONS_MIN = 16

BACKLOG = 64
"""How many connections are taken at once. The event loop takes as many before it looks at any."""
REQUEST_S_MAX = 20.0
"""How long a client may take to send a request; one of ours takes milliseconds."""


def connections_max() -> int:
    """Return how many connections there may be: a fourth of what the process may open.

    For a moment there are more, `BACKLOG` at a time, before those too many are closed.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _CONNECTIONS_MAX
    return max(_CONNECTIONS_MIN, min(_CONNECTIONS_MAX, soft // 4))


class BoundedProtocol(H11Protocol):
    """One connection of at most so many, with a time for each request to arrive."""

    def __init__(
        self, *args: Any, connection_count_max: int, request_s_max: float, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._connection_count_max = connection_count_max
        self._look_s = request_s_max / 2
        self._seen: object = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._connection_count_max:
            transport.abort()
            return
        self._look_later()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._look_s, self._look)

    def _look(self) -> None:
        """Close the connection if the request that it waited for last time is still not there."""
        waited_for = self._awaited_request()
        if waited_for is not None and waited_for is self._seen:
            self.transport.abort()
            return
        self._seen = waited_for
        self._look_later()

    def _awaited_request(self) -> object | None:
        """Return what tells one request from the next; None while the client owes nothing."""
        if self.cycle is None:
            return self
        is_resting = self.timeout_keep_alive_task is not None
        is_next_awaited = self.cycle.response_complete and not is_resting
        return self.cycle if is_next_awaited or self.cycle.more_body else None
