"""The HTTP server seam: an ASGI app served from a thread of this process.

The app runs on an event loop of its own, in that one thread; `run` brings work there from outside.
The thread is a daemon: a process that ends does not wait for it.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar, cast

import uvicorn

from headwater.errors import InvalidInputError, check
from headwater.seams.bounded_http import BACKLOG, REQUEST_S_MAX, BoundedProtocol, connections_max
from headwater.seams.network import LOOPBACK, host_in_url

T = TypeVar("T")

AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]


# Idle connections of tasks that compute for minutes are closed; their clients connect again.
_IDLE_S_MAX = 30
# How long requests under way may take once the server is told to stop.
_GRACE_S_MAX = 60
_START_S_MAX = 30


class HttpServer:
    """One app on one port; start it once, then stop it."""

    def __init__(
        self,
        app: AsgiApp,
        *,
        host: str = LOOPBACK,
        port: int = 0,
        connection_count_max: int | None = None,
        request_s_max: float = REQUEST_S_MAX,
    ) -> None:
        """Take the port; 0 means any that is free.

        Args:
            connection_count_max: more are closed at once; None: see `connections_max`.
            request_s_max: a connection is closed whose request takes longer to arrive.

        Raises:
            InvalidInputError: this machine cannot listen there.
        """
        self._host = host
        bounded = partial(
            BoundedProtocol,
            connection_count_max=connection_count_max or connections_max(),
            request_s_max=request_s_max,
        )
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                loop="asyncio",
                # Called like a class; the signature asks for one.
                http=cast("type[asyncio.Protocol]", bounded),
                ws="none",
                backlog=BACKLOG,
                log_config=None,  # The logging of this process is not ours to configure.
                access_log=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=_IDLE_S_MAX,
                timeout_graceful_shutdown=_GRACE_S_MAX,
            )
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_running = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="http-server", daemon=True)
        self._socket = _listen(host, port)  # Last: from here on there is something to stop.
        self._port = int(self._socket.getsockname()[1])

    @property
    def url(self) -> str:
        """Where it answers, without a slash at the end."""
        return f"http://{host_in_url(self._host)}:{self._port}"

    @property
    def port(self) -> int:
        return self._port

    def start(self) -> None:
        """Begin to serve; connections made from now on are answered."""
        self._thread.start()
        check(self._is_running.wait(_START_S_MAX), "The event loop of a server did not start")

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `work` on the loop that the app runs on, and return what it returns."""
        check(self._loop is not None, "A server runs work only after it has started")
        assert self._loop is not None  # For the type checker.
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result()

    def stop(self, *, waits: bool = True) -> None:
        """Stop to listen, and end once the requests under way are answered.

        Args:
            waits: whether to return only then. It takes a fifth of a second even if there are none.
        """
        self._server.should_exit = True
        if waits and self._thread.ident is not None:
            self._thread.join()
        elif self._thread.ident is None:
            self._socket.close()

    def _serve(self) -> None:
        with self._socket:  # The server leaves it open if it was stopped before it had begun.
            asyncio.run(self._run())

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._is_running.set()
        await self._server.serve(sockets=[self._socket])


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # asyncio sends without delay only on sockets that name their protocol; with delay, each
        # answer waits 40 ms for the client to acknowledge its first half.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except OSError as error:
        raise _cannot_listen(host, port, error) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()
    except (OSError, OverflowError) as error:
        listener.close()
        raise _cannot_listen(host, port, error) from error
    return listener


def _cannot_listen(host: str, port: int, error: Exception) -> InvalidInputError:
    return InvalidInputError(
        f"Cannot listen on {host}, port {port} ({error}). Give an address of this machine, and a "
        "port that is free or 0 for any"
    )
