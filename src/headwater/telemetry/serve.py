"""The Prometheus endpoint: `GET /metrics`, served from a thread of this process.

On loopback unless another address is given, and then only to requests that name this machine: a
page in a browser here must not read it under a name of its own. Nothing can be asked but the text.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from headwater.seams.http_server import HttpServer
from headwater.seams.meters import listen, stop_listening
from headwater.seams.network import LOOPBACK, LOOPBACK_NAMES, is_loopback
from headwater.telemetry.collected import CONTENT_TYPE, Collected

PORT = 9464
"""The port that OpenTelemetry's exporters for Prometheus have as well."""

_CONNECTIONS_MAX = 16


class MetricsServer:
    """Counts, and answers who asks, until it is stopped; also as a `with` block."""

    def __init__(self, host: str, port: int) -> None:
        self._collected = Collected()
        app = Starlette(
            routes=[Route("/metrics", self._answer, methods=["GET"])],
            middleware=_guards_of(host),
        )
        self._server = HttpServer(app, host=host, port=port, connection_count_max=_CONNECTIONS_MAX)
        self._server.start()
        listen(self._collected)

    @property
    def url(self) -> str:
        """Where the metrics are."""
        return f"{self._server.url}/metrics"

    def text(self) -> str:
        """Return what is answered just now."""
        return self._collected.text()

    def stop(self) -> None:
        """Stop to count and to answer."""
        stop_listening(self._collected)
        self._server.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self.stop()

    async def _answer(self, _: Request) -> Response:
        return PlainTextResponse(self._collected.text(), media_type=CONTENT_TYPE)


def serve_metrics(port: int = PORT, *, host: str = LOOPBACK) -> MetricsServer:
    """Count what this process does, and answer Prometheus at `http://host:port/metrics`.

    Requests to local disks are counted for tables that are opened from now on, all else at once.
    The server runs in a thread, for as long as the process does or until `stop`.

    Args:
        port: 0 for any that is free; `url` tells.
        host: an address of this machine. Others than loopback are reached by whoever reaches this
            machine: locations of tables are in what they read.

    Raises:
        InvalidInputError: this machine cannot listen there.
    """
    return MetricsServer(host, port)


def _guards_of(host: str) -> list[Middleware]:
    if not is_loopback(host):
        return []
    allowed = [*LOOPBACK_NAMES, host]
    return [Middleware(TrustedHostMiddleware, allowed_hosts=allowed, www_redirect=False)]
