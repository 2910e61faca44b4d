"""A line on loopback to a server, on which every request takes its time.

It costs little itself, so that it is not what is measured: bytes pass unread. A request is what
comes from a client after an answer; clients of HTTP/1.1 wait for one before they send the next.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast


class SlowLine:
    """A line that runs; `delay_s` can be set at any time."""

    def __init__(self, server_port: int) -> None:
        self.server_port = server_port
        self.delay_s = 0.0
        self.requests = 0
        self.port = 0

    async def serve(self, is_up: threading.Event, over: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        async with await loop.create_server(lambda: _Asking(self), "127.0.0.1", 0) as server:
            self.port = server.sockets[0].getsockname()[1]
            is_up.set()
            await over.wait()


class _Asking(asyncio.Protocol):
    """The end at the client: holds back what it asks."""

    def __init__(self, line: SlowLine) -> None:
        self.is_answered = True
        self._line = line
        self._held: list[bytes] = []
        self._waits = True
        self._server: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        client = cast("asyncio.Transport", transport)
        self._connecting = asyncio.ensure_future(self._connect(client))

    async def _connect(self, client: asyncio.Transport) -> None:
        loop = asyncio.get_running_loop()
        answering = lambda: _Answering(self, client)  # noqa: E731
        self._server, _ = await loop.create_connection(
            answering, "127.0.0.1", self._line.server_port
        )
        if not self.is_answered:  # It asked before there was anybody to ask.
            loop.call_later(self._line.delay_s, self._send)

    def data_received(self, data: bytes) -> None:
        if self.is_answered:
            self.is_answered = False
            self._waits = True
            self._line.requests += 1
            if self._server is not None:
                asyncio.get_running_loop().call_later(self._line.delay_s, self._send)
        self._held.append(data)
        if not self._waits:
            self._send()

    def _send(self) -> None:
        self._waits = False
        held, self._held = b"".join(self._held), []
        if self._server is not None:
            self._server.write(held)

    def connection_lost(self, error: Exception | None) -> None:
        if self._server is not None:
            self._server.close()


class _Answering(asyncio.Protocol):
    """The end at the server: passes on what it answers."""

    def __init__(self, asking: _Asking, client: asyncio.Transport) -> None:
        self._asking = asking
        self._client = client

    def data_received(self, data: bytes) -> None:
        self._asking.is_answered = True
        self._client.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._client.close()


@contextmanager
def slow_line(server_port: int) -> Iterator[SlowLine]:
    """Keep a line to a server of this machine open."""
    line, is_up, loop = SlowLine(server_port), threading.Event(), asyncio.new_event_loop()
    over = asyncio.Event()
    thread = threading.Thread(
        target=lambda: loop.run_until_complete(line.serve(is_up, over)), daemon=True
    )
    thread.start()
    is_up.wait()
    try:
        yield line
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(timeout=10)
